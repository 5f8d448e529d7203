"""Which of many columns tell something about the targets: forward selection, its length by cross-validation."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

# Folds that judge how many columns to take; the most that are taken for one target, and the fewest rows for each of them.
NUM_FOLDS, MOST_COLUMNS, ROWS_PER_COLUMN = 5, 20, 4
# Directions of the targets that are looked at: work grows with their number.
MOST_DIRECTIONS = 10
# A column of which less than this share is not in the columns already taken adds rounding errors.
LEAST_NEW = 1e-6


@torch.no_grad()
def relevant_columns(x: Float[Tensor, "N D"], y: Float[Tensor, "J N"], weight: Float[Tensor, " N"]) -> list[int]:
    """Columns whose linear combination predicts rows that were left out, in order; none where no column does.

    Args:
        x: rows, standardised.
        y: targets, standardised.
        weight: of each row.
    """
    root = (weight / weight.mean()).sqrt()
    rows, targets = x * root[:, None], y * root
    scales, directions = torch.linalg.svd(targets, full_matrices=False)[1:]
    kept = directions[:MOST_DIRECTIONS][scales[:MOST_DIRECTIONS] > 1e-9 * scales[0]]
    found = [column for direction in kept for column in _judged_path(rows, direction)]
    return sorted(set(found))


def _judged_path(x: Float[Tensor, "N D"], y: Float[Tensor, " N"]) -> list[int]:
    """The first columns of the path, as many as predict left-out rows best."""
    count = min(MOST_COLUMNS, x.shape[1], len(x) // ROWS_PER_COLUMN)
    fold = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).to(x.device) % NUM_FOLDS
    errors = torch.zeros(count + 1, dtype=x.dtype, device=x.device)
    for k in range(NUM_FOLDS):
        seen, others = x[fold != k], x[fold == k]
        path = forward_path(seen, y[fold != k], count)
        errors[0] += y[fold == k].square().sum()
        for i in range(1, count + 1):
            columns = path[:i]
            coefficients = torch.linalg.lstsq(seen[:, columns], y[fold != k, None]).solution[:, 0]
            errors[i] += (y[fold == k] - others[:, columns] @ coefficients).square().sum()
    return forward_path(x, y, int(errors.argmin()))


def forward_path(x: Float[Tensor, "N D"], y: Float[Tensor, " N"], count: int) -> list[int]:
    """At most so many columns, each that which goes best with what least squares on those before it leave over."""
    basis, rest = x.new_empty(len(x), 0), y
    path: list[int] = []
    open_to_choice = torch.ones(x.shape[1], dtype=torch.bool, device=x.device)
    while len(path) < count and open_to_choice.any():
        column = int(torch.where(open_to_choice, (rest @ x).abs(), -1.0).argmax())
        open_to_choice[column] = False
        new = x[:, column] - basis @ (basis.mT @ x[:, column])
        new = new - basis @ (basis.mT @ new)
        if new.norm() <= LEAST_NEW * x[:, column].norm():
            continue
        direction = new / new.norm()
        basis, rest = torch.cat([basis, direction[:, None]], 1), rest - direction * (direction @ rest)
        path.append(column)
    return path
