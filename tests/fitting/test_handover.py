"""Kernel means give up their weight where nothing is known; at home nothing changes."""

import numpy as np
import pytest
import torch

import gwi
from gwi import GWIRegressor
from gwi.core.means import ConvexMean

pytestmark = pytest.mark.filterwarnings("ignore:.*far outside:gwi.exceptions.GWIWarning")


def trend():
    """A line and a wave near zero; beyond, the line goes on."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2.0, 2.0, (120, 2))
    return x, 3.0 * x[:, 0] + np.sin(3.0 * x[:, 1]) + 0.05 * rng.normal(size=120)


@pytest.fixture(scope="module")
def model():
    return GWIRegressor(mean=["svgp", "linear"], random_state=0).fit(*trend())


def weights_at(model, rows):
    mean, x = model.model_.posterior.mean, model.model_.embedding.scales.rows(rows, "cpu")
    return mean.handover.at(mean.weights, torch.stack([part(x) for part in mean.means]), x)[:, 0].numpy()


def test_the_kernel_mean_gives_weight_away_only_far_from_home(model):
    x, _ = trend()
    home = model.model_.posterior.mean.weights[0].numpy()
    assert np.array_equal(weights_at(model, x), np.repeat(home[:, None], len(x), 1))
    assert home[0] > 0.9
    # Where the line is far from the prior mean, too, but no farther than r allows.
    assert weights_at(model, np.array([[5.0, 5.0]]))[0, 0] < 0.7


def test_a_trend_goes_on_where_the_kernel_mean_falls_back(model):
    mean, scales = model.model_.posterior.mean, model.model_.embedding.scales
    rows = np.array([[5.0, 5.0], [-5.0, -5.0]])
    same = ConvexMean(list(mean.means), mean.weights)(scales.rows(rows, "cpu"))[0].numpy() * scales.y_scale + scales.y_centre
    truth = 3.0 * rows[:, 0]
    assert (np.abs(model.predict(rows) - truth) < 0.9 * np.abs(same - truth)).all()


def test_a_file_keeps_what_is_handed_over(model, tmp_path):
    x, _ = trend()
    model.save(tmp_path / "model.gwi")
    loaded = gwi.load(tmp_path / "model.gwi")
    rows = np.concatenate([x, 3.0 * x, x + 50.0])
    for found, wanted in zip(loaded.predict(rows, return_std=True), model.predict(rows, return_std=True), strict=True):
        assert np.array_equal(found, wanted)


def test_r_of_what_is_left_over_does_not_say_where_kernel_means_know_little():
    left = gwi.Covariance(kernel_fit="residuals")
    model = GWIRegressor(mean=["svgp", "linear"], covariance=left, random_state=0).fit(*trend())
    assert model.model_.posterior.mean.handover is None
