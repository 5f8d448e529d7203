"""The image table's machinery: data, networks, peers, what a method gets to see, and that nothing is lost or done twice."""

import copy
import csv
import importlib
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch
from benchmarks import table2_images
from benchmarks.imagery import bayesian, data, interface, methods, networks, ours, posthoc, protocol, training
from benchmarks.imagery.protocol import Task, extent
from benchmarks.imagery.store import Key, Store
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.utils.data import DataLoader

import gwi
from gwi.classification_metrics import score_classes
from gwi.images import Images, LabelledImages

pytestmark = pytest.mark.unchecked

TASK = Task("fashion-mnist", 0, "MAP", quick=True)
SHAPES = {"fashion-mnist": (1, 28, 28), "mnist": (1, 28, 28), "cifar10-20k": (3, 32, 32), "svhn-10k": (3, 32, 32)}


def bytes_of(shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8))


@pytest.fixture
def made_up(monkeypatch, tmp_path):
    """Random images in place of the real ones, and a cache of their own; returns the sets by name."""
    sets = {}
    for i, (name, shape) in enumerate(SHAPES.items()):
        images = Images(name, tuple("0123456789"))
        for j, part in enumerate(("train", "test")):
            y = torch.from_numpy(np.random.default_rng(i).integers(0, 10, 300))
            images.__dict__[part] = LabelledImages(bytes_of((300, *shape), 10 * i + j), y)
        sets[name] = images
    monkeypatch.setattr(data, "_images", sets.__getitem__)
    monkeypatch.setenv("GWI_CACHE", str(tmp_path / "cache"))
    data.load.cache_clear()
    yield sets
    data.load.cache_clear()


@pytest.fixture
def problem(made_up):
    found = data.load("fashion-mnist", quick=True)
    network = networks.build(networks.ARCHITECTURES["fashion-mnist"], seed=0).eval()
    return interface.Problem(found, TASK.recipe(), 0, training.Trained(network, 1.0))


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


def test_training_lowers_the_loss():
    x = torch.randn(128, 1, 28, 28)
    y = torch.arange(128) % 10
    x[torch.arange(128), 0, 2 * y + 3] += 4.0
    whole = data.Data("fashion-mnist", x, y, x, y, x, y, {}, torch.zeros(1))
    recipe = replace(training.RECIPES["fashion-mnist"], num_epochs=6, shift=0, batch_size=32)
    network = networks.build(recipe.architecture, seed=0)
    training.train(network, training.sgd(network, recipe), whole, recipe, 0)
    assert score_classes(interface.softmax(training.in_batches(network, x)), y.numpy()).nll < 1.0


def test_the_temperature_is_that_of_a_grid():
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(500, 10, generator=generator)
    y = torch.distributions.Categorical(logits=logits / 2.5).sample()
    grid = torch.linspace(0.5, 6, 2201)
    losses = torch.stack([nn.functional.cross_entropy(logits / t, y) for t in grid])
    assert posthoc.best_temperature(logits, y) == pytest.approx(float(grid[losses.argmin()]), abs=0.003)


def test_the_energy_is_higher_where_no_logit_is_large():
    logits = torch.tensor([[5.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    found = posthoc.energy(logits)
    np.testing.assert_allclose(found, [-math.log(sum(math.exp(v) for v in row)) for row in logits.tolist()])
    assert found[1] > found[0]


def test_the_distance_to_a_neighbour_is_that_of_brute_force(monkeypatch):
    monkeypatch.setattr(posthoc, "NUM_QUERIES", 7)
    generator = torch.Generator().manual_seed(0)
    bank, queries = (posthoc.normalised(torch.randn(n, 5, generator=generator)) for n in (60, 20))
    expected = np.sort(np.linalg.norm(queries[:, None].numpy() - bank[None].numpy(), axis=2), axis=1)[:, 3]
    np.testing.assert_allclose(posthoc.kth_distance(queries, bank, 4), expected, atol=1e-5)
    assert posthoc.kth_distance(bank, bank, 1).max() < 1e-3


def test_neighbours_are_sought_in_the_layer_of_the_name(problem):
    network, x = problem.shared.network, problem.data.validation_x
    layers = {"dense": network.features, "pool": lambda part: network.pool(network.blocks(part))}
    layers["all"] = gwi.NetworkFeatures(network).fit(problem.data.train_x[:10])
    for name, layer in layers.items():
        fitted = posthoc.nearest_neighbours(name)(problem)
        with torch.no_grad():
            bank, queries = (posthoc.normalised(layer(part)) for part in (problem.data.train_x, x))
        np.testing.assert_allclose(fitted.score(x), torch.cdist(queries, bank).min(1).values, atol=1e-3)
        np.testing.assert_array_equal(fitted.predict(x).probabilities, posthoc.map_estimate(problem).predict(x).probabilities)


def test_a_refitted_last_layer_goes_from_temperature_scaling_to_the_labels():
    rng = np.random.default_rng(0)
    features = np.c_[rng.normal(size=(600, 4)), np.ones(600)]
    truth = 2 * rng.normal(size=(3, 5))
    y = (features @ truth.T + rng.gumbel(size=(600, 3))).argmax(1)
    wrong = 3 * truth + rng.normal(size=(3, 5))
    layers = posthoc.refitted(features, y, wrong)
    temperature = posthoc.best_temperature(torch.from_numpy(features @ wrong.T), torch.from_numpy(y))
    np.testing.assert_allclose(layers[0], wrong / temperature, atol=0.05)
    nll = [posthoc.cross_entropy(features @ layer.T, y) for layer in layers]
    assert (np.diff(nll) < 1e-6).all()
    # The weakest penalty is none: only what all classes have in common stays undetermined.
    alone = LogisticRegression(C=1e6, fit_intercept=False, tol=1e-8, max_iter=1000).fit(features, y)
    difference = layers[-1] - alone.coef_
    np.testing.assert_allclose(difference - difference.mean(0), 0, atol=0.02)


def test_a_refitted_last_layer_takes_the_penalty_of_the_folds(problem, monkeypatch):
    fitted = posthoc.refitted_last_layer(problem)
    assert fitted.settings["penalty"] in posthoc.PENALTIES
    # Labels that images say nothing about want no layer of their own.
    assert fitted.settings["penalty"] >= 0.01
    monkeypatch.setattr(posthoc, "PENALTIES", (1e9,))
    x = problem.data.validation_x
    two = posthoc.refitted_last_layer, posthoc.temperature_scaling
    strict, scaled = (method(problem).predict(x).probabilities for method in two)
    np.testing.assert_allclose(strict, scaled, atol=1e-4)


def test_the_temperature_of_an_ensemble_changes_neither_its_answers_nor_its_score(problem):
    problem = replace(problem, recipe=replace(problem.recipe, num_epochs=3))
    plain, scaled = (method(problem) for method in (posthoc.deep_ensemble, posthoc.scaled_ensemble))
    x, y = problem.data.validation_x, problem.data.validation_y.numpy()
    before, after = plain.predict(x), scaled.predict(x)
    np.testing.assert_array_equal(before.score, after.score)
    np.testing.assert_array_equal(before.probabilities.argmax(1), after.probabilities.argmax(1))
    assert score_classes(after.probabilities, y).nll < score_classes(before.probabilities, y).nll
    assert scaled.seconds > plain.seconds
    assert scaled.settings["networks"] == posthoc.NUM_MEMBERS


def test_members_that_agree_share_no_information_and_others_do():
    sure = np.array([[[1.0, 0.0]], [[1.0, 0.0]]])
    torn = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    assert interface.mixed(sure).score[0] == 0
    assert interface.mixed(torn).score[0] == pytest.approx(math.log(2))
    np.testing.assert_array_equal(interface.mixed(torn).probabilities, [[0.5, 0.5]])


def test_a_mean_field_layer_has_the_law_of_its_weights():
    torch.manual_seed(0)
    layer = bayesian.MeanField(nn.Linear(6, 3))
    layer.log_std.data += 1.0
    x = torch.randn(1, 6)
    expected = ((2 * layer.log_std).exp() @ x[0].square()).sqrt()
    for sample in (layer.train(), layer.eval()):
        draws = []
        for _ in range(4000):
            sample.draw()
            draws.append(sample(x)[0].detach())
        found = torch.stack(draws)
        torch.testing.assert_close(found.mean(0), layer.layer(x)[0], atol=0.02, rtol=0)
        torch.testing.assert_close(found.std(0), expected, atol=0, rtol=0.06)


def test_the_divergence_is_that_of_normal_laws_and_the_best_prior():
    layer = bayesian.MeanField(nn.Conv2d(2, 3, 3))
    scale = (layer.layer.weight.square() + (2 * layer.log_std).exp()).mean().sqrt()
    own = torch.distributions.Normal(layer.layer.weight, layer.log_std.exp())

    def to(prior_std):
        return torch.distributions.kl_divergence(own, torch.distributions.Normal(0.0, prior_std)).sum()

    torch.testing.assert_close(layer.divergence(), to(scale))
    assert layer.divergence() < min(to(0.9 * scale), to(1.1 * scale))


def test_mean_field_layers_take_the_place_of_all_weights():
    network = networks.build(networks.ARCHITECTURES["fashion-mnist"], seed=0)
    found = bayesian.mean_field(network)
    count = sum(isinstance(module, nn.Conv2d | nn.Linear) for module in network.modules())
    assert sum(isinstance(module, bayesian.MeanField) for module in found.modules()) == count == 6
    x = torch.randn(2, 1, 28, 28)
    # Before the first draw the weights at evaluation are the means.
    torch.testing.assert_close(found.eval()(x), network.eval()(x), atol=1e-5, rtol=1e-4)


def test_laplace_on_features_is_laplace_on_the_last_layer(problem):
    laplace = importlib.import_module("laplace")
    network = copy.deepcopy(problem.shared.network)
    # The library wants weights in the usual order.
    for parameter in network.parameters():
        parameter.data = parameter.data.contiguous()
    whole = laplace.Laplace(network, "classification", "last_layer", "kron", last_layer_name="output")
    images = torch.utils.data.TensorDataset(problem.data.train_x, problem.data.train_y)
    whole.fit(torch.utils.data.DataLoader(images, batch_size=500))
    x = problem.data.validation_x[:8]
    expected = whole(x, pred_type="glm", link_approx="probit").double().numpy()
    found = bayesian.laplace(damped=False)(problem)
    np.testing.assert_allclose(found.predict(x).probabilities, expected, atol=1e-4)


def test_damping_does_not_raise_the_nll_on_validation_images(problem):
    y = problem.data.validation_y.numpy()
    nll = [
        score_classes(bayesian.laplace(damped=damped)(problem).predict(problem.data.validation_x).probabilities, y).nll
        for damped in (False, True)
    ]
    assert nll[1] <= nll[0] + 1e-9


@pytest.mark.parametrize("name", ["gwi", "gwi, naive features"])
def test_ours_gives_probabilities_and_scores_around_the_shared_network(name, problem):
    fitted = methods.METHODS[name](problem)
    x = problem.data.validation_x
    probabilities = fitted.predict(x).probabilities
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)
    assert fitted.uses_shared
    scores = fitted.score(x)
    assert ((scores >= 0) & (scores <= 1)).all()


class FakeClassifier:
    """Stands in for the classifier, and keeps what it was given."""

    made: ClassVar = []

    def __init__(self, **options):
        self.options = options
        self.made.append(self)

    def fit(self, x, y=None, *, validation):
        self.data = (x, y, *validation)
        return self

    def predict_proba(self, x):
        # As the classifier does: tensors in, tensors of their precision out.
        return np.full((len(x), 10), 0.1) if isinstance(x, np.ndarray) else torch.full((len(x), 10), 0.1, dtype=x.dtype)

    def ood_score(self, x):
        return x.mean((1, 2, 3))


def test_ours_are_called_by_the_classifiers_interface(problem, monkeypatch):
    monkeypatch.setattr(gwi, "GWIClassifier", FakeClassifier, raising=False)
    FakeClassifier.made.clear()
    for name in ("gwi", "gwi, mean as it is", "gwi, pixels", "gwi, joint", "GWI-net (paper)"):
        fitted = methods.METHODS[name](problem)
        assert fitted.score_name == "ood_score"
        assert (fitted.predict(problem.data.validation_x).probabilities == 0.1).all()
        assert fitted.score(problem.data.validation_x).shape == (len(problem.data.validation_x),)
        assert fitted.uses_shared == (name in ("gwi", "gwi, mean as it is", "gwi, pixels"))
    given = [dict(made.options) for made in FakeClassifier.made]
    assert all(isinstance(options.pop("mean"), networks.SmallCNN) for options in given)
    assert given == [
        {"random_state": 0, "freeze_mean": True, "correct_mean": True, "kernel": "features", "layer": "auto"},
        {"random_state": 0, "freeze_mean": True, "correct_mean": False, "kernel": "features", "layer": "auto"},
        {"random_state": 0, "freeze_mean": True, "correct_mean": True, "kernel": "rbf", "layer": "auto"},
        {"random_state": 0, "likelihood": "softmax", "max_epochs": 1},
        {"random_state": 0, "preset": "paper", "num_inducing": 11, "max_epochs": 1},
    ]
    # What trains a network has the images that all networks are trained on; what does not has them as they are.
    trained = [isinstance(made.data[0], DataLoader) for made in FakeClassifier.made]
    assert trained == [False, False, False, True, True]
    assert [made.data[0].sampler.batch_size for made in FakeClassifier.made[3:]] == [128, 1000]
    assert FakeClassifier.made[0].options["mean"] is not problem.shared.network


def test_a_loader_gives_every_image_once_a_pass_moved_and_mirrored_anew(problem):
    def passes(count):
        loader = training.augmented_loader(problem.data, problem.recipe, 5, 50)
        assert len(loader) == 3
        return [[part for batch in loader for part in zip(*batch, strict=True)] for _ in range(count)]

    first, second = passes(2)
    originals = {row.numpy().tobytes() for row in problem.data.train_x}
    assert len(first) == len(problem.data.train_x)
    assert sorted(int(y) for _, y in first) == sorted(problem.data.train_y.tolist())
    assert sum(x.numpy().tobytes() in originals for x, _ in first) < 20
    assert not all(torch.equal(a, b) for (a, _), (b, _) in zip(first, second, strict=True))
    (again,) = passes(1)
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(first, again, strict=True))


@pytest.mark.parametrize(("name", "epochs"), [("fashion-mnist", 60), ("cifar10-20k", 100)])
def test_the_papers_protocol_sees_as_many_images_as_the_ensembles_or_has_its_own_epochs(name, epochs):
    num_images = {"fashion-mnist": 55_000, "cifar10-20k": 18_000}[name]
    nothing = torch.empty(num_images, 0)
    whole = data.Data(name, nothing, nothing, nothing, nothing, nothing, nothing, {}, nothing)
    recipe = training.RECIPES[name]
    assert ours.paper_epochs(interface.Problem(whole, recipe, 0, None)) == epochs
    assert epochs == min(100, posthoc.NUM_MEMBERS * recipe.num_epochs)
    assert epochs * math.ceil(num_images / 1000) < training.num_gradient_steps(recipe, num_images)


@pytest.mark.parametrize("name", ["gwi, joint", pytest.param("GWI-net (paper)", marks=pytest.mark.slow)])
def test_ours_is_trained_by_a_loader(name, problem):
    fitted = methods.METHODS[name](problem)
    np.testing.assert_allclose(fitted.predict(problem.data.validation_x).probabilities.sum(1), 1, atol=1e-5)


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
    monkeypatch.setattr(table2_images, "as_completed", lambda futures: [])
    names = ("gwi", "MAP", "deep ensemble", "deep ensemble, temperature")
    table2_images.prepare([Task("fashion-mnist", 1, name) for name in names], Client())
    assert asked == [("fashion-mnist", 1, member) for member in range(posthoc.NUM_MEMBERS)]
    asked.clear()
    table2_images.prepare([Task("fashion-mnist", 1, name) for name in names[:2]], Client())
    assert asked == [("fashion-mnist", 1, 0)]


def test_a_quick_run_does_not_go_into_the_records(capsys):
    with pytest.raises(SystemExit):
        table2_images.parse(["--quick"])
    assert "--records" in capsys.readouterr().err


@pytest.mark.usefixtures("image_folder")
def test_the_small_version_runs_and_resumes(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GWI_CACHE", str(tmp_path / "cache"))
    arguments = ["--quick", "--workers", "0", "--records", str(tmp_path / "records.sqlite")]
    table2_images.main(arguments)
    with (tmp_path / "records.csv").open() as file:
        first = list(csv.DictReader(file))
    assert list(first[0]) == list(table2_images.COLUMNS)
    assert {row["method"] for row in first} == set(methods.PEERS)
    assert all(np.isfinite(float(row[column])) for row in first for column in table2_images.COLUMNS[3:-1])
    # The shared network, the ensemble's four others, and the one with dropout.
    assert len(list((tmp_path / "cache").rglob("*.safetensors"))) == 6
    # One record is lost, and only that fit is done again.
    store = Store(tmp_path / "records.sqlite")
    store.forget([Key("fashion-mnist", 0, "energy score")])
    capsys.readouterr()
    table2_images.main(arguments)
    said = capsys.readouterr().out
    assert "energy score: accuracy" in said
    assert said.count("NLL") == 1
    assert len(store.keys()) == len(methods.PEERS)
    table2_images.main(arguments)
    assert capsys.readouterr().out == ""
