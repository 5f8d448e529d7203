"""Trees as plain arrays predict what scikit-learn predicts, to the last bit."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import (
    AdaBoostRegressor,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Lars, LinearRegression
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

from gwi.predictors.linear import plain_predictor
from gwi.predictors.trees import Trees, plain_trees
from tree_cases import ALL, MULTI, fitted, table, walked


def same_bits(a, b):
    """Whether the predictions (N, J) are those of an estimator, which have one axis when J is one."""
    return a.dtype == b.dtype == np.float64 and a.shape == b.reshape(len(b), -1).shape and a.tobytes() == b.tobytes()


def there_and_back(held):
    return Trees.from_arrays(held.arrays())


def agrees(estimator, x):
    held = plain_trees(estimator)
    expected = estimator.predict(x)
    return same_bits(held.predict(x), expected) and same_bits(there_and_back(held).predict(x), expected)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("num_rows", "num_features"), [(21, 1), (200, 4), (400, 13)])
def test_predictions_equal_those_of_the_estimator_to_the_last_bit(name, num_rows, num_features):
    estimator = fitted(name, num_rows, num_features)
    kind = "forest" if name in MULTI else "gradient-boosting" if name.startswith("gradient") else "histogram-boosting"
    assert plain_trees(estimator).kind == kind
    for num_new in (1, 7, 500):
        assert agrees(estimator, table(num_new, num_features, seed=5)[0])
    assert agrees(estimator, table(num_rows, num_features)[0])


@pytest.mark.parametrize("name", ALL)
def test_predictions_with_weights_and_rows_of_any_type_and_order_are_equal(name):
    estimator = fitted(name, weighted=True, dtype=np.float32)
    x = table(100, seed=5)[0]
    whole = np.random.default_rng(0).integers(-(2**40), 2**40, (50, 4))
    for rows in (x, x.astype(np.float32), x.astype(np.float16), whole, np.asfortranarray(x), x[::-2], x[:, ::-1]):
        assert agrees(estimator, rows)


@pytest.mark.parametrize("name", MULTI)
@pytest.mark.parametrize("num_outputs", [2, 5])
def test_predictions_of_several_outputs_are_equal(name, num_outputs):
    estimator = fitted(name, num_outputs=num_outputs, weighted=True)
    assert plain_trees(estimator).num_outputs == num_outputs
    assert agrees(estimator, table(300, seed=5)[0])


@pytest.mark.parametrize("name", ["boosting", "random forest", "decision tree"])
def test_missing_values_go_the_same_way(name):
    x, y = table(300)
    x[np.random.default_rng(3).random(x.shape) < 0.2] = np.nan
    y = y + 3 * np.isnan(x[:, 0])
    estimator = clone(ALL[name]).fit(x, y)
    # A split of NaN from all else has an infinite threshold, which no file can hold.
    assert plain_trees(estimator).arrays()["threshold"].max() == np.finfo(np.float64).max
    assert agrees(estimator, x)
    if name == "boosting":
        x[::3] = np.inf
        assert agrees(estimator, x)


def test_the_sign_of_zero_is_kept():
    for estimator in (DecisionTreeRegressor(), RandomForestRegressor(1), GradientBoostingRegressor(n_estimators=2, init="zero")):
        estimator.fit(np.arange(4.0)[:, None], [0.0, 0.0, 1.0, 1.0])
        held = plain_trees(estimator)
        for tree in held.trees:
            tree.value[tree.value == 0] = -0.0
        assert agrees(estimator, np.arange(4.0)[:, None])
        assert np.signbit(held.predict(np.zeros((1, 1)))[0, 0]) == isinstance(estimator, DecisionTreeRegressor)


def test_a_constant_target_makes_single_leaves():
    x = table(50)[0]
    for name in ALL:
        assert agrees(clone(ALL[name]).fit(x, np.full(50, 2.5)), x)


@pytest.mark.parametrize("name", ["boosting", "gradient boosting", "extra trees", "decision tree"])
def test_the_arrays_mean_what_they_say(name):
    x = table(30, seed=5)[0]
    arrays = plain_trees(fitted(name)).arrays()
    np.testing.assert_allclose(walked(arrays, x)[:, 0], fitted(name).predict(x), rtol=1e-12)


def test_no_rows_give_no_predictions():
    for name in ("boosting", "gradient boosting", "extra trees"):
        assert plain_trees(fitted(name)).predict(np.zeros((0, 4))).shape == (0, 1)
    assert plain_trees(fitted("extra trees", num_outputs=3)).predict(np.zeros((0, 4))).shape == (0, 3)


@pytest.mark.parametrize("name", ["boosting", "gradient boosting", "extra trees"])
def test_rows_of_another_shape_are_refused(name):
    held = plain_trees(fitted(name))
    for shape in ((3, 3), (3, 5), (4,), (2, 2, 4), ()):
        with pytest.raises(ValueError, match="the 4 columns"):
            held.predict(np.zeros(shape))


@pytest.mark.filterwarnings("error")
def test_rows_too_large_for_float32_are_refused_as_scikit_learn_does():
    estimator, x = fitted("extra trees"), np.full((1, 4), 1e39)
    with pytest.raises(ValueError, match="too large"), np.errstate(over="ignore"):
        estimator.predict(x)
    with pytest.raises(ValueError, match=r"below 3\.4e38"):
        plain_trees(estimator).predict(x)


@pytest.mark.parametrize("name", ALL)
def test_copies_and_pickles_predict_the_same(name):
    x = table(100, seed=5)[0]
    held = there_and_back(plain_trees(fitted(name)))
    for other in (copy.deepcopy(held), pickle.loads(pickle.dumps(held)), copy.copy(held)):
        assert same_bits(other.predict(x), held.predict(x))


@pytest.mark.parametrize("name", ["boosting", "gradient boosting", "extra trees", "best-first forest", "pruned forest"])
def test_arrays_come_back_unchanged_also_through_a_file(name, tmp_path):
    held = plain_trees(fitted(name))
    arrays = held.arrays()
    again = there_and_back(held).arrays()
    assert arrays.keys() == again.keys()
    assert all(np.array_equal(arrays[key], again[key]) and arrays[key].dtype == again[key].dtype for key in arrays)
    safetensors = pytest.importorskip("safetensors.numpy")
    safetensors.save_file(arrays, tmp_path / "trees.safetensors")
    loaded = Trees.from_arrays(safetensors.load_file(tmp_path / "trees.safetensors"))
    x = table(100, seed=5)[0]
    assert same_bits(loaded.predict(x), held.predict(x))


def test_read_only_and_strided_arrays_are_taken():
    held = plain_trees(fitted("boosting"))
    arrays = {key: np.repeat(array, 2, axis=0)[::2] if array.ndim else array for key, array in held.arrays().items()}
    for array in arrays.values():
        array.flags.writeable = False
    x = table(100, seed=5)[0]
    assert same_bits(Trees.from_arrays(arrays).predict(x), held.predict(x))


def test_trees_do_not_change_when_the_arrays_or_the_estimator_do():
    x, y = table()
    estimator = fitted("boosting")
    held = plain_trees(estimator)
    arrays = held.arrays()
    loaded, expected = Trees.from_arrays(arrays), estimator.predict(x)
    for array in arrays.values():
        array.fill(99)
    estimator.set_params(warm_start=True, max_iter=40).fit(x, y**2)
    assert same_bits(loaded.predict(x), expected)
    assert same_bits(held.predict(x), expected)


@pytest.mark.parametrize("loss", ["poisson", "gamma"])
def test_boosting_of_logarithms_is_held_to_the_last_bit(loss):
    x, y = table(80)
    estimator = HistGradientBoostingRegressor(max_iter=5, loss=loss).fit(x, np.abs(y) + 0.1)
    assert agrees(estimator, x)
    np.testing.assert_allclose(plain_trees(estimator).predict(x), walked(plain_trees(estimator).arrays(), x), rtol=1e-12)


def test_other_estimators_are_not_held():
    class Subclass(ExtraTreesRegressor):
        pass

    x, y = table(60)
    labels = y > 0
    codes = np.column_stack([x, np.arange(60) % 3])
    others = [
        HistGradientBoostingRegressor(max_iter=3, categorical_features=[4]).fit(codes, y),
        HistGradientBoostingClassifier(max_iter=3).fit(x, labels),
        GradientBoostingRegressor(n_estimators=3, init=LinearRegression()).fit(x, y),
        RandomForestClassifier(3).fit(x, labels),
        AdaBoostRegressor(n_estimators=3).fit(x, y),
        Subclass(3).fit(x, y),
        ExtraTreeRegressor().fit(x, y),
        Lars().fit(x, y),
        Lars(),
        np.sin,
        None,
    ]
    for other in others:
        assert plain_predictor(other) is None, other
    for unfitted in (ExtraTreesRegressor(), LinearRegression()):
        with pytest.raises(NotFittedError):
            plain_predictor(unfitted)
