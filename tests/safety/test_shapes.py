import math

import numpy as np
import pytest

from perception.errors import InputError
from perception.safety.motion import STOPPED, Twist
from perception.safety.obstacles import Capsules, Obstacles
from perception.safety.shapes import (
    Circle,
    Polygon,
    VelocityPart,
    VelocityPolygon,
    collision_times,
    touching,
)

SQUARE = Polygon(((1, 1), (-1, 1), (-1, -1), (1, -1)))
# A concave outline: an L whose notch is at (+, +).
ELL = Polygon(((2, 0), (2, -2), (-2, -2), (-2, 2), (0, 2), (0, 0)))


def capsules(positions, radii=0.0, covariances=None, velocities=None, unknown_speed=0.0):
    count = len(positions)
    obstacles = Obstacles.create(
        positions,
        ["person"] * count,
        radii=radii,
        covariances=covariances,
        velocities=np.zeros((count, 2)) if velocities is None else velocities,
    )
    return Capsules.around(obstacles, 2.0, unknown_speed, 0.0)


@pytest.mark.parametrize("point", [(1, 0), (1, 1), (-1, -1), (0, -1), (0.3, 1)])
def test_an_obstacle_on_the_edge_or_a_corner_is_inside(point):
    assert touching(SQUARE, capsules([point])).tolist() == [True]


@pytest.mark.parametrize("point", [(1.001, 0), (0, -1.001), (1.001, 1.001), (5, 1)])
def test_an_obstacle_outside_does_not_touch(point):
    assert touching(SQUARE, capsules([point])).tolist() == [False]


def test_direction_of_the_corners_does_not_matter():
    reverse = Polygon(tuple(reversed(ELL.points)))
    points = capsules([(1, 1), (-1, 1), (1, -1), (0, 0), (0, 1.5), (0.01, 0.01)])
    expected = [False, True, True, True, True, False]
    assert touching(ELL, points).tolist() == expected
    assert touching(reverse, points).tolist() == expected


def test_radius_reaches_into_the_zone():
    assert touching(SQUARE, capsules([(1.3, 0), (1.3, 0)], radii=[0.3, 0.29])).tolist() == [
        True,
        False,
    ]
    # Past a corner the gap is diagonal: sqrt(0.3^2 + 0.4^2) = 0.5.
    assert touching(SQUARE, capsules([(1.3, 1.4), (1.3, 1.4)], radii=[0.5, 0.49])).tolist() == [
        True,
        False,
    ]


def test_circle_counts_its_edge_and_the_radius():
    assert touching(
        Circle(2.0), capsules([(2, 0), (0, 2.1), (0, -2.1)], [0, 0.1, 0.05])
    ).tolist() == [
        True,
        True,
        False,
    ]


def test_uncertainty_reaches_along_its_long_axis_only():
    far_along_x = np.array([[[0.25, 0], [0, 0.0001]]])
    assert touching(SQUARE, capsules([(1.9, 0)], covariances=far_along_x))[0]
    assert not touching(SQUARE, capsules([(0, 1.9)], covariances=far_along_x))[0]
    tilted = np.array([[[0.5, 0.49], [0.49, 0.5]]])
    assert touching(SQUARE, capsules([(2, 2)], covariances=tilted))[0]
    assert not touching(SQUARE, capsules([(2, -2)], covariances=tilted))[0]


def test_a_segment_across_the_polygon_touches_though_both_ends_are_outside():
    along_x = np.array([[[4.0, 0], [0, 0]]])
    assert touching(SQUARE, capsules([(0, 0.5)], covariances=along_x))[0]
    assert touching(
        Polygon(((3, 0.4), (3.2, 0.4), (3.1, 0.6))), capsules([(0, 0.5)], covariances=along_x)
    )[0]


def test_distance_agrees_with_dense_sampling():
    rng = np.random.default_rng(7)
    start, end = rng.uniform(-4, 4, (200, 2)), rng.uniform(-4, 4, (200, 2))
    where = np.linspace(0, 1, 400)[:, None, None]
    dense = (start + where * (end - start)).reshape(-1, 2)
    sampled = ELL.distance(dense, dense).reshape(400, 200).min(axis=0)
    exact = ELL.distance(start, end)
    assert (exact <= sampled + 1e-9).all()
    assert np.abs(exact - sampled).max() < 0.02


def test_nothing_touches_when_there_is_nothing():
    nothing = Capsules.around(Obstacles.empty(), 2.0, 1.6, 0.1)
    for outline in (SQUARE, Circle(1.0)):
        assert touching(outline, nothing).shape == (0,)
        assert collision_times(outline, nothing, Twist(1.0), 2.0, 0.1).shape == (0,)


def test_more_obstacles_than_one_block_are_all_judged():
    points = np.full((10_000, 2), 9.0)
    points[[3, 5000, 9999]] = 0.0
    assert np.flatnonzero(touching(SQUARE, capsules(points))).tolist() == [3, 5000, 9999]
    times = collision_times(SQUARE, capsules(points), Twist(1.0), 2.0, 0.1)
    assert np.flatnonzero(times == 0).tolist() == [3, 5000, 9999]


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (((0, 0), (1, 1)), "2 corners"),
        (((0, 0), (1, 1), (2, 2)), "no area"),
        (((0, 0), (0, 0), (1, 1), (1, 0)), "same corner"),
        (((0, 0), (math.nan, 1), (1, 1)), "finite"),
        (((0, 0), (2000, 0), (0, 2000)), "within 1000 m"),
        (((0, 0), (2, 2), (2, 0), (0, 1)), "crosses itself"),
    ],
)
def test_polygons_that_enclose_nothing_clear_are_refused(points, message):
    with pytest.raises(InputError, match=message):
        Polygon(points)


@pytest.mark.parametrize("radius", [0.0, -1.0, math.nan, math.inf, 5000.0])
def test_circles_without_a_sound_radius_are_refused(radius):
    with pytest.raises(InputError, match="radius"):
        Circle(radius)


def test_velocity_polygon_takes_the_first_part_that_covers_the_velocity():
    ahead = VelocityPart(Polygon(((2, -1), (2, 1), (0, 1), (0, -1))), 0.0, 1.0, -1.0, 1.0)
    behind = VelocityPart(Polygon(((-2, -1), (-2, 1), (0, 1), (0, -1))), -1.0, 0.0, -1.0, 1.0)
    shape = VelocityPolygon((ahead, behind))
    assert shape.outline(Twist(0.5)) == ahead.polygon
    assert shape.outline(Twist(1.0, wz=1.0)) == ahead.polygon  # bounds included
    assert shape.outline(STOPPED) == ahead.polygon
    assert shape.outline(Twist(-0.5)) == behind.polygon
    assert shape.outline(Twist(1.5)) is None
    assert shape.outline(Twist(0.5, wz=1.1)) is None


def test_velocity_parts_need_ordered_finite_ranges():
    with pytest.raises(InputError, match="theta_min"):
        VelocityPart(SQUARE, 0.0, 1.0, 1.0, -1.0)
    with pytest.raises(InputError, match="linear_min"):
        VelocityPart(SQUARE, 0.0, math.inf, -1.0, 1.0)
    with pytest.raises(InputError, match="at least one part"):
        VelocityPolygon(())


def test_collision_time_is_distance_over_speed_and_never_later():
    # 3 m between the front edge and the obstacle, at 2 m/s.
    time = collision_times(SQUARE, capsules([(4, 0)]), Twist(2.0), 3.0, 0.1)[0]
    assert 1.4 <= time <= 1.5


def test_collision_at_the_first_moment_counts():
    assert collision_times(SQUARE, capsules([(0.5, 0)]), STOPPED, 2.0, 0.1).tolist() == [0.0]


def test_moving_obstacles_are_met_where_they_will_be():
    # It crosses from the left at 1 m/s and is in front when the robot arrives.
    crossing = capsules([(4, 3)], velocities=[(0, -1)])
    assert np.isfinite(collision_times(SQUARE, crossing, Twist(1.0), 4.0, 0.1)[0])
    leaving = capsules([(4, 3)], velocities=[(0, 1)])
    assert np.isinf(collision_times(SQUARE, leaving, Twist(1.0), 4.0, 0.1)[0])
    # A standing robot can be run into.
    coming = capsules([(3, 0)], velocities=[(-1, 0)])
    assert 1.9 <= collision_times(SQUARE, coming, STOPPED, 4.0, 0.1)[0] <= 2.0


def test_an_obstacle_of_unknown_velocity_is_taken_to_come():
    unknown = capsules([(3, 0)], velocities=[(np.nan, np.nan)], unknown_speed=1.0)
    assert 1.9 <= collision_times(SQUARE, unknown, STOPPED, 4.0, 0.1)[0] <= 2.0


def test_turning_on_the_spot_sweeps_the_corners():
    beside = capsules([(0, 1.2)])
    assert np.isinf(collision_times(SQUARE, beside, STOPPED, 2.0, 0.1)[0])
    assert np.isfinite(collision_times(SQUARE, beside, Twist(wz=1.0), 2.0, 0.1)[0])


def test_driving_a_curve_follows_the_arc():
    # A half circle of radius 2 to the left ends at (0, 4): the obstacle there is met.
    twist = Twist(1.0, wz=0.5)
    small = Circle(0.3)
    assert np.isfinite(collision_times(small, capsules([(0, 4)]), twist, 2 * math.pi, 0.05)[0])
    assert np.isinf(collision_times(small, capsules([(4, 0)]), twist, 2 * math.pi, 0.05)[0])
