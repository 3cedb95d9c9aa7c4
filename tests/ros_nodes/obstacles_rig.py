"""The obstacles node as a process, with all that talks to it."""

import pytest

rclpy = pytest.importorskip("rclpy", reason="needs ROS 2: pip install waysight[ros]")
pytest.importorskip("vision_msgs", reason="needs vision_msgs: python -m ros_nodes.setup_ros")

TFMessage = pytest.importorskip(
    "tf2_msgs.msg", reason="needs tf2_msgs: python -m ros_nodes.setup_ros"
).TFMessage

from builtin_interfaces.msg import Time  # noqa: E402
from diagnostic_msgs.msg import DiagnosticStatus  # noqa: E402
from nav_msgs.msg import Odometry  # noqa: E402
from sensor_msgs.msg import CameraInfo, PointCloud2  # noqa: E402
from std_msgs.msg import Header  # noqa: E402
from vision_msgs.msg import (  # noqa: E402
    Detection2D,
    Detection2DArray,
    Detection3DArray,
    ObjectHypothesisWithPose,
)
from visualization_msgs.msg import MarkerArray  # noqa: E402

from perception.geometry.camera import Camera, Mount  # noqa: E402
from tests.ros_nodes.peer import NodeProcess, Peer  # noqa: E402

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
        try:
            self.peer.wait_for(
                lambda: (
                    self.tracks.get_subscription_count()
                    and self.info.get_subscription_count()
                    and node.count_publishers("obstacle_markers")
                ),
                "the obstacles node",
            )
        except AssertionError:
            # What is left running would answer in the tests after this one.
            self.close()
            raise
        self.peer.spin(0.5)

    def send(self, message):
        seen = len(self.obstacles)
        self.tracks.publish(message)
        self.peer.wait_for(lambda: len(self.obstacles) > seen, "obstacles")
        return self.obstacles[-1]

    def silent(self, words, message=None):
        """Nothing is published, and the diagnostics say why."""
        seen = len(self.obstacles)
        self.tracks.publish(message or tracks(Time(sec=1), ("1", "person", 6.0, 0.0, 1.7, 0.5)))
        self.peer.spin(0.5)
        assert len(self.obstacles) == seen
        self.peer.statuses.clear()
        self.peer.wait_for(
            lambda: (
                (status := self.peer.status("/obstacles"))
                and words in status.message
                and status.level == DiagnosticStatus.ERROR
            ),
            f"the error {words!r}",
        )

    def close(self):
        self.process.stop()
        self.peer.close()
