"""Small tables, images and networks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from sklearn.datasets import load_diabetes, load_digits
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from torch import nn

from gwi.core.networks import mlp

from .content import Array

NUM_NEW = 8


def numbers(num_rows: int = 70, seed: int = 0) -> tuple[Array, Array]:
    """Four columns, and a target that is smooth in some and jumps in others, so that every member of a stack has its use."""
    rng = np.random.default_rng(seed)
    x = rng.normal([0, 5, -1, 0], [1, 2, 0.1, 1], (num_rows, 4))
    jump = np.where(x[:, 1] > 5.5, 1.2, 0.0) + np.where(x[:, 2] > -1, 0.6, -0.4) * (x[:, 0] > 0)
    return x, np.sin(2 * x[:, 0]) + jump + 0.3 * x[:, 3] + 0.15 * rng.normal(size=num_rows)


def new_numbers() -> tuple[Array, Array]:
    """Rows like `numbers`, and one far from them."""
    x, y = numbers(NUM_NEW, seed=1)
    x[-1] += [9, -15, 1, 6]
    return x, y


def diabetes(num_rows: int) -> tuple[Array, Array]:
    x, y = load_diabetes(return_X_y=True)
    return x[:num_rows, :5], y[:num_rows]


def three_classes(num_rows: int = 70, seed: int = 0) -> tuple[Array, Any]:
    """Two columns and three classes that overlap a little."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_rows, 2))
    noisy = x + 0.2 * rng.normal(size=x.shape)
    return x, np.array(["ash", "birch", "cedar"])[(noisy.sum(1) > 0).astype(int) + (noisy[:, 0] > 1)]


def new_classes() -> tuple[Array, Any]:
    x, y = three_classes(NUM_NEW, seed=1)
    x[-1] += 9
    return x, y


def images() -> tuple[Any, Any]:
    """The first three digits, 8 × 8."""
    x, y = load_digits(return_X_y=True)
    keep = y < 3
    return (x[keep] / 16).reshape(-1, 1, 8, 8).astype(np.float32), y[keep]


class SmallCNN(nn.Module):
    """Two convolutions and a dense layer, for three classes of 1 × 8 × 8 images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3), nn.ReLU())
        self.dense = nn.Sequential(nn.Flatten(), nn.Linear(24, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dense(self.conv(x))


def trained_cnn(x: Any, y: Any) -> SmallCNN:
    """Trained in float64, for other processors to come to the same network."""
    torch.manual_seed(0)
    return trained(SmallCNN().double(), x, torch.from_numpy(y), nn.functional.cross_entropy)


def small_mlp(num_inputs: int, num_outputs: int, seed: int = 0, hidden: tuple[int, ...] = (8,)) -> nn.Module:
    return mlp(num_inputs, num_outputs, hidden=hidden, generator=torch.Generator().manual_seed(seed))


def trained(network: Any, x: Any, target: torch.Tensor, loss: Callable[..., torch.Tensor], num_steps: int = 40) -> Any:
    """A few steps of Adam."""
    rows = torch.as_tensor(x).to(next(network.parameters()).dtype)
    optimiser = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(num_steps):
        optimiser.zero_grad()
        loss(network(rows), target).backward()
        optimiser.step()
    return network.eval()


def boosting() -> HistGradientBoostingRegressor:
    return HistGradientBoostingRegressor(max_iter=15, max_leaf_nodes=6, min_samples_leaf=5, learning_rate=0.2)


def extra_trees() -> ExtraTreesRegressor:
    return ExtraTreesRegressor(8, max_leaf_nodes=20)


def parquet(path: Path, x: Array, y: Any) -> Path:
    """Rows and their targets in groups of twenty."""
    pq.write_table(pa.table({**{f"x{i}": column for i, column in enumerate(x.T)}, "y": y}), path, row_group_size=20)
    return path
