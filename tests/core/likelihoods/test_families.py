"""Counts, positive and bounded numbers: every formula against SciPy's, every integral over f by brute force."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.special import gammaln

from gwi.core.likelihoods.counting import moments_of_log_link, stirling_rest
from gwi.core.likelihoods.expectations import LinkedLikelihood, NodesAtModes, expected_log_prob, log_marginal
from gwi.core.likelihoods.families import BetaFamily, Family, GammaFamily, NegativeBinomialFamily, PoissonFamily
from likelihood_cases import LINKED, expectation, log_probability, scipy_law, tensors
from likelihood_cases import log_marginal as reference_marginal

# Each asks for thousands of integrals.
pytestmark = pytest.mark.unchecked
NAMES = pytest.mark.parametrize("name", LINKED)
F64 = torch.float64


def dispersions(family):
    return (1e-3, 0.2, 3.0) if family.has_dispersion else (1.0,)


def targets(family, f, phi):
    """Some from the middle of the law at f and from both sides of it, none at a bound."""
    y = scipy_law(family, f, phi).ppf([0.05, 0.5, 0.97])
    return y if family.is_discrete else np.clip(y, family.support[0] + 1e-9, family.support[1] - 1e-9)


def grid(family, means=(-2.0, 0.3, 3.0)):
    for f, phi in itertools.product(means, dispersions(family)):
        yield from ((f, phi, float(y)) for y in targets(family, f, phi))


@NAMES
def test_density_moments_and_probabilities_given_f_are_scipys(name):
    family = LINKED[name]
    assert isinstance(family, Family)
    for f, phi, y in grid(family):
        law = scipy_law(family, f, phi)
        at_y, at_f, at_phi = tensors(y, f, phi)
        assert float(family.log_prob(at_y, at_f, at_phi)) == pytest.approx(log_probability(family, y, f, phi), rel=1e-9, abs=1e-9)
        assert float(family.mean(at_f, at_phi)) == pytest.approx(law.mean(), rel=1e-12)
        assert float(family.variance(at_f, at_phi)) == pytest.approx(law.var(), rel=1e-11)
        chance = family.cumulative(np.array([y]), np.array([f]), np.array([phi]))
        assert float(chance[0]) == pytest.approx(law.cdf(y), rel=1e-12, abs=1e-15)
        assert float(family.link(family.mean(at_f, at_phi))) == pytest.approx(f, rel=1e-9)


@NAMES
def test_score_is_the_derivative_and_curvature_its_variance(name):
    family = LINKED[name]
    for f, phi in itertools.product((-1.5, 0.4, 2.0), dispersions(family)):
        law = scipy_law(family, f, phi)
        for y in targets(family, f, phi):
            at_y, at_f, at_phi = tensors(y, f, phi)
            at_f.requires_grad_(True)
            (slope,) = torch.autograd.grad(family.log_prob(at_y, at_f, at_phi).sum(), at_f)
            assert float(family.score(at_y, at_f.detach(), at_phi)) == pytest.approx(float(slope), rel=1e-8, abs=1e-8)
        if "beta" in name and phi > 1:
            continue  # half of its draws are closer to a bound than floating point can say
        # Fisher's information is the variance of the score.
        rng = np.random.default_rng(0)
        draws = torch.from_numpy(np.asarray(law.rvs(20_000, random_state=rng), dtype=np.float64))
        if not family.is_discrete:
            draws = draws.clamp(family.support[0] + 1e-12, family.support[1] - 1e-12)
        _, at_f, at_phi = tensors(0.0, f, phi)
        squares = family.score(draws, at_f.expand_as(draws), at_phi.expand_as(draws)).square()
        information = float(family.curvature(draws[:1], at_f, at_phi))
        assert float(squares.mean()) == pytest.approx(information, abs=6 * float(squares.std()) / math.sqrt(len(draws)))


@NAMES
def test_curvature_of_log_links_is_that_of_the_expected_log_probability(name):
    family = LINKED[name]
    step = 1e-3
    for f, phi in itertools.product((-1.0, 1.2), dispersions(family)[:2]):
        law = scipy_law(family, f, phi)
        y, weight = _sum_over(family, law)
        values = [float(weight @ log_probability(family, y, at, phi)) for at in (f - step, f, f + step)]
        second = (values[0] - 2 * values[1] + values[2]) / step**2
        at_y, at_f, at_phi = tensors(y[:1], f, phi)
        assert -second == pytest.approx(float(family.curvature(at_y, at_f, at_phi)), rel=1e-4)


def _sum_over(family, law):
    """Values of y and their probabilities."""
    if family.is_discrete:
        y = np.arange(0.0, law.ppf(1 - 1e-14) + 1)
        return y, law.pmf(y)
    levels = (np.arange(40_000) + 0.5) / 40_000
    return law.ppf(levels), np.full(len(levels), 1 / len(levels))


@NAMES
def test_gradients_in_f_and_the_dispersion_pass_gradcheck(name):
    family = LINKED[name]
    for phi in dispersions(family):
        y = torch.as_tensor(targets(family, 0.7, phi), dtype=F64)
        f = torch.tensor([0.2, 0.7, 1.1], dtype=F64, requires_grad=True)
        dispersion = torch.full_like(f, phi).requires_grad_(family.has_dispersion)
        variance = torch.tensor([0.01, 0.4, 2.0], dtype=F64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda *a, y=y: family.log_prob(y, *a), (f, dispersion), atol=1e-5, rtol=1e-5)
        for integral in (expected_log_prob, log_marginal) if phi == dispersions(family)[-1] else ():

            def value(m, v, p, y=y, integral=integral):
                return integral(family, y, m, v, p)

            assert torch.autograd.gradcheck(value, (f, variance, dispersion), atol=1e-5, rtol=1e-5)


@NAMES
@pytest.mark.parametrize("std", [0.03, 0.5, 1.5])
def test_integrals_over_a_gaussian_f_are_exact(name, std):
    family = LINKED[name]
    for f, phi, y in grid(family, means=(-1.5, 1.8)):
        mean, variance = f + 0.7 * std, std**2
        columns = tensors(y, mean, variance, phi)
        expected = expectation(lambda at, y=y, phi=phi: log_probability(family, y, at, phi), mean, variance)
        assert float(expected_log_prob(family, *columns)) == pytest.approx(expected, rel=1e-8, abs=1e-8)
        marginal = reference_marginal(family, y, mean, variance, phi)
        assert float(log_marginal(family, *columns)) == pytest.approx(marginal, rel=1e-8, abs=1e-8)


@NAMES
def test_a_likelihood_far_from_f_and_much_narrower_is_met(name):
    # Newton's steps from m would be far too long, and a rule around m would see nothing.
    family, phi = LINKED[name], 1e-4
    y = {"beta": 0.01, "beta between bounds": -1.9, "gamma": 1115.0}.get(name, 90_000.0)
    for mean, std in ((2.5, 3.0), (-4.0, 2.0), (0.0, 20.0)):
        # So narrow that brute force needs its nodes around the mode.
        centre = math.log(y) if "beta" not in name else float(family.working(torch.tensor(y, dtype=F64)))
        at = np.linspace(centre - 1.0, centre + 1.0, 400_001)
        log_p = log_probability(family, y, at, phi) - (at - mean) ** 2 / (2 * std**2) - math.log(std * math.sqrt(2 * math.pi))
        expected = np.log(np.exp(log_p - log_p.max()).sum() * (at[1] - at[0])) + log_p.max()
        assert float(log_marginal(family, *tensors(y, mean, std**2, phi))) == pytest.approx(expected, rel=1e-7, abs=1e-7)


@NAMES
def test_few_nodes_at_modes_nearly_say_what_all_nodes_say(name):
    family = LINKED[name]
    phi = 0.3
    y = torch.as_tensor(targets(family, 0.5, phi), dtype=F64)
    mean, variance, dispersion = (torch.full_like(y, value) for value in (0.4, 0.3, phi))
    nodes = NodesAtModes(family, y, mean, variance, dispersion)
    exact = log_marginal(family, y, mean, variance, dispersion)
    torch.testing.assert_close(nodes.log_marginal(mean, variance, dispersion), exact, atol=1e-4, rtol=0)
    # They move along with m and v.
    moved = (mean + 0.05, 1.1 * variance, 1.1 * dispersion)
    torch.testing.assert_close(nodes.log_marginal(*moved), log_marginal(family, y, *moved), atol=5e-3, rtol=0)
    torch.testing.assert_close(log_marginal(family, y, mean, variance, dispersion, num_nodes=12), exact, atol=1e-4, rtol=0)


def test_the_likelihood_as_a_module_has_its_dispersion_as_a_parameter():
    likelihood = LinkedLikelihood(GammaFamily(), 0.4)
    y, mean, variance, phi = tensors([1.0, 2.0], [0.1, 0.5], [0.2, 0.1], [0.4, 0.4])
    torch.testing.assert_close(
        likelihood.expected_log_likelihood(y, mean[None], variance[None]),
        expected_log_prob(GammaFamily(), y, mean, variance, phi),
    )
    torch.testing.assert_close(
        likelihood.nll(y, mean[None], variance[None]), -log_marginal(GammaFamily(), y, mean, variance, phi)
    )
    assert [name for name, _ in likelihood.named_parameters()] == ["log_dispersion"]
    assert not LinkedLikelihood(PoissonFamily()).log_dispersion.requires_grad
    with pytest.raises(ValueError, match="dispersion is positive"):
        LinkedLikelihood(GammaFamily(), 0.0)


@NAMES
@pytest.mark.parametrize("f", [-50.0, 50.0])
@pytest.mark.parametrize("phi", [1e-6, 1.0, 1e4])
def test_nothing_is_lost_at_extreme_values(name, f, phi):
    family = LINKED[name]
    low, high = family.support
    middle = {"beta": 0.3, "beta between bounds": 4.0}.get(name, min(math.exp(f), 1e8) if f > 0 else 1e-20)
    y = torch.tensor([0.0, 1.0, 1e8] if family.is_discrete else [middle, middle / 2], dtype=F64)
    at = torch.full_like(y, f, requires_grad=True)
    dispersion = torch.full_like(y, phi).requires_grad_(True)
    log_p = family.log_prob(y, at, dispersion)
    assert torch.isfinite(log_p).all()
    assert not family.is_discrete or (log_p <= 1e-12).all()
    slopes = torch.autograd.grad(log_p.sum(), (at, dispersion), allow_unused=True)
    assert all(torch.isfinite(slope).all() for slope in slopes if slope is not None)
    at, dispersion = at.detach(), dispersion.detach()
    assert torch.isfinite(family.score(y, at, dispersion)).all()
    assert (family.curvature(y, at, dispersion) >= 0).all()
    assert torch.isfinite(family.curvature(y, at, dispersion)).all()
    assert (family.variance(at, dispersion) >= 0).all()
    assert torch.isfinite(log_marginal(family, y, at, torch.ones_like(at), dispersion)).all()
    mean = family.mean(at, dispersion)
    assert ((mean >= low) & (mean <= high)).all()
    drawn = family.draw(at.numpy(), dispersion.numpy(), np.random.default_rng(0))
    assert ((drawn >= low) & (drawn <= high)).all()
    assert not family.is_discrete or (drawn == np.round(drawn)).all()


@pytest.mark.parametrize("y", [1e3, 1e8, 1e12])
def test_probabilities_of_large_counts_keep_their_digits(y):
    # At the mode a normal law is as good as exact: ½ log 2πv is the log probability, but for 1/(12 y).
    at_y, f, phi = tensors(y, math.log(y), 1e-3)
    poisson = -math.log(2 * math.pi * y) / 2 - 1 / (12 * y)
    assert float(PoissonFamily().log_prob(at_y, f, phi)) == pytest.approx(poisson, abs=1e-8)
    # A negative binomial law at its mean; its size is a thousand.
    size = 1e3
    gamma_rest = gammaln(size) - ((size - 0.5) * math.log(size) - size + math.log(2 * math.pi) / 2)
    expected = -math.log(2 * math.pi * y * (1 + y / size)) / 2 + 1 / (12 * (y + size)) - gamma_rest - 1 / (12 * y)
    assert float(NegativeBinomialFamily().log_prob(at_y, f, phi)) == pytest.approx(expected, abs=1e-8)
    # Three standard deviations off it, too.
    off = y + 3 * math.sqrt(y)
    x = torch.tensor([off], dtype=F64)
    assert float(PoissonFamily().log_prob(x, f, phi)) == pytest.approx(poisson - 4.5, abs=5 / math.sqrt(y))


def test_the_rest_of_stirlings_formula_is_one_smooth_function():
    x = torch.cat([torch.logspace(-3, 2, 400, dtype=F64), torch.tensor([15.999, 16.0, 16.001], dtype=F64)])
    main = (x - 0.5) * x.log() - x + math.log(2 * math.pi) / 2
    torch.testing.assert_close(stirling_rest(x) + main, torch.lgamma(x), rtol=1e-13, atol=1e-13)
    assert torch.autograd.gradcheck(stirling_rest, (torch.tensor([0.01, 1.0, 15.9, 16.1, 1e4], dtype=F64, requires_grad=True),))
    assert float(stirling_rest(torch.tensor(1e15, dtype=F64))) == pytest.approx(1 / 12e15)


def test_negative_binomial_counts_become_poissons_where_rates_do_not_vary():
    y, f, phi = tensors([0.0, 3.0, 40.0], [0.0, 1.5, 3.5], [1e-12] * 3)
    torch.testing.assert_close(
        NegativeBinomialFamily().log_prob(y, f, phi), PoissonFamily().log_prob(y, f, phi), atol=1e-8, rtol=0
    )


def test_moments_under_a_logarithmic_link_are_those_of_a_log_normal_law():
    mean, variance = tensors([-1.0, 0.5, 2.0, 1.0], [1e-14, 0.3, 9.0, 1e4])
    first, second, spread = moments_of_log_link(mean, variance)
    for m, v, a, b, c in zip(*(part[:3].tolist() for part in (mean, variance, first, second, spread)), strict=True):
        assert a == pytest.approx(math.exp(m + v / 2), rel=1e-13)
        assert b == pytest.approx(math.exp(2 * m + 2 * v), rel=1e-13)
        # With all its digits where v is tiny.
        assert c == pytest.approx(math.exp(2 * m + v) * math.expm1(v), rel=1e-12)
    assert all(torch.isfinite(part).all() for part in (first, second, spread))


def test_targets_at_a_bound_count_as_the_margin_from_it():
    y = torch.tensor([0.0, 1.0], dtype=F64)
    f, phi = torch.zeros(2, dtype=F64), torch.full((2,), 0.2, dtype=F64)
    at_bounds = BetaFamily(margin=0.01).log_prob(y, f, phi)
    torch.testing.assert_close(at_bounds, BetaFamily().log_prob(torch.tensor([0.01, 0.99], dtype=F64), f, phi))
    assert torch.isfinite(BetaFamily(margin=0.01).working(y)).all()


@NAMES
def test_dispersions_by_moments_are_near_the_true_ones(name):
    family = LINKED[name]
    rng = np.random.default_rng(0)
    f = rng.normal(0.5, 0.4, 4000)
    y = torch.from_numpy(family.draw(f, np.full(4000, 0.15), rng))
    mean = family.mean(torch.from_numpy(f), torch.ones(4000, dtype=F64))
    found = family.rough_dispersion(y, mean, torch.ones(4000, dtype=F64))
    assert found == pytest.approx(0.15 if family.has_dispersion else 1.0, rel=0.2)
    # Working responses are numbers of the kind of f, in the order of y.
    working = family.working(y)
    assert torch.isfinite(working).all()
    order = y.argsort()
    assert (working[order].diff() >= 0).all()
