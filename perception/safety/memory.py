"""Obstacles that could hold the robot and then left the camera's sight: not seen is not gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from perception.safety.motion import Floats, Twist, relative_positions
from perception.safety.obstacles import Obstacles

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

REAPPEARS_WITHIN = 1.5
"""m between where something vanished and a new obstacle of its class that is taken for it."""

SAME_WITHIN = 3.0
"""m that one track may move while it is not seen. Further off its number is somebody else's: a
tracker that was started again counts from 1 again."""

LEAVING = 0.3
"""m/s away from the robot from which something that leaves the picture is taken to have left."""

SETTLED = 0.5
"""s for which something must have been seen to be remembered, or to be the one who was out of
sight; s for which a place must have been in sight to be found empty. A detector's short false
finds would hold the robot for good, and let it go for nothing."""

RECENT = 2.0
"""s for which what vanished in plain sight is still taken for what appears anew at its place: so
long may a tracker miss somebody before they get another number."""

QUICK, SLOW = 0.2, 0.7
"""s, time constants of two running means of a place. They lie SLOW - QUICK times its speed apart,
which tells who leaves at the picture's edge: there the boxes are cut, and a velocity from them
alone is too uncertain to be known."""

MOST = 100
"""Obstacles that are remembered at most, nearest first, and 10,000 pairs that are compared: more
would take too long, and a robot that so many hold goes nowhere anyway."""

FORGOTTEN = 10.0
"""m beyond which nothing is remembered: no zone of a robot that a camera guards reaches there."""


@dataclass(frozen=True, slots=True)
class Sight:
    """Where a camera that looks along +x surely sees an obstacle.

    near: m from the base's origin within which the ground, or enough of a person, is below the
    picture. angle: rad to either side that the camera sees.
    """

    near: float
    angle: float

    def misses(self, obstacles: Obstacles) -> Bools:
        """(N,) whether the camera may miss an obstacle at its place."""
        x, y = obstacles.positions[:, 0], obstacles.positions[:, 1]
        edge = np.hypot(x, y) - obstacles.radii
        # Written so that NaN counts as out of sight.
        return ~((edge >= self.near) & (np.abs(np.arctan2(y, x)) <= self.angle))

    def leads_out(self, places: Floats, ways: Floats) -> Bools:
        """(N,) whether who goes on from places along ways, (N, 2) each, goes away unseen.

        Whoever backs off straight ahead does not: they would be in sight in a moment. What is
        below the picture and gets further off passes the camera's sight unless it is beside it
        both where it leaves the near field and at the end of its way.
        """
        lengths = np.maximum(np.hypot(ways[:, 0], ways[:, 1]), 1e-9)
        ways = ways / lengths[:, None]
        outward = (places * ways).sum(axis=1)
        ranges2 = (places * places).sum(axis=1)
        # Where the way crosses the circle of `near`: t^2 + 2 t outward + ranges2 = near^2.
        root = np.sqrt(np.maximum(outward**2 + self.near**2 - ranges2, 0.0))
        there = places + np.maximum(root - outward, 0.0)[:, None] * ways
        first, last = np.arctan2(there[:, 1], there[:, 0]), np.arctan2(ways[:, 1], ways[:, 0])
        beside = (np.abs(first) > self.angle) & (np.abs(last) > self.angle)
        goes: Bools = (outward > 0.0) & beside & (first * last > 0.0)
        return goes


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """Obstacles in the base frame, and what is known of each besides; N rows everywhere.

    seen: (N,) s for which it has been seen. quick, slow: (N, 2) m, running means of its place.
    gone: (N,) s since it was seen last, or for which the place of a hidden one has been in sight.
    number: (N,) of a hidden one its own, 0 for those in sight. follows: (N,) number of the hidden
    one that it may be; 0 for none.
    """

    rows: Obstacles
    seen: Floats
    quick: Floats
    slow: Floats
    gone: Floats
    number: Ints
    follows: Ints

    @classmethod
    def new(cls, rows: Obstacles) -> _Known:
        count, places = len(rows), rows.positions
        nothing, none = np.zeros(count), np.zeros(count, dtype=np.int64)
        return cls(rows, nothing, places, places, nothing, none, none)

    def __getitem__(self, chosen: npt.NDArray[np.bool_ | np.int64]) -> _Known:
        return _Known(*(getattr(self, field.name)[chosen] for field in fields(self)))

    def joined(self, other: _Known) -> _Known:
        arrays = [
            np.concatenate([getattr(self, field.name), getattr(other, field.name)])
            for field in fields(self)[1:]
        ]
        return _Known(self.rows.joined(other.rows), *arrays)

    def advanced(self, motion: Twist, seconds: float) -> _Known:
        if seconds <= 0.0:
            return self
        means = np.concatenate([self.quick, self.slow])
        moved = relative_positions(means, np.zeros_like(means), motion, np.array([seconds]))[0]
        quick, slow = np.split(moved, 2)
        return replace(self, rows=self.rows.advanced(motion, seconds), quick=quick, slow=slow)

    def shown(self, rows: Obstacles, seconds: float) -> _Known:
        """These, as a picture `seconds` later shows them."""
        places = rows.positions
        quick = self.quick + (1.0 - np.exp(-seconds / QUICK)) * (places - self.quick)
        slow = self.slow + (1.0 - np.exp(-seconds / SLOW)) * (places - self.slow)
        gone = np.zeros(len(rows))
        return replace(self, rows=rows, seen=self.seen + seconds, quick=quick, slow=slow, gone=gone)


class Memory:
    """What the last pictures showed, and who has to be taken for standing out of sight.

    Something is remembered, at rest where it was last, when it could hold the robot, had been
    seen for `SETTLED` s, is in the new picture no more, and stood where the camera may miss it,
    unless it was on its way out of the picture. It is dropped when it, or a new obstacle of its
    class within `REAPPEARS_WITHIN`, has been seen again for `SETTLED` s, or when the place has
    been in sight for so long and nothing was seen there.
    """

    def __init__(self) -> None:
        self._known = _Known.new(Obstacles.empty())
        self._visible = 0
        self._numbers = 0

    @property
    def hidden(self) -> Obstacles:
        """What is remembered out of sight, in the base frame at the last picture."""
        rows = self._known.rows[self._known.number > 0]
        count = len(rows)
        return replace(
            rows,
            velocities=np.zeros((count, 2)),
            velocity_sigmas=np.zeros(count),
            ids=("",) * count,
        )

    def forget(self) -> int:
        """Nothing stands out of sight. Returns how much was remembered."""
        hidden = self._known.number > 0
        self._known = self._known[~hidden]
        return int(hidden.sum())

    def update(
        self,
        picture: Obstacles,
        holding: Bools,
        could_hold: Callable[[Obstacles], Bools],
        motion: Twist,
        seconds: float,
        sight: Sight,
    ) -> None:
        """Take a new picture's obstacles, `seconds` after the last one.

        holding: (N,) which of the last picture's obstacles held the robot. could_hold: which of
        others, in the base frame now, could; asked for those alone that vanished out of sight.
        motion: the robot's since the last picture.
        """
        seconds = max(seconds, 0.0)
        known = self._known.advanced(motion, seconds)
        visible = np.arange(len(known.rows)) < self._visible
        before, after = _pairs(known, picture)
        shown = _Known.new(picture)
        again = known.number[before] == 0
        shown = _with(
            shown, after[again], known[before[again]].shown(picture[after[again]], seconds)
        )
        follows = shown.follows.copy()
        follows[after[~again]] = known.number[before[~again]]
        shown = replace(shown, follows=follows)
        lost = np.ones(len(known.rows), dtype=np.bool_)
        lost[before[again]] = False
        missing = known[lost]
        vanished = visible[lost]
        held = np.concatenate([holding, np.zeros(len(known.rows) - len(holding), dtype=np.bool_)])
        left = self._hide(missing, vanished, held[lost], could_hold, picture, sight)
        self._known = shown.joined(_still_missing(left, shown, seconds, sight))
        self._visible = len(picture)

    def _hide(
        self,
        missing: _Known,
        vanished: Bools,
        held: Bools,
        could_hold: Callable[[Obstacles], Bools],
        picture: Obstacles,
        sight: Sight,
    ) -> _Known:
        """Number those that are hidden from now on; without the second boxes of what is seen."""
        doubled = vanished & _within_another(missing.rows, picture)
        drift = missing.quick - missing.slow
        moves = np.hypot(drift[:, 0], drift[:, 1]) > LEAVING * (SLOW - QUICK)
        hides = vanished & ~doubled & (missing.seen >= SETTLED)
        # The running means lag behind by their time constants; without the lag whoever crosses
        # quickly would seem to be still well inside the picture when they leave it.
        places = missing.quick + drift * (QUICK / (SLOW - QUICK))
        hides &= sight.misses(missing.rows) & ~(moves & sight.leads_out(places, drift))
        if (hides & ~held).any():
            hides &= held | could_hold(missing.rows)
        numbers = np.where(hides, self._numbers + np.cumsum(hides), missing.number)
        self._numbers += int(hides.sum())
        return replace(missing, number=numbers)[~doubled]


def _still_missing(missing: _Known, shown: _Known, seconds: float, sight: Sight) -> _Known:
    """The missing ones that are still taken for something; at most MOST, hidden ones first."""
    hidden = missing.number > 0
    gone = np.where(hidden & sight.misses(missing.rows), 0.0, missing.gone + seconds)
    returned = shown.follows[shown.seen >= SETTLED]
    ranges = np.hypot(missing.rows.positions[:, 0], missing.rows.positions[:, 1])
    kept = gone < np.where(hidden, SETTLED, RECENT)
    kept &= ~(hidden & np.isin(missing.number, returned))
    kept &= ~(ranges > FORGOTTEN)
    order = np.lexsort((ranges, ~hidden))
    return replace(missing, gone=gone)[order[kept[order]][:MOST]]


def _with(known: _Known, at: Ints, others: _Known) -> _Known:
    """`known` with others in the rows `at`."""
    order = np.arange(len(known.rows))
    order[at] = len(known.rows) + np.arange(len(at))
    return known.joined(others)[order]


def _pairs(known: _Known, picture: Obstacles) -> tuple[Ints, Ints]:
    """(rows of `known`, rows of `picture`) that are the same thing, one to one.

    A track keeps its number. What has none in common is matched to the nearest new obstacle of its
    class within REAPPEARS_WITHIN, nearest pairs first: two people do not vanish into one. A hidden
    one that somebody in sight follows already is left to them.
    """
    rows = known.rows
    pairs: dict[int, int] = {}
    named = {name: row for row, name in enumerate(rows.ids) if name and not known.number[row]}
    for new, name in enumerate(picture.ids):
        old = named.get(name)
        if old is not None and _gap(rows, old, picture, new) <= SAME_WITHIN:
            pairs[old] = new
    free = np.ones(len(rows), dtype=np.bool_)
    free[list(pairs)] = False
    free &= ~np.isin(known.number, known.follows[list(pairs)]) | (known.number == 0)
    lost = np.flatnonzero(free)
    fresh = np.setdiff1d(np.arange(len(picture)), list(pairs.values()))
    if 0 < len(lost) * len(fresh) <= MOST**2:
        apart = rows.positions[lost, None] - picture.positions[None, fresh]
        gaps = np.hypot(apart[..., 0], apart[..., 1])
        labels = np.array(picture.labels)[fresh]
        gaps[np.array(rows.labels)[lost, None] != labels[None]] = np.inf
        taken: set[int] = set()
        for pair in np.argsort(gaps, axis=None):
            one, other = divmod(int(pair), len(fresh))
            if not gaps[one, other] <= REAPPEARS_WITHIN:
                break
            if int(lost[one]) not in pairs and other not in taken:
                pairs[int(lost[one])] = int(fresh[other])
                taken.add(other)
    return np.array(list(pairs), dtype=np.int64), np.array(list(pairs.values()), dtype=np.int64)


def _gap(rows: Obstacles, row: int, others: Obstacles, other: int) -> float:
    apart = rows.positions[row] - others.positions[other]
    return float(np.hypot(apart[0], apart[1]))


def _within_another(earlier: Obstacles, seen: Obstacles) -> Bools:
    """(N,) whose middle lies in the footprint of a seen obstacle of the same class: a second box
    of one thing, which the detector or the tracker has given up."""
    inside = np.zeros(len(earlier), dtype=np.bool_)
    if not 0 < len(earlier) * len(seen) <= MOST**2:
        return inside
    apart = earlier.positions[:, None] - seen.positions[None]
    same = np.array(earlier.labels)[:, None] == np.array(seen.labels)[None]
    near = np.hypot(apart[..., 0], apart[..., 1]) <= seen.radii[None]
    return np.asarray((near & same).any(axis=1))
