"""The task of a number with any likelihood of one f: counts, positive, bounded, ordered, censored, robust.

Means are learned on the scale of f where they can be (kernel means and linear ones by Newton's method, networks by the loss), and
as predictors know them where not: trees and boosting predict y, and the link carries their predictions over. All are then judged
by the likelihood of rows that they have not seen.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from gwi.core.likelihoods.families import Family
from gwi.core.likelihoods.support import require_support
from gwi.core.means import (
    ConstantMean,
    KernelMean,
    LinkMean,
    ModuleMean,
    OriginalRowsMean,
    RescaledMean,
    SumMean,
    log_of_standardised,
)
from gwi.core.means import affine as on_a_line
from gwi.core.measures import GaussianMeasure
from gwi.core.outcomes import Outcome
from gwi.core.prior import PriorFit
from gwi.core.scaling import Embedding, Scales
from gwi.fitting import plan
from gwi.fitting.data import FitData, FitOptions, HeldOut
from gwi.fitting.held_out_covariance import CovarianceSolver, HeldOutCovariance
from gwi.fitting.hyperparameters import is_wide
from gwi.fitting.jobs import Pending
from gwi.fitting.learners import linear_learner
from gwi.fitting.linked_calibration import calibrated
from gwi.fitting.linked_means import (
    LinearFit,
    expected_between,
    fitted_dispersion,
    kernel_coefficients,
    line,
    linear_fit,
    linked_weights,
    working_response,
)
from gwi.fitting.stacking import cross_fitted
from gwi.fitting.task import Member, StackedMean, Task, Tempering
from gwi.models.linked import LinkedModel
from gwi.models.summary import Summary
from gwi.parts import NoiseKind

# Up to so many rows the GP by itself is tried beside the stack.
FEW_ROWS = 600
# A mean of y nearer to a bound than this share of the average is taken to be so far from it.
NEAREST = 0.02


@dataclass(frozen=True)
class LinkedTask(Task):
    """One number with a likelihood p(y | f, φ).

    Attributes:
        families: likelihoods that held-out rows choose from; until then the first counts.
        outcome: from the user's numbers to those of the likelihood.
        link: from means of y to means of f; None where predictors learn numbers of the kind of f.
        centre: taken off the outcome.
        unit: the outcome is divided by it.
        tempering: ``"auto"``, a factor on the variance of f, or None.
        noise: whether the dispersion depends on the row.
        label: of the likelihood, for the summary; that of the family unless given.
        start: a linear mean and its dispersion, once rows have been looked at.
        margin: of means of y from their bounds, likewise.
        names: of means that are called by name.
    """

    families: tuple[Family, ...]
    outcome: Outcome = field(default_factory=Outcome)
    link: Literal["log", "logit"] | None = None
    centre: float = 0.0
    unit: float = 1.0
    tempering: Tempering = "auto"
    noise: NoiseKind = "auto"
    label: str = ""
    start: LinearFit | None = None
    margin: float = 1e-6
    names: tuple[str, ...] = ("svgp", "network", "linear")
    wanted: str = (
        '"auto", "svgp", "network", "linear", a torch module with values of f, a scikit-learn regressor, a callable, or a list '
        "of these"
    )
    note: str = ""
    prior_mean: nn.Module | None = None

    @property
    def family(self) -> Family:
        """The first."""
        return self.families[0]

    @property
    def phi(self) -> float:
        """The dispersion around the linear mean."""
        return 1.0 if self.start is None else self.start.dispersion

    def weights(self, weight: NDArray[Any]) -> NDArray[Any]:
        """Whole numbers say how often a row stands there, as merged rows do; others are relative."""
        return weight if (weight == weight.round()).all() else weight / weight.mean()

    def scales(self, x: NDArray[Any], y: NDArray[Any], weight: NDArray[Any]) -> Scales:
        """Centre and scale of each column; the target's are those of the outcome."""
        found = Scales.of(x, np.zeros((len(x), 1)), weight)
        return replace(found, y_centre=np.array([self.centre]), y_scale=np.array([self.unit]))

    def targets(self, y: NDArray[Any], scales: Scales, device: torch.device | str) -> Float[Tensor, "C N"]:
        """Numbers as the likelihood takes them; of few values their places."""
        require_support(self.family, y)
        if hasattr(self.family, "values"):
            values = np.array(self.family.values)
            return torch.as_tensor(np.abs(y[:, :1] - values).argmin(1)[None].astype(np.float64), device=device)
        return torch.as_tensor(((self.outcome.encode(y) - self.centre) / self.unit).T.copy(), device=device)

    def num_outputs(self, y: Float[Tensor, "C N"]) -> int:
        """One f."""
        return 1

    def own(self, y: Float[Tensor, "C N"]) -> Float[Tensor, "*C N"]:
        """As the likelihood takes it."""
        return y if self.family.num_columns > 1 else y[0]

    def prepared(self, data: FitData) -> LinkedTask:
        """With a linear mean of all rows, whose dispersion networks and kernel means take."""
        y = self.own(data.y)
        start = linear_fit(self.family, y, self._few_columns(data), data.weight)
        mean = self.family.mean(start.at(self._few_columns(data)), torch.full_like(data.weight, start.dispersion))
        low, high = self.family.support
        average = float((data.weight * mean).sum() / data.weight.sum())
        margin = NEAREST * (min(average - low, high - average) if self.link == "logit" else max(average - low, 1e-9))
        return replace(self, start=start, margin=max(margin, 1e-9))

    def _few_columns(self, data: FitData) -> Float[Tensor, "N D"]:
        """In a wide table none: a linear mean would learn them by heart."""
        return data.x[:, :0] if is_wide(data.num_rows, data.x.shape[1]) else data.x

    def plan(self, data: FitData) -> list[Any]:
        """The stack that the size of the table asks for."""
        return plan.linked_members(data.num_rows, data.x.shape[1], self.label or self.family.name)

    def loss(self, outputs: Float[Tensor, "*B J"], targets: Float[Tensor, "*B C"]) -> Float[Tensor, "*B"]:
        """Half the deviance: −log p, less that of an f that says what y says."""
        y = targets.movedim(-1, 0) if self.family.num_columns > 1 else targets[..., 0]
        phi = torch.full_like(outputs[..., 0], self.phi)
        saturated = self.family.log_prob(y, self.family.working(y), phi)
        return saturated - self.family.log_prob(y, outputs[..., 0], phi)

    def linear_path(
        self, x: Float[Tensor, "N D"], y: Float[Tensor, "C N"], weight: Float[Tensor, " N"]
    ) -> tuple[Float[Tensor, "D J"], Float[Tensor, " J"]]:
        """Ridge regression of f."""
        fit = linear_fit(self.family, self.own(y), x, weight)
        return fit.coefficients[:, None], x.new_tensor([fit.intercept])

    def prior_data(self, data: FitData) -> FitData:
        """Working responses around the linear mean, with the weights that go with them."""
        if self.prior_mean is not None:
            f = self.prior_mean(data.x)[0]
        elif self.start is None:
            f = torch.full_like(data.weight, linear_fit(self.family, self.own(data.y), data.x[:, :0], data.weight).intercept)
        else:
            f = self.start.at(self._few_columns(data))
        if self.family.num_columns > 1:
            # A row of which a bound is known says little of f, and yet its response lies no farther off than others do: by noise
            # of one over its curvature the evidence would find all rows to vary from one to the next, and nothing to be noise.
            response = torch.from_numpy(expected_between(self.own(data.y), f, self.phi)).to(data.x)
            return replace(data, y=(response - (data.weight * response).sum() / data.weight.sum())[None])
        response, curvature = working_response(self.family, self.own(data.y), f, self.phi)
        weight = data.weight * curvature
        centre = (weight * response).sum() / weight.sum()
        # Of a row that is known well least squares must not know more than its neighbours do.
        spread = ((weight * (response - centre).square()).sum() / weight.sum()).sqrt()
        response = (response - centre).clamp(-6 * spread, 6 * spread)
        return replace(data, y=response[None], weight=weight / weight.mean() * data.weight.mean())

    def learn_named(
        self, name: str, data: FitData, prior: PriorFit, basis: Float[Tensor, "M D"], options: FitOptions, place: int
    ) -> Member | Pending:
        """A linear mean, or a kernel mean: the mode of f under the prior."""
        return linear_learner(data, self) if name == "linear" else self._kernel_member(data, prior, basis)

    @torch.no_grad()
    def _kernel_member(self, data: FitData, prior: PriorFit, basis: Float[Tensor, "M D"]) -> Member:
        start = time.perf_counter()
        everything = torch.ones_like(data.weight, dtype=torch.bool)
        rows = [everything, *(others for _, others in data.held_out.splits())]
        fits = [prior, *(prior.without_folds or [prior] * (len(rows) - 1))]
        found: list[nn.Module] = []
        for seen, fit in zip(rows, fits, strict=True):
            y, weight, x = self.own(data.y[:, seen]), data.weight[seen], data.x[seen]
            # Where every row is a centre, a fold has those that it has seen.
            z = basis if basis is not data.x or seen is everything else x
            if self.prior_mean is None:
                level = x.new_tensor([linear_fit(self.family, y, x[:, :0], weight).intercept])
                below = level.expand(len(x))
            else:
                below = self.prior_mean(x)[0]
            v = kernel_coefficients(self.family, y, x, weight, self.phi, fit.kernel, z, below)
            own = KernelMean(fit.kernel, z, v[None])
            found.append(on_a_line(own, level, x.new_ones(1)) if self.prior_mean is None else SumMean([self.prior_mean, own]))
        held_out = data.held_out.predicted(found[0], found[1:])
        return Member("svgp", found[0], held_out, time.perf_counter() - start)

    # Predictors that know y, not f.

    def estimator_target(self, y: NDArray[Any]) -> NDArray[Any]:
        """As predictors learn it: y where there is a link, else a number of the kind of f."""
        if self.link is not None:
            return y[:, 0]
        return self.family.working(self.own(torch.from_numpy(y.T.copy()))).numpy()

    def estimator_targets(self, data: FitData) -> list[NDArray[Any]]:
        """Where only a bound is known, what a linear mean of the rows of the fold expects beyond it."""
        learned = [others for _, others in data.held_out.splits()]
        if self.family.num_columns == 1:
            return [self.estimator_target(data.y.mT.cpu().numpy())] * (1 + len(learned))
        everything = torch.ones_like(data.weight, dtype=torch.bool)
        return [self._expected_targets(data, rows) for rows in (everything, *learned)]

    def frame_targets(self, data: FitData) -> list[NDArray[Any]]:
        """The same in the user's units; of a logarithm it stays one."""
        return [target * self.unit + self.centre for target in self.estimator_targets(data)]

    def constant_mean(self, target: NDArray[Any]) -> nn.Module | None:
        """What stands for boosting where a fold has one value only: its losses need two."""
        if self.link is None or not (target == target[0]).all():
            return None
        return self.of_response(ConstantMean(torch.tensor([float(target[0])], dtype=torch.float64)))

    def of_response(self, mean: nn.Module) -> nn.Module:
        """Through the link."""
        if self.link is None:
            return mean
        low, high = self.family.support
        return LinkMean(mean, self.link, low=low, high=high, margin=self.margin)

    def of_brought(self, mean: nn.Module, scales: Scales) -> nn.Module:
        """Of y in the user's units: its logarithm where the likelihood is one of that, else through the link."""
        if not self.outcome.log:
            return self.of_response(mean)
        return log_of_standardised(mean, scales)

    def in_own_units(self, mean: nn.Module, scales: Scales, shape: tuple[int, ...] | None = None) -> nn.Module:
        """A torch module gives f; all else y in the user's units."""
        if isinstance(mean, ModuleMean):
            return OriginalRowsMean(mean, scales, shape)
        return self.of_brought(RescaledMean(mean, scales, shape), scales)

    # Held-out rows judge.

    def stack(self, members: tuple[Member, ...], held_out: HeldOut) -> StackedMean:
        """A line through each mean, and their weights, by the likelihood."""
        y, weight = self.own(held_out.y), held_out.weight
        straight: list[Member] = []
        for member in members:
            a, b, _ = line(self.family, y, member.held_out[0], weight, self.phi)
            shift, factor = held_out.y.new_tensor([a]), held_out.y.new_tensor([b])
            mean = on_a_line(member.mean, shift, factor)
            straight.append(replace(member, mean=mean, held_out=shift[:, None] + factor[:, None] * member.held_out))
        predictions = torch.cat([member.held_out for member in straight])
        phi = self._phi_around(y, predictions.mean(0), weight)

        def weigh(rows: Tensor) -> Tensor:
            return linked_weights(self.family, y[..., rows], predictions[:, rows], weight[rows], phi)

        weights, unseen = cross_fitted(weigh, len(weight), held_out.fold, weight.device)
        return StackedMean(tuple(straight), weights[None], unseen[None])

    def _phi_around(self, y: Tensor, f: Tensor, weight: Tensor) -> float:
        return fitted_dispersion(self.family, y, f, weight)

    def candidates(self, stacked: StackedMean, num_rows: int) -> list[StackedMean]:
        """With few rows the GP by itself, too."""
        names = [member.name for member in stacked.members]
        if len(names) == 1 or num_rows > FEW_ROWS or "svgp" not in names:
            return [stacked]
        return [stacked, stacked.only(names.index("svgp"))]

    def _curvature(self, data: FitData, stacked: StackedMean) -> tuple[Float[Tensor, " V"], float]:
        """E[−∂² log p/∂f²] at each held-out row, and its weighted mean."""
        held_out = data.held_out
        y, f, weight = self.own(held_out.y), stacked.held_out[0], held_out.weight
        phi = self._phi_around(y, f, weight)
        _, curvature = working_response(self.family, y, f, phi)
        return curvature, float((weight * curvature).sum() / weight.sum())

    def covariance_data(self, data: FitData, stacked: StackedMean) -> FitData:
        """Each row counts by its curvature; one that has not been judged by the mean of the others'."""
        curvature, level = self._curvature(data, stacked)
        held_out, share = data.held_out, torch.ones_like(data.weight)
        if held_out.fold is not None and held_out.folds is None:
            share = curvature / level
        elif held_out.folds is not None:
            share[held_out.folds.row] = curvature / level
        return replace(data, weight=data.weight * share)

    def noise_levels(self, data: FitData, solver: CovarianceSolver, stacked: StackedMean) -> list[float]:
        """1/σ² is the mean curvature."""
        return [1 / self._curvature(data, stacked)[1]]

    def calibrate(
        self,
        data: FitData,
        posterior: GaussianMeasure,
        stacked: StackedMean,
        covariances: list[HeldOutCovariance],
        embedding: Embedding,
        note: str,
    ) -> tuple[LinkedModel, Summary]:
        """The family, its dispersion and thresholds, and the size of r, by the likelihood of the held-out rows."""
        return calibrated(self, data, posterior, stacked, covariances[0], embedding, note)

    # Of targets where only a bound is known.

    def _expected_targets(self, data: FitData, rows: Tensor) -> NDArray[Any]:
        """What a linear mean of these rows expects between the bounds of each."""
        x, y = self._few_columns(data), self.own(data.y)
        fit = linear_fit(self.family, y[..., rows], x[rows], data.weight[rows])
        return expected_between(y, fit.at(x), fit.dispersion)
