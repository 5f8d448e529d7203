"""The eigenvalues behind W₂², the distance between prior and posterior."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from gwi._typing import Array
from gwi.core.measures import kernel_factor
from gwi.models.numbers import NumberModel
from gwi.plots.inputs import regression, sample
from gwi.plots.style import ALARM, DATA, legend, new_axes


def plot_spectrum(
    model: Any, X: Any, *, num_eigenvalues: int = 100, max_rows: int = 500, target: int = 0, ax: Axes | None = None
) -> Axes:
    """The largest eigenvalues of C_Q C_P on the rows, and the share of Σ √λ, the cross term of W₂², that lies beyond each.

    Fast decay is what makes W₂ cheap to estimate. Targets are standardised, so the numbers have no unit.

    Args:
        model: a fitted `GWIRegressor`.
        X: rows; they stand for the measure on the inputs.
        num_eigenvalues: how many.
        max_rows: of more rows a fixed sample is taken.
        target: number of the target, when there are several.
        ax: where to draw.

    Examples:
        >>> import numpy as np
        >>> import gwi
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=40)
        >>> model = gwi.GWIRegressor("linear", cv=2, random_state=0).fit(X[::2], y[::2])
        >>> ax = gwi.plots.plot_spectrum(model, X)
        >>> ax.get_xlabel()
        'number i of the eigenvalue'
    """
    fitted, rows = regression(model, X, target, "plot_spectrum")
    spectrum = _spectrum(fitted, fitted.scales.rows(rows[sample(len(rows), max_rows)], fitted.device), target)
    roots = np.sqrt(spectrum)
    left = 1 - roots.cumsum() / roots.sum()
    shown = min(num_eigenvalues, len(spectrum))
    number = np.arange(1, shown + 1)
    ax = new_axes(ax)
    ax.semilogy(number, spectrum[:shown], "o-", color=DATA, ms=3, lw=1, label="eigenvalue λᵢ")
    ax.semilogy(
        number, np.maximum(left[:shown], np.finfo(float).eps), color=ALARM, lw=1.5, ls="--", label="share of Σ √λ beyond i"
    )
    ax.set_ylim(bottom=max(spectrum[:shown].min(), spectrum[0] * 1e-16) / 2)
    ax.set(xlim=(0, shown + 1), xlabel="number i of the eigenvalue", ylabel="no unit (standardised target)")
    ax.set_title(f"beyond the first {shown} lie {max(left[shown - 1], 0):.2g} of Σ √λ", fontsize=10, loc="left")
    legend(ax, "inside")
    return ax


@torch.no_grad()
def _spectrum(model: NumberModel, x: Float[Tensor, "n D"], j: int) -> Float[Array, " n"]:
    """Eigenvalues of C_P^½ C_Q C_P^½ for the empirical measure of the rows, in descending order."""
    r_factor = model.posterior.factor(x)
    r_factor = r_factor[j] if r_factor.ndim == 3 else r_factor
    k_factor = kernel_factor(model.posterior.kernel.prior_kernel, x)
    return (torch.linalg.svdvals(k_factor.mT @ r_factor) / len(x)).square().cpu().numpy()
