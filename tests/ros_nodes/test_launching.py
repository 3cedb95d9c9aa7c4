"""Launch files, where a ROS 2 distribution brings `launch`; the wheels do not."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

pytest.importorskip("launch_ros", reason="needs launch_ros, which a ROS 2 distribution brings")

from launch import LaunchContext
from launch.actions import SetEnvironmentVariable
from launch.launch_description_sources import get_launch_description_from_python_launch_file
from launch_ros.actions import Node

from perception.errors import InputError
from ros_nodes.graph import DDS_VARIABLE, LAUNCH
from tests.ros_nodes.peer import ENVIRONMENT


def _start(name: str, **arguments: str) -> list[object]:
    """The actions that a launch file gives for these arguments."""
    description = get_launch_description_from_python_launch_file(str(LAUNCH / name))
    context = LaunchContext()
    for argument in description.get_launch_arguments():
        assert argument.description
        argument.visit(context)
    context.launch_configurations.update(arguments)
    return [a for entity in description.entities for a in (entity.visit(context) or [])]


def _nodes(actions: list[object]) -> list[Node]:
    return [action for action in actions if isinstance(action, Node)]


def test_road_starts_a_process_a_node_with_the_dds_profile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(DDS_VARIABLE, raising=False)
    actions = _start("road.launch.py", source="a.mp4", model=str(tmp_path / "my models/m.onnx"))
    assert len(_nodes(actions)) == 4
    assert any(isinstance(action, SetEnvironmentVariable) for action in actions)
    for node in _nodes(actions):
        assert node.node_executable == sys.executable


def test_recorder_is_started_only_when_asked_for() -> None:
    assert len(_nodes(_start("road.launch.py", source="a.mp4", record="r.mcap"))) == 5


def test_image_topic_starts_no_camera() -> None:
    nodes = _nodes(_start("road.launch.py", image_topic="/front/image_raw"))
    assert [node.node_executable for node in nodes] == [sys.executable] * 3


def test_several_cameras_share_one_detector() -> None:
    arguments = {"cameras": "front,rear", "source": "a.mp4,b.mp4"}
    assert len(_nodes(_start("road_multi.launch.py", **arguments))) == 7


PROGRAM = (
    "import sys\n"
    "from launch import LaunchDescription, LaunchService\n"
    "from launch.actions import IncludeLaunchDescription\n"
    "from launch.launch_description_sources import PythonLaunchDescriptionSource\n"
    "given = [tuple(word.split(':=')) for word in sys.argv[2:]]\n"
    "source = PythonLaunchDescriptionSource(sys.argv[1])\n"
    "service = LaunchService(noninteractive=True)\n"
    "action = IncludeLaunchDescription(source, launch_arguments=given)\n"
    "service.include_launch_description(LaunchDescription([action]))\n"
    "sys.exit(service.run())\n"
)
"""What `ros2 launch` does with a launch file and its arguments."""


def _launch(*words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, words)],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _pictures(folder: Path, count: int) -> Path:
    folder.mkdir()
    for number in range(count):
        cv2.imwrite(str(folder / f"{number:02d}.png"), np.zeros((8, 8, 3), np.uint8))
    return folder


def test_node_is_started_again_after_a_crash_but_not_after_its_own_end(tmp_path: Path) -> None:
    long, short = _pictures(tmp_path / "long", 40), _pictures(tmp_path / "short", 1)
    graph = tmp_path / "graph.yaml"
    graph.write_text(
        "nodes:\n"
        "  camera: {ends_graph: true, parameters: {exit_at_end: true, rate: 5.0}}\n"
        f"  brief: {{module: camera, parameters: {{exit_at_end: true, source: {short}}}}}\n"
    )
    starts, lines = dict[str, list[int]](camera=[], brief=[]), list[str]()
    launch = _launch(LAUNCH / "road.launch.py", f"config:={graph}", f"source:={long}")
    try:
        assert launch.stdout is not None
        for line in launch.stdout:  # to its end, which the end of the pictures brings
            lines.append(line)
            if found := re.search(r"\[(\w+)-\d+\]: process started with pid \[(\d+)\]", line):
                starts[found[1]].append(int(found[2]))
                if found[1] == "camera" and len(starts["camera"]) == 1:
                    os.kill(starts["camera"][0], signal.SIGKILL)
        code = launch.wait()
    finally:
        if launch.poll() is None:  # it takes its nodes along
            launch.send_signal(signal.SIGINT)
            launch.wait()
    output = "".join(lines)
    assert code == 0, output
    assert {name: len(pids) for name, pids in starts.items()} == {"camera": 2, "brief": 1}, output
    assert "camera has crashed; starting it again in 0.5 s" in output
    assert "40 pictures sent" in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("value", "said"), [("1.5", "got 1.5 (number)"), ("high", "got 'high' (string)")]
)
def test_refused_parameter_ends_the_launch_with_an_exit_code(
    tmp_path: Path, value: str, said: str
) -> None:  # C58
    graph = tmp_path / "graph.yaml"
    graph.write_text("nodes: {detector: {}, tracker: {}}\n")
    words = [LAUNCH / "road.launch.py", f"config:={graph}", f"score_threshold:={value}"]
    launch = _launch(*words)
    output, _ = launch.communicate()
    assert launch.returncode == 1, output
    assert f"parameter 'score_threshold': {said}, expected number from 0.0 to 1.0" in output
    assert "detector refused its input" in output
    assert "Traceback" not in output


def test_wrong_number_of_sources_is_refused() -> None:
    with pytest.raises(InputError, match="2 cameras"):
        _start("road_multi.launch.py", cameras="front,rear", source="a.mp4")
