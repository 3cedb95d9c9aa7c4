"""The obstacles node as a real process: pixels in, metres, points and markers out."""

import math

import numpy as np
import pytest

rclpy = pytest.importorskip("rclpy", reason="needs ROS 2: pip install waysight[ros]")
pytest.importorskip("vision_msgs", reason="needs vision_msgs: python -m ros_nodes.setup_ros")

TFMessage = pytest.importorskip(
    "tf2_msgs.msg", reason="needs tf2_msgs: python -m ros_nodes.setup_ros"
).TFMessage

from builtin_interfaces.msg import Time  # noqa: E402
from diagnostic_msgs.msg import DiagnosticStatus  # noqa: E402
from geometry_msgs.msg import TransformStamped  # noqa: E402
from nav_msgs.msg import Odometry  # noqa: E402
from rclpy.qos import DurabilityPolicy, QoSProfile  # noqa: E402
from sensor_msgs.msg import CameraInfo, PointCloud2  # noqa: E402
from std_msgs.msg import Header  # noqa: E402
from vision_msgs.msg import (  # noqa: E402
    Detection2D,
    Detection2DArray,
    Detection3DArray,
    ObjectHypothesisWithPose,
)
from visualization_msgs.msg import Marker, MarkerArray  # noqa: E402

from perception.geometry.camera import Camera, Mount  # noqa: E402
from perception.safety import Obstacles  # noqa: E402
from ros_nodes.obstacle_messages import points_message, read_obstacles  # noqa: E402
from tests.ros_nodes.peer import NodeProcess, Peer  # noqa: E402

pytestmark = pytest.mark.timeout(120)
CAMERA = Camera.create(640, 480, [500, 0, 320, 0, 500, 240, 0, 0, 1], [], Mount(z=1.2, pitch=0.1))


def tracks(stamp, *rows):
    """Detection2DArray of upright boards (id, label, ahead, left, height, width)."""
    message = Detection2DArray()
    message.header = Header(stamp=stamp, frame_id="camera_optical")
    for name, label, ahead, left, height, width in rows:
        corners = [
            (ahead, left + side, up) for side in (-width / 2, width / 2) for up in (0, height)
        ]
        pixels = CAMERA.project(corners)
        low, high = pixels.min(axis=0), pixels.max(axis=0)
        item = Detection2D(header=message.header, id=name)
        item.bbox.center.position.x, item.bbox.center.position.y = (low + high) / 2
        item.bbox.size_x, item.bbox.size_y = high - low
        result = ObjectHypothesisWithPose()
        result.hypothesis.class_id, result.hypothesis.score = label, 0.8
        item.results.append(result)
        message.detections.append(item)
    return message


def camera_info(**changes):
    fields = {"width": 640, "height": 480, "distortion_model": "plumb_bob", "d": [0.0] * 5}
    fields["k"] = [500.0, 0, 320, 0, 500, 240, 0, 0, 1]
    return CameraInfo(**(fields | changes))


class Rig:
    def __init__(self, tmp_path, **parameters):
        self.peer = Peer()
        node = self.peer.node
        self.tracks = node.create_publisher(Detection2DArray, "tracks", 10)
        self.info = node.create_publisher(CameraInfo, "camera_info", 10)
        self.odometry = node.create_publisher(Odometry, "odom", 10)
        self.obstacles = self.peer.collect(Detection3DArray, "obstacles")
        self.points = self.peer.collect(PointCloud2, "obstacle_points")
        self.markers = self.peer.collect(MarkerArray, "obstacle_markers")
        parameters = parameters or {"mount_z": 1.2, "mount_pitch": 0.1}
        self.process = NodeProcess("obstacles_node", tmp_path / "node.log", **parameters)
        self.peer.wait_for(
            lambda: (
                self.tracks.get_subscription_count()
                and self.info.get_subscription_count()
                and node.count_publishers("obstacle_markers")
            ),
            "the obstacles node",
        )
        self.peer.spin(0.5)

    def send(self, message):
        seen = len(self.obstacles)
        self.tracks.publish(message)
        self.peer.wait_for(lambda: len(self.obstacles) > seen, "obstacles")
        return self.obstacles[-1]

    def close(self):
        self.process.stop()
        self.peer.close()


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    rig = Rig(tmp_path_factory.mktemp("obstacles"))
    yield rig
    rig.close()


def test_without_a_camera_model_nothing_is_published(rig):
    rig.tracks.publish(tracks(Time(sec=1), ("1", "person", 6.0, 0.0, 1.7, 0.5)))
    rig.peer.spin(0.5)
    assert not rig.obstacles
    rig.peer.wait_for(
        lambda: (status := rig.peer.status("/obstacles")) and "camera_info" in status.message,
        "the reason in the diagnostics",
    )
    # A camera that is not calibrated is no camera model either.
    rig.info.publish(camera_info(k=[0.0] * 9))
    rig.tracks.publish(tracks(Time(sec=1), ("1", "person", 6.0, 0.0, 1.7, 0.5)))
    rig.peer.spin(0.5)
    assert not rig.obstacles


def test_boxes_become_places_with_the_pictures_stamp(rig):
    rig.info.publish(camera_info())
    rig.peer.spin(0.5)
    stamp = Time(sec=12, nanosec=345678901)
    found = rig.send(
        tracks(stamp, ("7", "person", 6.0, 1.0, 1.7, 0.5), ("", "pallet", 5.0, -1.0, 1.0, 1.2))
    )
    assert (found.header.stamp, found.header.frame_id) == (stamp, "base_link")
    person, pallet = found.detections
    assert (person.id, person.header, pallet.id) == ("7", found.header, "")
    assert person.results[0].hypothesis.class_id == "person"
    assert person.results[0].hypothesis.score == pytest.approx(0.8)
    assert person.bbox.center.position.x == pytest.approx(6.3, abs=0.15)
    assert person.bbox.center.position.y == pytest.approx(1.05, abs=0.1)
    assert person.bbox.size.z == pytest.approx(1.7, rel=0.05)
    assert person.results[0].pose.covariance[0] > 0
    seen = read_obstacles(found, "base_link")
    assert seen.labels == ("person", "pallet")


def test_an_empty_picture_is_an_empty_message(rig):
    assert rig.send(tracks(Time(sec=20))).detections == []
    rig.peer.wait_for(lambda: rig.points and rig.points[-1].width == 0, "an empty cloud")


def test_points_are_what_nav2_accepts(rig):
    rig.send(tracks(Time(sec=30), ("1", "person", 6.0, 0.0, 1.7, 0.5)))
    rig.peer.wait_for(lambda: rig.points and rig.points[-1].header.stamp.sec == 30, "points")
    cloud = rig.points[-1]
    assert [field.name for field in cloud.fields] == ["x", "y", "z"]
    assert cloud.point_step * cloud.width == cloud.row_step == len(cloud.data)
    xyz = np.frombuffer(bytes(cloud.data), "<f4").reshape(-1, 3)
    assert (xyz[:, 2] >= 0.05).all() and (xyz[:, 2] <= 0.5).all()
    nearest = xyz[np.argmin(xyz[:, 0])]
    # Whatever place of the outline enters a zone brings at least four points.
    assert (np.linalg.norm(xyz[:, :2] - nearest[:2], axis=1) < 1e-5).sum() >= 4
    assert 5.0 < nearest[0] < 6.0


def test_markers_tell_class_distance_and_time_to_collision(rig):
    driving = Odometry()
    driving.twist.twist.linear.x = 1.0
    for step in range(12):
        rig.odometry.publish(driving)
        now = 40 + step * 0.1
        rig.send(
            tracks(
                Time(sec=int(now), nanosec=round(now % 1 * 1e9)),
                ("3", "person", 6.0 - 0.1 * step, 0.0, 1.7, 0.5),
            )
        )
    rig.peer.wait_for(
        lambda: rig.markers and rig.markers[-1].markers[-1].header.stamp.sec == 41, "markers"
    )
    texts = [m.text for m in rig.markers[-1].markers if m.type == Marker.TEXT_VIEW_FACING]
    assert texts[0].startswith("person 3 ")
    seconds = float(texts[0].split(", ")[1].removesuffix(" s"))
    # 5.2 m to the middle, less half a person and half a robot, at 1 m/s.
    assert seconds == pytest.approx(4.2, abs=0.6)


def test_a_broken_row_silences_the_whole_picture(rig):
    seen = len(rig.obstacles)
    broken = tracks(
        Time(sec=50), ("1", "person", 6.0, 0.0, 1.7, 0.5), ("2", "person", 5.0, 0.0, 1.7, 0.5)
    )
    broken.detections[1].bbox.size_x = math.nan
    rig.tracks.publish(broken)
    rig.peer.spin(0.5)
    assert len(rig.obstacles) == seen


def test_points_never_lie_behind_the_robot():
    far_unsure = Obstacles.create(
        [(1.0, 0.0)], ["person"], radii=0.3, covariances=[[[9, 0], [0, 0]]]
    )
    cloud = points_message(far_unsure, 2.0, Header())
    xyz = np.frombuffer(bytes(cloud.data), "<f4").reshape(-1, 3)
    assert xyz[:, 0].max() >= 0.3 - 1e-6


# The mount from /tf_static ---------------------------------------------------------------------


def transform(parent, child, place, turn):
    message = TransformStamped(child_frame_id=child)
    message.header.frame_id = parent
    move, rotation = message.transform.translation, message.transform.rotation
    move.x, move.y, move.z = place
    rotation.x, rotation.y, rotation.z, rotation.w = turn
    return message


UPRIGHT = transform("base_link", "camera", (0.0, 0.0, 1.2), (0.0, 0.04997917, 0.0, 0.99875026))
"""The mount of CAMERA: 1.2 m high, pitched by 0.1 rad."""

OPTICAL = transform("camera", "camera_optical", (0.0, 0.0, 0.0), (-0.5, 0.5, -0.5, 0.5))


@pytest.fixture
def tf_rig(tmp_path):
    made = Rig(tmp_path, mount_source="tf")
    latched = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    made.transforms = made.peer.node.create_publisher(TFMessage, "/tf_static", latched)
    made.peer.wait_for(made.transforms.get_subscription_count, "the subscription of /tf_static")
    yield made
    made.close()


def silent(rig, words):
    """Nothing is published, and the diagnostics say why."""
    seen = len(rig.obstacles)
    rig.tracks.publish(tracks(Time(sec=1), ("1", "person", 6.0, 0.0, 1.7, 0.5)))
    rig.peer.spin(0.5)
    assert len(rig.obstacles) == seen
    rig.peer.statuses.clear()
    rig.peer.wait_for(
        lambda: (
            (status := rig.peer.status("/obstacles"))
            and words in status.message
            and status.level == DiagnosticStatus.ERROR
        ),
        f"the error {words!r}",
    )


def test_the_mount_comes_from_static_transforms_and_nothing_else_will_do(tf_rig):
    rig = tf_rig
    rig.info.publish(camera_info(header=Header(frame_id="camera_optical")))
    silent(rig, "no static transform from 'base_link' to 'camera_optical'")
    # Half of the chain is no mount.
    rig.transforms.publish(TFMessage(transforms=[OPTICAL]))
    silent(rig, "no static transform from 'base_link' to 'camera_optical'")
    rig.transforms.publish(TFMessage(transforms=[UPRIGHT]))
    rig.peer.spin(0.5)
    found = rig.send(tracks(Time(sec=2), ("1", "person", 6.0, 1.0, 1.7, 0.5)))
    assert found.header.frame_id == "base_link"
    assert found.detections[0].bbox.center.position.x == pytest.approx(6.3, abs=0.15)
    # A camera that was moved is where the new transform says.
    higher = transform("base_link", "camera", (1.0, 0.0, 1.2), (0.0, 0.04997917, 0.0, 0.99875026))
    rig.transforms.publish(TFMessage(transforms=[higher]))
    rig.peer.spin(0.5)
    found = rig.send(tracks(Time(sec=3), ("1", "person", 6.0, 1.0, 1.7, 0.5)))
    assert found.detections[0].bbox.center.position.x == pytest.approx(7.3, abs=0.15)
    # A broken one ends it, and so does one of another frame.
    broken = transform("base_link", "camera", (0.0, 0.0, 1.2), (0.0, 0.0, 0.0, 0.0))
    rig.transforms.publish(TFMessage(transforms=[broken]))
    silent(rig, "unit quaternion")
    sky = transform("base_link", "camera_optical", (0.0, 0.0, 1.2), (0.0, 0.0, 0.0, 1.0))
    rig.transforms.publish(TFMessage(transforms=[sky]))
    silent(rig, "looks 90 degrees above the horizon")
    below = transform("base_link", "camera_optical", (0.0, 0.0, -0.3), (-0.5, 0.5, -0.5, 0.5))
    rig.transforms.publish(TFMessage(transforms=[below]))
    silent(rig, "mount.z is -0.3")
    assert "Traceback" not in rig.process.output


def test_a_late_node_hears_transforms_that_were_told_before_it_started(tmp_path):
    latched = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    peer = Peer("broadcaster")
    first, second = (peer.node.create_publisher(TFMessage, "/tf_static", latched) for _ in range(2))
    first.publish(TFMessage(transforms=[UPRIGHT]))
    second.publish(TFMessage(transforms=[OPTICAL]))
    rig = Rig(tmp_path, mount_source="tf")
    try:
        rig.info.publish(camera_info(header=Header(frame_id="camera_optical")))
        rig.peer.spin(1.0)
        found = rig.send(tracks(Time(sec=2), ("1", "person", 6.0, 0.0, 1.7, 0.5)))
        assert found.detections[0].bbox.center.position.x == pytest.approx(6.3, abs=0.15)
    finally:
        rig.close()
        peer.close()


def test_a_calibration_and_transforms_contradict_each_other(tmp_path):
    process = NodeProcess(
        "obstacles_node",
        tmp_path / "node.log",
        mount_source="tf",
        calibration="road_demo_camera.yaml",
    )
    assert process.process.wait(timeout=60) == 2
    assert "mount_source is 'tf', but the calibration 'road_demo_camera.yaml'" in process.output
    assert "Traceback" not in process.output
