"""Rows as torch modules take them: in parts by name or by place, as tokens, from a `Dataset` or a loader of any of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import clone
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from gwi._validation import as_array
from gwi.core.module_calls import LaidOut, RowLayout, layout_for
from gwi.estimators.inputs import Brought
from gwi.fitting.frozen_network import wants_features
from gwi.parts import Frozen, Joint, Paper
from gwi.tables.frames import is_frame

# Where targets are in a batch that is a dict.
TARGET_NAMES = ("labels", "label", "targets", "target", "y")
# Rows that a data set without a loader gives at a time.
BATCH_SIZE = 64
# Rows on which a module shows whether it takes numbers or tokens.
NUM_TRIED = 2


def laid_out(mean: Any, module: nn.Module | None, kernel: Any, brought: Brought) -> tuple[Any, Brought]:
    """A mean that takes its rows packed, and what was brought with packed rows; both as they came where there is nothing to pack.

    Args:
        mean: as it was asked for.
        module: that is the mean, or inside of it; None where it is another mean.
        kernel: as it was asked for.
        brought: rows and targets.

    Raises:
        ValueError: when the mean takes no such rows, or rows have no targets.
    """
    X, validation = loader_of(brought.X), loader_of(brought.validation)
    if module is None:
        if isinstance(X, Mapping) and in_parts(X):
            raise ValueError(
                "A dict of arrays is for one torch module as mean, taken as it is or in Joint; for other means pass an array "
                "with a row for each, or a data frame."
            )
        return mean, replace(brought, X=X, validation=validation)
    rows = batch_parts(next(iter(X), None))[0] if isinstance(X, DataLoader) else X
    if rows is None:
        raise ValueError("The loader is empty; a fit needs rows.")
    if in_parts(rows):
        layout = layout_for(module, rows)
    elif _takes_tokens(module, rows):
        layout = layout_for(module, (rows,))
    else:
        return mean, replace(brought, X=X, validation=validation)
    if isinstance(mean, Paper) or not wants_features(kernel, (1, 1)):
        raise ValueError(
            "Rows in several parts, or of tokens, have no distance between them: the kernel needs features of the "
            "network, so leave "
            'kernel="auto", or name a layer, kernel=Features("..."); the paper\'s protocol has none of these.'
        )
    if brought.y is None and not isinstance(X, DataLoader):
        raise ValueError("A fit requires y to be passed, but the target y is None: pass a target for each row, or a loader.")
    if isinstance(validation, tuple | list) and len(validation) == 2:
        validation = packed(validation[0], layout), validation[1]
    elif isinstance(validation, DataLoader):
        validation = packed(validation, layout)
    return _around(mean, LaidOut(module, layout)), replace(brought, X=packed(X, layout), validation=validation)


def _around(mean: Any, module: LaidOut) -> Any:
    """The part with another module inside."""
    return clone(mean, safe=False).set_params(module=module) if isinstance(mean, Frozen | Joint) else module


def loader_of(rows: Any) -> Any:
    """A data set as a loader of it; all else as it is."""
    return DataLoader(rows, batch_size=BATCH_SIZE) if isinstance(rows, Dataset) else rows


def in_parts(rows: Any) -> bool:
    """Whether rows are a dict of arrays, or a tuple of them; a list is one of rows, and some sparse matrices are dicts too."""
    if isinstance(rows, Mapping):
        return not is_frame(rows) and not issparse(rows)
    return isinstance(rows, tuple) and len(rows) > 0 and all(isinstance(part, Tensor | np.ndarray) for part in rows)


def batch_parts(batch: Any, num_parts: int | None = None) -> tuple[Any, Any]:
    """Rows and targets of one batch; no targets where it has none.

    Args:
        batch: a dict with or without targets, a pair, or the parts of rows with targets behind them, or rows alone.
        num_parts: of rows, where they are known by their places; then targets may be missing.
    """
    if isinstance(batch, Mapping):
        known = [name for name in TARGET_NAMES if name in batch]
        others = {name: values for name, values in batch.items() if name not in known}
        return others, (batch[known[0]] if known else None)
    if not isinstance(batch, tuple | list) or not len(batch):
        return batch, None
    if num_parts is not None and len(batch) == num_parts and num_parts > 1:
        return tuple(batch), None
    if len(batch) == 1:
        return batch[0], None
    rows, targets = (batch[0], batch[1]) if len(batch) == 2 else (tuple(batch[:-1]), batch[-1])
    return tuple(rows) if isinstance(rows, list) else rows, targets


def packed(rows: Any, layout: RowLayout) -> Any:
    """Rows as one array for each row; a loader as one of such rows.

    Raises:
        ValueError: when they are not in the parts of the layout.
    """
    rows = loader_of(rows)
    if isinstance(rows, DataLoader):
        return _packing_loader(rows, layout)
    if not in_parts(rows):
        rows = (as_array(rows),)
    if not isinstance(rows, Mapping) and len(rows) != len(layout.parts):
        raise ValueError(f"Rows have {len(layout.parts)} parts; got {len(rows)}.")
    if isinstance(rows, Mapping) != bool(layout.names[0]):
        wanted = f"a dict with {', '.join(map(repr, layout.names))}" if layout.names[0] else "a tuple of arrays"
        raise ValueError(f"Rows are {wanted}, as in the fit; got {type(rows).__name__}.")
    return layout.packed(rows)


def _packed_batch(batch: Any, layout: RowLayout) -> Any:
    rows, targets = batch_parts(batch, None if layout.names[0] else len(layout.parts))
    found = torch.from_numpy(packed(rows, layout))
    return found if targets is None else (found, targets)


def _packing_loader(loader: DataLoader[Any], layout: RowLayout) -> DataLoader[Any]:
    """A loader of the same batches, packed."""
    how: dict[str, Any] = {"collate_fn": partial(_collated, loader.collate_fn, layout), "num_workers": loader.num_workers}
    if isinstance(loader.dataset, IterableDataset):
        return DataLoader(loader.dataset, batch_size=loader.batch_size, drop_last=loader.drop_last, **how)
    if loader.batch_sampler is not None:
        return DataLoader(loader.dataset, batch_sampler=loader.batch_sampler, **how)
    return DataLoader(loader.dataset, batch_size=None, sampler=loader.sampler, **how)


def _collated(collate: Callable[[Any], Any], layout: RowLayout, items: Any) -> Any:
    return _packed_batch(collate(items), layout)


def parts_to_predict(X: Any, layout: RowLayout | None) -> Iterator[Any]:
    """The rows of each batch of a loader or a data set, or all of them, packed where the model takes them so."""
    X = loader_of(X)
    if not isinstance(X, DataLoader):
        yield X if layout is None else packed(X, layout)
        return
    for batch in X:
        num_parts = None if layout is None or layout.names[0] else len(layout.parts)
        rows = batch_parts(batch, num_parts)[0]
        yield rows if layout is None else packed(rows, layout)


def _takes_tokens(module: nn.Module, rows: Any) -> bool:
    """Whether a module refuses rows of whole numbers as such of its own precision, and takes them as whole numbers."""
    values = rows if isinstance(rows, Tensor) else _whole_numbers(rows)
    if values is None or values.is_floating_point() or values.is_complex() or values.ndim < 2:
        return False
    some, parameter = values[:NUM_TRIED], next(module.parameters(), torch.zeros(()))
    flags = [(part, part.training) for part in module.modules()]
    try:
        module.eval()
        return not _answers(module, some.to(parameter.device, parameter.dtype)) and _answers(
            module, some.to(parameter.device).long()
        )
    finally:
        for part, flag in flags:
            part.training = flag


def _whole_numbers(rows: Any) -> Tensor | None:
    known: NDArray[Any] | None = rows if isinstance(rows, np.ndarray) else None
    return torch.from_numpy(known[:NUM_TRIED].astype(np.int64)) if known is not None and known.dtype.kind in "iu" else None


@torch.no_grad()
def _answers(module: nn.Module, rows: Tensor) -> bool:
    try:
        module(rows)
    except (RuntimeError, TypeError, ValueError, IndexError):
        # What the user's own module says of rows that it does not take.
        return False
    return True
