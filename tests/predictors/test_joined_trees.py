"""Trees joined into one say what each of them says, and sums are those of a loop over them, to the last bit."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier

from gwi.predictors.joined_trees import MOST_ROWS, JoinedTrees, summed
from gwi.predictors.logits import plain_classifier
from gwi.predictors.trees import Trees, plain_trees
from tree_cases import ALL, MULTI, fitted, table


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("num_rows", [1, 5, MOST_ROWS, MOST_ROWS + 1])
def test_few_rows_get_what_many_get(name, num_rows):
    held = plain_trees(fitted(name))
    x = table(num_rows, seed=5)[0]
    wanted = held.predict(x)
    for ready in (held.at_rest(), Trees.from_arrays(held.arrays()).at_rest()):
        found = ready.predict(x)
        assert found.shape == wanted.shape
        assert found.tobytes() == wanted.tobytes()
        assert found.flags.f_contiguous == wanted.flags.f_contiguous


@pytest.mark.parametrize("name", MULTI)
def test_few_rows_of_several_outputs_get_what_many_get(name):
    held = plain_trees(fitted(name, num_outputs=3))
    x = table(7, seed=5)[0]
    assert held.at_rest().predict(x).tobytes() == held.predict(x).tobytes()


def test_missing_values_go_the_same_way():
    x, y = table(300)
    x[np.random.default_rng(3).random(x.shape) < 0.2] = np.nan
    for name in ("boosting", "random forest"):
        held = plain_trees(copy.deepcopy(ALL[name]).fit(x, y))
        assert held.at_rest().predict(x[:20]).tobytes() == held.predict(x[:20]).tobytes()


def test_each_leaf_is_that_of_its_tree():
    held = plain_trees(fitted("extra trees"))
    x = np.ascontiguousarray(table(6, seed=5)[0], np.float32)
    leaves = JoinedTrees(held.trees, held.num_features).leaves(x)
    for tree, found in zip(held.trees, leaves, strict=True):
        np.testing.assert_array_equal(found, tree.predict(x))


def test_a_sum_is_that_of_a_loop():
    values = np.random.default_rng(0).normal(size=(1000, 1)) * 10.0 ** np.arange(-8, 8).repeat(63)[:1000, None]
    total = np.array([0.1])
    for value in values:
        total = total + value
    assert summed(np.array([0.1]), values).tobytes() == total.tobytes()


@pytest.mark.parametrize("kind", [HistGradientBoostingClassifier(max_iter=8), ExtraTreesClassifier(9, random_state=0)])
def test_logits_of_few_rows_are_those_of_many(kind):
    x, y = table(200)
    labels = np.digitize(y, [-0.5, 0.5])
    logits = plain_classifier(kind.fit(x, labels), np.unique(labels))
    assert logits.at_rest().predict(x[:3]).tobytes() == logits.predict(x[:3]).tobytes()


def test_what_is_joined_is_not_pickled():
    held = plain_trees(fitted("boosting")).at_rest()
    before = len(pickle.dumps(held))
    wanted = held.predict(table(3)[0])
    assert len(pickle.dumps(held)) == before
    assert pickle.loads(pickle.dumps(held)).predict(table(3)[0]).tobytes() == wanted.tobytes()
