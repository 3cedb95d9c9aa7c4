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


def test_a_sweep_counts_what_holds_and_names_the_seeds_that_fail(tmp_path, capsys):
    out = tmp_path / "out.json"
    # Someone stands in the way for some seeds only; nobody's zones are on.
    off = ["--set", "guardian.zones=[]"]
    scenario = tmp_path / "mine.yaml"
    scenario.write_text(
        "{seconds: 8, goal: 6, gaps: [3], actors: [{kind: person, start: [3, 0], vary: [0, 2]}]}"
    )
    command = ["run", "factory", "--truth-detections", "--scenario", str(scenario)]
    command += ["--seed", "3", "--seeds", "8", "--jobs", "2", "--json", str(out), *off]
    assert main(command) == 1
    report = json.loads(out.read_text())
    (row,) = report["scenarios"]
    failed = [run["seed"] for run in report["variations"] if not run["passed"]]
    assert row["failed_seeds"] == failed
    assert 0 < len(failed) < 8 and row["held"] + len(failed) == row["runs"] == 8
    assert [run["seed"] for run in report["variations"]] == list(range(3, 11))
    assert row["contacts"] == sum(run["contact"] for run in report["variations"]) > 0
    gaps = [run["clearance_while_moving_m"] for run in report["variations"]]
    assert row["least_clearance_m"] == min(gaps)
    assert str(failed) in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scenario", "nobody"], "no scenario 'nobody'"),
        (["--scenario", "missing.yaml"], "missing.yaml"),
        (["--seed", "-1"], "--seed is -1"),
        (["--seeds", "0"], "--seeds is 0"),
        (["--seeds", "2", "--jobs", "0"], "--jobs is 0"),
        (["--scenario", "all"], "expected --seeds N"),
    ],
)
def test_mistakes_are_exit_code_2(capsys, arguments, message):
    assert main([*IN_PROCESS, *arguments]) == 2
    assert message in capsys.readouterr().err
