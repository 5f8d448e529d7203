"""Classes, whatever their mean: who judges, what is unknown, and the types of answers."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from class_data import NAMES, split_classes
from gwi import GWIClassifier, Trained
from gwi.models.classification import prior_share_of

pytestmark = pytest.mark.unchecked


@pytest.fixture(scope="module")
def data():
    return split_classes()


def test_validation_rows_may_come_from_a_loader_whatever_the_mean(data):
    x, y, x_new, y_new = data
    label, label_new = (np.searchsorted(NAMES, part) for part in (y, y_new))
    loader = DataLoader(TensorDataset(torch.from_numpy(x_new), torch.from_numpy(label_new)), batch_size=40)
    pair, loaded = (
        GWIClassifier("linear", tempering=1.0, random_state=0).fit(x, label, validation=validation)
        for validation in ((x_new, label_new), loader)
    )
    assert (pair.predict_proba(x_new) == loaded.predict_proba(x_new)).all()


def test_labels_are_an_array_and_all_else_is_as_the_rows_are(data):
    x, y, x_new, _ = data
    model = GWIClassifier("linear", tempering=1.0, random_state=0).fit(x, y)
    rows = torch.from_numpy(x_new)
    assert isinstance(model.predict(rows), np.ndarray)
    assert isinstance(model.predict_proba(rows), torch.Tensor)
    assert isinstance(model.ood_score(rows), torch.Tensor)


@pytest.mark.parametrize("seed", range(4))
def test_a_network_learns_to_separate_few_rows_from_wherever_it_starts(seed):
    x = np.linspace(-1, 1, 20)[:, None]
    label = (x[:, 0] > 0).astype(int)
    torch.manual_seed(seed)
    model = GWIClassifier(Trained(torch.nn.Linear(1, 2)), cv=2, random_state=seed).fit(x, label)
    assert (model.predict(x) == label).all()
    assert model.predict_proba(x)[[0, -1], [0, 1]].min() > 0.95


def test_nothing_is_unknown_where_the_prior_knows_f():
    variance = torch.tensor([[0.0, 0.2], [0.0, 0.4]], dtype=torch.float64)
    assert prior_share_of(variance, torch.tensor([0.0, 1.0], dtype=torch.float64)).tolist() == pytest.approx([0.0, 0.3])
