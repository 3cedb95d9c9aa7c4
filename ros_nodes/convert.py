"""ROS messages to and from `Frame` and `Detections`.

Pictures are views on the message's bytes wherever the encoding allows it; nothing is converted
element by element (rclpy#763). A message that cannot be a picture raises InputError: its caller
counts it as invalid and publishes nothing, because a broken picture is not an empty road.
"""

from __future__ import annotations

import array
import sys
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from builtin_interfaces.msg import Time
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import Header
from vision_msgs.msg import (
    Detection2D,
    Detection2DArray,
    LabelInfo,
    ObjectHypothesisWithPose,
    VisionClass,
)

from perception import jpeg
from perception.detections import UNTRACKED, Detections
from perception.errors import InputError
from perception.frame import Color, Frame
from perception.sources import PNG_START, decode_picture
from ros_nodes.cdr import RawDetection, read_compressed, read_image, upright_size, write_image
from ros_nodes.cdr import read_detections as cdr_read_detections

# Encodings whose rows are pixels side by side (sensor_msgs/image_encodings.hpp):
# name -> (dtype, channels, colour order).
_PACKED: dict[str, tuple[type[np.generic], int, Color]] = {
    "mono8": (np.uint8, 1, "bgr"),
    "8UC1": (np.uint8, 1, "bgr"),
    "mono16": (np.uint16, 1, "bgr"),
    "16UC1": (np.uint16, 1, "bgr"),
    "bgr8": (np.uint8, 3, "bgr"),
    "8UC3": (np.uint8, 3, "bgr"),
    "rgb8": (np.uint8, 3, "rgb"),
    "bgra8": (np.uint8, 4, "bgr"),
    "8UC4": (np.uint8, 4, "bgr"),
    "rgba8": (np.uint8, 4, "rgb"),
    "bgr16": (np.uint16, 3, "bgr"),
    "16UC3": (np.uint16, 3, "bgr"),
    "rgb16": (np.uint16, 3, "rgb"),
    "bgra16": (np.uint16, 4, "bgr"),
    "16UC4": (np.uint16, 4, "bgr"),
    "rgba16": (np.uint16, 4, "rgb"),
}
# Two bytes a pixel, chroma shared by neighbours. "yuv422" is UYVY by ROS definition.
_YUV422 = {
    "yuv422": cv2.COLOR_YUV2BGR_UYVY,
    "uyvy": cv2.COLOR_YUV2BGR_UYVY,
    "yuv422_yuy2": cv2.COLOR_YUV2BGR_YUY2,
    "yuyv": cv2.COLOR_YUV2BGR_YUY2,
}
# A luminance plane, then a plane of half height with the chroma of 2x2 pixels.
_YUV420 = {"nv12": cv2.COLOR_YUV2BGR_NV12, "nv21": cv2.COLOR_YUV2BGR_NV21}
# OpenCV names a mosaic by its second row, second column; these aliases by its first.
_BAYER = {
    "bayer_rggb": cv2.COLOR_BayerRGGB2BGR,
    "bayer_bggr": cv2.COLOR_BayerBGGR2BGR,
    "bayer_gbrg": cv2.COLOR_BayerGBRG2BGR,
    "bayer_grbg": cv2.COLOR_BayerGRBG2BGR,
}
ENCODINGS = (
    *_PACKED,
    *_YUV422,
    *_YUV420,
    *(f"{name}{bits}" for name in _BAYER for bits in (8, 16)),
)

_NO_PIXELS = np.zeros((0, 0), np.uint8)
_FLOAT32_MAX = float(np.finfo(np.float32).max)


def image_frame(message: Image, sequence: int = 0) -> Frame:
    """The picture of an Image message; raises InputError when it is broken."""
    pixels, color = decode_image(
        message.data,
        message.width,
        message.height,
        message.step,
        message.encoding,
        bool(message.is_bigendian),
    )
    return Frame(pixels, stamp_ns(message.header.stamp), message.header.frame_id, sequence, color)


def compressed_frame(message: CompressedImage, sequence: int = 0) -> Frame:
    """The picture of a CompressedImage message; raises InputError when it is broken."""
    pixels = decode_compressed(message.data)
    return Frame(pixels, stamp_ns(message.header.stamp), message.header.frame_id, sequence, "bgr")


def raw_image_frame(message: bytes, sequence: int = 0) -> Frame:
    """As `image_frame`, from the serialised message: the pixels are a view on `message`."""
    raw = read_image(message)
    pixels, color = decode_image(
        raw.data, raw.width, raw.height, raw.step, raw.encoding, raw.is_bigendian
    )
    return Frame(pixels, raw.stamp_ns, raw.frame_id, sequence, color)


def raw_compressed_frame(message: bytes, sequence: int = 0) -> Frame:
    """As `compressed_frame`, from the serialised message."""
    raw = read_compressed(message)
    return Frame(decode_compressed(raw.data), raw.stamp_ns, raw.frame_id, sequence, "bgr")


def decode_image(
    data: Any, width: int, height: int, step: int, encoding: str, is_bigendian: bool
) -> tuple[npt.NDArray[np.uint8] | npt.NDArray[np.uint16], Color]:
    """(pixels, colour order) from the fields of an Image; `data` is any buffer of bytes.

    pixels: uint8 or uint16 in host byte order, (H, W), (H, W, 3) or (H, W, 4). A view on `data`
    except for YUV, Bayer and foreign byte order. Raises InputError naming the field at fault.
    """
    if width <= 0 or height <= 0:
        raise InputError(f"image of {width}x{height} pixels: both must be positive")
    if encoding in _PACKED:
        dtype, channels, color = _PACKED[encoding]
        rows = _rows(data, width * channels, height, step, encoding, dtype, is_bigendian)
        shape = (height, width) if channels == 1 else (height, width, channels)
        size = np.dtype(dtype).itemsize
        strides = (rows.strides[0], *((channels * size, size) if channels > 1 else (size,)))
        return np.lib.stride_tricks.as_strided(rows, shape, strides, writeable=False), color
    if encoding in _YUV422:
        if width % 2:
            raise InputError(f"{encoding} image is {width} wide: expected an even width")
        rows = _rows(data, width * 2, height, step, encoding, np.uint8, False)
        pairs = np.ascontiguousarray(rows).reshape(height, width, 2)
        return _convert(pairs, _YUV422[encoding]), "bgr"
    if encoding in _YUV420:
        if width % 2 or height % 2:
            raise InputError(f"{encoding} image is {width}x{height}: expected even numbers")
        rows = _rows(data, width, height * 3 // 2, step, encoding, np.uint8, False)
        return _convert(np.ascontiguousarray(rows), _YUV420[encoding]), "bgr"
    mosaic = encoding.removesuffix("16").removesuffix("8")
    if mosaic in _BAYER and encoding in ENCODINGS:
        depth = np.uint16 if encoding.endswith("16") else np.uint8
        rows = _rows(data, width, height, step, encoding, depth, is_bigendian)
        return _convert(np.ascontiguousarray(rows), _BAYER[mosaic]), "bgr"
    raise InputError(f"image encoding '{encoding}' is not one of: {', '.join(ENCODINGS)}")


def decode_compressed(data: Any) -> npt.NDArray[np.uint8]:
    """BGR uint8 (H, W, 3) from a whole JPEG or PNG; `data` is any buffer of bytes.

    Raises InputError for everything else.
    """
    view = memoryview(data)
    if not bytes(view[:8]).startswith((jpeg.START, PNG_START)):
        raise InputError(f"compressed image of {len(view)} bytes is neither JPEG nor PNG")
    # The camera's orientation is the frame's: EXIF must not turn it.
    return decode_picture(view, upright=False)


def image_message(frame: Frame) -> Image:
    """An Image message of a grey, BGR(A) or RGB(A) frame; raises InputError for other shapes."""
    encoding, pixels = _as_encoded(frame)
    message = Image(
        header=header(frame),
        height=pixels.shape[0],
        width=pixels.shape[1],
        encoding=encoding,
        is_bigendian=int(sys.byteorder == "big"),
        step=pixels.strides[0],
    )
    # Any other type than array.array('B') is copied element by element (rclpy#763).
    data = array.array("B")
    data.frombytes(pixels.tobytes())
    message.data = data
    return message


def raw_image_message(frame: Frame) -> bytes:
    """As `image_message`, serialised, with a single copy of the pixels."""
    encoding, pixels = _as_encoded(frame)
    height, width = pixels.shape[:2]
    return write_image(
        frame.stamp_ns,
        frame.frame_id,
        width,
        height,
        encoding,
        pixels.strides[0],
        pixels.reshape(-1).view(np.uint8).data,
    )


def _as_encoded(frame: Frame) -> tuple[str, npt.NDArray[Any]]:
    """(encoding, contiguous pixels) of a frame."""
    pixels = np.ascontiguousarray(frame.image)
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    wanted = (pixels.dtype, channels, frame.color if channels > 1 else "bgr")
    for encoding, (dtype, count, color) in _PACKED.items():
        if wanted == (np.dtype(dtype), count, color):
            return encoding, pixels
    raise InputError(f"no image encoding for {pixels.dtype} {pixels.shape} {frame.color}")


def compressed_message(frame: Frame, quality: int = 90) -> CompressedImage:
    """A JPEG CompressedImage of a frame; raises InputError when it cannot be encoded."""
    pixels = frame.image
    if pixels.dtype == np.uint16:
        pixels = (pixels >> 8).astype(np.uint8)
    if frame.color == "rgb" and pixels.ndim == 3:
        code = cv2.COLOR_RGB2BGR if pixels.shape[2] == 3 else cv2.COLOR_RGBA2BGR
        pixels = _convert(pixels, code)
    done, encoded = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not done:
        raise InputError(f"cannot encode {frame.image.dtype} {frame.image.shape} as JPEG")
    message = CompressedImage(header=header(frame), format="jpeg")
    data = array.array("B")
    data.frombytes(np.asarray(encoded).tobytes())
    message.data = data
    return message


def stamp_ns(stamp: Time) -> int:
    """Nanoseconds of a ROS time."""
    return int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)


def ros_time(time_ns: int) -> Time:
    """The opposite of `stamp_ns`."""
    sec, nanosec = divmod(time_ns, 1_000_000_000)
    return Time(sec=sec, nanosec=nanosec)


def header(frame: Frame) -> Header:
    """The frame's own stamp and frame_id, unchanged."""
    return Header(stamp=ros_time(frame.stamp_ns), frame_id=frame.frame_id)


def detections_message(
    detections: Detections, frame: Frame, names: Sequence[str]
) -> Detection2DArray:
    """Detections in original-image pixels as vision_msgs; every part carries the frame's header.

    class_id is the class name. id is the track id, empty where not tracked.
    Raises ValueError for an invalid result: it must not be published as "nothing there".
    """
    if not detections.valid:
        raise ValueError(f"an invalid result is not publishable: {detections.reason}")
    shared = header(frame)
    message = Detection2DArray(header=shared)
    for (x1, y1, x2, y2), score, label, track in zip(
        detections.boxes.tolist(),
        detections.scores.tolist(),
        detections.labels.tolist(),
        detections.track_ids.tolist(),
        strict=True,
    ):
        item = Detection2D(header=shared, id="" if track == UNTRACKED else str(track))
        item.bbox.center.position.x = (x1 + x2) / 2
        item.bbox.center.position.y = (y1 + y2) / 2
        item.bbox.size_x = x2 - x1
        item.bbox.size_y = y2 - y1
        hypothesis = ObjectHypothesisWithPose()
        hypothesis.hypothesis.class_id = names[label]
        hypothesis.hypothesis.score = score
        item.results.append(hypothesis)
        message.detections.append(item)
    return message


class NameIndex:
    """Numbers for the class names met in messages, in order of appearance."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names: list[str] = list(names)
        self._numbers = {name: number for number, name in enumerate(self.names)}

    def number(self, name: str) -> int:
        """The number of `name`; a new name gets the next one."""
        if name not in self._numbers:
            self._numbers[name] = len(self.names)
            self.names.append(name)
        return self._numbers[name]


def read_detections(message: Detection2DArray, index: NameIndex) -> Detections:
    """Detections from vision_msgs, the best hypothesis of each; labels are numbers of `index`.

    Of a turned box (theta) it is the upright one around it.
    Rows that are not finite or have no hypothesis are left out and counted in `invalid_rows`;
    when that leaves none of several, the result is invalid.
    """
    rows = []
    for item in message.detections:
        best = max(item.results, key=lambda r: r.hypothesis.score, default=None)
        box = item.bbox
        width, height = upright_size(box.size_x, box.size_y, box.center.theta)
        rows.append(
            RawDetection(
                box.center.position.x,
                box.center.position.y,
                width,
                height,
                None if best is None else best.hypothesis.class_id,
                0.0 if best is None else best.hypothesis.score,
                item.id,
            )
        )
    return _from_rows(rows, index)


def read_raw_detections(message: bytes, index: NameIndex) -> tuple[Frame, Detections]:
    """As `message_frame` and `read_detections`, from the serialised message.

    Raises InputError when the message is cut short.
    """
    stamp, frame_id, rows = cdr_read_detections(message)
    return Frame(_NO_PIXELS, stamp, frame_id), _from_rows(rows, index)


def _from_rows(rows: Sequence[RawDetection], index: NameIndex) -> Detections:
    boxes, scores, labels, tracks = [], [], [], []
    for row in rows:
        half_w, half_h = row.width / 2, row.height / 2
        box = (row.x - half_w, row.y - half_h, row.x + half_w, row.y + half_h)
        # Neither NaN nor what becomes infinite as float32.
        usable = all(abs(value) < _FLOAT32_MAX for value in (*box, row.score))
        if row.class_id is None or not usable:
            continue
        boxes.append(box)
        scores.append(row.score)
        labels.append(index.number(row.class_id))
        # Ids are free text; one that is no number that fits is nobody's track number.
        tracks.append(int(row.id) if row.id.isdecimal() and len(row.id) < 19 else UNTRACKED)
    bad = len(rows) - len(boxes)
    if bad and not boxes:
        return Detections.failed("no usable row in the message", invalid_rows=bad)
    return Detections.create(boxes, scores, labels, tracks, invalid_rows=bad)


def message_frame(message: Detection2DArray) -> Frame:
    """A Frame without pixels that holds the message's header."""
    return Frame(_NO_PIXELS, stamp_ns(message.header.stamp), message.header.frame_id)


def label_info(names: Sequence[str], threshold: float, frame_id: str = "") -> LabelInfo:
    """LabelInfo with the model's classes in their order."""
    message = LabelInfo(threshold=float(threshold))
    message.header.frame_id = frame_id
    message.class_map = [
        VisionClass(class_id=number, class_name=name) for number, name in enumerate(names)
    ]
    return message


def _rows(
    data: Any,
    row_items: int,
    rows: int,
    step: int,
    encoding: str,
    dtype: type[np.generic],
    is_bigendian: bool,
) -> npt.NDArray[Any]:
    """(rows, row_items) view of the data without the padding at the end of each row."""
    size = np.dtype(dtype).itemsize
    if step < row_items * size:
        raise InputError(
            f"step {step} of a {encoding} image is less than its row of {row_items * size} bytes"
        )
    length = memoryview(data).nbytes
    if length < step * rows:
        raise InputError(
            f"{encoding} image has {length} bytes, expected {step * rows} ({rows} rows of {step})"
        )
    raw = np.frombuffer(data, np.uint8, count=step * rows).reshape(rows, step)
    if size == 1:
        return raw[:, :row_items]
    foreign = is_bigendian != (sys.byteorder == "big")
    order = np.dtype(dtype).newbyteorder(">" if is_bigendian else "<")
    items: npt.NDArray[Any] = np.ndarray((rows, row_items), order, raw, 0, (step, size))
    return items.astype(dtype) if foreign else items.view(dtype)


def _convert(pixels: npt.NDArray[Any], code: int) -> Any:
    try:
        return cv2.cvtColor(pixels, code)
    except cv2.error as error:
        raise InputError(f"picture {pixels.dtype} {pixels.shape}: {error.err}") from error
