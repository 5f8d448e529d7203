"""What a user brings by mistake is refused in one sentence that says what to do."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import Ridge

from gwi import GWIClassifier, GWIRegressor
from gwi.estimators.inputs import checked_rows, is_ready
from waves import wave

pytestmark = pytest.mark.unchecked


@pytest.mark.parametrize(
    "pair",
    [
        (np.arange(10), np.arange(10, 25)),
        (np.arange(10), -np.arange(1, 5)),
        (np.arange(10) + 0.5, np.arange(10, 20)),
        (np.arange(10), np.array([], dtype=int)[None]),
        (np.zeros(3, dtype=bool), np.arange(10, 20)),
        ("a", "b"),
        (3, None),
    ],
)
def test_folds_that_name_no_rows_are_refused(pair):
    with pytest.raises(ValueError, match="cv's fold 0 must name rows by whole numbers from 0 to 19, or by a bool for each"):
        GWIRegressor("svgp", cv=[pair]).fit(*wave(20))


def test_folds_may_name_rows_by_bools():
    x, y = wave(20)
    first = np.arange(20) < 10
    by_bool = GWIRegressor(Ridge(), cv=[(first, ~first), (~first, first)], random_state=0).fit(x, y)
    by_number = GWIRegressor(Ridge(), cv=[(range(10), range(10, 20)), (range(10, 20), range(10))], random_state=0).fit(x, y)
    np.testing.assert_array_equal(by_bool.predict(x, return_std=True), by_number.predict(x, return_std=True))


def test_groups_of_several_kinds_are_refused():
    mixed = np.array([None, "a", 3, "b"] * 5, dtype=object)
    with pytest.raises(ValueError, match="groups must be all numbers or all text; got NoneType and int and str"):
        GWIRegressor("svgp").fit(*wave(20), groups=mixed)


def test_labels_of_several_kinds_are_refused():
    x, _ = wave(20)
    with pytest.raises(ValueError, match="Labels must be all numbers or all text; got int and str"):
        GWIClassifier("svgp").fit(x, np.array([1, "a"] * 10, dtype=object))
    model = GWIClassifier("linear").fit(x, np.array(["a", "b"] * 10))
    with pytest.raises(ValueError, match="Labels must be all numbers or all text; got NoneType and str"):
        model.nll(x[:2], np.array([None, "a"], dtype=object))


def test_missing_labels_of_a_data_frame_are_refused():
    labels = pd.Series(["a", None] * 10).convert_dtypes()
    with pytest.raises(ValueError, match=r"y has missing values, pandas\.NA; leave out the rows"):
        GWIClassifier("svgp").fit(wave(20)[0], labels)


def test_labels_are_shown_as_a_user_writes_them():
    x, _ = wave(20)
    with pytest.raises(ValueError, match="got one class, 'only'"):
        GWIClassifier("svgp").fit(x, np.array(["only"] * 20))


@pytest.mark.parametrize("unseen", [([[0.1], [0.2]], [1e200, 1.0]), ([[1e200], [0.2]], [1.0, 1.0])])
def test_judging_rows_beyond_all_others_are_refused(unseen):
    with pytest.raises(ValueError, match=r"The mean 'Ridge' is wrong by .* standard deviations .* look for extreme values"):
        GWIRegressor(Ridge()).fit(*wave(20), validation=unseen)


@pytest.fixture(scope="module")
def known():
    return GWIRegressor("svgp", random_state=0).fit(*wave(30))


def test_rows_that_are_ready_pass_as_they_are_and_all_others_are_looked_at(known):
    x = wave(30)[0]
    assert is_ready(known, x)
    assert checked_rows(known, x) is x
    others = [x.astype(np.float32), x[::2], x.tolist(), x[:0], x[0], np.ma.array(x), np.hstack([x, x])]
    assert not any(is_ready(known, rows) for rows in others)
    for rows in (x.astype(np.float32), x[::2], x.tolist(), np.ma.array(x)):
        np.testing.assert_allclose(checked_rows(known, rows), np.asarray(rows), rtol=1e-6)
    tensor = torch.from_numpy(x)
    assert checked_rows(known, tensor).__array_interface__["data"] == x.__array_interface__["data"]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_with_missing_or_infinite_values_are_refused_in_the_same_words(known, bad):
    x = wave(30)[0].copy()
    x[3, 0] = bad
    said = "Input X contains NaN" if np.isnan(bad) else "Input X contains infinity or a value too large"
    for rows in (x, x[3:4].copy(), torch.from_numpy(x), pd.DataFrame(x)):
        with pytest.raises(ValueError, match=said if not isinstance(rows, pd.DataFrame) else "NaN|infinity"):
            known.predict(rows)


def test_rows_of_another_width_are_refused_in_the_same_words(known):
    with pytest.raises(ValueError, match="X has 3 features, but GWIRegressor is expecting 1 features as input"):
        known.predict(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="Found array with 0 sample"):
        known.predict(np.zeros((0, 1)))


def test_only_ready_rows_of_a_model_without_an_encoder_are_taken_as_they_are():
    x, y = wave(30)
    model = GWIRegressor("svgp", random_state=0).fit(pd.DataFrame({"a": x[:, 0], "b": ["u", "v", "w"] * 10}), y)
    assert not is_ready(model, np.zeros((2, model.n_features_in_)))
