"""The whole chain in one process and in lock-step: pictures in, robot motion out, and a verdict.

Everything runs on simulated time, so the same seed gives the same run on any machine. The latency
of real nodes is simulated: what a picture shows reaches the guardian `LATENCY` later.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.detections import Detections
from perception.errors import InputError
from perception.geometry.ground import GroundSettings, GroundTracks
from perception.labels import FACTORY
from perception.safety import STOPPED, Cause, Decision, Guardian, GuardianSettings, Times, Twist
from perception.safety.obstacles import Obstacles
from perception.safety.picture import PictureSettings, PictureWatch
from perception.safety.place import place
from perception.simulation.hall import WIDTH
from perception.simulation.scenario import Scenario, Variation
from perception.simulation.world import STEP, World
from perception.tracking.tracker import Tracker, TrackerSettings

Picture = npt.NDArray[np.uint8]
Detect = Callable[[Picture], Detections]

PICTURE_PERIOD = 0.05
"""s between two pictures, which is also the step of the loop: commands and decisions at 20 Hz."""

LATENCY = 0.05
"""s from a picture's stamp to its obstacles at the guardian; decisions act a step later."""

START_NS = 1_000_000_000
"""The clock when the scenario begins; zero would read as a clock that never started."""

MOVING = 0.02
"""m/s below which the robot counts as standing."""

FREE_SHARE = 0.5
"""Of the way that the driver's speed allows, the share that must be driven where nothing stops."""

SETTLED = 3.0
"""s of complete standstill after which a run is over that has no goal to reach; longer than any
zone holds."""

TRUTH = "truth (stand-in for a detector)"
"""Name of the detector in reports when boxes come from the simulator instead of a model."""

PICTURE_FAULTS = ("camera_freezes", "lights_out", "picture_noise")
"""Faults that only a look at the pictures can find, so that they must be drawn."""


def factory_labels(names: Sequence[str]) -> Callable[[Detections], Detections]:
    """Turn labels of a model with these class names into those of the factory's.

    Raises InputError for a model without a person class. Classes that the factory does not know
    are left out.
    """
    if "person" not in names:
        raise InputError(
            f"the model's classes are {', '.join(names)}; a factory needs the class person"
        )
    numbers = np.array([FACTORY.names.index(n) if n in FACTORY.names else -1 for n in names])

    def convert(found: Detections) -> Detections:
        labels = numbers[found.labels]
        return replace(found, labels=labels)[labels >= 0]

    return convert


class Driver:
    """Drives along the lane to its goal, whatever is in the way: stopping is the guardian's."""

    def __init__(self, cruise: float, goal: float) -> None:
        self.cruise = cruise
        self.goal = goal

    def command(self, x: float, y: float, heading: float) -> Twist:
        """Steer for a point 1 m ahead on the lane's middle (pure pursuit)."""
        if x >= self.goal:
            return STOPPED
        angle = math.atan2(-y, 1.0) - heading
        curvature = 2 * math.sin(angle) / math.hypot(1.0, y)
        return Twist(self.cruise, 0.0, self.cruise * curvature)


@dataclass
class Log:
    """What is remembered of a run; times in s, distances in m.

    contact: while the robot moved, however slowly. walked_into: somebody's path led into the
    robot while it stood, which is the script's doing and not the robot's.
    fault_speed: m/s at which the robot drove when the fault struck. fault_zero: from the fault to
    the zero that the watchdog gave and kept to the end of the run, or until `fault_over` is set.
    """

    contact: bool = False
    walked_into: bool = False
    clearance_moving: float = math.inf
    travelled: float = 0.0
    laps: int = 0
    stops: list[dict[str, Any]] = field(default_factory=list)
    fault_speed: float = 0.0
    fault_zero: float = math.inf
    fault_over: bool = False
    reached_goal: bool = False
    standing: bool = True
    decisions: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    def moved(self, world: World) -> None:
        """Take note of one STEP of motion; between two pictures 5 cm of clearance may be lost."""
        gap = world.clearance()
        self.travelled += world.twist.speed * STEP
        if world.twist.speed > MOVING:
            self.clearance_moving = min(self.clearance_moving, gap)
            self.standing = False
        if gap <= 0.0:
            self.contact = self.contact or world.twist.moving
            self.walked_into = self.walked_into or not self.contact
        if world.seconds - STEP < world.variation.fault_at <= world.seconds:
            self.fault_speed = world.twist.speed

    def record(self, world: World, decision: Decision, commanded: Twist) -> None:
        """Take note of a decision and of where the motion until the next picture has led."""
        self.decisions += 1
        if decision.reason:
            self.reasons[decision.reason] = self.reasons.get(decision.reason, 0) + 1
        moving = world.twist.speed > MOVING
        if not moving and not self.standing and commanded.moving and decision.ratio == 0.0:
            self.standing = True
            self.stops.append(
                {
                    "time": round(world.seconds, 3),
                    "clearance": _rounded(world.clearance()),
                    "cause": decision.cause.value,
                    "reason": decision.reason,
                }
            )
        since_fault = world.seconds - world.variation.fault_at
        if since_fault >= 0.0 and not self.fault_over:
            zero = decision.ratio == 0.0 and decision.cause is Cause.WATCHDOG
            # A zero that ends before the fault does was none.
            self.fault_zero = min(self.fault_zero, since_fault) if zero else math.inf


@dataclass(frozen=True)
class Check:
    """One thing that had to hold: what was found, and what was allowed, in words."""

    name: str
    passed: bool
    found: Any
    allowed: str


@dataclass(frozen=True)
class Verdict:
    """The outcome of one variation."""

    variation: Variation
    detector: str
    log: Log
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    def report(self) -> dict[str, Any]:
        """The verdict as plain data for JSON."""
        variation, log = self.variation, self.log
        return {
            "scenario": variation.scenario.name,
            "description": variation.scenario.description,
            "seed": variation.seed,
            "detector": self.detector,
            "passed": self.passed,
            "checks": [vars(check) for check in self.checks],
            "contact": log.contact,
            "walked_into": log.walked_into,
            "clearance_while_moving_m": _rounded(log.clearance_moving),
            "travelled_m": round(log.travelled, 2),
            "stops": log.stops,
            "fault_at_s": _rounded(variation.fault_at),
            "zero_after_fault_s": _rounded(log.fault_zero),
            "reached_goal": log.reached_goal,
            "reasons": log.reasons,
        }


def judge(variation: Variation, log: Log, source_timeout: float, detector: str) -> Verdict:
    """Compare a run with what the scenario expects."""
    expect = variation.scenario.expect
    stopped = [stop for stop in log.stops if stop["cause"] == Cause.ZONE.value]
    checks = [
        Check("no contact", not log.contact, log.contact, "false"),
        Check("nobody walks into the robot", not log.walked_into, log.walked_into, "false"),
        Check(
            "clearance while moving",
            log.clearance_moving >= expect.clearance,
            _rounded(log.clearance_moving),
            f"at least {expect.clearance:g} m",
        ),
    ]
    if expect.stops is True:
        near = [stop["clearance"] for stop in stopped if stop["clearance"] is not None]
        checks.append(
            Check(
                "stops for the obstacle",
                any(gap <= expect.farthest_stop for gap in near),
                near,
                f"a stop within {expect.farthest_stop:g} m",
            )
        )
    if expect.stops is False:
        checks.append(Check("no stop without cause", not log.stops, len(log.stops), "0"))
        least = FREE_SHARE * variation.cruise * variation.scenario.seconds
        checks.append(
            Check(
                "drives on",
                log.travelled >= least,
                round(log.travelled, 2),
                f"at least {least:.3g} m",
            )
        )
    if expect.reaches_goal is not None:
        checks.append(
            Check(
                "goal",
                log.reached_goal == expect.reaches_goal,
                log.reached_goal,
                str(expect.reaches_goal).lower(),
            )
        )
    if variation.scenario.fault:
        limit = source_timeout + expect.fault_margin
        checks += [
            Check(
                "drives when the fault strikes",
                log.fault_speed > MOVING,
                round(log.fault_speed, 3),
                f"more than {MOVING:g} m/s",
            ),
            Check(
                "zero velocity after the fault",
                log.fault_zero <= limit,
                _rounded(log.fault_zero),
                f"within {limit:g} s, by the watchdog, and kept",
            ),
        ]
    return Verdict(variation, detector, log, tuple(checks))


class PictureFault:
    """What the scenario's fault makes of the pictures; `None` is a picture that never comes."""

    def __init__(self, variation: Variation) -> None:
        fault = variation.scenario.fault
        self._kind = fault.kind if fault else ""
        self._at = variation.fault_at
        self._last: Picture | None = None

    def broken(self, seconds: float, kind: str) -> bool:
        return self._kind == kind and seconds >= self._at

    def picture(self, world: World) -> Picture | None:
        """The picture that the camera delivers now."""
        if self.broken(world.seconds, "camera_dies"):
            return None
        if self.broken(world.seconds, "camera_freezes") and self._last is not None:
            return self._last
        brightness = 0.02 if self.broken(world.seconds, "lights_out") else 1.0
        noise = 70.0 if self.broken(world.seconds, "picture_noise") else 2.0
        self._last = world.picture(brightness, noise)
        return self._last


@dataclass(frozen=True)
class Perceived:
    """What a picture gave, on its way to the guardian."""

    stamp_ns: int
    arrives_ns: int
    obstacles: Obstacles


@dataclass(frozen=True)
class ChainSettings:
    """Settings of the nodes after the detector. ground_tracks makes the obstacles' motion model."""

    guardian: GuardianSettings
    tracker: TrackerSettings = field(default_factory=TrackerSettings)
    ground: GroundSettings = field(default_factory=GroundSettings)
    ground_tracks: Callable[[], GroundTracks] = GroundTracks


class Perception:
    """Tracks and places what was detected, as the nodes do."""

    def __init__(self, world: World, settings: ChainSettings) -> None:
        self._world = world
        self._settings = settings.ground
        self._tracker = Tracker(settings.tracker)
        self._ground = settings.ground_tracks()

    def obstacles(self, detections: Detections, stamp_ns: int, ego: Twist) -> Obstacles:
        """Obstacles in the base frame at the picture's time."""
        tracks = self._tracker.update(detections, stamp_ns).voted()
        obstacles, _ = place(
            tracks,
            FACTORY.names,
            self._world.camera,
            self._ground,
            stamp_ns,
            ego,
            self._settings,
        )
        return obstacles


def run_scenario(
    scenario: Scenario,
    seed: int,
    settings: ChainSettings,
    *,
    detect: Detect | None = None,
    detector: str = TRUTH,
    on_step: Callable[[World, Decision, Detections | None], None] | None = None,
) -> Verdict:
    """Run one variation to its end.

    detect: the detector, from a picture uint8 (H, W, 3) RGB; None takes the simulator's own boxes,
    a stand-in that says nothing about any model, and draws pictures only where the fault needs
    them. on_step is called after every decision.
    """
    variation = Variation.of(scenario, seed)
    fault = scenario.fault.kind if scenario.fault else ""
    draws = detect is not None or fault in PICTURE_FAULTS
    # Small pictures are enough to see that the light is out.
    size = (WIDTH, 256) if detect is not None else (160, 98)
    world = World(variation, size if draws else (WIDTH, 256))
    guardian = replace(settings.guardian, watch_camera=draws)
    loop = _Loop(world, replace(settings, guardian=guardian), detect, on_step)
    try:
        return judge(variation, loop.run(), guardian.watchdog.source_timeout, detector)
    finally:
        world.close()


class _Loop:
    def __init__(
        self,
        world: World,
        settings: ChainSettings,
        detect: Detect | None,
        on_step: Callable[[World, Decision, Detections | None], None] | None,
    ) -> None:
        scenario = world.variation.scenario
        self._world = world
        self._detect = detect
        self._on_step = on_step
        self._driver = Driver(world.variation.cruise, scenario.goal)
        self._guardian = Guardian(settings.guardian)
        self._watch = PictureWatch(PictureSettings())
        self._fault = PictureFault(world.variation)
        self._perception = Perception(world, settings)
        self._pending: deque[Perceived] = deque()
        self._log = Log()
        self._still_since = 0.0

    def run(self) -> Log:
        world, scenario = self._world, self._world.variation.scenario
        while world.seconds < scenario.seconds - 1e-9:
            detections = self._look()
            self._deliver()
            wanted = self._driver.command(world.x, world.y, world.heading)
            times = self._times()
            self._guardian.command(wanted, 0, times)
            decision = self._guardian.decide(times)
            world.step(decision.twist, PICTURE_PERIOD, self._log.moved)
            self._log.record(world, decision, wanted)
            if self._on_step:
                self._on_step(world, decision, detections)
            if self._settled(decision):
                break
            if world.x >= scenario.goal:
                self._log.reached_goal = True
                if scenario.expect.stops is not False:
                    break
                # Nothing to stop for: back to the start of the lane, as often as time allows.
                self._log.laps += 1
                world.x = 0.0
        return self._log

    def _settled(self, decision: Decision) -> bool:
        """Whether nothing will change any more: all stand, and the robot for what is before it."""
        world = self._world
        waits = decision.cause is Cause.ZONE and decision.ratio == 0.0
        still = waits and not world.twist.moving and all(walker.done for walker in world.walkers)
        must_go_on = world.variation.scenario.expect.reaches_goal is True
        if not still or must_go_on or math.isfinite(world.variation.fault_at):
            self._still_since = world.seconds
        return world.seconds - self._still_since > SETTLED

    def _times(self) -> Times:
        now = START_NS + round(self._world.seconds * 1e9)
        return Times(now, now, simulated=True)

    def _look(self) -> Detections | None:
        """Take a picture and send what it shows on its way."""
        world, times = self._world, self._times()
        picture: Picture | None = None
        if self._guardian.settings.watch_camera:
            picture = self._fault.picture(world)
            if picture is None:
                return None
            self._guardian.picture(times.now_ns, self._watch.fault(picture), times)
        elif self._fault.broken(world.seconds, "camera_dies"):
            return None
        if self._fault.broken(world.seconds, "detector_killed"):
            return None
        if self._detect is None:
            detections = world.truth()
        else:
            assert picture is not None
            detections = self._detect(picture)
        if not detections.valid:
            return detections
        obstacles = self._perception.obstacles(detections, times.now_ns, world.twist)
        arrives = times.now_ns + round(LATENCY * 1e9)
        self._pending.append(Perceived(times.now_ns, arrives, obstacles))
        return detections

    def _deliver(self) -> None:
        """Hand the guardian what has arrived by now."""
        times = self._times()
        while self._pending and self._pending[0].arrives_ns <= times.now_ns:
            item = self._pending.popleft()
            self._guardian.observe(item.obstacles, item.stamp_ns, True, times)


def _rounded(value: float) -> float | None:
    """Millimetres and milliseconds are enough; JSON has no infinity."""
    return round(value, 3) if math.isfinite(value) else None
