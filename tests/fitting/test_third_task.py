"""A third task, counts with a logarithmic link, is one class beside the library: the pipeline fits it as it fits the others."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from numpy.polynomial.hermite_e import hermegauss
from scipy.optimize import minimize

from gwi.core.means import ConstantMean, SumMean
from gwi.core.posterior import CachedPosterior
from gwi.core.scaling import Scales, embedded_rows
from gwi.fitting import pipeline
from gwi.fitting.data import FitOptions
from gwi.fitting.learners import kernel_member
from gwi.fitting.stacking import cross_fitted
from gwi.fitting.task import Member, StackedMean, Task
from gwi.models.summary import MemberSummary, Summary
from gwi.parts import Covariance

NODES, WEIGHTS = (torch.from_numpy(part) for part in hermegauss(40))


def poisson_nll(y, mean, variance):
    """−log E[Poisson(y | exp f)], f ~ N(mean, variance), by Gauss–Hermite."""
    f = mean[..., None] + variance.sqrt()[..., None] * NODES
    log_p = y[..., None] * f - f.exp() - torch.lgamma(y + 1)[..., None]
    return -(log_p + (WEIGHTS / WEIGHTS.sum()).log()).logsumexp(-1)


@dataclass(frozen=True)
class PoissonModel:
    """All that predicts: Q over the logarithm of the rate, and α."""

    posterior: object
    embedding: object
    alpha: float

    def latent(self, x):
        cached = CachedPosterior(self.posterior)
        parts = [cached.marginals(rows) for rows in embedded_rows(self.embedding, x, torch.device("cpu"))]
        mean, variance = (torch.cat(part, dim=1)[0] for part in zip(*parts, strict=True))
        return mean, self.alpha * variance

    def predict(self, x):
        mean, variance = self.latent(x)
        return (mean + variance / 2).exp().numpy()

    def nll(self, x, y):
        return float(poisson_nll(torch.from_numpy(y), *self.latent(x)).mean())


class PoissonTask(Task):
    """Counts: means are of the logarithm of the rate."""

    names, wanted = ("svgp", "network"), '"svgp" or "network"'

    def scales(self, x, y, weight):
        return replace(Scales.of(x, y, weight), y_centre=np.zeros(1), y_scale=np.ones(1))

    def targets(self, y, scales, device):
        return scales.targets(y, device)

    def plan(self, data):
        return ["svgp", "network"]

    def prior_data(self, data):
        level = (data.y + 0.5).log().mean()
        return data.with_targets(lambda x, y: (y + 0.5).log() - level)

    def loss(self, outputs, targets):
        return (outputs.exp() - targets * outputs).sum(-1)

    def learn_named(self, name, data, prior, basis, options, place):
        fits = (prior, *prior.without_folds)
        coded, kernels, noises = self.prior_data(data), [fit.kernel for fit in fits], [fit.noise_variance for fit in fits]
        member = kernel_member(name, coded, prior, basis, kernels, noises)
        # The mean of a logarithm is not the logarithm of the mean: a level that gives as many counts as there are.
        level = (data.held_out.y.sum(1) / member.held_out.exp().sum(1)).log()
        return Member(name, SumMean([member.mean, ConstantMean(level)]), member.held_out + level[:, None], member.seconds)

    def stack(self, members, held_out):
        logs, y = torch.stack([member.held_out[0] for member in members]), held_out.y[0]

        def weigh(rows):
            def nll(w):
                return float(self.loss((torch.from_numpy(w) @ logs[:, rows])[:, None], y[rows, None]).mean())

            start = np.full(len(logs), 1 / len(logs))
            one = {"type": "eq", "fun": lambda w: w.sum() - 1}
            return torch.from_numpy(minimize(nll, start, method="SLSQP", bounds=[(0, 1)] * len(logs), constraints=[one]).x)

        weights, held_out_weights = cross_fitted(weigh, len(y), held_out.fold, y.device)
        return StackedMean(members, weights[None], held_out_weights[None])

    def noise_levels(self, data, solver, stacked):
        return [1 / float(stacked.held_out.exp().mean())]  # The curvature of −log p(y | f) is the rate.

    def calibrate(self, data, posterior, stacked, covariances, embedding, note):
        y, mean, variance = data.held_out.y[0], stacked.held_out[0], covariances[0].variance
        scores = {a: float(poisson_nll(y, mean, a * variance).mean()) for a in np.geomspace(0.1, 10, 21).tolist()}
        alpha = min(scores, key=scores.get)
        zero = torch.zeros_like(mean)
        members = tuple(
            MemberSummary(m.name, (float(w),), (float(poisson_nll(y, m.held_out[0], zero).mean()),), m.seconds)
            for m, w in zip(stacked.members, stacked.weights[0], strict=True)
        )
        found, before = covariances[0], float(poisson_nll(y, mean, zero).mean())
        kept, size = (found.divergence_weight,), len(posterior.kernel.inducing_points)
        nll = (before, scores[alpha])
        summary = Summary(
            data.num_rows, members, "NLL", found.kind, size, size == data.num_rows, kept, (alpha,), (0.0,), nll, math.nan
        )
        return PoissonModel(posterior, embedding, alpha), replace(summary, note=note)


def counts(num_rows, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (num_rows, 2))
    rate = np.exp(1 + np.sin(2 * x[:, 0]) + 0.5 * x[:, 1])
    return x, rng.poisson(rate).astype(float), rate


@pytest.mark.parametrize("means", [["svgp"], None], ids=["kernel", "stack"])
def test_counts_are_fitted_predicted_and_scored(means):
    (x, y, _), task = counts(400, 0), PoissonTask()
    options = FitOptions("auto", Covariance(), generator=torch.Generator().manual_seed(0))
    fit = pipeline.fit(pipeline.array_data(task, x, y[:, None], options), task, means, options)
    model, (x_new, y_new, rate) = fit.model, counts(1000, 1)
    predicted, far = model.predict(x_new), np.array([[30.0, -30.0]])
    assert np.isfinite(predicted).all()
    assert (predicted > 0).all()
    assert np.corrcoef(predicted, rate)[0, 1] > 0.95
    known, constant = (
        float(poisson_nll(torch.from_numpy(y_new), torch.from_numpy(np.log(r)), torch.zeros(1000)).mean())
        for r in (rate, np.full(1000, y.mean()))
    )
    assert known < model.nll(x_new, y_new) < min(1.05 * known, constant - 0.1)
    assert model.latent(far)[1].item() > 5 * model.latent(x_new)[1].mean()
    assert fit.summary.held_out_nll[1] == pytest.approx(model.nll(x_new, y_new), rel=0.1)
