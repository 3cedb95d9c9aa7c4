"""Writing an ONNX file with its contract inside."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import onnx
import torch
from onnx import shape_inference

from perception.contract import METADATA_KEY, ModelContract
from perception.errors import InputError
from perception.export.graph import Exported, ExportedAdapter
from perception.files import atomic_path


def trace(
    module: Exported | ExportedAdapter, contract: ModelContract, opset: int
) -> onnx.ModelProto:
    """The ONNX graph of a module, dynamic in the batch, contract in its metadata."""
    # Traced with two pictures: a batch of one invites the tracer to fold the batch dimension.
    dynamic = contract.max_batch > 1
    example = torch.zeros(1 + dynamic, 3, contract.height, contract.width)
    names = module.output_names
    open_sizes = {name: {0: "batch"} for name in (contract.input_name, *names)} if dynamic else {}
    buffer = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        # The tracing exporter writes opset 17 for this graph without control flow and needs no
        # further package; its deprecation is not the user's concern.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(),
            (example,),
            buffer,
            dynamo=False,
            opset_version=opset,
            input_names=[contract.input_name],
            output_names=names,
            dynamic_axes=open_sizes,
        )
    model = onnx.load_from_string(buffer.getvalue())
    embed(model, contract)
    return model


def embed(model: onnx.ModelProto, contract: ModelContract) -> None:
    """Stores the contract; replaces one that is there.

    InputError when the contract names another number of classes than the graph gives.
    """
    shaped = shape_inference.infer_shapes(model, data_prop=True)
    scores = next((o for o in shaped.graph.output if o.name == "scores"), None)
    if scores is not None and scores.type.tensor_type.shape.dim:
        classes = scores.type.tensor_type.shape.dim[-1].dim_value
        if classes and classes != len(contract.names):
            raise InputError(
                f"export: the network gives {classes} classes, but {len(contract.names)} names are "
                f"given: {', '.join(contract.names)}"
            )
    kept = [(p.key, p.value) for p in model.metadata_props if p.key != METADATA_KEY]
    onnx.helper.set_model_props(model, {**dict(kept), METADATA_KEY: contract.to_json()})


def save(model: onnx.ModelProto, path: Path) -> None:
    """Checks the graph, then writes the file whole or not at all."""
    onnx.checker.check_model(model, full_check=True)
    with atomic_path(path) as temporary:
        temporary.write_bytes(model.SerializeToString())
