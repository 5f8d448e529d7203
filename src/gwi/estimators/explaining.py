"""From rows that a user brings to why the model is unsure there: games between columns, background rows, and known rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from gwi._typing import Array
from gwi._validation import as_array
from gwi.core.measures import kernel_matrix, kernel_variance
from gwi.core.scaling import StandardisedRows
from gwi.core.shapley import Shapley, shapley_values
from gwi.estimators.columns import column_names
from gwi.estimators.frame_means import with_predictions
from gwi.estimators.inputs import checked_rows, own_columns
from gwi.evaluation.explanation import Explanation, KnownRow
from gwi.exceptions import UserError
from gwi.tables.decoding import UNKNOWN, cell_text, cells_of
from gwi.tables.encoder import far_away
from gwi.tables.frames import frame_table, is_frame
from gwi.tables.source import Table

# Background rows, and evaluations of the variance for one row, unless the user says otherwise: decision 24.
NUM_BACKGROUND, MAX_EVALUATIONS = 16, 4096
# Numbers that differ by less are the same, relatively.
SAME = 1e-12
# Inducing points that background rows are chosen among, and known rows that are kept for each row.
MOST_POINTS, NUM_KNOWN = 2000, 5


@dataclass(frozen=True)
class Columns:
    """Rows as players see them: one player for each column of the user's.

    Attributes:
        names: of the columns.
        player: of each number of a row, −1 of those that belong to no column alone.
        last: the place of the number that says that a cell is unlike all known ones, and what it is then; None where none does.
    """

    names: tuple[str, ...]
    player: Int[NDArray[Any], " F"]
    last: tuple[int, float] | None = None


@dataclass(frozen=True)
class Rows:
    """Some rows.

    Attributes:
        numbers: of each row, with the values that it carries.
        unlike: cells that are unlike all known ones.
        table: as they came; None of inducing points.
        cells: as text; none of background rows that are inducing points.
    """

    numbers: Float[Array, "N F"]
    unlike: Bool[NDArray[Any], "N D"]
    table: Table | None
    cells: list[list[str]]


def explain(
    estimator: Any,
    X: Any,
    *,
    background: Any = None,
    training_rows: Any = None,
    max_evaluations: Any = MAX_EVALUATIONS,
    random_state: int = 0,
) -> Explanation:
    """See `GWIEstimator.explain`."""
    if not isinstance(max_evaluations, Integral) or max_evaluations < 1:
        raise ValueError(
            f"max_evaluations, the most evaluations per row, must be a whole number of at least 1; got {max_evaluations!r}."
        )
    columns = _columns(estimator)
    rows = _rows(estimator, columns, X, "X")
    others = _background(estimator, columns, background)
    known = None if training_rows is None else _rows(estimator, columns, training_rows, "training_rows")
    if _asks_frames(estimator) and others.table is None:
        raise UserError(
            "A mean of the model sees data frames, and how far the means disagree is part of the variance: pass background=, "
            "some rows as a data frame."
        )
    with torch.no_grad():
        variance = partial(_variance, estimator.model_)
        base, whole = variance(others.numbers), variance(rows.numbers)
        # What parts add up to has all its digits.
        of_mixed, found = partial(variance, nearly=True), []
        for i in range(len(rows.numbers)):
            game, differs = _game(estimator, columns, rows, i, others, of_mixed)
            generator = torch.Generator().manual_seed(int(random_state) + i)
            found.append(shapley_values(game, differs, whole[:, i], base, budget=int(max_evaluations), generator=generator))
        spoken = _known_rows(estimator, columns, rows, known)
    return _explanation(estimator, columns, rows, found, spoken, known is not None, len(others.numbers))


def _columns(estimator: Any) -> Columns:
    """Which numbers belong to which column of the user's.

    Raises:
        UserError: where rows are no tables.
    """
    embedding = estimator.model_.embedding
    if len(embedding.shape) != 1 or getattr(embedding, "layout", None) is not None:
        raise UserError(
            f"explain is for tables, whose columns mean something by themselves; the model was fitted to rows of shape "
            f"{tuple(embedding.shape)}."
        )
    num_numbers = embedding.shape[0]
    encoder = getattr(estimator, "encoder_", None)
    if encoder is None:
        names = tuple(column_names(estimator))
        player = np.full(num_numbers, -1)
        player[: len(names)] = np.arange(len(names))
        return Columns(names, player)
    learned = encoder.encoder_
    # Means that see frames may use columns that the encoder leaves out.
    names = tuple(map(str, encoder.feature_names_in_)) if estimator.frame_predictors_ else tuple(learned.inputs)
    player = np.full(num_numbers, -1)
    for column, place in learned.places():
        player[place] = names.index(column.name)
    return Columns(names, player, (len(learned.features) - 1, far_away(len(learned.features))))


def _rows(estimator: Any, columns: Columns, X: Any, what: str) -> Rows:
    """Rows that a user brought; a single one may come without an axis for it."""
    X = _with_axis(X)
    try:
        numbers = checked_rows(estimator, X)
    except ValueError as error:
        raise type(error)(f"{what}: {error}") if what != "X" else error from None
    if not len(numbers):
        raise ValueError(f"{what} has no rows; explain needs at least one.")
    encoder = getattr(estimator, "encoder_", None)
    unlike = np.zeros((len(numbers), len(columns.names)), dtype=np.bool_)
    if encoder is not None:
        table = encoder._table(X, reset=False)
        places = [columns.names.index(name) for name in encoder.encoder_.inputs]
        unlike[:, places] = encoder.encoder_.unlike_cells(table)
    elif isinstance(X, Table) or is_frame(X):
        table = X if isinstance(X, Table) else frame_table(X)
    else:
        return Rows(
            numbers, unlike, None, [list(map(cell_text, row)) for row in np.asarray(as_array(X), dtype=np.float64).tolist()]
        )
    by_column = [[cell_text(cell) for cell in table.data[name].to_pylist()] for name in columns.names]
    return Rows(numbers, unlike, table, [list(row) for row in zip(*by_column, strict=True)])


def _with_axis(X: Any) -> Any:
    """One row as rows."""
    if hasattr(X, "to_frame") and hasattr(X, "index") and not hasattr(X, "columns"):
        return X.to_frame().T.infer_objects()
    values = as_array(X)
    if not is_frame(X) and not isinstance(X, Table) and np.ndim(values) == 1:
        return np.asarray(values)[None]
    return X


def _background(estimator: Any, columns: Columns, background: Any) -> Rows:
    """Rows that stand for what is usual.

    Raises:
        UserError: when the model keeps no rows to choose from.
        ValueError: for a number below one.
    """
    count = NUM_BACKGROUND if background is None else background
    if not isinstance(count, Integral):
        return _rows(estimator, columns, background, "background")
    if count < 1:
        raise ValueError(
            f"background must be a table of rows, or the number of the model's own rows to take, at least 1; got {count}."
        )
    embedding = estimator.model_.embedding
    if not isinstance(embedding, StandardisedRows):
        raise UserError("The model keeps features of training rows, not the rows: pass background=, some training rows.")
    z = estimator.posterior_.kernel.inducing_points.detach()[:MOST_POINTS]
    numbers = _numbers_of(estimator, z[herded(z[:, : embedding.num_own], min(int(count), len(z)))])
    # Nobody reads the cells of background rows that nobody brought.
    return Rows(numbers, np.zeros((len(numbers), len(columns.names)), dtype=np.bool_), None, [])


def _numbers_of(estimator: Any, z: Float[Tensor, "n E"]) -> Float[Array, "n F"]:
    """Inducing points as rows of numbers."""
    numbers = estimator.model_.embedding.scales.original_rows(z.cpu().numpy())
    encoder = getattr(estimator, "encoder_", None)
    if encoder is not None:
        # Inducing points are known rows.
        numbers[:, len(encoder.encoder_.features) - 1] = 0.0
    return numbers


def _texts_of(estimator: Any, columns: Columns, numbers: Float[Array, "n F"]) -> list[list[str]]:
    """Rows of numbers as text, cell by cell."""
    encoder = getattr(estimator, "encoder_", None)
    if encoder is None:
        return [[cell_text(value) for value in row[: len(columns.names)].tolist()] for row in numbers]
    inputs = encoder.encoder_.inputs
    found = cells_of(encoder.encoder_, numbers)
    return [[row[inputs.index(name)] if name in inputs else UNKNOWN for name in columns.names] for row in found]


def herded(z: Float[Tensor, "M D"], count: int) -> list[int]:
    """So many rows whose average is like that of all, for functions that are smooth over the distance of typical rows.

    Kernel herding (Chen, Welling & Smola, 2010): one after another the row that is most like all rows and least like those taken.
    """
    alike = torch.exp(-0.5 * torch.cdist(z, z).square() / max(z.shape[1], 1))
    wanted, taken = alike.mean(1), torch.zeros_like(alike[0])
    found: list[int] = []
    for step in range(count):
        score = wanted - taken / (step + 1)
        score[found] = -torch.inf
        found.append(int(score.argmax()))
        taken = taken + alike[found[-1]]
    return found


def _variance(model: Any, numbers: Array, nearly: bool = False) -> Tensor:
    """The variance of f at rows of numbers."""
    return torch.cat([model.variance_of_f(x, nearly) for x in model.rows(numbers)], dim=1)


def _embedded(model: Any, numbers: Array) -> Tensor:
    """Rows of numbers as Q knows them."""
    return torch.cat(list(model.rows(numbers)))


def _game(
    estimator: Any, columns: Columns, rows: Rows, i: int, others: Rows, variance: Callable[[Array], Tensor]
) -> tuple[Callable[[Tensor, Tensor], Tensor], Bool[Tensor, "B D"]]:
    """The value of coalitions of columns of row i, and in which columns it differs from each background row."""
    own, back, player = rows.numbers[i], others.numbers, columns.player
    belongs = np.flatnonzero(player >= 0)
    differs = rows.unlike[i] != others.unlike
    # Inducing points come back to the user's units with other last digits.
    np.logical_or.at(differs.T, player[belongs], ~np.isclose(own, back, rtol=SAME, atol=0.0)[:, belongs].T)
    mix = None
    if _asks_frames(estimator):
        assert rows.table is not None
        assert others.table is not None
        mix = _joined(rows.table[np.array([i])], others.table, columns.names)
        differs |= np.array([[a != b for a, b in zip(rows.cells[i], cells, strict=True)] for cells in others.cells])
    spread = np.where(player >= 0, player, 0)

    def game(inside: Tensor, places: Tensor) -> Tensor:
        chosen, of = inside.cpu().numpy(), places.cpu().numpy()
        numbers = np.where(chosen[:, spread] & (player >= 0), own, back[of])
        if columns.last is not None:
            place, unlike_all = columns.last
            numbers[:, place] = np.where(np.where(chosen, rows.unlike[i], others.unlike[of]).any(1), unlike_all, 0.0)
        if mix is not None:
            numbers = _carried(estimator, columns.names, mix, chosen, of, numbers)
        return variance(numbers)

    return game, torch.from_numpy(differs)


def _asks_frames(estimator: Any) -> bool:
    """Whether the variance of f depends on what predictors of data frames say."""
    return bool(estimator.frame_predictors_) and estimator.model_.cached.disagrees


def _joined(first: Table, others: Table, names: Sequence[str]) -> Table:
    """A row and the background rows below it."""
    import pyarrow as pa

    data = pa.concat_tables([part.data.select(list(names)) for part in (first, others)], promote_options="permissive")
    return Table(first.source, data.unify_dictionaries(), np.arange(len(data)))


def _carried(
    estimator: Any,
    names: Sequence[str],
    mix: Table,
    chosen: Bool[NDArray[Any], "n D"],
    of: Int[NDArray[Any], " n"],
    numbers: Float[Array, "n F"],
) -> Float[Array, "n F"]:
    """Rows with what predictors of frames say of them now."""
    import pyarrow as pa

    data = pa.table({name: mix.data[name].take(np.where(chosen[:, d], 0, of + 1)) for d, name in enumerate(names)})
    table = Table(mix.source, data, np.arange(len(data)))
    return with_predictions(estimator.frame_predictors_, table, own_columns(estimator, numbers))


def _known_rows(estimator: Any, columns: Columns, rows: Rows, known: Rows | None) -> tuple[Array, list[tuple[KnownRow, ...]]]:
    """What is left of the prior variance at each row, and the known rows that take most of it away."""
    model = estimator.model_
    cached, prior = model.cached, model.posterior.kernel.prior_kernel
    x = _embedded(model, rows.numbers)
    if known is None:
        # Rows of updates are known, too.
        seen = getattr(cached, "observations", None)
        z = torch.cat([model.posterior.kernel.inducing_points, *([] if seen is None else [seen.points])]).detach()
    else:
        z = _embedded(model, known.numbers)
    at_x, at_z = kernel_variance(prior, x).reshape(-1), kernel_variance(prior, z).reshape(-1)
    tiny = torch.finfo(x.dtype).tiny
    left = cached.remaining(x).mean(0) / at_x.clamp_min(tiny)
    told = 1 - (cached.remaining(z).mean(0) / at_z.clamp_min(tiny)).clamp(0, 1)
    found = []
    for i in range(len(x)):
        between = kernel_matrix(prior, x[i : i + 1], z).reshape(-1)
        correlation = between / (at_x[i] * at_z).clamp_min(tiny).sqrt()
        weight = correlation.square() * told
        best = torch.argsort(weight, descending=True, stable=True)[:NUM_KNOWN]
        if known is not None:
            cells = [known.cells[k] for k in best.tolist()]
        elif isinstance(model.embedding, StandardisedRows):
            cells = _texts_of(estimator, columns, _numbers_of(estimator, z[best]))
        else:
            cells = [[UNKNOWN] * len(columns.names)] * len(best)
        numbers = zip(best.tolist(), weight[best].tolist(), correlation[best].tolist(), cells, strict=True)
        found.append(tuple(KnownRow(place, share, value, tuple(texts)) for place, share, value, texts in numbers))
    return left.clamp(0, 1).cpu().numpy(), found


def _explanation(
    estimator: Any,
    columns: Columns,
    rows: Rows,
    found: Sequence[Shapley],
    spoken: tuple[Array, list[tuple[KnownRow, ...]]],
    of_training: bool,
    num_background: int,
) -> Explanation:
    """All of it in the user's shapes: no axis for one output, else the last."""
    model = estimator.model_
    names = model.output_names

    def shaped(values: Sequence[Tensor]) -> Array:
        stacked = torch.stack(list(values)).cpu().numpy()
        return stacked[:, 0] if len(names) == 1 else np.moveaxis(stacked, 1, -1)

    base = found[0].base.cpu().numpy()
    return Explanation(
        columns=columns.names,
        cells=tuple(map(tuple, rows.cells)),
        rows=tuple(range(len(rows.cells))),
        outputs=names,
        quantity=model.quantity,
        parts=shaped([one.parts for one in found]),
        standard_errors=shaped([one.standard_error for one in found]),
        base=float(base[0]) if len(names) == 1 else base,
        variance=shaped([one.whole for one in found]),
        prior_share=spoken[0],
        known=tuple(spoken[1]),
        of_training=of_training,
        background=num_background,
        shown=model.leading_outputs(rows.numbers),
        num_evaluations=num_background + len(found) + sum(one.num_evaluations for one in found),
    )
