"""Detections: the one type that every stage hands on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

UNTRACKED = -1


@dataclass(frozen=True, slots=True, eq=False)
class Detections:
    """Objects found in one picture; N may be 0.

    boxes: float32 (N, 4), x1 y1 x2 y2 in pixels of the original image.
    scores: float32 (N,), 0 to 1.
    labels: int64 (N,), index into the model's class names.
    track_ids: int64 (N,), -1 where not tracked.
    velocities: float32 (N, 2), box centre in pixels a second, NaN where unknown.
    valid: False when the picture or the model's output could not be used. Such a result has no
        boxes and must never be read as "nothing there".
    invalid_rows: rows of the model's output dropped because they were not finite.
    reason: why the result is not valid, else empty.
    """

    boxes: npt.NDArray[np.float32]
    scores: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    track_ids: npt.NDArray[np.int64]
    velocities: npt.NDArray[np.float32]
    valid: bool = True
    invalid_rows: int = 0
    reason: str = ""

    def __post_init__(self) -> None:
        count = len(self.boxes)
        expected: dict[str, tuple[tuple[int, ...], type]] = {
            "boxes": ((count, 4), np.float32),
            "scores": ((count,), np.float32),
            "labels": ((count,), np.int64),
            "track_ids": ((count,), np.int64),
            "velocities": ((count, 2), np.float32),
        }
        for name, (shape, dtype) in expected.items():
            array = getattr(self, name)
            if array.shape != shape or array.dtype != dtype:
                raise ValueError(
                    f"Detections.{name} is {array.dtype} {array.shape}, "
                    f"expected {np.dtype(dtype)} {shape}"
                )
        if not self.valid and count:
            raise ValueError("an invalid Detections cannot hold boxes")

    @classmethod
    def create(
        cls,
        boxes: npt.ArrayLike,
        scores: npt.ArrayLike,
        labels: npt.ArrayLike,
        track_ids: npt.ArrayLike | None = None,
        velocities: npt.ArrayLike | None = None,
        *,
        invalid_rows: int = 0,
    ) -> Detections:
        """Build from anything array-like; empty lists become arrays of the right shape."""
        corners = np.asarray(boxes, dtype=np.float32).reshape(-1, 4)
        count = len(corners)
        return cls(
            boxes=corners,
            scores=np.asarray(scores, dtype=np.float32).reshape(-1),
            labels=np.asarray(labels, dtype=np.int64).reshape(-1),
            track_ids=(
                np.full(count, UNTRACKED, dtype=np.int64)
                if track_ids is None
                else np.asarray(track_ids, dtype=np.int64).reshape(-1)
            ),
            velocities=(
                np.full((count, 2), np.nan, dtype=np.float32)
                if velocities is None
                else np.asarray(velocities, dtype=np.float32).reshape(-1, 2)
            ),
            invalid_rows=invalid_rows,
        )

    @classmethod
    def empty(cls) -> Detections:
        """A valid result: the picture was read and nothing was found."""
        return cls.create([], [], [])

    @classmethod
    def failed(cls, reason: str, *, invalid_rows: int = 0) -> Detections:
        """A result that says nothing about the scene, and why."""
        return replace(cls.empty(), valid=False, reason=reason, invalid_rows=invalid_rows)

    def __len__(self) -> int:
        return len(self.boxes)

    def __getitem__(self, index: Any) -> Detections:
        """Rows chosen by a mask, a slice or an index array; validity is kept."""
        return replace(
            self,
            boxes=self.boxes[index].reshape(-1, 4),
            scores=np.atleast_1d(self.scores[index]),
            labels=np.atleast_1d(self.labels[index]),
            track_ids=np.atleast_1d(self.track_ids[index]),
            velocities=self.velocities[index].reshape(-1, 2),
        )

    def with_tracks(
        self, track_ids: npt.ArrayLike, velocities: npt.ArrayLike | None = None
    ) -> Detections:
        """The same rows with track ids int64 (N,) and velocities float32 (N, 2)."""
        return replace(
            self,
            track_ids=np.asarray(track_ids, dtype=np.int64).reshape(-1),
            velocities=(
                self.velocities
                if velocities is None
                else np.asarray(velocities, dtype=np.float32).reshape(-1, 2)
            ),
        )

    @property
    def xywh(self) -> npt.NDArray[np.float32]:
        """float32 (N, 4): left, top, width, height in pixels (the COCO convention)."""
        corners = self.boxes
        return np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1)
