"""Zone shapes, and which obstacles touch them. Edges count as inside."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from perception.errors import InputError
from perception.safety.motion import Floats, Twist, relative_positions
from perception.safety.obstacles import Capsules

TOUCH = 1e-9
"""Metres; rounding must not put a point on an edge outside."""

FARTHEST = 1000.0
"""Metres; a corner further away is a mistake, such as millimetres for metres."""

CHUNK = 4096
"""Capsules tested at once: bounds the memory for absurdly many obstacles."""

STEP_DISTANCE = 0.05
"""Metres the closest approach may change between two simulated moments."""

MAX_STEPS = 500

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Circle:
    """radius in m around the base frame's origin."""

    radius: float

    def __post_init__(self) -> None:
        if not 0 < self.radius <= FARTHEST:
            raise InputError(f"radius is {self.radius}, expected metres up to {FARTHEST:g}")

    @property
    def extent(self) -> float:
        """Radius in m of a circle around the origin that holds the shape."""
        return self.radius

    def distance(self, start: Floats, end: Floats) -> Floats:
        """(N,) m from each segment start-end (N, 2) to the shape; 0 where they touch."""
        centre = np.zeros((1, 2))
        gaps: Floats = _point_to_segment(centre[:, None], start[None], end[None])[0] - self.radius
        return np.maximum(gaps, 0.0)


@dataclass(frozen=True, slots=True)
class Polygon:
    """points: corners (x, y) in m in the base frame, either direction, not self-crossing."""

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        if len(self.points) < 3:
            raise InputError(f"points has {len(self.points)} corners, expected at least 3")
        corners = np.array(self.points, dtype=np.float64)
        if not (np.abs(corners) <= FARTHEST).all():
            raise InputError(
                f"points must be finite and within {FARTHEST:g} m, found {list(self.points)}"
            )
        following = np.roll(corners, -1, axis=0)
        if (corners == following).all(axis=1).any():
            raise InputError(f"points names the same corner twice in a row: {list(self.points)}")
        area = float(np.sum(_cross(corners, following))) / 2
        if abs(area) < 1e-6:
            raise InputError(f"points encloses no area: {list(self.points)}")
        for first in range(len(corners)):
            for second in range(first + 2, len(corners) - (first == 0)):
                if _crosses(corners[first], following[first], corners[second], following[second]):
                    raise InputError(f"points crosses itself: {list(self.points)}")

    @property
    def extent(self) -> float:
        return max(math.hypot(x, y) for x, y in self.points)

    def distance(self, start: Floats, end: Floats) -> Floats:
        corners, following = _edges(self.points)
        blocks = [slice(at, at + CHUNK) for at in range(0, max(len(start), 1), CHUNK)]
        return np.concatenate(
            [_segment_to_polygon(corners, following, start[rows], end[rows]) for rows in blocks]
        )


Outline = Circle | Polygon


SIDEWAYS = 0.01
"""m/s of vy that count as numerical noise."""


@dataclass(frozen=True, slots=True)
class VelocityPart:
    """The polygon that applies while the velocity is in both ranges, bounds included.

    linear_min, linear_max: m/s of vx (negative backwards). theta_min, theta_max: rad/s of wz.
    None covers sideways motion, which no part speaks of.
    """

    polygon: Polygon
    linear_min: float
    linear_max: float
    theta_min: float
    theta_max: float

    def __post_init__(self) -> None:
        for name, low, high in (
            ("linear", self.linear_min, self.linear_max),
            ("theta", self.theta_min, self.theta_max),
        ):
            if not (math.isfinite(low) and math.isfinite(high) and low <= high):
                raise InputError(
                    f"{name}_min {low} and {name}_max {high} must be finite and in order"
                )

    def covers(self, twist: Twist) -> bool:
        return (
            abs(twist.vy) <= SIDEWAYS
            and self.linear_min <= twist.vx <= self.linear_max
            and self.theta_min <= twist.wz <= self.theta_max
        )


@dataclass(frozen=True, slots=True)
class VelocityPolygon:
    """A polygon chosen by the velocity: the first part that covers it.

    With it a stop zone ahead does not trap a robot that wants to drive away (navigation2#3313).
    """

    parts: tuple[VelocityPart, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise InputError("a velocity polygon needs at least one part")

    def outline(self, twist: Twist) -> Polygon | None:
        """None when no part covers the velocity; the caller must then stop.

        Nav2 keeps the polygon of an earlier velocity there, which may lie on the wrong side.
        """
        return next((part.polygon for part in self.parts if part.covers(twist)), None)


Shape = Circle | Polygon | VelocityPolygon


def touching(outline: Outline, capsules: Capsules, margin: float = 0.0) -> Bools:
    """(N,) which capsules touch the outline grown by `margin` m."""
    touches = np.zeros(len(capsules), dtype=np.bool_)
    near = _within(outline.extent + margin, capsules)
    if len(near):
        gap = outline.distance(capsules.start[near], capsules.end[near])
        # Written so that a NaN from an overflow counts as touching.
        touches[near] = ~(gap > capsules.reach[near] + margin + TOUCH)
    return touches


def collision_times(
    outline: Outline,
    capsules: Capsules,
    twist: Twist,
    horizon: float,
    step: float,
    margin: float = 0.0,
) -> Floats:
    """(N,) s until each capsule touches the moving outline; inf when not within `horizon` s.

    The robot keeps `twist`, obstacles keep their velocities. A capsule that touches now has time
    0 (navigation2#4355 skipped that moment). `step` s is the longest step of the simulation.
    """
    times = np.full(len(capsules), np.inf)
    speeds = np.hypot(capsules.velocities[:, 0], capsules.velocities[:, 1]) + capsules.growth
    near = _within(outline.extent + margin + (twist.speed + speeds) * horizon, capsules)
    if not len(near):
        return times
    # Turning sweeps the outline's far corners, so it counts with the extent.
    fastest = twist.speed + abs(twist.wz) * outline.extent + float(speeds[near].max())
    wanted = max(horizon / step, horizon * fastest / STEP_DISTANCE)
    count = int(min(max(math.ceil(min(wanted, MAX_STEPS)), 1), MAX_STEPS))
    moments = np.linspace(0.0, horizon, count + 1)
    block = max(CHUNK // len(moments), 1)
    for at in range(0, len(near), block):
        rows = near[at : at + block]
        hit = _touching_at(outline, capsules[rows], twist, moments, margin)
        # Contact lies between the last free moment and the first hit: the earlier one is safe.
        last_free = np.maximum(np.argmax(hit, axis=0) - 1, 0)
        times[rows] = np.where(hit.any(axis=0), moments[last_free], np.inf)
    return times


def _within(radius: float | Floats, capsules: Capsules) -> npt.NDArray[np.intp]:
    """Rows of the capsules that may reach into a circle of `radius` m around the origin."""
    centre = (capsules.start + capsules.end) / 2
    half = capsules.end - centre
    reach = capsules.reach + np.hypot(half[:, 0], half[:, 1]) + radius + TOUCH
    return np.flatnonzero(~(np.hypot(centre[:, 0], centre[:, 1]) > reach))


def _touching_at(
    outline: Outline, capsules: Capsules, twist: Twist, moments: Floats, margin: float
) -> Bools:
    """(T, N) whether each capsule touches the outline at each moment."""
    start = relative_positions(capsules.start, capsules.velocities, twist, moments)
    end = relative_positions(capsules.end, capsules.velocities, twist, moments)
    gap = outline.distance(start.reshape(-1, 2), end.reshape(-1, 2)).reshape(start.shape[:2])
    reach = capsules.reach + capsules.growth * moments[:, None]
    return ~(gap > reach + margin + TOUCH)


@lru_cache(maxsize=256)
def _edges(points: tuple[tuple[float, float], ...]) -> tuple[Floats, Floats]:
    """(P, 2) starts and ends of a polygon's edges."""
    corners = np.array(points, dtype=np.float64)
    following = np.roll(corners, -1, axis=0)
    corners.flags.writeable = following.flags.writeable = False
    return corners, following


def _cross(first: Floats, second: Floats) -> Floats:
    product: Floats = first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0]
    return product


def _point_to_segment(point: Floats, start: Floats, end: Floats) -> Floats:
    """Distances, shapes broadcast; a segment of no length is a point."""
    # Component by component: reductions over an axis of two cost more than all of this.
    start_x, start_y = start[..., 0], start[..., 1]
    along_x, along_y = end[..., 0] - start_x, end[..., 1] - start_y
    to_x, to_y = point[..., 0] - start_x, point[..., 1] - start_y
    squared = np.maximum(along_x * along_x + along_y * along_y, np.finfo(np.float64).tiny)
    where = np.minimum(np.maximum((to_x * along_x + to_y * along_y) / squared, 0.0), 1.0)
    gap: Floats = np.hypot(to_x - where * along_x, to_y - where * along_y)
    return gap


def _crosses(a: Floats, b: Floats, c: Floats, d: Floats) -> Bools:
    """Whether segments a-b and c-d properly cross, shapes broadcast."""
    result: Bools = (_cross(b - a, c - a) * _cross(b - a, d - a) < 0) & (
        _cross(d - c, a - c) * _cross(d - c, b - c) < 0
    )
    return result


def _inside(corners: Floats, following: Floats, points: Floats) -> Bools:
    """(N,) even-odd rule; points on an edge are settled by their distance, which is zero."""
    x, y = points[:, None, 0], points[:, None, 1]
    straddles = (corners[:, 1] > y) != (following[:, 1] > y)
    rise = following[:, 1] - corners[:, 1]
    # A horizontal edge never straddles; any divisor serves there.
    slope = (following[:, 0] - corners[:, 0]) / np.where(rise == 0, 1.0, rise)
    left = x < corners[:, 0] + slope * (y - corners[:, 1])
    inside: Bools = (straddles & left).sum(axis=1) % 2 == 1
    return inside


def _segment_to_polygon(corners: Floats, following: Floats, start: Floats, end: Floats) -> Floats:
    """(N,) m from segments start-end (N, 2) to the polygon with edges corners-following (P, 2)."""
    s, e = start[:, None], end[:, None]
    gaps = np.minimum(
        np.minimum(
            _point_to_segment(s, corners, following), _point_to_segment(e, corners, following)
        ),
        np.minimum(_point_to_segment(corners, s, e), _point_to_segment(following, s, e)),
    ).min(axis=1)
    meets = _crosses(s, e, corners, following).any(axis=1) | _inside(corners, following, start)
    return np.where(meets, 0.0, gaps)
