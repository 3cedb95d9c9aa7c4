"""The guardian: commanded velocity in, safe velocity and its reasons out. Knows no ROS."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field

import numpy as np

from perception.errors import InputError
from perception.safety.memory import Bools, Memory, Sight
from perception.safety.motion import STOPPED, Twist
from perception.safety.obstacles import Capsules, Obstacles
from perception.safety.picture import REPEATED
from perception.safety.watchdog import (
    NANOSECONDS,
    ClockWatch,
    CommandWatch,
    SourceWatch,
    Times,
    WatchdogSettings,
)
from perception.safety.zones import Action, Zone

MEASURED_SECONDS = 0.5
"""s for which a measured velocity is believed."""

FULL_TURN = 3.14
"""rad to either side, as people write pi in a file: the camera looks all around."""


class Cause(enum.Enum):
    """What the decision rests on, by rising priority."""

    FREE = "free"
    ZONE = "zone"
    COMMAND = "command"
    WATCHDOG = "watchdog"


@dataclass(frozen=True, slots=True)
class GuardianSettings:
    """zones: in any order, the strictest wins.

    classes: every class name the obstacles may carry; zones may name only these.
    watch_camera: whether pictures must arrive and be healthy too, not only detections.
    sigmas: how many standard deviations of an obstacle's position count as occupied.
    unknown_speed: m/s at which an obstacle of unknown velocity is taken to move towards the
        robot. 1.6 m/s is ISO 13855's walking speed.
    sight_near, sight_angle: m from the base's origin, and rad to either side, within which an
        obstacle is surely seen. What could hold the robot and vanished outside of that holds it;
        see `perception.safety.memory`. 0 m and pi rad: nothing is ever out of sight.
    """

    zones: tuple[Zone, ...] = ()
    classes: tuple[str, ...] = ()
    watch_camera: bool = False
    sigmas: float = 2.0
    unknown_speed: float = 1.6
    sight_near: float = 2.0
    sight_angle: float = 0.6
    watchdog: WatchdogSettings = field(default_factory=WatchdogSettings)

    def __post_init__(self) -> None:
        for name, low, high in (
            ("sigmas", 0.0, 10.0),
            ("unknown_speed", 0.0, 100.0),
            ("sight_near", 0.0, 10.0),
            ("sight_angle", 0.0, math.pi),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise InputError(f"{name} is {value}, expected {low:g} to {high:g}")
        names = [zone.name for zone in self.zones]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"zone {name!r} is defined twice")

    @property
    def sees_all(self) -> bool:
        """Whether nothing is ever out of sight."""
        return self.sight_near == 0.0 and self.sight_angle >= FULL_TURN


@dataclass(frozen=True, slots=True)
class ZoneReport:
    """A triggered zone: the factor it leaves and the indices of the obstacles inside.

    Indices beyond the obstacles of the last picture are of those out of sight.
    """

    name: str
    action: Action
    ratio: float
    inside: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """twist: what the robot may do. ratio: twist over the command, 0 to 1.

    cause, zone, reason: the strictest limit, in words. zones: every triggered zone.
    """

    twist: Twist
    ratio: float
    cause: Cause
    reason: str
    zone: str = ""
    action: Action | None = None
    zones: tuple[ZoneReport, ...] = ()


@dataclass(slots=True)
class _Memory:
    """Hysteresis of one zone; times on the ROS clock."""

    active: bool = False
    inside_since_ns: int | None = None
    clear_since_ns: int | None = None
    ratio: float = 1.0

    def update(self, zone: Zone, inside: bool, ratio: float, now_ns: int, first: bool) -> None:
        if inside:
            self.clear_since_ns = None
            self.ratio = ratio
            if self.inside_since_ns is None or self.inside_since_ns > now_ns:
                self.inside_since_ns = now_ns
            held = (now_ns - self.inside_since_ns) / NANOSECONDS
            self.active = self.active or first or held >= zone.trigger_after
            return
        # A command that grew since the obstacle left must not slip through the old factor.
        self.ratio = min(self.ratio, ratio)
        self.inside_since_ns = None
        if self.clear_since_ns is None or self.clear_since_ns > now_ns:
            self.clear_since_ns = now_ns
        clear = (now_ns - self.clear_since_ns) / NANOSECONDS
        self.active = self.active and clear < zone.release_after


class Guardian:
    """Decides what the robot may do now; see `GuardianSettings` for the rules.

    Feed it obstacles and commands as they come, and call `decide` on each of them and from a timer
    that does not depend on either. Whatever is missing, broken or unclear ends in zero velocity.
    """

    def __init__(self, settings: GuardianSettings) -> None:
        self.settings = settings
        self.source = SourceWatch("detections")
        self.camera = SourceWatch("camera")
        self._clock = ClockWatch()
        self._commands = CommandWatch()
        self._command = STOPPED
        self._command_fault = ""
        self._seen = Obstacles.empty()
        self._seen_at_ns = 0
        self._memory = Memory()
        self._distrust = ""
        self._holding: set[int] = set()
        self._measured: tuple[Twist, int] | None = None
        self._memories: dict[str, _Memory] = {}
        self._first_look = True
        self._last = STOPPED

    def configure(self, settings: GuardianSettings) -> None:
        """Take new settings; a zone whose definition changed looks again for the first time."""
        old = {zone.name: zone for zone in self.settings.zones}
        for zone in settings.zones:
            if old.get(zone.name) != zone:
                self._memories.pop(zone.name, None)
        self.settings = settings

    def observe(self, obstacles: Obstacles, stamp_ns: int, valid: bool, times: Times) -> None:
        """Take the obstacles seen in the picture of `stamp_ns`.

        A second result of the picture that was taken last makes the source fail when it differs:
        two detectors or trackers are at work, and one of them may see nothing.
        """
        valid = valid and obstacles.usable
        if valid and 0 < stamp_ns == self._seen_at_ns and not obstacles.same_as(self._seen):
            self.source.contradict()
        elif self.source.observe(stamp_ns, valid, times, self.settings.watchdog):
            self._remember(obstacles, stamp_ns, times)

    def moved(self, twist: Twist, times: Times) -> None:
        """Take the robot's measured velocity; without a fresh one the command is believed."""
        if twist.finite:
            self._measured = (twist, times.silence_ns)

    @property
    def hidden(self) -> Obstacles:
        """What is remembered out of sight, in the base frame at the last healthy picture."""
        return self._memory.hidden

    def distrust(self, reason: str) -> None:
        """Give zero velocity, and `reason`, until `forget`: what was out of sight is not known.

        Nothing happens where all is in sight.
        """
        if not self.settings.sees_all:
            self._distrust = reason

    def knows_motion(self, times: Times) -> bool:
        """Whether the robot's motion is freshly measured, and not only taken from its commands."""
        return self._measured_twist(times) is not None

    def forget(self) -> int:
        """Somebody has looked: nothing stands out of sight. Returns how much was remembered."""
        self._distrust = ""
        self._holding.clear()
        return self._memory.forget()

    def picture(self, stamp_ns: int, fault: str, times: Times) -> None:
        """Take note of a picture and of what `PictureWatch` found wrong with it."""
        if fault != REPEATED:
            self.camera.observe(stamp_ns, not fault, times, self.settings.watchdog)

    def command(self, twist: Twist, stamp_ns: int, times: Times) -> None:
        """Take a commanded velocity; `stamp_ns` is 0 for a command without a stamp."""
        if self._commands.outdated(stamp_ns, times, self.settings.watchdog):
            return  # overtaken on its way: the newer one stands
        fault = self._commands.accept(stamp_ns, times, self.settings.watchdog)
        if not fault and not twist.finite:
            fault = "command not finite"
        self._command_fault = fault
        self._command = STOPPED if fault else twist

    def decide(self, times: Times) -> Decision:
        """What the robot may do now: never faster than commanded, always finite."""
        decision = self._decide(times)
        self._last = decision.twist
        return decision

    def _decide(self, times: Times) -> Decision:
        watchdog = self.settings.watchdog
        fault = self._clock.fault(times, watchdog)
        if not fault and self.settings.watch_camera:
            fault = self.camera.fault(times, watchdog)
        fault = fault or self.source.fault(times, watchdog) or self._distrust
        if fault:
            # What was seen before the gap says nothing about now.
            self._memories.clear()
            self._first_look = True
            return Decision(STOPPED, 0.0, Cause.WATCHDOG, fault)
        zones = self._zones(times)
        missing = self._commands.fault(times, watchdog) or self._command_fault
        if missing:
            self._command = STOPPED
            return Decision(STOPPED, 0.0, Cause.COMMAND, missing, zones=zones)
        if not zones:
            return Decision(self._command, 1.0, Cause.FREE, "")
        strictest = min(zones, key=lambda report: report.ratio)
        ratio = strictest.ratio
        return Decision(
            self._command.scaled(ratio),
            ratio,
            Cause.ZONE,
            strictest.reason,
            zone=strictest.name,
            action=strictest.action,
            zones=zones,
        )

    def motion(self, times: Times) -> Twist:
        """How the robot moves: as freshly measured, or as it was last let to."""
        return self._measured_twist(times) or self._last

    def _measured_twist(self, times: Times) -> Twist | None:
        if self._measured is None:
            return None
        twist, at_ns = self._measured
        fresh = 0 <= times.silence_ns - at_ns <= MEASURED_SECONDS * NANOSECONDS
        return twist if fresh else None

    def _remember(self, obstacles: Obstacles, stamp_ns: int, times: Times) -> None:
        """Take a new picture's obstacles; what could hold the robot may be out of sight now."""
        settings = self.settings
        # After a longer gap the robot stood: the watchdog saw to that.
        passed = min((stamp_ns - self._seen_at_ns) / NANOSECONDS, settings.watchdog.source_timeout)
        sight = Sight(settings.sight_near, settings.sight_angle)
        motion = self.motion(times)
        with np.errstate(all="ignore"):
            holding = np.zeros(len(self._seen), dtype=np.bool_)
            holding[[row for row in self._holding if row < len(holding)]] = True
            age = max(passed, 0.0)
            self._memory.update(
                obstacles, holding, lambda rows: self._could_hold(rows, age), motion, passed, sight
            )
        self._seen, self._seen_at_ns = obstacles, stamp_ns
        self._holding.clear()

    def _could_hold(self, obstacles: Obstacles, age: float) -> Bools:
        """(N,) which could limit the robot, whatever it is commanded and whether it may move now.

        Who walks up to a robot that stands idle, or that the watchdog holds, limits nothing yet.
        """
        settings = self.settings
        capsules = Capsules.around(obstacles, settings.sigmas, settings.unknown_speed, age)
        could = np.zeros(len(obstacles), dtype=np.bool_)
        for zone in settings.zones:
            if zone.enabled and zone.action is not Action.WARN:
                concerned = zone.concerns(obstacles.labels, settings.classes)
                could |= concerned & zone.may_hit(capsules, settings.sight_near)
        return could

    def _zones(self, times: Times) -> tuple[ZoneReport, ...]:
        settings = self.settings
        # The picture is a moment old: move what it showed by what the robot did since.
        age = max(self.source.age(times), 0.0)
        measured = self._measured_twist(times)
        known = self._seen.joined(self._memory.hidden)
        with np.errstate(all="ignore"):
            if measured is not None:
                obstacles = known.advanced(measured, age)
            else:
                # Whether it follows its command is not known: it may not have moved at all.
                obstacles = known.or_at(known.advanced(self._last, age))
            capsules = Capsules.around(obstacles, settings.sigmas, settings.unknown_speed, age)
            judged = [
                self._zone(zone, obstacles, capsules, measured, times)
                for zone in settings.zones
                if zone.enabled
            ]
        reports = [report for report in judged if report is not None]
        self._first_look = False
        for report in reports:
            if report.action is not Action.WARN:
                self._holding.update(report.inside)
        return tuple(reports)

    def _zone(
        self,
        zone: Zone,
        seen: Obstacles,
        capsules: Capsules,
        measured: Twist | None,
        times: Times,
    ) -> ZoneReport | None:
        fresh = zone.name not in self._memories
        memory = self._memories.setdefault(zone.name, _Memory())
        outline = zone.outline(self._command)
        if outline is None:
            return ZoneReport(
                zone.name, Action.STOP, 0.0, (), f"{zone.name}: velocity not covered by the zone"
            )
        rows = np.flatnonzero(zone.concerns(seen.labels, self.settings.classes))
        margin = zone.release_margin if memory.active else 0.0
        hit, ratio = zone.hits(outline, capsules[rows], self._command, margin)
        if zone.time_to_collision and measured is not None:
            # A robot that moves otherwise than commanded, or that nobody commands here.
            hit = hit | zone.hits(outline, capsules[rows], measured, margin)[0]
        first = self._first_look or fresh
        memory.update(zone, bool(hit.any()), ratio, times.now_ns, first)
        if not memory.active:
            return None
        inside = tuple(int(row) for row in rows[hit])
        what = ", ".join(sorted({self._name(seen, row) for row in inside})) or "held"
        return ZoneReport(zone.name, zone.action, memory.ratio, inside, f"{zone.name}: {what}")

    def _name(self, obstacles: Obstacles, row: int) -> str:
        return obstacles.labels[row] + (" out of sight" if row >= len(self._seen) else "")
