"""Likelihoods of GPyTorch with one f, as families of ours."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.special import betainc, gammaincc
from scipy.stats import t as student
from torch import Tensor
from torch.distributions import Distribution

from gwi._typing import Array

# Of a curvature that is found by differences of a likelihood: not below zero, where Newton's method would climb down.
LEAST_CURVATURE = 1e-8
# Of each row, whose average curvature is the information: the mean over all rows counts.
NUM_DRAWS = 20
# Nats that make little difference.
LITTLE = 0.1


@dataclass(frozen=True, eq=False)
class TorchFamily:
    """p(y | f) of any likelihood that gives a distribution of torch for f; its own parameters stay as they are.

    Attributes:
        likelihood: of GPyTorch, for one f.
        is_discrete: whether its distributions are on whole numbers.
    """

    likelihood: Any
    is_discrete: bool = field(init=False)
    num_columns: ClassVar[int] = 1
    has_dispersion: ClassVar[bool] = False

    def __post_init__(self) -> None:
        # A copy: the user's own keeps its dtype, and its parameters may be learned elsewhere.
        try:
            object.__setattr__(self, "likelihood", deepcopy(self.likelihood).double().requires_grad_(False).eval())
            found = self._at(torch.zeros(2, dtype=torch.float64))
            shape, value = found.batch_shape, found.sample()
        except Exception as error:
            raise ValueError(
                f"The likelihood {type(self.likelihood).__name__} gives no distribution of y for one f ({error}); use one of "
                "GPyTorch's with one f and without inputs, or one of gwi's likelihoods."
            ) from error
        if tuple(shape) != (2,) or value.shape != (2,):
            raise ValueError(
                f"The likelihood {type(self.likelihood).__name__} gives {tuple(shape)} numbers for two f; expected two."
            )
        object.__setattr__(self, "is_discrete", bool(getattr(found.support, "is_discrete", False)))

    @property
    def name(self) -> str:
        """That of its class."""
        return type(self.likelihood).__name__

    def _at(self, f: Tensor) -> Distribution:
        law: Distribution = self.likelihood.forward(f)
        # What y may be has been looked at; means of y, at which a curvature is asked for, may lie between values.
        law._validate_args = False
        return law

    @property
    def support(self) -> tuple[float, float]:
        """From the distribution's."""
        known: Any = self._at(torch.zeros(1, dtype=torch.float64)).support
        low, high = (getattr(known, name, None) for name in ("lower_bound", "upper_bound"))
        if type(known).__name__ in ("_Boolean", "_Boolean_"):
            return 0.0, 1.0
        return -math.inf if low is None else float(low), math.inf if high is None else float(high)

    def log_prob(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """As the distribution has it."""
        y, f = torch.broadcast_tensors(y, f)
        return self._at(f.double()).log_prob(y.double()).to(f)

    def _derivatives(self, y: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            y, at = torch.broadcast_tensors(y, f)
            at = at.detach().double().requires_grad_(True)
            (slope,) = torch.autograd.grad(self._at(at).log_prob(y.double()).sum(), at, create_graph=True)
            bent = torch.autograd.grad(slope.sum(), at)[0] if slope.requires_grad else torch.zeros_like(at)
        return slope.detach().to(f), -bent.to(f)

    def score(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """By differentiation."""
        return self._derivatives(y, f)[0]

    def curvature(self, y: Tensor, f: Tensor, phi: Tensor) -> Tensor:
        """−∂² log p/∂f² at y itself where it is positive, else the square of the slope, whose mean is the same."""
        slope, bent = self._derivatives(y, f)
        return torch.where(bent > 0, bent, slope.square()).clamp_min(LEAST_CURVATURE)

    def information(self, f: Tensor, phi: Tensor) -> Tensor:
        """E over y of the curvature, by draws: at its own middle a density with a kink, such as Laplace's, has none."""
        rng, at = np.random.default_rng(0), f.cpu().numpy()
        drawn = (torch.from_numpy(self.draw(at, phi.cpu().numpy(), rng)).to(f) for _ in range(NUM_DRAWS))
        return torch.stack([self.curvature(y, f, phi) for y in drawn]).mean(0)

    def mean(self, f: Tensor, phi: Tensor) -> Tensor:
        """The distribution's."""
        return self._at(f.double()).mean.detach().to(f)

    def variance(self, f: Tensor, phi: Tensor) -> Tensor:
        """The distribution's."""
        return self._at(f.double()).variance.detach().to(f)

    def link(self, mean: Tensor) -> Tensor:
        """The mean as it is: predictors learn numbers of the kind of f."""
        return mean

    def cumulative(self, y: Array, f: Array, phi: Array) -> Array:
        """In closed form for the distributions that torch gives none for."""
        y, f = np.broadcast_arrays(np.asarray(y, dtype=np.float64), np.asarray(f, dtype=np.float64))
        law: Any = self._at(torch.from_numpy(f.copy()))
        at = torch.from_numpy(y.copy())
        kind = type(law).__name__
        numbers = {name: getattr(law, name).detach().numpy() for name in law.arg_constraints if hasattr(law, name)}
        whole = np.floor(y)
        if kind == "StudentT":
            return np.asarray(student.cdf((y - numbers["loc"]) / numbers["scale"], numbers["df"]))
        if kind == "Beta":
            return betainc(numbers["concentration1"], numbers["concentration0"], np.clip(y, 0.0, 1.0))
        if kind == "Poisson":
            return np.where(whole < 0, 0.0, gammaincc(np.maximum(whole, 0.0) + 1, numbers["rate"]))
        if kind == "NegativeBinomial":
            chance = 1 - numbers["probs"]
            return np.where(whole < 0, 0.0, betainc(numbers["total_count"], np.maximum(whole, 0.0) + 1, chance))
        if kind == "Bernoulli":
            return np.where(whole < 0, 0.0, np.where(whole < 1, 1 - numbers["probs"], 1.0))
        low, high = self.support
        with torch.no_grad():
            inside = law.cdf(at.clamp(max(low, -1e300), min(high, 1e300))).numpy()
        return np.where(y < low, 0.0, inside)

    def draw(self, f: Array, phi: Array, rng: np.random.Generator) -> Array:
        """By torch's generator, seeded from this one."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**31 - 1)))
            return self._at(torch.from_numpy(np.ascontiguousarray(f))).sample().double().numpy()

    def width(self, y: Any, phi: Any) -> Any:
        """A third: likelihoods of GPyTorch have no dispersion to go by."""
        return 0.3 + 0.0 * y + 0.0 * phi

    def working(self, y: Tensor) -> Tensor:
        """The f, of a grid, that y makes the most likely; nearer to zero where that makes little difference."""
        near, far = torch.linspace(-6, 6, 121), torch.logspace(math.log10(6.2), 6, 120)
        for grid in (torch.cat([-far.flip(0), near, far]), near):
            at = grid.to(y.device, torch.float64)
            try:
                with torch.no_grad():
                    values = self.log_prob(y.double()[..., None], at.expand(*y.shape, -1), torch.ones_like(at))
                break
            except ValueError:
                # A link such as the exponential has no numbers far out.
                if grid is near:
                    raise
        values = values.nan_to_num(nan=-math.inf)
        # Of two labels one is the likelier the farther out f is, without end.
        near_best = values >= values.amax(-1, keepdim=True) - LITTLE
        return at[torch.where(near_best, -at.abs(), -math.inf).argmax(-1)].to(y)

    def rough_dispersion(self, y: Tensor, mean: Tensor, weight: Tensor) -> float:
        """None."""
        return 1.0
