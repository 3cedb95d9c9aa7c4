"""Scores of what the nodes made of a bag, where the bag holds ground truth.

A picture and its truth belong together when their header stamps and frame ids are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from perception.datasets import Dataset, Sample
from perception.datasets.bags import Bag
from perception.datasets.formats.rosbag2 import DETECTIONS, TRUTH, header_of
from perception.detections import Detections
from perception.evaluate import coco, samples, tracks
from perception.evaluate.coco import CocoResult
from perception.evaluate.tracks import TrackResult


class Step(Protocol):
    """What the nodes made of one picture; tracks are None where the graph tracks nothing."""

    @property
    def stamp_ns(self) -> int: ...
    @property
    def frame_id(self) -> str: ...
    @property
    def detections(self) -> Detections: ...
    @property
    def tracks(self) -> Detections | None: ...


@dataclass(frozen=True, slots=True)
class BagScore:
    """Figures of a replay. tracking: camera -> figures, where truth and results have track ids.

    without_truth: pictures that the bag has no ground truth for; they are not scored.
    without_picture: truth of pictures that are not in the bag; it is not scored.
    """

    detection: CocoResult
    tracking: dict[str, TrackResult]
    scored: int
    without_truth: int
    without_picture: int

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values."""
        return {
            "detection": self.detection.to_json(),
            "tracking": {camera: asdict(item) for camera, item in self.tracking.items()},
            "scored": self.scored,
            "without_truth": self.without_truth,
            "without_picture": self.without_picture,
        }


def truth_stamps(bag: Bag) -> frozenset[int]:
    """Stamps (ns) of the ground-truth messages, empty ones included; none when there is no truth.

    A picture without such a message is not labelled, which is not the same as empty.
    """
    named = frozenset(
        topic.name
        for topic in bag.topics.values()
        if topic.type == DETECTIONS and TRUTH.search(topic.name)
    )
    messages = bag.messages(named) if named else ()
    return frozenset(header_of(item.data)[0] or item.log_time_ns for item in messages)


def score(
    steps: Sequence[Step], names: Sequence[str], truth: Dataset, stamps: frozenset[int]
) -> BagScore:
    """Score detections, and tracks where both sides have them.

    names: the detector's class names. truth: the bag opened as a data set; stamps: those of its
    ground truth. Raises InputError for an object of a class that the detector does not have.
    """
    labelled = {
        (sample.stamp_ns, sample.camera): sample for sample in truth if sample.stamp_ns in stamps
    }
    pairs = [
        (step, labelled[step.stamp_ns, step.frame_id])
        for step in steps
        if (step.stamp_ns, step.frame_id) in labelled
    ]
    tables = samples.tables(
        [sample for _, sample in pairs],
        [step.detections for step, _ in pairs],
        tuple(truth.names),
        names,
    )
    known = {(step.stamp_ns, step.frame_id) for step in steps}
    return BagScore(
        detection=coco.evaluate(tables),
        tracking=_tracking(pairs),
        scored=len(pairs),
        without_truth=len(steps) - len(pairs),
        without_picture=sum(key not in known for key in labelled),
    )


def _tracking(pairs: Sequence[tuple[Step, Sample]]) -> dict[str, TrackResult]:
    """Figures of each camera, classes not told apart: a car tracked as a truck is tracked."""
    results = {}
    for camera in sorted({sample.camera for _, sample in pairs}):
        own = [(sample.truth, step.tracks) for step, sample in pairs if sample.camera == camera]
        truth = [objects for objects, _ in own]
        found = [item for _, item in own if item is not None]
        tracked = any((objects.track_ids >= 0).any() for objects in truth)
        if tracked and len(found) == len(own):
            results[camera] = tracks.evaluate(tracks.table(truth), tracks.table(found))
    return results


def rows(step: Step, names: Sequence[str]) -> dict[str, Any]:
    """One picture's result as JSON-ready values, numbers as short as float32 allows."""
    return {
        "stamp_ns": step.stamp_ns,
        "frame_id": step.frame_id,
        "valid": step.detections.valid,
        "detections": _objects(step.detections, names),
        "tracks": None if step.tracks is None else _objects(step.tracks, names),
    }


def _objects(detections: Detections, names: Sequence[str]) -> list[dict[str, Any]]:
    boxes = detections.boxes.astype(np.str_).astype(np.float64).tolist()
    scores = detections.scores.astype(np.str_).astype(np.float64).tolist()
    columns = zip(
        boxes, scores, detections.labels.tolist(), detections.track_ids.tolist(), strict=True
    )
    return [
        {"class": names[label], "score": value, "box": box, "track_id": track}
        for box, value, label, track in columns
    ]
