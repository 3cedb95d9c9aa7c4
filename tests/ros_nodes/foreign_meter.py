"""A foreign node, as `ros2 topic hz` is one: plain rclpy in a process of its own.

    python foreign_meter.py IMAGES

counts until IMAGES pictures have come on image_raw and a second has brought nothing more, then
prints JSON: count and rate (Hz, by arrival) of each topic. It prints "ready" once it is connected
to the detector.
"""

import json
import sys
import time

import rclpy
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image
from vision_msgs.msg import Detection2DArray

PATIENCE = 60.0


def main() -> None:
    """Count, then print."""
    wanted = int(sys.argv[1])
    rclpy.init()
    node = Node("foreign_meter")
    arrivals: dict[str, list[float]] = {"image_raw": [], "detections": []}
    profile = QoSProfile(depth=200, reliability=ReliabilityPolicy.RELIABLE)
    for kind, topic in ((Image, "image_raw"), (Detection2DArray, "detections")):
        times = arrivals[topic]
        node.create_subscription(
            kind, topic, lambda _, t=times: t.append(time.monotonic()), profile
        )
    end = time.monotonic() + PATIENCE
    while not node.count_publishers("detections") and time.monotonic() < end:
        rclpy.spin_once(node, timeout_sec=0.05)
    time.sleep(0.5)  # discovery ends on both sides
    print("ready", flush=True)
    while time.monotonic() < end:
        rclpy.spin_once(node, timeout_sec=0.05)
        times = arrivals["image_raw"]
        if len(times) >= wanted and time.monotonic() - times[-1] > 1.0:
            break
    result = {
        topic: {
            "count": len(times),
            "rate": (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 0.0,
        }
        for topic, times in arrivals.items()
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
