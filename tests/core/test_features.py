"""Features of a network for a kernel, and networks averaged into one mean."""

import copy
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError
from torch import nn

import gwi
from class_data import small_images, small_network, split_classes
from gwi import GWIClassifier
from gwi.core import features as features_module
from gwi.core.features import NetworkFeatures, automatic_layers
from gwi.parts import Covariance

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


def test_sphere_features_have_norm_one_and_forget_lengths(network, data):
    features = NetworkFeatures(network, "1").fit(torch.as_tensor(data[0]))
    values = features(torch.as_tensor(data[2]))
    torch.testing.assert_close(values.norm(dim=1), torch.ones(150, dtype=torch.float64))
    plain = NetworkFeatures(network, "1", sphere=False).fit(torch.as_tensor(data[0]))(torch.as_tensor(data[2]))
    torch.testing.assert_close(values, plain / plain.norm(dim=1, keepdim=True))


def test_each_of_several_layers_counts_alike_and_maps_by_the_size_of_their_channels(images):
    x, _, network = images
    rows = torch.from_numpy(x[:20])
    values = NetworkFeatures(network, ("conv.0", "dense.3")).fit(rows)(rows)
    with torch.no_grad():
        channels = network.conv[0](rows).double().numpy()
        dense = network.eval().dense[:4](network.conv(rows)).double().numpy()
    sizes = np.sqrt((channels**2).mean((2, 3)))
    expected = np.hstack([part / np.linalg.norm(part, axis=1, keepdims=True) for part in (sizes, dense)]) / np.sqrt(2)
    np.testing.assert_allclose(values, expected, atol=1e-6)
    centred = NetworkFeatures(network, ("conv.0", "dense.3"), centre=True, sphere=False).fit(rows)(rows)
    np.testing.assert_allclose(centred, np.hstack([sizes, dense]) - np.hstack([sizes, dense]).mean(0), atol=1e-5)


def test_of_many_convolutions_four_are_looked_at_and_the_last_is_one_of_them():
    deep = nn.Sequential(*(nn.Conv2d(1, 1, 1) for _ in range(10)), nn.Flatten(), nn.Linear(4, 3), nn.Linear(3, 2))
    assert automatic_layers(deep, torch.zeros(1, 1, 2, 2)) == ("2", "4", "7", "9", "11")
    assert automatic_layers(nn.Sequential(nn.Conv2d(1, 1, 1), nn.Flatten(), nn.Linear(4, 2)), torch.zeros(1, 1, 2, 2)) == ("2",)
    assert automatic_layers(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), torch.zeros(1, 4)) == ("1",)


def test_views_are_averaged_and_features_are_those_of_the_row_as_it_is(images):
    x, y, network = images
    rows = torch.as_tensor(x)
    viewed = gwi.core.networks.AveragedViews(network, [lambda x: x.flip(-1), lambda x: x.roll(1, -1)]).eval()
    with torch.no_grad():
        wanted = (network(rows) + network(rows.flip(-1)) + network(rows.roll(1, -1))) / 3
        torch.testing.assert_close(viewed(rows), wanted)
    model = GWIClassifier(viewed, random_state=0, covariance=Covariance(num_inducing=60))
    model.fit(x[:300], y[:300], validation=(x[300:400], y[300:400]))
    features = model.model_.embedding.features
    assert features.watched == ("network.conv.3", "network.dense.1")
    outputs, values = features.evaluate(rows)
    torch.testing.assert_close(outputs.float(), wanted)
    torch.testing.assert_close(values, NetworkFeatures(network, "auto").fit(rows)(rows))


def test_views_must_be_there_and_give_a_row_for_each(images):
    with pytest.raises(ValueError, match="at least one function"):
        gwi.core.networks.AveragedViews(images[2], [])
    with pytest.raises(ValueError, match="View 0 gives 1 rows for 2"):
        gwi.core.networks.AveragedViews(images[2], [lambda x: x[:1]])(torch.as_tensor(images[0][:2]))


def test_an_ensemble_has_the_mean_probabilities_and_the_features_of_its_first_network(images):
    x, y, network = images
    rows = torch.as_tensor(x)
    torch.manual_seed(1)
    other = type(network)().eval()
    ensemble = gwi.core.networks.AveragedNetworks([network, other]).eval()
    with torch.no_grad():
        wanted = (network(rows).softmax(1) + other(rows).softmax(1)) / 2
        torch.testing.assert_close(ensemble(rows).exp(), wanted)
        torch.testing.assert_close(
            gwi.core.networks.AveragedNetworks([network, other], "outputs")(rows), (network(rows) + other(rows)) / 2
        )
    model = GWIClassifier(ensemble, random_state=0, covariance=Covariance(num_inducing=60))
    model.fit(x[:300], y[:300], validation=(x[300:400], y[300:400]))
    features = model.model_.embedding.features
    assert features.watched == ("networks.0.conv.3", "networks.0.dense.1")
    torch.testing.assert_close(features.evaluate(rows)[1], NetworkFeatures(network, "auto").fit(rows)(rows))
    mirrored = gwi.core.networks.AveragedViews(ensemble, [lambda x: x.flip(-1)])
    assert automatic_layers(mirrored, rows[:1]) == ("network.networks.0.conv.3", "network.networks.0.dense.1")
    assert automatic_layers(gwi.core.networks.AveragedNetworks([nn.Linear(4, 2), nn.Linear(4, 2)]), torch.zeros(1, 4)) == (
        "networks.0",
    )


def test_an_ensemble_around_which_a_measure_stands_is_stored_as_its_numbers(images, tmp_path):
    x, y, network = images
    torch.manual_seed(1)
    ensemble = gwi.core.networks.AveragedNetworks([network, type(network)().eval()])
    model = GWIClassifier(ensemble, random_state=0, covariance=Covariance(num_inducing=60))
    model.fit(x[:300], y[:300], validation=(x[300:400], y[300:400])).save(tmp_path / "ensemble.gwi")
    again = gwi.load(tmp_path / "ensemble.gwi", module=gwi.core.networks.AveragedNetworks([type(network)(), type(network)()]))
    np.testing.assert_array_equal(again.predict_proba(x[400:420]), model.predict_proba(x[400:420]))


def test_an_ensemble_of_none_or_of_different_outputs_is_refused():
    with pytest.raises(ValueError, match="at least one module"):
        gwi.core.networks.AveragedNetworks([])
    # With shapes checked, so is what a name may be.
    with pytest.raises((ValueError, TypeCheckError), match=r'of must be "probabilities" or "outputs"|Parameter annotations'):
        gwi.core.networks.AveragedNetworks([nn.Linear(2, 3)], "logits")
    with pytest.raises(ValueError, match=r"Network 1 gives outputs of shape \(1, 2\), the first \(1, 3\)"):
        gwi.core.networks.AveragedNetworks([nn.Linear(2, 3), nn.Linear(2, 2)])(torch.zeros(1, 2))


def test_images_pass_through_the_network_some_at_a_time(images, monkeypatch):
    x, _, network = images
    rows = torch.as_tensor(x[:50])
    features = NetworkFeatures(network).fit(rows)
    at_once = features.evaluate(rows)
    monkeypatch.setattr(features_module, "PASS_SIZE", 16)
    sizes = []
    features.network.register_forward_pre_hook(lambda _, arguments: sizes.append(len(arguments[0])))
    torch.testing.assert_close(features.evaluate(rows), at_once)
    assert sizes == [16, 16, 16, 2]


def test_features_are_taken_before_a_later_layer_writes_over_them(images):
    x, _, network = images
    rows = torch.from_numpy(x[:20])
    careless = copy.deepcopy(network)
    careless.conv[1] = nn.ReLU(inplace=True)
    names = ("conv.0", "dense.1")
    torch.testing.assert_close(NetworkFeatures(careless, names).fit(rows)(rows), NetworkFeatures(network, names).fit(rows)(rows))


def test_a_projection_needs_the_name_of_one_layer(images):
    for layer in ("auto", ("conv.0", "dense.1")):
        with pytest.raises(ValueError, match="projection is for the features of one layer"):
            NetworkFeatures(images[2], layer, projection=3)
    with pytest.raises(ValueError, match="got no name"):
        NetworkFeatures(images[2], ())


def test_threads_that_share_a_network_get_features_of_their_own_rows(network, data):
    features = NetworkFeatures(network, "1").fit(torch.as_tensor(data[0]))
    rows = [torch.as_tensor(data[2][k::8]) for k in range(8)]
    wanted, together = [features(part) for part in rows], Barrier(8)

    def ask(k):
        together.wait()
        return all(torch.equal(features(rows[k]), wanted[k]) for _ in range(40))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(8)))
