import math

import numpy as np
import pytest

from perception.errors import InputError
from perception.safety import (
    STOPPED,
    Action,
    Cause,
    Guardian,
    GuardianSettings,
    Obstacles,
    Times,
    Twist,
    WatchdogSettings,
    Zone,
)
from perception.safety.shapes import Circle, Polygon, VelocityPart, VelocityPolygon

CLASSES = ("person", "forklift", "pallet")
AHEAD = Polygon(((2, -1), (2, 1), (0, 1), (0, -1)))
FOOTPRINT = Circle(0.5)
DRIVE = Twist(1.0, wz=0.4)
START = 100.0
STEP = 0.05


def stop(**changes):
    return Zone(**{"name": "stop", "shape": AHEAD, "action": Action.STOP, **changes})


class Rig:
    """A guardian with a camera at 20 Hz and a driver; `run` moves the clock."""

    def __init__(self, *zones, command=DRIVE, **settings):
        self.guardian = Guardian(
            GuardianSettings(
                zones=zones,
                classes=CLASSES,
                watchdog=WatchdogSettings(recovery_frames=2),
                **settings,
            )
        )
        self.command = command
        self.seconds = START
        self.seen = Obstacles.empty()
        self.run(0.2)

    @property
    def times(self):
        return Times(round(self.seconds * 1e9), round(self.seconds * 1e9))

    def run(self, seconds, valid=True):
        for _ in range(round(seconds / STEP)):
            self.seconds += STEP
            self.guardian.observe(self.seen, self.times.now_ns, valid, self.times)
            self.guardian.command(self.command, 0, self.times)
            decision = self.guardian.decide(self.times)
        return decision

    def see(self, *positions, label="person", velocity=(0.0, 0.0)):
        self.seen = Obstacles.create(
            positions,
            [label] * len(positions),
            velocities=[velocity] * len(positions),
            ids=[str(index) for index in range(len(positions))],
        )


def test_a_free_way_passes_the_command_unchanged():
    decision = Rig(stop()).run(0.1)
    assert decision.twist == DRIVE
    assert (decision.cause, decision.ratio, decision.reason) == (Cause.FREE, 1.0, "")


def test_a_person_in_the_stop_zone_stops_at_once():
    rig = Rig(stop())
    rig.see((2.0, 0.0))
    decision = rig.run(STEP)
    assert decision.twist == STOPPED
    assert (decision.cause, decision.zone, decision.reason) == (Cause.ZONE, "stop", "stop: person")
    assert decision.zones[0].inside == (0,)


def test_slowdown_keeps_the_curvature():
    rig = Rig(stop(action=Action.SLOWDOWN, slowdown_ratio=0.25))
    rig.see((1.0, 0.0))
    assert rig.run(STEP).twist == Twist(0.25, 0.0, 0.1)


@pytest.mark.parametrize(
    ("linear", "angular", "expected"),
    [(0.5, 9.0, 0.5), (9.0, 0.1, 0.25), (9.0, 9.0, 1.0), (0.0, 9.0, 0.0)],
)
def test_limit_takes_one_ratio_for_all_components(linear, angular, expected):
    rig = Rig(stop(action=Action.LIMIT, linear_limit=linear, angular_limit=angular))
    rig.see((1.0, 0.0))
    decision = rig.run(STEP)
    assert decision.ratio == pytest.approx(expected)
    assert decision.twist == DRIVE.scaled(decision.ratio)


def test_approach_keeps_the_time_to_collision():
    rig = Rig(
        Zone("approach", FOOTPRINT, Action.APPROACH, time_before_collision=2.0),
        command=Twist(1.0),
    )
    rig.see((1.5, 0.0))  # the footprint touches it after 1.0 s
    assert 0.47 <= rig.run(STEP).ratio <= 0.5


def test_approach_stops_when_already_touching():
    rig = Rig(Zone("approach", FOOTPRINT, Action.APPROACH))
    rig.see((0.5, 0.0))
    assert rig.run(STEP).twist == STOPPED


def test_approach_ignores_what_is_beside_the_path():
    rig = Rig(Zone("approach", FOOTPRINT, Action.APPROACH), command=Twist(1.0))
    rig.see((1.5, 1.0))
    assert rig.run(STEP).cause is Cause.FREE


def test_a_zone_on_time_to_collision_sees_a_person_step_out():
    zone = Zone("soon", FOOTPRINT, Action.STOP, time_to_collision=2.0)
    rig = Rig(zone, command=Twist(1.0))
    rig.see((2.0, 1.5), velocity=(0.0, -1.0))
    assert rig.run(STEP).twist == STOPPED
    rig = Rig(zone, command=Twist(1.0))
    rig.see((2.0, 1.5), velocity=(0.0, 0.0))
    assert rig.run(STEP).cause is Cause.FREE


def test_warn_reports_and_leaves_the_velocity():
    rig = Rig(stop(action=Action.WARN))
    rig.see((1.0, 0.0))
    decision = rig.run(STEP)
    assert (decision.twist, decision.zone, decision.ratio) == (DRIVE, "stop", 1.0)


def test_the_strictest_zone_wins():
    rig = Rig(
        stop(name="slow", action=Action.SLOWDOWN),
        stop(name="halt"),
        stop(name="note", action=Action.WARN),
    )
    rig.see((1.0, 0.0))
    decision = rig.run(STEP)
    assert decision.zone == "halt"
    assert [report.name for report in decision.zones] == ["slow", "halt", "note"]


def test_zones_react_to_their_classes():
    person_stops = stop(name="person", classes=("person",))
    pallet_slows = stop(
        name="pallet", classes=("pallet",), action=Action.SLOWDOWN, slowdown_ratio=0.5
    )
    rig = Rig(person_stops, pallet_slows)
    rig.see((1.0, 0.0), label="pallet")
    decision = rig.run(STEP)
    assert (decision.zone, decision.ratio) == ("pallet", 0.5)
    rig.see((1.0, 0.0), label="person")
    assert rig.run(STEP).zone == "person"


def test_an_obstacle_of_an_unknown_class_triggers_every_zone():
    rig = Rig(stop(classes=("person",)))
    rig.see((1.0, 0.0), label="unicorn")
    assert rig.run(STEP).twist == STOPPED


def test_debounce_waits_but_not_at_the_first_look():
    zone = stop(trigger_after=0.3)
    rig = Rig(zone)
    rig.see((1.0, 0.0))
    assert rig.run(0.2).cause is Cause.FREE
    assert rig.run(0.2).twist == STOPPED

    first = Rig(zone, command=STOPPED)
    first.guardian = Guardian(first.guardian.settings)
    first.command = DRIVE
    first.see((1.0, 0.0))
    assert first.run(0.1).reason == "stop: person"


def test_release_needs_time_and_distance():
    rig = Rig(stop(release_after=0.3, release_margin=0.2))
    rig.see((1.9, 0.0))
    assert rig.run(STEP).twist == STOPPED
    rig.see((2.15, 0.0))  # outside, but within the margin
    assert rig.run(1.0).twist == STOPPED
    rig.see((2.3, 0.0))
    assert rig.run(0.25).reason == "stop: held"
    assert rig.run(0.2).twist == DRIVE


def test_a_flickering_detection_does_not_release():
    rig = Rig(stop(release_after=0.3))
    for _ in range(10):
        rig.see((1.0, 0.0))
        assert rig.run(STEP).twist == STOPPED
        rig.see()
        assert rig.run(0.15).twist == STOPPED


def test_a_faster_command_during_the_hold_is_still_limited():
    rig = Rig(stop(action=Action.LIMIT, linear_limit=0.5, angular_limit=9), command=Twist(0.6))
    rig.see((1.0, 0.0))
    rig.run(STEP)
    rig.see()
    rig.command = Twist(2.0)
    assert rig.run(STEP).twist.vx <= 0.5


def test_approach_holds_its_last_factor():
    approach = Zone("approach", FOOTPRINT, Action.APPROACH)
    rig = Rig(approach, command=Twist(1.0), sight_near=0.0)
    rig.see((1.5, 0.0))
    seen = rig.run(STEP).ratio
    rig.see()
    assert rig.run(STEP).ratio == seen


def test_velocity_polygon_lets_the_robot_back_away():
    shape = VelocityPolygon(
        (
            VelocityPart(AHEAD, 0.0, 1.5, -1, 1),
            VelocityPart(Polygon(((-1, -1), (-1, 1), (0, 1), (0, -1))), -1.0, 0.0, -1, 1),
        )
    )
    rig = Rig(stop(shape=shape, release_after=0.0))
    rig.see((0.5, 0.0))
    assert rig.run(STEP).twist == STOPPED
    rig.command = Twist(-0.5)
    assert rig.run(0.1).twist == Twist(-0.5)
    rig.command = Twist(2.0)
    decision = rig.run(STEP)
    assert decision.twist == STOPPED
    assert "not covered" in decision.reason


def test_a_disabled_zone_does_nothing():
    rig = Rig(stop(enabled=False))
    rig.see((1.0, 0.0))
    assert rig.run(STEP).twist == DRIVE


def test_disabled_zones_leave_the_watchdog_on():
    rig = Rig(stop(enabled=False))
    decision = rig.run(0.6, valid=False)
    assert decision.twist == STOPPED
    assert (decision.cause, decision.reason) == (Cause.WATCHDOG, "detections invalid")


def test_a_zone_switched_on_looks_for_the_first_time():
    rig = Rig(stop(enabled=False, trigger_after=5.0))
    rig.see((1.0, 0.0))
    rig.run(STEP)
    settings = rig.guardian.settings
    rig.guardian.configure(
        GuardianSettings((stop(trigger_after=5.0),), CLASSES, watchdog=settings.watchdog)
    )
    assert rig.run(STEP).twist == STOPPED


def test_reconfiguring_another_zone_keeps_the_memory():
    rig = Rig(stop(trigger_after=0.3))
    rig.see((1.0, 0.0))
    rig.run(0.2)
    settings = rig.guardian.settings
    other = stop(name="other", action=Action.WARN)
    rig.guardian.configure(
        GuardianSettings((*settings.zones, other), CLASSES, watchdog=settings.watchdog)
    )
    assert rig.run(STEP).twist == DRIVE


def test_after_a_gap_what_was_seen_before_does_not_count():
    rig = Rig(stop(trigger_after=0.3))
    rig.seconds += 2.0
    rig.see((1.0, 0.0))
    assert rig.run(STEP).cause is Cause.WATCHDOG
    # Seen again, and inside at the first look: no debounce.
    assert rig.run(STEP).reason == "stop: person"


def test_a_frozen_clock_stops():
    rig = Rig()
    now = rig.times.now_ns
    for step in range(20):
        rig.guardian.command(DRIVE, 0, Times(now, now + step * 50_000_000))
        decision = rig.guardian.decide(Times(now, now + step * 50_000_000))
    assert decision.twist == STOPPED
    assert decision.reason == "clock frozen"


def test_a_broken_obstacle_makes_the_picture_unusable():
    rig = Rig()
    for broken in (
        Obstacles.create([(math.nan, 0)], ["person"]),
        Obstacles.create([(1, 0), (math.inf, 0)], ["person"] * 2),
        Obstacles.create([(1, 0)], ["person"], radii=-1.0),
        Obstacles.create([(1, 0)], ["person"], covariances=[[[math.nan, 0], [0, 1]]]),
        Obstacles.create(np.full((1001, 2), 90.0), ["pallet"] * 1001),
    ):
        rig.seen = broken
        assert rig.run(0.6).cause is Cause.WATCHDOG
        rig.seen = Obstacles.empty()
        assert rig.run(0.2).twist == DRIVE


def test_commands_that_are_missing_late_or_not_finite_stop():
    rig = Rig()
    rig.command = Twist(math.nan)
    decision = rig.run(STEP)
    assert (decision.twist, decision.reason) == (STOPPED, "command not finite")
    assert decision.cause is Cause.COMMAND
    rig.command = DRIVE
    assert rig.run(STEP).twist == DRIVE
    rig.guardian.command(DRIVE, rig.times.now_ns - 10**9, rig.times)
    assert rig.guardian.decide(rig.times).reason == "command late"
    rig.run(STEP)
    for _ in range(11):
        rig.seconds += STEP
        rig.guardian.observe(rig.seen, rig.times.now_ns, True, rig.times)
        decision = rig.guardian.decide(rig.times)
    assert (decision.twist, decision.reason) == (STOPPED, "command stale")


def test_the_robots_own_motion_since_the_picture_counts():
    rig = Rig(stop(), command=Twist(1.0))
    rig.see((2.2, 0.0))
    assert rig.run(STEP).twist == Twist(1.0)
    rig.seconds += 0.3  # no newer picture; the robot drove 0.3 m
    rig.guardian.command(rig.command, 0, rig.times)
    assert rig.guardian.decide(rig.times).twist == STOPPED


@pytest.mark.parametrize(
    ("fault", "reason"), [("dark", "camera invalid"), ("repeated", "camera stale")]
)
def test_a_watched_camera_must_be_healthy(fault, reason):
    rig = Rig(watch_camera=True)
    assert rig.run(STEP).reason == "camera never came"
    for _ in range(3):
        rig.run(STEP)
        rig.guardian.picture(rig.times.now_ns, "", rig.times)
    assert rig.run(STEP).twist == DRIVE
    for _ in range(12):
        rig.run(STEP)
        rig.guardian.picture(rig.times.now_ns, fault, rig.times)
    assert rig.run(STEP).reason == reason


def test_time_going_back_does_not_release_a_zone():
    rig = Rig(stop(release_after=0.3), command=Twist(1.0))
    rig.see((1.0, 0.0))
    rig.run(STEP)
    rig.see()
    rig.run(STEP)
    rig.seconds -= 0.08  # within the tolerance for stamps from the future
    rig.guardian.command(rig.command, 0, rig.times)
    assert rig.guardian.decide(rig.times).twist == STOPPED


def test_settings_out_of_range_or_twice_are_refused():
    with pytest.raises(InputError, match="sigmas"):
        GuardianSettings(sigmas=math.nan)
    with pytest.raises(InputError, match="unknown_speed"):
        GuardianSettings(unknown_speed=-1.0)
    with pytest.raises(InputError, match="defined twice"):
        GuardianSettings(zones=(stop(), stop()))
    with pytest.raises(InputError, match="slowdown_ratio"):
        stop(slowdown_ratio=1.5)
    with pytest.raises(InputError, match="approach"):
        stop(action=Action.APPROACH, time_to_collision=2.0)


def test_obstacles_of_unequal_lengths_are_a_programming_error():
    with pytest.raises(ValueError, match="positions"):
        Obstacles.create([(1, 0)], ["person", "person"])


def test_no_part_of_a_velocity_polygon_covers_sideways_motion():
    shape = VelocityPolygon((VelocityPart(AHEAD, -2.0, 2.0, -3.0, 3.0),))
    rig = Rig(stop(shape=shape), command=Twist(0.5))
    assert rig.run(0.1).cause is Cause.FREE
    rig.command = Twist(0.0, 1.5)
    decision = rig.run(0.1)
    assert decision.twist == STOPPED
    assert decision.reason == "stop: velocity not covered by the zone"


def test_a_command_overtaken_by_a_later_one_is_not_obeyed():
    rig = Rig(stop())
    now = rig.times.now_ns
    rig.guardian.command(STOPPED, now, rig.times)
    rig.guardian.command(DRIVE, now - 400_000_000, rig.times)
    assert rig.guardian.decide(rig.times).twist == STOPPED


@pytest.mark.parametrize("first", [(), ((1.0, 0.0),)])
def test_two_results_of_one_picture_that_differ_stop(first):
    """Two detectors or trackers are at work; whose answer comes first must not decide."""
    rig = Rig(stop())
    decisions = []
    for _ in range(20):
        rig.see(*first)
        rig.run(STEP)
        rig.see(*(() if first else ((1.0, 0.0),)))
        rig.guardian.observe(rig.seen, rig.times.now_ns, True, rig.times)
        decisions.append(rig.guardian.decide(rig.times))
    assert {decision.twist for decision in decisions[1:]} == {STOPPED}
    assert decisions[-1].reason == "detections contradictory"


def test_the_same_result_twice_is_no_contradiction():
    rig = Rig(stop())
    rig.see((4.0, 0.0))
    for _ in range(20):
        decision = rig.run(STEP)
        rig.guardian.observe(rig.seen, rig.times.now_ns, True, rig.times)
    assert decision.cause is Cause.FREE
    assert rig.guardian.source.counts["contradictory"] == 0
