"""The obstacles node as a real process: pixels in, metres, points and markers out."""

import math

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="needs ROS 2: pip install waysight[ros]")

from builtin_interfaces.msg import Time
from nav_msgs.msg import Odometry
from std_msgs.msg import Header
from visualization_msgs.msg import Marker

from perception.safety import Obstacles
from ros_nodes.obstacle_messages import points_message, read_obstacles
from tests.ros_nodes.obstacles_rig import Rig, camera_info, tracks

pytestmark = pytest.mark.timeout(120)


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
