"""The obstacles node with the camera's mount from /tf_static."""

import pytest

pytest.importorskip("rclpy", reason="needs ROS 2: pip install waysight[ros]")

from builtin_interfaces.msg import Time
from geometry_msgs.msg import TransformStamped
from rclpy.qos import DurabilityPolicy, QoSProfile
from std_msgs.msg import Header

from tests.ros_nodes.obstacles_rig import Rig, TFMessage, camera_info, tracks
from tests.ros_nodes.peer import NodeProcess, Peer

pytestmark = pytest.mark.timeout(120)


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


def test_the_mount_comes_from_static_transforms_and_nothing_else_will_do(tf_rig):
    rig = tf_rig
    rig.info.publish(camera_info(header=Header(frame_id="camera_optical")))
    rig.silent("no static transform from 'base_link' to 'camera_optical'")
    # Half of the chain is no mount.
    rig.transforms.publish(TFMessage(transforms=[OPTICAL]))
    rig.silent("no static transform from 'base_link' to 'camera_optical'")
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
    rig.silent("unit quaternion")
    sky = transform("base_link", "camera_optical", (0.0, 0.0, 1.2), (0.0, 0.0, 0.0, 1.0))
    rig.transforms.publish(TFMessage(transforms=[sky]))
    rig.silent("looks 90 degrees above the horizon")
    below = transform("base_link", "camera_optical", (0.0, 0.0, -0.3), (-0.5, 0.5, -0.5, 0.5))
    rig.transforms.publish(TFMessage(transforms=[below]))
    rig.silent("mount.z is -0.3")
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
