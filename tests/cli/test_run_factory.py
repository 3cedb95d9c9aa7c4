"""`waysight run factory` without ROS 2 processes: listing, verdicts, mistakes."""

import json

import pytest

import perception.simulation  # noqa: F401 - chooses the graphics library before MuJoCo loads
from perception.cli import main

pytest.importorskip("mujoco", reason="needs MuJoCo: pip install waysight[factory]")

IN_PROCESS = ["run", "factory", "--in-process", "--truth-detections"]


def test_scenarios_are_listed(capsys):
    assert main(["run", "factory", "--list-scenarios"]) == 0
    listed = capsys.readouterr().out
    assert "person_from_rack" in listed and "empty_hall" in listed


def test_a_verdict_that_holds_is_exit_code_0(tmp_path, capsys):
    out = tmp_path / "out.json"
    command = [*IN_PROCESS, "--scenario", "detector_killed", "--seed", "4", "--json", str(out)]
    assert main(command) == 0
    report = json.loads(out.read_text())
    assert report["passed"] and report["seed"] == 4
    assert report["detector"].startswith("truth")
    assert {check["name"] for check in report["checks"]} >= {"no contact", "clearance while moving"}


def test_a_verdict_that_fails_is_exit_code_1(tmp_path, capsys):
    out = tmp_path / "out.json"
    # Zones for nobody: the robot drives into the person.
    off = [
        word
        for zone in ("moving_stop", "moving_soon", "moving_slow", "approach")
        for word in ("--set", f"guardian.{zone}.enabled=false")
    ]
    scenario = tmp_path / "mine.yaml"
    scenario.write_text("{seconds: 8, actors: [{kind: person, start: [5, 0]}]}")
    command = [*IN_PROCESS, "--scenario", str(scenario), *off, "--json", str(out)]
    assert main(command) == 1
    assert json.loads(out.read_text())["contact"] is True
    assert "does not hold" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scenario", "nobody"], "no scenario 'nobody'"),
        (["--scenario", "missing.yaml"], "missing.yaml"),
        (["--seed", "-1"], "--seed is -1"),
    ],
)
def test_mistakes_are_exit_code_2(capsys, arguments, message):
    assert main([*IN_PROCESS, *arguments]) == 2
    assert message in capsys.readouterr().err
