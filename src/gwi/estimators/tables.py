"""What the command does, without its printing: fit an estimator to a table of a file, predict and score new tables."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gwi.estimators.classifier import GWIClassifier
from gwi.estimators.columns import encoder_of
from gwi.estimators.inputs import checked_rows
from gwi.estimators.likelihood_targets import column_of, column_of_estimator
from gwi.estimators.persistence import from_content
from gwi.estimators.regressor import GWIRegressor
from gwi.estimators.table_targets import TARGETS, TargetColumn, TaskName
from gwi.evaluation.judged import Judged
from gwi.exceptions import UserError
from gwi.storage.container import from_bytes
from gwi.storage.description import table_part
from gwi.storage.header import open_file, user_errors
from gwi.tables.addresses import AnyPath
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

Estimator = GWIRegressor | GWIClassifier


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
        likelihood: of numbers, by its name.
        event: the column that says whether the event came, of times to one.
        levels: names of levels in order, the lowest first; None of other targets.
    """

    mean: str = "auto"
    preset: Literal["paper"] | None = None
    max_time: float | None = None
    seed: int = 0
    verbose: bool = False
    jobs: int | None = None
    groups: str | None = None
    time: str | None = None
    likelihood: str = "auto"
    event: str | None = None
    levels: tuple[str, ...] | None = None

    def column(self, task: TaskName) -> TargetColumn:
        """How the column that is predicted is read."""
        return column_of(task, self.event, self.levels)


def fit_table(
    table: Table, y: NDArray[Any], target: str, task: TaskName, drop: Sequence[str] = (), choices: Choices | None = None
) -> Estimator:
    """An estimator with its encoder, fitted to all rows given.

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
    column, inputs = choices.column(task), table.without(choices.event)
    number_labels = column.number_labels(table, target)
    encoder = replace(Encoder.fit(inputs, target, drop), number_labels=number_labels, event=choices.event)
    column.check(y, f"{path}, column {target!r}")
    estimator, X = estimator_for(task, choices), encoder.transform(table)
    with fit_of(path):
        estimator.fit(X, y, groups=groups)
    column.finish(estimator)
    return with_encoder(estimator, encoder, [name for name in inputs.names if name != target])


def with_encoder(estimator: Estimator, encoder: Encoder, names: Sequence[str]) -> Estimator:
    """An estimator that was fitted to the numbers of an encoder, from now on for columns of these names."""
    estimator.set_params(verbose=0)
    estimator.encoder_ = TableEncoder.of(encoder, names)
    estimator.n_features_in_, estimator.feature_names_in_ = len(names), estimator.encoder_.feature_names_in_
    return estimator


def table_rows(estimator: Estimator, table: Table, unlike: Unlike | None = None) -> NDArray[Any]:
    """The numbers of each row; `unlike` counts those unlike the rows of the fit."""
    X = checked_rows(estimator, table, unlike)
    if unlike is not None:
        embedding: Any = estimator.model_.embedding
        encoder_of(estimator).note_outside(embedding.outside(X), unlike)
    return X


def predict_table(
    estimator: Estimator,
    table: Table,
    coverage: float = 0.95,
    unlike: Unlike | None = None,
    times: Sequence[float] = (),
    quantiles: Sequence[float] = (),
    parts: bool = False,
) -> dict[str, Any]:
    """Columns of predictions for each row, by name."""
    asked: dict[str, Any] = {"times": times} if len(times) else {}
    rows = Encoded(table_rows(estimator, table, unlike))
    return estimator.predict_columns(rows, coverage, quantiles=quantiles, parts=parts, **asked)


def require_times(estimator: Estimator, asked: str, model: str) -> None:
    """Refuse to say the probability of no event so far where no events are predicted.

    Raises:
        UserError: saying what is.
    """
    if estimator._kind != "times":
        raise UserError(f"{asked} is for models of times to an event (gwi fit --event); {model} predicts {estimator._kind}.")


def with_target(estimator: Estimator, target: str | None, event: str | None, model: str) -> Encoder:
    """How a table with a known target becomes numbers, once its target has a name.

    Args:
        estimator: out of a file.
        target: the column of the target; None for that of the file.
        event: the column that says whether the event came; None for that of the file.
        model: what a sentence calls the file.

    Raises:
        UserError: when neither the file nor the user names it, or there are several targets.
    """
    encoder = encoder_of(estimator)
    num_targets = len(getattr(estimator.model_, "noises", [None]))
    if num_targets > 1:
        raise UserError(f"Scores need a model of one target; {model} has {num_targets}.")
    if not (target or encoder.target):
        raise UserError(f"{model} was saved from Python and names no target; say which column of the table it is: --target NAME.")
    if event is not None:
        require_times(estimator, "--event", model)
    elif estimator._kind == "times" and encoder.event is None:
        raise UserError(
            f"{model} was saved from Python and predicts times to an event; say which column tells whether the event "
            "happened: --event NAME."
        )
    named = replace(encoder, target=target or encoder.target, event=event or encoder.event)
    for option, name in (("--target", named.target), ("--event", named.event)):
        if name in named.inputs:
            raise UserError(f"{option} {name} is a column that {model} predicts from; name another.")
    return named


def known_rows(estimator: Estimator, table: Table, encoder: Encoder | None = None) -> tuple[Table, NDArray[Any]]:
    """The rows that have a target, and it: numbers, or labels."""
    encoder = encoder_of(estimator) if encoder is None else encoder
    return target_of(table, encoder.target, column_of_estimator(estimator, encoder), encoder.number_labels)


def judge_table(estimator: Estimator, table: Table, unlike: Unlike | None = None, encoder: Encoder | None = None) -> Judged:
    """Predictions at the rows of the table that have a target.

    Raises:
        UserError: naming a label or level that the model does not know.
    """
    encoder = encoder_of(estimator) if encoder is None else encoder
    known, y = known_rows(estimator, table, encoder)
    unknown = np.flatnonzero(~column_of_estimator(estimator, encoder).is_known(y, estimator))
    if len(unknown):
        place, classes = known.place(int(unknown[0]), encoder.target), ", ".join(estimator.classes_[:8])
        raise UserError(f"{place}: the model has no class {str(y[unknown[0]])!r}; it has {classes}.")
    X = table_rows(estimator, known, unlike) if len(y) else np.empty((0, len(encoder.features)))
    if unlike is not None and len(y):
        unlike.judged(len(y), estimator.share_seen(Encoded(X), y))
    with named_errors(f"{table.source.path}, column {encoder.target!r}"):
        return estimator.judge(X, y)


def evaluate_tables(
    estimator: Estimator, tables: Iterable[Table], unlike: Unlike | None = None, encoder: Encoder | None = None
) -> dict[str, float]:
    """Every score of all tables together; they are not kept.

    Raises:
        UserError: when no row has a target.
    """
    encoder = encoder_of(estimator) if encoder is None else encoder
    parts = map(partial(judge_table, estimator, unlike=unlike, encoder=encoder), tables)
    return score_judged(estimator, parts, encoder.target)


def score_judged(estimator: Estimator, parts: Iterable[Judged], target: str) -> dict[str, float]:
    """Every score of rows that are judged."""
    totals = [estimator.score_totals(part) for part in parts if len(part.y)]
    if not totals:
        raise UserError(f"No row has a value of {target!r}; there is nothing to score.")
    whole: Any = sum(totals[1:], start=totals[0])
    return {"rows": float(whole.num_rows)} | whole.named()


def load_for_tables(path: AnyPath) -> Estimator:
    """The estimator in a model file that takes tables.

    Raises:
        UserError: when the file is something else, damaged, or of a model whose rows no table has.
    """
    with user_errors(path):
        with open_file(path) as file:
            data = file.read()
        table_part(from_bytes(data, str(path))[0], str(path))
        return from_content(data, str(path))


@contextlib.contextmanager
def fit_of(path: AnyPath) -> Iterator[None]:
    """A fit inside keeps its summary back, which is for the command to print, and its errors name the file."""
    with named_errors(str(path)), contextlib.redirect_stdout(io.StringIO()):
        yield


@contextlib.contextmanager
def named_errors(place: str) -> Iterator[None]:
    """Errors inside, which are of the values there, become sentences that name the place."""
    try:
        yield
    except UserError:
        raise
    except (ValueError, FloatingPointError) as error:
        raise UserError(f"{place}: {error}") from error


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
    order, strata = np.random.default_rng(seed).permutation(len(y)), choices.column(task).strata(y)
    groups = [order[strata[order] == stratum] for stratum in np.unique(strata)]
    held = np.concatenate([order[:0], *(group[: int(share * len(group))] for group in groups)])
    return np.setdiff1d(order, held), np.sort(held)


def target_of(
    table: Table, target: str, column: TaskName | TargetColumn, number_labels: bool | None = None
) -> tuple[Table, NDArray[Any]]:
    """The rows that have a target, and it: numbers, or labels as text.

    Args:
        table: rows.
        target: the column to predict.
        column: how it is read; or what is predicted.
        number_labels: whether labels are numbers, decided once for a model; None to decide from these rows.
    """
    if target not in table.names:
        raise no_column(table.source.path, target, table.names, ", the target")
    return (TARGETS[column] if isinstance(column, str) else column).read(table, target, number_labels)


def estimator_for(task: TaskName, choices: Choices) -> Estimator:
    """The estimator that the choices ask for, not fitted."""
    means = TARGETS[task].means()
    if choices.mean not in means:
        raise UserError(f"--mean {choices.mean} is not available for {task}; choose from {', '.join(means)}.")
    return TARGETS[task].estimator(
        means[choices.mean],
        choices.preset,
        max_time=choices.max_time,
        random_state=choices.seed,
        n_jobs=choices.jobs,
        verbose=int(choices.verbose),
        cv="auto" if choices.time is None else "time",
        **({} if choices.likelihood == "auto" else {"likelihood": choices.likelihood}),
    )
