"""No array can lead trees astray: what is invalid is refused, and the rest predicts what it says."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from gwi.predictors import trees
from gwi.predictors.trees import KINDS, Trees, plain_trees
from tree_cases import fitted, table, walked


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
