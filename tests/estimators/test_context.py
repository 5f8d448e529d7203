"""Rows beyond the data in W₂, through the estimators."""

import numpy as np
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import cross_validate
from torch.utils.data import DataLoader, TensorDataset

from gwi import GWIClassifier, GWIRegressor, load
from gwi.estimators import makers
from gwi.parts import Covariance

pytestmark = pytest.mark.unchecked


def sides(num_rows=60, seed=0):
    """A sine with noise either side of a gap of three length-scales."""
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.uniform(0, 3, num_rows // 2), rng.uniform(5.9, 8.9, num_rows - num_rows // 2)])[:, None]
    return x, np.sin(x[:, 0]) + 0.1 * rng.standard_normal(num_rows)


def epistemic(model, at):
    return model.decompose(np.array(at)[:, None]).epistemic


@pytest.mark.parametrize("how", ["box", "mixtures", "rows", "tensor"])
def test_context_makes_the_covariance_as_wide_in_a_gap_as_the_exact_one(how):
    x, y = sides()
    rows = np.linspace(0, 9, 40)[:, None]
    context = {"rows": rows, "tensor": torch.from_numpy(rows)}.get(how)
    covariance = Covariance("wasserstein", context=how) if context is None else "auto"
    model = GWIRegressor("svgp", covariance=covariance, random_state=0).fit(x, y, context=context)
    exact = GWIRegressor("svgp", covariance="titsias", random_state=0).fit(x, y)
    alone = GWIRegressor("svgp", covariance="wasserstein", random_state=0).fit(x, y)
    at = [3.6, 4.4, 5.2]
    assert (epistemic(alone, at) < 0.3 * epistemic(exact, at)).all()
    assert (np.abs(np.log(epistemic(model, at) / epistemic(exact, at))) < 0.7).all()
    inside = [1.0, 2.0, 7.0, 8.0]
    assert (np.abs(np.log(epistemic(model, inside) / epistemic(exact, inside))) < 1.0).all()
    assert model.summary_.covariance == "wasserstein"
    assert "points beyond the data have" in str(model.summary_)
    assert "duality gap" not in str(model.summary_)


def test_without_context_nothing_changes():
    x, y = sides()
    default = GWIRegressor("svgp", covariance="wasserstein", random_state=0).fit(x, y)
    named = GWIRegressor("svgp", covariance=Covariance("wasserstein", context=None), random_state=0).fit(x, y, context=None)
    for one, other in zip(default.predict(x, return_std=True), named.predict(x, return_std=True), strict=True):
        np.testing.assert_array_equal(one, other)
    assert "beyond the data" not in str(named.summary_)


def test_inducing_points_that_were_asked_for_are_kept():
    x, y = sides()
    model = GWIRegressor("svgp", covariance=Covariance(num_inducing=7, context="box"), random_state=0).fit(x, y)
    assert model.summary_.num_inducing == 7


def test_a_file_and_a_clone_keep_the_option(tmp_path):
    x, y = sides()
    model = GWIRegressor("svgp", covariance=Covariance(context="box"), random_state=0).fit(x, y)
    assert clone(model).covariance.context == "box"
    loaded = load(model.save(tmp_path / "model.gwi"))
    assert loaded.covariance.context == "box"
    np.testing.assert_array_equal(loaded.predict(x, return_std=True)[1], model.predict(x, return_std=True)[1])


def test_scikit_learn_passes_context_on_where_it_is_asked_to():
    x, y = sides()
    with config_context(enable_metadata_routing=True):
        model = GWIRegressor("linear", random_state=0).set_fit_request(context=True)
        found = cross_validate(model, x, y, cv=2, params={"context": np.linspace(0, 9, 60)[:, None]}, return_estimator=True)
    assert all("beyond the data" in str(part.summary_) for part in found["estimator"])


@pytest.mark.parametrize(
    ("model", "context", "sentence"),
    [
        (GWIRegressor("linear"), np.zeros((5, 2)), r"^context: X has 2 features, but GWIRegressor is expecting 1"),
        (GWIRegressor("linear"), [[np.nan]], r"^context: Input X contains NaN"),
        (GWIRegressor("linear"), "sphere", r'^context must be "box" or "mixtures"; got \'sphere\'\.$'),
        (GWIRegressor("linear", covariance=Covariance(context="sphere")), None, r'^context must be "box" or "mixtures"; got'),
        (GWIRegressor("linear", covariance="titsias"), [[1.0]], r'^Context rows are for covariance="wasserstein" or "auto"'),
        (
            GWIRegressor("linear", covariance=Covariance(weight=2.0, context="box")),
            None,
            r"^Context rows are for .*weight 2\.0\.$",
        ),
        (GWIRegressor("paper"), [[1.0]], r"^Context rows are for regression, and not for the paper's protocol"),
    ],
)
def test_what_does_not_go_with_context_is_refused_in_one_sentence(model, context, sentence):
    x, y = sides(20)
    with pytest.raises(ValueError, match=sentence):
        model.fit(x, y, context=context)


def test_classes_take_no_context():
    x, y = sides(20)
    with pytest.raises(ValueError, match="Context rows are for regression"):
        GWIClassifier("linear", covariance=Covariance(context="box")).fit(x, y > 0)


def test_rows_that_do_not_fit_in_memory_take_no_context(monkeypatch):
    monkeypatch.setattr(makers, "in_memory", lambda source: None)
    x, y = sides(40)
    loader = DataLoader(TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), batch_size=10)
    with pytest.raises(ValueError, match=r"neither sample_weight, groups, context, strata, cv nor"):
        GWIRegressor("linear").fit(loader, context=[[4.0]])
