"""From what a user brings to judged logits: a stack of means on a table, or a frozen network with its features."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from gpytorch.kernels import Kernel, ScaleKernel
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader

from gwi._progress import Report
from gwi._typing import Array
from gwi.core.features import NetworkFeatures
from gwi.core.inducing import Method, choose_inducing_points
from gwi.core.kernels import FeatureKernel, default_kernel
from gwi.core.means import FirstColumns, ModuleMean
from gwi.core.prior import PriorFit
from gwi.core.scaling import OriginalRowsMean, Scales
from gwi.fitting.classification import LearnedLogits, combine_logits, learn_members
from gwi.fitting.held_out_covariance import ALL_ROWS, SPARSE_INDUCING, SPARSE_SAMPLE, choose_prior, row_kernel
from gwi.fitting.learners import Task, Trained
from gwi.fitting.logits import indicators, plan_logits, require_outputs, standardised_indicators
from gwi.fitting.regression import mean_basis_size
from gwi.fitting.stream_rows import stream_task
from gwi.models.classification import CHUNK_SIZE, LogitsAndFeatures, StandardRows
from gwi.streaming.batches import Batches
from gwi.tables.rows import RowSource

NUM_FOLDS = 5
# Numbers in all factors F_j together: with M inducing points and J classes, J M² of them.
MOST_FACTOR_NUMBERS = 4e7
# Inducing points on a network's features, and rows that stand for all when covariances are found.
FEATURE_INDUCING = 300
MOST_ROWS = 50_000
# Numbers of rows held when a kernel is on pixels.
MOST_PIXELS = 4e7


@dataclass(frozen=True)
class ClassOptions:
    """What the fit of a classifier needs besides rows and means.

    Attributes:
        kernel: a name, a kernel on standardised flat rows, or a `FeatureKernel`.
        layer: of a frozen network, whose output are the features; or several.
        num_inducing: M.
        inducing_points: how Z is chosen.
        logit_scale: s; ``"auto"`` by the likelihood of unseen rows.
        correct_mean: whether rows that a frozen network has not seen may correct its logits.
        device: where tensors live.
        network_dtype: of networks that we train.
        generator: for everything random.
        report: of progress.
        n_jobs: of joblib, for fits that are independent of each other.
    """

    kernel: str | Kernel
    layer: str | Sequence[str]
    num_inducing: int | Literal["auto"]
    inducing_points: Method | Literal["auto"]
    logit_scale: float | Literal["auto"]
    correct_mean: bool
    device: torch.device | str
    network_dtype: torch.dtype
    generator: torch.Generator
    report: Report
    n_jobs: int | None = None


@dataclass(frozen=True)
class Prepared:
    """Judged logits, and the way to them.

    Attributes:
        learned: the means and what they predicted at unseen rows.
        embedding: from the user's rows to those of the task.
        note: what a reader of the summary should know.
    """

    learned: LearnedLogits
    embedding: StandardRows | LogitsAndFeatures
    note: str


def class_folds(labels: Int[Tensor, " N"], num_folds: int, generator: torch.Generator) -> Int[Tensor, " N"]:
    """The fold of each row, every class spread over the folds as evenly as it can be."""
    order = torch.randperm(len(labels), generator=generator)
    by_class = order[labels[order].argsort(stable=True)]
    fold = torch.empty_like(labels)
    fold[by_class] = torch.arange(len(labels)) % num_folds
    return fold


def row_scales(x: Array, weight: Array, num_classes: int, shape: tuple[int, ...]) -> Scales:
    """Centre and scale of each column; of all columns together where rows have more axes than one, as pixels have."""
    scales = Scales.of(x, np.zeros((len(x), 1)), weight)
    if len(shape) > 1:
        centre, spread = float(x.mean()), float(x.std()) or 1.0
        scales = replace(scales, x_centre=np.full(x.shape[1], centre), x_scale=np.full(x.shape[1], spread))
    return replace(scales, y_centre=np.zeros(num_classes), y_scale=np.ones(num_classes))


def class_kernel(kernel: str | Kernel, num_features: int) -> tuple[Kernel, str]:
    """A kernel on standardised rows by name, or the one given; and a note where it has one length-scale for many columns."""
    name = "rbf" if isinstance(kernel, str) and kernel == "auto" else kernel
    if isinstance(name, FeatureKernel) or (isinstance(name, str) and name == "features"):
        raise ValueError(
            "A kernel on features needs a network: mean=module, frozen (freeze_mean=True) for a FeatureKernel; "
            'or use kernel="rbf".'
        )
    return row_kernel(name, num_features)


def stacked_logits(
    X: Array,
    labels: NDArray[np.int64],
    weight: Array,
    validation: tuple[Array, NDArray[np.int64]] | None,
    classes: NDArray[Any],
    means: Sequence[Any] | Literal["auto"],
    options: ClassOptions,
    *,
    freeze: bool,
) -> Prepared:
    """Means of a table, each judged by folds or by validation rows, stacked; modules among them are trained unless `freeze`."""
    num_classes, generator = len(classes), options.generator
    scales = row_scales(X, weight, num_classes, X.shape[1:])
    x, y = scales.rows(X, options.device), indicators(labels, num_classes, options.device)
    w = torch.as_tensor(weight / weight.mean(), device=options.device)
    task = Task(x, y, w, None, x, generator, scales, options.network_dtype, classes, options.report)
    if validation is None:
        fold = class_folds(torch.from_numpy(labels), min(NUM_FOLDS, len(x)), generator)
        task, y_judge, judge_weight = replace(task, fold=fold.to(x.device)), y, w
    else:
        task = replace(task, x_judge=scales.rows(validation[0], options.device))
        y_judge = indicators(validation[1], num_classes, options.device)
        judge_weight = torch.ones_like(y_judge[0])
    return stacked_task(task, y_judge, judge_weight, means, options, freeze=freeze)


def stacked_task(
    task: Task,
    y_judge: Float[Tensor, "J V"],
    judge_weight: Float[Tensor, " V"],
    means: Sequence[Any] | Literal["auto"],
    options: ClassOptions,
    *,
    freeze: bool,
) -> Prepared:
    """Prior, Z and means for the rows of a task, stacked; modules among them are trained unless `freeze`."""
    task = replace(task, n_jobs=options.n_jobs)
    x, num_classes = task.x, len(task.y)
    options.report("prior", 0.0)
    kernel, note = class_kernel(options.kernel, x.shape[1])
    standardised = replace(task, y=standardised_indicators(task.y, task.weight))
    method: Method = "kmeans" if options.inducing_points == "auto" else options.inducing_points
    num_inducing = options.num_inducing
    if num_inducing == "auto" and ALL_ROWS >= len(x) > (MOST_FACTOR_NUMBERS / num_classes) ** 0.5:
        num_inducing = min(SPARSE_INDUCING, len(x))

    planned = plan_logits(task.num_rows, num_classes) if means == "auto" else means

    def chosen() -> tuple[PriorFit, Tensor, Tensor]:
        prior, z = choose_prior(
            standardised, kernel.to(options.device), num_inducing, method, judges_kernel_means="svgp" in planned
        )
        if options.num_inducing != "auto" or z is task.x:
            return prior, z, z
        count = int(mean_basis_size(task.num_rows, len(z)) * min(1.0, (10 / num_classes) ** 0.5))
        return prior, z, x[torch.randperm(len(x), generator=task.generator)[:count].to(x.device)]

    prior, z, basis = task.decided(chosen)
    members = learn_members(task, prior, basis, planned, y_judge, judge_weight, freeze=freeze)
    learned = combine_logits(task, prior, z, members, y_judge, judge_weight, options.logit_scale)
    return Prepared(learned, StandardRows(task.scales, x.shape[1:]), note)


def streamed_logits(
    source: RowSource,
    validation: Any,
    means: Sequence[Any] | Literal["auto"],
    options: ClassOptions,
    freeze: bool,
    checkpoints: Any = None,
    estimator: Any = None,
) -> Prepared:
    """Means of a table that is read some rows at a time, judged on rows set apart, stacked."""
    found = stream_task(
        source,
        options.generator,
        labels=True,
        validation=validation,
        device=options.device,
        network_dtype=options.network_dtype,
        checkpoints=checkpoints,
        estimator=estimator,
        report=options.report,
    )
    judged = stacked_task(found.task, found.y_judge, torch.ones_like(found.y_judge[0]), means, options, freeze=freeze)
    return replace(judged, note="; ".join(filter(None, (judged.note, found.note))))


def split_batches(training: Batches, share: float, generator: torch.Generator) -> tuple[Batches, Batches]:
    """Rows to learn from, and a share of them set apart, of each class the same."""
    rows, labels = training.rows, training.labels
    assert labels is not None
    assert not isinstance(rows, DataLoader)
    fold = class_folds(torch.from_numpy(labels), round(1 / share), generator).numpy()
    parts = [Batches(rows[keep], labels[keep], training.classes) for keep in (fold != 0, fold == 0)]
    return parts[0], parts[1]


def frozen_logits(
    network: nn.Module, training: Batches, validation: Batches, shape: tuple[int, ...], options: ClassOptions
) -> Prepared:
    """A trained network's logits, with a kernel on its features or on its input; nothing in the network changes.

    Training rows are read once, and so are validation rows.
    """
    start = time.perf_counter()
    generator, num_classes = options.generator, len(training.classes)
    sample, _, _ = training.sample(1000, CHUNK_SIZE, generator)
    options.report("features", 0.0)
    features = feature_map(network, shape, options)
    embedding: StandardRows | LogitsAndFeatures
    if features is None:
        flat = sample.flatten(1).double().numpy()
        embedding = StandardRows(row_scales(flat, np.ones(len(flat)), num_classes, shape), shape)
        capacity = int(min(MOST_ROWS, max(1000, MOST_PIXELS / flat.shape[1])))
        mean: nn.Module = OriginalRowsMean(ModuleMean(copy.deepcopy(network).eval()), embedding.scales, shape)
        kernel, note = class_kernel(options.kernel, flat.shape[1])
    else:
        features.to(options.device).fit(sample.to(options.device))
        embedding, capacity, mean = LogitsAndFeatures(features, shape), MOST_ROWS, FirstColumns(num_classes)
        note = f"features of the network before {', '.join(features.watched)}" if features.automatic else ""
    x, label, num_rows = embedded(training, embedding, capacity, options)
    x_judge, judge_label, _ = embedded(validation, embedding, 10**9, options)
    if features is not None:
        kernel = feature_kernel(options.kernel, x, num_classes, generator)
    y, y_judge = (indicators(part.numpy(), num_classes, options.device) for part in (label, judge_label))
    scales = Scales(np.zeros(x.shape[1]), np.ones(x.shape[1]), np.zeros(num_classes), np.ones(num_classes))
    task = Task(x, y, torch.ones_like(y[0]), None, x_judge, generator, scales, options.network_dtype, training.classes)
    task = replace(task, num_seen=num_rows)
    with torch.no_grad():
        judged = torch.cat([mean(rows) for rows in x_judge.split(CHUNK_SIZE)], dim=1)
    require_outputs(judged, num_classes)
    z = feature_inducing_points(x, kernel, num_classes if features is not None else 0, options)
    if features is None:
        prior, z = choose_prior(replace(task, y=standardised_indicators(y, task.weight)), kernel, "auto", z)
    else:
        # Length-scales from distances: the evidence of features that separate the classes prefers ones that see no distance.
        prior = PriorFit(kernel, 1.0, z, float("nan"), 0, True, "the median distance")
    trained = Trained(type(network).__name__, mean, judged, time.perf_counter() - start)
    learned = combine_logits(task, prior, z, [trained], y_judge, torch.ones_like(y_judge[0]), options.logit_scale)
    return Prepared(replace(learned, correct=options.correct_mean and options.logit_scale == "auto"), embedding, note)


def feature_map(network: nn.Module, shape: tuple[int, ...], options: ClassOptions) -> NetworkFeatures | None:
    """The features that the options ask for; None for a kernel on the rows themselves.

    Tables keep their own distances: the direction of a rectified network's features is the same however far a row is away.
    """
    kernel = options.kernel
    if isinstance(kernel, FeatureKernel):
        if not isinstance(kernel.feature_map, NetworkFeatures):
            raise ValueError("A FeatureKernel for a frozen network has NetworkFeatures of it as its map; got another map.")
        return copy.deepcopy(kernel.feature_map)
    return NetworkFeatures(network, options.layer) if wants_features(kernel, shape) else None


def wants_features(kernel: str | Kernel, shape: tuple[int, ...]) -> bool:
    """Whether a kernel, by its name, is on features of the network: asked for, or rows have more axes than one."""
    return isinstance(kernel, str) and (kernel == "features" or (kernel == "auto" and len(shape) > 1))


def feature_kernel(kernel: str | Kernel, x: Float[Tensor, "N E"], num_outputs: int, generator: torch.Generator) -> Kernel:
    """k on the columns of features, behind those of the logits; its length-scale is the median distance unless it is given."""
    columns = torch.arange(num_outputs, x.shape[1], device=x.device)
    if isinstance(kernel, FeatureKernel):
        found = copy.deepcopy(kernel.base_kernel).double().to(x.device)
        if found.active_dims is not None:
            raise ValueError("The base kernel of a FeatureKernel for a frozen network takes all features; leave active_dims out.")
        found = found if hasattr(found, "outputscale") else ScaleKernel(found).double().to(x.device)
    else:
        # At random: rows may be in the order of their classes.
        sample = x[torch.randperm(len(x), generator=generator)[:1000].to(x.device), num_outputs:]
        distance = float(torch.nn.functional.pdist(sample).median()) if len(sample) > 1 else 1.0
        found = default_kernel(x.shape[1] - num_outputs, lengthscale=distance if distance > 0 else 1.0, ard=False).to(x.device)
    found.active_dims = columns
    return found


def feature_inducing_points(x: Float[Tensor, "N E"], kernel: Kernel, first: int, options: ClassOptions) -> Float[Tensor, "M E"]:
    """Z among the rows; k-means looks at the columns from `first` on, those that the kernel sees.

    Unless something else is asked for, Z on features are centres of k-means, which leave less of the variance at rows like those
    of the training, and more at outliers, than as many rows at random: `benchmarks/studies/feature_choice.py`.
    """
    wanted = options.num_inducing
    if not first and wanted == "auto" and len(x) <= ALL_ROWS:
        return x  # Z = X has its covariance in closed form.
    count = min(len(x), (FEATURE_INDUCING if first else SPARSE_INDUCING) if wanted == "auto" else wanted)
    usual: Method = "kmeans" if first else "random"
    method = usual if options.inducing_points == "auto" else options.inducing_points
    rows = x[torch.randperm(len(x), generator=options.generator)[: max(SPARSE_SAMPLE, count)].to(x.device)]
    if method != "kmeans" or not first:
        return choose_inducing_points(rows, count, method, kernel=kernel, generator=options.generator)
    z = choose_inducing_points(rows[:, first:], count, method, generator=options.generator)
    return torch.cat([z.new_zeros(len(z), first), z], dim=1)


@torch.no_grad()
def embedded(
    batches: Batches, embedding: nn.Module, capacity: int, options: ClassOptions
) -> tuple[Float[Tensor, "n E"], Int[Tensor, " n"], int]:
    """At most `capacity` embedded rows with their classes from one pass, and how many there were."""
    x, label, num_rows = batches.sample(capacity, CHUNK_SIZE, options.generator, lambda rows: embedding(rows.to(options.device)))
    return x.to(options.device), label, num_rows
