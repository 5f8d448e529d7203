"""A file is written whole or not at all."""

import contextlib
import os
import resource
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from gwi.exceptions import OutputError
from gwi.tables.files import atomic_file, check_writable, write_atomically


def test_a_file_takes_its_name_when_all_is_written(tmp_path):
    path = tmp_path / "a.bin"
    with atomic_file(path) as file:
        file.write(b"one ")
        assert not path.exists()
        file.write(b"two")
    assert path.read_bytes() == b"one two"
    assert write_atomically(path, b"three") == path
    assert path.read_bytes() == b"three"
    assert [part.name for part in tmp_path.iterdir()] == ["a.bin"]


def write_half(path, error):
    with atomic_file(path) as file:
        file.write(b"new")
        raise error


def test_an_error_or_an_interrupt_leaves_what_was_there(tmp_path):
    path = tmp_path / "a.bin"
    write_atomically(path, b"old")
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error):
            write_half(path, error)
    assert path.read_bytes() == b"old"
    assert [part.name for part in tmp_path.iterdir()] == ["a.bin"]
    with pytest.raises(IsADirectoryError, match="is a folder"):
        write_atomically(tmp_path, b"")
    with pytest.raises(FileNotFoundError, match="create it first"):
        write_atomically(tmp_path / "none" / "a.bin", b"")


def write_new(path):
    write_atomically(path, b"new")


def contents(folder):
    return {part.name: part.read_bytes() for part in folder.iterdir()}


@contextmanager
def limited(size):
    """The system refuses to let a file grow beyond so many bytes, as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def read_only_folder():
    """A folder that this process may not write to; root gives up its rights meanwhile, for whom there is none."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "a.bin").write_bytes(b"old")
        os.chmod(name, 0o555)
        is_root = os.geteuid() == 0
        if is_root:
            os.seteuid(65534)
        try:
            yield Path(name)
        finally:
            if is_root:
                os.seteuid(0)
            os.chmod(name, 0o755)


def test_a_device_a_pipe_or_a_socket_is_never_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    server = socket.socket(socket.AF_UNIX)
    # Names of sockets are short.
    with contextlib.chdir(tmp_path), server:
        server.bind("socket")
    if os.geteuid() == 0:
        os.mknod(tmp_path / "device", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for path in sorted(tmp_path.iterdir()):
        before = path.lstat()
        for write in (write_new, check_writable):
            with pytest.raises(
                OSError, match="is not an ordinary file but a device, a pipe or a socket; give the name of a file"
            ):
                write(path)
        assert path.lstat().st_ino == before.st_ino


def test_a_link_stays_and_so_do_the_rights_of_the_file_it_leads_to(tmp_path):
    path, link = tmp_path / "a.bin", tmp_path / "link"
    write_atomically(path, b"old")
    path.chmod(0o640)
    link.symlink_to(path)
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o640)
    write_atomically(path, b"secret", private=True)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("size", [5_000, 200_000])
def test_a_full_disk_is_one_sentence_and_the_old_file_stays(tmp_path, size):
    """Whether the fault comes with a write or only when the last bytes leave the buffer."""
    path = tmp_path / "a.bin"
    write_atomically(path, b"old")
    with limited(4096), pytest.raises(OutputError) as caught:
        write_atomically(path, bytes(size))
    assert str(caught.value) == f"{path} cannot be written (File too large); free some space there, or choose another place."
    with limited(100), pytest.raises(OutputError, match="cannot be written"):
        check_writable(path)
    assert contents(tmp_path) == {"a.bin": b"old"}


def test_a_folder_that_may_not_be_written_or_has_gone_is_one_sentence(tmp_path):
    with read_only_folder() as folder:
        for write in (write_new, check_writable):
            with pytest.raises(OutputError, match=r"a\.bin cannot be written \(Permission denied\); free some space"):
                write(folder / "a.bin")
        assert contents(folder) == {"a.bin": b"old"}
    gone = tmp_path / "gone"
    gone.mkdir()

    def write_late():
        with atomic_file(gone / "a.bin") as file:
            file.write(b"new")
            shutil.rmtree(gone)

    with pytest.raises(OutputError, match=r"gone/a\.bin cannot be written \(No such file"):
        write_late()


WRITES = """
import sys, time
from gwi.tables.files import atomic_file
with atomic_file(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    time.sleep(60)
"""


def start_writing(path):
    process = subprocess.Popen(
        [sys.executable, "-c", WRITES, str(path)], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": ":".join(sys.path)}
    )
    assert process.stdout.readline() == b"writing\n"
    return process


def test_what_a_killed_process_left_is_swept_and_what_a_living_one_writes_is_not(tmp_path):
    path = tmp_path / "a.bin"
    (tmp_path / ".gwi-notes.part").write_bytes(b"mine")
    with start_writing(path) as killed, start_writing(path) as living:
        try:
            killed.kill()
            killed.wait()
            assert sorted(contents(tmp_path).values()) == [b"half", b"half", b"mine"]
            write_atomically(tmp_path / "other.bin", b"new")
            assert sorted(contents(tmp_path).values()) == [b"half", b"mine", b"new"]
            assert living.poll() is None
        finally:
            living.kill()
    check_writable(path)
    assert contents(tmp_path) == {".gwi-notes.part": b"mine", "other.bin": b"new"}


def test_writers_in_one_folder_do_not_sweep_each_other(tmp_path):
    def write(place):
        for _ in range(50):
            write_atomically(tmp_path / f"{place}.bin", bytes([place]))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert contents(tmp_path) == {f"{place}.bin": bytes([place]) for place in range(4)}
