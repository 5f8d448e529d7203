"""Points to begin with: the paper's one-dimensional illustration with a stretch that nobody measured, and three lessons more."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from gwi._typing import Array

NOISE_STD = 0.5
DIGITS = 3


@dataclass(frozen=True)
class Preset:
    """Points, the window they are seen in, and choices that suit them.

    Attributes:
        name: for the page.
        title: for readers.
        says: what there is to see, in a sentence.
        points: pairs of x and y.
        window: the least and the largest x, the least and the largest y.
        choices: those that are not the page's usual ones.
    """

    name: str
    title: str
    says: str
    points: list[list[float]]
    window: list[float]
    choices: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As plain dictionaries and lists."""
        return asdict(self)


def presets() -> list[Preset]:
    """All of them; the page begins with the first."""
    wide = [-7.0, 7.0, -6.0, 6.5]
    return [
        Preset(
            "wave",
            "Wave with a gap",
            "The paper's illustration: noisy points of 0.6 x sin 2x, none around zero. The bands widen where there are "
            "no points.",
            _measured(lambda x: 0.6 * x * np.sin(2 * x), (-1.7, 1.7), 60),
            wide,
        ),
        Preset(
            "zigzag",
            "Zigzag with a gap",
            "Straight lines with corners, as in the paper's figure; a rough kernel follows them better than a smooth one.",
            _measured(lambda x: 4 * np.abs(np.remainder(x / 3.2, 1) - 0.5) * 2 - 2, (0.6, 3.4), 60),
            wide,
            {"kernel": "matern32"},
        ),
        Preset(
            "step",
            "Step with a gap",
            "2 tanh 4(x − 2): flat, a step, flat. A network as the mean, with the same kind of bands around it.",
            _measured(lambda x: 2 * np.tanh(4 * (x - 2)), (-2.5, 0.5), 60),
            wide,
            {"mean": "network"},
        ),
        Preset(
            "growing",
            "Noise that grows",
            "The noise depends on x: the outer band is wide on the right although there are as many points.",
            _growing(),
            [-1.0, 11.0, -4.5, 5.5],
            {"likelihood": "varying"},
        ),
        Preset(
            "counts",
            "Counts",
            "Whole numbers from zero on, with a Poisson likelihood: the intervals never go below zero.",
            _counts(),
            [-6.0, 6.0, -1.0, 16.0],
            {"likelihood": "poisson"},
        ),
        Preset(
            "few",
            "A handful",
            "Six points. Add some, move them, and watch the bands follow.",
            [[-3.0, -1.0], [-1.8, 0.6], [-0.6, 1.3], [0.9, 0.4], [2.1, -0.9], [3.3, -0.2]],
            [-7.0, 7.0, -4.0, 4.0],
        ),
    ]


def _pairs(x: Float[Array, " N"], y: Float[Array, " N"]) -> list[list[float]]:
    return [[round(float(a), DIGITS), round(float(b), DIGITS)] for a, b in zip(x, y, strict=True)]


def _measured(f: Any, gap: tuple[float, float], count: int) -> list[list[float]]:
    """Noisy points of a function on [−5, 5], those of the gap left out."""
    x = np.linspace(-5, 5, count)
    y = f(x) + NOISE_STD * np.random.default_rng(1).normal(size=count)
    seen = (x < gap[0]) | (x > gap[1])
    return _pairs(x[seen], y[seen])


def _growing() -> list[list[float]]:
    x = np.linspace(0, 10, 80)
    y = np.sin(x) + 0.13 * x * np.random.default_rng(3).normal(size=len(x))
    return _pairs(x, y)


def _counts() -> list[list[float]]:
    x = np.linspace(-5, 5, 45)
    y = np.random.default_rng(4).poisson(np.exp(1.2 + np.sin(x))).astype(float)
    return _pairs(x, y)
