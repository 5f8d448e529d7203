"""What log-linear noise leaves over, by a network: held-out residuals say how long it is trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gwi.core.early_stopping import Judges, train_early_stopped
from gwi.core.networks import EnsembleMLP

# Widths of the hidden layers, networks for each fold, the bound on steps, and how many of them the best may be behind: noise
# that bends is found late.
HIDDEN, PER_FOLD, MAX_STEPS, PATIENCE = (32, 32), 2, 1000, 100
# Nats a row against which gains in training are measured.
UNIT_NATS = 0.1
# Bounds on log σ² in training, of standardised targets.
LOWEST_LOG, HIGHEST_LOG = -30.0, 6.0

# The NLL of residuals under a law with this variance.
ResidualNLL = Callable[[Tensor, Tensor], Tensor]


def train_correction(
    features: Float[Tensor, "N F"],
    residuals: Float[Tensor, " N"],
    variance: Float[Tensor, " N"],
    weight: Float[Tensor, " N"],
    fold: Int[Tensor, " N"],
    levels: Sequence[Float[Tensor, ""]],
    slopes: Sequence[Float[Tensor, " F"]],
    nll: ResidualNLL,
    generator: torch.Generator | None = None,
) -> tuple[EnsembleMLP, Float[Tensor, " N"]]:
    """Networks on top of log-linear noise; and σ² at each row from those that have not seen it.

    The linear path of each member is the log-linear noise of the rows that it sees, so that training starts there.

    Args:
        features: standardised.
        residuals: y − m on rows unseen by the mean.
        variance: of f at those rows: r, and what disagreement adds.
        weight: of each row.
        fold: of each row.
        levels: log σ² where features are zero, of each fold's noise, which has not seen the fold.
        slopes: of each fold's noise.
        nll: what is lowered.
        generator: for weights and order.
    """
    num_folds = len(levels)
    network = EnsembleMLP(features.shape[1], 1, num_members=PER_FOLD * num_folds, hidden=HIDDEN, generator=generator).to(
        features.device
    )
    with torch.no_grad():
        for k in range(num_folds):
            network.linear[k::num_folds] = slopes[k][:, None].to(network.linear)
            network.biases[-1][k::num_folds] = levels[k].to(network.linear)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        residual, known = targets.unbind(-1)
        return nll(residual, known + outputs[..., 0].clamp(LOWEST_LOG, HIGHEST_LOG).exp())

    targets = torch.stack([residuals, variance], dim=1)
    predicted = train_early_stopped(
        network,
        loss,
        features,
        targets,
        weight,
        torch.stack([fold != k for k in range(num_folds)]),
        Judges(features, targets, weight, fold, fold),
        max_steps=MAX_STEPS,
        unit=UNIT_NATS,
        generator=generator,
        patience=PATIENCE,
    )
    return network.settled(), predicted[:, 0].double().clamp(LOWEST_LOG, HIGHEST_LOG).exp()
