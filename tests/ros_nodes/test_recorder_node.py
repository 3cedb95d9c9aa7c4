"""The recorder: nothing written is lost, whatever ends it."""

import itertools
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="needs ROS 2")
pytest.importorskip("vision_msgs", reason="needs vision_msgs: python -m ros_nodes.setup_ros")
pytest.importorskip("mcap_ros2", reason="needs the bags extra")

import av
import cv2
from mcap.exceptions import EndOfFile
from mcap.reader import NonSeekingReader, make_reader
from mcap_ros2.decoder import DecoderFactory
from rclpy.serialization import serialize_message
from sensor_msgs.msg import Image
from vision_msgs.msg import Detection2DArray

from perception.detections import Detections
from perception.errors import InputError
from perception.frame import Frame
from perception.video import FRAGMENT
from ros_nodes import convert, qos
from ros_nodes.mcap_file import McapFile
from ros_nodes.schemas import definition
from tests.ros_nodes.peer import ENVIRONMENT, NodeProcess, Peer

KIND = "vision_msgs/msg/Detection2DArray"


def _frame(number: int) -> Frame:
    return Frame(np.full((47, 63, 3), number, np.uint8), number * 40_000_000, "cam")


def _detections(number: int) -> Detection2DArray:
    found = Detections.create([[10, 10, 40, 30]], [0.9], [0])
    return convert.detections_message(found, _frame(number), ("car",))


def _stamps(path: Path) -> list[int]:
    """Stamps of the detections in a file, read from the front as after a crash."""
    stamps = []
    with path.open("rb") as stream:
        reader = NonSeekingReader(stream, decoder_factories=[DecoderFactory()])
        try:
            for _, channel, _, message in reader.iter_decoded_messages(log_time_order=False):
                if channel.topic == "/detections":
                    stamps.append(message.header.stamp.sec * 10**9 + message.header.stamp.nanosec)
        except EndOfFile:
            pass
    return stamps


class Rig:
    """A recorder at work and a peer that gives it detections."""

    def __init__(self, tmp_path: Path, **parameters: object) -> None:
        self.peer = Peer()
        self.publisher: Any = self.peer.node.create_publisher(
            Detection2DArray, "detections", qos.results(100)
        )
        self.images: Any = self.peer.node.create_publisher(
            Image, "image_raw", qos.image_publisher(depth=50)
        )
        self.node = NodeProcess(
            "recorder_node", tmp_path / "log", diagnostics_period=0.1, **parameters
        )

    def connected(self) -> None:
        self.peer.connected("/recorder", to=[self.publisher])

    def value(self, key: str) -> str:
        status = self.peer.status("/recorder")
        return next((v.value for v in status.values if v.key == key), "") if status else ""

    def close(self) -> None:
        if self.node.process.poll() is None:
            self.node.stop(signal.SIGKILL)
        self.peer.close()


def test_killed_recorder_leaves_everything_that_it_had_flushed(tmp_path: Path) -> None:
    path = tmp_path / "out.mcap"
    rig = Rig(tmp_path, output=path, topics="[detections]")
    try:
        rig.connected()
        for number in range(1, 21):
            rig.publisher.publish(_detections(number))
        rig.peer.wait_for(lambda: rig.value("written") == "20", "20 messages")
        size = path.stat().st_size
        rig.peer.wait_for(
            lambda: path.stat().st_size > size or len(_stamps(path)) == 20, "the flush"
        )
        rig.node.process.kill()
        rig.node.process.wait()
        assert _stamps(path) == [n * 40_000_000 for n in range(1, 21)]
    finally:
        rig.close()


def test_recording_is_split_readable_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "out.mcap"
    rig = Rig(tmp_path, output=path, topics="[detections]", split_seconds=0.5)
    try:
        rig.connected()
        for number in range(1, 31):
            rig.publisher.publish(_detections(number))
            rig.peer.spin(0.05)
        rig.peer.wait_for(lambda: rig.value("written") == "30", "30 messages")
        assert rig.node.stop() == 0
        parts = [path, *sorted(tmp_path.glob("out_*.mcap"))]
        assert len(parts) >= 2
        found = []
        for part in parts:
            with part.open("rb") as stream:
                reader = make_reader(stream, decoder_factories=[DecoderFactory()])
                summary = reader.get_summary()
                assert summary is not None
                for schema, _, _, message in reader.iter_decoded_messages():
                    assert (schema.name, schema.encoding) == (KIND, "ros2msg")
                    found.append(message.header.stamp.nanosec // 40_000_000 or 25)
        assert len(found) == 30
    finally:
        rig.close()


def _recorder_on_a_full_disk(log: Path, limit: int, **parameters: object) -> Any:
    """A recorder that cannot write more than `limit` bytes to a file.

    The limit stands in for the disk's end: both fail the same write call.
    """
    command = [sys.executable, "-m", "ros_nodes.recorder_node", "--ros-args"]
    for name, value in {"diagnostics_period": 0.1, **parameters}.items():
        command += ["-p", f"{name}:={value}"]
    with log.open("wb") as sink:
        return subprocess.Popen(
            command,
            stdout=sink,
            stderr=subprocess.STDOUT,
            # Shared memory segments are files above the limit.
            env={
                **ENVIRONMENT,
                "FASTDDS_BUILTIN_TRANSPORTS": "UDPv4",
                "FASTDDS_DEFAULT_PROFILES_FILE": "",
            },
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        )


def test_full_disk_is_told_and_every_message_is_written_or_counted(tmp_path: Path) -> None:
    path, log, limit = tmp_path / "out.mcap", tmp_path / "log", 60_000
    peer = Peer()
    publisher = peer.node.create_publisher(Detection2DArray, "detections", qos.results(500))
    process = _recorder_on_a_full_disk(log, limit, output=path, topics="[detections]", depth=500)
    sent = 0

    def told() -> bool:
        nonlocal sent
        sent += 1
        rng = np.random.default_rng()
        many = Detections.create(rng.random((50, 4)) * 900, rng.random(50), [0] * 50)
        publisher.publish(convert.detections_message(many, _frame(1), ("car",)))
        status = peer.status("/recorder")
        return status is not None and "recording has stopped" in status.message

    def counted() -> tuple[int, int]:
        status = peer.status("/recorder")
        values = {v.key: v.value for v in status.values} if status else {}
        return int(values.get("written", 0)), int(values.get("lost", 0))

    try:
        peer.connected("/recorder", to=[publisher])
        peer.wait_for(told, f"an ERROR about the disk:\n{log.read_text()}", timeout=40)
        peer.wait_for(lambda: sum(counted()) == sent, "all messages in the counts")
        assert path.stat().st_size <= limit
        written, lost = counted()
        assert len(_stamps(path)) == written > 0 and lost > 0
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == 0
        assert "Traceback" not in log.read_text()
    finally:
        process.kill()
        peer.close()


def test_folder_that_goes_away_stops_the_recording_until_it_can_be_made_again(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "disk"
    path = folder / "out.mcap"
    rig = Rig(tmp_path, output=path, topics="[detections]", split_seconds=0.2)

    def send_until(text: str) -> None:
        def told() -> bool:
            rig.publisher.publish(_detections(1))
            status = rig.peer.status("/recorder")
            return status is not None and text in status.message

        rig.peer.wait_for(told, f"{text}:\n{rig.node.output}")

    try:
        rig.connected()
        send_until("ok")
        shutil.rmtree(folder)
        folder.touch()
        send_until(f"{path}: cannot write here: ")
        folder.unlink()
        send_until("ok")
        assert rig.node.stop() == 0
        assert "Traceback" not in rig.node.output
        assert len(_stamps(path)) > 0
    finally:
        rig.close()


def test_full_disk_ends_the_video_and_not_the_recording(tmp_path: Path) -> None:
    path, log = tmp_path / "out.mcap", tmp_path / "log"
    peer = Peer()
    images = peer.node.create_publisher(Image, "image_raw", qos.image_publisher(depth=50))
    found = peer.node.create_publisher(Detection2DArray, "detections", qos.results(500))
    process = _recorder_on_a_full_disk(
        log, 60_000, output=path, topics="[detections]", video=tmp_path / "out.mp4"
    )
    numbers = itertools.count(1)

    def told() -> bool:
        number = next(numbers)
        noise = np.random.default_rng(number).integers(0, 256, (240, 320, 3), np.uint8)
        images.publish(convert.image_message(Frame(noise, number * 40_000_000, "cam")))
        found.publish(_detections(number))
        status = peer.status("/recorder")
        return status is not None and "video stopped" in status.message

    try:
        peer.connected("/recorder", to=[images, found])
        peer.wait_for(told, f"an ERROR about the video:\n{log.read_text()}", timeout=60)
        before = next(numbers)
        found.publish(_detections(before))
        peer.spin(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
        assert "Traceback" not in log.read_text()
        assert max(_stamps(path)) == before * 40_000_000
        with av.open(str(tmp_path / "out.mp4")) as container:  # plays as far as it was written
            assert sum(1 for _ in container.demux(video=0)) > 1
    finally:
        process.kill()
        peer.close()


def test_video_of_a_killed_recorder_plays_and_is_kept_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "out.mp4"
    counts = []
    for _ in range(2):
        rig = Rig(tmp_path, video=path)
        try:
            rig.connected()
            rig.peer.connected("/recorder", to=[rig.images])
            # Flat pictures of a few bytes each: they must not wait in a buffer for more.
            for number in range(1, 131):
                rig.images.publish(convert.image_message(_frame(number)))
                rig.publisher.publish(_detections(number))
                rig.peer.spin(0.01)
            rig.peer.wait_for(lambda: rig.value("video_processed") == "130", "130 pictures")  # noqa: B023
            if not counts:
                rig.node.stop(signal.SIGKILL)
            else:
                assert rig.node.stop() == 0
        finally:
            rig.close()
        counts.append(sorted(name.name for name in tmp_path.glob("*.mp4")))
    assert counts == [[".writing-out.mp4"], ["out.mp4", "out_1.mp4"]]
    capture = cv2.VideoCapture(str(path))
    seen = sum(1 for _ in iter(lambda: capture.read()[0], False))
    assert 130 - 2 * FRAGMENT < seen <= 130


def test_video_holds_every_picture_with_its_boxes(tmp_path: Path) -> None:
    path = tmp_path / "out.mp4"
    rig = Rig(tmp_path, video=path)
    try:
        rig.connected()
        rig.peer.connected("/recorder", to=[rig.images])
        for number in range(1, 11):
            rig.images.publish(convert.image_message(_frame(number)))
            if number != 5:  # one picture stays without detections
                rig.publisher.publish(_detections(number))
            rig.peer.spin(0.05)
        rig.peer.wait_for(lambda: rig.value("video_processed") == "10", "10 pictures")
        assert rig.node.stop() == 0
        assert rig.value("video_stale") == "1"
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            assert stream.codec_context.name == "h264"
            assert stream.codec_context.pix_fmt == "yuv420p"
            frames = list(container.decode(stream))
        assert len(frames) == 10
        assert (frames[0].width, frames[0].height) == (64, 48)
        assert frames[1].time - frames[0].time == pytest.approx(0.04, abs=0.001)
        assert [p.name for p in tmp_path.glob(".writing-*")] == []
    finally:
        rig.close()


def _times(path: Path) -> list[float]:
    """When the pictures of a video are shown, in seconds."""
    with av.open(str(path)) as container:
        return [frame.time for frame in container.decode(video=0)]


def test_video_holds_every_picture_of_a_camera_that_gives_no_stamps(tmp_path: Path) -> None:
    path = tmp_path / "out.mp4"
    rig = Rig(tmp_path, video=path, video_patience=60.0, depth=4)
    try:
        rig.connected()
        rig.peer.connected("/recorder", to=[rig.images])
        for count in range(1, 21):
            rig.images.publish(convert.image_message(_frame(0)))
            rig.peer.wait_for(lambda: rig.value("video_received") == str(count), "the picture")  # noqa: B023
        # Those that may not wait are written although they still have patience.
        rig.peer.wait_for(lambda: int(rig.value("video_processed")) >= 16, "16 pictures")
        assert rig.node.stop() == 0
        times = _times(path)
        assert len(times) == 20
        # In the time that they took to arrive, one wait for diagnostics each.
        assert times[-1] > 0.1
    finally:
        rig.close()


def test_video_of_stamps_that_begin_again_goes_on_with_boxes(tmp_path: Path) -> None:
    path = tmp_path / "out.mp4"
    rig = Rig(tmp_path, video=path, video_patience=30.0)
    seen = 0
    try:
        rig.connected()
        rig.peer.connected("/recorder", to=[rig.images])
        for _ in range(2):
            for number in range(100, 140):  # 1.6 s from 4 s on
                rig.images.publish(convert.image_message(_frame(number)))
                rig.publisher.publish(_detections(number))
                seen += 1
                rig.peer.spin(0.005)
            rig.peer.wait_for(lambda: rig.value("video_processed") == str(seen), "a run")  # noqa: B023
            rig.publisher.publish(_detections(140))  # its picture was lost
            rig.peer.wait_for(lambda: rig.value("video_stale") == "0", "the counts")
        assert rig.node.stop() == 0
        times = _times(path)
        assert len(times) == 80
        assert times[-1] > 2 * 39 * 0.04
    finally:
        rig.close()


def test_best_effort_publisher_that_comes_later_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "out.mcap"
    node = NodeProcess(
        "recorder_node",
        tmp_path / "log",
        diagnostics_period=0.1,
        output=path,
        topics="[detections]",
        video=tmp_path / "out.mp4",
    )
    peer = Peer()

    def told(text: str) -> bool:
        status = peer.status("/recorder")
        return status is not None and text in status.message

    try:
        peer.wait_for(lambda: told("nobody publishes detections, image_raw"), "the subscriptions")
        best_effort = qos.image_publisher(depth=50)
        publisher = peer.node.create_publisher(Detection2DArray, "detections", best_effort)
        peer.wait_for(lambda: told("nobody publishes image_raw"), "the publisher to be seen")
        peer.node.create_publisher(Image, "image_raw", best_effort)
        peer.wait_for(lambda: told("ok"), "both")
        peer.wait_for(lambda: publisher.get_subscription_count() == 2, "both subscriptions")
        for number in range(1, 6):
            publisher.publish(_detections(number))
        peer.wait_for(
            lambda: any(
                v.key == "written" and v.value == "5" for v in peer.status("/recorder").values
            ),
            "5 messages",
        )
        assert node.stop() == 0
        assert len(_stamps(path)) == 5
    finally:
        if node.process.poll() is None:
            node.stop(signal.SIGKILL)
        peer.close()


def test_recorder_writes_while_simulated_time_stands_still(tmp_path: Path) -> None:
    path = tmp_path / "out.mcap"
    rig = Rig(tmp_path, output=path, topics="[detections, late]", use_sim_time=True)
    try:
        rig.connected()
        late: Any = rig.peer.node.create_publisher(Detection2DArray, "late", qos.results(100))
        rig.peer.connected("/recorder", to=[late])
        rig.publisher.publish(_detections(1))
        late.publish(_detections(2))
        rig.peer.wait_for(lambda: len(_stamps(path)) == 1, "what was flushed")
        assert rig.node.stop() == 0
        assert rig.value("written") == "2"
    finally:
        rig.close()


def test_topic_of_ours_is_subscribed_to_before_anybody_publishes_it_in_a_namespace(
    tmp_path: Path,
) -> None:
    peer = Peer()
    node = NodeProcess(
        "recorder_node",
        tmp_path / "log",
        diagnostics_period=0.1,
        output=tmp_path / "out.mcap",
        topics="[front/detections, /rear/image_raw/compressed, my_detections, front/diagnostics]",
    )
    try:
        peer.wait_for(lambda: peer.status("/recorder") is not None, "the recorder")
        status = peer.status("/recorder")
        heard = {v.key for v in status.values if v.key.startswith("publishers of ")}
        assert {t for t in heard if "parameter" not in t} == {
            "publishers of /front/detections",
            "publishers of /rear/image_raw/compressed",
        }
        assert node.stop() == 0
    finally:
        peer.close()


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({}, "nothing to record"),
        ({"video": "a.avi"}, "expected a name in .mp4"),
        ({"output": "a.mcap", "topics": "['bad topic']"}, "parameter 'topics': got 'bad topic'"),
        ({"video": "a.mp4", "video_boxes": "a b"}, "parameter 'video_boxes': got 'a b'"),
        ({"output": "/proc/no/a.mcap"}, "/proc/no"),
    ],
)
def test_start_that_cannot_record_is_one_sentence(
    tmp_path: Path, parameters: dict[str, str], said: str
) -> None:
    node = NodeProcess("recorder_node", tmp_path / "log", **parameters)
    assert node.process.wait(timeout=30) == 2
    assert said in node.output
    assert "Traceback" not in node.output


def test_existing_file_is_never_opened_for_writing(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    path.write_bytes(b"precious")
    with pytest.raises(InputError, match="never overwritten"):
        McapFile(path)
    assert path.read_bytes() == b"precious"


def test_message_of_a_failed_write_waits_and_the_file_keeps_its_whole_chunks(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.mcap"
    file = McapFile(path)
    data = serialize_message(_detections(1))
    for _ in range(3):
        file.write("/detections", KIND, data, 0, 0)
    file.flush()
    assert file.waiting == 0
    file.write("/detections", KIND, data, 0, 0)
    file.write("/tracks", KIND, data, 0, 0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.size + 10, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            file.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert file.waiting == 2
    file.abandon()
    file.abandon()
    assert path.stat().st_size == file.size
    assert len(_stamps(path)) == 3


def test_definition_brings_every_inner_type() -> None:
    text = definition(KIND)
    for inner in ("std_msgs/Header", "vision_msgs/Detection2D", "geometry_msgs/Quaternion"):
        assert f"MSG: {inner}\n" in text
    with pytest.raises(InputError, match="no_such/msg/Thing"):
        definition("no_such/msg/Thing")
