"""Names of columns that a table does not have, and what may have been meant."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from gwi.exceptions import UserError
from gwi.tables.addresses import AnyPath


def no_column(path: AnyPath | str, name: str, names: Sequence[str], what: str = "") -> UserError:
    """That a column is not there, with the name it may have been meant to be, and those there are."""
    meant = closest(name, names)
    guess = f"did you mean {meant!r}? It" if meant else "it"
    return UserError(f"{path} has no column {name!r}{what}; {guess} has {some(names)}.")


def closest(name: str, names: Sequence[str]) -> str | None:
    """The name most like this one, whatever the case of letters; None where none is."""
    folded = {other.casefold(): other for other in names}
    found = get_close_matches(name.casefold(), folded, 1)
    return folded[found[0]] if found else None


def some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(map(repr, names[:8]))
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"


def require_columns(wanted: Sequence[str], present: Sequence[str], what: object, note: str = "") -> None:
    """Refuse a table that lacks columns, with the names they may have there, and a note behind the sentence.

    Raises:
        UserError: naming them.
    """
    missing = [name for name in wanted if name not in set(present)]
    if not missing:
        return
    unused = [name for name in present if name not in wanted]
    meant = {name: closest(name, unused) for name in missing[:8]}
    hint = "; ".join(f"is {other!r} meant as {name!r}?" for name, other in meant.items() if other)
    lacking = f"{some(missing)}{f' ({hint})' if hint else ''}{f'; {note}' if note else ''}"
    raise UserError(f"{what} lacks {len(missing)} of the {len(wanted)} columns of the model: {lacking}.")
