"""Obstacles that held the robot and then left the camera's sight: not seen is not gone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from perception.safety.motion import Floats, Twist, relative_positions
from perception.safety.obstacles import Obstacles

Bools = npt.NDArray[np.bool_]

REAPPEARS_WITHIN = 1.5
"""m between where something vanished and a new obstacle of its class that is taken for it, from
footprint to footprint."""

LEAVING = 0.3
"""m/s away from the robot from which something that leaves the picture is taken to have left."""

SETTLED = 0.5
"""s for which a track must have been seen to be remembered: a detector's short false finds would
hold the robot for good."""

QUICK, SLOW = 0.2, 0.7
"""s, time constants of two running means of a track's place. They lie SLOW - QUICK times its speed
apart, which tells who leaves at the picture's edge: there the boxes are cut, and a velocity from
them alone is too uncertain to be known."""

MOST = 100
"""Obstacles that are remembered at most, nearest first, and 10,000 pairs that are compared: more
would take too long, and a robot that so many hold goes nowhere anyway."""

FORGOTTEN = 10.0
"""m beyond which nothing is remembered: no zone of a robot that a camera guards reaches there."""


@dataclass(slots=True)
class _Trail:
    """Of one track: when it was first seen, and its two running means, (2,) m, base frame."""

    since_ns: int
    quick: Floats
    slow: Floats


class Trails:
    """How long each track has been seen, and whether it is on its way off."""

    def __init__(self) -> None:
        self._of: dict[str, _Trail] = {}

    def update(self, seen: Obstacles, stamp_ns: int, motion: Twist, seconds: float) -> None:
        """Take a new picture's obstacles, `seconds` after the last one; motion: the robot's."""
        known = [(row, name) for row, name in enumerate(seen.ids) if name]
        trails = {}
        for row, name in known:
            place, old = seen.positions[row], self._of.get(name)
            if old is None:
                trails[name] = _Trail(stamp_ns, place, place)
                continue
            means = np.stack([old.quick, old.slow])
            if seconds > 0:
                still, times = np.zeros_like(means), np.array([seconds])
                means = relative_positions(means, still, motion, times)[0]
            share = 1.0 - np.exp(-max(seconds, 0.0) / np.array([[QUICK], [SLOW]]))
            quick, slow = means + share * (place - means)
            trails[name] = _Trail(old.since_ns, quick, slow)
        self._of = trails

    def may_be_remembered(self, obstacles: Obstacles, stamp_ns: int) -> Bools:
        """(N,) which of the last picture's obstacles, of `stamp_ns`, are settled and stay."""
        kept = np.ones(len(obstacles), dtype=np.bool_)
        for row, name in enumerate(obstacles.ids):
            trail = self._of.get(name)
            if trail is not None:
                distance = max(float(np.hypot(*trail.quick)), 1e-9)
                outward = float((trail.quick - trail.slow) @ trail.quick) / distance
                left = outward > LEAVING * (SLOW - QUICK)
                kept[row] = stamp_ns - trail.since_ns >= SETTLED * 1e9 and not left
        return kept


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

    before: what the picture before showed. holding: (N,) which of them limited the robot, and may
    be remembered (`Trails`). hidden:
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
    found = _within_another(earlier, seen)
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


def _between(some: Obstacles, others: Obstacles) -> Floats:
    """(N, M) m between footprints; negative where they overlap."""
    apart = some.positions[:, None] - others.positions[None]
    gaps: Floats = np.hypot(apart[..., 0], apart[..., 1]) - some.radii[:, None] - others.radii[None]
    return gaps


def _within_another(earlier: Obstacles, seen: Obstacles) -> Bools:
    """(N,) whose middle lies in the footprint of a seen obstacle of the same class: a second box
    of one thing, which the detector or the tracker has given up."""
    inside = np.zeros(len(earlier), dtype=np.bool_)
    if not len(seen) or len(earlier) * len(seen) > MOST**2:
        return inside
    apart = earlier.positions[:, None] - seen.positions[None]
    same = np.array([[a == b for b in seen.labels] for a in earlier.labels], dtype=np.bool_)
    near = np.hypot(apart[..., 0], apart[..., 1]) <= seen.radii[None]
    return np.asarray((near & same.reshape(near.shape)).any(axis=1))
