"""A small builder of ONNX graphs: values with the operators of Python, in double precision."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gwi._extras import require
from gwi.exceptions import UserError

# Of the operators, of those for trees, and of the file: what ONNX Runtime reads from 1.31 on.
OPSET, TREE_OPSET, IR_VERSION = 18, 5, 10
TREES = "ai.onnx.ml"


def onnx_library() -> Any:
    """The package onnx.

    Raises:
        MissingPackageError: when it is not installed.
    """
    require("onnx", "Exporting to ONNX")
    import onnx

    return onnx


@dataclass(frozen=True, eq=False)
class Value:
    """An array in a graph, known by its name."""

    graph: Graph
    name: str
    # Arrays of NumPy on the left leave operators to us.
    __array_ufunc__ = None

    def __rmatmul__(self, other: Operand) -> Value:
        return self.graph.op("MatMul", other, self)

    def __add__(self, other: Operand) -> Value:
        return self.graph.op("Add", self, other)

    def __radd__(self, other: Operand) -> Value:
        return self.graph.op("Add", other, self)

    def __sub__(self, other: Operand) -> Value:
        return self.graph.op("Sub", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self.graph.op("Sub", other, self)

    def __mul__(self, other: Operand) -> Value:
        return self.graph.op("Mul", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self.graph.op("Mul", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return self.graph.op("Div", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self.graph.op("Div", other, self)

    def __matmul__(self, other: Operand) -> Value:
        return self.graph.op("MatMul", self, other)

    def __neg__(self) -> Value:
        return self.graph.op("Neg", self)

    def __gt__(self, other: Any) -> Value:
        return self.graph.op("Greater", self, other)

    def __ge__(self, other: Any) -> Value:
        return self.graph.op("GreaterOrEqual", self, other)

    def __lt__(self, other: Any) -> Value:
        return self.graph.op("Less", self, other)

    def __le__(self, other: Any) -> Value:
        return self.graph.op("LessOrEqual", self, other)

    def __and__(self, other: Value) -> Value:
        return self.graph.op("And", self, other)

    def __or__(self, other: Value) -> Value:
        return self.graph.op("Or", self, other)

    def __invert__(self) -> Value:
        return self.graph.op("Not", self)

    def exp(self) -> Value:
        """e to it."""
        return self.graph.op("Exp", self)

    def log(self) -> Value:
        """Its logarithm."""
        return self.graph.op("Log", self)

    def sqrt(self) -> Value:
        """Its root."""
        return self.graph.op("Sqrt", self)

    def abs(self) -> Value:
        """Its size."""
        return self.graph.op("Abs", self)

    def ceil(self) -> Value:
        """The next whole number."""
        return self.graph.op("Ceil", self)

    def sigmoid(self) -> Value:
        """1/(1 + e^−x)."""
        return self.graph.op("Sigmoid", self)

    def square(self) -> Value:
        """Times itself."""
        return self.graph.op("Mul", self, self)

    def least(self, value: Operand) -> Value:
        """No smaller than this."""
        return self.graph.op("Max", self, value)

    def most(self, value: Operand) -> Value:
        """No larger than this."""
        return self.graph.op("Min", self, value)

    def clip(self, low: Operand, high: Operand) -> Value:
        """Between two numbers."""
        return self.least(low).most(high)

    def sum(self, axis: int, *, keep: bool = False) -> Value:
        """Over one axis."""
        return self.graph.reduced("ReduceSum", self, axis, keep)

    def mean(self, axis: int, *, keep: bool = False) -> Value:
        """Over one axis."""
        return self.graph.reduced("ReduceMean", self, axis, keep)

    def max(self, axis: int, *, keep: bool = False) -> Value:
        """Over one axis."""
        return self.graph.reduced("ReduceMax", self, axis, keep)

    def min(self, axis: int, *, keep: bool = False) -> Value:
        """Over one axis."""
        return self.graph.reduced("ReduceMin", self, axis, keep)

    def largest(self) -> Value:
        """The largest of all, without axes."""
        return self.graph.op("ReduceMax", self, keepdims=0)

    def new_axis(self, *axes: int) -> Value:
        """With axes of length one at these places."""
        return self.graph.op("Unsqueeze", self, self.graph.integers(axes))

    def without_axis(self, axis: int) -> Value:
        """Without an axis of length one."""
        return self.graph.op("Squeeze", self, self.graph.integers([axis]))

    def moved(self, *order: int) -> Value:
        """With its axes in another order."""
        return self.graph.op("Transpose", self, perm=list(order))

    def reshaped(self, *sizes: int) -> Value:
        """With another shape; 0 keeps a length, −1 takes what is left."""
        return self.graph.op("Reshape", self, self.graph.integers(sizes))

    def columns(self, start: int, stop: int) -> Value:
        """Some of the last axis."""
        ends = (self.graph.integers([end]) for end in (start, stop, -1))
        return self.graph.op("Slice", self, *ends)

    def chosen(self, places: Sequence[int], axis: int = -1) -> Value:
        """Those at some places of an axis."""
        return self.graph.op("Gather", self, self.graph.integers(places), axis=axis)

    def cast(self, dtype: Any) -> Value:
        """In another type."""
        return self.graph.op("Cast", self, to=onnx_library().helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


Operand = Value | float | NDArray[Any]


class Graph:
    """Nodes and constants that are put together step by step.

    Operators take values, and numbers or arrays of NumPy, which become constants: numbers in double precision.
    """

    def __init__(self) -> None:
        self._onnx = onnx_library()
        # Of the graph itself, and on top of it of bodies of loops and branches that are being written.
        self._nodes: list[list[Any]] = [[]]
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._tensors: list[Any] = []
        self._count = 0
        # Names of constants of one number, of what was multiplied by one, and of products of matrices.
        self._single: set[str] = set()
        self._scaled: set[str] = set()
        self._products: set[str] = set()
        self._made: dict[tuple[Any, ...], Value] = {}

    def fresh(self, kind: str) -> str:
        """A name that is not taken."""
        self._count += 1
        return f"{kind}_{self._count}"

    def value(self, operand: Operand) -> Value:
        """An operand as a value."""
        return operand if isinstance(operand, Value) else self.constant(np.asarray(operand))

    def constant(self, array: Any) -> Value:
        """An array that is part of the file; equal ones once."""
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        key = (array.dtype.str, array.shape, hashlib.sha256(array.tobytes()).digest())
        if key not in self._constants:
            self._constants[key] = self.fresh("constant")
            self._tensors.append(self._onnx.numpy_helper.from_array(array, self._constants[key]))
            if array.size == 1:
                self._single.add(self._constants[key])
        return Value(self, self._constants[key])

    def tensor(self, array: NDArray[Any]) -> Any:
        """An array as an attribute of a node."""
        return self._onnx.numpy_helper.from_array(array, "")

    def integers(self, values: Sequence[int]) -> Value:
        """A list of whole numbers."""
        return self.constant(np.array(list(values), dtype=np.int64))

    def op(self, kind: str, *operands: Operand, domain: str = "", **attributes: Any) -> Value:
        """The output of an operator of ONNX."""
        return self.ops(kind, 1, *operands, domain=domain, **attributes)[0]

    def ops(self, kind: str, count: int, *operands: Operand, domain: str = "", **attributes: Any) -> list[Value]:
        """The outputs of an operator that has several."""
        names = self._guarded(kind, [self.value(operand) for operand in operands])
        outputs = [self.fresh(kind) for _ in range(count)]
        if kind == "MatMul":
            self._products.update(outputs)
        if kind in ("Mul", "Div") and any(name in self._single for name in names):
            self._scaled.update(outputs)
        self._nodes[-1].append(self._onnx.helper.make_node(kind, names, outputs, domain=domain, **attributes))
        return [Value(self, name) for name in outputs]

    def _guarded(self, kind: str, values: list[Value]) -> list[str]:
        """Names of operands, with something that changes nothing between a product of matrices and a factor before or after it.

        ONNX Runtime fuses the two, and holds the factor of double precision in single.
        """
        scales = kind in ("Mul", "Div") and any(value.name in self._single for value in values)
        found = []
        for value in values:
            fused = value.name in (self._products if scales else self._scaled if kind == "MatMul" else ())
            found.append(self.op("Max", value, -np.inf).name if fused else value.name)
        return found

    def reduced(self, kind: str, value: Value, axis: int, keep: bool) -> Value:
        """One of the reductions over an axis."""
        return self.op(kind, value, self.integers([axis]), keepdims=int(keep))

    def where(self, condition: Value, yes: Operand, no: Operand) -> Value:
        """One where it holds, the other elsewhere."""
        return self.op("Where", condition, yes, no)

    def joined(self, values: Sequence[Operand], axis: int = -1) -> Value:
        """Side by side."""
        return self.value(values[0]) if len(values) == 1 else self.op("Concat", *values, axis=axis)

    def once(self, key: tuple[Any, ...], make: Callable[[], Value]) -> Value:
        """What was made under this key before, or is made now; inside of a branch nothing is kept, for it ends there."""
        if key in self._made:
            return self._made[key]
        found = make()
        if len(self._nodes) == 1:
            self._made[key] = found
        return found

    def either(self, condition: Value, yes: Callable[[], Value], no: Callable[[], Value]) -> Value:
        """One of two, of which only that is computed; the condition is one bool."""
        branches = {"then_branch": self._body([], yes), "else_branch": self._body([], no)}
        return self.op("If", condition, **branches)

    def loop(self, count: Value, state: Sequence[Value], step: Callable[..., Sequence[Value]]) -> list[Value]:
        """The state after so many steps, each of which takes its number and the state, all in double precision."""
        helper, double = self._onnx.helper, self._onnx.TensorProto.DOUBLE
        index, going = self.fresh("step"), self.fresh("going")
        inputs = [helper.make_tensor_value_info(index, self._onnx.TensorProto.INT64, [])]
        inputs.append(helper.make_tensor_value_info(going, self._onnx.TensorProto.BOOL, []))
        held = [Value(self, self.fresh("state")) for _ in state]
        inputs += [helper.make_tensor_value_info(value.name, double, None) for value in held]

        def body() -> list[Value]:
            return [self.op("Identity", Value(self, going)), *step(Value(self, index), *held)]

        going_on = self.constant(np.array(True))
        return self.ops("Loop", len(state), count, going_on, *state, body=self._body(inputs, body))

    def _body(self, inputs: list[Any], make: Callable[[], Any]) -> Any:
        """A graph inside of this one, which sees all that stands before it."""
        self._nodes.append([])
        made = make()
        found = [self.op("Identity", value) for value in (made if isinstance(made, list) else [made])]
        nodes, helper = self._nodes.pop(), self._onnx.helper
        types = [self._onnx.TensorProto.BOOL if inputs and i == 0 else self._onnx.TensorProto.DOUBLE for i in range(len(found))]
        outputs = [helper.make_tensor_value_info(v.name, kind, None) for v, kind in zip(found, types, strict=True)]
        return helper.make_graph(nodes, self.fresh("body"), inputs, outputs)

    def include(self, other: Any, given: Value) -> list[Value]:
        """The nodes of another model of one input, with names of their own; its outputs."""
        graph, prefix = other.graph, self.fresh("module")
        names = {graph.input[0].name: given.name, "": ""}

        def renamed(name: str) -> str:
            return names.setdefault(name, f"{prefix}.{name}")

        for tensor in graph.initializer:
            tensor.name = renamed(tensor.name)
            self._tensors.append(tensor)
        for node in graph.node:
            for place, name in enumerate(node.input):
                node.input[place] = renamed(name)
            for place, name in enumerate(node.output):
                node.output[place] = renamed(name)
            node.name = ""
            self._nodes[-1].append(node)
        return [Value(self, renamed(output.name)) for output in graph.output]

    def input(self, name: str, shape: Sequence[int | str], dtype: Any = np.float64) -> tuple[Value, Any]:
        """An input, and how it is declared."""
        kind = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return Value(self, name), self._onnx.helper.make_tensor_value_info(name, kind, list(shape))

    def model(
        self, inputs: Sequence[Any], outputs: Mapping[str, tuple[Value, Sequence[int | str]]], notes: dict[str, str]
    ) -> bytes:
        """The file: outputs by name with their shapes, in double precision, and notes for its reader.

        Raises:
            UserError: when the library refuses it, as it does beyond two gigabytes.
        """
        helper, declared = self._onnx.helper, []
        for name, (value, shape) in outputs.items():
            self._nodes[0].append(helper.make_node("Identity", [value.name], [name]))
            declared.append(helper.make_tensor_value_info(name, self._onnx.TensorProto.DOUBLE, list(shape)))
        graph = helper.make_graph(self._nodes[0], "gwi", list(inputs), declared, self._tensors)
        sets = [helper.make_opsetid("", OPSET), helper.make_opsetid(TREES, TREE_OPSET)]
        model = helper.make_model(graph, opset_imports=sets, producer_name="gwi", ir_version=IR_VERSION)
        helper.set_model_props(model, notes)
        try:
            self._onnx.checker.check_model(model)
            return bytes(model.SerializeToString())
        except ValueError as error:
            raise UserError(
                f"The model is too large for one ONNX file ({str(error)[:100]}); use fewer or smaller means."
            ) from error
