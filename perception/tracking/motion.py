"""Constant-velocity Kalman filter in seconds, for all tracks at once.

State of a track: box centre and size (cx, cy, w, h) in pixels and their rates in pixels a second.
The model is the continuous white-noise acceleration model of Bar-Shalom, Li and Kirubarajan,
"Estimation with Applications to Tracking and Navigation" (2001), section 6.2.2: its process noise
is a function of the time step, so that one step of 0.1 s and eighteen of 1/180 s agree.

All noises are in proportion to the size of the box, as in DeepSORT (Wojke et al., 2017, section
2.1), because a detector's error and an object's acceleration in pixels both grow with it. The four
components share one noise and do not influence each other, so that one 2x2 covariance serves a
track and no matrix is inverted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Standard deviations in box sizes, size being sqrt(w h) of the box.
MEASUREMENT = 0.05  # of a detected centre or side; 3 to 6 % for detectors of this kind
ACCELERATION = 2.0  # rate of change of velocity, sizes per s per sqrt(s)
INITIAL_RATE = 3.0  # sizes a second: a car crossing at 50 km/h makes three of its lengths
_SMALLEST_SIZE = 4.0  # pixels; keeps the noise of a tiny box above the rounding of its corners
_SMALLEST_SIDE = 1.0  # pixels; a shrinking box is never extrapolated below this


@dataclass(slots=True)
class MotionState:
    """Filter state of N tracks, float64.

    position: (N, 4) cx, cy, w, h in pixels. rate: (N, 4) in pixels a second.
    covariance: (N, 3) position variance, position-rate covariance, rate variance of one component.
    """

    position: Floats
    rate: Floats
    covariance: Floats

    @classmethod
    def start(cls, boxes: Floats) -> MotionState:
        """Tracks at rest at `boxes` (N, 4) xyxy, with the speed left open."""
        position = to_centre(boxes)
        size = _size(position)
        covariance = np.zeros((len(boxes), 3))
        covariance[:, 0] = (MEASUREMENT * size) ** 2
        covariance[:, 2] = (INITIAL_RATE * size) ** 2
        return cls(position, np.zeros_like(position), covariance)

    def predict(self, dt: float, hidden: npt.NDArray[np.bool_]) -> None:
        """Move every track on by `dt` seconds, dt >= 0.

        hidden: (N,) tracks that were not seen in the last picture. Their size is held: a size
        rate extrapolated over a second would blow the box up or turn it inside out.
        """
        rate = self.rate.copy()
        rate[hidden, 2:] = 0.0
        self.position += rate * dt
        np.maximum(self.position[:, 2:], _SMALLEST_SIDE, out=self.position[:, 2:])
        noise = (ACCELERATION * _size(self.position)) ** 2
        p, c, v = self.covariance.T
        p += dt * (2 * c + dt * v) + noise * dt**3 / 3
        c += dt * v + noise * dt**2 / 2
        v += noise * dt

    def correct(self, rows: npt.NDArray[np.int64], boxes: Floats) -> None:
        """Take in the detected `boxes` (K, 4) xyxy of the tracks `rows` (K,), each at most once."""
        p, c, v = self.covariance[rows].T
        measured = to_centre(boxes)
        total = p + (MEASUREMENT * _size(measured)) ** 2
        position_gain, rate_gain = p / total, c / total
        surprise = measured - self.position[rows]
        self.position[rows] += position_gain[:, None] * surprise
        self.rate[rows] += rate_gain[:, None] * surprise
        np.maximum(self.position[:, 2:], _SMALLEST_SIDE, out=self.position[:, 2:])
        left = 1.0 - position_gain
        self.covariance[rows] = np.stack([left * p, left * c, v - rate_gain * c], axis=1)

    def boxes(self) -> Floats:
        """(N, 4) xyxy in pixels."""
        half = self.position[:, 2:] / 2
        return np.concatenate([self.position[:, :2] - half, self.position[:, :2] + half], axis=1)

    def position_std(self) -> Floats:
        """(N,) standard deviation of the centre, pixels."""
        return np.sqrt(self.covariance[:, 0])

    def velocities(self) -> npt.NDArray[np.float32]:
        """float32 (N, 2): rate of the centre, pixels a second.

        NaN until the filter's own standard deviation has fallen to half of what it began with;
        before that the figure says more about the prior than about the object.
        """
        known = self.covariance[:, 2] < (0.5 * INITIAL_RATE * _size(self.position)) ** 2
        velocity: npt.NDArray[np.float32] = np.where(
            known[:, None], self.rate[:, :2], np.nan
        ).astype(np.float32)
        return velocity


def to_centre(boxes: Floats) -> Floats:
    """(N, 4) xyxy to cx, cy, w, h."""
    corners = np.asarray(boxes, dtype=np.float64)
    side = corners[:, 2:] - corners[:, :2]
    return np.concatenate([corners[:, :2] + side / 2, side], axis=1)


def _size(position: Floats) -> Floats:
    size: Floats = np.maximum(np.sqrt(position[:, 2] * position[:, 3]), _SMALLEST_SIZE)
    return size
