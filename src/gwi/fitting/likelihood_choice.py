"""``likelihood="auto"``: what a target can be, and which likelihood tells rows that were held out the best.

First the support: bounds are censored, levels in order are ordinal, whole numbers from 0 on may be counts, few values may be all
that can come, numbers that are never negative get no probability below 0. Then a short look: trees, a linear model and radial
functions predict each row from others, each likelihood is fitted around them on one half of the rows, and scored on the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import RidgeCV
from sklearn.metrics.pairwise import rbf_kernel

from gwi._typing import Array
from gwi.core.dispersion import JudgedRows, fit_dispersion, label_of
from gwi.core.distributions import choose_tails
from gwi.core.laws.gaussian import Law
from gwi.core.laws.protocol import PredictiveLaw
from gwi.core.likelihoods.families import BetaFamily, Family, GammaFamily, NegativeBinomialFamily
from gwi.core.likelihoods.ordinal import OrdinalFamily
from gwi.core.noise import fit_noise, noise_features
from gwi.core.outcomes import Outcome
from gwi.models.linked import law_of_family
from gwi.parts import Beta, Censored, FewValues, Gamma, Gaussian, LogNormal, NegativeBinomial, Ordinal

# A target may have so few different values that each has a probability; the least and the largest then come so often.
MOST_VALUES, FEWEST_AT_ENDS = 20, 3
# Whole numbers up to the first may be counts: among larger ones the grid means nothing. With a median up to the second they are
# taken for counts unless held-out rows say otherwise.
MOST_COUNTED, FEW_COUNTED = 1000, 30
# Shares, and per cents: nothing is larger, and the largest is at least this part of it.
SHARES, NEAR_BOUND = (1.0, 100.0), 0.9
# With fewer rows held-out scores are chance: the support alone decides.
FEWEST_ROWS = 40
# At most so many rows are looked at, by so many trees, in folds.
MOST_ROWS, NUM_TREES, NUM_FOLDS = 600, 25, 5
# Centres of radial functions in the look, and their widths, for each column's share of the distance.
MOST_CENTRES, WIDTHS = 100, (1.0, 3.0)
# Standard errors by which a likelihood must be better than the plainest that keeps to the support; and nats of a single row.
SURE, MOST_OF_ONE = 1.5, 3.0


@dataclass(frozen=True)
class Choice:
    """A likelihood that was chosen.

    Attributes:
        part: with its options.
        why: in words.
        low: a Gaussian one is cut here; nowhere when None.
        counts: whether Poisson and negative binomial are both to be tried.
    """

    part: Any
    why: str
    low: float | None = None
    counts: bool = False


def chosen(
    x: NDArray[Any],
    y: NDArray[Any],
    weight: Array,
    unit: NDArray[Any] | None = None,
    *,
    are_bounds: bool = False,
    are_levels: bool = False,
    keeps_mean: bool = False,
) -> Choice:
    """The likelihood of these targets.

    Args:
        x: rows.
        y: targets, one column each.
        weight: of each row.
        unit: of each row, such as its group; rows of one unit err alike.
        are_bounds: whether two columns are bounds of one number.
        are_levels: whether these are places of levels in order.
        keeps_mean: whether a mean is given whose values predictions shall be, so that nothing is cut.
    """
    if are_bounds:
        return Choice(Censored(), 'likelihood="auto" chose censored: targets are events with times, or bounds')
    if are_levels:
        return Choice(Ordinal(), 'likelihood="auto" chose ordinal: targets are levels in order')
    if y.shape[1] > 1 or keeps_mean:
        return Choice(Gaussian(), "")
    values = y[:, 0]
    candidates = _candidates(values)
    first = candidates[0]
    if len(candidates) == 1 or len(y) < FEWEST_ROWS:
        return Choice(first.part, first.why(), first.low, first.counts)
    some = _some_rows(len(y), unit)
    look = _Look(x[some], values[some], weight[some], None if unit is None else unit[some], candidates)
    return _best(candidates, {candidate.name: candidate.scores(look) for candidate in candidates}, look)


class _Candidate:
    """A likelihood that the support allows, and how it is scored.

    Args:
        part: with its options.
        outcome: of a Gaussian one.
        family: of another one, for targets as it takes them.
        reason: in words, from the support.
        grid: whether the target is on a grid, where probabilities of values count and not densities.
    """

    def __init__(
        self, part: Any, reason: str, *, outcome: Outcome | None = None, family: Family | None = None, grid: Array | None = None
    ):
        self.part, self.reason, self.outcome, self.family, self.grid = part, reason, outcome, family, grid
        self.counts = isinstance(family, NegativeBinomialFamily)

    @property
    def name(self) -> str:
        """For the note."""
        if self.counts:
            return "counts"
        if self.family is not None:
            return "few-valued" if isinstance(self.part, FewValues) else label_of(self.family)
        assert self.outcome is not None
        return "log-normal" if self.outcome.log else "gaussian"

    @property
    def low(self) -> float | None:
        """Where a Gaussian law is cut."""
        return None if self.outcome is None else self.outcome.low

    def why(self, scores: str = "") -> str:
        """What to say of the choice."""
        said = "; ".join(filter(None, (self.reason, scores)))
        return f'likelihood="auto" chose {self.name}: {said}' if said else ""

    def scores(self, look: _Look) -> Array:
        """−log p of each row, from the rows of the other half; of values on a grid −log P."""
        found = np.full(len(look.y), np.nan)
        for train, test in look.halves:
            if self.family is None:
                law = _regression_law(look, self.outcome or Outcome(), train, test)
            else:
                law = _family_law(look, self.family, train, test)
            # A value that one half has never seen has no probability there.
            found[test] = np.minimum(
                self._loss(law, look.y[test]), math.log(2 * len(look.y)) if isinstance(self.part, FewValues) else np.inf
            )
        return found

    def _loss(self, law: PredictiveLaw, y: Array) -> Array:
        if self.grid is None or law.is_discrete:
            return -law.log_density(y)
        place = np.searchsorted(self.grid, y)
        middles = (self.grid[1:] + self.grid[:-1]) / 2
        low, high = np.append(-np.inf, middles)[place], np.append(middles, np.inf)[place]
        # Of whole numbers those that were not seen are values, too.
        if (self.grid == np.round(self.grid)).all():
            low, high = np.maximum(low, y - 0.5), np.minimum(high, y + 0.5)
        above, below = _cumulative(law, high), _cumulative(law, low)
        return -np.log(np.maximum(above - below, 1e-15))


def _cumulative(law: PredictiveLaw, y: Array) -> Array:
    finite = law.cumulative(np.where(np.isfinite(y), y, 0.0))
    return np.where(np.isfinite(y), finite, np.where(y > 0, 1.0, 0.0))


def _candidates(values: Array) -> list[_Candidate]:
    """Those that the support allows; the plainest first, which has to be beaten."""
    known, count = np.unique(values, return_counts=True)
    few = 2 <= len(known) <= MOST_VALUES and min(count[0], count[-1]) >= FEWEST_AT_ENDS
    whole = bool((known == np.round(known)).all())
    # A number is taken to be bounded by 0 where it comes near: its least is no further from 0 than it reaches beyond that.
    bounded = bool(known[0] >= 0 and known[-1] > known[0] and known[0] <= known[-1] - known[0])
    counted = whole and bounded and known[-1] <= MOST_COUNTED
    grid = known if few or counted else None
    low = 0.0 if bounded else None
    gaussian = _Candidate(Gaussian(), "no target is negative" if bounded else "", outcome=Outcome(low=low), grid=grid)
    found = []
    if counted:
        family_of_counts = NegativeBinomialFamily()
        found.append(_Candidate(NegativeBinomial(), "targets are whole numbers of at least 0", family=family_of_counts))
    if few:
        centre, std = float(values.mean()), float(values.std())
        middles = tuple(((known[1:] + known[:-1]) / 2 - centre) / std)
        family = OrdinalFamily(thresholds=middles, values=tuple(known.tolist()))
        found.append(_Candidate(FewValues(), f"the target has {len(known)} values", family=family))
        return found
    shares = [high for high in SHARES if not counted and bounded and NEAR_BOUND * high <= known[-1] <= high]
    for high in shares:
        at_bounds = known[0] == 0 or known[-1] == high
        family_of_shares = BetaFamily(0.0, high, margin=0.5 / len(values) if at_bounds else 0.0)
        found.append(_Candidate(Beta(0.0, high), f"all targets lie between 0 and {high:g}", family=family_of_shares))
    if 1.0 in shares:
        return found
    found.insert(len(found) if counted and np.median(values) <= FEW_COUNTED else 0, gaussian)
    if bounded and known[0] > 0:
        found.append(_Candidate(LogNormal(), "all targets are positive", outcome=Outcome(log=True), grid=grid))
        if not counted:
            found.append(_Candidate(Gamma(), "all targets are positive", family=GammaFamily()))
    return found


def _some_rows(num_rows: int, unit: NDArray[Any] | None) -> NDArray[Any]:
    rng = np.random.default_rng(0)
    if num_rows <= MOST_ROWS:
        return np.arange(num_rows)
    if unit is None:
        return np.sort(rng.permutation(num_rows)[:MOST_ROWS])
    _, place, size = np.unique(unit, return_inverse=True, return_counts=True)
    order = rng.permutation(len(size))
    count = max(2, int(np.searchsorted(np.cumsum(size[order]), MOST_ROWS)))
    return np.flatnonzero(np.isin(place, order[:count]))[: 4 * MOST_ROWS]


class _Look:
    """Rows, and what trees and a linear model predict there without having seen them."""

    def __init__(self, x: NDArray[Any], y: Array, weight: Array, unit: NDArray[Any] | None, candidates: list[_Candidate]):
        self.y, self.weight = y, weight / weight.mean()
        scale = x.std(0)
        self.x = np.clip((x - x.mean(0)) / np.where(scale > 0, scale, 1.0), -10, 10).reshape(len(x), -1)
        self.unit = np.arange(len(y)) if unit is None else np.unique(unit, return_inverse=True)[1]
        rng = np.random.default_rng(0)
        order = rng.permutation(self.unit.max() + 1)[self.unit]
        self.fold = order % NUM_FOLDS
        half = order // NUM_FOLDS % 2
        self.halves = [(np.flatnonzero(half != k), np.flatnonzero(half == k)) for k in (0, 1)]
        logs = any(c.outcome is not None and c.outcome.log for c in candidates)
        self.plain, *logged = self._predicted([y, np.log(y)] if logs else [y])
        self.logged = logged[0] if logs else None

    def _predicted(self, targets: list[Array]) -> list[Array]:
        """Of trees, a linear model and radial functions, weighed by least squares."""
        y = np.column_stack(targets)
        centre, std = y.mean(0), np.maximum(y.std(0), np.finfo(float).tiny)
        z = (y - centre) / std
        found = np.empty((2 + len(WIDTHS), *z.shape))
        for k in range(self.fold.max() + 1):
            train, test = self.fold != k, self.fold == k
            trees = ExtraTreesRegressor(NUM_TREES, random_state=k)
            line = RidgeCV(np.logspace(-6, 2, 9) * train.sum(), alpha_per_target=True)
            models = [(trees, self.x), (line, self.x)]
            centres = self.x[train][:: max(1, train.sum() // MOST_CENTRES)]
            for width in WIDTHS:
                ridge = RidgeCV(np.logspace(-4, 2, 7), alpha_per_target=True)
                models.append((ridge, rbf_kernel(self.x, centres, 1 / (2 * width**2 * self.x.shape[1]))))
            for place, (model, x) in zip(found, models, strict=True):
                # Trees warn of a single target as a column.
                target = z[train, 0] if model is trees and z.shape[1] == 1 else z[train]
                model.fit(x[train], target, self.weight[train])
                place[test] = model.predict(x[test]).reshape(-1, z.shape[1])
        # What lies beyond all targets is none.
        found = np.clip(found, z.min(0), z.max(0))
        root = np.sqrt(self.weight)
        stacked = []
        for place, (target, of_target) in enumerate(zip(z.T, np.moveaxis(found, 2, 0), strict=True)):
            shares = nnls((root * of_target).T, root * target)[0]
            shares = shares / shares.sum() if shares.sum() > 0 else np.full(len(found), 1 / len(found))
            stacked.append(centre[place] + std[place] * (shares @ of_target))
        return stacked


def _regression_law(look: _Look, outcome: Outcome, train: NDArray[Any], test: NDArray[Any]) -> PredictiveLaw:
    """Gaussian noise with its tails around the mean, from the rows of one half for those of the other."""
    y = outcome.encode(look.y)
    mean = look.plain if not outcome.log or look.logged is None else look.logged
    centre, scale = float(y[train].mean()), float(y[train].std()) or 1.0
    x, m, z = (torch.from_numpy(part) for part in (look.x, (mean - centre) / scale, (y - centre) / scale))
    features = noise_features(x, m[None])
    fit = fit_noise(
        (z - m)[train],
        torch.zeros(len(train), dtype=torch.float64),
        features[train],
        penalties=(100.0, 10.0),
        sample_weight=torch.from_numpy(look.weight[train]),
        unit=torch.from_numpy(look.unit[train]),
        generator=torch.Generator().manual_seed(0),
    )
    tails = choose_tails(((z - m)[train] / fit.unseen.sqrt()).numpy(), look.weight[train])
    std = (fit.noise(features[test]) * tails.factor).sqrt().numpy()
    return outcome.law(Law(mean[test][None], scale * std[None], tails.degrees_of_freedom))


def _family_law(look: _Look, family: Family, train: NDArray[Any], test: NDArray[Any]) -> PredictiveLaw:
    """Another likelihood around the mean, through its link."""
    y, f = _as_taken(family, look)
    target, m = torch.from_numpy(y), torch.from_numpy(f)
    zeros = torch.zeros_like(m)
    rows = JudgedRows(target, m, zeros, zeros, noise_features(torch.from_numpy(look.x), m[None]), torch.from_numpy(look.weight))
    fit = fit_dispersion(
        family,
        rows[torch.from_numpy(train)],
        tempering=1.0,
        unit=torch.from_numpy(look.unit[train]),
        generator=torch.Generator().manual_seed(0),
    )
    chosen_rows = rows[torch.from_numpy(test)]
    phi = fit.noise(chosen_rows.features).numpy()
    return law_of_family(fit.family, (chosen_rows.mean + fit.shift).numpy(), zeros[test].numpy(), phi)


def _as_taken(family: Family, look: _Look) -> tuple[Array, Array]:
    """Targets as the family takes them, and f from means of y."""
    if isinstance(family, OrdinalFamily):
        centre, std = float(look.y.mean()), float(look.y.std())
        return np.searchsorted(np.array(family.values), look.y).astype(np.float64), (look.plain - centre) / std
    low, high = family.support
    average = float(look.y.mean())
    if isinstance(family, BetaFamily):
        margin = 0.02 * min(average - low, high - average)
        inside = np.clip(look.plain, low + margin, high - margin)
        return look.y, np.log(inside - low) - np.log(high - inside)
    if isinstance(family, GammaFamily) and look.logged is not None:
        return look.y, look.logged
    return look.y, np.log(np.maximum(look.plain, 0.02 * average))


def _best(candidates: list[_Candidate], scores: dict[str, Array], look: _Look) -> Choice:
    """The lowest score among those that the plainest must surely give way to."""
    held, *others = candidates

    def mean_gain(candidate: _Candidate) -> tuple[float, float]:
        """Over the plainest, and its standard error; a single row says no more than `MOST_OF_ONE`."""
        gain = np.clip(scores[candidates[0].name] - scores[candidate.name], -MOST_OF_ONE, MOST_OF_ONE) * look.weight
        total = np.bincount(look.unit, weights=gain, minlength=int(look.unit.max()) + 1)
        return float(total.mean()), float(total.std()) / math.sqrt(len(total))

    gains = {candidate.name: mean_gain(candidate) for candidate in others}
    for candidate in others:
        gain, error = gains[candidate.name]
        if gain > SURE * error and (held is candidates[0] or gain > gains[held.name][0]):
            held = candidate
    means = {name: float(np.average(score, weights=look.weight)) for name, score in scores.items()}
    said = "held-out NLL of a quick first fit: " + ", ".join(f"{name} {value:.4g}" for name, value in means.items())
    return Choice(held.part, held.why(said), held.low, held.counts)
