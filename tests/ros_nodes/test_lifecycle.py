"""What a managed node does with its parameters."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import cv2
import numpy as np
import pytest

pytest.importorskip("rclpy", reason="needs ROS 2")
pytest.importorskip("vision_msgs", reason="needs vision_msgs: python -m ros_nodes.setup_ros")

from rclpy.exceptions import ParameterNotDeclaredException
from rclpy.parameter import Parameter
from sensor_msgs.msg import CompressedImage
from vision_msgs.msg import Detection2DArray

from perception.errors import InputError
from ros_nodes import qos
from ros_nodes.lifecycle import WaysightNode
from ros_nodes.parameters import NodeParameters, parameter
from tests.onnx_models import bright_cell_detector
from tests.ros_nodes.peer import NodeProcess, Peer


@dataclass(frozen=True)
class LampParameters(NodeParameters):
    """One parameter of each kind."""

    brightness: float = parameter(0.5, "At once", minimum=0.0, maximum=1.0, applies="live")
    dimmest: float = parameter(0.0, "At once", minimum=0.0, maximum=1.0, applies="live")
    colour: str = parameter("red", "At configure")


class LampNode(WaysightNode[LampParameters]):
    """Writes down what it is told."""

    default_name: ClassVar[str] = "lamp"
    parameters_type: ClassVar[type[NodeParameters]] = LampParameters

    def configure(self) -> None:
        self.told: list[tuple[LampParameters, frozenset[str]]] = []

    def apply(self, new: LampParameters, changed: frozenset[str]) -> None:
        if new.brightness < new.dimmest:
            raise InputError(f"brightness {new.brightness} is below the dimmest, {new.dimmest}")
        self.__dict__.setdefault("told", []).append((new, changed))


@pytest.fixture
def lamp() -> Iterator[LampNode]:
    peer = Peer()
    node = LampNode(context=peer.context)
    node.trigger_configure()
    node.trigger_activate()
    yield node
    node.trigger_shutdown()
    node.destroy_node()
    peer.close()


def _wish(**values: object) -> list[Parameter]:
    return [Parameter(name, value=value) for name, value in values.items()]


def test_what_takes_effect_at_configure_waits_for_it(lamp: LampNode) -> None:
    assert lamp.set_parameters_atomically(_wish(colour="green", brightness=0.7)).successful
    assert lamp.get_parameter("colour").value == "green"  # the wish is known
    assert (lamp.parameters.colour, lamp.parameters.brightness) == ("red", 0.7)
    ((new, changed),) = lamp.told
    assert (new.colour, changed) == ("red", {"brightness"})
    assert lamp.set_parameters_atomically(_wish(brightness=0.8)).successful
    lamp.trigger_deactivate()
    lamp.trigger_activate()
    assert lamp.parameters.colour == "red"
    lamp.trigger_deactivate()
    lamp.trigger_cleanup()
    lamp.trigger_configure()
    assert (lamp.parameters.colour, lamp.parameters.brightness) == ("green", 0.8)


def test_node_that_is_not_configured_takes_every_value(lamp: LampNode) -> None:
    lamp.trigger_deactivate()
    lamp.trigger_cleanup()
    assert lamp.set_parameters_atomically(_wish(colour="blue")).successful
    assert lamp.parameters.colour == "blue"


def test_wish_that_is_refused_in_part_changes_nothing(lamp: LampNode) -> None:
    before = lamp.parameters
    refused = lamp.set_parameters_atomically(_wish(brightness=0.1, dimmest=0.2))
    assert "brightness 0.1 is below the dimmest, 0.2" in refused.reason
    # Refused by ROS itself, after our own check.
    assert not lamp.set_parameters_atomically(_wish(brightness=0.9, use_sim_time="yes")).successful
    with pytest.raises(ParameterNotDeclaredException):
        lamp.set_parameters_atomically(_wish(brightness=0.9, watts=40))
    assert lamp.told == []
    assert lamp.parameters == before
    assert lamp.get_parameter("brightness").value == 0.5


def test_restored_value_is_wanted_and_in_force(lamp: LampNode) -> None:
    assert lamp.set_parameters_atomically(_wish(brightness=0.9)).successful
    lamp.restore("brightness", 0.5)
    assert lamp.get_parameter("brightness").value == lamp.parameters.brightness == 0.5
    assert len(lamp.told) == 1  # a value that is put back is not applied anew
    lamp.trigger_deactivate()
    lamp.trigger_cleanup()
    lamp.trigger_configure()
    assert lamp.parameters.brightness == 0.5


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], "/image_raw/compressed"),
        (["image_raw:=cam/image"], "/cam/image/compressed"),
        (["image_raw/compressed:=jpeg"], "/jpeg"),
        (["image_raw:=cam/image", "image_raw/compressed:=jpeg"], "/jpeg"),
        (["__ns:=/front", "image_raw:=image"], "/front/image/compressed"),
    ],
)
def test_compressed_pictures_go_where_the_raw_ones_are_remapped_to(
    rules: list[str], expected: str
) -> None:
    peer = Peer()
    arguments = [word for rule in rules for word in ("-r", rule)]
    node = LampNode(context=peer.context, cli_args=["--ros-args", *arguments])
    try:
        assert node.compressed_topic("image_raw") == expected
        publisher = node.create_publisher(CompressedImage, node.compressed_topic("image_raw"), 1)
        assert publisher.topic_name == expected
    finally:
        node.destroy_node()
        peer.close()


def test_remapped_camera_reaches_a_remapped_detector_and_viewer(tmp_path: Path) -> None:
    picture = np.zeros((48, 64, 3), np.uint8)
    cv2.imwrite(str(tmp_path / "0.png"), picture)
    model = bright_cell_detector(tmp_path / "cells.onnx")
    camera = {"source": tmp_path, "format": "compressed", "loop": True, "rate": 20}
    peer = Peer()
    annotated = peer.collect(CompressedImage, "/seen/compressed", qos.image_subscription())
    results = peer.collect(Detection2DArray, "/detections", qos.results())
    rules = ["image_raw:=cam/image", "image_annotated:=seen"]
    viewer = {"compressed": True, "web": False, "results": "detections"}
    nodes = [
        NodeProcess(f"{name}_node", tmp_path / name, rules, **parameters)
        for name, parameters in (
            ("camera", camera),
            ("detector", {"model": model, "compressed": True}),
            ("viewer", viewer),
        )
    ]
    try:
        peer.wait_for(lambda: results and annotated, "results and a picture with boxes")
    finally:
        for node in nodes:
            node.stop()
        peer.close()


@pytest.mark.parametrize("words", [["-r", "image_raw:=/a"], ["--help"], ["model:=x.onnx"]])
def test_argument_that_ros_would_pass_over_is_refused(words: list[str]) -> None:
    command = [sys.executable, "-m", "ros_nodes.tracker_node", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"argument '{words[0]}' is not taken, expected --ros-args before it" in done.stderr
