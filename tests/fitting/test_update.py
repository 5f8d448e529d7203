"""New rows move the mean, and what is said to be known of f is known of the mean that was moved."""

import time

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression

from class_data import split_classes, three_classes
from gwi import GWIClassifier, GWIRegressor, load
from gwi.core.networks import mlp
from gwi.fitting import update
from gwi.parts import Covariance, Frozen, Gaussian, RobustMax

pytestmark = pytest.mark.unchecked


def curve(count, low, high, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(low, high, (count, 1))
    return x, np.sin(2 * x[:, 0]) + 0.5 * x[:, 0] + 0.1 * rng.standard_normal(count)


def network():
    """One whose last layer fits the rows: the errors of one that knows nothing would be taken for noise."""
    hidden, x, y = torch.nn.Linear(1, 8), *map(torch.from_numpy, curve(100, -3, 1, 0))
    torch.nn.init.normal_(hidden.weight, generator=torch.Generator().manual_seed(0))
    torch.nn.init.uniform_(hidden.bias, -2, 2, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        units = torch.cat([hidden(x.float()).tanh(), torch.ones(len(x), 1)], dim=1)
        found = torch.linalg.lstsq(units.double(), y[:, None]).solution.float()
        last = torch.nn.Linear(8, 1)
        last.weight.copy_(found[:-1].mT)
        last.bias.copy_(found[-1])
    return torch.nn.Sequential(hidden, torch.nn.Tanh(), last)


MEANS = {
    "stack": lambda: ["svgp", LinearRegression()],
    "trees": lambda: RandomForestRegressor(30, random_state=0),
    "line": LinearRegression,
    "kernel": lambda: "svgp",
    "few inducing points": lambda: "svgp",
    "module": network,
}


def fitted(name):
    x, y = curve(100, -3, 1, 0)
    size = 15 if name == "few inducing points" else "auto"
    model = GWIRegressor(MEANS[name](), random_state=0, covariance=Covariance(num_inducing=size))
    return model.fit(x, y, validation=curve(60, -3, 1, 9) if name == "module" else None)


@pytest.mark.parametrize("name", MEANS)
def test_rows_of_a_region_never_seen_are_learned_and_intervals_there_hold(name):
    model, (x, y), (new, truth) = fitted(name), curve(40, 1.2, 3, 1), curve(500, 1.2, 3, 2)
    before = np.sqrt(np.mean((model.predict(new) - truth) ** 2))
    unknown = model.ood_score(new).mean()
    model.update(x, y)
    lower, upper = model.predict_interval(new).T
    error = np.sqrt(np.mean((model.predict(new) - truth) ** 2))
    # The noise is as fitted: a line that cannot follow the wave had its errors taken for noise, and follows the new rows less.
    assert error < (0.15 if name != "line" else 0.7 * before)
    assert ((lower < truth) & (truth < upper)).mean() > 0.9
    assert model.ood_score(new).mean() < unknown


@pytest.mark.parametrize("name", ["stack", "trees"])
def test_an_update_is_the_law_of_f_given_the_rows(name):
    model, (x, y), grid = fitted(name), curve(25, 0.5, 3, 1), np.linspace(-3, 4, 8)[:, None]
    law = model.posterior(np.vstack([x, grid]))
    mean, joint = law.mean.numpy(), law.covariance_matrix.numpy()
    noise = model.decompose(x).aleatoric / model.tempering_factor_[0]
    weight = np.arange(25) % 3
    kept = weight > 0
    system = joint[:25, :25] + np.diag(noise / np.maximum(weight, 1))
    gain = np.linalg.solve(system[np.ix_(kept, kept)], joint[:25, 25:][kept]).T
    tempering, aleatoric = model.tempering_factor_.copy(), model.decompose(x[:1]).aleatoric
    model.update(x, y, sample_weight=weight)
    np.testing.assert_allclose(model.predict(grid), mean[25:] + gain @ (y - mean[:25])[kept], atol=1e-6)
    wanted = joint[25:, 25:] - gain @ joint[:25, 25:][kept]
    np.testing.assert_allclose(model.posterior(grid).covariance_matrix, wanted, atol=1e-7)
    np.testing.assert_allclose(model.decompose(grid).epistemic, wanted.diagonal() * tempering, atol=1e-7)
    q = model.posterior_(model.model_.scales.rows(grid, "cpu")).covariance_matrix[0] * model.model_.scales.y_scale[0] ** 2
    np.testing.assert_allclose(q, wanted, atol=1e-7)
    # Noise and tempering stay.
    np.testing.assert_array_equal(model.tempering_factor_, tempering)
    np.testing.assert_allclose(model.decompose(x[:1]).aleatoric, aleatoric, rtol=0.5)
    assert f"{kept.sum()} rows added by update" in str(model.summary_)


@pytest.mark.parametrize("name", ["stack", "few inducing points"])
def test_two_hundred_updates_of_one_row_are_one_of_two_hundred(name):
    one, many, (x, y), grid = fitted(name), fitted(name), curve(200, -1, 3, 1), np.linspace(-3, 4, 30)[:, None]
    one.update(x, y)
    start = time.perf_counter()
    for i in range(200):
        many.update(x[i : i + 1], y[i : i + 1])
    assert time.perf_counter() - start < 30
    np.testing.assert_allclose(many.predict(grid), one.predict(grid), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(many.decompose(grid).epistemic, one.decompose(grid).epistemic, rtol=1e-6, atol=1e-10)
    assert str(many.summary_).count("by update") == 1
    assert many.summary_.num_rows == 300


def test_weights_count_rows_and_copies_do_no_harm():
    (x, y), grid = curve(10, 1, 3, 1), np.linspace(-3, 4, 12)[:, None]
    weighted, repeated = fitted("stack").update(x, y, sample_weight=np.full(10, 3)), fitted("stack")
    repeated.update(np.repeat(x, 3, axis=0), np.repeat(y, 3))
    np.testing.assert_allclose(weighted.predict(grid), repeated.predict(grid), rtol=1e-7)
    np.testing.assert_allclose(weighted.decompose(grid).epistemic, repeated.decompose(grid).epistemic, rtol=1e-5, atol=1e-9)


def test_several_targets_are_updated_each_by_its_own_errors():
    (x, y), (new, value), grid = curve(80, -3, 1, 0), curve(20, 1, 3, 1), np.linspace(-3, 4, 8)[:, None]
    both = GWIRegressor(["svgp", LinearRegression()], random_state=0).fit(x, np.column_stack([y, np.cos(x[:, 0])]))
    before = both.predict(grid)
    both.update(new, np.column_stack([value, both.predict(new)[:, 1]]))
    np.testing.assert_allclose(both.predict(grid)[:, 1], before[:, 1], atol=1e-6)
    assert np.abs(both.predict(grid)[-3:, 0] - before[-3:, 0]).max() > 0.1
    with pytest.raises(ValueError, match=r"fitted to 2 target\(s\); the new rows have 1"):
        both.update(new, value)


def test_what_cannot_be_updated_is_said_and_changes_nothing(monkeypatch):
    model, (x, y) = fitted("line"), curve(20, -3, 1, 1)
    before = model.predict(x, return_std=True)
    monkeypatch.setattr(update, "MOST_ROWS", 15)
    with pytest.raises(ValueError, match=r"at most 15 new rows.*with these there are 20. Fit again on all rows"):
        model.update(x, y)
    with pytest.raises(ValueError, match="a target for each row; got 19 targets and 20 rows"):
        model.update(x, y[1:])
    with pytest.raises(ValueError, match="NaN"):
        model.update(x[:2], [np.nan, 1.0])
    with pytest.raises(ValueError, match="at least one non-zero"):
        model.update(x[:3], y[:3], sample_weight=np.zeros(3))
    np.testing.assert_array_equal(model.predict(x, return_std=True), before)


# Classes


@pytest.mark.parametrize("mean", ["svgp", "linear", ["svgp", "linear"]], ids=str)
def test_labels_of_a_region_never_seen_are_learned_and_not_taken_for_more_than_they_say(mean):
    x, y, x_new, y_new = split_classes()
    model = GWIClassifier(mean, random_state=0).fit(x[:60], y[:60])
    far = np.random.default_rng(0).normal(20, 0.5, (30, 2))
    label = model.classes_[model.predict_proba(far).mean(0).argmin()]
    before, unknown = model.nll(far, np.repeat(label, 30)), model.ood_score(far).mean()
    assert model.update(far[:1], [label]) is model
    once = model.predict_proba(far)[:, model.classes_ == label].mean()
    model.update(far[1:], np.repeat(label, 29))
    assert model.nll(far, np.repeat(label, 30)) < before
    assert model.predict_proba(far)[:, model.classes_ == label].mean() > once
    assert model.ood_score(far).mean() < unknown
    assert model.summary_.num_rows == 90
    assert (model.predict(x_new) == y_new).mean() > 0.85
    np.testing.assert_allclose(model.predict_proba(x_new).sum(1), 1, atol=1e-12)


def test_labels_that_say_nothing_leave_logits_unsure():
    x, y = three_classes(90)
    model = GWIClassifier("linear", random_state=0).fit(x, y)
    far = np.repeat([[8.0, -8.0]], 60, axis=0)
    model.update(far, np.tile(model.classes_, 20))
    assert model.predict_proba(far).max() < 0.6


def test_an_updated_classifier_is_saved_and_what_it_cannot_learn_is_said(tmp_path):
    x, y = three_classes(90)
    model = GWIClassifier(["svgp", "linear"], random_state=0).fit(x, y)
    model = load(model.save(tmp_path / "model.gwi")).update(x[:5] + 9, y[:5])
    again = load(model.save(tmp_path / "again.gwi"))
    np.testing.assert_array_equal(again.predict_proba(x + 8), model.predict_proba(x + 8))
    with pytest.raises(ValueError, match="'oak'"):
        model.update(x[:1], ["oak"])
    alone = GWIClassifier(Frozen(mlp(2, 3)), random_state=0).fit(x[:30], y[:30], validation=(x[30:], y[30:]))
    assert alone.update(x[:5] + 9, y[:5]).ood_score(x[:5] + 9).mean() < 1
    with pytest.raises(ValueError, match=r"a robust-max model cannot be updated. Fit again"):
        GWIClassifier("linear", likelihood=RobustMax(), random_state=0).fit(x, y).update(x, y)
    with pytest.raises(ValueError, match=r"tempering=0 leaves none. Fit again"):
        GWIClassifier("linear", tempering=0.0, random_state=0).fit(x, y).update(x, y)


def test_conformal_intervals_keep_their_scores():
    model = GWIRegressor(LinearRegression(), random_state=0, likelihood=Gaussian(conformal=True)).fit(*curve(100, -3, 1, 0))
    scores = model.model_.scores.clone()
    assert torch.equal(model.update(*curve(5, 1, 3, 1)).model_.scores, scores)
