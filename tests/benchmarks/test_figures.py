"""Figures are drawn from their records, the records show what pages say of them, and what computes them has a second opinion."""

import importlib
import re
import sys
from pathlib import Path

import benchmarks.figures.__main__ as front_door
import numpy as np
import pytest
import torch
from benchmarks.figures import (
    calibration,
    comparison,
    misspecification,
    networks,
    nuts,
    one_dimension,
    shrinkage,
    spectrum,
    toys,
    two_dimensions,
)
from benchmarks.figures.limit import (
    NetworkPrior,
    drawn_clusters,
    two_clusters,
    wide_limit_kernel,
    wide_limit_posterior,
    wide_limit_variance,
)
from benchmarks.figures.style import PICTURES, RECORDS
from benchmarks.render import pages
from benchmarks.tables.common.records import read
from scipy.stats import t as student

from gwi.core.divergences import wasserstein_squared
from gwi.core.kernels import SparsePosteriorKernel, default_kernel
from gwi.core.measures import GaussianMeasure
from gwi.evaluation.regression import Law

ROOT = Path(__file__).parents[2]
KILOBYTE = 1000


@pytest.mark.parametrize("name", front_door.FIGURES)
def test_a_figure_is_drawn_from_its_committed_record(name, tmp_path):
    front_door.FIGURES[name].draw(tmp_path)
    for folder in (tmp_path, PICTURES):
        assert 10 * KILOBYTE < (folder / f"{name}.png").stat().st_size <= 200 * KILOBYTE
        assert 30 * KILOBYTE < (folder / f"{name}.svg").stat().st_size <= 300 * KILOBYTE


def test_records_are_small_and_every_figure_has_its_place_on_the_page():
    assert all(path.stat().st_size < 1000 * KILOBYTE for path in RECORDS.iterdir())
    page = (ROOT / "docs" / "figures.md").read_text()
    assert re.findall(r"assets/figures/(\w+)\.png", page) == list(front_door.FIGURES) == list(pages.FIGURES)
    numbers = page + (ROOT / "docs" / "results" / "records" / "figures.md").read_text()
    assert sorted(re.findall(r"table: figure_(\w+)", numbers)) == sorted(front_door.FIGURES)
    assert "figures.md" in (ROOT / "mkdocs.yml").read_text()


# What the records have to show.


def test_the_band_opens_where_nobody_measured():
    for r in read("one_dimension_facts", RECORDS):
        assert float(r["std_unseen"]) >= 5 * float(r["std_seen"])
        assert float(r["coverage_unseen"]) >= 0.85
    assert {r["method"] for r in read("comparison_facts", RECORDS)} | {"GWI-net"} == set(toys.METHODS)


def test_gwi_is_unsure_between_clusters_and_mean_field_inference_and_dropout_are_not():
    ratios = {r["method"]: float(r["ratio"]) for r in read("two_dimensions", RECORDS)}
    assert list(ratios) == list(two_dimensions.METHODS)
    assert ratios[two_dimensions.MATCHED] >= 3
    assert ratios[two_dimensions.MATCHED] >= 2 * max(ratios["mean-field VI"], ratios["MC dropout"])
    assert max(ratios["mean-field VI"], ratios["MC dropout"]) < 1
    assert ratios["NUTS"] == pytest.approx(ratios[two_dimensions.LIMIT], rel=0.2)


def test_the_ratios_are_those_of_the_cuts_that_are_drawn():
    with np.load(RECORDS / "two_dimensions.npz") as found:
        between = np.abs(found["lambda"]) <= 1
        for i, r in enumerate(read("two_dimensions", RECORDS)):
            assert found[f"std_{i}"][between].mean() == pytest.approx(float(r["std_between"]), rel=1e-4)
            assert float(r["ratio"]) == pytest.approx(float(r["std_between"]) / float(r["std_clusters"]), rel=1e-4)


def test_the_more_inducing_points_the_less_beta_match_leaves_in_between_and_titsias_covariance_keeps_it():
    draws = read("two_dimensions_draws", RECORDS)

    def median(method, count):
        return np.median([float(r["ratio"]) for r in draws if (r["method"], r["num_inducing"]) == (method, count)])

    matched = [median(two_dimensions.MATCHED, count) for count in ("10", "20", "50", "100")]
    assert matched == sorted(matched, reverse=True)
    assert matched[-1] < 3 < matched[1]
    assert min(float(r["ratio"]) for r in draws if r["method"] == two_dimensions.TITSIAS) > 5


def test_nuts_mixed():
    facts = nuts.facts(RECORDS)
    assert facts["r_hat"] < 1.02
    assert facts["effective_draws"] > 200
    assert facts["divergences"] == 0


def test_the_two_sample_estimate_loses_the_tail_of_the_spectrum():
    for name in spectrum.TABLES:
        exact, paper = (spectrum.eigenvalues(name, kind) for kind in (spectrum.SYMMETRIC, spectrum.TWO_SAMPLE))
        assert len(exact) == 100
        assert (np.diff(exact) <= 0).all()
        assert exact[9] < 1e-2 * exact[0]
        assert np.sqrt(np.maximum(paper, 0)).sum() < np.sqrt(exact).sum() * 1.001
        errors = spectrum.errors_of(name, spectrum.SYMMETRIC)
        assert max(errors.values()) <= 1e-4
        assert list(spectrum.errors_of(name, spectrum.SAME).values())[-1] > 0.005


def test_the_misspecified_model_is_sure_and_wrong_and_said_to_be_so():
    facts = {
        (r["mean_kind"], r["place"]): {k: float(v) for k, v in list(r.items())[2:]}
        for r in read("misspecification_facts", RECORDS)
    }
    home, away = facts["plain network", "home"], facts["plain network", "away"]
    assert away["std_y"] == pytest.approx(home["std_y"], rel=0.05)
    assert home["coverage"] > 0.9
    assert away["coverage"] < 0.2
    assert facts["periodic features", "away"]["coverage"] > 0.9
    severe = {r["mean_kind"] for r in read("misspecification_findings", RECORDS) if r["severity"] == "severe"}
    assert severe == {"plain network"}


def test_the_default_estimator_is_calibrated_within_what_chance_allows():
    for name in calibration.TABLES:
        found = calibration.predicted(name)
        inside = np.abs(2 * found.law("after").cumulative(found.y) - 1) <= 0.95
        assert inside.mean() > 0.95 - 3.5 * np.sqrt(0.95 * 0.05 / len(inside))
        assert 0.7 < found.tempering_factor < 1.4


# Second opinions.


def test_the_shrunken_prior_is_the_closed_form_and_the_sparse_form_knows_where_the_rows_are(tmp_path):
    setting = shrinkage.Setting(num_data=12, num_inducing=12, num_weights=3, num_points=25)
    shrinkage.compute(tmp_path, setting)
    found = shrinkage.curves(tmp_path)
    betas = [beta for form, beta in found if form == "shrunken"]
    assert betas == pytest.approx([1, 12**0.5, 12], rel=1e-5)
    for beta in betas:
        _, std = found["shrunken", beta]
        assert std == pytest.approx(np.full(25, 1 / (1 + 12 / (2 * beta * 0.1))), rel=1e-5)
        assert shrinkage.ratio(*found["shrunken", beta]) == pytest.approx(1, rel=1e-5)
        assert shrinkage.ratio(*found["sparse", beta]) > 2
    # With Z at the rows, Titsias' covariance is the exact GP's.
    grid, x = np.linspace(-6, 6, 25)[:, None], np.linspace(-2, 2, 12)[:, None]
    k = [np.exp(-((a - b.T) ** 2) / (2 * 0.7**2)) for a, b in ((x, x), (grid, x))]
    exact = np.sqrt(1 - np.einsum("ij,jk,ik->i", k[1], np.linalg.inv(k[0] + 0.1 * np.eye(12)), k[1]))
    assert found["titsias", 0.0][1] == pytest.approx(exact, abs=1e-4)


def test_ratios_of_the_shrinkage_record_fall_with_beta_and_match_titsias_where_beta_does():
    found = shrinkage.curves()
    weights = sorted(beta for form, beta in found if form == "sparse")
    ratios = [shrinkage.ratio(*found["sparse", beta]) for beta in weights]
    assert ratios == sorted(ratios, reverse=True)
    (matched,) = (curve for (form, _), curve in found.items() if form == "sparse, matched")
    assert shrinkage.ratio(*matched) == pytest.approx(shrinkage.ratio(*found["titsias", 0.0]), rel=0.05)


def test_the_wide_limit_kernel_is_the_covariance_of_wide_random_networks():
    prior, rng = NetworkPrior(weight_std=2.0), np.random.default_rng(0)
    x = rng.normal(size=(4, 2))
    count, width = 4000, 200
    hidden = np.maximum(x @ (rng.normal(size=(count, 2, width)) * 2 / 2**0.5) + rng.normal(size=(count, 1, width)), 0)
    f = np.einsum("snh,sh->sn", hidden, rng.normal(size=(count, width)) * 2 / width**0.5) + rng.normal(size=(count, 1))
    exact = wide_limit_kernel(x, x, prior)
    scale = np.sqrt(np.outer(exact.diagonal(), exact.diagonal()))
    assert np.abs(f.T @ f / count - exact).max() < 0.08 * scale.max()
    assert np.abs(exact - np.cov(f.T)).max() < 0.1 * scale.max()
    assert wide_limit_variance(x, prior) == pytest.approx(exact.diagonal(), rel=1e-12)


def test_the_wide_limit_posterior_is_that_of_a_plain_gaussian_process():
    prior = NetworkPrior()
    x, y = drawn_clusters(3, prior, per_cluster=6)
    new = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, -2.0]])
    mean, std = wide_limit_posterior(x, y, new, prior)
    inverse = np.linalg.inv(wide_limit_kernel(x, x, prior) + 0.01 * np.eye(12))
    cross = wide_limit_kernel(new, x, prior)
    assert mean == pytest.approx(cross @ inverse @ y, rel=1e-5)
    assert std**2 == pytest.approx(np.diag(wide_limit_kernel(new, new, prior) - cross @ inverse @ cross.T), rel=1e-4)
    assert max(abs(part.mean()) for part in np.split(two_clusters(prior)[1], 2)) <= 3


def test_moments_of_mean_field_networks_and_dropout_are_those_of_draws():
    generator = torch.Generator().manual_seed(0)
    shapes = {"w1": (2, 5), "b1": (5,), "w2": (5,), "b2": ()}
    p = {name: torch.randn(shape, dtype=torch.float64, generator=generator) for name, shape in shapes.items()}
    p |= {f"log_{name}": torch.full_like(value, -0.7) for name, value in p.items()}
    x = torch.randn(3, 2, dtype=torch.float64, generator=generator)
    count, std = 100_000, np.exp(-0.7)

    def drawn(name):
        return p[name] + std * torch.randn(count, *shapes[name], dtype=torch.float64, generator=generator)

    hidden = torch.relu(x @ drawn("w1") + drawn("b1")[:, None, :])
    f = (hidden @ drawn("w2")[..., None])[..., 0] + drawn("b2")[:, None]
    mean, variance = networks.mean_field_moments(x, p)
    assert (mean - f.mean(0)).abs().max() < 0.03
    assert torch.allclose(variance, f.var(0), rtol=0.03)

    kept = torch.bernoulli(torch.full((count, 1, 5), 0.8, dtype=torch.float64), generator=generator)
    f = (torch.relu(x @ p["w1"] + p["b1"]) * kept) @ p["w2"] + p["b2"]
    mean, variance = networks.dropout_moments(x, p, 0.2)
    assert (mean - f.mean(0)).abs().max() < 0.03
    assert torch.allclose(variance, f.var(0), rtol=0.03)


def test_values_of_drawn_networks_are_those_of_torch_modules():
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.normal(size=(3, 2, 4)),
        "b1": rng.normal(size=(3, 4)),
        "w2": rng.normal(size=(3, 4)),
        "b2": rng.normal(size=3),
    }
    x = rng.normal(size=(6, 2))
    values = nuts.network_values(x, weights)
    for i in range(3):
        first, last = torch.nn.Linear(2, 4).double(), torch.nn.Linear(4, 1).double()
        with torch.no_grad():
            first.weight.copy_(torch.from_numpy(weights["w1"][i].T))
            first.bias.copy_(torch.from_numpy(weights["b1"][i]))
            last.weight.copy_(torch.from_numpy(weights["w2"][i][None]))
            last.bias.fill_(weights["b2"][i])
            expected = last(torch.relu(first(torch.from_numpy(x))))[:, 0].numpy()
        assert values[i] == pytest.approx(expected, rel=1e-10)


def test_the_small_setting_of_two_dimensions_gives_the_library_s_own_numbers(tmp_path):
    setting = two_dimensions.Setting(
        per_cluster=8,
        num_inducing=6,
        num_epochs=5,
        num_steps=5,
        num_starts=1,
        num_draws=1,
        inducing_counts=(6,),
        num_grid=5,
        num_cut=11,
    )
    two_dimensions.compute(tmp_path, setting)
    found = {r["method"]: r for r in read("two_dimensions", tmp_path)}
    x, y = two_clusters(setting.prior, 8)
    along, cut = setting.cut()
    _, std = wide_limit_posterior(x, y, cut, setting.prior)
    assert float(found[two_dimensions.LIMIT]["std_between"]) == pytest.approx(std[np.abs(along) <= 1].mean(), rel=1e-5)
    fit = two_dimensions.fit_gwi(x, y, setting, torch.Generator().manual_seed(0))
    # Titsias' covariance once more, from its definition in NumPy.
    k = {
        pair: fit.kernel(*(torch.from_numpy(a) for a in pair_of)).to_dense().detach().numpy()
        for pair, pair_of in {
            "zz": (fit.inducing_points.numpy(), fit.inducing_points.numpy()),
            "zx": (fit.inducing_points.numpy(), x),
        }.items()
    }
    sigma = np.linalg.inv(k["zz"] + k["zx"] @ k["zx"].T / fit.noise_variance)
    r = fit.kernel.outputscale.item() + np.einsum("mn,ml,ln->n", k["zx"], sigma - np.linalg.inv(k["zz"]), k["zx"])
    assert fit.std(two_dimensions.TITSIAS, x) == pytest.approx(np.sqrt(r) * fit.scale, rel=1e-3)


def test_spectra_are_those_of_numpy():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20, 2, dtype=torch.float64, generator=generator)
    z, k = x[:4], default_kernel(2, lengthscale=0.8).requires_grad_(False)
    p, q = GaussianMeasure(None, k), GaussianMeasure(None, SparsePosteriorKernel(k, z, 0.1 * torch.eye(4, dtype=torch.float64)))
    with torch.no_grad():
        k_xx, r_xx = (measure(x).covariance_matrix[0].numpy() for measure in (p, q))
        found = spectrum.symmetric_spectrum(p, q, x)[:20]
        paper = spectrum.two_sample_spectrum(p, q, x, x[:7])
        distance = wasserstein_squared(p, q, x).item()
    exact = np.sort(np.linalg.eigvals(r_xx @ k_xx).real)[::-1] / 400
    assert found == pytest.approx(exact, rel=1e-6, abs=1e-12)
    assert np.trace(k_xx + r_xx) / 20 - 2 * np.sqrt(found).sum() == pytest.approx(distance, rel=1e-6)
    product = r_xx[:7] @ k_xx[:, :7] / (20 * 7)
    assert paper == pytest.approx(np.sort(np.linalg.eigvals(product).real)[::-1], rel=1e-6, abs=1e-12)


def test_eigenvalues_and_distances_are_recorded_for_each_number_of_rows():
    x = torch.randn(30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    setting = spectrum.Setting(num_inducing=5, num_comparison=10, num_eigenvalues=8, shares=(0.5, 1.0), repeats=2)
    p, q = spectrum.measures(x, x.sum(1)[None], setting)
    values, distances = spectrum.records_of("toy", p, q, x, setting)
    assert [r["index"] for r in values] == [*range(1, 9)] * 2
    assert {r["num_points"] for r in distances} == {15, 30}
    assert distances[-3]["value"] == pytest.approx(wasserstein_squared(p, q, x).item(), rel=1e-6)


def test_calibration_curves_are_counts():
    rng = np.random.default_rng(0)
    mean, y = rng.normal(size=40), rng.normal(size=40)
    found = calibration.Predicted(y, mean, np.linspace(0.5, 1.5, 40), 1.21, 5.0)
    law = found.law("before")
    assert law.std[0] == pytest.approx(found.std / 1.1)
    scale = law.std[0] * np.sqrt(3 / 5)
    shares = [
        np.mean([student.cdf((a - m) / s, 5) <= level for a, m, s in zip(y, mean, scale, strict=True)])
        for level in calibration.LEVELS
    ]
    assert calibration.reliability(law, y) == pytest.approx(shares)
    inside = np.mean([abs(a - m) <= student.ppf(0.75, 5) * s for a, m, s in zip(y, mean, scale, strict=True)])
    assert calibration.central_coverage(law, y)[24] == pytest.approx(inside)
    stds, errors = calibration.binned_errors(Law(mean[None], np.linspace(0.5, 1.5, 40)[None]), y, 4)
    assert stds == pytest.approx([np.sqrt(np.mean(part**2)) for part in np.split(np.linspace(0.5, 1.5, 40), 4)])
    assert errors[0] == pytest.approx(np.sqrt(np.mean((y[:10] - mean[:10]) ** 2)))


def test_fits_of_the_toys_are_recorded_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(toys, "FUNCTIONS", toys.FUNCTIONS[:1])
    setting = toys.Setting(num_data=40, num_inducing=5, num_steps=3, num_points=8, every=2)
    one_dimension.compute(tmp_path, setting)
    comparison.compute(tmp_path, setting)
    facts = read("one_dimension_facts", tmp_path) + read("comparison_facts", tmp_path)
    assert [r["method"] for r in facts] == list(toys.METHODS)
    data = toys.sample(toys.FUNCTIONS[0], 40)
    fit = toys.gwi_net(data, setting)
    curve = [r for r in read("one_dimension_curves", tmp_path) if r["function"] == "wave"]
    with torch.no_grad():
        mean, variance = fit.marginals(setting.grid())
    assert [float(r["mean"]) for r in curve] == pytest.approx(mean[0].tolist(), rel=1e-4)
    assert [float(r["half_width"]) for r in curve] == pytest.approx(
        (1.96 * (variance[0] + fit.noise_variance).sqrt()).tolist(), rel=1e-4
    )
    points = [r for r in read("one_dimension_points", tmp_path) if r["function"] == "wave" and r["kind"] == "unseen"]
    assert [float(r["x"]) for r in points] == pytest.approx(data.x_unseen[::2, 0].tolist(), rel=1e-5)
    assert "wave" in one_dimension.words(tmp_path)


class _Sure:
    """An estimator that is sure, with errors of a given size."""

    def __init__(self, error, left):
        self.error, self.left = error, left

    def predict(self, x, return_std=True):
        return np.full(len(x), self.error), np.full(len(x), 1.0)

    def ood_score(self, x):
        return np.full(len(x), self.left)


def test_the_check_speaks_when_a_sure_kernel_meets_a_wrong_mean(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    x, y = np.zeros((5, 1)), np.zeros(5)
    (finding,) = misspecification.diagnosis(_Sure(7.0, 0.01), x, y)
    assert finding.severity == "severe"
    assert "7.0 predicted standard deviations" in finding.what
    assert not misspecification.diagnosis(_Sure(7.0, 0.9), x, y)
    assert not misspecification.diagnosis(_Sure(1.0, 0.01), x, y)
    setting = misspecification.Setting(num_data=9, num_away=7)
    home, away = (misspecification.sample(setting)[place][0] for place in ("home", "away"))
    assert (len(home), len(away)) == (9, 7)
    assert away.min() >= 10 * misspecification.PERIOD
    assert misspecification.truth(home + 10 * misspecification.PERIOD) == pytest.approx(misspecification.truth(home), abs=1e-9)


def test_without_numpyro_one_sentence_says_what_to_install(monkeypatch, tmp_path):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(nuts.importlib, "import_module", missing)
    with pytest.raises(SystemExit, match=r'there is no jax: pip install "gwi\[figures\]"'):
        nuts.redraw(tmp_path)


def test_the_front_door_computes_and_draws_what_is_asked_for(monkeypatch):
    done = []

    class Stub:
        def __init__(self, name):
            self.name = name

        def compute(self):
            done.append(("compute", self.name))

        def draw(self):
            done.append(("draw", self.name))

    monkeypatch.setattr(front_door, "FIGURES", {name: Stub(name) for name in front_door.FIGURES})
    monkeypatch.setattr(front_door.nuts, "redraw", lambda: done.append(("redraw", "nuts")))
    for arguments, expected in (
        (["--only", "spectrum"], [("compute", "spectrum"), ("draw", "spectrum")]),
        (["--redraw", "--only", "spectrum", "shrinkage"], [("draw", "spectrum"), ("draw", "shrinkage")]),
        (["--redraw-nuts", "--redraw", "--only", "two_dimensions"], [("redraw", "nuts"), ("draw", "two_dimensions")]),
    ):
        done.clear()
        monkeypatch.setattr(sys, "argv", ["figures", *arguments])
        front_door.main()
        assert done == expected
