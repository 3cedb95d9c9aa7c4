"""Arguments after --ros-args that cannot be used, as every node refuses them."""

import importlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="needs ROS 2")
pytest.importorskip("vision_msgs", reason="needs vision_msgs: python -m ros_nodes.setup_ros")

import rclpy

from perception.errors import InputError
from ros_nodes.ros_arguments import refused_in_a_sentence
from tests.ros_nodes.peer import ENVIRONMENT

EXECUTABLES = Path(__file__).resolve().parents[2] / "ros_nodes" / "executables"
NODES = sorted(path.name for path in EXECUTABLES.iterdir())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-p", "source"], "ROS argument '-p source': expected -p NAME:=VALUE"),
        (["-p", "source:="], "ROS argument '-p source:=': expected -p NAME:=VALUE"),
        (["-p"], "ROS argument '-p': nothing follows, expected -p NAME:=VALUE"),
        (["-r", "image_raw"], "ROS argument '-r image_raw': expected -r OLD:=NEW"),
        (["--log-level", "loud"], "'--log-level loud': expected --log-level debug, info, "),
        (["--params-file", "/no/such.yaml"], "'--params-file /no/such.yaml': expected .* file"),
        (["--params-file", "{cut}"], r"cut.yaml': expected .* \(Cannot have a value .* line 2\)"),
        (["--parms-file", "x"], "unknown ROS argument '--parms-file', expected one of -p, "),
    ],
)
def test_unusable_argument_is_refused_with_the_form_that_is_expected(
    tmp_path: Path, words: Sequence[str], said: str
) -> None:
    cut = tmp_path / "cut.yaml"
    cut.write_text("/**:\n  ros__parameters: [1,\n")
    arguments = ["--ros-args", *(word.format(cut=cut) for word in words)]
    with pytest.raises(InputError, match=said) as error, refused_in_a_sentence():
        rclpy.init(args=arguments, context=rclpy.Context())
    assert "\n" not in str(error.value) and ".c:" not in str(error.value)


def _refusal(words: Sequence[str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *words], env=ENVIRONMENT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2, done.stderr
    return done.stderr


@pytest.mark.parametrize("node", NODES)
def test_every_node_refuses_a_missing_parameter_file_in_one_sentence(node: str) -> None:
    try:
        importlib.import_module(f"ros_nodes.{node}_node")
    except ModuleNotFoundError as error:
        pytest.skip(f"needs the package {error.name}")
    said = _refusal([f"ros_nodes.{node}_node", "--ros-args", "--params-file", "/no/such.yaml"])
    assert said.startswith("waysight: error: ROS argument '--params-file /no/such.yaml'")
    assert said.count("\n") == 1


def test_nodes_of_one_process_refuse_a_parameter_without_value_in_one_sentence() -> None:
    said = _refusal(["ros_nodes.compose", "--node", "camera", "-p", "source", "--end"])
    assert said == "waysight: error: ROS argument '-p source': expected -p NAME:=VALUE\n"
