"""A trained network as the mean, as it is, of classes and of numbers: tables, images, loaders, and its files."""

import copy

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gwi
from class_data import NAMES, SmallCNN, small_images, small_network, split_classes
from gwi import GWIClassifier, GWIRegressor
from gwi.core.features import NetworkFeatures
from gwi.core.kernels import FeatureKernel, default_kernel
from gwi.core.networks import mlp
from gwi.fitting import frozen_network
from gwi.fitting.frozen_network import feature_kernel
from gwi.parts import Covariance, Features, Frozen, Joint

pytestmark = pytest.mark.unchecked


@pytest.fixture(scope="module")
def data():
    return split_classes()


@pytest.fixture(scope="module")
def network(data):
    return small_network(*data[:2])


@pytest.fixture(scope="module")
def images():
    return small_images()


def test_a_frozen_network_stays_as_it_is_and_its_predictions_nearly_so(network, data):
    x, y, x_new, y_new = data
    before = {key: value.clone() for key, value in network.state_dict().items()}
    model = GWIClassifier(network, random_state=0).fit(x, y, validation=(x_new[:75], y_new[:75]))
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())
    own = NAMES[network(torch.as_tensor(x_new).float()).argmax(1).numpy()]
    assert (model.predict(x_new) == own).mean() > 0.98
    assert model.ood_score(20 * x_new).mean() > 0.9 > 0.5 > model.ood_score(x_new).mean()


def test_the_score_with_energy_is_the_sum_of_both_in_deviations_of_unseen_rows(network, data, tmp_path):
    x, y, x_new, y_new = data
    unseen, new = x_new[:75], np.concatenate([x_new[75:], 3 * x_new[75:]])
    model = GWIClassifier(network, random_state=0).fit(x, y, validation=(unseen, y_new[:75]))

    def parts(rows):
        outputs = network(torch.as_tensor(rows).float()).detach().double().numpy()
        energies = [-np.log(sum(np.exp(value) for value in row)) for row in outputs]
        return model.ood_score(rows), np.array(energies)

    expected = sum((own - usual.mean()) / usual.std() for own, usual in zip(parts(new), parts(unseen), strict=True))
    np.testing.assert_allclose(model.ood_score(new, energy=True), expected, rtol=1e-5)
    again = gwi.load(model.save(tmp_path / "model.gwi"))
    assert (again.ood_score(new, energy=True) == model.ood_score(new, energy=True)).all()


def test_log_probabilities_have_no_energy_to_add(network, data):
    x, y, x_new, y_new = data
    model = GWIClassifier(gwi.core.networks.AveragedNetworks([network]), tempering=None, random_state=0)
    model.fit(x, y, validation=(x_new, y_new))
    own, usual = model.ood_score(3 * x_new), model.ood_score(x_new)
    np.testing.assert_allclose(model.ood_score(3 * x_new, energy=True), (own - usual.mean()) / usual.std(), atol=1e-3)


def test_features_of_a_frozen_network_come_from_one_pass(network, data):
    x, y, x_new, y_new = data
    model = GWIClassifier(network, kernel="features", random_state=0, covariance=Covariance(num_inducing=40))
    model.fit(x, y, validation=(x_new, y_new))
    passes = []
    handle = model.model_.embedding.features.network.register_forward_hook(lambda *_: passes.append(1))
    model.predict_proba(x_new)
    handle.remove()
    assert len(passes) == 1
    assert "before 4" in str(model.summary_)


def test_a_feature_kernel_says_which_layer_and_what_is_done_to_it(network, data):
    x, y, x_new, y_new = data
    features = NetworkFeatures(network, "1", centre=True, projection=5, sphere=False)
    kernel = FeatureKernel(default_kernel(5, lengthscale=2.0), features)
    model = GWIClassifier(network, kernel=kernel, random_state=0, covariance=Covariance(num_inducing=50))
    model.fit(x, y, validation=(x_new, y_new))
    rows = next(model.model_.rows(x_new))
    hidden = network[:2](torch.as_tensor(x).float()).double()
    assert rows.shape == (150, 3 + 5)
    torch.testing.assert_close(model.model_.embedding.features.offset, hidden.mean(0).detach(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("freeze", [False, True])
def test_a_module_in_a_list_is_taken_as_it_is_unless_it_is_to_be_trained(freeze, data):
    x, y, x_new, y_new = data
    start = mlp(2, 3, hidden=(8,), generator=torch.Generator().manual_seed(0))
    model = GWIClassifier([start if freeze else gwi.Trained(start), "linear"], random_state=0)
    model.fit(x, y, validation=(x_new[:75], y_new[:75]))
    kept = [part for part in model.model_.posterior.mean.modules() if isinstance(part, nn.Linear)]
    own = [layer.weight for layer in start if isinstance(layer, nn.Linear)]
    nll = model.summary_.members[0].scores[0]
    assert freeze == (nll > 0.5)
    if kept:
        assert freeze == all(torch.equal(a.weight.to(b), b) for a, b in zip(kept, own, strict=True))


def test_images_of_a_frozen_network_take_features_before_every_later_convolution_and_the_dense_layer(images):
    x, y, network = images
    model = GWIClassifier(network, random_state=0, covariance=Covariance(num_inducing=60))
    model.fit(x[:300], y[:300], validation=(x[300:400], y[300:400]))
    assert model.model_.embedding.features.watched == ("conv.3", "dense.1")
    assert (model.predict(x[400:]) == y[400:]).mean() > 0.9
    noise = np.random.default_rng(0).random(x[400:].shape).astype(np.float32)
    assert np.median(model.ood_score(noise)) > np.quantile(model.ood_score(x[400:]), 0.9)


def test_a_loader_gives_what_arrays_give(images):
    x, y, network = images

    def loader(rows, labels):
        return DataLoader(TensorDataset(torch.from_numpy(rows), torch.from_numpy(labels)), batch_size=64)

    settings = {"covariance": Covariance(num_inducing=60), "random_state": 0}
    arrays = GWIClassifier(network, **settings).fit(x[:300], y[:300], validation=(x[300:400], y[300:400]))
    loaders = GWIClassifier(network, **settings).fit(loader(x[:300], y[:300]), validation=loader(x[300:400], y[300:400]))
    first, second = arrays.predict_proba(x[400:]), loaders.predict_proba(loader(x[400:], y[400:]))
    assert first.shape == second.shape
    # The samples of rows that stand for all are other ones.
    np.testing.assert_allclose(first, second, atol=0.05)
    assert loaders.nll(x[400:], y[400:]) < 0.3


def test_the_length_scale_on_features_does_not_depend_on_the_order_of_rows():
    generator = torch.Generator().manual_seed(0)
    # Four classes of a thousand rows, far from each other.
    x = torch.randn(4000, 4, generator=generator, dtype=torch.float64)
    x[:, 3] += 20 * torch.arange(4).repeat_interleave(1000)
    in_order, mixed = x, x[torch.randperm(4000, generator=generator)]
    found = [feature_kernel("features", rows, 1, torch.Generator().manual_seed(1)) for rows in (in_order, mixed)]
    scales = [kernel.base_kernel.lengthscale.item() for kernel in found]
    assert scales[0] == pytest.approx(scales[1], rel=0.1)
    assert scales[0] == pytest.approx(nn.functional.pdist(mixed[:2000, 1:]).median().item(), rel=0.1)


def test_rows_that_are_not_held_are_counted(images, monkeypatch):
    x, y, network = images
    found = []
    for most in (50_000, 150):
        monkeypatch.setattr(frozen_network, "MOST_ROWS", most)
        model = GWIClassifier(network, tempering=1.0, random_state=0, covariance=Covariance(num_inducing=20))
        loader = DataLoader(TensorDataset(torch.from_numpy(x[:300]), torch.from_numpy(y[:300])), batch_size=64)
        found.append(model.fit(loader, validation=(x[300:400], y[300:400])).summary_)
    assert [summary.num_rows for summary in found] == [300, 300]
    whole, sample = (np.mean(summary.divergence_weight) for summary in found)
    assert sample == pytest.approx(whole, rel=0.15)


@pytest.mark.parametrize("in_training", [True, False])
def test_images_of_a_loader_must_be_finite(in_training, images):
    x, y, network = images
    bad = x.copy()
    bad[350 - 300 * in_training, 0, 0, 0] = np.nan

    def loader(rows):
        return DataLoader(TensorDataset(torch.from_numpy(bad[rows]), torch.from_numpy(y[rows])), batch_size=64)

    with pytest.raises(ValueError, match="Rows must be finite"):
        GWIClassifier(network, covariance=Covariance(num_inducing=10)).fit(loader(slice(300)), validation=loader(slice(300, 400)))


def test_pixels_can_be_the_kernels_rows(images):
    x, y, network = images
    model = GWIClassifier(network, kernel="rbf", random_state=0, covariance=Covariance(num_inducing=60))
    model.fit(x[:300], y[:300], validation=(x[300:400], y[300:400]))
    assert (model.predict(x[400:]) == y[400:]).mean() > 0.9
    assert model.ood_score(10 * x[400:]).mean() > model.ood_score(x[400:]).mean()


def test_a_saved_model_of_images_needs_the_network_back(images, tmp_path):
    x, y, network = images
    model = GWIClassifier(network, random_state=0, covariance=Covariance(num_inducing=40))
    model.fit(x[:300], y[:300], validation=(x[300:400], y[300:400]))
    path = model.save(tmp_path / "model.gwi")
    with pytest.raises(gwi.exceptions.ModelFileError, match="pass an instance"):
        gwi.load(path)
    again = gwi.load(path, module=SmallCNN())
    assert (again.predict_proba(x[400:]) == model.predict_proba(x[400:])).all()


@pytest.mark.parametrize("frozen", [True, False])
def test_a_network_of_double_precision_is_read_into_one_of_single(frozen, images, tmp_path):
    x, y, network = images
    module = copy.deepcopy(network).double() if frozen else copy.deepcopy(network)
    with torch.no_grad():
        module.dense[1].weight.mul_(1 / 3)
    mean = Frozen(module) if frozen else Joint(module, max_epochs=1)
    model = GWIClassifier(mean, dtype="float64", tempering=1.0, random_state=0, covariance=Covariance(num_inducing=20))
    model.fit(x[:200], y[:200], validation=(x[300:400], y[300:400]))
    again = gwi.load(model.save(tmp_path / "model.gwi"), module=SmallCNN())
    assert (again.predict_proba(x[400:]) == model.predict_proba(x[400:])).all()


def test_a_layer_that_is_not_there_is_named(network, data):
    with pytest.raises(ValueError, match="no submodule 'block'"):
        NetworkFeatures(network, "block")


# Numbers


def centres_of_ink(num_targets=1):
    """Images of digits; where their ink is, across and down, with noise; and a network that learned it from the first 800."""
    x = (load_digits().data / 16).reshape(-1, 1, 8, 8).astype(np.float32)
    total, place = x.sum((1, 2, 3)), np.arange(8)
    y = np.stack([(x.sum((1, axis)) * place).sum(1) / total for axis in (2, 3)], axis=1)[:, :num_targets]
    y = y + 0.1 * np.random.default_rng(0).standard_normal(y.shape)
    torch.manual_seed(0)
    network = SmallCNN(num_targets)
    rows, targets = torch.from_numpy(x[:800]), torch.from_numpy(y[:800]).float()
    optimiser = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(200):
        optimiser.zero_grad()
        (network(rows) - targets).square().mean().backward()
        optimiser.step()
    return x, y if num_targets > 1 else y[:, 0], network.eval()


def loader(x, y):
    return DataLoader(TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), batch_size=64)


@pytest.fixture(scope="module")
def numbers():
    return centres_of_ink()


@pytest.fixture(scope="module", params=["arrays", "loaders"])
def regressor(request, numbers):
    x, y, network = numbers
    model = GWIRegressor(Frozen(network), kernel=Features(), covariance=Covariance(num_inducing=60), random_state=0)
    if request.param == "arrays":
        return model.fit(x[:800], y[:800], validation=(x[800:1100], y[800:1100]))
    return model.fit(loader(x[:800], y[:800]), validation=loader(x[800:1100], y[800:1100]))


def outputs_of(network, x):
    with torch.no_grad():
        return network(torch.from_numpy(x)).double().numpy()


def test_a_regression_network_predicts_what_it_did_before(regressor, numbers):
    x, y, network = numbers
    mean = regressor.predict(x[1100:])
    assert mean.shape == y[1100:].shape
    np.testing.assert_allclose(mean, outputs_of(network, x[1100:])[:, 0], rtol=1e-6)
    assert regressor.summary_.num_rows == 800
    assert "features of the network before conv.3, dense.1" in str(regressor.summary_)


def test_intervals_of_a_regression_network_hold_what_they_promise(regressor, numbers):
    x, y, _ = numbers
    lower, upper = regressor.predict_interval(x[1100:], 0.9).T
    assert 0.86 < ((lower <= y[1100:]) & (y[1100:] <= upper)).mean() < 0.94


def test_images_of_noise_are_strange_to_a_regression_network(regressor, numbers):
    x, _, _ = numbers
    noise = np.random.default_rng(0).random(x[1100:].shape).astype(np.float32)
    assert np.median(regressor.ood_score(noise)) > np.quantile(regressor.ood_score(x[1100:]), 0.9)
    epistemic = [regressor.decompose(rows).epistemic.mean() for rows in (noise, x[1100:])]
    assert epistemic[0] > 2 * epistemic[1]


def test_a_saved_regression_network_is_read_back_with_its_module(regressor, numbers, tmp_path):
    x, _, _ = numbers
    path = regressor.save(tmp_path / "model.gwi")
    again = gwi.load(path, module=SmallCNN(1))
    for found, wanted in zip(again.predict(x[1100:], return_std=True), regressor.predict(x[1100:], return_std=True), strict=True):
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(again.ood_score(x[1100:]), regressor.ood_score(x[1100:]))
    np.testing.assert_array_equal(again.predict_interval(x[1100:]), regressor.predict_interval(x[1100:]))


@pytest.mark.parametrize("kernel", ["features", "rbf"])
def test_a_regression_network_may_have_several_targets(kernel, tmp_path):
    x, y, network = centres_of_ink(2)
    model = GWIRegressor(Frozen(network), kernel=kernel, covariance=Covariance(num_inducing=40), random_state=0)
    model.fit(x[:800], y[:800], validation=(x[800:1100], y[800:1100]))
    np.testing.assert_allclose(model.predict(x[1100:]), outputs_of(network, x[1100:]), rtol=1e-5)
    again = gwi.load(model.save(tmp_path / "model.gwi"), module=SmallCNN(2))
    np.testing.assert_array_equal(again.predict(x[1100:]), model.predict(x[1100:]))


def test_a_regression_network_may_give_numbers_without_an_axis_for_them(numbers, regressor):
    x, y, network = numbers

    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, rows):
            return self.network(rows)[:, 0]

    model = GWIRegressor(Frozen(Flat()), covariance=Covariance(num_inducing=60), random_state=0)
    model.fit(x[:800], y[:800], validation=(x[800:1100], y[800:1100]))
    np.testing.assert_allclose(model.predict(x[1100:]), regressor.predict(x[1100:]), rtol=1e-6)


@pytest.mark.parametrize("kernel", ["features", "rbf"])
@pytest.mark.parametrize("num_outputs", [1, 3])
def test_a_regression_network_with_other_outputs_than_targets_is_refused(num_outputs, kernel, numbers):
    x, y, _ = numbers
    both = np.column_stack([y, -y])
    model = GWIRegressor(Frozen(SmallCNN(num_outputs).eval()), kernel=kernel, covariance=Covariance(num_inducing=10))
    with pytest.raises(ValueError, match=f"gives {num_outputs} outputs per row; there are 2 target"):
        model.fit(x[:100], both[:100], validation=(x[100:150], both[100:150]))


def test_inducing_points_that_a_network_would_not_use_are_refused(data):
    x, y, x_new, y_new = data[:4]
    given = Covariance(inducing_points=np.zeros((5, x.shape[1])))
    with pytest.raises(ValueError, match="With a network, inducing points are chosen by gwi"):
        GWIClassifier(nn.Linear(x.shape[1], 3), covariance=given).fit(x, y, validation=(x_new, y_new))
