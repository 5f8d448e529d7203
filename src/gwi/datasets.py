"""Data: the paper's one-dimensional toy, and the UCI regression tables."""

from __future__ import annotations

import gzip
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

UCIName = Literal["boston", "concrete", "energy", "kin8nm", "power", "protein", "wine_red", "yacht", "naval"]


@dataclass(frozen=True)
class Toy:
    """One-dimensional data with a stretch that nobody measured.

    Attributes:
        x: inputs of the training rows.
        y: their noisy targets.
        x_unseen: inputs in the gap.
        y_unseen: targets in the gap, kept from training.
    """

    x: Float[Tensor, "N 1"]
    y: Float[Tensor, "1 N"]
    x_unseen: Float[Tensor, "U 1"]
    y_unseen: Float[Tensor, "1 U"]


def toy_1d(
    num_data: int = 1000,
    noise_std: float = 0.5,
    *,
    interval: tuple[float, float] = (-5.0, 5.0),
    gap: tuple[float, float] = (-1.7, 1.7),
    generator: torch.Generator | None = None,
) -> Toy:
    """f(x) = 0.6 x sin(2x) at equidistant points with Gaussian noise; the points of the gap are set apart [1d_illustration]."""
    x = torch.linspace(*interval, num_data, dtype=torch.float64)[:, None]
    noise = torch.randn(num_data, dtype=torch.float64, generator=generator)
    y = (0.6 * x[:, 0] * torch.sin(2 * x[:, 0]) + noise_std * noise)[None]
    unseen = (x[:, 0] > gap[0]) & (x[:, 0] < gap[1])
    return Toy(x[~unseen], y[:, ~unseen], x[unseen], y[:, unseen])


def load_uci(name: UCIName) -> tuple[Float[Tensor, "N D"], Float[Tensor, "1 N"]]:
    """Features and target of a UCI table, in original units, from ``$GWI_DATA/uci/<name>.csv.gz``.

    Raises:
        FileNotFoundError: when the variable is not set or the file is not there.
    """
    folder = os.environ.get("GWI_DATA")
    path = Path(folder or ".") / "uci" / f"{name}.csv.gz"
    if folder is None or not path.is_file():
        raise FileNotFoundError(
            f"The table {name!r} was looked for at {path if folder else '$GWI_DATA/uci'} and is not there. "
            "Set the environment variable GWI_DATA to the folder that holds uci/."
        )
    with gzip.open(path, "rt") as file:
        table = torch.from_numpy(np.loadtxt(file, delimiter=",", skiprows=1))
    return table[:, :-1].contiguous(), table[:, -1][None].contiguous()


@dataclass(frozen=True)
class Split:
    """Which rows train and which test.

    Attributes:
        name: ``standard-3``, or ``gap-0`` for the gap in the first feature.
        train: indices of rows.
        test: indices of rows.
    """

    name: str
    train: Int[Tensor, " N"]
    test: Int[Tensor, " T"]


def standard_splits(num_rows: int, num_splits: int = 20) -> list[Split]:
    """The random 90/10 splits that the literature uses (Hernández-Lobato and Adams, 2015), row for row."""
    generator = np.random.RandomState(1)
    splits = []
    for i in range(num_splits):
        order = torch.from_numpy(generator.choice(num_rows, num_rows, replace=False))
        size = round(0.9 * num_rows)
        splits.append(Split(f"standard-{i}", order[:size], order[size:]))
    return splits


def gap_splits(x: Float[Tensor, "N D"]) -> list[Split]:
    """One split a feature: rows sorted by it, the middle third held out (Foong et al., 2019); constant features have none."""
    splits = []
    for d in range(x.shape[1]):
        if x[:, d].min() == x[:, d].max():
            continue
        order = x[:, d].argsort(stable=True)
        first, last = len(order) // 3, 2 * len(order) // 3
        splits.append(Split(f"gap-{d}", torch.cat([order[:first], order[last:]]), order[first:last]))
    return splits


def standardise(values: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
    """Columns with mean zero and unit standard deviation; constant columns become zero."""
    centred = values - values.mean(0)
    std = centred.square().mean(0).sqrt()
    return centred / torch.where(std > 0, std, torch.ones_like(std))
