"""Means m_Q: sparse or full kernel expansions [eq:svgp_mean], networks, fixed predictors, and combinations of them.

A mean is any callable from (N, D) rows to (J, N) values, J outputs; those below are modules, so a measure that holds one knows
its parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor, nn

from gwi.core.column_means import FirstColumns as FirstColumns
from gwi.core.column_means import LeadingColumns as LeadingColumns
from gwi.core.column_means import SomeColumns as SomeColumns
from gwi.core.handover import Handover
from gwi.core.kernels import whitened_features
from gwi.core.linalg import cholesky, cholesky_solve, solve_lower_transposed
from gwi.core.measures import kernel_matrix
from gwi.core.module_calls import as_input, outputs_of
from gwi.core.row_sums import RowSums
from gwi.core.scaling import Scales

MeanFunction = Callable[[Tensor], Tensor]


class KernelMean(nn.Module):
    """m_Q(x) = m_P(x) + Σ_m β_m k(x, z_m)  [eq:svgp_mean]; with Z = X it has all N basis functions.

    Held in whitened form, v = Lᵀβ with L Lᵀ = k(Z, Z), so m_Q = m_P + φᵀv: v is well scaled where β is not.

    Args:
        prior_kernel: k.
        inducing_points: Z, the centres of the basis functions.
        whitened_coefficients: v, one row an output.
        prior_mean: m_P; zero when None.
        jitter: relative jitter of the first Cholesky attempt on k(Z, Z).

    Examples:
        >>> import torch
        >>> from gwi.core.kernels import default_kernel
        >>> from gwi.core.means import KernelMean
        >>> z = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> mean = KernelMean(default_kernel(1), z, torch.ones(1, 2, dtype=torch.float64))
        >>> mean(z).shape
        torch.Size([1, 2])
    """

    def __init__(
        self,
        prior_kernel: Kernel,
        inducing_points: Float[Tensor, "M D"],
        whitened_coefficients: Float[Tensor, "J M"],
        *,
        prior_mean: MeanFunction | None = None,
        jitter: float = 0.0,
    ):
        super().__init__()
        self.prior_kernel = prior_kernel
        # Shared with a SparsePosteriorKernel when its parameter is passed, so that both learn one Z.
        shared = isinstance(inducing_points, nn.Parameter)
        in_order = torch.contiguous_format
        own = inducing_points.detach().clone(memory_format=in_order)
        self.inducing_points = inducing_points if shared else nn.Parameter(own, requires_grad=False)
        self.whitened_coefficients = nn.Parameter(whitened_coefficients.detach().clone(memory_format=in_order))
        self.prior_mean = prior_mean
        self.jitter = jitter

    @property
    def coefficients(self) -> Float[Tensor, "J M"]:
        """β = L⁻ᵀ v, the paper's parameter."""
        return solve_lower_transposed(self.inducing_factor(), self.whitened_coefficients[..., None])[..., 0]

    def inducing_factor(self) -> Float[Tensor, "*J M M"]:
        """L with L Lᵀ = k(Z, Z)."""
        return cholesky(kernel_matrix(self.prior_kernel, self.inducing_points), jitter=self.jitter, name="k(Z, Z)").factor

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "J N"]:
        """m_Q at the rows of x."""
        phi = whitened_features(self.prior_kernel, self.inducing_points, self.inducing_factor(), x)
        values = (self.whitened_coefficients[..., None, :] @ phi)[..., 0, :]
        return values if self.prior_mean is None else values + self.prior_mean(x)


def titsias_coefficients(sums: RowSums) -> Float[Tensor, "*J M"]:
    """V = (I + Σ w φφᵀ)⁻¹ Σ w φ y: the mean of the sparse GP posterior of Titsias (2009), and of the exact one at Z = X."""
    eye = torch.eye(sums.gram.shape[-1], dtype=sums.gram.dtype, device=sums.gram.device)
    factor = cholesky(eye + sums.gram, name="I + ΦWΦᵀ").factor
    return cholesky_solve(factor, sums.projection[..., None])[..., 0]


def exact_coefficients(
    kernel: Kernel, x: Float[Tensor, "N D"], y: Float[Tensor, "J N"], noise_variance: Float[Tensor, "*J N"]
) -> Float[Tensor, "J N"]:
    """β = (k(X, X) + σ² I)⁻¹ y: the mean of the exact GP posterior, not whitened."""
    factor = cholesky(kernel_matrix(kernel, x) + torch.diag_embed(noise_variance), name="k(X, X) + σ²").factor
    return cholesky_solve(factor, y.mT).mT if factor.ndim == 2 else cholesky_solve(factor, y[..., None])[..., 0]


def wasserstein_coefficients(
    sums: RowSums, unweighted: RowSums, divergence_weight: float, *, jitter: float = 1e-12
) -> Float[Tensor, "*J M"]:
    """The v that minimises Σ (y − m)²/2σ² + β ‖m − m_P‖²: the mean part of the generalized loss with W₂² [eq:GL_exact].

    W₂² penalises the size of m, not its roughness: unlike `titsias_coefficients` this is least squares, shrunk, and it
    interpolates the data when M reaches N. That is why GWI-net stops early and why M matters to GWI: SVGP.

    Args:
        sums: over all rows with w = 1/σ²(x).
        unweighted: the same with w = 1.
        divergence_weight: β.
        jitter: relative, for the singular case of fewer rows than basis functions.
    """
    system = sums.gram + (2 * divergence_weight / sums.num_rows) * unweighted.gram
    factor = cholesky(system, jitter=jitter, name="ΦAΦᵀ").factor
    return cholesky_solve(factor, sums.projection[..., None])[..., 0]


class ModuleMean(nn.Module):
    """m_Q(x) = m_P(x) + g(x) for any network g with (N, J) outputs, or (N,) for one output, also in a dict, tuple or object.

    Rows are converted to the network's own dtype and values back, so a float32 network stands beside a float64 kernel.

    Examples:
        >>> import torch
        >>> from gwi.core.means import ModuleMean
        >>> mean = ModuleMean(torch.nn.Linear(2, 3))
        >>> mean(torch.zeros(5, 2, dtype=torch.float64)).shape
        torch.Size([3, 5])
    """

    def __init__(self, module: nn.Module, *, prior_mean: MeanFunction | None = None):
        super().__init__()
        self.module = module
        self.prior_mean = prior_mean

    def forward(self, x: Float[Tensor, "N ..."]) -> Float[Tensor, "J N"]:
        """The network's outputs, one row an output."""
        values = _outputs_first(outputs_of(self.module(as_input(self.module, x)), x.shape[0]), x)
        return values if self.prior_mean is None else values + self.prior_mean(x)


class FixedMean(nn.Module):
    """A predictor that is only asked, never trained: anything with `predict`, or a callable, from N rows to N or (N, J) values.

    The way to put uncertainty on gradient boosting, a formula, or a service. No gradient passes through it.

    Examples:
        >>> import torch
        >>> from gwi.core.means import FixedMean
        >>> mean = FixedMean(lambda rows: rows.sum(1))
        >>> mean(torch.ones(3, 2, dtype=torch.float64)).tolist()
        [[2.0, 2.0, 2.0]]
    """

    def __init__(self, predictor: Any):
        super().__init__()
        self.predictor = predictor

    def forward(self, x: Float[Tensor, "N ..."]) -> Float[Tensor, "J N"]:
        """The predictions as constants."""
        predict = self.predictor.predict if hasattr(self.predictor, "predict") else self.predictor
        values = predict(x.detach().cpu().numpy())
        # Through NumPy: torch would read a list as float32 and refuse a reversed view.
        return _outputs_first(values if isinstance(values, Tensor) else torch.from_numpy(np.array(values, order="C")), x).detach()


def _outputs_first(values: Tensor, x: Tensor) -> Float[Tensor, "J N"]:
    if values.ndim not in (1, 2) or values.shape[0] != x.shape[0]:
        raise ValueError(
            f"A predictor must return one value, or one row of values, for each of the {x.shape[0]} input rows; "
            f"got shape {tuple(values.shape)}."
        )
    rows = values[:, None] if values.ndim == 1 else values
    return rows.mT.to(dtype=x.dtype, device=x.device)


class SumMean(nn.Module):
    """Σ_i m_i: for example a kernel mean and a network that learns its residual.

    Examples:
        >>> import torch
        >>> from gwi.core.means import FixedMean, SumMean
        >>> mean = SumMean([FixedMean(lambda rows: rows.sum(1)), FixedMean(lambda rows: rows[:, 0])])
        >>> mean(torch.ones(3, 2, dtype=torch.float64)).tolist()
        [[3.0, 3.0, 3.0]]
    """

    def __init__(self, means: Sequence[nn.Module]):
        super().__init__()
        self.means = nn.ModuleList(means)

    def forward(self, x: Float[Tensor, "N ..."]) -> Float[Tensor, "J N"]:
        """The sum at the rows of x."""
        return torch.stack([mean(x) for mean in self.means]).sum(0)


class JoinedMean(nn.Module):
    """One mean for each target, side by side: for predictors that know one target only."""

    def __init__(self, means: Sequence[nn.Module]):
        super().__init__()
        self.means = nn.ModuleList(means)

    def forward(self, x: Float[Tensor, "N ..."]) -> Float[Tensor, "J N"]:
        """All targets at the rows of x."""
        return torch.cat([mean(x) for mean in self.means])


class ConvexMean(nn.Module):
    """Σ_i w_i m_i with w ≥ 0 and Σ w = 1: a stacked mean, with one set of weights for all outputs or one each.

    Args:
        means: the m_i.
        weights: w.
        handover: how weights change with the row; not at all when None.

    Examples:
        >>> import torch
        >>> from gwi.core.means import ConvexMean, FixedMean
        >>> means = [FixedMean(lambda rows: rows[:, 0]), FixedMean(lambda rows: 3 * rows[:, 0])]
        >>> mean = ConvexMean(means, torch.tensor([0.5, 0.5], dtype=torch.float64))
        >>> mean(torch.ones(3, 1, dtype=torch.float64)).tolist()
        [[2.0, 2.0, 2.0]]
    """

    weights: Tensor

    def __init__(self, means: Sequence[nn.Module], weights: Float[Tensor, "*J K"], handover: Handover | None = None):
        super().__init__()
        # Asked the other way round, NaN would pass.
        convex = (weights >= 0).all() and ((weights.sum(-1) - 1).abs() <= 1e-6).all()
        if len(means) != weights.shape[-1] or not convex:
            shown = [round(w, 6) for w in weights.flatten().tolist()]
            raise ValueError(
                f"A convex combination of {len(means)} means needs as many weights, none negative, that sum to 1; got {shown}."
            )
        self.means = nn.ModuleList(means)
        self.register_buffer("weights", weights.detach().clone())
        self.handover = handover

    def forward(self, x: Float[Tensor, "N ..."]) -> Float[Tensor, "J N"]:
        """The weighted sum at the rows of x."""
        values = torch.stack([mean(x) for mean in self.means])
        weights = self.weights.to(x.dtype).expand(values.shape[1], -1)
        at_rows = weights.mT[..., None] if self.handover is None else self.handover.at(weights, values, x)
        return (at_rows * values).sum(0)


class ConstantMean(nn.Module):
    """One value an output, whatever the row."""

    values: Tensor

    def __init__(self, values: Float[Tensor, " J"]):
        super().__init__()
        self.register_buffer("values", values.detach().clone())

    def forward(self, x: Float[Tensor, "N ..."]) -> Float[Tensor, "J N"]:
        """The values at each row."""
        return self.values.to(x)[:, None].expand(-1, x.shape[0])


class AffineMean(nn.Module):
    """a + b m: a mean on another scale than the one it was learned on."""

    shift: Tensor
    factor: Tensor

    def __init__(self, mean: nn.Module, shift: Float[Tensor, " J"], factor: Float[Tensor, " J"]):
        super().__init__()
        self.mean = mean
        for name, value in (("shift", shift), ("factor", factor)):
            self.register_buffer(name, value.detach().clone())

    def forward(self, x: Float[Tensor, "N ..."]) -> Float[Tensor, "J N"]:
        """Its values."""
        return self.shift.to(x)[:, None] + self.factor.to(x)[:, None] * self.mean(x)


class LinkMean(nn.Module):
    """g(m): a mean of y as a mean of f, where these are on other scales.

    Args:
        mean: m, of y.
        link: g, ``"log"`` or ``"logit"``.
        low: the lower bound of y; means nearer to a bound than `margin` are taken to be so far from it.
        high: the upper bound of y; none for the logarithm.
        margin: in units of y.
        shift: of y before g.
        factor: of y before g: g is taken of shift + factor m.
    """

    def __init__(
        self,
        mean: nn.Module,
        link: Literal["log", "logit"],
        *,
        low: float = 0.0,
        high: float = math.inf,
        margin: float = 1e-12,
        shift: float = 0.0,
        factor: float = 1.0,
    ):
        super().__init__()
        self.mean = mean
        self.link, self.low, self.high, self.margin = link, low, high, margin
        self.shift, self.factor = shift, factor

    def of(self, values: Tensor) -> Tensor:
        """g of values of m."""
        return linked(self.shift + self.factor * values, self.link, self.low, self.high, self.margin)

    def forward(self, x: Float[Tensor, "N ..."]) -> Float[Tensor, "J N"]:
        """Its values."""
        return self.of(self.mean(x))


def linked(values: Tensor, link: Literal["log", "logit"], low: float, high: float, margin: float) -> Tensor:
    """log(y − low), or the logit of the place of y between two bounds, a margin away from each."""
    above = (values - low).clamp_min(margin)
    return above.log() if link == "log" else above.log() - (high - values).clamp_min(margin).log()


def log_of_standardised(mean: nn.Module, scales: Scales) -> nn.Module:
    """The standardised logarithm of a mean that is standardised by the centre and scale of logarithms, but is none.

    That is what a row carries of a predictor that knows y, whatever the likelihood.
    """
    centre, scale = torch.from_numpy(scales.y_centre), torch.from_numpy(scales.y_scale)
    if len(centre) > 1:
        raise ValueError("A mean of your own can predict the logarithm of one target only; fit one model for each target.")
    least = math.exp(float(centre - 8 * scale))
    logs = LinkMean(mean, "log", margin=least, shift=float(centre), factor=float(scale))
    return AffineMean(logs, -centre / scale, 1 / scale)


def affine(mean: nn.Module, shift: Float[Tensor, " J"], factor: Float[Tensor, " J"]) -> nn.Module:
    """a + b m, of kernel means by their coefficients: a posterior computes their kernels once."""
    if isinstance(mean, SumMean):
        first, *others = mean.means
        return SumMean([affine(first, shift, factor), *(affine(part, torch.zeros_like(shift), factor) for part in others)])
    if isinstance(mean, ConstantMean):
        return ConstantMean(shift + factor * mean.values)
    if isinstance(mean, AffineMean):
        return AffineMean(mean.mean, shift + factor * mean.shift, factor * mean.factor)
    if isinstance(mean, KernelMean) and mean.prior_mean is None:
        v = factor[:, None] * mean.whitened_coefficients
        scaled = KernelMean(mean.prior_kernel, mean.inducing_points, v, jitter=mean.jitter)
        return SumMean([scaled, ConstantMean(shift)]) if bool((shift != 0).any()) else scaled
    return AffineMean(mean, shift, factor)


class OriginalRowsMean(nn.Module):
    """A mean of rows in the user's own units, seen from standardised rows; its values are standardised already.

    Args:
        mean: of rows in the user's own units.
        scales: between standardised rows and these.
        shape: that a row has for the mean, such as an image's; flat when None.
    """

    def __init__(self, mean: nn.Module, scales: Scales, shape: tuple[int, ...] | None = None):
        super().__init__()
        self.mean = mean
        self.scales = scales
        self.shape = shape

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "J N"]:
        """Its values."""
        rows = x * x.new_tensor(self.scales.x_scale) + x.new_tensor(self.scales.x_centre)
        return self.mean(rows if self.shape is None else rows.reshape(-1, *self.shape))


class RescaledMean(nn.Module):
    """A predictor in the user's own units, seen from standardised rows and targets; arguments as in `OriginalRowsMean`."""

    def __init__(self, mean: nn.Module, scales: Scales, shape: tuple[int, ...] | None = None):
        super().__init__()
        self.mean = mean
        self.scales = scales
        self.shape = shape

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "J N"]:
        """Its values, standardised."""
        s = self.scales
        values = OriginalRowsMean(self.mean, s, self.shape)(x)
        return (values - x.new_tensor(s.y_centre)[:, None]) / x.new_tensor(s.y_scale)[:, None]
