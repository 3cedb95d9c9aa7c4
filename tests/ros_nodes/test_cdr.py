"""The hand-written CDR against rclpy's own serialisation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("rclpy", reason="needs ROS 2")
pytest.importorskip("vision_msgs", reason="needs vision_msgs: python -m ros_nodes.setup_ros")

from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import Header
from vision_msgs.msg import Detection2DArray

from perception.detections import Detections
from perception.errors import InputError
from perception.frame import Frame
from ros_nodes import cdr, convert

NAMES = ("car", "three_wheeler", "bus_4", "", "é")
FRAME_IDS = ("", "a", "cam", "camera_optical_frame", "ünïcode")


@pytest.mark.parametrize("frame_id", FRAME_IDS)
@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_detections_mean_the_same_as_those_of_rclpy(frame_id: str, count: int) -> None:
    rng = np.random.default_rng(count)
    boxes = rng.random((count, 4)) * 100
    labels = rng.integers(0, len(NAMES), count)
    found = Detections.create(boxes, rng.random(count), labels, rng.integers(-1, 1200, count))
    frame = Frame(np.zeros((1, 1), np.uint8), 1_234_567_890_123_456_789, frame_id)
    expected = convert.detections_message(found, frame, NAMES)
    written = cdr.write_detections(found, frame, NAMES)
    assert deserialize_message(written, Detection2DArray) == expected
    assert len(written) == len(serialize_message(expected))


def test_invalid_result_is_not_written_as_nothing_there() -> None:
    frame = Frame(np.zeros((1, 1), np.uint8))
    with pytest.raises(ValueError, match="not publishable"):
        cdr.write_detections(Detections.failed("NaN"), frame, NAMES)


@pytest.mark.parametrize("frame_id", FRAME_IDS)
@pytest.mark.parametrize("encoding", ["bgr8", "mono8", "yuv422_yuy2"])
def test_image_is_byte_for_byte_that_of_rclpy_and_reads_back(frame_id: str, encoding: str) -> None:
    data = bytes(range(60))
    header = Header(frame_id=frame_id)
    header.stamp.sec, header.stamp.nanosec = 12, 345_678_901
    message = Image(header=header, height=4, width=5, encoding=encoding, step=15, data=data)
    serialised = serialize_message(message)
    stamp = 12_345_678_901
    written = cdr.write_image(stamp, frame_id, 5, 4, encoding, 15, memoryview(data))
    assert deserialize_message(written, Image) == message
    raw = cdr.read_image(serialised)
    assert (raw.stamp_ns, raw.frame_id, raw.width, raw.height) == (stamp, frame_id, 5, 4)
    assert (raw.encoding, raw.is_bigendian, raw.step) == (encoding, False, 15)
    assert bytes(raw.data) == data
    assert cdr.read_stamp(serialised) == stamp


def test_compressed_image_reads_back() -> None:
    message = CompressedImage(format="jpeg", data=b"abcde")
    message.header.frame_id = "cam"
    raw = cdr.read_compressed(serialize_message(message))
    assert (raw.frame_id, raw.encoding, bytes(raw.data)) == ("cam", "jpeg", b"abcde")


def test_big_endian_message_reads_as_well() -> None:
    body = bytes.fromhex("0000000c 149a4c35 00000001 00000000".replace(" ", ""))
    assert cdr.read_stamp(b"\0\0\0\0" + body) == 12_345_656_373


@given(st.binary(max_size=120))
def test_any_bytes_are_a_picture_or_an_error(data: bytes) -> None:
    for read in (cdr.read_image, cdr.read_compressed):
        try:
            read(b"\0\1\0\0" + data)
            read(data)
        except InputError:
            pass
