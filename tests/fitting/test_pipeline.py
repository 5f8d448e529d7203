"""The pipeline by itself: plain data and a task are all it needs, and where the rows are makes no difference to it."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils import check_random_state

from class_data import split_classes
from gwi import GWIClassifier, GWIRegressor
from gwi.core.kernels import default_kernel
from gwi.fitting import pipeline
from gwi.fitting.classification import ClassificationTask
from gwi.fitting.data import ArrayData, FitOptions
from gwi.fitting.hyperparameters import prior_for
from gwi.fitting.pipeline import array_data
from gwi.fitting.regression import RegressionTask
from gwi.fitting.stream_data import stream_data
from gwi.parts import Covariance
from gwi.streaming.loaders import ArraySource
from waves import wave

pytestmark = pytest.mark.unchecked

SUMS = ("gram", "projection", "residual", "target_energy", "log_weight")


def options(covariance=None):
    """As an estimator makes them, of the `random_state` zero."""
    generator = torch.Generator().manual_seed(int(check_random_state(0).randint(2**31 - 1)))
    return FitOptions("auto", Covariance() if covariance is None else covariance, generator=generator)


@pytest.mark.parametrize("judged", ["by folds", "by rows of their own"])
@pytest.mark.parametrize("means", [None, ["svgp", Ridge()]], ids=["planned", "given"])
def test_numbers_are_those_of_the_regressor(means, judged):
    (x, y), (x_new, y_new) = wave(40), wave(30, seed=1)
    x, y = x[np.argsort(x[:, 0])], y[np.argsort(x[:, 0])]  # The order in which the estimator puts rows.
    validation = None if judged == "by folds" else (x_new, y_new)
    wanted = GWIRegressor("auto" if means is None else means, random_state=0).fit(x, y, validation=validation)
    how, task = options(), RegressionTask()
    columns = None if validation is None else (x_new, y_new[:, None])
    found = pipeline.fit(array_data(task, x, y[:, None], how, validation=columns), task, means, how)
    for mine, theirs in zip(found.model.law(x_new), wanted.model_.law(x_new), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert [m.name for m in found.summary.members] == [m.name for m in wanted.summary_.members]
    assert found.summary.held_out_nll == wanted.summary_.held_out_nll
    np.testing.assert_array_equal(found.model.mean(x_new)[0], wanted.predict(x_new))


@pytest.mark.parametrize("means", [None, ["svgp", LogisticRegression()]], ids=["planned", "given"])
def test_classes_are_those_of_the_classifier(means):
    x, names, x_new, _ = split_classes()
    order = np.lexsort((x[:, 1], x[:, 0]))[:150]
    x, names = x[order], names[order]
    wanted = GWIClassifier("auto" if means is None else means, random_state=0).fit(x, names)
    classes, places = np.unique(names, return_inverse=True)
    how, task = options(), ClassificationTask(classes)
    found = pipeline.fit(array_data(task, x, places, how), task, means, how)
    np.testing.assert_array_equal(found.model.probabilities(x_new)[0], wanted.predict_proba(x_new))
    assert found.summary.held_out_nll == wanted.summary_.held_out_nll


def test_a_fit_is_finished_again_with_other_options():
    (x, y), how, task = wave(60), options(), RegressionTask()
    fit = pipeline.fit(array_data(task, x, y[:, None], how), task, ["svgp", Ridge()], how)
    again = pipeline.finish(fit.data, task, fit.prior, fit.stacked, options())
    np.testing.assert_array_equal(again.model.law(x)[1], fit.model.law(x)[1])
    sure = pipeline.finish(fit.data, task, fit.prior, fit.stacked, options(Covariance("zero")))
    np.testing.assert_allclose(sure.model.mean(x), fit.model.mean(x), rtol=1e-10, atol=1e-10)
    assert (sure.model.parts(x)[1] <= fit.model.parts(x)[1]).all()
    assert sure.summary.covariance == "zero"


def both_data(labels=False):
    """The same rows from a stream and as arrays, judged on the same."""
    rng = np.random.default_rng(0)
    x = rng.normal([5, 0], [2, 1], (900, 2))
    y = np.sin(x[:, :1]) + 0.2 * rng.normal(size=(900, 1))
    y = np.where(y > 0.4, "high", "low")[:, 0] if labels else y
    streamed = stream_data(ArraySource(x, y, group_size=200), torch.Generator().manual_seed(0), labels=labels)
    keep = ~streamed.stream.sketch.is_judge(np.arange(len(x)))
    task = ClassificationTask(streamed.classes) if labels else RegressionTask()
    encoded = np.searchsorted(streamed.classes, y) if labels else y
    scales = streamed.scales
    rows, targets = scales.rows(x[keep], "cpu"), task.targets(encoded[keep], scales, "cpu")
    arrays = ArrayData(rows, targets, torch.ones_like(targets[0]), streamed.held_out, scales, torch.Generator().manual_seed(0))
    return streamed, arrays, task


def same_sums(found, wanted):
    assert found.num_rows == wanted.num_rows
    for name in SUMS:
        torch.testing.assert_close(getattr(found, name), getattr(wanted, name), rtol=1e-10, atol=1e-10, msg=name)


@pytest.mark.parametrize("labels", [False, True], ids=["numbers", "labels"])
def test_a_stream_gives_the_sums_of_arrays(labels):
    streamed, arrays, _ = both_data(labels)
    assert streamed.num_rows == arrays.num_rows
    kernel, z = default_kernel(2).requires_grad_(False), streamed.x[:20].clone()
    (found, _), (wanted, _) = (data.sums(kernel, z, 0.3) for data in (streamed, arrays))
    same_sums(found, wanted)
    torch.testing.assert_close(streamed.gram(kernel, z).gram, arrays.gram(kernel, z).gram, rtol=1e-10, atol=1e-10)

    def square(x, y):
        return y.square() + x[:, 0]

    def mean(x):
        return x.mT[:1].expand(len(arrays.y), -1)

    for change in (
        lambda data: data.with_targets(square),
        lambda data: data.less(mean, mean(data.held_out.x)),
        lambda data: data.with_targets(square).with_targets(lambda x, y: 2 * y),
        lambda data: data.with_targets(square).less(mean, mean(data.held_out.x)),
    ):
        (found, _), (wanted, _) = (change(data).sums(kernel, z, 0.3) for data in (streamed, arrays))
        same_sums(found, wanted)


def test_a_kernel_mean_and_its_covariance_are_the_same_from_a_stream():
    streamed, arrays, task = both_data()
    z, generator = streamed.x[:25].clone(), torch.Generator().manual_seed(0)
    kernel = default_kernel(2)
    fitted = prior_for(kernel, streamed.x, streamed.y, streamed.weight, z, generator)
    prior = pipeline.PriorChoice(kernel, fitted, z, z)
    fits = []
    for data in (streamed, arrays):
        member = task.learn_named("svgp", data, fitted, z, options(), 0)
        stacked = task.stack((member,), data.held_out)
        fits.append(pipeline.finish(data, task, prior, stacked, options(Covariance("titsias"))))
    x = streamed.scales.original_rows(streamed.held_out.x.numpy())
    for found, wanted in zip(*(fit.model.law(x) for fit in fits), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10)
    assert fits[0].summary.held_out_nll == pytest.approx(fits[1].summary.held_out_nll, rel=1e-10)
