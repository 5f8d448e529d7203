"""The Gaussian likelihood, with constant or input-dependent noise, and expected log-likelihoods of any likelihood.

`expected_log_likelihood` also takes any GPyTorch likelihood with an `expected_log_prob`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from gpytorch.distributions import MultivariateNormal
from jaxtyping import Float, Shaped
from linear_operator.operators import DiagLinearOperator
from torch import Tensor, nn

from gwi.core.linalg import LOG_TWO_PI


def expected_log_likelihood(
    likelihood: nn.Module,
    y: Shaped[Tensor, "*J N"],
    mean: Float[Tensor, "J N"],
    variance: Float[Tensor, "J N"],
    x: Float[Tensor, "N D"],
) -> Float[Tensor, " N"]:
    """E_Q[log p(y_n | F(x_n))] for each row, summed over outputs; `likelihood` is one of ours or one of GPyTorch's."""
    if hasattr(likelihood, "expected_log_likelihood"):
        return likelihood.expected_log_likelihood(y, mean, variance, x)  # type: ignore[operator]
    marginals = MultivariateNormal(mean, DiagLinearOperator(variance))
    values: Tensor = likelihood.expected_log_prob(y, marginals)  # type: ignore[operator]
    return values if values.ndim == 1 else values.sum(0)  # Softmax joins the outputs itself.


class GaussianLikelihood(nn.Module):
    """y = f(x) + ε, ε ~ N(0, σ²(x)).

    Args:
        noise_variance: σ², a number, one number an output, or a function (or module) from (N, D) rows to (N,) or (J, N)
            variances. Numbers become a parameter, held as a logarithm.

    Examples:
        >>> import torch
        >>> from gwi.core.likelihoods.gaussian import GaussianLikelihood
        >>> likelihood = GaussianLikelihood(0.25)
        >>> mean, variance = torch.zeros(1, 3, dtype=torch.float64), torch.ones(1, 3, dtype=torch.float64)
        >>> law = likelihood.predictive(mean, variance, torch.zeros(3, 1, dtype=torch.float64))  # of y
        >>> law.variance.round(decimals=3).tolist()
        [[1.25, 1.25, 1.25]]
    """

    def __init__(self, noise_variance: float | Float[Tensor, " J"] | Callable[[Tensor], Tensor] = 1.0):
        super().__init__()
        self.noise_function = noise_variance if callable(noise_variance) else None
        if not callable(noise_variance):
            value = torch.as_tensor(noise_variance, dtype=torch.float64).reshape(-1, 1)
            if not (value > 0).all():
                raise ValueError(f"A noise variance must be positive; got {value.min().item():.3g}.")
            self.log_noise_variance = nn.Parameter(value.log())

    def noise_variance_at(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "*J N"]:
        """σ²(x) at each row."""
        if self.noise_function is not None:
            noise = self.noise_function(x)
            if not (noise > 0).all():
                raise ValueError(
                    f"A noise variance must be positive; the noise function returned {noise.min().item():.3g}. "
                    "Let it return the exponential or the softplus of what it computes."
                )
            return noise
        return self.log_noise_variance.exp().expand(-1, x.shape[0])

    def expected_log_likelihood(
        self,
        y: Float[Tensor, "*J N"],
        mean: Float[Tensor, "J N"],
        variance: Float[Tensor, "J N"],
        x: Float[Tensor, "N D"],
    ) -> Float[Tensor, " N"]:
        """−½ log 2πσ² − ((y − m)² + r) / 2σ²  [eq:ELL], summed over outputs."""
        noise = self.noise_variance_at(x)
        return -(LOG_TWO_PI + noise.log() + ((y - mean).square() + variance) / noise).sum(0) / 2

    def predictive(
        self, mean: Float[Tensor, "J N"], variance: Float[Tensor, "J N"], x: Float[Tensor, "N D"]
    ) -> torch.distributions.Normal:
        """Y* ~ N(m_Q, r + σ²)  [eq:predictive_distr]; tempering multiplies its variance."""
        return torch.distributions.Normal(mean, (variance + self.noise_variance_at(x)).sqrt())

    def nll(
        self,
        y: Float[Tensor, "*J N"],
        mean: Float[Tensor, "J N"],
        variance: Float[Tensor, "J N"],
        x: Float[Tensor, "N D"],
    ) -> Float[Tensor, " N"]:
        """−log p(y* | y) of each row  [ap_eq: NLL], summed over outputs."""
        return -self.predictive(mean, variance, x).log_prob(y).sum(0)
