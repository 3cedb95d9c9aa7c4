"""Distances against the exact ones of the rendered demo drive, from its truth boxes."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from perception.geometry.camera import Camera, Mount
from perception.geometry.ground import locate

TRUTH = Path(__file__).resolve().parents[2] / "ros_nodes" / "demo" / "road_demo.json"


@pytest.fixture(scope="module")
def errors():
    data = json.loads(TRUTH.read_text())
    told = data["info"]["camera"]
    k = [told["fx"], 0, told["cx"], 0, told["fy"], told["cy"], 0, 0, 1]
    mount = Mount(z=told["height_m"], pitch=-math.radians(told["pitch_deg"]))
    camera = Camera.create(told["width"], told["height"], k, told["distortion"], mount)
    rows = [a for a in data["annotations"] if not a["iscrowd"] and 0 < a["distance"] <= 20]
    boxes = np.array([a["bbox"] for a in rows], dtype=np.float64)
    boxes[:, 2:] += boxes[:, :2]
    found = locate(boxes, [a["category"] for a in rows], camera)
    bearing = np.arctan2(boxes[:, [0, 2]].mean(axis=1) - told["cx"], told["fx"])
    # The truth is measured along the optical axis, ours along the ray to the box's middle.
    ahead = found.distances * np.cos(bearing)
    true = np.array([a["distance"] for a in rows])
    return np.abs(ahead - true) / true, true


def test_the_median_error_inside_20_m_is_under_8_percent(errors):
    relative, _ = errors
    assert len(relative) > 100
    assert np.median(relative) < 0.08
