"""A posterior's functions as an ONNX file, which programs without Python can run. Needs `pip install bnnp[onnx]`.

import bnnp.onnx

bnnp.onnx.export(post, "site.onnx")
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bnnp._core.files import as_path, write_atomically
from bnnp._core.optional import optional_module
from bnnp.models.posterior import WeightPosterior
from bnnp.networks.perceptron import Network

__all__ = ["export"]

OPSET = 17
"""The version of ONNX's operations, of 2022."""
ACTIVATIONS = {"relu": ("Relu",), "tanh": ("Tanh",), "softplus": ("Softplus",), "silu": ("Sigmoid", "Mul")}
"""Operations by activation; the second takes the input of the first too."""


def export(post: WeightPosterior, path: str | Path) -> Path:
    """Write the functions of a posterior as an ONNX file: products of weights that no longer change.

    The file takes `x` (points, in) and gives `functions` (samples, points, out), without observation noise, and `mean`
    and `std` (points, out) over them. All are 64-bit numbers in the user's units; products are made in 32 bits.

    Args:
        post: A posterior of a perceptron with a Gaussian likelihood.
        path: The file, as in "site.onnx".

    Returns:
        The path.

    Raises:
        ValueError: If the posterior is of another network or likelihood.
        ImportError: If onnx is not installed.
    """
    onnx = optional_module("onnx", "writing ONNX", "onnx")
    network, columns = post.network, post.columns
    if not isinstance(network, Network) or network.activation not in (*ACTIVATIONS, "identity"):
        raise ValueError(f"post: got the network {network}, expected a perceptron with {', '.join(ACTIVATIONS)}")
    if not post.likelihood.real_valued:
        raise ValueError(f"post: got the likelihood {post.likelihood}, expected a Gaussian one")
    graph = _Graph(onnx)
    shifted = graph.node("Sub", "x", graph.constant(columns.x_shift))
    h = graph.node("Cast", graph.node("Div", shifted, graph.constant(columns.x_scale)), to=onnx.TensorProto.FLOAT)
    for layer, weights in enumerate(post.weights):
        if layer:
            h = graph.activation(str(network.activation), h)
        rows = [graph.constant(part, np.float32) for part in (weights[:, :-1], weights[:, -1:])]
        h = graph.node("Add", graph.node("MatMul", h, rows[0]), rows[1])
    scaled = graph.node("Mul", graph.node("Cast", h, to=onnx.TensorProto.DOUBLE), graph.constant(columns.y_scale))
    shown = graph.node("Add", scaled, graph.constant(columns.y_shift))
    graph.node("Exp" if columns.positive else "Identity", shown, into="functions")
    graph.node("ReduceMean", "functions", into="mean", axes=[0], keepdims=0)
    square = graph.node("Mul", *2 * [graph.node("Sub", "functions", "mean")])
    graph.node("Sqrt", graph.node("ReduceMean", square, axes=[0], keepdims=0), into="std")
    return write_atomically(as_path(path), graph.file(network.sizes[0], network.sizes[-1]))


@dataclass
class _Graph:
    """Operations in their order, and the numbers that they take."""

    onnx: Any
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def constant(self, values: Any, kind: type = np.float64) -> str:
        name = f"constant{len(self.constants)}"
        numbers = np.ascontiguousarray(values.detach().cpu().numpy().astype(kind))
        self.constants.append(self.onnx.numpy_helper.from_array(numbers, name))
        return name

    def node(self, operation: str, *inputs: str, into: str = "", **options: Any) -> str:
        name = into or f"value{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operation, list(inputs), [name], **options))
        return name

    def activation(self, name: str, value: str) -> str:
        found = value
        for operation in ACTIVATIONS.get(name, ()):
            found = self.node(operation, value, found) if operation == "Mul" else self.node(operation, value)
        return found

    def file(self, inputs: int, outputs: int) -> bytes:
        helper, number = self.onnx.helper, self.onnx.TensorProto.DOUBLE
        shapes = {"functions": ["samples", "points", outputs], "mean": ["points", outputs], "std": ["points", outputs]}
        given = [helper.make_tensor_value_info("x", number, ["points", inputs])]
        found = [helper.make_tensor_value_info(name, number, shape) for name, shape in shapes.items()]
        graph = helper.make_graph(self.nodes, "bnnp", given, found, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        self.onnx.checker.check_model(model)
        return model.SerializeToString()
