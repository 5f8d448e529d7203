"""A fitted GWIRegressor as a BoTorch model: acquisition functions and their optimisers take it as they take a GP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from jaxtyping import Float
from linear_operator import to_linear_operator
from sklearn.exceptions import NotFittedError
from torch import Tensor

from gwi._extras import require
from gwi.core.linalg import cholesky, solve_lower
from gwi.core.noise import noise_features
from gwi.estimators.regressor import GWIRegressor
from gwi.models.regression import differentiable

require("botorch", "gwi.botorch")
from botorch.models.model import FantasizeMixin, Model  # noqa: E402
from botorch.posteriors.gpytorch import GPyTorchPosterior  # noqa: E402
from botorch.posteriors.posterior import Posterior  # noqa: E402

if TYPE_CHECKING:
    from botorch.acquisition.objective import PosteriorTransform

# What is added to the variance of f, in units of the target's: BoTorch takes roots of covariances, and at rows that were measured
# there is nothing left but the rounding errors of k − φᵀφ.
RELATIVE_JITTER = 1e-10


class BoTorchModel(Model, FantasizeMixin):
    """The law of f under a fitted regressor, in the units of its rows and targets, differentiable in the rows.

    BoTorch maximises: fit the regressor to −y to minimise y. The model is a view, so a regressor that is fitted again or updated
    changes it too. Algebra is in float64 whatever the dtype of the rows. `condition_on_observations` and `fantasize` condition
    the same Gaussian measure as `GWIRegressor.update`, for each batch of observations, and leave the regressor as it is.

    Args:
        regressor: fitted, with a mean that has gradients: ``"svgp-all"``, ``"svgp"``, ``"network"``, ``"svgp+network"``, a
            module.
        observed: rows, targets and their noise variances that f is conditioned on.

    Examples:
        >>> import numpy as np
        >>> import torch
        >>> from gwi import GWIRegressor
        >>> from gwi.botorch import BoTorchModel
        >>> X = np.linspace(0, 3, 20)[:, None]
        >>> y = -((X[:, 0] - 1) ** 2) + 0.1 * np.random.default_rng(0).normal(size=20)
        >>> model = BoTorchModel(GWIRegressor("svgp", random_state=0).fit(X, y))
        >>> posterior = model.posterior(torch.tensor([[1.0], [2.0]]))
        >>> posterior.mean.shape, bool(posterior.mean[0] > posterior.mean[1])
        (torch.Size([2, 1]), True)
    """

    def __init__(self, regressor: GWIRegressor, observed: tuple[Tensor, Tensor, Tensor] | None = None):
        super().__init__()
        if not hasattr(regressor, "model_"):
            raise NotFittedError("BoTorchModel needs a fitted GWIRegressor: call its fit(X, y) first.")
        if not differentiable(regressor.posterior_):
            raise ValueError(
                "BoTorch needs gradients with respect to the inputs, and a part of this mean (boosting, trees, a function) has "
                'none: fit GWIRegressor with mean="svgp-all", "svgp", "network", "svgp+network" or a torch module instead.'
            )
        if not regressor.model_.is_gaussian:
            raise ValueError(
                "BoTorch expects f to be the mean of the target, so the likelihood must be Gaussian or Student's t; fit with "
                'likelihood="gaussian", or to the logarithm of the target.'
            )
        self.regressor = regressor
        self.observed = observed

    @property
    def num_outputs(self) -> int:
        """J."""
        return len(self.regressor.model_.noises)

    @property
    def batch_shape(self) -> torch.Size:
        """That of the observations; empty without: one model, whatever the batch of rows."""
        return torch.Size() if self.observed is None else self.observed[1].shape[:-2]

    @property
    def likelihood(self) -> None:
        """None to BoTorch: the noise depends on the row, and `posterior` adds it."""

    def condition_on_observations(self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **_: object) -> BoTorchModel:
        """The model given that y was Y at the rows X, for each batch of them; the regressor stays as it is.

        Args:
            X: rows, (*B, n, D).
            Y: targets, (*B, n, J), or with more batches before, such as fantasies.
            noise: variances of Y around f, of its shape; the regressor's σ²(x) unless given, untempered like f.
        """
        if Y.shape[-2:] != (X.shape[-2], self.num_outputs):
            raise ValueError(
                f"Y needs one row for each of the {X.shape[-2]} rows and {self.num_outputs} column(s); got {tuple(Y.shape)}."
            )
        if noise is None:
            noise = self._noise_variance(X, self.regressor.model_.joint(X)[0]).mT
        batch = torch.broadcast_shapes(X.shape[:-2], Y.shape[:-2], self.batch_shape)
        new = [part.to(torch.float64).expand(*batch, *part.shape[-2:]) for part in (X, Y, noise.expand_as(Y))]
        if self.observed is not None:
            old = (part.expand(*batch, *part.shape[-2:]) for part in self.observed)
            new = [torch.cat(pair, dim=-2) for pair in zip(old, new, strict=True)]
        return BoTorchModel(self.regressor, (new[0], new[1], new[2]))

    def _joint(self, X: Float[Tensor, "*B Q D"]) -> tuple[Float[Tensor, "*B J Q"], Float[Tensor, "*B J Q Q"]]:
        """Mean and covariance of f, given what was observed."""
        if self.observed is None:
            return self.regressor.model_.joint(X)
        seen, values, noise = self.observed
        batch, num_seen = torch.broadcast_shapes(X.shape[:-2], seen.shape[:-2]), seen.shape[-2]
        rows = torch.cat([seen.expand(*batch, *seen.shape[-2:]), X.to(seen).expand(*batch, *X.shape[-2:])], dim=-2)
        mean, covariance = self.regressor.model_.joint(rows)
        factor = cholesky(
            covariance[..., :num_seen, :num_seen] + torch.diag_embed(noise.mT.expand(*mean.shape[:-1], -1)), name="K + σ²"
        ).factor
        halves = solve_lower(factor, covariance[..., :num_seen, num_seen:])
        errors = solve_lower(factor, (values.mT - mean[..., :num_seen])[..., None])
        mean = mean[..., num_seen:] + (halves.mT @ errors)[..., 0]
        return mean, covariance[..., num_seen:, num_seen:] - halves.mT @ halves

    def posterior(  # type: ignore[override]
        self,
        X: Float[Tensor, "*B Q D"],
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Posterior:
        """The joint law of f, or of y, at each batch of rows: that of `GWIRegressor.posterior`.

        Targets are independent of each other given the rows.

        Args:
            X: rows.
            output_indices: of the targets asked for; all unless given.
            observation_noise: True adds the regressor's σ²(x), a tensor its own variances, (*B, Q, J) or what expands to it.
                Neither f nor σ² is tempered, so that y is f plus independent noise; `GWIRegressor.predict` tempers their sum.
            posterior_transform: applied last.
        """
        if X.shape[-1] != self.regressor.n_features_in_:
            raise ValueError(f"The model was fitted to {self.regressor.n_features_in_} features; the rows have {X.shape[-1]}.")
        # Not through regressor.posterior: its MultivariateNormal factorises at once, and two equal rows have no factor.
        mean, covariance = self._joint(X)
        scale = mean.new_tensor(self.regressor.model_.scales.y_scale)[:, None]
        # A variance below zero is rounding too, and is made zero first.
        extra = RELATIVE_JITTER * scale.square() + (-covariance.diagonal(dim1=-2, dim2=-1)).clamp_min(0)
        if isinstance(observation_noise, Tensor):
            extra = extra + observation_noise.to(mean).mT.expand_as(mean)
        elif observation_noise:
            extra = extra + self._noise_variance(X, mean)
        covariance = covariance + torch.diag_embed(extra)
        chosen = list(range(self.num_outputs)) if output_indices is None else output_indices
        mean, covariance = mean[..., chosen, :], covariance[..., chosen, :, :]
        if len(chosen) == 1:
            law = MultivariateNormal(mean[..., 0, :], to_linear_operator(covariance[..., 0, :, :]))
        else:
            law = MultitaskMultivariateNormal.from_batch_mvn(
                MultivariateNormal(mean, to_linear_operator(covariance)), task_dim=-1
            )
        posterior = GPyTorchPosterior(law)
        return posterior if posterior_transform is None else posterior_transform(posterior, X)

    def _noise_variance(self, X: Float[Tensor, "*B Q D"], mean: Float[Tensor, "*B J Q"]) -> Float[Tensor, "*B J Q"]:
        """σ²(x) in the targets' own units."""
        model = self.regressor.model_
        s = model.scales
        rows = (X.to(mean) - mean.new_tensor(s.x_centre)) / mean.new_tensor(s.x_scale)
        level = (mean - mean.new_tensor(s.y_centre)[:, None]) / mean.new_tensor(s.y_scale)[:, None]
        columns = rows.reshape(-1, X.shape[-1])[:, : model.num_noise_columns]
        features = noise_features(columns, level.movedim(-2, 0).reshape(self.num_outputs, -1))
        variance = torch.stack([noise(features) for noise in model.noises])
        variance = variance.reshape(self.num_outputs, *mean.shape[:-2], -1).movedim(0, -2)
        return variance * mean.new_tensor(s.y_scale)[:, None].square()
