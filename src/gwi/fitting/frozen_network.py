"""A trained network as the mean, with a kernel on its features or on its input; nothing in the network changes."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel, ScaleKernel
from jaxtyping import Float
from torch import Tensor, nn

from gwi.core.features import NetworkFeatures
from gwi.core.inducing import Method, choose_inducing_points
from gwi.core.kernels import FeatureKernel, default_kernel
from gwi.core.means import FirstColumns, ModuleMean
from gwi.core.module_calls import own_name
from gwi.core.prior import PriorFit
from gwi.core.scaling import CHUNK_SIZE, Embedding, OutputsAndFeatures, Scales, StandardisedRows
from gwi.fitting.data import ArrayData, FitOptions, HeldOut
from gwi.fitting.hyperparameters import ALL_ROWS, SPARSE_INDUCING, SPARSE_SAMPLE, PriorChoice, of_network, prior_for, row_kernel
from gwi.fitting.pipeline import finish
from gwi.fitting.task import Fit, Member, Task
from gwi.parts import Features, Frozen
from gwi.streaming.batches import Batches

# Inducing points on a network's features, and rows that stand for all when covariances are found.
FEATURE_INDUCING = 300
MOST_ROWS = 50_000
# Numbers of rows held when a kernel is on pixels.
MOST_PIXELS = 4e7


def frozen_fit(
    part: Frozen,
    training: Batches,
    validation: Batches,
    shape: tuple[int, ...],
    task: Task,
    options: FitOptions,
    *,
    seconds: float = 0.0,
) -> Fit:
    """A covariance around a network's outputs. Training rows are read once, and so are validation rows.

    Args:
        part: the network.
        training: rows that it may have seen.
        validation: rows that it has not.
        shape: of a row.
        task: what its outputs are.
        options: how.
        seconds: that the network itself has taken, for the summary.
    """
    start = time.perf_counter()
    network, generator = part.module, options.generator
    sample, targets, _ = training.sample(1000, CHUNK_SIZE, generator)
    options.report("features", 0.0)
    scales = pixel_scales(task, sample, targets, shape)
    features = feature_map(network, shape, options.kernel)
    embedding: Embedding
    if features is None:
        embedding, capacity = StandardisedRows(scales, shape), int(min(MOST_ROWS, max(1000, MOST_PIXELS / len(scales.x_scale))))
        mean: nn.Module = ModuleMean(copy.deepcopy(network).eval())
        with torch.no_grad():
            task.require_outputs(mean(sample[:2].to(options.device)), len(scales.y_scale))
        mean = task.in_own_units(mean, scales, shape)
        kernel, note = row_kernel(options.kernel, len(scales.x_scale))
    else:
        features.to(options.device).fit(sample.to(options.device))
        outputs, values = features.evaluate(sample[:2].to(options.device))
        task.require_outputs(outputs.mT, len(scales.y_scale))
        size = outputs.shape[1] + values.shape[1]
        scales = replace(scales, x_centre=np.zeros(size), x_scale=np.ones(size))
        embedding, capacity, mean = OutputsAndFeatures(features, scales, shape), MOST_ROWS, FirstColumns(outputs.shape[1])
        note = f"features of the network before {', '.join(features.layers)}" if features.automatic else ""
    x, y, num_rows = _embedded(training, embedding, capacity, task, options)
    x_held_out, y_held_out, _ = _embedded(validation, embedding, 10**9, task, options)
    held_out = HeldOut(x_held_out, y_held_out, torch.ones_like(y_held_out[0]), None, may_be_known=False, strata=options.strata)
    data = ArrayData(x, y, torch.ones_like(y[0]), held_out, scales, generator, note=note, stands_for=num_rows)
    if features is None:
        z = inducing_points(x, kernel, 0, options)
        prior = prior_for(kernel.to(x.device), x, task.prior_data(data).y, data.weight, z, generator)
    else:
        kernel = feature_kernel(options.kernel, x, len(y), generator)
        z = inducing_points(x, kernel, len(y), options)
        # Length-scales from distances: the evidence of features that separate the classes prefers ones that see no distance.
        prior = PriorFit(kernel, 1.0, z, float("nan"), 0, True, "the median distance")
    member = Member(own_name(network), mean, held_out.predicted(mean), seconds + time.perf_counter() - start)
    stacked = task.stack((member,), held_out)
    return finish(data, task, PriorChoice(kernel, prior, z, z), stacked, options, embedding)


def pixel_scales(task: Task, rows: Tensor, targets: Tensor, shape: tuple[int, ...]) -> Scales:
    """Centre and scale of each column; of all columns together where rows have more axes than one, as pixels have."""
    flat = rows.flatten(1).double().numpy()
    scales = task.scales(flat, targets.numpy(), np.ones(len(flat)))
    if len(shape) == 1:
        return scales
    centre, spread = float(flat.mean()), float(flat.std()) or 1.0
    return replace(scales, x_centre=np.full(flat.shape[1], centre), x_scale=np.full(flat.shape[1], spread))


def feature_map(network: nn.Module, shape: tuple[int, ...], kernel: Any) -> NetworkFeatures | None:
    """The features that a kernel asks for; None for a kernel on the rows themselves.

    Tables keep their own distances: the direction of a rectified network's features is the same however far a row is away.
    """
    if isinstance(kernel, FeatureKernel):
        if not isinstance(kernel.feature_map, NetworkFeatures):
            raise ValueError("A FeatureKernel for a frozen network has NetworkFeatures of it as its map; got another map.")
        return copy.deepcopy(kernel.feature_map)
    return NetworkFeatures(network, layer_of(kernel)) if wants_features(kernel, shape) else None


def layer_of(kernel: Any) -> str | Sequence[str]:
    """The layer whose output are the features, or several."""
    return kernel.layer if isinstance(kernel, Features) else "auto"


def wants_features(kernel: Any, shape: tuple[int, ...]) -> bool:
    """Whether a kernel is on features of the network: asked for, or by default where rows have more axes than one."""
    if of_network(kernel):
        return True
    return isinstance(kernel, str) and (kernel == "features" or (kernel == "auto" and len(shape) > 1))


def feature_kernel(kernel: Any, x: Float[Tensor, "N E"], num_outputs: int, generator: torch.Generator) -> Kernel:
    """k on the columns of features, behind those of the outputs; its length-scale is the median distance unless it is given."""
    columns = torch.arange(num_outputs, x.shape[1], device=x.device)
    if isinstance(kernel, FeatureKernel):
        base = copy.deepcopy(kernel.base_kernel).double().to(x.device)
        if base.active_dims is not None:
            raise ValueError("The base kernel of a FeatureKernel for a frozen network takes all features; leave active_dims out.")
        base = base if hasattr(base, "outputscale") else ScaleKernel(base).double().to(x.device)
    else:
        # At random: rows may be in the order of their classes.
        sample = x[torch.randperm(len(x), generator=generator)[:1000].to(x.device), num_outputs:]
        distance = float(torch.nn.functional.pdist(sample).median()) if len(sample) > 1 else 1.0
        base = default_kernel(x.shape[1] - num_outputs, lengthscale=distance if distance > 0 else 1.0, ard=False).to(x.device)
    base.active_dims = columns
    return base


def inducing_points(x: Float[Tensor, "N E"], kernel: Kernel, first: int, options: FitOptions) -> Float[Tensor, "M E"]:
    """Z among the rows; k-means looks at the columns from `first` on, those that the kernel sees.

    Unless something else is asked for, Z on features are centres of k-means, which leave less of the variance at rows like those
    of the training, and more at outliers, than as many rows at random: `benchmarks/studies/feature_choice.py`.
    """
    asked, method = options.covariance.num_inducing, options.covariance.inducing_points
    if not first and asked == "auto" and len(x) <= ALL_ROWS:
        return x  # Z = X has its covariance in closed form.
    count = min(len(x), (FEATURE_INDUCING if first else SPARSE_INDUCING) if asked == "auto" else asked)
    usual: Method = "kmeans" if first else "random"
    method = usual if isinstance(method, str) and method == "auto" else method
    rows = x[torch.randperm(len(x), generator=options.generator)[: max(SPARSE_SAMPLE, count)].to(x.device)]
    if method != "kmeans" or not first:
        return choose_inducing_points(rows, count, method, kernel=kernel, generator=options.generator)
    z = choose_inducing_points(rows[:, first:], count, method, generator=options.generator)
    return torch.cat([z.new_zeros(len(z), first), z], dim=1)


@torch.no_grad()
def _embedded(
    batches: Batches, embedding: Embedding, capacity: int, task: Task, options: FitOptions
) -> tuple[Float[Tensor, "n E"], Float[Tensor, "J n"], int]:
    """At most `capacity` embedded rows with their targets from one pass, and how many rows there were."""
    x, targets, num_rows = batches.sample(
        capacity, CHUNK_SIZE, options.generator, lambda rows: embedding(rows.to(options.device))
    )
    return x.to(options.device), task.targets(targets.numpy(), embedding.scales, options.device), num_rows
