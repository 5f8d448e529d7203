"""Draws from the exact posterior of the small network by the no-U-turn sampler (Hoffman and Gelman, 2014).

NumPyro draws them, `pip install "gwi[figures]"`; the record holds what it drew, so that nothing else needs it.
"""

from __future__ import annotations

import importlib
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures.limit import NetworkPrior, two_clusters
from benchmarks.figures.style import RECORDS, Array

NAME = "two_dimensions_nuts"
PARTS = ("w1", "b1", "w2", "b2")


def redraw(
    folder: Path = RECORDS,
    prior: NetworkPrior | None = None,
    *,
    num_chains: int = 4,
    num_warmup: int = 600,
    num_draws: int = 800,
    kept: int = 200,
    seed: int = 0,
) -> None:
    """Draw weights and write every so many-th of them to the record.

    Args:
        folder: of the records.
        prior: of weights; Foong et al.'s unless given.
        num_chains: one after another.
        num_warmup: draws that tune step size and mass of each chain, and are thrown away.
        num_draws: of each chain after that.
        kept: of those.
        seed: of the sampler.
    """
    try:
        jax, numpyro = importlib.import_module("jax"), importlib.import_module("numpyro")
        infer, diagnostics = importlib.import_module("numpyro.infer"), importlib.import_module("numpyro.diagnostics")
    except ModuleNotFoundError as error:
        raise SystemExit(
            f'Drawing from the network\'s posterior needs NumPyro, and there is no {error.name}: pip install "gwi[figures]".'
        ) from error
    jax.config.update("jax_enable_x64", True)
    prior = prior or NetworkPrior()
    x, y = two_clusters(prior)
    normal, jnp = numpyro.distributions.Normal, jax.numpy
    shapes = {"w1": (x.shape[1], prior.width), "b1": (prior.width,), "w2": (prior.width,), "b2": ()}
    stds = {
        "w1": prior.weight_std / math.sqrt(x.shape[1]),
        "b1": prior.bias_std,
        "w2": prior.weight_std / math.sqrt(prior.width),
        "b2": prior.bias_std,
    }

    def model() -> Any:
        # Standard normal variables, scaled: the sampler sees directions of one size.
        unit = {name: numpyro.sample(name, normal(0.0, 1.0).expand(shapes[name]).to_event(len(shapes[name]))) for name in PARTS}
        p = {name: stds[name] * value for name, value in unit.items()}
        f = jnp.maximum(jnp.asarray(x) @ p["w1"] + p["b1"], 0.0) @ p["w2"] + p["b2"]
        numpyro.sample("y", normal(f, prior.noise_std), obs=jnp.asarray(y))

    start = time.perf_counter()
    sampler = infer.MCMC(
        infer.NUTS(model, target_accept_prob=0.9),
        num_warmup=num_warmup,
        num_samples=num_draws,
        num_chains=num_chains,
        chain_method="sequential",
        progress_bar=False,
    )
    sampler.run(jax.random.PRNGKey(seed), extra_fields=("diverging", "num_steps"))
    drawn = {name: stds[name] * np.asarray(value) for name, value in sampler.get_samples(group_by_chain=True).items()}
    extra = sampler.get_extra_fields()
    weights = {name: value[:, :: num_draws // kept].reshape(-1, *shapes[name]) for name, value in drawn.items()}
    # Chains agree on the function, not on which unit does what: convergence is judged in function space.
    line = np.linspace(-2, 2, 21)[:, None] * np.ones((1, 2))
    f = np.stack([network_values(line, {name: drawn[name][chain] for name in PARTS}) for chain in range(num_chains)])
    facts: dict[str, Any] = {
        "r_hat": float(np.max(diagnostics.split_gelman_rubin(f))),
        "effective_draws": float(np.min(diagnostics.effective_sample_size(f))),
        "divergences": float(np.asarray(extra["diverging"]).sum()),
        "steps_per_draw": float(np.asarray(extra["num_steps"]).mean()),
        "num_draws": float(num_chains * num_draws),
        "seconds": time.perf_counter() - start,
    }
    print({name: round(value, 3) for name, value in facts.items()}, flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {name: value.astype(np.float32) for name, value in weights.items()}
    np.savez_compressed(folder / f"{NAME}.npz", **arrays, **facts)


def network_values(x: Array, weights: dict[str, Array]) -> Array:
    """f at rows for each draw of the weights, one row a draw."""
    hidden = np.maximum(np.einsum("nd,sdh->snh", x, weights["w1"]) + weights["b1"][:, None, :], 0)
    return np.einsum("snh,sh->sn", hidden, weights["w2"]) + weights["b2"][:, None]


def posterior(x: Array, records: Path = RECORDS, chunk: int = 500) -> tuple[Array, Array]:
    """Mean and standard deviation of f at rows over the kept draws."""
    with np.load(records / f"{NAME}.npz") as file:
        weights = {name: file[name].astype(np.float64) for name in PARTS}
    parts = [network_values(x[i : i + chunk], weights) for i in range(0, len(x), chunk)]
    return np.concatenate([f.mean(0) for f in parts]), np.concatenate([f.std(0, ddof=1) for f in parts])


def facts(records: Path = RECORDS) -> dict[str, float]:
    """How well the sampler mixed."""
    with np.load(records / f"{NAME}.npz") as file:
        return {name: float(file[name]) for name in file.files if name not in PARTS}


if __name__ == "__main__":
    redraw()
