"""Why a model is unsure at rows: what each column adds to the variance of f, and which known rows speak for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from gwi._typing import Array
from gwi.models.summary import html_table
from gwi.tables.decoding import UNKNOWN
from gwi.tables.frames import frame_of

# Rows, columns and known rows that the printed text has; in a line of a known row as many columns.
MOST_ROWS, MOST_COLUMNS, MOST_KNOWN, MOST_CELLS, LONGEST = 5, 8, 3, 4, 24
# Parts so many times as large as the variance cancel each other.
MUCH = 10.0
# Known rows that take less off the prior variance say nothing.
LEAST_WEIGHT = 0.005
CANCELLED = "Large parts cancel: columns depend on each other, and mixed with other rows this one is like no known row."


@dataclass(frozen=True, eq=False)
class KnownRow:
    """A row that the model was fitted to, or an inducing point, beside a row that is explained.

    Attributes:
        row: its number among the rows that were looked at: inducing points, or those given as ``training_rows``.
        weight: the share of the prior variance of f at the explained row that what the model knows of f at this row takes away by
            itself: ρ² (1 − r/k), with ρ the prior's correlation of f at the two rows and r/k what is left of its variance here.
        correlation: ρ.
        cells: of its columns, as text.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIRegressor
        >>> X = np.linspace(0, 3, 20)[:, None]
        >>> model = GWIRegressor("linear", random_state=0).fit(X, X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=20))
        >>> nearest = model.explain([[1.0]]).known[0][0]
        >>> bool(0 <= nearest.weight <= 1), bool(abs(nearest.correlation) <= 1)
        (True, True)
    """

    row: int
    weight: float
    correlation: float
    cells: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Explanation:
    """What each column adds to the variance of f at N rows, by Shapley values; J is the number of targets or classes.

    `base` and the parts of a row add up to its `variance`. A column that is absent is replaced by that of background rows, so a
    part says by how much the value in the row makes the model less sure than values of the background would, on average over all
    orders in which columns may be replaced. Parts below zero make it surer.

    Attributes:
        columns: names of the D columns.
        cells: of each row and column, as text.
        rows: numbers of the rows among those given.
        outputs: names of targets or classes.
        quantity: what f is.
        parts: (N, D); with several outputs (N, D, J).
        standard_errors: of parts that were found by drawing orders of columns, like `parts`; zeros where they are exact.
        base: mean variance of the background rows; (J,) with several outputs.
        variance: of f at each row, tempered, (N,) or (N, J).
        prior_share: what is left of the prior variance, `ood_score`.
        known: of each row the known rows that speak for it, the most telling first.
        of_training: whether these were given as ``training_rows``, else they are the model's inducing points.
        background: the number of background rows.
        shown: of each row the output that is shown; of targets the first.
        num_evaluations: rows whose variance was asked for, in all.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIRegressor
        >>> X = np.random.default_rng(0).normal(size=(20, 2))
        >>> model = GWIRegressor("linear", random_state=0).fit(X, X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=20))
        >>> found = model.explain([[0.5, 9.0]])  # the second column is far out
        >>> found.columns[found.parts[0].argmax()], found.parts.shape
        ('x1', (1, 2))
        >>> bool(np.isclose(found.base + found.parts.sum(), found.variance[0]))
        True
    """

    columns: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    rows: tuple[int, ...]
    outputs: tuple[str, ...]
    quantity: str
    parts: Array
    standard_errors: Array
    base: Any
    variance: Array
    prior_share: Float[Array, " N"]
    known: tuple[tuple[KnownRow, ...], ...]
    of_training: bool
    background: int
    shown: Int[NDArray[Any], " N"]
    num_evaluations: int

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: Any) -> Explanation:
        """Some rows, by numbers, a slice or a bool for each."""
        chosen = np.atleast_1d(np.arange(len(self))[rows])

        def some(values: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(values[i] for i in chosen)

        return Explanation(
            self.columns,
            some(self.cells),
            some(self.rows),
            self.outputs,
            self.quantity,
            self.parts[chosen],
            self.standard_errors[chosen],
            self.base,
            self.variance[chosen],
            self.prior_share[chosen],
            some(self.known),
            self.of_training,
            self.background,
            self.shown[chosen],
            self.num_evaluations,
        )

    @property
    def is_exact(self) -> bool:
        """Whether no part was found by drawing orders."""
        return not bool(np.nan_to_num(self.standard_errors, nan=1.0).any())

    def of(self, row: int, output: int | None = None) -> tuple[Float[Array, " D"], Float[Array, " D"], float, float]:
        """Parts, their standard errors, base and variance of one row.

        Args:
            row: its place here.
            output: target or class; the one that is shown unless given.
        """
        if not -len(self) <= row < len(self):
            raise ValueError(f"row must be between 0 and {len(self) - 1}, a place among the explained rows; got {row}.")
        if output is not None and not 0 <= output < len(self.outputs):
            raise ValueError(f"output must be between 0 and {len(self.outputs) - 1}; got {output}.")
        if len(self.outputs) == 1:
            return self.parts[row], self.standard_errors[row], float(self.base), float(self.variance[row])
        j = int(self.shown[row]) if output is None else output
        return self.parts[row, :, j], self.standard_errors[row, :, j], float(self.base[j]), float(self.variance[row, j])

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns for a data frame, a line for each row, output and column: value, part, its error, and share of the variance."""
        found: dict[str, list[Any]] = {name: [] for name in ("row", "output", "column", "value", "part", "error", "share")}
        for i in range(len(self)):
            for j, output in enumerate(self.outputs):
                parts, errors, _, variance = self.of(i, j)
                shares = parts / variance if variance > 0 else np.full(len(parts), np.nan)
                lines = zip(self.columns, self.cells[i], parts.tolist(), errors.tolist(), shares.tolist(), strict=True)
                for line in lines:
                    for name, value in zip(found, (self.rows[i], output, *line), strict=True):
                        found[name].append(value)
        return found

    def to_frame(self, library: Literal["pandas", "polars", "arrow"] = "pandas") -> Any:
        """The columns of `to_dict` as a data frame of a library, which is imported here.

        Args:
            library: whose frame.
        """
        return frame_of(self.to_dict(), library)

    def largest(self, row: int, most: int = MOST_COLUMNS, output: int | None = None) -> list[tuple[str, str, float, float]]:
        """Name, cell, part and standard error of the columns of one row, the largest part first; the least ones together.

        Args:
            row: its place here.
            most: lines at most.
            output: target or class; the one that is shown unless given.
        """
        parts, errors, _, _ = self.of(row, output)
        order = np.argsort(-np.abs(parts), kind="stable")
        head = order if len(order) <= most else order[: most - 1]
        found = [(self.columns[d], self.cells[row][d], float(parts[d]), float(errors[d])) for d in head]
        if len(head) < len(order):
            rest = order[len(head) :]
            # Parts of one row are drawn together: the sum of their errors bounds that of their sum.
            found.append((f"{len(rest)} more columns", "", float(parts[rest].sum()), float(errors[rest].sum())))
        return found

    def caveat(self, row: int, output: int | None = None) -> str:
        """A sentence where parts cancel each other and say little; empty where they do not.

        Args:
            row: its place here.
            output: target or class; the one that is shown unless given.
        """
        parts, _, base, variance = self.of(row, output)
        return CANCELLED if np.abs(parts).sum() > MUCH * max(base, variance) else ""

    def __str__(self) -> str:
        lines = [line for i in range(min(len(self), MOST_ROWS)) for line in (*self._lines(i), "")]
        if len(self) > MOST_ROWS:
            lines.append(f"… and {len(self) - MOST_ROWS} more rows; see to_frame().")
        return "\n".join(lines).rstrip("\n")

    def _repr_html_(self) -> str:
        tables = map(self._lines, range(min(len(self), MOST_ROWS)))
        return "".join(html_table(head, ([line.strip()] for line in lines)) for head, *lines in tables)

    def _lines(self, row: int) -> list[str]:
        outputs: Sequence[int] = range(len(self.outputs)) if self.quantity != "the logit" else [int(self.shown[row])]
        found: list[str] = []
        for j in outputs:
            found += self._of_output(row, j)
        return found + self._of_known(row)

    def _of_output(self, row: int, output: int) -> list[str]:
        _, _, base, variance = self.of(row, output)
        of = f"{self.quantity} of {self.outputs[output]}" if len(self.outputs) > 1 else self.quantity
        found = [
            f"Row {self.rows[row]}: the variance of {of} is {variance:.4g} (standard deviation {variance**0.5:.4g}); "
            f"{self.prior_share[row]:.0%} of the prior variance is left"
        ]
        lines = [("background rows", "", base, 0.0), *self.largest(row, output=output)]
        exact = not any(error != 0 for *_, error in lines)
        names = [_cut(name) for name, *_ in lines]
        cells = [_cut(cell) for _, cell, *_ in lines]
        widths = max(map(len, names)), max(map(len, cells))
        for (_, _, part, error), name, cell in zip(lines, names, cells, strict=True):
            share = _share(part, variance)
            near = "" if exact or name == names[0] else f"   ± {error:.2g}"
            found.append(f"  {name:<{widths[0]}}  {cell:<{widths[1]}}  {part:>10.4g}  {share:>8}{near}")
        if caveat := self.caveat(row, output):
            found.append(f"  {caveat}")
        return found

    def _of_known(self, row: int) -> list[str]:
        known = [one for one in self.known[row] if one.weight >= LEAST_WEIGHT][:MOST_KNOWN]
        what = "training row" if self.of_training else "inducing point"
        if not known:
            return [f"  No {what} is informative about it."]
        shown = sorted(np.argsort(-np.abs(self.of(row)[0]), kind="stable")[:MOST_CELLS])
        found = [f"  The most informative {what}s, and the share of the prior variance that each removes by itself:"]
        for one in known:
            cells = ", ".join(f"{self.columns[d]} = {_cut(one.cells[d])}" for d in shown if one.cells[d] != UNKNOWN)
            found.append(f"  {one.weight:6.0%}  {what} {one.row}{': ' if cells else ''}{cells}")
        return found


def _share(part: float, variance: float) -> str:
    if not variance > 0:
        return "–"
    share = part / variance
    return f"{share:.0%}" if abs(share) < MUCH else f"{share:.0f} ×"


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
