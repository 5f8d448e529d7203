"""Why a model is unsure: against SHAP's exact explainer, on tables of every kind, and in the words of an error."""

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import polars
import pytest
import shap
import torch
from sklearn.ensemble import RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

import gwi
from gwi import Covariance, Gaussian, GWIClassifier, GWIRegressor
from gwi.core.measures import kernel_matrix
from gwi.estimators.explaining import herded
from gwi.exceptions import UserError

pytestmark = pytest.mark.unchecked


@cache
def numbers(num_columns=4, num_rows=70):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(num_rows, num_columns))
    return X, X[:, 0] + np.sin(2 * X[:, -1]) + 0.1 * rng.normal(size=num_rows)


@cache
def regressor(mean="svgp", **options):
    X, y = numbers()
    return GWIRegressor(mean, likelihood="gaussian", random_state=0, verbose=0, **options).fit(X, y)


@cache
def frame(num_rows=80):
    rng = np.random.default_rng(1)
    rooms = rng.integers(1, 9, num_rows).astype(float)
    town = rng.choice(["Ulm", "Bonn", "Kiel"], num_rows)
    area = 30 * rooms + rng.normal(size=num_rows)
    price = area + 20 * (town == "Bonn") + rng.normal(size=num_rows)
    rooms[::9] = np.nan
    same = np.full(num_rows, "x")
    return pd.DataFrame({"town": town, "rooms": rooms, "area": area, "country": same}), price


@cache
def of_frame(mean="svgp"):
    X, y = frame()
    return GWIRegressor(mean, likelihood="gaussian", random_state=0, verbose=0).fit(X, y)


def adds_up(found):
    axes = found.parts.sum(1) + found.base
    np.testing.assert_allclose(axes, found.variance, rtol=1e-8)


def by_shap(variance, X, background):
    masker = shap.maskers.Independent(background, max_samples=len(background))
    return shap.ExactExplainer(variance, masker)(X, max_evals=2**20)


@pytest.mark.parametrize("mean", ["svgp", ("svgp", "linear", "network")])
def test_parts_are_those_of_shap(mean):
    X, _ = numbers()
    model = regressor(mean) if isinstance(mean, str) else stack()
    rows = np.concatenate([X[:2], 3 * X[2:4]])
    found = model.explain(rows, background=X[10:20])
    wanted = by_shap(lambda x: model.decompose(x).epistemic, rows, X[10:20])
    scale = np.abs(wanted.values).max()
    np.testing.assert_allclose(found.parts, wanted.values, atol=1e-6 * scale)
    np.testing.assert_allclose(found.base, wanted.base_values[0], rtol=1e-6)
    np.testing.assert_array_equal(found.variance, model.decompose(rows).epistemic)
    assert found.is_exact
    adds_up(found)


def test_parts_are_those_of_shap_with_eight_columns():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(150, 8))
    model = GWIRegressor("svgp", likelihood="gaussian", random_state=0).fit(
        X, X[:, 0] * X[:, 1] + X[:, 2] + 0.1 * rng.normal(size=150)
    )
    found = model.explain(2 * X[:2], background=X[10:14])
    wanted = by_shap(lambda x: model.decompose(x).epistemic, 2 * X[:2], X[10:14])
    np.testing.assert_allclose(found.parts, wanted.values, atol=1e-6 * np.abs(wanted.values).max())
    assert found.is_exact
    adds_up(found)


@cache
def stack():
    X, y = numbers()
    return disagreeing(GWIRegressor(["svgp", "linear", "network"], likelihood="gaussian", random_state=0, verbose=0).fit(X, y))


def disagreeing(model):
    """The same with means that count alike, and whose disagreement counts."""
    mean = model.model_.posterior.mean
    mean.weights.fill_(1 / len(mean.means))
    model.model_ = replace(model.model_, disagreement_weight=np.array([1.5]), cached=None)
    assert model.model_.cached.disagrees
    return model


def test_eight_columns_are_exact_by_themselves_and_more_have_errors():
    for num_columns in (8, 12):
        X, y = numbers(num_columns)
        model = GWIRegressor("svgp", likelihood="gaussian", random_state=0, verbose=0).fit(X, y)
        found = model.explain(2 * X[:2])
        assert found.is_exact == (num_columns == 8)
        assert (found.standard_errors > 0).any() == (num_columns == 12)
        adds_up(found)
    exact = model.explain(2 * X[:2], max_evaluations=10**6)
    assert exact.is_exact
    assert (np.abs(found.parts - exact.parts) <= 5 * found.standard_errors).all()
    again = model.explain(2 * X[:2])
    np.testing.assert_array_equal(found.parts, again.parts)
    assert (model.explain(2 * X[:2], random_state=1).parts != found.parts).any()


def test_likelihoods_with_a_link_explain_f():
    X, y = numbers()
    counts = np.random.default_rng(0).poisson(np.exp(0.5 * y))
    model = GWIRegressor("svgp", likelihood="poisson", random_state=0, verbose=0).fit(X, counts)
    found = model.explain(X[:3])
    adds_up(found)
    np.testing.assert_allclose(found.variance, model.posterior(X[:3]).variance.detach(), rtol=1e-6)
    assert found.quantity == "f of poisson"
    prices = GWIRegressor("svgp", likelihood="log-normal", random_state=0, verbose=0).fit(X, np.exp(y))
    assert prices.explain(X[:1]).quantity == "log y"


def test_classes_explain_each_logit():
    X, y = numbers()
    labels = np.digitize(y, np.quantile(y, np.arange(1, 10) / 10))
    model = GWIClassifier("svgp", random_state=0).fit(X, labels)
    found = model.explain(2 * X[:3], background=X[:5])
    assert found.parts.shape == (3, 4, 10)
    adds_up(found)
    rows = torch.cat(list(model.model_.rows(2 * X[:3])))
    np.testing.assert_allclose(found.variance.T, model.model_.logits(rows)[1].detach(), rtol=1e-8)
    wanted = by_shap(lambda x: model.model_.logits(torch.cat(list(model.model_.rows(x))))[1].T.numpy(), 2 * X[:3], X[:5])
    np.testing.assert_allclose(found.parts, wanted.values, atol=1e-6 * np.abs(wanted.values).max())
    assert found.shown.tolist() == model.predict(2 * X[:3]).tolist()
    assert f"the logit of {model.predict(2 * X[:1])[0]}" in str(found[0])


def test_several_targets_have_parts_of_their_own():
    X, y = numbers()
    model = GWIRegressor("svgp", likelihood="gaussian", random_state=0, verbose=0).fit(X, np.column_stack([y, 100 * X[:, 1]]))
    found = model.explain(X[:2])
    assert found.parts.shape == (2, 4, 2)
    adds_up(found)
    np.testing.assert_allclose(found.variance, model.decompose(X[:2]).epistemic, rtol=1e-8)
    assert "y of target 1" in str(found)
    assert len(found.to_frame()) == 2 * 2 * 4


def test_columns_of_a_frame_play_whole():
    X, _ = frame()
    model = of_frame()
    odd = X.iloc[[0, 0, 1]].copy()
    odd["town"] = ["Ulm", "Paris", "Kiel"]
    odd["rooms"] = [np.nan, 2.0, 3.0]
    with pytest.warns(gwi.exceptions.GWIWarning, match="town"):
        variance = model.predict(odd) is not None and model.decompose(odd).epistemic
    found = model.explain(odd, background=X[10:14])
    assert found.columns == ("town", "rooms", "area")
    assert found.cells[0][:2] == ("Ulm", "missing")
    np.testing.assert_allclose(found.variance, variance, rtol=1e-8)
    adds_up(found)
    # A town that nobody knows makes the model as unsure as the prior, and the column is the reason.
    assert found.parts[1].argmax() == 0
    assert found.parts[1, 0] > 0.5 * found.variance[1]
    # By definition: all coalitions of columns as frames.
    wanted = by_frames(model, odd.iloc[[1]], X[10:14], found.columns)
    np.testing.assert_allclose(found.parts[1], wanted, rtol=1e-6, atol=1e-9)


def by_frames(model, row, background, columns):
    """Parts from frames that are put together cell by cell."""
    from gwi.core.shapley import coalition_weights, coalitions

    inside = coalitions(len(columns)).numpy()
    parts = np.zeros(len(columns))
    for i in range(len(background)):
        mixed = pd.concat([background.iloc[[i]]] * len(inside), ignore_index=True)
        for d, name in enumerate(columns):
            mixed[name] = np.where(inside[:, d], row[name].iloc[0], mixed[name])
        mixed["rooms"] = mixed["rooms"].astype(float)
        parts += coalition_weights(len(columns)).numpy() @ model.decompose(mixed).epistemic / len(background)
    return parts


def test_frames_of_all_kinds_and_single_rows_say_the_same():
    X, _ = frame()
    model = of_frame()
    found = model.explain(X[:2])
    for same in (polars.from_pandas(X[:2]), polars.from_pandas(X[:2]).to_arrow(), X[:2][list(X.columns[::-1])]):
        np.testing.assert_allclose(model.explain(same).parts, found.parts, rtol=1e-9)
    np.testing.assert_allclose(model.explain(X.iloc[1]).parts[0], found.parts[1], rtol=1e-9)
    A, _ = numbers()
    np.testing.assert_array_equal(regressor().explain(A[0]).parts, regressor().explain(A[:1]).parts)
    np.testing.assert_array_equal(regressor().explain(torch.from_numpy(A[:1])).parts, regressor().explain(A[:1]).parts)
    np.testing.assert_array_equal(regressor().explain(A[0].tolist()).parts, regressor().explain(A[:1]).parts)


def test_means_that_see_frames_are_asked_about_mixed_frames():
    X, y = frame()
    forest = make_pipeline(OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), RandomForestRegressor(10))
    X = X.fillna({"rooms": 0.0})
    model = disagreeing(GWIRegressor([forest, "svgp"], likelihood="gaussian", random_state=0, verbose=0).fit(X, y))
    assert model.frame_predictors_
    found = model.explain(X[:1], background=X[10:13])
    np.testing.assert_allclose(found.variance, model.decompose(X[:1]).epistemic, rtol=1e-8)
    np.testing.assert_allclose(found.parts[0], by_frames(model, X[:1], X[10:13], found.columns), rtol=1e-6, atol=1e-9)
    with pytest.raises(UserError, match="pass background="):
        model.explain(X[:1])


def test_far_rows_have_the_variance_of_the_prior_and_no_row_speaks_for_them():
    found = regressor().explain(np.full((1, 4), 1e6))
    adds_up(found)
    assert found.prior_share[0] == pytest.approx(1)
    assert "No inducing point is informative about it." in str(found)
    # Any one column is enough to be far away from all rows: all four are alike.
    np.testing.assert_allclose(found.parts[0], found.parts[0].mean(), rtol=0.5)
    one = regressor().explain([[0.0, 1e200, 0.0, 0.0]])
    adds_up(one)
    assert one.parts[0].argmax() == 1


def test_a_training_row_speaks_for_itself():
    X, _ = numbers()
    model = regressor()
    found = model.explain(X[:5], training_rows=X)
    assert [known[0].row for known in found.known] == [0, 1, 2, 3, 4]
    for i, known in enumerate(found.known):
        assert known[0].correlation == pytest.approx(1)
        # By itself it takes away what is known of f there.
        assert known[0].weight == pytest.approx(1 - model.ood_score(X[i : i + 1])[0], rel=1e-6)
        assert [one.weight for one in known] == sorted((one.weight for one in known), reverse=True)


def test_a_weight_is_the_share_that_knowing_f_at_one_row_takes_off_the_prior():
    X, _ = numbers()
    model = regressor()
    x, z = (torch.cat(list(model.model_.rows(rows))) for rows in (X[:1] + 0.3, X[7:8]))
    kernel = model.posterior_.kernel.prior_kernel
    k_xx, k_zz, k_xz = (float(kernel_matrix(kernel, *pair).detach()) for pair in ((x, x), (z, z), (x, z)))
    left = float(model.ood_score(X[7:8])[0]) * k_zz
    # f(z) seen with so much noise that its variance is what the model has there.
    noise = 1 / (1 / left - 1 / k_zz)
    taken = k_xz**2 / (k_zz + noise) / k_xx
    known = model.explain(X[:1] + 0.3, training_rows=X[7:8]).known[0][0]
    assert known.weight == pytest.approx(taken, rel=1e-6)


def test_a_loaded_model_says_the_same(tmp_path):
    X, _ = frame()
    model = of_frame()
    loaded = gwi.load(model.save(tmp_path / "model.gwi"))
    first, second = model.explain(X[:2]), loaded.explain(X[:2])
    np.testing.assert_allclose(first.parts, second.parts, rtol=1e-9)
    assert str(first) == str(second)


def test_after_an_update_new_rows_speak():
    X, y = numbers()
    model = GWIRegressor("svgp", likelihood="gaussian", random_state=0, verbose=0).fit(X[:40], y[:40])
    far = np.full((1, 4), 4.0)
    before = model.explain(far)
    model.update(far, [4.0])
    after = model.explain(far)
    adds_up(after)
    assert after.variance[0] < 0.5 * before.variance[0]
    assert after.known[0][0].correlation == pytest.approx(1)
    assert after.known[0][0].cells == ("4", "4", "4", "4")


def test_weights_conformal_intervals_and_strata_change_nothing_of_it():
    X, y = numbers()
    model = GWIRegressor("svgp", likelihood=Gaussian(conformal=True), random_state=0, verbose=0)
    model.fit(X, y, sample_weight=np.linspace(0.5, 2, len(y)), strata=(X[:, 0] > 0).astype(int))
    found = model.explain(X[:2])
    adds_up(found)
    np.testing.assert_allclose(found.variance, model.decompose(X[:2]).epistemic, rtol=1e-8)


def test_columns_that_say_nothing_have_no_part():
    X, y = numbers()
    with_constant = np.column_stack([X, np.full(len(X), 3.0)])
    model = GWIRegressor("svgp", likelihood="gaussian", random_state=0, verbose=0).fit(with_constant, y)
    found = model.explain(with_constant[:2] * 2 - [0, 0, 0, 0, 3])
    assert (found.parts[:, 4] == 0).all()
    copied = np.column_stack([X, X[:, 0]])
    model = GWIRegressor("svgp", kernel="rbf", likelihood="gaussian", random_state=0, verbose=0).fit(copied, y)
    adds_up(model.explain(copied[:2]))


def test_one_column_has_all_of_it():
    X, y = numbers()
    model = GWIRegressor("svgp", likelihood="gaussian", random_state=0, verbose=0).fit(X[:, :1], y)
    found = model.explain([[5.0]])
    assert found.parts[0, 0] == pytest.approx(found.variance[0] - found.base)


def test_frozen_features_need_background_rows():
    X, y = numbers()
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    model = GWIRegressor(network, kernel="features", likelihood="gaussian", random_state=0, verbose=0)
    model.fit(X[:40], y[:40], validation=(X[40:], y[40:]))
    with pytest.raises(UserError, match="keeps features of training rows, not the rows: pass background="):
        model.explain(X[:1])
    found = model.explain(X[:2], background=X[20:26])
    wanted = by_shap(lambda x: model.decompose(x).epistemic, X[:2], X[20:26])
    np.testing.assert_allclose(found.parts, wanted.values, atol=1e-6 * np.abs(wanted.values).max())
    assert "inducing point" in str(found)
    assert model.explain(X[:1], background=X[20:26], training_rows=X).known[0][0].row == 0


def test_background_rows_are_like_all_rows():
    z = torch.randn(300, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    chosen = herded(z, 16)
    assert len(set(chosen)) == 16

    def gap(rows):
        alike = torch.exp(-0.5 * torch.cdist(z, z).square() / 3)
        return float(alike.mean() - 2 * alike[:, rows].mean() + alike[rows][:, rows].mean())

    drawn = [gap(torch.randperm(300, generator=torch.Generator().manual_seed(seed))[:16]) for seed in range(20)]
    assert gap(chosen) < 0.5 * min(drawn)
    assert regressor().explain(numbers()[0][:1], background=3).background == 3
    assert regressor().explain(numbers()[0][:1], background=10**6).background == len(
        regressor().posterior_.kernel.inducing_points
    )


def test_some_rows_are_taken_out():
    X, _ = numbers()
    found = regressor().explain(X[:7])
    assert len(found) == 7
    assert found[2:4].rows == (2, 3)
    np.testing.assert_array_equal(found[-1].parts[0], found.parts[6])
    assert "… and 2 more rows; see to_frame()." in str(found)
    assert set(found.to_dict()) == {"row", "output", "column", "value", "part", "error", "share"}
    assert found.to_frame("polars").shape == found.to_frame("arrow").shape == (28, 7)
    np.testing.assert_allclose(found.to_frame().groupby("row")["part"].sum() + found.base, found.variance)
    assert "<table>" in found._repr_html_()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"X": np.zeros((1, 3))}, "X has 3 features, but GWIRegressor is expecting 4 features"),
        ({"X": np.full((1, 4), np.nan)}, "contains NaN"),
        ({"X": np.zeros((0, 4))}, "0 sample"),
        (
            {"background": 0},
            "background must be a table of rows, or the number of the model's own rows to take, at least 1; got 0.",
        ),
        ({"background": np.zeros((2, 3))}, "background: X has 3 features"),
        ({"background": "all"}, "background"),
        ({"training_rows": np.zeros((2, 5))}, "training_rows: X has 5 features"),
        ({"max_evaluations": 0}, "must be a whole number of at least 1"),
        ({"max_evaluations": 1.5}, "must be a whole number of at least 1"),
    ],
)
def test_what_means_nothing_is_refused_in_one_sentence(options, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        regressor().explain(**({"X": numbers()[0][:1]} | options))


def test_models_that_are_not_fitted_say_so():
    with pytest.raises(gwi.estimators.base.check_is_fitted.__globals__["NotFittedError"]):
        GWIRegressor().explain([[1.0]])


def test_rows_and_outputs_that_are_not_there_are_refused():
    found = regressor().explain(numbers()[0][:2])
    with pytest.raises(ValueError, match="row must be between 0 and 1"):
        found.of(2)
    with pytest.raises(ValueError, match="output must be between 0 and 0"):
        found.of(0, 1)


def test_inducing_points_by_means_of_clusters_are_shown_too():
    found = regressor(covariance=Covariance(num_inducing=20, inducing_points="kmeans")).explain(numbers()[0][:1])
    assert "inducing point" in str(found)
    adds_up(found)
