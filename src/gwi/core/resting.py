"""Means at rest: what does not depend on the row is computed once, and what each call would look up again is kept."""

from __future__ import annotations

import copy

from torch import nn

from gwi.core.means import FixedMean, JoinedMean, ModuleMean
from gwi.core.networks import EnsembleMLP, FlatEnsemble


def at_rest(mean: nn.Module) -> nn.Module:
    """The same mean for predictions; its parameters must not change afterwards."""
    if type(mean) is ModuleMean and type(mean.module) is EnsembleMLP and mean.module.is_settled:
        return ModuleMean(FlatEnsemble(mean.module), prior_mean=mean.prior_mean)
    if type(mean) is FixedMean:
        # A predictor that knows such a form has it.
        return FixedMean(mean.predictor.at_rest()) if hasattr(mean.predictor, "at_rest") else mean
    if type(mean) is JoinedMean:
        return JoinedMean([at_rest(part) for part in mean.means])
    inner = mean._modules.get("mean")
    if inner is None or type(mean).__module__ != FixedMean.__module__:
        return mean
    # Means of another mean: of rows in other units, or on another scale.
    found = copy.copy(mean)
    found._modules = mean._modules | {"mean": at_rest(inner)}
    return found
