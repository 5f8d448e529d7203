"""W₂² beyond the data: context rows, and the measure ρ on data and context at which S is as wide as Titsias' S.

On the data alone W₂² knows nothing of distance. With rows beyond them in ρ, which the likelihood does not see, it asks Q to stay
near P there. How much each point counts is the model: `docs/method-context.md`, section 10, derives the weights at the data, and
two numbers, one for all data and one for all context, make the standardised errors of f one on average in both places.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor

from gwi.core.bounded_covariance import bounded_wasserstein_covariance
from gwi.core.covariance import covariance_problem
from gwi.core.inducing import greedy_variance_indices

ContextKind = Literal["box", "mixtures"]

# Z explain every row of the data to this many times σ²/N, what N rows leave of the variance along one direction. With more
# of them S has directions of which neither data nor context say anything, and the solver takes long; with fewer, what Z leave
# unexplained is no longer small beside what the data leave.
UNEXPLAINED_DIRECTIONS = 10.0
# All context rows together start with so much of the weight of all data rows, near where they end.
FIRST_SHARE = 0.1
# The logarithm of it stays between these: where neither data nor context can tell, r is the same at any weight.
FARTHEST_SHARE = 8.0
# The two numbers are found when standardised errors of f are one to this share, or after so many looks.
RULE_TOLERANCE, MOST_LOOKS = 0.03, 15
# The largest change of a weight at a time and the least that is worth another look, as logarithms; the least power of a weight
# with which r is taken to grow.
LARGEST_STEP, LEAST_STEP, LEAST_POWER = 1.5, 0.02, 0.2
# Rows of which the data say nothing would have an infinite weight.
LEAST_SHRINKAGE = 1e-6


def context_rows(kind: ContextKind, x: Float[Tensor, "N D"], num_rows: int, generator: torch.Generator) -> Float[Tensor, "C D"]:
    """Rows where there may be no data: uniform in the ``"box"`` that holds all rows, or ``"mixtures"`` of two of them each."""
    shares = torch.rand(num_rows, x.shape[1] if kind == "box" else 1, dtype=x.dtype, generator=generator).to(x.device)
    if kind == "box":
        low, high = x.amin(0), x.amax(0)
        return low + shares * (high - low)
    first, second = (torch.randint(len(x), (num_rows,), generator=generator).to(x.device) for _ in range(2))
    return shares * x[first] + (1 - shares) * x[second]


def noise_sized_points(
    kernel: Kernel, x: Float[Tensor, "N D"], noise_variance: float, num_data: int, most: int
) -> Float[Tensor, "M D"]:
    """Rows that explain all others to 10 σ²/N, at most so many: Z for W₂² with context.

    Between distant data what Z leave unexplained returns to the prior's variance by itself, so Z need not reach the context.
    """
    enough = UNEXPLAINED_DIRECTIONS * noise_variance / num_data
    return x[greedy_variance_indices(kernel, x, min(most, len(x)), enough=enough)]


@dataclass(frozen=True)
class ContextSolution:
    """S under a measure that reaches beyond the data.

    Attributes:
        whitened_covariance: S, with 0 ⪯ S ⪯ I.
        duality_gap: an upper bound on J(S) − min J over such S, relative to the sum of J's positive terms.
        divergence_weight: β, of a ρ of mass one.
        context_share: the mass of ρ at context rows.
        errors: mean of r_T/r at the data and at the context: mean squares of standardised errors of f.
    """

    whitened_covariance: Float[Tensor, "M M"]
    duality_gap: float
    divergence_weight: float
    context_share: float
    errors: tuple[float, float]


@torch.no_grad()
def context_covariance(
    prior_kernel: Kernel,
    inducing_points: Float[Tensor, "M D"],
    rows: Float[Tensor, "n D"],
    context: Float[Tensor, "C D"],
    titsias: Float[Tensor, "M M"],
    *,
    noise_variance: Float[Tensor, " n"] | float,
    num_data: int,
    tolerance: float = 1e-4,
    max_iterations: int = 100,
) -> ContextSolution:
    """W₂'s S with data and context in ρ, weighted so that its variances are those of Titsias' S as nearly as two numbers can.

    Args:
        prior_kernel: k.
        inducing_points: Z, rows of the data that explain all of them well (`noise_sized_points`).
        rows: data, all of them or a sample.
        context: rows beyond them.
        titsias: S_T of all data.
        noise_variance: σ², or σ²(x) at the rows.
        num_data: N.
        tolerance: of the duality gap.
        max_iterations: of the solver for each pair of numbers.
    """
    points, num_rows = torch.cat([rows, context]), len(rows)
    equal = covariance_problem(
        prior_kernel, inducing_points, points, noise_variance=1.0, num_data=num_data, divergence_weight=1.0
    )
    phi, residual = equal.features, equal.residual_factor.square().sum(-1)
    noise = torch.as_tensor(noise_variance, dtype=rows.dtype, device=rows.device).expand(num_rows)
    precision = num_data / (2 * noise * num_rows)
    explained = phi.square().sum(0), (phi * (titsias @ phi)).sum(0)
    reference = residual + explained[1]
    # β times the weight at which W₂² by itself shrinks the prior's variance at a row to Titsias': method (14).
    shrinkage = (explained[0] / explained[1].clamp_min(torch.finfo(phi.dtype).tiny)).sqrt()[:num_rows]
    at_data = precision / (shrinkage - 1).clamp_min(LEAST_SHRINKAGE)
    at_context = at_data.sum().expand(len(context)) / len(context)
    likelihood = torch.cat([precision, torch.zeros_like(at_context)]) * len(points)
    logs = torch.tensor([1.0, FIRST_SHARE], dtype=phi.dtype).log()
    power, step, before = 1.0, torch.zeros_like(logs), torch.zeros_like(logs[0])
    for look in range(MOST_LOOKS):
        weights = torch.cat([logs[0].exp() * at_data, logs[1].exp() * at_context])
        beta = float(weights.sum())
        problem = equal.weighted(weights / weights.mean(), likelihood, beta)
        solution = bounded_wasserstein_covariance(problem, tolerance=tolerance, max_iterations=max_iterations)
        s = solution.whitened_covariance
        ratio = reference / (residual + (phi * (s @ phi)).sum(0))
        errors = torch.stack([ratio[:num_rows].mean(), ratio[num_rows:].mean()]).cpu()
        if float(errors.log().abs().max()) <= RULE_TOLERANCE or look == MOST_LOOKS - 1:
            break
        # At the data r grows with the square of the weight, in the context with a power that is looked for.
        if look and abs(float(step[1])) > 1e-3:
            power = min(max(float((before - errors.log()[1]) / step[1]), LEAST_POWER), 2.0)
        before = errors.log()[1]
        step = (errors.log() / errors.new_tensor([2.0, power])).clamp(-LARGEST_STEP, LARGEST_STEP)
        step[1] = min(max(float(logs[1] + step[1]), -FARTHEST_SHARE), FARTHEST_SHARE) - logs[1]
        if float(step.abs().max()) < LEAST_STEP:
            break
        logs += step
    share = float(weights[num_rows:].sum()) / beta
    return ContextSolution(s, solution.duality_gap, beta, share, (float(errors[0]), float(errors[1])))
