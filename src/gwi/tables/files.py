"""Writing files whole or not at all."""

from __future__ import annotations

import io
import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from gwi.exceptions import OutputError
from gwi.tables.addresses import Remote, as_path

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows, where the system itself keeps an open file from being removed.
    fcntl = None

# A file that is not whole yet. Who writes it holds a lock on it; nobody does where a process was killed.
_PART = re.compile(r"\.gwi-[0-9a-f]{16}\.part")
# Bytes that show whether there is room on a disk.
_PAGE = 4096


@contextmanager
def atomic_file(path: str | os.PathLike[str], private: bool = False) -> Iterator[BinaryIO]:
    """A new file beside, to write to, which takes the name when nothing went wrong inside; else all stays as it was.

    Args:
        path: where the file goes; of a link, where that leads; or an address, to which a whole file is uploaded at the end.
        private: whether nobody else may read it; else it is as open as the one it replaces. At an address its keeper decides.

    Raises:
        OSError: when it cannot be written, in a sentence.
    """
    path = as_path(path)
    if isinstance(path, Remote):
        with _staged(path) as file:
            yield file
        return
    target = Path(os.path.realpath(path))
    with _part(path, target.parent, private) as (file, beside):
        yield file
        with _writing(path):
            file.flush()
            os.fsync(file.fileno())
            if not private and target.exists():
                beside.chmod(target.stat().st_mode & 0o777)
            if fcntl is None:
                file.close()
            beside.replace(target)


@contextmanager
def _staged(remote: Remote) -> Iterator[BinaryIO]:
    """A file on this machine that is uploaded when nothing went wrong inside."""
    with tempfile.TemporaryDirectory(prefix="gwi-") as folder:
        raw = NamedOutput(Path(folder) / "whole", "xb")
        raw.output = remote
        try:
            file = io.BufferedWriter(raw)
            yield file
            with _writing(remote):
                file.flush()
        finally:
            raw.close()
        remote.upload(Path(folder) / "whole")


def write_atomically(path: str | os.PathLike[str], data: bytes, private: bool = False) -> Any:
    """Write all of it or nothing; the path."""
    with atomic_file(path, private) as file:
        file.write(data)
    return as_path(path)


def is_taken(path: str | os.PathLike[str]) -> bool:
    """Whether there is a file already, or a link to one."""
    path = as_path(path)
    return path.is_file() if isinstance(path, Remote) else os.path.lexists(path) and not os.path.isdir(path)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Write a little beside it and take it away again, before the work of which it is the outcome.

    Raises:
        OSError: when it cannot be written, in a sentence.
    """
    path = as_path(path)
    if isinstance(path, Remote):
        path.try_out()
        return
    with _part(path, Path(os.path.realpath(path)).parent, True) as (file, _), _writing(path):
        file.write(bytes(_PAGE))
        file.flush()
        os.fsync(file.fileno())


class NamedOutput(io.FileIO):
    """A file whose faults name the output: not the file beside it, nor nothing."""

    output: str | os.PathLike[str]

    def write(self, data: Any) -> int:
        """As of any file."""
        with _writing(self.output):
            return super().write(data)


@contextmanager
def _part(path: str | os.PathLike[str], folder: Path, private: bool) -> Iterator[tuple[io.BufferedWriter, Path]]:
    """A new file in the folder, locked, and its path; it is removed at the end where it is still there."""
    _check_kind(Path(path))
    with _writing(path):
        _sweep(folder)
        raw, beside = _opened(folder, 0o600 if private else 0o666)
    raw.output = path
    try:
        yield io.BufferedWriter(raw), beside
    finally:
        # Not the buffer: what it holds after a fault would be the same fault again.
        raw.close()
        with suppress(OSError):
            beside.unlink()


def _check_kind(path: Path) -> None:
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file in it, for example {path / 'model.gwi'}.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"The folder {path.parent} does not exist; create it first.")
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is not an ordinary file but a device, a pipe or a socket; give the name of a file.")


def _opened(folder: Path, mode: int) -> tuple[NamedOutput, Path]:
    while True:
        beside = folder / f".gwi-{secrets.token_hex(8)}.part"
        raw = NamedOutput(beside, "xb", opener=lambda name, flags: os.open(name, flags, mode))
        if fcntl is None:
            return raw, beside
        # Some file systems have no locks; there nothing is swept.
        with suppress(OSError):
            fcntl.flock(raw, fcntl.LOCK_EX)
        if os.fstat(raw.fileno()).st_nlink:
            return raw, beside
        # Another process swept it away before we had the lock.
        raw.close()


def _sweep(folder: Path) -> None:
    """Remove what processes that were killed have left, and nothing that one still writes."""
    with os.scandir(folder) as entries:
        left = [entry.path for entry in entries if _PART.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)]
    for name in left:
        # Someone writes it, has removed it, or it is another user's.
        with suppress(OSError):
            if fcntl is None:
                os.unlink(name)
                continue
            with open(name, "r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(name)


@contextmanager
def _writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Faults of the system inside are those of writing this file."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(error.errno, error.strerror or str(error), os.fspath(path)) from error
