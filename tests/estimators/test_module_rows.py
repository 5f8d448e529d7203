"""Torch modules as they are today: dicts, tuples and tokens in, dicts, tuples and objects out, from data sets too."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import gwi
from gwi import GWIClassifier, GWIRegressor
from gwi.core.features import NetworkFeatures
from gwi.core.module_calls import layout_for, outputs_of
from gwi.exceptions import ModelFileError
from gwi.parts import Features, Frozen, Joint, Paper

pytestmark = pytest.mark.unchecked
NUM_TOKENS, LENGTH, WIDTH = 40, 10, 16


@dataclass
class Answer:
    """As many libraries give it."""

    logits: torch.Tensor
    last_hidden_state: torch.Tensor


class Encoder(nn.Module):
    """A small transformer."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(NUM_TOKENS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, input_ids, attention_mask):
        states = self.layers(self.tokens(input_ids), src_key_padding_mask=attention_mask == 0)
        return {"last_hidden_state": states}


class Reader(nn.Module):
    """A network of texts that answers with an object."""

    def __init__(self, num_outputs=3):
        super().__init__()
        self.encoder, self.head = Encoder(), nn.Linear(WIDTH, num_outputs)

    def forward(self, input_ids, attention_mask=None):
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        states = self.encoder(input_ids, mask)["last_hidden_state"]
        return Answer(self.head(states[:, 0]), states)


class Texts(Dataset):
    """Rows with labels, one dict for each."""

    def __init__(self, rows, labels):
        self.rows, self.labels = rows, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {name: torch.as_tensor(values[i]) for name, values in self.rows.items()} | {"labels": int(self.labels[i])}


def some(rows, part):
    return {name: values[part] for name, values in rows.items()}


@pytest.fixture(scope="module")
def texts():
    rng = np.random.default_rng(0)
    ids = rng.integers(0, NUM_TOKENS, (360, LENGTH))
    mask = (np.arange(LENGTH) < rng.integers(3, LENGTH + 1, 360)[:, None]).astype(np.int64)
    labels = ids[:, 0] % 3
    torch.manual_seed(0)
    network = Reader()
    optimiser = torch.optim.SGD(network.parameters(), 0.2, momentum=0.9)
    for _ in range(80):
        optimiser.zero_grad()
        found = network(torch.from_numpy(ids[:160]), torch.from_numpy(mask[:160]))
        nn.functional.cross_entropy(found.logits, torch.from_numpy(labels[:160])).backward()
        optimiser.step()
    return network.train(), {"input_ids": ids, "attention_mask": mask}, labels


TRAIN, UNSEEN, NEW = slice(160), slice(160, 280), slice(280, None)


@pytest.fixture(scope="module")
def reader(texts):
    network, rows, labels = texts
    model = GWIClassifier(network, random_state=0)
    return model.fit(some(rows, TRAIN), labels[TRAIN], validation=(some(rows, UNSEEN), labels[UNSEEN]))


def test_the_mean_is_what_the_module_says_of_the_parts(texts, reader):
    network, rows, _ = texts
    new = some(rows, NEW)
    with torch.no_grad():
        own = network.eval()(*(torch.from_numpy(new[name]) for name in ("input_ids", "attention_mask"))).logits.double()
    network.train()
    packed = reader._rows(new)
    q = reader.model_.cached.parts(next(reader.model_.rows(packed)))[0]
    torch.testing.assert_close(q.mT, own, rtol=1e-5, atol=1e-6)
    assert reader.summary_.members[0].name == "Reader"
    assert reader.predict_proba(new).shape == (80, 3)


def test_the_module_and_its_modes_stay_as_they_are(texts, reader):
    assert all(part.training for part in texts[0].modules())


def test_a_data_set_of_dicts_gives_what_its_arrays_give(texts, reader):
    network, rows, labels = texts
    model = GWIClassifier(network, random_state=0)
    model.fit(Texts(some(rows, TRAIN), labels[TRAIN]), validation=Texts(some(rows, UNSEEN), labels[UNSEEN]))
    expected = reader.predict_proba(some(rows, NEW))
    np.testing.assert_allclose(model.predict_proba(Texts(some(rows, NEW), labels[NEW])), expected, atol=1e-6)
    loader = DataLoader(Texts(some(rows, NEW), labels[NEW]), batch_size=17)
    np.testing.assert_allclose(model.predict_proba(loader), expected, atol=1e-6)


def test_padding_does_not_count_in_the_features_of_tokens(texts):
    network, rows, labels = texts
    model = GWIClassifier(network, kernel=Features("encoder"), random_state=0)
    model.fit(some(rows, TRAIN), labels[TRAIN], validation=(some(rows, UNSEEN), labels[UNSEEN]))
    new = some(rows, NEW)
    other = {**new, "input_ids": np.where(new["attention_mask"] == 1, new["input_ids"], 0)}
    np.testing.assert_allclose(model.predict_proba(other), model.predict_proba(new), atol=1e-5)
    # The mean of the states that count, by hand.
    features = model.model_.embedding.features
    parts = [torch.from_numpy(new[name]) for name in ("input_ids", "attention_mask")]
    with torch.no_grad():
        states = features.network.module.encoder(*parts)["last_hidden_state"].double()
        found = features(torch.from_numpy(model._rows(new)))
    weight = parts[1][..., None].double()
    by_hand = (weight * states).sum(1) / weight.sum(1)
    torch.testing.assert_close(found, by_hand / by_hand.norm(dim=1, keepdim=True), rtol=1e-5, atol=1e-6)


def test_a_model_of_texts_is_saved_and_loaded(texts, reader, tmp_path):
    new = some(texts[1], NEW)
    path = reader.save(tmp_path / "texts.gwi")
    with pytest.raises(ModelFileError, match="module="):
        gwi.load(path)
    again = gwi.load(path, module=Reader())
    np.testing.assert_array_equal(again.predict_proba(new), reader.predict_proba(new))
    assert again.share_seen(some(texts[1], TRAIN), texts[2][TRAIN]) == 1.0


def test_rows_of_tokens_alone_are_found_out(texts):
    network, rows, labels = texts
    ids = rows["input_ids"]
    model = GWIClassifier(network, random_state=0).fit(ids[TRAIN], labels[TRAIN], validation=(ids[UNSEEN], labels[UNSEEN]))
    tensors = model.predict_proba(torch.from_numpy(ids[NEW]))
    np.testing.assert_array_equal(np.asarray(tensors), model.predict_proba(ids[NEW]))
    assert all(part.training for part in network.modules())


class Pair(nn.Module):
    """Two parts by their places, outputs in a tuple behind a loss."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 1)

    def forward(self, image, numbers):
        found = self.head(torch.cat([image.mean((1, 2))[:, None], numbers], 1))
        return torch.zeros(()), found, {"other": numbers}


class InOne(nn.Module):
    """A dict as the one argument, and one as the answer."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, batch):
        return {"prediction": self.body(batch["numbers"]), "numbers": batch["numbers"]}


def regression_rows(seed=0):
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(200, 3)).astype(np.float32)
    image = rng.normal(size=(200, 4, 4)).astype(np.float32)
    y = image.mean((1, 2)) + numbers @ np.array([1, -2, 0.5]) + 0.1 * rng.normal(size=200)
    return image, numbers, y


def test_a_tuple_of_parts_in_regression():
    image, numbers, y = regression_rows()
    torch.manual_seed(0)
    network, rows = Pair(), (image, numbers)
    model = GWIRegressor(network, random_state=0)
    model.fit((image[:100], numbers[:100]), y[:100], validation=((image[100:], numbers[100:]), y[100:]))
    with torch.no_grad():
        own = network(torch.from_numpy(image), torch.from_numpy(numbers))[1][:, 0].numpy()
    np.testing.assert_allclose(model.predict(rows), own, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="Rows are a tuple of arrays"):
        model.predict({"image": image, "numbers": numbers})


def test_a_dict_as_the_one_argument_in_regression(tmp_path):
    _, numbers, y = regression_rows()
    torch.manual_seed(0)
    network, rows = InOne(), {"numbers": numbers}
    model = GWIRegressor(network, random_state=0)
    model.fit(some(rows, TRAIN), y[TRAIN], validation=(some(rows, slice(160, 200)), y[160:]))
    with torch.no_grad():
        own = network.eval()({"numbers": torch.from_numpy(numbers)})["prediction"][:, 0].numpy()
    np.testing.assert_allclose(model.predict(rows), own, rtol=1e-5, atol=1e-6)
    mean, std = model.predict(rows, return_std=True)
    assert mean.shape == (200,)
    assert (std > 0).all()
    again = gwi.load(model.save(tmp_path / "m.gwi"), module=InOne())
    np.testing.assert_array_equal(again.predict(rows), mean)


class WithLoss(nn.Module):
    """A table's network that answers in a tuple."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 1)

    def forward(self, x):
        return self.body(x)[:, 0], {"states": x}


def test_outputs_in_a_tuple_or_a_dict_on_a_plain_table():
    _, numbers, y = regression_rows()
    torch.manual_seed(0)
    network = WithLoss()
    model = GWIRegressor(network, random_state=0).fit(numbers[:100], y[:100], validation=(numbers[100:], y[100:]))
    with torch.no_grad():
        np.testing.assert_allclose(model.predict(numbers), network(torch.from_numpy(numbers))[0].numpy(), rtol=1e-5, atol=1e-6)


def test_batches_of_several_parts_and_targets_behind_them(texts):
    network, rows, labels = texts
    parts = [torch.from_numpy(rows[name]) for name in ("input_ids", "attention_mask")]

    def loader(part):
        return DataLoader(TensorDataset(*(values[part] for values in parts), torch.from_numpy(labels[part])), batch_size=50)

    model = GWIClassifier(Frozen(network), random_state=0).fit(loader(TRAIN), validation=loader(UNSEEN))
    found = model.predict_proba(loader(NEW))
    np.testing.assert_allclose(found, model.predict_proba(tuple(values[NEW] for values in parts)), atol=1e-6)
    unlabelled = DataLoader(TensorDataset(*(values[NEW] for values in parts)), batch_size=30)
    np.testing.assert_allclose(model.predict_proba(unlabelled), found, atol=1e-6)


class Stream(IterableDataset):
    """Rows one after the other."""

    def __init__(self, rows, labels):
        self.rows, self.labels = rows, labels

    def __iter__(self):
        yield from Texts(self.rows, self.labels)


def test_a_stream_of_dicts(texts, reader):
    network, rows, labels = texts
    model = GWIClassifier(network, random_state=0)
    model.fit(Stream(some(rows, TRAIN), labels[TRAIN]), validation=Stream(some(rows, UNSEEN), labels[UNSEEN]))
    new = some(rows, NEW)
    np.testing.assert_allclose(model.predict_proba(new), reader.predict_proba(new), atol=1e-6)


def test_joint_training_takes_rows_in_parts(texts, reader):
    network, rows, labels = texts
    model = GWIClassifier(Joint(network, max_epochs=1), kernel="features", random_state=0)
    model.fit(some(rows, TRAIN), labels[TRAIN], validation=(some(rows, UNSEEN), labels[UNSEEN]))
    found = model.predict_proba(some(rows, NEW))
    # Trained on, from where it was: nearly as before, and not the same.
    assert (found.argmax(1) == reader.predict_proba(some(rows, NEW)).argmax(1)).mean() > 0.8
    assert not np.allclose(found, reader.predict_proba(some(rows, NEW)), atol=1e-3)
    np.testing.assert_allclose(model.predict_proba(Texts(some(rows, NEW), labels[NEW])), found, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: {"input_ids": rows["input_ids"]}, "'attention_mask' is missing"),
        (lambda rows: {**rows, "input_ids": rows["input_ids"][:, :4]}, "padding="),
        (lambda rows: {**rows, "input_ids": rows["input_ids"] + 0.5}, "whole numbers"),
        (lambda rows: {**rows, "input_ids": rows["input_ids"][:3]}, "different numbers of rows"),
        (lambda rows: rows["input_ids"], "Rows have 2 parts; got 1"),
        (lambda rows: (rows["input_ids"], rows["attention_mask"]), "Rows are a dict"),
        (lambda rows: {**rows, "input_ids": rows["input_ids"].astype(str)}, "array of numbers"),
    ],
)
def test_rows_in_other_parts_are_refused(texts, reader, change, said):
    with pytest.raises(ValueError, match=said):
        reader.predict_proba(change(some(texts[1], NEW)))


def test_rows_that_no_one_takes_are_refused(texts):
    network, rows, labels = texts
    for mean, kernel, given, said in (
        ("svgp", "auto", rows, "one torch module"),
        (network, "rbf", rows, "no distance between them"),
        (Joint(network), "rbf", rows, "no distance between them"),
        (Paper(network), "auto", rows, "no distance between them"),
        (network, "auto", {"words": rows["input_ids"]}, "takes input_ids, attention_mask; the rows have 'words'"),
    ):
        unseen = some(given, UNSEEN), labels[UNSEEN]
        with pytest.raises(ValueError, match=said):
            GWIClassifier(mean, kernel=kernel).fit(some(given, TRAIN), labels[TRAIN], validation=unseen)


def test_hidden_states_are_no_prediction(texts):
    network, rows, labels = texts
    model, unseen = GWIClassifier(network.encoder, kernel=Features("layers")), (some(rows, UNSEEN), labels[UNSEEN])
    with pytest.raises(ValueError, match="hidden states are not predictions"):
        model.fit(some(rows, TRAIN), labels[TRAIN], validation=unseen)


def test_large_numbers_of_tokens_stay_exact():
    rows = {"ids": np.array([[2**24 + 1, 3]]), "x": np.array([[0.5]], dtype=np.float32)}

    class Module(nn.Module):
        def forward(self, ids, x):
            return ids

    layout = layout_for(Module(), rows)
    packed = layout.packed(rows)
    assert packed.dtype == np.float64
    ids, x = layout.apart(torch.from_numpy(packed), torch.float32)
    assert ids.tolist() == [[2**24 + 1, 3]]
    assert x.tolist() == [[0.5]]
    assert layout.packed({**rows, "ids": np.array([[2**24, 3]])}).dtype == np.float32


def test_the_output_is_found_by_its_name_or_its_shape():
    wanted, states = torch.ones(4, 2), torch.ones(4, 5, 3)
    assert outputs_of({"loss": torch.zeros(()), "states": states, "logits": wanted}, 4) is wanted
    assert outputs_of((states, wanted), 4) is wanted
    with pytest.raises(ValueError, match="got NoneType with no tensor"):
        outputs_of(None, 4)


def test_a_vision_transformer_has_features_of_rows_not_of_patches():
    class Vision(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, WIDTH, 4, 4)
            self.block = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True)
            self.mix = nn.Linear(WIDTH, WIDTH)
            self.head = nn.Linear(WIDTH, 2)

        def forward(self, x):
            tokens = self.mix(self.block(self.patches(x).flatten(2).mT))
            return self.head(tokens.mean(1))

    features = NetworkFeatures(Vision()).fit(torch.randn(6, 3, 16, 16))
    assert features.layers == ("head",)
    assert features(torch.randn(2, 3, 16, 16)).shape == (2, WIDTH)


def test_all_there_is_to_say_of_rows_comes_from_one_pass(texts, reader):
    _, numbers, y = regression_rows()
    regressor = GWIRegressor(InOne(), random_state=0)
    regressor.fit({"numbers": numbers[:100]}, y[:100], validation=({"numbers": numbers[100:]}, y[100:]))
    for model, rows in ((reader, some(texts[1], NEW)), (regressor, {"numbers": numbers})):
        seen = []
        network = model.model_.embedding.features.network
        handle = network.register_forward_hook(lambda *call, seen=seen: seen.append(len(call[1][0])))
        columns = model.predict_columns(rows, parts=True)
        handle.remove()
        num_rows = len(next(iter(rows.values())))
        assert sum(seen) == num_rows
        np.testing.assert_array_equal(columns["ood_score"], model.ood_score(rows))
