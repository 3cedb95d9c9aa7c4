"""Whatever comes in: never faster than commanded, never anything but finite numbers."""

import math
import warnings

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from perception.safety import (
    Action,
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
numbers = st.one_of(
    st.floats(-5, 5),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -0.0, 1e308, -1e308, 5e-324, math.nan, math.inf, -math.inf]),
)
twists = st.builds(Twist, numbers, numbers, numbers)
clocks = st.one_of(st.integers(0, 10**10), st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63), 10**18]))
BOX = Polygon(((2, -1), (2, 1), (0, 1), (0, -1)))
shapes = st.sampled_from(
    [Circle(1.0), BOX, VelocityPolygon((VelocityPart(BOX, -2.0, 2.0, -3.0, 3.0),))]
)


@st.composite
def zones(draw):
    action = draw(st.sampled_from(Action))
    return Zone(
        name=draw(st.sampled_from("abcdef")),
        shape=draw(shapes),
        action=action,
        classes=draw(st.sampled_from([(), ("person",), ("pallet", "forklift")])),
        time_to_collision=0.0 if action is Action.APPROACH else draw(st.sampled_from([0.0, 2.0])),
        slowdown_ratio=draw(st.floats(0, 1)),
        linear_limit=draw(st.floats(0, 2)),
        angular_limit=draw(st.floats(0, 2)),
        trigger_after=draw(st.sampled_from([0.0, 0.2])),
        release_after=draw(st.sampled_from([0.0, 0.2])),
        enabled=draw(st.booleans()),
    )


@st.composite
def obstacle_sets(draw):
    count = draw(st.sampled_from([0, 1, 1, 2, 5, 40, 1500]))
    if count > 5:
        value = draw(numbers)
        positions = np.full((count, 2), value)
        covariances = np.full((count, 2, 2), draw(numbers))
        velocities = np.full((count, 2), draw(numbers))
        radii = draw(numbers)
    else:
        positions = draw(arrays.arrays(np.float64, (count, 2), elements=numbers))
        covariances = draw(arrays.arrays(np.float64, (count, 2, 2), elements=numbers))
        velocities = draw(arrays.arrays(np.float64, (count, 2), elements=numbers))
        radii = draw(arrays.arrays(np.float64, (count,), elements=numbers))
    label = draw(st.sampled_from(["person", "pallet", "", "unicorn"]))
    return Obstacles.create(
        positions, [label] * count, radii=radii, covariances=covariances, velocities=velocities
    )


def assert_safe(command: Twist, decision) -> None:
    out = decision.twist
    assert out.finite
    assert 0.0 <= decision.ratio <= 1.0
    for name in ("vx", "vy", "wz"):
        commanded, allowed = getattr(command, name), getattr(out, name)
        if math.isfinite(commanded):
            assert abs(allowed) <= abs(commanded)
            assert allowed * commanded >= 0
        else:
            assert allowed == 0


@settings(max_examples=200, deadline=None)
@given(
    st.lists(zones(), max_size=4, unique_by=lambda zone: zone.name),
    st.lists(
        st.tuples(twists, obstacle_sets(), clocks, clocks, clocks, st.booleans(), st.booleans()),
        min_size=1,
        max_size=4,
    ),
)
def test_any_sequence_of_inputs(zone_list, events):
    guardian = Guardian(
        GuardianSettings(tuple(zone_list), CLASSES, watchdog=WatchdogSettings(recovery_frames=1))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for command, obstacles, now, steady, stamp, valid, simulated in events:
            times = Times(now, steady, simulated)
            guardian.observe(obstacles, stamp, valid, times)
            guardian.command(command, 0, times)
            assert_safe(command, guardian.decide(times))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(zones(), min_size=1, max_size=4, unique_by=lambda zone: zone.name),
    st.lists(st.tuples(twists, obstacle_sets()), min_size=1, max_size=5),
)
def test_any_content_on_a_healthy_stream(zone_list, events):
    guardian = Guardian(
        GuardianSettings(tuple(zone_list), CLASSES, watchdog=WatchdogSettings(recovery_frames=1))
    )
    now = 10**9
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for command, obstacles in events:
            now += 50_000_000
            times = Times(now, now)
            guardian.observe(obstacles, now - 30_000_000, True, times)
            guardian.command(command, now, times)
            assert_safe(command, guardian.decide(times))


@settings(max_examples=100, deadline=None)
@given(
    st.floats(-0.9, 0.9),
    st.floats(0.0, 2.0),
    st.floats(0.0, 0.5),
    st.floats(0, 0.3),
    st.sampled_from(["person", "forklift"]),
)
def test_whoever_stands_in_the_stop_zone_is_never_driven_at(y, x, radius, age, label):
    guardian = Guardian(
        GuardianSettings(
            (Zone("stop", BOX, Action.STOP, trigger_after=0.3),),
            CLASSES,
            watchdog=WatchdogSettings(recovery_frames=1),
        )
    )
    now = 10**10
    times = Times(now, now)
    seen = Obstacles.create([(x, y)], [label], radii=radius)
    guardian.observe(seen, now - round(age * 1e9), True, times)
    guardian.command(Twist(1.0), 0, times)
    assert not guardian.decide(times).twist.moving
