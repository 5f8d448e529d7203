"""Targets that a likelihood cannot take are refused in one sentence, at a fit, at an update and among validation rows."""

import math
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest

from gwi import GWIRegressor
from gwi.core.outcomes import Outcome
from gwi.estimators.number_targets import NumberTargets, finite_bounds
from gwi.parts.likelihoods import Beta, Censored, Poisson, Robust, StudentT
from target_cases import table

pytestmark = pytest.mark.unchecked
X = table("gaussian", 40)[0]
COUNTS, POSITIVE, SHARES = (table(name, 40)[1] for name in ("poisson", "gamma", "beta"))
BOUNDS = table("censored", 40)[1]
LEVELS = table("ordinal", 40)[1]


def put(values, place, value):
    found = np.array(values, dtype=object if isinstance(value, str) else np.float64)
    found[place] = value
    return found


def structured(events, times, names=("event", "time")):
    found = np.empty(len(times), dtype=[(names[0], np.asarray(events).dtype), (names[1], np.asarray(times).dtype)])
    found[names[0]], found[names[1]] = events, times
    return found


def sentence_of(likelihood, y, **more):
    """What is said, in one sentence or two; every error is the user's, not one from inside."""
    with pytest.raises(ValueError, match=r"\S") as caught:
        GWIRegressor("linear", likelihood=likelihood, random_state=0).fit(X, y, **more)
    said = str(caught.value)
    assert len(said) < 320
    assert not re.search(r"Traceback|tensor\(|shape mismatch|dimension", said)
    return said


KNOWN = np.isfinite(BOUNDS[:, 1])
LABELS = np.array(["a", "b"])[(LEVELS > 1) * 1]
REFUSED = {
    "a negative count": ("poisson", put(COUNTS, 3, -1.0), "whole numbers of at least 0; got -1, the first of 1 such"),
    "half a count": ("negative-binomial", put(COUNTS, 3, 0.5), "whole numbers of at least 0; got 0.5"),
    "a missing count": ("poisson", put(COUNTS, 3, np.nan), "y contains NaN"),
    "a missing count of pandas": ("poisson", pd.Series([None, *COUNTS[1:].astype(int)], dtype="Int64"), "NaN|missing"),
    "an infinite count": ("poisson", put(COUNTS, 3, np.inf), "infinity"),
    "text": ("poisson", put(COUNTS, 3, "many"), "got the text 'many'"),
    "no targets": ("poisson", None, "y"),
    "too few targets": ("poisson", COUNTS[:-1], "inconsistent|as many"),
    "a zero that is to be positive": ("gamma", put(POSITIVE, 2, 0.0), "is positive; got 0"),
    "a negative logarithm": ("log-normal", put(POSITIVE, 2, -1.0), "is positive; got -1"),
    "a share above one": ("beta", put(SHARES, 3, 1.2), "must be between 0 and 1; got 1.2"),
    "bounds that are none": (Beta(1, 0), SHARES, "the first below the second"),
    "one level": ("ordinal", np.full(40, 3.0), "two to 20 different values; the target has 1"),
    "too many levels": ("few-valued", np.arange(40.0), "two to 20 different values; the target has 40"),
    "levels as text": ("ordinal", LABELS, "an ordered categorical"),
    "levels without an order": ("ordinal", pd.Series(pd.Categorical(LABELS)), "an ordered categorical"),
    "a missing level": ("ordinal", pd.Categorical([None, *LABELS[1:]], ordered=True), "1 targets have no level"),
    "levels as numbers": ("gaussian", pd.Categorical(LABELS, ordered=True), 'likelihood="ordinal"'),
    "levels as counts": ("poisson", pd.Series(pd.Categorical(LABELS, ordered=True)), 'likelihood="ordinal"'),
    "bounds in the wrong order": ("censored", BOUNDS[:, ::-1], "is a pair .lower bound, upper bound.; in row"),
    "three bounds": ("censored", np.column_stack([BOUNDS, POSITIVE]), "two columns; got 3"),
    "a missing bound": ("censored", put(BOUNDS, (3, 1), np.nan), "y contains NaN"),
    "nothing that is known": ("censored", np.column_stack([POSITIVE, np.full(40, np.inf)]), "the spread cannot be learned"),
    "a row without bounds": ("censored", put(BOUNDS, 3, [-np.inf, np.inf]), "1 targets have no bound at all"),
    "negative times": (Censored(log=True), BOUNDS - 100, "needs positive numbers"),
    "events as text": (
        "censored",
        structured(np.where(KNOWN, "yes", "no"), BOUNDS[:, 0]),
        r"the event happened \(bool\).*event \(<U3\)",
    ),
    "events as numbers": ("censored", structured(KNOWN * 1, BOUNDS[:, 0]), r"the event happened \(bool\).*event \(int64\)"),
    "events for another likelihood": ("poisson", structured(KNOWN, BOUNDS[:, 0]), 'targets of likelihood="censored"'),
    "several counts": ("poisson", np.column_stack([COUNTS, COUNTS]), "of one target; got 2"),
    "several shares": ("beta", np.column_stack([SHARES, SHARES]), "of one target; got 2"),
    "several levels": ("ordinal", np.column_stack([LEVELS, LEVELS]), "of one target; got 2"),
    "several with wrong values": ("robust", np.column_stack([POSITIVE, POSITIVE]), "of one target; got 2"),
    "a misspelt likelihood": ("poison", COUNTS, "got 'poison'"),
    "a class in the place of an object": (Poisson, COUNTS, "such as gwi.Poisson"),
    "an option that is none": (Robust("alpha"), POSITIVE, "divergence must be"),
    "a power that is none": (Robust(power=0.0), POSITIVE, "power must be a positive number"),
    "tails without a variance": (StudentT(degrees_of_freedom=2.0), POSITIVE, "must be above 2"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_targets_that_make_no_sense_are_refused_in_a_sentence(case):
    likelihood, y, said = REFUSED[case]
    assert re.search(said, sentence_of(likelihood, y)), sentence_of(likelihood, y)


def test_weights_that_make_no_sense_are_refused_in_a_sentence():
    assert "non-zero" in sentence_of("poisson", COUNTS, sample_weight=np.zeros(40))
    assert "Negative values" in sentence_of("poisson", COUNTS, sample_weight=-np.ones(40))


@pytest.mark.parametrize(
    ("likelihood", "y", "wrong", "said"),
    [
        ("poisson", COUNTS, [-1.0], "whole numbers of at least 0; got -1"),
        ("gamma", POSITIVE, [0.0], "numbers above 0; got 0"),
        ("log-normal", POSITIVE, [-1.0], "not positive, the first is -1"),
        ("beta", SHARES, [1.0], "strictly between 0 and 1; got 1"),
        ("ordinal", LEVELS, [7.0], "the values 0, 1, 2, 3; got 7"),
        ("censored", BOUNDS, [[2.0, 1.0]], "is a pair"),
    ],
)
def test_targets_of_an_update_and_of_validation_rows_are_looked_at_too(likelihood, y, wrong, said):
    model = GWIRegressor("linear", likelihood=likelihood, random_state=0)
    with pytest.raises(ValueError, match=said):
        model.fit(X, y, validation=(X[:1] + 0.1, np.array(wrong)))
    model.fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match=said):
        model.update(X[:1], np.array(wrong))
    np.testing.assert_array_equal(model.predict(X), before)
    if likelihood != "censored":
        # They have no probability.
        assert model.nll(X[:1], np.array(wrong)) == math.inf


@pytest.mark.parametrize("likelihood", ["gaussian", "student-t", "log-normal", "gamma", "poisson", "negative-binomial", "robust"])
def test_a_target_that_does_not_vary_is_learned(likelihood):
    model = GWIRegressor("linear", likelihood=likelihood, random_state=0).fit(X, np.full(40, 3.0))
    np.testing.assert_allclose(model.predict(X), 3.0, atol=0.2)
    assert np.isfinite(model.predict_interval(X)).all()


def test_counts_that_are_all_zero_are_learned():
    for likelihood in ("poisson", "negative-binomial"):
        model = GWIRegressor("linear", likelihood=likelihood, random_state=0).fit(X, np.zeros(40))
        assert (model.predict(X) < 0.2).all()
        np.testing.assert_array_equal(model.predict_interval(X), 0.0)


def test_numbers_come_in_any_container():
    expected = GWIRegressor("linear", likelihood="poisson", random_state=0).fit(X, COUNTS).predict(X)
    whole = COUNTS.astype(int)
    for y in (
        list(whole),
        pd.Series(whole, dtype="Int64"),
        pl.Series(whole),
        whole.astype(np.int8),
        pd.Series(COUNTS, index=X[:, 0]),
    ):
        np.testing.assert_array_equal(GWIRegressor("linear", likelihood="poisson", random_state=0).fit(X, y).predict(X), expected)
    binary = GWIRegressor("linear", likelihood="poisson", random_state=0).fit(X, whole > 2).predict(X)
    assert binary.shape == (40,)


def test_times_and_bounds_come_in_any_container():
    def prediction(y):
        return GWIRegressor("linear", likelihood=Censored(shape="normal"), random_state=0).fit(X, y).predict(X)

    expected, time = prediction(BOUNDS), BOUNDS[:, 0]
    frame = pd.DataFrame({"died": KNOWN, "days": time})
    for y in (
        structured(KNOWN, time),
        structured(time, KNOWN, ("days", "died")),
        structured(KNOWN, time).view(np.recarray),
        frame,
        frame[["days", "died"]],
        pl.from_pandas(frame),
        pd.DataFrame(BOUNDS, columns=["from", "to"]),
        pl.DataFrame({"from": BOUNDS[:, 0], "to": BOUNDS[:, 1]}),
        [tuple(row) for row in BOUNDS],
    ):
        found = NumberTargets(are_bounds=True).encode(y)
        np.testing.assert_array_equal(found, finite_bounds(BOUNDS))
    np.testing.assert_allclose(prediction(frame), expected, rtol=1e-12)
    np.testing.assert_allclose(prediction(structured(KNOWN, time)), expected, rtol=1e-12)
    # Numbers that are all known are their own bounds.
    np.testing.assert_array_equal(NumberTargets(are_bounds=True).encode(POSITIVE), np.column_stack([POSITIVE, POSITIVE]))
    assert np.isfinite(prediction(POSITIVE)).all()


def test_levels_come_as_an_enum_of_polars():
    names = ["none", "some", "many", "all"]
    text = np.array(names)[LEVELS.astype(int)]
    enum = pl.Series(text, dtype=pl.Enum(names))
    categorical = pd.Categorical(text, categories=names, ordered=True)
    model = GWIRegressor("linear", likelihood="ordinal", random_state=0)
    np.testing.assert_array_equal(model.fit(X, enum).predict(X), model.fit(X, categorical).predict(X))
    with pytest.raises(ValueError, match="1 targets have no level"):
        model.fit(X, pl.Series([None, *text[1:]], dtype=pl.Enum(names)))


def test_logarithms_refuse_what_has_none_whatever_its_shape():
    for y in (np.array([1.0, -2.0]), np.array([[1.0], [-2.0]]), np.array([[1.0, 3.0, -2.0]])):
        with pytest.raises(ValueError, match="1 values are not positive, the first is -2"):
            Outcome(log=True).encode(y)
    np.testing.assert_array_equal(Outcome(log=True).encode(np.array([[0.0, 1.0]])), [[-math.inf, 0.0]])
    with pytest.raises(ValueError, match="the first is 0"):
        Outcome(log=True).encode(np.array([[0.0, 0.0]]))
