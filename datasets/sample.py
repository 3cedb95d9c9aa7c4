"""Sample: one picture of a data set with everything that is known about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.datasets.rows import scalar_text
from perception.detections import Detections


@dataclass(frozen=True, slots=True)
class BagPicture:
    """A picture inside a rosbag2: which storage file, and where its message stands in it.

    Two numbers whose meaning is the storage's: MCAP keeps (offset of the chunk, offset of the
    message in it), sqlite3 keeps (row id, 0).
    """

    bag: Path
    file: str
    offset: int
    inner: int


class Attributes(dict[str, str]):
    """Attributes as text; `typed` has the values as the JSON of the data set has them."""

    def __init__(self, typed: Mapping[str, Any]) -> None:
        super().__init__((key, scalar_text(value)) for key, value in typed.items())
        self.typed = typed


def typed(attributes: Mapping[str, str]) -> dict[str, Any]:
    """Attributes for JSON: numbers and flags where the data set had them, else text."""
    return dict(attributes.typed if isinstance(attributes, Attributes) else attributes)


PER_BOX = (
    "crowd",
    "occlusion",
    "truncation",
    "distance",
    "points",
    "velocity",
    "boxes_3d",
    "area",
    "lines",
)
"""Arrays of a Sample, and columns of a data set, with one row for each box."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One picture and its ground truth; N boxes, K ignore regions, both may be 0.

    name: file name as the data set writes it; id: its identity there (COCO image id, token...).
    image: where the picture is, None when the data set gives no usable place. Not opened here.
    width, height: pixels, 0 when the data set does not say and no picture could be asked.
    truth: boxes in pixels of the picture; labels index `Dataset.names`; scores are 1 where the
        data set has none (`scored` False); track ids; velocities (px/s) are NaN.
    ignore: float32 (K, 4), xyxy: regions in which nothing is labelled and nothing is wrong.
    scored: bool (N,), whether the box came with a score.
    crowd: bool (N,), the box covers a group.
    occlusion, truncation: float32 (N,), hidden share and share outside the picture, 0 to 1, NaN
        unknown.
    distance: float32 (N,), metres from the camera, NaN unknown.
    points: int64 (N,), lidar plus radar points on the object, -1 unknown.
    velocity: float32 (N, 3), m/s in the frame of the data set's poses, NaN unknown.
    boxes_3d: float32 (N, 7), geometric centre x y z, length, height, width (m) and yaw (rad) in the
        camera's optical frame (x right, y down, z forward; yaw about y), NaN unknown.
    area: float64 (N,), square pixels of the object's outline, NaN where only the box is known.
    box_ids: identity of each box in the data set, "" unknown.
    lines: int64 (N,), line of each box in `source`, 0 unknown.
    box_attributes: free attributes of each box.
    stamp_ns: acquisition time in nanoseconds, 0 unknown. frame: number in its sequence, -1 unknown.
    source: label file, relative to the data set's root; line: where the picture begins in it.
    """

    name: str
    image: Path | BagPicture | None
    width: int
    height: int
    truth: Detections
    ignore: npt.NDArray[np.float32]
    scored: npt.NDArray[np.bool_]
    crowd: npt.NDArray[np.bool_]
    occlusion: npt.NDArray[np.float32]
    truncation: npt.NDArray[np.float32]
    distance: npt.NDArray[np.float32]
    points: npt.NDArray[np.int64]
    velocity: npt.NDArray[np.float32]
    boxes_3d: npt.NDArray[np.float32]
    area: npt.NDArray[np.float64]
    box_ids: tuple[str, ...]
    lines: npt.NDArray[np.int64]
    box_attributes: tuple[Mapping[str, str], ...]
    id: str = ""
    split: str = ""
    sequence: str = ""
    camera: str = ""
    frame: int = -1
    stamp_ns: int = 0
    attributes: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    line: int = 0

    def visible(self) -> npt.NDArray[np.bool_]:
        """bool (N,): boxes that a sensor saw; False only where the data set counted 0 points.

        nuScenes scores no box without a lidar or radar point (nuscenes-devkit#405).
        """
        return np.asarray(self.points != 0)

    def chosen(self, rows: npt.NDArray[np.int64]) -> Sample:
        """The sample with only some of its boxes."""
        return replace(
            self,
            truth=self.truth[rows],
            **{name: getattr(self, name)[rows] for name in ("scored", *PER_BOX)},
            box_ids=tuple(self.box_ids[i] for i in rows),
            box_attributes=tuple(self.box_attributes[i] for i in rows),
        )
