"""rosbag2: pictures on image topics, ground truth or results on vision_msgs topics.

A picture and a Detection2DArray belong together when their header stamps are equal, and their frame
ids too where several cameras share a stamp. When a topic is called ground_truth, gt, labels or
annotations, only such topics are read for boxes.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rosbags.rosbag2 import StoragePlugin, Writer

from perception.datasets.bags import Bag, BagMessage, default_types
from perception.datasets.pictures import decode as decode_picture
from perception.datasets.pictures import read_header
from perception.datasets.plan import Plan
from perception.datasets.report import Finding, Report
from perception.datasets.rows import PICTURES_A_BATCH, Rows, to_text
from perception.datasets.sample import BagPicture, Sample
from perception.datasets.source import Source
from perception.datasets.text import check_inside, is_digits
from perception.errors import InputError

HOLDS = frozenset({"unlabelled", "score", "track_id", "camera", "stamp", "size"})
IMAGE = "sensor_msgs/msg/Image"
COMPRESSED = "sensor_msgs/msg/CompressedImage"
DETECTIONS = "vision_msgs/msg/Detection2DArray"
TRUTH = re.compile(r"(^|/)(ground_truth|gt|labels|annotations)(/|$)")
WINDOW_NS = 5 * 10**9
"""How long after a picture its boxes may be recorded."""

# Encodings of sensor_msgs/image_encodings.hpp: channels, dtype, and how cv2 turns them to BGR.
_ENCODINGS: dict[str, tuple[int, str, int | None]] = {
    "bgr8": (3, "u1", None),
    "8UC3": (3, "u1", None),
    "rgb8": (3, "u1", cv2.COLOR_RGB2BGR),
    "bgra8": (4, "u1", cv2.COLOR_BGRA2BGR),
    "rgba8": (4, "u1", cv2.COLOR_RGBA2BGR),
    "mono8": (1, "u1", cv2.COLOR_GRAY2BGR),
    "8UC1": (1, "u1", cv2.COLOR_GRAY2BGR),
    "mono16": (1, "u2", cv2.COLOR_GRAY2BGR),
    "16UC1": (1, "u2", cv2.COLOR_GRAY2BGR),
    "bayer_rggb8": (1, "u1", cv2.COLOR_BayerBG2BGR),
    "bayer_bggr8": (1, "u1", cv2.COLOR_BayerRG2BGR),
    "bayer_gbrg8": (1, "u1", cv2.COLOR_BayerGR2BGR),
    "bayer_grbg8": (1, "u1", cv2.COLOR_BayerGB2BGR),
    "yuv422": (2, "u1", cv2.COLOR_YUV2BGR_UYVY),
    "uyvy": (2, "u1", cv2.COLOR_YUV2BGR_UYVY),
    "yuv422_yuy2": (2, "u1", cv2.COLOR_YUV2BGR_YUY2),
    "yuyv": (2, "u1", cv2.COLOR_YUV2BGR_YUY2),
}


def claims(path: Path) -> str:
    """See plan.Format."""
    if path.is_file():
        return f"{path.name} is a bag file" if path.suffix in (".mcap", ".db3") else ""
    for folder in (path, *(c for c in sorted(path.iterdir()) if c.is_dir())):
        if (folder / "metadata.yaml").is_file():
            return f"{folder.name} has metadata.yaml"
    first = next((f for f in sorted(path.iterdir()) if f.suffix in (".mcap", ".db3")), None)
    return f"{first.name} is a bag file" if first else ""


def plan(path: Path) -> Plan:
    """See plan.Format; the one unit is the bag."""
    with Bag(path) as bag:
        sources = bag.files
        root = bag.root
    unit = path.name if path.is_file() else "."
    return Plan("rosbag2", root, (unit,), None, sources)


def read(plan: Plan, units: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """See plan.Format."""
    for unit in units:
        with Bag(plan.root if unit == "." else plan.root / unit) as bag:
            yield from _Reader(bag).batches()


def header_of(data: bytes) -> tuple[int, str]:
    """Stamp (ns) and frame id of a CDR message that begins with std_msgs/Header.

    Read from the first bytes, because decoding would copy the whole picture. Raises InputError.
    """
    try:
        order = "<" if data[1] & 1 else ">"
        seconds, nanoseconds, length = struct.unpack_from(f"{order}iII", data, 4)
        text = data[16 : 16 + length]
        if len(text) != length or length == 0:
            raise ValueError("the frame id is cut off")
    except (struct.error, ValueError, IndexError) as error:
        raise InputError(f"no readable header ({error})") from None
    return seconds * 10**9 + nanoseconds, text[:-1].decode("utf-8", "replace")


class _Pending:
    """A picture or an array of boxes that waits for its partner."""

    def __init__(self, message: BagMessage, stamp: int, frame_id: str) -> None:
        self.message = BagMessage(
            message.topic, message.log_time_ns, b"", message.file, message.offset, message.inner
        )
        self.stamp, self.frame_id = stamp, frame_id
        self.size = (0, 0)
        self.detections: list[tuple[str, Any]] = []  # each with its topic
        self.has_picture = False
        self.number = -1


class _Reader:
    def __init__(self, bag: Bag) -> None:
        self.bag = bag
        self.report = Report()
        kinds = bag.topics.values()
        self.images = {t.name for t in kinds if t.type in (IMAGE, COMPRESSED)}
        boxes = {t.name for t in kinds if t.type == DETECTIONS}
        truth = {name for name in boxes if TRUTH.search(name)}
        self.boxes = truth or boxes
        self.is_truth = bool(truth)
        self.counts = Counter[str]()
        self.others = Counter[str]()
        self.waiting: dict[tuple[int, str], _Pending] = {}

    def batches(self) -> Iterator[pa.RecordBatch]:
        rows = Rows()
        self._remark_topics()
        for message in self.bag.messages():
            if message.topic not in self.images and message.topic not in self.boxes:
                self.others[message.topic] += 1
                continue
            self._settle(rows, message.log_time_ns - WINDOW_NS)
            try:
                self._take(message)
            except InputError as error:
                self.report.add(
                    "error",
                    "bad-message",
                    f"{message.topic}: {error}",
                    file=message.file,
                    line=0,
                    picture=str(message.log_time_ns),
                )
            if len(rows) >= PICTURES_A_BATCH:
                yield rows.batch()
        self._settle(rows, 2**63)
        for topic, count in sorted(self.others.items()):
            self.report.add(
                "info",
                "other-topic",
                f"topic {topic} ({self.bag.topics[topic].type}): "
                f"{count} messages hold no picture and no boxes",
            )
        if len(rows):
            yield rows.batch()
        rows.picture("", None)
        rows.findings([*self.bag.report.findings, *self.report.findings])
        yield rows.batch()

    def _remark_topics(self) -> None:
        if not self.is_truth and len(self.boxes) > 1:
            self.report.add(
                "warning",
                "several-detectors",
                f"boxes of several topics are put together: {', '.join(sorted(self.boxes))}",
            )

    def _take(self, message: BagMessage) -> None:
        stamp, frame_id = header_of(message.data)
        if stamp == 0:
            stamp = message.log_time_ns
            self.report.add(
                "info",
                "no-stamp",
                f"{message.topic}: a header stamp of 0; the time of recording is taken",
                file=message.file,
            )
        if message.topic in self.images:
            key = (stamp, frame_id)
            pending = self.waiting.get(key)
            if pending is None or pending.has_picture:
                if pending is not None:
                    self.report.add(
                        "warning",
                        "same-stamp",
                        f"{message.topic}: two pictures of {frame_id!r} at {stamp}",
                        file=message.file,
                    )
                    key = (stamp, f"{frame_id}\0{message.topic}{self.counts[message.topic]}")
                pending = self.waiting[key] = _Pending(message, stamp, frame_id)
            pending.has_picture = True
            pending.message = _Pending(message, stamp, frame_id).message
            pending.number = self.counts[message.topic]
            pending.size = self._size(message)
            self.counts[message.topic] += 1
        else:
            partner = self._partner(stamp, frame_id)
            if partner is None:
                partner = self.waiting[stamp, frame_id] = _Pending(message, stamp, frame_id)
            found = self.bag.decode(message).detections
            partner.detections.extend((message.topic, detection) for detection in found)

    def _partner(self, stamp: int, frame_id: str) -> _Pending | None:
        exact = self.waiting.get((stamp, frame_id))
        if exact is not None:
            return exact
        same = [item for (time, _), item in self.waiting.items() if time == stamp]
        return same[0] if len(same) == 1 and (not frame_id or not same[0].frame_id) else None

    def _size(self, message: BagMessage) -> tuple[int, int]:
        if self.bag.topics[message.topic].type == IMAGE:
            order = "<" if message.data[1] & 1 else ">"
            length = struct.unpack_from(f"{order}I", message.data, 12)[0]
            at = 16 + length
            height, width = struct.unpack_from(f"{order}II", message.data, at + (-at % 4))
            return width, height
        decoded = self.bag.decode(message)
        header = read_header(BytesIO(bytes(decoded.data)))
        return header.width, header.height

    def _settle(self, rows: Rows, before: int) -> None:
        """Hand on what has waited long enough, in the order of recording."""
        while self.waiting:
            key = next(iter(self.waiting))
            if self.waiting[key].message.log_time_ns >= before:
                return
            self._row(rows, self.waiting.pop(key))

    def _row(self, rows: Rows, item: _Pending) -> None:
        message = item.message
        findings = []
        image = f"{message.file}#{message.offset}:{message.inner}" if item.has_picture else ""
        label = f"{message.topic.strip('/')}/{item.stamp // 10**9:010d}.{item.stamp % 10**9:09d}"
        if not item.has_picture:
            findings.append(
                Finding(
                    "info",
                    "no-picture",
                    "boxes without a picture of that stamp",
                    message.file,
                    0,
                    label,
                )
            )
        rows.picture(
            f"{label}.jpg",
            image,
            width=item.size[0],
            height=item.size[1],
            camera=item.frame_id,
            frame=item.number,
            stamp_ns=item.stamp,
            source=message.file,
            attributes={"topic": message.topic} if item.has_picture else None,
        )
        for topic, detection in item.detections:
            self._box(rows, detection, topic, message, label, findings)
        rows.findings(findings)

    def _box(
        self,
        rows: Rows,
        detection: Any,
        topic: str,
        message: BagMessage,
        label: str,
        findings: list[Finding],
    ) -> None:
        box = detection.bbox
        values = (box.center.position.x, box.center.position.y, box.size_x, box.size_y)
        if not np.isfinite(values).all() or max(map(abs, values)) > 1e7:
            findings.append(
                Finding(
                    "error",
                    "not-finite",
                    f"a box of {values} is not finite",
                    message.file,
                    0,
                    label,
                )
            )
            return
        if not detection.results:
            findings.append(
                Finding("error", "no-class", "a detection without a result", message.file, 0, label)
            )
            return
        best = max(detection.results, key=lambda result: float(result.hypothesis.score))
        x, y, width, height = values
        extra: dict[str, Any] = {}
        if len(self.boxes) > 1:
            extra["box_attributes"] = to_text({"topic": topic})
        score = float(best.hypothesis.score)
        if not (self.is_truth and score == 1.0):
            extra["scores"] = score
        if is_digits(detection.id) and len(detection.id) < 18:
            extra["track_ids"] = int(detection.id)
        elif detection.id:
            extra["box_ids"] = detection.id
        rows.box(
            x - width / 2,
            y - height / 2,
            x + width / 2,
            y + height / 2,
            best.hypothesis.class_id or "unnamed",
            **extra,
        )


@lru_cache(maxsize=2)
def _open_bag(path: Path) -> Bag:
    return Bag(path)


def _message(picture: BagPicture) -> tuple[Bag, Any]:
    path = check_inside(picture.bag, picture.file)
    whole = picture.bag / "metadata.yaml"
    bag = _open_bag(picture.bag if whole.is_file() else path)
    return bag, bag.decode(bag.fetch(picture.file, picture.offset, picture.inner))


def load_picture(picture: BagPicture) -> npt.NDArray[np.uint8]:
    """Pixels uint8 (H, W, 3), BGR, of a picture in a bag; raises InputError."""
    _, message = _message(picture)
    return pixels_of(message, picture.file)


def pixels_of(message: Any, name: str) -> npt.NDArray[np.uint8]:
    """uint8 (H, W, 3), BGR, of a decoded Image or CompressedImage; raises InputError."""
    if hasattr(message, "format"):
        return decode_picture(np.asarray(message.data, np.uint8), name)
    if message.encoding not in _ENCODINGS:
        raise InputError(
            f"{name}: encoding {message.encoding!r} is not one of {', '.join(_ENCODINGS)}"
        )
    channels, kind, code = _ENCODINGS[message.encoding]
    dtype = np.dtype(kind).newbyteorder(">" if message.is_bigendian else "<")
    height, width, step = message.height, message.width, message.step
    line = width * channels * dtype.itemsize
    data = np.asarray(message.data, np.uint8)
    if not width or not height or step < line or len(data) < step * height:
        raise InputError(
            f"{name}: {len(data)} bytes and a step of {step} do not make "
            f"{width}x{height} pixels of {message.encoding}"
        )
    rows = np.ascontiguousarray(data[: step * height].reshape(height, step)[:, :line])
    image = rows.view(dtype).reshape(height, width, channels)
    if dtype.itemsize == 2:
        image = (image.astype(np.uint16) >> 8).astype(np.uint8)
    return np.asarray(image if code is None else cv2.cvtColor(image, code), dtype=np.uint8)


def encoded_picture(picture: BagPicture) -> tuple[bytes, str]:
    """The picture as a file's bytes and suffix: as recorded when it was compressed, else PNG."""
    _, message = _message(picture)
    if hasattr(message, "format"):
        return bytes(message.data), ".png" if "png" in message.format else ".jpg"
    return cv2.imencode(".png", pixels_of(message, picture.file))[1].tobytes(), ".png"


def write(source: Source, out: Path) -> None:
    """Write out/bag as MCAP: CAMERA/image_raw/compressed and CAMERA/ground_truth; see plan.Format.

    Pictures keep their bytes. Samples without a time get one every 100 ms.
    """
    types = default_types()
    made_up = missing = 0
    with Writer(out / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        topics: dict[tuple[str, str], Any] = {}

        def send(topic: str, kind: str, message: Any, stamp: int) -> None:
            if (topic, kind) not in topics:
                topics[topic, kind] = writer.add_connection(topic, kind, typestore=types)
            writer.write(topics[topic, kind], stamp, types.serialize_cdr(message, kind))

        for number, sample in enumerate(source.samples()):
            stamp = sample.stamp_ns or 10**9 + number * 10**8
            made_up += not sample.stamp_ns
            name = re.sub(r"[^A-Za-z0-9_/]", "_", sample.camera or "camera").strip("/")
            name = name if not name[:1].isdigit() else f"camera_{name}"
            header = _header(types, stamp, sample.camera or "camera")
            image = _image(source, sample, header, types)
            if image is not None:
                send(f"/{name}/image_raw/compressed", COMPRESSED, image, stamp)
            else:
                missing += 1
            send(
                f"/{name}/ground_truth",
                DETECTIONS,
                _array(sample, header, types, source.names),
                stamp,
            )
    if made_up:
        source.report.add(
            "info",
            "made-up-time",
            f"{made_up} pictures have no time: they are written 100 ms apart",
        )
    if missing:
        source.report.add(
            "warning",
            "no-picture",
            f"{missing} pictures have no file: only their boxes are written, not their size",
        )
    source.report.add(
        "info",
        "lost-class-order",
        "class names are in the boxes: their order and those without a box are lost",
    )


def _header(types: Any, stamp: int, frame_id: str) -> Any:
    time = types.types["builtin_interfaces/msg/Time"](stamp // 10**9, stamp % 10**9)
    return types.types["std_msgs/msg/Header"](time, frame_id)


def _image(source: Source, sample: Sample, header: Any, types: Any) -> Any:
    if isinstance(sample.image, BagPicture):
        data, suffix = encoded_picture(sample.image)
    elif sample.image is None or not sample.image.is_file():
        return None
    else:
        relative = sample.image.relative_to(source.dataset.root).as_posix()
        data = check_inside(source.dataset.root, relative).read_bytes()
        suffix = sample.image.suffix.lower()
    kind = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg"}.get(suffix, suffix.lstrip("."))
    return types.types[COMPRESSED](header, kind, np.frombuffer(data, np.uint8))


def _array(sample: Sample, header: Any, types: Any, names: tuple[str, ...]) -> Any:
    kinds = types.types
    detections = []
    pose = kinds["geometry_msgs/msg/PoseWithCovariance"](
        kinds["geometry_msgs/msg/Pose"](
            kinds["geometry_msgs/msg/Point"](0.0, 0.0, 0.0),
            kinds["geometry_msgs/msg/Quaternion"](0.0, 0.0, 0.0, 1.0),
        ),
        np.zeros(36),
    )
    for i, (x1, y1, x2, y2) in enumerate(sample.truth.boxes.astype(np.float64)):
        centre = kinds["vision_msgs/msg/Pose2D"](
            kinds["vision_msgs/msg/Point2D"]((x1 + x2) / 2, (y1 + y2) / 2), 0.0
        )
        box = kinds["vision_msgs/msg/BoundingBox2D"](centre, x2 - x1, y2 - y1)
        score = float(sample.truth.scores[i]) if sample.scored[i] else 1.0
        hypothesis = kinds["vision_msgs/msg/ObjectHypothesis"](
            names[int(sample.truth.labels[i])], score
        )
        result = kinds["vision_msgs/msg/ObjectHypothesisWithPose"](hypothesis, pose)
        track = int(sample.truth.track_ids[i])
        identity = str(track) if track >= 0 else sample.box_ids[i]
        detections.append(kinds["vision_msgs/msg/Detection2D"](header, [result], box, identity))
    return kinds[DETECTIONS](header, detections)
