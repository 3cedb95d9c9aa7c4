"""Small ONNX files for tests: one that really looks at the picture, and ones of fixed outputs."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from perception.contract import METADATA_KEY, ModelContract

OPSET = 17
IR_VERSION = 10


def save(path: Path, graph: onnx.GraphProto, contract: ModelContract | None) -> Path:
    """Write a checked model, with the contract in its metadata when there is one."""
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    if contract is not None:
        helper.set_model_props(model, {METADATA_KEY: contract.to_json()})
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    return path


def bright_cell_detector(
    path: Path,
    *,
    width: int = 64,
    height: int = 48,
    cell: int = 16,
    names: tuple[str, ...] = ("bright", "dark"),
) -> Path:
    """A detector of bright cells: each cell's box is fixed, its score its mean brightness 0 to 1.

    Class 0 scores the brightness; further classes score 0. It follows the "decoded" convention
    with a dynamic batch.
    """
    contract = ModelContract(
        names=names, width=width, height=height, score_threshold=0.5, strides=(cell,)
    )
    rows, columns = height // cell, width // cell
    y, x = np.mgrid[:rows, :columns].reshape(2, -1) * float(cell)
    boxes = np.stack([x, y, x + cell, y + cell], 1).astype(np.float32)[None]
    one_class = np.zeros((1, 1, len(names)), np.float32)
    one_class[..., 0] = 1.0
    nodes = [
        helper.make_node("ReduceMean", ["images"], ["grey"], axes=[1], keepdims=1),
        helper.make_node(
            "AveragePool", ["grey"], ["mean"], kernel_shape=[cell, cell], strides=[cell, cell]
        ),
        helper.make_node("Reshape", ["mean", "shape"], ["column"]),
        helper.make_node("Mul", ["column", "one_class"], ["scores"]),
        helper.make_node("Mul", ["column", "zero"], ["nothing"]),
        helper.make_node("Add", ["nothing", "cells"], ["boxes"]),
    ]
    constants = {
        "shape": np.array([0, -1, 1], np.int64),
        "one_class": one_class,
        "zero": np.zeros(1, np.float32),
        "cells": boxes,
    }
    graph = helper.make_graph(
        nodes,
        "bright_cells",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, height, width])],
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, ["batch", len(boxes[0]), 4]),
            helper.make_tensor_value_info(
                "scores", TensorProto.FLOAT, ["batch", len(boxes[0]), len(names)]
            ),
        ],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return save(path, graph, contract)


def fixed_outputs(
    path: Path, contract: ModelContract | None, outputs: Mapping[str, np.ndarray]
) -> Path:
    """A model whose outputs are constants, whatever picture it gets (batch 1)."""
    size = (contract.height, contract.width) if contract else (48, 64)
    nodes, values, constants = [], [], []
    for name, value in outputs.items():
        constants.append(numpy_helper.from_array(value.astype(np.float32), f"{name}_value"))
        nodes.append(helper.make_node("Identity", [f"{name}_value"], [name]))
        values.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(value.shape)))
    picture = helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, *size])
    graph = helper.make_graph(nodes, "fixed", [picture], values, constants)
    return save(path, graph, contract)
