"""Progress of a long fit, kept in files that are whole or not there, so that a fit that was stopped goes on.

They hold rows, so nobody else may read them.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gwi.exceptions import CheckpointWarning, ModelFileError
from gwi.storage.container import from_bytes, to_bytes
from gwi.streaming.fingerprint import digest
from gwi.tables.addresses import AnyPath, as_path
from gwi.tables.files import write_atomically

# Seconds between checkpoints of one stage, and the share of the time that they may take: large ones are farther apart.
INTERVAL, SHARE = 2.0, 0.01


@dataclass(frozen=True)
class Checkpoints:
    """Checkpoints of the stages of one fit, one file each.

    Attributes:
        folder: where they are, also an address; None keeps none.
        key: of the fit: rows, options and seed. Checkpoints of another fit are passed over.
        interval: seconds between two of one stage.
    """

    folder: AnyPath | None = None
    key: str = ""
    interval: float = INTERVAL

    @staticmethod
    def of(folder: str | os.PathLike[str] | None, description: Any, interval: float = INTERVAL) -> Checkpoints:
        """Those of the fit with this description, in a folder that is made where it is missing."""
        if folder is None:
            return Checkpoints()
        path = as_path(folder)
        path.mkdir(0o700, parents=True, exist_ok=True)
        return Checkpoints(path, digest(description), interval)

    @staticmethod
    def seed(folder: str | os.PathLike[str], drawn: int) -> int:
        """The seed that is kept in a folder, for fits without one of their own; the one just drawn where there is none yet."""
        path = as_path(folder) / "seed.json"
        try:
            return int(json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            as_path(folder).mkdir(0o700, parents=True, exist_ok=True)
            write_atomically(path, json.dumps(drawn).encode(), private=True)
            return drawn

    def wait_after(self, seconds: float) -> float:
        """Seconds to the next checkpoint after one that took so many."""
        return self.interval * max(1.0, seconds / (SHARE * INTERVAL))

    def path(self, stage: str) -> AnyPath | None:
        """Of a stage's file."""
        return None if self.folder is None else self.folder / f"{stage}.checkpoint"

    def read(self, stage: str) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """The last checkpoint of a stage; None where there is none of this fit."""
        path = self.path(stage)
        if path is None or not path.exists():
            return None
        try:
            document, tensors = from_bytes(path.read_bytes(), str(path))
        except ModelFileError as error:
            warnings.warn(f"{error} This stage starts again.", CheckpointWarning, stacklevel=2)
            return None
        return (document["progress"], tensors) if document.get("fit") == self.key else None

    def write(self, stage: str, progress: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bool:
        """Keep the progress of a stage in place of the last; whether it could be kept.

        Where it cannot, because the disk is full or for any other reason of the system, the last checkpoint stays and a warning
        says so: a long fit does not end for want of a checkpoint.
        """
        path = self.path(stage)
        if path is None:
            return False
        try:
            write_atomically(path, to_bytes({"fit": self.key, "progress": dict(progress)}, tensors), private=True)
        except OSError as error:
            kept = "the previous one is kept" if path.exists() else "there is no earlier one"
            reason = error.strerror or str(error)
            warnings.warn(f"The checkpoint {path} could not be written ({reason}); {kept}.", CheckpointWarning, stacklevel=2)
            return False
        return True

    def clear(self) -> None:
        """Remove the checkpoints of a fit whose model is written, and its seed; a folder is for one fit at a time."""
        if self.folder is not None:
            for path in (*self.folder.glob("*.checkpoint"), self.folder / "seed.json"):
                path.unlink(missing_ok=True)
