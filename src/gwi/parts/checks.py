"""What an option may be, and one sentence when it is something else."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, get_args

# Whole numbers beyond are no floating-point numbers.
MOST = 1e300


def require_choice(name: str, value: Any, choices: Any) -> None:
    """Refuse, before anything is fitted, what is not one of a Literal's values.

    Raises:
        ValueError: naming the choices.
    """
    known = [f'"{choice}"' for choice in get_args(choices)]
    if not isinstance(value, str) or value not in get_args(choices):
        raise ValueError(f"{name} must be {', '.join(known[:-1])} or {known[-1]}; got {value!r}.")


def require_positive(name: str, value: Any, others: Sequence[Any]) -> None:
    """Refuse what is neither a positive number nor one of the others.

    Raises:
        ValueError: naming what is taken.
    """
    number: Any = value
    if not (isinstance(value, Real) and 0 < number < MOST) and value not in others:
        raise ValueError(f"{name} must be {_either(others)}a positive number; got {value!r}.")


def require_count(name: str, value: Any, others: Sequence[Any] = ()) -> None:
    """Refuse what is neither a whole number from one on nor one of the others.

    Raises:
        ValueError: naming what is taken.
    """
    if not (isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1) and value not in others:
        raise ValueError(f"{name} must be {_either(others)}a whole number, at least one; got {value!r}.")


def require_seconds(name: str, value: Any) -> None:
    """Refuse what is neither a time nor None.

    Raises:
        ValueError: naming what is taken.
    """
    if value is not None and not (isinstance(value, Real) and float(value) >= 0):
        raise ValueError(
            f"{name} must be None, a number of seconds, at least zero, or gwi.MaxTime(seconds, speed); got {value!r}."
        )


def require_cv(value: Any) -> None:
    """Refuse what gives no folds.

    Raises:
        ValueError: naming what is taken.
    """
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 2:
        return
    if (isinstance(value, str) and value in ("auto", "time")) or hasattr(value, "split") != isinstance(value, str):
        return
    if isinstance(value, list | tuple) and value and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in value):
        return
    raise ValueError(
        'cv must be "auto", "time", a number of folds from two on, a splitter of scikit-learn\'s, or a list of pairs '
        "of row numbers; "
        f"got {value!r}."
    )


def _either(others: Sequence[Any]) -> str:
    words = ", ".join(f'"{other}"' if other else "None" for other in others)
    return f"{words} or " if words else ""
