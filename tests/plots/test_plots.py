"""Every picture shows what its numbers say: bands, counts and shares are computed again by hand and found in what is drawn."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import torch

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.image import imread
from scipy.stats import binom, norm, t
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import processes
from gwi import GWIRegressor, plots
from gwi.core.divergences import wasserstein_squared
from gwi.core.measures import GaussianMeasure
from gwi.evaluation.classification import score_classes
from gwi.parts import Covariance, Gaussian
from gwi.plots.numbers import percent, shown, tick

pytestmark = pytest.mark.unchecked

ROOT = Path(__file__).parents[2]
WITH_TARGETS = (
    "plot_actual_vs_predicted",
    "plot_calibration",
    "plot_coverage_by_prediction",
    "plot_errors",
    "plot_pit",
    "plot_prediction",
)
PLOTS = (*WITH_TARGETS, "plot_spectrum", "plot_uncertainty_map")


def data(num_rows, seed, num_features=2):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, (num_rows, num_features))
    return x, 5 + 10 * np.sin(x[:, 0]) + x[:, -1] ** 2 + np.exp(0.4 * x[:, 0]) * rng.standard_normal(num_rows)


@pytest.fixture(scope="module")
def fitted():
    return GWIRegressor("svgp", random_state=0, likelihood=Gaussian("input-dependent", tails="normal")).fit(*data(120, 0))


@pytest.fixture(scope="module")
def one_feature():
    return GWIRegressor("svgp", random_state=0, covariance=Covariance(num_inducing=15), likelihood=Gaussian("constant")).fit(
        *data(80, 0, 1)
    )


@pytest.fixture(scope="module")
def heavy_tails():
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (200, 1))
    model = GWIRegressor("svgp", random_state=0, likelihood=Gaussian("constant")).fit(
        x, np.sin(x[:, 0]) + 0.2 * rng.standard_t(2.5, 200)
    )
    assert np.isfinite(model.model_.degrees_of_freedom[0])
    return model


@pytest.fixture(scope="module")
def two_targets():
    x, y = data(60, 0)
    return GWIRegressor("svgp", random_state=0, likelihood=Gaussian("constant")).fit(x, np.column_stack([y, -3 * y]))


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def draw(name, model, x, y, **arguments):
    function = getattr(plots, name)
    return function(model, x, y, **arguments) if name in WITH_TARGETS else function(model, x, **arguments)


def line(ax, label):
    return next(artist for artist in ax.get_lines() if artist.get_label() == label)


@pytest.mark.parametrize("name", PLOTS)
def test_each_function_draws_a_picture_with_labelled_axes(name, fitted, tmp_path):
    ax = draw(name, fitted, *data(60, 1))
    path = tmp_path / "picture.png"
    ax.figure.savefig(path, dpi=100)
    picture = imread(path)
    assert picture.shape[1] <= 600
    # Something is drawn: many pixels are neither white nor black, and in more than a few colours.
    assert len(np.unique((picture[..., :3] * 255).astype(int).reshape(-1, 3), axis=0)) > 50
    assert ax.get_xlabel()
    assert ax.get_ylabel()


@pytest.mark.parametrize("name", PLOTS)
def test_axes_given_are_those_drawn_on_and_nothing_global_changes(name, fitted):
    before = dict(mpl.rcParams)
    figure, axes = plt.subplots(1, 2)
    assert draw(name, fitted, *data(60, 1), ax=axes[1]) is axes[1]
    assert not axes[0].has_data()
    assert plt.get_fignums() == [figure.number]
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize("name", PLOTS)
def test_rows_may_be_tensors_and_the_law_of_the_target_asked_for_is_drawn(name, two_targets):
    x, y = data(40, 1)
    both = torch.from_numpy(np.column_stack([y, -3 * y]))
    first, second = (draw(name, two_targets, torch.from_numpy(x), both, target=j) for j in (0, 1))
    if name == "plot_prediction":
        np.testing.assert_allclose(line(second, "mean").get_ydata(), -3 * line(first, "mean").get_ydata(), rtol=1e-4)
        assert second.get_ylabel() == "target 1"
    with pytest.raises(ValueError, match="target must be between 0 and 1; got 2"):
        draw(name, two_targets, x, both, target=2)


def bands(ax):
    """Lower and upper edge of each band, point by point."""
    found = []
    for band in ax.collections[:2]:
        vertices = band.get_paths()[0].vertices
        points = np.unique(vertices[:, 0])
        found.append(np.array([(vertices[vertices[:, 0] == p, 1].min(), vertices[vertices[:, 0] == p, 1].max()) for p in points]))
    return found


def test_bands_are_as_wide_as_the_standard_deviations_say(one_feature):
    x, y = data(80, 0, 1)
    ax = plots.plot_prediction(one_feature, x, y, num_points=50, margin=0.0)
    grid = np.linspace(x.min(), x.max(), 50)[:, None]
    mean, std = one_feature.predict(grid, return_std=True)
    std_of_f = np.sqrt(one_feature.decompose(grid).epistemic)
    of_y, of_f = bands(ax)
    np.testing.assert_allclose(np.diff(of_y)[:, 0], 2 * 1.96 * std)
    np.testing.assert_allclose(np.diff(of_f)[:, 0], 2 * 1.96 * std_of_f)
    np.testing.assert_allclose(of_y.mean(1), mean)
    np.testing.assert_allclose(line(ax, "mean").get_ydata(), mean)
    assert (std_of_f < std).all()
    np.testing.assert_allclose(ax.collections[2].get_offsets(), np.column_stack([x[:, 0], y]))


def test_inducing_points_stand_where_they_are_in_the_units_of_the_rows(one_feature):
    x, y = data(80, 0, 1)
    marks = line(plots.plot_prediction(one_feature, x, y), "inducing points").get_xdata()
    z = one_feature.posterior_.kernel.inducing_points.detach().numpy()
    np.testing.assert_allclose(np.sort(marks), np.sort(z[:, 0] * x.std() + x.mean()))


def test_other_features_are_at_their_median_and_columns_may_be_named():
    x, y = data(60, 0, 3)
    frame = pd.DataFrame(x, columns=["height", "width", "age"])
    model = GWIRegressor("svgp", random_state=0, likelihood=Gaussian("constant")).fit(frame, y)
    ax = plots.plot_prediction(model, frame, y, "width", num_points=30, margin=0.5)
    assert ax.get_xlabel() == "width, other features at their median"
    grid = np.tile(np.median(x, axis=0), (30, 1))
    grid[:, 1] = line(ax, "mean").get_xdata()
    width = np.ptp(x[:, 1])
    np.testing.assert_allclose(grid[[0, -1], 1], [x[:, 1].min() - width / 2, x[:, 1].max() + width / 2])
    np.testing.assert_allclose(line(ax, "mean").get_ydata(), model.model_.mean(grid)[0])
    by_number = plots.plot_prediction(model, frame, y, 1, num_points=30, margin=0.5)
    np.testing.assert_array_equal(line(by_number, "mean").get_ydata(), line(ax, "mean").get_ydata())
    with pytest.raises(ValueError, match="There is no feature 'depth'; the columns are height, width, age"):
        plots.plot_prediction(model, frame, y, "depth")
    with pytest.raises(ValueError, match="feature must be between 0 and 2; got 3"):
        plots.plot_prediction(model, frame, feature=3)


def test_around_a_single_value_the_picture_has_a_width(one_feature):
    assert plots.plot_prediction(one_feature, np.full((5, 1), 2.0)).get_xlim() == (1.0, 3.0)


def test_without_targets_there_are_no_dots(one_feature):
    ax = plots.plot_prediction(one_feature, data(20, 1, 1)[0])
    assert len(ax.collections) == 2
    assert ax.get_ylabel() == "y"
    assert ax.get_xlabel() == "x"


@pytest.mark.parametrize("conformal", [False, True])
def test_the_calibration_curve_passes_through_the_coverages_counted_by_hand(heavy_tails, conformal):
    x, y = data(150, 3, 1)
    y = np.sin(x[:, 0]) + 0.05 * y
    heavy_tails.set_params(likelihood__conformal=conformal)
    ax = plots.plot_calibration(heavy_tails, x, y)
    curve = line(ax, "150 rows")
    np.testing.assert_allclose(curve.get_xdata(), np.arange(1, 20) / 20)
    for level, share in zip(curve.get_xdata(), curve.get_ydata(), strict=True):
        lower, upper = heavy_tails.predict_interval(x, level).T
        assert share == pytest.approx(((lower <= y) & (y <= upper)).mean())
    assert f"95% intervals hold {curve.get_ydata()[-1]:.0%}" == ax.get_title(loc="left")
    heavy_tails.set_params(likelihood__conformal=False)


def test_the_band_of_the_calibration_is_binomial(fitted):
    x, y = data(60, 1)
    (band,) = bands(plots.plot_calibration(fitted, x, y))
    np.testing.assert_allclose(band.T, np.array(binom.interval(0.95, 60, np.arange(1, 20) / 20)) / 60)


def test_conformal_levels_that_too_few_rows_cannot_give_are_left_out():
    model = GWIRegressor("svgp", random_state=0, likelihood=Gaussian("constant", conformal=True)).fit(*data(9, 0))
    curve = line(plots.plot_calibration(model, *data(30, 1)), "30 rows")
    assert curve.get_xdata().max() == pytest.approx(0.9)


def test_of_a_classifier_the_reliability_diagram_is_drawn():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((500, 3))
    y = np.array(["no", "yes"])[(x[:, 0] + rng.standard_normal(500) > 0).astype(int)]
    model = LogisticRegression().fit(x[:200], y[:200])
    ax = plots.plot_calibration(model, x[200:], y[200:])
    curve = line(ax, "300 rows")
    probabilities = model.predict_proba(x[200:])
    confidence, hit = probabilities.max(1), model.predict(x[200:]) == y[200:]
    inside = (confidence > 8 / 15) & (confidence <= 9 / 15)
    place = np.flatnonzero(np.isclose(curve.get_xdata(), confidence[inside].mean()))
    assert len(place) == 1
    assert curve.get_ydata()[place[0]] == pytest.approx(hit[inside].mean())
    scores = score_classes(probabilities, (y[200:] == "yes").astype(int))
    assert ax.get_title(loc="left") == f"accuracy {scores.accuracy:.1%}, calibration error {scores.ece:.1%}"
    with pytest.raises(ValueError, match="classes that the model does not know: maybe"):
        plots.plot_calibration(model, x[:2], np.array(["yes", "maybe"]))


@pytest.mark.parametrize("name", [name for name in PLOTS if name != "plot_calibration"])
def test_pictures_of_a_number_refuse_classifiers_and_strangers(name, fitted):
    x, y = data(20, 1)
    with pytest.raises(TypeError, match=f"{name} draws the distribution of a number, and LogisticRegression predicts classes"):
        draw(name, LogisticRegression().fit(x, y > 5), x, y > 5)
    with pytest.raises(TypeError, match=r"got Pipeline\. Of a pipeline, pass its last step"):
        draw(name, make_pipeline(fitted), x, y)
    with pytest.raises(ValueError, match="not fitted"):
        draw(name, GWIRegressor(), x, y)
    assert plt.get_fignums() == []


@pytest.mark.parametrize("name", WITH_TARGETS)
def test_targets_that_do_not_fit_the_rows_are_refused(name, fitted):
    x, y = data(20, 1)
    with pytest.raises(ValueError, match=r"20 rows with 1 target\(s\) were expected; y has the shape \(19,\)"):
        draw(name, fitted, x, y[:19])


def test_the_histogram_counts_every_row_under_the_models_own_law(heavy_tails):
    x, y = data(150, 3, 1)
    y = np.sin(x[:, 0]) + 0.05 * y
    ax = plots.plot_pit(heavy_tails, x, y, num_bins=8)
    heights = [bar.get_height() for bar in ax.containers[0]]
    assert sum(heights) == 150
    mean, std = heavy_tails.predict(x, return_std=True)
    degrees = heavy_tails.model_.degrees_of_freedom[0]
    pit = t.cdf((y - mean) / std * np.sqrt(degrees / (degrees - 2)), degrees)
    np.testing.assert_array_equal(heights, np.histogram(pit, 8, (0, 1))[0])
    assert line(ax, "expected").get_ydata()[0] == 150 / 8


def test_the_spectrum_is_that_of_the_cross_term_of_the_distance(fitted):
    x, _ = data(50, 1)
    ax = plots.plot_spectrum(fitted, x)
    values = line(ax, "eigenvalue λᵢ").get_ydata()
    assert len(values) == 50
    assert (np.diff(values) <= 0).all()
    rows = fitted.model_.scales.rows(x, "cpu")
    q = GaussianMeasure(None, fitted.posterior_.kernel)
    p = GaussianMeasure(None, fitted.posterior_.kernel.prior_kernel)
    with torch.no_grad():
        traces = p.factor(rows).square().sum() / 50 + q.factor(rows)[0].square().sum() / 50
        cross = (traces - wasserstein_squared(p, q, rows)[0]) / 2
    assert np.sqrt(values).sum() == pytest.approx(float(cross), rel=1e-6)
    roots = np.sqrt(values)
    np.testing.assert_allclose(
        line(ax, "share of Σ √λ beyond i").get_ydata()[:20], (1 - roots.cumsum() / roots.sum())[:20], rtol=1e-6
    )


def test_only_as_many_eigenvalues_as_asked_for_from_as_many_rows(fitted):
    ax = plots.plot_spectrum(fitted, data(60, 1)[0], num_eigenvalues=7, max_rows=20)
    assert len(line(ax, "eigenvalue λᵢ").get_ydata()) == 7
    assert ax.get_yscale() == "log"


def test_the_map_shows_the_standard_deviation_of_f_and_every_row(fitted):
    x, _ = data(60, 1)
    ax = plots.plot_uncertainty_map(fitted, x, (1, 0), num_points=12, margin=0.0)
    mesh, dots = ax.collections[:2]
    first, second = (np.linspace(x[:, d].min(), x[:, d].max(), 12) for d in (1, 0))
    grid = np.array([(b, a) for b in second for a in first])
    expected = np.sqrt(fitted.decompose(grid).epistemic)
    np.testing.assert_allclose(np.ravel(mesh.get_array()), expected)
    np.testing.assert_allclose(dots.get_offsets(), x[:, ::-1])
    assert ax.figure.axes[1].get_ylabel() == "std of f (unit of y)"
    with pytest.raises(ValueError, match="two different features"):
        plots.plot_uncertainty_map(fitted, x, (1, 1))


def test_errors_are_binned_by_equally_many_rows_and_expected_from_the_law(fitted):
    x, y = data(90, 1)
    ax = plots.plot_errors(fitted, x, y, num_bins=5)
    mean, std = fitted.predict(x, return_std=True)
    error = np.abs(y - mean)
    curve = line(ax, "median found")
    order = np.argsort(std)
    np.testing.assert_allclose(curve.get_xdata(), np.median(std[order].reshape(5, 18), axis=1))
    np.testing.assert_allclose(curve.get_ydata(), np.median(error[order].reshape(5, 18), axis=1))
    expected = line(ax, "expected median")
    np.testing.assert_allclose(expected.get_ydata() / expected.get_xdata(), norm.ppf(0.75))
    # Of 18 rows the median's rank is binomial: between the 5th and the 13th.
    strokes = np.array([path.vertices[:, 1] for path in ax.collections[0].get_paths()])
    ranks = np.array(binom.interval(0.95, 18, 0.5)) / 18
    np.testing.assert_allclose(strokes, norm.ppf((1 + ranks) / 2) * curve.get_xdata()[:, None])


def test_bins_of_the_errors_have_at_least_ten_rows(fitted):
    curve = line(plots.plot_errors(fitted, *data(35, 1)), "median found")
    assert len(curve.get_xdata()) == 3


def test_expected_errors_follow_the_tails(heavy_tails):
    x, y = data(50, 1, 1)
    expected = line(plots.plot_errors(heavy_tails, x, y), "expected median")
    degrees = heavy_tails.model_.degrees_of_freedom[0]
    draws = t.rvs(degrees, size=400_000, random_state=0) * np.sqrt((degrees - 2) / degrees)
    np.testing.assert_allclose(expected.get_ydata() / expected.get_xdata(), np.median(np.abs(draws)), rtol=0.01)


def test_standard_deviations_that_hardly_differ_make_one_bin(one_feature):
    x = np.linspace(-1, 1, 30)[:, None]
    curve = line(plots.plot_errors(one_feature, np.repeat(x[:1], 30, 0), x[:, 0]), "median found")
    assert len(curve.get_xdata()) == 1


def test_coverage_by_prediction_is_counted_in_groups_of_equally_many_rows(fitted):
    x, y = data(100, 1)
    ax = plots.plot_coverage_by_prediction(fitted, x, y, num_groups=4)
    lower, upper = fitted.predict_interval(x, 0.95).T
    order = np.argsort(fitted.predict(x))
    inside = ((lower <= y) & (y <= upper))[order].reshape(4, 25)
    curve = line(ax, "found")
    np.testing.assert_allclose(curve.get_ydata(), inside.mean(1))
    np.testing.assert_allclose(curve.get_xdata(), np.median(fitted.predict(x)[order].reshape(4, 25), axis=1))
    strokes = np.array([path.vertices[:, 1] for path in ax.collections[0].get_paths()])
    np.testing.assert_allclose(strokes, [np.array(binom.interval(0.95, 25, 0.95)) / 25] * 4)
    assert len(line(plots.plot_coverage_by_prediction(fitted, x[:12], y[:12]), "found").get_xdata()) == 1


def test_targets_outside_of_their_interval_have_a_colour_of_their_own(fitted):
    x, y = data(100, 1)
    lower, upper = fitted.predict_interval(x, 0.95).T
    y[:5] = upper[:5] + 1
    ax = plots.plot_actual_vs_predicted(fitted, x, y)
    inside, outside = line(ax, "inside 95 % interval"), line(ax, "outside")
    assert set(outside.get_ydata()) == set(y[(y < lower) | (y > upper)])
    assert len(inside.get_xdata()) + len(outside.get_xdata()) == 100
    assert inside.get_color() != outside.get_color()


def test_rows_predicted_wrong_stand_below_those_predicted_right():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 2))
    y = (x[:, 0] + rng.standard_normal(300) > 0).astype(int)
    model = LogisticRegression().fit(x, y)
    ax = plots.plot_confidence(model, x, y)
    heights = {bars.get_label(): sum(bar.get_height() for bar in bars) for bars in ax.containers}
    hits = int((model.predict(x) == y).sum())
    assert heights == {"wrong": 300 - hits, "right": hits}
    wrong, right = ax.containers
    assert [bar.get_y() for bar in right] == [bar.get_height() for bar in wrong]
    # Above each bar its rows, wrong and right.
    assert sum(int(text.get_text() or 0) for text in ax.texts) == 300
    with pytest.raises(TypeError, match="takes a classifier with predict_proba; got GWIRegressor"):
        plots.plot_confidence(GWIRegressor(), x, y)


def test_outlier_scores_of_all_rows_are_counted(fitted):
    x, _ = data(60, 1)
    ax = plots.plot_outlier_scores(fitted, torch.from_numpy(x))
    assert [bar.get_height() for bar in ax.patches] == np.histogram(fitted.ood_score(x), 20, (0, 1))[0].tolist()


def test_scores_show_means_with_standard_errors_and_each_fold():
    scores = {"$a_{": np.array([1.0, 2.0, 4.0]), "b": np.array([2.0, np.nan, 3.0])}
    ax = plots.plot_scores(scores, best=("$a_{",), nominal=2.5)
    ax.figure.canvas.draw()
    assert [(text.get_text(), text.get_fontweight()) for text in ax.get_yticklabels()] == [("$a_{", "bold"), ("b", "normal")]
    (bar,) = ax.containers
    assert bar.lines[0].get_xdata() == pytest.approx(7 / 3)
    ends = bar.lines[2][0].get_segments()[0][:, 0]
    np.testing.assert_allclose(np.diff(ends), 2 * np.std(scores["$a_{"], ddof=1) / np.sqrt(3))
    # A fold that failed leaves a method without a mean.
    assert [len(dots.get_xdata()) for dots in ax.get_lines() if dots.get_markersize() == 3.5] == [3, 2]
    times = plots.plot_scores({"a": np.array([0.02, 3.0])}, log=True)
    times.figure.canvas.draw()
    assert [text.get_text() for text in times.get_xticklabels() if 0.02 <= float(text.get_text()) <= 3] == [
        "0.03",
        "0.1",
        "0.3",
        "1",
        "3",
    ]


def test_numbers_are_written_for_readers():
    assert [shown(v) for v in (0.0, -1.5, 1234567.0, 1e-7, float("inf"), float("nan"))] == [
        "0",
        "−1.5",
        "1\u202f234\u202f567",
        "1 · 10⁻⁷",
        "∞",
        "–",
    ]
    assert [percent(v) for v in (1.0, 0.9999, 0.0, 0.0001, 0.5)] == ["100 %", "> 99 %", "0 %", "< 1 %", "50 %"]
    assert [tick(v) for v in (0.30000000000000004, -1000.25, 2e7, 5e-5)] == ["0.3", "−1\u202f000.25", "2 · 10⁷", "5 · 10⁻⁵"]


def test_of_many_rows_a_sample_is_drawn_and_all_are_counted(one_feature):
    x, y = data(1500, 4, 1)
    ax = plots.plot_prediction(one_feature, x, y)
    assert len(ax.collections[2].get_offsets()) == 1000
    assert sum(bar.get_height() for bar in plots.plot_pit(one_feature, x, y).containers[0]) == 1500


def test_importing_gwi_does_not_import_matplotlib():
    code = "import sys, gwi; assert 'matplotlib' not in sys.modules; from gwi import plots; assert 'matplotlib' in sys.modules"
    processes.run(["-c", code], check=True)


def test_the_pages_have_an_example_of_each_function():
    text = "".join((ROOT / "docs" / name).read_text() for name in ("plots.md", "plots-calibration.md"))
    assert [name for name in plots.__all__ if f"plots.{name}(" not in text] == []
