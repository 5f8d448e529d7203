"""Model files that are served: loaded once, warmed up, with an example of a row."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from gwi.estimators.bulk import names_in_frames
from gwi.estimators.columns import encoder_of
from gwi.estimators.likelihood_targets import column_of_estimator
from gwi.estimators.tables import Estimator, load_for_tables, predict_table
from gwi.exceptions import UserError
from gwi.storage.description import description_of
from gwi.tables.encoder import DATE_PARTS, Column
from gwi.tables.frames import columns_table
from gwi.tables.source import Table
from gwi.tables.unlike import Unlike
from gwi.web.serve.answers import plain
from gwi.web.serve.asked import Asked

# Rows that are predicted together, as `gwi predict` does: digits depend on it.
PART = 20_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Served:
    """A model that answers.

    Attributes:
        name: in paths.
        estimator: out of the file.
        wanted: columns that a row must have.
        description: what `gwi info` says of it.
        example: a row, of medians and usual values.
        outputs: columns of its predictions, with an example of each.
        lock: held while it predicts, where its means are other people's code, which may not be asked twice at a time.
    """

    name: str
    estimator: Estimator
    wanted: tuple[str, ...]
    description: dict[str, Any]
    example: dict[str, Any]
    outputs: dict[str, Any] = field(default_factory=dict)
    lock: Any = field(default_factory=nullcontext)

    @property
    def of(self) -> str:
        """What is predicted; files from Python do not name it."""
        task, target = self.description["task"], self.description["target"]
        return f"{task} of {target}" if target else str(task)

    def parts(self, table: Table) -> Iterator[Table]:
        """The rows, as many at a time as are predicted together."""
        for start in range(0, len(table), PART):
            yield table[np.arange(start, min(start + PART, len(table)))] if len(table) > PART else table

    def predict(self, table: Table, asked: Asked, unlike: Unlike) -> dict[str, Any]:
        """Columns of predictions, as `gwi predict` gives them; rows unlike those of the fit are counted."""
        with self.lock:
            return predict_table(
                self.estimator, table, asked.coverage, unlike, asked.times, quantiles=asked.quantiles, parts=asked.parts
            )

    def notes(self, unlike: Unlike) -> list[str]:
        """What is unlike the rows of the fit, in sentences."""
        return unlike.sentences(column_of_estimator(self.estimator).unlike_rows)


def open_models(given: Sequence[str]) -> dict[str, Served]:
    """Models by name, of paths or name=path; the name of a path is that of its file.

    Raises:
        UserError: when a file is no such model, or a name is none or comes twice.
    """
    found: dict[str, Served] = {}
    for text in given:
        # A path may hold the sign, too.
        named, _, path = text.partition("=") if not Path(text).exists() else ("", "", text)
        if not path:
            named, path = "", text
        name = named or Path(path).stem
        if not _NAME.fullmatch(name):
            raise UserError(
                f"{name[:100]!r} cannot be part of an address; give the model a name of letters, digits, points, dashes and "
                f"underscores: NAME={path}."
            )
        if name in found:
            raise UserError(f"Two models are called {name}; give one of them another name: NAME={path}.")
        found[name] = served(name, Path(path))
    return found


def served(name: str, path: Path) -> Served:
    """The model in a file, which has predicted once.

    Raises:
        UserError: when the file is no model that takes tables.
    """
    estimator = load_for_tables(path)
    description = {key: value for key, value in description_of(path).items() if key != "file"}
    wanted = tuple(names_in_frames(estimator))
    known = {column.name: _example(column) for column in encoder_of(estimator).columns}
    example = {key: known.get(key) for key in wanted}
    model = Served(
        name, estimator, wanted, description, example, lock=threading.Lock() if estimator.frame_predictors_ else nullcontext()
    )
    row = columns_table({key: [value] for key, value in example.items()}, 1, "The example")
    # A pipeline of somebody's own may want more of a row than we know.
    with suppress(ValueError):
        model.outputs.update({key: plain(values)[0] for key, values in model.predict(row, Asked(), Unlike()).items()})
    return model


def _example(column: Column) -> Any:
    """A usual cell."""
    if column.kind in ("categories", "frequency"):
        return column.values[0] if column.values else None
    fill = dict(zip(column.kept, column.fill, strict=True))
    if column.kind == "number":
        return fill.get(0)
    seconds = fill.get(DATE_PARTS.index("seconds since 1970"))
    return None if seconds is None else (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).date().isoformat()
