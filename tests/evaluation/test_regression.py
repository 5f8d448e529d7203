"""Scores against their definitions, by numerical integration and by counting."""

import math

import numpy as np
import pytest
from scipy.integrate import quad

from gwi.evaluation.regression import Law, score

LAWS = {
    "normal": Law(np.array([[0.3]]), np.array([[1.7]])),
    "student": Law(np.array([[0.3]]), np.array([[1.7]]), 4.0),
    "mixture": Law(np.array([[0.3], [-1.0], [2.0]]), np.array([[1.7], [0.2], [0.5]])),
}


def one(law: Law, function: str, value: float) -> float:
    return float(getattr(law, function)(np.array([value]))[0])


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("y", [-3.0, 0.3, 1.1, 9.0])
def test_crps_is_the_integral_of_the_squared_error_of_the_cdf(name, y):
    law = LAWS[name]
    below = quad(lambda v: one(law, "cumulative", v) ** 2, -400, y, points=[-5, -1, 0], limit=500)[0]
    above = quad(lambda v: (1 - one(law, "cumulative", v)) ** 2, y, 400, points=[y + 1, y + 5], limit=500)[0]
    assert one(law, "crps", y) == pytest.approx(below + above, abs=2e-5)


@pytest.mark.parametrize("name", LAWS)
def test_cdf_integrates_the_density_and_quantile_inverts_the_cdf(name):
    law = LAWS[name]
    mass = quad(lambda v: math.exp(one(law, "log_density", v)), -400, 1.0, points=[-5, -1, 0, 0.5], limit=500)[0]
    assert one(law, "cumulative", 1.0) == pytest.approx(mass, abs=1e-6)
    for level in (0.001, 0.4, 0.975):
        assert one(law, "cumulative", float(law.quantile(level)[0])) == pytest.approx(level, abs=1e-10)


@pytest.mark.parametrize("name", LAWS)
def test_the_standard_deviation_is_that_of_the_law(name):
    law = LAWS[name]
    second = quad(lambda v: v**2 * math.exp(one(law, "log_density", v)), -4000, 4000, points=[-9, -1, 0, 1, 9], limit=2000)[0]
    assert second == pytest.approx(float((law.std**2 + law.mean**2).mean()), rel=1e-3)


def test_crps_of_a_mixture_of_students_is_refused():
    with pytest.raises(ValueError, match="normal distributions only"):
        Law(np.zeros((2, 1)), np.ones((2, 1)), 4.0).crps(np.zeros(1))


def test_scores_of_a_right_law_are_right():
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=20_000), rng.uniform(0.5, 2.0, size=20_000)
    found = score(Law(mean[None], std[None]), mean + std * rng.normal(size=20_000))
    assert found.coverage_90 == pytest.approx(0.9, abs=0.01)
    assert found.coverage_95 == pytest.approx(0.95, abs=0.01)
    assert found.width_95 == pytest.approx(2 * 1.959964 * std.mean(), rel=1e-6)
    assert found.width_90 == pytest.approx(2 * 1.644854 * std.mean(), rel=1e-6)
    assert found.calibration_error < 0.01
    assert found.rmse == pytest.approx(math.sqrt((std**2).mean()), rel=0.02)
    # CRPS of a normal law at its own draws is σ/√π in expectation; NLL is the entropy.
    assert found.crps == pytest.approx(std.mean() / math.sqrt(math.pi), rel=0.02)
    assert found.nll == pytest.approx(0.5 * math.log(2 * math.pi * math.e) + np.log(std).mean(), rel=0.02)


def test_a_law_that_is_too_narrow_is_miscalibrated():
    rng = np.random.default_rng(0)
    found = score(Law(np.zeros((1, 5000)), np.full((1, 5000), 0.5)), rng.normal(size=5000))
    assert found.coverage_95 < 0.75
    assert found.calibration_error > 0.08


def test_the_interval_score_is_the_width_and_forty_times_the_miss():
    y = np.array([0.0, 3.0, -5.0])
    found = score(Law(np.zeros((1, 3)), np.ones((1, 3))), y)
    half = 1.9599639845400545
    assert found.interval_score_95 == pytest.approx(2 * half + 40 * ((3 - half) + (5 - half)) / 3, rel=1e-9)
    # The true law has the least.
    rng = np.random.default_rng(0)
    y = rng.normal(size=50_000)
    right, narrow, wide = (score(Law(np.zeros((1, len(y))), np.full((1, len(y)), s)), y) for s in (1.0, 0.8, 1.25))
    assert right.interval_score_95 < min(narrow.interval_score_95, wide.interval_score_95)
