"""The covariance of the posterior, with its options."""

from __future__ import annotations

from typing import Any, Literal

from sklearn.base import BaseEstimator

from gwi.parts.checks import require_choice, require_count, require_positive

CovarianceKind = Literal["auto", "wasserstein", "titsias", "trained", "zero"]
KernelFit = Literal["targets", "residuals"]
PointsChoice = Literal["auto", "kmeans", "random", "greedy"]
ContextChoice = Literal["box", "mixtures"]
DivergenceKind = Literal["wasserstein-squared", "wasserstein", "kl"]


class Covariance(BaseEstimator):
    """The covariance of the posterior around any mean.

    Args:
        kind: ``"wasserstein"``, ``"titsias"``, ``"trained"``, ``"zero"`` for S = 0, or ``"auto"``: with `weight` or `context` the
            first; else the second, but for classes with fewer inducing points than rows, which have the first.
        weight: β, of the divergence, for standardised targets; ``"auto"`` is the matched weight, 1.0 the paper's.
        num_inducing: M; ``"auto"`` takes every row when they are few, else 300, or with Titsias' S 1,000 where 300 leave more of
            the function open than noise hides. Of few rows with labels 300 are enough where they leave less.
        inducing_points: how Z is chosen, ``"kmeans"``, ``"random"`` or ``"greedy"``, or Z itself in the units of the rows;
            ``"auto"`` is k-means, on pixels rows at random.
        kernel_fit: k is fitted to the ``"targets"``, or to the mean's ``"residuals"`` on held-out rows.
        context: rows beyond the data on which W₂ is taken too, so that it knows distance: ``"box"`` for rows anywhere between
            the least and the largest value of each column, ``"mixtures"`` for rows between two of the data; None for the data
            alone. `fit` also takes rows of your own. β is then part of the rule that weighs data and context.

    Examples:
        >>> import numpy as np
        >>> from gwi import GWIRegressor, Covariance
        >>> X = np.linspace(0, 3, 20)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=20)
        >>> model = GWIRegressor("svgp", covariance=Covariance("wasserstein", num_inducing=10), random_state=0).fit(X, y)
        >>> _, std = model.predict([[1.5], [30.0]], return_std=True)
        >>> bool(std[1] > std[0])
        True
        >>> GWIRegressor().set_params(covariance__num_inducing=50).covariance.num_inducing
        50
    """

    def __init__(
        self,
        kind: CovarianceKind = "auto",
        *,
        weight: float | Literal["auto"] = "auto",
        num_inducing: int | Literal["auto"] = "auto",
        inducing_points: Any = "auto",
        kernel_fit: KernelFit = "targets",
        context: ContextChoice | None = None,
    ):
        self.kind = kind
        self.weight = weight
        self.num_inducing = num_inducing
        self.inducing_points = inducing_points
        self.kernel_fit = kernel_fit
        self.context = context

    def check(self) -> None:
        """Refuse options that mean nothing."""
        require_choice("covariance", self.kind, CovarianceKind)
        require_choice("kernel_fit", self.kernel_fit, KernelFit)
        require_positive("weight", self.weight, ("auto",))
        require_count("num_inducing", self.num_inducing, ("auto",))
        if self.inducing_points is None or isinstance(self.inducing_points, str):
            require_choice("inducing_points", self.inducing_points, PointsChoice)
        if self.context is not None:
            require_choice("context", self.context, ContextChoice)
            self.check_context()

    def check_context(self) -> None:
        """Refuse what does not go with rows beyond the data."""
        if self.kind not in ("auto", "wasserstein") or self.weight != "auto":
            raise ValueError(
                'Context rows are for covariance="wasserstein" or "auto" with weight="auto", which weighs data and context; got '
                f"{self.kind!r} with weight {self.weight!r}."
            )


def covariance_under(divergence: Any, covariance: Covariance) -> Covariance:
    """The covariance that minimises the loss with this divergence.

    Raises:
        ValueError: for an unknown divergence, or a covariance that belongs to another one.
    """
    require_choice("divergence", divergence, DivergenceKind)
    if divergence == "wasserstein-squared":
        return covariance
    kind: CovarianceKind = "titsias" if divergence == "kl" else "wasserstein"
    if covariance.kind not in ("auto", kind) or covariance.context is not None:
        asked = "context" if covariance.context is not None else f'covariance="{covariance.kind}"'
        raise ValueError(
            f'{asked} is for another divergence; with divergence="{divergence}" the covariance is "auto" or "{kind}".'
        )
    if covariance.kernel_fit == "residuals" and divergence == "kl":
        raise ValueError('KL needs one kernel for the mean and the covariance, which kernel_fit="residuals" does not give.')
    return covariance_of_kind(covariance, kind)


def covariance_of_kind(covariance: Covariance, kind: CovarianceKind) -> Covariance:
    """The same options with another kind."""
    return Covariance(**{**covariance.get_params(deep=False), "kind": kind})


def covariance_part(covariance: Any) -> Covariance:
    """The part that a string names, or the part itself."""
    return covariance if isinstance(covariance, Covariance) else Covariance(covariance)
