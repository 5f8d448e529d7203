"""Weak priors on the kernel's scales, or none: what they do to the outputscale and to held-out rows.

    python -m benchmarks.studies.hyper_priors

writes results/hyper_priors.csv. Rows held out are taken from the training part of the first standard split, five times a tenth,
so the record sees no test row. SVGP mean and Titsias' covariance, k-means Z, collapsed bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from benchmarks.tables.common import records
from benchmarks.tables.uci.data import UCIName, load_uci
from gwi.core.covariance import titsias_covariance
from gwi.core.inducing import choose_inducing_points
from gwi.core.kernels import SparsePosteriorKernel, default_kernel
from gwi.core.likelihoods.gaussian import GaussianLikelihood
from gwi.core.means import KernelMean, titsias_coefficients
from gwi.core.measures import GaussianMeasure
from gwi.core.prior import fit_prior
from gwi.core.row_sums import row_sums

SETS: tuple[UCIName, ...] = ("boston", "concrete", "energy", "wine_red", "yacht")


def rows() -> Iterator[dict[str, Any]]:
    for name in SETS:
        features, target = load_uci(name)
        training = np.random.RandomState(1).choice(len(features), len(features), replace=False)[: round(0.9 * len(features))]
        for repeat in range(5):
            order = torch.from_numpy(training[np.random.RandomState(repeat).permutation(len(training))])
            held_out, kept = order[: len(order) // 10], order[len(order) // 10 :]
            centre, scale = features[kept].mean(0), features[kept].std(0)
            y_centre, y_scale = target[0, kept].mean(), target[0, kept].std()
            x, x_new = ((features[i] - centre) / scale for i in (kept, held_out))
            y, y_new = ((target[:, i] - y_centre) / y_scale for i in (kept, held_out))
            for num_inducing in (50, 100):
                z = choose_inducing_points(x, num_inducing, "kmeans", generator=torch.Generator().manual_seed(0))
                for kind in ("none", "weak"):
                    fit = fit_prior(default_kernel(x.shape[1], hyper_priors=kind == "weak"), x, y, inducing_points=z)
                    with torch.no_grad():
                        sums = row_sums(fit.kernel, z, x, y, noise_variance=fit.noise_variance)
                        mean = KernelMean(fit.kernel, z, titsias_coefficients(sums))
                        q = GaussianMeasure(mean, SparsePosteriorKernel(fit.kernel, z, titsias_covariance(sums)))
                        nll = GaussianLikelihood(fit.noise_variance).nll(y_new, *q.marginals(x_new), x_new).mean()
                    yield {
                        "set": name,
                        "repeat": repeat,
                        "num_inducing": num_inducing,
                        "hyper_priors": kind,
                        "nll": f"{(nll + y_scale.log()).item():.4f}",
                        "outputscale": f"{fit.kernel.outputscale.item():.4f}",
                        "noise_variance": f"{fit.noise_variance:.5f}",
                        "steps": fit.num_iterations,
                    }


def main() -> None:
    torch.set_num_threads(1)
    records.write("hyper_priors", rows())


if __name__ == "__main__":
    main()
