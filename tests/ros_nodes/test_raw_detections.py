"""Detections read from serialised bytes are those that rclpy reads."""

import math

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="needs ROS 2")
pytest.importorskip("vision_msgs", reason="needs vision_msgs: python -m ros_nodes.setup_ros")

from builtin_interfaces.msg import Time
from hypothesis import given, settings
from hypothesis import strategies as st
from rclpy.serialization import serialize_message
from std_msgs.msg import Header
from vision_msgs.msg import Detection2D, Detection2DArray, ObjectHypothesisWithPose

from perception.errors import InputError
from ros_nodes.convert import NameIndex, message_frame, read_detections, read_raw_detections

_NUMBERS = st.floats(width=64) | st.floats(-1000, 1000)
_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9)
_HYPOTHESES = st.lists(st.tuples(_TEXT, _NUMBERS), max_size=3)
_ROWS = st.lists(
    st.tuples(_HYPOTHESES, *[_NUMBERS] * 5, _TEXT | st.integers().map(str)),
    max_size=4,
)


def _message(rows: list[tuple], frame_id: str, stamp: Time) -> Detection2DArray:
    header = Header(stamp=stamp, frame_id=frame_id)
    message = Detection2DArray(header=header)
    for hypotheses, x, y, theta, width, height, name in rows:
        item = Detection2D(header=header, id=name)
        item.bbox.center.position.x, item.bbox.center.position.y = x, y
        item.bbox.center.theta = theta
        item.bbox.size_x, item.bbox.size_y = width, height
        for class_id, score in hypotheses:
            result = ObjectHypothesisWithPose()
            result.hypothesis.class_id, result.hypothesis.score = class_id, score
            item.results.append(result)
        message.detections.append(item)
    return message


@settings(deadline=None, max_examples=60)
@given(_ROWS, _TEXT, st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**32 - 1))
def test_bytes_and_message_give_the_same(
    rows: list[tuple], frame_id: str, sec: int, nanosec: int
) -> None:
    message = _message(rows, frame_id, Time(sec=sec, nanosec=nanosec))
    first, second = NameIndex(), NameIndex()
    with np.errstate(over="ignore"):
        expected = read_detections(message, first)
        frame, found = read_raw_detections(bytes(serialize_message(message)), second)
    header = message_frame(message)
    assert (frame.stamp_ns, frame.frame_id) == (header.stamp_ns, header.frame_id)
    for name in ("boxes", "scores", "labels", "track_ids"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
        assert np.isfinite(getattr(found, name)).all()
    assert (found.valid, found.invalid_rows) == (expected.valid, expected.invalid_rows)
    assert first.names == second.names


def test_a_message_cut_anywhere_is_refused() -> None:
    rows = [([("car", 0.5)], 1.0, 2.0, 0.0, 3.0, 4.0, "7")] * 2
    whole = bytes(serialize_message(_message(rows, "cam", Time(sec=1))))
    end = len(whole) - len(whole[whole.rindex(b"7") + 2 :])  # rclpy pads the end to 4 bytes
    for length in range(0, end, 7):
        with pytest.raises(InputError):
            read_raw_detections(whole[:length], NameIndex())


def test_an_id_that_is_no_number_that_fits_is_untracked() -> None:
    rows = [
        ([("car", 0.5)], 1.0, 2.0, 0.0, 3.0, 4.0, text) for text in ("7", "", "-3", "a1", "9" * 40)
    ]
    message = _message(rows, "cam", Time())
    _, found = read_raw_detections(bytes(serialize_message(message)), NameIndex())
    assert found.track_ids.tolist() == [7, -1, -1, -1, -1]


@pytest.mark.parametrize(
    ("theta", "width", "height"),
    [
        (0.0, 100.0, 20.0),
        (math.pi / 2, 20.0, 100.0),
        (-math.pi / 2, 20.0, 100.0),
        (math.pi, 100.0, 20.0),
        (math.pi / 4, 120 / math.sqrt(2), 120 / math.sqrt(2)),
    ],
)
def test_a_turned_box_is_read_as_the_upright_one_around_it(
    theta: float, width: float, height: float
) -> None:
    message = _message([([("car", 0.5)], 50.0, 60.0, theta, 100.0, 20.0, "7")], "cam", Time())
    _, found = read_raw_detections(bytes(serialize_message(message)), NameIndex())
    expected = [50 - width / 2, 60 - height / 2, 50 + width / 2, 60 + height / 2]
    assert found.boxes[0].tolist() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("theta", [math.nan, math.inf])
def test_a_box_turned_by_no_number_is_an_invalid_row(theta: float) -> None:
    message = _message([([("car", 0.5)], 50.0, 60.0, theta, 100.0, 20.0, "7")], "cam", Time())
    _, found = read_raw_detections(bytes(serialize_message(message)), NameIndex())
    assert not found.valid and found.invalid_rows == 1
