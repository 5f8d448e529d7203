"""Models of numbers in ONNX say what `predict` says: every likelihood, every kind of mean, near and far."""

from functools import cache

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from torch import nn

import target_cases
from gwi import GWIRegressor
from gwi.onnx.export import LEVELS
from gwi.parts import Network
from onnx_answers import differences, exported, rows_near_and_far, said

pytestmark = [pytest.mark.unchecked, pytest.mark.filterwarnings("ignore::gwi.exceptions.GWIWarning")]


@cache
def table(num_rows=90, num_columns=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (num_rows, num_columns))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=num_rows)


@cache
def fitted(likelihood):
    x, y, _, _ = target_cases.table(likelihood, num_rows=70)
    return GWIRegressor("svgp", likelihood=likelihood, cv=2, random_state=0).fit(x, y), x, y


# Both shapes of a beta law depend on f.
WITHOUT_QUANTILES = ("beta",)


SLOW = ("negative-binomial", "few-valued")


@pytest.mark.parametrize(
    "likelihood", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in target_cases.NAMES]
)
def test_every_likelihood_says_the_same_as_predict(likelihood):
    model, x, y = fitted(likelihood)
    y = np.where(np.isfinite(y), y, 0.0)
    levels = () if likelihood in WITHOUT_QUANTILES else LEVELS
    # Counts grow to billions farther away, and with them the steps to their quantiles.
    rows = rows_near_and_far(x, ranges=1 if likelihood in ("poisson", "negative-binomial") else 30)
    for name, difference in differences(model, rows, y, levels).items():
        assert difference < 1e-9, name


def stack():
    members = [
        "svgp",
        "linear",
        Network(max_steps=20),
        HistGradientBoostingRegressor(max_iter=8, random_state=0),
        ExtraTreesRegressor(8, random_state=0),
    ]
    return GWIRegressor(members, random_state=0)


@pytest.mark.parametrize("moved", [0.0, 3.0], ids=["of any sign", "positive"])
def test_a_stack_of_kernels_networks_and_trees_says_the_same_as_predict(moved):
    X, y = table(num_rows=120)
    model = stack().fit(X, y + moved)
    assert (model.model_.outcome.low is None) == (moved == 0.0)
    assert max(differences(model, rows_near_and_far(X), y).values()) < 1e-9


def test_a_stack_hands_over_in_the_graph_too():
    X, y = table(num_rows=120)
    model = stack().fit(X, y)
    assert model.posterior_.mean.handover is not None
    far = np.full((3, X.shape[1]), 9.0)
    # A row alone, and beside rows at home: what is computed only where a row is away changes none of the others.
    alone, beside = exported(model, X[:5]), exported(model, np.concatenate([X[:5], far]))
    for name in alone:
        np.testing.assert_allclose(alone[name], beside[name][:5], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kernel", ["rbf", "matern32", "matern52", "rq"])
def test_every_named_kernel_says_the_same_as_predict(kernel):
    X, y = table()
    model = GWIRegressor("svgp", kernel=kernel, random_state=0).fit(X, y)
    assert max(differences(model, rows_near_and_far(X), y).values()) < 1e-9


def test_a_wide_table_says_the_same_as_predict():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 150))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    model = GWIRegressor(["svgp", "lasso"], random_state=0).fit(X, y)
    assert max(differences(model, rows_near_and_far(X), y).values()) < 1e-8


@pytest.mark.parametrize("covariance", ["wasserstein", "titsias", "zero"])
def test_every_covariance_says_the_same_as_predict(covariance):
    X, y = table()
    model = GWIRegressor("svgp", covariance=covariance, random_state=0).fit(X, y)
    assert max(differences(model, rows_near_and_far(X), y).values()) < 1e-9


def test_several_targets_say_the_same_as_predict():
    X, y = table()
    model = GWIRegressor(["svgp", "linear"], random_state=0).fit(X, np.column_stack([y, y**2, -y]))
    found = exported(model, X)
    assert (found["mean"].shape, found["quantiles"].shape) == ((90, 3), (90, 3, 3))
    assert max(differences(model, rows_near_and_far(X), y).values()) < 1e-9


def test_noise_with_a_network_says_the_same_as_predict():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (520, 2))
    y = np.where(np.abs(X[:, 0]) < 0.7, 1.5, 0.05) * rng.normal(size=520)
    model = GWIRegressor("linear", random_state=0).fit(X, y)
    assert model.model_.noises[0].correction is not None
    assert max(differences(model, rows_near_and_far(X), y).values()) < 1e-9


def test_a_trained_module_says_the_same_as_predict():
    class OfTwoBranches(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = nn.Linear(3, 5), nn.Linear(3, 1)
            self.last = nn.Linear(5, 1)

        def forward(self, x):
            return self.last(nn.functional.gelu(self.one(x))) + self.other(x)

    X, y = table()
    torch.manual_seed(0)
    for module in (OfTwoBranches(), nn.Sequential(nn.Linear(3, 5), nn.SiLU(), nn.Linear(5, 1))):
        model = GWIRegressor(module, random_state=0).fit(X, y, validation=table(40, seed=1))
        # In single precision, as the network is.
        assert max(differences(model, rows_near_and_far(X)[:80], y).values()) < 1e-5


def test_without_levels_there_are_no_quantiles():
    model, x, y = fitted("gaussian")
    assert "quantiles" not in exported(model, x, levels=())
    assert max(differences(model, x, y, levels=()).values()) < 1e-9


def test_levels_are_those_asked_for():
    model, x, _ = fitted("student-t")
    levels = (0.01, 0.2, 0.5, 0.999)
    np.testing.assert_allclose(exported(model, x, levels)["quantiles"], said(model, x, levels)["quantiles"], rtol=1e-9)


def test_no_row_and_one_row_are_batches_too():
    model, x, _ = fitted("student-t")
    assert exported(model, x[:1])["mean"].shape == (1,)
    assert exported(model, x[:0])["quantiles"].shape == (0, 3)
