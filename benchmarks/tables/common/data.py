"""Public data: from the data folder, else downloaded once into the cache; checksums, and what to say when something fails."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pooch
import requests
from numpy.typing import NDArray

T = TypeVar("T")
# From the contents of files to what they hold; raises where that is something else.
Reader = Callable[[Sequence[bytes]], T]


@dataclass(frozen=True)
class Item:
    """What is looked for and where, in the words of the messages.

    Attributes:
        kind: of data, such as ``table``.
        name: of this one.
        place: where the data folder holds it, relative to the folder; a star stands for several files.
        address: of its public source, with a star likewise.
        stars: what stars stand for.
    """

    kind: str
    name: str
    place: str
    address: str
    stars: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"

    def each(self, pattern: str) -> list[str]:
        """The files or addresses that a pattern stands for."""
        return [pattern.replace("*", star) for star in self.stars] if "*" in pattern else [pattern]

    def load(self, read: Reader[T], read_download: Reader[T]) -> T:
        """From ``$GWI_DATA`` where that folder holds it, else from the public source or what an earlier download left.

        Raises:
            ValueError: when the file or the download holds something else.
            ConnectionError: when there is neither the file nor a kept download, and the download fails.
        """
        folder = os.environ.get("GWI_DATA")
        paths = [Path(folder, place) for place in self.each(self.place)] if folder else []
        if not paths or not all(path.is_file() for path in paths):
            return self._download(read_download)
        try:
            return read([path.read_bytes() for path in paths])
        # The readers of archives and of NumPy's headers fail in too many ways to list.
        except Exception as error:
            raise ValueError(
                f"The file {self._data_path()} is damaged or not the {self} ({_reason(error)}); replace it, "
                f"or unset the environment variable GWI_DATA to download the {self.kind}."
            ) from error

    def _download(self, read: Reader[T]) -> T:
        addresses = self.each(self.address)
        paths = [cache_file(f"{Path(self.place).parts[0]}/{self.name}/{address.rsplit('/', 1)[1]}") for address in addresses]
        if all(path.is_file() for path in paths):
            try:
                return read([path.read_bytes() for path in paths])
            # A new download mends it.
            except Exception:
                _remove(paths)
        # It would ask the user to write down a digest of the file. Ours is of the values, whatever file they come in.
        pooch.get_logger().setLevel("WARNING")
        try:
            for address, path in zip(addresses, paths, strict=True):
                pooch.retrieve(address, known_hash=None, fname=path.name, path=path.parent, progressbar=True)
        except OSError as error:
            # What it says of a connection that failed is four errors, one inside the other.
            reason = "no connection" if isinstance(error, requests.ConnectionError) else _reason(error)
            raise ConnectionError(
                f"The {self} is not at {self._data_path()} and could not be downloaded from {self.address} to {cache_file('')} "
                f"({reason}); go online, or set the environment variable GWI_DATA to a folder that holds {self.place}, "
                "or GWI_CACHE to one that can be written."
            ) from error
        try:
            return read([path.read_bytes() for path in paths])
        # As above: whatever the reader says of it, it is not the table.
        except Exception as error:
            _remove(paths)
            raise ValueError(
                f"What {self.address} holds is not the {self} ({_reason(error)}); try again later, "
                f"or set the environment variable GWI_DATA to a folder that holds {self.place}."
            ) from error

    def _data_path(self) -> str:
        """Its place in the data folder that is set, else in the variable that would set one."""
        return str(Path(os.environ.get("GWI_DATA") or "$GWI_DATA", self.place))


def cache_file(place: str) -> Path:
    """Where downloads and trained networks are kept: in ``$GWI_CACHE``, else in the user's folder for caches."""
    return Path(os.environ.get("GWI_CACHE") or pooch.os_cache("gwi"), place)


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


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
