"""Means of a classification: logits from kernels, networks and classifiers, each judged on unseen rows, and their combination."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from gwi._typing import Array
from gwi.core.means import ConstantMean, FixedMean, KernelMean, ModuleMean, SumMean, titsias_coefficients
from gwi.core.prior import PriorFit
from gwi.core.row_sums import row_sums
from gwi.core.scaling import OriginalRowsMean
from gwi.fitting.learners import Task, Trained, frozen_learner, kernel_means, module_learner, network_learner
from gwi.fitting.sklearn_learner import Pending, estimator_learner, plain_mean
from gwi.fitting.stacking import LARGE, MANY_ROWS, name_of

# α of the Dirichlet prior behind the targets of kernel means: the value of Milios et al. (2018).
CONCENTRATION = 0.01
# Of the weights of a stack towards their mean, as in regression.
SHRINKAGE = 0.1
# Nats that a stack pays for twice the scale, or none, of its members.
SCALE_PENALTY = 2.0
# Multiplications for Dirichlet logits, whose classes do not share a factor: some seconds.
MOST_OPERATIONS = 1e10
# Below so many rows "auto" is a GP and a linear model.
FEW_ROWS = 250
NAMES = ("svgp", "network", "linear")


def plan_logits(num_rows: int, num_classes: int) -> list[Any]:
    """The means that ``"auto"`` stacks, by the size of the table."""
    if num_rows < FEW_ROWS:
        return ["svgp", "linear"]
    # Boosting grows one tree a class and round: many classes get fewer rounds, each with a longer step.
    rounds = 200 if num_classes < 5 else 60
    leaves = 15 if num_rows < 3000 else 31 if num_rows <= LARGE else 127
    boosting = HistGradientBoostingClassifier(
        max_iter=rounds, learning_rate=0.05 if num_classes < 5 else 0.1, max_leaf_nodes=leaves, early_stopping=False
    )
    trees = ExtraTreesClassifier(300 if num_rows <= LARGE else 50)
    members: list[Any] = ["svgp", "linear", "network", boosting]
    return members if num_rows > MANY_ROWS else [*members, trees]


def dirichlet_targets(
    y: Float[Tensor, "J N"], concentration: float = CONCENTRATION
) -> tuple[Float[Tensor, "J N"], Float[Tensor, "J N"]]:
    """Labels as logits with Gaussian noise (Milios et al. 2018): the mean and variance of log γ, γ_j ~ Gamma(α + y_j).

    In this way classification is regression, and its kernel mean is in closed form.
    """
    alpha = concentration + y
    variance = (1 + alpha.reciprocal()).log()
    return alpha.log() - variance / 2, variance


def base_rates(y: Float[Tensor, "J N"], weight: Float[Tensor, " N"]) -> Float[Tensor, " J"]:
    """The weighted share of each class, none of them zero."""
    shares = (y * weight).sum(1)
    return (shares + 0.5) / (shares.sum() + 0.5 * len(shares))


@torch.no_grad()
def kernel_logits(
    prior: PriorFit,
    inducing_points: Float[Tensor, "M D"],
    task: Task,
    y_judge: Float[Tensor, "J V"],
    judge_weight: Float[Tensor, " V"],
    name: str = "svgp",
) -> Trained:
    """The sparse (Z ⊂ X) or exact (Z = X) GP mean of targets made from labels; far from the data it is the shares of classes.

    Two kinds of target are tried, and the better on unseen rows is kept: standardised indicators with the noise of the evidence,
    for which all classes share one factor, and where that many factors are cheap, Dirichlet logits with the noise that belongs to
    them.
    """
    start = time.perf_counter()
    rates = task_rates(task)
    log_rates = rates.log()
    if task.stream is not None:
        mean, judged = kernel_means(
            prior.kernel, inducing_points, task, lambda _, y: _against_rest(y, rates), prior.noise_variance
        )
        scale, _ = best_scale(judged, y_judge, judge_weight)
        offset = (log_rates - log_rates.mean()) / max(scale, 1e-6)
        return Trained(name, SumMean([mean, ConstantMean(offset)]), judged + offset[:, None], time.perf_counter() - start)
    tried: list[tuple[float, nn.Module, Tensor]] = []
    for coding in (_indicator_targets, _dirichlet_logits)[: 2 if _many_factors_are_cheap(task, inducing_points) else 1]:
        targets, noise, kernel = coding(task, prior)
        level = targets.mean()
        folds = replace(task, fold=None) if prior.without_folds else task
        mean, judged = kernel_means(kernel, inducing_points, folds, targets - level, noise)
        for k, fit in enumerate(prior.without_folds):
            _, own_noise, own_kernel = coding(task, fit)
            judged[:, task.fold == k] = _without_fold(own_kernel, inducing_points, task, k, targets - level, own_noise)
        scale, _ = best_scale(judged, y_judge, judge_weight)
        # In units in which a scale of one is best, the shares of classes are what a softmax far away should give.
        offset = (log_rates - log_rates.mean()) / max(scale, 1e-6)
        whole = judged + offset[:, None]
        tried.append((best_scale(whole, y_judge, judge_weight)[1], SumMean([mean, ConstantMean(offset)]), whole))
    _, best, judged = min(tried, key=lambda found: found[0])
    return Trained(name, best, judged, time.perf_counter() - start)


def _without_fold(
    kernel: Kernel, inducing_points: Tensor, task: Task, fold: int, targets: Tensor, noise: Tensor | float
) -> Float[Tensor, "J n"]:
    """The kernel mean of the other rows, with a prior that has not seen the fold, at the rows of the fold."""
    assert task.fold is not None
    others = task.fold != fold
    z = task.x[others] if inducing_points is task.x else inducing_points
    noise = (torch.as_tensor(noise) / task.weight)[..., others]
    sums = row_sums(kernel, z, task.x[others], targets[:, others], noise_variance=noise)
    return KernelMean(kernel, z, titsias_coefficients(sums))(task.x[~others])


def _indicator_targets(task: Task, prior: PriorFit) -> tuple[Tensor, Tensor | float, Kernel]:
    return standardised_indicators(task.y, task.weight), prior.noise_variance, prior.kernel


def _dirichlet_logits(task: Task, prior: PriorFit) -> tuple[Tensor, Tensor | float, Kernel]:
    targets, variance = dirichlet_targets(task.y)
    return targets, variance, rescaled(prior, float((targets - targets.mean(1, keepdim=True)).square().mean()))


def _many_factors_are_cheap(task: Task, inducing_points: Tensor) -> bool:
    num_inducing = len(inducing_points)
    return len(task.y) * num_inducing**2 * (len(task.x) + 2 * num_inducing) <= MOST_OPERATIONS


def standardised_indicators(y: Float[Tensor, "J N"], weight: Float[Tensor, " N"]) -> Float[Tensor, "J N"]:
    """Each class against the rest, with mean zero and variance one."""
    return _against_rest(y, base_rates(y, weight))


def _against_rest(y: Float[Tensor, "J N"], rates: Float[Tensor, " J"]) -> Float[Tensor, "J N"]:
    return (y - rates[:, None]) / (rates * (1 - rates)).sqrt()[:, None]


def task_rates(task: Task) -> Float[Tensor, " J"]:
    """`base_rates` of all rows."""
    if task.stream is None or task.classes is None:
        return base_rates(task.y, task.weight)
    counts = task.y.new_tensor([task.stream.sketch.labels[label] for label in task.classes.tolist()])
    return base_rates(counts[:, None], torch.ones_like(counts[:1]))


def rescaled(prior: PriorFit, variance: float) -> Kernel:
    """The prior's kernel with its amplitude multiplied by a variance; k itself where it has no amplitude."""
    kernel = copy.deepcopy(prior.kernel)
    if hasattr(kernel, "outputscale"):
        kernel.outputscale = kernel.outputscale.detach() * variance
    return kernel


def learn_logits(
    item: Any,
    task: Task,
    prior: PriorFit,
    basis: Float[Tensor, "M D"],
    y_judge: Float[Tensor, "J V"],
    judge_weight: Float[Tensor, " V"],
    *,
    freeze: bool = True,
) -> Trained | Pending:
    """Train, or ask, one mean of any kind that the classifier takes; fits that can be done apart are left pending.

    Args:
        item: one of `NAMES`, a frozen module, a scikit-learn classifier, or a callable from rows to logits.
        task: rows to learn from and to be judged on; y are indicators.
        prior: for kernel means, fitted to standardised indicators.
        basis: centres of a kernel mean's basis functions.
        y_judge: indicators at the judging rows.
        judge_weight: of each judging row.
        freeze: take a module as it is; else it is trained by cross-entropy on standardised rows.
    """
    name = name_of(item)
    if isinstance(item, str) and item in NAMES:
        if item == "network":
            return network_learner(task, **_network_size(task.num_rows))
        if item == "linear":
            return estimator_learner(LogisticRegression(max_iter=500), task, name=name, standardised=True)
        return kernel_logits(prior, basis, task, y_judge, judge_weight)
    if isinstance(item, nn.Module) and not freeze:
        with torch.no_grad():
            require_outputs(ModuleMean(copy.deepcopy(item).eval())(task.x[:2]), len(task.y))
        return module_learner(item, task, num_epochs=30, name=name)
    if isinstance(item, nn.Module):
        return _frozen(OriginalRowsMean(ModuleMean(copy.deepcopy(item).eval()), task.scales), "a frozen network", task, name)
    if hasattr(item, "fit") and (hasattr(item, "predict_proba") or hasattr(item, "decision_function")):
        try:
            check_is_fitted(item)
        except NotFittedError:
            return estimator_learner(item, task, name=name)
        mean = FixedMean(plain_mean(item, task.classes))
        return _frozen(OriginalRowsMean(mean, task.scales), f"the fitted {name}", task, name)
    if callable(item) and not hasattr(item, "fit"):
        return _frozen(OriginalRowsMean(FixedMean(item), task.scales), "a function", task, name)
    raise ValueError(
        'mean is "auto", "svgp", "network", "linear", a torch module, a scikit-learn classifier with predict_proba or '
        f"decision_function, a callable from rows to logits, or a list of these; got {item!r}."
    )


def _frozen(mean: nn.Module, what: str, task: Task, name: str) -> Trained:
    if task.judges_may_be_known:
        raise ValueError(
            f"{what[0].upper()}{what[1:]} may have seen the training rows, so they cannot judge its errors. "
            "Pass rows it has not seen: fit(X, y, validation=(X_unseen, y_unseen))."
        )
    trained = frozen_learner(mean, task, name=name)
    if trained.judged.shape[0] != len(task.y):
        raise ValueError(
            f"{what[0].upper()}{what[1:]} gives {trained.judged.shape[0]} outputs a row; there are {len(task.y)} classes."
        )
    return trained


def require_outputs(logits: Float[Tensor, "K N"], num_classes: int) -> None:
    """Refuse a network that has not one output a class."""
    if logits.shape[0] != num_classes:
        raise ValueError(f"The network gives {logits.shape[0]} outputs a row; there are {num_classes} classes.")


def _network_size(num_rows: int) -> dict[str, Any]:
    if num_rows < 600:
        return {"num_steps": 400, "hidden": (64, 64), "per_fold": 2}
    return {"num_steps": 800 if num_rows < 3000 else 3000, "hidden": (128, 128), "per_fold": 1}


def stacking_weights(
    judged: Float[Tensor, "K J V"],
    y: Float[Tensor, "J V"],
    sample_weight: Float[Tensor, " V"],
    *,
    scale: float | Literal["auto"] = "auto",
) -> tuple[Float[Tensor, " K"], float]:
    """w ≥ 0 with Σ w = 1, and s ≥ 0, that minimise the cross-entropy of s Σ w_k m_k on rows the means have not seen.

    Convex in s·w. Each mean is first brought to the scale that suits it alone. Then a ridge of some nats draws the products
    towards each other, and their sum towards one: few unseen rows with fewer errors would else ask for any scale. 1/s is the
    temperature of the combined logits.

    Args:
        judged: logits of each mean.
        y: indicators.
        sample_weight: of each row.
        scale: s, or ``"auto"``.
    """
    own = torch.ones_like(judged[:, 0, 0])
    if len(judged) > 1 and scale == "auto":
        own = judged.new_tensor([best_scale(part, y, sample_weight)[0] for part in judged])
    logits = (own[:, None, None] * judged).cpu().numpy()
    # As if one more row had every label: rows that are all told apart would else ask for an infinite scale (Platt 1999).
    wrong = 1 / (y.shape[1] + 1)
    target, weight = ((1 - wrong) * y + wrong / len(y)).cpu().numpy(), sample_weight.cpu().numpy()
    num_means = len(logits)

    def objective(products: Array) -> tuple[float, Array]:
        combined = np.tensordot(products, logits, axes=1)
        top = combined.max(0)
        log_total = top + np.log(np.exp(combined - top).sum(0))
        loss = weight @ (log_total - (target * combined).sum(0))
        gradient = np.einsum("jv,kjv->k", weight * (np.exp(combined - log_total) - target), logits)
        away, excess = products - products.mean(), products.sum() - 1
        loss += SHRINKAGE * num_means * away @ away
        gradient += 2 * SHRINKAGE * num_means * away
        if num_means > 1 and scale == "auto":
            loss += SCALE_PENALTY * excess**2
            gradient += 2 * SCALE_PENALTY * excess
        return loss / len(weight), gradient / len(weight)

    start = np.full(num_means, (1.0 if scale == "auto" else scale) / num_means)
    if scale == "auto":
        found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=[(1e-6, 50.0)] * num_means).x
    elif num_means == 1:
        found = start
    else:
        total = {"type": "eq", "fun": lambda p: p.sum() - scale, "jac": lambda p: np.ones_like(p)}
        found = minimize(
            objective, start, jac=True, method="SLSQP", bounds=[(0.0, scale)] * num_means, constraints=[total]
        ).x.clip(0.0)
    found = found * own.cpu().numpy()
    # Weights that no prediction can tell from zero would keep their members in the model for nothing.
    found = np.where(found < 1e-3 * found.sum(), 0.0, found)
    return torch.from_numpy(found / found.sum()).to(judged), float(found.sum())


def best_scale(judged: Float[Tensor, "J V"], y: Float[Tensor, "J V"], sample_weight: Float[Tensor, " V"]) -> tuple[float, float]:
    """The scale that suits logits best on these rows, and the NLL that they then have."""
    _, scale = stacking_weights(judged[None], y, sample_weight)
    chosen = ((scale * judged).log_softmax(0) * y).sum(0)
    return scale, float(-(sample_weight * chosen).sum() / sample_weight.sum())


def indicators(labels: Sequence[int] | NDArray[Any], num_classes: int, device: torch.device | str) -> Float[Tensor, "J N"]:
    """One row a class, one where the label is that class and zero elsewhere."""
    index = torch.as_tensor(np.asarray(labels), dtype=torch.long, device=device)
    return nn.functional.one_hot(index, num_classes).mT.to(torch.float64).contiguous()
