"""Laws as distributions of other libraries, and in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gwi._typing import Array
from gwi.core.laws.discrete import DiscreteLaw
from gwi.core.laws.gaussian import Law
from gwi.core.laws.mixed import MixedLaw
from gwi.core.laws.protocol import PredictiveLaw
from gwi.core.laws.transformed import LogLaw, TruncatedLaw


def described(law: PredictiveLaw) -> str:
    """A few words."""
    if isinstance(law, Law):
        if len(law.mean) > 1:
            return f"a mixture of {len(law.mean)} normal distributions"
        return "normal" if np.isinf(law.degrees_of_freedom) else f"t with {law.degrees_of_freedom:g} degrees of freedom"
    if isinstance(law, LogLaw):
        return "log-normal" if len(law.inner.mean) == 1 else f"the exponential of {described(law.inner)}"
    if isinstance(law, TruncatedLaw):
        return f"{described(law.inner)}, above {law.low:g}"
    if isinstance(law, DiscreteLaw):
        return f"{len(law.values)} values"
    assert isinstance(law, MixedLaw)
    return f"{law.family.name} around a Gaussian f"


def as_scipy(laws: Sequence[PredictiveLaw], one: bool) -> Any:
    """A frozen distribution of scipy.stats.

    Raises:
        ValueError: for laws that SciPy has not, or that are of several kinds.
    """
    from scipy.stats import lognorm, norm, t

    def joined(parts: Sequence[Array]) -> Array:
        return parts[0] if one else np.stack(list(parts), axis=1)

    inner = [law.inner if isinstance(law, LogLaw) else law for law in laws]
    are_logs = {isinstance(law, LogLaw) for law in laws}
    if not all(isinstance(law, Law) and len(law.mean) == 1 for law in inner) or len(are_logs) > 1:
        names = " and ".join(sorted({described(law) for law in laws}))
        raise ValueError(f"SciPy has no such distribution ({names}); use pdf, cdf, ppf and sample of this object.")
    plain = [law for law in inner if isinstance(law, Law)]
    mean, std = joined([law.mean[0] for law in plain]), joined([law.std[0] for law in plain])
    if are_logs == {True}:
        return lognorm(s=std, scale=np.exp(mean))
    degrees = np.array([law.degrees_of_freedom for law in plain])
    if np.isinf(degrees).all():
        return norm(mean, std)
    shrunk = np.array([1.0 if np.isinf(d) else ((d - 2) / d) ** 0.5 for d in degrees])
    return t(degrees[0], mean, std * shrunk[0]) if one else t(degrees, mean, std * shrunk)


def as_torch(law: PredictiveLaw) -> Any:
    """A distribution of torch.distributions, in float64.

    Raises:
        ValueError: for a law that torch has not.
    """
    import torch
    from torch.distributions import Categorical, LogNormal, Normal, StudentT

    if isinstance(law, DiscreteLaw):
        return Categorical(probs=torch.from_numpy(law.probabilities.T.copy()))
    inner = law.inner if isinstance(law, LogLaw) else law
    if not isinstance(inner, Law) or len(inner.mean) > 1:
        raise ValueError(f"torch has no such distribution ({described(law)}); use pdf, cdf, ppf and sample of this object.")
    mean, std, d = torch.from_numpy(inner.mean[0].copy()), torch.from_numpy(inner.std[0].copy()), inner.degrees_of_freedom
    if isinstance(law, LogLaw):
        return LogNormal(mean, std)
    return Normal(mean, std) if np.isinf(d) else StudentT(d, mean, std * ((d - 2) / d) ** 0.5)
