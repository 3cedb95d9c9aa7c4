"""The reference page of parameters."""

from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="needs ROS 2")
pytest.importorskip("vision_msgs", reason="needs vision_msgs: python -m ros_nodes.setup_ros")

from ros_nodes.parameters_page import page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "parameters.md"


def test_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "run: python -m ros_nodes.parameters_page > docs/parameters.md"
    )
