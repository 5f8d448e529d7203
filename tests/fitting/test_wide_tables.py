"""Tables with many more columns than rows: what a few columns say is found, in bounded time, and judged honestly."""

import time

import numpy as np
import pytest
import torch

from gwi import GWIClassifier, GWIRegressor, load
from gwi.core.relevance import forward_path, relevant_columns
from gwi.fitting.hyperparameters import is_wide
from gwi.fitting.plan import classification_members, regression_members

pytestmark = pytest.mark.unchecked

NOISE_STD = 0.3


def one_column(num_rows, num_columns, seed, num_new=400):
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((num_rows + num_new, num_columns))
    y = 3 * x[:, 0] + NOISE_STD * generator.standard_normal(len(x))
    return x[:num_rows], y[:num_rows], x[num_rows:], y[num_rows:]


def rmse(model, x, y):
    return float(np.sqrt(np.mean((model.predict(x) - y) ** 2)))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_one_column_of_two_thousand_is_found_with_honest_intervals(seed):
    x, y, x_new, y_new = one_column(100, 2000, seed)
    start = time.process_time()
    model = GWIRegressor(random_state=seed).fit(x, y)
    assert time.process_time() - start < 20
    assert rmse(model, x_new, y_new) <= 1.15 * NOISE_STD
    low, high = model.predict_interval(x_new).T
    assert 0.9 <= np.mean((low <= y_new) & (y_new <= high)) <= 0.995


@pytest.mark.slow
def test_weights_that_count_rows_differently_are_taken():
    x, y, x_new, y_new = one_column(80, 300, 0)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(x))
    assert rmse(GWIRegressor(random_state=0).fit(x, y, sample_weight=weight), x_new, y_new) <= 1.3 * NOISE_STD


def test_labels_by_one_column_of_two_thousand_are_learned():
    x, _, x_new, _ = one_column(100, 2000, 0)
    model = GWIClassifier(random_state=0).fit(x, x[:, 0] > 0)
    truth = x_new[:, 0] > 0
    assert np.mean(model.predict(x_new) == truth) > 0.93
    assert -np.log(model.predict_proba(x_new)[np.arange(len(truth)), truth.astype(int)]).mean() < 0.2


@pytest.mark.slow
def test_ten_thousand_columns_are_fitted_in_seconds():
    x, y, x_new, y_new = one_column(50, 10_000, 0)
    start = time.process_time()
    model = GWIRegressor(random_state=0).fit(x, y)
    assert time.process_time() - start < 20
    assert rmse(model, x_new, y_new) <= 1.5 * NOISE_STD


@pytest.mark.slow
@pytest.mark.parametrize(("num_rows", "num_columns", "seconds"), [(150, 1000, 20), (50, 100_000, 60)])
def test_wide_tables_of_any_width_are_fitted_in_bounded_time(num_rows, num_columns, seconds):
    x, y, x_new, y_new = one_column(num_rows, num_columns, 0, num_new=100)
    start = time.process_time()
    model = GWIRegressor(random_state=0).fit(x, y)
    assert time.process_time() - start < seconds
    assert rmse(model, x_new, y_new) <= 1.5 * NOISE_STD


@pytest.mark.slow
def test_targets_of_pure_noise_are_called_noise():
    generator = np.random.default_rng(0)
    x, y = generator.standard_normal((500, 400)), generator.standard_normal(500)
    model = GWIRegressor(random_state=0).fit(x[:100], y[:100])
    low, high = model.predict_interval(x[100:]).T
    assert 0.9 <= np.mean((low <= y[100:]) & (y[100:] <= high)) <= 0.99
    assert rmse(model, x[100:], y[100:]) < 1.1 * np.sqrt(np.mean((y[100:] - y[:100].mean()) ** 2))


def test_a_model_of_a_wide_table_is_stored_with_equal_predictions(tmp_path):
    x, y, x_new, _ = one_column(60, 200, 0)
    model = GWIRegressor(["svgp", "lasso"], random_state=0).fit(x, y)
    model.save(tmp_path / "model.gwi")
    loaded = load(tmp_path / "model.gwi")
    np.testing.assert_array_equal(model.predict(x_new, return_std=True), loaded.predict(x_new, return_std=True))


def test_the_path_takes_no_column_twice_nor_a_copy_of_one():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 5, generator=generator, dtype=torch.float64)
    copies = torch.cat([x, x, torch.zeros(40, 1, dtype=torch.float64)], 1)
    path = forward_path(copies, x @ torch.arange(1.0, 6.0, dtype=torch.float64), 11)
    assert sorted(column % 5 for column in path) == list(range(5))
    by_least_squares = torch.linalg.lstsq(copies[:, path], (x @ torch.arange(1.0, 6.0, dtype=torch.float64))[:, None])
    assert by_least_squares.solution.isfinite().all()


def test_columns_of_every_target_are_found():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(120, 300, generator=generator, dtype=torch.float64)
    y = torch.stack([x[:, 7], x[:, 7] - 2 * x[:, 200]]) + 0.1 * torch.randn(2, 120, generator=generator, dtype=torch.float64)
    assert {7, 200} <= set(relevant_columns(x, y, torch.ones(120, dtype=torch.float64)))


def test_ordinary_tables_keep_their_members():
    assert not is_wide(159, 25)
    assert not is_wide(40, 32)
    assert not is_wide(1000, 400)
    assert "lasso" not in regression_members(500, 200)
    assert "network" in classification_members(300, 100, 2)
    assert "network" not in classification_members(300, 1000, 2)
