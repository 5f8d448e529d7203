"""A fitted classification, whole: Q over the logits, the likelihood, and the way from the user's rows to Q's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Shaped
from numpy.typing import NDArray
from torch import Tensor, nn

from gwi._typing import Array
from gwi.core.features import NetworkFeatures
from gwi.core.likelihoods.robust_max import RobustMaxLikelihood
from gwi.core.likelihoods.softmax import softmax_moments
from gwi.core.measures import GaussianMeasure, kernel_variance
from gwi.core.posterior import PreparedPosterior
from gwi.core.scaling import Scales

# Rows held at a time.
CHUNK_SIZE = 2048
# Decimal places of predicted probabilities: errors far below what any score can tell.
DIGITS: Literal[5, 8] = 5
# Standard deviations of logits above this are told apart no more: see `within_reach`.
MOST_STD = 1000.0


class StandardRows(nn.Module):
    """Rows of any shape, flattened and standardised.

    Args:
        scales: centre and scale of each column.
        shape: of one row.
    """

    def __init__(self, scales: Scales, shape: tuple[int, ...]):
        super().__init__()
        self.scales = scales
        self.shape = shape

    def forward(self, x: Float[Tensor, "N ..."]) -> Float[Tensor, "N D"]:
        """The rows that Q knows."""
        flat = x.flatten(1).double()
        return (flat - flat.new_tensor(self.scales.x_centre)) / flat.new_tensor(self.scales.x_scale)


class LogitsAndFeatures(nn.Module):
    """A frozen network's logits and features side by side, from one pass: Q's mean are the first columns, its kernel is on the
    rest.
    """

    def __init__(self, features: NetworkFeatures, shape: tuple[int, ...]):
        super().__init__()
        self.features = features
        self.shape = shape

    def forward(self, x: Float[Tensor, "N ..."]) -> Float[Tensor, "N E"]:
        """The rows that Q knows."""
        return torch.cat(self.features.evaluate(x), dim=1)


def energy(logits: Float[Tensor, "J N"]) -> Float[Tensor, " N"]:
    """−log Σ_j exp f_j(x): large where no class has much to say for it (Liu et al., 2020)."""
    return -logits.logsumexp(0)


# What varies by less than this at unseen rows counts as if it varied by so much. The energy of log probabilities is zero but for
# rounding, and r/k may be at all rows that are known.
LEAST_SPREAD = 1e-3


@dataclass(frozen=True)
class UsualScores:
    """Mean and standard deviation, at rows the mean had not seen, of what tells outliers.

    Attributes:
        share: of r/k.
        energy: of the energy of the unscaled logits.
    """

    share: tuple[float, float]
    energy: tuple[float, float]

    @classmethod
    @torch.no_grad()
    def of(cls, share: Float[Tensor, " V"], energies: Float[Tensor, " V"], weight: Float[Tensor, " V"]) -> UsualScores:
        """Those of some rows."""

        def moments(values: Tensor) -> tuple[float, float]:
            centre = (weight * values).sum() / weight.sum()
            return float(centre), float(((weight * (values - centre).square()).sum() / weight.sum()).sqrt())

        return cls(moments(share), moments(energies))

    def combined(self, share: Float[Tensor, " N"], energies: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
        """The sum of both, each in standard deviations from its mean."""
        found = torch.zeros_like(share)
        for values, (centre, spread) in ((share, self.share), (energies, self.energy)):
            found = found + (values - centre) / max(spread, LEAST_SPREAD)
        return found


@dataclass(frozen=True)
class ClassificationModel:
    """All that predicts, and nothing else.

    The logits are s·m(x) with independent Gaussian errors of variance α_j r_j(x) + γ d_j(x)².

    Attributes:
        posterior: Q over unscaled logits.
        embedding: from the user's rows to Q's.
        classes: labels, in the order of the outputs.
        logit_scale: s, the inverse temperature.
        tempering_factor: α_j of each class.
        disagreement_weight: γ: stacked means that disagree add γ d² to the variance.
        epsilon: ε of robust-max; None for softmax.
        usual: scores of unseen rows.
        prepared: Q ready for many predictions.
    """

    posterior: GaussianMeasure
    embedding: StandardRows | LogitsAndFeatures
    classes: NDArray[Any]
    logit_scale: float
    tempering_factor: Array
    disagreement_weight: float
    epsilon: float | None
    usual: UsualScores
    prepared: PreparedPosterior = field(init=False, repr=False)

    def __post_init__(self) -> None:
        gamma = torch.full((len(self.classes),), self.disagreement_weight, dtype=torch.float64)
        object.__setattr__(self, "prepared", PreparedPosterior(self.posterior, gamma).requires_grad_(False))

    @property
    def device(self) -> torch.device:
        """Where the tensors live."""
        return self.posterior.kernel.inducing_points.device

    def rows(self, X: Shaped[NDArray[Any], "N ..."], chunk_size: int = CHUNK_SIZE) -> Iterator[Float[Tensor, "n E"]]:
        """The rows that Q knows, some at a time."""
        for start in range(0, len(X), chunk_size):
            yield self.embedding(torch.as_tensor(np.ascontiguousarray(X[start : start + chunk_size])).to(self.device))

    def logits(self, rows: Float[Tensor, "N E"]) -> tuple[Float[Tensor, "J N"], Float[Tensor, "J N"]]:
        """Mean and variance of each logit, scaled and tempered."""
        mean, variance, disagreement = self.prepared.parts(rows)
        alpha = variance.new_tensor(self.tempering_factor)[:, None]
        return self.logit_scale * mean, alpha * variance + self.logit_scale**2 * disagreement

    def _probabilities(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """E p, and the expected entropy of p."""
        if self.epsilon is None:
            moments = softmax_moments(*within_reach(mean, variance), digits=DIGITS)
            return moments.probabilities / moments.probabilities.sum(0), moments.entropy
        likelihood = RobustMaxLikelihood(len(self.classes), self.epsilon)
        wrong = self.epsilon / (len(self.classes) - 1)
        entropy = -(1 - self.epsilon) * np.log1p(-self.epsilon) - self.epsilon * np.log(wrong)
        probabilities = likelihood.class_probabilities(mean, variance)
        return probabilities / probabilities.sum(0), mean.new_full(mean.shape[1:], float(entropy))

    @torch.no_grad()
    def probabilities(self, X: Shaped[NDArray[Any], "N ..."]) -> tuple[Float[Array, "N J"], Float[Array, " N"]]:
        """Q(Y* = j) at each row, and the expected entropy of the label if the logits were known."""
        parts = [self._probabilities(*self.logits(rows)) for rows in self.rows(X)]
        found, entropy = (torch.cat(part, dim=-1).cpu().numpy() for part in zip(*parts, strict=True))
        return found.T.copy(), entropy

    @torch.no_grad()
    def remaining_variance(self, X: Shaped[NDArray[Any], "N ..."]) -> Float[Array, " N"]:
        """r/k, averaged over classes: 0 where all is known, 1 where the prior is all there is."""
        return torch.cat([self._share_and_energy(rows)[0] for rows in self.rows(X)]).cpu().numpy()

    @torch.no_grad()
    def strangeness(self, X: Shaped[NDArray[Any], "N ..."]) -> Float[Array, " N"]:
        """r/k and the energy of the logits in one number, about zero at rows like those of the fit."""
        return torch.cat([self.usual.combined(*self._share_and_energy(rows)) for rows in self.rows(X)]).cpu().numpy()

    def _share_and_energy(self, rows: Float[Tensor, "N E"]) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
        mean, variance, _ = self.prepared.parts(rows)
        level = kernel_variance(self.posterior.kernel.prior_kernel, rows)
        return share_of_prior(variance, level), energy(mean)


def share_of_prior(variance: Float[Tensor, "J N"], level: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """r/k, averaged over classes; zero where the prior knows f, as a linear kernel does at its origin."""
    return (variance.mean(0) / level.clamp_min(torch.finfo(level.dtype).tiny)).clamp(0.0, 1.0)


def within_reach(mean: Float[Tensor, "J N"], variance: Float[Tensor, "J N"]) -> tuple[Tensor, Tensor]:
    """Logits whose widest law has a standard deviation of at most `MOST_STD`, with nearly the same probabilities.

    Absurdly far from the data logits spread without bound, and so would the nodes that integrate them. Of the classes that spread
    so widely only the order against each other and against the best of the rest matters: distances from that are shrunk by one
    factor, which changes probabilities by the order of 1/`MOST_STD`.
    """
    std = variance.sqrt()
    factor = (MOST_STD / std.amax(0)).clamp_max(1.0)
    wide = std > MOST_STD
    best = torch.where(wide, -torch.inf, mean).amax(0)
    centre = torch.where(wide.all(0), mean.amax(0), best)
    return torch.where(wide, centre + factor * (mean - centre), mean), torch.where(wide, factor.square() * variance, variance)


@dataclass(frozen=True)
class ClassDecomposition:
    """The entropy of the label by its source, in nats.

    Attributes:
        total: of the predicted probabilities.
        expected: of the label if the logits were known: what more data would not remove.
        mutual_information: their difference, what the label would tell about the logits: what more data near x would remove.
    """

    total: Any
    expected: Any
    mutual_information: Any


@dataclass(frozen=True)
class ClassMember:
    """One mean that was tried.

    Attributes:
        name: as asked for.
        weight: in the combination.
        unseen_nll: on rows it had not seen, alone and with the temperature that suits it best.
        seconds: it took.
    """

    name: str
    weight: float
    unseen_nll: float
    seconds: float


@dataclass(frozen=True)
class ClassSummary:
    """What was chosen, and why.

    Attributes:
        num_rows: N.
        num_classes: J.
        members: the means that were tried.
        covariance: which S.
        num_inducing: M of the covariance.
        stores_all_rows: whether every row is an inducing point, so that a file holds them all.
        divergence_weight: β of each class.
        logit_scale: s, the inverse temperature.
        tempering: α of each class.
        disagreement_weight: γ.
        unseen_nll: on rows the mean had not seen: of the mean with its temperature alone, and of the posterior.
        seconds: of the whole fit.
        note: what else a reader should know.
    """

    num_rows: int
    num_classes: int
    members: tuple[ClassMember, ...]
    covariance: str
    num_inducing: int
    stores_all_rows: bool
    divergence_weight: tuple[float, ...]
    logit_scale: float
    tempering: tuple[float, ...]
    disagreement_weight: float
    unseen_nll: tuple[float, float]
    seconds: float
    note: str = ""

    def __str__(self) -> str:
        lines = [f"{self.num_rows} rows, {self.num_classes} classes, {self.num_inducing} inducing points, {self.seconds:.1f} s"]
        if self.stores_all_rows:
            lines.append("  every row is kept as an inducing or basis point: a saved model holds all inputs, no labels")
        for member in self.members:
            shown = f"weight {member.weight:.2f}  unseen NLL {member.unseen_nll:.3f}  {member.seconds:.1f} s"
            lines.append(f"  mean {member.name:<16} {shown}")
        low, high = min(self.tempering), max(self.tempering)
        factors = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
        lines.append(f"  covariance {self.covariance}; logits times {self.logit_scale:.3g}, their variance times {factors}")
        if self.disagreement_weight:
            lines.append(
                f"  where the means disagree, {self.disagreement_weight:.2f} times their spread is added to the variance"
            )
        lines.append(f"  unseen NLL {self.unseen_nll[0]:.4f} of the mean alone, {self.unseen_nll[1]:.4f} with its covariance")
        if self.note:
            lines.append(f"  {self.note}")
        return "\n".join(lines)
