"""Zones around the robot and what they do to its velocity."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

from perception.errors import InputError
from perception.safety.motion import Twist
from perception.safety.obstacles import Capsules
from perception.safety.shapes import (
    Bools,
    Circle,
    Outline,
    Shape,
    VelocityPolygon,
    collision_times,
    touching,
)


class Action(enum.Enum):
    """What a triggered zone does; named as in Nav2's collision monitor, plus WARN.

    STOP: zero. SLOWDOWN: velocity times a ratio. LIMIT: one ratio on all components so that
    neither the linear nor the angular limit is exceeded. APPROACH: velocity times (time to
    collision / time_before_collision). WARN: reported only.
    """

    STOP = "stop"
    SLOWDOWN = "slowdown"
    LIMIT = "limit"
    APPROACH = "approach"
    WARN = "warn"


@dataclass(frozen=True, slots=True)
class Zone:
    """One zone; times in s, distances in m.

    classes: the class names it reacts to, empty for all. Obstacles of a class that the guardian
        does not know trigger every zone.
    time_to_collision: 0 for a zone that triggers on presence; otherwise the shape is the robot's
        footprint, and the zone triggers when an obstacle will touch it within this many seconds.
    slowdown_ratio: for SLOWDOWN, 0 to 1. linear_limit, angular_limit: for LIMIT, m/s and rad/s.
    time_before_collision, simulation_step: for APPROACH, whose shape is the robot's footprint.
    trigger_after: an obstacle must stay inside this long, except at the first look.
    release_after: the zone must stay clear this long.
    release_margin: clear means this much outside.
    """

    name: str
    shape: Shape
    action: Action
    classes: tuple[str, ...] = ()
    time_to_collision: float = 0.0
    slowdown_ratio: float = 0.5
    linear_limit: float = 0.5
    angular_limit: float = 0.5
    time_before_collision: float = 2.0
    simulation_step: float = 0.1
    trigger_after: float = 0.0
    release_after: float = 0.5
    release_margin: float = 0.1
    enabled: bool = True

    def __post_init__(self) -> None:
        bounds: dict[str, tuple[float, float]] = {
            "time_to_collision": (0.0, 60.0),
            "slowdown_ratio": (0.0, 1.0),
            "linear_limit": (0.0, 100.0),
            "angular_limit": (0.0, 100.0),
            "time_before_collision": (0.1, 60.0),
            "simulation_step": (0.001, 1.0),
            "trigger_after": (0.0, 10.0),
            "release_after": (0.0, 60.0),
            "release_margin": (0.0, 10.0),
        }
        for field, (low, high) in bounds.items():
            value = getattr(self, field)
            # Negated so that NaN is refused too.
            if not low <= value <= high:
                raise InputError(f"{field} is {value}, expected {low:g} to {high:g}")
        if self.action is Action.APPROACH and self.time_to_collision:
            raise InputError(
                "time_to_collision has no meaning for the action approach, "
                "which has time_before_collision"
            )

    def concerns(self, labels: tuple[str, ...], known: tuple[str, ...]) -> Bools:
        """(N,) the obstacles whose class this zone reacts to."""
        if not self.classes:
            return np.ones(len(labels), dtype=np.bool_)
        return np.array(
            [label in self.classes or label not in known for label in labels], dtype=np.bool_
        )

    def outline(self, twist: Twist) -> Outline | None:
        """None when the zone does not say what applies at this velocity."""
        if isinstance(self.shape, VelocityPolygon):
            return self.shape.outline(twist)
        return self.shape

    def hits(
        self, outline: Outline, capsules: Capsules, twist: Twist, margin: float
    ) -> tuple[Bools, float]:
        """(N,) which obstacles trigger the zone, and the factor it leaves of the velocity."""
        if self.action is Action.APPROACH:
            times = collision_times(
                outline, capsules, twist, self.time_before_collision, self.simulation_step, margin
            )
            hit = np.isfinite(times)
            ratio = float(times.min()) / self.time_before_collision if hit.any() else 1.0
            return hit, ratio
        if self.time_to_collision:
            times = collision_times(
                outline, capsules, twist, self.time_to_collision, self.simulation_step, margin
            )
            return np.isfinite(times), self.factor(twist)
        return touching(outline, capsules, margin), self.factor(twist)

    def may_hit(self, capsules: Capsules, near: float) -> Bools:
        """(N,) which obstacles could trigger the zone at some velocity of the robot.

        A zone on time to collision triggers on whatever the robot is sent at: within `near` m of
        its origin all counts.
        """
        if self.action is Action.APPROACH or self.time_to_collision:
            return touching(Circle(near), capsules) if near else np.zeros(len(capsules), np.bool_)
        hits = np.zeros(len(capsules), dtype=np.bool_)
        for outline in self._outlines():
            hits |= touching(outline, capsules, self.release_margin)
        return hits

    def _outlines(self) -> tuple[Outline, ...]:
        if isinstance(self.shape, VelocityPolygon):
            return tuple(part.polygon for part in self.shape.parts)
        return (self.shape,)

    def factor(self, twist: Twist) -> float:
        """0 to 1, what the triggered zone leaves of `twist` (not for APPROACH)."""
        if self.action is Action.STOP:
            return 0.0
        if self.action is Action.SLOWDOWN:
            return self.slowdown_ratio
        if self.action is Action.LIMIT:
            return min(
                _share(self.linear_limit, twist.speed), _share(self.angular_limit, abs(twist.wz))
            )
        return 1.0


def _share(limit: float, value: float) -> float:
    return 1.0 if value <= limit else limit / value
