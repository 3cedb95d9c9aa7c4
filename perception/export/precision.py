"""FP16 and INT8 builds of a float32 graph."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16
from onnxruntime.transformers.onnx_model import OnnxModel

from perception.contract import ModelContract
from perception.errors import InputError
from perception.frame import Frame
from perception.runtime.preprocess import Preprocessor


def to_float16(model: onnx.ModelProto) -> onnx.ModelProto:
    """Weights and arithmetic in half precision; inputs and outputs stay float32.

    Resize stays float32 as a whole: its scales must be float32 by the operator's definition, and
    runtimes refuse a file in which they are not.
    """
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    made = convert_float_to_float16(
        copy, keep_io_types=True, op_block_list=sorted({*DEFAULT_OP_BLOCK_LIST, "Resize"})
    )
    # The converter appends its casts at the end; the format asks for every node after its inputs.
    ordered = OnnxModel(made)
    ordered.topological_sort()
    return ordered.model


class _Pictures(CalibrationDataReader):  # type: ignore[misc]
    """Calibration pictures through the production preprocessor, one at a time."""

    def __init__(self, images: Sequence[NDArray[np.uint8]], contract: ModelContract) -> None:
        self._blobs = self._read(images, contract)

    @staticmethod
    def _read(
        images: Sequence[NDArray[np.uint8]], contract: ModelContract
    ) -> Iterator[dict[str, NDArray[np.float32]]]:
        prepare = Preprocessor(contract)
        for image in images:
            blob, _ = prepare([Frame(image)])
            yield {contract.input_name: blob.copy()}

    def get_next(self) -> dict[str, NDArray[np.float32]] | None:
        return next(self._blobs, None)


def to_int8(
    model: onnx.ModelProto, contract: ModelContract, images: Sequence[NDArray[np.uint8]]
) -> onnx.ModelProto:
    """Static QDQ quantisation of the convolutions, per channel.

    Box decoding, sigmoids and the last 1x1 layers stay float: one scale cannot span boxes of
    hundreds of pixels and probabilities. Weights use 7 bits: without VNNI an 8-bit product pair
    saturates. images: BGR uint8 pictures for calibration.
    """
    if not images:
        raise InputError("export: int8 needs pictures to calibrate on")
    logging.getLogger().setLevel(max(logging.getLogger().level, logging.WARNING))
    with tempfile.TemporaryDirectory() as folder:
        source, ready, target = (Path(folder) / name for name in ("a.onnx", "b.onnx", "c.onnx"))
        onnx.save(model, source)
        quant_pre_process(source, ready, skip_symbolic_shape=True)
        quantize_static(
            ready,
            target,
            _Pictures(images, contract),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=["Conv"],
            nodes_to_exclude=last_layers(onnx.load(ready)),
            per_channel=True,
            reduce_range=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            extra_options={"ActivationSymmetric": False},
        )
        made = onnx.load(target)
    # Quantisation drops the metadata; the contract must not be lost with it.
    onnx.helper.set_model_props(made, {p.key: p.value for p in model.metadata_props})
    return made


def last_layers(model: onnx.ModelProto) -> list[str]:
    """Convolutions from which an output is reached without passing another convolution."""
    maker = {output: node for node in model.graph.node for output in node.output}
    found, open_names, seen = set(), [o.name for o in model.graph.output], set()
    while open_names:
        name = open_names.pop()
        node = maker.get(name)
        if node is None or name in seen:
            continue
        seen.add(name)
        if node.op_type == "Conv":
            found.add(node.name)
        else:
            open_names.extend(node.input)
    return sorted(found)
