"""A network of the user's own, trained jointly with its covariances by the generalized loss; and the paper's protocol for it."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor, nn

from gwi.core.covariance import matched_divergence_weight, paper_initial_covariance, titsias_covariance
from gwi.core.features import NetworkFeatures
from gwi.core.joint import JointPosterior, train_jointly
from gwi.core.kernels import SparsePosteriorKernel, default_kernel
from gwi.core.likelihoods.robust_max import RobustMaxLikelihood
from gwi.core.likelihoods.softmax import Digits, SoftmaxLikelihood
from gwi.core.linalg import cholesky
from gwi.core.means import ModuleMean
from gwi.core.measures import kernel_matrix, kernel_variance
from gwi.core.prior import PriorFit, fit_prior
from gwi.core.row_sums import row_sums
from gwi.core.scaling import OriginalRowsMean
from gwi.fitting.class_rows import ClassOptions, Prepared, class_kernel, frozen_logits, row_scales
from gwi.fitting.classification import LearnedLogits, temper_classes
from gwi.fitting.held_out_covariance import EVIDENCE_TOLERANCE, SPARSE_INDUCING, SPARSE_SAMPLE, prior_for
from gwi.fitting.learners import Task, Trained
from gwi.fitting.logit_scales import TemperingName
from gwi.fitting.logits import dirichlet_targets, indicators, require_outputs, rescaled, stacking_weights, standardised_indicators
from gwi.models.classification import CHUNK_SIZE, ClassificationModel, ClassSummary, StandardRows
from gwi.streaming.batches import Batches

# M of the preset, in units of √N.
PAPER_FACTORS = (0.5, 0.75, 1.0)
# Gradient steps of joint training, about, and epochs of the preset.
JOINT_STEPS, PAPER_EPOCHS = 3000, 100
# Learning rates of both at their peak; what weights shrink by in joint training, and the share of steps in which its rate rises.
JOINT_RATE, PAPER_RATE, JOINT_DECAY, JOINT_RISE = 4e-3, 1e-3, 0.1, 0.2
# N_B of joint training and of the preset, and N_S of the preset.
JOINT_BATCH, PAPER_BATCH, PAPER_COMPARISON = 128, 1000, 100
# Decimal places of the expected log-likelihood in a step: far below what a batch knows of it.
TRAINING_DIGITS: Digits = 5


@dataclass(frozen=True)
class JointOptions:
    """What joint training needs besides `ClassOptions`.

    Attributes:
        epsilon: ε of robust-max; None for softmax.
        divergence_weight: β; ``"auto"`` is the matched weight.
        tempering: as `choose_scales` takes it.
        num_epochs: passes over the rows.
        batch_size: rows a step.
        learning_rate: at its peak.
        paper: whether the paper's protocol is followed: ARD length-scales from the pairs (Z, y_Z), its estimate of W₂².
    """

    epsilon: float | None
    divergence_weight: float | Literal["auto"]
    tempering: float | TemperingName | None
    num_epochs: int
    batch_size: int
    learning_rate: float
    paper: bool


def joint_options(
    training: Batches,
    *,
    paper: bool,
    epsilon: float | None,
    divergence_weight: float | Literal["auto"],
    tempering: float | TemperingName | None,
    max_epochs: int | None,
    batch_size: int | None,
    learning_rate: float | Literal["auto"],
) -> JointOptions:
    """With what is not given as joint training has it, or the paper, whose β is one and whose tempering has a factor a class."""
    rows_a_step = batch_size or (PAPER_BATCH if paper else JOINT_BATCH)
    usual = PAPER_EPOCHS if paper else max(2, JOINT_STEPS // training.num_batches(rows_a_step))
    return JointOptions(
        epsilon=epsilon,
        divergence_weight=1.0 if paper else divergence_weight,
        tempering="per-class" if paper else tempering,
        num_epochs=max_epochs or usual,
        batch_size=rows_a_step,
        learning_rate=(PAPER_RATE if paper else JOINT_RATE) if learning_rate == "auto" else float(learning_rate),
        paper=paper,
    )


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
    embedding: StandardRows
    prior: PriorFit
    divergence_weight: float
    num_rows: int
    note: str
    seconds: float


def joint_fit(
    network: nn.Module, training: Batches, shape: tuple[int, ...], options: ClassOptions, joint: JointOptions
) -> JointFit:
    """Train a copy of the network and one covariance a class, whose kernel is on the rows, by the generalized loss."""
    start = time.perf_counter()
    generator, classes = options.generator, training.classes
    device, num_classes = options.device, len(classes)
    sample, label, num_rows = training.sample(SPARSE_SAMPLE, CHUNK_SIZE, generator)
    flat = sample.flatten(1).double().numpy()
    scales = row_scales(flat, np.ones(len(flat)), num_classes, shape)
    embedding = StandardRows(scales, shape)
    x, y = embedding(sample.to(device)), indicators(label.numpy(), num_classes, device)
    mean = ModuleMean(copy.deepcopy(network).to(device, options.network_dtype)).requires_grad_(True)
    with torch.no_grad():
        require_outputs(mean.eval()(sample[:2].to(device)), num_classes)
    count = SPARSE_INDUCING if options.num_inducing == "auto" else options.num_inducing
    z = x[torch.randperm(len(x), generator=generator)[: min(count, len(x))].to(device)]
    options.report("prior", 0.0)
    prior, note = _prior(x, y, z, options, joint)
    prior.kernel.requires_grad_(False)
    weight = joint.divergence_weight
    noise = prior.noise_variance
    first = x[torch.randperm(len(x), generator=generator)[:PAPER_BATCH].to(device)]
    s = paper_initial_covariance(prior.kernel, z, first, noise, num_rows)
    if not joint.paper:
        # The softmax's curvature where nothing is known plays the part of 1/σ².
        noise = num_classes**2 / (num_classes - 1)
        sums = row_sums(prior.kernel, z, x, noise_variance=noise * len(x) / num_rows)
        s = titsias_covariance(sums)
        if weight == "auto":
            plain = row_sums(prior.kernel, z, x)
            plain = replace(plain, num_rows=num_rows, gram=plain.gram * (num_rows / len(x)))
            weight = matched_divergence_weight(plain, noise)
    beta = 1.0 if weight == "auto" else float(weight)
    likelihood = (
        SoftmaxLikelihood(num_classes, TRAINING_DIGITS)
        if joint.epsilon is None
        else RobustMaxLikelihood(num_classes, joint.epsilon)
    )
    lower = cholesky(kernel_matrix(prior.kernel, z), name="k(Z, Z)").factor
    factor = cholesky(s, name="S").factor.expand(num_classes, -1, -1).clone().requires_grad_(True)
    posterior = JointPosterior(mean, prior.kernel, z, lower, factor)

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for rows, labels in training.shuffled(joint.batch_size, generator):
            yield rows.to(device), labels.to(device)

    def comparison() -> Tensor:
        return x[torch.randperm(len(x), generator=generator)[:PAPER_COMPARISON].to(device)]

    train_jointly(
        posterior,
        likelihood,
        batches,
        embedding,
        num_data=num_rows,
        num_batches=training.num_batches(joint.batch_size),
        num_epochs=joint.num_epochs,
        divergence_weight=beta,
        learning_rate=joint.learning_rate,
        weight_decay=0.0 if joint.paper else JOINT_DECAY,
        rise=0.0 if joint.paper else JOINT_RISE,
        comparison=comparison if joint.paper else None,
        on_epoch=lambda epoch, loss: options.report(f"loss {loss:.3f}", (epoch + 1) / joint.num_epochs),
    )
    mean.requires_grad_(False)
    return JointFit(posterior, embedding, prior, beta, num_rows, note, time.perf_counter() - start)


def joint_model(
    network: nn.Module,
    training: Batches,
    validation: Batches,
    shape: tuple[int, ...],
    options: ClassOptions,
    joint: JointOptions,
) -> tuple[ClassificationModel, ClassSummary]:
    """A copy of the network and one covariance a class, trained; scales are then chosen on the validation rows."""
    return _tempered(joint_fit(network, training, shape, options, joint), training, validation, options, joint)


def joint_logits(
    network: nn.Module,
    training: Batches,
    validation: Batches,
    shape: tuple[int, ...],
    options: ClassOptions,
    joint: JointOptions,
) -> Prepared:
    """A copy of the network, trained with covariances on its rows; what it has learned then gives the features of the kernel.

    Given the mean, the covariance is found in closed form, so that of training is not missed: on pixels it would not know images
    of other kinds. Whether the network has layers to look at is tried before it is trained.
    """
    sample, _, _ = training.sample(1, CHUNK_SIZE, torch.Generator().manual_seed(0))
    NetworkFeatures(copy.deepcopy(network).to(dtype=options.network_dtype), options.layer).fit(sample)
    fit = joint_fit(network, training, shape, replace(options, kernel="rbf"), joint)
    prepared = frozen_logits(fit.posterior.mean.module, training, validation, shape, replace(options, kernel="features"))
    member = prepared.learned.members[0]
    members = (replace(member, seconds=member.seconds + fit.seconds),)
    return replace(prepared, learned=replace(prepared.learned, members=members))


def _prior(
    x: Float[Tensor, "N D"], y: Float[Tensor, "J N"], z: Float[Tensor, "M D"], options: ClassOptions, joint: JointOptions
) -> tuple[PriorFit, str]:
    """k by the evidence of each class against the rest; in joint training with the amplitude of Dirichlet logits."""
    weight = torch.ones_like(y[0])
    targets = standardised_indicators(y, weight)
    if joint.paper:
        # Rows of the sample come in random order after the first draw of Z; Z itself are rows of it.
        place = torch.cdist(z, x).argmin(1)
        kernel: Kernel = default_kernel(x.shape[1], hyper_priors=False).to(x.device)
        return fit_prior(kernel, z, targets[:, place], objective="marginal", tolerance=EVIDENCE_TOLERANCE), ""
    kernel, note = class_kernel(options.kernel, x.shape[1])
    prior = prior_for(kernel.to(x.device), x, targets, weight, z, options.generator)
    logits, _ = dirichlet_targets(y)
    spread = float((logits - logits.mean(1, keepdim=True)).square().mean())
    return replace(prior, kernel=rescaled(prior, spread)), note


@torch.no_grad()
def _tempered(
    fit: JointFit, training: Batches, validation: Batches, options: ClassOptions, joint: JointOptions
) -> tuple[ClassificationModel, ClassSummary]:
    """The scales by the validation rows, and the whole as a model."""
    posterior, embedding, num_rows = fit.posterior, fit.embedding, fit.num_rows
    start = time.perf_counter()
    logits, variances, levels, labels = [], [], [], []
    for rows, label in validation.in_order(CHUNK_SIZE):
        flat = embedding(rows.to(options.device))
        logits.append(posterior.mean(rows.to(options.device)).double())
        variances.append(posterior.variance(flat, posterior.features(flat)))
        levels.append(kernel_variance(posterior.kernel, flat))
        labels.append(label)
    num_classes = len(training.classes)
    judged, y_judge = torch.cat(logits, dim=1), indicators(torch.cat(labels).numpy(), num_classes, options.device)
    mean = OriginalRowsMean(posterior.mean, embedding.scales, embedding.shape)
    seconds = fit.seconds + time.perf_counter() - start
    trained = Trained(type(posterior.mean.module).__name__, mean, judged, seconds)
    ones = torch.ones_like(y_judge[0])
    scale = 1.0
    if options.logit_scale == "auto" and joint.epsilon is None:
        _, scale = stacking_weights(judged[None], y_judge, ones)
    # Rows themselves are not needed any more; their number is.
    task = Task(
        torch.empty(num_rows, 0),
        torch.empty(num_classes, num_rows),
        torch.empty(num_rows),
        None,
        torch.empty(0, 0),
        options.generator,
        embedding.scales,
        options.network_dtype,
        training.classes,
    )
    learned = LearnedLogits(
        task, fit.prior, posterior.inducing_points, (trained,), torch.ones_like(judged[:1, 0]), scale, y_judge, ones
    )
    kernel = SparsePosteriorKernel(
        posterior.kernel, posterior.inducing_points, posterior.whitened_factor.detach() @ posterior.whitened_factor.detach().mT
    )
    return temper_classes(
        learned,
        embedding,
        kernel,
        torch.cat(variances, dim=1),
        torch.cat(levels),
        kind="trained",
        divergence_weight=(fit.divergence_weight,) * num_classes,
        tempering=joint.tempering,
        epsilon=joint.epsilon,
        note=fit.note,
    )


def paper_model(
    network: nn.Module,
    training: Batches,
    validation: Batches,
    shape: tuple[int, ...],
    options: ClassOptions,
    joint: JointOptions,
) -> tuple[ClassificationModel, ClassSummary]:
    """The paper's protocol [ap:Classification]: robust-max, M ∈ {½, ¾, 1} √N by validation NLL unless given, a factor a class."""
    _, _, num_rows = training.sample(1, CHUNK_SIZE, torch.Generator().manual_seed(0))
    given = options.num_inducing
    sizes = [max(1, round(f * math.sqrt(num_rows))) for f in PAPER_FACTORS] if given == "auto" else [given]
    fits = [
        joint_model(network, training, validation, shape, replace(options, num_inducing=size), joint)
        for size in dict.fromkeys(sizes)
    ]
    model, summary = min(fits, key=lambda fit: fit[1].unseen_nll[1])
    tried = ", ".join(f"{fit.num_inducing}: {fit.unseen_nll[1]:.3f}" for _, fit in fits)
    return model, replace(summary, note=f"the paper's protocol; validation NLL of each M: {tried}")
