"""`torch.export` writes down a fitted measure: nothing that it computes depends on values."""

import numpy as np
import pytest
import torch
from torch import nn

from gwi import GWIRegressor
from gwi.core.linalg import cholesky
from gwi.parts import Network

pytestmark = pytest.mark.unchecked


class Marginals(nn.Module):
    def __init__(self, posterior):
        super().__init__()
        self.posterior = posterior

    def forward(self, rows):
        return self.posterior.marginals(rows)


STACK = ["svgp", "linear", Network(max_steps=20)]


@pytest.mark.parametrize("mean", ["svgp", pytest.param(STACK, marks=pytest.mark.slow)], ids=["svgp", "stack"])
def test_an_exported_posterior_says_the_same(mean):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (60, 3))
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=60)
    posterior = GWIRegressor(mean, random_state=0).fit(X, y).posterior_
    rows = torch.randn(3, 3, dtype=torch.float64)
    # Checks of shapes in tests would take a number of rows that is open for a fixed one, inside of networks.
    is_open = mean == "svgp"
    shapes = ({0: torch.export.Dim("rows")},) if is_open else None
    program = torch.export.export(Marginals(posterior), (rows,), dynamic_shapes=shapes)
    # At home, and far away, where others speak.
    count = 7 if is_open else 3
    for other in (torch.randn(count, 3, dtype=torch.float64), torch.full((count, 3), 20.0, dtype=torch.float64)):
        for found, wanted in zip(program.module()(other), posterior.marginals(other), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-8)


class Factor(nn.Module):
    def forward(self, matrix):
        return cholesky(matrix).factor


def test_an_exported_factorisation_takes_the_same_jitter():
    rows = torch.linspace(0, 1, 30, dtype=torch.float64)[:, None]
    matrices = [torch.exp(-torch.cdist(rows, rows).square() / scale) for scale in (0.001, 0.1, 10.0)]
    program = torch.export.export(Factor(), (matrices[0],))
    for matrix in matrices:
        torch.testing.assert_close(program.module()(matrix), cholesky(matrix).factor, rtol=1e-12, atol=1e-14)
