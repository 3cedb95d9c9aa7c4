"""The vision_msgs in use, built here or brought by a distribution, is the one of the ecosystem."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

rclpy = pytest.importorskip("rclpy", reason="needs ROS 2: the extra 'ros' or a distribution")
vision_msgs = pytest.importorskip("vision_msgs.msg", reason="needs python -m ros_nodes.setup_ros")

# RIHS01 type hashes of vision_msgs 4.1.1. A subscriber of another hash takes the same topic for
# another type, so these decide whether a foreign ROS 2 graph understands ours.
TYPE_HASHES = {
    "BoundingBox2D": "008eacbb0cf8f26e83795547bed013eec3675485ef386ec056d80eaaf1c1ce2f",
    "BoundingBox2DArray": "2464e82838009386d371b523211c21c91d74d313fcdd6788223c531d621cf691",
    "BoundingBox3D": "bbb73a65c163d7f9bb29009c7bde9f7faa576bd2d23299c4511d19230dab4698",
    "BoundingBox3DArray": "a81938db9576b10c2eecd7c5a5da3eac496efd00221b25ed051dfbc81fb56da6",
    "Classification": "f74db28d0eaef3afb78f48bf2161cd709a1383a0309d3454383b25be11345143",
    "Detection2D": "0d12b69df5c593b3455b7346fac8205437a7d4bcb09b9e0e0b2dde787ded38ea",
    "Detection2DArray": "214274120007f4a683866481336b70310268cfa107aebe9d594a6acf75bda968",
    "Detection3D": "ddd703be132ab0b69d33121f1bb034132bfbb3b0ac5f9fb1516005ba1c8a265b",
    "Detection3DArray": "793f5eab9595ac1c0da07873cc859db42eae51f0ee76056db8562515d830e018",
    "LabelInfo": "3d37df4015cdf660cc851c51897f2acd957e1ca6205ba0a99aebffb9406b0783",
    "ObjectHypothesis": "51da43cec11c01957a64d1e05a24acd18aae7745ec30b74348ad5f6d634f7f90",
    "ObjectHypothesisWithPose": "41c12344c0396c48b81df12467c192d99b2a0eb1463c5c37194e4223251c80bc",
    "Point2D": "eab0e83f44ab4de92ceaf76dd7d0e7638f2bdd1d16ffbe16c7a136c48e407247",
    "Pose2D": "b0b5d1d7b4c20dd4fcde3ed1d4b289a919290572007d67a97043814db25d3648",
    "VisionClass": "1e4a11f0fed50b5623cb8ff26ca0e37952a48a9c074d16f804b44e9164c2037a",
    "VisionInfo": "95d3116a17484ad91c9a2686e1d54890bbfc3ff6c6a2de137738c4950d45d284",
}
# A ROS domain of its own: other graphs on the machine are not to be heard.
DOMAIN = 87
# Discovery inside one process takes milliseconds; the rest is for a machine under load.
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def node() -> Iterator[Any]:
    context = rclpy.Context()
    rclpy.init(context=context, domain_id=DOMAIN)
    node = rclpy.create_node("test_vision_msgs", context=context)
    yield node
    node.destroy_node()
    context.try_shutdown()


@pytest.mark.parametrize("name", TYPE_HASHES)
def test_type_hash_on_the_wire_is_that_of_vision_msgs_4_1_1(node: Any, name: str) -> None:
    topic = f"/type_of_{name.lower()}"
    publisher = node.create_publisher(getattr(vision_msgs, name), topic, 1)
    deadline = time.monotonic() + PATIENCE_S
    while not (endpoints := node.get_publishers_info_by_topic(topic)):
        assert time.monotonic() < deadline, f"{topic} was not discovered"
        time.sleep(0.01)
    assert endpoints[0].topic_type == f"vision_msgs/msg/{name}"
    assert str(endpoints[0].topic_type_hash) == f"RIHS01_{TYPE_HASHES[name]}"
    node.destroy_publisher(publisher)


def test_detections_arrive_as_they_were_sent(node: Any) -> None:
    sent = vision_msgs.Detection2DArray()
    sent.header.frame_id = "camera_optical_frame"
    sent.header.stamp.sec, sent.header.stamp.nanosec = 12, 345
    detection = vision_msgs.Detection2D(header=sent.header, id="7")
    detection.bbox.center.position.x, detection.bbox.center.position.y = 320.5, 100.25
    detection.bbox.size_x, detection.bbox.size_y = 64.0, 32.0
    hypothesis = vision_msgs.ObjectHypothesisWithPose()
    hypothesis.hypothesis.class_id, hypothesis.hypothesis.score = "car", 0.75
    detection.results.append(hypothesis)
    sent.detections.append(detection)

    received: list[Any] = []
    node.create_subscription(vision_msgs.Detection2DArray, "/round_trip", received.append, 1)
    publisher = node.create_publisher(vision_msgs.Detection2DArray, "/round_trip", 1)
    executor = rclpy.executors.SingleThreadedExecutor(context=node.context)
    executor.add_node(node)
    deadline = time.monotonic() + PATIENCE_S
    while not received and time.monotonic() < deadline:
        publisher.publish(sent)
        executor.spin_once(timeout_sec=0.1)
    executor.remove_node(node)
    assert received[:1] == [sent]


def test_type_hash_of_transforms_on_the_wire_is_that_of_tf2_msgs(node: Any) -> None:
    messages = pytest.importorskip("tf2_msgs.msg", reason="needs python -m ros_nodes.setup_ros")
    publisher = node.create_publisher(messages.TFMessage, "/type_of_transforms", 1)
    deadline = time.monotonic() + PATIENCE_S
    while not (endpoints := node.get_publishers_info_by_topic("/type_of_transforms")):
        assert time.monotonic() < deadline, "/type_of_transforms was not discovered"
        time.sleep(0.01)
    assert endpoints[0].topic_type == "tf2_msgs/msg/TFMessage"
    expected = "RIHS01_e369d0f05a23ae52508854b66f6aa0437f3449d652e8cbf22d5abe85d020f087"
    assert str(endpoints[0].topic_type_hash) == expected
    node.destroy_publisher(publisher)
