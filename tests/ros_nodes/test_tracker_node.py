"""The tracker node as a process among foreign ROS nodes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="needs ROS 2")
pytest.importorskip("vision_msgs", reason="needs vision_msgs: python -m ros_nodes.setup_ros")

from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticStatus
from lifecycle_msgs.srv import ChangeState
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import PointCloud2
from vision_msgs.msg import Detection2DArray, LabelInfo

from perception.detections import Detections
from perception.frame import Frame
from ros_nodes import convert, qos
from ros_nodes.handover import Handover
from ros_nodes.tracker_node import VELOCITY_POINT, TrackerNode, TrackerParameters, velocity_message
from tests.ros_nodes.peer import NodeProcess, Peer

NAMES = ("car", "truck")
BOX = (100.0, 100.0, 140.0, 180.0)


def _message(
    stamp_ns: int,
    boxes: list[tuple[float, ...]],
    labels: list[int] | None = None,
    frame_id: str = "cam",
) -> Detection2DArray:
    found = Detections.create(boxes, [0.9] * len(boxes), labels or [0] * len(boxes))
    frame = Frame(np.zeros((0, 0), np.uint8), stamp_ns, frame_id)
    return convert.detections_message(found, frame, NAMES)


class Rig:
    """A running tracker and a peer that feeds it and listens."""

    def __init__(self, tmp_path: Path, reliability: str = "RELIABLE", **parameters: object) -> None:
        self.peer = Peer()
        self.tracks = self.peer.collect(Detection2DArray, "tracks")
        self.velocities = self.peer.collect(PointCloud2, "track_velocities")
        profile = QoSProfile(depth=10, reliability=ReliabilityPolicy[reliability])
        self.publisher = self.peer.node.create_publisher(Detection2DArray, "detections", profile)
        self.node = NodeProcess(
            "tracker_node", tmp_path / "log", diagnostics_period=0.1, **parameters
        )

    def connected(self) -> None:
        self.peer.connected("/tracker", to=[self.publisher], from_=["/tracks", "/track_velocities"])

    def feed(self, *messages: Detection2DArray) -> list[Detection2DArray]:
        """Send one after the other, each answered before the next; gives the answers."""
        answers = []
        for message in messages:
            before = len(self.tracks)
            self.publisher.publish(message)
            self.peer.wait_for(lambda n=before: len(self.tracks) > n, "an answer", timeout=5)
            answers.append(self.tracks[-1])
        return answers

    def value(self, key: str) -> str | None:
        status = self.peer.status("/tracker")
        return next((v.value for v in status.values if v.key == key), None) if status else None

    def close(self) -> None:
        if self.node.process.poll() is None:
            self.node.stop()
        self.peer.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    made.connected()
    yield made
    made.close()


def _ids(answers: list[Detection2DArray]) -> list[list[str]]:
    return [[item.id for item in answer.detections] for answer in answers]


def test_ids_velocity_and_header_reach_other_nodes(rig: Rig) -> None:  # C52
    start = 12_345_678_901
    sent = [
        _message(start + n * 33_333_333, [(100 + 4 * n, 100, 140 + 4 * n, 180)], None, "optical")
        for n in range(12)
    ]
    answers = rig.feed(*sent)
    assert _ids(answers) == [["1"]] * 12
    assert answers[0].header.stamp == Time(sec=12, nanosec=345_678_901)
    for message, answer in zip(sent, answers, strict=True):
        assert answer.header == message.header
        assert answer.detections[0].header == message.header
        assert answer.detections[0].bbox == message.detections[0].bbox
        assert answer.detections[0].results[0].hypothesis.class_id == "car"
    rig.peer.wait_for(lambda: len(rig.velocities) == 12, "velocities")
    assert rig.velocities[-1].header == sent[-1].header
    point = np.frombuffer(rig.velocities[-1].data, VELOCITY_POINT)
    assert point["id"].tolist() == [1] and point["x"][0] == 164.0
    assert point["vx"][0] == pytest.approx(120, abs=6) and abs(point["vy"][0]) < 3


def test_empty_arrays_are_answered_and_ids_survive_them(rig: Rig) -> None:
    step = 33_333_333
    frames = [[BOX], [BOX], [], [], [BOX]]
    answers = rig.feed(*(_message(10**9 + n * step, boxes) for n, boxes in enumerate(frames)))
    assert _ids(answers) == [["1"], ["1"], [], [], ["1"]]


@pytest.mark.parametrize("rate", [10, 30])
def test_retention_is_time_at_any_rate_of_the_messages(tmp_path: Path, rate: int) -> None:  # C34
    made = Rig(tmp_path, retention=1.0)
    try:
        made.connected()
        gaps = [round(0.9 * rate), round(1.2 * rate)]
        shown = [[BOX]] * 5 + [[]] * gaps[0] + [[BOX]] + [[]] * gaps[1] + [[BOX]]
        answers = made.feed(
            *(_message(10**9 + round(n * 1e9 / rate), boxes) for n, boxes in enumerate(shown))
        )
        assert [ids for ids in _ids(answers) if ids] == [["1"]] * 6 + [["2"]]
    finally:
        made.close()


def test_the_class_of_a_track_does_not_flicker(rig: Rig) -> None:
    answers = rig.feed(
        *(_message(10**9 + n * 33_333_333, [BOX], [label]) for n, label in enumerate([0, 0, 1, 0]))
    )
    assert [a.detections[0].results[0].hypothesis.class_id for a in answers] == ["car"] * 4


def test_cameras_on_one_topic_are_tracked_apart(rig: Rig) -> None:
    answers = rig.feed(
        *(
            _message(10**9 + n * 10**7, [BOX, (300, 100, 340, 180)], None, frame_id)
            for n in range(3)
            for frame_id in ("left", "right")
        )
    )
    assert _ids(answers) == [["1", "2"]] * 6


def test_a_camera_too_many_is_an_error(rig: Rig) -> None:
    for number in range(64):
        rig.feed(_message(10**9, [BOX], None, f"cam{number}"))
    rig.publisher.publish(_message(10**9, [BOX], None, "last"))

    def told() -> bool:
        status = rig.peer.status("/tracker")
        said = "more than 64 frame_ids on detections: 'last' is not tracked"
        return status.level == DiagnosticStatus.ERROR and said in status.message

    rig.peer.wait_for(told, "an ERROR naming the camera")
    rig.peer.wait_for(lambda: rig.value("dropped") == "1", "counted")


def test_every_detection_comes_back_once_as_it_was(tmp_path: Path) -> None:  # C36
    made = Rig(tmp_path, high_threshold=0.6, start_threshold=0.7)
    boxes = [(10, 10, 50, 60), (200, 10, 260, 90), (400, 200, 420, 260)]
    scores, labels = [0.9, 0.3, 0.65], [1, 0, 1]

    def message(number: int, order: list[int]) -> Detection2DArray:
        found = Detections.create(
            [boxes[i] for i in order], [scores[i] for i in order], [labels[i] for i in order]
        )
        frame = Frame(np.zeros((0, 0), np.uint8), 10**9 + number * 33_333_333, "cam")
        return convert.detections_message(found, frame, NAMES)

    try:
        made.connected()
        sent = [message(n, order) for n, order in enumerate([[0, 1, 2]] * 2 + [[2, 0, 1]])]
        answers = made.feed(*sent)
        for given, answer in zip(sent, answers, strict=True):
            assert [d.bbox for d in answer.detections] == [d.bbox for d in given.detections]
            assert [d.results for d in answer.detections] == [d.results for d in given.detections]
        assert _ids(answers) == [["1", "", ""], ["1", "", ""], ["", "1", ""]]
    finally:
        made.close()


def test_stamp_zero_is_passed_on_with_one_warning(rig: Rig) -> None:  # C52
    answers = rig.feed(*(_message(0, [BOX]) for _ in range(4)))
    assert all(answer.header.stamp == Time() for answer in answers)
    assert _ids(answers) == [["1"]] * 4
    assert rig.node.output.count("stamp 0") == 1


def test_a_looped_bag_is_a_new_session_with_one_line_and_as_many_outputs(rig: Rig) -> None:  # C54
    order = [*range(20), 22, 20, 21, *range(23, 100)]
    first = [100.0 + n / 20 for n in order]
    second = [100.0 + n / 20 for n in range(100)]
    moving = {t: (100 + 20 * (t - 100), 100, 140 + 20 * (t - 100), 180) for t in second}
    answers = rig.feed(*(_message(round(t * 1e9), [moving[t]]) for t in first + second))
    assert _ids(answers) == [["1"]] * 200
    assert rig.node.output.count("time jumped back") == 1
    rig.peer.wait_for(lambda: rig.value("time_jumps") == "1", "jump counted")
    assert rig.value("late") == "2"


def test_silence_is_an_error_and_a_message_ends_it(rig: Rig) -> None:
    def level() -> Any:
        status = rig.peer.status("/tracker")
        return status and status.level

    rig.peer.wait_for(lambda: level() == DiagnosticStatus.ERROR, "error after 1 s of silence")
    assert "no detections for" in rig.peer.status("/tracker").message
    rig.feed(_message(10**9, [BOX]))
    rig.peer.wait_for(lambda: level() == DiagnosticStatus.OK, "ok again")
    assert rig.value("processed") == "1"


def test_tracker_that_is_not_active_misses_no_detections(rig: Rig) -> None:
    client = rig.peer.node.create_client(ChangeState, "/tracker/change_state")
    rig.peer.wait_for(client.service_is_ready, "the service")
    request = ChangeState.Request()
    request.transition.label = "deactivate"
    future = client.call_async(request)
    rig.peer.wait_for(future.done, "an answer")
    assert future.result().success
    rig.peer.statuses.clear()
    rig.peer.spin(2.0)  # twice the silence that is an error of an active one
    assert rig.peer.statuses
    assert {s.level for s in rig.peer.statuses} == {DiagnosticStatus.OK}


def test_an_unusable_message_is_counted_not_published_and_an_error(rig: Rig) -> None:
    broken = _message(10**9, [BOX])
    broken.detections[0].bbox.center.position.x = float("nan")
    rig.publisher.publish(broken)
    rig.peer.wait_for(lambda: rig.value("invalid") == "1", "counted as invalid")
    assert rig.tracks == []
    assert rig.peer.status("/tracker").level == DiagnosticStatus.ERROR
    assert _ids(rig.feed(_message(2 * 10**9, [BOX]))) == [["1"]]


def _without_place(message: Detection2DArray) -> None:
    message.detections[1].bbox.center.position.x = float("nan")


def _without_class(message: Detection2DArray) -> None:
    message.detections[1].results = []


@pytest.mark.parametrize("damage", [_without_place, _without_class])
def test_a_message_with_one_unusable_row_is_not_passed_on_without_it(
    rig: Rig, damage: Callable[[Detection2DArray], None]
) -> None:
    broken = _message(10**9, [BOX, (300, 100, 340, 180)])
    damage(broken)
    rig.publisher.publish(broken)
    rig.peer.wait_for(lambda: rig.value("invalid") == "1", "counted as invalid")
    assert rig.peer.status("/tracker").level == DiagnosticStatus.ERROR
    assert "1 of their rows cannot be used" in rig.peer.status("/tracker").message
    assert _ids(rig.feed(_message(2 * 10**9, [BOX]))) == [["1"]]
    assert len(rig.tracks) == 1


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_either_signal_ends_it_without_a_trace(tmp_path: Path, number: str) -> None:
    import signal

    rig = Rig(tmp_path)
    rig.connected()
    assert rig.node.stop(getattr(signal, number)) == 0
    assert "Traceback" not in rig.node.output
    rig.close()


def test_a_best_effort_publisher_is_named_as_incompatible(tmp_path: Path) -> None:  # C47
    rig = Rig(tmp_path, reliability="BEST_EFFORT")

    def message() -> str:
        status = rig.peer.status("/tracker")
        return status.message if status else ""

    rig.peer.wait_for(lambda: "RELIABILITY" in message(), "incompatible request in diagnostics")
    assert rig.peer.status("/tracker").level == DiagnosticStatus.ERROR
    assert "best_effort" in rig.node.output
    rig.close()


def test_best_effort_can_be_asked_for(tmp_path: Path) -> None:
    rig = Rig(tmp_path, reliability="BEST_EFFORT", input_reliability="best_effort")
    rig.connected()
    for n in range(100):  # best effort: those sent before both sides know each other are lost
        rig.publisher.publish(_message(10**9 + n * 10**8, [BOX]))
        rig.peer.spin(0.1)
        if rig.tracks:
            break
    assert _ids(rig.tracks[:1]) == [["1"]]
    rig.close()


def test_contradicting_thresholds_end_the_start_with_one_sentence(tmp_path: Path) -> None:
    node = NodeProcess("tracker_node", tmp_path / "log", high_threshold=0.9)
    assert node.process.wait(timeout=20) == 2
    assert "ascending order" in node.output and "Traceback" not in node.output


def test_defaults_are_those_of_the_tracker() -> None:
    from perception.tracking import TrackerSettings

    assert TrackerParameters().settings() == TrackerSettings()


def test_velocities_hold_only_what_is_tracked() -> None:
    found = Detections.create(
        [BOX, BOX], [0.9, 0.9], [0, 0], [-1, 5], [[np.nan, np.nan], [3.0, -4.0]]
    )
    message = velocity_message(found, Frame(np.zeros((0, 0), np.uint8), 7, "cam"))
    points = np.frombuffer(message.data, VELOCITY_POINT)
    assert points.tolist() == [(5, 120.0, 140.0, 3.0, -4.0)]
    assert message.is_dense and message.width == 1 and message.row_step == len(message.data)


def test_detections_of_the_same_process_come_and_go_by_reference() -> None:
    peer, handover = Peer(), Handover()
    handover.announce("/detections")
    node = TrackerNode(handover, context=peer.context)
    node.trigger_configure()
    node.trigger_activate()
    peer.add(node)
    received: list[tuple[Frame, Detections]] = []
    handover.subscribe("/tracks", received.append)
    early = Frame(np.zeros((4, 4), np.uint8), 5 * 10**8, "other")
    handover.send("/detections", (early, Detections.create([BOX], [0.9], [1])))
    assert received.pop()[1].track_ids.tolist() == [1]  # inside, nobody needs the names
    names = peer.node.create_publisher(LabelInfo, "label_info", qos.latched())
    names.publish(convert.label_info(NAMES, 0.5))
    tracks = peer.collect(Detection2DArray, "tracks")
    frame = Frame(np.zeros((4, 4), np.uint8), 10**9, "cam")
    found = Detections.create([BOX], [0.9], [1])
    peer.wait_for(lambda: node.count_subscribers("tracks") and node._labels, "names known")
    handover.send("/detections", (frame, found))
    broken = Detections.failed("corrupt JPEG")
    handover.send("/detections", (Frame(frame.image, 2 * 10**9, "cam"), broken))
    assert received[0][0] is frame and received[0][1].track_ids.tolist() == [1]
    assert not received[1][1].valid  # handed on as unusable, and no empty message for it
    peer.wait_for(lambda: tracks, "the message for others")
    peer.spin(0.3)
    assert [m.detections[0].results[0].hypothesis.class_id for m in tracks] == ["truck"]
    node.trigger_shutdown()
    node.destroy_node()
    peer.close()
