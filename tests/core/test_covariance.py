"""Optimal covariances: closed forms, the certified fixed point, L-BFGS, and what joint training would give."""

import numpy as np
import ot
import pytest
import torch
from benchmarks.tables.uci.data import load_uci, standardise

from gwi import GWIRegressor
from gwi.core.bounded_covariance import bounded_by_prior
from gwi.core.covariance import (
    covariance_objective,
    covariance_problem,
    matched_divergence_weight,
    paper_initial_covariance,
    relative_gap,
    shrinkage,
    titsias_covariance,
    trained_covariance,
    wasserstein_covariance,
)
from gwi.core.divergences import wasserstein_squared
from gwi.core.inducing import choose_inducing_points
from gwi.core.kernels import ShrunkenKernel, SparsePosteriorKernel, default_kernel
from gwi.core.likelihoods.gaussian import GaussianLikelihood
from gwi.core.means import KernelMean, ModuleMean
from gwi.core.measures import GaussianMeasure, kernel_matrix, kernel_variance
from gwi.core.networks import mlp
from gwi.core.objectives import generalized_loss
from gwi.core.prior import fit_prior
from gwi.core.row_sums import row_sums
from gwi.core.training import minimize_lbfgs
from gwi.parts import Covariance, Gaussian

F64 = torch.float64
SETS = ["boston", "concrete", "yacht"]


def eye(n):
    return torch.eye(n, dtype=F64)


@pytest.fixture(scope="module")
def fitted(uci_folder):
    """A prior by the collapsed bound, inducing points and rows of each table."""
    found = {}
    for name in SETS:
        x, y = load_uci(name)
        x, y = standardise(x), standardise(y.mT).mT
        z = choose_inducing_points(x, 50, "kmeans", generator=torch.Generator().manual_seed(0))
        fit = fit_prior(default_kernel(x.shape[1]), x, y, inducing_points=z, max_iterations=60)
        sample = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:150]
        found[name] = (fit, z, x, x[sample])
    return found


def toy_problem(noise, beta, num_points=60, num_inducing=8, num_data=60, seed=0, inside=False):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_points, 2, dtype=F64, generator=generator)
    z = x[:num_inducing] if inside else torch.randn(num_inducing, 2, dtype=F64, generator=generator)
    kernel = default_kernel(2, lengthscale=1.0)
    problem = covariance_problem(kernel, z, x, noise_variance=noise, num_data=num_data, divergence_weight=beta)
    return kernel, z, x, problem


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("which", ["1", "match", "N"])
def test_fixed_point_is_the_optimum_that_lbfgs_finds_from_two_starts(fitted, name, which):
    fit, z, x, points = fitted[name]
    with torch.no_grad():
        matched = matched_divergence_weight(row_sums(fit.kernel, z, x), fit.noise_variance)
    beta = {"1": 1.0, "match": matched, "N": float(len(x))}[which]
    problem = covariance_problem(
        fit.kernel, z, points, noise_variance=fit.noise_variance, num_data=len(x), divergence_weight=beta
    )
    solution = wasserstein_covariance(problem, tolerance=1e-7)
    assert solution.converged
    assert solution.duality_gap <= 1e-6
    steps = torch.tensor(solution.objectives)
    assert (steps.diff() <= 1e-12 * abs(solution.objective)).all(), "J must decrease at every step"
    generator = torch.Generator().manual_seed(1)
    random = torch.randn(len(z), len(z), dtype=F64, generator=generator) / len(z)
    for start in (eye(len(z)) * 0.01, random @ random.mT):
        _, result = trained_covariance(problem, start, max_iterations=150)
        assert result.value == pytest.approx(solution.objective, rel=1e-6)
        # The certificate: nothing can be below J − gap.
        terms = solution.objective + 2 * problem.divergence_weight * problem.prior_factor.square().sum() / len(points)
        assert result.value >= solution.objective - solution.duality_gap * terms - 1e-9 * abs(solution.objective)
    if which == "1":
        assert (wasserstein_covariance(problem).whitened_covariance == 0).all()
    if which == "match":
        a = shrinkage(fit.noise_variance, len(x), beta)
        cheap = covariance_objective(problem, eye(len(z)) / a).item()
        at_zero = covariance_objective(problem, 0 * eye(len(z))).item()
        assert (cheap - solution.objective) / (at_zero - solution.objective) <= 0.1


def test_gap_bounds_the_distance_to_the_optimum_at_every_iterate():
    _, _, _, problem = toy_problem(0.1, 20.0)
    best = wasserstein_covariance(problem, tolerance=1e-10).objective
    for iterations in (1, 2, 3, 5):
        early = wasserstein_covariance(problem, tolerance=0.0, max_iterations=iterations)
        positive = early.objective + 2 * problem.divergence_weight * problem.prior_factor.square().sum().item() / 60
        assert 0 <= early.objective - best <= early.duality_gap * positive + 1e-10


def test_objective_is_the_generalized_loss_as_a_function_of_the_covariance():
    noise, beta = 0.1, 20.0
    kernel, z, x, problem = toy_problem(noise, beta)
    prior, y = GaussianMeasure(None, kernel), torch.zeros(1, 60, dtype=F64)
    losses, objectives = [], []
    for scale in (0.01, 0.3, 1.0):
        posterior = GaussianMeasure(None, SparsePosteriorKernel(kernel, z, scale * eye(8)))
        losses.append(
            generalized_loss(prior, posterior, GaussianLikelihood(noise), x, y, num_data=60, divergence_weight=beta).item()
        )
        objectives.append(covariance_objective(problem, scale**0.5 * eye(8)).item())
    assert losses[1] - losses[0] == pytest.approx(objectives[1] - objectives[0], rel=1e-6)
    assert losses[2] - losses[0] == pytest.approx(objectives[2] - objectives[0], rel=1e-6)


@pytest.mark.parametrize("beta", [1.0, 30.0, 1000.0])
def test_when_inducing_points_explain_everything_the_optimum_is_isotropic(beta):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(15, 2, dtype=F64, generator=generator)
    problem = covariance_problem(
        default_kernel(2, lengthscale=0.7), x, x, noise_variance=0.1, num_data=15, divergence_weight=beta
    )
    solution = wasserstein_covariance(problem, tolerance=1e-9)
    a = shrinkage(0.1, 15, beta)
    torch.testing.assert_close(solution.whitened_covariance, eye(15) / a**2, rtol=1e-4, atol=1e-9)


def test_closed_form_for_noise_that_depends_on_x_when_nothing_is_left_unexplained():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(15, 2, dtype=F64, generator=generator)
    noise = torch.linspace(0.01, 1.0, 15, dtype=F64)
    problem = covariance_problem(
        default_kernel(2, lengthscale=0.7), x, x, noise_variance=noise, num_data=15, divergence_weight=5.0
    )
    phi, a = problem.features, problem.precision
    factor = 5.0 * torch.linalg.lstsq(a.sqrt()[:, None] * phi.mT, phi.mT / a.sqrt()[:, None]).solution
    optimum = covariance_objective(problem, factor).item()
    assert wasserstein_covariance(problem, tolerance=1e-9).objective == pytest.approx(optimum, rel=1e-8)
    _, result = trained_covariance(problem, 0.01 * eye(15))
    assert result.value == pytest.approx(optimum, rel=1e-6)


def test_among_all_kernels_the_shrunken_prior_has_the_least_loss():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20, 2, dtype=F64, generator=generator)
    noise = torch.rand(20, dtype=F64, generator=generator) + 0.1
    kernel, beta, y = default_kernel(2, lengthscale=0.8), 3.0, torch.zeros(1, 20, dtype=F64)
    likelihood = GaussianLikelihood(lambda rows: noise)
    prior = GaussianMeasure(None, kernel)

    def loss(r):
        posterior = GaussianMeasure(None, r)
        return generalized_loss(prior, posterior, likelihood, x, y, num_data=20, divergence_weight=beta).item()

    best = loss(ShrunkenKernel(kernel, lambda rows: shrinkage(noise, 20, beta)))
    # Any covariance on these points is F Fᵀ; with Z = X the sparse kernel reaches all of them.
    for start in (0.1 * eye(20), 0.5 * eye(20)):
        problem = covariance_problem(kernel, x, x, noise_variance=noise, num_data=20, divergence_weight=beta)
        s, _ = trained_covariance(problem, start)
        assert best <= loss(SparsePosteriorKernel(kernel, x, s)) + 1e-6
    for factor in (0.8, 1.25):
        assert best < loss(ShrunkenKernel(kernel, lambda rows, c=factor: c * shrinkage(noise, 20, beta)))


def test_inducing_points_among_the_points_are_no_trouble():
    _, _, _, problem = toy_problem(0.1, 20.0, inside=True)
    solution = wasserstein_covariance(problem)
    assert solution.converged
    _, result = trained_covariance(problem, 0.01 * eye(8))
    assert result.value == pytest.approx(solution.objective, rel=1e-6)


def test_joint_training_gives_the_covariance_of_mean_first_covariance_after():
    generator = torch.Generator().manual_seed(0)
    noise, beta, num_data = 0.1, 15.0, 30
    x = torch.randn(num_data, 2, dtype=F64, generator=generator)
    y = (torch.sin(2 * x.sum(-1)) + 0.3 * torch.randn(num_data, dtype=F64, generator=generator))[None]
    kernel = default_kernel(2, lengthscale=0.7).requires_grad_(False)
    z = choose_inducing_points(x, 6, "kmeans", generator=generator)
    prior = GaussianMeasure(None, kernel)
    r = SparsePosteriorKernel(kernel, z, paper_initial_covariance(kernel, z, x, noise, num_data))
    r.whitened_factor.requires_grad_(True)
    posterior = GaussianMeasure(ModuleMean(mlp(2, hidden=(8,), generator=generator).double()), r)
    minimize_lbfgs(
        lambda: generalized_loss(prior, posterior, GaussianLikelihood(noise), x, y, num_data=num_data, divergence_weight=beta),
        [p for p in posterior.parameters() if p.requires_grad],
        max_iterations=400,
        tolerance=1e-15,
    )
    problem = covariance_problem(kernel, z, x, noise_variance=noise, num_data=num_data, divergence_weight=beta)
    after = SparsePosteriorKernel(kernel, z, wasserstein_covariance(problem, tolerance=1e-9).whitened_covariance)
    new = torch.randn(200, 2, dtype=F64, generator=generator)
    with torch.no_grad():
        joint, separate = kernel_variance(r, new), kernel_variance(after, new)
    # To 1 % of r, or to 1e-4 of the prior variance at rows next to an inducing point, where r itself is almost zero.
    torch.testing.assert_close(joint, separate, rtol=0.01, atol=1e-4)
    assert joint.mean().item() == pytest.approx(separate.mean().item(), rel=1e-3)


def test_titsias_covariance_is_optimal_under_kl():
    kernel, z, x, _ = toy_problem(0.1, 1.0)
    with torch.no_grad():
        sums = row_sums(kernel, z, x, noise_variance=0.1)
    s = titsias_covariance(sums)
    expected = torch.linalg.inv(eye(8) + sums.gram)
    torch.testing.assert_close(s, expected, rtol=1e-10, atol=1e-14)

    def elbo(covariance):
        divergence = (covariance.trace() - covariance.logdet()) / 2
        return (covariance * sums.gram).sum() / 2 + divergence

    for direction in torch.randn(5, 8, 8, dtype=F64, generator=torch.Generator().manual_seed(2)):
        assert elbo(s) < elbo(s + 1e-3 * s @ (direction + direction.mT) @ s)


def test_papers_start_is_titsias_covariance_of_the_batch():
    kernel, z, x, _ = toy_problem(0.1, 1.0)
    with torch.no_grad():
        whole = titsias_covariance(row_sums(kernel, z, x, noise_variance=0.1))
        from_all = paper_initial_covariance(kernel, z, x, 0.1, num_data=60)
        from_batch = paper_initial_covariance(kernel, z, x[:30], 0.1, num_data=60)
        k_zz, k_zb = kernel_matrix(kernel, z), kernel_matrix(kernel, z, x[:30])
        sigma = torch.linalg.inv(k_zz + (60 / 30) * k_zb @ k_zb.mT / 0.1)
        printed = SparsePosteriorKernel(kernel, z, from_batch).covariance
    torch.testing.assert_close(from_all, whole)
    torch.testing.assert_close(printed, sigma, rtol=1e-7, atol=1e-9)


def test_matched_weight_gives_titsias_mean_variance_in_the_span():
    kernel, z, x, _ = toy_problem(0.1, 1.0)
    with torch.no_grad():
        plain, weighted = row_sums(kernel, z, x), row_sums(kernel, z, x, noise_variance=0.1)
    beta = matched_divergence_weight(plain, 0.1)
    titsias = (titsias_covariance(weighted) * plain.gram).sum().item() / 60
    isotropic = plain.gram.trace().item() / 60 / float(shrinkage(0.1, 60, beta)) ** 2
    assert isotropic == pytest.approx(titsias, rel=1e-9)
    d_eff = titsias * 60 / 0.1
    assert beta == pytest.approx(0.5 * (60 * d_eff / 0.1) ** 0.5, rel=0.35)


def test_a_cost_that_is_matched_in_every_direction_makes_titsias_covariance_optimal():
    rng = np.random.default_rng(0)
    num_rows, noise = 200, 0.3
    phi = rng.normal(size=(6, num_rows)) * np.array([1.0, 0.7, 0.4, 0.2, 0.1, 0.05])[:, None]
    h, vectors = np.linalg.eigh(phi @ phi.T / num_rows)
    weights = num_rows / (2 * noise) / (np.sqrt(1 + num_rows * h / noise) - 1)

    def loss(s):
        # In the eigenbasis of H: expected squared error, and W₂² of the cost Σ β_i (f_i − g_i)², by POT.
        rotated = np.sqrt(h)[:, None] * (vectors.T @ s @ vectors) * np.sqrt(h)
        root = np.sqrt(weights)
        q, p = root[:, None] * rotated * root, np.diag(weights * h)
        distance = ot.gaussian.bures_wasserstein_distance(np.zeros(6), np.zeros(6), p, q) ** 2
        return num_rows / (2 * noise) * np.trace(rotated) + distance

    best = np.linalg.inv(np.eye(6) + phi @ phi.T / noise)
    for _ in range(30):
        step = rng.normal(size=(6, 6)) * 0.1
        factor = np.linalg.cholesky(best) @ (np.eye(6) + step)
        assert loss(factor @ factor.T) > loss(best)


def test_matched_weight_for_noise_that_depends_on_x_matches_within_a_few_per_cent():
    kernel, z, x, _ = toy_problem(0.1, 1.0)
    noise = 0.1 * (1 + torch.rand(60, dtype=F64, generator=torch.Generator().manual_seed(3)))
    with torch.no_grad():
        plain, weighted = row_sums(kernel, z, x), row_sums(kernel, z, x, noise_variance=noise)
        beta = matched_divergence_weight(plain, noise)
        titsias = (titsias_covariance(weighted) * plain.gram).sum().item()
        factor = beta * torch.linalg.solve(beta * plain.gram + 30 * weighted.gram, plain.gram)
    assert (factor @ factor.mT * plain.gram).sum().item() == pytest.approx(titsias, rel=0.05)


def test_weight_grows_without_overflow_when_data_say_nothing():
    kernel, z, x, _ = toy_problem(0.1, 1.0)
    with torch.no_grad():
        beta = matched_divergence_weight(row_sums(kernel, z, x), 1e12)
    assert 0 < beta < float("inf")


def test_variance_returns_to_the_prior_away_from_the_points_for_any_weight():
    for beta in (1.0, 20.0, 1e4):
        kernel, z, _, problem = toy_problem(0.1, beta)
        r = SparsePosteriorKernel(kernel, z, wasserstein_covariance(problem).whitened_covariance)
        far = torch.full((1, 2), 50.0, dtype=F64)
        assert kernel_variance(r, far).item() == pytest.approx(1.0, rel=1e-9)


def test_shrunken_prior_has_no_distance_awareness():
    r = ShrunkenKernel(default_kernel(2), 3.0)
    rows = torch.tensor([[0.0, 0.0], [50.0, 50.0]], dtype=F64)
    torch.testing.assert_close(kernel_variance(r, rows), torch.full((2,), 1 / 9, dtype=F64))


def test_s_equal_identity_is_the_prior_and_costs_no_distance():
    kernel, z, x, problem = toy_problem(0.1, 20.0)
    prior = GaussianMeasure(None, kernel)
    same = GaussianMeasure(None, SparsePosteriorKernel(kernel, z, eye(8)))
    assert abs(wasserstein_squared(prior, same, x).item()) <= 1e-9
    spread = (problem.precision * problem.prior_factor.square().sum(-1)).mean().item()
    at_identity = covariance_objective(problem, eye(8)).item()
    assert at_identity == pytest.approx(spread - 20.0 * problem.prior_factor.square().sum().item() / 60, rel=1e-12)


def test_kernel_mean_and_posterior_kernel_can_share_learned_inducing_points():
    kernel, z, x, _ = toy_problem(0.1, 20.0)
    r = SparsePosteriorKernel(kernel, z, 0.1 * eye(8))
    r.inducing_points.requires_grad_(True)
    mean = KernelMean(kernel, r.inducing_points, torch.zeros(1, 8, dtype=F64))
    posterior = GaussianMeasure(mean, r)
    assert sum(p is r.inducing_points for p in posterior.parameters()) == 1
    loss = generalized_loss(GaussianMeasure(None, kernel), posterior, GaussianLikelihood(0.1), x, x.sum(-1)[None], num_data=60)
    loss.backward()
    assert torch.isfinite(r.inducing_points.grad).all()
    assert r.inducing_points.grad.abs().max() > 0


def test_bounded_covariance_never_exceeds_the_prior_and_leaves_smaller_ones_alone():
    g = torch.Generator().manual_seed(0)
    root = torch.randn(8, 8, generator=g, dtype=torch.float64)
    small = root @ root.mT
    small = 0.9 * small / torch.linalg.eigvalsh(small)[-1]
    assert torch.equal(bounded_by_prior(small), small)
    large = small + 5 * torch.outer(root[0], root[0])
    values, vectors = torch.linalg.eigh(large)
    bounded = bounded_by_prior(large)
    assert torch.linalg.eigvalsh(bounded)[-1] <= 1 + 1e-12
    # Directions that were below one keep what they had.
    torch.testing.assert_close(bounded @ vectors[:, values < 1], vectors[:, values < 1] * values[values < 1])


def test_variance_stays_below_the_prior_where_no_sampled_row_is_near_an_inducing_point():
    """A short length-scale and few points: the unbounded minimiser of J has variances many times the prior's."""
    x = torch.linspace(0, 10, 2500, dtype=torch.float64)[:, None].numpy()
    y = np.sin(3 * x[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(len(x))
    kernel = default_kernel(1, lengthscale=0.1, hyper_priors=False).requires_grad_(False)
    model = GWIRegressor(
        "svgp", kernel=kernel, random_state=0, covariance=Covariance(num_inducing=10), likelihood=Gaussian("constant")
    ).fit(x, y)
    _, variance, _, _ = model.model_.parts(x)
    assert (variance <= model.model_.prior_variance(x) * (1 + 1e-9)).all()


def test_a_bounded_covariance_of_huge_eigenvalues_is_still_positive_semidefinite():
    g = torch.Generator().manual_seed(0)
    vectors = torch.linalg.qr(torch.randn(60, 60, generator=g, dtype=torch.float64)).Q
    values = torch.cat([torch.full((3,), 6e6, dtype=torch.float64), torch.zeros(57, dtype=torch.float64)])
    bounded = bounded_by_prior((vectors * values) @ vectors.mT)
    assert torch.linalg.eigvalsh(bounded)[0] > -1e-15 * 60
    SparsePosteriorKernel(default_kernel(1), torch.linspace(0, 9, 60, dtype=torch.float64)[:, None], bounded)


def test_the_relative_gap_of_any_covariance_bounds_its_distance_to_the_optimum():
    _, _, _, problem = toy_problem(0.1, 20.0)
    best = wasserstein_covariance(problem, tolerance=1e-10)
    assert relative_gap(problem, best.whitened_covariance) < 1e-6
    prior_variance = problem.divergence_weight * problem.prior_factor.square().sum().item() / 60
    for share in (0.01, 0.3, 1.0):
        s = share * torch.eye(len(problem.features), dtype=F64)
        value = covariance_objective(problem, share**0.5 * torch.eye(len(s), dtype=F64)).item()
        variance = problem.residual_factor.square().sum(-1) + share * problem.features.square().sum(0)
        positive = (problem.precision * variance).mean().item() + prior_variance
        known = relative_gap(problem, s, best.lower_bound)
        assert known == pytest.approx((value - best.lower_bound) / positive, rel=1e-9)
        assert relative_gap(problem, s) >= known - 1e-9
