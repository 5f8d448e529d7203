"""The softmax likelihood under Gaussian logits, integrated without sampling.

With F_l ~ N(m_l, r_l) independent and P_l(t) = E exp(−e^{F_l − t}), the Laplace transform of 1/Σ e^F and the integral
log a = ∫ (exp(−e^{−t}) − exp(−a e^{−t})) dt turn expectations over J logits into one integral over t:

    E p_j            = ∫ P_j'(t) Π_{l≠j} P_l(t) dt,
    E log Σ_l e^{F_l} = ∫ (exp(−e^{−t}) − Π_l P_l(t)) dt,
    E p_j F_j        = ∫ E[F_j e^{F_j − t} exp(−e^{F_j − t})] Π_{l≠j} P_l(t) dt.

The first is the chance that F_j plus Gumbel noise is the largest; Σ_j is the integral of (Π P)', so it is one. All integrands are
analytic in a strip of half-width π/2 around the real line: the trapezoidal rule converges exponentially, over t and inside P_l.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Digits = Literal[3, 5, 8]


@dataclass(frozen=True)
class _Rule:
    """Nodes of the trapezoidal rule.

    Attributes:
        step: over t, and inside P where logits spread widely; errors are of the order of exp(−π²/h).
        inner_step: inside P at most, in standard deviations.
        reach: where a normal law is cut, in standard deviations.
        above: the largest logit, where integrands fall like e^{−t}.
        below: it, where they fall like exp(−e^{−t}).
    """

    step: float
    inner_step: float
    reach: float
    above: float
    below: float


_RULES = {
    8: _Rule(0.5, 0.9, 6.0, 22.0, 3.5),
    5: _Rule(0.65, 1.0, 5.2, 14.0, 2.8),
    3: _Rule(1.0, 1.3, 4.2, 9.0, 2.2),
}
# A row whose standard deviations are all above the first and not all below the second is integrated over Gumbel noise, which
# asks for smooth normal laws; others over the normal law, which asks for smooth Gumbel ones, and for more nodes the wider it is.
# Where some are below the first and others above the third, each class has its own rule.
_NARROWEST_WIDE, _WIDEST_NARROW, _WIDEST_ALIKE = 0.6, 1.5, 3.0
# Numbers held in one array at a time: few enough for a processor's cache, and where gradients are wanted, enough for a step to
# be worth recording.
_CHUNK_SIZE, _DIFFERENTIABLE_CHUNK_SIZE = 60_000, 1_000_000
# Where the mean of a narrow class is so far above t, all of its law is, and exp(−e^{F − t}) is zero; e to this is still a number
# in single precision.
_MOST_EXPONENT = 40.0
# Powers of two are three times as fast as powers of e on some processors.
_LOG2_E = math.log2(math.e)


_Sums = Callable[[Tensor, Tensor, Tensor, _Rule], tuple[Tensor, Tensor, Tensor]]
_Integrals = Callable[[Tensor, Tensor, _Rule, _Sums], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class SoftmaxMoments:
    """Expectations of the softmax under Gaussian logits.

    Attributes:
        probabilities: E p_j, one row a class.
        log_normaliser: E log Σ_j e^{F_j}.
        entropy: E of the entropy of p: what would be left of the predictive entropy if F were known.
    """

    probabilities: Float[Tensor, "J N"]
    log_normaliser: Float[Tensor, " N"]
    entropy: Float[Tensor, " N"]


def softmax_moments(mean: Float[Tensor, "J N"], variance: Float[Tensor, "J N"], *, digits: Digits = 8) -> SoftmaxMoments:
    """The moments of each row, to about so many digits; differentiable. Five take a third of the time of eight, three a ninth.

    Examples:
        >>> import torch
        >>> from gwi.core.likelihoods.softmax import softmax_moments
        >>> mean = torch.tensor([[2.0], [0.0]], dtype=torch.float64)
        >>> certain, unsure = (softmax_moments(mean, torch.full((2, 1), v, dtype=torch.float64)) for v in (0.01, 9.0))
        >>> bool(certain.probabilities[0] > unsure.probabilities[0])
        True
    """
    std = _positive_std(variance)
    # A shift of all logits changes nothing but the normaliser; near zero no digits are lost.
    shift = mean.detach().amax(0)
    probabilities, log_normaliser, weighted = _row_by_row(_moments, mean - shift, std, _RULES[digits])
    return SoftmaxMoments(probabilities, log_normaliser + shift, log_normaliser - weighted)


def expected_log_normaliser(
    mean: Float[Tensor, "J N"], variance: Float[Tensor, "J N"], *, digits: Digits = 8
) -> Float[Tensor, " N"]:
    """E log Σ_j e^{F_j} of each row, with its gradient from the same nodes: E p_j in m_j, ½ E p_j (1 − p_j) in r_j."""
    return _LogNormaliser.apply(mean, variance, digits)


class _LogNormaliser(torch.autograd.Function):
    """Gaussian expectations have ∂/∂m E h = E h' and ∂/∂r E h = ½ E h'' (Bonnet, Price), so no pass over nodes is run back."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, variance: Tensor, digits: Digits) -> Tensor:
        shift = mean.amax(0)
        found = _row_by_row(_normaliser_and_slopes, mean - shift, _positive_std(variance), _RULES[digits])
        log_normaliser, probabilities, curvatures = found
        ctx.save_for_backward(probabilities, curvatures)
        return log_normaliser + shift

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        probabilities, curvatures = ctx.saved_tensors
        return gradient * probabilities, gradient * curvatures / 2, None


def _positive_std(variance: Tensor) -> Tensor:
    return variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt()


def _row_by_row(function: _Integrals, mean: Tensor, std: Tensor, rule: _Rule) -> tuple[Tensor, Tensor, Tensor]:
    """Integrals of each row, rows last, each by the rule that suits its spreads, as many rows at a time as fit."""
    differentiable = torch.is_grad_enabled() and (mean.requires_grad or std.requires_grad)
    with torch.no_grad():
        smooth, widest = std.amin(0) >= _NARROWEST_WIDE, std.amax(0)
        wide, mixed = smooth & (widest > _WIDEST_NARROW), ~smooth & (widest > _WIDEST_ALIKE)
    parts, orders = [], []
    for sums, chosen in ((_normal_sums, ~wide & ~mixed), (_gumbel_sums, wide), (_mixed_sums, mixed)):
        group = chosen.nonzero()[:, 0]
        # Rows with like spreads need like numbers of nodes.
        order = group[std.detach()[:, group].amax(0).argsort()]
        orders.append(order)
        start, size = 0, 1024
        while start < len(order):
            # Spreads grow, so that no later part has room for more rows.
            rows = _as_many_as_fit(mean.detach(), std.detach(), order[start : start + size], rule, differentiable)
            arguments = mean[:, rows], std[:, rows], rule, sums
            # Nodes are computed again in the backward pass, so what is held between the passes does not grow with them.
            parts.append(checkpoint(function, *arguments, use_reentrant=False) if differentiable else function(*arguments))
            start, size = start + len(rows), len(rows)
    back = torch.cat(orders).argsort()
    first, second, third = (torch.cat(part, dim=-1)[..., back] for part in zip(*parts, strict=True))
    return first, second, third


def _as_many_as_fit(mean: Tensor, std: Tensor, rows: Tensor, rule: _Rule, differentiable: bool) -> Tensor:
    """The first of the rows, by the spread of the last of them."""
    capacity = _DIFFERENTIABLE_CHUNK_SIZE if differentiable else _CHUNK_SIZE
    while len(rows) > 1 and mean.shape[0] * _outer_nodes(mean[:, rows], std[:, rows], rule)[0].numel() > capacity:
        rows = rows[: len(rows) // 2]
    return rows


def _outer_nodes(mean: Tensor, std: Tensor, rule: _Rule) -> tuple[Float[Tensor, "T N"], Float[Tensor, "T N"]]:
    """t, for each row from where Π P is zero to where it is one, and its weights.

    P_l is as smooth as a Gumbel law, and where all variances are large as a normal law: the step may then be longer.
    """
    low = (mean - rule.reach * std).amax(0).clamp_max(0.0) - rule.below
    high = (mean + rule.reach * std).amax(0) + rule.above + math.log(mean.shape[0])
    step = (std.amin(0) / 3).clamp_min(rule.step)
    t, taken = _nodes(low, high, ((high - low) / step).ceil())
    return t, taken * (t[1] - t[0])


def _nodes(low: Tensor, high: Tensor, steps: Float[Tensor, " N"]) -> tuple[Float[Tensor, "T N"], Float[Tensor, "T N"]]:
    """Nodes of each row at its own distance, and which of them count: what a row gets does not depend on those beside it."""
    index = torch.arange(int(steps.max()) + 1, dtype=steps.dtype, device=steps.device)[:, None]
    return low + (high - low) / steps * index, (index <= steps).to(steps.dtype)


def _moments(mean: Tensor, std: Tensor, rule: _Rule, sums: _Sums) -> tuple[Tensor, Tensor, Tensor]:
    """E p_j, E log Σ e^F and Σ_j E p_j F_j of each row."""
    with torch.no_grad():  # The integrals do not depend on where their nodes are.
        t, weight = _outer_nodes(mean, std, rule)
    p, density, weighted = sums(mean, std, t, rule)
    log_product, others = _products(p)
    probabilities = (weight * density * others).sum(1)
    return probabilities, _log_normaliser(mean, std, rule, weight, p, log_product), (weight * weighted * others).sum((0, 1))


def _normaliser_and_slopes(mean: Tensor, std: Tensor, rule: _Rule, sums: _Sums) -> tuple[Tensor, Tensor, Tensor]:
    """E log Σ e^F, E p_j and E p_j (1 − p_j) of each row.

    The last is the slope of E p_j = ∫ P_j' Π_{l≠j} P_l in m_j, after a partial integration ∫ P_j' (Π_{l≠j} P_l)': with
    d_l = P_l'/P_l it is ∫ P_j' Π_{l≠j} P_l Σ_{l≠j} d_l, all of it positive.
    """
    t, weight = _outer_nodes(mean, std, rule)
    p, density, _ = sums(mean, std, t, rule)
    log_product, others = _products(p)
    at_nodes = weight * density * others
    slopes = density / p.clamp_min(torch.finfo(p.dtype).tiny)
    curvatures = (at_nodes * (slopes.sum(0) - slopes)).sum(1)
    return _log_normaliser(mean, std, rule, weight, p, log_product), at_nodes.sum(1), curvatures


def _products(p: Float[Tensor, "J T N"]) -> tuple[Float[Tensor, "T N"], Float[Tensor, "J T N"]]:
    """log Π_l P_l, and Π_{l≠j} P_l for each j."""
    # Where P is zero in floating point, so is every product with it.
    log_p = p.clamp_min(torch.finfo(p.dtype).tiny).log()
    log_product = log_p.sum(0)
    return log_product, (log_product - log_p).exp()


def _log_normaliser(mean: Tensor, std: Tensor, rule: _Rule, weight: Tensor, p: Tensor, log_product: Tensor) -> Tensor:
    """E log Σ e^F of each row."""
    # E F_l in the place of log 1: P_l is as smooth as the product, and zero below the range for the class l that sets its end.
    last = (mean - rule.reach * std).detach().argmax(0)
    reference = p.gather(0, last.expand(1, *p.shape[1:]))[0]
    return mean.gather(0, last[None])[0] + (weight * (reference - log_product.exp())).sum(0)


def _normal_sums(mean: Tensor, std: Tensor, t: Tensor, rule: _Rule) -> tuple[Tensor, Tensor, Tensor]:
    """P_l(t), P_l'(t) and E[F_l e^{F_l − t} exp(−e^{F_l − t})] by a rule over F_l; nodes grow with its standard deviation."""
    with torch.no_grad():
        steps = 2 * (rule.reach / (rule.step / std.amax(0)).clamp_max(rule.inner_step)).ceil()
        end = torch.full_like(steps, rule.reach)
        z, taken = _nodes(-end, end, steps)
        weight = taken * (-z.square() / 2).exp()
        weight = weight / weight.sum(0)
    # Axes: class, outer node, row. e^{F − t} = e^{m − t} e^{F − m}: only exp(−e^{F − t}) is computed at every node.
    central = (mean[:, None] - t).clamp_max(_MOST_EXPONENT).exp()
    p, density, weighted = (mean.new_zeros(mean.shape[0], *t.shape) for _ in range(3))
    for z_i, weight_i in zip(z, weight, strict=True):
        offset = std * z_i
        rate = central * offset.exp()[:, None]
        survival = (rate * -_LOG2_E).exp2_() * weight_i
        falling = survival * rate
        p.add_(survival)
        density.add_(falling)
        weighted.addcmul_(falling, (mean + offset)[:, None])
    return p, density, weighted


def _gumbel_sums(mean: Tensor, std: Tensor, t: Tensor, rule: _Rule) -> tuple[Tensor, Tensor, Tensor]:
    """The same by a rule over Gumbel noise G, for P_l(t) = P(F_l + G ≤ t): as many nodes however large the variances are."""
    with torch.no_grad():
        # The largest of J noises is larger by log J.
        above = rule.above + math.log(mean.shape[0])
        count = math.ceil((rule.below + above) / rule.step) + 1
        g = torch.linspace(-rule.below, above, count, dtype=mean.dtype, device=mean.device)
        weight = (-g - (-g).exp()).exp()
        weight = weight / weight.sum()
    p, density, weighted = (mean.new_zeros(mean.shape[0], *t.shape) for _ in range(3))
    scaled = (t - mean[:, None]) / std[:, None]
    constant = 1 / (math.sqrt(2 * math.pi) * std[:, None])
    for g_i, weight_i in zip(g.tolist(), weight.tolist(), strict=True):
        z = scaled - g_i / std[:, None]
        normal = (-z.square() / 2).exp() * constant
        p.add_(torch.special.ndtr(z), alpha=weight_i)
        density.add_(normal, alpha=weight_i)
        weighted.addcmul_(normal, t - g_i, value=weight_i)
    return p, density, weighted


def _mixed_sums(mean: Tensor, std: Tensor, t: Tensor, rule: _Rule) -> tuple[Tensor, Tensor, Tensor]:
    """The same, wide classes over Gumbel noise and narrow ones over their normal law."""
    wide = (std >= _NARROWEST_WIDE)[:, None]
    # Each rule sees only laws that it integrates well; what it says of the others is not used.
    over_gumbel = _gumbel_sums(mean, std.clamp_min(_NARROWEST_WIDE), t, rule)
    over_normal = _normal_sums(mean, std.clamp_max(_NARROWEST_WIDE), t, rule)
    p, density, weighted = (torch.where(wide, a, b) for a, b in zip(over_gumbel, over_normal, strict=True))
    return p, density, weighted


class SoftmaxLikelihood(nn.Module):
    """p(y = j | f) = e^{f_j} / Σ_l e^{f_l}.

    Args:
        num_classes: J.
        digits: about so many of expectations.

    Examples:
        >>> import torch
        >>> from gwi.core.likelihoods.softmax import SoftmaxLikelihood
        >>> likelihood = SoftmaxLikelihood(3)
        >>> likelihood.class_probabilities(torch.zeros(3, 2), torch.ones(3, 2)).sum(0).round(decimals=4).tolist()
        [1.0, 1.0]
    """

    def __init__(self, num_classes: int, digits: Digits = 8):
        super().__init__()
        if num_classes < 2:
            raise ValueError(f"Softmax needs at least 2 classes; got {num_classes}.")
        self.num_classes = num_classes
        self.digits = digits

    def class_probabilities(self, mean: Float[Tensor, "J N"], variance: Float[Tensor, "J N"]) -> Float[Tensor, "J N"]:
        """Q(Y* = j) = E softmax_j(F), one row a class."""
        return softmax_moments(mean, variance, digits=self.digits).probabilities

    def expected_log_likelihood(
        self,
        y: Int[Tensor, " N"],
        mean: Float[Tensor, "J N"],
        variance: Float[Tensor, "J N"],
        x: Float[Tensor, "N D"] | None = None,
    ) -> Float[Tensor, " N"]:
        """m_y − E log Σ_j e^{F_j} of each row."""
        return mean.gather(0, y[None].long())[0] - expected_log_normaliser(mean, variance, digits=self.digits)

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
        return -self.class_probabilities(mean, variance).gather(0, y[None].long())[0].log()
