"""A file is written whole or not at all."""

import pytest

from gwi._files import atomic_file, write_atomically


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
