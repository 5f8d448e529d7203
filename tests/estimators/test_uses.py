"""GWIRegressor in use: tensors and gradients, updates, progress, time limits, and the paper's protocol."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from torch import nn

from gwi import GWIClassifier, GWIRegressor, MaxTime, load
from gwi.core.features import NetworkFeatures
from gwi.core.kernels import FeatureKernel, default_kernel
from gwi.core.measures import kernel_matrix
from gwi.exceptions import GWIWarning
from gwi.fitting.plan import regression_members
from gwi.parts import Covariance, Frozen, Paper
from waves import wave

pytestmark = pytest.mark.unchecked


@pytest.fixture(scope="module")
def fitted():
    return GWIRegressor("svgp", random_state=0).fit(*wave())


def test_tensors_in_give_tensors_out(fitted):
    x, y = wave(20, seed=1)
    rows = torch.from_numpy(x)
    mean, std = fitted.predict(rows, return_std=True)
    assert isinstance(mean, torch.Tensor)
    np.testing.assert_array_equal(std.numpy(), fitted.predict(x, return_std=True)[1])
    assert fitted.predict_interval(rows.float()).dtype == torch.float32
    assert isinstance(fitted.decompose(rows).epistemic, torch.Tensor)
    assert isinstance(fitted.ood_score(rows), torch.Tensor)
    from_tensors = GWIRegressor("svgp", random_state=0).fit(torch.from_numpy(wave()[0]), torch.from_numpy(wave()[1]))
    np.testing.assert_array_equal(from_tensors.predict(x), fitted.predict(x))
    assert fitted.nll(rows, torch.from_numpy(y)) == fitted.nll(x, y)


def test_the_posterior_takes_batches_and_gradients(fitted):
    x = torch.linspace(-3, 3, 12, dtype=torch.float64).reshape(2, 3, 2, 1).requires_grad_()
    law = fitted.posterior(x)
    assert law.mean.shape == (2, 3, 2)
    assert law.covariance_matrix.shape == (2, 3, 2, 2)
    np.testing.assert_allclose(law.mean.detach().reshape(-1), fitted.predict(x.detach().reshape(-1, 1).numpy()))
    np.testing.assert_allclose(
        law.variance.detach().reshape(-1) * fitted.tempering_factor_[0],
        fitted.decompose(x.detach().reshape(-1, 1).numpy()).epistemic,
        rtol=1e-6,
        atol=1e-9,
    )
    (slope,) = torch.autograd.grad(law.mean.sum(), x)
    step = 1e-5
    difference = (fitted.posterior(x.detach() + step).mean - fitted.posterior(x.detach() - step).mean) / (2 * step)
    np.testing.assert_allclose(slope[..., 0], difference, rtol=1e-5, atol=1e-6)


def test_a_mean_without_gradients_is_refused_where_gradients_are_wanted():
    model = GWIRegressor(HistGradientBoostingRegressor(min_samples_leaf=5), random_state=0).fit(*wave())
    rows = torch.zeros(2, 1, dtype=torch.float64)
    assert model.posterior(rows).mean.shape == (2,)
    with pytest.raises(ValueError, match="svgp-all"):
        model.posterior(rows.requires_grad_())


def test_inducing_points_may_be_given_in_the_units_of_the_rows():
    x, y = wave()
    z = np.linspace(-3, 3, 9)[:, None]
    model = GWIRegressor("svgp", random_state=0, covariance=Covariance(inducing_points=z)).fit(x, y)
    found = model.posterior_.kernel.inducing_points.numpy() * x.std(0) + x.mean(0)
    np.testing.assert_allclose(found, z, atol=1e-9)
    with pytest.raises(ValueError, match="1 columns"):
        GWIRegressor(covariance=Covariance(inducing_points=np.zeros((3, 2)))).fit(x, y)


def test_networks_train_in_the_precision_asked_for():
    model = GWIRegressor("network", dtype="float64", random_state=0).fit(*wave(60))
    assert {p.dtype for p in model.posterior_.mean.parameters()} == {torch.float64}
    with pytest.raises(ValueError, match="dtype must be"):
        GWIRegressor(dtype="int8").fit(*wave(60))


def test_progress_is_shown_on_the_error_stream_and_the_summary_printed(capsys):
    GWIRegressor("network", verbose=1, random_state=0).fit(*wave(60))
    printed = capsys.readouterr()
    assert "60 rows" in printed.out
    assert "network" in printed.err
    assert "covariance and noise" in printed.err


def test_max_time_chooses_the_plan_beforehand_and_the_summary_says_so():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 2))
    y = x[:, 0] + 0.1 * rng.standard_normal(300)
    quick = GWIRegressor(max_time=0.1, random_state=0).fit(x, y)
    again = GWIRegressor(max_time=MaxTime(0.1, quick.summary_.machine_speed), random_state=0).fit(x, y)
    assert 2 < len(quick.summary_.members) < len(regression_members(300, 2))
    assert "planned for max_time=0.1 s" in str(quick.summary_)
    np.testing.assert_array_equal(quick.predict(x), again.predict(x))


@pytest.mark.parametrize("mean", ["network", "svgp"])
def test_the_papers_protocol_predicts_says_what_it_did_and_can_be_saved(mean, tmp_path):
    x, y = wave(150)
    model = GWIRegressor(Paper(mean, max_steps=60), random_state=0).fit(x, y)
    assert "validation NLL of each M" in str(model.summary_)
    assert model.summary_.divergence_weight == (1.0,)
    assert model.summary_.tempering[0] > 0
    new, values = wave(500, seed=3)
    lower, upper = model.predict_interval(new).T
    assert np.isfinite(model.nll(new, values))
    assert (lower < upper).all()
    loaded = load(model.save(tmp_path / "model.gwi"))
    np.testing.assert_array_equal(loaded.predict(new, return_std=True), model.predict(new, return_std=True))
    assert model.update(x[:5], y[:5]).summary_.num_rows == 155


@pytest.mark.parametrize(("tempering", "factor"), [(None, 1.0), (2.5, 2.5)])
def test_the_papers_protocol_takes_the_users_tempering(tempering, factor):
    x, y = wave(60)
    chosen = GWIRegressor(Paper(max_steps=20), random_state=0).fit(x, y)
    asked = GWIRegressor(Paper(max_steps=20), tempering=tempering, random_state=0).fit(x, y)
    assert asked.tempering_factor_.tolist() == [factor] != chosen.tempering_factor_.tolist()
    assert asked.summary_.tempering == (factor,)


@pytest.mark.parametrize(
    ("arguments", "fitting", "message"),
    [
        ({"mean": Paper("other")}, {}, 'takes mean="network" or "svgp" in regression; got \'other\''),
        ({"mean": Paper("svgp-all")}, {}, 'takes mean="network" or "svgp" in regression; got \'svgp-all\''),
        ({"mean": "paper"}, {"validation": wave(20)}, "chooses its own"),
        ({"mean": Paper()}, {"sample_weight": np.arange(60.0) + 1}, "sample weights"),
    ],
)
def test_what_the_papers_protocol_does_not_take_is_named(arguments, fitting, message):
    with pytest.raises(ValueError, match=message):
        GWIRegressor(**arguments).fit(*wave(60), **fitting)


def test_a_kernel_on_features_of_a_map_is_one_on_rows():
    x, y = wave(90)
    kernel = FeatureKernel(default_kernel(1), torch.nn.Linear(1, 1, dtype=torch.float64).requires_grad_(False))
    line = LinearRegression().fit(x[:50], y[:50])
    module = torch.nn.Linear(1, 1, dtype=torch.float64)
    for mean in (line, Frozen(module), "svgp"):
        model = GWIRegressor(mean, kernel=kernel, random_state=0).fit(x[:50], y[:50], validation=(x[50:], y[50:]))
        assert isinstance(model.posterior_.kernel.prior_kernel, FeatureKernel)
        assert np.isfinite(model.predict(x, return_std=True)).all()
    of_network = FeatureKernel(default_kernel(1), NetworkFeatures(module))
    with pytest.raises(ValueError, match="needs a network"):
        GWIRegressor("svgp", kernel=of_network).fit(x, y)


@pytest.mark.parametrize("shape", [(3,), (1, 2, 2)], ids=["table", "images"])
def test_validation_targets_that_do_not_fit_are_refused_in_one_sentence(shape):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, *shape)).astype(np.float32)
    y = X.reshape(30, -1)[:, 0]
    network = nn.Sequential(nn.Flatten(), nn.Linear(X[0].size, 1))
    model = GWIRegressor(network, random_state=0)
    with pytest.raises(ValueError, match=r"validation needs 1 target\(s\), like the training rows; got 2"):
        model.fit(X, y, validation=(X[:9], np.stack([y[:9], y[:9]], 1)))
    with pytest.raises(ValueError, match="validation needs a target for each row; got 8 targets and 9 rows"):
        model.fit(X, y, validation=(X[:9], y[:8]))
    with pytest.raises(ValueError, match="validation needs a label for each row; got 8 labels and 9 rows"):
        GWIClassifier(network).fit(X, y > 0, validation=(X[:9], y[:8] > 0))


@pytest.mark.parametrize("shape", [(3,), (1, 4, 4)])
def test_validation_rows_that_were_learned_from_are_refused(shape):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, *shape)), rng.normal(size=200)
    network = nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), 1)).double()
    model = GWIRegressor(network, random_state=0, covariance=Covariance(num_inducing=20), kernel="rbf")
    with pytest.raises(ValueError, match=r"^60% of the validation rows are training rows, features and target; errors on rows"):
        model.fit(X[:150], y[:150], validation=(X[90:190], y[90:190]))
    with pytest.warns(GWIWarning, match=r"^30% of the validation rows are training rows, .* and 0% of the training rows are"):
        model.fit(X[:150], y[:150], validation=(X[120:], np.append(y[120:144], y[144:] + 1)))


def test_honest_validation_rows_of_a_table_with_copies_are_taken():
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 3, (300, 2)).astype(float), rng.integers(0, 2, 300)
    with pytest.warns(GWIWarning, match="100% of the training rows are there more than once"):
        GWIClassifier([LogisticRegression().fit(X[:200], y[:200])], random_state=0).fit(
            X[:200], y[:200], validation=(X[200:], y[200:])
        )


def test_a_trained_network_stays_as_it_is_in_both_estimators():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    network = nn.Linear(2, 2).double()
    before = [p.clone() for p in network.parameters()]
    for estimator, y in ((GWIRegressor, np.column_stack([X[:, 0], X[:, 1]])), (GWIClassifier, (X[:, 0] > 0).astype(int))):
        model = estimator(network, random_state=0)
        with pytest.raises(ValueError, match=r"used as it is: it may have been trained on these rows, .* gwi\.Trained\(module\)"):
            model.fit(X[:80], y[:80])
        model.fit(X[:80], y[:80], validation=(X[80:], y[80:]))
        assert all(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))
    given = GWIRegressor(network, random_state=0).fit(X[:80], X[:80], validation=(X[80:], X[80:]))
    np.testing.assert_allclose(given.predict(X), network(torch.from_numpy(X)).detach().numpy(), atol=1e-12)


@pytest.mark.unchecked
def test_a_row_is_predicted_alike_alone_among_others_and_in_any_thread():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (250, 8))
    y = X[:, 0] + np.sin(2 * X[:, 1]) + 0.1 * rng.standard_normal(250)
    rows = rng.uniform(-2.2, 2.2, (80, 8))
    for mean in ("svgp", ["svgp", HistGradientBoostingRegressor(max_iter=20)]):
        model = GWIRegressor(mean, random_state=0).fit(X, y)
        together = np.array(model.predict(rows, return_std=True))

        def alone(i, model=model):
            return np.array(model.predict(rows[i : i + 1], return_std=True))[:, 0]

        with ThreadPoolExecutor(8) as pool:
            apart = np.array(list(pool.map(alone, range(80)))).T
        assert np.abs(together - apart).max() <= 1e-12 * y.std()


@pytest.mark.parametrize(("num_columns", "noise_std", "said"), [(1, 0.0, "3e-8"), (25, 0.1, "1e-10")])
def test_the_page_says_how_far_a_row_depends_on_its_company(num_columns, noise_std, said):
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text()
    (line,) = (line for line in page.splitlines() if line.startswith("- **Company.**"))
    assert f"by up to {said}" in line
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (100, num_columns))
    y = X[:, 0] + 0.3 * X[:, -1] ** 2 + noise_std * rng.standard_normal(100)
    rows = rng.uniform(-2.2, 2.2, (40, num_columns))
    model = GWIRegressor("svgp", random_state=0).fit(X, y)
    together = np.array(model.predict(rows, return_std=True))
    alone = np.hstack([model.predict(row[None], return_std=True) for row in rows])
    assert np.abs(together - alone).max() <= float(said) * y.std()


def test_threads_leave_no_patch_on_a_kernel_behind():
    kernel = default_kernel(3)
    x = torch.randn(50, 3, dtype=torch.float64)
    with ThreadPoolExecutor(8) as pool:
        values = list(pool.map(lambda _: kernel_matrix(kernel, x), range(200)))
    assert all(torch.equal(values[0], value) for value in values)
    assert not any("covar_dist" in part.__dict__ for part in kernel.modules())
