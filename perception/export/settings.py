"""Settings of an export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Form = Literal["decoded", "raw", "e2e"]
Precision = Literal["float32", "float16", "int8", "auto"]


@dataclass(frozen=True)
class ExportSettings:
    """What file is written.

    form: "decoded" (boxes and scores of every anchor), "raw" (one tensor a level, for other
        decoders) or "e2e" (the best `max_detections` rows, still before NMS).
    precision: "float32", "float16", "int8", or "auto": the fastest on this machine that loses
        less than `max_ap_loss` AP in every channel.
    width, height: network input in pixels; 0 takes the run's.
    resize: how the runtime fits pictures ("letterbox", "letterbox_topleft", "stretch").
    opset: 17 is read by every runtime this project names; ONNX Runtime's static quantisation
        rejects 21 and above.
    max_batch: largest batch the contract allows. max_detections: rows of "e2e".
    score_tolerance, box_tolerance (pixels of the original picture): largest difference between
        torch and ONNX Runtime on real pictures; beyond it no file is written.
    max_ap_loss: AP50 points (0..1) a build may lose against float32 in any ranking channel that a
        validation set labels.
    calibration: pictures for int8.
    """

    form: Form = "decoded"
    precision: Precision = "float32"
    width: int = 0
    height: int = 0
    resize: Literal["letterbox", "letterbox_topleft", "stretch"] = "letterbox"
    opset: int = 17
    max_batch: int = 16
    max_detections: int = 300
    score_tolerance: float = 1e-3
    box_tolerance: float = 0.5
    max_ap_loss: float = 0.005
    calibration: int = 300
