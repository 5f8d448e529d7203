"""The task of regression: numbers, least squares, noise and tails by held-out rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from sklearn.linear_model import LassoCV, RidgeCV
from torch import Tensor, nn

from gwi.core.distributions import DEGREES, STACK_OPTIMISM, Tails, choose_tails, match_coverage
from gwi.core.handover import Handover
from gwi.core.kernels import SparsePosteriorKernel
from gwi.core.means import RescaledMean, SumMean, log_of_standardised
from gwi.core.measures import GaussianMeasure
from gwi.core.noise import NoiseFit, effective_rows, fit_noise, noise_features
from gwi.core.outcomes import Outcome
from gwi.core.prior import PriorFit
from gwi.core.scaling import Embedding, Scales
from gwi.fitting import plan
from gwi.fitting.data import FitData, FitOptions, HeldOut
from gwi.fitting.held_out_covariance import CovarianceSolver, HeldOutCovariance
from gwi.fitting.hyperparameters import PriorChoice, is_wide, prior_for
from gwi.fitting.jobs import Pending
from gwi.fitting.learners import estimator_learner, kernel_member, linear_learner, network_learner
from gwi.fitting.priors import added, beside, scaled_noise
from gwi.fitting.scores import average_nll, holds_all_rows, own_rmse
from gwi.fitting.stacking import convex_weights, cross_fitted, student_precision
from gwi.fitting.task import Member, StackedMean, Task, Tempering, fixed_factor
from gwi.models.regression import RegressionModel
from gwi.models.strata import ascending
from gwi.models.summary import MemberSummary, Summary
from gwi.parts import Gaussian, LogNormal, Network, NoiseKind, StudentT
from gwi.predictors.linear import PathLasso

PENALTIES = (300.0, 100.0, 30.0, 10.0, 3.0)
# Laws under which the noise is fitted: one with tails so heavy that far rows do not decide it, and the normal one.
NOISE_DEGREES = (5.0, math.inf)
# Up to so many rows the GP by itself is tried beside the stack.
FEW_ROWS = 600
# Penalties of a ridge regression, for each row.
RIDGE_PENALTIES = np.logspace(-6, 2, 17)
# Steps of a lasso's path: columns that enter or leave.
LASSO_STEPS = 50
# Means that fall back to the prior's far from all rows, and hand over there if so many rows have judged them. Of the others each
# with less than this share of the largest weight gets nothing; there they err, squared, so many times as much as at home.
KERNEL_MEANS, FEWEST_JUDGES, SMALLEST_SHARE, OFF_HOME = ("svgp", "svgp-all"), 20, 0.1, 4.0
# Standard deviations of the target by which a mean may err; the squares of larger ones leave the range of numbers.
LARGEST_ERROR = 1e60


@dataclass(frozen=True)
class RegressionTask(Task):
    """Numbers: Gaussian noise σ²(x) around f, with Student's tails where held-out rows ask for them.

    Attributes:
        likelihood: noise and tails.
        tempering: ``"auto"``, a factor on the predictive variance, or None.
        disagreement: whether means that disagree add to the variance.
        outcome: numbers as they are, or their logarithms; and a bound below them.
    """

    seen_rows: ClassVar[int] = 300_000
    likelihood: Gaussian | StudentT | LogNormal = field(default_factory=Gaussian)
    tempering: Tempering = "auto"
    disagreement: bool = True
    outcome: Outcome = field(default_factory=Outcome)
    names: tuple[str, ...] = ("svgp", "svgp-all", "network", "svgp+network", "linear", "lasso")
    wanted: str = (
        '"auto", "svgp", "svgp-all", "network", "svgp+network", "linear", "lasso", a torch module, a scikit-learn regressor, '
        "a callable, or a list of these"
    )
    note: str = ""
    prior_mean: nn.Module | None = None

    def weights(self, weight: NDArray[Any]) -> NDArray[Any]:
        """Whole numbers say how often a row stands there, as merged rows do; others are relative."""
        return weight if (weight == weight.round()).all() else weight / weight.mean()

    def scales(self, x: NDArray[Any], y: NDArray[Any], weight: NDArray[Any]) -> Scales:
        """Centre and scale of each column and of each target."""
        return Scales.of(x, self.outcome.encode(y), weight)

    def targets(self, y: NDArray[Any], scales: Scales, device: torch.device | str) -> Float[Tensor, "J N"]:
        """Standardised numbers."""
        return scales.targets(self.outcome.encode(y), device)

    def plan(self, data: FitData) -> list[Any]:
        """The stack that the size of the table asks for."""
        return plan.regression_members(data.num_rows, data.x.shape[1])

    def loss(self, outputs: Float[Tensor, "*B J"], targets: Float[Tensor, "*B J"]) -> Float[Tensor, "*B"]:
        """Σ_j (m_j − y_j)² of each row."""
        return (outputs - targets).square().sum(-1)

    def prior_data(self, data: FitData) -> FitData:
        """Less the mean of P."""
        return beside(self.prior_mean, data)

    def linear_path(
        self, x: Float[Tensor, "N D"], y: Float[Tensor, "J N"], weight: Float[Tensor, " N"]
    ) -> tuple[Float[Tensor, "D J"], Float[Tensor, " J"]] | None:
        """Ridge regression, its penalty by leaving rows out one at a time."""
        model = RidgeCV(len(x) * RIDGE_PENALTIES).fit(x.cpu().numpy(), y.mT.cpu().numpy(), weight.cpu().numpy())
        return x.new_tensor(np.atleast_2d(model.coef_).T), x.new_tensor(np.atleast_1d(model.intercept_))

    def learn_named(
        self, name: str, data: FitData, prior: PriorFit, basis: Float[Tensor, "M D"], options: FitOptions, place: int
    ) -> Member | Pending:
        """A kernel mean, on some or all rows, or with a network for what it leaves over; or a linear model of few columns."""
        if name == "linear":
            return linear_learner(data, self)
        if name == "lasso":
            equal = bool(torch.isclose(data.weight, data.weight[:1]).all())
            # The path of least angles is the faster by far where columns are alike, and takes no weights.
            sparse = PathLasso(max_iter=LASSO_STEPS, precompute=False) if equal else LassoCV()
            return estimator_learner(sparse, data, self, name=name, standardised=True)
        if name == "svgp-all" and data.is_sample:
            raise ValueError('mean="svgp-all" has a basis function for every row, too many where rows are streamed; use "svgp".')
        fits, scale = (prior, *prior.without_folds), scaled_noise(options)
        noises = [fit.noise_variance if fit.noise_variances is None else fit.noise_variances[:, None] for fit in fits]
        noises = noises if scale == 1 else [scale * noise for noise in noises]
        points = data.x if name == "svgp-all" else basis
        # Kernel means learn what the mean of P leaves over, and fall back to it.
        data = beside(self.prior_mean, whole := data)
        kernel = kernel_member(name, data, prior, points, [fit.kernel for fit in fits], noises)
        if name != "svgp+network":
            return added(self.prior_mean, kernel, whole)
        rest = network_learner(data.less(kernel.mean, kernel.held_out), self, Network(), prior, options, place)
        mean = SumMean([kernel.mean, rest.mean])
        both = Member(name, mean, kernel.held_out + rest.held_out, kernel.seconds + rest.seconds)
        return added(self.prior_mean, both, whole)

    def in_own_units(self, mean: nn.Module, scales: Scales, shape: tuple[int, ...] | None = None) -> nn.Module:
        """A mean in the user's own units, seen from standardised rows and targets."""
        return self.of_brought(RescaledMean(mean, scales, shape), scales)

    def of_brought(self, mean: nn.Module, scales: Scales) -> nn.Module:
        """Its logarithm, where the likelihood is one of that."""
        return log_of_standardised(mean, scales) if self.outcome.log else mean

    def stack(self, members: tuple[Member, ...], held_out: HeldOut) -> StackedMean:
        """Least squares on held-out rows, for each target.

        Raises:
            ValueError: when a mean errs by more than can be squared.
        """
        predictions = torch.stack([member.held_out for member in members])
        y, weight = held_out.y, held_out.weight
        for member, predicted in zip(members, predictions, strict=True):
            worst = float((predicted - y).abs().max())
            if not worst <= LARGEST_ERROR:
                raise ValueError(
                    f"The mean {member.name!r} is wrong by {worst:.3g} standard deviations of the target on held-out rows, "
                    "too much to be of use; look for extreme values in the rows and the targets."
                )

        return _weighed(members, held_out, weight.expand_as(y))

    def reweighed(self, stacked: StackedMean, held_out: HeldOut, variance: Float[Tensor, " V"]) -> StackedMean:
        """Least squares again, each row by how well it can be known: plain squares listen to the few rows that err most."""
        weight = torch.empty_like(held_out.y)
        for j, fit in enumerate(self._constant_noise(stacked, held_out, variance)):
            precision = student_precision(held_out.y[j] - stacked.held_out[j], variance + fit.unseen)
            weight[j] = held_out.weight * precision / precision.mean()
        return _weighed(stacked.members, held_out, weight)

    def candidates(self, stacked: StackedMean, num_rows: int) -> list[StackedMean]:
        """With few rows the GP by itself, too: where it is the best by far, what others add is noise."""
        names = [member.name for member in stacked.members]
        if len(names) == 1 or num_rows > FEW_ROWS or "svgp" not in names:
            return [stacked]
        return [stacked, stacked.only(names.index("svgp"))]

    def handover(
        self, stacked: StackedMean, held_out: HeldOut, covariances: list[HeldOutCovariance], kernel: SparsePosteriorKernel
    ) -> Handover | None:
        """To a stack of the other means, whose squared error there is taken to be four times that at home (decision 19)."""
        gives = torch.tensor([member.name in KERNEL_MEANS for member in stacked.members])
        # A prior mean of the user's own is what they shall fall back to.
        if self.prior_mean is not None or gives.all() or not gives.any() or len(held_out.x) < FEWEST_JUDGES:
            return None
        predictions = torch.stack([member.held_out for member in stacked.members])[~gives]
        shares = torch.zeros_like(stacked.weights)
        error, known = torch.empty_like(shares[:, 0]), torch.stack([part.variance.max() for part in covariances])
        for j, y in enumerate(held_out.y):
            found = convex_weights(predictions[:, j], y, held_out.weight)
            found = torch.where(found < SMALLEST_SHARE * found.max(), 0.0, found)
            shares[j, ~gives] = found / found.sum()
            squares = (y - (shares[j, ~gives, None] * predictions[:, j]).sum(0)).square()
            error[j] = OFF_HOME * (held_out.weight * squares).sum() / held_out.weight.sum()
        return Handover(kernel, gives.to(shares.device), shares, known, error.clamp_min(torch.finfo(error.dtype).tiny))

    def _constant_noise(self, stacked: StackedMean, held_out: HeldOut, variance: Float[Tensor, " V"]) -> list[NoiseFit]:
        """σ² of each target that does not depend on the row, for this r."""
        fits = []
        for j in range(len(held_out.y)):
            fit = fit_noise(
                held_out.y[j] - stacked.held_out[j],
                variance,
                held_out.x[:, :0],
                disagreement=self._spread(stacked, j),
                penalties=(),
                sample_weight=held_out.weight,
                generator=torch.Generator().manual_seed(0),
            )
            fits.append(fit)
        return fits

    def refine(
        self, data: FitData, prior: PriorChoice, stacked: StackedMean, options: FitOptions
    ) -> tuple[PriorFit, StackedMean, str]:
        """The prior fitted to the targets, or to what the mean leaves over."""
        if options.covariance.kernel_fit == "targets":
            return prior.fit, stacked, ""
        held_out = data.held_out
        residuals, generator = held_out.y - stacked.held_out, torch.Generator().manual_seed(0)
        return prior_for(prior.kernel, held_out.x, residuals, held_out.weight, prior.inducing_points, generator), stacked, ""

    def noise_levels(self, data: FitData, solver: CovarianceSolver, stacked: StackedMean) -> list[float]:
        """σ² of each target. It depends on S through r, and S on it: a rough S and constant noise find its level."""
        rough = solver.rough_variance(solver.prior.noise_variance)
        fits = self._constant_noise(stacked, data.held_out, rough)
        return [max(float(fit.noise.log_level.exp()), math.ulp(0.0)) for fit in fits]

    def _spread(self, stacked: StackedMean, j: int) -> Float[Tensor, " V"] | None:
        return stacked.disagreement[j] if self.disagreement and len(stacked.members) > 1 else None

    def calibrate(
        self,
        data: FitData,
        posterior: GaussianMeasure,
        stacked: StackedMean,
        covariances: list[HeldOutCovariance],
        embedding: Embedding,
        note: str,
    ) -> tuple[RegressionModel, Summary]:
        """Noise, tempering and tails of each target by the held-out rows."""
        y, weight = data.held_out.y, data.held_out.weight
        residuals = y - stacked.held_out
        # In a wide table noise, too, would follow chance: it depends on the level alone.
        of_columns = embedding.is_table and not is_wide(data.num_rows, data.x.shape[1])
        columns = data.held_out.x if of_columns else data.held_out.x[:, :0]
        features = noise_features(columns, stacked.held_out)
        noise = self.likelihood.noise
        fits: list[NoiseFit] = []
        for j, part in enumerate(covariances):
            spread = self._spread(stacked, j)
            fits += [choose_noise(residuals[j], part.variance, features, weight, noise, spread, unit=data.held_out.unit)]
        # Noise at a row from fits that had not seen it: a model of noise, too, is surer of the rows it was fitted to.
        variance = torch.stack([part.variance + fit.unseen for part, fit in zip(covariances, fits, strict=True)])
        fixed = fixed_factor(self.tempering)
        unit, is_stack = data.held_out.unit, stacked.num_means > 1
        shapes = [self._shape(row, weight, fixed, is_stack, unit) for row in residuals / variance.sqrt()]
        factor = np.array([shape.factor for shape in shapes])
        tempered = variance * variance.new_tensor(factor)[:, None]
        degrees = [shape.degrees_of_freedom for shape in shapes]
        gamma = tuple(fit.disagreement_weight for fit in fits)
        scores, strata = ascending(residuals.abs() / tempered.sqrt(), data.held_out.strata, weight)
        model = RegressionModel(
            posterior=posterior,
            embedding=embedding,
            noises=tuple(fit.noise for fit in fits),
            tempering_factor=factor,
            degrees_of_freedom=np.array(degrees),
            disagreement_weight=np.array(gamma),
            scores=scores,
            strata=strata,
            outcome=self.outcome,
        )
        own_nll = self._own_nll(data)
        summary = Summary(
            num_rows=data.num_rows if data.is_sample else round(float(data.weight.sum())),
            members=tuple(
                MemberSummary(
                    m.name, tuple(stacked.weights[:, i].tolist()), own_rmse(y - m.held_out, data.scales.y_scale), m.seconds
                )
                for i, m in enumerate(stacked.members)
            ),
            score_name="RMSE",
            covariance=covariances[0].kind,
            num_inducing=len(posterior.kernel.inducing_points),
            stores_all_rows=holds_all_rows(posterior, data.num_rows),
            divergence_weight=tuple(part.divergence_weight for part in covariances),
            tempering=tuple(factor.tolist()),
            disagreement_weight=gamma,
            held_out_nll=(
                average_nll(residuals, variance, weight, [math.inf] * len(shapes)) + own_nll,
                average_nll(residuals, tempered, weight, degrees) + own_nll,
            ),
            target_std=tuple(data.scales.y_scale.tolist()),
            seconds=math.nan,
            noise=tuple(fit.penalty for fit in fits),
            degrees_of_freedom=tuple(degrees),
            note=note,
            likelihood=self._likelihood_name(degrees),
        )
        return model, summary

    def _likelihood_name(self, degrees: Sequence[float]) -> str:
        """For the summary, now that tails are known."""
        if isinstance(self.likelihood, LogNormal):
            return "log-normal"
        name = "student-t" if any(math.isfinite(d) for d in degrees) else "gaussian"
        return name if self.outcome.low is None else f"{name} above {self.outcome.low:g}"

    def _own_nll(self, data: FitData) -> float:
        """What the NLL of the user's numbers has more than that of standardised ones."""
        found = float(np.log(data.scales.y_scale).sum())
        if not self.outcome.log:
            return found
        y, weight = data.held_out.y.cpu().numpy(), data.held_out.weight.cpu().numpy()
        logs = y * data.scales.y_scale[:, None] + data.scales.y_centre[:, None]
        return found + float((weight * logs).sum() / weight.sum())

    def _shape(self, z: Tensor, weight: Tensor, factor: float | None, is_stack: bool, unit: Tensor | None) -> Tails:
        """Tempering and tails of one target's standardised errors."""
        count = None if unit is None else effective_rows(z, unit)
        errors, w = z.cpu().numpy(), weight.cpu().numpy()
        if isinstance(self.likelihood, StudentT):
            asked = self.likelihood.degrees_of_freedom
            degrees: Sequence[float] = DEGREES if asked == "auto" else (float(asked),)
        else:
            degrees = DEGREES if self.likelihood.tails == "auto" else ()
        always = isinstance(self.likelihood, StudentT)
        law = choose_tails(errors, w, factor=factor, degrees=degrees, num_effective=count, allow_normal=not always)
        if factor is not None:
            return law
        return match_coverage(errors, w, law, optimism=STACK_OPTIMISM if is_stack else 0.0, num_effective=count)


def _weighed(members: tuple[Member, ...], held_out: HeldOut, weight: Float[Tensor, "J V"]) -> StackedMean:
    """Convex weights for each target, by rows that count so much."""
    predictions, y = torch.stack([member.held_out for member in members]), held_out.y

    def of_target(j: int) -> tuple[Tensor, Tensor]:
        def weigh(rows: Tensor) -> Tensor:
            return convex_weights(predictions[:, j, rows], y[j, rows], weight[j, rows])

        return cross_fitted(weigh, y.shape[1], held_out.fold, y.device)

    parts = [of_target(j) for j in range(len(y))]
    weights, held_out_weights = (torch.stack(part) for part in zip(*parts, strict=True))
    return StackedMean(members, weights, held_out_weights)


def choose_noise(
    residuals: Float[Tensor, " V"],
    variance: Float[Tensor, " V"],
    features: Float[Tensor, "V F"],
    weight: Float[Tensor, " V"],
    kind: NoiseKind,
    disagreement: Float[Tensor, " V"] | None = None,
    degrees: Sequence[float] = NOISE_DEGREES,
    unit: Int[Tensor, " V"] | None = None,
) -> NoiseFit:
    """Constant or input-dependent noise, or whichever predicts held-out rows better."""
    return fit_noise(
        residuals,
        variance,
        features,
        disagreement=disagreement,
        penalties=() if kind == "constant" else PENALTIES,
        degrees=degrees,
        allow_constant=kind != "input-dependent",
        sample_weight=weight,
        unit=unit,
        generator=torch.Generator().manual_seed(0),
    )
