"""A working detector that takes its time, for tests of what happens meanwhile."""

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.onnx_models import bright_cell_detector

SIDE = 768


def slow_detector(path: Path, products: int = 6) -> Path:
    """The bright-cell detector behind a chain of matrix products whose outcome is not used."""
    model = onnx.load(str(bright_cell_detector(path)))
    graph = model.graph
    weights = np.full((SIDE, SIDE), 1.0 / SIDE, np.float32)
    graph.initializer.append(numpy_helper.from_array(weights, "ballast"))
    graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.float32), "nil"))
    chain = [
        helper.make_node("ReduceMean", ["images"], ["ballast_scale"], keepdims=0),
        helper.make_node("Mul", ["ballast", "ballast_scale"], ["ballast_0"]),
    ]
    for number in range(products):
        names = [f"ballast_{number}", "ballast"], [f"ballast_{number + 1}"]
        chain.append(helper.make_node("MatMul", *names))
    chain += [
        helper.make_node("ReduceMean", [f"ballast_{products}"], ["ballast_mean"], keepdims=0),
        helper.make_node("Mul", ["ballast_mean", "nil"], ["ballast_nothing"]),
        helper.make_node("Add", ["images", "ballast_nothing"], ["images_after"]),
    ]
    for node in graph.node:
        node.input[:] = ["images_after" if name == "images" else name for name in node.input]
    kept = list(graph.node)
    del graph.node[:]
    graph.node.extend(chain + kept)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    return path
