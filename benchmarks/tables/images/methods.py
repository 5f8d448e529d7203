"""Every method of the image table by name."""

from __future__ import annotations

from benchmarks.tables.images import bayesian, ours, posthoc
from benchmarks.tables.images.interface import Method

METHODS: dict[str, Method] = {
    "gwi": ours.post_hoc("features"),
    "gwi, corrected": ours.post_hoc("features", correct=True),
    "gwi, mirrored": ours.post_hoc("features", mirrored=True),
    "gwi, with energy": ours.post_hoc("features", energy=True),
    "gwi, ensemble": ours.ensemble,
    "gwi, last features": ours.post_hoc("features", layer="pool"),
    "gwi, pixels": ours.post_hoc("rbf"),
    "gwi, naive features": ours.naive,
    "gwi, joint": ours.joint,
    "GWI-net (paper)": ours.paper,
    "MAP": posthoc.map_estimate,
    "MAP, temperature": posthoc.temperature_scaling,
    "MAP, temperature, mirrored": posthoc.mirrored_temperature_scaling,
    "MAP, last layer refitted": posthoc.refitted_last_layer,
    "deep ensemble": posthoc.deep_ensemble,
    "deep ensemble, temperature": posthoc.scaled_ensemble,
    "MC dropout": bayesian.mc_dropout,
    "mean-field VI": bayesian.mean_field_inference,
    "Kronecker Laplace": bayesian.laplace(damped=False),
    "Kronecker Laplace, damped": bayesian.laplace(damped=True),
    "energy score": posthoc.energy_score,
    "kNN distance": posthoc.nearest_neighbours("dense"),
    "kNN distance, pooled features": posthoc.nearest_neighbours("pool"),
    "kNN distance, all layers": posthoc.nearest_neighbours("all"),
    "kNN distance, with energy": posthoc.with_energy(posthoc.nearest_neighbours("all")),
}
OURS = "gwi"
PAPER = ("GWI-net (paper)",)
# Other scores for outliers: their probabilities are those of these methods.
SCORES_ONLY = {
    "gwi, with energy": "gwi",
    "energy score": "MAP",
    "kNN distance": "MAP",
    "kNN distance, pooled features": "MAP",
    "kNN distance, all layers": "MAP",
    "kNN distance, with energy": "MAP",
}
# Those that share more networks than one.
ENSEMBLES = ("gwi, ensemble", "deep ensemble", "deep ensemble, temperature")
# Those that are not in the package.
PEERS = tuple(name for name in METHODS if not name.lower().startswith("gwi"))
