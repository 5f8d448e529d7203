"""Likelihoods of GPyTorch, and anything that gives a distribution of torch, as families of ours."""

import math

import numpy as np
import pytest
import torch
from gpytorch.likelihoods import (
    BernoulliLikelihood,
    BetaLikelihood,
    GaussianLikelihood,
    LaplaceLikelihood,
    SoftmaxLikelihood,
    StudentTLikelihood,
)
from scipy import stats
from torch.distributions import NegativeBinomial, Poisson

from gwi.core.likelihoods.expectations import expected_log_prob, log_marginal
from gwi.core.likelihoods.external import TorchFamily
from gwi.core.likelihoods.families import Family, PoissonFamily
from likelihood_cases import law_of, panels, tensors

# Each asks for thousands of integrals.
pytestmark = pytest.mark.unchecked
F64 = torch.float64
KINDS = {
    kind.__name__: kind
    for kind in (StudentTLikelihood, GaussianLikelihood, LaplaceLikelihood, BernoulliLikelihood, BetaLikelihood)
}
NAMES = pytest.mark.parametrize("name", KINDS)


class Counts(torch.nn.Module):
    """A likelihood in three lines."""

    def __init__(self, law=lambda f: Poisson(f.exp())):
        super().__init__()
        self.law = law

    def expected_log_prob(self, y, f):
        raise NotImplementedError

    def forward(self, f):
        return self.law(f)


def family_of(name):
    torch.manual_seed(0)
    return TorchFamily(KINDS[name]())


def rows(family):
    return law_of(family, [0.0, 0.8, -1.0], [0.9, 0.01, 2.0], 1.0)


def some_targets(family):
    low, _ = family.support
    if family.is_discrete:
        return np.array([0.0, 1.0, 1.0])
    return np.array([0.3, 0.6, 0.05]) if math.isfinite(low) else np.array([0.4, 1.9, -4.0])


@NAMES
def test_densities_and_probabilities_are_the_integrals(name):
    family = family_of(name)
    assert isinstance(family, Family)
    law, y = rows(family), some_targets(family)
    # |y − f| has a corner, which no rule is exact at.
    tolerance = 2e-3 if name == "LaplaceLikelihood" else 1e-7
    log_density, chance = law.log_density(y), law.cumulative(y)
    for row in range(3):
        mean, std = law.centre[row], math.sqrt(law.spread[row])
        f, weight = panels(mean - 10 * std, mean + 10 * std)
        weight = weight * stats.norm.pdf(f, mean, std)
        log_p = family.log_prob(torch.tensor(y[row]), torch.from_numpy(f), torch.ones(1)).numpy()
        assert log_density[row] == pytest.approx(math.log(weight @ np.exp(log_p)), abs=tolerance)
        given_f = family.cumulative(np.full(len(f), y[row]), f, np.ones(len(f)))
        assert chance[row] == pytest.approx(weight @ given_f, abs=max(tolerance / 10, 1e-8))
        assert float(expected_log_prob(family, *tensors(y[row], mean, std**2, 1.0))) == pytest.approx(weight @ log_p, rel=1e-2)


@NAMES
def test_quantiles_scores_and_draws_belong_together(name):
    family = family_of(name)
    law = rows(family)
    for level in (0.02, 0.5, 0.9):
        y = law.quantile(level)
        assert np.isfinite(y).all()
        if not family.is_discrete:
            np.testing.assert_allclose(law.cumulative(y), level, rtol=1e-9)
    y = some_targets(family)
    draws = law.sample(4000, np.random.default_rng(0))
    np.testing.assert_array_equal(draws, law.sample(4000, np.random.default_rng(0)))
    # E|Y − y| − ½ E|Y − Y'|
    absolute = np.abs(draws - y)
    by_draws = absolute.mean(0) - np.abs(draws[:2000] - draws[2000:]).mean(0) / 2
    np.testing.assert_allclose(law.crps(y), by_draws, atol=6 * absolute.std() / math.sqrt(2000))
    for row in range(0 if family.is_discrete else 3):
        places = law.rows(np.full(len(draws), row)).cumulative(draws[:, row])
        assert stats.kstest(places, "uniform").pvalue > 0.001


@NAMES
def test_derivatives_are_those_of_the_log_probability(name):
    family = family_of(name)
    y, f, phi = torch.from_numpy(some_targets(family)), torch.tensor([0.1, 0.5, -0.4], dtype=F64), torch.ones(3, dtype=F64)
    step = 1e-5
    slope = (family.log_prob(y, f + step, phi) - family.log_prob(y, f - step, phi)) / (2 * step)
    torch.testing.assert_close(family.score(y, f, phi), slope, rtol=1e-6, atol=1e-6)
    assert (family.curvature(y, f, phi) > 0).all()


@pytest.mark.parametrize(
    ("law", "theirs"),
    [
        (lambda f: Poisson(f.exp()), lambda f: stats.poisson(np.exp(f))),
        (lambda f: NegativeBinomial(2.0 + 0 * f, logits=f), lambda f: stats.nbinom(2.0, 1 / (1 + np.exp(f)))),
        (lambda f: torch.distributions.Exponential(f.exp()), lambda f: stats.expon(scale=np.exp(-f))),
        (lambda f: torch.distributions.LogNormal(f, 0.5 + 0 * f), lambda f: stats.lognorm(0.5, scale=np.exp(f))),
    ],
    ids=["poisson", "negative binomial", "exponential", "log-normal"],
)
def test_any_distribution_of_torch_has_its_probabilities_from_scipy(law, theirs):
    family, f = TorchFamily(Counts(law)), np.array([-0.5, 0.3, 1.2])
    found, expected = law_of(family, f, 1e-16, 1.0), theirs(f)
    assert found.support[0] == 0.0
    y = np.array([1.0, 2.0, 5.0])
    np.testing.assert_allclose(found.cumulative(y), expected.cdf(y), rtol=1e-6)
    np.testing.assert_allclose(found.log_density(y), expected.logpmf(y) if family.is_discrete else expected.logpdf(y), rtol=1e-6)
    np.testing.assert_allclose(found.expectation(), expected.mean(), rtol=1e-6)
    np.testing.assert_allclose(found.variance(), expected.var(), rtol=1e-6)
    np.testing.assert_allclose(found.quantile(0.7), expected.ppf(0.7), rtol=1e-6)
    np.testing.assert_array_equal(found.cumulative(np.full(3, -1.0)), 0.0)


def test_counts_brought_are_scored_like_our_own():
    brought, own = (law_of(family, [0.2, 3.0], [0.3, 0.1], 1.0) for family in (TorchFamily(Counts()), PoissonFamily()))
    y = np.array([2.0, 30.0])
    np.testing.assert_allclose(brought.crps(y), own.crps(y), rtol=1e-6)
    np.testing.assert_allclose(brought.log_density(y), own.log_density(y), rtol=1e-8)


def test_the_information_is_that_of_the_density_also_with_a_kink():
    f = torch.linspace(-1, 1, 2000, dtype=F64)
    laplace = LaplaceLikelihood()
    laplace.noise = 0.25
    for likelihood, wanted in ((laplace, 1 / 0.25), (GaussianLikelihood(), 1 / GaussianLikelihood().noise.item())):
        family = TorchFamily(likelihood)
        assert family.information(f, torch.ones_like(f)).mean().item() == pytest.approx(wanted, rel=0.02)
    # At the middle itself Laplace's density has no curvature at all.
    assert TorchFamily(laplace).curvature(f, f, torch.ones_like(f)).max() < 1e-6


def test_the_likelihood_of_the_user_stays_as_it_is():
    likelihood = StudentTLikelihood()
    family = TorchFamily(likelihood)
    assert likelihood.raw_noise.dtype == torch.float32
    assert likelihood.raw_noise.requires_grad
    before = family.log_prob(*tensors(0.5, 0.1, 1.0))
    likelihood.noise = 5.0
    torch.testing.assert_close(family.log_prob(*tensors(0.5, 0.1, 1.0)), before)


def test_gradients_pass_through_the_mean_and_variance_of_f():
    family = family_of("StudentTLikelihood")
    y, phi = tensors([0.4, 2.0], [1.0, 1.0])
    inputs = tuple(torch.tensor(values, dtype=F64, requires_grad=True) for values in ([0.1, 0.5], [0.4, 0.2]))
    assert torch.autograd.gradcheck(lambda m, v: log_marginal(family, y, m, v, phi), inputs, atol=1e-5)


def test_a_likelihood_of_several_f_is_refused():
    with pytest.raises(ValueError, match="one f"):
        TorchFamily(SoftmaxLikelihood(num_classes=3, num_features=2))
    with pytest.raises(ValueError, match="numbers for two f"):
        TorchFamily(Counts(lambda f: Poisson(f.exp().expand(3, 2))))
