"""Public data: where the data folder and the cache are, downloads, checksums, and what to say when one of them fails."""

from __future__ import annotations

import hashlib
import io
import os
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from urllib.request import urlopen

import numpy as np
from numpy.typing import NDArray

from gwi._files import write_atomically

T = TypeVar("T")


@dataclass(frozen=True)
class Item:
    """What is looked for and where, in the words of the messages.

    Attributes:
        kind: of data, such as ``table``.
        name: of this one.
        place: where the data folder holds it, relative to the folder.
        address: of its public source.
    """

    kind: str
    name: str
    place: str
    address: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"

    def data_path(self) -> str:
        """Its place in the data folder that is set, else in the variable that would set one."""
        return str(Path(os.environ.get("GWI_DATA") or "$GWI_DATA", self.place))


def data_file(place: str) -> Path | None:
    """The file at this place in the folder ``$GWI_DATA``; None when the variable is not set or the file is absent."""
    folder = os.environ.get("GWI_DATA")
    path = Path(folder, place) if folder else None
    return path if path is not None and path.is_file() else None


def cache_file(place: str) -> Path:
    """Where a download is kept: in ``$GWI_CACHE``, else in ``gwi`` under ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    folder = os.environ.get("GWI_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "gwi")
    return Path(folder, place)


def recall(path: Path, read: Callable[[BinaryIO], T]) -> T | None:
    """What an earlier download left, None when there is nothing that can be read."""
    try:
        with path.open("rb") as file:
            return read(file)
    # Absent, unreadable or damaged, a download mends it; and NumPy's reader of headers fails in too many ways to list.
    except Exception:
        return None


def keep(item: Item, path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Leave a download for the next time; where that fails, it costs a warning only."""
    buffer = io.BytesIO()
    write(buffer)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, buffer.getvalue())
    except OSError as error:
        warnings.warn(f"The {item} could not be kept as {path} ({error}); set GWI_CACHE to another folder.", stacklevel=4)


def fetch(item: Item, addresses: Iterable[str]) -> list[bytes]:
    """The contents of addresses.

    Raises:
        ConnectionError: when one of them cannot be had.
    """
    try:
        return [_content(address) for address in addresses]
    except (OSError, HTTPException) as error:
        raise ConnectionError(
            f"The {item} is not at {item.data_path()} and could not be downloaded from {item.address} ({_reason(error)}); "
            f"go online, or set the environment variable GWI_DATA to a folder that holds {item.place}."
        ) from error


def _content(address: str) -> bytes:
    with urlopen(address, timeout=30) as response:
        return response.read()


def unusable_file(item: Item, error: Exception) -> ValueError:
    """What to raise when a file in the data folder cannot be read or holds something else."""
    return ValueError(
        f"The file {item.data_path()} is damaged or not the {item} ({_reason(error)}); replace it, "
        f"or unset the environment variable GWI_DATA to download the {item.kind}."
    )


def unusable_download(item: Item, error: Exception) -> ValueError:
    """What to raise when a download cannot be read or holds something else."""
    return ValueError(
        f"What {item.address} holds is not the {item} ({_reason(error)}); try again later, "
        f"or set the environment variable GWI_DATA to a folder that holds {item.place}."
    )


def _reason(error: Exception) -> str:
    # It goes into the middle of a sentence, and some errors come without words.
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def sha256(*arrays: NDArray[Any]) -> str:
    """Digest of the values of arrays, one after the other, little-endian, the last axis fastest."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).data)
    return digest.hexdigest()


def check_sha256(expected: str, *arrays: NDArray[Any]) -> None:
    """Raise ``ValueError`` where the arrays' values are not those of the digest."""
    if sha256(*arrays) != expected:
        raise ValueError("the checksum of its values does not match")
