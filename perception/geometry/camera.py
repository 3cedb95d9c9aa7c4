"""A camera mounted on a vehicle: pixels to rays in the base frame, and base-frame points to pixels.

Frames (REP 103, REP 105): the base frame has x forward, y left, z up, its origin on the ground.
The camera looks along the optical frame's z, with x right and y down.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from perception.errors import InputError
from perception.files import read_yaml

Floats = npt.NDArray[np.float64]

OPTICAL_IN_BODY = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
"""Columns are the optical axes in a body frame that looks along x (REP 103)."""

_COEFFICIENTS = {"plumb_bob": (0, 4, 5), "rational_polynomial": (8,), "equidistant": (4,)}
"""Distortion models of sensor_msgs/CameraInfo and how many coefficients OpenCV takes for each."""

_OVERHANG = 0.02
"""Share of the picture's sides by which a detector's box may lie outside."""


@dataclass(frozen=True, slots=True)
class Mount:
    """Where the camera sits in the base frame.

    x, y: m. z: height above the ground, m. roll, pitch, yaw: rad, fixed axes x, y, z in that
    order, as in URDF; a positive pitch looks down.
    """

    z: float
    x: float = 0.0
    y: float = 0.0
    roll: float = 0.0
    pitch: float = 0.0
    yaw: float = 0.0

    def __post_init__(self) -> None:
        for name in ("x", "y", "z", "roll", "pitch", "yaw"):
            if not math.isfinite(getattr(self, name)):
                raise InputError(f"mount.{name} is {getattr(self, name)}, expected a finite number")
        if not 0.01 <= self.z <= 100.0:
            raise InputError(
                f"mount.z is {self.z}, expected the camera's height above the ground, 0.01 to 100 m"
            )

    @property
    def rotation(self) -> Floats:
        """float64 (3, 3), optical frame to base frame."""
        cr, sr = math.cos(self.roll), math.sin(self.roll)
        cp, sp = math.cos(self.pitch), math.sin(self.pitch)
        cy, sy = math.cos(self.yaw), math.sin(self.yaw)
        about_x = np.array([[1, 0, 0], [0, cr, -sr], [0, sr, cr]])
        about_y = np.array([[cp, 0, sp], [0, 1, 0], [-sp, 0, cp]])
        about_z = np.array([[cy, -sy, 0], [sy, cy, 0], [0, 0, 1]])
        rotation: Floats = about_z @ about_y @ about_x @ OPTICAL_IN_BODY
        return rotation

    @classmethod
    def from_matrix(cls, matrix: npt.ArrayLike) -> Mount:
        """From the transform (4, 4) of coordinates in the optical frame to the base frame.

        Raises InputError when the optical axis points more than 45 degrees above the horizon: that
        is a camera's body frame (x forward), not its optical frame (z forward, y down).
        """
        transform = np.asarray(matrix, dtype=np.float64)
        optical, translation = transform[:3, :3], transform[:3, 3]
        elevation = math.degrees(math.asin(max(-1.0, min(1.0, float(optical[2, 2])))))
        if elevation > 45.0:
            raise InputError(
                f"the camera looks {elevation:.0f} degrees above the horizon, expected the "
                "transform of its optical frame (z forward, x right, y down)"
            )
        body = optical @ OPTICAL_IN_BODY.T
        return cls(
            x=float(translation[0]),
            y=float(translation[1]),
            z=float(translation[2]),
            roll=math.atan2(body[2, 1], body[2, 2]),
            pitch=math.asin(max(-1.0, min(1.0, -body[2, 0]))),
            yaw=math.atan2(body[1, 0], body[0, 0]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Camera:
    """Pinhole camera with lens distortion on a mount.

    width, height: pixels. matrix: float64 (3, 3), K in pixels. distortion: OpenCV's coefficients,
    possibly empty. model: a distortion model of sensor_msgs/CameraInfo.
    """

    width: int
    height: int
    matrix: Floats
    distortion: Floats
    mount: Mount
    model: str = "plumb_bob"

    def __post_init__(self) -> None:
        if self.width <= 0 or self.height <= 0:
            raise InputError(f"picture size is {self.width}x{self.height}, expected positive sizes")
        if self.matrix.shape != (3, 3) or not np.isfinite(self.matrix).all():
            raise InputError(f"camera matrix is {self.matrix.tolist()}, expected 3 x 3 numbers")
        if self.matrix[0, 0] <= 0 or self.matrix[1, 1] <= 0:
            raise InputError(
                f"focal lengths are {self.matrix[0, 0]:g}, {self.matrix[1, 1]:g}, expected "
                "positive pixels (is the camera calibrated?)"
            )
        if self.model not in _COEFFICIENTS:
            raise InputError(
                f"distortion model is {self.model!r}, expected one of {', '.join(_COEFFICIENTS)}"
            )
        counts = _COEFFICIENTS[self.model]
        if self.distortion.shape not in [(count,) for count in counts]:
            raise InputError(
                f"distortion has {self.distortion.size} coefficients, expected "
                f"{' or '.join(map(str, counts))} for {self.model}"
            )
        if not np.isfinite(self.distortion).all():
            raise InputError(f"distortion is {self.distortion.tolist()}, expected finite numbers")

    @classmethod
    def create(
        cls,
        width: int,
        height: int,
        k: npt.ArrayLike,
        d: npt.ArrayLike,
        mount: Mount,
        model: str = "plumb_bob",
    ) -> Camera:
        """From the fields of sensor_msgs/CameraInfo; an empty model means no distortion.

        Raises InputError for an uncalibrated camera (K all zero) and for unknown models.
        """
        matrix = np.asarray(k, dtype=np.float64)
        if matrix.size != 9:
            raise InputError(f"camera matrix has {matrix.size} numbers, expected 9")
        coefficients = np.asarray(d, dtype=np.float64).reshape(-1)
        if model == "":
            coefficients, model = np.zeros(0), "plumb_bob"
        return cls(int(width), int(height), matrix.reshape(3, 3), coefficients, mount, model)

    @classmethod
    def from_yaml(cls, path: str | Path) -> Camera:
        """Read a ROS camera calibration file with one more mapping, `mount`.

        Keys: image_width, image_height, camera_matrix.data, distortion_model,
        distortion_coefficients.data, and mount with z, x, y, roll, pitch, yaw.
        """
        data = read_yaml(path)
        try:
            given = _mapping(data, "mount")
            placed = {key: _number(value, f"mount.{key}") for key, value in given.items()}
            mount = Mount(**placed)
            return cls.create(
                int(_number(data.get("image_width"), "image_width")),
                int(_number(data.get("image_height"), "image_height")),
                _numbers(data, "camera_matrix"),
                _numbers(data, "distortion_coefficients"),
                mount,
                str(data.get("distortion_model", "plumb_bob")),
            )
        except TypeError:
            unknown = sorted(set(data["mount"]) - {"x", "y", "z", "roll", "pitch", "yaw"})
            what = f"unknown key mount.{unknown[0]}" if unknown else "mount.z is missing"
            raise InputError(
                f"{path}: {what}, expected z and maybe x, y, roll, pitch, yaw"
            ) from None
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    def fitted(self, width: int, height: int) -> Camera:
        """The same camera for pictures of another size of the same field of view.

        Raises InputError when the aspect differs by more than rounding, because then the field of
        view does.
        """
        if (width, height) == (self.width, self.height):
            return self
        sx, sy = width / self.width, height / self.height
        if abs(sx - sy) * max(self.width, self.height) > 2.0:
            raise InputError(
                f"calibration is for {self.width}x{self.height}, but pictures are {width}x{height}"
            )
        scale = np.array([[sx], [sy], [1.0]])
        return replace(self, width=width, height=height, matrix=scale * self.matrix)

    def window(
        self, left: int, top: int, width: int, height: int, across: int = 1, down: int = 1
    ) -> Camera:
        """The same camera for pictures of a part of it, `across` x `down` pixels of which are one.

        left, top, width, height: pixels of this camera's picture. As CameraInfo means its ROI and
        binning, which K knows nothing of.
        """
        if width <= 0 or height <= 0 or left + width > self.width or top + height > self.height:
            raise InputError(
                f"region of interest is {width}x{height} at ({left}, {top}), expected a part of "
                f"{self.width}x{self.height}"
            )
        matrix = self.matrix - [[0, 0, left], [0, 0, top], [0, 0, 0]]
        scale = np.array([[1 / across], [1 / down], [1.0]])
        return replace(self, width=width // across, height=height // down, matrix=scale * matrix)

    def shows(self, boxes: npt.ArrayLike) -> bool:
        """Whether boxes, xyxy (N, 4) px, lie in the picture; those that do not are of another.

        A little is allowed for detectors that do not clip.
        """
        corners = np.asarray(boxes, dtype=np.float64).reshape(-1, 2)
        size = np.array([self.width, self.height])
        slack = _OVERHANG * size
        return bool(((corners >= -slack) & (corners <= size + slack)).all())

    @property
    def position(self) -> Floats:
        """float64 (3,), optical centre in the base frame, m."""
        return np.array([self.mount.x, self.mount.y, self.mount.z])

    def rays(self, pixels: npt.ArrayLike) -> Floats:
        """float64 (N, 3): unit directions in the base frame of pixels (N, 2)."""
        points = np.asarray(pixels, dtype=np.float64).reshape(-1, 1, 2)
        if not len(points):
            return np.zeros((0, 3))
        if self.model == "equidistant":
            flat = cv2.fisheye.undistortPoints(points, self.matrix, self.distortion)
        else:
            flat = _undistort(points, self.matrix, self.distortion)
        optical = np.concatenate([flat.reshape(-1, 2), np.ones((len(points), 1))], axis=1)
        optical /= np.linalg.norm(optical, axis=1, keepdims=True)
        directions: Floats = optical @ self.mount.rotation.T
        return directions

    def project(self, points: npt.ArrayLike) -> Floats:
        """float64 (N, 2): pixels of base-frame points (N, 3); NaN behind the camera.

        Pixels may lie outside the picture.
        """
        world = np.asarray(points, dtype=np.float64).reshape(-1, 3)
        optical = (world - self.position) @ self.mount.rotation
        pixels = np.full((len(world), 2), np.nan)
        ahead = optical[:, 2] > 1e-6
        if ahead.any():
            seen = optical[ahead].reshape(-1, 1, 3)
            zero = np.zeros(3)
            if self.model == "equidistant":
                flat, _ = cv2.fisheye.projectPoints(seen, zero, zero, self.matrix, self.distortion)
            else:
                flat, _ = cv2.projectPoints(seen, zero, zero, self.matrix, self.distortion)
            pixels[ahead] = flat.reshape(-1, 2)
        return pixels

    def ground_points(self, pixels: npt.ArrayLike) -> Floats:
        """float64 (N, 2): where the pixels' rays meet the ground, base frame, m; else NaN."""
        rays = self.rays(pixels)
        down = rays[:, 2] < -1e-9
        scale = np.where(down, self.mount.z / np.where(down, -rays[:, 2], 1.0), np.nan)
        points: Floats = self.position[:2] + scale[:, None] * rays[:, :2]
        return points


def _undistort(points: Floats, matrix: Floats, distortion: Floats) -> Any:
    """Normalised coordinates of pixels (N, 1, 2), to convergence.

    OpenCV's default of 5 iterations leaves pixels of error near the picture's edges.
    """
    criteria = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 50, 1e-10)
    before_5 = getattr(cv2, "undistortPointsIter", None)
    if before_5 is not None:
        return before_5(points, matrix, distortion, None, None, criteria)
    return cv2.undistortPoints(points, matrix, distortion, criteria=criteria)


def _mapping(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    if not isinstance(value, Mapping):
        raise InputError(f"{key} is {value!r}, expected a mapping")
    return value


def _numbers(data: Mapping[str, Any], key: str) -> Floats:
    values = _mapping(data, key).get("data")
    if not isinstance(values, list):
        raise InputError(f"{key}.data is {values!r}, expected a list of numbers")
    return np.array([_number(value, f"{key}.data") for value in values])


def _number(value: object, name: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InputError(f"{name} is {value!r}, expected a number")
    return float(value)
