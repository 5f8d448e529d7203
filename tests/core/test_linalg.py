"""Factorisations are scale-free, honest about their jitter, and differentiable where matrices are singular."""

import math
import warnings

import numpy as np
import pytest
import scipy.linalg
import torch

from gwi.core.linalg import (
    LogGaussian,
    bures_fidelity,
    cholesky,
    cholesky_solve,
    log_determinant,
    nuclear_norm,
    positive_semidefinite_factor,
    safe_sqrt,
    solve_lower,
    solve_lower_transposed,
    square_factor,
)
from gwi.exceptions import JitterWarning, NotPositiveDefiniteError

F64 = torch.float64


def random_covariance(size, generator, *, rank=None, dtype=F64):
    root = torch.randn(size, rank or size, dtype=F64, generator=generator)
    return (root @ root.mT / size + (0.1 * torch.eye(size, dtype=F64) if rank is None else 0)).to(dtype)


def rbf(x, lengthscale):
    return torch.exp(-torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").square() / (2 * lengthscale**2))


def test_a_good_matrix_is_factorised_bit_for_bit_as_it_is(generator):
    matrix = random_covariance(20, generator)
    result = cholesky(matrix)
    assert torch.equal(result.factor, torch.linalg.cholesky(matrix))
    assert result.jitter.item() == 0


def test_a_requested_jitter_is_relative_to_the_mean_diagonal_and_reported(generator):
    matrix = 1e6 * random_covariance(20, generator)
    result = cholesky(matrix, jitter=1e-3)
    added = result.factor @ result.factor.mT - matrix
    expected = 1e-3 * matrix.diagonal().mean() * torch.eye(20, dtype=F64)
    torch.testing.assert_close(added, expected, rtol=0, atol=1e-8)
    assert result.jitter.item() == 1e-3


@pytest.mark.parametrize("lowest", [-1e-14, -1e-12, -1e-10])
def test_jitter_escalates_by_tens_until_it_exceeds_the_negative_eigenvalue(lowest):
    matrix = torch.diag(torch.tensor([1.0, 1.0, lowest], dtype=F64))
    jitter = cholesky(matrix).jitter.item()
    assert -lowest * 1.5 < jitter < -lowest * 150 + 1e-13
    assert math.log10(jitter / 1e-14) == pytest.approx(round(math.log10(jitter / 1e-14)), abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_same_matrix_in_other_units_gets_the_same_jitter_and_the_same_factor(dtype, generator):
    singular = random_covariance(30, generator, rank=5).to(dtype)
    regular = random_covariance(30, generator).to(dtype)
    for matrix in (singular, regular):
        base = cholesky(matrix)
        for exponent in (-40, -20, -6, 6, 20, 40):  # Powers of two: 1e-12 … 1e12 without rounding of the matrix itself.
            scaled = cholesky(matrix * 2.0**exponent)
            assert torch.equal(scaled.jitter, base.jitter)
            torch.testing.assert_close(scaled.factor * 2.0 ** (-exponent / 2), base.factor, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("factor", [1e-12, 1e-6, 1e6, 1e12])
def test_decimal_rescaling_changes_neither_success_nor_accuracy(factor, generator):
    matrix = factor * rbf(torch.randn(40, 2, dtype=F64, generator=generator), 3.0)
    result = cholesky(matrix)
    assert result.jitter.item() <= 1e-12
    error = (result.factor @ result.factor.mT - matrix).abs().max() / factor
    assert error.item() < 1e-11


def test_only_the_failing_matrix_of_a_batch_is_jittered(generator):
    good, singular = random_covariance(10, generator), torch.ones(10, 10, dtype=F64)
    result = cholesky(torch.stack([good, singular, good]))
    assert result.jitter[0] == 0
    assert result.jitter[2] == 0
    assert result.jitter[1] > 0
    assert torch.equal(result.factor[0], torch.linalg.cholesky(good))


def test_a_batch_gives_what_its_matrices_give_one_by_one(generator):
    batch = torch.stack([random_covariance(8, generator) * 10.0**i for i in range(-3, 4)] + [torch.ones(8, 8, dtype=F64)])
    together = cholesky(batch)
    for i, matrix in enumerate(batch):
        alone = cholesky(matrix)
        assert together.jitter[i] == alone.jitter
        torch.testing.assert_close(together.factor[i], alone.factor, rtol=1e-12, atol=0)


def test_residuals_take_the_scale_of_their_minuend():
    # A difference of two matrices of size one is zero up to rounding: relative to itself it is indefinite, to them it is zero.
    residual = torch.diag(torch.tensor([1e-16, -1e-16], dtype=F64)) + 2e-17 * torch.eye(2, dtype=F64)
    result = cholesky(residual, scale=torch.tensor(1.0, dtype=F64))
    assert result.jitter.item() == pytest.approx(1e-14)
    with pytest.raises(NotPositiveDefiniteError):
        cholesky(residual)


def test_a_singular_matrix_that_passes_cholesky_by_luck_is_jittered_all_the_same():
    # With rounding in its favour Cholesky "succeeds" on a singular k(Z, Z), and k(x, x) − ‖L⁻¹ k_Z(x)‖² comes out at −0.03.
    num_lucky, lowest_by_luck = 0, 0.0
    for seed in range(10):
        x = torch.randn(32, 1, dtype=F64, generator=torch.Generator().manual_seed(seed))
        for lengthscale in torch.logspace(-0.5, 2, 40, dtype=F64).tolist():
            k_xx = rbf(x, lengthscale)
            k_zz, k_zx = k_xx[::2, ::2], k_xx[::2]
            factor, info = torch.linalg.cholesky_ex(k_zz)
            if info > 0 or torch.linalg.eigvalsh(k_zz).min() > 1e-16:
                continue
            num_lucky += 1
            lowest_by_luck = min(lowest_by_luck, 1 - solve_lower(factor, k_zx).square().sum(0).max().item())
            result = cholesky(k_zz)
            assert result.jitter > 0
            assert solve_lower(result.factor, k_zx).square().sum(0).max() < 1 + 1e-12
    assert num_lucky > 5
    assert lowest_by_luck < -1e-6


def test_the_zero_matrix_is_a_typed_error_that_says_so():
    with pytest.raises(NotPositiveDefiniteError, match=r"k\(Z, Z\) \(4 × 4, float64\) has mean diagonal 0.*outputscale"):
        cholesky(torch.zeros(4, 4, dtype=F64), name="k(Z, Z)")
    with pytest.raises(NotPositiveDefiniteError, match="mean diagonal 0"):
        cholesky(torch.stack([torch.eye(4, dtype=F64), torch.zeros(4, 4, dtype=F64)]))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_typed_errors_that_say_so(value):
    matrix = torch.eye(3, dtype=torch.float32)
    matrix[2, 0] = value
    with pytest.raises(NotPositiveDefiniteError, match=r"k\(X, X\) \(3 × 3, float32\) contains NaN or infinity"):
        cholesky(matrix, name="k(X, X)")


def test_an_indefinite_matrix_is_a_typed_error_with_name_size_dtype_and_lowest_eigenvalue():
    matrix = torch.diag(torch.tensor([2.0, 1.0, -0.25], dtype=F64))
    expected = r"my matrix \(3 × 3, float64\) is not positive definite: lowest eigenvalue -0.25, largest 2.*jitter of 1e-05"
    with pytest.raises(NotPositiveDefiniteError, match=expected):
        cholesky(matrix, name="my matrix")
    with pytest.raises(NotPositiveDefiniteError, match=r"\(2 × 3 × 3, float64\).*lowest eigenvalue -0.25"):
        cholesky(torch.stack([torch.eye(3, dtype=F64), matrix]))


def test_a_matrix_of_integers_is_a_type_error_that_names_the_remedy():
    with pytest.raises(TypeError, match=r"float16.*torch\.float64"):
        cholesky(torch.eye(2, dtype=torch.float16))


@pytest.mark.filterwarnings("always::gwi.exceptions.JitterWarning")
@pytest.mark.parametrize(("dtype", "quiet", "loud"), [(torch.float64, 1e-10, 1e-7), (torch.float32, 1e-5, 5e-3)])
def test_a_jitter_that_shows_in_results_warns_and_a_small_one_does_not(dtype, quiet, loud):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cholesky(torch.diag(torch.tensor([1.0, 1.0, -quiet], dtype=dtype)))
    with pytest.warns(JitterWarning, match=r"k\(Z, Z\) \(3 × 3, float\d\d\) needed a jitter of"):
        cholesky(torch.diag(torch.tensor([1.0, 1.0, -loud], dtype=dtype)), name="k(Z, Z)")


@pytest.mark.filterwarnings("error::gwi.exceptions.JitterWarning")
def test_a_jitter_that_was_asked_for_does_not_warn(generator):
    assert cholesky(random_covariance(5, generator), jitter=1e-4).jitter.item() == 1e-4


def test_cholesky_differentiates_through_value_and_scale(generator):
    root = torch.randn(6, 8, dtype=F64, generator=generator, requires_grad=True)
    assert torch.autograd.gradcheck(lambda b: cholesky(b @ b.mT, jitter=1e-2).factor, (root,))


def test_triangular_solves_invert_their_factor(generator):
    factor = torch.linalg.cholesky(torch.stack([random_covariance(7, generator) for _ in range(3)]))
    rhs = torch.randn(3, 7, 2, dtype=F64, generator=generator)
    covariance = factor @ factor.mT
    torch.testing.assert_close(factor @ solve_lower(factor, rhs), rhs)
    torch.testing.assert_close(factor.mT @ solve_lower_transposed(factor, rhs), rhs)
    torch.testing.assert_close(covariance @ cholesky_solve(factor, rhs), rhs)
    torch.testing.assert_close(log_determinant(factor), torch.logdet(covariance))


def test_triangular_solves_broadcast_one_factor_over_many_right_hand_sides(generator):
    factor = torch.linalg.cholesky(random_covariance(5, generator))
    rhs = torch.randn(4, 5, 3, dtype=F64, generator=generator)
    for solve in (solve_lower, solve_lower_transposed, cholesky_solve):
        expected = torch.stack([solve(factor, part) for part in rhs])
        torch.testing.assert_close(solve(factor, rhs), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("rank", [0, 1, 3, 6])
def test_the_factor_of_a_singular_matrix_has_its_rank_and_gives_it_back(rank, generator):
    root = torch.randn(4, 6, rank, dtype=F64, generator=generator)
    matrix = root @ root.mT
    factor = positive_semidefinite_factor(matrix)
    torch.testing.assert_close(factor @ factor.mT, matrix, rtol=0, atol=1e-13)
    assert ((factor != 0).any(-2).sum(-1) == rank).all()


def test_a_matrix_that_is_not_semidefinite_has_no_factor():
    with pytest.raises(NotPositiveDefiniteError, match=r"S \(2 × 2, float64\) has eigenvalue -0.5"):
        positive_semidefinite_factor(torch.diag(torch.tensor([1.0, -0.5], dtype=F64)), name="S")
    with pytest.raises(NotPositiveDefiniteError, match="NaN"):
        positive_semidefinite_factor(torch.full((2, 2), math.nan, dtype=F64))


@pytest.mark.parametrize("shape", [(4, 4), (3, 7), (7, 3), (1, 5), (2, 4, 3)])
def test_the_nuclear_norm_is_the_sum_of_singular_values_and_differentiates(shape, generator):
    matrix = torch.randn(shape, dtype=F64, generator=generator, requires_grad=True)
    expected = np.linalg.svd(matrix.detach().numpy(), compute_uv=False).sum(-1)
    np.testing.assert_allclose(nuclear_norm(matrix).detach().numpy(), expected, rtol=1e-13)
    assert torch.autograd.gradcheck(nuclear_norm, (matrix,))


@pytest.mark.parametrize("shape", [(4, 4), (3, 6), (6, 3)])
def test_the_gradient_of_the_nuclear_norm_at_zero_is_the_least_subgradient(shape):
    matrix = torch.zeros(shape, dtype=F64, requires_grad=True)
    nuclear_norm(matrix).backward()
    assert torch.equal(matrix.grad, torch.zeros(shape, dtype=F64))


@pytest.mark.parametrize("shape", [(5, 5), (4, 8), (8, 4)])
def test_the_gradient_of_the_nuclear_norm_at_a_singular_matrix_is_its_polar_factor(shape, generator):
    left = torch.linalg.qr(torch.randn(shape[0], 2, dtype=F64, generator=generator)).Q
    right = torch.linalg.qr(torch.randn(shape[1], 2, dtype=F64, generator=generator)).Q
    matrix = (left * torch.tensor([3.0, 1e-3], dtype=F64) @ right.mT).requires_grad_()
    nuclear_norm(matrix).backward()
    # The small singular value counts as much as the large one; rounding noise counts for nothing.
    torch.testing.assert_close(matrix.grad, left @ right.mT, rtol=0, atol=1e-11)


def test_a_second_derivative_of_the_nuclear_norm_is_refused_rather_than_wrong(generator):
    matrix = torch.randn(3, 3, dtype=F64, generator=generator, requires_grad=True)
    (gradient,) = torch.autograd.grad(nuclear_norm(matrix).square(), matrix, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.filterwarnings("ignore:Matrix is singular")
@pytest.mark.parametrize(("rank_k", "rank_r"), [(6, 6), (6, 2), (3, 8), (1, 1)])
def test_the_bures_fidelity_of_factors_is_the_trace_of_a_matrix_root(rank_k, rank_r, generator):
    k_factor = torch.randn(6, rank_k, dtype=F64, generator=generator)
    r_factor = torch.randn(6, rank_r, dtype=F64, generator=generator)
    c_p, c_q = (k_factor @ k_factor.mT / 6).numpy(), (r_factor @ r_factor.mT / 6).numpy()
    values, vectors = np.linalg.eigh(c_p)
    root = vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T
    tolerance = 1e-10 if rank_k == rank_r == 6 else 1e-6  # sqrtm keeps half the digits of a singular matrix.
    expected = np.trace(scipy.linalg.sqrtm(root @ c_q @ root)).real
    assert bures_fidelity(k_factor, r_factor).item() == pytest.approx(expected, abs=tolerance)


def test_the_bures_fidelity_of_a_measure_with_itself_is_its_trace(generator):
    factor = torch.randn(2, 9, 5, dtype=F64, generator=generator)
    torch.testing.assert_close(bures_fidelity(factor, factor), factor.square().sum((-2, -1)) / 9, rtol=1e-14, atol=0)


def test_the_safe_root_is_zero_below_zero_and_has_gradient_zero_at_zero():
    value = torch.tensor([-1.0, 0.0, 4.0], dtype=F64, requires_grad=True)
    root = safe_sqrt(value)
    root.sum().backward()
    assert root.tolist() == [0.0, 0.0, 2.0]
    assert value.grad.tolist() == [0.0, 0.0, 0.25]


def test_a_wide_factor_at_rest_is_made_square_and_one_that_is_learned_is_not(generator):
    wide = torch.randn(2, 5, 12, dtype=torch.float64, generator=generator)
    other = torch.randn(2, 5, 7, dtype=torch.float64, generator=generator)
    square = square_factor(wide)
    assert square.shape == (2, 5, 5)
    torch.testing.assert_close(square @ square.mT, wide @ wide.mT)
    fidelity = torch.linalg.svdvals(wide.mT @ other).sum(-1) / 5
    torch.testing.assert_close(bures_fidelity(wide, other), fidelity)
    learned = wide.clone().requires_grad_()
    assert square_factor(learned) is learned
    torch.testing.assert_close(bures_fidelity(learned, other), fidelity)
    assert square_factor(other[..., :3]).shape == (2, 5, 3)
    # The gradient of the other factor is the same.
    gradients = []
    for factor in (wide, learned):
        moving = other.clone().requires_grad_()
        gradients += torch.autograd.grad(bures_fidelity(factor, moving).sum(), moving)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(("matrices", "rows"), [((), ()), ((), (3,)), ((3,), (3,)), ((3,), ()), ((2, 1), (2, 3))])
def test_log_gaussian_and_its_slopes_are_those_of_torch(matrices, rows):
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(*matrices, 5, 5, dtype=torch.float64, generator=generator)
    a, v = root @ root.mT + torch.eye(5), torch.randn(*rows, 5, dtype=torch.float64, generator=generator)
    found = []
    for density in (
        lambda a, v: LogGaussian.apply(a, v, 0.0, "matrix"),
        lambda a, v: torch.distributions.MultivariateNormal(torch.zeros(5, dtype=torch.float64), a).log_prob(v),
    ):
        arguments = a.clone().requires_grad_(True), v.clone().requires_grad_(True)
        value = density(*arguments)
        weight = torch.linspace(0.5, 2, value.numel(), dtype=torch.float64).reshape(value.shape)
        slope, pull = torch.autograd.grad((weight * value).sum(), arguments)
        # Of a symmetric matrix only the symmetric part of the slope says something.
        found.append((value.detach(), (slope + slope.mT) / 2, pull))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_log_gaussian_says_which_matrix_cannot_be_factorised():
    with pytest.raises(NotPositiveDefiniteError, match="the covariance"):
        LogGaussian.apply(-torch.eye(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64), 0.0, "the covariance")
