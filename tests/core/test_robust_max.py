"""Robust-max to ten digits at any ratio of variances, in value and gradient."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

import gwi.core.likelihoods.robust_max
from gwi.core.likelihoods.robust_max import RobustMaxLikelihood
from random_classes import column, random_classes, seeded

RATIOS = [10.0**exponent for exponent in range(-12, 13)]


def two_classes(ratio, scale=1.0, offset=0.0):
    """Means and variances (2, N) with r₀/r₁ = ratio, gaps on the scale of their sum and of each, and the closed form of S₀."""
    r0, r1 = scale * max(ratio, 1.0), scale * max(1 / ratio, 1.0)
    units = torch.linspace(-7, 7, 57, dtype=torch.float64)
    gaps = torch.cat([units * math.sqrt(r0 + r1), units * math.sqrt(r0), units * math.sqrt(r1)])
    mean = torch.stack([offset + gaps, torch.full_like(gaps, offset)])
    variance = torch.tensor([[r0], [r1]], dtype=torch.float64).expand(2, len(gaps)).contiguous()
    return mean, variance, stats.norm.cdf((mean[0] - mean[1]).numpy() / math.sqrt(r0 + r1))


def argmax_by_adaptive_quadrature(mean, variance, j):
    """S_j by SciPy, on a scale where class j is standard normal."""
    shift, scale = (mean - mean[j]) / math.sqrt(variance[j]), np.sqrt(variance / variance[j])

    def integrand(u):
        others = [special.ndtr((u - shift[i]) / scale[i]) for i in range(len(mean)) if i != j]
        return math.exp(-u * u / 2) / math.sqrt(2 * math.pi) * math.prod(others)

    kinks = np.concatenate([[-10.0, 10.0], *(shift + c * scale for c in (-6, -2, 0, 2, 6))])
    kinks = np.unique(np.clip(kinks, -10, 10))
    return math.fsum(integrate.quad(integrand, a, b, epsabs=1e-12, epsrel=1e-12)[0] for a, b in itertools.pairwise(kinks))


def argmax_as_printed(mean, variance, num_nodes):
    """S(x, j) as the paper prints it, with √r under the fraction."""
    roots, weights = np.polynomial.hermite.hermgauss(num_nodes)
    result = np.zeros_like(mean)
    for j in range(mean.shape[0]):
        for n in range(mean.shape[1]):
            for w, xi in zip(weights, roots, strict=True):
                product = 1.0
                for i in range(mean.shape[0]):
                    if i != j:
                        argument = math.sqrt(2 * variance[j, n]) * xi + mean[j, n] - mean[i, n]
                        product *= stats.norm.cdf(argument / math.sqrt(variance[i, n]))
                result[j, n] += w * product / math.sqrt(math.pi)
    return result


# --- Robust-max: S(x, j) ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1.0, 1e6])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_two_classes_equal_the_probit_closed_form_at_any_variance_ratio(scale, offset):
    likelihood = RobustMaxLikelihood(2)
    for ratio in RATIOS:
        mean, variance, exact = two_classes(ratio, scale, offset)
        s = likelihood.argmax_probabilities(mean, variance).numpy()
        assert np.abs(s[0] - exact).max() < 1e-12, ratio
        assert np.abs(s[1] - (1 - exact)).max() < 1e-12, ratio


@pytest.mark.parametrize("spread", [0, 1, 2, 4, 6, 12])
@pytest.mark.parametrize("mean_scale", [0.0, 0.1, 1.0, 10.0, 1e3])
def test_ten_argmax_probabilities_sum_to_one_at_any_spread_of_variances(spread, mean_scale):
    mean, variance = random_classes(10, 20, spread=spread, mean_scale=mean_scale, generator=seeded(spread))
    s = RobustMaxLikelihood(10).argmax_probabilities(mean, variance)
    assert (s.sum(0) - 1).abs().max() < 1e-11
    assert (s >= 0).all()


def test_argmax_probabilities_sum_to_one_for_clusters_of_identical_classes():
    # Coincident breakpoints leave the fewest nodes where a product of many distribution functions is steepest.
    generator = seeded()
    for num_clusters in (1, 2, 3):
        centres, variances = random_classes(4, 200, spread=3, mean_scale=2.0, generator=generator)
        member = torch.randint(num_clusters, (10, 200), generator=generator)
        s = RobustMaxLikelihood(10).argmax_probabilities(centres.gather(0, member), variances.gather(0, member))
        assert (s.sum(0) - 1).abs().max() < 1e-11


@pytest.mark.parametrize(("num_classes", "bound"), [(2, 1e-12), (10, 1e-11), (50, 1e-9), (200, 1e-8)])
def test_identical_classes_are_equally_likely(num_classes, bound):
    s = RobustMaxLikelihood(num_classes).argmax_probabilities(
        torch.full((num_classes, 1), 3.0, dtype=torch.float64), torch.full((num_classes, 1), 0.2, dtype=torch.float64)
    )
    assert (s * num_classes - 1).abs().max() < bound


@pytest.mark.parametrize(("spread", "mean_scale"), [(0, 1.0), (3, 1.0), (6, 3.0)])
def test_ten_argmax_probabilities_agree_with_a_million_draws(spread, mean_scale, generator):
    num_draws = 1_000_000
    mean, variance = random_classes(10, 1, spread=spread, mean_scale=mean_scale, generator=generator)
    draws = mean + variance.sqrt() * torch.randn(10, num_draws, dtype=torch.float64, generator=generator)
    frequency = torch.bincount(draws.argmax(0), minlength=10) / num_draws
    s = RobustMaxLikelihood(10).argmax_probabilities(mean, variance)[:, 0]
    standard_error = (s * (1 - s) / num_draws).sqrt()
    assert ((frequency - s).abs() <= 4 * standard_error + 1e-9).all()


@pytest.mark.parametrize(
    ("mean", "variance"),
    [
        ([0.0, 0.5, -1.0], [1.0, 1.0, 1.0]),
        ([0.0, 0.5, -1.0], [1e-4, 1.0, 100.0]),
        ([2.0, 2.001, 2.0005], [1e-6, 1e-2, 1e-6]),
        ([0.0, 1.0, 2.0, 3.0, 4.0, -1.0, -2.0, 0.3, 0.7, 2.2], [4.0, 9.0, 0.01, 1e-4, 0.5, 25.0, 100.0, 1.0, 2.0, 0.1]),
        ([0.0] * 10, [1.0] * 10),
    ],
)
def test_argmax_probabilities_agree_with_adaptive_quadrature(mean, variance):
    s = RobustMaxLikelihood(len(mean)).argmax_probabilities(column(*mean), column(*variance))[:, 0]
    exact = [argmax_by_adaptive_quadrature(np.array(mean), np.array(variance), j) for j in range(len(mean))]
    assert np.abs(s.numpy() - exact).max() < 1e-11


def test_argmax_probabilities_follow_a_permutation_a_shift_and_a_scale_of_the_classes():
    likelihood = RobustMaxLikelihood(5)
    mean, variance = random_classes(5, 50, spread=4, mean_scale=1.0, generator=seeded(3))
    s = likelihood.argmax_probabilities(mean, variance)
    order = torch.tensor([3, 1, 4, 0, 2])
    assert (likelihood.argmax_probabilities(mean[order], variance[order]) - s[order]).abs().max() < 1e-13
    coarse = (mean * 2**20).round() / 2**20  # So that the shift itself is exact.
    shifted = likelihood.argmax_probabilities(coarse + 1024, variance)
    assert (shifted - likelihood.argmax_probabilities(coarse, variance)).abs().max() < 1e-12
    assert (likelihood.argmax_probabilities(1e5 * mean, 1e10 * variance) - s).abs().max() < 1e-12


def test_a_class_without_variance_keeps_its_whole_mass():
    likelihood = RobustMaxLikelihood(3)
    certain = likelihood.argmax_probabilities(column(0.0, 5.0, 2.0), column(0.0, 0.0, 0.0))[:, 0]
    assert (certain - torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)).abs().max() < 1e-12
    tied = likelihood.argmax_probabilities(column(5.0, 5.0, 2.0), column(0.0, 0.0, 0.0))[:, 0]
    assert (tied - torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)).abs().max() < 1e-12
    mixed = likelihood.argmax_probabilities(column(1.0, 0.0, -50.0), column(0.0, 4.0, 0.0))[:, 0]
    assert (mixed - torch.tensor([stats.norm.cdf(0.5), stats.norm.cdf(-0.5), 0.0])).abs().max() < 1e-12


@pytest.mark.parametrize("variance", [0.0, 1e-300, 1e-40, 1e-34, 1e-32, 1e-30, 1e-26, 1e-20])
def test_variances_below_the_rounding_error_of_their_mean_lose_no_mass(variance):
    # The breakpoints m ± 9√r then differ from m by less than one unit in its last place, or by a few.
    mean = column(-7.3, 0.1, 1e4, 1e4 / 3)
    s = RobustMaxLikelihood(4).argmax_probabilities(mean, column(variance, variance, variance, 1e8))[:, 0]
    exact = stats.norm.cdf((1e4 - 1e4 / 3) / 1e4)
    assert (s - torch.tensor([0.0, 0.0, exact, 1 - exact], dtype=torch.float64)).abs().max() < 1e-12


def test_two_hundred_classes_work():
    mean, variance = random_classes(200, 3, spread=3, mean_scale=1.0, generator=seeded())
    mean.requires_grad_()
    s = RobustMaxLikelihood(200).argmax_probabilities(mean, variance)
    assert (s.sum(0) - 1).abs().max() < 1e-10
    (gradient,) = torch.autograd.grad(s[7].sum(), mean)
    assert gradient.isfinite().all()
    assert gradient.sum(0).abs().max() < 1e-10  # S does not change when all means move together.


def test_float32_is_accurate_to_its_own_precision():
    mean, variance = random_classes(10, 30, spread=4, mean_scale=2.0, generator=seeded(1))
    mean, variance = mean.float(), variance.float()
    s = RobustMaxLikelihood(10).argmax_probabilities(mean, variance)
    assert s.dtype == torch.float32
    exact = RobustMaxLikelihood(10).argmax_probabilities(mean.double(), variance.double())
    assert (s - exact).abs().max() < 1e-5
    zero = RobustMaxLikelihood(2).argmax_probabilities(torch.tensor([[0.0], [5.0]]), torch.zeros(2, 1))[:, 0]
    assert (zero - torch.tensor([0.0, 1.0])).abs().max() < 1e-5


@pytest.mark.parametrize("quadrature", ["composite", "gauss-hermite"])
def test_chunks_of_rows_change_neither_value_nor_gradient(quadrature, monkeypatch):
    likelihood = RobustMaxLikelihood(4, quadrature=quadrature)
    mean, variance = random_classes(4, 23, spread=2, mean_scale=1.0, generator=seeded(5))
    labels = torch.randint(4, (23,), generator=seeded(6))

    def value_and_gradients():
        m, r = mean.clone().requires_grad_(), variance.clone().requires_grad_()
        value = likelihood.expected_log_likelihood(labels, m, r)
        return value.detach(), *torch.autograd.grad(value.sum(), (m, r))

    whole = value_and_gradients()
    monkeypatch.setattr(gwi.core.likelihoods.robust_max, "_CHUNK_SIZE", 10_000)
    for a, b in zip(whole, value_and_gradients(), strict=True):
        assert (a - b).abs().max() <= 1e-12 * a.abs().max()


def test_more_rows_than_a_chunk_give_the_rows_one_by_one():
    likelihood = RobustMaxLikelihood(10)
    mean, variance = random_classes(10, 150, spread=2, mean_scale=1.0, generator=seeded(5))
    assert gwi.core.likelihoods.robust_max._CHUNK_SIZE < 150 * 10 * 99 * 9
    s = likelihood.argmax_probabilities(mean, variance)
    for n in (0, 111, 112, 113, 149):
        assert (likelihood.argmax_probabilities(mean[:, n : n + 1], variance[:, n : n + 1])[:, 0] - s[:, n]).abs().max() < 1e-14


# --- Robust-max: gradients --------------------------------------------------------------------------------------------


def test_value_and_gradient_are_finite_for_variances_from_nothing_to_a_million_and_gaps_to_a_hundred():
    likelihood = RobustMaxLikelihood(3)
    levels = torch.tensor([0.0, 1e-12, 1e-6, 1e-2, 1.0, 1e3, 1e6], dtype=torch.float64)
    variances = torch.cartesian_prod(levels, levels, levels).T
    worst = 0.0
    for gap in (0.0, 1e-6, 1e-3, 1.0, 10.0, 100.0):
        for direction in (1.0, -1.0):
            variance = variances.clone().requires_grad_()
            mean = (direction * gap * column(0.0, 1.0, 0.5)).expand(3, variance.shape[1]).clone().requires_grad_()
            for label in range(3):
                labels = torch.full((variance.shape[1],), label)
                value = likelihood.expected_log_likelihood(labels, mean, variance)
                gradients = torch.autograd.grad(value.sum(), (mean, variance))
                assert value.isfinite().all()
                assert all(gradient.isfinite().all() for gradient in gradients)
                assert (value <= math.log(0.99) + 1e-9).all()
                assert (value >= math.log(0.01 / 2) - 1e-9).all()
            worst = max(worst, (likelihood.argmax_probabilities(mean, variance).sum(0) - 1).abs().max().item())
    assert worst < 1e-11


@pytest.mark.parametrize("quadrature", ["composite", "gauss-hermite"])
def test_gradients_pass_gradcheck(quadrature):
    likelihood = RobustMaxLikelihood(4, quadrature=quadrature)
    mean, variance = random_classes(4, 6, spread=1.5, mean_scale=1.0, generator=seeded(2))
    labels = torch.tensor([0, 1, 2, 3, 1, 0])

    def f(m, log_r):
        return likelihood.expected_log_likelihood(labels, m, log_r.exp())

    assert torch.autograd.gradcheck(f, (mean.requires_grad_(), variance.log().requires_grad_()), eps=1e-5, atol=1e-8, rtol=1e-6)


def test_two_class_gradients_equal_the_closed_form_at_any_variance_ratio():
    # In units of each class: √r_j ∂S/∂m_j and r_j ∂S/∂r_j.
    likelihood = RobustMaxLikelihood(2)
    for ratio in RATIOS:
        mean, variance, _ = two_classes(ratio)
        mean.requires_grad_()
        variance.requires_grad_()
        in_mean, in_variance = torch.autograd.grad(likelihood.argmax_probabilities(mean, variance)[0].sum(), (mean, variance))
        with torch.no_grad():
            total = variance.sum(0)
            z = (mean[0] - mean[1]) / total.sqrt()
            density = torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
            exact_in_mean = torch.stack([density, -density]) / total.sqrt()
            exact_in_variance = (-z * density / (2 * total)).expand(2, -1)
            assert ((in_mean - exact_in_mean) * variance.sqrt()).abs().max() < 1e-11, ratio
            assert ((in_variance - exact_in_variance) * variance).abs().max() < 1e-11, ratio


@pytest.mark.parametrize("spread", [0, 2, 6])
def test_one_class_a_row_has_the_value_and_the_gradient_of_all_classes(spread):
    likelihood = RobustMaxLikelihood(5)
    mean, variance = random_classes(5, 40, spread=spread, mean_scale=1.0, generator=seeded(3))
    variance[2, :5] = 0.0
    labels = torch.randint(5, (40,), generator=seeded(4))
    mean.requires_grad_()
    variance.requires_grad_()
    chosen = likelihood.expected_log_likelihood(labels, mean, variance)
    all_classes = likelihood.argmax_probabilities(mean, variance).gather(0, labels[None])[0]
    hit, miss = math.log(0.99), math.log(0.01 / 4)
    wanted = hit * all_classes + miss * (1 - all_classes)
    assert (chosen - wanted).abs().max() < 1e-12
    with torch.no_grad():
        assert torch.equal(likelihood.expected_log_likelihood(labels, mean, variance), chosen)
    by_mean, by_variance = torch.autograd.grad(chosen.sum(), (mean, variance), retain_graph=True)
    wanted_by_mean, wanted_by_variance = torch.autograd.grad(wanted.sum(), (mean, variance))
    scale = variance.detach().clamp_min(1e-30)
    assert ((by_mean - wanted_by_mean) * scale.sqrt()).abs().max() < 1e-10
    assert ((by_variance - wanted_by_variance) * scale).abs().max() < 1e-10
    # Where all means move together nothing changes.
    assert (by_mean.sum(0) * scale.sqrt().amin(0)).abs().max() < 1e-10


def test_a_second_derivative_of_the_loss_is_refused_rather_than_wrong():
    mean, variance = random_classes(3, 4, spread=1, mean_scale=1.0, generator=seeded(1))
    mean.requires_grad_()
    value = RobustMaxLikelihood(3).expected_log_likelihood(torch.tensor([0, 1, 2, 0]), mean, variance)
    (first,) = torch.autograd.grad(value.square().sum(), mean, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


# --- Robust-max: the paper's Gauss–Hermite rule -----------------------------------------------------------------------


def test_gauss_hermite_is_the_formula_of_the_paper():
    mean, variance = random_classes(4, 5, spread=2, mean_scale=1.0, generator=seeded(4))
    for num_nodes in (5, 20):
        s = RobustMaxLikelihood(4, quadrature="gauss-hermite", num_nodes=num_nodes).argmax_probabilities(mean, variance)
        assert np.abs(s.numpy() - argmax_as_printed(mean.numpy(), variance.numpy(), num_nodes)).max() < 1e-13


@pytest.mark.parametrize(
    ("ratio", "least", "most"), [(1, 0.0, 1e-10), (4, 1e-5, 1e-4), (10, 1e-3, 1e-2), (100, 0.05, 0.1), (1e6, 0.05, 0.2)]
)
def test_gauss_hermite_loses_accuracy_as_variances_differ_and_the_composite_rule_does_not(ratio, least, most):
    mean, variance, exact = two_classes(ratio)
    errors = {
        rule: np.abs(RobustMaxLikelihood(2, quadrature=rule).argmax_probabilities(mean, variance)[0].numpy() - exact).max()
        for rule in ("gauss-hermite", "composite")
    }
    assert least <= errors["gauss-hermite"] <= most
    assert errors["composite"] < 1e-12


def test_both_rules_agree_when_variances_are_equal():
    mean = torch.randn(10, 40, dtype=torch.float64, generator=seeded())
    variance = torch.full_like(mean, 0.7)
    hermite = RobustMaxLikelihood(10, quadrature="gauss-hermite", num_nodes=60).argmax_probabilities(mean, variance)
    assert (RobustMaxLikelihood(10).argmax_probabilities(mean, variance) - hermite).abs().max() < 1e-9


def test_a_prediction_in_inference_mode_does_not_spoil_later_training():
    for quadrature in ("composite", "gauss-hermite"):
        likelihood = RobustMaxLikelihood(3, quadrature=quadrature, num_nodes=17)
        mean, variance = random_classes(3, 4, spread=1, mean_scale=1.0, generator=seeded())
        with torch.inference_mode():
            likelihood.argmax_probabilities(mean, variance)
        (gradient,) = torch.autograd.grad(likelihood.argmax_probabilities(mean, variance.requires_grad_())[0].sum(), variance)
        assert gradient.isfinite().all()
