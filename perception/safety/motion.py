"""Planar velocity commands and how obstacles move relative to the robot under one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Twist:
    """Velocity of the robot in its base frame (REP 103).

    vx, vy: m/s, forward and to the left. wz: rad/s, counter-clockwise.
    """

    vx: float = 0.0
    vy: float = 0.0
    wz: float = 0.0

    @property
    def finite(self) -> bool:
        return math.isfinite(self.vx) and math.isfinite(self.vy) and math.isfinite(self.wz)

    @property
    def speed(self) -> float:
        """Linear speed in m/s."""
        return math.hypot(self.vx, self.vy)

    @property
    def moving(self) -> bool:
        return self.vx != 0.0 or self.vy != 0.0 or self.wz != 0.0

    def scaled(self, ratio: float) -> Twist:
        """All components times one ratio, so that the curvature of the path is kept."""
        return Twist(self.vx * ratio, self.vy * ratio, self.wz * ratio)


STOPPED = Twist()


def relative_positions(points: Floats, velocities: Floats, twist: Twist, times: Floats) -> Floats:
    """Points as the robot sees them after driving `twist` for each of `times`.

    points: (N, 2) m, base frame now. velocities: (N, 2) m/s over ground, axes of the base frame
    now. times: (T,) s. Returns (T, N, 2) m in the base frame of that moment.

    A constant body velocity moves the base along an arc: with theta = wz t, its displacement is
    t (A vx - B vy, B vx + A vy), A = sin(theta) / theta, B = (1 - cos(theta)) / theta.
    """
    theta = twist.wz * times
    # np.sinc is sin(pi x) / (pi x), and exact at zero; (1 - cos a) / a = sin(a/2) sinc(a/2).
    along = np.sinc(theta / np.pi)
    across = np.sin(theta / 2) * np.sinc(theta / (2 * np.pi))
    base_x = times * (along * twist.vx - across * twist.vy)
    base_y = times * (across * twist.vx + along * twist.vy)
    x = points[:, 0] + velocities[:, 0] * times[:, None] - base_x[:, None]
    y = points[:, 1] + velocities[:, 1] * times[:, None] - base_y[:, None]
    cos, sin = np.cos(theta)[:, None], np.sin(theta)[:, None]
    return np.stack([cos * x + sin * y, cos * y - sin * x], axis=-1)
