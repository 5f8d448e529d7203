"""A saved model predicts the same bits after loading, and a file that was touched is refused."""

import hashlib
import json
import os
import struct

import numpy as np
import pandas as pd
import pytest
import torch
from benchmarks.campaign.kinds.mutated import mutated
from gpytorch.kernels import LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, RQKernel, ScaleKernel
from sklearn.ensemble import ExtraTreesRegressor, GradientBoostingRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor

import processes
from gwi import GWIRegressor, load
from gwi.core.networks import mlp
from gwi.estimators.persistence import from_content
from gwi.exceptions import ModelFileError, UnsavableError
from gwi.parts import Covariance, Gaussian, Trained
from gwi.storage.container import from_bytes, to_bytes

pytestmark = pytest.mark.unchecked

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (80, 2))
Y = 3 + np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * RNG.standard_normal(80)
NEW = RNG.uniform(-3, 3, (40, 2))


class Wave(torch.nn.Module):
    """A network that no list of layers describes."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x):
        return torch.sin(self.layer(x))


@pytest.fixture(autouse=True)
def short_training(monkeypatch):
    """Files of networks that have learned little are no different."""
    monkeypatch.setattr("gwi.fitting.task.FEWEST_EPOCHS", 2)
    monkeypatch.setattr("gwi.fitting.task.MOST_EPOCHS", 2)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def fitted(mean="svgp", y=Y, **arguments):
    return GWIRegressor(mean, random_state=0, **arguments).fit(X, y)


def assert_equal_bits(first, second, **arguments):
    for a, b in zip(first.predict(NEW, return_std=True), second.predict(NEW, return_std=True), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(first.predict_interval(NEW), second.predict_interval(NEW))
    np.testing.assert_array_equal(first.ood_score(NEW), second.ood_score(NEW))
    assert str(first.summary_) == str(second.summary_)


MEANS = {
    "svgp": "svgp",
    "residual network": "svgp+network",
    "plain network": Trained(mlp(2, hidden=(8,), generator=seeded())),
    "stack": ["svgp", HistGradientBoostingRegressor(max_iter=20), ExtraTreesRegressor(20), Ridge()],
    "forest": RandomForestRegressor(10),
    "boosting": GradientBoostingRegressor(n_estimators=10),
}


@pytest.mark.parametrize("name", MEANS)
def test_a_loaded_model_predicts_the_same_bits(tmp_path, name):
    model = fitted(MEANS[name])
    loaded = load(model.save(tmp_path / "model.gwi"))
    assert_equal_bits(model, loaded)
    assert loaded.get_params()["random_state"] == 0


KERNELS = {
    "matern32": "matern32",
    "rq": "rq",
    "sum": ScaleKernel(RBFKernel(active_dims=(0,))) + ScaleKernel(LinearKernel()),
    "product": ScaleKernel(PeriodicKernel() * MaternKernel(nu=1.5, ard_num_dims=2)),
    "scaled rq": ScaleKernel(RQKernel(ard_num_dims=2)),
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_survive(tmp_path, name):
    model = fitted(kernel=KERNELS[name], covariance=Covariance(num_inducing=20))
    assert_equal_bits(model, load(model.save(tmp_path / "model.gwi")))


def test_several_targets_column_names_noise_and_conformal_intervals_survive(tmp_path):
    table = pd.DataFrame(X, columns=["a", "b"])
    model = GWIRegressor("svgp", random_state=0, likelihood=Gaussian("input-dependent", conformal=True)).fit(
        table, np.column_stack([Y, -2 * Y])
    )
    loaded = load(model.save(tmp_path / "model.gwi"))
    new = pd.DataFrame(NEW, columns=["a", "b"])
    np.testing.assert_array_equal(model.predict_interval(new, 0.9), loaded.predict_interval(new, 0.9))
    np.testing.assert_array_equal(model.sample_y(new[:5]), loaded.sample_y(new[:5]))
    np.testing.assert_array_equal(loaded.predict(new[["b", "a"]]), loaded.predict(new))


def test_another_process_predicts_the_same_bits(tmp_path):
    model = fitted(MEANS["stack"])
    path = model.save(tmp_path / "model.gwi")
    np.save(tmp_path / "new.npy", NEW)
    code = (
        "import sys, numpy as np, torch, gwi; torch.set_num_threads(int(sys.argv[2])); folder = sys.argv[1]; "
        "found = gwi.load(folder + '/model.gwi').predict(np.load(folder + '/new.npy'), return_std=True); "
        "np.save(folder + '/found.npy', np.stack(found))"
    )
    processes.run(["-c", code], path.parent, torch.get_num_threads(), check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "found.npy"), np.stack(model.predict(NEW, return_std=True)))


def test_a_network_of_the_users_own_is_needed_again(tmp_path):
    torch.manual_seed(0)
    network = Wave()
    model = fitted(Trained(network), covariance=Covariance(num_inducing=10))
    path = model.save(tmp_path / "model.gwi")
    with pytest.raises(ModelFileError, match=r"module="):
        load(path)
    with pytest.raises(ModelFileError, match="does not fit"):
        load(path, module=torch.nn.Linear(3, 1))
    with pytest.raises(ModelFileError, match="more module"):
        load(path, module=[network, network])
    before = {key: value.clone() for key, value in network.state_dict().items()}
    assert_equal_bits(model, load(path, module=network))
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())


def test_what_cannot_be_stored_is_named(tmp_path):
    model = GWIRegressor(lambda rows: rows[:, 0], random_state=0).fit(X, Y, validation=(NEW, NEW[:, 0]))
    with pytest.raises(UnsavableError, match=r"<lambda> cannot be stored.*boosting"):
        model.save(tmp_path / "model.gwi")
    with pytest.raises(UnsavableError, match="KNeighborsRegressor"):
        fitted(KNeighborsRegressor()).save(tmp_path / "model.gwi")
    assert list(tmp_path.iterdir()) == []


def test_no_target_is_in_the_file_and_the_summary_says_when_all_rows_are(tmp_path):
    model = fitted(["svgp", HistGradientBoostingRegressor(max_iter=20), Ridge()])
    _, tensors = from_bytes(model.save(tmp_path / "model.gwi").read_bytes())
    numbers = np.concatenate([value.double().flatten().numpy() for value in tensors.values()])
    standardised = (Y - model.model_.scales.y_centre) / model.model_.scales.y_scale
    assert not np.isin(Y, numbers).any()
    assert not np.isin(standardised, numbers).any()
    assert "contains the inputs of all rows" in str(model.summary_)
    assert "contains the inputs of all rows" not in str(fitted(covariance=Covariance(num_inducing=10)).summary_)


def test_a_loaded_model_is_updated_like_the_one_that_was_saved_and_saved_again(tmp_path):
    model = fitted().update(X[:4] + 3, Y[:4])
    loaded = load(model.save(tmp_path / "model.gwi"))
    far = X[:9] + 3
    for found, wanted in zip(loaded.predict(far, return_std=True), model.predict(far, return_std=True), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert str(loaded.summary_) == str(model.summary_)
    again = load(loaded.update(far[4:], Y[4:9]).save(tmp_path / "again.gwi"))
    model.update(far[4:], Y[4:9])
    for found, wanted in zip(again.predict(far, return_std=True), model.predict(far, return_std=True), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10)
    document, tensors = from_bytes((tmp_path / "again.gwi").read_bytes())
    name = document["model"]["kernel"]["observed"]["values"]
    for wrong in (tensors[name][:, 1:], tensors[name][0]):
        (tmp_path / "wrong.gwi").write_bytes(to_bytes(document, tensors | {name: wrong}))
        with pytest.raises(ModelFileError, match="parts do not fit together"):
            load(tmp_path / "wrong.gwi")


def test_loading_leaves_the_global_generator_alone(tmp_path):
    path = fitted("svgp+network").save(tmp_path / "model.gwi")
    torch.manual_seed(5)
    load(path)
    drawn = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(1))


def test_files_that_are_no_models_are_refused_with_one_sentence(tmp_path):
    model = fitted(covariance=Covariance(num_inducing=5))
    data = model.save(tmp_path / "model.gwi").read_bytes()
    for wrong in (b"", b"12345", b"PK" * 100, data[:-1], data[:50], data + b"\0", b"\xff" * 100):
        with pytest.raises(ModelFileError, match="save"):
            from_content(wrong)
    document, tensors = from_bytes(data)
    newer = to_bytes(document, tensors).replace(b'"version":"1"', b'"version":"2"')
    with pytest.raises(ModelFileError, match="upgrade gwi"):
        from_content(newer)
    with pytest.raises(ModelFileError, match="does not know"):
        from_content(to_bytes(document | {"estimator": "Other"}, tensors))
    with pytest.raises(ModelFileError, match="NaN"):
        from_content(to_bytes(document, tensors | {"y_scale": torch.tensor([torch.nan]).double()}))


def test_writing_is_all_or_nothing(tmp_path, monkeypatch):
    model = fitted(covariance=Covariance(num_inducing=5))
    path = model.save(tmp_path / "model.gwi")
    before = path.read_bytes()

    def full(_):
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space"):
            model.save(path, overwrite=True)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(IsADirectoryError, match="is a folder"):
        model.save(tmp_path)
    with pytest.raises(FileNotFoundError, match="create it first"):
        model.save(tmp_path / "missing" / "model.gwi")


def test_ten_thousand_mutated_files_are_all_refused(tmp_path):
    model = fitted(
        ["svgp", HistGradientBoostingRegressor(max_iter=3), Trained(mlp(2, hidden=(4,), generator=seeded()))],
        covariance=Covariance(num_inducing=8),
    )
    data = model.save(tmp_path / "model.gwi").read_bytes()
    rng = np.random.default_rng(1)
    header = 8 + struct.unpack("<Q", data[:8])[0]
    refused = 0
    for trial in range(10_000):
        # Half of them in the header, which is the part with structure.
        bad = mutated(data[:header], data[::-1], rng) + data[header:] if trial % 2 else mutated(data, data[::-1], rng)
        if bad == data:
            continue
        with pytest.raises(ModelFileError):
            from_content(bad)
        refused += 1
    assert refused > 9900


def nodes_of(value):
    if isinstance(value, dict):
        yield value
        for part in value.values():
            yield from nodes_of(part)
    elif isinstance(value, list):
        for part in value:
            yield from nodes_of(part)


def test_forged_files_with_a_right_checksum_are_refused_or_predict(tmp_path):
    model = fitted(
        ["svgp", HistGradientBoostingRegressor(max_iter=3), Trained(mlp(2, hidden=(4,), generator=seeded()))],
        covariance=Covariance(num_inducing=8),
    )
    document, tensors = from_bytes(model.save(tmp_path / "model.gwi").read_bytes())
    rng = np.random.default_rng(2)
    values = [None, -1, 0, 1, 10**12, 1e308, "", "mean", "rbf", "weighted", [], {}, [1, 2], True, *tensors]
    taken = 0
    for trial in range(240):
        forged, numbers = json.loads(json.dumps(document)), dict(tensors)
        for _ in range(int(rng.integers(1, 4))):
            if trial % 3:
                nodes = [node for node in nodes_of(forged) if node]
                node = nodes[int(rng.integers(len(nodes)))]
                key = sorted(node)[int(rng.integers(len(node)))]
                if rng.random() < 0.2:
                    del node[key]
                else:
                    node[key] = values[int(rng.integers(len(values)))]
            else:
                name = sorted(numbers)[int(rng.integers(len(numbers)))]
                shape = tuple(int(n) for n in rng.integers(0, 4, int(rng.integers(0, 4))))
                numbers[name] = torch.as_tensor(rng.choice([0.0, 1.0, -5.0, 1e300]) * np.ones(shape)).to(numbers[name].dtype)
        content = to_bytes(forged, numbers)
        assert hashlib.sha256(content).digest()
        try:
            loaded = from_content(content)
        except ModelFileError:
            continue
        taken += 1
        with np.errstate(all="ignore"):
            loaded.predict(np.zeros((2, loaded.n_features_in_)), return_std=True)
    assert 0 < taken < 120


def test_noise_by_a_network_survives(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (1200, 2))
    y = x[:, 0] + (0.1 + np.abs(np.sin(2 * x[:, 0]))) * rng.standard_normal(1200)
    model = GWIRegressor("linear", covariance=Covariance(num_inducing=20), random_state=0).fit(x, y)
    assert "noise by a network" in str(model.summary_)
    model.save(tmp_path / "model.gwi")
    loaded = load(tmp_path / "model.gwi")
    np.testing.assert_array_equal(loaded.predict(x, return_std=True), model.predict(x, return_std=True))
