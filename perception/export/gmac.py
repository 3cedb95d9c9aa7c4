"""Parameters and multiply-accumulate operations of an ONNX graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import onnx
from onnx import shape_inference


@dataclass(frozen=True, slots=True)
class Layer:
    """One Conv, Gemm or MatMul: output shape (batch 1), parameters, multiply-accumulates."""

    name: str
    kind: str
    shape: tuple[int, ...]
    parameters: int
    macs: int


def layers(model: onnx.ModelProto, inputs: dict[str, Sequence[int]]) -> list[Layer]:
    """Layers that multiply, in graph order, for the given input shapes.

    One multiply-accumulate is one MAC; papers that print "FLOPs" mean either this or twice it.
    """
    model = onnx.ModelProto.FromString(model.SerializeToString())
    for value in model.graph.input:
        for dim, size in zip(
            value.type.tensor_type.shape.dim, inputs.get(value.name, ()), strict=False
        ):
            dim.dim_value = size
    for output in model.graph.output:
        # A symbolic batch declared on the outputs would contradict the fixed one.
        output.type.tensor_type.ClearField("shape")
    inferred = shape_inference.infer_shapes(model, data_prop=True)
    shapes = {
        value.name: tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
        for value in (*inferred.graph.value_info, *inferred.graph.output, *inferred.graph.input)
    }
    weights = {t.name: tuple(t.dims) for t in model.graph.initializer}
    # Equal tensors are shared through Identity nodes, quantised ones pass DequantizeLinear.
    for node in model.graph.node:
        if node.op_type in ("Identity", "DequantizeLinear") and node.input[0] in weights:
            weights[node.output[0]] = weights[node.input[0]]
    found = []
    for node in model.graph.node:
        if node.op_type not in ("Conv", "Gemm", "MatMul") or not node.output[0]:
            continue
        own = [weights[name] for name in node.input[1:] if name in weights]
        shape = shapes.get(node.output[0], ())
        kernel = own[0] if own else ()
        if node.op_type == "Conv":
            macs = prod(shape) * prod(kernel[1:]) if kernel else 0
        else:
            inner = shapes.get(node.input[0], weights.get(node.input[0], ()))
            macs = prod(shape) * (inner[-1] if inner else 0)
        found.append(Layer(node.name, node.op_type, shape, sum(prod(s) for s in own), macs))
    return found


def parameter_count(model: onnx.ModelProto) -> int:
    """Numbers in floating-point or quantised weights (constants of shape arithmetic left out)."""
    kinds = (
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.FLOAT16,
        onnx.TensorProto.INT8,
        onnx.TensorProto.UINT8,
    )
    return sum(prod(t.dims) for t in model.graph.initializer if t.data_type in kinds)
