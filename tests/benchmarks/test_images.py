"""The image table's machinery: data, networks, what a method gets to see, and that nothing is lost or done twice."""

import csv
from dataclasses import replace
from types import SimpleNamespace

import benchmarks.tables.images.__main__ as command
import numpy as np
import pytest
import torch
from benchmarks.tables.common import records
from benchmarks.tables.images import data, interface, methods, networks, posthoc, protocol, training
from benchmarks.tables.images.protocol import Task, extent
from benchmarks.tables.images.store import Key, Store
from torch import nn

from gwi.evaluation.classification import score_classes
from image_problem import SHAPES, TASK, bytes_of

pytest_plugins = ("image_problem",)
pytestmark = pytest.mark.unchecked


def test_a_quarter_turn_and_a_blur_by_hand():
    point = torch.zeros(1, 1, 11, 11, dtype=torch.uint8)
    point[0, 0, 5, 7] = 255
    found = data.turned_and_blurred(point)[0, 0]
    weights = np.outer([1, 4, 6, 4, 1], [1, 4, 6, 4, 1]) / 256
    # Against the clock, what was right of the middle comes to lie above it.
    np.testing.assert_array_equal(found[1:6, 3:8].numpy(), np.floor(255 * weights + 0.5))
    assert int((found != 0).sum()) <= 25


def test_the_harder_outliers_are_the_same_each_time_and_keep_the_light():
    x = bytes_of((20, 3, 32, 32))
    found = data.turned_and_blurred(x)
    assert torch.equal(found, data.turned_and_blurred(x.flip(0)).flip(0))
    assert found.dtype == torch.uint8
    assert abs(found.float().mean() - x.float().mean()) < 1
    grey = torch.full((1, 1, 8, 8), 77, dtype=torch.uint8)
    assert torch.equal(data.turned_and_blurred(grey), grey)


@pytest.mark.parametrize("name", data.DATASETS)
def test_a_problem_has_its_parts(name, made_up):
    found = data.load(name, quick=True)
    shape = SHAPES[name]
    assert found.train_x.shape == (data.QUICK_SIZES[0], *shape)
    assert found.validation_x.shape == (data.QUICK_SIZES[1], *shape)
    for x in (found.test_x, *found.outliers.values()):
        assert x.shape == (data.QUICK_SIZES[2], *shape)
    assert tuple(found.outliers) == data.OUTLIERS
    rows = {row.numpy().tobytes() for row in found.train_x}
    assert not rows & {row.numpy().tobytes() for row in found.validation_x}
    torch.testing.assert_close(found.train_x.mean((0, 2, 3)), torch.zeros(shape[0]), atol=1e-4, rtol=0)
    torch.testing.assert_close(found.train_x.std((0, 2, 3)), torch.ones(shape[0]), atol=1e-4, rtol=0)
    black = (torch.zeros(shape[0]) - data.moments(bytes_of((300, *shape)))[0]) / data.moments(bytes_of((300, *shape)))[1]
    torch.testing.assert_close(found.black, black, atol=0.05, rtol=0)


def test_proxy_outliers_are_training_images_of_the_other_problem(made_up):
    padded = data.proxy_outliers("cifar10-20k")
    inner = made_up["fashion-mnist"].train.x
    assert torch.equal(padded[:, :, 2:-2, 2:-2], inner.expand(-1, 3, -1, -1))
    assert int(padded[:, :, :2].max()) == 0
    shrunk = data.proxy_outliers("fashion-mnist")
    assert shrunk.shape == (300, 1, 28, 28)
    assert torch.equal(shrunk, data.proxy_outliers("fashion-mnist"))
    means = made_up["cifar10-20k"].train.x.float().mean((2, 3)) @ torch.tensor([0.299, 0.587, 0.114])
    torch.testing.assert_close(shrunk.float().mean((1, 2, 3)), means, atol=1.5, rtol=0)


@pytest.mark.parametrize(("name", "most"), [("fashion-mnist", 8.5e6), ("cifar10-20k", 16.4e6)])
def test_networks_are_small_and_their_layers_have_names(name, most):
    architecture = networks.ARCHITECTURES[name]
    network = networks.build(architecture, seed=3).eval()
    x = torch.randn(4, *SHAPES[name])
    seen = {}
    for layer in ("blocks.2", "pool", "dense"):
        network.get_submodule(layer).register_forward_hook(lambda *a, layer=layer: seen.__setitem__(layer, a[2]))
    assert network(x).shape == (4, 10)
    side = SHAPES[name][1] // 4
    assert seen["blocks.2"].shape == (4, architecture.widths[-1], side, side)
    assert seen["pool"].shape == (4, architecture.widths[-1] * architecture.grid**2)
    assert torch.equal(seen["dense"], network.features(x))
    assert 0.5 * most < networks.multiply_adds(network, architecture) < most
    assert not any(module.p for module in network.modules() if isinstance(module, nn.Dropout))
    again = networks.build(architecture, seed=3).eval()
    assert torch.equal(network(x), again(x))


def test_augmented_images_are_moved_and_mirrored():
    x = torch.arange(1.0, 1 + 200 * 2 * 4 * 4).reshape(200, 2, 4, 4)
    found = training.augmented(x, 1, torch.tensor([-1.0, -2.0]), torch.Generator().manual_seed(0))
    padded = torch.stack([torch.tensor([-1.0, -2.0])[:, None, None].expand(2, 6, 6).clone() for _ in x])
    padded[..., 1:5, 1:5] = x
    kinds = set()
    for image, wide in zip(found, padded, strict=True):
        for top, left, mirrored in np.ndindex(3, 3, 2):
            crop = wide[:, top : top + 4, left : left + 4]
            if torch.equal(image, crop.flip(2) if mirrored else crop):
                kinds.add((top, left, mirrored))
                break
        else:
            pytest.fail("neither moved nor mirrored")
    assert len(kinds) == 18


def test_the_learning_rate_rises_and_falls_once():
    rates = [training.one_cycle(share) for share in np.linspace(0, 1, 101)]
    peak = int(np.argmax(rates))
    assert rates[peak] == pytest.approx(1.0)
    assert rates[0] == pytest.approx(training.START)
    assert rates[-1] == pytest.approx(0.0, abs=1e-12)
    assert np.all(np.diff(rates[: peak + 1]) > 0)
    assert np.all(np.diff(rates[peak:]) < 0)


def test_a_network_is_trained_once_and_kept_with_its_time(problem, monkeypatch):
    first = training.trained(problem.data, problem.recipe, 0)
    assert first.seconds > 0
    assert not first.network.training
    monkeypatch.setattr(training, "train", lambda *_: pytest.fail("trained again"))
    again = training.trained(problem.data, problem.recipe, 0)
    assert again.seconds == first.seconds
    x = problem.data.validation_x
    assert torch.equal(first.network(x), again.network(x))
    for other in ({"member": 1}, {"dropout": 0.2}):
        with pytest.raises(pytest.fail.Exception):
            training.trained(problem.data, problem.recipe, 0, **other)
    with pytest.raises(pytest.fail.Exception):
        training.trained(problem.data, replace(problem.recipe, learning_rate=0.05), 0)


def test_only_whole_shared_networks_go_to_the_records(problem, monkeypatch, tmp_path):
    monkeypatch.setattr(training, "QUICK_SIZES", (100, 100, 100))
    monkeypatch.setitem(training.RECIPES, "fashion-mnist", problem.recipe)
    shared = training.trained(problem.data, problem.recipe, 0)
    training.trained(problem.data, problem.recipe, 0, member=1)
    training.trained(problem.data, problem.recipe, 0, dropout=0.2)
    training.trained(problem.data, replace(problem.recipe, shift=1), 0)
    (kept,) = training.keep_shared(tmp_path / "records")
    assert training.keep_shared(tmp_path / "records") == []
    assert kept.parent.name == "fashion-mnist"
    # Without a cache it is read from there.
    monkeypatch.setenv("GWI_CACHE", str(tmp_path / "empty"))
    monkeypatch.setattr(training, "KEPT", tmp_path / "records")
    monkeypatch.setattr(training, "train", None)
    again = training.trained(problem.data, problem.recipe, 0)
    assert again.seconds == shared.seconds
    x = problem.data.test_x
    torch.testing.assert_close(again.network(x), shared.network(x), rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.usefixtures("image_folder")
@pytest.mark.parametrize(("name", "seed"), sorted((path.parent.name, int(path.name[4])) for path in training.KEPT.glob("*/*")))
def test_networks_kept_beside_the_records_are_those_of_the_records(name, seed, monkeypatch):
    monkeypatch.setattr(training, "train", None)
    found = data.load(name)
    problem = interface.Problem(found, training.RECIPES[name], seed, protocol.shared_network(Task(name, seed, "MAP")))
    score = score_classes(posthoc.map_estimate(problem).predict(found.test_x).probabilities, found.test_y.numpy())
    rows = {(row["dataset"], int(row["seed"])): row for row in records.read("images") if row["method"] == "MAP"}
    # Other processors round otherwise.
    assert score.accuracy == pytest.approx(float(rows[name, seed]["accuracy"]), abs=2e-4)
    assert score.nll == pytest.approx(float(rows[name, seed]["nll"]), abs=1e-4)


def test_training_lowers_the_loss():
    x = torch.randn(128, 1, 28, 28)
    y = torch.arange(128) % 10
    x[torch.arange(128), 0, 2 * y + 3] += 4.0
    whole = data.Data("fashion-mnist", x, y, x, y, x, y, {}, torch.zeros(1))
    recipe = replace(training.RECIPES["fashion-mnist"], num_epochs=6, shift=0, batch_size=32)
    network = networks.build(recipe.architecture, seed=0)
    training.train(network, training.sgd(network, recipe), whole, recipe, 0)
    assert score_classes(interface.softmax(training.in_batches(network, x)), y.numpy()).nll < 1.0


def test_a_method_sees_neither_test_images_nor_outliers(made_up, monkeypatch):
    given = []

    def spy(problem):
        given.append(problem.data)
        return interface.Fitted(lambda x: interface.Prediction(np.full((len(x), 10), 0.1)), {"a": 1})

    monkeypatch.setitem(methods.METHODS, "MAP", spy)
    (record,) = protocol.run(TASK)
    (seen,) = given
    assert len(seen.test_x) == len(seen.test_y) == 0
    assert all(len(x) == 0 for x in seen.outliers.values())
    assert len(seen.train_x) == record["num_train"] == data.QUICK_SIZES[0]
    # Equal entropies tell nothing apart, and the entropy stands for a score of its own.
    assert record["auroc_entropy"] == record["auroc_score"] == record["hard_auroc_score"] == 0.5
    assert record["score_name"] == "entropy"
    assert record["settings"] == {"a": 1}
    assert sum(record["reliability"]["count"]) == record["num_test"]


def test_the_reliability_bins_give_the_calibration_error():
    rng = np.random.default_rng(0)
    probabilities, y = rng.dirichlet(np.full(10, 0.3), 400), rng.integers(0, 10, 400)
    bins = {name: np.array(values) for name, values in protocol.reliability(probabilities, y).items()}
    assert np.abs(bins["right"] - bins["confidence"]).sum() / 400 == pytest.approx(score_classes(probabilities, y).ece)


def test_the_extent_is_the_one_asked_for():
    tasks = list(extent())
    assert len(tasks) == len(set(tasks)) == 2 * (2 * len(methods.METHODS) - 1)
    assert [task.seed for task in tasks] == sorted(task.seed for task in tasks)
    assert [task for task in tasks if task.method == "GWI-net (paper)"] == [
        Task(dataset, 0, "GWI-net (paper)") for dataset in data.DATASETS
    ]
    assert {task.recipe().num_epochs for task in tasks} == {12, 25}
    assert not any(task.quick for task in tasks)


def test_networks_that_methods_share_are_trained_once_and_before(monkeypatch):
    class Client:
        def submit(self, function, task, member, *, pure):
            asked.append((task.dataset, task.seed, member))
            return SimpleNamespace(key=str(asked[-1]))

    asked = []
    monkeypatch.setattr(command, "as_completed", lambda futures: [])
    names = ("gwi", "MAP", "deep ensemble", "deep ensemble, temperature")
    command.prepare([Task("fashion-mnist", 1, name) for name in names], Client())
    assert asked == [("fashion-mnist", 1, member) for member in range(posthoc.NUM_MEMBERS)]
    asked.clear()
    command.prepare([Task("fashion-mnist", 1, name) for name in names[:2]], Client())
    assert asked == [("fashion-mnist", 1, 0)]


def test_a_quick_run_does_not_go_into_the_records(capsys):
    with pytest.raises(SystemExit):
        command.parse(["--quick"])
    assert "--records" in capsys.readouterr().err


@pytest.mark.slow
def test_the_small_version_runs_and_resumes(tmp_path, monkeypatch, capsys, thorough, request):
    monkeypatch.setenv("GWI_CACHE", str(tmp_path / "cache"))
    # To unpack real images takes longer than all fits; that they are read is tested with the sets.
    request.getfixturevalue("image_folder" if thorough else "made_up")
    # Of methods with the same machinery one; some have tests of their own.
    some = (
        "MAP",
        "MAP, temperature, mirrored",
        "deep ensemble",
        "MC dropout",
        "mean-field VI",
        "Kronecker Laplace",
        "energy score",
    )
    chosen = methods.PEERS if thorough else some
    arguments = ["--quick", "--workers", "0", "--records", str(tmp_path / "records.sqlite"), "--methods", *chosen]
    command.main(arguments)
    with (tmp_path / "records.csv").open() as file:
        first = list(csv.DictReader(file))
    assert list(first[0]) == list(command.COLUMNS)
    assert {row["method"] for row in first} == set(chosen)
    assert all(np.isfinite(float(row[column])) for row in first for column in command.COLUMNS[3:-1])
    # The shared network, the ensemble's four others, and the one with dropout.
    assert len(list((tmp_path / "cache").rglob("*.safetensors"))) == 6
    # One record is lost, and only that fit is done again.
    store = Store(tmp_path / "records.sqlite")
    store.forget([Key("fashion-mnist", 0, "energy score")])
    capsys.readouterr()
    command.main(arguments)
    said = capsys.readouterr().out
    assert "energy score: accuracy" in said
    assert said.count("NLL") == 1
    assert len(store.keys()) == len(chosen)
    command.main(arguments)
    assert capsys.readouterr().out == ""
