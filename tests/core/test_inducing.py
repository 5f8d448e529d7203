"""Inducing points are rows, centres, or the rows least explained by those before them."""

import numpy as np
import pytest
import torch

import reference
from gwi.core.inducing import choose_inducing_points, greedy_variance_indices
from gwi.core.kernels import SparsePosteriorKernel, default_kernel
from gwi.core.measures import kernel_matrix, kernel_variance

F64 = torch.float64


def rows(num=60, seed=0):
    return torch.randn(num, 2, dtype=F64, generator=torch.Generator().manual_seed(seed))


def test_random_points_are_distinct_rows_and_repeat_with_the_generator():
    x = rows()
    first, again = (choose_inducing_points(x, 10, "random", generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, again)
    positions = [(x == z).all(-1).nonzero().item() for z in first]
    assert len(set(positions)) == 10


def test_kmeans_centres_repeat_with_the_generator_and_lie_inside_the_data():
    x = rows()
    first, again = (choose_inducing_points(x, 10, "kmeans", generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, again)
    assert (first >= x.min(0).values).all()
    assert (first <= x.max(0).values).all()


def test_kmeans_of_duplicated_rows_returns_the_distinct_ones():
    x = rows(5).repeat(4, 1)
    assert choose_inducing_points(x, 12, "kmeans").shape == (5, 2)


def test_greedy_takes_the_row_of_largest_conditional_variance_each_time():
    x, kernel = rows(), default_kernel(2, lengthscale=0.8)
    chosen = greedy_variance_indices(kernel, x, 8).tolist()
    for m in range(1, 8):
        z = x[chosen[:m]]
        with torch.no_grad():
            remaining = kernel_variance(SparsePosteriorKernel(kernel, z, torch.zeros(m, m, dtype=F64)), x)
        assert remaining[chosen[m]].item() == pytest.approx(remaining.max().item(), rel=1e-9)


def test_greedy_order_equals_brute_force():
    x, kernel = rows(25), default_kernel(2, lengthscale=0.8)
    k = reference.ard_kernel(np.full(2, 0.8), 1.0)
    assert greedy_variance_indices(kernel, x, 6).tolist() == reference.greedy_variance_indices(k, x.numpy(), 6)


def test_greedy_never_takes_a_duplicate_and_stops_when_everything_is_explained():
    x = rows(6).repeat(5, 1)
    z = choose_inducing_points(x, 20, "greedy", kernel=default_kernel(2, lengthscale=0.5))
    assert z.shape == (6, 2)
    assert torch.linalg.eigvalsh(kernel_matrix(default_kernel(2, lengthscale=0.5), z).detach())[0] > 1e-8


def test_greedy_takes_one_row_where_noise_hides_all_of_f():
    kernel, x = default_kernel(2, outputscale=0.1), rows(5)
    assert greedy_variance_indices(kernel, x, 4, enough=1.0).tolist() == [0]


def test_greedy_leaves_no_row_as_badly_explained_as_random_and_kmeans_explains_most_on_average():
    x, kernel = rows(300), default_kernel(2, lengthscale=0.5)
    left = {}
    for method in ("greedy", "random", "kmeans"):
        z = choose_inducing_points(x, 25, method, kernel=kernel, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            left[method] = kernel_variance(SparsePosteriorKernel(kernel, z, torch.zeros(25, 25, dtype=F64)), x)
    assert left["greedy"].max() < left["random"].max()
    # Greedy spends its points on outliers: it bounds the worst row, not the mean.
    assert left["kmeans"].mean() < left["random"].mean() < left["greedy"].mean()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_inducing": 0}, "between 1 and 60"),
        ({"num_inducing": 61}, "between 1 and 60"),
        ({"num_inducing": 5, "method": "greedy"}, "pass kernel="),
    ],
)
def test_impossible_requests_say_what_to_do(arguments, message):
    with pytest.raises(ValueError, match=message):
        choose_inducing_points(rows(), **arguments)
