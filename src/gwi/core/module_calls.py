"""Calling modules as they are today: rows in several parts, token numbers among them; outputs in a dict, a tuple or an object.

All else here knows a row as one array of numbers. So the parts of a row are laid side by side, and taken apart again where the
module is called.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

# Where outputs are in a dict or an object, the first of these that is there. What else a tuple or a dict holds is looked through
# for a tensor with one row for each row of the input.
OUTPUT_NAMES = ("logits", "predictions", "prediction", "outputs", "output", "mean")
STATES = "last_hidden_state"
# A part whose name has this in it says which tokens count.
MASK = "mask"
# Whole numbers up to here are exact in single precision.
EXACT_IN_FLOAT32 = 2**24


@dataclass(frozen=True)
class Part:
    """One input of a module.

    Attributes:
        name: of the argument; empty where it is known by its place.
        shape: of one row.
        whole: whether it holds whole numbers, such as tokens.
    """

    name: str
    shape: tuple[int, ...]
    whole: bool

    @property
    def size(self) -> int:
        """Numbers of one row."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class RowLayout:
    """How the parts of a row lie side by side.

    Attributes:
        parts: in order.
        as_one: whether the module takes them as one dict or tuple rather than as arguments.
    """

    parts: tuple[Part, ...]
    as_one: bool = False

    @property
    def names(self) -> list[str]:
        """Of the parts; empty names where they are known by their places."""
        return [part.name for part in self.parts]

    def packed(self, rows: Mapping[str, Any] | Sequence[Any]) -> Float[NDArray[Any], "N 1 F"]:
        """The rows as one array, in single precision where that is exact.

        Raises:
            ValueError: when a part is missing, has another shape, or holds no finite numbers.
        """
        found = []
        for place, part in enumerate(self.parts):
            called = f"The part {part.name!r}" if part.name else f"Part {place} of the rows"
            if isinstance(rows, Mapping):
                if part.name not in rows:
                    raise ValueError(f"{called} is missing; rows have {', '.join(map(repr, rows))}.")
                values = as_numbers(rows[part.name])
            else:
                values = as_numbers(rows[place])
            if values.shape[1:] != part.shape:
                raise ValueError(
                    f"{called} has rows of shape {values.shape[1:]} where others have {part.shape}: give all rows one shape, "
                    'as padding="max_length" does for texts.'
                )
            if part.whole and not np.issubdtype(values.dtype, np.integer) and not (values == np.round(values)).all():
                raise ValueError(f"{called} must hold whole numbers, such as tokens; got other values.")
            found.append(values.reshape(len(values), part.size))
        lengths = {len(values) for values in found}
        if len(lengths) > 1:
            raise ValueError(f"The parts of the rows have different numbers of rows: {', '.join(map(str, sorted(lengths)))}.")
        large = any(
            part.whole and v.size and np.abs(v).max() > EXACT_IN_FLOAT32 for part, v in zip(self.parts, found, strict=True)
        )
        double = large or any(v.dtype == np.float64 and not part.whole for part, v in zip(self.parts, found, strict=True))
        packed = np.concatenate(found, axis=1, dtype=np.float64 if double else np.float32, casting="unsafe")
        if not np.isfinite(packed).all():
            raise ValueError("Rows must be finite; some values are NaN or infinite: impute or drop them.")
        return packed[:, None, :]

    def apart(self, x: Float[Tensor, "N 1 F"], dtype: torch.dtype) -> list[Tensor]:
        """The parts of packed rows: whole numbers as such, others in this precision."""
        found = x.flatten(1).split([part.size for part in self.parts], dim=1)
        return [
            (values.round().long() if part.whole else values.to(dtype)).reshape(len(x), *part.shape)
            for part, values in zip(self.parts, found, strict=True)
        ]

    def example(self) -> Float[NDArray[Any], "1 1 F"]:
        """A row that any module takes: the first token everywhere, and all of them count."""
        values = [np.full(part.size, float(MASK in part.name), dtype=np.float32) for part in self.parts]
        return np.concatenate(values)[None, None]


def as_numbers(values: Any) -> NDArray[Any]:
    """A part of rows as an array of numbers; bools as 0 and 1.

    Raises:
        ValueError: when it holds anything else, or has no axis for rows.
    """
    array = values.detach().cpu().float().numpy() if isinstance(values, Tensor) and values.dtype == torch.bfloat16 else None
    array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values) if array is None else array
    array = array.astype(np.int64) if array.dtype == np.bool_ else array
    if array.ndim == 0 or array.dtype.kind not in "fiu":
        raise ValueError(f"Each part of the rows is an array of numbers with a row for each; got {array.dtype}, {array.shape}.")
    return array


class LaidOut(nn.Module):
    """A module that takes its rows in parts, as one that takes them packed.

    Args:
        module: the user's own.
        layout: of its rows.
    """

    def __init__(self, module: nn.Module, layout: RowLayout):
        super().__init__()
        self.module = module
        self.layout = layout

    @property
    def features_of(self) -> str:
        """Features are those of the module inside."""
        return "module"

    def forward(self, x: Float[Tensor, "N 1 F"]) -> Any:
        """What the module says of the rows."""
        parameter = next(self.module.parameters(), x)
        parts = self.layout.apart(x, parameter.dtype if parameter.is_floating_point() else torch.float32)
        if not self.layout.names[0]:
            return self.module(tuple(parts)) if self.layout.as_one else self.module(*parts)
        named = dict(zip(self.layout.names, parts, strict=True))
        return self.module(named) if self.layout.as_one else self.module(**named)

    def mask(self, x: Float[Tensor, "N 1 F"]) -> Tensor | None:
        """Which tokens count, where a part says so."""
        named = zip(self.layout.parts, self.layout.apart(x, torch.float32), strict=True)
        return next((values for part, values in named if MASK in part.name and values.ndim == 2), None)


def layout_for(module: nn.Module, rows: Mapping[str, Any] | Sequence[Any]) -> RowLayout:
    """How rows like these are laid out for a module, by the arguments that it takes.

    Raises:
        ValueError: when it takes no such parts.
    """
    named = isinstance(rows, Mapping)
    items = list(rows.items()) if isinstance(rows, Mapping) else [("", values) for values in rows]
    found = []
    for name, values in items:
        array = as_numbers(values)
        found.append(Part(str(name), array.shape[1:], bool(np.issubdtype(array.dtype, np.integer))))
    signature = inspect.signature(module.forward)

    def takes(*positional: Any, **keywords: Any) -> bool:
        try:
            signature.bind(*positional, **keywords)
        except TypeError:
            return False
        return True

    if takes(*() if named else [None] * len(found), **{part.name: None for part in found if named}):
        return RowLayout(tuple(found))
    if takes(None) and len(signature.parameters) == 1:
        return RowLayout(tuple(found), as_one=True)
    wanted = ", ".join(signature.parameters) or "nothing"
    given = ", ".join(repr(part.name) for part in found) if named else f"{len(found)} parts"
    raise ValueError(f"{type(module).__name__} takes {wanted}; the rows have {given}.")


def as_input(module: nn.Module, x: Tensor) -> Tensor:
    """Rows as a module takes them: in its own precision, unless it takes them apart itself."""
    parameter = next(module.parameters(), x)
    return x.to(parameter.device) if isinstance(module, LaidOut) else x.to(parameter.device, parameter.dtype)


def own_name(module: nn.Module) -> str:
    """What the user's own module is called."""
    return type(module.module if isinstance(module, LaidOut) else module).__name__


def outputs_of(found: Any, num_rows: int) -> Tensor:
    """The tensor of outputs in what a module gives: itself, or a part of a dict, a tuple or an object.

    Raises:
        ValueError: when there is none with one row for each row of the input.
    """
    if isinstance(found, Tensor):
        return found
    fields = found if isinstance(found, Mapping) else getattr(found, "__dict__", {})
    for name in OUTPUT_NAMES:
        if isinstance(fields.get(name), Tensor):
            return fields[name]
    values = found if isinstance(found, tuple | list) else fields.values()
    tensors = [value for value in values if isinstance(value, Tensor)]
    for value in tensors:
        if value.ndim in (1, 2) and len(value) == num_rows:
            return value
    shapes = ", ".join(str(tuple(value.shape)) for value in tensors) or "no tensor"
    advice = (
        ": hidden states are not predictions, so add a layer that turns them into one" if states_of(found) is not None else ""
    )
    raise ValueError(
        f"The module must give one row of outputs for each of the {num_rows} rows: a tensor, or one in a dict, a tuple or an "
        f"object, as {' or '.join(map(repr, OUTPUT_NAMES[:2]))}; got {type(found).__name__} with {shapes}{advice}."
    )


def states_of(found: Any) -> Tensor | None:
    """The hidden states in what a submodule gives, where they are in a dict, a tuple or an object; one row for each token."""
    if isinstance(found, Tensor):
        return None
    fields = found if isinstance(found, Mapping) else getattr(found, "__dict__", {})
    if isinstance(fields.get(STATES), Tensor):
        return fields[STATES]
    values = found if isinstance(found, tuple | list) else fields.values()
    return next((value for value in values if isinstance(value, Tensor) and value.ndim in (2, 3)), None)


def pooled(states: Float[Tensor, "N T H"], mask: Tensor | None) -> Float[Tensor, "N H"]:
    """The mean state of the tokens that count."""
    if mask is None or mask.shape != states.shape[:2]:
        return states.mean(1)
    weight = mask.to(states)[..., None]
    return (weight * states).sum(1) / weight.sum(1).clamp_min(1.0)
