"""Hyper-parameters from several starts: the evidence has several tops where few of many columns count."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingRegressor

from gwi.core.kernels import with_lengthscales_times
from gwi.fitting import pipeline
from gwi.fitting.classification import ClassificationTask
from gwi.fitting.data import FitOptions
from gwi.fitting.hyperparameters import (
    ALL_ROWS,
    MEAN_BASIS,
    SAME_TOP,
    SPARSE_INDUCING,
    STARTS,
    choose_prior,
    prior_for,
    row_kernel,
)
from gwi.fitting.regression import RegressionTask
from gwi.parts import Covariance

pytestmark = pytest.mark.unchecked


def few_of_many(num_rows=100, num_columns=20):
    """y of two columns, in a way that no line sees."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-1.7, 1.7, size=(num_rows, num_columns))
    noise = 0.02 * rng.normal(size=num_rows)
    return x, np.sin(4 * x[:, 0]) * x[:, 1] + noise


def test_the_highest_of_several_tops_of_the_evidence_is_taken():
    x, y = few_of_many()
    rows, targets = torch.from_numpy(x), torch.from_numpy((y - y.mean()) / y.std())[None]
    kernel, _ = row_kernel("rbf", x.shape[1])
    given = (kernel, rows, targets, torch.ones(len(x), dtype=torch.float64), rows)
    best = prior_for(*given, torch.Generator().manual_seed(0), starts=STARTS)
    each = [prior_for(*given, torch.Generator().manual_seed(0), starts=[start]).log_evidence for start in STARTS]
    assert best.log_evidence >= max(each) - SAME_TOP
    # Worth the trouble: tops differ by far.
    assert max(each) - min(each) > 10


def test_lengthscales_are_multiplied_in_a_copy():
    kernel, _ = row_kernel("matern52", 3)
    before = kernel.base_kernel.lengthscale.detach().clone()
    after = with_lengthscales_times(kernel, 0.5).base_kernel.lengthscale
    torch.testing.assert_close(after.detach(), before / 2)
    torch.testing.assert_close(kernel.base_kernel.lengthscale.detach(), before)


def many_rows(x, y):
    """The prior of a table that has more rows than are all inducing points."""
    task, options = RegressionTask(), FitOptions("auto", Covariance(), torch.Generator().manual_seed(0))
    data = pipeline.array_data(task, x, y[:, None], options)
    return choose_prior(data, row_kernel("rbf", x.shape[1])[0], options, judges_kernel_means=True)


@pytest.mark.slow
def test_many_rows_are_not_taken_for_noise():
    """A bound on the evidence by 300 inducing points would be highest where two columns of twelve are noise, too."""
    x, y = few_of_many(ALL_ROWS + 1, 12)
    found = many_rows(x, y)
    assert found.fit.noise_variance < 0.01
    lengthscales = found.fit.kernel.base_kernel.lengthscale.detach()[0]
    assert lengthscales[:2].max() < lengthscales[2:].min() / 5


@pytest.mark.slow
def test_inducing_points_are_as_many_as_the_function_asks_for():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(ALL_ROWS + 1, 3))
    noise = rng.normal(size=len(x))
    wavy, flat = np.sin(6 * x).prod(1) + 0.003 * noise, x[:, 0] + noise
    assert len(many_rows(x, wavy).inducing_points) == MEAN_BASIS
    assert len(many_rows(x, flat).inducing_points) == SPARSE_INDUCING


def test_few_points_stand_for_rows_with_labels_where_they_tell_as_much():
    rng = np.random.default_rng(0)

    def prior(x):
        y = (x[:, 0] + rng.normal(size=len(x)) > 0).astype(np.int64)
        task, options = ClassificationTask(np.array([0, 1])), FitOptions("auto", Covariance(), torch.Generator().manual_seed(0))
        data = pipeline.array_data(task, x, y, options)
        kernel = row_kernel("rbf", x.shape[1])[0]
        return choose_prior(task.prior_data(data), kernel, options, judges_kernel_means=True, num_free=1), data

    smooth, data = prior(rng.uniform(-1, 1, size=(700, 2)))
    assert smooth.stands_for_rows
    assert len(smooth.inducing_points) == len(smooth.basis) == SPARSE_INDUCING < len(data.x)
    few, data = prior(rng.uniform(-1, 1, size=(SPARSE_INDUCING, 2)))
    assert not few.stands_for_rows
    assert few.inducing_points is data.x


def test_the_covariance_takes_the_prior_that_describes_the_errors_of_the_means(monkeypatch):
    """Trees know steps that no smooth function follows: r of the evidence's kernel is then larger than their errors."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(ALL_ROWS + 1, 4))
    y = np.sign(np.sin(4 * x[:, :2]).prod(1)) + 0.02 * rng.normal(size=len(x))
    tried = []

    def finish(*arguments):
        tried.append(made(*arguments))
        return tried[-1]

    made = pipeline.finish
    monkeypatch.setattr(pipeline, "finish", finish)
    task, options = RegressionTask(), FitOptions("auto", Covariance(), torch.Generator().manual_seed(0))
    trees = HistGradientBoostingRegressor(max_iter=60, learning_rate=0.2, random_state=0)
    found = pipeline.fit(pipeline.array_data(task, x, y[:, None], options), task, [trees], options)
    evidence, bound = tried
    assert bound.summary.held_out_nll[1] < evidence.summary.held_out_nll[1] - pipeline.SURE_GAIN_OF_MANY
    assert found is bound
    assert bound.prior.fit.noise_variance > evidence.prior.fit.noise_variance
