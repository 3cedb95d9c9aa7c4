"""Which obstacles a message may tell of: what is only partly filled in is not believed."""

import math
import os
import time

import pytest

pytest.importorskip("rclpy", reason="needs ROS 2: pip install waysight[ros]")
pytest.importorskip("vision_msgs", reason="needs vision_msgs: python -m ros_nodes.setup_ros")

from nav_msgs.msg import Odometry
from std_msgs.msg import Header

from perception.errors import InputError
from perception.safety import Twist
from ros_nodes.obstacle_messages import read_obstacles, read_odometry
from tests.ros_nodes.guardian_rig import GuardianRig, obstacles

pytestmark = pytest.mark.timeout(120)
DOMAIN = 1 + (os.getpid() + 4) % 90
HALF = math.sqrt(0.5)


def one(size=(2.0, 1.0, 6.0), turn=(0.0, 0.0, 0.0, 1.0), frame="base_link", variance=0.0):
    message = obstacles(time.time(), ("person", 5.0, 0.0))
    item = message.detections[0]
    item.header = Header(frame_id=frame)
    item.bbox.size.x, item.bbox.size.y, item.bbox.size.z = size
    orientation = item.bbox.center.orientation
    orientation.x, orientation.y, orientation.z, orientation.w = turn
    for place in (0, 1, 6, 7):
        item.results[0].pose.covariance[place] = variance
    return message


def radius(**how):
    return read_obstacles(one(**how), "base_link").radii[0]


def test_a_box_is_covered_however_it_is_turned():
    assert radius() == 1.0
    assert radius(turn=(0.0, 0.0, HALF, HALF)) == pytest.approx(math.hypot(2, 1) / 2)
    # Pitched or rolled, its height may lie on the ground.
    for turn in ((0.0, HALF, 0.0, HALF), (HALF, 0.0, 0.0, HALF)):
        assert radius(turn=turn) == pytest.approx(math.hypot(2, 1, 6) / 2)


def test_a_row_without_a_frame_is_in_the_messages():
    assert radius(frame="") == 1.0


def test_a_covariance_of_zero_is_an_exact_place():
    found = read_obstacles(one(variance=0.0), "base_link")
    assert not found.covariances.any()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"size": (0.0, 0.0, 0.0)}, "obstacle '0' measures 0 x 0 m, expected positive sides"),
        ({"size": (0.5, -0.5, 1.7)}, "measures 0.5 x -0.5 m"),
        ({"size": (math.nan, 0.5, 1.7)}, "measures nan x 0.5 m"),
        ({"size": (1e300, 0.5, 1.7)}, "measures 1e\\+300 x 0.5 m"),
        ({"size": (0.5, 0.5, 0.0), "turn": (0.0, HALF, 0.0, HALF)}, "measures 0.5 x 0.5 x 0 m"),
        ({"turn": (0.0, 0.0, math.nan, 1.0)}, "orientation .* expected finite numbers"),
        ({"turn": (0.0, math.inf, 0.0, 1.0)}, "orientation .* expected finite numbers"),
        ({"frame": "camera_optical"}, "obstacle '0' is in frame 'camera_optical', expected 'base"),
        ({"variance": 1e20}, "covariance .* expected numbers within 1e\\+08 m"),
        ({"variance": math.nan}, "covariance .* expected numbers within"),
        ({"variance": -1.0}, "covariance .* expected a symmetric matrix"),
    ],
)
def test_what_is_partly_filled_in_or_absurd_makes_the_message_invalid(how, words):
    with pytest.raises(InputError, match=words):
        read_obstacles(one(**how), "base_link")


def test_places_no_robot_can_see_make_the_message_invalid():
    message = obstacles(time.time(), ("person", 1e9, 0.0))
    with pytest.raises(InputError, match="is at \\(1000000000.0, 0.0\\)"):
        read_obstacles(message, "base_link")


def odometry(vx=0.0, wz=0.0):
    message = Odometry()
    message.twist.twist.linear.x, message.twist.twist.angular.z = vx, wz
    return message


def test_odometry_is_a_motion_that_robots_have():
    assert read_odometry(odometry(0.5, -0.2)) == Twist(0.5, 0.0, -0.2)
    for values in ((math.nan, 0.0), (0.0, 1.7e308), (-101.0, 0.0), (0.0, math.inf)):
        with pytest.raises(InputError, match="expected velocities within 100 m/s and rad/s"):
            read_odometry(odometry(*values))


def test_absurd_numbers_stop_the_guardian_and_do_not_end_it(tmp_path):
    rig = GuardianRig(tmp_path, DOMAIN)
    motion = rig.node.create_publisher(Odometry, "odom", 10)
    pallet = ("pallet", 3.0, 0.0)
    try:
        rig.start().drive_until_moving(pallet)
        rig.wait_for(motion.get_subscription_count, "the odometry's subscription")
        for _ in range(3):
            absurd = obstacles(time.time(), pallet)
            for place in (0, 1, 6, 7):
                absurd.detections[0].results[0].pose.covariance[place] = 1e20
            rig.drive_until_stopped(message=absurd)
            rig.drive_until_moving(pallet)
        for _ in range(20):
            motion.publish(odometry(wz=1.7e308))
            rig.tick(pallet)
        time.sleep(1.5)
        motion.publish(odometry(wz=1.7e308))
        rig.drive_until_moving(pallet)
        assert "Traceback" not in rig.log.read_text()
    finally:
        rig.close()
