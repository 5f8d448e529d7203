"""The loss of joint training against loops, what its optimiser does, and what it gives a classifier."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

import gwi
import reference
from class_data import NAMES, SmallCNN, small_images, split_classes
from gwi import GWIClassifier
from gwi.core.likelihoods.robust_max import RobustMaxLikelihood
from gwi.core.likelihoods.softmax import SoftmaxLikelihood
from gwi.core.linalg import cholesky
from gwi.core.means import ModuleMean
from gwi.core.measures import kernel_matrix
from gwi.core.networks import mlp
from gwi.fitting import joint_training
from gwi.fitting.classification import ClassificationTask
from gwi.fitting.data import FitOptions
from gwi.fitting.joint_training import LOWEST_RATE, JointPosterior, Settings, classification_loss, one_cycle, train_jointly
from gwi.parts import Covariance, Joint, Paper
from gwi.streaming.batches import Batches

pytestmark = pytest.mark.unchecked

NUM_CLASSES, NUM_DATA, WEIGHT, EPSILON = 3, 500, 7.0, 0.01


@pytest.fixture
def posterior(kernel, generator):
    kernel.requires_grad_(False)
    z = torch.randn(4, 2, dtype=torch.float64, generator=generator)
    network = nn.Linear(2, NUM_CLASSES).double()
    with torch.no_grad():
        network.weight.copy_(torch.randn(NUM_CLASSES, 2, generator=generator))
        network.bias.copy_(torch.randn(NUM_CLASSES, generator=generator))
    factor = 0.4 * torch.randn(NUM_CLASSES, 4, 4, dtype=torch.float64, generator=generator)
    lower = cholesky(kernel_matrix(kernel, z), name="k(Z, Z)").factor
    return JointPosterior(ModuleMean(network), kernel, z, lower, factor.requires_grad_(True))


@pytest.fixture
def rows(generator):
    return torch.randn(9, 2, dtype=torch.float64, generator=generator), torch.arange(9) % NUM_CLASSES


def in_loops(posterior, reference_kernel, x, labels, comparison):
    """L̂/N, class by class and row by row."""
    z = posterior.inducing_points.numpy()
    network = posterior.mean.module
    weight, bias = network.weight.detach().numpy(), network.bias.detach().numpy()
    white = np.linalg.inv(np.linalg.cholesky(reference.matrix(reference_kernel, z, z)))
    factors = posterior.whitened_factor.detach().numpy()
    kernels = [reference.svgp_kernel(reference_kernel, z, white.T @ f @ f.T @ white) for f in factors]
    value = 0.0
    for row, label in zip(x, labels, strict=True):
        mean, variance = weight @ row + bias, np.array([r(row, row) for r in kernels])
        value -= reference.multiclass_expected_log_likelihood(mean, variance, label, EPSILON) / len(x)
    for j, r in enumerate(kernels):
        measures = (lambda row: 0.0), reference_kernel, (lambda row, j=j: weight[j] @ row + bias[j]), r, x
        if comparison is None:
            distance = reference.wasserstein_squared(*measures)
        else:
            distance = reference.wasserstein_squared_two_sample(*measures, comparison)
        value += WEIGHT / NUM_DATA * distance
    return value


@pytest.mark.parametrize("two_sample", [False, True])
def test_the_loss_of_a_batch_is_the_papers_in_loops(two_sample, posterior, reference_kernel, rows, generator):
    x, labels = rows
    comparison = torch.randn(5, 2, dtype=torch.float64, generator=generator) if two_sample else None
    found = classification_loss(
        posterior,
        RobustMaxLikelihood(NUM_CLASSES, EPSILON),
        x,
        x,
        labels,
        num_data=NUM_DATA,
        divergence_weight=WEIGHT,
        comparison=comparison,
    )
    other = None if comparison is None else comparison.numpy()
    wanted = in_loops(posterior, reference_kernel, x.numpy(), labels.numpy(), other)
    assert found.item() == pytest.approx(wanted, abs=1e-6)


def test_a_posterior_that_is_the_prior_pays_for_its_mean_alone(posterior, rows):
    x, labels = rows
    with torch.no_grad():
        posterior.whitened_factor.copy_(torch.eye(4))
    options = {"num_data": NUM_DATA}
    likelihood = SoftmaxLikelihood(NUM_CLASSES)
    free, dear = (classification_loss(posterior, likelihood, x, x, labels, divergence_weight=w, **options) for w in (0.0, 1.0))
    mean = posterior.mean(x)
    assert (dear - free).item() == pytest.approx(mean.square().mean(1).sum().item() / NUM_DATA, abs=1e-8)


def test_the_learning_rate_rises_once_and_falls_to_zero():
    assert one_cycle(0.0, 0.2) == pytest.approx(LOWEST_RATE)
    assert one_cycle(0.1, 0.2) == pytest.approx((1 + LOWEST_RATE) / 2)
    assert one_cycle(0.2, 0.2) == pytest.approx(1.0)
    assert one_cycle(0.6, 0.2) == pytest.approx(0.5)
    assert one_cycle(1.0, 0.2) == one_cycle(1.1, 0.2) == pytest.approx(0.0)


def test_without_a_rise_it_is_torchs_cosine():
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 10)
    for step in range(10):
        assert schedule.get_last_lr()[0] == pytest.approx(one_cycle(step / 10, 0.0))
        optimiser.step()
        schedule.step()


@pytest.fixture
def trained(rows, monkeypatch):
    """A linear network and its covariances after so many steps, one unless told, on the same rows in the same order."""
    x, labels = (part.numpy() for part in rows)
    network = nn.Linear(2, NUM_CLASSES).double()

    def after(num_steps=1, decay=0.0, rise=0.0):
        monkeypatch.setattr(joint_training, "JOINT_DECAY", decay)
        monkeypatch.setattr(joint_training, "JOINT_RISE", rise)
        options = FitOptions("rbf", Covariance(num_inducing=4), torch.Generator().manual_seed(0), network_dtype=torch.float64)
        settings = Settings(num_epochs=num_steps, batch_size=len(x), learning_rate=0.1, paper=False)
        task = ClassificationTask(np.arange(NUM_CLASSES))
        fit = train_jointly(network, Batches(x, labels, np.asarray), (2,), task, options, settings)
        return fit.posterior.mean.module, fit.posterior.whitened_factor.detach()

    return after


def test_weights_decay_apart_from_their_gradient_and_nothing_else_does(trained):
    (before, _), (plain, factor), (decayed, other) = trained(0), trained(), trained(decay=0.5)
    torch.testing.assert_close(decayed.weight, plain.weight - 0.1 * 0.5 * before.weight)
    torch.testing.assert_close(decayed.bias, plain.bias)
    torch.testing.assert_close(other, factor)
    assert not torch.equal(plain.weight, before.weight)
    assert factor.isfinite().all()


def test_a_rise_begins_with_a_tenth_of_the_step(trained):
    _, before = trained(0)
    whole, first = (trained(rise=rise)[1] - before for rise in (0.0, 0.2))
    torch.testing.assert_close(first, LOWEST_RATE * whole, rtol=1e-6, atol=1e-12)


@pytest.fixture(scope="module")
def data():
    return split_classes()


@pytest.fixture(scope="module")
def images():
    return small_images()


@pytest.mark.parametrize("likelihood", ["softmax", "robust-max"])
def test_joint_training_learns_mean_and_covariances(likelihood, data):
    x, y, x_new, y_new = data
    start = mlp(2, 3, hidden=(16,), generator=torch.Generator().manual_seed(0))
    before = start[0].weight.clone()
    model = GWIClassifier(
        Joint(start, max_epochs=15, batch_size=64, learning_rate=2e-2),
        likelihood=likelihood,
        random_state=0,
        covariance=Covariance(num_inducing=20),
    ).fit(x, y)
    assert (model.predict(x_new) == y_new).mean() > 0.9
    assert model.ood_score(20 * x_new).mean() > 0.9 > model.ood_score(x_new).mean()
    assert torch.equal(start[0].weight, before)  # A copy is trained.
    assert model.summary_.covariance == "trained"


def test_a_network_trained_on_images_gives_the_features_of_its_kernel(images):
    x, y, _ = images
    torch.manual_seed(0)
    model = GWIClassifier(
        Joint(SmallCNN(), max_epochs=8, batch_size=32, learning_rate=1e-2), random_state=0, covariance=Covariance(num_inducing=40)
    )
    model.fit(x[:300], y[:300], validation=(x[300:400], y[300:400]))
    trained = model.model_.embedding.features.network
    own = trained(torch.as_tensor(x[400:])).argmax(1).numpy()
    assert (own == y[400:]).mean() > 0.9
    assert (model.predict(x[400:]) == own).mean() > 0.95
    # Images of another kind, as bright as those of the training.
    shuffled = np.random.default_rng(0).permuted(x[400:].reshape(len(x) - 400, -1), axis=1).reshape(x[400:].shape)
    assert model.ood_score(shuffled).mean() > 1.3 * model.ood_score(x[400:]).mean()
    # Its covariance is that around the network as it now is, frozen.
    again = GWIClassifier(trained, random_state=0, covariance=Covariance(num_inducing=40))
    again.fit(x[:300], y[:300], validation=(x[300:400], y[300:400]))
    assert np.abs(again.predict_proba(x[400:]) - model.predict_proba(x[400:])).max() < 0.05


def test_layers_for_features_are_looked_for_before_the_training(images, monkeypatch):
    x, y, _ = images
    monkeypatch.setattr(joint_training, "train_jointly", None)
    network = nn.Sequential(nn.Conv2d(1, 10, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(ValueError, match="no linear layer after its convolutions"):
        GWIClassifier(Joint(network), random_state=0).fit(x, y)


class Unsized(IterableDataset):
    """Rows of which nobody knows how many there are."""

    def __init__(self, x, y):
        self.x, self.y = torch.from_numpy(x), torch.from_numpy(y)

    def __iter__(self):
        return iter(zip(self.x, self.y, strict=True))


def test_a_loader_need_not_know_its_length(data):
    x, y, x_new, y_new = data
    label, label_new = (np.searchsorted(NAMES, part) for part in (y, y_new))
    model = GWIClassifier(
        Joint(mlp(2, 3, hidden=(8,)), max_epochs=1), tempering=1.0, random_state=0, covariance=Covariance(num_inducing=5)
    )
    model.fit(DataLoader(Unsized(x, label), batch_size=64), validation=(x_new, label_new))
    assert model.summary_.num_rows == 300


@pytest.mark.parametrize(("part", "given", "used"), [(Joint, None, 128), (Joint, 30, 30), (Paper, None, 1000), (Paper, 30, 30)])
def test_the_batch_size_is_the_one_given(part, given, used, data, monkeypatch):
    class SeenError(Exception):
        """With the options of the training."""

    def spy(*arguments):
        raise SeenError(arguments[-1].batch_size)

    monkeypatch.setattr(joint_training, "train_jointly", spy)
    with pytest.raises(SeenError) as found:
        GWIClassifier(part(mlp(2, 3), batch_size=given)).fit(data[0], data[1])
    assert found.value.args == (used,)


def test_labels_of_a_module_may_be_a_column_and_must_be_there(data):
    x, y, x_new, y_new = data
    network = mlp(2, 3, hidden=(8,), generator=torch.Generator().manual_seed(0))
    flat = GWIClassifier(Joint(network, max_epochs=1), covariance=Covariance(num_inducing=5), tempering=1.0, random_state=0)
    column = clone(flat)
    flat.fit(x, y, validation=(x_new, y_new))
    with pytest.warns(DataConversionWarning):
        column.fit(x, y[:, None], validation=(x_new, y_new[:, None]))
    assert (flat.predict_proba(x_new) == column.predict_proba(x_new)).all()
    with pytest.raises(ValueError, match="requires y to be passed"):
        clone(flat).fit(x)


def test_the_first_covariance_is_that_of_rows_of_all_classes(monkeypatch):
    class SeenError(Exception):
        """With the rows that it was found on."""

    def spy(kernel, z, x, noise, num_rows):
        raise SeenError(x)

    monkeypatch.setattr(joint_training, "paper_initial_covariance", spy)
    y = np.arange(3).repeat(1000)
    with pytest.raises(SeenError) as found:
        GWIClassifier(Paper(mlp(1, 3)), random_state=0, covariance=Covariance(num_inducing=5)).fit(y[:, None].astype(float), y)
    _, count = found.value.args[0].unique(return_counts=True)
    assert len(count) == 3
    assert count.min() > 250


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_papers_protocol_trains_from_scratch_and_its_probabilities_sum_to_one(seed, data):
    x, y, x_new, y_new = data
    start = mlp(2, 3, hidden=(16,), generator=torch.Generator().manual_seed(seed))
    model = GWIClassifier(
        Paper(start, max_epochs=60, learning_rate=2e-2), random_state=seed, covariance=Covariance(num_inducing=12)
    ).fit(x, y)
    assert (model.predict(x_new) == y_new).mean() > 0.85
    likelihood = gwi.core.likelihoods.robust_max.RobustMaxLikelihood(3, 0.01)
    raw = likelihood.class_probabilities(*model.model_.logits(next(model.model_.rows(x_new))))
    assert (raw.sum(0) - 1).abs().max() < 1e-6
    assert raw.isfinite().all()


@pytest.mark.parametrize(("tempering", "factor"), [(None, 1.0), (2.0, 2.0)])
def test_the_papers_protocol_takes_the_users_tempering(tempering, factor, data):
    x, y, *_ = data
    part = Paper(mlp(2, 3, generator=torch.Generator().manual_seed(0)), max_epochs=2)
    model = GWIClassifier(part, tempering=tempering, random_state=0, covariance=Covariance(num_inducing=5)).fit(x, y)
    assert model.summary_.tempering == (factor,) * 3
