"""Covariances of rows that stand for several."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from gwi import GWIRegressor
from gwi.core.kernels import default_kernel
from gwi.core.prior import PriorFit
from gwi.core.scaling import Scales
from gwi.fitting import held_out_covariance
from gwi.fitting.data import ArrayData, HeldOut
from gwi.fitting.held_out_covariance import CovarianceSolver
from gwi.fitting.logit_targets import indicators
from gwi.parts import Covariance
from waves import wave


def test_a_row_that_stands_for_three_counts_as_three():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 2, generator=generator, dtype=torch.float64)
    y = indicators(np.arange(60) % 3, 3, "cpu")
    scales = Scales(np.zeros(2), np.ones(2), np.zeros(3), np.ones(3))
    ones = torch.ones_like(y[0])
    held_out = HeldOut(x[:5], y[:, :5], ones[:5], None, may_be_known=False)
    one = ArrayData(x, y, ones, held_out, scales, generator, stands_for=180)
    three = replace(one, x=x.repeat(3, 1), y=y.repeat(1, 3), weight=ones.repeat(3), stands_for=None)
    z = x[:8].clone()
    prior = PriorFit(default_kernel(2), 1.0, z, 0.0, 0, True, "")
    sums = [data.gram(prior.kernel, z) for data in (one, three)]
    assert sums[0].num_rows == sums[1].num_rows == 180
    torch.testing.assert_close(sums[0].gram, sums[1].gram)
    found = [CovarianceSolver(data, prior, z, Covariance("titsias")).solve([1.0])[0] for data in (one, three)]
    torch.testing.assert_close(found[0].whitened_covariance, found[1].whitened_covariance)
    torch.testing.assert_close(found[0].variance, found[1].variance)
    assert found[0].divergence_weight == pytest.approx(found[1].divergence_weight, rel=1e-12)


@pytest.mark.parametrize("kind", ["wasserstein", "trained"])
def test_the_gap_is_that_of_the_covariance_that_is_kept(kind, monkeypatch):
    x, y = wave(150)
    covariance = Covariance(kind, num_inducing=20)
    model = GWIRegressor("svgp", random_state=0, covariance=covariance).fit(x, y)
    assert "duality gap" not in str(model.summary_)
    # An S far from the optimum, as a solver that was stopped leaves it, is not kept in silence.
    monkeypatch.setattr(held_out_covariance, "bounded_by_prior", lambda s: torch.eye(len(s), dtype=s.dtype))
    worse = GWIRegressor("svgp", random_state=0, covariance=covariance).fit(x, y)
    found = re.search(r"duality gap (\S+), wanted 2e-03", str(worse.summary_))
    assert float(found[1]) > 0.01
