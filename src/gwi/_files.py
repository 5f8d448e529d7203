"""Writing files whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A new file beside, to write to, which takes the name when nothing went wrong inside; else all stays as it was."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; give the name of a file in it, for example {target / 'model.gwi'}.")
    if target.exists() and not target.is_file():
        # The new file would take its name, which ends /dev/null for everybody.
        raise OSError(f"{target} is a pipe or a device, which a file must not replace; give another name.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"The folder {target.parent} does not exist; create it first.")
    beside = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        with beside.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def write_atomically(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write all of it or nothing."""
    with atomic_file(path) as file:
        file.write(data)
    return Path(path)
