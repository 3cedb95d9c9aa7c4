"""Choose pictures of a recording: by time, topic, motion, or where detectors disagree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import cv2
import numpy as np
import numpy.typing as npt

from perception.datasets.convert import Converted, convert
from perception.datasets.dataset import Dataset
from perception.datasets.sample import Sample
from perception.detections import Detections
from perception.errors import InputError
from perception.frame import Frame
from perception.geometry.boxes import iou_matrix

Detect = Callable[[Frame], Detections]
_SMALL = (64, 36)
MATCH_IOU = 0.5


@dataclass(frozen=True)
class Selection:
    """What to take from a recording; None takes everything.

    start, end: seconds from its first picture. topics: only pictures of these.
    every: least time between two pictures of a topic, seconds.
    motion: mean absolute difference (grey levels, 0 to 255, at 64x36) to the picture taken last on
        the topic, below which a picture shows nothing new.
    disagreement: from which share of unmatched boxes on a picture is taken, 0 to 1.
    boxes: only boxes of these topics, where the recording has boxes of several.
    """

    start: float | None = None
    end: float | None = None
    topics: tuple[str, ...] = ()
    every: float | None = None
    motion: float | None = None
    disagreement: float | None = None
    boxes: tuple[str, ...] = ()


@dataclass
class Chooser:
    """Decides picture by picture, in the order of the recording.

    first, second: detectors whose results are compared; with `second` None the first is compared
    with the boxes that the recording holds. left_out: how many pictures each rule left out.
    """

    dataset: Dataset
    selection: Selection
    first: Detect | None = None
    second: Detect | None = None
    left_out: Counter[str] = field(default_factory=Counter)
    _origin: int | None = None
    _taken: dict[str, int] = field(default_factory=dict)
    _small: dict[str, npt.NDArray[np.int16]] = field(default_factory=dict)

    def __call__(self, sample: Sample) -> Sample | None:
        if self.selection.boxes:
            topics = [item.get("topic", "") for item in sample.box_attributes]
            kept = np.flatnonzero(np.isin(topics, self.selection.boxes))
            sample = sample.chosen(kept.astype(np.int64))
        reason = self._reason(sample)
        if reason:
            self.left_out[reason] += 1
            return None
        self._taken[sample.attributes.get("topic", "")] = sample.stamp_ns
        return sample

    def _reason(self, sample: Sample) -> str:
        """Why a picture is left out, "" when it is taken; the cheap rules come first."""
        wanted, topic = self.selection, sample.attributes.get("topic", "")
        if sample.image is None:
            return "no picture"
        if self._origin is None:
            self._origin = sample.stamp_ns
        seconds = (sample.stamp_ns - self._origin) / 1e9
        if wanted.topics and topic not in wanted.topics:
            return "topic"
        if (wanted.start is not None and seconds < wanted.start) or (
            wanted.end is not None and seconds >= wanted.end
        ):
            return "time"
        last = self._taken.get(topic)
        if (
            wanted.every is not None
            and last is not None
            and (sample.stamp_ns - last < wanted.every * 1e9)
        ):
            return "every"
        if wanted.motion is None and wanted.disagreement is None:
            return ""
        return self._looked_at(sample, topic)

    def _looked_at(self, sample: Sample, topic: str) -> str:
        try:
            frame = self.dataset.load(sample)
        except InputError:
            return "damaged picture"
        wanted = self.selection
        small = None
        if wanted.motion is not None:
            grey = cv2.cvtColor(np.asarray(frame.image, np.uint8), cv2.COLOR_BGR2GRAY)
            small = cv2.resize(grey, _SMALL, interpolation=cv2.INTER_AREA).astype(np.int16)
            before = self._small.get(topic)
            if before is not None and float(np.abs(small - before).mean()) < wanted.motion:
                return "motion"
        if wanted.disagreement is not None and self._disagreement(frame, sample) < (
            wanted.disagreement
        ):
            return "agreement"
        if small is not None:
            self._small[topic] = small
        return ""

    def _disagreement(self, frame: Frame, sample: Sample) -> float:
        assert self.first is not None
        other = sample.truth if self.second is None else self.second(frame)
        return disagreement(self.first(frame), other)


def disagreement(one: Detections, other: Detections) -> float:
    """Share of boxes without a partner (IoU of 0.5, classes not compared), 0 to 1.

    1 when a result is not valid, 0 when both are empty.
    """
    if not (one.valid and other.valid):
        return 1.0
    if not len(one) and not len(other):
        return 0.0
    overlap = iou_matrix(one.boxes, other.boxes)
    matched = 0
    for flat in np.argsort(-overlap, axis=None, kind="stable"):
        a, b = divmod(int(flat), max(1, len(other)))
        if overlap[a, b] < MATCH_IOU:
            break
        overlap[a, :] = overlap[:, b] = -1
        matched += 1
    return 1.0 - 2 * matched / (len(one) + len(other))


def extract(
    dataset: Dataset,
    target: str,
    selection: Selection,
    *,
    first: Detect | None = None,
    second: Detect | None = None,
) -> Converted:
    """Write the chosen pictures and their boxes as `FORMAT:OUT`.

    What each rule left out is counted in the report. Raises InputError when nothing is left, or for
    a topic that the recording does not have.
    """
    if selection.boxes:
        _check_box_topics(dataset, selection.boxes)
    known = {sample.attributes.get("topic", "") for sample in dataset}
    if len(dataset) and not any(known):
        raise InputError(
            f"{dataset.root / dataset[0].source}: has boxes and no pictures, expected an image "
            "topic among the recorded ones"
        )
    for topic in selection.topics:
        if topic not in known:
            raise InputError(
                f"{dataset.root}: no pictures on topic {topic!r}, only on "
                f"{', '.join(sorted(filter(None, known))) or 'none'}"
            )
    if selection.disagreement is not None and first is None:
        raise InputError("--disagreement needs a detector: --model")
    chooser = Chooser(dataset, selection, first, second)
    try:
        done = convert(dataset, target, change=chooser, partial=True)
    except InputError as error:
        if not chooser.left_out or chooser.left_out.total() < len(dataset):
            raise
        rules = ", ".join(f"{n} by the rule {r!r}" for r, n in sorted(chooser.left_out.items()))
        raise InputError(f"{dataset.root}: no picture is left: {rules}") from error
    for reason, count in sorted(chooser.left_out.items()):
        done.report.add("info", "left-out", f"{count} pictures by the rule {reason!r}")
    return done


def _check_box_topics(dataset: Dataset, wanted: tuple[str, ...]) -> None:
    known = {item.get("topic", "") for sample in dataset for item in sample.box_attributes} - {""}
    for topic in wanted:
        if topic not in known:
            has = f"only on {', '.join(sorted(known))}" if known else "its boxes are of one topic"
            raise InputError(f"{dataset.root}: no boxes on topic {topic!r}, {has}")
