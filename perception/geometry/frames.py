"""Static transforms between coordinate frames, as /tf_static tells them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perception.errors import InputError

Floats = npt.NDArray[np.float64]


class StaticFrames:
    """A forest of frames; each has one parent. Nothing here depends on time."""

    def __init__(self) -> None:
        self._parents: dict[str, tuple[str, Floats]] = {}

    def add(
        self, parent: str, child: str, translation: Sequence[float], quaternion: Sequence[float]
    ) -> None:
        """Where `child` is in `parent`: translation x y z in m, quaternion x y z w.

        A new one takes the place of what was known of `child`, also when it is unusable: then
        InputError is raised, and `child` has no place.
        """
        parent, child = parent.removeprefix("/"), child.removeprefix("/")
        self._parents.pop(child, None)
        numbers = [float(value) for value in (*translation, *quaternion)]
        norm = math.sqrt(sum(value * value for value in numbers[3:]))
        # tf2 refuses quaternions off by more than this.
        if not all(map(math.isfinite, numbers)) or abs(norm - 1.0) > 0.01:
            raise InputError(
                f"the transform from {parent!r} to {child!r} is {numbers}, expected x y z and a "
                "unit quaternion x y z w"
            )
        matrix = np.eye(4)
        matrix[:3, :3] = _rotation(*(value / norm for value in numbers[3:]))
        matrix[:3, 3] = numbers[:3]
        self._parents[child] = (parent, matrix)

    def between(self, base: str, frame: str) -> Floats:
        """float64 (4, 4): coordinates in `frame` to coordinates in `base`.

        Raises InputError when static transforms do not connect the two.
        """
        base_root, to_base = self._to_root(base.removeprefix("/"))
        frame_root, to_frame = self._to_root(frame.removeprefix("/"))
        if base_root != frame_root:
            raise InputError(
                f"no static transform from {base!r} to {frame!r}: the one ends at {base_root!r}, "
                f"the other at {frame_root!r}"
            )
        matrix: Floats = np.linalg.inv(to_base) @ to_frame
        return matrix

    def _to_root(self, frame: str) -> tuple[str, Floats]:
        matrix = np.eye(4)
        seen = {frame}
        while frame in self._parents:
            frame, step = self._parents[frame]
            matrix = step @ matrix
            if frame in seen:
                raise InputError(f"the static transforms go in a circle at {frame!r}")
            seen.add(frame)
        return frame, matrix


def _rotation(x: float, y: float, z: float, w: float) -> Floats:
    """float64 (3, 3) of a unit quaternion."""
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )
