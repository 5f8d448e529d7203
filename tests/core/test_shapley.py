"""Shapley values of games: by their definition, in closed form for products, and for orders drawn at random."""

from itertools import permutations

import numpy as np
import torch

from gwi.core.shapley import coalition_weights, shapley_values


def game_of(function, x, background):
    return lambda inside, places: function(torch.where(inside, x, background[places]))


def solved(function, x, background, budget=10**6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    whole, base = function(x[None])[:, 0], function(background)
    return shapley_values(game_of(function, x, background), x != background, whole, base, budget=budget, generator=generator)


def by_definition(function, x, background):
    """The mean gain over all orders and background rows, one output."""
    found = np.zeros(len(x))
    orders = list(permutations(range(len(x))))
    for row in background:
        for order in orders:
            mixed = row.clone()
            for d in order:
                before = float(function(mixed[None])[0, 0])
                mixed[d] = x[d]
                found[d] += float(function(mixed[None])[0, 0]) - before
    return found / (len(orders) * len(background))


def products_by_quadrature(factors_x, factors_b, weights):
    """Parts of Σ_p w_p Π_d a_pd: (a_d − c_d) ∫ Π_{j≠d} (t a_j + (1 − t) c_j) dt, whose integrand is a polynomial."""
    num_columns = factors_x.shape[1]
    nodes, node_weights = np.polynomial.legendre.leggauss(num_columns // 2 + 1)
    found = np.zeros(num_columns)
    for t, w in zip((nodes + 1) / 2, node_weights / 2, strict=True):
        mixed = t * factors_x + (1 - t) * factors_b
        for d in range(num_columns):
            others = np.delete(mixed, d, axis=1).prod(1)
            found[d] += w * weights @ ((factors_x[:, d] - factors_b[:, d]) * others)
    return found


def wavy(rows):
    return torch.stack([torch.sin(rows).prod(1) + rows[:, 0] * rows[:, 1], rows.square().sum(1)])


def test_parts_are_the_mean_gain_over_all_orders():
    rng = torch.Generator().manual_seed(0)
    x, background = torch.randn(4, generator=rng, dtype=torch.float64), torch.randn(3, 4, generator=rng, dtype=torch.float64)
    found = solved(wavy, x, background)
    np.testing.assert_allclose(found.parts[0], by_definition(wavy, x, background), atol=1e-12)
    assert found.is_exact


def test_each_output_has_parts_of_its_own_that_add_up():
    rng = torch.Generator().manual_seed(1)
    x, background = torch.randn(6, generator=rng, dtype=torch.float64), torch.randn(5, 6, generator=rng, dtype=torch.float64)
    for budget in (10**6, 50):
        found = solved(wavy, x, background, budget)
        np.testing.assert_allclose(found.base + found.parts.sum(1), found.whole, rtol=1e-12)
    np.testing.assert_allclose(solved(wavy, x, background).parts[1], (x.square() - background.square().mean(0)), atol=1e-12)


def test_columns_that_are_equal_in_both_rows_do_not_play():
    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    background = torch.tensor([[1.0, 0.0, 3.0], [1.0, 2.0, 3.0]], dtype=torch.float64)
    found = solved(wavy, x, background)
    assert found.parts[0, 0] == 0
    assert found.parts[0, 2] == 0
    assert found.num_evaluations == 0


def test_orders_drawn_at_random_are_as_near_as_they_say():
    rng = np.random.default_rng(0)
    points, weights = rng.normal(size=(7, 12)), rng.normal(size=7)
    x, background = rng.normal(size=12), rng.normal(size=(4, 12))

    def bumps(rows):
        return torch.exp(-0.1 * (rows[:, None] - torch.from_numpy(points)).square().sum(-1))[None] @ torch.from_numpy(weights)

    exact = np.mean(
        [
            products_by_quadrature(np.exp(-0.1 * (x - points) ** 2), np.exp(-0.1 * (row - points) ** 2), weights)
            for row in background
        ],
        axis=0,
    )
    rows = torch.from_numpy(background)
    np.testing.assert_allclose(solved(bumps, torch.from_numpy(x), rows).parts[0], exact, atol=1e-12)
    scores = []
    for seed in range(30):
        found = solved(bumps, torch.from_numpy(x), rows, budget=800, seed=seed)
        assert not found.is_exact
        np.testing.assert_allclose(found.parts.sum() + found.base, found.whole, rtol=1e-10)
        scores.append((found.parts[0].numpy() - exact) / found.standard_error[0].numpy())
    assert 0.85 < np.std(scores) < 1.2
    assert abs(np.mean(scores)) < 0.2


def test_with_one_pair_of_orders_a_row_the_error_is_not_too_small():
    rng = np.random.default_rng(1)
    x, background = torch.from_numpy(rng.normal(size=12)), torch.from_numpy(rng.normal(size=(6, 12)))
    exact = solved(wavy, x, background).parts[0]
    scores = [
        ((found := solved(wavy, x, background, budget=1, seed=seed)).parts[0] - exact) / found.standard_error[0]
        for seed in range(30)
    ]
    assert torch.stack(scores).std() < 1.2


def test_one_background_row_and_one_pair_of_orders_tell_no_error():
    x, background = torch.arange(20.0, dtype=torch.float64), torch.zeros(1, 20, dtype=torch.float64)
    found = solved(wavy, x, background, budget=1)
    assert torch.isnan(found.standard_error).any()
    assert not found.is_exact


def test_weights_of_coalitions_sum_to_one_for_those_with_a_player():
    for n in (1, 2, 5):
        weights = coalition_weights(n)
        np.testing.assert_allclose(weights.clamp_min(0).sum(1), 1)
        np.testing.assert_allclose(weights.sum(1), 0, atol=1e-15)


def test_the_budget_is_used_and_not_exceeded_where_each_background_row_has_its_pair():
    rng = torch.Generator().manual_seed(0)
    for num_columns, budget in ((10, 4096), (20, 4096), (100, 4096), (100, 3200)):
        x, background = torch.randn(num_columns, generator=rng), torch.randn(16, num_columns, generator=rng)
        found = solved(wavy, x.double(), background.double(), budget)
        assert budget - 2 * (num_columns - 1) < found.num_evaluations <= budget
        assert torch.isfinite(found.standard_error).all()
    # One pair for each, whatever that takes.
    assert solved(wavy, x.double(), background.double(), 16).num_evaluations == 16 * 2 * 99
