"""Rows of later tables that are unlike those of the fit, counted by column while tables are read."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from gwi.tables.names import some

NUM_EXAMPLES = 3
# The share of rows that the model was fitted to from which on scores on them are doubted.
MANY_SEEN = 0.2


@dataclass
class Unlike:
    """How many rows are unlike those of the fit, by column.

    Attributes:
        new: rows with a text that no training row had.
        examples: the first such texts.
        blank: rows without a value where every training row had one.
        outside: rows with a number or date far outside of the training rows'.
        num_judged, num_seen: rows with a target, and those of them that the model was fitted to.
    """

    new: Counter[str] = field(default_factory=Counter)
    examples: defaultdict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    blank: Counter[str] = field(default_factory=Counter)
    outside: Counter[str] = field(default_factory=Counter)
    num_judged: int = 0
    num_seen: float = 0.0

    def judged(self, count: int, share_seen: float) -> None:
        """Note rows with a target, and what share of them are training rows; NaN where nobody knows."""
        if share_seen >= 0:
            self.num_judged, self.num_seen = self.num_judged + count, self.num_seen + share_seen * count

    def sentences(self, effect: str) -> list[str]:
        """One for each column and kind; `effect` says what it does to predictions."""
        found = []
        for name, count in (+self.new).items():
            values = list(self.examples[name])
            more = ", …" if len(values) > NUM_EXAMPLES else ""
            shown = some(values[:NUM_EXAMPLES])
            found.append(f"{_have(count)} a value of {name!r} that the training rows did not have ({shown}{more}); {effect}.")
        for name, count in (+self.blank).items():
            found.append(f"{_have(count)} no value of {name!r}, which every training row had; {effect}.")
        for name, count in (+self.outside).items():
            found.append(
                f"{_have(count)} a value of {name!r} far outside the range of the training rows, where the model extrapolates."
            )
        if self.num_seen >= MANY_SEEN * max(self.num_judged, 1):
            share = self.num_seen / self.num_judged
            found.append(f"{share:.0%} of the rows were in the training data; these scores say little about new rows.")
        return found


def _have(count: int) -> str:
    return "1 row has" if count == 1 else f"{count} rows have"
