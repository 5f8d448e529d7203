"""Means and variances of classes at random."""

import torch


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def column(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


def random_classes(num_classes, num_rows, *, spread, mean_scale, generator):
    """Random means, and variances log-uniform over `spread` orders of magnitude around one, both ends taken in every row."""
    exponents = torch.rand(num_classes, num_rows, dtype=torch.float64, generator=generator) - 0.5
    exponents[0], exponents[1] = 0.5, -0.5
    mean = mean_scale * torch.randn(num_classes, num_rows, dtype=torch.float64, generator=generator)
    return mean, 10 ** (spread * exponents)
