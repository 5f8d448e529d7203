"""The loss of joint training against loops, and what its optimiser does."""

import copy
import math

import numpy as np
import pytest
import torch
from gwi.core.joint import LOWEST_RATE, JointPosterior, classification_loss, one_cycle, train_jointly
from torch import nn

import reference
from gwi.core.likelihoods.robust_max import RobustMaxLikelihood
from gwi.core.likelihoods.softmax import SoftmaxLikelihood
from gwi.core.linalg import cholesky
from gwi.core.means import ModuleMean
from gwi.core.measures import kernel_matrix

NUM_CLASSES, NUM_DATA, WEIGHT, EPSILON = 3, 500, 7.0, 0.01


@pytest.fixture
def posterior(kernel, generator):
    kernel.requires_grad_(False)
    z = torch.randn(4, 2, dtype=torch.float64, generator=generator)
    network = nn.Linear(2, NUM_CLASSES).double()
    with torch.no_grad():
        network.weight.copy_(torch.randn(NUM_CLASSES, 2, generator=generator))
        network.bias.copy_(torch.randn(NUM_CLASSES, generator=generator))
    factor = 0.4 * torch.randn(NUM_CLASSES, 4, 4, dtype=torch.float64, generator=generator)
    lower = cholesky(kernel_matrix(kernel, z), name="k(Z, Z)").factor
    return JointPosterior(ModuleMean(network), kernel, z, lower, factor.requires_grad_(True))


@pytest.fixture
def rows(generator):
    return torch.randn(9, 2, dtype=torch.float64, generator=generator), torch.arange(9) % NUM_CLASSES


def in_loops(posterior, reference_kernel, x, labels, comparison):
    """L̂/N, class by class and row by row."""
    z = posterior.inducing_points.numpy()
    network = posterior.mean.module
    weight, bias = network.weight.detach().numpy(), network.bias.detach().numpy()
    white = np.linalg.inv(np.linalg.cholesky(reference.matrix(reference_kernel, z, z)))
    factors = posterior.whitened_factor.detach().numpy()
    kernels = [reference.svgp_kernel(reference_kernel, z, white.T @ f @ f.T @ white) for f in factors]
    value = 0.0
    for row, label in zip(x, labels, strict=True):
        mean, variance = weight @ row + bias, np.array([r(row, row) for r in kernels])
        value -= reference.multiclass_expected_log_likelihood(mean, variance, label, EPSILON) / len(x)
    for j, r in enumerate(kernels):
        measures = (lambda row: 0.0), reference_kernel, (lambda row, j=j: weight[j] @ row + bias[j]), r, x
        if comparison is None:
            distance = reference.wasserstein_squared(*measures)
        else:
            distance = reference.wasserstein_squared_two_sample(*measures, comparison)
        value += WEIGHT / NUM_DATA * distance
    return value


@pytest.mark.parametrize("two_sample", [False, True])
def test_the_loss_of_a_batch_is_the_papers_in_loops(two_sample, posterior, reference_kernel, rows, generator):
    x, labels = rows
    comparison = torch.randn(5, 2, dtype=torch.float64, generator=generator) if two_sample else None
    found = classification_loss(
        posterior,
        RobustMaxLikelihood(NUM_CLASSES, EPSILON),
        x,
        x,
        labels,
        num_data=NUM_DATA,
        divergence_weight=WEIGHT,
        comparison=comparison,
    )
    other = None if comparison is None else comparison.numpy()
    wanted = in_loops(posterior, reference_kernel, x.numpy(), labels.numpy(), other)
    assert found.item() == pytest.approx(wanted, abs=1e-6)


def test_a_posterior_that_is_the_prior_pays_for_its_mean_alone(posterior, rows):
    x, labels = rows
    with torch.no_grad():
        posterior.whitened_factor.copy_(torch.eye(4))
    options = {"num_data": NUM_DATA}
    likelihood = SoftmaxLikelihood(NUM_CLASSES)
    free, dear = (classification_loss(posterior, likelihood, x, x, labels, divergence_weight=w, **options) for w in (0.0, 1.0))
    mean = posterior.mean(x)
    assert (dear - free).item() == pytest.approx(mean.square().mean(1).sum().item() / NUM_DATA, abs=1e-8)


def test_the_learning_rate_rises_once_and_falls_to_zero():
    assert one_cycle(0.0, 0.2) == pytest.approx(LOWEST_RATE)
    assert one_cycle(0.1, 0.2) == pytest.approx((1 + LOWEST_RATE) / 2)
    assert one_cycle(0.2, 0.2) == pytest.approx(1.0)
    assert one_cycle(0.6, 0.2) == pytest.approx(0.5)
    assert one_cycle(1.0, 0.2) == one_cycle(1.1, 0.2) == pytest.approx(0.0)


def test_without_a_rise_it_is_torchs_cosine():
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 10)
    for step in range(10):
        assert schedule.get_last_lr()[0] == pytest.approx(one_cycle(step / 10, 0.0))
        optimiser.step()
        schedule.step()


def trained(posterior, rows, **options):
    """A copy of the posterior after one step."""
    x, labels = rows
    found = copy.deepcopy(posterior)
    losses = train_jointly(
        found,
        SoftmaxLikelihood(NUM_CLASSES),
        lambda: iter([(x, labels)]),
        lambda part: part,
        num_data=NUM_DATA,
        num_batches=1,
        num_epochs=1,
        divergence_weight=WEIGHT,
        learning_rate=0.1,
        **options,
    )
    assert all(math.isfinite(loss) for loss in losses)
    return found


def test_weights_decay_apart_from_their_gradient_and_nothing_else_does(posterior, rows):
    plain, decayed = trained(posterior, rows), trained(posterior, rows, weight_decay=0.5)
    before = posterior.mean.module.weight.detach()
    torch.testing.assert_close(decayed.mean.module.weight, plain.mean.module.weight - 0.1 * 0.5 * before)
    torch.testing.assert_close(decayed.mean.module.bias, plain.mean.module.bias)
    torch.testing.assert_close(decayed.whitened_factor, plain.whitened_factor)
    assert not torch.equal(plain.mean.module.weight, before)


def test_a_rise_begins_with_a_tenth_of_the_step(posterior, rows):
    before = posterior.whitened_factor.detach()
    whole, first = (trained(posterior, rows, rise=rise).whitened_factor - before for rise in (0.0, 0.2))
    torch.testing.assert_close(first, LOWEST_RATE * whole, rtol=1e-6, atol=1e-12)
