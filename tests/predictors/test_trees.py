"""Trees as plain arrays predict what scikit-learn predicts, to the last bit, and no array can lead them astray."""

import copy
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
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

from gwi.predictors import trees
from gwi.predictors.linear import plain_predictor
from gwi.predictors.trees import KINDS, Trees, plain_trees

SINGLE = {
    "boosting": HistGradientBoostingRegressor(max_iter=30, min_samples_leaf=1, max_leaf_nodes=15),
    "boosting with absolute error": HistGradientBoostingRegressor(max_iter=10, loss="absolute_error"),
    "boosting of a quantile": HistGradientBoostingRegressor(max_iter=10, loss="quantile", quantile=0.9),
    "boosting with early stopping": HistGradientBoostingRegressor(max_iter=40, early_stopping=True, random_state=0),
    "gradient boosting": GradientBoostingRegressor(n_estimators=20, random_state=0),
    "gradient boosting, Huber": GradientBoostingRegressor(n_estimators=10, loss="huber", subsample=0.7, random_state=0),
    "gradient boosting from zero": GradientBoostingRegressor(n_estimators=10, init="zero", learning_rate=0.37, random_state=0),
    "gradient boosting from a median": GradientBoostingRegressor(n_estimators=10, init=DummyRegressor(strategy="median")),
}
MULTI = {
    "extra trees": ExtraTreesRegressor(8, min_samples_leaf=1, random_state=0),
    "random forest": RandomForestRegressor(7, random_state=0),
    "best-first forest": RandomForestRegressor(5, max_leaf_nodes=11, max_features=0.5, random_state=0),
    "pruned forest": ExtraTreesRegressor(5, ccp_alpha=0.01, random_state=0),
    "stumps": ExtraTreesRegressor(3, max_depth=1, random_state=0),
    "one-tree forest": RandomForestRegressor(1, random_state=0),
    "decision tree": DecisionTreeRegressor(random_state=0),
}
ALL = SINGLE | MULTI


def table(num_rows=200, num_features=4, num_outputs=1, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_rows, num_features)).astype(dtype)
    y = np.sin(2 * x[:, :1]) + x[:, -1:] * np.arange(1, num_outputs + 1) + 0.3 * rng.normal(size=(num_rows, num_outputs))
    return x, y[:, 0] if num_outputs == 1 else y


def fitted(name, num_rows=200, num_features=4, num_outputs=1, weighted=False, dtype=np.float64):
    x, y = table(num_rows, num_features, num_outputs, dtype=dtype)
    weight = np.random.default_rng(1).gamma(1.0, size=num_rows) if weighted else None
    return clone(ALL[name]).fit(x, y, sample_weight=weight)


def same_bits(a, b):
    """Whether the predictions (N, J) are those of an estimator, which have one axis when J is one."""
    return a.dtype == b.dtype == np.float64 and a.shape == b.reshape(len(b), -1).shape and a.tobytes() == b.tobytes()


def there_and_back(held):
    return Trees.from_arrays(held.arrays())


def walked(arrays, x):
    """Predictions of averaged or boosted trees, node by node from the arrays."""
    kind, num_outputs = KINDS[int(arrays["kind"])], len(arrays["baseline"])
    rows = x.astype(np.float64 if kind in ("histogram-boosting", "exponential-boosting") else np.float32)
    split_of, leaf_of = np.cumsum(arrays["is_leaf"] == 0) - 1, np.cumsum(arrays["is_leaf"]) - 1
    total = np.tile(arrays["baseline"], (len(x), 1))
    for i, row in enumerate(rows):
        for t, root in enumerate(arrays["offsets"][:-1]):
            node = root
            while not arrays["is_leaf"][node]:
                split = split_of[node]
                left = row[arrays["feature"][split]] <= arrays["threshold"][split]
                node = root + arrays["left" if left else "right"][split]
            value = arrays["value"][leaf_of[node]]
            if kind == "forest":
                total[i] += value
            else:
                total[i, t % num_outputs] += value[0] * (arrays["learning_rate"] if kind == "gradient-boosting" else 1)
    if kind == "exponential-boosting":
        return np.exp(total)
    return total / (len(arrays["offsets"]) - 1) if kind == "forest" else total


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


def test_leaves_that_are_not_finite_are_refused_when_saving():
    held = plain_trees(fitted("extra trees"))
    held.trees[0].value[:] = np.inf
    with pytest.raises(ValueError, match="finite"):
        held.arrays()


@pytest.mark.parametrize("form", ["_HISTOGRAM_NODES", "_TREE_NODES"])
def test_nodes_of_an_unknown_scikit_learn_are_refused_by_name(form, monkeypatch):
    estimators = [fitted(name) for name in ("boosting", "extra trees")]
    arrays = [plain_trees(estimator).arrays() for estimator in estimators]
    known = getattr(trees, form)
    fields = [(name, known.dtype[name]) for name in known.dtype.names]
    monkeypatch.setattr(trees, form, known._replace(dtype=np.dtype([*fields, ("oblique", np.uint8)])))
    for estimator, stored in zip(estimators, arrays, strict=True):
        with pytest.raises(ValueError, match="differs in oblique"):
            Trees.from_arrays(stored)
        assert plain_trees(estimator) is None


def changed(arrays, **changes):
    """The arrays with some replaced, or with some entries replaced where the change is a dictionary."""
    arrays = {key: array.copy() for key, array in arrays.items()}
    for key, change in changes.items():
        if isinstance(change, dict):
            for index, value in change.items():
                arrays[key][index] = value
        else:
            arrays[key] = change
    return arrays


def invalid(arrays):
    """Each way to break arrays of trees whose first tree has several splits, with a word that the message must have."""
    splits, size = len(arrays["left"]), int(arrays["offsets"][1])
    leaf, split = (int(np.flatnonzero(arrays["is_leaf"] == kind)[0]) for kind in (1, 0))
    yield "offsets", changed(arrays, offsets=np.zeros(0, np.int64))
    yield "offsets", changed(arrays, offsets=np.zeros(1, np.int64))
    yield "offsets", changed(arrays, offsets={0: 1})
    yield "offsets", changed(arrays, offsets={0: -1})
    yield "offsets", changed(arrays, offsets={-1: len(arrays["is_leaf"]) + 1})
    yield "offsets", changed(arrays, offsets={1: arrays["offsets"][2]})
    # Neighbouring differences of these are all positive in 64 bits.
    yield "offsets", changed(arrays, offsets=np.array([0, 2**63 - 1, -(2**63), len(arrays["is_leaf"])], np.int64))
    yield "child", changed(arrays, offsets={1: size - 1})
    yield "is_leaf of 0 and 1", changed(arrays, is_leaf={leaf: 2})
    yield "splits", changed(arrays, is_leaf={leaf: 0})
    yield "splits", changed(arrays, is_leaf={split: 1})
    yield "child", changed(arrays, is_leaf={leaf: 0, split: 1})
    for side in ("left", "right"):
        for child in (0, size, size + 1, 2**31, 2**32 - 1):
            yield f"{side} child", changed(arrays, **{side: {0: child}})
        yield "one node's child", changed(arrays, left={0: 1}, right={0: 1})
    yield "every feature", changed(arrays, feature={splits - 1: int(arrays["num_features"])})
    yield "every feature", changed(arrays, feature={0: 2**32 - 1})
    yield "every feature", changed(arrays, num_features=np.array(1, np.int64))
    for num_features in (0, -1, 2**31, 2**63 - 1):
        yield "num_features", changed(arrays, num_features=np.array(num_features, np.int64))
    yield "missing_go_to_left of 0 and 1", changed(arrays, missing_go_to_left={0: 255})
    for number in (np.nan, np.inf, -np.inf):
        yield "finite", changed(arrays, threshold={0: number})
        yield "finite", changed(arrays, value={0: number})
        yield "finite", changed(arrays, baseline=np.array([number]))
        yield "finite", changed(arrays, learning_rate=np.array(number))
    yield "value of shape", changed(arrays, value=arrays["value"][:, :0])
    yield "value of shape", changed(arrays, value=arrays["value"][:-1])
    yield "value of shape", changed(arrays, value=np.concatenate([arrays["value"]] * 2))
    # The native loops of boosting know one value a leaf; a forest has one for each output.
    yield "value of shape", changed(arrays, value=np.repeat(arrays["value"], 2, axis=1))
    for num_outputs in (len(arrays["offsets"]), 10**5):
        yield "value of shape|as many trees", changed(arrays, baseline=np.zeros(num_outputs))
    yield "a baseline for each output", changed(arrays, baseline=np.zeros(0))
    for kind in (-1, len(KINDS), 2**63 - 1, -(2**63)):
        yield "a kind below", changed(arrays, kind=np.array(kind, np.int64))
    for key in arrays:
        yield "the arrays", {name: array for name, array in arrays.items() if name != key}
        yield f"{key} as", changed(arrays, **{key: arrays[key][None]})
        for dtype in (np.float32, np.int16, np.bool_, object):
            yield f"{key} as", changed(arrays, **{key: arrays[key].astype(dtype)})
        if arrays[key].itemsize > 1:
            yield f"{key} as", changed(arrays, **{key: arrays[key].astype(arrays[key].dtype.newbyteorder())})
    for key in ("left", "right", "feature", "threshold", "missing_go_to_left"):
        yield f"{key} of each", changed(arrays, **{key: arrays[key][:-1]})
        yield f"{key} of each", changed(arrays, **{key: np.concatenate([arrays[key]] * 2)})
    yield "the arrays", changed(arrays, more=np.zeros(1))
    yield "the arrays", {}


@pytest.mark.parametrize("name", ["boosting", "gradient boosting", "extra trees"])
def test_each_invalid_array_is_refused_with_one_sentence(name):
    held = plain_trees(fitted(name))
    arrays = held.arrays()
    for word, broken in invalid(arrays):
        with pytest.raises(ValueError, match=f"^A stored model needs .*({word}).*; got .*so save the model again\\.$"):
            Trees.from_arrays(broken)


def test_masks_cannot_hide_invalid_entries():
    arrays = plain_trees(fitted("boosting")).arrays()
    hidden = changed(arrays, left=np.ma.masked_array(np.full_like(arrays["left"], 10**6), mask=True))
    with pytest.raises(ValueError, match="left child"):
        Trees.from_arrays(hidden)


@pytest.mark.parametrize("name", ["boosting", "gradient boosting"])
def test_trees_of_one_kind_are_taken_as_those_of_another_only_where_they_fit(name):
    x, arrays = table(30, seed=5)[0], plain_trees(fitted(name)).arrays()
    for kind in range(len(KINDS)):
        other = changed(arrays, kind=np.array(kind, np.int64))
        np.testing.assert_allclose(Trees.from_arrays(other).predict(x), walked(other, x), rtol=1e-12)
    several = plain_trees(fitted("extra trees", num_outputs=2)).arrays()
    for kind in ("histogram-boosting", "gradient-boosting"):
        with pytest.raises(ValueError, match="value of shape"):
            Trees.from_arrays(changed(several, kind=np.array(KINDS.index(kind), np.int64)))


NUMBERS = [0, 1, 2, 3, 7, 255, -1, -2, 2**31, 2**32 - 1, 2**63 - 1, -(2**63), np.nan, np.inf, -np.inf, 1e308, -0.0, 5e-324]
DTYPES = ["i1", "u1", "i4", "u4", "i8", "u8", "f2", "f4", "f8", ">f8", ">i8", "?", "c16", "U3", "O"]
# Small changes, which may stay valid, are more telling than gross ones.
CHANGES = ["entry", "near", "swap", "bytes"] * 6 + ["together", "length", "shape", "dtype", "drop", "add"]


def mutated(array, change, rng):
    """The array with its entries, bytes, length, shape or type changed at random."""
    at = rng.integers(max(array.size, 1), size=2)
    if change == "shape":
        return [array[None], array.ravel(), array.T, array.reshape(-1, 1), array[..., None]][rng.integers(5)]
    if change == "length" and array.ndim:
        return np.resize(array, (max(len(array) + int(rng.integers(-2, 3)), 0), *array.shape[1:]))
    if change == "dtype":
        return array.astype(DTYPES[rng.integers(len(DTYPES))])
    if array.size and array.dtype.kind in "iuf":
        if change == "entry":
            array.flat[at[0]] = np.array(NUMBERS[rng.integers(len(NUMBERS))]).astype(array.dtype)
        elif change == "near":
            array.flat[at[0]] += np.array(rng.integers(-3, 4)).astype(array.dtype)
        elif change == "swap":
            array.flat[at] = array.flat[at[::-1]]
        elif change == "bytes":
            raw = bytearray(array.tobytes())
            raw[rng.integers(len(raw))] = rng.integers(256)
            return np.frombuffer(bytes(raw), array.dtype).reshape(array.shape)
    return array


def mutation(arrays, rng):
    """The arrays with one to three things changed at random: what is in one, which are there, or all of one length cut."""
    arrays = {key: array.copy() for key, array in arrays.items()}
    for _ in range(rng.integers(1, 4)):
        key, change = (str(rng.choice(options)) for options in (list(arrays), CHANGES))
        if change == "drop" and len(arrays) > 1:
            del arrays[key]
        elif change == "add":
            arrays[("more", "kind", "")[rng.integers(3)]] = arrays[key].copy()
        elif change == "together" and arrays[key].ndim and arrays[key].size:
            # Sizes then still agree, so that later checks must see what is wrong.
            at, length = rng.integers(len(arrays[key])), len(arrays[key])
            arrays |= {k: np.delete(a, at, axis=0) for k, a in arrays.items() if a.ndim and len(a) == length}
        else:
            arrays[key] = mutated(arrays[key], change, rng).copy()
    return arrays


def fuzz(num_mutations, seed=0):
    """How many of so many mutations were taken, once each was either refused with a ValueError or has predicted."""
    rng, taken = np.random.default_rng(seed), 0
    kinds = [("boosting", 30, 3), ("gradient boosting", 30, 3), ("best-first forest", 30, 3, 2), ("extra trees", 12, 3)]
    # Few trees, so that a mutation meets one that is used.
    subjects = [replace(held, trees=held.trees[:3]) for held in (plain_trees(fitted(*kind)) for kind in kinds)]
    arrays = [held.arrays() for held in subjects]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(num_mutations):
            k = i % len(subjects)
            try:
                held = Trees.from_arrays(mutation(arrays[k], rng))
            except ValueError:
                continue
            if held.num_features <= 1000:
                x = rng.normal(size=(3, held.num_features))
                # Out of bounds need not crash; it would differ.
                np.testing.assert_allclose(held.predict(x), walked(held.arrays(), x), rtol=1e-12)
            taken += 1
    return taken


def test_random_mutations_are_refused_or_predict():
    # Both outcomes are common, or the test would test little.
    assert 200 < fuzz(2000) < 1800
