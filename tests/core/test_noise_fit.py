"""Newton's fits of noise end where SciPy's do, for each law and set of rows by itself."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from gwi.core.noise_fit import NoiseProblem, NoiseState, nll, nll_derivatives

F64 = torch.float64


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def problem(disagrees=True, num_rows=200, scale=1.0, degrees=(math.inf, 5.0)):
    residuals = scale * torch.randn(num_rows, dtype=F64, generator=generator())
    features = torch.randn(num_rows, 3, dtype=F64, generator=generator(1))
    spread = torch.rand(num_rows, dtype=F64, generator=generator(2)) * disagrees
    inside = torch.rand(len(degrees), num_rows, generator=generator(3)) < 0.8
    weight = 0.5 + torch.rand(num_rows, dtype=F64, generator=generator(4))
    laws = torch.tensor(degrees, dtype=F64)
    return NoiseProblem(residuals, torch.full((num_rows,), 0.1, dtype=F64), spread, features, weight, inside, laws)


def flat(state):
    return torch.cat([state.level[:, None], state.slopes, state.log_gamma[:, None]], dim=1)


def unflat(values):
    return NoiseState(values[:, 0], values[:, 1:-1], values[:, -1])


@pytest.mark.parametrize("degrees", [math.inf, 5.0, 3.0])
def test_derivatives_of_the_nll_are_those_of_differentiation(degrees):
    residuals = 3 * torch.randn(50, dtype=F64, generator=generator())
    variance = (torch.rand(50, dtype=F64, generator=generator()) + 0.01).requires_grad_()
    law = torch.tensor(degrees, dtype=F64)
    (first,) = torch.autograd.grad(nll(residuals, variance, law).sum(), variance, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), variance)
    found = nll_derivatives(residuals, variance.detach(), law)
    torch.testing.assert_close(found[0], first.detach())
    torch.testing.assert_close(found[1], second)


@pytest.mark.parametrize("degrees", [math.inf, 5.0])
def test_the_expected_second_derivative_is_the_average_over_draws(degrees):
    draws = np.random.default_rng(0).standard_normal(400_000)
    if math.isfinite(degrees):
        draws = np.random.default_rng(0).standard_t(degrees, 400_000) * math.sqrt((degrees - 2) / degrees)
    variance = torch.full((400_000,), 2.0, dtype=F64)
    _, second, expected = nll_derivatives(torch.from_numpy(draws) * 2**0.5, variance, torch.tensor(degrees, dtype=F64))
    assert float(second.mean()) == pytest.approx(float(expected[0]), rel=0.02)


@pytest.mark.parametrize("penalty", [math.inf, 3.0])
@pytest.mark.parametrize("disagrees", [True, False])
def test_gradients_and_second_derivatives_are_those_of_differences(penalty, disagrees):
    part = problem(disagrees)
    # Away from the minimum.
    state = flat(part.start()) + 0.3
    if penalty == math.inf:
        state[:, 1:-1] = 0.0
    gradient, observed, expected = part.derivatives(unflat(state), penalty)
    free = [i for i in range(state.shape[1]) if (penalty < math.inf or i in (0, 4)) and (disagrees or i != 4)]
    for i in free:
        step = torch.zeros_like(state)
        step[:, i] = 1e-5
        ups, downs = (part.value(unflat(state + sign * step), penalty) for sign in (1, -1))
        torch.testing.assert_close(gradient[:, i], (ups - downs) / 2e-5, atol=1e-5, rtol=1e-5)
        sides = [part.derivatives(unflat(state + sign * step), penalty)[0] for sign in (1, -1)]
        torch.testing.assert_close(observed[:, free][:, :, i], ((sides[0] - sides[1]) / 2e-5)[:, free], atol=1e-4, rtol=1e-5)
    assert (torch.linalg.eigvalsh(expected()) >= 0).all()


@pytest.mark.parametrize("penalty", [math.inf, 100.0, 3.0])
@pytest.mark.parametrize("disagrees", [True, False])
@pytest.mark.parametrize("scale", [1.0, 1e-6, 30.0])
def test_each_set_ends_where_scipy_ends(penalty, disagrees, scale):
    part = problem(disagrees, scale=scale)
    found = part.fit(penalty)
    value, start = part.value(found, penalty), flat(part.start())
    fixed = torch.zeros_like(start[0], dtype=torch.bool)
    fixed[1:-1] = penalty == math.inf
    for b in range(len(start)):

        def objective(point, b=b):
            tried = start.clone()
            tried[b] = torch.where(fixed, start[b], torch.from_numpy(point))
            return float(part.value(unflat(tried), penalty)[b])

        wanted = minimize(objective, start[b].numpy(), method="BFGS", options={"gtol": 1e-6})
        assert float(value[b]) <= wanted.fun + 1e-6 * abs(wanted.fun)


def test_sets_side_by_side_are_what_they_are_alone():
    together = problem(degrees=(math.inf, 5.0)).fit(10.0)
    residuals = problem()
    for b in range(2):
        alone = problem()
        laws, inside = alone.degrees[b], residuals.weight[b : b + 1] > 0
        one = NoiseProblem(
            alone.residuals,
            alone.variance,
            alone.disagreement,
            torch.randn(200, 3, dtype=F64, generator=generator(1)),
            0.5 + torch.rand(200, dtype=F64, generator=generator(4)),
            inside,
            laws,
        )
        torch.testing.assert_close(flat(one.fit(10.0))[0], flat(together)[b], atol=1e-6, rtol=1e-6)


def test_rows_without_errors_end_at_the_least_noise_and_stay_finite():
    rows = torch.zeros(60, dtype=F64)
    part = NoiseProblem(rows, rows, rows, rows[:, None], rows + 1, torch.ones(1, 60, dtype=torch.bool), torch.tensor([math.inf]))
    found = part.fit(10.0)
    assert torch.isfinite(part.noise(found)).all()
    assert (part.noise(found) > 0).all()
