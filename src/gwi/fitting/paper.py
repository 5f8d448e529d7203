"""GWI-net and GWI: SVGP as the paper ran them on regression tables [ap:Implementation].

What the appendix states is followed; what it leaves open is listed in `docs/deviations.md`. It is here to compare with: the
library's own way fits the prior to all rows rather than to M of them, and has Σ in closed form.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gwi.core.covariance import paper_initial_covariance
from gwi.core.distributions import tempering_factor
from gwi.core.divergences import two_sample_cross_term
from gwi.core.kernels import SparsePosteriorKernel, default_kernel, residual_variance
from gwi.core.linalg import LOG_TWO_PI
from gwi.core.means import KernelMean, ModuleMean, wasserstein_coefficients
from gwi.core.measures import GaussianMeasure, kernel_matrix, kernel_variance
from gwi.core.networks import mlp
from gwi.core.noise import LogLinearNoise, noise_features
from gwi.core.prior import PriorFit, fit_prior
from gwi.core.row_sums import row_sums
from gwi.core.scaling import StandardisedRows
from gwi.core.training import train
from gwi.fitting.data import FitData, FitOptions
from gwi.fitting.hyperparameters import PriorChoice
from gwi.fitting.scores import average_nll, own_rmse
from gwi.fitting.task import Fit, Member, StackedMean, Tempering, fixed_factor
from gwi.models.regression import RegressionModel
from gwi.models.summary import MemberSummary, Summary
from gwi.parts import Paper

Kind = Literal["network", "svgp"]

# M in units of √N.
INDUCING_FACTORS: dict[str, tuple[float, ...]] = {"network": (0.5, 1.0, 1.5, 2.0), "svgp": (1.0, 2.0, 3.0, 4.0, 5.0)}
# One in nine of the rows that are not for testing: 80 % train, 10 % validate, 10 % test.
ROWS_PER_VALIDATION_ROW = 9


@dataclass(frozen=True)
class PaperFit:
    """The model of the M with the lowest validation NLL.

    Attributes:
        posterior: Q on standardised rows and targets; nothing in it asks for gradients.
        noise_variance: σ².
        tempering_factor: α_T, which multiplies r + σ².
        unbounded_tempering_factor: what α_T would be without its upper bound.
        num_inducing: M.
        validation_nll: of each M tried, tempered, for standardised targets.
        validation_rows: the rows that judged; the others trained.
        losses: mean generalized loss of each epoch, for the chosen M.
        seconds: of each M tried.
    """

    posterior: GaussianMeasure
    noise_variance: float
    tempering_factor: float
    unbounded_tempering_factor: float
    num_inducing: int
    validation_nll: dict[int, float]
    validation_rows: Int[Tensor, " V"]
    losses: tuple[float, ...]
    seconds: dict[int, float]


def fit_paper(
    x: Float[Tensor, "N D"],
    y: Float[Tensor, " N"],
    kind: Kind,
    *,
    num_epochs: int = 1000,
    max_steps: int | None = None,
    num_inducing: Sequence[int] | None = None,
    num_comparison_points: int = 100,
    batch_size: int = 1000,
    learning_rate: float = 1e-2,
    max_tempering_factor: float = 1.0,
    tempering: float | None = None,
    jitter: float = 1e-6,
    generator: torch.Generator,
    on_epoch: Callable[[int, int, float], None] | None = None,
) -> PaperFit:
    """Train the paper's model for each M, temper it on validation rows, and keep the best there.

    Args:
        x: all rows but those for testing, standardised; one in nine is set apart for validation.
        y: their targets, standardised.
        kind: ``"network"`` is GWI-net, with a mean of 2 × 10 tanh units and Z fixed; ``"svgp"`` is GWI: SVGP, whose mean and
            kernel share one Z, which is learned.
        num_epochs: passes over the training rows, for each M.
        max_steps: bound on the gradient steps for each M, kept by training for fewer epochs, though not for none.
        num_inducing: the M to try; the paper's multiples of √N unless given.
        num_comparison_points: N_S, drawn from the training rows at each step.
        batch_size: N_B at most.
        learning_rate: of Adam at the start.
        max_tempering_factor: upper bound of α_T: 1 in the paper, where it only shrinks; infinity lets it widen, too.
        tempering: α_T, where it is not for the validation rows to choose.
        jitter: relative, on k(Z, Z).
        generator: for the split, Z, weights, batches and comparison points.
        on_epoch: called with M, the epoch and its mean loss.

    Raises:
        ValueError: when there are too few rows, nothing in them varies, or there are fewer training rows than inducing points.
    """
    if kind not in INDUCING_FACTORS:
        raise ValueError(f'kind must be "network" or "svgp"; got {kind!r}.')
    if len(x) < ROWS_PER_VALIDATION_ROW:
        raise ValueError(
            f"The paper's protocol needs at least {ROWS_PER_VALIDATION_ROW} rows, one of them for validation; got {len(x)}."
        )
    if (x == x[0]).all() or (y == y[0]).all():
        raise ValueError("The paper's prior has no scale to learn when all rows, or all targets, are equal.")
    order = torch.randperm(len(x), generator=generator).to(x.device)
    validation, training = order.tensor_split([round(len(x) / ROWS_PER_VALIDATION_ROW)])
    tried = paper_num_inducing(len(training), kind) if num_inducing is None else tuple(sorted(set(num_inducing)))
    if not tried or tried[0] < 1 or tried[-1] > len(training):
        raise ValueError(f"Each of num_inducing lies between 1 and the {len(training)} training rows; got {list(tried)}.")
    num_batches = math.ceil(len(training) / batch_size)
    if max_steps is not None:
        num_epochs = max(1, min(num_epochs, max_steps // num_batches))

    fits: list[PaperFit] = []
    validation_nll: dict[int, float] = {}
    seconds: dict[int, float] = {}
    for m in tried:
        start = time.perf_counter()
        posterior, noise_variance = initial_posterior(
            x[training], y[training], kind, m, batch_size=batch_size, jitter=jitter, generator=generator
        )
        losses = train_posterior(
            posterior,
            noise_variance,
            x[training],
            y[training],
            num_epochs=num_epochs,
            # Equal batches: of 1001 rows, the last would otherwise be a batch that stands for all.
            batch_size=math.ceil(len(training) / num_batches),
            num_comparison_points=num_comparison_points,
            learning_rate=learning_rate,
            generator=generator,
            on_epoch=None if on_epoch is None else partial(on_epoch, m),
        )
        with torch.no_grad():
            mean, variance = posterior.marginals(x[validation])
        residuals, total = y[validation] - mean[0], variance[0] + noise_variance
        unbounded = float(tempering_factor(residuals, total))
        # Not zero: validation rows that are met exactly would send the density there to infinity.
        factor = max(min(unbounded, max_tempering_factor), 1e-6) if tempering is None else tempering
        validation_nll[m] = average_nll(residuals[None], factor * total[None], torch.ones_like(total), [math.inf])
        seconds[m] = time.perf_counter() - start
        fits.append(PaperFit(posterior, noise_variance, factor, unbounded, m, validation_nll, validation, losses, seconds))
    return min(fits, key=lambda fit: validation_nll[fit.num_inducing])


def paper_num_inducing(num_data: int, kind: Kind) -> tuple[int, ...]:
    """The values of M that the paper tries: {½, 1, 1½, 2} √N for GWI-net, {1, …, 5} √N for GWI: SVGP, at most N."""
    return tuple(sorted({max(1, min(num_data, round(factor * num_data**0.5))) for factor in INDUCING_FACTORS[kind]}))


def initial_posterior(
    x: Float[Tensor, "N D"],
    y: Float[Tensor, " N"],
    kind: Kind,
    num_inducing: int,
    *,
    batch_size: int,
    jitter: float,
    generator: torch.Generator,
) -> tuple[GaussianMeasure, float]:
    """Q where its training starts, and σ².

    Z are rows at random; k and σ² maximise the marginal likelihood of the pairs (Z, y_Z) and stay; Σ starts at Titsias' optimum
    for one batch. The mean of GWI: SVGP starts at the optimum for these k and Z. What is to be trained asks for gradients.
    """
    chosen = torch.randperm(len(x), generator=generator)[:num_inducing].to(x.device)
    z = x[chosen]
    prior_kernel = default_kernel(x.shape[1], hyper_priors=False).to(x.device)
    prior = fit_prior(prior_kernel, z, y[chosen], objective="marginal", jitter=jitter)
    k = prior.kernel.requires_grad_(False)
    batch = x[torch.randperm(len(x), generator=generator)[:batch_size].to(x.device)]
    s = paper_initial_covariance(k, z, batch, prior.noise_variance, len(x), jitter=jitter)
    r = SparsePosteriorKernel(k, z, s[None], jitter=jitter)
    r.whitened_factor.requires_grad_(True)
    mean: nn.Module
    if kind == "network":
        mean = ModuleMean(mlp(x.shape[1], generator=generator).to(x))
    else:
        r.inducing_points.requires_grad_(True)
        # Where k and Z stay, the best coefficients are known: from zero, large tables would end before they are learned.
        weighted, unweighted = (
            row_sums(k, z, x, y[None], noise_variance=noise, jitter=jitter) for noise in (prior.noise_variance, 1.0)
        )
        mean = KernelMean(k, r.inducing_points, wasserstein_coefficients(weighted, unweighted, 1.0).detach(), jitter=jitter)
    return GaussianMeasure(mean, r), prior.noise_variance


def train_posterior(
    posterior: GaussianMeasure,
    noise_variance: float,
    x: Float[Tensor, "N D"],
    y: Float[Tensor, " N"],
    *,
    num_epochs: int,
    batch_size: int,
    num_comparison_points: int,
    learning_rate: float,
    generator: torch.Generator,
    on_epoch: Callable[[int, float], None] | None = None,
) -> tuple[float, ...]:
    """Minimise `batch_loss` over what asks for gradients, in place and jointly; the mean loss of each epoch.

    Afterwards nothing of Q asks for gradients.
    """
    r: SparsePosteriorKernel = posterior.kernel
    # With Z fixed φ is, too: each row then carries its own, and a step neither factorises nor solves.
    fixed = not r.inducing_points.requires_grad
    rows = torch.cat([x, r.features(x).detach().mT], dim=1) if fixed else x

    def loss(rows_b: Tensor, y_b: Tensor) -> Tensor:
        drawn = torch.randperm(len(x), generator=generator)[:num_comparison_points].to(x.device)
        both = torch.cat([rows_b, rows[drawn]])
        points = both[:, : x.shape[1]]
        phi = both[:, x.shape[1] :].mT if fixed else r.features(points)
        return batch_loss(posterior, noise_variance, points, phi, y_b, num_data=len(x))

    record = train(
        posterior,
        loss,
        rows,
        y,
        num_epochs=num_epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        generator=generator,
        on_epoch=on_epoch,
    )
    posterior.requires_grad_(False)
    return record.losses


def batch_loss(
    posterior: GaussianMeasure,
    noise_variance: float,
    points: Float[Tensor, "P D"],
    features: Float[Tensor, "M P"],
    y: Float[Tensor, " B"],
    *,
    num_data: int,
) -> Float[Tensor, ""]:
    """L̂ of a batch [ap:Batch_Mode] with m_P = 0: minus the expected log-likelihood of N rows, plus Ŵ² as the paper estimates it.

    `generalized_loss` with `wasserstein_squared_two_sample` is the same number, but evaluates k and φ several times.

    Args:
        posterior: Q with a `SparsePosteriorKernel`.
        noise_variance: σ².
        points: the batch X_B, and below it the comparison points X_S.
        features: φ at the points.
        y: targets of the batch.
        num_data: N.
    """
    r: SparsePosteriorKernel = posterior.kernel
    k, f = r.prior_kernel, r.whitened_factor[0]
    sizes = [len(y), len(points) - len(y)]
    (x_b, x_s), (phi_b, phi_s) = points.split(sizes), features.split(sizes, dim=1)
    m_q = posterior.mean
    mean = (m_q.whitened_coefficients @ phi_b if isinstance(m_q, KernelMean) else posterior.mean_at(x_b))[0]
    variance = residual_variance(k, x_b, phi_b) + (f.mT @ phi_b).square().sum(0)
    misfit = ((y - mean).square() + variance).mean() / noise_variance

    cross = two_sample_cross_term(kernel_matrix(k, x_b, x_s), phi_b, phi_s, f)
    distance = (mean.square() + kernel_variance(k, x_b) + variance).mean() - 2 * cross
    return num_data / 2 * (LOG_TWO_PI + math.log(noise_variance) + misfit) + distance


def paper_fit(part: Paper, tempering: Tempering, data: FitData, options: FitOptions) -> Fit:
    """GWI-net or GWI: SVGP by the paper's protocol [ap:Implementation], as a model that predicts; one target.

    Args:
        part: which of the two, and for how long.
        tempering: ``"auto"`` for the protocol's, a factor on the predictive variance, or None.
        data: rows and targets; everything random comes from its generator.
        options: of which only the report is used.
    """
    kind = part.mean
    if not isinstance(kind, str) or kind not in INDUCING_FACTORS:
        raise ValueError(f'The paper\'s protocol takes mean="network" or "svgp" in regression; got {kind!r}.')
    if len(data.y) != 1:
        raise ValueError(f"The paper's protocol takes one target; got {len(data.y)}: fit one estimator for each.")
    if not torch.isclose(data.weight, data.weight[:1]).all():
        raise ValueError("The paper's protocol takes no sample weights; leave them out, or choose another mean.")
    fit = fit_paper(
        data.x,
        data.y[0],
        cast(Kind, kind),
        max_steps=part.max_steps,
        # The text bounds it by one, the released code does not, and where the prior came out too narrow it has to widen.
        max_tempering_factor=math.inf,
        tempering=fixed_factor(tempering),
        generator=data.generator,
        on_epoch=lambda num_inducing, epoch, _: options.report(f"M = {num_inducing}", (epoch + 1) / 1000),
    )
    x, y = data.x[fit.validation_rows], data.y[:, fit.validation_rows]
    mean, variance = fit.posterior.marginals(x)
    size = noise_features(x, mean).shape[1]
    zeros, ones = x.new_zeros(size), x.new_ones(size)
    spread, factor = variance + fit.noise_variance, fit.tempering_factor
    embedding = StandardisedRows(data.scales, data.x.shape[1:]).spanning(data.x)
    model = RegressionModel(
        posterior=fit.posterior.eval(),
        embedding=embedding,
        noises=(LogLinearNoise(x.new_tensor(math.log(fit.noise_variance)), zeros, zeros, ones),),
        tempering_factor=np.array([factor]),
        degrees_of_freedom=np.array([math.inf]),
        disagreement_weight=np.zeros(1),
        scores=((y - mean).abs() / (factor * spread).sqrt()).sort(-1).values,
    )
    nll = partial(average_nll, y - mean, weight=torch.ones_like(y[0]), degrees_of_freedom=[math.inf])
    own_nll = float(np.log(data.scales.y_scale).sum())
    tried = ", ".join(f"{m}: {nll + own_nll:.3f}" for m, nll in fit.validation_nll.items())
    member = Member(kind, cast(nn.Module, fit.posterior.mean), mean, sum(fit.seconds.values()))
    summary = Summary(
        num_rows=len(data.x),
        members=(MemberSummary(kind, (1.0,), own_rmse(y - mean, data.scales.y_scale), member.seconds),),
        score_name="RMSE",
        covariance="trained",
        num_inducing=fit.num_inducing,
        stores_all_rows=False,
        divergence_weight=(1.0,),
        tempering=(factor,),
        disagreement_weight=(0.0,),
        held_out_nll=(nll(spread) + own_nll, nll(factor * spread) + own_nll),
        target_std=tuple(data.scales.y_scale.tolist()),
        seconds=math.nan,
        noise=(math.inf,),
        degrees_of_freedom=(math.inf,),
        note=f"the paper's protocol, {len(fit.losses) * len(fit.seconds)} epochs in all; validation NLL of each M: {tried}",
    )
    stacked = StackedMean((member,), y.new_ones(1, 1), y.new_ones(1, 1, y.shape[1]))
    kernel, z = fit.posterior.kernel.prior_kernel, fit.posterior.kernel.inducing_points
    fitted = PriorFit(kernel, fit.noise_variance, z, math.nan, 0, True, "the paper's")
    return Fit(model, summary, data, PriorChoice(kernel, fitted, z, z), stacked, embedding)
