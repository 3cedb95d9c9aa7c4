"""Fitting a picture into the network's input, and the exact way back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
import numpy.typing as npt

from perception.errors import InputError
from perception.geometry.boxes import clip_boxes

ResizeRule = Literal["letterbox", "letterbox_topleft", "stretch"]


@dataclass(frozen=True, slots=True)
class Resize:
    """How one picture lies in the network's input.

    source, target: (width, height) in pixels. inner: size of the picture inside the target.
    pad_left, pad_top: whole pixels of padding before it. The scale is inner / source on each
    axis, which is what the resampling really did after rounding to whole pixels, so
    to_original is the exact inverse for any size.
    """

    source: tuple[int, int]
    target: tuple[int, int]
    inner: tuple[int, int]
    pad_left: int
    pad_top: int

    @classmethod
    def plan(cls, source: tuple[int, int], target: tuple[int, int], rule: ResizeRule) -> Resize:
        """Plan for a picture of `source` (width, height); raises InputError for an empty one."""
        if min(source) < 1:
            raise InputError(f"picture is {source[0]}x{source[1]} pixels, expected at least 1x1")
        if rule == "stretch":
            return cls(source, target, target, 0, 0)
        ratio = min(target[0] / source[0], target[1] / source[1])
        inner = (
            min(target[0], max(1, round(source[0] * ratio))),
            min(target[1], max(1, round(source[1] * ratio))),
        )
        if rule == "letterbox_topleft":
            return cls(source, target, inner, 0, 0)
        return cls(source, target, inner, (target[0] - inner[0]) // 2, (target[1] - inner[1]) // 2)

    @property
    def scale(self) -> tuple[float, float]:
        """Network pixels per original pixel, (x, y)."""
        return self.inner[0] / self.source[0], self.inner[1] / self.source[1]

    def apply(
        self,
        image: npt.NDArray[np.uint8],
        pad_value: int,
        out: npt.NDArray[np.uint8] | None = None,
    ) -> npt.NDArray[np.uint8]:
        """uint8 (H, W, 3) of the source size to uint8 (target height, target width, 3).

        With `out` the result is written there; its padding must already hold pad_value.
        """
        if out is None:
            out = np.full((self.target[1], self.target[0], 3), pad_value, dtype=np.uint8)
        rows = slice(self.pad_top, self.pad_top + self.inner[1])
        columns = slice(self.pad_left, self.pad_left + self.inner[0])
        if self.inner == self.source:
            out[rows, columns] = image
        else:
            # Bilinear: area averaging costs several times as much at these sizes, and training
            # uses the same rule, so the network knows its aliasing.
            cv2.resize(image, self.inner, dst=out[rows, columns], interpolation=cv2.INTER_LINEAR)
        return out

    def to_original(self, boxes: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Boxes (N, 4) xyxy in network pixels to float32 original pixels, clipped."""
        corners = np.asarray(boxes, dtype=np.float32).reshape(-1, 4)
        scale_x, scale_y = self.scale
        offset = np.array([self.pad_left, self.pad_top] * 2, dtype=np.float32)
        scale = np.array([scale_x, scale_y] * 2, dtype=np.float32)
        return clip_boxes((corners - offset) / scale, *self.source)

    def to_network(self, boxes: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Boxes (N, 4) xyxy in original pixels to float32 network pixels."""
        corners = np.asarray(boxes, dtype=np.float32).reshape(-1, 4)
        scale_x, scale_y = self.scale
        offset = np.array([self.pad_left, self.pad_top] * 2, dtype=np.float32)
        return corners * np.array([scale_x, scale_y] * 2, dtype=np.float32) + offset
