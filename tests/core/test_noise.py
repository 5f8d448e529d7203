"""The noise model finds what made the data, and is judged by rows it has not seen."""

import math
import warnings

import pytest
import torch

from gwi.core.noise import BY_NETWORK, fit_noise

F64 = torch.float64


def draws(num_rows, seed=0):
    return torch.randn(num_rows, dtype=F64, generator=torch.Generator().manual_seed(seed))


def features(num_rows, size=3, seed=1):
    return torch.randn(num_rows, size, dtype=F64, generator=torch.Generator().manual_seed(seed))


def generator():
    return torch.Generator().manual_seed(0)


def test_constant_noise_is_what_r_leaves_of_the_squared_errors():
    r = torch.full((4000,), 0.3, dtype=F64)
    fit = fit_noise(draws(4000) * 1.5, r, features(4000), generator=generator())
    assert math.isinf(fit.penalty)
    assert float(fit.noise(features(1))) == pytest.approx(1.5**2 - 0.3, rel=0.05)
    assert fit.disagreement_weight == 0


def test_noise_without_features_is_fitted_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = fit_noise(draws(100), torch.zeros(100, dtype=F64), features(100, 0), penalties=(), generator=generator())
    assert float(fit.noise(features(1, 0))) == pytest.approx(float(draws(100).square().mean()), rel=1e-6)


def test_slopes_are_found_where_they_are():
    x = features(3000)
    std = (0.2 + 0.5 * x[:, 0]).exp()
    fit = fit_noise(draws(3000) * std, torch.zeros(3000, dtype=F64), x, generator=generator())
    assert math.isfinite(fit.penalty)
    ratio = fit.noise(x) / std.square()
    assert 0.8 < float(ratio.quantile(0.05)) < float(ratio.quantile(0.95)) < 1.25


def test_means_that_disagree_where_they_err_add_to_the_variance_in_proportion():
    spread = features(4000, 1, seed=4)[:, 0].square()
    errors = draws(4000) * (0.1 + 4.0 * spread).sqrt()
    fit = fit_noise(errors, torch.zeros(4000, dtype=F64), features(4000), disagreement=spread, generator=generator())
    assert fit.disagreement_weight == pytest.approx(4.0, rel=0.15)
    assert float(fit.noise(features(1))) == pytest.approx(0.1, rel=0.2)


def test_disagreement_that_says_nothing_is_turned_down():
    spread = features(20_000, 1, seed=4)[:, 0].square()
    fit = fit_noise(draws(20_000), torch.zeros(20_000, dtype=F64), features(20_000), disagreement=spread, generator=generator())
    assert fit.disagreement_weight < 0.1


def test_far_rows_do_not_decide_a_fit_under_heavy_tails():
    # So few rows that no network joins, which would find the place of these.
    x = features(450)
    errors = draws(450)
    errors[:6] = 40.0
    x[:6, 0] = 2.5
    zeros = torch.zeros(450, dtype=F64)
    normal = fit_noise(errors, zeros, x, penalties=(3.0,), allow_constant=False, generator=generator())
    both = fit_noise(errors, zeros, x, penalties=(3.0,), allow_constant=False, degrees=(5.0, math.inf), generator=generator())
    assert both.degrees_of_freedom == 5.0
    row = torch.tensor([[2.0, 0.0, 0.0]], dtype=F64)
    assert float(both.noise(row)) < 0.2 * float(normal.noise(row))


def test_unseen_noise_is_less_sure_than_the_fit_itself():
    # More features than rows can bear: the fit flatters the rows it was made from.
    errors, x = draws(150), features(150, 30)
    zeros = torch.zeros(150, dtype=F64)
    fit = fit_noise(errors, zeros, x, penalties=(3.0,), allow_constant=False, generator=generator())
    flattered = (errors.square() / fit.noise(x)).mean()
    honest = (errors.square() / fit.unseen).mean()
    assert float(flattered) == pytest.approx(1.0, abs=0.1)
    assert honest > 1.3 * flattered


def waves_of_noise(num_rows, seed):
    x = features(num_rows, seed=seed)
    true = 0.1 + (2 * x[:, 0]).sin().abs()
    return x, true, true * draws(num_rows, seed + 100)


@pytest.mark.parametrize("seed", [0, 1])
def test_noise_that_bends_is_found_by_a_network(seed):
    x, _, residuals = waves_of_noise(1500, seed)
    fit = fit_noise(residuals, torch.full_like(residuals, 1e-4), x, generator=generator())
    assert fit.penalty == BY_NETWORK
    new, true, errors = waves_of_noise(3000, seed + 10)
    found, best = fit.noise(new), true.square()

    def nll(variance):
        return float((variance.log() + errors.square() / variance).mean() / 2)

    constant = nll(residuals.square().mean().expand_as(errors))
    # At least half of what there is to gain, and the variance is not doubled where r has its share.
    assert nll(found) < (constant + nll(best)) / 2
    whole = fit_noise(residuals, 0.5 * residuals.square().mean().expand_as(residuals), x, generator=generator())
    assert float(whole.noise(new).mean()) < float(found.mean())


def test_noise_that_does_not_bend_gets_no_network():
    x, residuals = features(1500), draws(1500)
    assert fit_noise(residuals, torch.full_like(residuals, 1e-4), x, generator=generator()).penalty != BY_NETWORK


def test_few_rows_have_constant_noise():
    fit = fit_noise(draws(20), torch.zeros(20, dtype=F64), features(20))
    assert math.isinf(fit.penalty)
    torch.testing.assert_close(fit.unseen, fit.noise(features(20)))
