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

from gwi.exceptions import ModelFileError

FORMAT = "gwi"
VERSION = 1
_BLANK = "0" * 64


def to_bytes(document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bytes:
    """A model file's content."""
    text = json.dumps(document, allow_nan=False, ensure_ascii=True, sort_keys=True)
    metadata = {"format": FORMAT, "version": str(VERSION), "document": text, "sha256": _BLANK}
    data = save_tensors({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, metadata=metadata)
    return _with_digest(data, _BLANK, hashlib.sha256(data).hexdigest())


def from_bytes(data: bytes, name: str = "The file") -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The document and tensors of a model file.

    Raises:
        ModelFileError: when it is no model file, of a later version, truncated or altered.
    """
    metadata = _metadata(data)
    if metadata.get("format") != FORMAT:
        raise ModelFileError(f"{name} is not a gwi model file, or its beginning is damaged; save the model again.")
    version = metadata.get("version", "")
    if not version.isdecimal() or int(version) > VERSION:
        raise ModelFileError(
            f"{name} has the file format {version[:20]}; this version of gwi reads up to {VERSION}: upgrade gwi to open it."
        )
    digest = metadata.get("sha256", "")
    if not digest.isascii() or hashlib.sha256(_with_digest(data, digest, _BLANK)).hexdigest() != digest:
        raise ModelFileError(f"{name} was altered or cut off after it was saved (its checksum does not match); save it again.")
    try:
        document = json.loads(metadata["document"])
        tensors = load_tensors(data)
    except (SafetensorError, ValueError, KeyError, RecursionError, TypeError, RuntimeError) as error:
        raise ModelFileError(f"{name} has the right checksum but no readable content ({type(error).__name__}).") from error
    if not isinstance(document, dict) or not all(torch.isfinite(value).all() for value in tensors.values()):
        raise ModelFileError(f"{name} has the right checksum but holds values that no model has, such as NaN.")
    return document, tensors


def _metadata(data: bytes) -> dict[str, str]:
    """The string-to-string part of a safetensors header; empty when there is none."""
    try:
        size = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + size])["__metadata__"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    is_text = isinstance(metadata, dict) and all(isinstance(value, str) for value in metadata.values())
    return metadata if is_text else {}


def _with_digest(data: bytes, old: str, new: str) -> bytes:
    """A file's content with another digest in its header."""
    # The document's own quotes are escaped, so it cannot hold this text.
    return data.replace(f'"sha256":"{old}"'.encode(), f'"sha256":"{new}"'.encode(), 1)
