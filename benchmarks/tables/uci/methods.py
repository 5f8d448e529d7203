"""Every method of the table by name: ours, the paper's two, and the peers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch

from benchmarks.studies.ablation import finished, without_covariance
from benchmarks.tables.uci import networks, peers
from benchmarks.tables.uci.interface import Budget, Fitted, Method, hold_out
from benchmarks.tables.uci.treated import treated, treated_gp, treated_mean
from gwi import GWIRegressor
from gwi._typing import Array
from gwi.core.laws.protocol import PredictiveLaw
from gwi.fitting.regression import RegressionTask
from gwi.models.numbers import NumberModel
from gwi.models.regression import RegressionModel
from gwi.parts import Covariance, Gaussian, Network, Paper


def law_of(model: NumberModel, x: Array) -> PredictiveLaw:
    """The predictive law of a fitted model with one target."""
    return model.laws(x)[0]


def single(name: str, fit: Callable[[Array, Array, int, Budget], Fitted]) -> Method:
    """A method that stands alone, with its times taken."""

    def method(x: Array, y: Array, seed: int, budget: Budget) -> dict[str, Fitted]:
        start = time.perf_counter()
        fitted = fit(x, y, seed, budget)
        return {name: replace(fitted, cpu_seconds=budget.spent(), seconds=time.perf_counter() - start)}

    return method


# What the default's parts do: its means, with less and less of the rest.
ABLATIONS = ("gwi, W₂", "gwi, normal tails", "gwi, no disagreement", "gwi, no r", "gwi, constant variance")


def gwi(x: Array, y: Array, seed: int, budget: Budget) -> dict[str, Fitted]:
    """The default, and its ablations, which share its means: each is charged with the time of the means."""
    start = time.perf_counter()
    model = GWIRegressor(random_state=seed, max_time=budget.seconds).fit(x, y)
    summary = model.summary_
    chosen = model
    if not isinstance(model.model_, RegressionModel):
        # Parts are taken away from the Gaussian likelihood, whatever was chosen.
        chosen = GWIRegressor(random_state=seed, max_time=budget.seconds, likelihood="gaussian").fit(x, y)
    settings: dict[str, Any] = {
        "means": {member.name: member.weights[0] for member in summary.members},
        "inducing": summary.num_inducing,
        "divergence_weight": summary.divergence_weight[0],
        "likelihood": summary.likelihood,
        "noise": "constant" if math.isinf(chosen.summary_.noise[0]) else f"input-dependent, penalty {chosen.summary_.noise[0]:g}",
        "tempering": summary.tempering[0],
        "degrees_of_freedom": chosen.summary_.degrees_of_freedom[0],
        "disagreement_weight": summary.disagreement_weight[0],
    }
    found = {
        "gwi": Fitted(lambda new: law_of(model.model_, new), settings, budget.spent(), time.perf_counter() - start),
    }
    shared_cpu, shared = found["gwi"].cpu_seconds, found["gwi"].seconds
    whole: dict[str, tuple[RegressionTask, Covariance, dict[str, Any]]] = {
        "gwi, W₂": (RegressionTask(), Covariance("wasserstein"), {"covariance": "wasserstein"}),
        "gwi, normal tails": (RegressionTask(Gaussian(tails="normal")), Covariance(), {"tails": "normal"}),
        "gwi, no disagreement": (RegressionTask(disagreement=False), Covariance(), {"disagreement": False}),
    }
    for name, (task, covariance, options) in whole.items():
        clock, start = Budget(budget.seconds), time.perf_counter()
        other = finished(chosen, task, covariance)
        found[name] = Fitted(
            partial(law_of, other),
            settings | options | {"degrees_of_freedom": float(other.degrees_of_freedom[0])},
            shared_cpu + clock.spent(),
            shared + time.perf_counter() - start,
        )
    kinds: dict[str, Literal["auto", "constant"]] = {"gwi, no r": "auto", "gwi, constant variance": "constant"}
    fit = chosen._fit
    assert fit is not None
    for name, kind in kinds.items():
        found[name] = Fitted(
            partial(without_covariance, fit, noise=kind),
            settings | {"covariance": "none", "noise": kind},
            shared_cpu,
            shared,
        )
    return found


def gwi_net(x: Array, y: Array, seed: int, budget: Budget) -> Fitted:
    """GWI-net as the estimator trains it: averaged networks, each without a fold, and r around them."""
    model = GWIRegressor("network", random_state=seed).fit(x, y)
    return Fitted(lambda new: law_of(model.model_, new), {"noise": model.summary_.noise[0]}, 0.0, 0.0)


def one_network(x: Array, y: Array, seed: int, budget: Budget) -> Fitted:
    """GWI-net of one network, stopped and judged by a fifth of the rows, and r around it."""
    learn, judge = hold_out(len(x), 0.2, seed)
    model = GWIRegressor(Network(per_fold=1), random_state=seed)
    model.fit(x[learn], y[learn], validation=(x[judge], y[judge]))
    return Fitted(lambda new: law_of(model.model_, new), {"noise": model.summary_.noise[0]}, 0.0, 0.0)


def paper(kind: Literal["network", "svgp"]) -> Callable[[Array, Array, int, Budget], Fitted]:
    """GWI-net or GWI: SVGP by the protocol of the paper's appendix, with as many steps as the budget takes."""

    def fit(x: Array, y: Array, seed: int, budget: Budget) -> Fitted:
        def fitted(steps: int) -> GWIRegressor:
            return GWIRegressor(Paper(kind, max_steps=steps), random_state=seed).fit(x, y)

        steps = affordable_steps(fitted, budget, most=10_000 // {"network": 4, "svgp": 5}[kind])
        model = fitted(steps)
        settings = {"max_steps": steps, "inducing": model.summary_.num_inducing, "note": model.summary_.note}
        return Fitted(lambda new: law_of(model.model_, new), settings, 0.0, 0.0)

    return fit


def affordable_steps(fit: Callable[[int], object], budget: Budget, *, most: int, few: int = 8) -> int:
    """Gradient steps for which a fit stays inside the budget: what it costs to begin, and what each step costs.

    Short fits tell, each three times as long as the one before, until one takes a twentieth of the budget and half as long again
    as the last: the first steps of a fit may be several times cheaper than the later ones.
    """
    if budget.share_of_steps < 1:
        return budget.steps(most)
    trials = [(0, 0.0)]
    for count in (few * 3**power for power in range(10)):
        clock = Budget(budget.seconds)
        fit(count)
        trials.append((count, clock.spent()))
        if len(trials) > 2 and (trials[-1][1] > max(1.5 * trials[-2][1], budget.seconds / 20) or count >= most):
            break
    (short, less), (long, more) = trials[-2:]
    each = max((more - less) / (long - short), 1e-6)
    beginning = max(less - short * each, 0.0)
    return max(few, min(most, int((0.9 * budget.left() - beginning) / each)))


METHODS: dict[str, Method] = {
    "gwi": gwi,
    "GWI-net (paper)": single("GWI-net (paper)", paper("network")),
    "GWI: SVGP (paper)": single("GWI: SVGP (paper)", paper("svgp")),
    "GWI-net": single("GWI-net", gwi_net),
    "GWI-net, one network": single("GWI-net, one network", one_network),
    "exact GP": single("exact GP", peers.exact_gp),
    "SVGP": single("SVGP", peers.svgp),
    "deep ensemble": single("deep ensemble", networks.deep_ensemble),
    "MC dropout": single("MC dropout", networks.mc_dropout),
    "Bayes by Backprop": single("Bayes by Backprop", networks.bayes_by_backprop),
    "last-layer Laplace": single("last-layer Laplace", networks.last_layer_laplace),
    "NGBoost": single("NGBoost", peers.ngboost),
    "histogram boosting": single("histogram boosting", peers.histogram_boosting),
    "exact GP, treated": single("exact GP, treated", treated_gp),
    "deep ensemble, treated": single("deep ensemble, treated", treated(networks.deep_ensemble)),
    "NGBoost, treated": single("NGBoost, treated", treated(peers.ngboost)),
    "histogram boosting, treated": single("histogram boosting, treated", treated_mean(peers.histogram_boosting)),
}
# Ours too, and not ranked: the mean alone, and the mean of one network.
VARIANTS = ("GWI-net", "GWI-net, one network")
# Peers with our tails and out-of-fold scale.
TREATED = tuple(name for name in METHODS if name.endswith(", treated"))
# The records that each method yields.
YIELDS = {name: (name,) for name in METHODS} | {"gwi": ("gwi", *ABLATIONS)}


def fit(name: str, x: Array, y: Array, seed: int, budget: Budget) -> dict[str, Fitted]:
    """Fit a method to training rows."""
    torch.set_num_threads(1)
    return METHODS[name](x, y, seed, budget)
