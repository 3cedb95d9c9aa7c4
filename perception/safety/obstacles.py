"""Obstacles in metres, as the safety functions see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.safety.motion import Floats, Twist, relative_positions

MAX_OBSTACLES = 1000
"""More in one picture is a fault of its source, and would take too long to judge in time."""


@dataclass(frozen=True, slots=True, eq=False)
class Obstacles:
    """Things the robot must not hit; N may be 0.

    positions: float64 (N, 2), centre on the ground in the base frame, m.
    covariances: float64 (N, 2, 2), of the position, m^2.
    radii: float64 (N,), half of the footprint's larger side, m.
    velocities: float64 (N, 2), over ground in axes of the base frame, m/s; NaN = unknown.
    velocity_sigmas: float64 (N,), standard deviation of the velocity along any axis, m/s; NaN =
        unknown, and so is the velocity.
    labels: N class names. ids: N track ids, "" where not tracked.
    """

    positions: Floats
    covariances: Floats
    radii: Floats
    velocities: Floats
    velocity_sigmas: Floats
    labels: tuple[str, ...]
    ids: tuple[str, ...]

    def __post_init__(self) -> None:
        count = len(self.labels)
        expected: dict[str, tuple[int, ...]] = {
            "positions": (count, 2),
            "covariances": (count, 2, 2),
            "radii": (count,),
            "velocities": (count, 2),
            "velocity_sigmas": (count,),
            "ids": (count,),
        }
        for name, shape in expected.items():
            found = np.shape(getattr(self, name))
            if found != shape:
                raise ValueError(f"Obstacles.{name} has shape {found}, expected {shape}")

    @classmethod
    def create(
        cls,
        positions: npt.ArrayLike,
        labels: Sequence[str],
        *,
        radii: npt.ArrayLike = 0.0,
        covariances: npt.ArrayLike | None = None,
        velocities: npt.ArrayLike | None = None,
        velocity_sigmas: npt.ArrayLike = 0.0,
        ids: Sequence[str] | None = None,
    ) -> Obstacles:
        """Build from anything array-like; one radius, and one sigma, may stand for all."""
        count = len(labels)

        def each(values: npt.ArrayLike) -> Floats:
            return np.array(np.broadcast_to(np.asarray(values, dtype=np.float64), (count,)))

        return cls(
            positions=np.asarray(positions, dtype=np.float64).reshape(-1, 2),
            covariances=(
                np.zeros((count, 2, 2))
                if covariances is None
                else np.asarray(covariances, dtype=np.float64).reshape(-1, 2, 2)
            ),
            radii=each(radii),
            velocities=(
                np.full((count, 2), np.nan)
                if velocities is None
                else np.asarray(velocities, dtype=np.float64).reshape(-1, 2)
            ),
            velocity_sigmas=each(velocity_sigmas),
            labels=tuple(labels),
            ids=("",) * count if ids is None else tuple(ids),
        )

    @classmethod
    def empty(cls) -> Obstacles:
        """The picture was read and nothing is there."""
        return cls.create([], [])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, mask: npt.NDArray[Any]) -> Obstacles:
        """Some of them: a boolean or an index array."""
        rows = np.arange(len(self))[mask]
        return Obstacles(
            self.positions[rows],
            self.covariances[rows],
            self.radii[rows],
            self.velocities[rows],
            self.velocity_sigmas[rows],
            tuple(self.labels[row] for row in rows),
            tuple(self.ids[row] for row in rows),
        )

    def joined(self, other: Obstacles) -> Obstacles:
        """These, then the others."""
        return Obstacles(
            np.concatenate([self.positions, other.positions]),
            np.concatenate([self.covariances, other.covariances]),
            np.concatenate([self.radii, other.radii]),
            np.concatenate([self.velocities, other.velocities]),
            np.concatenate([self.velocity_sigmas, other.velocity_sigmas]),
            self.labels + other.labels,
            self.ids + other.ids,
        )

    @property
    def usable(self) -> bool:
        """Whether every number that places an obstacle is finite, no radius is negative, and
        there are at most `MAX_OBSTACLES`.

        A single broken row makes the whole set unusable: where one obstacle is not known to be,
        no place is known to be free. Velocities may be unknown.
        """
        return bool(
            len(self) <= MAX_OBSTACLES
            and np.isfinite(self.positions).all()
            and np.isfinite(self.covariances).all()
            and np.isfinite(self.radii).all()
            and (self.radii >= 0).all()
        )

    def same_as(self, other: Obstacles) -> bool:
        """Whether the same things are at the same places, whatever their numbers and velocities."""
        return self.labels == other.labels and np.array_equal(self.positions, other.positions)

    def advanced(self, twist: Twist, seconds: float) -> Obstacles:
        """The same obstacles in the base frame after the robot drove `twist` for `seconds`.

        Their own motion is left out; `Capsules.around` accounts for it.
        """
        if seconds <= 0 or not len(self):
            return self
        moved = relative_positions(
            self.positions, np.zeros_like(self.positions), twist, np.array([seconds])
        )[0]
        cos, sin = np.cos(twist.wz * seconds), np.sin(twist.wz * seconds)
        turn = np.array([[cos, sin], [-sin, cos]])
        return replace(
            self,
            positions=moved,
            covariances=turn @ self.covariances @ turn.T,
            velocities=self.velocities @ turn.T,
        )

    def or_at(self, other: Obstacles) -> Obstacles:
        """The same obstacles, large enough to cover both where they are here and in `other`."""
        half = (other.positions - self.positions) / 2
        return replace(
            other,
            positions=self.positions + half,
            radii=self.radii + np.hypot(half[:, 0], half[:, 1]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Capsules:
    """What obstacles may occupy: segments start-end (N, 2) m, thickened by reach (N,) m.

    velocities: (N, 2) m/s, finite. growth: (N,) m/s by which reach grows with time, for obstacles
    that may move any way.
    """

    start: Floats
    end: Floats
    reach: Floats
    velocities: Floats
    growth: Floats

    @classmethod
    def around(
        cls, obstacles: Obstacles, sigmas: float, unknown_speed: float, age: float
    ) -> Capsules:
        """Cover each obstacle's uncertainty ellipse of `sigmas` standard deviations.

        The longer axis of the ellipse becomes the segment, the shorter one adds to the radius:
        a camera's distance is far less certain than its bearing, and a disc as wide as the
        distance error would block lanes beside the obstacle. An obstacle of unknown velocity may
        have moved `unknown_speed` m/s in any direction since it was measured `age` s ago, one of
        known velocity by `sigmas` of its standard deviations more or less.
        """
        known: npt.NDArray[np.bool_] = np.all(np.isfinite(obstacles.velocities), axis=1)
        known &= obstacles.velocity_sigmas >= 0.0
        velocities = np.where(known[:, None], obstacles.velocities, 0.0)
        growth = np.where(known, 0.0, unknown_speed)
        doubt = np.where(known, sigmas * obstacles.velocity_sigmas, unknown_speed)
        # Closed form of the 2 x 2 eigenproblem: it cannot fail to converge on absurd numbers.
        var_x, var_y = obstacles.covariances[:, 0, 0], obstacles.covariances[:, 1, 1]
        cov = obstacles.covariances[:, 0, 1]
        mean, half_gap = (var_x + var_y) / 2, np.hypot((var_x - var_y) / 2, cov)
        longer = sigmas * np.sqrt(np.maximum(mean + half_gap, 0.0))
        shorter = sigmas * np.sqrt(np.maximum(mean - half_gap, 0.0))
        angle = np.arctan2(2 * cov, var_x - var_y) / 2
        half = longer[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
        centre = obstacles.positions + velocities * age
        return cls(
            start=centre - half,
            end=centre + half,
            reach=obstacles.radii + shorter + doubt * age,
            velocities=velocities,
            growth=growth,
        )

    def __len__(self) -> int:
        return len(self.reach)

    def __getitem__(self, mask: npt.NDArray[Any]) -> Capsules:
        return Capsules(
            self.start[mask],
            self.end[mask],
            self.reach[mask],
            self.velocities[mask],
            self.growth[mask],
        )
