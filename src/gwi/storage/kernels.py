"""What encoding shares: tensors under names, and GPyTorch kernels by a closed list of types."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
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

Node = dict[str, Any]

# Tags in a file, never names of classes: a class may be renamed, a file may not. Kernels with the arguments that are not
# parameters, and those that are made of others.
_KERNELS: dict[str, tuple[type[Kernel], tuple[str, ...]]] = {
    "rbf": (gpytorch.kernels.RBFKernel, ()),
    "matern": (gpytorch.kernels.MaternKernel, ("nu",)),
    "rational-quadratic": (gpytorch.kernels.RQKernel, ()),
    "periodic": (gpytorch.kernels.PeriodicKernel, ()),
    "cosine": (gpytorch.kernels.CosineKernel, ()),
    "linear": (gpytorch.kernels.LinearKernel, ()),
    "polynomial": (gpytorch.kernels.PolynomialKernel, ("power",)),
    "piecewise-polynomial": (gpytorch.kernels.PiecewisePolynomialKernel, ("q",)),
    "constant": (gpytorch.kernels.ConstantKernel, ()),
}
_COMPOSED: dict[str, type[Kernel]] = {"sum": gpytorch.kernels.AdditiveKernel, "product": gpytorch.kernels.ProductKernel}
_CONSTRAINTS: dict[str, tuple[type[Any], tuple[float, ...]]] = {
    "positive": (gpytorch.constraints.Positive, ()),
    "greater-than": (gpytorch.constraints.GreaterThan, (0.0,)),
    "less-than": (gpytorch.constraints.LessThan, (0.0,)),
    "interval": (gpytorch.constraints.Interval, (0.0, 1.0)),
}
_TAGS: dict[str, type[Kernel]] = {
    **{tag: kind for tag, (kind, _) in _KERNELS.items()},
    **_COMPOSED,
    "scale": gpytorch.kernels.ScaleKernel,
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
        for i, known in enumerate(self.kernels):
            if known is kernel:
                return i
        self.kernels.append(kernel)
        return len(self.kernels) - 1


class Reader:
    """Hands out tensors of the kind that is wanted."""

    def __init__(self, tensors: dict[str, Tensor], modules: Sequence[nn.Module], device: torch.device | str):
        self.tensors = tensors
        self.modules = list(modules)
        self.device = device
        self.kernels: list[Kernel] = []
        self.scales: Scales

    def get(self, name: Any, num_axes: int, dtype: torch.dtype | None = torch.float64) -> Tensor:
        """The tensor of that name; ValueError when it is of another kind."""
        tensor = self.tensors[name]
        if tensor.ndim != num_axes or (dtype is not None and tensor.dtype != dtype):
            raise ValueError(f"{name} has {tensor.ndim} axes and dtype {tensor.dtype}")
        return tensor.to(self.device)


def encode_kernel(kernel: Kernel, w: Writer, name: str) -> Node:
    """A GPyTorch kernel: its type, and each raw parameter with its constraint.

    Raises:
        UnsavableError: for a type that is not on the list.
    """
    tag = tag_of(kernel, _TAGS)
    if kernel.batch_shape.numel() != 1 or tag is None:
        known = ", ".join(kind.__name__ for kind, _ in _KERNELS.values())
        raise UnsavableError(
            f"A kernel of type {type(kernel).__name__} cannot be stored; {known}, their sums, products and scalings can."
        )
    node: Node = {
        "type": tag,
        "active_dims": None if kernel.active_dims is None else kernel.active_dims.tolist(),
        "parameters": {},
    }
    for raw, value in kernel.named_parameters(recurse=False):
        node["parameters"][raw] = {
            "value": w.put(f"{name}.{raw}", value),
            "constraint": _encode_constraint(kernel.constraint_for_parameter_name(raw)),
        }
    if tag in _COMPOSED:
        parts = [encode_kernel(part, w, f"{name}.{i}") for i, part in enumerate(kernel.kernels)]
        return node | {"kernels": parts}
    if tag == "scale":
        return node | {"base_kernel": encode_kernel(kernel.base_kernel, w, name)}
    return node | {"ard_num_dims": kernel.ard_num_dims, "arguments": {key: getattr(kernel, key) for key in _KERNELS[tag][1]}}


def decode_kernel(node: Node, r: Reader, num_features: int, depth: int = 0) -> Kernel:
    """The kernel that was encoded; ValueError when it describes none."""
    tag, active = node["type"], node["active_dims"]
    if depth > 20:
        raise ValueError("kernels are nested too deeply")
    if tag in _COMPOSED:
        parts = [decode_kernel(part, r, num_features, depth + 1) for part in node["kernels"]]
        return _COMPOSED[tag](*parts).double()
    if active is not None and not (active and all(type(i) is int and 0 <= i < num_features for i in active)):
        raise ValueError("active dimensions are not columns")
    common: dict[str, Any] = {"active_dims": None if active is None else tuple(active)}
    if tag == "scale":
        kernel = gpytorch.kernels.ScaleKernel(decode_kernel(node["base_kernel"], r, num_features, depth + 1), **common)
    elif tag in _KERNELS:
        kind, names = _KERNELS[tag]
        ard, arguments = node["ard_num_dims"], {key: node["arguments"][key] for key in names}
        if ard is not None:
            if type(ard) is not int or not 1 <= ard <= num_features:
                raise ValueError("a kernel has more length-scales than there are columns")
            common["ard_num_dims"] = ard
        if any(type(value) not in (int, float) or not 0 <= value <= 20 for value in arguments.values()):
            raise ValueError("a kernel has arguments out of range")
        kernel = kind(**arguments, **common)
    else:
        raise ValueError("a kernel is of an unknown type")
    kernel = kernel.double()
    wanted = dict(kernel.named_parameters(recurse=False))
    if set(wanted) != set(node["parameters"]):
        raise ValueError("a kernel has other parameters than its type")
    for raw, described in node["parameters"].items():
        value = r.get(described["value"], wanted[raw].ndim)
        if value.shape != wanted[raw].shape:
            raise ValueError("a kernel's parameter has another shape than its type")
        constraint = _decode_constraint(described["constraint"])
        if constraint is not None:
            kernel.register_constraint(raw, constraint.double())
        wanted[raw].data = value.clone()
    return kernel


def _encode_constraint(constraint: Any) -> Node | None:
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


def _decode_constraint(node: Node | None) -> Any:
    if node is None:
        return None
    if node["type"] not in _CONSTRAINTS:
        raise ValueError("a constraint is of an unknown type")
    transform, inverse = _TRANSFORMS[node["transform"]]
    kind, bounds = _CONSTRAINTS[node["type"]]
    constraint = kind(*bounds, transform=transform, inv_transform=inverse)
    for side, infinite in (("lower", -torch.inf), ("upper", torch.inf)):
        bound = infinite if node[side] is None else float(node[side])
        setattr(constraint, f"{side}_bound", torch.tensor(bound, dtype=torch.float64))
    return constraint
