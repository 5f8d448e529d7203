"""Robust-max for classes: the largest logit wins, and a share of the labels is wrong. Expectations without sampling."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from gwi.core.linalg import LOG_TWO_PI


class RobustMaxLikelihood(nn.Module):
    """p(y | f) = 1 − ε if y = argmax_j f_j, else ε / (J − 1).

    Args:
        num_classes: J.
        epsilon: ε, the share of labels taken to be wrong.
        quadrature: ``"composite"`` is accurate for any ratio of variances; ``"gauss-hermite"`` is the paper's rule, whose error
            grows when variances differ between classes.
        num_nodes: nodes of the Gauss–Hermite rule.

    Examples:
        >>> import torch
        >>> from gwi.core.likelihoods.robust_max import RobustMaxLikelihood
        >>> likelihood = RobustMaxLikelihood(2, epsilon=0.01)
        >>> mean = torch.tensor([[5.0], [-5.0]], dtype=torch.float64)
        >>> likelihood.class_probabilities(mean, torch.ones(2, 1, dtype=torch.float64)).round(decimals=3).tolist()
        [[0.99], [0.01]]
    """

    def __init__(
        self,
        num_classes: int,
        epsilon: float = 0.01,
        *,
        quadrature: Literal["composite", "gauss-hermite"] = "composite",
        num_nodes: int = 20,
    ):
        super().__init__()
        if num_classes < 2 or not 0 < epsilon < 1:
            raise ValueError(f"Robust-max needs at least 2 classes and 0 < ε < 1; got {num_classes} and {epsilon}.")
        if quadrature not in ("composite", "gauss-hermite"):
            raise ValueError(f'quadrature must be "composite" or "gauss-hermite"; got {quadrature!r}.')
        self.num_classes, self.epsilon = num_classes, epsilon
        self.quadrature, self.num_nodes = quadrature, num_nodes

    def argmax_probabilities(self, mean: Float[Tensor, "J N"], variance: Float[Tensor, "J N"]) -> Float[Tensor, "J N"]:
        """S(x, j) = Q(F_j(x) is the largest), one row a class."""
        if mean.shape[0] != self.num_classes:
            raise ValueError(f"Robust-max over {self.num_classes} classes got means of {mean.shape[0]} outputs.")
        rule: Callable[[Tensor, Tensor], Tensor] = _composite_argmax
        row_size = self.num_classes * num_composite_nodes(self.num_classes)
        if self.quadrature == "gauss-hermite":
            rule = partial(_gauss_hermite_argmax, num_nodes=self.num_nodes)
            row_size = self.num_classes**2 * self.num_nodes
        num_rows = max(1, _CHUNK_SIZE // row_size)
        chunks = list(zip(mean.split(num_rows, dim=1), variance.split(num_rows, dim=1), strict=True))
        if torch.is_grad_enabled() and len(chunks) > 1:
            rule = partial(checkpoint, rule, use_reentrant=False)
        return torch.cat([rule(m, r) for m, r in chunks], dim=1)

    def _probability_of(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """S(x, y) of one class a row."""
        if self.quadrature == "composite" and mean.shape[0] == self.num_classes:
            return _ChosenArgmax.apply(mean, variance, y)
        return self.argmax_probabilities(mean, variance).gather(0, y[None])[0]

    def expected_log_likelihood(
        self,
        y: Int[Tensor, " N"],
        mean: Float[Tensor, "J N"],
        variance: Float[Tensor, "J N"],
        x: Float[Tensor, "N D"] | None = None,
    ) -> Float[Tensor, " N"]:
        """log(1 − ε) S(x, y) + log(ε / (J − 1)) (1 − S(x, y))  [eq:multiclass_ell]."""
        chosen = self._probability_of(y.long(), mean, variance)
        hit, miss = np.log1p(-self.epsilon), np.log(self.epsilon / (self.num_classes - 1))
        return hit * chosen + miss * (1 - chosen)

    def class_probabilities(self, mean: Float[Tensor, "J N"], variance: Float[Tensor, "J N"]) -> Float[Tensor, "J N"]:
        """Q(Y* = j) = (1 − ε) S + ε/(J − 1) (1 − S), one row a class."""
        chosen = self.argmax_probabilities(mean, variance)
        return (1 - self.epsilon) * chosen + self.epsilon / (self.num_classes - 1) * (1 - chosen)

    def predictive(
        self, mean: Float[Tensor, "J N"], variance: Float[Tensor, "J N"], x: Float[Tensor, "N D"] | None = None
    ) -> torch.distributions.Categorical:
        """The distribution of the label of each row."""
        return torch.distributions.Categorical(probs=self.class_probabilities(mean, variance).mT)

    def nll(
        self,
        y: Int[Tensor, " N"],
        mean: Float[Tensor, "J N"],
        variance: Float[Tensor, "J N"],
        x: Float[Tensor, "N D"] | None = None,
    ) -> Float[Tensor, " N"]:
        """−log Q(Y* = y) of each row."""
        chosen = self._probability_of(y.long(), mean, variance)
        return -((1 - self.epsilon) * chosen + self.epsilon / (self.num_classes - 1) * (1 - chosen)).log()


# Breakpoints of the composite rule in standard deviations from each class's mean: every class's density and distribution
# function is smooth on each piece, whatever the other classes' scales. Outside ±9 a normal density is below 1e-18. They are
# closer above the mean, where the product of many distribution functions rises steeply.
_BREAKPOINTS = (-9.0, -5.0, -2.5, -1.0, 0.0, 1.0, 2.0, 3.2, 5.0, 9.0)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(9)
# Beyond, Φ(−z) underflows, and the gradient of its logarithm would multiply that zero by infinity.
_LARGEST_Z = {torch.float64: 37.0, torch.float32: 12.5}
# Numbers a rule holds in one array at a time: arrays near the size of the processor's cache take half the time of large ones.
# Chunks are computed again in the backward pass, so what is held between the passes does not grow with the nodes.
_CHUNK_SIZE = 10**6


def num_composite_nodes(num_classes: int) -> int:
    """How many nodes the composite rule has; all classes share them."""
    return (len(_BREAKPOINTS) * num_classes - 1) * len(_NODES)


def _composite_argmax(mean: Tensor, variance: Tensor) -> Tensor:
    """S_j = ∫ N(t | m_j, r_j) Π_{l≠j} Φ((t − m_l)/√r_l) dt on one set of nodes for all classes."""
    std = _positive_std(variance)
    z, w = _composite_nodes(mean, std)
    log_cdf = _log_cdf(z)
    log_density = -(z.square() + LOG_TWO_PI) / 2 - std.log()[..., None]
    others = log_cdf.sum(0) - log_cdf
    return (w * (log_density + others).exp()).sum(-1)


class _ChosenArgmax(torch.autograd.Function):
    """S(x, y) of one class a row by the composite rule, with its derivatives from the same pass over the nodes.

    With P(t) = N(t | m_y, r_y) Π_{l≠y} Φ(z_l), z_l = (t − m_l)/√r_l and N the standard normal density,

        ∂S/∂m_y = ∫ P z_y / √r_y,  ∂S/∂√r_y = ∫ P (z_y² − 1) / √r_y,
        ∂S/∂m_l = −∫ P N(z_l)/Φ(z_l) / √r_l,  ∂S/∂√r_l = −∫ P z_l N(z_l)/Φ(z_l) / √r_l.
    """

    @staticmethod
    def forward(ctx, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        with_gradient = any(ctx.needs_input_grad[:2])
        num_rows = max(1, _CHUNK_SIZE // (mean.shape[0] * num_composite_nodes(mean.shape[0])))
        parts = [
            _chosen_argmax(*part, with_gradient)
            for part in zip(mean.split(num_rows, 1), variance.split(num_rows, 1), y.split(num_rows), strict=True)
        ]
        value, by_mean, by_variance = (torch.cat(part, dim=-1) for part in zip(*parts, strict=True))
        ctx.save_for_backward(by_mean, by_variance)
        return value

    @staticmethod
    @once_differentiable  # The derivatives are constants here, so a second one would be wrong without a word.
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[no-untyped-def]
        by_mean, by_variance = ctx.saved_tensors
        return grad * by_mean, grad * by_variance, None


def _chosen_argmax(mean: Tensor, variance: Tensor, y: Tensor, with_gradient: bool) -> tuple[Tensor, Tensor, Tensor]:
    """S(x, y) of each row, and its derivatives by all means and variances, empty unless asked for."""
    std = _positive_std(variance)
    z, w = _composite_nodes(mean, std)
    rows = torch.arange(len(y), device=y.device)
    log_cdf = _log_cdf(z)
    z_y, std_y = z[y, rows], std[y, rows]
    log_p = log_cdf.sum(0) - log_cdf[y, rows] - (z_y.square() + LOG_TWO_PI) / 2 - std_y.log()[:, None]
    p = w * log_p.exp()
    if not with_gradient:
        return p.sum(-1), mean[:, :0], mean[:, :0]
    # P N(z_l)/Φ(z_l), in logarithms: the ratio alone is large where P is zero.
    pull = w * (log_p - log_cdf - z.square() / 2 - LOG_TWO_PI / 2).exp()
    by_mean, by_std = -pull.sum(-1) / std, -(pull * z).sum(-1) / std
    by_mean[y, rows] = (p * z_y).sum(-1) / std_y
    by_std[y, rows] = (p * (z_y.square() - 1)).sum(-1) / std_y
    by_variance = torch.where(variance > _least_variance(variance), by_std / (2 * std), torch.zeros_like(std))
    return p.sum(-1), by_mean, by_variance


def _composite_nodes(mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes of the composite rule in standard deviations from each class's mean, (J, N, nodes), and their weights."""
    nodes, weights = mean.new_tensor(_NODES), mean.new_tensor(_WEIGHTS)
    with torch.no_grad():  # The integral does not depend on where its nodes are.
        high, low = _sorted_breakpoints(mean, std)
        half = ((high.diff(dim=-1) + low.diff(dim=-1)) / 2)[..., None]
        step = low[:, :-1, None] + half * (1 + nodes)
        w = (half * weights).flatten(1)
    t_minus_mean = ((high[:, :-1] - mean[..., None])[..., None] + step).flatten(2)
    return _bounded(t_minus_mean / std[..., None]), w


def _bounded(z: Tensor) -> Tensor:
    return z.clamp(-_LARGEST_Z[z.dtype], _LARGEST_Z[z.dtype])


def _log_cdf(z: Tensor) -> Tensor:
    """log Φ of a `_bounded` z, in a third of the time of torch's own, which takes any z."""
    return (torch.erfc(z * -(0.5**0.5)) / 2).log()


def _sorted_breakpoints(mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
    """Breakpoints of all classes for each row, rising, as unevaluated sums high + low.

    A variance may be far below the rounding error of its mean, or zero: in one number m + c√r all breakpoints of such a class
    would fall together and its mass be lost. The rounding error of the sum, which is exact (Knuth), is therefore kept.
    """
    offset = std[..., None] * mean.new_tensor(_BREAKPOINTS)
    high = mean[..., None] + offset
    rounded = high - mean[..., None]
    low = (mean[..., None] - (high - rounded)) + (offset - rounded)
    high, low = high.movedim(0, 1).flatten(1), low.movedim(0, 1).flatten(1)
    order = low.argsort(dim=-1)
    order = order.gather(-1, high.gather(-1, order).argsort(dim=-1, stable=True))
    return high.gather(-1, order), low.gather(-1, order)


def _gauss_hermite_argmax(mean: Tensor, variance: Tensor, num_nodes: int) -> Tensor:
    """S(x, j) as printed in the paper: nodes of class j's own density."""
    xi, weights = (mean.new_tensor(values) for values in np.polynomial.hermite.hermgauss(num_nodes))
    std = _positive_std(variance)
    shift = (mean[:, None] - mean)[..., None] + (2**0.5) * std[:, None, :, None] * xi
    log_cdf = _log_cdf(_bounded(shift / std[..., None]))
    own = torch.eye(mean.shape[0], dtype=torch.bool, device=mean.device)[..., None, None]
    others = torch.where(own, torch.zeros_like(log_cdf), log_cdf).sum(1)
    return (weights * others.exp()).sum(-1) / torch.pi**0.5


def _positive_std(variance: Tensor) -> Tensor:
    return variance.clamp_min(_least_variance(variance)).sqrt()


def _least_variance(variance: Tensor) -> float:
    return torch.finfo(variance.dtype).tiny ** 0.5
