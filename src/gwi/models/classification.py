"""A fitted classification, whole: Q over the logits, the likelihood, and the way from the user's rows to Q's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor

from gwi._typing import Array
from gwi.core.conditioning import ConditionedKernel, ConditionedPosterior, conditioned, prepared
from gwi.core.likelihoods.robust_max import RobustMaxLikelihood
from gwi.core.likelihoods.softmax import softmax_moments
from gwi.core.likelihoods.softmax_mode import softmax_mode
from gwi.core.measures import GaussianMeasure, kernel_variance
from gwi.core.posterior import CachedPosterior, with_disagreement
from gwi.core.scaling import CHUNK_SIZE, Embedding, embedded_rows, finite
from gwi.models.levels import Levels
from gwi.models.strata import LabelScores

# Decimal places of predicted probabilities: errors far below what any score can tell.
DIGITS: Literal[5, 8] = 5
# Standard deviations of logits above this are told apart no more: see `within_reach`.
MOST_STD = 1000.0


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

    The logits are s·m(x) with independent Gaussian errors of variance α_j r_j(x) + s² γ d_j(x)².

    Attributes:
        posterior: Q over unscaled logits, tempered: s times a draw of Q is a draw of the logits. The factors α_j/s² on r and the
            disagreement of its means become part of its kernel.
        embedding: from the user's rows to Q's.
        classes: labels, in the order of the outputs.
        logit_scale: s, the inverse temperature.
        tempering_factor: α_j of each class.
        disagreement_weight: γ: stacked means that disagree add γ d² to the variance.
        epsilon: ε of robust-max; None for softmax.
        usual: scores of unseen rows.
        label_scores: of these, by which sets of labels are calibrated; None in files of earlier versions.
        cached: Q ready for many predictions.
    """

    posterior: GaussianMeasure
    embedding: Embedding
    classes: NDArray[Any]
    logit_scale: float
    tempering_factor: Array
    disagreement_weight: float
    epsilon: float | None
    usual: UsualScores
    label_scores: LabelScores | None = field(default=None, repr=False, compare=False)
    cached: CachedPosterior | ConditionedPosterior = field(default=cast("CachedPosterior", None), repr=False, compare=False)

    def __post_init__(self) -> None:
        gamma = torch.full((len(self.classes),), self.disagreement_weight, dtype=torch.float64)
        factors = torch.as_tensor(self.tempering_factor) / self.logit_scale**2
        object.__setattr__(self, "posterior", with_disagreement(self.posterior, gamma, factors))
        # An update brings it along: all that does not depend on the new rows is ready already.
        if self.cached is None or self.cached.posterior is not self.posterior:
            prepare = prepared if isinstance(self.posterior.kernel, ConditionedKernel) else CachedPosterior
            object.__setattr__(self, "cached", prepare(self.posterior).requires_grad_(False))

    @property
    def device(self) -> torch.device:
        """Where the tensors live."""
        return self.posterior.kernel.inducing_points.device

    def rows(self, X: Shaped[NDArray[Any], "N ..."], chunk_size: int = CHUNK_SIZE) -> Iterator[Float[Tensor, "n E"]]:
        """The rows that Q knows, some at a time."""
        return embedded_rows(self.embedding, X, self.device, chunk_size)

    def logits(self, rows: Float[Tensor, "N E"]) -> tuple[Float[Tensor, "J N"], Float[Tensor, "J N"]]:
        """Mean and variance of each logit, scaled and tempered."""
        mean, variance = self.cached.marginals(rows)
        return self.logit_scale * mean, self.logit_scale**2 * variance

    @property
    def quantity(self) -> str:
        """What f is, for a reader."""
        return "the logit"

    @property
    def output_names(self) -> tuple[str, ...]:
        """The labels, for a reader."""
        return tuple(map(str, self.classes.tolist()))

    def leading_outputs(self, X: Shaped[NDArray[Any], "N ..."]) -> Int[NDArray[Any], " N"]:
        """Of each row the output that is looked at first: the most probable class."""
        return self.probabilities(X)[0].argmax(1)

    @torch.no_grad()
    def variance_of_f(self, x: Float[Tensor, "n E"], nearly: bool = False) -> Float[Tensor, "J n"]:
        """Of each logit at rows that Q knows, scaled and tempered; nearly, where it is averaged over many rows."""
        return self.logit_scale**2 * self.cached.variance(x, nearly)

    def probabilities_of(self, mean: Float[Tensor, "J N"], variance: Float[Tensor, "J N"]) -> tuple[Tensor, Tensor]:
        """E p, and the expected entropy of p, of logits with this mean and variance."""
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
        parts = [self.probabilities_of(*self.logits(rows)) for rows in self.rows(X)]
        found, entropy = (torch.cat(part, dim=-1).cpu().numpy() for part in zip(*parts, strict=True))
        return finite(found, "probability").T.copy(), finite(entropy, "entropy")

    @torch.no_grad()
    def log_probabilities(self, X: Shaped[NDArray[Any], "N ..."]) -> Float[Array, "N J"]:
        """log Q(Y* = j) at each row, finite."""
        parts = [self._log_probabilities(*self.logits(rows)).cpu().numpy() for rows in self.rows(X)]
        return finite(np.concatenate(parts, axis=1), "logarithm of a probability").T.copy()

    def _log_probabilities(self, mean: Tensor, variance: Tensor) -> Tensor:
        """log E p; where that is less than the integral tells from zero, at least E log p, which is below it."""
        if self.epsilon is not None:
            return self.probabilities_of(mean, variance)[0].log()
        mean, variance = within_reach(mean, variance)
        moments = softmax_moments(mean, variance, digits=DIGITS)
        p = moments.probabilities / moments.probabilities.sum(0)
        return torch.where(p < 10.0**-DIGITS, torch.maximum(p.log(), mean - moments.log_normaliser), p.log())

    @torch.no_grad()
    def described(self, X: Shaped[NDArray[Any], "N ..."]) -> tuple[Float[Array, "N J"], Float[Array, " N"], Float[Array, " N"]]:
        """`probabilities`, and the share of the prior's variance, from one pass of a network."""
        parts = [(*self.probabilities_of(*self.logits(rows)), self._share_and_energy(rows)[0]) for rows in self.rows(X)]
        found, entropy, share = (torch.cat(part, dim=-1).cpu().numpy() for part in zip(*parts, strict=True))
        return finite(found, "probability").T.copy(), finite(entropy, "entropy"), finite(share, "outlier score")

    @torch.no_grad()
    def given(self, X: NDArray[Any], y: Int[NDArray[Any], " N"], weight: Float[Array, " N"]) -> ClassificationModel:
        """The model given more rows and the places of their classes: Laplace's approximation around what Q says now.

        A label tells little of a logit: at most what a number with noise of variance 4/s² does. So that logits stay independent
        of each other, the curvature of the softmax is taken by its diagonal, which knows the differences of logits less well.
        """
        if self.epsilon is not None:
            raise ValueError('update needs likelihood="softmax": a robust-max model cannot be updated. Fit again on all rows.')
        if not (self.tempering_factor > 0).all():
            raise ValueError("update needs a variance of the logits, and tempering=0 leaves none. Fit again on all rows.")
        x = torch.cat(list(self.rows(X)))
        mean, covariance = self.cached.joint(x)
        indicators = torch.eye(len(self.classes), dtype=x.dtype, device=x.device)[:, torch.as_tensor(y, device=x.device)]
        new = conditioned(self.cached, x, *softmax_mode(mean, covariance, indicators, x.new_tensor(weight), self.logit_scale))
        return replace(self, posterior=new.posterior, cached=new)

    @torch.no_grad()
    def levels(self, x: Float[Tensor, "n E"]) -> Levels:
        """What checks look at, from rows that Q knows: 1/σ² is the curvature of the softmax, at most (J − 1)/J².

        α says little here: how large r should be beside the logits is a guess before held-out rows speak.
        """
        mean, variance, _ = self.cached.parts(x)
        p, num_classes = (self.logit_scale * mean).softmax(0), len(mean)
        least = mean.new_full((num_classes,), num_classes**2 / (num_classes - 1))
        noise = (p * (1 - p)).mean(-1).clamp_min(0.25 / p.shape[1]).reciprocal()
        # Where rows say nothing of the labels, logits hardly vary and so does the prior: then its share is what counts.
        size = kernel_variance(self.posterior.kernel.prior_kernel, x).mean().clamp(torch.finfo(mean.dtype).tiny, 1.0)
        return Levels(variance.mean(-1) / size, noise, least, np.empty(0))

    def check(self, X: Shaped[NDArray[Any], "N ..."]) -> tuple[Array, ...]:
        """Numbers that are finite where the parts of the model fit together."""
        return self.probabilities(X)

    @torch.no_grad()
    def prior_share(self, X: Shaped[NDArray[Any], "N ..."]) -> Float[Array, " N"]:
        """r/k, averaged over classes: 0 where all is known, 1 where the prior is all there is."""
        return finite(torch.cat([self._share_and_energy(rows)[0] for rows in self.rows(X)]).cpu().numpy(), "outlier score")

    @torch.no_grad()
    def outlier_score(self, X: Shaped[NDArray[Any], "N ..."]) -> Float[Array, " N"]:
        """r/k and the energy of the logits in one number, about zero at rows like those of the fit."""
        parts = [self.usual.combined(*self._share_and_energy(rows)) for rows in self.rows(X)]
        return finite(torch.cat(parts).cpu().numpy(), "outlier score")

    def _share_and_energy(self, rows: Float[Tensor, "N E"]) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
        mean, variance, _ = self.cached.parts(rows)
        level = kernel_variance(self.posterior.kernel.prior_kernel, rows)
        return prior_share_of(variance, level), energy(mean)


def prior_share_of(variance: Float[Tensor, "J N"], level: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
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
