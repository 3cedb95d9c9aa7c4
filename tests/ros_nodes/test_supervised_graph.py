"""`waysight run` and `waysight demo` as a person calls them, and the supervisor under them."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import cv2
import numpy as np
import pytest

pytest.importorskip("rclpy", reason="needs ROS 2")
pytest.importorskip("vision_msgs", reason="needs vision_msgs: python -m ros_nodes.setup_ros")

from vision_msgs.msg import Detection2DArray

from ros_nodes.graph import RUN_FOLDER_VARIABLE, Graph, NodeSpec, find_graph, read_graph
from ros_nodes.supervisor import Child, Supervisor
from tests.onnx_models import bright_cell_detector
from tests.ros_nodes.peer import ENVIRONMENT, Peer

RATE = 15.0
FRAMES = 30


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bright_cell_detector(tmp_path_factory.mktemp("model") / "cells.onnx")


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seconds in which a white square crosses the picture."""
    path = tmp_path_factory.mktemp("video") / "square.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), RATE, (128, 96))
    for number in range(FRAMES):
        image = np.zeros((96, 128, 3), np.uint8)
        image[32:64, 3 * number : 3 * number + 32] = 255
        writer.write(image)
    writer.release()
    return path


def _waysight(*words: object, wait: bool = True) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "perception.cli", *map(str, words)],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",  # FFmpeg quotes the bytes that it does not understand
    )
    if wait:
        try:
            process.wait(timeout=90)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            raise
    return process


def test_demo_accounts_for_every_picture_of_a_video(
    tmp_path: Path, video: Path, model: Path
) -> None:
    out = tmp_path / "demo"
    process = _waysight("demo", "--video", video, "--model", model, "--out", out)
    text, errors = process.communicate()
    assert process.returncode == 0, errors
    summary = json.loads((out / "summary.json").read_text())
    assert summary["frames_sent"] == FRAMES
    assert summary["frames_received"] <= FRAMES
    assert summary["frames_dropped"] == FRAMES - summary["frames_processed"]
    assert summary["frames_processed"] > 0
    assert summary["fps"] > 0
    assert set(summary["latency_ms"]) == {"p50", "p90", "p99"}
    assert summary["ap50"] is None
    assert sorted(p.name for p in out.iterdir()) == [
        "annotated.mp4",
        "detections.mcap",
        "summary.json",
    ]
    assert "pictures sent" in text
    capture = cv2.VideoCapture(str(out / "annotated.mp4"))
    assert capture.get(cv2.CAP_PROP_FRAME_COUNT) > 0


def test_report_of_a_run_accounts_for_every_picture(
    tmp_path: Path, video: Path, model: Path
) -> None:
    graph, report = tmp_path / "graph.yaml", tmp_path / "report.json"
    graph.write_text(
        "nodes:\n"  # in the order of their start: the detector waits for the pictures
        "  detector: {process: both, namespace: front}\n"
        "  camera:\n"
        "    process: both\n"
        "    namespace: front\n"
        "    ends_graph: true\n"
        "    parameters: {exit_at_end: true}\n"
    )
    process = _waysight("run", graph, "--source", video, "--model", model, "--json", report)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    nodes = json.loads(report.read_text())["nodes"]
    assert set(nodes) == {"/front/camera", "/front/detector"}
    assert nodes["/front/camera"]["sent"] == FRAMES
    detector = nodes["/front/detector"]
    done = sum(detector[name] for name in ("processed", "dropped", "invalid"))
    assert FRAMES - 1 <= done <= detector["received"] == FRAMES  # one may be in work
    assert all(type(count) is int for counts in nodes.values() for count in counts.values())


def test_demo_refuses_bad_input_in_one_sentence_and_leaves_nothing(
    tmp_path: Path, video: Path, model: Path
) -> None:
    garbage = tmp_path / "garbage.onnx"
    garbage.write_bytes(bytes(range(256)) * 8)
    (tmp_path / "cut.mp4").write_bytes(bytes(1000))
    (tmp_path / "empty").mkdir()
    for words, said in (
        (("--video", "/no/such.mp4", "--model", model), "/no/such.mp4: no such file"),
        (("--video", tmp_path / "cut.mp4", "--model", model), "cut.mp4"),
        (("--video", tmp_path / "empty", "--model", model), "folder without pictures"),
        (("--video", video, "--model", "no-such-model"), "model 'no-such-model'"),
        (("--video", video, "--model", garbage), "garbage.onnx: not an ONNX model"),
    ):
        out = tmp_path / "out"
        process = _waysight("demo", *words, "--out", out)
        _, errors = process.communicate()
        assert process.returncode == 2, errors
        lines = [line for line in errors.splitlines() if line.startswith("waysight: error: ")]
        assert len(lines) == 1
        assert said in lines[0]
        assert "Traceback" not in errors
        assert not out.exists()


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.02, "no frame of it can be decoded"), (0.5, "ends after frame ")],
)
def test_run_on_a_cut_video_ends_with_one_sentence_and_exit_code_2(
    tmp_path: Path, video: Path, model: Path, share: float, said: str
) -> None:
    cut = tmp_path / "cut.avi"
    data = video.read_bytes()
    cut.write_bytes(data[: int(share * len(data))])
    graph = tmp_path / "graph.yaml"
    graph.write_text(
        "nodes:\n"
        "  camera: {ends_graph: true, parameters: {loop: true, exit_at_end: true}}\n"
        "  detector: {}\n"
    )
    process = _waysight("run", graph, "--source", cut, "--model", model)
    _, errors = process.communicate()
    assert process.returncode == 2, errors
    lines = [line for line in errors.splitlines() if line.startswith("waysight: error: ")]
    assert len(lines) == 1
    assert "cut.avi" in lines[0] and said in lines[0]
    assert "Traceback" not in errors
    assert "starting it again" not in errors
    found = re.search(
        r"frame (\d+) of the (\d+) that its header names; pictures sent: (\d+)", errors
    )
    if share == 0.5:
        assert found is not None
        read, named, sent = map(int, found.groups())
        assert 0 < read == sent < named == FRAMES


def test_run_refuses_a_misspelt_parameter_before_any_process_starts(
    tmp_path: Path, video: Path
) -> None:
    graph = tmp_path / "graph.yaml"
    graph.write_text(
        "nodes:\n  camera: {}\n  detector: {parameters: {modl: x, qos_overrides.a.depth: 1}}\n"
    )
    for words, said in (
        ((graph, "--source", video), "unknown parameter 'modl'; did you mean 'model'?"),
        (
            ("road", "--source", video, "--set", "detector.score_treshold=1"),
            "unknown parameter 'score_treshold'; did you mean 'score_threshold'?",
        ),
        (
            ("factory", "--set", "guardian.clock_timout=1"),
            "unknown parameter 'clock_timout'; did you mean 'clock_timeout'?",
        ),
    ):
        process = _waysight("run", *words)
        text, errors = process.communicate()
        assert process.returncode == 2, errors
        node = "guardian" if "factory" in words else "detector"
        assert errors == f"waysight: error: node '{node}': {said}\n"
        assert text == ""


def test_run_refuses_a_recording_that_cannot_be_written_before_any_process_starts(
    tmp_path: Path, video: Path
) -> None:
    (tmp_path / "file").touch()
    output = tmp_path / "file" / "new" / "x.mcap"
    process = _waysight("run", "road", "--source", video, "--record", output, "--seconds", 1)
    text, errors = process.communicate()
    assert process.returncode == 2, errors
    assert errors == (
        f"waysight: error: {output}: cannot write here: {tmp_path / 'file'} is not a folder\n"
    )
    assert text == ""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("clock_timout: 1.0", "unknown parameter 'clock_timout'; did you mean 'clock_timeout'?"),
        ("hlat.radius: 1.0", "unknown parameter 'hlat.radius'; did you mean 'halt.radius'?"),
        ("halt.release_aftr: 1.0", "release_aftr"),
    ],
)
def test_guardian_refuses_a_misspelt_parameter_and_zone_key(
    tmp_path: Path, given: str, said: str
) -> None:
    file = tmp_path / "guardian.yaml"
    file.write_text(
        "guardian:\n"
        "  ros__parameters:\n"
        "    use_sim_time: true\n"
        "    zones: [halt]\n"
        "    halt: {shape: circle, radius: 1.0, action: stop, classes: [person]}\n"
        f"    {given}\n"
    )
    words = [sys.executable, "-m", "ros_nodes.guardian_node", "--ros-args", "--params-file", file]
    done = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("waysight: error: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_goes_on_after_a_crash_and_stops_in_order_when_told(
    tmp_path: Path, video: Path, model: Path, number: signal.Signals
) -> None:
    report = tmp_path / "report.json"
    graph = tmp_path / "graph.yaml"
    graph.write_text(
        "nodes:\n"
        "  camera: {parameters: {loop: true}}\n"
        f"  detector: {{parameters: {{model: {model}}}}}\n"
    )
    peer = Peer()
    results = peer.collect(Detection2DArray, "detections", 100)
    process = _waysight("run", graph, "--source", video, "--json", report, wait=False)
    try:
        peer.wait_for(lambda: results, "the first results", timeout=40)
        os.kill(_child(process.pid, "detector_node"), signal.SIGKILL)
        before = len(results)
        peer.spin(0.5)
        peer.wait_for(lambda: len(results) > before + 20, "results after the restart", timeout=40)
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0, errors
        assert "detector ended with signal SIGKILL; starting it again" in errors
        assert "Traceback" not in errors
        rows = {row["process"]: row for row in json.loads(report.read_text())["processes"]}
        assert rows["camera"] == {
            "process": "camera",
            "restarts": 0,
            "exit_codes": [0],
            "killed": False,
        }
        assert rows["detector"]["restarts"] == 1
        assert rows["detector"]["exit_codes"] == [-9, 0]
    finally:
        process.kill()
        peer.close()


def _child(parent: int, word: str) -> int:
    """The process id of the parent's child whose command line holds `word`."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_text()
            except OSError:
                continue
            if int(stat[1]) == parent and word in command:
                return int(entry.name)
    raise AssertionError(f"process {parent} has no child {word}")


def _supervised(commands: dict[str, str], **options: object) -> Supervisor:
    """A supervisor of small Python programs in place of nodes."""
    nodes = tuple(NodeSpec(name, "camera", name) for name in commands)
    supervisor = Supervisor(Graph("test", nodes), lambda _: None)
    supervisor.children = [
        Child(name, [sys.executable, "-c", code], ends_graph=bool(options.get(name)))
        for name, code in commands.items()
    ]
    return supervisor


def test_end_of_the_source_ends_the_graph() -> None:
    supervisor = _supervised(
        {"source": "pass", "other": "import time; time.sleep(60)"}, source=True
    )
    supervisor.children[1].command[-1] = (
        "import signal, time, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        "time.sleep(60)"
    )
    assert supervisor.run(seconds=30) == 0
    assert supervisor.children[0].exit_codes == [0]


def test_refused_input_ends_everything_with_exit_code_2() -> None:
    supervisor = _supervised({"a": "import sys; sys.exit(2)", "b": "import time; time.sleep(60)"})
    assert supervisor.run(seconds=30) == 2


def test_refused_input_counts_even_when_it_came_together_with_the_stop() -> None:
    supervisor = _supervised(
        {
            "a": "import signal, sys, time\n"
            "signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))\n"
            "time.sleep(60)"
        }
    )
    folder = Path(supervisor._folder.name)
    marker = folder / "ready"
    supervisor.children[0].command[-1] = (
        supervisor.children[0]
        .command[-1]
        .replace("time.sleep", f"open({str(marker)!r}, 'w').close(); time.sleep")
    )
    supervisor._on_tick = lambda: supervisor.stop() if marker.exists() else None
    assert supervisor.run(seconds=30) == 2


def test_node_that_still_imports_is_stopped_without_a_trace(
    capfd: pytest.CaptureFixture[str],
) -> None:
    nodes = (NodeSpec("camera", "camera", "camera"), NodeSpec("detector", "detector", "detector"))
    supervisor = Supervisor(Graph("test", nodes), print)
    supervisor._on_tick = supervisor.stop  # at the first look: interpreters have just started
    assert supervisor.run() == 0
    assert capfd.readouterr() == ("", "")
    assert [child.exit_codes for child in supervisor.children] == [[-signal.SIGTERM]] * 2


def test_crashing_process_is_restarted_ever_more_slowly() -> None:
    supervisor = _supervised({"a": "import sys; sys.exit(1)"})
    assert supervisor.run(seconds=4) == 1
    child = supervisor.children[0]
    assert 1 <= child.restarts <= 3  # after 0.5, 1 and 2 seconds
    assert set(child.exit_codes) == {1}
    assert child.wait > 0.5


def test_what_a_crashed_process_left_is_found_by_the_one_in_its_place() -> None:
    supervisor = _supervised(
        {
            "a": "import os, pathlib, sys\n"
            f"mark = pathlib.Path(os.environ[{RUN_FOLDER_VARIABLE!r}]) / 'mark'\n"
            "found = mark.exists()\n"
            "mark.touch()\n"
            "sys.exit(0 if found else 1)"
        },
        a=True,
    )
    supervisor.run(seconds=30)
    assert supervisor.children[0].exit_codes == [1, 0]


WAITS_FOR_SIGTERM = (
    "import pathlib, signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit({code}))\n"
    "pathlib.Path({path!r}).touch()\n"
    "time.sleep(60)"
)


def _stop_when(supervisor: Supervisor, marker: Path) -> None:
    supervisor._on_tick = lambda: supervisor.stop() if marker.exists() else None


@pytest.mark.parametrize(("crashes", "code"), [(0, 0), (1, 0), (2, 1)])
def test_exit_code_is_0_only_when_a_crashed_process_has_recovered(
    tmp_path: Path, crashes: int, code: int
) -> None:
    up = tmp_path / "up"
    program = (
        "import pathlib, sys\n"
        f"crashes = pathlib.Path({str(tmp_path / 'crashes')!r})\n"
        "done = len(crashes.read_text()) if crashes.exists() else 0\n"
        "crashes.write_text('x' * (done + 1))\n"
        f"done < {crashes} and sys.exit(1)\n" + WAITS_FOR_SIGTERM.format(code=0, path=str(up))
    )
    supervisor = _supervised({"a": program})
    _stop_when(supervisor, up)
    assert supervisor.run(seconds=60) == code
    assert supervisor.children[0].exit_codes == [1] * crashes + [0]


def test_crash_at_the_stop_is_exit_code_1(tmp_path: Path) -> None:
    up = tmp_path / "up"
    supervisor = _supervised({"a": WAITS_FOR_SIGTERM.format(code=1, path=str(up))})
    _stop_when(supervisor, up)
    assert supervisor.run(seconds=60) == 1


def test_graph_that_ends_by_itself_while_another_process_crashes_is_exit_code_1(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    wait = "import pathlib, time\n"
    wait += f"while not pathlib.Path({str(second)!r}).exists(): time.sleep(0.05)"
    crash = (
        "import pathlib, sys\n"
        f"first = pathlib.Path({str(first)!r})\n"
        f"(pathlib.Path({str(second)!r}) if first.exists() else first).touch()\n"
        "sys.exit(1)"
    )
    supervisor = _supervised({"source": wait, "other": crash}, source=True)
    assert supervisor.run(seconds=60) == 1


def test_processes_are_stopped_one_after_the_other_in_the_order_of_the_file(
    tmp_path: Path,
) -> None:
    code = (
        "import signal, sys, time, pathlib\n"
        "def end(*_):\n"
        "    pathlib.Path({path!r}).open('a').write({name!r})\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "pathlib.Path({path!r} + {name!r}).touch()\n"
        "time.sleep(60)\n"
    )
    log = str(tmp_path / "log")
    supervisor = _supervised({n: code.format(path=log, name=n) for n in "cab"})
    supervisor._on_tick = lambda: (
        supervisor.stop() if all(Path(log + n).exists() for n in "cab") else None
    )
    assert supervisor.run(seconds=30) == 0
    assert Path(log).read_text() == "cab"


def test_children_do_not_outlive_a_killed_supervisor(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    program = (
        "import sys\n"
        "from tests.ros_nodes.test_supervised_graph import _supervised\n"
        "code = 'import os, pathlib, time; "
        f'pathlib.Path("{marker}").write_text(str(os.getpid())); time.sleep(60)\'\n'
        "_supervised({'a': code}).run(seconds=60)\n"
    )
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen([sys.executable, "-c", program], cwd=root, env=ENVIRONMENT)
    deadline = time.monotonic() + 30
    while not (marker.exists() and marker.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    child = int(marker.read_text())
    process.kill()
    process.wait()
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state == "Z":
            return
        time.sleep(0.05)
    raise AssertionError("the child still runs")


def test_dds_profile_is_applied_unless_the_user_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = read_graph(find_graph("road"))
    monkeypatch.delenv("FASTDDS_DEFAULT_PROFILES_FILE", raising=False)
    profile = Path(Supervisor(graph, print).environment["FASTDDS_DEFAULT_PROFILES_FILE"])
    assert "<segment_size>67108864</segment_size>" in profile.read_text()
    monkeypatch.setenv("FASTDDS_DEFAULT_PROFILES_FILE", "/etc/mine.xml")
    assert Supervisor(graph, print).environment["FASTDDS_DEFAULT_PROFILES_FILE"] == "/etc/mine.xml"
