"""From a training run to a verified ONNX file."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import onnx
from numpy.typing import NDArray
from torch import nn

from perception.contract import ModelContract
from perception.errors import InputError
from perception.export.graph import Exported, ExportedAdapter
from perception.export.onnx_file import trace
from perception.export.settings import ExportSettings
from perception.models import make_network
from perception.models.network import Network
from perception.models.settings import ModelSettings
from perception.sources import read_bgr
from perception.train.settings import RunSettings, build
from perception.train.trainer import read_checkpoint


def load_run(path: Path) -> tuple[nn.Module, RunSettings]:
    """The averaged network of a run (folder or checkpoint) and its settings."""
    if path.is_dir():
        names = ("best.pt", "last.pt")
        found = [path / name for name in names if (path / name).is_file()]
        if not found:
            raise InputError(f"{path}: no checkpoint ({' or '.join(names)}) in this folder")
        path = found[0]
    elif not path.is_file():
        raise InputError(f"{path}: no such run or checkpoint")
    state = read_checkpoint(path)
    settings = build(RunSettings, json.loads(state["settings"]), str(path))
    network = make_network(settings.model)
    try:
        network.load_state_dict(state["average"])
    except RuntimeError as error:
        text = " ".join(str(error).split())[:200]
        raise InputError(f"{path}: weights do not fit its settings: {text}") from None
    return network.eval(), settings


def make_contract(
    model: ModelSettings, settings: ExportSettings, provenance: dict[str, str]
) -> ModelContract:
    """What the exported file says about itself."""
    width, height = settings.width or model.width, settings.height or model.height
    for name, value in (("width", width), ("height", height)):
        if value % 32:
            raise InputError(f"export: {name} is {value}, expected a multiple of 32")
    return ModelContract(
        names=model.names,
        width=width,
        height=height,
        resize=settings.resize,
        convention=settings.form,
        max_batch=settings.max_batch,
        max_detections=settings.max_detections,
        exclusive=model.group,
        provenance=provenance,
    )


def make_float32(
    network: nn.Module, settings: ExportSettings, provenance: dict[str, str]
) -> tuple[Exported | ExportedAdapter, onnx.ModelProto, ModelContract]:
    """The float32 build, not yet verified."""
    contract = make_contract(cast(Network, network).settings, settings, provenance)
    if not isinstance(network, Network):
        return _make_adapter(network, settings, contract)
    module = Exported(
        network, settings.form, contract.width, contract.height, settings.max_detections
    ).eval()
    return module, trace(module, contract, settings.opset), contract


def _make_adapter(
    network: nn.Module, settings: ExportSettings, contract: ModelContract
) -> tuple[ExportedAdapter, onnx.ModelProto, ModelContract]:
    """torchvision's detectors loop over pictures in Python: their graph holds exactly one."""
    if settings.form != "decoded":
        raise InputError(
            f"export: form {settings.form} is not offered for torchvision's detectors, use decoded"
        )
    contract = dataclasses.replace(contract, max_batch=1)
    module = ExportedAdapter(network)
    return module, trace(module, contract, settings.opset), contract


def read_pictures(files: Sequence[Path], limit: int) -> list[NDArray[np.uint8]]:
    """Up to `limit` pictures, spread evenly over the files; BGR. InputError names a damaged one."""
    step = max(1, len(files) // max(1, limit))
    return [read_bgr(file) for file in list(files)[::step][:limit]]
