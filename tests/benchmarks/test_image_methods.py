"""The methods of the image table: each does what its name says, by hand, by brute force or by another library."""

import copy
import importlib
import math
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from benchmarks.tables.images import bayesian, data, interface, methods, networks, ours, posthoc, training
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.utils.data import DataLoader

import gwi
from gwi.evaluation.classification import score_classes

pytest_plugins = ("image_problem",)
pytestmark = pytest.mark.unchecked


def test_the_temperature_is_that_of_a_grid():
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(500, 10, generator=generator)
    y = torch.distributions.Categorical(logits=logits / 2.5).sample()
    grid = torch.linspace(0.5, 6, 2201)
    losses = torch.stack([nn.functional.cross_entropy(logits / t, y) for t in grid])
    assert posthoc.best_temperature(logits, y) == pytest.approx(float(grid[losses.argmin()]), abs=0.003)


def test_a_mirrored_network_gives_an_image_and_its_mirror_image_the_same_probabilities(problem):
    fitted = methods.METHODS["MAP, temperature, mirrored"](problem)
    x = problem.data.test_x[:20]
    probabilities = fitted.predict(x).probabilities
    np.testing.assert_allclose(fitted.predict(x.flip(-1)).probabilities, probabilities, rtol=1e-5)
    with torch.no_grad():
        logits = (problem.shared.network(x) + problem.shared.network(x.flip(-1))) / 2
    wanted = torch.softmax(logits.double() / fitted.settings["temperature"], 1)
    np.testing.assert_allclose(probabilities, wanted, rtol=1e-5)


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
    layers["all"] = gwi.core.features.NetworkFeatures(network).fit(problem.data.train_x[:10])
    for name, layer in layers.items():
        fitted = posthoc.nearest_neighbours(name)(problem)
        with torch.no_grad():
            bank, queries = (posthoc.normalised(layer(part)) for part in (problem.data.train_x, x))
        np.testing.assert_allclose(fitted.score(x), torch.cdist(queries, bank).min(1).values, atol=1e-3)
        np.testing.assert_array_equal(fitted.predict(x).probabilities, posthoc.map_estimate(problem).predict(x).probabilities)


def test_a_distance_with_energy_is_the_sum_of_both_in_deviations_of_validation_images(problem):
    x, usual = problem.data.train_x, problem.data.validation_x
    scores = [posthoc.nearest_neighbours("all")(problem).score, lambda x: posthoc.energy_score(problem).predict(x).score]
    expected = sum((own(x) - own(usual).mean()) / own(usual).std() for own in scores)
    fitted = methods.METHODS["kNN distance, with energy"](problem)
    np.testing.assert_allclose(fitted.score(x), expected)
    assert fitted.score_name == "distance with energy"


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
    monkeypatch.setattr(posthoc, "PENALTIES", posthoc.PENALTIES[::3])
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


def test_ours_around_an_ensemble_answers_as_the_ensemble_does_and_costs_its_trainings(problem):
    problem = replace(problem, recipe=replace(problem.recipe, num_epochs=3))
    plain, surrounded = (methods.METHODS[name](problem) for name in ("deep ensemble", "gwi, ensemble"))
    x = problem.data.test_x
    answers = [fitted.predict(x).probabilities.argmax(1) for fitted in (plain, surrounded)]
    assert (answers[0] == answers[1]).mean() > 0.95
    assert surrounded.settings["networks"] == posthoc.NUM_MEMBERS
    assert surrounded.seconds > plain.seconds
    assert surrounded.uses_shared


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


@pytest.mark.parametrize("name", ["gwi", "gwi, mirrored", "gwi, naive features"])
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

    def ood_score(self, x, *, energy=False):
        return (1 + energy) * x.mean((1, 2, 3))


def test_ours_are_called_by_the_classifiers_interface(problem, monkeypatch):
    monkeypatch.setattr(gwi, "GWIClassifier", FakeClassifier, raising=False)
    FakeClassifier.made.clear()
    for name in ("gwi", "gwi, corrected", "gwi, pixels", "gwi, joint", "GWI-net (paper)"):
        fitted = methods.METHODS[name](problem)
        assert fitted.score_name == "ood_score"
        assert (fitted.predict(problem.data.validation_x).probabilities == 0.1).all()
        assert fitted.score(problem.data.validation_x).shape == (len(problem.data.validation_x),)
        assert fitted.uses_shared == (name in ("gwi", "gwi, corrected", "gwi, pixels"))
    given = [dict(made.options) for made in FakeClassifier.made]
    means = [options.pop("mean") for options in given]
    modules = [mean.mean if isinstance(mean, gwi.Paper) else mean.module for mean in means]
    assert all(isinstance(module, networks.SmallCNN) for module in modules)
    assert [type(mean) for mean in means] == [gwi.Frozen, gwi.Frozen, gwi.Frozen, gwi.Joint, gwi.Paper]
    assert [mean.correct for mean in means[:3]] == [False, True, False]
    assert [mean.max_epochs for mean in means[3:]] == [1, 1]
    chosen = [
        {key: value.get_params() if hasattr(value, "get_params") else value for key, value in options.items()}
        for options in given
    ]
    assert chosen == [
        {"random_state": 0, "kernel": {"layer": "auto"}},
        {"random_state": 0, "kernel": {"layer": "auto"}},
        {"random_state": 0, "kernel": "rbf"},
        {"random_state": 0, "likelihood": "softmax"},
        {"random_state": 0, "covariance": gwi.Covariance(num_inducing=11).get_params()},
    ]
    # What trains a network has the images that all networks are trained on; what does not has them as they are.
    trained = [isinstance(made.data[0], DataLoader) for made in FakeClassifier.made]
    assert trained == [False, False, False, True, True]
    assert [made.data[0].sampler.batch_size for made in FakeClassifier.made[3:]] == [128, 1000]
    assert modules[0] is not problem.shared.network
    plain, both = (methods.METHODS[name](problem) for name in ("gwi", "gwi, with energy"))
    assert both.score_name == "ood_score with energy"
    assert (both.score(problem.data.validation_x) == 2 * plain.score(problem.data.validation_x)).all()


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
