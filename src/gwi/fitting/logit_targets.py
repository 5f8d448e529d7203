"""Labels as numbers that a kernel mean can learn."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from gwi.core.prior import PriorFit
from gwi.fitting.data import Rule

# α of the Dirichlet prior behind the targets of kernel means: the value of Milios et al. (2018).
CONCENTRATION = 0.01


def indicators(labels: Sequence[int] | NDArray[Any], num_classes: int, device: torch.device | str) -> Float[Tensor, "J N"]:
    """One row a class, one where the label is that class and zero elsewhere."""
    index = torch.as_tensor(np.asarray(labels), dtype=torch.long, device=device)
    return nn.functional.one_hot(index, num_classes).mT.to(torch.float64).contiguous()


def smoothed(y: Float[Tensor, "J N"]) -> Float[Tensor, "J N"]:
    """As if one more row had every label: rows that are all told apart would else ask for an infinite scale (Platt 1999)."""
    wrong = 1 / (y.shape[1] + 1)
    return (1 - wrong) * y + wrong / len(y)


def indicator_rates(totals: Float[Tensor, " J"]) -> Float[Tensor, " J"]:
    """The share of each class, none of them zero, from how often each stands there."""
    return (totals + 0.5) / (totals.sum() + 0.5 * len(totals))


def indicator_coding(rates: Float[Tensor, " J"]) -> Rule:
    """Each class against the rest, with mean zero and variance one."""
    return lambda _, y: (y - rates[:, None]) / (rates * (1 - rates)).sqrt()[:, None]


def dirichlet_coding(y: Float[Tensor, "J N"]) -> tuple[Float[Tensor, "J N"], Float[Tensor, "J N"]]:
    """Labels as logits with Gaussian noise (Milios et al. 2018): the mean and variance of log γ, γ_j ~ Gamma(α + y_j).

    In this way classification is regression, and its kernel mean is in closed form.
    """
    alpha = CONCENTRATION + y
    variance = (1 + alpha.reciprocal()).log()
    return alpha.log() - variance / 2, variance


def rescaled(prior: PriorFit, variance: float) -> Kernel:
    """The prior's kernel with its amplitude multiplied by a variance; k itself where it has no amplitude."""
    kernel = copy.deepcopy(prior.kernel)
    if hasattr(kernel, "outputscale"):
        kernel.outputscale = kernel.outputscale.detach() * variance
    return kernel
