"""A fit from a stream is the fit in memory: the same sums, the same algebra, the same posterior where the rows that judge are."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from torch.utils.data import DataLoader, TensorDataset

import gwi
from gwi import GWIClassifier, GWIRegressor
from gwi.core.kernels import default_kernel
from gwi.core.row_sums import row_sums
from gwi.fitting import stream_data as streams
from gwi.fitting.regression import RegressionTask
from gwi.parts import Covariance, Gaussian, Paper
from gwi.streaming import training as parallel_training
from gwi.streaming.checkpoints import Checkpoints
from gwi.streaming.loaders import ArraySource
from gwi.streaming.training import train_on_stream

pytestmark = pytest.mark.unchecked

F64 = torch.float64
squares = RegressionTask().loss


def rows(count=3000, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal([5, 0, -2], [2, 1, 0.1], (count, 3))
    f = np.sin(x[:, 0]) + 0.5 * x[:, 1] ** 2
    return x, f + 0.2 * rng.normal(size=count), f


@pytest.fixture(autouse=True)
def from_streams(monkeypatch):
    """Nothing is small enough to be read into memory, and networks see few rows."""
    monkeypatch.setattr(streams, "FEW_NUMBERS", 0)
    monkeypatch.setattr(parallel_training, "FEWEST_STEPS", 400)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows")
    x, y, _ = rows()
    table = pa.table({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y, "kind": np.where(y > 0.6, "high", "low")})
    for i in range(2):
        part = table.slice(1500 * i, 1500)
        pq.write_table(part.drop_columns("kind"), path / f"numbers{i}.parquet", row_group_size=400)
        (path / "labels").mkdir(exist_ok=True)
        pq.write_table(part.drop_columns("y"), path / "labels" / f"{i}.parquet", row_group_size=400)
    (path / "numbers").mkdir()
    for i in range(2):
        (path / f"numbers{i}.parquet").rename(path / "numbers" / f"{i}.parquet")
    return path


def prepared(**options):
    x, y, _ = rows()
    return streams.stream_data(ArraySource(x, y[:, None], group_size=450), torch.Generator().manual_seed(0), **options)


def test_streamed_sums_are_those_of_all_rows_but_the_judges():
    x, y, _ = rows()
    found = prepared()
    stream = found.stream
    kernel = default_kernel(3).requires_grad_(False)
    z = found.x[:20]
    sums = stream.sums(kernel, z)
    kept = ~stream.sketch.is_judge(np.arange(len(x)))
    assert (~kept).sum() == stream.sketch.num_judges == len(found.held_out.y[0]) == 600
    scales = stream.scales
    wanted = row_sums(kernel, z, scales.rows(x[kept], "cpu"), scales.targets(y[kept, None], "cpu"))
    assert sums.num_rows == kept.sum() == found.num_rows
    for name in ("gram", "projection", "residual", "target_energy"):
        torch.testing.assert_close(getattr(sums, name), getattr(wanted, name), rtol=1e-12, atol=1e-10)
    noisy = row_sums(kernel, z, scales.rows(x[kept], "cpu"), scales.targets(y[kept, None], "cpu"), noise_variance=0.3)
    torch.testing.assert_close(sums.weighted(0.3).gram, noisy.gram, rtol=1e-12, atol=1e-10)
    torch.testing.assert_close(sums.weighted(0.3).log_weight, noisy.log_weight)


def test_sums_that_are_asked_for_again_are_not_read_again_unless_kernel_or_points_changed():
    stream = prepared().stream
    kernel = default_kernel(3).requires_grad_(False)
    z = prepared().x[:5]
    first = stream.sums(kernel, z)
    assert stream.sums(kernel, z.clone(), targets=False) is first
    kernel.outputscale = 2.0
    assert stream.sums(kernel, z) is not first


def test_batches_of_an_epoch_are_every_training_row_once():
    stream = prepared().stream
    seen = torch.cat([x for x, _ in stream.batches(7, seed=1)])
    x, _, _ = rows()
    wanted = stream.scales.rows(x[~stream.sketch.is_judge(np.arange(len(x)))], "cpu")
    assert sum(stream.rows_of_processes) == len(seen) == len(wanted)
    torch.testing.assert_close(seen[seen[:, 0].argsort()], wanted[wanted[:, 0].argsort()], rtol=0, atol=0)


@pytest.mark.parametrize("covariance", ["wasserstein", "titsias"])
def test_the_posterior_is_that_of_the_fit_in_memory_judged_on_the_same_rows(folder, covariance):
    """With Z given, the prior fitted to the same rows, and the same rows held out, only the points of W₂ differ."""
    x, y, _ = rows()
    z = x[:40]
    options = {
        "mean": "svgp",
        "covariance": Covariance(covariance, inducing_points=z, num_inducing=40),
        "likelihood": Gaussian("constant"),
        "random_state": 0,
    }
    streamed = GWIRegressor(**options).fit(folder / "numbers", "y")
    x_new, _, f = rows(500, seed=9)
    mean, std = streamed.predict(x_new, return_std=True)
    plain = GWIRegressor(**options).fit(x, y)
    mean_plain, std_plain = plain.predict(x_new, return_std=True)
    # Sampling error: the prior is fitted to other rows, and a fifth of the rows is held out.
    assert np.abs(mean - mean_plain).mean() < 0.3 * np.abs(mean_plain - f).mean() + 0.02
    np.testing.assert_allclose(std, std_plain, rtol=0.15)
    assert streamed.summary_.num_rows == 2400
    assert list(streamed.feature_names_in_) == ["a", "b", "c"]


def test_the_default_mean_learns_from_a_stream_and_its_intervals_hold(folder):
    model = GWIRegressor(["svgp", "network", LinearRegression()], random_state=0, covariance=Covariance(num_inducing=50)).fit(
        folder / "numbers", "y"
    )
    x, y, f = rows(2000, seed=5)
    low, high = model.predict_interval(x, 0.9).T
    assert 0.86 < ((low <= y) & (y <= high)).mean() < 0.94
    assert np.sqrt(np.mean((model.predict(x) - f) ** 2)) < 0.1
    assert [member.name for member in model.summary_.members] == ["svgp", "network", "LinearRegression"]


def test_a_loader_and_a_file_give_the_same_model(folder):
    x, y, _ = rows()
    loader = DataLoader(TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), batch_size=100, shuffle=True)
    options = {"mean": "svgp", "covariance": Covariance(num_inducing=30), "random_state": 3}
    from_loader = GWIRegressor(**options).fit(loader)
    from_file = GWIRegressor(**options).fit(str(folder / "numbers"), "y")
    np.testing.assert_allclose(from_loader.predict(x[:50]), from_file.predict(x[:50]), rtol=1e-6)


def test_a_frozen_mean_needs_rows_it_has_not_seen(folder):
    network = torch.nn.Linear(3, 1)
    with pytest.raises(ValueError, match="may have been trained on these rows"):
        GWIRegressor(network).fit(folder / "numbers", "y")
    x, y, _ = rows(400, seed=4)
    model = GWIRegressor(network, random_state=0, covariance=Covariance(num_inducing=30), likelihood=Gaussian("constant"))
    model.fit(folder / "numbers", "y", validation=(x, y))
    assert model.summary_.num_rows == 3000
    want = network(torch.from_numpy(x).float()).detach().numpy()[:, 0]
    np.testing.assert_allclose(model.predict(x), want, rtol=1e-5)


def test_a_module_is_trained_on_the_stream(folder):
    network = gwi.core.networks.mlp(3, hidden=(32,), generator=torch.Generator().manual_seed(0))
    model = GWIRegressor(gwi.Trained(network), random_state=0, covariance=Covariance(num_inducing=30))
    model.fit(folder / "numbers", "y")
    x, _, f = rows(500, seed=6)
    assert np.sqrt(np.mean((model.predict(x) - f) ** 2)) < 0.5 * f.std()


def test_checkpoints_of_two_networks_are_kept_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel_training, "FEWEST_STEPS", 20)
    stream = replace(prepared().stream, checkpoints=Checkpoints.of(tmp_path, "fit"))

    def trained(width, place):
        module = gwi.core.networks.mlp(3, hidden=(width,), generator=torch.Generator().manual_seed(place))
        train_on_stream(module, lambda x, y: squares(module(x.float()), y.mT.float()), stream, name="mlp", seed=0, place=place)
        return module.state_dict()

    first, second = trained(4, 0), trained(4, 1)
    assert not torch.equal(first["0.weight"], second["0.weight"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mean-1.checkpoint", "mean-2.checkpoint"]
    torch.testing.assert_close(trained(4, 0), first, rtol=0, atol=0)
    # A wider one in the same place starts again.
    assert trained(6, 0)["0.weight"].shape == (6, 3)


def test_means_are_trained_under_the_place_they_have_in_the_list(monkeypatch):
    places = []
    plain = streams.train_on_stream
    monkeypatch.setattr(parallel_training, "FEWEST_STEPS", 10)
    monkeypatch.setattr(streams, "train_on_stream", lambda *a, **k: (places.append(k["place"]), plain(*a, **k))[1])
    x, y, _ = rows(400)
    networks = [gwi.core.networks.mlp(3, hidden=(width,)) for width in (4, 8)]
    GWIRegressor(["network", *map(gwi.Trained, networks)], random_state=0, covariance=Covariance(num_inducing=10)).fit(
        ArraySource(x, y[:, None])
    )
    GWIClassifier(["linear", "network"], random_state=0, covariance=Covariance(num_inducing=10)).fit(ArraySource(x, y > 0))
    assert places == [0, 1, 2, 1]


def test_a_small_file_is_read_into_memory(folder, monkeypatch):
    monkeypatch.setattr(streams, "FEW_NUMBERS", 10**6)
    x, y, _ = rows()
    options = {"mean": "svgp", "covariance": Covariance(num_inducing=30), "random_state": 0}
    model, plain = GWIRegressor(**options).fit(folder / "numbers", "y"), GWIRegressor(**options).fit(x, y)
    np.testing.assert_array_equal(model.predict(x[:50]), plain.predict(x[:50]))


def test_what_a_stream_cannot_do_is_said(folder):
    with pytest.raises(ValueError, match="neither sample_weight, groups, context, strata, cv nor the paper's protocol"):
        GWIRegressor(Paper()).fit(folder / "numbers", "y")
    with pytest.raises(ValueError, match="svgp-all"):
        GWIRegressor("svgp-all", covariance=Covariance(num_inducing=20)).fit(folder / "numbers", "y")
    with pytest.raises(ValueError, match="name of the target's column"):
        GWIRegressor("svgp").fit(folder / "numbers")


def test_saved_models_of_streams_are_read_back(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(parallel_training, "FEWEST_STEPS", 20)
    model = GWIRegressor("svgp+network", random_state=0, covariance=Covariance(num_inducing=20)).fit(folder / "numbers", "y")
    model.save(tmp_path / "m.gwi")
    x, _, _ = rows(20, seed=7)
    np.testing.assert_array_equal(gwi.load(tmp_path / "m.gwi").predict(x), model.predict(x))


@pytest.mark.slow
def test_a_classifier_learns_from_a_stream_what_it_learns_in_memory(folder):
    x, y, _ = rows()
    labels = np.where(y > 0.6, "high", "low")
    options = {"mean": ["svgp", "linear", "network"], "covariance": Covariance(num_inducing=40), "random_state": 0}
    model = GWIClassifier(**options).fit(folder / "labels", "kind")
    plain = GWIClassifier(**options).fit(x, labels)
    assert model.classes_.tolist() == ["high", "low"]
    x_new, y_new, _ = rows(1000, seed=8)
    found, wanted = model.predict_proba(x_new), plain.predict_proba(x_new)
    assert np.abs(found - wanted).mean() < 0.04
    new = np.where(y_new > 0.6, "high", "low")
    assert model.nll(x_new, new) < plain.nll(x_new, new) + 0.03


def test_streamed_predictions_and_scores_are_those_of_the_estimators(folder, tmp_path):
    x, y, _ = rows()
    model = GWIRegressor(LinearRegression(), random_state=0, covariance=Covariance(num_inducing=20)).fit(folder / "numbers", "y")
    found = pq.read_table(gwi.predict_source(model, folder / "numbers", tmp_path / "out.parquet"))
    frame = pa.table({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2]}).to_pandas()
    mean, std = model.predict(frame, return_std=True)
    wanted = {"prediction": mean, "std": std, "ood_score": model.ood_score(frame)}
    wanted["lower"], wanted["upper"] = model.predict_interval(frame).T
    for name, values in wanted.items():
        np.testing.assert_allclose(found.column(name).to_numpy(), values, rtol=1e-9, atol=1e-9)
    scores = gwi.score_source(model, folder / "numbers", "y")
    assert scores.nll == pytest.approx(model.nll(frame, y), rel=1e-9)
    assert scores.rmse == pytest.approx(np.sqrt(np.mean((mean - y) ** 2)), rel=1e-9)
    classifier = GWIClassifier("linear", random_state=0, covariance=Covariance(num_inducing=20)).fit(folder / "labels", "kind")
    found = pq.read_table(gwi.predict_source(classifier, folder / "labels", tmp_path / "out.parquet"))
    np.testing.assert_allclose(found.column("probability_high").to_numpy(), classifier.predict_proba(frame)[:, 0], rtol=1e-9)
    scores = gwi.score_source(classifier, folder / "labels", "kind")
    assert scores.nll == pytest.approx(classifier.nll(frame, np.where(y > 0.6, "high", "low")), rel=1e-9)
    with pytest.raises(ValueError, match="lacks the columns 'a'"):
        gwi.predict_source(model, tmp_path / "out.parquet", tmp_path / "again.parquet")


def test_columns_of_another_file_are_found_by_name(folder, tmp_path):
    x, y, _ = rows(600, seed=3)
    named = {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y, "kind": np.where(y > 0.6, "high", "low")}
    for order, path in (("abcy", "same"), ("cyab", "other"), ("aby", "fewer")):
        pq.write_table(pa.table({name: named[name] for name in order}), tmp_path / f"{path}.parquet")
    # A column that the fit did not have, of text besides.
    pq.write_table(pa.table({name: named[name] for name in ("kind", "b", "y", "c", "a")}), tmp_path / "more.parquet")
    options = {"mean": LinearRegression(), "covariance": Covariance(num_inducing=10), "random_state": 0}
    options["likelihood"] = Gaussian("constant")
    model = GWIRegressor(**options).fit(folder / "numbers", "y")
    wanted = gwi.score_source(model, tmp_path / "same.parquet", "y")
    assert gwi.score_source(model, tmp_path / "other.parquet", "y") == wanted
    assert gwi.score_source(model, tmp_path / "more.parquet", "y") == wanted
    with pytest.raises(ValueError, match=r"lacks 1 of 3 columns: 'c'"):
        gwi.score_source(model, tmp_path / "fewer.parquet", "y")
    judged = [
        GWIRegressor(**options).fit(folder / "numbers", "y", validation=(tmp_path / f"{name}.parquet", "y")).predict(x[:5], True)
        for name in ("same", "other", "more")
    ]
    np.testing.assert_array_equal(judged[0], judged[1])
    np.testing.assert_array_equal(judged[0], judged[2])


def test_a_file_of_validation_rows_judges_a_fit_in_memory_too(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "FEW_NUMBERS", 10**6)
    x, y, _ = rows(300, seed=3)
    kinds = np.where(y > 0.6, "high", "low")
    pq.write_table(pa.table({"c": x[:, 2], "y": y, "a": x[:, 0], "b": x[:, 1]}), tmp_path / "y.parquet")
    pq.write_table(pa.table({"c": x[:, 2], "kind": kinds, "a": x[:, 0], "b": x[:, 1]}), tmp_path / "kind.parquet")
    for model, data, target, values in (
        (GWIRegressor(LinearRegression(), random_state=0, covariance=Covariance(num_inducing=10)), folder / "numbers", "y", y),
        (GWIClassifier("linear", random_state=0, covariance=Covariance(num_inducing=10)), folder / "labels", "kind", kinds),
    ):
        from_file = clone(model).fit(data, target, validation=(tmp_path / f"{target}.parquet", target))
        from_arrays = clone(model).fit(data, target, validation=(x, values))
        predicted = "predict_proba" if target == "kind" else "predict_interval"
        np.testing.assert_allclose(getattr(from_file, predicted)(x[:5]), getattr(from_arrays, predicted)(x[:5]), rtol=1e-9)
