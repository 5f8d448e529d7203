"""What held-out rows say of counts: widths of f that are right where Poisson's law is, and bounded where it is not."""

import pytest
import torch

from gwi.core.dispersion import MOST_TEMPERING, JudgedRows, fit_dispersion
from gwi.core.likelihoods.families import NegativeBinomialFamily, PoissonFamily
from gwi.core.noise_fit import DISAGREEMENT_WEIGHT


def counts(generator, spread, num_rows=600):
    """Counts whose f is normal around a known mean, so many times as wide as r and d² say."""
    mean = torch.linspace(0, 2, num_rows, dtype=torch.float64)
    r, d = (torch.rand(num_rows, dtype=torch.float64, generator=generator) * 0.1 + 0.01 for _ in range(2))
    f = mean + (spread * (r + 3 * d)).sqrt() * torch.randn(num_rows, dtype=torch.float64, generator=generator)
    y = torch.poisson(f.exp(), generator=generator)
    return JudgedRows(y, mean, r, d, torch.zeros(num_rows, 0, dtype=torch.float64), torch.ones(num_rows, dtype=torch.float64))


@pytest.mark.parametrize("spread", [8.0, 15.0, 30.0])
def test_poissons_law_widens_f_to_its_bounds_and_no_further(generator, spread):
    rows = counts(generator, spread)
    fit = fit_dispersion(PoissonFamily(), rows)
    assert fit.tempering == pytest.approx(MOST_TEMPERING)
    assert 0.8 < fit.disagreement_weight / (MOST_TEMPERING * DISAGREEMENT_WEIGHT) < 1 + 1e-9
    assert fit_dispersion(NegativeBinomialFamily(), rows).log_density.mean() > fit.log_density.mean()


def test_poissons_law_leaves_f_as_wide_as_it_is(generator):
    fit = fit_dispersion(PoissonFamily(), counts(generator, 1.0))
    assert 0.5 < fit.tempering < 2
    assert fit.disagreement_weight == pytest.approx(DISAGREEMENT_WEIGHT, rel=0.6)
