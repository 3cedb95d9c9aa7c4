import math

import numpy as np
import pytest
from hypothesis import given, settings

from perception.errors import InputError
from perception.geometry.camera import Mount
from perception.geometry.frames import StaticFrames
from tests.geometry.mounts import mounts

OPTICAL = (-0.5, 0.5, -0.5, 0.5)
"""Quaternion of an optical frame in its camera's body frame (REP 103)."""


def pitched(angle):
    return (0.0, math.sin(angle / 2), 0.0, math.cos(angle / 2))


def quaternion_of(rotation):
    """Shepperd's method on the largest component."""
    trace = np.trace(rotation)
    squares = np.array([*(1 + 2 * np.diag(rotation) - trace), 1 + trace]) / 4
    r = rotation
    best = int(np.argmax(squares))
    size = math.sqrt(squares[best])
    rows = {
        3: [r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1], 4 * size**2],
        0: [4 * size**2, r[0, 1] + r[1, 0], r[0, 2] + r[2, 0], r[2, 1] - r[1, 2]],
        1: [r[0, 1] + r[1, 0], 4 * size**2, r[1, 2] + r[2, 1], r[0, 2] - r[2, 0]],
        2: [r[0, 2] + r[2, 0], r[1, 2] + r[2, 1], 4 * size**2, r[1, 0] - r[0, 1]],
    }
    return np.array(rows[best]) / (4 * size)


@settings(max_examples=60, deadline=None)
@given(mounts)
def test_a_mount_comes_back_from_its_transform(mount):
    frames = StaticFrames()
    frames.add("base", "optical", (mount.x, mount.y, mount.z), quaternion_of(mount.rotation))
    again = Mount.from_matrix(frames.between("base", "optical"))
    np.testing.assert_allclose(again.rotation, mount.rotation, atol=1e-9)
    assert (again.x, again.y, again.z) == pytest.approx((mount.x, mount.y, mount.z), abs=1e-12)


def test_transforms_are_chained_as_a_robots_description_does():
    frames = StaticFrames()
    frames.add("camera", "optical", (0, 0, 0), OPTICAL)
    frames.add("base_link", "camera", (0.2, -0.1, 0.9), pitched(0.2))
    mount = Mount.from_matrix(frames.between("base_link", "optical"))
    assert (mount.x, mount.y, mount.z) == pytest.approx((0.2, -0.1, 0.9))
    assert (mount.roll, mount.pitch, mount.yaw) == pytest.approx((0, 0.2, 0), abs=1e-9)


def test_the_base_may_hang_from_another_frame():
    frames = StaticFrames()
    frames.add("chassis", "/footprint", (0.0, 0.0, -0.15), (0, 0, 0, 1))
    frames.add("chassis", "optical", (0.3, 0.0, 0.8), OPTICAL)
    mount = Mount.from_matrix(frames.between("footprint", "optical"))
    assert (mount.x, mount.z) == pytest.approx((0.3, 0.95))


def test_what_is_not_connected_is_said():
    frames = StaticFrames()
    frames.add("map", "base", (0, 0, 0), (0, 0, 0, 1))
    with pytest.raises(InputError, match="no static transform from 'base' to 'optical'.*'map'"):
        frames.between("base", "optical")


def test_a_circle_of_transforms_is_said():
    frames = StaticFrames()
    frames.add("a", "b", (0, 0, 0), (0, 0, 0, 1))
    frames.add("b", "a", (0, 0, 0), (0, 0, 0, 1))
    with pytest.raises(InputError, match="circle"):
        frames.between("a", "b")


@pytest.mark.parametrize(
    ("translation", "quaternion"),
    [
        ((0, 0, 1), (0, 0, 0, 0)),
        ((0, 0, 1), (0, 0, 0, 1.1)),
        ((0, 0, math.nan), (0, 0, 0, 1)),
        ((0, math.inf, 1), (0, 0, 0, 1)),
        ((0, 0, 1), (math.nan, 0, 0, 1)),
    ],
)
def test_an_unusable_transform_is_refused_and_forgets_the_one_before(translation, quaternion):
    frames = StaticFrames()
    frames.add("base", "optical", (0, 0, 1), OPTICAL)
    with pytest.raises(InputError, match="from 'base' to 'optical'.*unit quaternion"):
        frames.add("base", "optical", translation, quaternion)
    with pytest.raises(InputError, match="no static transform"):
        frames.between("base", "optical")
