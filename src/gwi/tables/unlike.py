"""Rows of later tables that are unlike those of the fit, counted by column while tables are read."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from gwi.tables.names import some

NUM_EXAMPLES = 3


@dataclass
class Unlike:
    """How many rows are unlike those of the fit, by column.

    Attributes:
        new: rows with a text that no training row had.
        examples: the first such texts.
        blank: rows without a value where every training row had one.
        outside: rows with a number or date far outside of the training rows'.
    """

    new: Counter[str] = field(default_factory=Counter)
    examples: defaultdict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    blank: Counter[str] = field(default_factory=Counter)
    outside: Counter[str] = field(default_factory=Counter)

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
            found.append(f"{_have(count)} a value of {name!r} far outside of the training rows'; there the model extrapolates.")
        return found


def _have(count: int) -> str:
    return "1 row has" if count == 1 else f"{count} rows have"
