"""No hostile kernel matrix breaks the factorisation or the gradients in float64; float32 gives a number or a typed error.

In float64 a JitterWarning is a failure here, as everywhere in the tests: no case needs a jitter that shows in results.
"""

from dataclasses import replace
from functools import cache, partial
from itertools import combinations

import pytest
import torch
from benchmarks.studies.hostile_cases import KERNELS, LAYOUTS, NUM_POINTS, OUTPUTSCALES, SCALES, hostile_cases

from gwi.core.divergences import wasserstein_squared
from gwi.core.kernels import SparsePosteriorKernel
from gwi.core.linalg import cholesky
from gwi.core.measures import GaussianMeasure, kernel_matrix
from gwi.core.prior import log_marginal_likelihood
from gwi.exceptions import NotPositiveDefiniteError

CASES = hostile_cases()
# Of each kernel's cases when not all are run; prime to the sizes of the grid, so that all its levels take part.
EVERY = 5


def some(cases, thorough):
    return cases if thorough else cases[::EVERY]


def gradient_cases(kernel, num_points):
    """Every second case, and of 200 points every sixth."""
    cases = [case for case in CASES if (case.kernel, case.num_points) == (kernel, num_points)]
    return [case for case in cases if sum(position(case)) % 6 == 0] if num_points == 200 else cases[::2]


def position(case):
    scales = SCALES.index((case.input_scale, case.lengthscale))
    return list(KERNELS).index(case.kernel), LAYOUTS.index(case.layout), scales, 2 * OUTPUTSCALES.index(case.outputscale)


@cache
def built(name, lengthscale, outputscale, dtype):
    return replace(CASES[0], kernel=name, lengthscale=lengthscale, outputscale=outputscale).build_kernel(dtype)


def kernel_and_points(case, dtype=torch.float64):
    """The same kernel object for all cases that share it: building one takes longer than most tests of it."""
    return built(case.kernel, case.lengthscale, case.outputscale, dtype), case.points(dtype)


def targets(case, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(1, case.num_points, dtype=torch.float64, generator=generator).to(dtype)


def evidence(case, dtype=torch.float64):
    """log N(y | 0, k(X, X)) without noise, the hardest case, and what it is differentiated in."""
    kernel, x = kernel_and_points(case, dtype)
    x.requires_grad_()
    return log_marginal_likelihood(kernel, x, targets(case, dtype), 0.0), (*kernel.parameters(), x)


def distance(case, whitened_variance, dtype=torch.float64):
    """W₂² between the prior and a sparse posterior on a quarter of the points, and what it is differentiated in."""
    kernel, x = kernel_and_points(case, dtype)
    z = x[:: min(4, case.num_points)]
    r = SparsePosteriorKernel(kernel, z, whitened_variance * torch.eye(len(z), dtype=dtype))
    r.inducing_points.requires_grad_()
    value = wasserstein_squared(GaussianMeasure(None, kernel), GaussianMeasure(None, r), x)
    return value, (*kernel.parameters(), r.inducing_points)


def is_finite(value, parameters):
    gradients = torch.autograd.grad(value.sum(), parameters)
    return all(torch.isfinite(t).all() for t in (value, *gradients))


def failures(cases, succeeds):
    """The cases that do not succeed, with the reason, for a message that says which."""
    found = []
    for case in cases:
        try:
            if not succeeds(case):
                found.append((case, "not finite"))
        except Exception as error:
            found.append((case, repr(error)))
    return found


def test_the_grid_is_large_and_each_case_is_another():
    assert len(set(CASES)) == len(CASES) >= 1000
    assert {case.num_points for case in CASES} == {1, 2, 50, 200}
    for case in CASES:
        kernel, x = kernel_and_points(case)
        assert x.shape == (case.num_points, 2)
        assert kernel.outputscale.item() == pytest.approx(case.outputscale, rel=1e-9)
        assert kernel.base_kernel.lengthscale.flatten()[0].item() == pytest.approx(case.lengthscale, rel=1e-9)


@pytest.mark.parametrize("num_points", NUM_POINTS)
def test_gradients_are_checked_for_every_two_properties_together(num_points):
    everything = {case for case in CASES if case.num_points == num_points}
    chosen = [case for kernel in KERNELS for case in gradient_cases(kernel, num_points)]
    for i, j in combinations(range(4), 2):
        assert {(position(c)[i], position(c)[j]) for c in chosen} == {(position(c)[i], position(c)[j]) for c in everything}


@torch.no_grad()
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_hostile_matrix_has_a_factor_in_float64(kernel, thorough):
    def succeeds(case):
        matrix = kernel_matrix(*kernel_and_points(case))
        result = cholesky(matrix)
        error = (result.factor @ result.factor.mT - matrix).abs().max() / case.outputscale
        return torch.isfinite(result.factor).all() and result.jitter <= 1e-12 and error <= 1e-12

    assert not failures(some([case for case in CASES if case.kernel == kernel], thorough), succeeds)


@pytest.mark.parametrize("num_points", NUM_POINTS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_evidence_has_finite_gradients_in_hyperparameters_and_points(kernel, num_points):
    assert not failures(gradient_cases(kernel, num_points), lambda case: is_finite(*evidence(case)))


@pytest.mark.parametrize("whitened_variance", [0.25, 0.0])
@pytest.mark.parametrize("num_points", NUM_POINTS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_distance_is_in_range_and_has_finite_gradients_in_hyperparameters_and_z(
    kernel, num_points, whitened_variance, thorough
):
    def succeeds(case):
        value, parameters = distance(case, whitened_variance)
        return -1e-12 <= value.item() / case.outputscale <= 1 + 1e-9 and is_finite(value, parameters)

    # Half of the cases with S = 0, which is the optimum at β = 1 on real tables, half with S = I/4.
    cases = gradient_cases(kernel, num_points)
    cases = cases[::2] if whitened_variance else cases[1::2]
    # Where not all are run, two of five, of each layout and scale some.
    assert not failures(cases if thorough else [case for i, case in enumerate(cases) if i % 5 in (0, 3)], succeeds)


@torch.no_grad()
# A jitter of 1e-3 and more is a fact of life in float32; the warning says so, and is not a failure.
@pytest.mark.filterwarnings("ignore::gwi.exceptions.JitterWarning")
@pytest.mark.parametrize("kernel", KERNELS)
def test_float32_gives_a_finite_number_or_the_typed_error(kernel, thorough):
    quantities = (
        lambda case: cholesky(kernel_matrix(*kernel_and_points(case, torch.float32))).factor,
        lambda case: evidence(case, torch.float32)[0],
        lambda case: distance(case, 0.25, torch.float32)[0],
    )

    def succeeds(case, quantity):
        try:
            return torch.isfinite(quantity(case)).all()
        except NotPositiveDefiniteError as error:
            return "float32" in str(error)

    cases = some([case for case in CASES if case.kernel == kernel], thorough)
    assert not failures(cases, partial(succeeds, quantity=quantities[0]))
    for quantity in quantities[1:]:
        assert not failures([case for case in cases if case.num_points < 200][::5], partial(succeeds, quantity=quantity))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_kernel_without_variance_is_a_typed_error_and_not_a_nan(dtype):
    case = CASES[-1]
    kernel, x = case.build_kernel(dtype), case.points(dtype)
    with torch.no_grad():
        kernel.raw_outputscale.fill_(-torch.inf)
    for evaluate in (
        lambda: cholesky(kernel_matrix(kernel, x)),
        lambda: log_marginal_likelihood(kernel, x, targets(case, dtype), 0.0),
        lambda: GaussianMeasure(None, kernel)(x),
        lambda: kernel_matrix(SparsePosteriorKernel(kernel, x[:3], torch.eye(3, dtype=dtype)), x),
    ):
        with pytest.raises(NotPositiveDefiniteError, match=r"mean diagonal 0.*outputscale"):
            evaluate()
