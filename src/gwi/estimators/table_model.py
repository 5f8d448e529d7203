"""What the command does, without its printing: fit a model to a table, keep both in one file, predict and score new tables."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gwi._files import write_atomically
from gwi.estimators.classifier import GWIClassifier
from gwi.estimators.inputs import checked_rows
from gwi.estimators.persistence import from_content
from gwi.estimators.regressor import GWIRegressor
from gwi.estimators.table_targets import TARGETS, TaskName
from gwi.evaluation.judged import Judged
from gwi.exceptions import UserError
from gwi.storage.container import from_bytes, to_bytes
from gwi.storage.description import table_part
from gwi.storage.header import open_file, user_errors
from gwi.storage.models import encode_estimator
from gwi.tables.encoder import Encoder
from gwi.tables.names import no_column
from gwi.tables.parquet import ParquetReader
from gwi.tables.rows import FEW_NUMBERS
from gwi.tables.source import Source, Table
from gwi.tables.structure import groups_of
from gwi.tables.text import BLOCK
from gwi.tables.transformer import Encoded, TableEncoder
from gwi.tables.unlike import Unlike

FEWEST_ROWS = 5
# Bytes of text that are read into memory.
FEW_BYTES = 1 << 30


@dataclass(frozen=True)
class Choices:
    """How to fit.

    Attributes:
        mean: a name in `mean_of`.
        preset: of the estimator.
        max_time: seconds to aim for; regression only.
        seed: of everything random.
        verbose: whether progress is shown.
        jobs: fits side by side, as joblib takes it.
        groups: the column that says which rows belong together; it is no input.
        time: the column that rows are in order of.
    """

    mean: str = "auto"
    preset: Literal["paper"] | None = None
    max_time: float | None = None
    seed: int = 0
    verbose: bool = False
    jobs: int | None = None
    groups: str | None = None
    time: str | None = None


@dataclass(frozen=True)
class TableModel:
    """A fitted estimator and how a table becomes its rows.

    Attributes:
        estimator: on the numbers of the encoder.
        encoder: from a table to numbers.
        scores: on rows held out, from a fit without them.
    """

    estimator: GWIRegressor | GWIClassifier
    encoder: Encoder
    scores: dict[str, float]

    @property
    def task(self) -> TaskName:
        """What is predicted."""
        return self.estimator.task

    @staticmethod
    def fit(
        table: Table, y: NDArray[Any], target: str, task: TaskName, drop: Sequence[str] = (), choices: Choices | None = None
    ) -> TableModel:
        """Fit encoder and estimator to all rows given.

        Raises:
            UserError: when there are too few rows, the target does not vary, or the choices do not fit.
        """
        path, choices = table.source.path, Choices() if choices is None else choices
        if len(y) < FEWEST_ROWS:
            raise UserError(f"{path} has {len(y)} row{'s' * (len(y) != 1)} with a target; a fit needs at least {FEWEST_ROWS}.")
        different = np.unique(y)
        if len(different) == 1:
            raise UserError(f"{path}, column {target!r}: the target is {different[0]} in every row; there is nothing to learn.")
        groups = None if choices.groups is None else groups_of(table, choices.groups)
        drop = [*drop, *([] if choices.groups is None else [choices.groups])]
        encoder = replace(Encoder.fit(table, target, drop), number_labels=TARGETS[task].number_labels(table, target))
        TARGETS[task].check(y, f"{path}, column {target!r}")
        estimator, X = estimator_for(task, choices), encoder.transform(table)
        with fit_of(path):
            estimator.fit(X, y, groups=groups)
        return TableModel.of(estimator, encoder, [name for name in table.names if name != target])

    @staticmethod
    def of(estimator: GWIRegressor | GWIClassifier, encoder: Encoder, names: Sequence[str]) -> TableModel:
        """An estimator that was fitted to the numbers of an encoder, for columns of these names."""
        estimator.set_params(verbose=0)
        estimator.encoder_ = TableEncoder.of(encoder, names)
        estimator.n_features_in_, estimator.feature_names_in_ = len(names), estimator.encoder_.feature_names_in_
        return TableModel(estimator, encoder, {})

    def rows(self, table: Table, unlike: Unlike | None = None) -> NDArray[Any]:
        """The numbers of each row; `unlike` counts those unlike the rows of the fit."""
        X = checked_rows(self.estimator, table, unlike)
        if unlike is not None:
            embedding: Any = self.estimator.model_.embedding
            self.encoder.note_outside(embedding.outside(X), unlike)
        return X

    def predict(self, table: Table, coverage: float = 0.95, unlike: Unlike | None = None) -> dict[str, Any]:
        """Columns of predictions for each row, by name."""
        return self.estimator.predict_columns(Encoded(self.rows(table, unlike)), coverage)

    def known(self, table: Table) -> tuple[Table, NDArray[Any]]:
        """The rows that have a target, and it: numbers, or labels as text."""
        return target_of(table, self.encoder.target, self.task, self.encoder.number_labels)

    def judge(self, table: Table, unlike: Unlike | None = None) -> Judged:
        """Predictions at the rows of the table that have a target.

        Raises:
            UserError: naming a label that the model does not know.
        """
        known, y = self.known(table)
        unknown = np.flatnonzero(~TARGETS[self.task].is_known(y, self.estimator))
        if len(unknown):
            place, classes = known.place(int(unknown[0]), self.encoder.target), ", ".join(self.estimator.classes_[:8])
            raise UserError(f"{place}: the model has no class {str(y[unknown[0]])!r}; it has {classes}.")
        X = self.rows(known, unlike) if len(y) else np.empty((0, len(self.encoder.features)))
        if unlike is not None and len(y):
            unlike.judged(len(y), self.estimator.share_seen(Encoded(X), y))
        return self.estimator.judge(X, y)

    def evaluate(self, tables: Iterable[Table], unlike: Unlike | None = None) -> dict[str, float]:
        """Every score of all tables together; they are not kept.

        Raises:
            UserError: when no row has a target.
        """
        return self.score(map(partial(self.judge, unlike=unlike), tables))

    def score(self, parts: Iterable[Judged]) -> dict[str, float]:
        """Every score of rows that are judged."""
        totals = [self.estimator.score_totals(part) for part in parts if len(part.y)]
        if not totals:
            raise UserError(f"No row has a value of {self.encoder.target!r}; there is nothing to score.")
        whole: Any = sum(totals[1:], start=totals[0])
        return {"rows": float(whole.num_rows)} | whole.named()

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write one file; `TableModel.load` reads it, and `gwi.load` reads the estimator out of it."""
        document, tensors = encode_estimator(self.estimator)
        document["table"]["scores"] = self.scores
        return write_atomically(path, to_bytes(document, tensors))

    @staticmethod
    def load(path: Path) -> TableModel:
        """What `save` wrote.

        Raises:
            UserError: when the file is something else, or damaged.
        """
        with user_errors(path):
            with open_file(path) as file:
                data = file.read()
            encoder, scores = table_part(from_bytes(data, str(path))[0], str(path))
            estimator = from_content(data, str(path))
        return TableModel(estimator, encoder, scores)


@contextlib.contextmanager
def fit_of(path: Path) -> Iterator[None]:
    """A fit inside keeps its summary back, which is for the command to print, and its errors name the file."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    except UserError:
        raise
    except (ValueError, FloatingPointError) as error:
        raise UserError(f"{path}: {error}") from error


def is_large(source: Source) -> bool:
    """Whether a table is better read some rows at a time."""
    if source.path.is_dir():
        return True
    if source.is_parquet:
        return sum(ParquetReader(source.path).group_sizes) * len(source.header) > FEW_NUMBERS
    size = source.path.stat().st_size
    # What gzip makes of zeros is 1032 times smaller: no text is packed more densely.
    if not source.is_compressed or size * 1032 <= FEW_BYTES:
        return size > FEW_BYTES
    count = 0
    with source.text() as text:
        while count <= FEW_BYTES and (block := text.read(BLOCK)):
            count += len(block)
    return count > FEW_BYTES


def split(
    table: Table, y: NDArray[Any], share: float, task: TaskName, choices: Choices
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to fit and rows held out: the last in time, whole groups, or of each class the same share."""
    rows, seed = np.arange(len(y)), choices.seed
    if choices.time is not None:
        first_held = len(rows) - int(share * len(rows))
        return rows[:first_held], rows[first_held:]
    if choices.groups is not None:
        names, group = np.unique(groups_of(table, choices.groups), return_inverse=True)
        held_groups = np.random.default_rng(seed).permutation(len(names))[: int(share * len(names))]
        is_held = np.isin(group, held_groups)
        return rows[~is_held], rows[is_held]
    order, strata = np.random.default_rng(seed).permutation(len(y)), TARGETS[task].strata(y)
    groups = [order[strata[order] == stratum] for stratum in np.unique(strata)]
    held = np.concatenate([order[:0], *(group[: int(share * len(group))] for group in groups)])
    return np.setdiff1d(order, held), np.sort(held)


def target_of(table: Table, target: str, task: TaskName, number_labels: bool | None = None) -> tuple[Table, NDArray[Any]]:
    """The rows that have a target, and it: numbers, or labels as text.

    Args:
        table: rows.
        target: the column to predict.
        task: what is predicted.
        number_labels: whether labels are numbers, decided once for a model; None to decide from these rows.
    """
    if target not in table.names:
        raise no_column(table.source.path, target, table.names, ", the target")
    return TARGETS[task].read(table, target, number_labels)


def estimator_for(task: TaskName, choices: Choices) -> GWIRegressor | GWIClassifier:
    """The estimator that the choices ask for, not fitted."""
    means = TARGETS[task].means()
    if choices.mean not in means:
        raise UserError(f"--mean {choices.mean} is not known for {task}; choose from {', '.join(means)}.")
    return TARGETS[task].estimator(
        means[choices.mean],
        choices.preset,
        max_time=choices.max_time,
        random_state=choices.seed,
        n_jobs=choices.jobs,
        verbose=int(choices.verbose),
        cv="auto" if choices.time is None else "time",
    )
