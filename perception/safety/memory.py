"""Obstacles that held the robot and then left the camera's sight: not seen is not gone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from perception.safety.motion import Floats
from perception.safety.obstacles import Obstacles

Bools = npt.NDArray[np.bool_]

REAPPEARS_WITHIN = 1.5
"""m from where something vanished to where a new obstacle of its class is taken for it."""

LEAVING = 0.3
"""m/s away from the robot from which something that leaves the picture is taken to have left."""

MOST = 100
"""Obstacles that are remembered at most, nearest first, and 10,000 pairs that are compared: more
would take too long, and a robot that so many hold goes nowhere anyway."""

FORGOTTEN = 10.0
"""m beyond which nothing is remembered: no zone of a robot that a camera guards reaches there."""


def out_of_sight(obstacles: Obstacles, near: float, angle: float) -> Bools:
    """(N,) whether a camera that looks along +x may miss an obstacle at its place.

    near: m from the base's origin within which the ground, or enough of a person, is below the
    picture. angle: rad to either side that the camera sees.
    """
    x, y = obstacles.positions[:, 0], obstacles.positions[:, 1]
    edge = np.hypot(x, y) - obstacles.radii
    # Written so that NaN counts as out of sight.
    return ~((edge >= near) & (np.abs(np.arctan2(y, x)) <= angle))


def still_hidden(
    before: Obstacles,
    holding: Bools,
    hidden: Obstacles,
    seen: Obstacles,
    near: float,
    angle: float,
) -> Obstacles:
    """What has to be taken for standing where the camera cannot look, at rest where it was last.

    before: what the picture before showed. holding: (N,) which of them limited the robot. hidden:
    what was remembered until now. Both in the base frame of `seen`, which the new picture shows.

    Something is remembered when it held the robot, is in the new picture no more, and stood where
    the camera may miss it, unless it was on its way off. It is dropped when it shows up again
    near that place, or when the place comes into sight and nothing is seen there.
    """
    earlier = before.joined(hidden)
    was_hidden = np.arange(len(earlier)) >= len(before)
    kept = np.concatenate([holding, np.ones(len(hidden), dtype=np.bool_)])
    kept &= ~_found_again(earlier, seen)
    kept &= out_of_sight(earlier, near, angle)
    kept &= was_hidden | ~_leaving(earlier)
    ranges = np.hypot(earlier.positions[:, 0], earlier.positions[:, 1])
    kept &= ~(ranges > FORGOTTEN)
    nearest = np.argsort(ranges, kind="stable")
    rows = earlier[nearest[kept[nearest]][:MOST]]
    count = len(rows)
    return replace(
        rows,
        velocities=np.zeros((count, 2)),
        velocity_sigmas=np.zeros(count),
        ids=("",) * count,
    )


def _leaving(obstacles: Obstacles) -> Bools:
    """(N,) which were last seen to move away from the robot; of unknown velocity: none."""
    ranges = np.maximum(np.hypot(obstacles.positions[:, 0], obstacles.positions[:, 1]), 1e-9)
    outward: Floats = (obstacles.positions * obstacles.velocities).sum(axis=1) / ranges
    return outward > LEAVING


def _found_again(earlier: Obstacles, seen: Obstacles) -> Bools:
    """(N,) which of the earlier obstacles are in the new picture, one to one.

    A track keeps its number. What has none in common is matched to the nearest new obstacle of its
    class within REAPPEARS_WITHIN, nearest pairs first: two people do not vanish into one.
    """
    found = np.zeros(len(earlier), dtype=np.bool_)
    rows = {name: row for row, name in enumerate(earlier.ids) if name}
    fresh = []
    for row, name in enumerate(seen.ids):
        if name in rows:
            found[rows[name]] = True
        else:
            fresh.append(row)
    lost = np.flatnonzero(~found)
    if not len(lost) or not fresh or len(lost) * len(fresh) > MOST**2:
        return found
    gaps = np.hypot(
        *(earlier.positions[lost, None] - seen.positions[None, fresh]).transpose(2, 0, 1)
    )
    taken: set[int] = set()
    for pair in np.argsort(gaps, axis=None):
        one, other = divmod(int(pair), len(fresh))
        if not gaps[one, other] <= REAPPEARS_WITHIN:
            break
        same = earlier.labels[lost[one]] == seen.labels[fresh[other]]
        if same and other not in taken and not found[lost[one]]:
            found[lost[one]] = True
            taken.add(other)
    return found
