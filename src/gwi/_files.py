"""Writing files whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_atomically(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write all of it or nothing: into a new file beside, which then takes the name."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; give the name of a file in it, for example {target / 'model.gwi'}.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"The folder {target.parent} does not exist; create it first.")
    beside = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
    return target
