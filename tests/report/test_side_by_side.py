"""Any estimators are compared on the same folds, with the scores that they can have."""

import re

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm, sem
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import BayesianRidge, LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import gwi
from gwi import GWIClassifier, GWIRegressor
from gwi.report.side_by_side import compare


def table(num_rows=60):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(num_rows, 3))
    return X, X[:, 0] + 0.3 * rng.normal(size=num_rows)


class Remembers(RegressorMixin, BaseEstimator):
    """Says which rows it was fitted to and asked about."""

    seen = []  # noqa: RUF012

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, X, y):
        self.mean_ = y.mean()
        self.fitted_ = X[:, 0]
        return self

    def predict(self, X):
        self.seen.append((self.random_state, self.fitted_.tolist(), X[:, 0].tolist()))
        return np.full(len(X), self.mean_)


def test_all_see_the_same_folds_and_each_row_is_predicted_once():
    X, y = table()
    Remembers.seen.clear()
    compare({"a": Remembers(), "b": Remembers(random_state=7)}, X, y, cv=3, random_state=5)
    first, second = Remembers.seen[::2], Remembers.seen[1::2]
    assert [rows[1:] for rows in first] == [rows[1:] for rows in second]
    assert sorted(x for rows in first for x in rows[2]) == sorted(X[:, 0])
    # A seed that was not set is that of the comparison.
    assert {rows[0] for rows in first} == {5}
    assert {rows[0] for rows in second} == {7}


def test_scores_of_normal_distributions_and_of_points_are_those_of_their_definitions():
    X, y = table()
    found = compare({"bayes": BayesianRidge(), "line": LinearRegression()}, X, y, cv=KFold(3))
    nll, mae, rmse = [], [], []
    for train, test in KFold(3).split(X):
        mean, std = BayesianRidge().fit(X[train], y[train]).predict(X[test], return_std=True)
        nll.append(-norm(mean, std).logpdf(y[test]).mean())
        error = y[test] - LinearRegression().fit(X[train], y[train]).predict(X[test])
        mae.append(np.abs(error).mean())
        rmse.append(np.sqrt((error**2).mean()))
    bayes, line = found.methods
    np.testing.assert_allclose(bayes.scores["nll"], nll)
    np.testing.assert_allclose(line.scores["crps"], mae)
    np.testing.assert_allclose(line.scores["rmse"], rmse)
    assert np.isnan(line.scores["nll"]).all()
    assert "predicts points" in line.note
    behind = found.to_frame().set_index(["method", "metric"]).loc[("line", "rmse")]
    paired = line.scores["rmse"] - bayes.scores["rmse"]
    assert behind["behind"] == pytest.approx(paired.mean())
    assert behind["behind_error"] == pytest.approx(sem(paired))


def test_ours_are_scored_by_their_distribution_inside_pipelines_and_searches_too():
    X, y = table()
    ours = GWIRegressor("linear", random_state=0)
    inside = make_pipeline(StandardScaler(), ours)
    found = compare(
        {
            "plain": ours,
            "pipeline": inside,
            "search": GridSearchCV(BayesianRidge(), {"alpha_1": [1e-6, 1e-5]}, cv=2),
        },
        X,
        y,
        cv=2,
    )
    assert np.isfinite([method.scores["nll"] for method in found.methods]).all()
    model = ours.fit(*(part[KFold(2, shuffle=True, random_state=0).split(X).__next__()[0]] for part in (X, y)))
    test = next(KFold(2, shuffle=True, random_state=0).split(X))[1]
    assert found.methods[0].scores["nll"][0] == pytest.approx(model.nll(X[test], y[test]), rel=1e-6)
    assert not hasattr(inside[-1], "model_") or inside[-1] is ours


def test_classifiers_without_probabilities_have_an_accuracy():
    X, y = table(90)
    labels = np.array(["low", "middle", "high"])[np.digitize(y, [-0.5, 0.5])]
    estimators = {"gwi": GWIClassifier("linear"), "logistic": LogisticRegression(), "svm": LinearSVC()}
    found = compare(estimators, pd.DataFrame(X, columns=["a", "b", "c"]), pd.Series(labels, name="size"), cv=3)
    assert found.task == "classification"
    assert found.target == "size"
    assert np.isfinite(found.methods[2].scores["accuracy"]).all()
    assert np.isnan(found.methods[2].scores["nll"]).all()
    assert np.isfinite(found.methods[1].scores["nll"]).all()
    assert "predicts labels without probabilities" in str(found)


def test_groups_stay_together():
    X, y = table()
    Remembers.seen.clear()
    groups = np.repeat(np.arange(12), 5)
    compare({"a": Remembers()}, X, y, cv=4, groups=groups)
    of = dict(zip(X[:, 0].tolist(), groups.tolist(), strict=True))
    for _, fitted, asked in Remembers.seen:
        assert not {of[x] for x in fitted} & {of[x] for x in asked}


class Fails(Remembers):
    def predict(self, X):
        raise RuntimeError("no licence\nfor this")


def test_one_that_fails_has_no_scores_and_says_why():
    X, y = table()
    found = compare({"fine": Remembers(), "broken": Fails()}, X, y, cv=2)
    assert np.isnan(found.methods[1].scores["rmse"]).all()
    assert "failed: RuntimeError: no licence for this" in found.methods[1].note
    assert found.best("rmse") == ("fine",)
    assert "no finite score to compare" in str(found)


def test_the_record_is_saved_as_a_page_or_a_picture(tmp_path):
    X, y = table()
    found = compare({"<b>line</b>": LinearRegression(), "forest": RandomForestRegressor(5)}, X, y, cv=2)
    page = found.save(tmp_path / "found.html").read_text()
    assert "&lt;b&gt;line" in page
    assert "<b>line" not in page
    assert "Who predicts <em>y</em> best?" in page
    assert found.save(tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        found.save(tmp_path / "found.html")
    with pytest.raises(ValueError, match=r"\.html"):
        found.save(tmp_path / "found.pdf")
    assert "&lt;b&gt;" in found._repr_html_()
    assert found.to_frame("polars").shape == (12, 7)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"estimators": {}}, "compare takes estimators by name"),
        ({"estimators": [LinearRegression()]}, "compare takes estimators by name"),
        ({"estimators": {"a": LinearRegression}}, "An estimator has a name, and fit and predict"),
        ({"estimators": {"a": LinearRegression(), "b": LinearSVC()}}, "All must be regressors, or all classifiers"),
        ({"estimators": {"a": StandardScaler()}}, "An estimator has a name, and fit and predict"),
        ({"y": np.zeros(3)}, "one target for each row"),
        ({"y": np.zeros((60, 2))}, "one target for each row"),
        ({"y": np.full(60, np.nan)}, "60 targets are missing or infinite"),
        ({"y": np.full(60, "a")}, "Targets of regressors are numbers"),
        ({"cv": 1}, "cv must be a number of folds from 2 to 60"),
        ({"cv": 1.5}, "cv must be a number of folds from 2 to 60"),
        ({"cv": [(np.arange(30), np.arange(30, 60))]}, "at least two folds"),
        ({"groups": np.zeros(5)}, "groups has one value for each of the 60 rows"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_sentence(change, said):
    X, y = table()
    options = {"estimators": {"a": LinearRegression()}, "X": X, "y": y} | change
    with pytest.raises(ValueError, match=re.escape(said)):
        gwi.compare(options.pop("estimators"), options.pop("X"), options.pop("y"), **options)
