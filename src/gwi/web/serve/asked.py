"""What a request asks for beside its rows: coverage, quantiles, times, parts, columns to copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gwi.estimators.tables import require_times
from gwi.exceptions import UserError
from gwi.tables.names import closest

# Levels or times of one request.
MOST_LISTED = 100
PARAMETERS = {
    "coverage": "probability that the interval from lower to upper contains the target; default 0.95",
    "quantiles": "levels of further columns with quantiles, separated by commas, such as 0.1,0.9; for models of numbers",
    "times": "for times to an event: times at which to give the probability of no event so far, separated by commas",
    "parts": "false leaves epistemic and aleatoric out",
    "keep": "columns of the request to copy, separated by commas; or unused, all or none; default none",
}


@dataclass(frozen=True)
class Asked:
    """What is wanted of each row, by the names of `PARAMETERS`."""

    coverage: float = 0.95
    quantiles: tuple[float, ...] = ()
    times: tuple[float, ...] = ()
    parts: bool = True
    keep: str = "none"

    @staticmethod
    def of(query: Sequence[tuple[str, str]], estimator: Any, model: str) -> Asked:
        """What the query of a request asks of a model.

        Raises:
            UserError: naming what is unknown, comes twice, or does not belong to such a model.
        """
        given = dict(query)
        for name in given:
            if name not in PARAMETERS:
                meant = closest(name[:40], list(PARAMETERS))
                hint = f"; did you mean {meant!r}?" if meant else ""
                raise UserError(f"There is no parameter {name[:40]!r}; there are {', '.join(PARAMETERS)}{hint}.")
        if len(given) < len(query):
            raise UserError("A parameter is given twice; separate several values by commas.")
        if given.get("parts", "true") not in ("true", "false"):
            raise UserError(f"parts must be true or false; got {given['parts'][:40]!r}.")
        quantiles = numbers_of("quantiles", given.get("quantiles", ""), lambda v: 0 < v < 1, "strictly between 0 and 1")
        times = numbers_of("times", given.get("times", ""), lambda v: 0 <= v < float("inf"), "0 or larger")
        coverage = numbers_of("coverage", given.get("coverage", "0.95"), lambda v: 0 < v < 1, "strictly between 0 and 1")
        if len(coverage) != 1:
            raise UserError("coverage must be one number strictly between 0 and 1.")
        if quantiles and estimator._kind in ("classes", "levels"):
            raise UserError(
                f"quantiles are for models of numbers; {model} predicts {estimator._kind}, with a probability for each."
            )
        if times:
            require_times(estimator, "times", model)
        return Asked(coverage[0], quantiles, times, given.get("parts") != "false", given.get("keep", "none"))


def numbers_of(name: str, text: str, is_one: Callable[[float], bool], what: str) -> tuple[float, ...]:
    """Those of a list parted by commas, each once.

    Raises:
        UserError: naming what is none.
    """
    parts, found = [part for part in text.split(",") if part.strip()], []
    if len(parts) > MOST_LISTED:
        raise UserError(f"{name} are at most {MOST_LISTED} in one request; got {len(parts)}.")
    for part in parts:
        try:
            value = float(part)
        except ValueError:
            value = float("nan")
        if not is_one(value):
            raise UserError(f"{name}: numbers must be {what}, separated by commas; got {part.strip()[:40]!r}.")
        found.append(value)
    return tuple(dict.fromkeys(found))
