"""The precision gate: which build of a model is worth shipping on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from perception.contract import ModelContract
from perception.detections import Detections
from perception.export.show import measure
from perception.models.settings import ModelSettings
from perception.runtime.detector import Detector
from perception.runtime.session import Session
from perception.train.sets import Picture
from perception.train.validate import channel_ap


@dataclass(frozen=True, slots=True)
class Build:
    """One candidate file and what it measured: p50 in ms, AP50 of the first ranking channel."""

    precision: str
    model: onnx.ModelProto
    milliseconds: float
    ap50: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a build is kept or refused."""

    precision: str
    milliseconds: float
    ap50: float
    kept: bool
    reason: str

    def to_plain(self) -> dict[str, Any]:
        """For JSON; AP that could not be measured is null."""
        return {**asdict(self), "ap50": None if np.isnan(self.ap50) else self.ap50}


def choose(builds: Sequence[Build], max_ap_loss: float) -> list[Verdict]:
    """Verdict on each build; exactly one is kept.

    builds: float32 first. A build must lose less than `max_ap_loss` AP50 against it and be faster;
    the fastest of those is kept, else float32. A figure that is NaN never wins.
    """
    base = builds[0]
    good = [
        b
        for b in builds[1:]
        if b.milliseconds < base.milliseconds and base.ap50 - b.ap50 < max_ap_loss
    ]
    winner = min(good, key=lambda b: b.milliseconds, default=base)
    return [
        Verdict(
            b.precision, b.milliseconds, b.ap50, b is winner, _reason(b, base, winner, max_ap_loss)
        )
        for b in builds
    ]


def _reason(build: Build, base: Build, winner: Build, max_ap_loss: float) -> str:
    if build is winner:
        return (
            "fastest within the allowed loss" if build is not base else "nothing faster kept its AP"
        )
    if build is base:
        return f"{winner.precision} is faster and loses {base.ap50 - winner.ap50:.4f} AP50"
    reasons = []
    if not base.ap50 - build.ap50 < max_ap_loss:
        reasons.append(f"loses {base.ap50 - build.ap50:.4f} AP50, allowed below {max_ap_loss}")
    if not build.milliseconds < base.milliseconds:
        reasons.append(
            f"{build.milliseconds:.2f} ms is not faster than float32's {base.milliseconds:.2f} ms"
        )
    return "; ".join(reasons) or f"slower than {winner.precision}"


def measure_build(
    precision: str,
    model: onnx.ModelProto,
    contract: ModelContract,
    settings: ModelSettings,
    pictures: Sequence[Picture],
    images: Sequence[NDArray[np.uint8]],
    runs: int = 60,
) -> Build:
    """Latency of the network alone and AP50 through the Detector, on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model.SerializeToString())
        session = Session(path)
        shape = {contract.input_name: (1, 3, contract.height, contract.width)}
        milliseconds = measure(session, shape, runs)["p50"]
        detector = Detector(path, score_threshold=0.02)
        found: list[Detections] = [detector(image) for image in images]
    ap50, _ = channel_ap(pictures, found, settings, settings.channels[0])
    return Build(precision, model, milliseconds, ap50)
