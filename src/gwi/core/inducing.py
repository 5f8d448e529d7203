"""Choosing inducing points Z: at random, by k-means, or greedily by conditional variance."""

from __future__ import annotations

from typing import Literal

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from sklearn.cluster import KMeans
from torch import Tensor

from gwi.core.measures import kernel_matrix, kernel_variance

Method = Literal["random", "kmeans", "greedy"]


def choose_inducing_points(
    x: Float[Tensor, "N D"],
    num_inducing: int,
    method: Method = "greedy",
    *,
    kernel: Kernel | None = None,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "M D"]:
    """Z from the rows of x.

    ``"random"`` takes rows without replacement, as in the paper. ``"kmeans"`` takes cluster centres. ``"greedy"`` takes, one
    after another, the row that the points before it explain least (see `greedy_variance_indices`); it needs the kernel
    and returns fewer points when fewer explain every row to rounding.

    Examples:
        >>> import torch
        >>> from gwi.core.inducing import choose_inducing_points
        >>> x = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
        >>> choose_inducing_points(x, 5, "kmeans", generator=torch.Generator().manual_seed(0)).shape
        torch.Size([5, 1])
    """
    if not 1 <= num_inducing <= x.shape[0]:
        raise ValueError(f"Choose between 1 and {x.shape[0]} inducing points from {x.shape[0]} rows; got {num_inducing}.")
    if method == "random":
        return x[torch.randperm(x.shape[0], generator=generator)[:num_inducing]].clone()
    if method == "kmeans":
        seed = int(torch.randint(2**31 - 1, (1,), generator=generator))
        distinct = torch.unique(x, dim=0)
        if len(distinct) <= num_inducing:
            return distinct
        model = KMeans(num_inducing, n_init=1, random_state=seed).fit(x.detach().cpu().double().numpy())
        return torch.as_tensor(model.cluster_centers_, dtype=x.dtype, device=x.device)
    if method == "greedy":
        if kernel is None:
            raise ValueError('Greedy inducing points depend on the kernel: pass kernel=..., or use "kmeans" or "random".')
        return x[greedy_variance_indices(kernel, x, num_inducing)].clone()
    raise ValueError(f'method must be "random", "kmeans" or "greedy"; got {method!r}.')


@torch.no_grad()
def greedy_variance_indices(
    kernel: Kernel, x: Float[Tensor, "N D"], num_inducing: int, *, enough: float = 0.0
) -> Int[Tensor, " M"]:
    """Rows in the order of largest remaining variance k(x, x) − φᵀφ: a pivoted Cholesky factorisation, O(N M²).

    Stops early, after one row at least, when what remains is nowhere above `enough`, or is rounding error, so exact
    duplicates are never taken twice.
    """
    variance = kernel_variance(kernel, x)
    if variance.ndim > 1:
        raise ValueError("Greedy inducing points need one kernel for all outputs; got a batch of kernels.")
    remaining = variance.clone()
    rows = x.new_zeros(num_inducing, x.shape[0])
    chosen: list[int] = []
    floor = max(enough, 10 * torch.finfo(x.dtype).eps * float(variance.max()))
    for m in range(num_inducing):
        pivot = int(remaining.argmax())
        # One row at least: where the noise hides all of f, Z would be none.
        if remaining[pivot] <= (floor if chosen else 0.0):
            break
        row = kernel_matrix(kernel, x[pivot : pivot + 1], x)[0] - rows[:m, pivot] @ rows[:m]
        rows[m] = row / remaining[pivot].sqrt()
        remaining = (remaining - rows[m].square()).clamp_min(0)
        remaining[pivot] = 0
        chosen.append(pivot)
    return torch.tensor(chosen, dtype=torch.int64, device=x.device)
