"""Networks in a graph: ours written out, a user's own as torch exports it."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gwi.core.module_calls import LaidOut, as_input, outputs_of, own_name
from gwi.core.networks import EnsembleMLP
from gwi.exceptions import UnexportableError
from gwi.onnx.graph import OPSET, Graph, Value, onnx_library

_ACTIVATIONS: dict[type[nn.Module], str] = {nn.Tanh: "Tanh", nn.ReLU: "Relu", nn.Sigmoid: "Sigmoid", nn.Identity: "Identity"}


def network_values(g: Graph, module: nn.Module, x: Value, shape: tuple[int, ...]) -> Value:
    """The outputs of a network, (N, J), in double precision; inside it has its own.

    Args:
        g: the graph.
        module: the network.
        x: rows as it takes them.
        shape: of a row.

    Raises:
        UnexportableError: when torch cannot export it.
    """
    if type(module) is EnsembleMLP:
        return ensemble_values(g, module, x)
    if type(module) is nn.Sequential and all(type(layer) in (nn.Linear, nn.SiLU, *_ACTIVATIONS) for layer in module):
        return _layers_values(g, module, x)
    return traced_values(g, _Outputs(module), module, x, shape)[0].reshaped(0, -1).cast(np.float64)


def parameters(tensor: Tensor) -> NDArray[Any]:
    """As they are, in their own precision."""
    return tensor.detach().cpu().numpy()


def ensemble_values(g: Graph, network: EnsembleMLP, x: Value) -> Value:
    """The mean over members, (N, J)."""
    dtype = parameters(network.linear).dtype
    x = x if dtype == np.float64 else x.cast(dtype)
    low, high = parameters(network.low), parameters(network.high)
    if np.isfinite(low).any() or np.isfinite(high).any():
        x = x.clip(low[None], high[None])
    weights, biases = [parameters(w) for w in network.weights], [parameters(b) for b in network.biases]
    if network.log_scales is not None:
        weights[0] = weights[0] * np.exp(parameters(network.log_scales))[..., None]
    path = x @ parameters(network.linear).mean(0)
    count, width_in, width = weights[0].shape
    h = x @ weights[0].transpose(1, 0, 2).reshape(width_in, -1) + biases[0].reshape(1, -1)
    if len(weights) > 1:
        h = (h * h.sigmoid()).reshaped(-1, count, width).moved(1, 0, 2)
        for weight, bias in zip(weights[1:-1], biases[1:-1], strict=True):
            h = h @ weight + bias
            h = h * h.sigmoid()
        found = (h @ weights[-1] + biases[-1]).mean(0)
    else:
        found = h.reshaped(-1, count, width).mean(1)
    found = found + path
    return found if dtype == np.float64 else found.cast(np.float64)


def _layers_values(g: Graph, network: nn.Sequential, x: Value) -> Value:
    """A chain of linear layers and activations, (N, J)."""
    first = next(network.parameters(), None)
    h = x if first is None or first.dtype == torch.float64 else x.cast(parameters(first).dtype)
    for layer in network:
        if isinstance(layer, nn.Linear):
            h = h @ parameters(layer.weight).T
            h = h if layer.bias is None else h + parameters(layer.bias)[None]
        elif isinstance(layer, nn.SiLU):
            h = h * h.sigmoid()
        else:
            h = g.op(_ACTIVATIONS[type(layer)], h)
    return h.cast(np.float64)


class _Outputs(nn.Module):
    """A network as it is called here: one tensor of outputs."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        """The outputs."""
        return outputs_of(self.module(x), len(x))


def traced_values(g: Graph, called: nn.Module, network: nn.Module, x: Value, shape: tuple[int, ...]) -> list[Value]:
    """What a module gives, as torch writes it down.

    Args:
        g: the graph.
        called: what is written down.
        network: the user's own module inside it.
        x: rows.
        shape: of a row.

    Raises:
        UnexportableError: with what torch says.
    """
    if isinstance(network, LaidOut):
        raise UnexportableError(
            f"{own_name(network)} takes its rows in several parts, and such a model cannot be exported to ONNX; wrap a module of "
            "one array."
        )
    try:
        # What a module does with the number of rows as a number would be that of the example: two examples tell.
        model, other = (_traced(called, as_input(network, torch.zeros((count, *shape), dtype=torch.float64))) for count in (2, 3))
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        raise UnexportableError(f"torch cannot export {own_name(network)} to ONNX ({said}).") from error
    if model.SerializeToString() != other.SerializeToString():
        raise UnexportableError(
            f"{own_name(network)} gives other results for another number of rows, so it cannot be exported to ONNX; use "
            "x.flatten(1), or x.shape[0] instead of len(x)."
        )
    dtype = next(iter(network.parameters()), torch.zeros(0, dtype=torch.float64)).detach().cpu().numpy().dtype
    return g.include(model, x if dtype == np.float64 else x.cast(dtype))


def _traced(called: nn.Module, example: Tensor) -> Any:
    """As torch writes it down for this example."""
    axes = {"rows": {0: "rows"}}
    with warnings.catch_warnings(), torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        path = Path(folder) / "module.onnx"
        torch.onnx.export(
            called.eval(), (example,), path, dynamo=False, opset_version=OPSET, input_names=["rows"], dynamic_axes=axes
        )
        model = onnx_library().load_model(path)
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.type.Clear()
    return model
