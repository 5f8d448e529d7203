"""What encoding shares: tensors under names, and GPyTorch kernels by a closed list of types."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gpytorch.constraints
import gpytorch.kernels
import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.utils.transforms import inv_sigmoid, inv_softplus
from torch import Tensor, nn

from gwi.core.scaling import Scales
from gwi.exceptions import UnsavableError
from gwi.storage.header import number, printable, refuse_if, whole

Node = dict[str, Any]
# Points of one k(Z, Z), and entries of all such matrices, that any file may ask for; beyond, it must be as large as they are.
FREE_POINTS, FREE_ENTRIES = 4000, 80_000_000
# How many of each kind of part a file may have.
MOST_PARTS = {"kernels": 100, "means": 3000, "layers": 10_000}

# Tags in a file, never names of classes: a class may be renamed, a file may not. Kernels, their arguments that are not
# parameters, and kernels that are made of others.
_KERNELS: dict[str, type[Kernel]] = {
    "rbf": gpytorch.kernels.RBFKernel,
    "matern": gpytorch.kernels.MaternKernel,
    "rational-quadratic": gpytorch.kernels.RQKernel,
    "periodic": gpytorch.kernels.PeriodicKernel,
    "cosine": gpytorch.kernels.CosineKernel,
    "linear": gpytorch.kernels.LinearKernel,
    "polynomial": gpytorch.kernels.PolynomialKernel,
    "piecewise-polynomial": gpytorch.kernels.PiecewisePolynomialKernel,
    "constant": gpytorch.kernels.ConstantKernel,
}
_ARGUMENTS = {"matern": ("nu",), "polynomial": ("power",), "piecewise-polynomial": ("q",)}
_COMPOSED: dict[str, type[Kernel]] = {"sum": gpytorch.kernels.AdditiveKernel, "product": gpytorch.kernels.ProductKernel}
_CONSTRAINTS: dict[str, tuple[type[Any], tuple[float, ...]]] = {
    "positive": (gpytorch.constraints.Positive, ()),
    "greater-than": (gpytorch.constraints.GreaterThan, (0.0,)),
    "less-than": (gpytorch.constraints.LessThan, (0.0,)),
    "interval": (gpytorch.constraints.Interval, (0.0, 1.0)),
}
_TRANSFORMS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "softplus": (nn.functional.softplus, inv_softplus),
    "exp": (torch.exp, torch.log),
    "sigmoid": (torch.sigmoid, inv_sigmoid),
}


def tag_of(value: Any, tags: Mapping[str, type]) -> str | None:
    """The tag of exactly this type; None when it has none."""
    return next((tag for tag, kind in tags.items() if type(value) is kind), None)


class Writer:
    """Collects tensors under readable names, equal ones once."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._names: dict[tuple[torch.dtype, torch.Size, bytes], str] = {}
        self.kernels: list[Kernel] = []

    def put(self, name: str, value: Any) -> str:
        """The name under which a tensor is kept."""
        tensor = torch.as_tensor(value).detach().cpu().contiguous()
        # By its bits, not by ==, to which −0.0 is 0.0.
        content = (tensor.dtype, tensor.shape, hashlib.sha256(tensor.numpy().tobytes()).digest())
        if content not in self._names:
            self._names[content] = name if name not in self.tensors else f"{name}.{len(self.tensors)}"
            self.tensors[self._names[content]] = tensor
        return self._names[content]

    def kernel(self, kernel: Kernel) -> int:
        """The place of a kernel in the list of kernels, so that parts that share one share it again."""
        if kernel not in self.kernels:
            self.kernels.append(kernel)
        return self.kernels.index(kernel)


@dataclass
class Reader:
    """Hands out tensors of the kind that is wanted, and keeps an account of what they cost."""

    tensors: dict[str, Tensor]
    modules: list[nn.Module]
    device: torch.device | str
    kernels: list[Kernel] = field(default_factory=list)
    posterior_kernel: Kernel | None = None
    scales: Scales = field(init=False)

    def __post_init__(self) -> None:
        size = sum(tensor.nbytes for tensor in self.tensors.values())
        # A tensor may be named often, and some of what is made from it are copies.
        self._bytes_left = 20 * size + 10**8
        self._entries, self._entries_left = size // 8, max(FREE_ENTRIES, size)
        self._parts: Counter[str] = Counter()

    def get(self, name: Any, num_axes: int | None, dtype: torch.dtype | None = torch.float64) -> Tensor:
        """The tensor of that name; ValueError when it is of another kind, or all were handed out too often."""
        refuse_if(not isinstance(name, str) or name not in self.tensors, f"there is no tensor {printable(name, 40)!r}")
        tensor = self.tensors[name]
        wrong = num_axes not in (None, tensor.ndim) or (dtype is not None and tensor.dtype != dtype)
        refuse_if(wrong, f"{printable(name, 40)} has {tensor.ndim} axes and dtype {tensor.dtype}")
        self._bytes_left -= tensor.nbytes
        refuse_if(self._bytes_left < 0, "its tensors are used far more often than there are")
        return tensor.to(self.device)

    def count(self, kind: str) -> None:
        """One more part of a kind; ValueError when there are too many."""
        self._parts[kind] += 1
        refuse_if(self._parts[kind] > MOST_PARTS[kind], f"there are more than {MOST_PARTS[kind]} {kind}")

    def kernel(self, place: Any, num_points: int) -> Kernel:
        """The kernel at that place, for so many points; ValueError when there is none or k(Z, Z) is too large for the file."""
        refuse_if(not self.kernels or num_points == 0, "there is no kernel, or there are no points")
        kernel = self.kernels[whole(place, "the place of a kernel", len(self.kernels) - 1)]
        # Each kernel of a sum or a product has a matrix of its own; one in a scaling has not.
        matrices = sum(type(part) in _KERNELS.values() for part in kernel.modules())
        self._entries_left -= num_points**2 * matrices
        too_large = self._entries_left < 0 or (num_points > FREE_POINTS and num_points**2 > self._entries)
        refuse_if(too_large, f"k(Z, Z) of {num_points} points would be far larger than the file")
        return kernel


def encode_kernel(kernel: Kernel, w: Writer, name: str) -> Node:
    """A GPyTorch kernel: its type, and each raw parameter with its constraint.

    Raises:
        UnsavableError: for a type that is not on the list.
    """
    tag = tag_of(kernel, _KERNELS | _COMPOSED | {"scale": gpytorch.kernels.ScaleKernel})
    if kernel.batch_shape.numel() != 1 or tag is None:
        known = ", ".join(kind.__name__ for kind in _KERNELS.values())
        raise UnsavableError(
            f"A kernel of type {type(kernel).__name__} cannot be stored; {known}, their sums, products and scalings can."
        )
    parameters = {
        raw: {"value": w.put(f"{name}.{raw}", value), "constraint": _encode_constraint(kernel, raw)}
        for raw, value in kernel.named_parameters(recurse=False)
    }
    active = None if kernel.active_dims is None else kernel.active_dims.tolist()
    node: Node = {"type": tag, "active_dims": active, "parameters": parameters}
    if tag in _COMPOSED:
        return node | {"kernels": [encode_kernel(part, w, f"{name}.{i}") for i, part in enumerate(kernel.kernels)]}
    if tag == "scale":
        return node | {"base_kernel": encode_kernel(kernel.base_kernel, w, name)}
    arguments = {key: getattr(kernel, key) for key in _ARGUMENTS.get(tag, ())}
    return node | {"ard_num_dims": kernel.ard_num_dims, "arguments": arguments}


def decode_kernel(node: Node, r: Reader, num_features: int, depth: int = 0) -> Kernel:
    """The kernel that was encoded; ValueError when it describes none."""
    tag, active = node["type"], node["active_dims"]
    r.count("kernels")
    refuse_if(depth > 20, "kernels are nested too deeply")
    if tag in _COMPOSED:
        parts = [decode_kernel(part, r, num_features, depth + 1) for part in node["kernels"]]
        return _COMPOSED[tag](*parts).double()
    columns = active is None or (
        active and len(set(active)) == len(active) and all(type(i) is int and 0 <= i < num_features for i in active)
    )
    refuse_if(not columns, "active dimensions are not columns")
    common: dict[str, Any] = {"active_dims": None if active is None else tuple(active)}
    if tag == "scale":
        kernel = gpytorch.kernels.ScaleKernel(decode_kernel(node["base_kernel"], r, num_features, depth + 1), **common)
    else:
        refuse_if(tag not in _KERNELS, "a kernel is of an unknown type")
        ard, arguments = node["ard_num_dims"], {key: node["arguments"][key] for key in _ARGUMENTS.get(tag, ())}
        ard_fits = ard is None or (type(ard) is int and 1 <= ard <= num_features)
        refuse_if(not ard_fits, "a kernel has more length-scales than there are columns")
        if ard is not None:
            common["ard_num_dims"] = ard
        in_range = all(type(value) in (int, float) and 0 <= value <= 20 for value in arguments.values())
        refuse_if(not in_range, "a kernel has arguments out of range")
        kernel = _KERNELS[tag](**arguments, **common)
    kernel = kernel.double()
    wanted = dict(kernel.named_parameters(recurse=False))
    refuse_if(set(wanted) != set(node["parameters"]), "a kernel has other parameters than its type")
    for raw, described in node["parameters"].items():
        value = r.get(described["value"], wanted[raw].ndim)
        refuse_if(value.shape != wanted[raw].shape, "a kernel's parameter has another shape than its type")
        if described["constraint"] is not None:
            kernel.register_constraint(raw, _decode_constraint(described["constraint"]))
        wanted[raw].data = value.clone()
    return kernel


def _encode_constraint(kernel: Kernel, parameter: str) -> Node | None:
    constraint = kernel.constraint_for_parameter_name(parameter)
    if constraint is None:
        return None
    used = constraint._transform
    # GPyTorch writes softplus as a module here and as a function there.
    is_softplus = type(used) is nn.Softplus and (used.beta, used.threshold) == (1.0, 20.0)
    names = ["softplus"] if is_softplus else [name for name, (known, _) in _TRANSFORMS.items() if used is known]
    tag = tag_of(constraint, {tag: kind for tag, (kind, _) in _CONSTRAINTS.items()})
    if tag is None or not names or constraint.lower_bound.numel() != 1:
        raise UnsavableError("A kernel's constraint cannot be stored; Positive, GreaterThan, LessThan and Interval can.")
    bounds = {side: float(getattr(constraint, f"{side}_bound")) for side in ("lower", "upper")}
    # JSON has no infinity.
    return {"type": tag, "transform": names[0]} | {side: bound if np.isfinite(bound) else None for side, bound in bounds.items()}


def _decode_constraint(node: Node) -> Any:
    refuse_if(node["type"] not in _CONSTRAINTS, "a constraint is of an unknown type")
    transform, inverse = _TRANSFORMS[node["transform"]]
    kind, bounds = _CONSTRAINTS[node["type"]]
    constraint = kind(*bounds, transform=transform, inv_transform=inverse)
    for side, infinite in (("lower", -torch.inf), ("upper", torch.inf)):
        bound = infinite if node[side] is None else number(node[side], "a bound of a constraint")
        setattr(constraint, f"{side}_bound", torch.tensor(bound, dtype=torch.float64))
    refuse_if(constraint.lower_bound >= constraint.upper_bound, "the bounds of a constraint are the wrong way round")
    return constraint
