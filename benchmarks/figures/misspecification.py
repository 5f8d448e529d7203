"""A periodic kernel with a mean that does not repeat: ten periods away the kernel is sure and the mean is wrong.

The paper's own warning [ap:model_misspecification], what a diagnostic says to it, and the remedy: a mean of periodic features.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor, nn

from benchmarks.figures.style import BLACK, GREEN, PICTURES, RECORDS, SEEN, UNSEEN, VERMILION, Array, band, canvas, look, save
from benchmarks.tables.common.records import read, write
from gwi import GWIRegressor
from gwi.core.networks import mlp
from gwi.parts import Covariance, Gaussian

NAME = "misspecification"
PERIOD, NOISE_STD = 2.0, 0.2
MEANS = {"plain network": "plain network", "periodic features": "network on sin and cos of 2πx/p"}
# Errors of more than so many predicted standard deviations, where less than so much of the prior variance is left.
LARGE_ERROR, SURE = 2.0, 0.2


@dataclass(frozen=True)
class Setting:
    """How much of everything.

    Attributes:
        num_data: rows, over three periods.
        num_away: rows of three periods, ten periods away.
        num_points: of each curve.
    """

    num_data: int = 150
    num_away: int = 60
    num_points: int = 91


@dataclass(frozen=True)
class Finding:
    """What a diagnostic says, as the library's own do."""

    severity: str
    what: str


def truth(x: Array) -> Array:
    """A function of period two."""
    phase = 2 * math.pi * x / PERIOD
    return np.sin(phase) + 0.5 * np.cos(2 * phase)


class PeriodicFeatures(nn.Module):
    """sin and cos of 2πx/p."""

    def __init__(self, period: float) -> None:
        super().__init__()
        self.frequency = 2 * math.pi / period

    def forward(self, x: Tensor) -> Tensor:
        """Two features a column."""
        return torch.cat([torch.sin(self.frequency * x), torch.cos(self.frequency * x)], dim=-1)


def estimator(kind: str, x: Array) -> GWIRegressor:
    """A network of tanh units, plain or on periodic features, and a periodic kernel; the period is known."""
    generator = torch.Generator().manual_seed(0)
    period = PERIOD / float(x.std())
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.PeriodicKernel()).double()
    kernel.base_kernel.period_length = torch.tensor(period, dtype=torch.float64)
    kernel.base_kernel.raw_period_length.requires_grad_(False)
    plain = kind == "plain network"
    network = mlp(1 if plain else 2, hidden=(30, 30), generator=generator)
    if plain:
        # Steep units, spread over the rows: from flat ones it takes long to learn three periods.
        first: Any = network[0]
        with torch.no_grad():
            first.weight.mul_(15)
            first.bias.uniform_(-5, 5, generator=generator)
    mean = network if plain else nn.Sequential(PeriodicFeatures(period), *network)
    return GWIRegressor(
        mean,
        kernel=kernel,
        random_state=0,
        covariance=Covariance(num_inducing=30),
        likelihood=Gaussian("constant", tails="normal"),
    )


def diagnosis(fitted: GWIRegressor, x: Array, y: Array) -> Sequence[Any]:
    """Findings of `gwi.evaluation.diagnostics.diagnose` on rows that the model has not seen; without it, one check of our own."""
    if importlib.util.find_spec("gwi.evaluation.diagnostics") is not None:
        return importlib.import_module("gwi.evaluation.diagnostics").diagnose(fitted, x, y).findings
    mean, std = fitted.predict(x, return_std=True)
    error = math.sqrt(float(np.square((y - mean) / std).mean()))
    left = float(np.mean(fitted.ood_score(x)))
    if error < LARGE_ERROR or left > SURE:
        return ()
    return (
        Finding(
            "severe",
            f"Mean and kernel disagree: the kernel takes these rows for known ({left:.1%} of the prior variance is left), yet "
            f"the mean's errors are {error:.1f} predicted standard deviations.",
        ),
    )


def sample(setting: Setting) -> dict[str, tuple[Array, Array]]:
    """Noisy rows at home and away."""
    rng = np.random.default_rng(0)
    found = {}
    for place, start, count in (("home", 0.0, setting.num_data), ("away", 10 * PERIOD, setting.num_away)):
        x = np.sort(rng.uniform(start, start + 3 * PERIOD, count))
        found[place] = x, truth(x) + NOISE_STD * rng.standard_normal(count)
    return found


def compute(folder: Path = RECORDS, setting: Setting | None = None) -> None:
    setting = setting or Setting()
    data = sample(setting)
    curves: list[dict[str, object]] = []
    facts: list[dict[str, object]] = []
    said: list[dict[str, object]] = []
    for kind in MEANS:
        x, y = data["home"]
        fitted = estimator(kind, x).fit(x[:, None], y)
        for place, (a, b) in data.items():
            start = 0.0 if place == "home" else 10 * PERIOD
            grid = np.linspace(start, start + 3 * PERIOD, setting.num_points)
            mean, std = fitted.predict(grid[:, None], return_std=True)
            columns = zip(grid.tolist(), mean.tolist(), std.tolist(), strict=True)
            curves += ({"mean_kind": kind, "place": place, "x": c, "mean": d, "std": e} for c, d, e in columns)
            at, spread = fitted.predict(a[:, None], return_std=True)
            facts.append(
                {
                    "mean_kind": kind,
                    "place": place,
                    "coverage": float((np.abs(b - at) <= 1.96 * spread).mean()),
                    "std_y": float(spread.mean()),
                    "prior_left": float(fitted.ood_score(a[:, None]).mean()),
                    "rmse": math.sqrt(float(np.square(b - at).mean())),
                }
            )
        away, targets = data["away"]
        said += (
            {"mean_kind": kind, "severity": str(finding.severity), "what": str(finding.what)}
            for finding in diagnosis(fitted, away[:, None], targets)
        )
        if not any(row["mean_kind"] == kind for row in said):
            said.append({"mean_kind": kind, "severity": "none", "what": "nothing"})
    points = [
        {"place": place, "x": a, "y": b} for place, (x, y) in data.items() for a, b in zip(x.tolist(), y.tolist(), strict=True)
    ]
    for part, rows in (("curves", curves), ("points", points), ("facts", facts), ("findings", said)):
        write(f"{NAME}_{part}", rows, echo=part in ("facts", "findings"), folder=folder)


def draw(folder: Path = PICTURES, records: Path = RECORDS) -> None:
    facts = {(r["mean_kind"], r["place"]): r for r in read(f"{NAME}_facts", records)}
    with look():
        figure = canvas(10.5, 4.9)
        grid = figure.subplots(2, 3, width_ratios=[1, 1, 0.66])
        for line, kind in zip(grid, MEANS, strict=True):
            for axes, place in zip(line, ("home", "away"), strict=False):
                _draw_panel(axes, kind, place, records)
                share = float(facts[kind, place]["coverage"])
                where = "training data" if place == "home" else "ten periods away"
                axes.set_title(f"{where}: 95 % intervals hold {share:.0%}")
            line[0].set_ylabel(MEANS[kind] if kind == "plain network" else "network on\nsin and cos of 2πx/p")
            line[1].set_yticklabels([])
            _draw_findings(line[2], kind, records)
        for axes in grid[1, :2]:
            axes.set_xlabel("x")
        handles, labels = grid[0, 1].get_legend_handles_labels()
        home = dict(zip(*reversed(grid[0, 0].get_legend_handles_labels()), strict=True))
        merged = {**home, **dict(zip(labels, handles, strict=True))}
        figure.legend(merged.values(), merged.keys(), loc="outside lower center", ncols=len(merged), markerscale=1.6)
        save(figure, NAME, folder)


def _draw_panel(axes: Axes, kind: str, place: str, records: Path) -> None:
    rows = [r for r in read(f"{NAME}_curves", records) if (r["mean_kind"], r["place"]) == (kind, place)]
    x, mean, std = (np.array([float(r[c]) for r in rows]) for c in ("x", "mean", "std"))
    points = [(float(r["x"]), float(r["y"])) for r in read(f"{NAME}_points", records) if r["place"] == place]
    band(axes, x, mean, 1.96 * std, label="95 % of y")
    colour, marker, label = (SEEN, "o", "training data") if place == "home" else (UNSEEN, "x", "unseen data")
    edge = 0.0 if place == "home" else 0.9
    axes.plot(*zip(*points, strict=True), marker, color=colour, ms=2.5 if place == "home" else 3.5, mew=edge, label=label)
    axes.plot(x, mean, color=BLACK, lw=1.5, label="mean")
    axes.plot(x, truth(x), color=GREEN, lw=1, ls="--", label="truth")
    axes.set(ylim=(-3.6, 3.6), xlim=(x[0], x[-1]))


def _draw_findings(axes: Axes, kind: str, records: Path) -> None:
    """What the diagnostic said about the rows away, the severest first."""
    rows = [r for r in read(f"{NAME}_findings", records) if r["mean_kind"] == kind]
    severe = [r for r in rows if r["severity"] == "severe"]
    shown = (severe or rows)[0]
    colour = VERMILION if severe else GREEN
    axes.axis("off")
    axes.set_title("the diagnostic says", loc="left")
    heading = "no finding" if shown["severity"] == "none" else shown["severity"]
    axes.text(0, 0.93, heading, color=colour, fontweight="bold", fontsize=10, va="top", transform=axes.transAxes)
    text = "" if shown["severity"] == "none" else "\n".join(textwrap.wrap(shown["what"], 34))
    axes.text(0, 0.8, text, fontsize=8.5, va="top", transform=axes.transAxes)


def words(records: Path = RECORDS) -> str:
    facts = {
        (r["mean_kind"], r["place"]): {k: float(v) for k, v in r.items() if k not in ("mean_kind", "place")}
        for r in read(f"{NAME}_facts", records)
    }
    plain, away, mended = facts["plain network", "home"], facts["plain network", "away"], facts["periodic features", "away"]
    return (
        f"Ten periods away the plain network's standard deviation of y is {away['std_y']:.2f}, as at home "
        f"({plain['std_y']:.2f}), and {away['prior_left']:.1%} of the prior variance is left, but its error is "
        f"{away['rmse']:.2f} and the 95 % intervals hold {away['coverage']:.0%} of the targets. With periodic features the "
        f"error is {mended['rmse']:.2f} and they hold {mended['coverage']:.0%}."
    )
