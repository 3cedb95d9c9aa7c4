"""`waysight run factory` without ROS 2 processes: listing, verdicts, mistakes."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import perception.simulation  # noqa: F401 - chooses the graphics library before MuJoCo loads
from perception.cli import main

pytest.importorskip("mujoco", reason="needs MuJoCo: pip install waysight[factory]")

IN_PROCESS = ["run", "factory", "--in-process", "--truth-detections"]
#: Zones for nobody: the robot drives into people.
NO_ZONES = [
    word
    for zone in ("moving_stop", "moving_soon", "moving_slow", "approach")
    for word in ("--set", f"guardian.{zone}.enabled=false")
]


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
    scenario = tmp_path / "mine.yaml"
    scenario.write_text("{seconds: 8, actors: [{kind: person, start: [5, 0]}]}")
    command = [*IN_PROCESS, "--scenario", str(scenario), *NO_ZONES, "--json", str(out)]
    assert main(command) == 1
    assert json.loads(out.read_text())["contact"] is True
    assert "does not hold" in capsys.readouterr().err


def test_a_sweep_counts_what_holds_and_names_the_seeds_that_fail(tmp_path, capsys):
    out = tmp_path / "out.json"
    # Someone stands in the way for some seeds only.
    scenario = tmp_path / "mine.yaml"
    scenario.write_text(
        "{seconds: 8, goal: 6, gaps: [3], actors: [{kind: person, start: [3, 0], vary: [0, 2]}]}"
    )
    command = ["run", "factory", "--truth-detections", "--scenario", str(scenario)]
    command += ["--seed", "3", "--seeds", "8", "--jobs", "2", "--json", str(out), *NO_ZONES]
    assert main(command) == 1
    shown = capsys.readouterr()
    report = json.loads(out.read_text())
    (row,) = report["scenarios"]
    failed = [run["seed"] for run in report["variations"] if not run["passed"]]
    assert row["failed_seeds"] == failed
    assert 0 < len(failed) < 8 and row["held"] + len(failed) == row["runs"] == 8
    assert [run["seed"] for run in report["variations"]] == list(range(3, 11))
    assert row["contacts"] == sum(run["contact"] for run in report["variations"]) > 0
    gaps = [run["clearance_while_moving_m"] for run in report["variations"]]
    assert row["least_clearance_m"] == min(gaps)
    driven = [run["travelled_m"] for run in report["variations"]]
    assert row["least_travelled_m"] == min(driven) > 0
    assert str(min(driven)) in shown.out
    assert str(failed) in shown.err.replace("\n", " ")


def _started_by(process: int) -> set[Path]:
    """/proc folders of the processes that a process started."""
    children = Path(f"/proc/{process}/task/{process}/children")
    return {Path("/proc", child) for child in children.read_text().split()}


def test_a_sweep_that_is_killed_leaves_no_process(tmp_path):
    scenario = tmp_path / "mine.yaml"
    scenario.write_text("{seconds: 3000, actors: [{kind: person, start: [5, 0]}]}")
    command = ["run", "factory", "--truth-detections", "--scenario", str(scenario)]
    command += ["--seeds", "4", "--jobs", "2"]
    sweep = subprocess.Popen([sys.executable, "-m", "perception.cli", *command])
    deadline = time.monotonic() + 60
    # Two that play and multiprocessing's own.
    while len(started := _started_by(sweep.pid)) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    sweep.kill()
    sweep.wait()
    while any(folder.exists() for folder in started) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(started) == 3 and not any(folder.exists() for folder in started)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scenario", "nobody"], "no scenario 'nobody'"),
        (["--scenario", "missing.yaml"], "missing.yaml"),
        (["--seed", "-1"], "--seed is -1"),
        (["--seeds", "0"], "--seeds is 0"),
        (["--seeds", "2", "--jobs", "0"], "--jobs is 0"),
        (["--scenario", "all"], "expected --seeds N"),
        (["--jobs", "2"], "--jobs: only variations use it, expected --seeds N"),
        (["--source", "a.mp4"], "--source: graph 'factory' draws its own pictures"),
        (["--cameras", "front,rear"], "--cameras: graph 'factory' draws its own pictures"),
        (["--record", "a.mcap"], "--record: a run in one process does not use it"),
        (["--seconds", "5"], "--seconds: a run in one process does not use it"),
        (["--set", "guardian.zones=[moving_stop]"], "unknown parameter 'moving_soon'"),
        (["--set", "guardian.moving_stpo.enabled=false"], "did you mean 'moving_stop'"),
        (["--set", "obstacles.mount_z=0.5"], "a run in one process does not use it"),
        (["--set", "guardian.known_speed=1"], "a run in one process does not use it"),
        (["--set", "guardian.watch_camera=false"], "a run in one process does not use it"),
        (["--set", "guardian.sigmas.x=3"], "node 'guardian': sigmas.x: sigmas is 2.0"),
        (["--set", "tracker.retention=-1"], "node 'tracker': "),
        (["--set", "tracker.retention=soon"], "node 'tracker': "),
        (["--set", "obstacles.pixel_sigma=wide"], "node 'obstacles': "),
    ],
)
def test_mistakes_are_exit_code_2(capsys, arguments, message):
    assert main([*IN_PROCESS, *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "option",
    [
        ["--scenario", "lights_out"],
        ["--list-scenarios"],
        ["--seed", "3"],
        ["--seeds", "2"],
        ["--jobs", "2"],
        ["--headless"],
        ["--in-process"],
        ["--truth-detections"],
    ],
)
def test_options_of_the_factory_are_refused_by_another_graph(capsys, option):
    assert main(["run", "road", "--seconds", "1", *option]) == 2
    said = f"{option[0]}: only graph 'factory' takes it, expected that instead of 'road'"
    assert capsys.readouterr().err == f"waysight: error: {said}\n"


def test_settings_of_tracker_and_obstacles_reach_the_run(tmp_path):
    # Whose speed is never known is taken to come closer: the robot stops earlier for who stands.
    scenario = tmp_path / "mine.yaml"
    scenario.write_text("{seconds: 10, actors: [{kind: person, start: [8, 0]}]}")
    stops = []
    for settings in ([], ["--set", "obstacles.known_speed=0.05"]):
        out = tmp_path / "out.json"
        main([*IN_PROCESS, "--scenario", str(scenario), *settings, "--json", str(out)])
        stops.append(json.loads(out.read_text())["stops"][0]["clearance"])
    assert stops[1] > stops[0]
