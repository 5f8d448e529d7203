"""Sets of labels and intervals by stratum: the rows that make them, their coverage, files, mistakes."""

import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy.stats import betabinom
from sklearn.linear_model import LogisticRegression
from torch.utils.data import DataLoader, TensorDataset

from class_data import small_images
from gwi import Censored, Covariance, GWIClassifier, GWIRegressor, Joint, Paper, Poisson, load
from gwi.core.distributions import conformal_quantile
from gwi.core.networks import mlp
from gwi.exceptions import GWIWarning, ModelFileError
from gwi.models.strata import LabelScores, Strata, ascending, quantile_of, reaches
from gwi.storage.container import from_bytes, to_bytes

pytestmark = [pytest.mark.unchecked, pytest.mark.filterwarnings("error::gwi.exceptions.GWIWarning")]

NAMES = np.array(["ash", "birch", "cedar"])
REGIONS = np.array(["east", "north", "south"])


def labelled(num_rows, seed=0):
    """Three classes that overlap, most of all in the north, and a region of each row."""
    rng = np.random.default_rng(seed)
    x, region = rng.normal(size=(num_rows, 2)), REGIONS[rng.choice(3, num_rows, p=[0.4, 0.3, 0.3])]
    noise = np.where(region == "north", 1.5, 0.4)
    shifted = x[:, 0] + noise * rng.normal(size=num_rows)
    return x, NAMES[(shifted > -0.5).astype(int) + (shifted > 1.2)], region


def numbers(num_rows, seed=0):
    """A line whose noise depends on the region, which is no column."""
    rng = np.random.default_rng(seed)
    x, region = rng.normal(size=(num_rows, 2)), REGIONS[rng.choice(3, num_rows, p=[0.4, 0.3, 0.3])]
    return x, x[:, 0] + np.where(region == "north", 2.0, 0.5) * rng.normal(size=num_rows), region


def chance(num_judged, num_new, coverage, level=0.998):
    """Between which numbers of new rows the count that is covered lies, by chance of the judging rows and of the new ones."""
    rank = math.ceil((num_judged + 1) * coverage)
    return betabinom.interval(level, num_new, rank, num_judged + 1 - rank)


@pytest.fixture(scope="module")
def judged():
    """A classifier that is taken as it is, judged on rows with regions."""
    x, y, region = labelled(700)
    mean = LogisticRegression().fit(x[:200], y[:200])
    model = GWIClassifier(mean, random_state=0)
    return model.fit(x[:200], y[:200], validation=(x[200:], y[200:]), strata=region[200:]), x[200:], y[200:], region[200:]


# Sets


@pytest.mark.parametrize("by_stratum", [False, True])
@pytest.mark.parametrize("by", [None, "class"])
def test_sets_are_those_of_loops_over_the_rows_that_judged(by, by_stratum, judged):
    model, x, y, region = judged
    new, _, new_region = labelled(60, seed=1)
    p_judged, p_new = model.predict_proba(x), model.predict_proba(new)
    found = model.predict_set(new, 0.85, by=by, strata=new_region if by_stratum else None)
    for i in range(len(new)):
        for j, name in enumerate(NAMES):
            alike = [
                1 - p_judged[k, list(NAMES).index(y[k])]
                for k in range(len(x))
                if (by is None or y[k] == name) and (not by_stratum or region[k] == new_region[i])
            ]
            limit = sorted(alike)[math.ceil((len(alike) + 1) * 0.85) - 1]
            assert found[i, j] == (1 - p_new[i, j] <= limit + 1e-12 or p_new[i, j] == max(p_new[i]))


def test_a_set_holds_the_most_probable_class_and_grows_with_the_coverage(judged):
    model = judged[0]
    new, _, _ = labelled(200, seed=1)
    best = np.searchsorted(NAMES, model.predict(new))
    smaller = model.predict_set(new, 0.05)
    assert smaller[np.arange(200), best].all()
    for coverage in (0.3, 0.6, 0.9, 0.99):
        larger = model.predict_set(new, coverage)
        assert (larger >= smaller).all()
        smaller = larger
    assert smaller.sum(1).mean() > 2
    assert smaller.dtype == np.bool_
    assert model.predict_set(torch.from_numpy(new)).dtype == torch.bool


@pytest.mark.parametrize("by", [None, "class"])
def test_sets_from_rows_in_folds_cover_what_they_promise_everywhere(by):
    x, y, region = labelled(800, seed=2)
    model = GWIClassifier("linear", random_state=0).fit(x, y, strata=region)
    new, labels, new_region = labelled(4000, seed=3)
    place = np.searchsorted(NAMES, labels)
    hit = model.predict_set(new, 0.9, by=by, strata=new_region)[np.arange(4000), place]
    for name in REGIONS:
        cells = [region == name] if by is None else [(region == name) & (y == label) for label in NAMES]
        tests = [new_region == name] if by is None else [(new_region == name) & (labels == label) for label in NAMES]
        for cell, test in zip(cells, tests, strict=True):
            low, high = chance(cell.sum(), test.sum(), 0.9)
            assert low <= hit[test].sum() <= high
    # Sets of all rows cover too little where rows are hard to tell.
    overall = model.predict_set(new, 0.9)[np.arange(4000), place]
    assert overall[new_region == "north"].mean() < 0.85


def test_with_too_few_rows_sets_hold_all_classes_and_a_warning_says_so():
    x, y, _ = labelled(30)
    model = GWIClassifier("linear", random_state=0).fit(x[:15], y[:15])
    with pytest.warns(
        GWIWarning, match=r"0\.95 needs 19 held-out rows, more than there are for the model \(15\): every set holds all"
    ):
        assert model.predict_set(x).all()
    model.predict_set(x, 0.9)


def test_a_rare_class_is_in_every_set_by_class():
    x, y, _ = labelled(300)
    y = np.where(np.arange(300) < 8, "yew", y)
    model = GWIClassifier("linear", random_state=0).fit(x, y)
    with pytest.warns(GWIWarning, match=r"more than there are for classes 'yew \(8\)': these are in every set"):
        assert model.predict_set(x, 0.95, by="class")[:, 3].all()


def test_weights_of_classes_are_not_those_of_rows_that_judge_and_weights_of_rows_are():
    x, y, _ = labelled(200)
    row_weight = np.where(x[:, 1] > 0, 3.0, 1.0)
    model = GWIClassifier("linear", class_weight="balanced", random_state=0).fit(x, y, sample_weight=row_weight)
    found = np.sort(model.model_.label_scores.weight.numpy())
    np.testing.assert_allclose(found, np.sort(row_weight) / row_weight.mean(), rtol=1e-10)


def test_robust_max_has_sets_too():
    x, y, _ = labelled(200)
    sets = GWIClassifier("svgp", likelihood="robust-max", random_state=0).fit(x, y).predict_set(x, 0.9)
    assert sets[np.arange(200), np.searchsorted(NAMES, y)].mean() > 0.85


# Quantiles


@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.95])
def test_a_quantile_is_the_conformal_one_and_weights_are_repeated_rows(coverage):
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(99, dtype=torch.float64, generator=generator).sort().values
    assert quantile_of(scores, coverage) == conformal_quantile(scores, coverage)
    assert quantile_of(scores[:1], coverage) == (float(scores[0]) if coverage == 0.5 else math.inf)
    assert quantile_of(scores[:0], coverage) == math.inf
    weight = torch.randint(1, 4, (99,), generator=generator).double()
    # The row to come counts as the mean of the weights.
    wanted = coverage * float(weight.sum() + weight.mean()) - 1e-9
    held = [float(score) for score in scores if float(weight[scores <= score].sum()) >= wanted]
    assert quantile_of(scores, coverage, weight) == held[0]


def test_scores_of_each_target_keep_their_strata_and_rows_count_as_often_as_they_stand_there():
    scores = torch.tensor([[0.3, 0.1, 0.2], [1.0, 3.0, 2.0]], dtype=torch.float64)
    strata = Strata.of(np.array(["b", "a", "b"]))
    values, kept = ascending(scores, strata, torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64))
    assert values.tolist() == [[0.1, 0.1, 0.2, 0.3], [1.0, 2.0, 3.0, 3.0]]
    assert kept.labels[kept.code.numpy()].tolist() == [["a", "a", "b", "b"], ["b", "b", "a", "a"]]


def test_rare_strata_reach_as_far_as_any_and_as_their_own_rows():
    scores = torch.tensor([[*np.linspace(0.01, 1, 40), *np.linspace(1, 2, 30), 1.5, 7.0]], dtype=torch.float64)
    strata = Strata.of(np.array(["a"] * 40 + ["b"] * 30 + ["c", "c"]))
    values, kept = ascending(scores, strata, torch.ones(72, dtype=torch.float64))
    a, b, c, unknown = reaches(values, kept, 0.9)[0]
    assert (a, b) == (pytest.approx(np.linspace(0.01, 1, 40)[36]), pytest.approx(np.linspace(1, 2, 30)[27]))
    assert c == unknown == 7.0
    labels = LabelScores(values[0] / 10, kept.code[0] % 2, torch.ones(72, dtype=torch.float64), Strata(kept.labels, kept.code[0]))
    limits = labels.limits(0.9, 2, by_class=False, by_stratum=True)
    np.testing.assert_allclose(limits[:, 0], np.array([a, b, c, unknown]) / 10)


# Intervals


@pytest.mark.parametrize("likelihood", ["gaussian", "student-t", "log-normal", "gamma", "robust"])
def test_intervals_of_strata_cover_what_they_promise_for_every_likelihood(likelihood):
    x, y, region = numbers(500)
    new, target, new_region = numbers(3000, seed=1)
    if likelihood in ("log-normal", "gamma"):
        y, target = np.exp(y / 3), np.exp(target / 3)
    model = GWIRegressor("linear", likelihood=likelihood, random_state=0).fit(x, y, strata=region)
    low, high = model.predict_interval(new, 0.9, strata=new_region).T
    for name in REGIONS:
        least, most = chance((region == name).sum(), (new_region == name).sum(), 0.9)
        assert least <= ((low <= target) & (target <= high))[new_region == name].sum() <= most


def test_intervals_of_counts_hold_at_least_what_they_promise():
    rng = np.random.default_rng(0)
    region = REGIONS[rng.integers(3, size=1500)]
    x = np.column_stack([rng.normal(size=1500), region == "north"])
    y = rng.poisson(np.exp(0.3 * x[:, 0] + 2 * x[:, 1]))
    model = GWIRegressor("linear", likelihood=Poisson(), random_state=0).fit(x[:500], y[:500], strata=region[:500])
    low, high = model.predict_interval(x[500:], 0.9, strata=region[500:]).T
    for name in REGIONS:
        own = region[500:] == name
        hit = ((low <= y[500:]) & (y[500:] <= high))[own].sum()
        assert hit >= chance((region[:500] == name).sum(), own.sum(), 0.9)[0]
    # Most of the small counts are zero, which says nothing of how far up an interval must reach.
    assert np.median((high - low)[region[500:] != "north"]) <= 4


@pytest.mark.parametrize("likelihood", ["poisson", "ordinal"])
def test_the_distance_of_a_count_is_the_least_share_whose_interval_holds_it(likelihood):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 1))
    y = np.minimum(rng.poisson(np.exp(0.5 * x[:, 0])), 3)
    fitted = GWIRegressor("linear", likelihood=likelihood, random_state=0).fit(x, y).model_
    parts = fitted.parts(x[:40])
    distance = fitted.distances_of(parts, y[None, :40].astype(float))[0]
    for share in np.linspace(0.0, 0.99, 34):
        low, high = (ends[0] for ends in fitted.interval_within(parts, np.array([share])))
        clear = np.abs(distance - share) > 1e-5
        np.testing.assert_array_equal(((low <= y[:40]) & (y[:40] <= high))[clear], (distance <= share)[clear])
    assert (np.array([fitted.interval_within(parts, np.array([d]))[1][0][i] for i, d in enumerate(distance)]) >= y[:40]).all()


def test_an_interval_is_the_mean_and_the_quantile_of_the_scores_of_its_stratum():
    x, y, region = numbers(200)
    model = GWIRegressor("linear", random_state=0).fit(x, np.column_stack([y, 3 * x[:, 1] + y]), strata=region)
    mean, std = model.predict(x[:9], return_std=True)
    found = model.predict_interval(x[:9], 0.8, strata=region[:9])
    fitted = model.model_
    for i in range(9):
        for j in range(2):
            code = list(REGIONS).index(region[i])
            own = sorted(float(s) for s, c in zip(fitted.scores[j], fitted.strata.code[j], strict=True) if c == code)
            reach = own[math.ceil((len(own) + 1) * 0.8) - 1] * std[i, j]
            np.testing.assert_allclose(found[i, j], [mean[i, j] - reach, mean[i, j] + reach], rtol=1e-9)


def test_one_stratum_is_the_conformal_interval_and_strata_change_no_prediction():
    x, y, region = numbers(150)
    alone = GWIRegressor("linear", likelihood="gaussian", random_state=0).fit(x, y, strata=np.zeros(150, dtype=int))
    by_region = GWIRegressor("linear", likelihood="gaussian", random_state=0).fit(x, y, strata=region)
    np.testing.assert_array_equal(alone.predict_interval(x), by_region.predict_interval(x))
    conformal = GWIRegressor("linear", likelihood="gaussian", random_state=0).set_params(likelihood__conformal=True).fit(x, y)
    np.testing.assert_array_equal(alone.predict_interval(x, strata=[0] * 150), conformal.predict_interval(x))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_strata_may_be_a_column_of_a_frame(frame, tmp_path):
    x, y, region = numbers(200)
    table = frame({"a": x[:, 0], "b": x[:, 1], "region": region})
    model = GWIRegressor("linear", random_state=0).fit(table, y, strata="region")
    found = model.predict_interval(table, 0.9, strata="region")
    np.testing.assert_array_equal(found, model.predict_interval(table, 0.9, strata=region))
    half = GWIRegressor("linear", random_state=0).fit(table[:100], y[:100], strata="region")
    assert half.model_.strata.labels.tolist() == REGIONS.tolist()
    np.testing.assert_array_equal(load(model.save(tmp_path / "m.gwi")).predict_interval(table, 0.9, strata="region"), found)


def test_strata_of_images_are_those_of_the_validation_rows():
    x, y, network = small_images()
    kind = np.arange(200) % 2
    model = GWIClassifier(network, covariance=Covariance(num_inducing=20), random_state=0)
    model.fit(x[:100], y[:100], validation=(x[300:500], y[300:500]), strata=kind)
    scores = model.model_.label_scores
    by_hand = 1 - model.predict_proba(x[300:500])[np.arange(200), y[300:500]]
    for code in (0, 1):
        np.testing.assert_allclose(scores.score[scores.strata.code == code], np.sort(by_hand[kind == code]), atol=1e-6)


# New and rare strata


def test_rows_of_new_strata_get_the_widest_answers_and_a_warning_names_them(judged):
    model, x, _, _ = judged
    each = [model.predict_set(x[:50], 0.9, strata=[name] * 50) for name in REGIONS]
    with pytest.warns(GWIWarning, match=r"50 of 50 rows are of strata that the fit has not seen \('west'\): they get the widest"):
        found = model.predict_set(x[:50], 0.9, strata=["west"] * 50)
    np.testing.assert_array_equal(found, np.any(each, axis=0))
    numbers_model = GWIRegressor("linear", random_state=0).fit(*numbers(200)[:2], strata=numbers(200)[2])
    width = [np.diff(numbers_model.predict_interval(x[:5], 0.9, strata=[name] * 5))[:, 0] for name in REGIONS]
    with pytest.warns(GWIWarning, match="'west'"):
        widest = np.diff(numbers_model.predict_interval(x[:5], 0.9, strata=np.array(["west"] * 4 + [None], dtype=object)))[:, 0]
    np.testing.assert_allclose(widest, np.max(width, axis=0))


def test_a_rare_stratum_is_named_when_its_rows_are_predicted_and_only_then():
    x, y, region = numbers(300)
    region = np.where(np.arange(300) < 6, "islet", region)
    model = GWIRegressor("linear", random_state=0).fit(x, y, strata=region)
    model.predict_interval(x[6:], 0.9, strata=region[6:])
    with pytest.warns(GWIWarning, match=r"0\.9 needs 9 held-out rows, more than there are for strata 'islet \(6\)'"):
        narrow, rare = np.diff(model.predict_interval(x[[7, 7]], 0.9, strata=["east", "islet"]))[:, 0]
    assert rare > narrow
    model.predict_interval(x[:6], 0.8, strata=region[:6])


def test_too_few_rows_for_any_stratum_are_refused():
    x, y, region = numbers(12)
    few = GWIRegressor("linear", random_state=0).fit(x, y, strata=region)
    with pytest.warns(GWIWarning, match="needs 19"), pytest.raises(ValueError, match="at least 19 held-out rows"):
        few.predict_interval(x, 0.95, strata=region)


# Files


def test_a_file_keeps_sets_and_strata_and_no_order_of_rows(judged, tmp_path):
    model, x, _, region = judged
    again = load(model.save(tmp_path / "m.gwi"))
    for options in ({}, {"by": "class"}, {"strata": region}, {"by": "class", "strata": region}):
        np.testing.assert_array_equal(again.predict_set(x, 0.9, **options), model.predict_set(x, 0.9, **options))
    assert (again.model_.label_scores.score.diff() >= 0).all()


def edited(path, change):
    document, tensors = from_bytes(path.read_bytes())
    change(document["model"], tensors)
    path.write_bytes(to_bytes(document, tensors))
    return path


def test_files_without_scores_of_labels_still_load(judged, tmp_path):
    path = edited(judged[0].save(tmp_path / "m.gwi"), lambda model, _: model.pop("label_scores"))
    with pytest.raises(ValueError, match="no scores of held-out rows"):
        load(path).predict_set(judged[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model, tensors: tensors["label_scores.label"].add_(2), "of other classes"),
        (lambda model, tensors: tensors["label_scores.score"].neg_(), "ascending order"),
        (lambda model, tensors: tensors["label_scores.weight"].neg_(), "no weights"),
        (lambda model, tensors: tensors["strata"].add_(1), "without a name"),
        (lambda model, tensors: tensors["strata"].sub_(1), "do not fit"),
        (lambda model, tensors: tensors.update(strata=tensors["strata"][1:]), "do not fit"),
    ],
)
def test_altered_scores_are_refused(change, message, judged, tmp_path):
    path = edited(judged[0].save(tmp_path / "m.gwi"), change)
    with pytest.raises(ModelFileError, match=message):
        load(path)


# Mistakes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coverage": 1.0}, "strictly between 0 and 1"),
        ({"by": "row"}, 'by must be "class" or None'),
        ({"strata": ["east"]}, "one value for each of the 500 rows"),
        ({"strata": "region"}, "names a column, and the rows are not a data frame"),
    ],
)
def test_mistakes_of_predictions_are_one_clear_sentence(options, message, judged):
    with pytest.raises(ValueError, match=message):
        judged[0].predict_set(judged[1], **options)


def test_strata_that_the_fit_did_not_have_are_refused():
    x, y, region = numbers(60)
    with pytest.raises(ValueError, match="was fitted without strata"):
        GWIRegressor("linear", random_state=0).fit(x, y).predict_interval(x, strata=region)


@pytest.mark.parametrize(
    ("model", "strata", "message"),
    [
        (GWIRegressor("linear"), ["a"], "one value for each of the 60 rows"),
        (GWIRegressor("linear"), [None] + ["a"] * 59, "missing in 1 rows, the first is 0"),
        (GWIRegressor("linear"), [float("nan")] + [1.0] * 59, "missing in 1 rows"),
        (GWIRegressor("linear"), np.array([1] + ["a"] * 59, dtype=object), "strata must be all numbers or all text"),
        (GWIRegressor("linear", likelihood=Censored()), ["a"] * 60, "whose targets are known"),
        (GWIRegressor(Paper("svgp")), ["a"] * 60, "leave it out"),
    ],
    ids=str,
)
def test_strata_that_a_fit_cannot_keep_are_refused(model, strata, message):
    x, y, _ = numbers(60)
    target = np.column_stack([y, y]) if isinstance(model.likelihood, Censored) else y
    with pytest.raises(ValueError, match=message):
        model.fit(x, target, strata=strata)


def test_strata_of_a_stream_are_refused():
    x, y, region = numbers(60)
    loader = DataLoader(TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), batch_size=7)
    with pytest.raises(ValueError, match="names a column, and the rows are not a data frame"):
        GWIRegressor("linear").fit(loader, strata="region")
    module = Joint(mlp(2, 3), max_epochs=1)
    with pytest.raises(ValueError, match="belongs to the validation rows"):
        GWIClassifier(module).fit(x, np.searchsorted(REGIONS, region), strata=region)
