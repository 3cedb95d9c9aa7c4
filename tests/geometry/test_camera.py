import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perception.errors import InputError
from perception.geometry.camera import Camera, Mount
from tests.geometry.mounts import mounts

K = [400, 0, 320, 0, 400, 240, 0, 0, 1]
BARREL = [-0.28, 0.07, 0.0002, -0.0001, 0.0]
LEVEL = Mount(z=1.5)


def camera(mount=LEVEL, d=(), model="plumb_bob"):
    return Camera.create(640, 480, K, d, mount, model)


def test_axes_follow_rep_103():
    # 10 m ahead at camera height is the principal point; left is left, up is up.
    pixels = camera().project([(10, 0, 1.5), (10, 1, 1.5), (10, 0, 2.5)])
    np.testing.assert_allclose(pixels, [(320, 240), (280, 240), (320, 200)], atol=1e-9)


def test_positive_pitch_looks_down():
    tilted = camera(Mount(z=1.5, pitch=math.radians(10)))
    assert tilted.project([(10, 0, 1.5)])[0, 1] < 240
    # The ray of the principal point meets the ground at z / tan(pitch).
    np.testing.assert_allclose(
        tilted.ground_points([(320, 240)]), [(1.5 / math.tan(math.radians(10)), 0)], atol=1e-9
    )


def test_positive_roll_turns_the_right_side_down():
    # x forward: a positive roll takes y (left) up, so a point on the left appears lower.
    assert camera(Mount(z=1.5, roll=0.1)).project([(10, 1, 1.5)])[0, 1] > 240


def test_ground_points_above_the_horizon_are_nowhere():
    points = camera().ground_points([(320, 239), (320, 240), (320, 250)])
    assert np.isnan(points[:2]).all()
    assert points[2, 0] == pytest.approx(1.5 * 400 / 10)


def test_points_behind_the_camera_have_no_pixel():
    assert np.isnan(camera().project([(-5, 0, 1)])).all()
    assert camera().project([]).shape == (0, 2)
    assert camera().rays([]).shape == (0, 3)


@settings(max_examples=60, deadline=None)
@given(
    mounts,
    st.sampled_from([((), "plumb_bob"), (BARREL, "plumb_bob"), ([0.02, -0.01, 0, 0], "equidistant"),
                     ([0.1, 0.02, 0, 0, 0, 0.05, 0, 0], "rational_polynomial")]),
    st.floats(20, 620),
    st.floats(20, 460),
    st.floats(0.5, 60),
)  # fmt: skip
def test_pixel_to_ray_to_pixel_returns(mount, lens, u, v, distance):
    seen = camera(mount, *lens)
    ray = seen.rays([(u, v)])
    assert np.linalg.norm(ray) == pytest.approx(1.0)
    back = seen.project(seen.position + distance * ray)
    np.testing.assert_allclose(back, [(u, v)], atol=0.01)


@settings(max_examples=60, deadline=None)
@given(mounts, st.floats(1, 30), st.floats(-10, 10))
def test_ground_to_pixel_to_ground_returns(mount, ahead, left):
    seen = camera(mount)
    cos, sin = math.cos(mount.yaw), math.sin(mount.yaw)
    place = np.array([mount.x + cos * ahead - sin * left, mount.y + sin * ahead + cos * left])
    pixel = seen.project([(*place, 0.0)])
    if np.isfinite(pixel).all():
        np.testing.assert_allclose(seen.ground_points(pixel), [place], rtol=1e-6, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(mounts)
def test_a_mount_from_its_own_transform_is_the_same(mount):
    matrix = np.eye(4)
    matrix[:3, :3] = mount.rotation
    matrix[:3, 3] = mount.x, mount.y, mount.z
    again = Mount.from_matrix(matrix)
    np.testing.assert_allclose(again.rotation, mount.rotation, atol=1e-9)
    assert (again.x, again.y, again.z) == (mount.x, mount.y, mount.z)


YAML = """
image_width: 640
image_height: 480
camera_name: front
camera_matrix: {rows: 3, cols: 3, data: [400, 0, 320, 0, 400, 240, 0, 0, 1]}
distortion_model: plumb_bob
distortion_coefficients: {rows: 1, cols: 5, data: [-0.28, 0.07, 0.0002, -0.0001, 0]}
mount: {z: 1.1, x: 0.3, pitch: 0.2}
"""


def test_a_calibration_file_with_a_mount_is_read(tmp_path):
    path = tmp_path / "front.yaml"
    path.write_text(YAML)
    seen = Camera.from_yaml(path)
    assert (seen.width, seen.height, seen.mount) == (640, 480, Mount(z=1.1, x=0.3, pitch=0.2))
    np.testing.assert_allclose(seen.distortion, BARREL)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("mount: {z: 1.1,", "mount: {", "mount.z is missing"),
        ("pitch: 0.2", "pich: 0.2", "unknown key mount.pich"),
        ("pitch: 0.2", "pitch: up", "mount.pitch is 'up', expected a number"),
        ("z: 1.1", "z: -1", "mount.z is -1"),
        ("z: 1.1", "z: .nan", "mount.z is nan"),
        ("mount: {z: 1.1, x: 0.3, pitch: 0.2}", "", "mount is None"),
        ("image_width: 640", "image_width: 0", "picture size is 0x480"),
        ("image_width: 640", "image_width: wide", "image_width is 'wide'"),
        ("[400, 0, 320, 0, 400, 240, 0, 0, 1]", "[0, 0, 0, 0, 0, 0, 0, 0, 0]", "calibrated"),
        ("[400, 0, 320, 0, 400, 240, 0, 0, 1]", "[400, 0, 320]", "has 3 numbers, expected 9"),
        ("[400, 0, 320, 0, 400, 240, 0, 0, 1]", "400", "camera_matrix.data is 400"),
        ("[400, 0, 320, 0", "[400, 0, .inf, 0", "3 x 3 numbers"),
        ("model: plumb_bob", "model: fisheye", "distortion model is 'fisheye'"),
        ("[-0.28, 0.07, 0.0002, -0.0001, 0]", "[1, 2]", "has 2 coefficients"),
        ("-0.28", ".nan", "expected finite numbers"),
    ],
)
def test_mistakes_in_a_calibration_file_are_named(tmp_path, old, new, message):
    path = tmp_path / "front.yaml"
    path.write_text(YAML.replace(old, new))
    with pytest.raises(InputError, match=message) as caught:
        Camera.from_yaml(path)
    assert str(caught.value).startswith(str(path))


def test_an_empty_distortion_model_means_none():
    assert camera(d=[0.5, 0.5], model="").distortion.size == 0


def test_the_transform_of_a_body_frame_is_refused():
    # A camera's body frame has x forward: read as an optical frame, it looks at the sky.
    matrix = np.eye(4)
    matrix[2, 3] = 1.0
    with pytest.raises(InputError, match="looks 90 degrees above the horizon"):
        Mount.from_matrix(matrix)


def test_a_smaller_picture_of_the_same_view_has_the_same_rays():
    whole = camera(Mount(z=1.5, pitch=0.2), BARREL)
    small = whole.fitted(320, 240)
    assert (small.width, small.height) == (320, 240)
    np.testing.assert_allclose(small.rays([(100, 75)]), whole.rays([(200, 150)]))
    assert whole.fitted(640, 480) is whole
    with pytest.raises(InputError, match="calibration is for 640x480, but pictures are 640x360"):
        whole.fitted(640, 360)


def test_a_part_of_the_picture_has_the_same_rays():
    whole = camera(Mount(z=1.5, pitch=0.2), BARREL)
    part = whole.window(100, 40, 400, 300, 2, 3)
    assert (part.width, part.height) == (200, 100)
    np.testing.assert_allclose(part.rays([(50, 20)]), whole.rays([(200, 100)]))
    for beyond in [(300, 0, 400, 300), (0, 200, 640, 300), (0, 0, 0, 480), (0, 0, 640, 0)]:
        with pytest.raises(InputError, match="region of interest"):
            whole.window(*beyond)
    with pytest.raises(InputError, match="picture size is 0x"):
        whole.window(0, 0, 640, 480, 1000, 1)


def test_boxes_outside_the_picture_are_of_another_one():
    seen = camera()
    assert seen.shows([])
    assert seen.shows([(0, 0, 640, 480), (-12, -9, 652, 489)])
    for beyond in [(-14, 0, 9, 9), (0, -11, 9, 9), (0, 0, 654, 9), (0, 0, 9, 491)]:
        assert not seen.shows([(0, 0, 640, 480), beyond])
