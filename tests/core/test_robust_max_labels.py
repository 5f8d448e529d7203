"""Probabilities of labels under robust-max, and training with it from scratch."""

import math

import pytest
import torch

from gwi.core.kernels import SparsePosteriorKernel, default_kernel
from gwi.core.likelihoods.robust_max import RobustMaxLikelihood
from gwi.core.means import ModuleMean
from gwi.core.measures import GaussianMeasure
from gwi.core.networks import mlp
from gwi.core.objectives import generalized_loss
from gwi.core.training import train
from random_classes import column, random_classes, seeded


def test_class_probabilities_sum_to_one_before_normalisation_and_stop_at_one_minus_epsilon():
    for epsilon in (0.01, 0.1):
        likelihood = RobustMaxLikelihood(10, epsilon)
        mean, variance = random_classes(10, 40, spread=4, mean_scale=30.0, generator=seeded(7))
        probabilities = likelihood.class_probabilities(mean, variance)
        assert (probabilities.sum(0) - 1).abs().max() < 1e-11
        assert probabilities.max() <= 1 - epsilon + 1e-12
        assert probabilities.max() > 1 - epsilon - 1e-6
        assert probabilities.min() >= epsilon / 9 - 1e-12
        assert torch.equal(likelihood.predictive(mean, variance).probs, (probabilities / probabilities.sum(0)).mT)


def test_nll_is_that_of_the_predictive_and_its_floor_is_minus_log_of_one_minus_epsilon():
    likelihood = RobustMaxLikelihood(3)
    mean, variance = random_classes(3, 30, spread=2, mean_scale=3.0, generator=seeded(8))
    labels = torch.randint(3, (30,), generator=seeded(9))
    nll = likelihood.nll(labels, mean, variance)
    assert (nll + likelihood.predictive(mean, variance).log_prob(labels)).abs().max() < 1e-11
    certain = likelihood.nll(torch.tensor([0, 1]), column(100.0, 0.0, 0.0).expand(3, 2), column(1.0, 1.0, 1.0).expand(3, 2))
    assert abs(certain[0].item() + math.log(0.99)) < 1e-12
    assert abs(certain[1].item() + math.log(0.01 / 2)) < 1e-12


def test_expected_log_likelihood_is_a_mean_over_draws_of_the_functions(generator):
    likelihood = RobustMaxLikelihood(4, 0.05)
    mean, variance = random_classes(4, 1, spread=2, mean_scale=1.0, generator=generator)
    winners = (mean + variance.sqrt() * torch.randn(4, 1_000_000, dtype=torch.float64, generator=generator)).argmax(0)
    for label in range(4):
        values = torch.where(winners == label, math.log(0.95), math.log(0.05 / 3)).double()
        exact = likelihood.expected_log_likelihood(torch.tensor([label]), mean, variance)[0]
        assert abs(values.mean() - exact) < 4 * values.std() / 1000 + 1e-9


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
def test_labels_may_be_any_integers(dtype):
    likelihood = RobustMaxLikelihood(3)
    mean, variance = random_classes(3, 3, spread=1, mean_scale=1.0, generator=seeded())
    labels = torch.tensor([0, 1, 2])
    assert torch.equal(likelihood.nll(labels.to(dtype), mean, variance), likelihood.nll(labels, mean, variance))
    same = likelihood.expected_log_likelihood(labels.to(dtype), mean, variance)
    assert torch.equal(same, likelihood.expected_log_likelihood(labels, mean, variance))


def test_impossible_robust_max_settings_are_refused():
    with pytest.raises(ValueError, match="at least 2 classes"):
        RobustMaxLikelihood(1)
    for epsilon in (0.0, 1.0, -0.1, math.nan):
        with pytest.raises(ValueError, match="0 < ε < 1"):
            RobustMaxLikelihood(3, epsilon)
    with pytest.raises(ValueError, match="3 classes got means of 2"):
        RobustMaxLikelihood(3).argmax_probabilities(column(0.0, 1.0), column(1.0, 1.0))


def test_robust_max_training_from_scratch_lowers_the_loss_and_classifies(generator):
    num_classes, num_rows = 3, 150
    labels = torch.arange(num_rows) % num_classes
    centres = torch.tensor([[0.0, 2.0], [-1.8, -1.0], [1.8, -1.0]], dtype=torch.float64)
    x = centres[labels] + 0.7 * torch.randn(num_rows, 2, dtype=torch.float64, generator=generator)
    kernel = default_kernel(2, lengthscale=1.0).requires_grad_(False)
    s = 0.1 * torch.eye(9, dtype=torch.float64).expand(num_classes, -1, -1)
    r = SparsePosteriorKernel(kernel, x[:9], s)
    r.whitened_factor.requires_grad_(True)
    prior = GaussianMeasure(None, kernel)
    posterior = GaussianMeasure(ModuleMean(mlp(2, num_classes, generator=generator)), r)
    likelihood = RobustMaxLikelihood(num_classes)

    def loss(x_batch, y_batch):
        return generalized_loss(prior, posterior, likelihood, x_batch, y_batch, num_data=num_rows)

    before = r.whitened_factor.detach().clone()
    record = train(posterior, loss, x, labels, num_epochs=25, batch_size=50, learning_rate=0.02, generator=generator)
    assert all(math.isfinite(value) for value in record.losses)
    assert record.losses[-1] < 0.5 * record.losses[0]
    assert (r.whitened_factor - before).abs().max() > 1e-3
    with torch.no_grad():
        probabilities = likelihood.predictive(*posterior.marginals(x)).probs
    assert (probabilities.argmax(-1) == labels).double().mean() > 0.9
