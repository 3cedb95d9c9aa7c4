import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perception.safety.motion import Twist, relative_positions
from perception.safety.obstacles import Obstacles

speeds = st.floats(-3, 3)


@given(speeds, speeds, speeds, st.floats(0, 3))
def test_relative_motion_agrees_with_small_steps(vx, vy, wz, seconds):
    x, y, heading = 0.0, 0.0, 0.0
    steps = 400
    for step in range(steps):
        # Midpoint rule: its error is far below the tolerance.
        middle = heading + wz * seconds / steps / 2
        x += (vx * math.cos(middle) - vy * math.sin(middle)) * seconds / steps
        y += (vx * math.sin(middle) + vy * math.cos(middle)) * seconds / steps
        heading = wz * seconds * (step + 1) / steps
    point, velocity = np.array([[4.0, -1.0]]), np.array([[0.5, 0.2]])
    world = point[0] + velocity[0] * seconds - [x, y]
    cos, sin = math.cos(heading), math.sin(heading)
    expected = [cos * world[0] + sin * world[1], -sin * world[0] + cos * world[1]]
    found = relative_positions(point, velocity, Twist(vx, vy, wz), np.array([seconds]))[0, 0]
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_obstacles_move_by_what_the_robot_drove():
    seen = Obstacles.create(
        [(3, 1)], ["pallet"], covariances=[[[1, 0], [0, 0.1]]], velocities=[(0, 1)]
    )
    straight = seen.advanced(Twist(1.0), 0.5)
    np.testing.assert_allclose(straight.positions, [(2.5, 1)])
    turned = seen.advanced(Twist(wz=math.pi / 2), 1.0)
    np.testing.assert_allclose(turned.positions, [(1, -3)], atol=1e-12)
    np.testing.assert_allclose(turned.velocities, [(1, 0)], atol=1e-12)
    np.testing.assert_allclose(turned.covariances, [[[0.1, 0], [0, 1]]], atol=1e-12)
    assert seen.advanced(Twist(1.0), 0.0) is seen


def test_one_factor_keeps_the_curvature():
    twist = Twist(1.0, 0.2, 0.5)
    assert twist.scaled(0.5) == Twist(0.5, 0.1, 0.25)
    assert twist.moving and not Twist().moving
    assert Twist(3.0, 4.0).speed == 5.0
    assert not Twist(math.nan).finite and not Twist(wz=math.inf).finite
