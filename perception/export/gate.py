"""The precision gate: which build of a model is worth shipping on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
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

#: Pictures on which the builds are scored.
SCORED = 150
#: Pictures of these that show an object of a channel, however rare it is.
RARE = 30


@dataclass(frozen=True, slots=True)
class Build:
    """One candidate file and what it measured: p50 in ms, AP50 of every measured channel."""

    precision: str
    model: onnx.ModelProto
    milliseconds: float
    ap50: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a build is kept or refused."""

    precision: str
    milliseconds: float
    ap50: Mapping[str, float]
    kept: bool
    reason: str

    @classmethod
    def not_made(cls, precision: str, reason: str) -> Verdict:
        """For a build that its converter could not make."""
        return cls(precision, float("nan"), {}, False, f"cannot be made of this graph: {reason}")

    def to_plain(self) -> dict[str, Any]:
        """For JSON; what could not be measured is null."""
        ap50 = {channel: None if np.isnan(ap) else ap for channel, ap in self.ap50.items()}
        milliseconds = None if np.isnan(self.milliseconds) else self.milliseconds
        return {**asdict(self), "ap50": ap50, "milliseconds": milliseconds}


@dataclass(frozen=True, slots=True)
class Loss:
    """What a build loses against float32 in the channel where it loses most."""

    ap50: float
    channel: str

    def __str__(self) -> str:
        if np.isnan(self.ap50):
            return f"AP50 of {self.channel} not measured" if self.channel else "AP50 not measured"
        return f"loses {self.ap50:.4f} AP50 of {self.channel}"


def worst_loss(base: Build, build: Build) -> Loss:
    """The largest loss of AP50 in any channel; NaN where one or all are not measured."""
    losses = [
        Loss(base.ap50[channel] - build.ap50.get(channel, float("nan")), channel)
        for channel in base.ap50
    ]
    unknown = [loss for loss in losses if np.isnan(loss.ap50)]
    if unknown or not losses:
        return unknown[0] if unknown else Loss(float("nan"), "")
    return max(losses, key=lambda loss: loss.ap50)


def choose(builds: Sequence[Build], max_ap_loss: float) -> list[Verdict]:
    """Verdict on each build; exactly one is kept.

    builds: float32 first. A build must lose less than `max_ap_loss` AP50 against it in every
    channel and be faster; the fastest of those is kept, else float32. A figure that is NaN never
    wins.
    """
    base = builds[0]
    good = [
        b
        for b in builds[1:]
        if b.milliseconds < base.milliseconds and worst_loss(base, b).ap50 < max_ap_loss
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
        return f"{winner.precision} is faster and {worst_loss(base, winner)}"
    reasons = []
    loss = worst_loss(base, build)
    if not loss.ap50 < max_ap_loss:
        reasons.append(f"{loss}, allowed below {max_ap_loss}")
    if not build.milliseconds < base.milliseconds:
        reasons.append(
            f"{build.milliseconds:.2f} ms is not faster than float32's {base.milliseconds:.2f} ms"
        )
    return "; ".join(reasons) or f"slower than {winner.precision}"


def pictures_to_score(pictures: Sequence[Picture], settings: ModelSettings) -> list[Picture]:
    """About SCORED pictures spread evenly, and about RARE that show each channel's objects."""
    chosen = set(range(0, len(pictures), max(1, len(pictures) // SCORED)))
    for index in range(len(settings.channels)):
        showing = [i for i, picture in enumerate(pictures) if picture.shows(index, settings)]
        chosen.update(showing[:: max(1, len(showing) // RARE)])
    return [pictures[i] for i in sorted(chosen)]


def measure_build(
    precision: str,
    model: onnx.ModelProto,
    contract: ModelContract,
    settings: ModelSettings,
    pictures: Sequence[Picture],
    images: Sequence[NDArray[np.uint8]],
    runs: int = 60,
) -> Build:
    """Latency of the network alone and AP50 through the Detector, on this machine.

    A channel is measured on the pictures that label it completely, if they show it at all.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model.SerializeToString())
        session = Session(path)
        shape = {contract.input_name: (1, 3, contract.height, contract.width)}
        milliseconds = measure(session, shape, runs)["p50"]
        detector = Detector(path, score_threshold=0.02)
        found: list[Detections] = [detector(image) for image in images]
    scores = {}
    for index, channel in enumerate(settings.channels):
        labelled = [i for i, picture in enumerate(pictures) if picture.labels_all(index)]
        scores[channel], _ = channel_ap(
            [pictures[i] for i in labelled], [found[i] for i in labelled], settings, channel
        )
    measured = {channel: ap for channel, ap in scores.items() if np.isfinite(ap)}
    return Build(precision, model, milliseconds, measured)
