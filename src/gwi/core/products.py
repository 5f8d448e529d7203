"""What a prediction does with k_Z(x), or φ(x): products with coefficients, and the sums of squares that variances are made of.

With L Lᵀ = k(Z, Z) and S = U diag(s) Uᵀ the variance is r = k − k_Zᵀ D k_Z with D = L⁻ᵀ(I − S)L⁻¹ [eq:r_SVGP]. Where S ⪯ I
there is a triangular R with Rᵀ R = D: one product with half a matrix gives all that is taken off. At Z = X with Titsias' S, D is
(K + σ²I)⁻¹, which is well-conditioned also where K is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gwi.core.closed_kernels import ClosedKernel
from gwi.core.linalg import solve_lower, solve_lower_transposed, triangular_root

# Numbers of one chunk of k_Z(x), few enough for a processor's cache, and rows of one at least and at most.
CHUNK_NUMBERS, FEWEST_ROWS, MOST_ROWS = 2**18, 256, 2048
# A triangular matrix is multiplied in so many blocks of rows, but none with fewer rows than this; with fewer rows of x than the
# third number only reading it takes time, and blocks are larger.
MOST_BLOCKS, SMALLEST_BLOCK, FEW_ROWS, SMALLEST_FOR_FEW = 16, 50, 16, 250
# Eigenvalues of S above one by no more are one.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Root:
    """Coordinates c(x) = R b(x) in a basis, whose squares say what is taken off the prior variance, and what is put back.

    r = k − Σ c² where that is all, and k − Σ c² + Σ s c² with a spectrum.

    Attributes:
        matrix: R of all outputs, or of each; None for the identity.
        spectrum: s of each output; None where it is part of R.
        is_upper, is_lower: whether R is triangular.
    """

    matrix: Float[Tensor, "*J M M"] | None
    spectrum: Float[Tensor, "J M"] | None
    is_upper: bool = False
    is_lower: bool = False

    @property
    def size(self) -> float:
        """The norm of R."""
        assert self.matrix is not None
        return float(torch.linalg.matrix_norm(self.matrix).max()) if self.matrix.numel() else 0.0

    @classmethod
    def of_kernel(cls, lower: Float[Tensor, "M M"], vectors: Float[Tensor, "*K M M"], spectrum: Float[Tensor, "J M"]) -> Root:
        """For the basis k_Z.

        Args:
            lower: L.
            vectors: U, of all outputs or of each.
            spectrum: s.
        """
        is_bounded = bool((spectrum <= 1 + ROUNDING).all())
        if not is_bounded:
            return cls(solve_lower_transposed(lower, vectors).mT.contiguous(), spectrum)
        roots = (1 - spectrum).clamp_min(0).sqrt()
        if vectors.ndim == 2 and torch.equal(vectors, torch.eye(len(vectors), dtype=vectors.dtype, device=vectors.device)):
            inverse = solve_lower(lower, vectors)
            alike = bool((spectrum == spectrum[:1]).all())
            return cls(roots[0][:, None] * inverse, None, is_lower=True) if alike else cls(inverse, spectrum, is_lower=True)
        # The columns of L⁻ᵀ U (I − diag s)^½ are as large as D is, and so are the errors of the solve where they meet φ.
        whole = solve_lower_transposed(lower, vectors * roots[..., None, :])
        return cls(triangular_root(whole.mT), None, is_upper=True)

    @classmethod
    def of_rest(cls, lower: Float[Tensor, "M M"] | None, rest: Float[Tensor, "*J M M"]) -> Root:
        """For the basis k_Z, or φ where L is not given, from a triangular C with C Cᵀ = I − S.

        Args:
            lower: L.
            rest: C.
        """
        if lower is None:
            return cls(rest.mT.contiguous(), None, is_upper=True)
        return cls(triangular_root(solve_lower_transposed(lower, rest).mT), None, is_upper=True)

    @classmethod
    def of_whitened(cls, vectors: Float[Tensor, "*K M M"], spectrum: Float[Tensor, "J M"]) -> Root:
        """For the basis φ = L⁻¹ k_Z."""
        is_eye = vectors.ndim == 2 and torch.equal(vectors, torch.eye(len(vectors), dtype=vectors.dtype, device=vectors.device))
        return cls(None if is_eye else vectors.mT.contiguous(), spectrum)


class KernelProducts(nn.Module):
    """Products of a basis with coefficients, and of its squares after a product with R, for many rows at small cost each.

    Args:
        closed: k_Z.
        coefficients: of sums of functions of the basis.
        root: R.
        factor: L, where the basis is φ = L⁻¹ k_Z; None where it is k_Z.
    """

    coefficients: Tensor
    matrix: Tensor | None
    spectrum: Tensor | None
    factor: Tensor | None

    def __init__(
        self,
        closed: ClosedKernel,
        coefficients: Float[Tensor, "C M"],
        root: Root,
        factor: Float[Tensor, "M M"] | None = None,
    ):
        super().__init__()
        self.closed = closed
        self.register_buffer("factor", factor)
        self.is_upper, self.is_lower = root.is_upper, root.is_lower
        # k_Z is scaled after products with it, φ before: what a solve makes of another rounding is larger.
        self.unit = closed.outputscale if factor is None else 1.0
        self.register_buffer("coefficients", (self.unit * coefficients).mT.contiguous())
        self.register_buffer("matrix", root.matrix)
        self.register_buffer("spectrum", root.spectrum)
        self.num_outputs = 1 if root.matrix is None or root.matrix.ndim == 2 else len(root.matrix)
        self.chunk_rows = min(max(CHUNK_NUMBERS // max(closed.num_points, 1), FEWEST_ROWS), MOST_ROWS)
        self.blocks = self._blocks(SMALLEST_BLOCK)
        self.blocks_for_few = self._blocks(SMALLEST_FOR_FEW)

    def forward(self, x: Float[Tensor, "N D"]) -> tuple[Float[Tensor, "C N"], Float[Tensor, "*J N"], Float[Tensor, "J N"] | None]:
        """Sums of functions of the basis, Σ c², and Σ s c² where there is a spectrum."""
        if len(x) <= self.chunk_rows:
            sums, squares, kept = self._chunk(x)
            return sums.mT, squares, kept
        parts = [self._chunk(rows) for rows in x.split(self.chunk_rows)]
        sums = torch.cat([part[0] for part in parts]).mT
        squares = torch.cat([part[1] for part in parts], dim=-1)
        with_spectrum = [part[2] for part in parts if part[2] is not None]
        return sums, squares, torch.cat(with_spectrum, dim=-1) if with_spectrum else None

    def sums(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "C N"]:
        """Sums of functions of the basis alone."""
        return torch.cat([self._basis(rows) @ self.coefficients for rows in x.split(self.chunk_rows)]).mT

    def _basis(self, x: Tensor) -> Float[Tensor, "n M"]:
        """k_Z(x)/σ_f² or φ(x)."""
        k_xz: Tensor = self.closed(x)
        return k_xz if self.factor is None else solve_lower(self.factor, k_xz.mul_(self.closed.outputscale).mT).mT

    def _chunk(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        basis = self._basis(x)
        sums = basis @ self.coefficients
        scale = self.unit**2
        if self.matrix is None or self.matrix.ndim == 2:
            squares, kept = self._squares(basis, self.matrix, self.spectrum)
            squares = squares.mul_(scale)
        else:
            spectra = [None] * self.num_outputs if self.spectrum is None else self.spectrum[:, None]
            pairs = [self._squares(basis, matrix, s) for matrix, s in zip(self.matrix, spectra, strict=True)]
            squares = torch.stack([pair[0] for pair in pairs]).mul_(scale)
            kept = None if self.spectrum is None else torch.cat([pair[1] for pair in pairs if pair[1] is not None])
        return sums, squares, None if kept is None else kept.mul_(scale)

    def _squares(self, basis: Tensor, matrix: Tensor | None, spectrum: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Σ c² of each row, and Σ s c² for each spectrum."""
        total: Tensor | None = None
        kept: Tensor | None = None
        for rows, first, last in self.blocks_for_few if len(basis) <= FEW_ROWS else self.blocks:
            # Of a triangular matrix the zeros beside each block are left out.
            c = basis.clone() if matrix is None else basis[:, first:last] @ matrix[rows, first:last].mT
            if spectrum is None:
                squares = torch.linalg.vecdot(c, c)
            else:
                c = c.square_()
                squares, part = c.sum(1), spectrum[:, rows] @ c.mT
                kept = part if kept is None else kept.add_(part)
            total = squares if total is None else total.add_(squares)
        assert total is not None
        return total, kept

    def _blocks(self, smallest: int) -> list[tuple[slice, int, int]]:
        """Rows of R, and the first and last of its columns that count there."""
        size = len(self.coefficients)
        count = min(MOST_BLOCKS, size // smallest) if self.is_upper or self.is_lower else 1
        width = max(math.ceil(size / max(count, 1)), 1)
        found = []
        for start in range(0, size, width):
            end = min(start + width, size)
            found.append((slice(start, end), start if self.is_upper else 0, end if self.is_lower else size))
        return found
