"""The speed benchmark measures every quantity it promises; how fast things are is no matter for a test."""

import dataclasses
import math

import pytest
from benchmarks.studies import cli_speed, prediction_speed
from benchmarks.studies.speed import COLUMNS, QUICK, measure
from benchmarks.tables.common import records


@pytest.mark.slow
def test_every_quantity_is_measured_and_is_a_positive_number():
    found = list(measure(QUICK))
    assert all(tuple(row) == COLUMNS for row in found)
    quantities = {(row["quantity"], row["set"]) for row in found}
    for name in ("kin8nm", "protein"):
        for quantity in (
            "fit_over_ensemble",
            "fit_over_separate_networks",
            "fit_over_laplace",
            "predict_over_gpytorch_float64",
            "predict_over_gpytorch_float32",
            "predict_over_kernel_and_products",
        ):
            assert (quantity, name) in quantities
    for quantity in ("memory_megabytes_svgp", "memory_megabytes_default"):
        assert (quantity, "kin8nm") in quantities
    for row in found:
        if row["quantity"] == "fit_over_laplace" and row["value"] == "":
            assert row["note"] == "laplace-torch is not installed"
        else:
            assert math.isfinite(row["value"])
            assert row["value"] > 0 or row["quantity"].startswith("fit_exponent")


@pytest.mark.slow
def test_the_command_is_measured_with_all_its_rows():
    found = {row["quantity"]: row["value"] for row in cli_speed.measure(2_000, 500, 1)}
    assert set(found) == {
        "cli_predict_rows_per_second",
        "cli_predict_memory_megabytes",
        "in_memory_predict_rows_per_second",
        "help_seconds",
        "import_seconds",
        "import_estimator_seconds",
    }
    assert all(value > 0 for value in found.values())
    assert found["cli_predict_memory_megabytes"] < 1000


@pytest.mark.slow
def test_predictions_are_timed_before_and_after():
    small = dataclasses.replace(prediction_speed.QUICK, fitted={20: (1, 3)}, rounds=1)
    found = list(prediction_speed.measure(small, before=records.ROOT))
    assert {row["model"] for row in found} == set(prediction_speed.KINDS)
    assert {row["quantity"] for row in found} == {"microseconds_a_row", "peak_megabytes"}
    assert all(row["before"] > 0 and row["after"] > 0 for row in found)
