"""A package that is missing is named with the extra and a command that really brings it."""

import subprocess
import sys
from pathlib import Path

import pytest

from perception import extras

ROOT = Path(__file__).resolve().parents[2]

# Runs the command while one package is hidden, and tells of every process it starts.
PROGRAM = """
import subprocess, sys
sys.modules[sys.argv[1]] = None  # as if it were not installed
started = subprocess.Popen.__init__

def told(self, *words, **options):
    print("started a process")
    started(self, *words, **options)

subprocess.Popen.__init__ = told
from perception.cli import main
sys.exit(main(sys.argv[2:]))
"""


def without(package, *command):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, package, *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("how", [[], ["--in-process", "--truth-detections"]])
def test_the_factory_without_mujoco_starts_nothing_and_names_its_extra(how):
    pytest.importorskip("rclpy", reason="needs ROS 2: pip install waysight[ros]")
    finished = without("mujoco", "run", "factory", "--headless", *how)
    assert finished.returncode == 2
    assert finished.stderr == (
        "waysight: error: 'run' needs the Python package 'mujoco': pip install -e '.[factory]'\n"
    )
    assert finished.stdout == ""


def test_a_shipped_model_is_not_shown_without_onnx():
    finished = without("onnx", "model", "show", "road-n")
    assert finished.returncode == 2
    assert "'onnx': pip install -e '.[train]'" in finished.stderr


@pytest.mark.parametrize(
    ("package", "preferred", "extra"),
    [
        ("mujoco", "ros", "factory"),
        ("paho", "ros", "factory"),
        ("rclpy", "cpu", "ros"),
        ("std_msgs", "cpu", "ros"),
        ("av", "ros", "bags"),
        ("PIL", "eval", "data"),
        ("faster_coco_eval", "ros", "demo"),
        ("faster_coco_eval", "eval", "eval"),
        ("a_module_nobody_has", "cpu", "cpu"),
    ],
)
def test_the_extra_is_the_one_that_requires_the_package(package, preferred, extra):
    assert extras.extra_of(package, preferred) == extra


def test_the_command_fits_where_the_package_lies(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert extras.install_command("ros") == f"pip install -e '{ROOT}[ros]'"
    monkeypatch.chdir(ROOT)
    assert extras.install_command("ros") == "pip install -e '.[ros]'"
    monkeypatch.setattr(extras, "CHECKOUT", tmp_path)
    assert extras.install_command("ros") == "pip install 'waysight[ros]'"


def test_help_keeps_the_capitals_of_names(capsys):
    from perception.cli import main

    with pytest.raises(SystemExit):
        main(["run", "--help"])
    assert "Run a ROS 2 graph from one YAML file." in capsys.readouterr().out
