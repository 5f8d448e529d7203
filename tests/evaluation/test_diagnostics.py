"""The diagnosis names each seeded fault, stays silent where there is none, and fit warns of what training rows show."""

import csv
import re
import warnings
from dataclasses import FrozenInstanceError
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from benchmarks.studies.diagnostics import FAULTS, SETS, fixed_kernel, gp, on_wave, wave

from gwi import GWIRegressor, diagnose, load
from gwi.core.covariance import titsias_covariance
from gwi.core.kernels import SparsePosteriorKernel
from gwi.core.measures import kernel_matrix, kernel_variance
from gwi.core.row_sums import row_sums
from gwi.evaluation.checks import Check, Finding, collapsed_variance, found, graded, lengthscales, tempering, training_checks
from gwi.evaluation.diagnostics import Diagnosis, _calibration
from gwi.exceptions import GWIWarning
from gwi.parts import Covariance, Gaussian

pytestmark = pytest.mark.unchecked

ROOT = Path(__file__).parents[2]
KINDS = {
    "mean-and-kernel-disagree",
    "few-inducing-points",
    "length-scales-at-bounds",
    "variance-collapsed",
    "tempering-far-from-one",
    "miscalibrated",
    "duplicates",
    "far-from-training",
}


@pytest.fixture(scope="module")
def healthy():
    return on_wave()


def value_of(diagnosis, kind):
    return dict(diagnosis.measures)[kind]


@pytest.mark.filterwarnings("ignore::gwi.exceptions.GWIWarning", "ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.kind], ids=lambda fault: fault.name)
def test_each_seeded_fault_is_named_with_its_severity(fault):
    diagnosis = diagnose(*fault.build())
    named = {finding.kind: finding for finding in diagnosis.findings}
    assert fault.kind in named, str(diagnosis)
    assert named[fault.kind].severity == fault.severity
    assert named[fault.kind].value == value_of(diagnosis, fault.kind)


def test_every_kind_of_finding_has_a_seeded_fault():
    assert {fault.kind for fault in FAULTS} - {""} == KINDS


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if not fault.kind], ids=lambda fault: fault.name)
def test_without_a_fault_nothing_is_severe_and_fit_is_silent(fault):
    with warnings.catch_warnings():
        warnings.simplefilter("error", GWIWarning)
        diagnosis = diagnose(*fault.build())
    assert diagnosis.severe == ()
    assert {kind for kind, _ in diagnosis.measures} == KINDS


def test_a_healthy_fit_has_no_findings_and_says_so(healthy):
    diagnosis = diagnose(*healthy)
    assert diagnosis.findings == ()
    assert str(diagnosis) == "Nothing found on 200 rows."


def test_a_diagnosis_reads_as_text_and_cannot_be_changed(healthy):
    model, x, y = healthy
    diagnosis = diagnose(model, x + 15, y)
    text = str(diagnosis).splitlines()
    assert re.match(r"\d findings on 200 rows, \d severe", text[0])
    assert len(text) == 1 + len(diagnosis.findings)
    for line, finding in zip(text[1:], diagnosis.findings, strict=True):
        assert finding.severity in line
        assert finding.kind in line
        assert finding.what in line
        assert finding.remedy in line
        assert finding.what.endswith(".")
        assert finding.remedy.endswith(".")
    with pytest.raises(FrozenInstanceError):
        diagnosis.num_rows = 3
    assert isinstance(diagnosis, Diagnosis)
    assert isinstance(diagnosis.findings[0], Finding)


def test_findings_come_with_the_worst_first():
    checks = [Check("a", 1.0, "note"), Check("b", 2.0), Check("c", 3.0, "severe"), Check("d", 4.0, "warning")]
    assert [finding.kind for finding in found(checks)] == ["c", "d", "a"]


def test_a_number_has_the_highest_severity_whose_threshold_it_reaches():
    assert graded(0.5, note=0.1, warning=0.5, severe=0.6) == "warning"
    assert graded(0.05, note=0.1) is None
    assert graded(float("nan"), note=0.1, severe=0.5) is None


def test_coverage_is_counted_as_by_hand(healthy):
    model, x, y = healthy
    gaps = []
    for level in (0.5, 0.95):
        lower, upper = model.predict_interval(x, level).T
        gaps.append(((lower <= y) & (y <= upper)).mean() - level)
    assert value_of(diagnose(model, x, y), "miscalibrated") == pytest.approx(max(gaps, key=abs))


def test_surprises_are_errors_beyond_the_mark_of_unseen_rows(healthy):
    model, x, y = healthy
    mark = np.sort(model.model_.scores[0])[int(np.ceil(151 * 0.95)) - 1]
    shifted = y + 8
    mean, std = model.predict(x, return_std=True)
    surprises = (np.abs(shifted - mean) / std > mark).mean()
    diagnosis = diagnose(model, x, shifted)
    assert value_of(diagnosis, "mean-and-kernel-disagree") == pytest.approx(surprises)
    assert diagnosis.findings[0].severity == "severe"


def test_where_the_kernel_is_not_confident_it_does_not_disagree_with_the_mean(healthy):
    model, x, y = healthy
    assert np.isnan(value_of(diagnose(model, x + 15, y + 100), "mean-and-kernel-disagree"))


def test_the_variance_of_f_is_worth_the_effective_degrees_of_freedom_of_the_exact_posterior(kernel, generator):
    x = torch.randn(80, 2, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        s = titsias_covariance(row_sums(kernel, x, x, noise_variance=0.3))
        variance = kernel_variance(SparsePosteriorKernel(kernel, x, s), x).mean()
        spectrum = torch.linalg.eigvalsh(kernel_matrix(kernel, x))
    value = collapsed_variance(variance[None], torch.tensor([0.3], dtype=torch.float64), 80).value
    assert value == pytest.approx(float((spectrum / (spectrum + 0.3)).sum()), rel=1e-6)


def test_rows_without_noise_have_no_collapsed_variance():
    variance, noise = torch.tensor([1e-15, 1.0]), torch.tensor([1e-11, 2.0])
    assert np.isnan(collapsed_variance(variance[:1], noise[:1], 100).value)
    assert collapsed_variance(variance, noise, 100).value == pytest.approx(50)


def test_the_factor_farthest_from_one_counts_and_rounding_does_not():
    assert tempering(np.array([2.0, 0.1, 3.0]), torch.ones(3)).value == 0.1
    assert tempering(np.array([2.0, 0.1]), torch.tensor([1.0, 1e-15])).value == 2.0
    assert np.isnan(tempering(np.array([0.1]), torch.tensor([1e-15])).value)


def test_few_rows_may_be_unrelated(generator):
    x = torch.randn(10, 1, dtype=torch.float64, generator=generator)
    assert lengthscales(fixed_kernel(1e-3), x, generator).severity is None
    assert lengthscales(fixed_kernel(1e-3), torch.cat([x, x + 7, x + 13]), generator).severity == "severe"


def test_equal_rows_are_no_neighbours(generator):
    x = torch.linspace(0, 5, 30, dtype=torch.float64)[:, None].repeat(3, 1)
    alone = lengthscales(fixed_kernel(0.1), x[:30], generator)
    assert lengthscales(fixed_kernel(0.1), x, generator).value == pytest.approx(alone.value)
    assert alone.value == pytest.approx(np.exp(-((5 / 29 / 0.1) ** 2) / 2))


def test_the_residual_of_inducing_points_is_that_of_the_kernel():
    model = gp(covariance=Covariance("titsias", num_inducing=8), kernel=fixed_kernel(0.4)).fit(*wave(150, 0))
    x = model.model_.scales.rows(wave(20, 1)[0], "cpu")
    kernel = model.posterior_.kernel
    with torch.no_grad():
        residual = kernel.prior_kernel(x, diag=True) - kernel.features(x).square().sum(-2)
        torch.testing.assert_close(model.model_.cached.residual(x)[0], residual)


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"covariance": Covariance(weight=1.0)}, "variance-collapsed"),
        ({"kernel": fixed_kernel(1e-3)}, "length-scales-at-bounds"),
        ({"tempering": 20.0}, "tempering-far-from-one"),
    ],
)
def test_fit_warns_of_severe_findings_and_points_at_the_line_that_called_it(arguments, kind):
    with pytest.warns(GWIWarning, match=kind) as caught:
        gp(**arguments).fit(*wave(60, 0))
    assert [Path(warning.filename).name for warning in caught if warning.category is GWIWarning] == ["test_diagnostics.py"]


def test_fit_warns_where_counts_vary_far_more_than_poissons():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((150, 2))
    wide = rng.negative_binomial(1, 1 / (1 + np.exp(2 + 0.5 * x[:, 0]))).astype(float)
    with pytest.warns(GWIWarning, match="negative-binomial"):
        GWIRegressor("svgp", likelihood="poisson", random_state=0).fit(x, wide)
    with warnings.catch_warnings():
        warnings.simplefilter("error", GWIWarning)
        GWIRegressor("svgp", likelihood="poisson", random_state=0).fit(x, rng.poisson(np.exp(2 + 0.5 * x[:, 0])).astype(float))


def test_fit_does_not_warn_of_what_is_not_severe():
    with warnings.catch_warnings():
        warnings.simplefilter("error", GWIWarning)
        model = gp(tempering=6.0).fit(*wave(60, 0))
    checks = training_checks(model.model_, model.model_.scales.rows(wave(60, 0)[0], "cpu"), 60)
    assert "warning" in [check.severity for check in checks]


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (wave(3, 0)[0], wave(3, 0)[1]),
        (wave(40, 0)[0], np.ones(40)),
        (wave(40, 0)[0], np.sin(wave(40, 0)[0][:, 0])),
    ],
    ids=["three rows", "a constant target", "no noise"],
)
def test_fit_is_silent_on_degenerate_data_that_are_nobodys_fault(x, y):
    with warnings.catch_warnings():
        warnings.simplefilter("error", GWIWarning)
        gp().fit(x, y)


def test_several_targets_are_judged_by_the_worst(healthy):
    model, x, y = healthy
    both = gp().fit(wave(150, 0)[0], np.column_stack([wave(150, 0)[1], wave(150, 0)[1]]))
    fine = diagnose(both, x, np.column_stack([y, y]))
    assert fine.severe == ()
    diagnosis = diagnose(both, x, np.column_stack([y, y + 8]))
    assert value_of(diagnosis, "mean-and-kernel-disagree") == pytest.approx(
        value_of(diagnose(model, x, y + 8), "mean-and-kernel-disagree"), abs=0.05
    )
    with pytest.raises(ValueError, match=r"200 rows with 2 target\(s\) were expected"):
        diagnose(both, x, y)


def test_tensors_and_data_frames_give_the_same_diagnosis(healthy):
    model, x, y = healthy
    assert diagnose(model, torch.from_numpy(x), torch.from_numpy(y)) == diagnose(model, x, y)


def test_a_model_from_a_file_is_diagnosed_without_its_training_rows(tmp_path, healthy):
    model, x, y = healthy
    # Every row is an inducing point, so that the file has them all.
    assert diagnose(load(model.save(tmp_path / "all.gwi")), x, y) == diagnose(model, x, y)
    sparse = gp(covariance=Covariance(num_inducing=20)).fit(*wave(150, 0))
    loaded = diagnose(load(sparse.save(tmp_path / "sparse.gwi")), x, y)
    assert np.isnan(value_of(loaded, "duplicates"))
    assert loaded.severe == ()


def test_conformal_intervals_are_those_that_are_judged(healthy):
    _, x, y = healthy
    model = gp(likelihood=Gaussian("constant", conformal=True), tempering=6.0).fit(*wave(150, 0))
    assert abs(value_of(diagnose(model, x, y), "miscalibrated")) < 0.2
    assert value_of(diagnose(model.set_params(likelihood__conformal=False), x, y), "miscalibrated") > 0.4
    few = gp(likelihood=Gaussian("constant", conformal=True)).fit(*wave(12, 0))
    assert abs(value_of(diagnose(few, x, y), "miscalibrated")) <= 0.5


def test_a_data_frame_is_diagnosed_as_its_array_is_and_without_a_warning(healthy):
    _, x, y = healthy
    train, targets = wave(150, 0)
    named = gp().fit(pd.DataFrame(train, columns=["hour"]), targets)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_frame = diagnose(named, pd.DataFrame(x, columns=["hour"]), y)
    assert str(from_frame) == str(diagnose(gp().fit(train, targets), x, y))


def test_a_classifier_is_refused():
    class Classifier:
        def predict_proba(self, X):
            return np.ones((len(X), 1))

    with pytest.raises(TypeError, match="diagnose takes a fitted GWIRegressor; Classifier is a classifier"):
        diagnose(Classifier(), np.zeros((3, 1)), np.zeros(3))


def test_an_estimator_that_is_not_fitted_is_refused():
    with pytest.raises(ValueError, match="not fitted"):
        diagnose(GWIRegressor(), np.zeros((3, 1)), np.zeros(3))


def test_the_record_has_every_fault_named_and_nothing_severe_on_the_standard_splits():
    with (ROOT / "benchmarks" / "results" / "diagnostics.csv").open(newline="") as file:
        records = list(csv.DictReader(file))
    seeded = {r["case"]: r["severity"] for r in records if r["group"] == "fault" and r["kind"] == r["seeded"]}
    assert seeded == {fault.name: fault.severity for fault in FAULTS if fault.kind}
    standard = [r for r in records if r["split"] == "standard-0"]
    assert {r["case"] for r in standard} == set(SETS)
    assert "severe" not in {r["severity"] for r in standard}
    assert "severe" not in {r["severity"] for r in records if r["split"] == "within, at random"}


def test_the_page_explains_every_kind():
    text = (ROOT / "docs" / "diagnostics.md").read_text()
    assert [kind for kind in KINDS if f"| `{kind}` |" not in text] == []


def test_a_gap_beyond_chance_is_not_hidden_by_a_larger_one_within_it():
    # 62 of 100 rows inside at 50 % may be chance, 84 inside at 95 % is none.
    law = SimpleNamespace(is_discrete=False, cumulative=lambda y: y)
    model = SimpleNamespace(scores=torch.zeros(1, 100), laws_of=lambda parts: [law])
    places = np.repeat([0.5, 0.9, 0.99], [62, 22, 16])[None]
    check = _calibration(model, False, (places,) * 4, places, places)
    assert check.value == pytest.approx(-0.11)
    assert check.severity == "warning"
