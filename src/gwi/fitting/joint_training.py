"""A network of the user's own, trained jointly with one covariance a class by the generalized loss; and the paper's protocol.

[eq:Generalized_loss] on batches: rows as the network takes them for the mean, flat rows for the kernel.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.data import DataLoader

from gwi.core.covariance import matched_divergence_weight, paper_initial_covariance, titsias_covariance
from gwi.core.divergences import two_sample_cross_term
from gwi.core.features import NetworkFeatures
from gwi.core.kernels import SparsePosteriorKernel, default_kernel, residual_variance, whitened_features
from gwi.core.likelihoods.gaussian import expected_log_likelihood
from gwi.core.likelihoods.robust_max import RobustMaxLikelihood
from gwi.core.likelihoods.softmax import Digits, SoftmaxLikelihood
from gwi.core.linalg import bures_fidelity, cholesky
from gwi.core.means import ModuleMean
from gwi.core.measures import GaussianMeasure, kernel_matrix, kernel_variance
from gwi.core.prior import PriorFit, fit_prior
from gwi.core.row_sums import row_sums
from gwi.core.scaling import CHUNK_SIZE, StandardisedRows
from gwi.core.training import train_epochs
from gwi.fitting.classification import ClassificationTask, class_folds
from gwi.fitting.data import ArrayData, FitOptions, HeldOut
from gwi.fitting.frozen_network import frozen_fit, layer_of, pixel_scales, wants_features
from gwi.fitting.held_out_covariance import HeldOutCovariance
from gwi.fitting.hyperparameters import EVIDENCE_TOLERANCE, SPARSE_INDUCING, SPARSE_SAMPLE, PriorChoice, prior_for, row_kernel
from gwi.fitting.logit_targets import dirichlet_coding, indicators, rescaled
from gwi.fitting.task import Fit, Member
from gwi.parts import Frozen, Joint, Paper
from gwi.streaming.batches import Batches

# Points of a batch on which W₂² is taken: N_S of the paper.
NUM_COMPARISON_POINTS = 100
# Where a learning rate that rises begins, as a share of its peak.
LOWEST_RATE = 0.1
# M of the paper, in units of √N.
PAPER_FACTORS = (0.5, 0.75, 1.0)
# Gradient steps of joint training, about, and epochs of the paper.
JOINT_STEPS, PAPER_EPOCHS = 3000, 100
# Learning rates of both at their peak; what weights shrink by in joint training, and the share of steps in which its rate rises.
JOINT_RATE, PAPER_RATE, JOINT_DECAY, JOINT_RISE = 4e-3, 1e-3, 0.1, 0.2
# N_B of joint training and of the paper, and N_S of the paper.
JOINT_BATCH, PAPER_BATCH, PAPER_COMPARISON = 128, 1000, 100
# Decimal places of the expected log-likelihood in a step: far below what a batch knows of it.
TRAINING_DIGITS: Digits = 5


@dataclass(frozen=True)
class JointPosterior:
    """Q while it is trained: rows as the network takes them for the mean, flat rows for the kernel.

    Attributes:
        mean: from rows to (J, N) logits.
        kernel: k, at rest.
        inducing_points: Z, at rest.
        inducing_factor: L with L Lᵀ = k(Z, Z).
        whitened_factor: F_j with S_j = F_j F_jᵀ, trained.
    """

    mean: ModuleMean
    kernel: Kernel
    inducing_points: Float[Tensor, "M D"]
    inducing_factor: Float[Tensor, "M M"]
    whitened_factor: Float[Tensor, "J M M"]

    def features(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "M N"]:
        """φ(x) = L⁻¹ k_Z(x)."""
        return whitened_features(self.kernel, self.inducing_points, self.inducing_factor, x)

    def variance(self, x: Float[Tensor, "N D"], phi: Float[Tensor, "M N"]) -> Float[Tensor, "J N"]:
        """r_j(x, x)."""
        return residual_variance(self.kernel, x, phi) + (self.whitened_factor.mT @ phi).square().sum(-2)


def classification_loss(
    posterior: JointPosterior,
    likelihood: nn.Module,
    rows: Float[Tensor, "B ..."],
    flat: Float[Tensor, "B D"],
    labels: Int[Tensor, " B"],
    *,
    num_data: int,
    divergence_weight: float,
    comparison: Float[Tensor, "S D"] | None = None,
) -> Float[Tensor, ""]:
    """L̂/N = −(1/B) Σ_b E_Q[log p(y_b | F(x_b))] + (β/N) Σ_j W₂²(P_j, Q_j) [eq:multiclass_ell], m_P = 0, on a batch.

    Args:
        posterior: Q.
        likelihood: `RobustMaxLikelihood` or `SoftmaxLikelihood`.
        rows: the batch as the network takes it.
        flat: the batch as the kernel takes it.
        labels: classes of the batch.
        num_data: N.
        divergence_weight: β.
        comparison: X_S for the paper's two-sample estimate of W₂²; None takes the symmetric one on rows of the batch.
    """
    phi = posterior.features(flat)
    mean = posterior.mean(rows).double()
    variance = posterior.variance(flat, phi)
    fit = expected_log_likelihood(likelihood, labels, mean, variance, flat).mean()
    if comparison is None:
        spread = _symmetric(posterior, flat[:NUM_COMPARISON_POINTS], phi[:, :NUM_COMPARISON_POINTS])
    else:
        spread = _two_sample(posterior, flat, phi, variance, comparison)
    distance = mean.square().mean(1).sum() + spread
    return divergence_weight / num_data * distance - fit


def _symmetric(posterior: JointPosterior, x: Tensor, phi: Tensor) -> Tensor:
    """Σ_j tr C_P + tr C_Qj − 2 tr(C_P^½ C_Qj C_P^½)^½ on these points, from factors."""
    prior = kernel_matrix(posterior.kernel, x)
    with torch.no_grad():
        scale = prior.diagonal().mean()
        residual = cholesky(prior - phi.mT @ phi, scale=scale, name="k(X, X) − ΦᵀΦ").factor
        prior_factor = torch.cat([residual, phi.mT], dim=1)
    in_span = phi.mT @ posterior.whitened_factor
    factor = torch.cat([residual.expand(*in_span.shape[:-2], *residual.shape), in_span], dim=-1)
    traces = (prior_factor.square().sum() * len(in_span) + factor.square().sum()) / len(x)
    return traces - 2 * bures_fidelity(prior_factor, factor).sum()


def _two_sample(posterior: JointPosterior, x: Tensor, phi: Tensor, variance: Tensor, comparison: Tensor) -> Tensor:
    """Σ_j of the paper's estimate [eq:WD_approx1, eq:WD_approx2] without the part of the means."""
    k_bs = kernel_matrix(posterior.kernel, x, comparison)
    cross = two_sample_cross_term(k_bs, phi, posterior.features(comparison), posterior.whitened_factor)
    return (kernel_variance(posterior.kernel, x).mean() + variance.mean(1) - 2 * cross).sum()


def one_cycle(share: float, rise: float) -> float:
    """The learning rate as a share of its peak after a share of the steps: up in a line until `rise`, then down in a cosine."""
    if share < rise:
        return LOWEST_RATE + (1 - LOWEST_RATE) * share / rise
    return (1 + math.cos(math.pi * min(1.0, (share - rise) / (1 - rise)))) / 2


@dataclass(frozen=True)
class Settings:
    """How a joint training goes.

    Attributes:
        num_epochs: passes over the rows.
        batch_size: rows a step.
        learning_rate: at its peak.
        paper: whether the paper's protocol is followed: ARD length-scales from the pairs (Z, y_Z), its estimate of W₂².
    """

    num_epochs: int
    batch_size: int
    learning_rate: float
    paper: bool

    @staticmethod
    def of(part: Joint | Paper, training: Batches) -> Settings:
        """With what is not given as joint training has it, or the paper."""
        paper = isinstance(part, Paper)
        batch_size = part.batch_size or (PAPER_BATCH if paper else JOINT_BATCH)
        usual = PAPER_EPOCHS if paper else max(2, JOINT_STEPS // training.num_batches(batch_size))
        rate = (PAPER_RATE if paper else JOINT_RATE) if part.learning_rate == "auto" else float(part.learning_rate)
        return Settings(part.max_epochs or usual, batch_size, rate, paper)


@dataclass(frozen=True)
class JointFit:
    """What joint training has found.

    Attributes:
        posterior: Q, trained.
        embedding: from the user's rows to the kernel's.
        prior: k, and what it was fitted with.
        divergence_weight: β.
        num_rows: N.
        note: what a reader of the summary should know.
        seconds: it took.
    """

    posterior: JointPosterior
    embedding: StandardisedRows
    prior: PriorFit
    divergence_weight: float
    num_rows: int
    note: str
    seconds: float


def train_jointly(
    network: nn.Module,
    training: Batches,
    shape: tuple[int, ...],
    task: ClassificationTask,
    options: FitOptions,
    settings: Settings,
) -> JointFit:
    """Train a copy of the network and one covariance a class, whose kernel is on the rows, by the generalized loss.

    AdamW over mean and covariances. Weights of the mean, but not its biases and scales, shrink in each step by a share of the
    learning rate (Loshchilov and Hutter, 2019).
    """
    start = time.perf_counter()
    generator, device, num_classes = options.generator, options.device, len(task.classes)
    sample, label, num_rows = training.sample(SPARSE_SAMPLE, CHUNK_SIZE, generator)
    embedding = StandardisedRows(pixel_scales(task, sample, label, shape), shape)
    x, y = embedding(sample.to(device)), indicators(label.numpy(), num_classes, device)
    embedding = embedding.spanning(x)
    mean = ModuleMean(copy.deepcopy(network).to(device, options.network_dtype)).requires_grad_(True)
    with torch.no_grad():
        task.require_outputs(mean.eval()(sample[:2].to(device)), num_classes)
    asked = options.covariance.num_inducing
    z = x[torch.randperm(len(x), generator=generator)[: SPARSE_INDUCING if asked == "auto" else asked].to(device)]
    options.report("prior", 0.0)
    prior, note, s, beta = _start(x, y, z, num_rows, task, options, settings)
    epsilon = task.likelihood.epsilon
    likelihood = SoftmaxLikelihood(num_classes, TRAINING_DIGITS) if epsilon is None else RobustMaxLikelihood(num_classes, epsilon)
    lower = cholesky(kernel_matrix(prior.kernel, z), name="k(Z, Z)").factor
    factor = cholesky(s, name="S").factor.expand(num_classes, -1, -1).clone().requires_grad_(True)
    posterior = JointPosterior(mean, prior.kernel, z, lower, factor)

    def loss(rows: Tensor, labels: Tensor) -> Tensor:
        drawn = x[torch.randperm(len(x), generator=generator)[:PAPER_COMPARISON].to(device)] if settings.paper else None
        flat = embedding(rows)
        return classification_loss(
            posterior, likelihood, rows, flat, labels, num_data=num_rows, divergence_weight=beta, comparison=drawn
        )

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        mean.train()
        for rows, labels in training.shuffled(settings.batch_size, generator):
            # A single row has no batch statistics.
            if len(rows) > 1:
                yield rows.to(device), labels.to(device)

    decay, rise = (0.0, 0.0) if settings.paper else (JOINT_DECAY, JOINT_RISE)
    weights = [p for p in mean.parameters() if p.ndim > 1]
    others = [*(p for p in mean.parameters() if p.ndim < 2), factor]
    groups = [{"params": weights, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
    num_steps = max(1, settings.num_epochs * training.num_batches(settings.batch_size))
    train_epochs(
        mean,
        torch.optim.AdamW(groups, lr=settings.learning_rate),
        loss,
        batches,
        num_epochs=settings.num_epochs,
        rate=lambda step: one_cycle(step / num_steps, rise),
        on_epoch=lambda epoch, value: options.report(f"loss {value:.3f}", (epoch + 1) / settings.num_epochs),
    )
    mean.eval().requires_grad_(False)
    return JointFit(posterior, embedding, prior, beta, num_rows, note, time.perf_counter() - start)


def _start(
    x: Float[Tensor, "N D"],
    y: Float[Tensor, "J N"],
    z: Float[Tensor, "M D"],
    num_rows: int,
    task: ClassificationTask,
    options: FitOptions,
    settings: Settings,
) -> tuple[PriorFit, str, Float[Tensor, "M M"], float]:
    """k by the evidence of each class against the rest, a note on it, S to start from, and β."""
    weight, note = torch.ones_like(y[0]), ""
    targets = task.coded(y, weight)
    if settings.paper:
        # Rows of the sample come in random order after the first draw of Z; Z itself are rows of it.
        place = torch.cdist(z, x).argmin(1)
        kernel: Kernel = default_kernel(x.shape[1], hyper_priors=False).to(x.device)
        prior = fit_prior(kernel, z, targets[:, place], objective="marginal", tolerance=EVIDENCE_TOLERANCE)
    else:
        kernel, note = row_kernel(options.kernel, x.shape[1])
        prior = prior_for(kernel.to(x.device), x, targets, weight, z, options.generator)
        # The amplitude is that of Dirichlet logits.
        logits, _ = dirichlet_coding(y)
        prior = replace(prior, kernel=rescaled(prior, float((logits - logits.mean(1, keepdim=True)).square().mean())))
    prior.kernel.requires_grad_(False)
    first = x[torch.randperm(len(x), generator=options.generator)[:PAPER_BATCH].to(x.device)]
    if settings.paper:
        return prior, note, paper_initial_covariance(prior.kernel, z, first, prior.noise_variance, num_rows), 1.0
    # The softmax's curvature where nothing is known plays the part of 1/σ².
    noise = len(y) ** 2 / (len(y) - 1)
    s = titsias_covariance(row_sums(prior.kernel, z, x, noise_variance=noise * len(x) / num_rows))
    if options.covariance.weight != "auto":
        return prior, note, s, float(options.covariance.weight)
    plain = row_sums(prior.kernel, z, x)
    plain = replace(plain, num_rows=num_rows, gram=plain.gram * (num_rows / len(x)))
    return prior, note, s, matched_divergence_weight(plain, noise)


def joint_network_fit(
    part: Joint | Paper,
    training: Batches,
    validation: Batches,
    shape: tuple[int, ...],
    task: Any,
    options: FitOptions,
) -> Fit:
    """A copy of the network, trained; scales are then chosen on the validation rows.

    Where the kernel is on features, what the network has learned gives them. Given the mean, the covariance is then found in
    closed form, so that of training is not missed: on pixels it would not know images of other kinds.
    """
    module, settings = part.mean if isinstance(part, Paper) else part.module, Settings.of(part, training)

    def trained(task: ClassificationTask, options: FitOptions) -> JointFit:
        return train_jointly(module, training, shape, task, options, settings)

    def fitted(task: ClassificationTask, options: FitOptions) -> Fit:
        return _calibrated(trained(task, options), validation, task, options)

    if not isinstance(part, Paper) and not wants_features(options.kernel, shape):
        return fitted(task, options)
    sample, _, num_rows = training.sample(1, CHUNK_SIZE, torch.Generator().manual_seed(0))
    if isinstance(part, Paper):
        return _paper_fit(fitted, num_rows, task, options)
    # Whether the network has layers to look at is tried before it is trained.
    NetworkFeatures(copy.deepcopy(module).to(dtype=options.network_dtype), layer_of(options.kernel)).fit(sample)
    fit = trained(task, replace(options, kernel="rbf"))
    network = Frozen(fit.posterior.mean.module)
    kernel = options.kernel if not isinstance(options.kernel, str) else "features"
    return frozen_fit(network, training, validation, shape, task, replace(options, kernel=kernel), seconds=fit.seconds)


def _paper_fit(fitted: Callable[..., Fit], num_rows: int, task: ClassificationTask, options: FitOptions) -> Fit:
    """The paper's protocol [ap:Classification]: robust-max, M ∈ {½, ¾, 1} √N by validation NLL unless given, a factor a class."""
    task = replace(task, tempering="per-class" if task.tempering == "auto" else task.tempering)
    asked = options.covariance.num_inducing
    sizes = [max(1, round(f * math.sqrt(num_rows))) for f in PAPER_FACTORS] if asked == "auto" else [asked]
    fits = []
    for size in dict.fromkeys(sizes):
        covariance = copy.copy(options.covariance).set_params(num_inducing=size)
        fits.append(fitted(task, replace(options, covariance=covariance)))
    best = min(fits, key=lambda fit: fit.summary.held_out_nll[1])
    tried = ", ".join(f"{fit.summary.num_inducing}: {fit.summary.held_out_nll[1]:.3f}" for fit in fits)
    note = f"the paper's protocol; validation NLL of each M: {tried}"
    return replace(best, summary=replace(best.summary, note=note))


@torch.no_grad()
def _calibrated(fit: JointFit, validation: Batches, task: ClassificationTask, options: FitOptions) -> Fit:
    """The scales by the validation rows, and the whole as a model."""
    q, embedding, start = fit.posterior, fit.embedding, time.perf_counter()
    parts = []
    for rows, label in validation.in_order(CHUNK_SIZE):
        flat = embedding(rows.to(options.device))
        variance = q.variance(flat, q.features(flat))
        parts.append((q.mean(rows.to(options.device)).double(), variance, kernel_variance(q.kernel, flat), label))
    logits, variance, level, labels = (torch.cat(part, dim=-1) for part in zip(*parts, strict=True))
    y = task.targets(labels.numpy(), embedding.scales, options.device)
    mean = task.in_own_units(q.mean, embedding.scales, embedding.shape)
    seconds = fit.seconds + time.perf_counter() - start
    member = Member(type(q.mean.module).__name__, mean, logits, seconds)
    # The rows themselves are not needed any more; their number is.
    held_out = HeldOut(y.new_empty(y.shape[1], 0), y, torch.ones_like(y[0]), None, may_be_known=False, strata=options.strata)
    nothing = y.new_empty(0, 0), y[:, :0], y[0, :0]
    data = ArrayData(*nothing, held_out, embedding.scales, options.generator, stands_for=fit.num_rows)
    # Robust-max sees only the ratio of means and standard deviations: a scale of both would change nothing.
    stacked = (task if task.likelihood.epsilon is None else replace(task, tempering=1.0)).stack((member,), held_out)
    s = q.whitened_factor.detach() @ q.whitened_factor.detach().mT
    covariances = [HeldOutCovariance("trained", s[j], variance[j], level, fit.divergence_weight) for j in range(len(y))]
    posterior = GaussianMeasure(mean, SparsePosteriorKernel(q.kernel, q.inducing_points, s)).requires_grad_(False).eval()
    model, summary = task.calibrate(data, posterior, stacked, covariances, embedding, fit.note)
    prior = PriorChoice(q.kernel, fit.prior, q.inducing_points, q.inducing_points)
    return Fit(model, summary, data, prior, stacked, embedding)


def split_batches(training: Batches, share: float, generator: torch.Generator) -> tuple[Batches, Batches]:
    """Rows to learn from, and a share of them set apart, of each class the same."""
    rows, labels = training.rows, training.targets
    assert labels is not None
    assert not isinstance(rows, DataLoader)
    fold = class_folds(torch.from_numpy(labels), round(1 / share), generator).numpy()
    parts = [Batches(rows[keep], labels[keep], training.encode) for keep in (fold != 0, fold == 0)]
    return parts[0], parts[1]
