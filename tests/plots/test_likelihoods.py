"""Pictures, scores, columns and findings follow the likelihood: each of the eleven, fitted to a small table of its kind."""

import warnings
from functools import cache

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.collections import PathCollection
from sklearn.metrics import r2_score

from gwi import GWIRegressor, diagnose, evaluation, load, plots
from gwi.core.outcomes import as_bounds
from gwi.evaluation.survival import kaplan_meier
from gwi.exceptions import GWIWarning
from gwi.parts.likelihoods import LIKELIHOODS
from gwi.plots.counts import frequencies
from gwi.plots.levels import level_reliability

pytestmark = pytest.mark.unchecked

LEVELS = ["poor", "fair", "good", "excellent"]
KINDS = {"poisson": "counts", "negative-binomial": "counts", "ordinal": "levels", "censored": "times"}
OF_NUMBERS = ("plot_actual_vs_predicted", "plot_coverage_by_prediction", "plot_errors")
OF_ALL = ("plot_prediction", "plot_calibration", "plot_pit")


@cache
def table(num_rows, seed):
    """Rows, and a target for each likelihood."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (num_rows, 2))
    f = np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1]
    noise, share = rng.normal(size=num_rows), 1 / (1 + np.exp(-f))
    time, left = np.exp(3 + f + 0.5 * noise), rng.uniform(5, 120, num_rows)
    until = np.empty(num_rows, dtype=[("event", bool), ("time", float)])
    until["event"], until["time"] = time <= left, np.minimum(time, left)
    return X, {
        "gaussian": f + 0.3 * noise,
        "student-t": f + 0.2 * rng.standard_t(3, num_rows),
        "log-normal": np.exp(f + 0.3 * noise),
        "gamma": rng.gamma(5, np.exp(f) / 5),
        "poisson": rng.poisson(np.exp(0.5 + f)).astype(float),
        "negative-binomial": rng.poisson(np.exp(1 + f) * rng.gamma(2, 0.5, num_rows)).astype(float),
        "beta": rng.beta(10 * share, 10 * (1 - share)),
        "ordinal": pd.Categorical.from_codes(np.digitize(f + 0.6 * noise, [-0.7, 0, 0.8]), LEVELS, ordered=True),
        "few-valued": np.digitize(f + 0.6 * noise, [-0.7, 0, 0.8]) + 1.0,
        "censored": until,
        "robust": f + 0.3 * noise,
    }


@cache
def fitted(name):
    X, targets = table(120, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GWIWarning)
        return GWIRegressor("svgp", likelihood=name, cv=2, random_state=0).fit(X, targets[name])


def unseen(name):
    X, targets = table(150, 1)
    return X, targets[name]


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_score_is_the_one_of_its_kind(name):
    model, (X, y) = fitted(name), unseen(name)
    assert model._kind == KINDS.get(name, "numbers")
    found = model.score(X, y)
    if model._kind == "levels":
        assert found == (model.predict(X) == np.asarray(y)).mean() > 0.45
    elif model._kind == "times":
        assert found == evaluation.concordance(y, model.predict_dist(X)) > 0.75
    else:
        assert found == pytest.approx(r2_score(y, model.predict(X)))


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_all_scores_are_there_and_those_of_parts_add_up(name):
    model, (X, y) = fitted(name), unseen(name)
    whole = model.score_totals(model.judge(X, y)).named()
    parts = model.score_totals(model.judge(X[:70], y[:70])) + model.score_totals(model.judge(X[70:], y[70:]))
    usual = {"levels": "rps", "times": "concordance"}.get(model._kind, "crps")
    assert usual in whole
    assert np.isfinite(list(whole.values())).all()
    assert whole["nll"] == pytest.approx(model.nll(X, y))
    # By lot inside of jumps, which a part draws anew.
    by_lot = {"calibration_error"} if model.model_.are_counts or model.model_.num_levels else set()
    assert {k: v for k, v in parts.named().items() if k not in by_lot} == pytest.approx(
        {k: v for k, v in whole.items() if k not in by_lot}
    )


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_a_sound_fit_has_nothing_severe_and_speaks_the_words_of_its_kind(name):
    model, (X, y) = fitted(name), unseen(name)
    found = diagnose(model, X, y)
    assert found.severe == (), str(found)
    kinds = set(dict(found.measures))
    assert {"miscalibrated", "duplicates", "far-from-training", "few-inducing-points", "variance-collapsed"} <= kinds
    assert ("order-is-chance" in kinds) == (model._kind == "times")
    assert ("levels-have-shifted" in kinds) == (model._kind == "levels")
    assert 1 < dict(found.measures)["variance-collapsed"] < 60


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gaussian", "conformal=True); if these rows differ from the training rows, call update(X, y) with some of them."),
        ("poisson", 'likelihood="negative-binomial"'),
        ("beta", 'likelihood="auto", which tries several'),
        ("robust", "Outliers lie outside by design"),
        ("ordinal", "Level 'excellent' occurs 150 times"),
        ("censored", "Events come later than predicted"),
    ],
)
def test_findings_name_what_helps_this_likelihood(name, words):
    model, (X, y) = fitted(name), unseen(name)
    if name == "ordinal":
        y = pd.Categorical(["excellent"] * len(X), categories=LEVELS, ordered=True)
    elif name == "censored":
        y = y.copy()
        y["time"] *= 10
    else:
        far = {"poisson": 40.0, "beta": 0.02}.get(name, 5.0)
        y = np.full(len(X), far)
    found = diagnose(model, X, y)
    assert any(words in finding.what + finding.remedy for finding in found.findings), str(found)
    if model._kind != "numbers":
        assert "standard deviation" not in " ".join(f.what for f in found.findings if f.kind == "miscalibrated")


def test_poisson_counts_that_vary_too_much_are_named_at_the_fit():
    X, targets = table(120, 0)
    with pytest.warns(GWIWarning, match='multiplies the variance of f .* likelihood="negative-binomial"'):
        GWIRegressor("svgp", likelihood="poisson", random_state=0).fit(X, 7 * targets["negative-binomial"])


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_columns_make_sense(name):
    model, (X, _) = fitted(name), unseen(name)
    columns = model.predict_columns(X, 0.9, quantiles=[0.9], parts=True, times=[20, 40.5] if name == "censored" else ())
    assert all(len(values) == len(X) for values in columns.values())
    if model._kind == "levels":
        probabilities = np.column_stack([columns[f"probability_{level}"] for level in LEVELS])
        np.testing.assert_allclose(probabilities.sum(1), 1)
        assert columns["prediction"].tolist() == np.array(LEVELS)[probabilities.argmax(1)].tolist()
        assert "std" not in columns
        return
    low, high = columns["lower"], columns["upper"]
    assert (low <= columns["quantile_0.9"]).all()
    assert (columns["quantile_0.9"] <= high).all()
    if model._kind == "times":
        law = model.predict_dist(X)
        np.testing.assert_array_equal(columns["median"], law.median)
        np.testing.assert_array_equal(columns["survival_40.5"], law.survival(40.5))
        assert "prediction" not in columns
    if model._kind == "counts":
        assert (low == low.round()).all()
        assert (low >= 0).all()


def test_times_are_refused_where_nothing_is_one():
    with pytest.raises(ValueError, match='times goes with likelihood="censored" only'):
        fitted("poisson").predict_columns(unseen("poisson")[0], times=[3])


@pytest.mark.parametrize("function", OF_ALL)
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_pictures_of_all_kinds_are_drawn(name, function):
    ax = getattr(plots, function)(fitted(name), *unseen(name))
    assert ax.has_data()
    assert ax.get_xlabel()


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_other_pictures_are_drawn_or_say_in_one_sentence_why_not(name):
    model, (X, y) = fitted(name), unseen(name)
    of_counts = (*OF_NUMBERS, "plot_rootogram")
    drawn = {"numbers": OF_NUMBERS, "counts": of_counts, "times": ("plot_survival",), "levels": ()}[model._kind]
    for function in (*OF_NUMBERS, "plot_rootogram", "plot_survival"):
        if function in drawn:
            assert getattr(plots, function)(model, X, y).has_data()
        else:
            with pytest.raises(ValueError, match=rf"^{function} [^.]*\. ?|use plot_") as said:
                getattr(plots, function)(model, X, y)
            assert "plot_" in str(said.value).removeprefix(function)
    assert plots.plot_uncertainty_map(model, X, num_points=5).has_data()
    assert plots.plot_outlier_scores(model, X).has_data()


@pytest.mark.parametrize("name", ["poisson", "gamma"])
def test_the_expected_errors_of_skewed_laws_are_those_of_their_draws(name):
    """Targets drawn from the predictions themselves have medians inside of the strokes of chance."""
    model, (X, _) = fitted(name), unseen(name)
    law = model.predict_dist(X).laws[0]
    y = law.sample(1, np.random.default_rng(3))[0]
    ax = plots.plot_errors(model, X, y)
    lines = {line.get_label(): line for line in ax.lines}
    expected, found = (lines[label].get_ydata() for label in ("expected median", "median found"))
    assert np.abs(np.asarray(found) - np.asarray(expected)).max() < 0.5 * np.max(expected)


def test_the_rootogram_hangs_found_counts_from_expected_ones():
    model, (X, y) = fitted("negative-binomial"), unseen("negative-binomial")
    law = model.predict_dist(X).laws[0]
    found = frequencies(law, y)
    assert found.found.sum() == len(y)
    assert found.expected.sum() == pytest.approx(len(y))
    inside = np.arange(found.first[2], found.first[3])
    expected = sum(np.exp(law.log_density(np.full(len(y), count))).sum() for count in inside)
    assert found.expected[2] == pytest.approx(expected, rel=1e-6)
    assert found.found[2] == np.isin(y, inside).sum()
    ax = plots.plot_rootogram(model, X, y)
    third = ax.patches[2]
    assert third.get_y() == pytest.approx(np.sqrt(found.expected[2]))
    assert third.get_height() == pytest.approx(-np.sqrt(found.found[2]))


def test_many_counts_share_bars():
    model, (X, _) = fitted("negative-binomial"), unseen("negative-binomial")
    y = np.arange(150.0)
    found = frequencies(model.predict_dist(X).laws[0], y)
    assert found.width > 1
    assert found.found[0] == found.width
    assert found.found.sum() == 150


def test_the_reliability_of_levels_is_that_of_cumulative_probabilities():
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(3), 500)
    places = (rng.uniform(size=(500, 1)) > probabilities.cumsum(1)[:, :-1]).sum(1)
    found, count = level_reliability(probabilities, places)
    below = probabilities.cumsum(1)[:, :2]
    inside = (below >= 0.3) & (below < 0.4)
    assert count.sum() == 1000
    assert found.promised[3] == pytest.approx(below[inside].mean())
    assert found.found[3] == pytest.approx((places[:, None] <= np.arange(2))[inside].mean())
    assert found.num_kept >= len(count) - 2


def test_survival_curves_are_kaplan_meiers_and_the_mean_of_predicted_ones():
    model, (X, y) = fitted("censored"), unseen("censored")
    ax = plots.plot_survival(model, X, y, num_groups=2)
    law = model.predict_dist(X)
    early = np.argsort(law.median, kind="stable")[:75]
    steps, dashed = ax.lines[0], ax.lines[1]
    np.testing.assert_allclose(steps.get_ydata(), kaplan_meier(y[early]).at(steps.get_xdata()))
    np.testing.assert_allclose(dashed.get_ydata(), law[early].survival(dashed.get_xdata()).mean(0))
    assert ax.get_xscale() == "linear"
    assert plots.plot_survival(model, X, y, log=True).get_xscale() == "log"


def test_survival_of_some_rows_is_theirs():
    model, (X, _) = fitted("censored"), unseen("censored")
    ax = plots.plot_survival(model, X, rows=[3, 7])
    assert [line.get_label() for line in ax.lines] == ["row 3", "row 7"]
    line = ax.lines[1]
    np.testing.assert_allclose(line.get_ydata(), model.predict_dist(X[[7]]).survival(line.get_xdata())[0])


def test_rows_without_an_event_are_upward_marks():
    model, (X, y) = fitted("censored"), unseen("censored")
    ax = plots.plot_prediction(model, X, y)
    marks = {part.get_label(): part for part in ax.collections if isinstance(part, PathCollection)}
    assert len(marks["no event so far"].get_offsets()) == (~y["event"]).sum()
    assert len(marks["events"].get_offsets()) == y["event"].sum()


def test_the_pit_of_times_spreads_rows_without_an_event():
    model, (X, y) = fitted("censored"), unseen("censored")
    ax = plots.plot_pit(model, X, y)
    shares = evaluation.d_calibration(y, model.predict_dist(X)).shares
    assert [bar.get_height() for bar in ax.patches if bar.get_width() < 0.2] == np.round(150 * shares).tolist()


def test_bounds_score_as_events_do():
    model, (X, y) = fitted("censored"), unseen("censored")
    assert model.score(X, as_bounds(y)) == model.score(X, y)
    with pytest.raises(ValueError, match="takes no sample weights"):
        model.score(X, y, np.ones(len(X)))


@pytest.mark.parametrize("name", ["poisson", "ordinal", "censored"])
def test_a_model_from_a_file_is_scored_and_drawn_alike(name, tmp_path):
    model, (X, y) = fitted(name), unseen(name)
    again = load(model.save(tmp_path / "model.gwi"))
    assert again._kind == model._kind
    assert again.score(X, y) == pytest.approx(model.score(X, y))
    assert dict(diagnose(again, X, y).measures).keys() == dict(diagnose(model, X, y).measures).keys()
    assert plots.plot_calibration(again, X, y).get_title(loc="left") == plots.plot_calibration(model, X, y).get_title(loc="left")


def test_targets_of_other_lengths_are_one_sentence():
    for name in ("ordinal", "censored"):
        X, y = unseen(name)
        with pytest.raises(ValueError, match="There must be a target for each row; got 20 targets and 150 rows"):
            diagnose(fitted(name), X, y[:20])
        with pytest.raises(ValueError, match="There must be a target for each row"):
            fitted(name).score(X, y[:20])
