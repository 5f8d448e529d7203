"""Three classes of rows in the plane, and networks trained on them and on small images."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from gwi.core.networks import mlp

NAMES = np.array(["ash", "birch", "cedar"])


def three_classes(num_rows=450, seed=0):
    x = np.random.default_rng(seed).normal(size=(num_rows, 2))
    return x, NAMES[(x[:, 0] + x[:, 1] > 0).astype(int) + (x[:, 0] > 1)]


def split_classes():
    """300 rows and their labels to learn from, 150 to judge by."""
    x, y = three_classes()
    return x[:300], y[:300], x[300:], y[300:]


def trained(network, x, y, num_steps=150):
    """By cross-entropy, on its own."""
    labels = torch.from_numpy(np.unique(y, return_inverse=True)[1])
    rows = torch.as_tensor(x).float()
    optimiser = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(num_steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(rows), labels).backward()
        optimiser.step()
    return network.eval()


def small_network(x, y):
    network = mlp(2, 3, hidden=(32, 32), activation=nn.ReLU, generator=torch.Generator().manual_seed(0))
    return trained(network, x, y)


class SmallCNN(nn.Module):
    """Two convolutions, a dense layer, three classes or other outputs of 1 × 8 × 8 images."""

    def __init__(self, num_outputs=3):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.ReLU())
        self.dense = nn.Sequential(nn.Flatten(), nn.Linear(32, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, num_outputs))

    def forward(self, x):
        return self.dense(self.conv(x))


def small_images():
    """The first three digits as images, and a network trained on 300 of them."""
    x, y = load_digits(return_X_y=True)
    keep = y < 3
    x, y = (x[keep] / 16).reshape(-1, 1, 8, 8).astype(np.float32), y[keep]
    torch.manual_seed(0)
    network = SmallCNN()
    trained(network, x[:300], y[:300], num_steps=40)
    return x, y, network
