"""Model files: a safetensors file whose header carries a JSON document and the SHA-256 of the whole file.

Any safetensors reader opens them. The digest is taken with its own 64 places set to zero, so it covers every other byte, and
nothing in a file is ever executed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from gwi.exceptions import ModelFileError, UnsavableError
from gwi.storage.header import FORMAT, MOST_BYTES, VERSION, document_of, metadata_of, printable

_BLANK = "0" * 64


def to_bytes(document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bytes:
    """A model file's content.

    Raises:
        UnsavableError: when names and labels are more than a header can hold.
    """
    text = json.dumps(document, allow_nan=False, ensure_ascii=True, sort_keys=True)
    metadata = {"format": FORMAT, "version": str(VERSION), "document": text, "sha256": _BLANK}
    try:
        data = save_tensors({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, metadata=metadata)
    except SafetensorError as error:
        raise UnsavableError(
            f"The names and labels of this model take {len(text) / 1e6:.0f} MB, and a file holds up to {MOST_BYTES / 1e6:.0f} "
            f"({error}): leave out text columns with very many values."
        ) from error
    return _with_digest(data, _BLANK, hashlib.sha256(data).hexdigest())


def from_bytes(data: bytes, name: str = "The file") -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The document and tensors of a model file.

    Raises:
        ModelFileError: when it is no model file, of a later version, truncated or altered.
    """
    name = printable(name)
    metadata = metadata_of(data, name)
    digest = metadata.get("sha256", "")
    if not digest.isascii() or hashlib.sha256(_with_digest(data, digest, _BLANK)).hexdigest() != digest:
        raise ModelFileError(f"{name} was altered or cut off after it was saved (its checksum does not match); save it again.")
    document = document_of(metadata, name)
    try:
        tensors = load_tensors(data)
        # An axis beside an empty one costs no bytes, but what is made from it would.
        sized = all(max(value.shape, default=0) <= len(data) for value in tensors.values())
        finite = all(bool(torch.isfinite(value).all()) for value in tensors.values())
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ModelFileError(f"{name} has the right checksum but no readable content ({type(error).__name__}).") from error
    if not finite or not sized:
        raise ModelFileError(f"{name} has the right checksum but holds values that no model has, such as NaN.")
    return document, tensors


def _with_digest(data: bytes, old: str, new: str) -> bytes:
    """A file's content with another digest in its header."""
    # The document's own quotes are escaped, so it cannot hold this text.
    return data.replace(f'"sha256":"{old}"'.encode(), f'"sha256":"{new}"'.encode(), 1)
