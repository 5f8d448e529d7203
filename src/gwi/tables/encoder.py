"""From the columns of a table to numbers, learned from one table and the same for every later one.

| column | becomes |
| --- | --- |
| numbers | themselves |
| text with up to 20 values | one column a value, 1 or 0; a value not seen before is 0 in all of them |
| text with more values | up to 20 numbers, alike for texts that share runs of letters (`Grams`) |
| dates | year, month, day, weekday, hour, seconds since 1970 |
| missing cells | the median, and a column that says so if there were some in training |
| all columns | a last one, 0 in training: √D/3 in rows with a text, or a missing cell, that training rows did not have |

The last column says nothing in training, so that means ignore it, while the kernel sees such a row far away from all known ones
and has nine tenths of the prior's variance there (decision 13).

Left out, with a reason: columns with one value, without values, of row numbers, and text that differs in most rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from gwi._typing import Array
from gwi.exceptions import UserError
from gwi.tables.grams import Grams, grams_from_json
from gwi.tables.names import no_column, require_columns
from gwi.tables.parsing import Kind, date_parts, kind_of, numbers, texts
from gwi.tables.plain import plain_rows
from gwi.tables.source import Table
from gwi.tables.unlike import NUM_EXAMPLES, Unlike

# The last number of a row, and what it is, in units of √D, where a cell is unlike all known ones: a length-scale of which no row
# tells stays at about √D/5, its hyper-prior's mode, and that shared by the columns of a wide table is about √D.
UNLIKE, FAR_AWAY, FAR_AWAY_IF_WIDE = "a value that training rows did not have", 1 / 3, 2.0
# With more numbers all share one length-scale: `fitting.hyperparameters.MOST_LENGTHSCALES`.
WIDE = 500
DATE_PARTS = ("year", "month", "day", "weekday", "hour", "seconds since 1970")


@dataclass(frozen=True)
class Column:
    """How one column becomes numbers.

    Attributes:
        name: in the table.
        kind: what it holds.
        kept: which of its numbers are kept, places in `all_features`; the others were the same in all training rows.
        fill: what stands for missing ones, one number for each kept.
        values: of text.
        shares: of the training rows, of each value of text with many.
        grams: of text with many values; None in older files, where its share is its number.
    """

    name: str
    kind: Kind
    kept: tuple[int, ...]
    fill: tuple[float, ...]
    values: tuple[str, ...] = ()
    shares: tuple[float, ...] = ()
    grams: Grams | None = None

    @property
    def all_features(self) -> tuple[str, ...]:
        """The names of its numbers; the last says whether the cell was missing."""
        own: dict[str, tuple[str, ...]] = {
            "number": (self.name,),
            "categories": tuple(f"{self.name} = {value}" for value in self.values),
            "frequency": self._of_text(),
            "date": tuple(f"{part} of {self.name}" for part in DATE_PARTS),
        }
        return (*own[self.kind], f"{self.name} is missing")

    def _of_text(self) -> tuple[str, ...]:
        if self.grams is None:
            return (f"share of {self.name}",)
        return tuple(f"letters {i + 1} of {self.name}" for i in range(self.grams.num_directions))


@dataclass(frozen=True)
class Encoder:
    """How a table becomes numbers.

    Attributes:
        target: the column to predict; empty where nobody has named one.
        columns: those that are used.
        dropped: those that are not, each with the reason.
        number_labels: whether labels are numbers, so that 1, 1.0 and 01 are one; None where nobody has decided.
        event: of a time to an event, the column that says whether it came; None of other targets.
        is_plain: whether each column is a number and nothing was learned of it; such an encoder is made, and in no file.
    """

    target: str
    columns: tuple[Column, ...]
    dropped: tuple[tuple[str, str], ...]
    number_labels: bool | None = None
    event: str | None = None
    is_plain: bool = False

    @staticmethod
    def plain(names: Sequence[str], usual: Sequence[float] | None = None) -> Encoder:
        """Columns of numbers that become themselves.

        Args:
            names: of the columns.
            usual: a number of each that is nothing special; 0 when None.
        """
        usual = [0.0] * len(names) if usual is None else usual
        pairs = zip(names, usual, strict=True)
        return Encoder("", tuple(Column(name, "number", (0,), (float(number),)) for name, number in pairs), (), is_plain=True)

    @staticmethod
    def fit(table: Table, target: str = "", leave_out: Sequence[str] = ()) -> Encoder:
        """Learn from training rows what each column is.

        Raises:
            UserError: naming a place that is neither number, text nor date, or when no column is left to predict the target from.
        """
        for name in (*filter(None, [target]), *leave_out):
            if name not in table.names:
                raise no_column(table.source.path, name, table.names)
        inputs = [name for name in table.names if name != target]
        learned = {name: _learned(table, name) for name in inputs if name not in leave_out}
        columns = tuple(column for column in learned.values() if isinstance(column, Column))
        dropped = [(name, "is left out, as you asked") for name in inputs if name in leave_out]
        dropped += [(name, reason) for name, reason in learned.items() if isinstance(reason, str)]
        if not columns and target:
            why = "; ".join(f"{name!r} {reason}" for name, reason in dropped[:3])
            raise UserError(
                f"{table.source.path} has no column to predict {target!r} from{': ' + why if why else ''} "
                "(columns are separated by comma, semicolon, tab or bar)."
            )
        return Encoder(target, columns, tuple(dropped))

    @property
    def inputs(self) -> list[str]:
        """Names of the columns that are used."""
        return [column.name for column in self.columns]

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the numbers, in the order of `transform`."""
        named = ((column.all_features, column.kept) for column in self.columns)
        return (*(names[i] for names, kept in named for i in kept), *([] if self.is_plain else [UNLIKE]))

    def places(self) -> Iterator[tuple[Column, slice]]:
        """Each column, and where its numbers are."""
        start = 0
        for column in self.columns:
            yield column, slice(start, start + len(column.kept))
            start += len(column.kept)

    def transform(self, table: Table, unlike: Unlike | None = None) -> Float[Array, "N F"]:
        """The numbers of each row; texts and missing cells that training rows did not have are counted in `unlike`.

        Raises:
            UserError: when columns are missing, or naming a cell that is not what its column held in training.
        """
        if self.is_plain:
            return plain_rows(table, self.inputs)
        require_columns(self.inputs, table.names, table.source.path)
        unlike = Unlike() if unlike is None else unlike
        result = np.zeros((len(table), len(self.features)))
        for column, place in self.places():
            values, new = _features(column, table)
            blank = (values[:, -1] == 1) & (values.shape[1] - 1 not in column.kept)
            values = values[:, column.kept]
            result[:, place] = np.where(np.isnan(values), np.array(column.fill), values)
            result[new | blank, -1] = far_away(result.shape[1])
            unlike.new[column.name] += int(new.sum())
            unlike.blank[column.name] += int(blank.sum())
            if new.any() and len(unlike.examples[column.name]) <= NUM_EXAMPLES:
                unlike.examples[column.name] |= dict.fromkeys(texts(table[new], column.name).to_pylist())
        return result

    def unlike_cells(self, table: Table) -> Bool[NDArray[Any], "N C"]:
        """Which cells of the columns that are used are unlike all known ones: what sets the last number of their rows."""
        found = np.zeros((len(table), len(self.columns)), dtype=np.bool_)
        for place, column in enumerate(self.columns):
            values, new = _features(column, table)
            found[:, place] = new | ((values[:, -1] == 1) & (values.shape[1] - 1 not in column.kept))
        return found

    def note_outside(self, outside: Bool[NDArray[Any], "N F"], unlike: Unlike) -> None:
        """Count the rows whose numbers or dates are outside of what training rows had."""
        for column, place in self.places():
            if column.kind in ("number", "date"):
                unlike.outside[column.name] += int(outside[:, place].any(1).sum())

    def to_json(self) -> dict[str, Any]:
        """As plain dictionaries, tuples, numbers and text."""
        return {name: value for name, value in asdict(self).items() if value is not None and name != "is_plain"}

    @staticmethod
    def from_json(node: Any) -> Encoder:
        """What `to_json` wrote.

        Raises:
            ValueError: when it is something else.
        """
        try:
            columns = tuple(_column_from_json(part) for part in node["columns"])
            dropped = tuple((_text(name), _text(reason)) for name, reason in node["dropped"])
            decided, event = node.get("number_labels"), node.get("event")
            labels_are_numbers = None if decided is None else bool(decided)
            named_event = None if event is None else _text(event)
            encoder = Encoder(_text(node["target"]), columns, dropped, labels_are_numbers, named_event)
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"The description of the columns is invalid ({type(error).__name__}: {error}).") from error
        if (encoder.target and not columns) or len({column.name for column in columns}) < len(columns):
            raise ValueError("The description of the columns has none, or one of them twice.")
        return encoder


def far_away(num_features: int) -> float:
    """The last number of rows with a cell that is unlike all known ones."""
    return (FAR_AWAY if num_features <= WIDE else FAR_AWAY_IF_WIDE) * math.sqrt(num_features)


def _column_from_json(part: Any) -> Column:
    if part["kind"] not in get_args(Kind):
        raise ValueError(f"A column is of the unknown kind {str(part['kind'])[:20]!r}.")
    column = Column(
        _text(part["name"]),
        part["kind"],
        tuple(part["kept"]),
        tuple(map(float, part["fill"])),
        tuple(map(_text, part["values"])),
        tuple(map(float, part["shares"])),
        grams_from_json(part.get("grams")),
    )
    num_features = len(column.all_features)
    fits = all(type(place) is int and 0 <= place < num_features for place in column.kept)
    fits &= 0 < len(column.kept) == len(set(column.kept)) == len(column.fill)
    fits &= len(column.shares) == (len(column.values) if column.kind == "frequency" else 0)
    fits &= len(set(column.values)) == len(column.values) and all(0 <= share <= 1 for share in column.shares)
    if not fits or not all(map(math.isfinite, column.fill)):
        raise ValueError(f"The description of column {column.name[:40]!r} does not fit together.")
    return column


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a name or value is text, not {type(value).__name__}")
    return value


def _learned(table: Table, name: str) -> Column | str:
    """What a column is, or why it is of no use."""
    found = kind_of(table, name)
    if isinstance(found, str):
        return found
    kind, values, shares = found
    column = Column(name, kind, (), (), values, shares, Grams.of(values, shares) if kind == "frequency" else None)
    features, _ = _features(column, table)
    kept = tuple(i for i, part in enumerate(features.T) if len(np.unique(part[~np.isnan(part)])) > 1)
    if not kept:
        return "has the same value in every row"
    if kind == "number" and len(table) > 2 and np.unique(features[:, 0] - table.number).tolist() in ([0.0], [1.0]):
        return "counts the rows"
    fill = tuple(float(np.nanmedian(features[:, i])) for i in kept)
    return replace(column, kept=kept, fill=fill)


def _features(column: Column, table: Table) -> tuple[Float[Array, "N F"], Bool[NDArray[Any], " N"]]:
    """All numbers of a column, NaN where it is missing, and a last one that says so; and where a text is none of its values."""
    new = np.zeros(len(table), dtype=np.bool_)
    if column.kind in ("number", "date"):
        own = numbers(table, column.name)[:, None] if column.kind == "number" else date_parts(table, column.name)
        missing = np.isnan(own[:, 0])
    else:
        import pyarrow as pa
        import pyarrow.compute as pc

        text = texts(table, column.name)
        place = np.asarray(pc.index_in(text, value_set=pa.array(column.values, pa.string())).fill_null(-1))
        missing = ~np.asarray(text.is_valid())
        new = (place < 0) & ~missing
        if column.kind == "categories":
            own = (place[:, None] == np.arange(len(column.values))).astype(np.float64)
        elif column.grams is None:
            own = np.append(np.array(column.shares), 0.0)[place][:, None]
        else:
            coded = text.fill_null("").dictionary_encode()
            own = column.grams.numbers(coded.dictionary.to_pylist())[np.asarray(coded.indices)]
    return np.column_stack([own, missing.astype(np.float64)]), new
