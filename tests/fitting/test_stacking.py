"""The weights of a stack: least squares on the simplex, a little towards equal ones."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

from gwi import GWIRegressor
from gwi.fitting.stacking import SMALLEST_SHARE, WEIGHT_DEGREES, convex_weights, cross_fitted, logit_weights, student_precision

F64 = torch.float64


def predictions(num_rows=400, seed=0):
    """Targets and three means with errors of different size, two of them alike."""
    g = torch.Generator().manual_seed(seed)
    y, common, *own = torch.randn(5, num_rows, dtype=F64, generator=g)
    return y, torch.stack([y + 0.5 * common + 0.2 * own[0], y + 0.5 * common + 0.4 * own[1], y + 0.8 * own[2]])


def cross_fitted_weights(judged, y, fold):
    def weigh(rows):
        return convex_weights(judged[:, rows], y[rows], torch.ones_like(y[rows]))

    return cross_fitted(weigh, len(y), fold, y.device)


def loss(weights, judged, y, shrinkage, left):
    return float((y - weights @ judged).square().mean() + shrinkage * left * (weights - 1 / len(weights)).square().sum())


@pytest.mark.parametrize("shrinkage", [0.0, 0.1, 3.0])
def test_no_other_weights_are_better(shrinkage):
    y, judged = predictions()
    ones = torch.ones_like(y)
    free = convex_weights(judged, y, ones, 0.0)
    left = float((y - free @ judged).square().mean())
    found = convex_weights(judged, y, ones, shrinkage)
    assert float(found.sum()) == pytest.approx(1.0)
    best = loss(found, judged, y, shrinkage, left)
    grid = torch.cartesian_prod(*[torch.linspace(0, 1, 101, dtype=F64)] * 2)
    for a, b in grid[grid.sum(1) <= 1]:
        assert best <= loss(torch.stack([a, b, 1 - a - b]), judged, y, shrinkage, left) + 1e-9


def test_shrinkage_leads_to_equal_weights_and_none_to_a_mean_that_is_right():
    y, judged = predictions()
    ones = torch.ones_like(y)
    torch.testing.assert_close(convex_weights(judged, y, ones, 1e6), torch.full((3,), 1 / 3, dtype=F64), atol=1e-4, rtol=0)
    judged[1] = y
    torch.testing.assert_close(convex_weights(judged, y, ones), torch.tensor([0.0, 1.0, 0.0], dtype=F64), atol=1e-6, rtol=0)


def test_units_do_not_matter_and_a_weight_of_two_is_a_row_twice():
    y, judged = predictions(50)
    ones = torch.ones_like(y)
    expected = convex_weights(judged, y, ones)
    torch.testing.assert_close(convex_weights(1e6 * judged, 1e6 * y, ones), expected, atol=1e-6, rtol=0)
    weight = ones.clone()
    weight[:10] = 2.0
    twice = torch.cat([torch.arange(50), torch.arange(10)])
    found = convex_weights(judged, y, weight / weight.mean())
    torch.testing.assert_close(found, convex_weights(judged[:, twice], y[twice], torch.ones(60, dtype=F64)), atol=1e-6, rtol=0)


@pytest.mark.parametrize("folds", [True, False])
def test_a_row_has_no_say_in_the_weights_it_is_judged_by(folds, generator):
    y = torch.randn(60, generator=generator, dtype=F64)
    judged = y + torch.randn(3, 60, generator=generator, dtype=F64)
    fold = torch.arange(60) % 4 if folds else None
    weights, unseen = cross_fitted_weights(judged, y, fold)
    torch.testing.assert_close(weights, convex_weights(judged, y, torch.ones_like(y)))
    torch.testing.assert_close(unseen.sum(0), torch.ones(60, dtype=F64))
    changed = y.clone()
    changed[7] += 100
    _, again = cross_fitted_weights(judged, changed, fold)
    assert torch.equal(again[:, 7], unseen[:, 7])
    assert not torch.equal(again, unseen)


def test_one_mean_has_the_weight_one_everywhere():
    y = torch.linspace(-1, 1, 30, dtype=F64)
    weights, unseen = cross_fitted_weights(0.5 * y[None], y, torch.arange(30) % 5)
    assert weights.tolist() == [1.0]
    assert (unseen == 1).all()


def test_weights_of_one_fold_are_cross_fitted_all_the_same():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    y = x[:, 0] + 0.3 * rng.normal(size=60)
    one_split = [(np.arange(30), np.arange(30, 60))]
    model = GWIRegressor([Ridge(), DecisionTreeRegressor(max_depth=2)], cv=one_split, random_state=0).fit(x, y)
    assert np.isfinite(model.predict(x, return_std=True)).all()
    weights = [member.weights[0] for member in model.summary_.members]
    assert sum(weights) == pytest.approx(1)
    assert weights[0] > weights[1]


def test_the_weight_of_a_row_is_that_of_least_squares_with_the_gradient_of_students_likelihood():
    g = torch.Generator().manual_seed(0)
    errors, variance = 2 * torch.randn(50, dtype=F64, generator=g), torch.rand(50, dtype=F64, generator=g) + 0.1
    errors.requires_grad_()
    scale = (variance * (WEIGHT_DEGREES - 2) / WEIGHT_DEGREES).sqrt()
    law = torch.distributions.StudentT(torch.tensor(WEIGHT_DEGREES, dtype=F64), torch.zeros(50, dtype=F64), scale)
    (gradient,) = torch.autograd.grad(-law.log_prob(errors).sum(), errors)
    precision = student_precision(errors.detach(), variance)
    torch.testing.assert_close(gradient, precision * errors.detach())


def test_a_mean_that_is_right_at_most_rows_is_not_given_up_for_a_few():
    """One mean errs by much at a tenth of the rows, where f cannot be known, and hardly elsewhere; the other a bit everywhere."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(270, 2)), rng.uniform(8, 9, size=(30, 2)) * rng.choice([-1, 1], size=(30, 2))])
    y = np.sin(x[:, 0]) + np.where(np.abs(x[:, 1]) > 7, 3 * rng.normal(size=300), 0.02 * rng.normal(size=300))

    def near(rows):
        return np.sin(rows[:, 0]) + np.where(np.abs(rows[:, 1]) > 7, 4 * np.cos(50 * rows[:, 1]), 0.0)

    def coarse(rows):
        return np.sin(rows[:, 0]) + np.where(np.abs(rows[:, 1]) > 7, 0.0, 0.4 * np.cos(50 * rows[:, 1]))

    model = GWIRegressor([near, coarse], random_state=0).fit(x[::2], y[::2], validation=(x[1::2], y[1::2]))
    assert {m.name: m.weights[0] for m in model.summary_.members}["near"] > 0.9


def test_logits_that_hardly_count_are_left_out_and_the_others_weighed_again():
    generator = torch.Generator().manual_seed(0)
    truth = 2 * torch.randn(3, 500, dtype=F64, generator=generator)
    y = torch.eye(3, dtype=F64)[torch.multinomial(truth.softmax(0).mT, 1, generator=generator)[:, 0]].mT
    noise = torch.randn(4, 3, 500, dtype=F64, generator=generator)
    members = torch.stack([truth + 0.3 * noise[0], truth + 0.3 * noise[1], 3 * noise[2], 3 * noise[3]])
    weights, scale = logit_weights(members, y, torch.ones(500, dtype=F64))
    assert ((weights == 0) | (weights >= SMALLEST_SHARE)).all()
    assert (weights[2:] == 0).all()
    assert float(weights.sum()) == pytest.approx(1.0)
    alone, scale_alone = logit_weights(members[:2], y, torch.ones(500, dtype=F64))
    torch.testing.assert_close(weights[:2], alone)
    assert scale == pytest.approx(scale_alone)
