"""The header of a model file, read without torch and without trust: from a regular file, as strict JSON, with plain numbers."""

from __future__ import annotations

import io
import json
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from gwi import _progress
from gwi.exceptions import ModelFileError, UserError
from gwi.tables.addresses import AnyPath, Remote, as_path

FORMAT = "gwi"
VERSION = 1
# Bytes of a header: what safetensors reads. Lists and dictionaries in it, which cost far more memory than text; their nesting.
MOST_BYTES, MOST_NODES, MOST_DEPTH = 100_000_000, 2_000_000, 60
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


def refuse_if(wrong: Any, reason: str) -> None:
    """Raise a ValueError with the reason when something that a file says is wrong."""
    if wrong:
        raise ValueError(reason)


def number(value: Any, what: str, low: float = -1e300, high: float = 1e300) -> float:
    """A number of a document, once it is one between these bounds; ValueError when it is not."""
    refuse_if(type(value) not in (int, float) or not low <= value <= high, f"{what} is not a number from {low:g} to {high:g}")
    return float(value)


def whole(value: Any, what: str, most: int) -> int:
    """A whole number of a document from zero to a bound; ValueError when it is none."""
    refuse_if(type(value) is not int or not 0 <= value <= most, f"{what} is not a whole number from 0 to {most}")
    return value


def printable(text: object, most: int = 300) -> str:
    """Text of a file for a sentence or a terminal: not too long, and nothing in it that a terminal would obey."""
    shown = _progress.printable(str(text)[: most + 1])
    return shown if len(shown) <= most else f"{shown[:most]} …"


def open_file(path: str | os.PathLike[str]) -> BinaryIO | io.BytesIO:
    """A model file, opened once it is known to be a regular one: to open a pipe or a device may block, or do something.

    Raises:
        ModelFileError: when it is anything else.
    """
    file: AnyPath = as_path(path)
    if isinstance(file, Remote):
        return io.BytesIO(file.read_bytes())
    kind = stat.S_IFMT(os.stat(path).st_mode)
    if kind != stat.S_IFREG:
        found = _KINDS.get(kind, "a device")
        raise ModelFileError(f"{printable(path)} is {found}, not a model file; give the file that save or `gwi fit` wrote.")
    return file.open("rb")


@contextmanager
def user_errors(path: AnyPath) -> Iterator[None]:
    """What is wrong with a file that is read inside, as one sentence for the user of the command."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}." if error.strerror else str(error)) from error
    except (ModelFileError, UserError) as error:
        raise UserError(str(error)) from error
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise UserError(f"{path}: {printable(error)}") from error


def metadata_of(data: bytes, name: str) -> dict[str, str]:
    """The string-to-string part of the header of a file that begins so.

    Raises:
        ModelFileError: when it is no model file, or of a later version.
    """
    size = int.from_bytes(data[:8], "little")
    try:
        refuse_if(not 0 < size <= min(MOST_BYTES, len(data) - 8), "the header has no such size")
        metadata = parsed(data[8 : 8 + size].decode())["__metadata__"]
        refuse_if(not all(isinstance(value, str) for value in metadata.values()), "the metadata are not text")
        refuse_if(metadata.get("format") != FORMAT, "the format is another")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ModelFileError(f"{name} is not a gwi model file, or its beginning is damaged; save the model again.") from error
    version = metadata.get("version", "")
    if not (version.isascii() and version.isdecimal() and len(version) < 10) or int(version) > VERSION:
        raise ModelFileError(
            f"{name} has the file format {printable(version, 20)}; this version of gwi reads up to {VERSION}: upgrade gwi to "
            "open it."
        )
    return metadata


def document_of(metadata: dict[str, str], name: str) -> dict[str, Any]:
    """The JSON document in the metadata.

    Raises:
        ModelFileError: when it is none.
    """
    try:
        document = parsed(metadata["document"])
        refuse_if(not isinstance(document, dict), "the document is not a dictionary")
    except (ValueError, LookupError) as error:
        raise ModelFileError(f"{name} has no readable content ({printable(error, 100)}); save the model again.") from error
    return document


def read_document(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The document of a model file from its header alone, so that a large file takes no longer than a small one.

    Raises:
        ModelFileError: when it is no model file, of a later version, or of another length than its header says.
    """
    name = printable(path)
    with open_file(path) as file:
        size = int.from_bytes(file.read(8), "little")
        header = file.read(min(size, MOST_BYTES))
        length = file.seek(0, os.SEEK_END)
    metadata = metadata_of(size.to_bytes(8, "little") + header, name)
    try:
        places = [entry["data_offsets"][1] for key, entry in parsed(header.decode()).items() if key != "__metadata__"]
        ends = max(places, default=0) + 8 + size
    except (ValueError, LookupError, TypeError) as error:
        raise ModelFileError(f"{name} is not a gwi model file, or its beginning is damaged; save the model again.") from error
    if ends != length:
        raise ModelFileError(f"{name} was altered or cut off after it was saved (its length does not match); save it again.")
    return document_of(metadata, name)


def parsed(text: str) -> Any:
    """Strict JSON: each key once, finite numbers, not too deep and not too many parts; ValueError for anything else."""
    refuse_if(text.count("[") + text.count("{") > MOST_NODES, "there are too many lists and dictionaries")
    try:
        value = json.loads(text, object_pairs_hook=once, parse_constant=_no_number, parse_float=_finite, parse_int=_short)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    level, depth = [value], 0
    while level:
        depth += 1
        refuse_if(depth > MOST_DEPTH, "it is nested too deeply")
        nodes = [node.values() if isinstance(node, dict) else node for node in level if isinstance(node, dict | list)]
        level = [part for node in nodes for part in node]
    return value


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; ValueError when it has a key twice."""
    found = dict(pairs)
    refuse_if(len(found) < len(pairs), "a key appears twice")
    return found


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _short(text: str) -> int:
    refuse_if(len(text) > 20, "a whole number has more digits than any label")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    refuse_if(math.isinf(value), "a number is too large")
    return value
