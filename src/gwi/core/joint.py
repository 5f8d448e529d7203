"""Joint training of a network mean and one covariance a class by the generalized loss [eq:Generalized_loss]."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from torch import Tensor, nn

from gwi.core.kernels import residual_part
from gwi.core.likelihoods.robust_max import expected_log_likelihood
from gwi.core.linalg import bures_fidelity, cholesky, safe_sqrt, solve_lower
from gwi.core.means import ModuleMean
from gwi.core.measures import kernel_matrix, kernel_variance

# Points of a batch on which W₂² is taken: N_S of the paper.
NUM_COMPARISON_POINTS = 100
# Where a learning rate that rises begins, as a share of its peak.
LOWEST_RATE = 0.1


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
        return solve_lower(self.inducing_factor, kernel_matrix(self.kernel, self.inducing_points, x))

    def variance(self, x: Float[Tensor, "N D"], phi: Float[Tensor, "M N"]) -> Float[Tensor, "J N"]:
        """r_j(x, x)."""
        residual = residual_part(kernel_variance(self.kernel, x), phi.square().sum(0))
        return residual + (self.whitened_factor.mT @ phi).square().sum(-2)


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
    f, phi_s = posterior.whitened_factor, posterior.features(comparison)
    k_bs = kernel_matrix(posterior.kernel, x, comparison)
    projected = phi @ k_bs
    product = k_bs.mT @ k_bs - phi_s.mT @ projected + (f.mT @ phi_s).mT @ (f.mT @ projected)
    eigenvalues = torch.linalg.eigvals(product).real
    floor = torch.finfo(eigenvalues.dtype).eps * eigenvalues.detach().abs().amax(-1, keepdim=True)
    cross = safe_sqrt(torch.where(eigenvalues > floor, eigenvalues, torch.zeros_like(eigenvalues))).sum(-1)
    spread = kernel_variance(posterior.kernel, x).mean() + variance.mean(1)
    return (spread - 2 * cross / k_bs.numel() ** 0.5).sum()


def one_cycle(share: float, rise: float) -> float:
    """The learning rate as a share of its peak after a share of the steps: up in a line until `rise`, then down in a cosine."""
    if share < rise:
        return LOWEST_RATE + (1 - LOWEST_RATE) * share / rise
    return (1 + math.cos(math.pi * min(1.0, (share - rise) / (1 - rise)))) / 2


def train_jointly(
    posterior: JointPosterior,
    likelihood: nn.Module,
    batches: Callable[[], Iterator[tuple[Tensor, Tensor]]],
    flatten: Callable[[Tensor], Tensor],
    *,
    num_data: int,
    num_batches: int,
    num_epochs: int,
    divergence_weight: float,
    learning_rate: float,
    weight_decay: float = 0.0,
    rise: float = 0.0,
    comparison: Callable[[], Tensor] | None = None,
    validation_loss: Callable[[], float] | None = None,
    on_epoch: Callable[[int, float], None] | None = None,
) -> tuple[float, ...]:
    """Adam over mean and covariances; the mean loss of each epoch.

    The learning rate rises in a line for the share `rise` of the steps, and falls in half a cosine. Weights of the mean, but not
    its biases and scales, shrink in each step by the share `weight_decay` of the learning rate (Loshchilov and Hutter, 2019).
    The state of the epoch with the lowest validation loss is kept, without one that of the last.

    Raises:
        FloatingPointError: when the loss or a parameter becomes NaN or infinite.
    """
    parameters = [*posterior.mean.parameters(), posterior.whitened_factor]
    weights = [p for p in posterior.mean.parameters() if p.ndim > 1]
    others = [*(p for p in posterior.mean.parameters() if p.ndim < 2), posterior.whitened_factor]
    groups = [{"params": weights, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW([group for group in groups if group["params"]], lr=learning_rate)
    num_steps = max(1, num_epochs * num_batches)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: one_cycle(step / num_steps, rise))
    losses: list[float] = []
    best, kept = math.inf, None
    for epoch in range(num_epochs):
        posterior.mean.train()
        total = count = 0.0
        for rows, labels in batches():
            if len(rows) < 2:
                continue  # A single row has no batch statistics.
            optimiser.zero_grad(set_to_none=True)
            loss = classification_loss(
                posterior,
                likelihood,
                rows,
                flatten(rows),
                labels,
                num_data=num_data,
                divergence_weight=divergence_weight,
                comparison=None if comparison is None else comparison(),
            )
            if not torch.isfinite(loss):
                raise FloatingPointError(f"The loss became {loss.item()} in epoch {epoch}; lower the learning rate.")
            loss.backward()
            optimiser.step()
            schedule.step()
            total, count = total + loss.item() * len(rows), count + len(rows)
        if not all(p.isfinite().all() for p in parameters):
            raise FloatingPointError(f"A parameter became NaN or infinite in epoch {epoch}; lower the learning rate.")
        losses.append(total / max(count, 1.0))
        posterior.mean.eval()
        if on_epoch is not None:
            on_epoch(epoch, losses[-1])
        if validation_loss is not None:
            value = validation_loss()
            if value < best:
                best = value
                kept = copy.deepcopy(posterior.mean.state_dict()), posterior.whitened_factor.detach().clone()
    if kept is not None:
        posterior.mean.load_state_dict(kept[0])
        with torch.no_grad():
            posterior.whitened_factor.copy_(kept[1])
    posterior.mean.eval()
    return tuple(losses)
