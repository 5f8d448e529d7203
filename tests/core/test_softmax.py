"""Expectations of the softmax against sums over fine grids, draws, and the limit of certain logits."""

import math

import numpy as np
import pytest
import torch

from gwi.core.likelihoods.softmax import SoftmaxLikelihood, expected_log_normaliser, softmax_moments
from gwi.models.classification import MOST_STD, within_reach

F64 = torch.float64


def cases(num_classes, spread, num_rows=6, seed=0):
    g = torch.Generator().manual_seed(seed)
    mean = 3 * torch.randn(num_classes, num_rows, dtype=F64, generator=g)
    return mean, spread**2 * torch.randn(num_classes, num_rows, dtype=F64, generator=g).exp()


def entropy(p):
    return -(p * p.log()).sum(0)


@pytest.mark.parametrize("spread", [0.1, 1.0, 6.0, 30.0])
def test_two_classes_are_a_logistic_under_one_normal_difference(spread):
    mean, variance = cases(2, spread)
    z = np.linspace(-12, 12, 200_001)
    weight = np.exp(-(z**2) / 2) * (z[1] - z[0]) / math.sqrt(2 * math.pi)
    found = softmax_moments(mean, variance)
    tolerance = 1e-7 if spread <= 6 else 2e-3
    for n in range(mean.shape[1]):
        d = float(mean[0, n] - mean[1, n]) + math.sqrt(float(variance[:, n].sum())) * z
        p = 1 / (1 + np.exp(-d))
        assert float(found.probabilities[0, n]) == pytest.approx((weight * p).sum(), abs=tolerance)
        # log(e^a + e^b) = b + log(1 + e^d)
        log_normaliser = float(mean[1, n]) + (weight * np.logaddexp(0, d)).sum()
        assert float(found.log_normaliser[n]) == pytest.approx(log_normaliser, abs=10 * tolerance * (1 + spread))
        h = np.logaddexp(0, -d) * p + np.logaddexp(0, d) * (1 - p)
        assert float(found.entropy[n]) == pytest.approx((weight * h).sum(), abs=10 * tolerance * (1 + spread))


@pytest.mark.parametrize("num_classes", [3, 10, 100])
@pytest.mark.parametrize("spread", [0.3, 2.0])
def test_moments_are_the_means_over_draws(num_classes, spread):
    mean, variance = cases(num_classes, spread, num_rows=3)
    found = softmax_moments(mean, variance)
    g = torch.Generator().manual_seed(1)
    draws = mean + variance.sqrt() * torch.randn(40_000, *mean.shape, dtype=F64, generator=g)
    p = draws.softmax(1)
    for value, sample in (
        (found.probabilities, p),
        (found.log_normaliser, draws.logsumexp(1)),
        (found.entropy, torch.special.entr(p).sum(1)),
    ):
        error = sample.std(0) / 200 + 1e-9
        assert ((value - sample.mean(0)).abs() < 5 * error).all()


@pytest.mark.parametrize("spread", [4.0, 60.0, 400.0])
def test_a_class_that_spreads_widely_beside_narrow_ones_is_one_more_integral(spread):
    mean = torch.tensor([[0.3, 5.0], [0.0, -spread], [-0.2, 2.0]], dtype=F64)
    std = torch.tensor([[0.5, 0.0], [spread, spread], [1.0, 0.3]], dtype=F64)
    found = softmax_moments(mean, std.square())
    # Given the others' logits, which a Gauss-Hermite rule takes, the wide one is integrated on a fine grid.
    z, w = (torch.from_numpy(v) for v in np.polynomial.hermite_e.hermegauss(24))
    fine = torch.linspace(-9, 9, 40_001, dtype=F64)
    law = (-fine.square() / 2).exp()
    law = law / law.sum()
    expected = torch.zeros(3, 2, dtype=F64)
    for a, weight_a in zip(z, w / w.sum(), strict=True):
        for b, weight_b in zip(z, w / w.sum(), strict=True):
            logits = torch.stack(
                [
                    (mean[0] + std[0] * a).expand(len(fine), 2),
                    mean[1] + std[1] * fine[:, None],
                    (mean[2] + std[2] * b).expand(len(fine), 2),
                ]
            )
            expected += weight_a * weight_b * (law[:, None] * logits.softmax(0)).sum(1)
    torch.testing.assert_close(found.probabilities, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(found.probabilities.sum(0), torch.ones(2, dtype=F64), rtol=0, atol=1e-6)
    assert (found.entropy > 0).all()
    assert (found.entropy < entropy(found.probabilities)).all()


@pytest.mark.parametrize("num_classes", [2, 10, 100])
@pytest.mark.parametrize("spread", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("digits", [3, 5])
def test_fewer_digits_are_so_many_digits(num_classes, spread, digits):
    mean, variance = cases(num_classes, spread, num_rows=4)
    exact, quick = (softmax_moments(mean, variance, digits=count) for count in (8, digits))
    error = 10.0**-digits
    torch.testing.assert_close(quick.probabilities, exact.probabilities, rtol=0, atol=error)
    torch.testing.assert_close(quick.log_normaliser, exact.log_normaliser, rtol=0, atol=10 * error)
    torch.testing.assert_close(quick.entropy, exact.entropy, rtol=0, atol=10 * error)


def test_probabilities_sum_to_one_before_any_normalisation():
    for spread in (0.01, 1.0, 10.0):
        mean, variance = cases(7, spread, num_rows=50)
        torch.testing.assert_close(
            softmax_moments(mean, variance).probabilities.sum(0), torch.ones(50, dtype=F64), rtol=0, atol=1e-7
        )


def test_certain_logits_give_the_softmax_itself():
    mean, _ = cases(5, 1.0)
    found = softmax_moments(mean, torch.zeros_like(mean))
    torch.testing.assert_close(found.probabilities, mean.softmax(0), rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(found.log_normaliser, mean.logsumexp(0), rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(found.entropy, entropy(mean.softmax(0)), rtol=1e-6, atol=1e-7)


def test_logits_far_from_zero_and_rows_of_unlike_spread_lose_nothing():
    mean, variance = cases(4, 1.0, num_rows=40)
    variance[:, ::2] *= 100
    alone = [softmax_moments(mean[:, n : n + 1], variance[:, n : n + 1]).probabilities for n in range(40)]
    together = softmax_moments(mean + 1e4, variance)
    torch.testing.assert_close(together.probabilities, torch.cat(alone, dim=1), rtol=0, atol=1e-7)
    shifted = softmax_moments(mean, variance)
    torch.testing.assert_close(together.log_normaliser, shifted.log_normaliser + 1e4, rtol=0, atol=1e-6)
    torch.testing.assert_close(together.entropy, shifted.entropy, rtol=0, atol=1e-6)


@pytest.mark.parametrize("digits", [3, 8])
def test_a_row_does_not_depend_on_those_beside_it(digits):
    mean, variance = cases(4, 1.0, num_rows=30)
    variance = variance * torch.logspace(-3, 4, 30, dtype=F64)
    variance[0] = 1e-4
    together = softmax_moments(mean, variance, digits=digits)
    for n in range(30):
        alone = softmax_moments(mean[:, n : n + 1], variance[:, n : n + 1], digits=digits)
        torch.testing.assert_close(alone.probabilities[:, 0], together.probabilities[:, n], rtol=0, atol=1e-14)
        torch.testing.assert_close(alone.log_normaliser[0], together.log_normaliser[n], rtol=1e-13, atol=1e-13)


def test_entropy_that_is_left_is_at_most_the_predictive_one():
    mean, variance = cases(6, 2.0, num_rows=100)
    found = softmax_moments(mean, variance)
    gain = entropy(found.probabilities) - found.entropy
    assert (gain > 0).all()


def test_gradients_are_right():
    mean, variance = (v.requires_grad_(True) for v in cases(3, 0.7, num_rows=2))
    y = torch.tensor([0, 2])
    likelihood = SoftmaxLikelihood(3)
    assert torch.autograd.gradcheck(
        lambda m, v: likelihood.expected_log_likelihood(y, m, v), (mean, variance), eps=1e-5, atol=1e-5
    )
    assert torch.autograd.gradcheck(lambda m, v: likelihood.nll(y, m, v), (mean, variance), eps=1e-5, atol=1e-5)


@pytest.mark.parametrize(("digits", "error"), [(8, 1e-6), (5, 1e-4)])
@pytest.mark.parametrize("spread", [0.01, 0.7, 3.0, 30.0, "mixed"])
def test_slopes_of_the_normaliser_are_those_of_the_recorded_integral(spread, digits, error):
    mean, variance = cases(4, 1.0 if spread == "mixed" else spread, num_rows=30)
    if spread == "mixed":
        variance = variance * torch.tensor([1e-3, 1.0, 100.0, 2e3], dtype=F64)[:, None]
    weight = torch.linspace(-1, 2, 30, dtype=F64)
    slopes = []
    for normaliser in (
        lambda m, v: softmax_moments(m, v).log_normaliser,
        lambda m, v: expected_log_normaliser(m, v, digits=digits),
    ):
        arguments = mean.clone().requires_grad_(True), variance.clone().requires_grad_(True)
        value = normaliser(*arguments)
        slopes.append([value.detach(), *torch.autograd.grad((weight * value).sum(), arguments)])
    for found, wanted in zip(slopes[1], slopes[0], strict=True):
        torch.testing.assert_close(found, wanted, rtol=error, atol=error)


def test_expected_log_likelihood_is_at_most_the_log_of_the_predictive_probability():
    mean, variance = cases(5, 1.5, num_rows=20)
    likelihood = SoftmaxLikelihood(5)
    y = torch.arange(20) % 5
    assert (likelihood.expected_log_likelihood(y, mean, variance) <= -likelihood.nll(y, mean, variance) + 1e-9).all()
    assert likelihood.predictive(mean, variance).probs.shape == (20, 5)


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="at least 2"):
        SoftmaxLikelihood(1)


def test_spreads_beyond_reach_are_shrunk_and_probabilities_stay():
    mean = torch.tensor([[0.3, 0.0, -4e3], [0.0, 1.0, 0.0], [-0.2, 2e9, 1.0]], dtype=F64)
    std = torch.tensor([[0.5, 1e9, 0.5], [3e3, 1e9, 3e3], [1.0, 3e9, 4e3]], dtype=F64)
    close = within_reach(mean, std.square())
    assert (close[1] <= MOST_STD**2 * (1 + 1e-12)).all()
    draws = (mean + std * torch.randn(100_000, 3, 3, dtype=F64, generator=torch.Generator().manual_seed(0))).softmax(1).mean(0)
    torch.testing.assert_close(softmax_moments(*close, digits=5).probabilities, draws, rtol=0, atol=6e-3)
    near = mean[:, :1], std[:, :1].clamp_max(MOST_STD).square()
    for before, after in zip(near, within_reach(*near), strict=True):
        torch.testing.assert_close(after, before, rtol=0, atol=0)
