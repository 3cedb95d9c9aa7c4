"""Not seen is not gone: what held the robot and left the camera's sight goes on holding it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from perception.safety.memory import MOST, REAPPEARS_WITHIN, SAME_WITHIN, SETTLED, Sight
from perception.safety.shapes import Circle, Polygon, VelocityPart, VelocityPolygon

AHEAD = Polygon(((2, -1), (2, 1), (-0.5, 1), (-0.5, -1)))
STOP = Zone("stop", AHEAD, Action.STOP, release_after=0.5)
STEP = 0.05


class Rig:
    """A guardian at 20 Hz; `see` says what the pictures show from now on."""

    def __init__(self, *zones, **settings):
        self.guardian = Guardian(
            GuardianSettings(
                zones=zones or (STOP,),
                classes=("person", "pallet"),
                watchdog=WatchdogSettings(recovery_frames=1),
                **{"sight_near": 1.5, "sight_angle": 0.7, **settings},
            )
        )
        self.seconds = 10.0
        self.command = Twist(0.5)
        self.odometry = None
        self.see()
        self.run(0.2)

    @property
    def times(self):
        return Times(round(self.seconds * 1e9), round(self.seconds * 1e9))

    def see(self, *people, velocity=(0.0, 0.0), label="person"):
        """people: (id, x, y) each."""
        self.seen = Obstacles.create(
            [(x, y) for _, x, y in people],
            [label] * len(people),
            radii=0.3,
            velocities=[velocity] * len(people),
            ids=[name for name, _, _ in people],
        )

    def run(self, seconds, pictures=True):
        for _ in range(max(round(seconds / STEP), 1)):
            self.seconds += STEP
            if self.odometry is not None:
                self.guardian.moved(self.odometry, self.times)
            if pictures:
                self.guardian.observe(self.seen, self.times.now_ns, True, self.times)
            self.guardian.command(self.command, 0, self.times)
            decision = self.guardian.decide(self.times)
        return decision

    def somebody_comes_close(self, name="1", y=0.0):
        for x in (1.9, 1.6, 1.3, 1.0):
            self.see((name, x, y), velocity=(-0.6, 0.0))
            assert self.run(0.2).twist == STOPPED
        self.see()
        return self.run(STEP)


def test_somebody_who_came_too_close_to_be_seen_holds_the_robot():
    rig = Rig()
    decision = rig.somebody_comes_close()
    for _ in range(30):
        assert decision.twist == STOPPED
        assert decision.reason == "stop: person out of sight"
        decision = rig.run(2.0)


def test_they_are_let_go_when_they_are_seen_to_leave():
    rig = Rig()
    rig.somebody_comes_close()
    for x in (1.4, 1.8):
        rig.see(("2", x, 0.2), velocity=(0.6, 0.0))  # the tracker takes them for somebody new
        assert rig.run(0.2).twist == STOPPED
    rig.see(("2", 4.0, 0.2))
    assert rig.run(1.0).cause is Cause.FREE
    rig.see()
    assert rig.run(1.0).cause is Cause.FREE


def test_somebody_else_further_off_does_not_let_them_go():
    rig = Rig()
    rig.somebody_comes_close()
    rig.see(("2", 1.0 + REAPPEARS_WITHIN + 1.5, 0.0))
    assert rig.run(3.0).twist == STOPPED


def test_somebody_who_was_there_all_along_does_not_let_them_go():
    rig = Rig()
    rig.see(("1", 1.0, 0.0), ("2", 1.6, 0.0))
    rig.run(0.8)
    rig.see(("2", 1.6, 0.0))
    rig.run(0.5)
    rig.see(("2", 4.0, 0.0))
    assert rig.run(3.0).reason == "stop: person out of sight"


def test_two_people_do_not_vanish_into_one():
    rig = Rig()
    rig.see(("1", 1.0, 0.2), ("2", 1.0, -0.2))
    rig.run(0.8)
    rig.see()
    rig.run(0.5)
    rig.see(("3", 1.6, 0.0))
    rig.run(0.8)
    assert len(rig.guardian.hidden) == 1
    rig.see(("3", 4.0, 0.0))
    assert rig.run(3.0).twist == STOPPED


def test_another_class_does_not_let_them_go():
    rig = Rig()
    rig.somebody_comes_close()
    rig.see(("2", 1.4, 0.0), label="pallet")
    rig.run(0.5)
    rig.see()
    rig.run(0.5)
    assert "person" in rig.guardian.hidden.labels


def test_whoever_walks_out_of_the_picture_is_gone():
    rig = Rig()
    rig.see(("1", 0.9, 0.8), velocity=(0.0, 1.0))
    assert rig.run(0.2).twist == STOPPED
    rig.see()
    assert rig.run(1.0).cause is Cause.FREE


def test_what_vanishes_in_plain_sight_is_gone_after_the_hold():
    rig = Rig()
    rig.see(("1", 1.95, 0.0))
    assert rig.run(0.2).twist == STOPPED
    rig.see()
    assert rig.run(0.3).reason == "stop: held"
    assert rig.run(0.5).cause is Cause.FREE


def test_a_glimpse_is_not_remembered():
    """A detector's false find of a moment would hold the robot for good."""
    rig = Rig()
    rig.see(("1", 1.0, 0.0))
    assert rig.run(0.3).twist == STOPPED
    rig.see()
    assert rig.run(1.0).cause is Cause.FREE


def test_whoever_drifts_out_of_the_picture_has_left_though_no_velocity_is_known():
    rig = Rig()
    for step in range(26):
        rig.see(("1", 1.0, 0.04 * step), velocity=(math.nan, math.nan))
        assert rig.run(STEP).twist == STOPPED
    rig.see()
    assert rig.run(1.0).cause is Cause.FREE


def test_whoever_crosses_quickly_and_leaves_at_the_edge_of_the_picture_has_left():
    """A forklift, say: running means of its place lag 0.3 m behind it."""
    rig = Rig()
    for y in np.arange(-1.2, 1.25, 1.5 * STEP):  # the last one at 0.72 rad
        rig.see(("1", 1.4, float(y)), velocity=(math.nan, math.nan))
        rig.run(STEP)
    rig.see()
    assert rig.run(1.0).cause is Cause.FREE


def test_whoever_jitters_on_the_spot_has_not_left():
    rig = Rig()
    rng = np.random.default_rng(5)
    for _ in range(40):
        x, y = (1.0, 0.0) + rng.normal(0, 0.05, 2)
        rig.see(("1", x, y), velocity=(math.nan, math.nan))
        rig.run(STEP)
    rig.see()
    assert rig.run(5.0).reason == "stop: person out of sight"


def test_a_second_box_of_one_thing_is_not_remembered():
    rig = Rig()
    rig.see(("1", 1.0, 0.0), ("2", 1.1, 0.1))
    rig.run(0.8)
    rig.see(("1", 1.0, 0.0))
    rig.run(0.8)
    assert len(rig.guardian.hidden) == 0


def test_what_never_held_the_robot_is_not_remembered():
    rig = Rig()
    rig.see(("1", 1.0, 2.0))
    assert rig.run(0.2).cause is Cause.FREE
    rig.see()
    rig.run(0.2)
    assert len(rig.guardian.hidden) == 0


def test_a_warning_zone_holds_nothing():
    rig = Rig(Zone("warning", AHEAD, Action.WARN))
    rig.see(("1", 1.0, 0.0))
    rig.run(0.2)
    rig.see()
    rig.run(0.2)
    assert len(rig.guardian.hidden) == 0


def test_a_camera_that_fails_meanwhile_makes_nobody_go_away():
    rig = Rig()
    rig.somebody_comes_close()
    assert rig.run(3.0, pictures=False).cause is Cause.WATCHDOG
    assert rig.run(3.0).reason == "stop: person out of sight"


def test_somebody_seen_last_before_a_failure_is_still_there_after_it():
    rig = Rig()
    rig.see(("1", 1.0, 0.0))
    rig.run(0.8)
    rig.see()
    rig.run(3.0, pictures=False)
    assert rig.run(3.0).reason == "stop: person out of sight"


def test_an_operator_who_has_looked_lets_the_robot_go():
    rig = Rig()
    rig.somebody_comes_close()
    assert rig.guardian.forget() == 1
    assert rig.run(1.0).cause is Cause.FREE
    assert rig.guardian.forget() == 0


def test_a_robot_that_turns_and_sees_nobody_there_goes_on():
    rig = Rig()
    rig.see(("1", 1.6, 0.95))  # beyond 0.5 rad to the left
    rig.guardian.configure(GuardianSettings((STOP,), ("person",), sight_near=1.5, sight_angle=0.5))
    assert rig.run(0.8).twist == STOPPED
    rig.see()
    assert rig.run(2.0).reason == "stop: person out of sight"
    rig.odometry = Twist(wz=0.3)  # moved by hand
    rig.run(0.8)
    rig.odometry = STOPPED
    assert rig.run(1.0).cause is Cause.FREE


def test_what_is_out_of_sight_stays_where_it_is_while_the_robot_drives():
    slow = Zone("slow", AHEAD, Action.LIMIT, linear_limit=0.2)
    rig = Rig(slow)
    rig.see(("1", 1.0, 0.9))
    rig.command = STOPPED
    rig.run(0.8)
    rig.see()
    rig.odometry = Twist(0.2)
    rig.run(STEP)
    before = rig.guardian.hidden.positions[0]
    rig.run(2.0)
    assert rig.guardian.hidden.positions[0] == pytest.approx(before - [0.4, 0.0], abs=0.02)


def test_too_many_to_compare_hold_the_robot():
    rig = Rig()
    crowd = [(str(i), 1.0, 0.0) for i in range(150)]
    rig.see(*crowd)
    rig.run(0.8)
    rig.see(*[(f"new{i}", 1.4, 0.0) for i in range(150)])
    rig.run(STEP)
    assert len(rig.guardian.hidden) == MOST


@pytest.mark.parametrize(("field", "value"), [("sight_near", -1.0), ("sight_angle", math.nan)])
def test_impossible_limits_of_sight_are_refused(field, value):
    with pytest.raises(InputError, match=field):
        GuardianSettings(**{field: value})


@settings(max_examples=60, deadline=None)
@given(
    st.floats(0.6, 1.4),
    st.floats(-0.6, 0.6),
    st.lists(st.tuples(st.floats(3.5, 9.0), st.floats(-3, 3)), max_size=3),
)
def test_nobody_is_driven_at_who_was_last_seen_close(x, y, others):
    rig = Rig()
    rig.see(("1", x, y))
    rig.run(0.8)
    for number, place in enumerate(others):
        rig.see((f"other{number}", *place))
        assert rig.run(1.0).twist == STOPPED
    rig.see()
    assert rig.run(2.0).twist == STOPPED


# Numbers change, boxes flicker --------------------------------------------------------------------


def test_a_glimpse_of_who_is_out_of_sight_does_not_let_them_go():
    rig = Rig()
    rig.somebody_comes_close()
    for number in range(5):
        rig.see((f"new{number}", 1.0, 0.0))
        rig.run(SETTLED - 2 * STEP)
        rig.see()
        assert rig.run(3.0).reason == "stop: person out of sight"


def test_a_false_find_further_off_does_not_let_them_go():
    rig = Rig()
    rig.somebody_comes_close()
    rig.see(("2", 1.0 + REAPPEARS_WITHIN - 0.1, 0.0))  # in plain sight, for a moment
    rig.run(SETTLED - 2 * STEP)
    rig.see()
    assert rig.run(3.0).reason == "stop: person out of sight"


def test_one_who_follows_is_enough_though_others_stand_near():
    rig = Rig()
    rig.somebody_comes_close()
    rig.see(("2", 1.2, 0.0), ("3", 1.6, 0.3))
    rig.run(0.8)
    assert len(rig.guardian.hidden) == 0


def test_a_new_number_shortly_before_vanishing_is_the_same_person():
    rig = Rig()
    rig.see(("1", 1.3, 0.0))
    rig.run(0.8)
    rig.see(("2", 1.1, 0.0))
    rig.run(0.2)
    rig.see()
    assert rig.run(3.0).reason == "stop: person out of sight"


def test_somebody_without_a_number_is_followed_by_their_place():
    rig = Rig()
    rig.see(("", 1.0, 0.0))
    rig.run(0.8)
    rig.see()
    assert rig.run(3.0).reason == "stop: person out of sight"


def test_a_glimpse_without_a_number_is_not_remembered():
    rig = Rig()
    rig.see(("", 1.0, 0.0))
    assert rig.run(0.3).twist == STOPPED
    rig.see()
    assert rig.run(1.0).cause is Cause.FREE


def test_a_tracker_that_counts_from_1_again_makes_nobody_go_away():
    rig = Rig()
    rig.see(("1", 1.0, 0.0))
    rig.run(0.8)
    rig.see(("1", 1.0 + SAME_WITHIN + 0.5, 0.0))
    assert rig.run(3.0).reason == "stop: person out of sight"


def test_somebody_who_came_to_the_same_place_and_left_takes_nobody_along():
    rig = Rig()
    rig.somebody_comes_close()
    for x in (5.0, 3.5, 2.0, 1.2, 2.0, 3.5, 5.0):
        rig.see(("2", x, 0.0))
        rig.run(0.8)
    assert rig.run(2.0).reason == "stop: person out of sight"


def test_a_bystander_who_gets_a_new_number_is_not_who_is_out_of_sight():
    rig = Rig()
    rig.see(("1", 1.0, 0.0), ("2", 2.3, 0.3))
    rig.run(0.8)
    rig.see(("2", 2.3, 0.3))
    rig.run(0.5)
    rig.see()
    rig.run(0.8)  # missed for a while
    rig.see(("3", 2.3, 0.3))
    rig.run(1.0)
    rig.see(("3", 4.5, 0.3))
    assert rig.run(3.0).reason == "stop: person out of sight"


def test_a_clock_that_steps_back_makes_nobody_a_glimpse():
    rig = Rig()
    rig.see(("1", 1.0, 0.0))
    rig.run(0.8)
    rig.seconds -= 8.0
    rig.run(0.8)
    rig.see()
    assert rig.run(3.0).reason == "stop: person out of sight"


def test_a_place_in_sight_for_a_moment_is_not_found_empty():
    rig = Rig()
    rig.guardian.configure(GuardianSettings((STOP,), ("person",), sight_near=1.5, sight_angle=0.5))
    rig.see(("1", 1.6, 0.95))
    rig.run(0.8)
    rig.see()
    rig.run(0.5)
    rig.odometry = Twist(wz=1.0)
    rig.run(0.15)
    rig.odometry = Twist(wz=-1.0)
    rig.run(0.15)
    rig.odometry = STOPPED
    assert rig.run(3.0).reason == "stop: person out of sight"


# Who has left, and who only moved ---------------------------------------------------------------


def test_a_noisy_velocity_makes_nobody_leave():
    rig = Rig()
    rig.see(("1", 1.0, 0.0))
    rig.run(0.8)
    rig.see(("1", 1.0, 0.0), velocity=(0.0, 0.5))
    rig.run(STEP)
    rig.see()
    assert rig.run(3.0).reason == "stop: person out of sight"


def test_whoever_backs_off_straight_ahead_and_bends_down_is_still_there():
    rig = Rig()
    rig.see(("1", 1.0, 0.0))
    rig.run(0.8)
    for step in range(8):
        rig.see(("1", 1.0 + 0.04 * step, 0.0), velocity=(0.8, 0.0))
        rig.run(STEP)
    rig.see()
    assert rig.run(3.0).reason == "stop: person out of sight"


@pytest.mark.parametrize(
    ("place", "way", "leaves"),
    [
        ((1.0, 0.0), (1.0, 0.0), False),  # would be seen
        ((1.0, 0.2), (0.0, 1.0), True),  # passes below the picture
        ((1.0, -0.2), (0.0, -1.0), True),
        ((1.5, 0.2), (0.0, 1.0), False),  # too far off to pass below it
        ((1.0, 1.0), (1.0, 1.0), True),  # beside the picture
        ((1.0, 1.0), (-0.2, 1.0), True),
        ((1.0, 1.0), (1.0, 0.0), False),  # into the picture
        ((1.0, 1.0), (0.0, -1.0), False),  # towards the robot's way
        ((1.0, 1.0), (1.2, -0.9), False),  # across the picture
    ],
)
def test_only_a_way_that_the_camera_does_not_see_leads_out(place, way, leaves):
    sight = Sight(near=1.8, angle=0.64)
    assert sight.leads_out(np.array([place]), np.array([way])).tolist() == [leaves]


# Who could hold the robot ------------------------------------------------------------------------

FORWARD = VelocityPart(AHEAD, 0.05, 2.0, -1.0, 1.0)
STILL = VelocityPart(Polygon(((0.6, -0.6), (0.6, 0.6), (-0.5, 0.6))), -0.5, 0.05, -1.0, 1.0)


@pytest.mark.parametrize(
    "zone",
    [
        Zone("z", VelocityPolygon((FORWARD, STILL)), Action.STOP),
        Zone("z", Circle(0.5), Action.APPROACH),
        Zone("z", Circle(0.5), Action.STOP, time_to_collision=2.0),
        Zone("z", AHEAD, Action.STOP, trigger_after=1.0),
    ],
)
def test_whoever_comes_while_the_robot_stands_idle_holds_it_later(zone):
    rig = Rig(zone)
    rig.command = STOPPED
    rig.see(("1", 1.2, 0.0))
    rig.run(0.8)
    rig.see()
    rig.run(0.5)
    rig.command = Twist(0.5)
    assert rig.run(1.5).twist.vx < 0.1


def test_whoever_comes_close_while_the_watchdog_holds_the_robot_is_remembered():
    rig = Rig()
    rig.run(1.0, pictures=False)
    rig.guardian.configure(
        GuardianSettings(
            (STOP,), ("person",), sight_near=1.5, watchdog=WatchdogSettings(recovery_frames=40)
        )
    )
    rig.see(("1", 1.3, 0.0))
    assert rig.run(0.8).cause is Cause.WATCHDOG
    rig.see()
    assert rig.run(3.0).reason == "stop: person out of sight"


def test_where_all_is_in_sight_nothing_is_remembered():
    rig = Rig(
        Zone("z", Circle(0.5), Action.STOP, time_to_collision=2.0),
        sight_near=0.0,
        sight_angle=math.pi,
    )
    rig.see(("1", 0.6, 0.0))
    rig.run(0.8)
    rig.see()
    assert rig.run(1.0).cause is Cause.FREE


def test_a_guardian_that_is_not_to_be_trusted_stands_until_somebody_has_looked():
    rig = Rig()
    rig.guardian.distrust("started again")
    decision = rig.run(5.0)
    assert (decision.twist, decision.cause, decision.reason) == (
        STOPPED,
        Cause.WATCHDOG,
        "started again",
    )
    rig.guardian.forget()
    assert rig.run(1.0).cause is Cause.FREE


def test_a_guardian_that_sees_all_need_not_be_distrusted():
    rig = Rig(sight_near=0.0, sight_angle=3.14)
    rig.guardian.distrust("started again")
    assert rig.run(1.0).cause is Cause.FREE


# What the robot really does ---------------------------------------------------------------------


def test_time_to_collision_heeds_the_measured_velocity_where_nobody_commands():
    warning = Zone("warning", Circle(1.0), Action.WARN, time_to_collision=2.0)
    rig = Rig(warning)
    rig.command = STOPPED
    rig.see(("car", 15.0, 0.0))
    assert not rig.run(0.2).zones
    rig.odometry = Twist(10.0)
    assert [report.name for report in rig.run(0.2).zones] == ["warning"]
    rig.odometry = None
    assert not rig.run(2.0).zones  # an old measurement says nothing


@pytest.mark.parametrize("turns", [-1.5, 1.5])
def test_a_robot_that_may_not_follow_its_command_leaves_nobody_behind(turns):
    """Commanded to turn, it may stand: who was in the zone counts there too."""
    rig = Rig(sight_near=0.0, sight_angle=math.pi)
    rig.command = Twist(0.0, wz=turns)
    rig.see()
    rig.run(0.5)
    place = np.array([[1.9, math.copysign(0.9, -turns)]])
    seen = Obstacles.create(place, ["person"], velocities=[(0.0, 0.0)])
    rig.seconds += 0.35
    rig.guardian.observe(seen, rig.times.now_ns - 300_000_000, True, rig.times)
    assert rig.guardian.decide(rig.times).twist == STOPPED


def test_a_measurement_that_is_no_number_is_not_taken():
    rig = Rig(Zone("warning", Circle(1.0), Action.WARN, time_to_collision=2.0))
    rig.see(("car", 15.0, 0.0))
    rig.odometry = Twist(math.nan)
    assert not rig.run(0.2).zones


def test_a_motion_is_known_only_while_it_is_measured():
    rig = Rig()
    assert not rig.guardian.knows_motion(rig.times)
    rig.odometry = STOPPED
    rig.run(STEP)
    assert rig.guardian.knows_motion(rig.times)
    rig.odometry = None
    rig.run(1.0)
    assert not rig.guardian.knows_motion(rig.times)
