"""The builder: operators in double precision, branches, loops, and no factor in single precision."""

import numpy as np
import pytest
from scipy.special import ndtr

from gwi.onnx.functions import Table, expm1, normal_cumulative
from gwi.onnx.graph import Graph
from onnx_answers import session


def computed(make, *arrays):
    g = Graph()
    inputs = [g.input(f"x{i}", [f"n{i}_{axis}" for axis in range(array.ndim)]) for i, array in enumerate(arrays)]
    found = make(g, *(value for value, _ in inputs))
    data = g.model([declared for _, declared in inputs], {"y": (found, [f"m{axis}" for axis in range(2)])}, {})
    return session(data).run(None, {f"x{i}": array for i, array in enumerate(arrays)})[0]


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_factor_beside_a_product_of_matrices_keeps_its_digits(before):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(3, 40)), rng.normal(size=(40, 5))
    found = computed(lambda g, a: ((a * 1.23456789) @ w) if before else ((a @ w) * 1.23456789), x)
    np.testing.assert_allclose(found, (x * 1.23456789) @ w, rtol=1e-13)


def test_the_normal_law_keeps_all_digits_of_both_tails():
    z = np.concatenate([np.linspace(-37, 9, 3000), [-1e6, 1e6, 0.0]])[:, None]
    np.testing.assert_allclose(computed(normal_cumulative, z), ndtr(z), rtol=3e-13, atol=1e-300)


def test_expm1_keeps_its_digits_near_zero():
    x = np.concatenate([10.0 ** np.arange(-12.0, 2.0), -(10.0 ** np.arange(-12.0, 2.0))])[:, None]
    np.testing.assert_allclose(computed(expm1, x), np.expm1(x), rtol=1e-12)


def test_a_table_meets_a_function_with_a_root_in_it():
    table = Table(lambda x: np.stack([np.sqrt(x + 1e-4), np.exp(-x)], 1), 0.0, 30.0)
    x = np.random.default_rng(0).uniform(0, 30, (500, 1))
    wanted = np.concatenate([np.sqrt(x + 1e-4), np.exp(-x)], 1)
    np.testing.assert_allclose(computed(lambda g, a: table.at(g, a), x), wanted, atol=1e-10)


def test_only_one_side_of_a_branch_is_computed():
    def make(g, x):
        return g.either(x.largest() > 0.0, lambda: x * 2.0, lambda: x - 1.0)

    assert computed(make, np.array([[1.0, -1.0]])).tolist() == [[2.0, -2.0]]
    assert computed(make, np.array([[-1.0, -3.0]])).tolist() == [[-2.0, -4.0]]


def test_a_loop_takes_as_many_steps_as_it_is_told():
    def make(g, x):
        return g.loop(g.constant(np.array(5, dtype=np.int64)), [x], lambda i, total: [total + i.cast(np.float64)])[0]

    assert computed(make, np.zeros((1, 2))).tolist() == [[10.0, 10.0]]
