"""What a foreign process measures agrees with what the nodes say of themselves."""

import json
import subprocess
import sys
from pathlib import Path
from statistics import median

import cv2
import numpy as np
import pytest

pytest.importorskip("rclpy", reason="needs ROS 2")
pytest.importorskip("vision_msgs", reason="needs vision_msgs: python -m ros_nodes.setup_ros")

from tests.onnx_models import bright_cell_detector
from tests.ros_nodes.peer import ENVIRONMENT, NodeProcess, Peer

IMAGES, RATE = 150, 30


def test_counts_and_rate_of_a_foreign_process_agree_with_diagnostics(tmp_path: Path) -> None:
    model = bright_cell_detector(tmp_path / "cells.onnx")
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for number in range(IMAGES):
        cv2.imwrite(str(pictures / f"{number:03d}.png"), np.full((48, 64, 3), number, np.uint8))
    peer = Peer()
    detector = NodeProcess("detector_node", tmp_path / "detector", model=model, depth=200)
    meter = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("foreign_meter.py")), str(IMAGES)],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert meter.stdout is not None
    camera = None
    try:
        assert meter.stdout.readline() == "ready\n"
        camera = NodeProcess(
            "camera_node",
            tmp_path / "camera",
            source=pictures,
            rate=RATE,
            reliability="reliable",
            depth=200,
            wait_subscribers=2,
        )

        def value(name: str, key: str) -> str:
            status = peer.status(name)
            return next((v.value for v in status.values if v.key == key), "") if status else ""

        peer.wait_for(lambda: value("/camera", "ended") == "True", "the last picture", timeout=60)
        told = [s for s in peer.statuses if s.name == "/camera"]
        measured = json.loads(meter.stdout.readline())
        peer.wait_for(
            lambda: (
                sum(int(value("/detector", k) or 0) for k in ("processed", "dropped")) == IMAGES
            ),
            "every picture to be accounted for",
        )
    finally:
        meter.kill()
        for node in (camera, detector):
            if node is not None:
                node.stop()
        peer.close()
    assert measured["image_raw"]["count"] == int(value("/camera", "sent")) == IMAGES
    assert int(value("/detector", "received")) == IMAGES
    assert measured["detections"]["count"] == int(value("/detector", "processed"))
    rates = [float(v.value) for s in told for v in s.values if v.key == "rate"]
    own = median(rate for rate in rates if rate > 0)
    assert measured["image_raw"]["rate"] == pytest.approx(own, rel=0.1)
