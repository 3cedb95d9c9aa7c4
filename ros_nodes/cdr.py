"""The messages of the fast path as CDR bytes: pictures and detections at camera rate.

rclpy turns every message into Python objects and back. For a picture that is two more copies; for
a Detection2DArray it is about 0.1 ms an object (docs/performance.md). Serialised messages go
through rclpy untouched, so the nodes read and write the few bytes themselves. The layout is plain
CDR (OMG DDS-XTypes 1.3, 7.4.1): members in order, each aligned to its own size from the start of
the body, strings with their length and a final zero. Tests compare every byte with rclpy's.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from perception.detections import UNTRACKED, Detections
from perception.errors import InputError
from perception.frame import Frame

_LITTLE = b"\x00\x01\x00\x00"
_ENCAPSULATION = 4
_NATIVE = _LITTLE if sys.byteorder == "little" else b"\x00\x00\x00\x00"
_NO_POSE = bytes(43 * 8)
"""PoseWithCovariance of zeros save the quaternion's w, which is written over it."""


@dataclass(frozen=True, slots=True)
class RawImage:
    """Fields of an Image or CompressedImage; `data` is a view on the message.

    Of a compressed picture width, height and step are 0 and `encoding` is its format.
    """

    stamp_ns: int
    frame_id: str
    width: int
    height: int
    encoding: str
    is_bigendian: bool
    step: int
    data: memoryview


@dataclass(frozen=True, slots=True)
class RawDetection:
    """One Detection2D: upright box's centre and size in pixels, best hypothesis, and the id.

    class_id is None where the message has no hypothesis.
    """

    x: float
    y: float
    width: float
    height: float
    class_id: str | None
    score: float
    id: str


class _Reader:
    """Reads aligned values; every reach past the end is an InputError."""

    def __init__(self, message: bytes) -> None:
        if len(message) < _ENCAPSULATION or message[0] != 0 or message[1] > 1:
            raise InputError(f"message of {len(message)} bytes is not plain CDR")
        self._body = memoryview(message)[_ENCAPSULATION:]
        self._order = "<" if message[1] else ">"
        self._at = 0

    def number(self, code: str) -> int:
        size = struct.calcsize(code)
        self._at += -self._at % size
        try:
            (value,) = struct.unpack_from(self._order + code, self._body, self._at)
        except struct.error:
            raise InputError("message ends before its last field") from None
        self._at += size
        return int(value)

    def doubles(self, count: int) -> tuple[float, ...]:
        self._at += -self._at % 8
        try:
            values = struct.unpack_from(f"{self._order}{count}d", self._body, self._at)
        except struct.error:
            raise InputError("message ends before its last field") from None
        self._at += 8 * count
        return values

    def octets(self) -> memoryview:
        length = self.number("I")
        end = self._at + length
        if end > len(self._body):
            raise InputError(f"message announces {length} bytes and has fewer")
        view, self._at = self._body[self._at : end], end
        return view

    def string(self) -> str:
        return bytes(self.octets()).rstrip(b"\0").decode("utf-8", errors="replace")


def read_image(message: bytes) -> RawImage:
    """Fields of a serialised sensor_msgs/Image; InputError when it is cut."""
    reader = _Reader(message)
    stamp = reader.number("i") * 1_000_000_000 + reader.number("I")
    frame_id = reader.string()
    height, width = reader.number("I"), reader.number("I")
    encoding = reader.string()
    is_bigendian = bool(reader.number("B"))
    step = reader.number("I")
    return RawImage(stamp, frame_id, width, height, encoding, is_bigendian, step, reader.octets())


def read_compressed(message: bytes) -> RawImage:
    """Fields of a serialised sensor_msgs/CompressedImage; InputError when it is cut."""
    reader = _Reader(message)
    stamp = reader.number("i") * 1_000_000_000 + reader.number("I")
    frame_id, kind = reader.string(), reader.string()
    return RawImage(stamp, frame_id, 0, 0, kind, False, 0, reader.octets())


def read_detections(message: bytes) -> tuple[int, str, list[RawDetection]]:
    """(stamp in ns, frame_id, rows) of a serialised Detection2DArray; InputError when cut."""
    reader = _Reader(message)
    stamp = reader.number("i") * 1_000_000_000 + reader.number("I")
    frame_id = reader.string()
    rows = []
    for _ in range(reader.number("I")):
        reader.number("i"), reader.number("I"), reader.octets()  # the row's own header
        class_id, score = None, 0.0
        for _ in range(reader.number("I")):
            name, (value, *_pose) = reader.string(), reader.doubles(1 + len(_NO_POSE) // 8)
            if class_id is None or value > score:
                class_id, score = name, value
        x, y, theta, width, height = reader.doubles(5)
        width, height = upright_size(width, height, theta)
        rows.append(RawDetection(x, y, width, height, class_id, score, reader.string()))
    return stamp, frame_id, rows


def upright_size(width: float, height: float, theta: float) -> tuple[float, float]:
    """Size of the upright box around a box that is turned by theta (rad); NaN where it has none."""
    if not theta:
        return width, height
    if not math.isfinite(theta):
        return math.nan, math.nan
    cos, sin = abs(math.cos(theta)), abs(math.sin(theta))
    return width * cos + height * sin, width * sin + height * cos


def read_stamp(message: bytes) -> int:
    """Nanoseconds of the leading Header of any serialised message."""
    reader = _Reader(message)
    return reader.number("i") * 1_000_000_000 + reader.number("I")


def write_image(
    stamp_ns: int,
    frame_id: str,
    width: int,
    height: int,
    encoding: str,
    step: int,
    data: memoryview,
) -> bytes:
    """A serialised sensor_msgs/Image in host byte order; `data` holds step * height bytes."""
    head = bytearray(_header(stamp_ns, frame_id))
    _pad(head, 4)
    head += struct.pack("=II", height, width)
    _string(head, encoding)
    head += bytes([sys.byteorder == "big"])
    _pad(head, 4)
    head += struct.pack("=II", step, data.nbytes)
    return b"".join((_NATIVE, head, data))


def write_detections(detections: Detections, frame: Frame, names: Sequence[str]) -> bytes:
    """A serialised vision_msgs/Detection2DArray, equal to `convert.detections_message`.

    Raises ValueError for an invalid result: it must not be published as "nothing there".
    """
    if not detections.valid:
        raise ValueError(f"an invalid result is not publishable: {detections.reason}")
    header = _header(frame.stamp_ns, frame.frame_id)
    body = bytearray(header)
    _pad(body, 4)
    body += struct.pack("=I", len(detections))
    corners = detections.boxes.astype(float)
    centers = ((corners[:, :2] + corners[:, 2:]) / 2).tolist()
    sizes = (corners[:, 2:] - corners[:, :2]).tolist()
    for center, size, score, label, track in zip(
        centers,
        sizes,
        detections.scores.tolist(),
        detections.labels.tolist(),
        detections.track_ids.tolist(),
        strict=True,
    ):
        _pad(body, 4)
        body += header  # begins aligned to 4, and holds nothing larger
        _pad(body, 4)
        body += struct.pack("=I", 1)
        _string(body, names[label])
        _pad(body, 8)
        body += struct.pack("=d", score) + _NO_POSE
        struct.pack_into("=d", body, len(body) - 37 * 8, 1.0)
        body += struct.pack("=5d", *center, 0.0, *size)
        _string(body, "" if track == UNTRACKED else str(track))
    return _NATIVE + bytes(body)


def _header(stamp_ns: int, frame_id: str) -> bytes:
    head = bytearray(struct.pack("=iI", *divmod(stamp_ns, 1_000_000_000)))
    _string(head, frame_id)
    return bytes(head)


def _string(body: bytearray, text: str) -> None:
    _pad(body, 4)
    octets = text.encode() + b"\0"
    body += struct.pack("=I", len(octets)) + octets


def _pad(body: bytearray, size: int) -> None:
    body += bytes(-len(body) % size)
