"""Bounds, levels in order and bounded losses: closed forms against mpmath, SciPy and integrals by brute force."""

import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats

from gwi.core.laws.gaussian import Law
from gwi.core.likelihoods.censored import CensoredFamily, _log_mass
from gwi.core.likelihoods.expectations import expected_log_prob, log_marginal
from gwi.core.likelihoods.families import Family
from gwi.core.likelihoods.ordinal import OrdinalFamily
from gwi.core.likelihoods.robust import RobustFamily
from gwi.core.likelihoods.shapes import LOGISTIC, NORMAL, SHAPES, WEIBULL
from likelihood_cases import panels, tensors

F64 = torch.float64
INF = math.inf
SHAPED = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
# Known, above, below, between, hardly between, far away.
BOUNDS = torch.tensor([[1.0, 0.3, -INF, 0.5, 1.2, -9.0], [1.0, INF, 2.0, 0.9, 1.2 + 1e-6, -8.0]], dtype=F64)
F = torch.tensor([0.2, -1.0, 0.5, 3.0, 0.9, 1.0], dtype=F64)


def log_mass_exactly(a, b):
    with mpmath.workdps(80):
        low, high = (a, b) if a + b <= 0 else (-b, -a)
        ends = [mpmath.erfc(-mpmath.mpf(end) / mpmath.sqrt(2)) / 2 for end in (low, high)]
        return float(mpmath.log(ends[1] - ends[0]))


@pytest.mark.parametrize(
    ("a", "b"),
    [(-0.1, 0.1), (8, 9), (-40, -39.9), (200, 200.5), (1e5, 1e5 + 1), (-1e6, 3), (3, 1e6), (-1e6, 1e6), (1000, 1000.00001)],
)
def test_probabilities_between_bounds_keep_their_digits(a, b):
    check_mass(a, b)


@pytest.mark.parametrize(("a", "b"), [(0, 1e-12), (5, 5.0001), (9, 9 + 1e-9), (0.3, 0.3099), (0.3, 0.3101), (-30, -29.9997)])
def test_probabilities_between_close_bounds_keep_their_digits(a, b):
    check_mass(a, b)


def check_mass(a, b):
    found = float(_log_mass(*tensors(a, b)))
    assert found == pytest.approx(log_mass_exactly(a, b), rel=1e-12, abs=1e-9)
    assert float(_log_mass(*tensors(-b, -a))) == pytest.approx(found, rel=1e-13)
    ends = tuple(end.requires_grad_(True) for end in tensors(float(a), float(b)))
    slopes = torch.autograd.grad(_log_mass(*ends).sum(), ends)
    assert all(torch.isfinite(slope).all() for slope in slopes)


def mixture_cdf(shape, z):
    parts = zip(shape.weights, shape.offsets, shape.scales, strict=True)
    return sum(weight * stats.norm.cdf((z - offset) / scale) for weight, offset, scale in parts)


@SHAPED
def test_shapes_have_mean_zero_variance_one_and_look_like_what_they_stand_for(shape):
    weights, offsets, scales = (np.array(part) for part in (shape.weights, shape.offsets, shape.scales))
    assert weights.sum() == pytest.approx(1, abs=1e-9)
    assert weights @ offsets == pytest.approx(0, abs=1e-9)
    assert weights @ (offsets**2 + scales**2) == pytest.approx(1, abs=1e-8)
    z = np.linspace(-8, 5, 2001)
    law = {
        "normal": stats.norm(),
        # log of an exponential variable, standardised.
        "Weibull": stats.gumbel_l(np.euler_gamma * math.sqrt(6) / math.pi, math.sqrt(6) / math.pi),
        "logistic": stats.logistic(0, math.sqrt(3) / math.pi),
    }[shape.name]
    density = sum(w * stats.norm.pdf(z, o, s) for w, o, s in zip(weights, offsets, scales, strict=True))
    assert np.abs(density - law.pdf(z)).max() < 1.4e-3
    assert np.abs(mixture_cdf(shape, z) - law.cdf(z)).max() < 2.1e-4


@SHAPED
def test_bounds_have_the_probability_between_them_and_known_numbers_a_density(shape):
    family, phi = CensoredFamily(shape), 0.4
    assert isinstance(family, Family)
    found = family.log_prob(BOUNDS, F, torch.full_like(F, phi)).numpy()
    std = math.sqrt(phi)
    z = (1.0 - 0.2) / std
    parts = list(zip(shape.weights, shape.offsets, shape.scales, strict=True))
    assert found[0] == pytest.approx(math.log(sum(w * stats.norm.pdf(z, o, s) for w, o, s in parts) / std), rel=1e-12)
    for row in (1, 2, 3):
        low, high = ((float(end) - float(F[row])) / std for end in BOUNDS[:, row])
        assert found[row] == pytest.approx(math.log(mixture_cdf(shape, high) - mixture_cdf(shape, low)), rel=1e-10)
    # Bounds that nearly meet say what a known number says, times their distance.
    middle = family.log_prob(torch.tensor([[1.2], [1.2]], dtype=F64), F[4:5], torch.full((1,), phi, dtype=F64))
    assert found[4] == pytest.approx(float(middle) + math.log(float(BOUNDS[1, 4] - BOUNDS[0, 4])), abs=1e-6)
    assert np.isfinite(found[5])


@SHAPED
def test_score_and_curvature_are_derivatives(shape):
    family, phi, step = CensoredFamily(shape), torch.full_like(F, 0.4), 1e-4
    f = F.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(family.log_prob(BOUNDS, f, phi).sum(), f)
    torch.testing.assert_close(family.score(BOUNDS, F, phi), slope, rtol=1e-9, atol=1e-7)
    bent = (family.score(BOUNDS, F - step, phi) - family.score(BOUNDS, F + step, phi)) / (2 * step)
    found = family.curvature(BOUNDS, F, phi)
    positive = bent > 1e-4
    torch.testing.assert_close(found[positive], bent[positive], rtol=1e-5, atol=1e-6)
    assert (found > 0).all()
    if shape is NORMAL:
        assert positive.all()


@SHAPED
def test_gradients_pass_gradcheck(shape):
    family = CensoredFamily(shape)
    bounds = BOUNDS[:, [0, 1, 2, 3, 5]]
    f, phi, variance = (
        part.clone().requires_grad_(True) for part in (F[:5], torch.full((5,), 0.3, dtype=F64), torch.rand(5, dtype=F64) + 0.1)
    )
    assert torch.autograd.gradcheck(lambda *a: family.log_prob(bounds, *a), (f, phi))
    assert torch.autograd.gradcheck(lambda *a: family.closed_log_marginal(bounds, *a), (f, variance, phi))


@SHAPED
@pytest.mark.parametrize("phi", [1e-3, 0.3])
def test_integrals_over_f_are_exact(shape, phi):
    family, mean, std = CensoredFamily(shape), 0.4, 0.7
    f, weight = panels(mean - 10 * std, mean + 10 * std, 4000)
    weight = weight * stats.norm.pdf(f, mean, std)
    for low, high in ((0.5, 0.5), (0.3, 0.9), (-INF, 0.2)):
        bounds = torch.tensor([[low], [high]], dtype=F64)
        log_p = family.log_prob(bounds, torch.from_numpy(f), torch.full((1,), phi, dtype=F64)).numpy()
        columns = tensors(mean, std**2, phi)
        assert float(expected_log_prob(family, bounds, *columns)) == pytest.approx(weight @ log_p, rel=1e-8)
        assert float(log_marginal(family, bounds, *columns)) == pytest.approx(
            math.log(weight @ np.exp(log_p)), rel=1e-8, abs=1e-9
        )


@SHAPED
def test_the_law_of_y_is_the_mixture_with_the_variance_of_f_added(shape):
    family = CensoredFamily(shape)
    mean, variance, phi = np.array([0.3, -1.0]), np.array([0.5, 1e-14]), np.array([0.2, 2.0])
    law = family.law(mean, variance, phi)
    assert isinstance(law, Law)
    np.testing.assert_allclose(law.expectation(), mean, atol=1e-9)
    np.testing.assert_allclose(law.variance(), variance + phi, rtol=1e-8)
    y = torch.tensor([[0.9, -2.0], [0.9, -2.0]], dtype=F64)
    columns = tuple(torch.from_numpy(part) for part in (mean, variance, phi))
    np.testing.assert_allclose(law.log_density(y[0].numpy()), log_marginal(family, y, *columns).numpy(), rtol=1e-12)
    draws = family.draw(np.full(20_000, 0.3), np.full(20_000, 0.2), np.random.default_rng(0))
    assert stats.kstest(draws, lambda at: family.cumulative(at, np.array(0.3), np.array(0.2))).pvalue > 0.001


def test_extreme_bounds_have_finite_answers():
    family = CensoredFamily()
    bounds = torch.tensor([[1e300, -INF, -INF, 0.0, -1e8], [1e300, -1e300, INF, 1e-300, INF]], dtype=F64)
    f, phi = (
        torch.tensor(values, dtype=F64, requires_grad=True) for values in ([50.0, -50.0, 0.0, 0.0, 50.0], [1e-6, 1e4, 1, 1, 1e-6])
    )
    for row in range(1, 5):
        log_p = family.log_prob(bounds[:, [row]], f[[row]], phi[[row]])
        assert torch.isfinite(log_p).all()
        assert float(log_p.detach()) <= 0
        assert all(torch.isfinite(slope).all() for slope in torch.autograd.grad(log_p.sum(), (f, phi)))
        assert torch.isfinite(family.score(bounds[:, [row]], f[[row]].detach(), phi[[row]].detach())).all()
        assert (family.curvature(bounds[:, [row]], f[[row]].detach(), phi[[row]].detach()) > 0).all()
    # That a number is any number says nothing.
    assert float(family.log_prob(bounds[:, [2]], f[[2]], phi[[2]]).detach()) == 0.0


# Levels in order.

LEVELS = OrdinalFamily(thresholds=(-0.7, 0.4, 0.5), values=(1.0, 2.0, 5.0, 9.0))


def test_probabilities_of_levels_are_those_between_thresholds_and_add_up_to_one():
    f, phi = torch.linspace(-3, 3, 7, dtype=F64), torch.full((7,), 0.5, dtype=F64)
    found = torch.stack([LEVELS.log_prob(torch.full((7,), float(j), dtype=F64), f, phi).exp() for j in range(4)]).numpy()
    ends = np.concatenate([[-INF], LEVELS.thresholds, [INF]])
    cumulative = stats.norm.cdf((ends[:, None] - f.numpy()) / math.sqrt(0.5))
    np.testing.assert_allclose(found, np.diff(cumulative, axis=0), rtol=1e-11, atol=1e-15)
    np.testing.assert_allclose(found.sum(0), 1, rtol=1e-14)
    values = np.array(LEVELS.values)
    np.testing.assert_allclose(LEVELS.mean(f, phi).numpy(), values @ found, rtol=1e-12)
    np.testing.assert_allclose(LEVELS.variance(f, phi).numpy(), values**2 @ found - (values @ found) ** 2, rtol=1e-10)
    for y, place in ((0.0, 0), (1.0, 1), (4.9, 2), (5.0, 3), (9.0, 4), (50.0, 4)):
        found = LEVELS.cumulative(np.full(7, y), f.numpy(), phi.numpy())
        np.testing.assert_allclose(found, cumulative[place], rtol=1e-12)


def test_the_law_of_levels_is_the_integral_and_keeps_small_probabilities():
    mean, variance, phi = np.array([0.1, 12.0, -12.0]), np.array([0.6, 0.5, 0.5]), np.full(3, 0.5)
    law = LEVELS.law(mean, variance, phi)
    np.testing.assert_allclose(law.probabilities.sum(0), 1, rtol=1e-15)
    assert law.probabilities.min() > 0
    for place in range(4):
        at = torch.full((3,), float(place), dtype=F64)
        exact = log_marginal(LEVELS, at, *(torch.from_numpy(part) for part in (mean, variance, phi))).numpy()
        np.testing.assert_allclose(np.log(law.probabilities[place]), exact, rtol=1e-8, atol=1e-14)
    draws = LEVELS.draw(np.full(20_000, 0.1), np.full(20_000, 1.1), np.random.default_rng(0))
    counts = [(draws == value).sum() for value in LEVELS.values]
    assert stats.chisquare(counts, 20_000 * law.probabilities[:, 0]).pvalue > 0.001


def test_thresholds_are_free_parameters_in_order():
    free = LEVELS.free
    np.testing.assert_allclose(LEVELS.at(free).thresholds, LEVELS.thresholds, rtol=1e-14)
    rng = torch.Generator().manual_seed(0)
    for _ in range(20):
        moved = LEVELS.at(free + 5 * torch.randn(3, dtype=F64, generator=rng)).thresholds
        assert all(a < b for a, b in pairwise(moved))
    y = torch.tensor([0.0, 1.0, 2.0, 3.0, 1.0], dtype=F64)
    mean, variance, phi = (torch.rand(5, dtype=F64, generator=rng) + 0.2 for _ in range(3))
    torch.testing.assert_close(LEVELS.log_marginal_at(free, y, mean, variance, phi), log_marginal(LEVELS, y, mean, variance, phi))
    inputs = tuple(part.clone().requires_grad_(True) for part in (free, mean, variance, phi))
    assert torch.autograd.gradcheck(lambda b, m, v, p: LEVELS.log_marginal_at(b, y, m, v, p), inputs)


def test_levels_have_a_likelihood_like_any_other():
    assert isinstance(LEVELS, Family)
    places, f = torch.arange(4, dtype=F64), torch.tensor([0.3, -0.2, 0.45, 1.0], dtype=F64, requires_grad=True)
    phi = torch.full((4,), 0.5, dtype=F64)
    (slope,) = torch.autograd.grad(LEVELS.log_prob(places, f, phi).sum(), f)
    torch.testing.assert_close(LEVELS.score(places, f.detach(), phi), slope, rtol=1e-9, atol=1e-9)
    assert (LEVELS.curvature(places, f.detach(), phi) > 0).all()
    working = LEVELS.working(places)
    assert (working.diff() > 0).all()
    for f in (-50.0, 50.0):
        at = torch.full((4,), f, dtype=F64)
        for phi in (1e-6, 1e4):
            log_p = LEVELS.log_prob(places, at, torch.full_like(at, phi))
            assert torch.isfinite(log_p).all()
            assert (log_p <= 0).all()


# Bounded losses.

ROBUST = pytest.mark.parametrize(("divergence", "power"), [("beta", 0.3), ("beta", 1.0), ("gamma", 0.3), ("gamma", 2.0)])


def loss_by_definition(divergence, power, y, f, phi):
    """The β-divergence of Basu et al. (1998) and the γ-divergence of Fujisawa and Eguchi (2008), as losses of one row."""
    z, weight = panels(f - 40 * math.sqrt(phi), f + 40 * math.sqrt(phi), 600)
    integral = float(weight @ stats.norm.pdf(z, f, math.sqrt(phi)) ** (1 + power))
    density = stats.norm.pdf(y, f, math.sqrt(phi))
    if divergence == "beta":
        return integral / (1 + power) - density**power / power
    return -(density**power) / power / integral ** (power / (1 + power))


@ROBUST
def test_bounded_losses_are_those_of_their_divergence(divergence, power):
    family = RobustFamily(power=power, divergence=divergence)
    assert isinstance(family, Family)
    # Both are shifted so that they tend to −log p: by 1/β − 1/(1 + β), and by 1/γ.
    shift = 1 / power - 1 / (1 + power) if divergence == "beta" else 1 / power
    for y, f, phi in ((0.3, 0.1, 0.5), (4.0, 0.0, 0.2), (100.0, 1.0, 2.0)):
        at = tensors(y, f, phi)
        expected = loss_by_definition(divergence, power, y, f, phi) + shift
        assert -float(family.log_prob(*at)) == pytest.approx(expected, rel=1e-10, abs=1e-12)
        mean, variance = 0.4, 0.3
        nodes, weight = panels(mean - 12 * math.sqrt(variance), mean + 12 * math.sqrt(variance))
        weight = weight * stats.norm.pdf(nodes, mean, math.sqrt(variance))
        gains = family.log_prob(at[0], torch.from_numpy(nodes), at[2]).numpy()
        found = expected_log_prob(family, at[0], *tensors(mean, variance, phi))
        assert float(found) == pytest.approx(weight @ gains, rel=1e-8)


@ROBUST
def test_bounded_losses_have_their_derivatives_and_are_bounded(divergence, power):
    family = RobustFamily(power=power, divergence=divergence)
    y, phi = torch.tensor([0.0, 0.7, 3.0, 1e6], dtype=F64), torch.full((4,), 0.5, dtype=F64)
    f = torch.full((4,), 0.2, dtype=F64, requires_grad=True)
    (slope,) = torch.autograd.grad(family.log_prob(y, f, phi).sum(), f)
    torch.testing.assert_close(family.score(y, f.detach(), phi), slope, rtol=1e-10, atol=1e-12)
    assert (family.curvature(y, f.detach(), phi) >= 0).all()
    inputs = tuple(part[:3].detach().clone().requires_grad_(True) for part in (f, phi, phi))
    assert torch.autograd.gradcheck(lambda m, v, p: family.expected(y[:3], m, v, p), inputs)
    # A row that is far away costs no more than one that is merely far, and does not count.
    far = family.log_prob(torch.tensor([1e3, 1e9], dtype=F64), f[:2].detach(), phi[:2])
    assert float(far[0]) == pytest.approx(float(far[1]), abs=1e-12)
    assert float(family.score(y, f.detach(), phi)[3]) == 0.0


@pytest.mark.parametrize("divergence", ["beta", "gamma"])
def test_bounded_losses_become_the_likelihood_where_their_power_vanishes(divergence):
    y, f, phi = tensors([0.5, -1.0], [0.1, 0.3], [0.7, 0.2])
    found = RobustFamily(power=1e-7, divergence=divergence).log_prob(y, f, phi)
    exact = torch.distributions.Normal(f, phi.sqrt()).log_prob(y)
    torch.testing.assert_close(found, exact, atol=1e-5, rtol=0)


def test_a_weibull_shape_is_proportional_hazards():
    # −log S(t) of log t = f + σ ε with Weibull noise has one shape for every f: hazards are proportional.
    family, phi = CensoredFamily(WEIBULL), np.array(0.25)
    log_t = np.linspace(-1.0, 0.4, 8)
    ratios = np.log1p(-family.cumulative(log_t, np.array(0.0), phi)) / np.log1p(-family.cumulative(log_t, np.array(0.3), phi))
    np.testing.assert_allclose(ratios, ratios.mean(), rtol=0.05)
    assert LOGISTIC.name == "logistic"
