"""Peers that are Gaussian processes and trees: exact GP and SVGP (GPyTorch), NGBoost, histogram boosting."""

from __future__ import annotations

import itertools
from typing import Any

import gpytorch
import numpy as np
import torch
from botorch.models import SingleTaskGP
from botorch.optim.fit import fit_gpytorch_mll_scipy
from gpytorch.distributions import MultivariateNormal
from linear_operator.utils.cholesky import psd_safe_cholesky
from linear_operator.utils.errors import NotPSDError
from sklearn.cluster import MiniBatchKMeans
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import KFold
from sklearn.tree import DecisionTreeRegressor
from torch import Tensor

from benchmarks.tables.uci.interface import Budget, Fitted, Standardised, hold_out, standardised
from gwi._typing import Array
from gwi.evaluation.regression import Law


def exact_gp(x: Array, y: Array, seed: int, budget: Budget) -> Fitted:
    """An exact GP with an ARD squared exponential, its marginal likelihood maximised by L-BFGS, in float64 by Cholesky."""
    return exact_gp_and_left_out(x, y, budget)[0]


def exact_gp_and_left_out(x: Array, y: Array, budget: Budget) -> tuple[Fitted, tuple[Array, Array]]:
    """The exact GP, and the mean and standard deviation at each row of the GP without it, in closed form."""
    data, model = trained_gp(x, y, budget)

    @torch.no_grad()
    def predict(new: Array) -> Law:
        with gpytorch.settings.max_cholesky_size(10_000), gpytorch.settings.fast_pred_var():
            found = model.likelihood(model(torch.from_numpy(data.rows(new))))
        return data.law(found.mean.numpy(), found.variance.sqrt().numpy())

    noise = model.likelihood.noise
    with torch.no_grad(), gpytorch.settings.max_cholesky_size(10_000):
        rows = torch.from_numpy(data.x)
        covariance = model.covar_module(rows).to_dense() + noise * torch.eye(len(x), dtype=rows.dtype)
        factor = psd_safe_cholesky(covariance)
        residuals = torch.from_numpy(data.y) - model.mean_module(rows)
        inverse = torch.cholesky_solve(torch.eye(len(x), dtype=rows.dtype), factor)
        precision = inverse.diagonal()
        left_out = torch.from_numpy(data.y) - inverse @ residuals / precision
    mean, std = left_out.numpy() * data.y_scale + data.y_centre, precision.rsqrt().numpy() * data.y_scale
    return Fitted(predict, {"noise_variance": noise.item()}, 0.0, 0.0), (mean, std)


def trained_gp(x: Array, y: Array, budget: Budget) -> tuple[Standardised, Any]:
    """Standardised rows and GPyTorch's exact GP on them, its marginal likelihood maximised by L-BFGS."""
    data = standardised(x, y)
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=x.shape[1]))
    reached: dict[str, Tensor] = {}

    def stop_when_spent(*_: Any) -> None:
        reached.update({name: value.detach().clone() for name, value in model.state_dict().items()})
        # Which SciPy takes as the end: the parameters are those of the last step.
        if budget.left() < 0.15 * budget.seconds:
            raise StopIteration

    # BoTorch's wrapper of GPyTorch's exact GP, for its optimiser.
    with gpytorch.settings.max_cholesky_size(10_000):
        model = SingleTaskGP(
            torch.from_numpy(data.x),
            torch.from_numpy(data.y)[:, None],
            likelihood=gpytorch.likelihoods.GaussianLikelihood(),
            covar_module=kernel,
            outcome_transform=None,
        )
        try:
            fit_gpytorch_mll_scipy(
                gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model),
                options={"maxiter": budget.steps(200)},
                callback=stop_when_spent,
            )
        except NotPSDError:
            # A line search went where no Cholesky factor is: the steps before it count.
            model.load_state_dict(reached)
        model.eval()
    return data, model


class SparseGP(gpytorch.models.ApproximateGP):
    """A whitened SVGP whose inducing points are learned."""

    def __init__(self, z: Tensor) -> None:
        law = gpytorch.variational.CholeskyVariationalDistribution(len(z))
        super().__init__(gpytorch.variational.VariationalStrategy(self, z, law, learn_inducing_locations=True))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=z.shape[1]))
        # The distance between standardised rows is √2D; GPyTorch's own start of 0.69 leaves nothing to learn from at D > 10.
        self.covar_module.base_kernel.lengthscale = z.shape[1] ** 0.5

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior at rows."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def svgp(x: Array, y: Array, seed: int, budget: Budget) -> Fitted:
    """GPyTorch's SVGP: Adam at 0.01 on batches, inducing points from k-means."""
    data = standardised(x, y)
    small = len(x) < 2000
    count, batch_size, most = (200, 256, 2000) if small else (400, 1024, 3000)
    count = min(count, len(x))
    z = MiniBatchKMeans(count, n_init=1, random_state=seed, batch_size=2048).fit(data.x).cluster_centers_
    torch.manual_seed(seed)
    model, likelihood = SparseGP(torch.from_numpy(z).float()), gpytorch.likelihoods.GaussianLikelihood()
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(x))
    optimiser = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
    rows, targets = torch.from_numpy(data.x).float(), torch.from_numpy(data.y).float()
    steps = 0
    while steps < budget.steps(most) and budget.left() > 0.05 * budget.seconds:
        for batch in torch.randperm(len(x)).split(batch_size):
            optimiser.zero_grad()
            (-objective(model(rows[batch]), targets[batch])).backward()
            optimiser.step()
            steps += 1
    model.eval()
    likelihood.eval()

    @torch.no_grad()
    def predict(new: Array) -> Law:
        found = [likelihood(model(part)) for part in torch.from_numpy(data.rows(new)).float().split(2048)]
        mean, variance = torch.cat([part.mean for part in found]), torch.cat([part.variance for part in found])
        return data.law(mean.numpy(), variance.sqrt().numpy())

    return Fitted(predict, {"inducing": count, "steps": steps, "batch_size": batch_size}, 0.0, 0.0)


def ngboost(x: Array, y: Array, seed: int, budget: Budget) -> Fitted:
    """NGBoost, normal law, learning rate 0.01: the number of stages on held-out rows, then all rows (Duan et al., 2020)."""
    # Here: it derives its distributions by computer algebra when it is imported, for seconds.
    from ngboost import NGBRegressor

    large = len(x) > 20_000
    most = budget.steps(2000)

    def model(stages: int) -> NGBRegressor:
        return NGBRegressor(
            Base=DecisionTreeRegressor(criterion="friedman_mse", max_depth=3, random_state=seed),
            n_estimators=stages,
            learning_rate=0.04 if large else 0.01,
            minibatch_frac=0.5 if large else 1.0,
            random_state=seed,
            verbose=False,
        )

    def chosen() -> tuple[int, int]:
        learn, judge = hold_out(len(x), 0.2, seed)
        # Stages cost alike: some tell how many the budget allows.
        trial = Budget(budget.seconds)
        model(20).fit(x[learn], y[learn])
        bound = max(50, min(most, int(0.4 * budget.left() / (trial.spent() / 20)))) if budget.share_of_steps == 1 else most
        tried = model(bound).fit(x[learn], y[learn], x[judge], y[judge], early_stopping_rounds=100)
        return int(tried.best_val_loss_itr) + 1 if tried.best_val_loss_itr is not None else bound, bound

    stages, most = (budget.known["stages"], budget.known["at_most"]) if budget.known else chosen()
    fitted = model(stages).fit(x, y)

    def predict(new: Array) -> Law:
        found = fitted.pred_dist(new)
        return Law(np.atleast_2d(found.loc), np.atleast_2d(found.scale))

    return Fitted(predict, {"stages": stages, "at_most": most}, 0.0, 0.0)


def histogram_boosting(x: Array, y: Array, seed: int, budget: Budget) -> Fitted:
    """scikit-learn's histogram boosting, tuned by cross-validation; one variance, that of the out-of-fold errors."""
    settings = budget.known or tuned_boosting(x, y, seed, budget)
    options = {name: settings[name] for name in ("learning_rate", "max_leaf_nodes", "min_samples_leaf")}
    fitted = HistGradientBoostingRegressor(
        max_iter=settings["iterations"], early_stopping=False, random_state=seed, **options
    ).fit(x, y)

    def predict(new: Array) -> Law:
        mean = fitted.predict(new)[None]
        return Law(mean, np.full_like(mean, settings["variance"] ** 0.5))

    return Fitted(predict, settings, 0.0, 0.0)


def tuned_boosting(x: Array, y: Array, seed: int, budget: Budget) -> dict[str, Any]:
    """The best settings of a grid by out-of-fold errors, as many as the budget takes, in random order."""
    folds = list(KFold(5, shuffle=True, random_state=seed).split(x))
    most = budget.steps(1000)
    grid = [
        {"learning_rate": rate, "max_leaf_nodes": leaves, "min_samples_leaf": least}
        for rate, leaves, least in itertools.product((0.03, 0.1), (7, 15, 31), (5, 20))
    ]
    order = np.random.default_rng(seed).permutation(len(grid))
    best: tuple[float, dict[str, Any], int] | None = None
    tried = 0
    for i in order:
        start = budget.spent()
        errors = np.empty(len(x))
        rounds = []
        for train, test in folds:
            model = HistGradientBoostingRegressor(
                max_iter=most, early_stopping=True, n_iter_no_change=20, random_state=seed, **grid[i]
            ).fit(x[train], y[train])
            errors[test] = y[test] - model.predict(x[test])
            rounds.append(model.n_iter_)
        tried += 1
        found = (float(np.square(errors).mean()), grid[i], round(1.25 * float(np.mean(rounds))))
        best = found if best is None or found[0] < best[0] else best
        # One more set of five fits, and the last one on all rows, must still fit in.
        if budget.left() < 2 * (budget.spent() - start) or tried >= budget.steps(len(grid)):
            break
    assert best is not None
    variance, options, iterations = best
    return options | {"iterations": iterations, "tried": tried, "variance": variance}
