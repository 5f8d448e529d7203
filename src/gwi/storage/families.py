"""Likelihoods in model files: tags and numbers of a closed list."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from gwi.core.likelihoods.censored import CensoredFamily
from gwi.core.likelihoods.families import BetaFamily, Family, GammaFamily, NegativeBinomialFamily, PoissonFamily
from gwi.core.likelihoods.ordinal import OrdinalFamily
from gwi.core.likelihoods.robust import RobustFamily
from gwi.core.likelihoods.shapes import SHAPES
from gwi.core.outcomes import Outcome
from gwi.exceptions import UnsavableError
from gwi.storage.header import number, refuse_if
from gwi.storage.kernels import Node

_PLAIN: dict[str, type[Any]] = {"poisson": PoissonFamily, "negative-binomial": NegativeBinomialFamily, "gamma": GammaFamily}
# Far beyond what any target of few values has.
MOST_LEVELS = 1000


def encode_family(family: Family) -> Node:
    """A likelihood.

    Raises:
        UnsavableError: for one that was brought, such as one of GPyTorch.
    """
    for tag, kind in _PLAIN.items():
        if type(family) is kind:
            return {"type": tag}
    if type(family) is BetaFamily:
        return {"type": "beta", "low": family.low, "high": family.high, "margin": family.margin}
    if type(family) is OrdinalFamily:
        levels = {"thresholds": list(family.thresholds), "values": list(family.values)}
        return {"type": "ordinal", "shape": family.shape.name} | levels
    if type(family) is RobustFamily:
        return {"type": "robust", "power": family.power, "divergence": family.divergence}
    if type(family) is CensoredFamily:
        return {"type": "censored", "shape": family.shape.name}
    raise UnsavableError(
        f"The likelihood {family.name} cannot be stored without running code when it is read; those that gwi names can. Keep the "
        "model with pickle or joblib, and open only such files that you trust."
    )


def decode_family(node: Node) -> Family:
    """What was encoded; ValueError when it describes none."""
    kind = str(node["type"])
    if kind in _PLAIN:
        return _PLAIN[kind]()
    if kind == "beta":
        low, high = number(node["low"], "a bound"), number(node["high"], "a bound")
        refuse_if(not low < high, "the bounds of a likelihood are invalid")
        return BetaFamily(low, high, margin=number(node["margin"], "a margin", 0.0, 0.5))
    if kind == "robust":
        refuse_if(node["divergence"] not in ("beta", "gamma"), "a divergence is of an unknown kind")
        return RobustFamily(power=number(node["power"], "the power", 1e-12, 1e3), divergence=node["divergence"])
    refuse_if(kind not in ("censored", "ordinal") or node["shape"] not in SHAPES, "a likelihood is of an unknown kind")
    shape = SHAPES[node["shape"]]
    if kind == "censored":
        return CensoredFamily(shape)
    thresholds, values = (_ascending(node[name], name) for name in ("thresholds", "values"))
    refuse_if(len(values) != len(thresholds) + 1, "there are other thresholds than values")
    return OrdinalFamily(shape, thresholds=thresholds, values=values)


def _ascending(values: Any, what: str) -> tuple[float, ...]:
    refuse_if(not isinstance(values, list) or not 0 < len(values) <= MOST_LEVELS, f"{what} are not a list")
    found = tuple(number(value, what) for value in values)
    refuse_if(any(b <= a for a, b in pairwise(found)), f"{what} are not in ascending order")
    return found


def encode_outcome(outcome: Outcome) -> Node:
    """What is done to numbers before a likelihood."""
    return {"log": outcome.log, "low": outcome.low}


def decode_outcome(node: Node) -> Outcome:
    """What was encoded; ValueError when it is none."""
    refuse_if(type(node["log"]) is not bool, "an outcome is neither a number nor its logarithm")
    return Outcome(log=node["log"], low=None if node["low"] is None else number(node["low"], "a bound"))
