"""What obstacles of a moment ago may occupy now."""

import math

import numpy as np
import pytest

from perception.safety.obstacles import Capsules, Obstacles

WALKING = [(0.0, -1.0)]


def around(velocities=WALKING, velocity_sigmas=0.0, sigmas=2.0, age=0.4):
    seen = Obstacles.create(
        [(3.0, 1.0)],
        ["person"],
        radii=0.3,
        velocities=velocities,
        velocity_sigmas=velocity_sigmas,
    )
    return Capsules.around(seen, sigmas, 1.6, age)


def test_a_known_velocity_carries_an_obstacle_on_with_its_uncertainty():
    exact, unsure = around(), around(velocity_sigmas=0.5)
    for found in (exact, unsure):
        np.testing.assert_allclose(found.start, [(3.0, 0.6)])
        assert found.growth == [0.0]
    assert exact.reach == pytest.approx([0.3])
    assert unsure.reach == pytest.approx([0.3 + 2.0 * 0.5 * 0.4])
    # It counts in as many standard deviations as the place, and not before time has passed.
    assert around(velocity_sigmas=0.5, sigmas=0.0).reach == pytest.approx([0.3])
    assert around(velocity_sigmas=0.5, age=0.0).reach == pytest.approx([0.3])


@pytest.mark.parametrize("sigma", [math.nan, -0.1])
def test_a_velocity_without_a_sound_uncertainty_is_unknown(sigma):
    found = around(velocity_sigmas=sigma)
    unknown = around(velocities=None)
    np.testing.assert_allclose(found.start, [(3.0, 1.0)])
    assert found.reach == unknown.reach == pytest.approx([0.3 + 1.6 * 0.4])
    assert found.growth == unknown.growth == [1.6]
