"""Weights of a stack that depend on the row: kernel means hand over to the others where they know less than anywhere at home.

Held-out rows weigh the means at home. Far from all rows a kernel mean falls back to the prior mean, and its weight from home
drags the stack there. The measure itself knows where that is: r(x) exceeds all that it was at the held-out rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gwi.core.measures import kernel_variance


class Handover(nn.Module):
    """w(x): the share b = e/(e + c + Δ²/4) of the weight of kernel means goes to the others, with e = (r(x) − r₀)₊.

    At home, where r(x) ≤ r₀, the weights are as they were. Of two independent unbiased estimates with variances e and c, the
    second has the weight e/(e + c) in the best average, so c is how far the others may be off. Δ is by how much they differ
    from the kernel means: the stack moves by no more than b |Δ| ≤ e/√(e + c) < √e, whatever the others say.

    Args:
        kernel: r.
        gives: which means hand over.
        shares: of each other mean in what is handed over, in each output; zero for those who give.
        known: r₀ of each output.
        error: c of each output.
    """

    gives: Tensor
    shares: Tensor
    known: Tensor
    error: Tensor

    def __init__(
        self,
        kernel: Kernel,
        gives: Bool[Tensor, " K"],
        shares: Float[Tensor, "J K"],
        known: Float[Tensor, " J"],
        error: Float[Tensor, " J"],
    ):
        super().__init__()
        convex = (shares >= 0).all() and ((shares.sum(-1) - 1).abs() <= 1e-6).all() and not shares[:, gives].any()
        if not convex or not (known >= 0).all() or not (error > 0).all():
            raise ValueError(
                "A handover needs shares of the other means that are not negative and sum to 1, known ≥ 0 and error > 0; got "
                f"shares {shares.tolist()}, known {known.tolist()} and error {error.tolist()}."
            )
        self.kernel = kernel
        for name, value in (("gives", gives), ("shares", shares), ("known", known), ("error", error)):
            self.register_buffer(name, value.detach().clone())

    def forward(
        self, weights: Float[Tensor, "J K"], members: Float[Tensor, "K J N"], variance: Float[Tensor, "*J N"]
    ) -> Float[Tensor, "K J N"]:
        """The weights where means have these values and r is so large."""
        own, shares, gives = weights.mT[..., None], self.shares.mT[..., None], self.gives[:, None, None]
        given = (own * gives).sum(0)
        before = (own * gives * members).sum(0) / given.clamp_min(torch.finfo(own.dtype).tiny)
        difference, beyond = (shares * members).sum(0) - before, (variance - self.known[:, None]).clamp_min(0.0)
        share = beyond / (beyond + self.error[:, None] + difference.square() / 4)
        return torch.where(gives, own * (1 - share), own + share * given * shares)

    def at(
        self, weights: Float[Tensor, "J K"], members: Float[Tensor, "K J N"], x: Float[Tensor, "N D"]
    ) -> Float[Tensor, "K J N"]:
        """The weights at the rows of x, where means have these values."""
        return self(weights, members, kernel_variance(self.kernel, x))

    def among(self, places: Sequence[int]) -> Handover:
        """The same among some of the means, who receive all there is."""
        kept = list(places)
        return Handover(self.kernel, self.gives[kept], self.shares[:, kept], self.known, self.error)
