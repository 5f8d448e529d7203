"""The task of classification: logits, cross-entropy, scales of logits and variances by held-out rows.

Around its mean the softmax's log-likelihood is quadratic in each logit, with the curvature p(1 − p). Averaged over rows, it plays
the part that 1/σ² plays in regression, and the covariances of regression serve.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from gwi.core.means import ConstantMean, SumMean
from gwi.core.measures import GaussianMeasure
from gwi.core.prior import PriorFit
from gwi.core.scaling import Embedding, Scales
from gwi.fitting import plan
from gwi.fitting.data import FitData, FitOptions, HeldOut, variance_at
from gwi.fitting.held_out_covariance import CovarianceSolver, HeldOutCovariance
from gwi.fitting.hyperparameters import PriorChoice
from gwi.fitting.jobs import Pending
from gwi.fitting.learners import estimator_learner, kernel_member
from gwi.fitting.logit_correction import corrected
from gwi.fitting.logit_scales import Judgement, TemperingName, choose_scales
from gwi.fitting.logit_targets import dirichlet_coding, indicator_coding, indicator_rates, indicators, rescaled
from gwi.fitting.scores import holds_all_rows
from gwi.fitting.stacking import best_scale, logit_weights
from gwi.fitting.task import Member, NetworkSize, StackedMean, Task
from gwi.models.classification import ClassificationModel, UsualScores, energy, prior_share_of
from gwi.models.strata import LabelScores
from gwi.models.summary import MemberSummary, Summary
from gwi.parts import RobustMax, Softmax
from gwi.predictors.logits import ClassifierLogits, logits_of_one_class, plain_classifier

# Numbers in all factors F_j together: with M inducing points and J classes, J M² of them.
MOST_FACTOR_NUMBERS = 4e7
# Below so many rows our own network has layers of 64 units, not of 128: with 1,000 and 4,000 rows of practice tables the log loss
# of the stack is the same.
MANY_LABELS = 10_000
# Multiplications for Dirichlet logits, whose classes do not share a factor: some seconds.
MOST_OPERATIONS = 1e10
# Covariances are solved for at most so many levels of curvature; classes whose curvatures differ by less than this factor share
# one, and where there are still more levels those that are nearest.
MOST_COVARIANCES, ALIKE = 4, 1.5
# Numbers (rows times classes) by which sets of labels are calibrated, some seconds of integrals, and the fewest rows.
SCORED_NUMBERS, FEWEST_SCORED = 200_000, 10_000


@dataclass(frozen=True)
class ClassificationTask(Task):
    """Classes: softmax or robust-max of logits that are Gaussian.

    Attributes:
        classes: the labels, in order.
        likelihood: of the labels given the logits.
        tempering: ``"auto"``, ``"per-class"``, a factor on the variance of the logits, or None.
        correct: whether held-out rows, which no mean has learned from, may correct the logits of a single mean.
        factors: that weights of rows of each class were multiplied by; None where they were not.
    """

    classes: NDArray[Any]
    likelihood: Softmax | RobustMax = field(default_factory=Softmax)
    tempering: float | TemperingName | None = "auto"
    correct: bool = False
    factors: Float[NDArray[Any], " J"] | None = None
    names: tuple[str, ...] = ("svgp", "network", "linear")
    wanted: str = (
        '"auto", "svgp", "network", "linear", a torch module, a scikit-learn classifier with predict_proba or '
        "decision_function, a callable from rows to logits, or a list of these"
    )

    # Labels that are hardly in doubt say little of the logits: Titsias' S is then close to the prior's at known rows too, and an
    # outlier score of a frozen network falls from 0.97 to 0.73 (AUROC of examples/frozen_network.py).
    sparse_covariance: ClassVar[Literal["wasserstein", "titsias"]] = "wasserstein"

    @property
    def logit_scale(self) -> float | Literal["auto"]:
        """What the logits are multiplied by: chosen with the rest, or left as it is."""
        return "auto" if isinstance(self.tempering, str) else 1.0

    def scales(self, x: NDArray[Any], y: NDArray[Any], weight: NDArray[Any]) -> Scales:
        """Centre and scale of each column; logits have a scale of their own."""
        scales = Scales.of(x, np.zeros((len(x), 1)), weight)
        return replace(scales, y_centre=np.zeros(len(self.classes)), y_scale=np.ones(len(self.classes)))

    def targets(self, y: NDArray[Any], scales: Scales, device: torch.device | str) -> Float[Tensor, "J N"]:
        """Indicators of the classes, from their places."""
        return indicators(y, len(self.classes), device)

    def judging_weight(self, y: Float[Tensor, "J V"]) -> Float[Tensor, " V"]:
        """By the weights of classes, with mean one."""
        if self.factors is None:
            return torch.ones_like(y[0])
        weight = y.new_tensor(self.factors) @ y
        return weight / weight.mean()

    def folds(self, y: Float[Tensor, "J N"], num_folds: int, generator: torch.Generator) -> Int[Tensor, " N"]:
        """The fold of each row, every class spread over the folds as evenly as it can be."""
        return class_folds(y.argmax(0).cpu(), num_folds, generator)

    def plan(self, data: FitData) -> list[Any]:
        """The stack that the size of the table asks for."""
        return plan.classification_members(data.num_rows, data.x.shape[1], len(self.classes))

    def prior_data(self, data: FitData) -> FitData:
        """Each class against the rest, with mean zero and variance one."""
        return data.with_targets(lambda _, y: self.coded(y, data.weight))

    def coded(self, y: Float[Tensor, "J N"], weight: Float[Tensor, " N"]) -> Float[Tensor, "J N"]:
        """Each class against the rest, with mean zero and variance one, by the shares of these rows."""
        return indicator_coding(indicator_rates((y * weight).sum(1)))(y, y)

    def network_size(self, num_rows: int) -> NetworkSize:
        """Of our own network: labels of some thousand rows tell too little for wide layers to gain from it."""
        usual = super().network_size(num_rows)
        return usual._replace(hidden=(64, 64)) if num_rows < MANY_LABELS else usual

    def in_scale(
        self, outputs: Float[Tensor, "J V"], y: Float[Tensor, "J V"], weight: Float[Tensor, " V"]
    ) -> Float[Tensor, "J V"]:
        """Logits times what suits these rows best: those of whole trees are far too sure."""
        return outputs * best_scale(outputs, y, weight)[0]

    def most_inducing(self, num_outputs: int) -> float:
        """So many that the factors of all classes fit into memory."""
        return (MOST_FACTOR_NUMBERS / num_outputs) ** 0.5

    def num_free(self, num_outputs: int) -> int | None:
        """Of J classes one is known from the others."""
        return num_outputs - 1

    def loss(self, outputs: Float[Tensor, "*B J"], targets: Float[Tensor, "*B J"]) -> Float[Tensor, "*B"]:
        """−Σ_j y_j log softmax_j(m) of each row."""
        return -(targets * outputs.log_softmax(-1)).sum(-1)

    def require_outputs(self, values: Float[Tensor, "K n"], num_outputs: int, what: str = "The network") -> None:
        """Refuse a mean that has not one output a class."""
        if len(values) != num_outputs:
            raise ValueError(f"{what} gives {len(values)} outputs per row; there are {num_outputs} classes.")

    def learn_named(
        self, name: str, data: FitData, prior: PriorFit, basis: Float[Tensor, "M D"], options: FitOptions, place: int
    ) -> Member | Pending:
        """A linear model, or a kernel mean of targets made from labels."""
        if name == "linear":
            return estimator_learner(LogisticRegression(max_iter=500), data, self, name=name, standardised=True)
        return self._kernel_logits(data, prior, basis)

    @torch.no_grad()
    def _kernel_logits(self, data: FitData, prior: PriorFit, basis: Float[Tensor, "M D"]) -> Member:
        """The GP mean of targets made from labels; far from the data it is the shares of classes.

        Two kinds of target are tried, and the better on held-out rows is kept: standardised indicators with the noise of the
        evidence, for which all classes share one factor, and where that many factors are cheap, Dirichlet logits with the noise
        that belongs to them.
        """
        start = time.perf_counter()
        rates = indicator_rates(data.totals())
        log_rates = rates.log()
        fits = (prior, *prior.without_folds)
        tried = [self._coded(data, prior, basis, indicator_coding(rates), fits, [fit.noise_variance for fit in fits])]
        cheap = len(data.y) * len(basis) ** 2 * (len(data.x) + 2 * len(basis)) <= MOST_OPERATIONS
        if cheap and not data.is_sample:
            targets, variance = dirichlet_coding(data.y)
            amplitude = float((targets - targets.mean(1, keepdim=True)).square().mean())
            own = tuple(replace(fit, kernel=rescaled(fit, amplitude)) for fit in fits)
            tried.append(self._coded(data, prior, basis, lambda x, y: targets, own, [variance] * len(own)))
        held_out = data.held_out
        scored: list[tuple[float, nn.Module, Tensor]] = []
        for member in tried:
            scale, _ = best_scale(member.held_out, held_out.y, held_out.weight)
            # In units in which a scale of one is best, the shares of classes are what a softmax far away should give.
            offset = (log_rates - log_rates.mean()) / max(scale, 1e-6)
            values = member.held_out + offset[:, None]
            nll = best_scale(values, held_out.y, held_out.weight)[1]
            scored.append((nll, SumMean([member.mean, ConstantMean(offset)]), values))
        _, mean, values = min(scored, key=lambda entry: entry[0])
        return Member("svgp", mean, values, time.perf_counter() - start)

    def _coded(self, data: FitData, prior: PriorFit, basis: Tensor, rule: Any, fits: Any, noises: Any) -> Member:
        # A stream's rows are centred by the shares of all of them already.
        level = 0.0 if data.is_sample else float(rule(data.x, data.y).mean())
        coded = data.with_targets(lambda x, y: rule(x, y) - level)
        return kernel_member("svgp", coded, prior, basis, [fit.kernel for fit in fits], noises)

    def is_predictor(self, item: Any) -> bool:
        """Whether an object fits and has probabilities or margins."""
        return hasattr(item, "fit") and (hasattr(item, "predict_proba") or hasattr(item, "decision_function"))

    def plain(self, model: Any) -> Any:
        """A fitted classifier's logits, as plain numbers where they can be held so."""
        return plain_classifier(model, self.classes) or ClassifierLogits(model, self.classes)

    def frame_model(self, model: Any) -> Any:
        """Logits of a classifier; those of a function are taken as they are."""
        return ClassifierLogits(model, self.classes) if self.is_predictor(model) or hasattr(model, "predict_proba") else model

    def estimator_target(self, y: NDArray[Any]) -> NDArray[Any]:
        """Labels."""
        return self.classes[y.argmax(1)]

    def constant_mean(self, target: NDArray[Any]) -> nn.Module | None:
        """Logits of the one class that is left when those of a rare class are in another fold; many classifiers refuse it."""
        if not (target == target[0]).all():
            return None
        return ConstantMean(torch.from_numpy(logits_of_one_class(target[0], self.classes)))

    def stack(self, members: tuple[Member, ...], held_out: HeldOut) -> StackedMean:
        """Weights and scale by the likelihood of held-out rows."""
        logits = torch.stack([member.held_out for member in members])
        weights, scale = logit_weights(logits, held_out.y, held_out.weight, scale=self.logit_scale)
        weights = weights.expand(len(held_out.y), -1)
        return StackedMean(members, weights, weights[..., None].expand(-1, -1, held_out.y.shape[1]), scale)

    def refine(
        self, data: FitData, prior: PriorChoice, stacked: StackedMean, options: FitOptions
    ) -> tuple[PriorFit, StackedMean, str]:
        """A prior of the logits' own size: the evidence knows length-scales, the logits their amplitude."""
        scaled = stacked.scale * stacked.held_out
        spread = (scaled - scaled.mean(1, keepdim=True)).square().mean()
        level = float(variance_at(prior.fit.kernel, data.x[:1000]).detach().mean())
        fitted = replace(prior.fit, kernel=rescaled(prior.fit, max(float(spread), 1e-6) / max(level, 1e-12)))
        if not (self.correct and self.logit_scale == "auto" and len(stacked.members) == 1):
            return fitted, stacked, ""
        better, said = corrected(data.held_out, fitted, prior.inducing_points, stacked)
        return fitted, better, said

    def noise_levels(self, data: FitData, solver: CovarianceSolver, stacked: StackedMean) -> list[float]:
        """1/σ² is the mean curvature of the softmax in each logit at held-out rows."""
        probabilities = (stacked.scale * stacked.held_out).softmax(0)
        weight = data.held_out.weight / data.held_out.weight.mean()
        # A class that is never in doubt still has some curvature: that of one row in doubt.
        curvature = (probabilities * (1 - probabilities) * weight).mean(1).clamp_min(0.25 / probabilities.shape[1])
        levels = _shared_levels(curvature)
        nearest = (curvature[:, None] / levels).log().abs().argmin(1)
        return [1 / float(levels[i]) for i in nearest.tolist()]

    def calibrate(
        self,
        data: FitData,
        posterior: GaussianMeasure,
        stacked: StackedMean,
        covariances: list[HeldOutCovariance],
        embedding: Embedding,
        note: str,
    ) -> tuple[ClassificationModel, Summary]:
        """The scales of logits and variances by the held-out rows."""
        y, weight = data.held_out.y, data.held_out.weight
        variance = torch.stack([part.variance for part in covariances])
        several = int((stacked.weights[0] > 0).sum()) > 1
        logits, disagreement = stacked.scale * stacked.held_out, stacked.scale**2 * stacked.disagreement if several else None
        epsilon = self.likelihood.epsilon
        judgement = Judgement(logits, variance, disagreement, y.argmax(0), weight, y.shape[1], epsilon).sampled()
        scale, alpha, gamma = choose_scales(judgement, self.tempering)
        model = ClassificationModel(
            posterior=posterior,
            embedding=embedding,
            classes=self.classes,
            logit_scale=stacked.scale * scale,
            tempering_factor=alpha,
            disagreement_weight=gamma,
            epsilon=epsilon,
            usual=UsualScores.of(prior_share_of(variance, covariances[0].prior_variance), energy(stacked.held_out), weight),
        )
        model = replace(model, label_scores=self._label_scores(model, data.held_out, stacked, variance))
        summary = Summary(
            num_rows=data.num_rows,
            members=tuple(
                MemberSummary(m.name, (float(stacked.weights[0, i]),), (best_scale(m.held_out, y, weight)[1],), m.seconds)
                for i, m in enumerate(stacked.members)
            ),
            score_name="NLL",
            covariance=covariances[0].kind,
            num_inducing=len(posterior.kernel.inducing_points),
            stores_all_rows=holds_all_rows(posterior, data.num_rows),
            divergence_weight=tuple(part.divergence_weight for part in covariances),
            tempering=tuple(alpha.tolist()),
            disagreement_weight=(gamma,),
            held_out_nll=(judgement.nll_of_mean(), judgement.nll(scale, alpha, gamma)),
            seconds=math.nan,
            num_classes=len(self.classes),
            logit_scale=model.logit_scale,
            held_out_accuracy=float((weight * (stacked.held_out.argmax(0) == y.argmax(0))).sum() / weight.sum()),
            note=note,
        )
        return model, summary

    @torch.no_grad()
    def _label_scores(
        self, model: ClassificationModel, held_out: HeldOut, stacked: StackedMean, variance: Float[Tensor, "J V"]
    ) -> LabelScores:
        """Of the rows that judge, of many some at random: their probabilities as the model would have them at new rows."""
        num_rows, num_classes = len(held_out.weight), len(variance)
        count = max(FEWEST_SCORED, SCORED_NUMBERS // num_classes)
        order = torch.randperm(num_rows, generator=torch.Generator().manual_seed(0)).to(variance.device)
        rows = order[:count] if count < num_rows else torch.arange(num_rows, device=variance.device)
        factor = variance.new_tensor(model.tempering_factor)[:, None]
        spread = factor * variance[:, rows]
        if model.disagreement_weight:
            spread = spread + model.logit_scale**2 * model.disagreement_weight * stacked.disagreement[:, rows]
        probabilities, _ = model.probabilities_of(model.logit_scale * stacked.held_out[:, rows], spread)
        label, weight = held_out.y[:, rows].argmax(0), held_out.weight[rows]
        # Sets are to hold the labels of rows as they come, whatever classes weigh in the fit.
        weight = weight if self.factors is None else weight / weight.new_tensor(self.factors)[label]
        return LabelScores.of(probabilities, label, weight, None if held_out.strata is None else held_out.strata.at(rows))


def _shared_levels(curvature: Float[Tensor, " J"]) -> Float[Tensor, " L"]:
    """A few curvatures such that each class has one near its own."""
    logs = curvature.log().sort().values
    groups = [logs[:1]]
    for value in logs[1:]:
        if value - groups[-1][0] > math.log(ALIKE):
            groups.append(value[None])
        else:
            groups[-1] = torch.cat([groups[-1], value[None]])
    levels = torch.stack([group.mean() for group in groups]).exp()
    if len(levels) <= MOST_COVARIANCES:
        return levels
    return levels[torch.linspace(0, len(levels) - 1, MOST_COVARIANCES).round().long().to(levels.device)]


def class_folds(labels: Int[Tensor, " N"], num_folds: int, generator: torch.Generator) -> Int[Tensor, " N"]:
    """The fold of each row, every class spread over the folds as evenly as it can be."""
    order = torch.randperm(len(labels), generator=generator)
    by_class = order[labels[order].argsort(stable=True)]
    fold = torch.empty_like(labels)
    fold[by_class] = torch.arange(len(labels)) % num_folds
    return fold
