"""Corrections of a trained classifier's logits by rows it has not seen."""

import numpy as np
import pytest
import torch
from torch import nn

import gwi
from gwi import GWIClassifier
from gwi.core.means import KernelMean, SumMean
from gwi.core.networks import mlp
from gwi.fitting import logit_correction as correction
from gwi.fitting.logit_correction import learn_correction
from gwi.parts import Covariance, Frozen

pytestmark = pytest.mark.unchecked


def planted(num_rows=1500, size=1.5, seed=0):
    """Logits that lack what a smooth function of the rows adds to them; a whitened basis for it; and labels of the whole."""
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(num_rows, generator=generator, dtype=torch.float64)
    logits = 2 * torch.randn(3, num_rows, generator=generator, dtype=torch.float64)
    basis = torch.stack([(np.pi * k * u).cos() / k for k in range(1, 8)])
    missing = size * torch.stack([(np.pi * u).cos(), -(np.pi * u).cos(), torch.zeros_like(u)])
    label = torch.multinomial((logits + missing).softmax(0).mT, 1, generator=generator)[:, 0]
    return logits, basis, nn.functional.one_hot(label, 3).mT.double(), missing


def cross_entropy(logits, y):
    return float(-(y * logits.log_softmax(0)).sum(0).mean())


def test_a_correction_finds_what_the_logits_lack():
    logits, basis, y, missing = planted()
    found = learn_correction(logits, basis, y, torch.ones(y.shape[1], dtype=torch.float64))
    assert found is not None
    corrected = found.scale * logits + found.coefficients @ basis + found.offset[:, None]
    assert cross_entropy(found.held_out, y) < cross_entropy(logits, y) - 0.05
    # On rows that took no part in it, at most a hundredth of a nat worse than the truth.
    fresh, other, labels, gap = planted(4000, seed=1)
    predicted = found.scale * fresh + found.coefficients @ other + found.offset[:, None]
    assert cross_entropy(predicted, labels) < cross_entropy(fresh + gap, labels) + 0.01
    # A softmax does not see what is added to all logits.
    assert ((corrected - corrected.mean(0)) - (logits + missing - (logits + missing).mean(0))).abs().mean() < 0.25


def test_the_correction_is_the_most_probable_one():
    logits, basis, y, _ = planted(600)
    found = learn_correction(logits, basis, y, torch.ones(600, dtype=torch.float64))
    scale = torch.tensor(found.scale, dtype=torch.float64, requires_grad=True)
    v, b = found.coefficients.clone().requires_grad_(), found.offset.clone().requires_grad_()
    wrong = 1 / 601
    target = (1 - wrong) * y + wrong / 3
    loss = -(target * (scale * logits + v @ basis + b[:, None]).log_softmax(0)).sum()
    loss = loss + 0.5 * v.square().sum() / found.variance + 0.5 * b.square().sum()
    gradients = torch.autograd.grad(loss, (scale, v, b))
    assert max(float(part.abs().max()) for part in gradients) < 0.1  # Of a loss that is a sum over 600 rows.


@pytest.mark.parametrize("seed", range(5))
def test_logits_that_lack_nothing_are_left_as_they_are(seed):
    logits, basis, y, _ = planted(size=0.0, seed=seed)
    found = learn_correction(logits, basis, y, torch.ones(y.shape[1], dtype=torch.float64))
    # One standard error lets one in six through; then it is a small one.
    assert found is None or found.variance <= 0.1


def test_few_rows_correct_nothing():
    logits, basis, y, _ = planted(150)
    assert learn_correction(logits, basis, y, torch.ones(150, dtype=torch.float64)) is None


def test_weights_are_repeated_rows(monkeypatch):
    # Folds differ and may choose otherwise.
    monkeypatch.setattr(correction, "VARIANCES", (0.3,))
    logits, basis, y, _ = planted(400)
    twice = torch.arange(400) < 100
    weight = torch.where(twice, 2.0, 1.0).double()
    left = learn_correction(logits, basis, y, weight)
    # Folds differ, so only what is learned from all rows can agree, up to the label smoothing that counts rows.
    repeated = [torch.cat([part, part[:, twice]], dim=1) for part in (logits, basis, y)]
    right = learn_correction(*repeated, torch.ones(500, dtype=torch.float64))
    assert torch.allclose(left.coefficients, right.coefficients, atol=0.01)


@pytest.fixture(scope="module")
def fitted():
    """A network, and rows it has not seen whose labels are the other way round where x₁ > 1."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, 2))
    y = (x[:, 1] > 0).astype(int)
    network = mlp(2, 2, hidden=(16,), generator=torch.Generator().manual_seed(0))
    optimiser = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(200):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(torch.as_tensor(x[:500]).float()), torch.from_numpy(y[:500])).backward()
        optimiser.step()
    turned = np.where(x[:, 1] > 1, 1 - y, y)
    model = GWIClassifier(Frozen(network.eval(), correct=True), random_state=0, covariance=Covariance(num_inducing=60))
    model.fit(x[:500], y[:500], validation=(x[500:1000], turned[500:1000]))
    return model, network, x, turned


def test_validation_rows_correct_a_frozen_network(fitted):
    model, network, x, y = fitted
    assert "corrected" in model.summary_.note
    right = (model.predict(x[1000:]) == y[1000:]).mean()
    with torch.no_grad():
        before = (network(torch.as_tensor(x[1000:]).float()).argmax(1).numpy() == y[1000:]).mean()
    assert right > before + 0.1


def test_a_corrected_mean_shares_the_basis_of_the_covariance(fitted):
    model, _, _, _ = fitted
    assert isinstance(model.posterior_.mean, SumMean)
    assert any(isinstance(part, KernelMean) for part in model.posterior_.mean.means)
    assert model.model_.cached.shares_basis == [True]
    assert len(model.model_.cached.terms[0]) == 2  # The network and the offset.


def test_a_corrected_model_is_read_back_as_it_was(fitted, tmp_path):
    model, _, x, _ = fitted
    again = gwi.load(model.save(tmp_path / "model.gwi"))
    assert np.array_equal(again.predict_proba(x[1000:]), model.predict_proba(x[1000:]))


def test_without_correction_the_networks_choices_stay(fitted):
    model, network, x, y = fitted
    plain = GWIClassifier(network, random_state=0, covariance=Covariance(num_inducing=60))
    plain.fit(x[:500], (x[:500, 1] > 0).astype(int), validation=(x[500:1000], y[500:1000]))
    with torch.no_grad():
        chosen = network(torch.as_tensor(x[1000:]).float()).argmax(1).numpy()
    assert (plain.predict(x[1000:]) == chosen).mean() > 0.99
    assert plain.nll(x[1000:], y[1000:]) > model.nll(x[1000:], y[1000:])


def test_of_variances_that_rows_cannot_tell_apart_the_least_is_taken():
    (logits, basis, y, _), weight = planted(400), torch.ones(400, dtype=torch.float64)
    found = learn_correction(logits, basis, y, weight)
    problem = correction._Problem(*(part.numpy() for part in (logits.mT, basis.mT, correction.smoothed(y).mT, weight)))
    fold = np.random.default_rng(0).permutation(400) % correction.NUM_FOLDS
    losses = {v: problem.losses(problem.cross_fitted(fold, v, [None] * 5)[0]) for v in correction.VARIANCES}
    best = min(losses.values(), key=np.mean)
    errors = {v: (loss - best).mean() / max((loss - best).std() / 20, 1e-12) for v, loss in losses.items()}
    assert found.variance == min(v for v, error in errors.items() if error <= 1)
