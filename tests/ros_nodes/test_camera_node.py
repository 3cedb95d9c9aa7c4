"""The camera node as a process: what it reads and what it sends."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

pytest.importorskip("rclpy", reason="needs ROS 2")
pytest.importorskip("vision_msgs", reason="needs vision_msgs: python -m ros_nodes.setup_ros")

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.parameter import Parameter
from rclpy.serialization import serialize_message
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, CompressedImage, Image

from perception.errors import InputError
from perception.frame import Frame
from ros_nodes import camera_node, qos
from ros_nodes.calibration import fit, read_calibration
from ros_nodes.camera_sources import BrokenOff, CameraLost, Feed, open_feed
from ros_nodes.convert import compressed_frame, image_frame, image_message, stamp_ns
from ros_nodes.handover import Handover
from ros_nodes.lifecycle import EXIT_FAILED
from ros_nodes.mcap_file import McapFile
from tests.onnx_models import bright_cell_detector
from tests.ros_nodes.peer import NodeProcess, Peer

CALIBRATION = """
image_width: 64
image_height: 48
camera_name: front
camera_matrix: {rows: 3, cols: 3, data: [50, 0, 32, 0, 50, 24, 0, 0, 1]}
distortion_model: plumb_bob
distortion_coefficients: {rows: 1, cols: 5, data: [0.1, 0, 0, 0, 0]}
rectification_matrix: {rows: 3, cols: 3, data: [1, 0, 0, 0, 1, 0, 0, 0, 1]}
projection_matrix: {rows: 3, cols: 4, data: [50, 0, 32, 0, 0, 50, 24, 0, 0, 0, 1, 0]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four pictures of 64x48 whose grey value is 10 times their number."""
    path = tmp_path / "pictures"
    path.mkdir()
    for number in range(4):
        cv2.imwrite(str(path / f"{number}.png"), np.full((48, 64, 3), 10 * number, np.uint8))
    return path


def _values(messages: list[Any]) -> list[int]:
    return [int(image_frame(m).image[0, 0, 0]) for m in messages]


def test_folder_is_sent_whole_with_one_info_a_picture(tmp_path: Path, folder: Path) -> None:
    calibration = tmp_path / "camera.yaml"
    calibration.write_text(CALIBRATION)
    peer = Peer()
    images = peer.collect(Image, "image_raw", qos.image_subscription(depth=50))
    infos = peer.collect(CameraInfo, "camera_info", qos.results(50))
    camera = NodeProcess(
        "camera_node",
        tmp_path / "log",
        source=folder,
        rate=20,
        calibration=calibration,
        frame_id="cam_front_optical",
        wait_subscribers=1,
        exit_at_end=True,
    )
    try:
        peer.wait_for(lambda: len(images) == 4 and len(infos) == 4, f"4 pictures:{camera.output}")
        assert _values(images) == [0, 10, 20, 30]
        assert [m.header for m in images] == [m.header for m in infos]
        assert {m.header.frame_id for m in images} == {"cam_front_optical"}
        assert infos[0].k[0] == 50.0
        assert camera.process.wait(timeout=10) == 0
        assert "4 pictures sent" in camera.output
    finally:
        if camera.process.poll() is None:
            camera.stop()
        peer.close()


def test_loop_with_jpeg_goes_round_until_it_is_told_to_stop(tmp_path: Path, folder: Path) -> None:
    peer = Peer()
    jpegs = peer.collect(CompressedImage, "image_raw/compressed", qos.image_subscription(depth=50))
    camera = NodeProcess(
        "camera_node", tmp_path / "log", source=folder, rate=50, loop=True, format="compressed"
    )
    try:
        peer.wait_for(lambda: len(jpegs) >= 9, f"two rounds:\n{camera.output}")
        assert compressed_frame(jpegs[0]).size == (64, 48)
        assert camera.stop() == 0
        assert "Traceback" not in camera.output
    finally:
        peer.close()


def test_folder_of_broken_pictures_is_refused_at_its_end(tmp_path: Path, folder: Path) -> None:
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:-20])
    camera = NodeProcess("camera_node", tmp_path / "log", source=folder, exit_at_end=True)
    assert camera.process.wait(timeout=30) == 2
    assert "no picture sent" in camera.output and "3.png: PNG of " in camera.output


def test_cut_video_is_sent_as_far_as_it_goes_and_its_end_is_told(tmp_path: Path) -> None:
    path = tmp_path / "cut.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 20.0, (64, 48))
    for number in range(40):
        writer.write(np.full((48, 64, 3), 5 * number, np.uint8))
    writer.release()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    peer = Peer()
    camera = NodeProcess(
        "camera_node", tmp_path / "log", source=path, loop=True, diagnostics_period=0.1
    )

    def told() -> bool:
        status = peer.status("/camera")
        values = {v.key: v.value for v in status.values} if status else {}
        return values.get("ended") == "True" and "of the 40 that its header" in status.message

    try:
        peer.wait_for(told, f"the end in diagnostics:\n{camera.output}")
        status = peer.status("/camera")
        assert status is not None and status.level == DiagnosticStatus.ERROR
        sent = next(int(v.value) for v in status.values if v.key == "sent")
        assert 0 < sent < 40 and f"ends after frame {sent} of the 40" in status.message
        assert camera.stop() == 0
    finally:
        peer.close()


def _bag(path: Path, kind: str, topics: dict[str, list[int]], late_ns: int = 5) -> Path:
    """A bag of 64x48 pictures of rising grey, by topic their times, stamped `late_ns` before."""
    rosbags = pytest.importorskip("rosbags.rosbag2", reason="needs rosbags")
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    types = store.types
    image, header = types["sensor_msgs/msg/Image"], types["std_msgs/msg/Header"]
    time = types["builtin_interfaces/msg/Time"]
    plugin = rosbags.StoragePlugin[kind.upper()]
    with rosbags.Writer(path, version=9, storage_plugin=plugin) as writer:
        for topic, times_ns in topics.items():
            connection = writer.add_connection(topic, image.__msgtype__, typestore=store)
            for number, time_ns in enumerate(times_ns):
                pixels = np.full(48 * 64 * 3, 40 * number % 256, np.uint8)
                sec, nanosec = divmod(time_ns - late_ns, 10**9)
                message = image(header(time(sec, nanosec), "cam"), 48, 64, "rgb8", 0, 192, pixels)
                data = store.serialize_cdr(message, image.__msgtype__)
                writer.write(connection, time_ns, data)
    return path


@pytest.mark.parametrize("kind", ["sqlite3", "mcap"])
def test_bag_gives_its_pictures_with_their_own_stamps(tmp_path: Path, kind: str) -> None:
    recorded = [(100 + n) * 10**9 for n in range(3)]
    both = {"/left/image_raw": recorded, "/right/image_raw": recorded}
    path = _bag(tmp_path / "bag", kind, both)
    with pytest.raises(InputError, match="several image topics.*/left/image_raw"):
        open_feed(str(path))
    with pytest.raises(InputError, match="no image topic '/up'"):
        open_feed(str(path), bag_topic="/up")
    with pytest.raises(InputError, match="other.mcap: no such bag"):
        open_feed(str(path / "other.mcap"))
    feed = open_feed(str(path), bag_topic="/left/image_raw")
    times, frames = zip(*feed.frames(), strict=True)
    assert feed.recorded and list(times) == recorded
    assert [f.stamp_ns for f in frames] == [time - 5 for time in recorded]
    assert [int(f.image[0, 0, 0]) for f in frames] == [0, 40, 80]
    assert frames[0].color == "rgb"
    assert {f.frame_id for f in frames} == {"cam"}


def test_pictures_of_a_folder_are_stamped_by_the_rate(folder: Path) -> None:
    for rate, period_ns in ((None, 100_000_000), (50.0, 20_000_000)):
        stamps = [frame.stamp_ns for _, frame in open_feed(str(folder), rate=rate).frames()]
        assert stamps == [n * period_ns for n in range(4)]


def test_file_of_the_recorder_is_played_and_what_is_cut_off_is_told(tmp_path: Path) -> None:
    path = tmp_path / "out.mcap"
    file = McapFile(path)
    for number in range(3):
        picture = Frame(np.full((48, 64, 3), 40 * number, np.uint8), number, "cam")
        data = serialize_message(image_message(picture))
        file.write("/image_raw", "sensor_msgs/msg/Image", data, 10 + number, 10 + number)
    file.flush()
    feed = open_feed(str(path))  # as a killed recorder leaves it
    got = []
    with pytest.raises(BrokenOff, match="out.mcap: the file is cut off"):
        for item in feed.frames():
            got.append(item)
    assert len(got) == 3
    file.close()
    times, frames = zip(*open_feed(str(path)).frames(), strict=True)
    assert times == (10, 11, 12)
    assert [int(f.image[0, 0, 0]) for f in frames] == [0, 40, 80]


@pytest.mark.parametrize(("given", "expected"), [({}, "cam"), ({"frame_id": "front"}, "front")])
def test_bag_is_played_at_its_pictures_times_and_in_their_frame(
    tmp_path: Path, given: dict[str, str], expected: str
) -> None:
    # The rest of the bag is a thousand times longer.
    times = [10**12 + n * 50_000_000 for n in range(10)]
    bag = _bag(tmp_path / "bag", "mcap", {"/image_raw": times, "/other": [1, 2 * 10**12]})
    peer = Peer()
    images = peer.collect(Image, "image_raw", qos.image_subscription(depth=50))
    camera = NodeProcess(
        "camera_node",
        tmp_path / "log",
        source=bag,
        bag_topic="/image_raw",
        wait_subscribers=1,
        **given,
    )
    try:
        peer.wait_for(lambda: len(images) == 10, f"10 pictures:\n{camera.output}")
        assert {m.header.frame_id for m in images} == {expected}
        assert camera.stop() == 0
    finally:
        peer.close()


def test_bag_drives_the_clock_of_nodes_with_simulated_time(tmp_path: Path) -> None:
    times = [100 * 10**9 + n * 50_000_000 for n in range(20)]
    bag = _bag(tmp_path / "bag", "mcap", {"/image_raw": times}, late_ns=30_000_000)
    model = bright_cell_detector(tmp_path / "cells.onnx")
    peer = Peer()
    clocks = peer.collect(Clock, "/clock", qos.results(200))
    arrays = peer.collect(DiagnosticArray, "/diagnostics", 100)
    detector = NodeProcess(
        "detector_node", tmp_path / "detector", model=model, use_sim_time=True, depth=50
    )
    camera = NodeProcess(
        "camera_node",
        tmp_path / "camera",
        source=bag,
        loop=True,
        stamps="source",
        publish_clock=True,
        use_sim_time=True,
        wait_subscribers=1,
    )

    def of_detector() -> list[DiagnosticArray]:
        return [a for a in arrays if a.status[0].name == "/detector"]

    def ages() -> list[float]:
        values = of_detector()[-1].status[0].values if of_detector() else []
        return [float(v.value) for v in values if v.key == "age_p50_ms"]

    try:
        peer.wait_for(lambda: len(clocks) >= 45 and ages(), f"two rounds:\n{camera.output}")
        heard = [stamp_ns(message.clock) for message in clocks]
        start = times.index(heard[0])
        assert heard == [times[(start + n) % 20] for n in range(len(heard))]
        assert of_detector()[-1].header.stamp.sec in (100, 101)
        # As old as in the recording, and not the years between then and now.
        assert 30.0 <= ages()[0] < 1000.0
    finally:
        camera.stop()
        detector.stop()
        peer.close()


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"stamps": "source"}, "is no bag, expected a bag"),
        ({}, "stamps 'now', expected stamps 'source'"),
    ],
)
def test_clock_without_a_bag_is_refused(
    tmp_path: Path, folder: Path, parameters: dict[str, str], said: str
) -> None:
    camera = NodeProcess(
        "camera_node", tmp_path / "log", source=folder, publish_clock=True, **parameters
    )
    assert camera.process.wait(timeout=30) == 2
    assert "parameter 'publish_clock'" in camera.output and said in camera.output
    assert camera.output.count("\n") == 1


def test_sources_that_cannot_be_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such bag"):
        open_feed(str(tmp_path / "a.mcap"))
    (tmp_path / "b.mcap").write_bytes(b"x")
    with pytest.raises(InputError, match="b.mcap: does not begin like an MCAP file"):
        open_feed(str(tmp_path / "b.mcap"))
    with pytest.raises(InputError, match="without pictures"):
        open_feed(str(tmp_path))
    with pytest.raises(CameraLost, match="/dev/video97: no such device"):
        open_feed("/dev/video97")


@pytest.mark.parametrize("source", ["", "/no/such.mp4"])
def test_start_without_a_source_is_one_sentence_and_exit_code_2(
    tmp_path: Path, source: str
) -> None:
    camera = NodeProcess("camera_node", tmp_path / "log", **({"source": source} if source else {}))
    assert camera.process.wait(timeout=30) == 2
    assert camera.output.startswith("waysight: error: ")
    assert camera.output.count("\n") == 1


def test_calibration_of_another_aspect_ends_the_start_although_nobody_listens(
    tmp_path: Path, folder: Path
) -> None:
    calibration = tmp_path / "camera.yaml"
    calibration.write_text(CALIBRATION.replace("image_width: 64", "image_width: 48"))
    camera = NodeProcess(
        "camera_node", tmp_path / "log", source=folder, calibration=calibration, loop=True
    )
    assert camera.process.wait(timeout=30) == 2
    assert "error: calibration is for 48x48, but pictures are 64x48" in camera.output
    assert "Traceback" not in camera.output


def test_pictures_of_another_aspect_go_on_without_camera_info(tmp_path: Path, folder: Path) -> None:
    calibration = tmp_path / "camera.yaml"
    calibration.write_text(CALIBRATION)
    cv2.imwrite(str(folder / "2.png"), np.full((48, 128, 3), 20, np.uint8))
    peer = Peer()
    images = peer.collect(Image, "image_raw", qos.image_subscription(depth=50))
    infos = peer.collect(CameraInfo, "camera_info", qos.results(50))
    camera = NodeProcess(
        "camera_node",
        tmp_path / "log",
        source=folder,
        rate=5,
        calibration=calibration,
        wait_subscribers=1,
        diagnostics_period=0.1,
    )
    try:
        peer.wait_for(lambda: len(images) == 4 and len(infos) >= 3, f"4:{camera.output}")
        told = [s.message for s in peer.statuses if s.level == DiagnosticStatus.ERROR]
        assert any("calibration is for 64x48, but pictures are 128x48" in text for text in told)
        assert [m.header for m in infos] == [images[n].header for n in (0, 1, 3)]
        assert camera.stop() == 0
    finally:
        peer.close()


class _InProcess:
    """A camera in this process with a feed of the test's own."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, frames: Callable[[], Iterator[tuple[int, Frame]]]
    ) -> None:
        monkeypatch.setattr(camera_node, "open_feed", lambda *_, **__: Feed(None, True, frames))
        self.peer, handover = Peer(), Handover()
        self.sent: list[Frame] = []
        handover.subscribe("/image_raw", self.sent.append)
        self.node = camera_node.CameraNode(
            handover,
            context=self.peer.context,
            parameter_overrides=[Parameter("source", value="/dev/video0")],
        )
        self.node.trigger_configure()
        self.node.trigger_activate()

    def close(self) -> None:
        self.node.trigger_shutdown()
        self.node.destroy_node()
        self.peer.close()


def test_camera_left_in_a_blocked_read_sends_nothing_after_a_new_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old, new = np.zeros((8, 8, 3), np.uint8), np.ones((8, 8, 3), np.uint8)
    answer, starts = threading.Event(), itertools.count()

    def frames() -> Iterator[tuple[int, Frame]]:
        picture = new if next(starts) else old
        if picture is old:
            answer.wait(60)
        while True:
            time.sleep(0.01)
            yield 0, Frame(picture, 1)

    camera = _InProcess(monkeypatch, frames)
    try:
        thread = camera.node._thread
        camera.node.trigger_deactivate()
        camera.node.trigger_activate()
        camera.peer.wait_for(lambda: camera.sent, "a picture after the new start")
        answer.set()
        thread.join(timeout=20)
        assert not thread.is_alive()
        assert all(frame.image is new for frame in camera.sent)
        assert camera.node.diagnostic_values()["ended"] is False
    finally:
        camera.close()


def test_camera_that_ended_and_is_started_again_has_not_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    going, starts = threading.Event(), itertools.count()

    def frames() -> Iterator[tuple[int, Frame]]:
        yield 0, Frame(np.zeros((8, 8, 3), np.uint8), 1)
        if next(starts):
            going.wait(60)

    camera = _InProcess(monkeypatch, frames)
    try:
        camera.peer.wait_for(lambda: camera.node.diagnostic_values()["ended"], "its end")
        camera.node.trigger_deactivate()
        camera.node.trigger_activate()
        assert camera.node.diagnostic_values()["ended"] is False
    finally:
        going.set()
        camera.close()


class _Clock:
    """In place of the module `time` and of the event that ends a wait: waiting takes no time."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return False

    def is_set(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("given", "expected_ms"),
    [({}, [0, 20, 40, 340, 640, 645, 650]), ({"rate": 10.0}, [100 * n for n in range(7)])],
)
def test_irregular_video_is_played_at_the_times_of_its_frames_unless_a_rate_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: dict[str, float], expected_ms: list[int]
) -> None:
    video = pytest.importorskip("perception.video", reason="needs PyAV")
    path = tmp_path / "irregular.mp4"
    file = video.VideoFile(path, 64, 48)
    for time_ms in (0, 20, 40, 340, 640, 645, 650):
        file.write(np.full((48, 64, 3), time_ms // 5, np.uint8), time_ms * 1_000_000)
    file.close()
    clock, sent_ms = _Clock(), list[int]()
    peer = Peer()
    values = {"source": str(path), **given}
    overrides = [Parameter(name, value=value) for name, value in values.items()]
    node = camera_node.CameraNode(Handover(), context=peer.context, parameter_overrides=overrides)
    try:
        node.trigger_configure()
        monkeypatch.setattr(camera_node, "time", clock)
        monkeypatch.setattr(node, "_publish", lambda _: sent_ms.append(round(clock.now * 1000)))
        node._play(open_feed(str(path)), clock)
        assert sent_ms == expected_ms
        assert node.diagnostic_values()["late"] == 0
    finally:
        node.destroy_node()
        peer.close()


def test_unforeseen_error_ends_the_process_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def frames() -> Iterator[tuple[int, Frame]]:
        yield 0, Frame(np.zeros((8, 8, 3), np.uint8), 1)
        raise ZeroDivisionError("no such thing")

    camera = _InProcess(monkeypatch, frames)
    try:
        camera.peer.wait_for(camera.node.stop_requested.is_set, "the wish to end")
        assert camera.node.finished == EXIT_FAILED
    finally:
        camera.close()


def test_device_that_is_missing_at_the_start_is_waited_for(tmp_path: Path) -> None:
    peer = Peer()
    camera = NodeProcess(
        "camera_node", tmp_path / "log", source="/dev/video97", diagnostics_period=0.1
    )

    def told() -> bool:
        status = peer.status("/camera")
        missing = "/dev/video97: no such device"
        return (
            status is not None
            and status.level == DiagnosticStatus.ERROR
            and (missing in status.message)
        )

    try:
        peer.wait_for(told, f"an ERROR naming the device:\n{camera.output}")
        assert camera.stop() == 0
        assert "Traceback" not in camera.output
    finally:
        peer.close()


def test_calibration_follows_the_size_of_the_pictures(tmp_path: Path) -> None:
    path = tmp_path / "camera.yaml"
    path.write_text(CALIBRATION)
    info = read_calibration(path)
    double = fit(info, 128, 96)
    assert (double.width, double.height) == (128, 96)
    assert double.k.tolist() == [100, 0, 64, 0, 100, 48, 0, 0, 1]
    assert double.p.tolist() == [100, 0, 64, 0, 0, 100, 48, 0, 0, 0, 1, 0]
    assert list(double.d) == list(info.d)
    with pytest.raises(InputError, match="calibration is for 64x48, but pictures are 128x48"):
        fit(info, 128, 48)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("image_width: 64", "image_width: wide", "image_width is 'wide'"),
        ("data: [50, 0, 32, 0, 50, 24, 0, 0, 1]", "data: [50]", "has 1 numbers, expected 9"),
        ("plumb_bob", "fisheye_62", "distortion_model is 'fisheye_62'"),
        ("data: [0.1, 0, 0, 0, 0]", "data: [0.1]", "plumb_bob needs 5 coefficients, found 1"),
        ("camera_matrix", "matrix", "camera_matrix.data is missing"),
        ("[50, 0, 32, 0, 50, 24", "[0, 0, 32, 0, 50, 24", "focal lengths 0.0, 50.0"),
    ],
)
def test_broken_calibration_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "camera.yaml"
    path.write_text(CALIBRATION.replace(old, new))
    with pytest.raises(InputError, match=said):
        read_calibration(path)
