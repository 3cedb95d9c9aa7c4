"""The obstacles node only places boxes with the camera model of their own pictures."""

import pytest

pytest.importorskip("rclpy", reason="needs ROS 2: pip install waysight[ros]")

from builtin_interfaces.msg import Time
from sensor_msgs.msg import RegionOfInterest
from std_msgs.msg import Header

from tests.ros_nodes.obstacles_rig import CAMERA, Rig, camera_info, tracks

pytestmark = pytest.mark.timeout(120)

PERSON = ("1", "person", 4.0, 1.0, 1.7, 0.5)
WHERE_IT_IS = pytest.approx((4.3, 1.07), abs=0.15)
CALIBRATION = """image_width: 1280
image_height: 960
camera_matrix: {rows: 3, cols: 3, data: [1000, 0, 640, 0, 1000, 480, 0, 0, 1]}
distortion_model: plumb_bob
distortion_coefficients: {rows: 1, cols: 5, data: [0, 0, 0, 0, 0]}
mount: {z: 1.2, pitch: 0.1}
"""
SECONDS = iter(range(1, 1000))


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path)
    yield rig
    rig.close()


@pytest.fixture
def calibrated(tmp_path):
    """A node whose camera model is a file for twice the pictures' size."""
    (tmp_path / "camera.yaml").write_text(CALIBRATION)
    rig = Rig(tmp_path, calibration=tmp_path / "camera.yaml")
    yield rig
    rig.close()


def told(rig, **fields):
    rig.info.publish(camera_info(**fields))
    rig.peer.spin(0.5)


def place(rig, frame="camera_optical"):
    """(x, y) of the person's middle, m, as the node tells it."""
    message = tracks(Time(sec=next(SECONDS)), PERSON)
    message.header.frame_id = frame
    centre = rig.send(message).detections[0].bbox.center.position
    return centre.x, centre.y


def test_binned_pictures_are_placed_with_the_sensors_matrix(rig):
    sensor = {"width": 1280, "height": 960, "k": [1000.0, 0, 640, 0, 1000, 480, 0, 0, 1]}
    told(rig, **sensor, binning_x=2, binning_y=2)
    assert place(rig) == WHERE_IT_IS
    # The same without binning is another camera, and these are not its pictures.
    told(rig, **(sensor | {"width": 320, "height": 240}))
    rig.silent("lies outside the picture, expected boxes within 320x240")


def test_pictures_of_a_part_of_the_sensor_are_placed_as_such(rig):
    sensor = {"width": 1280, "height": 960, "k": [500.0, 0, 640, 0, 500, 480, 0, 0, 1]}
    told(rig, **sensor, roi=RegionOfInterest(x_offset=320, y_offset=240, width=640, height=480))
    assert place(rig) == WHERE_IT_IS
    for part in (
        RegionOfInterest(x_offset=900, y_offset=240, width=640, height=480),
        RegionOfInterest(x_offset=320),
    ):
        told(rig, **sensor, roi=part)
        rig.silent("region of interest")


def test_tracks_of_another_camera_are_not_placed(rig):
    told(rig, header=Header(frame_id="rear_camera"))
    rig.silent("tracks are of 'camera_optical', expected 'rear_camera'")
    # A source that names no frame is trusted, and so are equal names.
    assert place(rig, frame="") == WHERE_IT_IS
    told(rig, header=Header(frame_id="camera_optical"))
    assert place(rig) == WHERE_IT_IS


def test_a_box_outside_the_picture_is_not_placed(rig):
    told(rig)
    beyond = tracks(Time(sec=next(SECONDS)), PERSON)
    beyond.detections[0].bbox.center.position.x = 660.0
    rig.silent("a box of tracks lies outside the picture, expected boxes within 640x480", beyond)
    # Some detectors do not clip.
    near = tracks(Time(sec=next(SECONDS)), PERSON)
    box = near.detections[0].bbox
    box.center.position.x = CAMERA.width + 5 - box.size_x / 2
    assert len(rig.send(near).detections) == 1


def test_a_calibration_file_is_scaled_to_the_pictures(calibrated):
    # Nobody told the pictures' size: the file is taken for theirs.
    assert place(calibrated) != WHERE_IT_IS
    told(calibrated, k=[0.0] * 9)
    assert place(calibrated) == WHERE_IT_IS
    told(calibrated, height=360, k=[0.0] * 9)
    calibrated.silent("calibration is for 1280x960, but pictures are 640x360")
    # A driver that tells no size contradicts nothing.
    told(calibrated, width=0, height=0, k=[0.0] * 9)
    assert place(calibrated) != WHERE_IT_IS
    told(calibrated, header=Header(frame_id="rear_camera"))
    calibrated.silent("tracks are of 'camera_optical', expected 'rear_camera'")
