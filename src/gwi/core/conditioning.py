"""A Gaussian measure given observations: Q = N(m, q) given y = F(X) + ε is N(m + q_X A⁻¹ (y − m), q − q_X A⁻¹ q_Xᵀ).

A = q(X, X) + diag σ². All rows ever observed stand in one A over the first Q, so that observing twice is observing once.
"""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor, nn

from gwi.core.linalg import cholesky, positive_semidefinite_factor, solve_lower
from gwi.core.measures import GaussianMeasure, kernel_matrix, kernel_variance
from gwi.core.posterior import AtRows, CachedPosterior


class Observations(nn.Module):
    """Rows that were observed, as predictions need them.

    Args:
        points: X.
        factor: L of each output with L Lᵀ = q(X, X) + diag σ².
        values: L⁻¹ (y − m(X)) of each output.
    """

    points: Tensor
    factor: Tensor
    values: Tensor

    def __init__(self, points: Float[Tensor, "n D"], factor: Float[Tensor, "J n n"], values: Float[Tensor, "J n"]):
        super().__init__()
        for name, value in (("points", points), ("factor", factor), ("values", values)):
            self.register_buffer(name, value.detach().contiguous())

    @classmethod
    def none(cls, num_outputs: int, like: Float[Tensor, "M D"]) -> Observations:
        """No rows yet."""
        return cls(like[:0], like.new_zeros(num_outputs, 0, 0), like.new_zeros(num_outputs, 0))

    def halves(self, cross: Float[Tensor, "J n N"]) -> Float[Tensor, "J n N"]:
        """L⁻¹ q(X, x): the mean moves by its product with `values`, the variance falls by its square."""
        return solve_lower(self.factor, cross)

    def shift(self, halves: Float[Tensor, "J n N"]) -> Float[Tensor, "J N"]:
        """By how much the mean moves."""
        return (self.values[:, None, :] @ halves)[:, 0]

    def extended(
        self,
        points: Float[Tensor, "m D"],
        cross: Float[Tensor, "J n m"],
        own: Float[Tensor, "J m m"],
        errors: Float[Tensor, "J m"],
        noise_variance: Float[Tensor, "J m"],
    ) -> Observations:
        """With more rows: two more blocks of L, and nothing else is computed again.

        Args:
            points: the new rows.
            cross: q(X, new rows).
            own: q(new rows, new rows).
            errors: y − m at the new rows, with the first m.
            noise_variance: σ² there.
        """
        halves, std = self.halves(cross), noise_variance.sqrt()
        # In units of the noise, so that rows of very different noise stand side by side without loss.
        inner = (own - halves.mT @ halves) / (std[:, :, None] * std[:, None, :])
        eye = torch.eye(len(points), dtype=own.dtype, device=own.device)
        lower = std[:, :, None] * cholesky(eye + (inner + inner.mT) / 2, name="I + q(X, X)/σ²").factor
        values = solve_lower(lower, (errors - self.shift(halves))[..., None])[..., 0]
        above = torch.cat([self.factor, torch.zeros_like(cross)], dim=-1)
        factor = torch.cat([above, torch.cat([halves.mT, lower], dim=-1)], dim=-2)
        return Observations(torch.cat([self.points, points]), factor, torch.cat([self.values, values], dim=-1))


class ConditionedMean(nn.Module):
    """m(x) + q(x, X) A⁻¹ (y − m(X)).

    Args:
        mean: m.
        kernel: q.
        observations: of y at X.
    """

    def __init__(self, mean: nn.Module | None, kernel: Kernel, observations: Observations):
        super().__init__()
        self.mean, self.kernel, self.observations = mean, kernel, observations

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "J N"]:
        """The mean at the rows of x."""
        seen = self.observations
        shift = seen.shift(seen.halves(kernel_matrix(self.kernel, seen.points, x)))
        return shift if self.mean is None else self.mean(x) + shift


class ConditionedKernel(Kernel):
    """q(x, x') − q(x, X) A⁻¹ q(X, x'); arguments as in `ConditionedMean`."""

    has_lengthscale = False

    def __init__(self, kernel: Kernel, observations: Observations):
        super().__init__()
        self.kernel, self.observations = kernel, observations
        self.prior_kernel, self.inducing_points = kernel.prior_kernel, kernel.inducing_points

    @property
    def batch_shape(self) -> torch.Size:
        """One entry an output."""
        return self.kernel.batch_shape

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **_: object) -> Tensor:
        """The kernel between rows, or its diagonal."""
        first = self._halves(x1)
        if diag:
            return (kernel_variance(self.kernel, x1) - first.square().sum(-2)).clamp_min(0)
        second = first if x1 is x2 else self._halves(x2)
        return kernel_matrix(self.kernel, x1, x2) - first.mT @ second

    def factor(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "J N N"]:
        """By eigenvalues: where much is known the difference is all rounding, and Cholesky would need jitter."""
        slack = 1e-6 * float(kernel_variance(self.kernel, x).max())
        return positive_semidefinite_factor(kernel_matrix(self, x), slack=slack, name="q(X, X) given observations")

    def _halves(self, x: Tensor) -> Tensor:
        return self.observations.halves(kernel_matrix(self.kernel, self.observations.points, x))


class ConditionedPosterior(nn.Module):
    """A `CachedPosterior` given observations: it answers what that one answers.

    Args:
        first: Q before any observation.
        observations: of y at X.
        seen: what `first` has of X.
    """

    def __init__(self, first: CachedPosterior, observations: Observations, seen: AtRows):
        super().__init__()
        self.first, self.observations, self.seen = first, observations, seen
        mean, kernel = first.posterior.mean, first.posterior.kernel
        assert isinstance(mean, nn.Module | None)
        self.posterior = GaussianMeasure(
            ConditionedMean(mean, kernel, observations), ConditionedKernel(kernel, observations)
        ).requires_grad_(False)

    @property
    def scale(self) -> Float[Tensor, " J"]:
        """a, what r is multiplied by."""
        return self.first.scale

    @property
    def disagrees(self) -> bool:
        """Whether means that disagree are part of the variance."""
        return self.first.disagrees

    @property
    def basis(self) -> nn.Module:
        """That of `first`."""
        return self.first.basis

    def residual(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "*J N"]:
        """The prior variance that Z leaves unexplained."""
        return self.first.residual(x)

    def _halves(self, x: Float[Tensor, "N D"]) -> tuple[Float[Tensor, "J n N"], Float[Tensor, "J n N"]]:
        """L⁻¹ q(X, x), and L⁻¹ r(X, x)."""
        r, spread = self.first.cross(self.seen, self.first.at(x))
        whole, scale = self.observations.halves(self.scale[:, None, None] * r + spread), self.scale[:, None, None]
        return whole, self.observations.halves(r) if spread.any() or (scale != 1).any() else whole

    def mean_at(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "J N"]:
        """The mean at the rows of x."""
        return self.first.mean_at(x) + self.observations.shift(self._halves(x)[0])

    def parts(self, x: Float[Tensor, "N D"]) -> tuple[Float[Tensor, "J N"], Float[Tensor, "J N"], Float[Tensor, "J N"]]:
        """Mean, what is left of r, and the rest: the variance of F is a r plus it.

        Given observations the part of r and that of the means depend on each other. What is left of r is its own variance, but
        never more than that of F.
        """
        mean, variance, disagreement = self.first.parts(x)
        whole, of_r = self._halves(x)
        scale = self.scale[:, None]
        total = (scale * variance + disagreement - whole.square().sum(-2)).clamp_min(0)
        left = (variance - scale * of_r.square().sum(-2)).clamp_min(0)
        left = torch.minimum(left, torch.where(scale > 0, total / scale.clamp_min(torch.finfo(total.dtype).tiny), left))
        return mean + self.observations.shift(whole), left, (total - scale * left).clamp_min(0)

    def marginals(self, x: Float[Tensor, "N D"]) -> tuple[Float[Tensor, "J N"], Float[Tensor, "J N"]]:
        """Mean and variance of F(x) at each row."""
        mean, variance, rest = self.parts(x)
        return mean, self.scale[:, None] * variance + rest

    def remaining(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "J N"]:
        """What is left of r at each row."""
        return self.parts(x)[1]

    def variance(self, x: Float[Tensor, "N D"], nearly: bool = False) -> Float[Tensor, "J N"]:
        """That of F; with all its digits, whatever is enough."""
        return self.marginals(x)[1]

    def joint(self, x: Float[Tensor, "*B Q D"]) -> tuple[Float[Tensor, "*B J Q"], Float[Tensor, "*B J Q Q"]]:
        """Mean and covariance of F at each batch of rows, differentiable in x where the mean is."""
        mean, covariance = self.first.joint(x)
        whole = self._halves(x.reshape(-1, x.shape[-1]))[0]
        whole = whole.reshape(*whole.shape[:2], *x.shape[:-1]).movedim((0, 1), (-3, -2))
        shift = (self.observations.values[:, None, :] @ whole)[..., 0, :]
        return mean + shift, covariance - whole.mT @ whole


@torch.no_grad()
def conditioned(
    posterior: CachedPosterior | ConditionedPosterior,
    x: Float[Tensor, "m D"],
    y: Float[Tensor, "J m"],
    noise_variance: Float[Tensor, "J m"],
) -> ConditionedPosterior:
    """Q given that y = F(x) + ε with independent ε ~ N(0, σ²), as well as all that was observed before."""
    before = posterior if isinstance(posterior, ConditionedPosterior) else None
    first = posterior.first if isinstance(posterior, ConditionedPosterior) else posterior
    new = first.at(x)

    def q(rows: AtRows) -> Float[Tensor, "J n m"]:
        r, spread = first.cross(rows, new)
        return first.scale[:, None, None] * r + spread

    observations = Observations.none(len(first.scale), x) if before is None else before.observations
    cross = y.new_zeros(len(first.scale), 0, len(x)) if before is None else q(before.seen)
    together = observations.extended(x, cross, q(new), y - new.mean, noise_variance)
    if before is None:
        return ConditionedPosterior(first, together, new)
    rows = torch.cat([before.seen.x, x])
    rest = (torch.cat(pair, dim=-1) for pair in zip(before.seen[1:], new[1:], strict=True))
    return ConditionedPosterior(first, together, AtRows(rows, *rest))


@torch.no_grad()
def prepared(posterior: GaussianMeasure) -> ConditionedPosterior:
    """Q with a `ConditionedMean` and a `ConditionedKernel`, ready for many predictions."""
    kernel, mean = posterior.kernel, posterior.mean
    assert isinstance(kernel, ConditionedKernel)
    assert isinstance(mean, ConditionedMean)
    first = CachedPosterior(GaussianMeasure(mean.mean, kernel.kernel))
    return ConditionedPosterior(first, kernel.observations, first.at(kernel.observations.points))
