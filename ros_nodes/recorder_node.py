"""Recorder: topics to MCAP, and pictures with boxes to an H.264 video."""

from __future__ import annotations

import itertools
import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image
from vision_msgs.msg import Detection2DArray

from perception.detections import Detections
from perception.draw import draw
from perception.errors import InputError
from perception.frame import Frame
from perception.runtime.preprocess import as_three_channels
from perception.video import VideoFile
from ros_nodes import qos
from ros_nodes import topics as names
from ros_nodes.convert import NameIndex, raw_image_frame, read_raw_detections
from ros_nodes.diagnostics import ERROR, WARN, Counters, Status
from ros_nodes.lifecycle import WaysightNode, run
from ros_nodes.mcap_file import McapFile
from ros_nodes.parameters import NodeParameters, parameter
from ros_nodes.schemas import definition, message_class

FLUSH_SECONDS = 0.5
LOOK_SECONDS = 0.5
"""Time between two looks for publishers of topics that nobody has published yet."""
RETRY_SECONDS = 5.0
RETRY_BYTES = 64 << 20
"""Free space at which recording begins again after the disk was full."""
JUMP_NS = 1_000_000_000
"""A stamp that lies so far before the last one begins a new run, such as that of a bag."""
BOXES_NS = 5_000_000_000
"""How long boxes wait for a picture that comes after them."""
DRAIN_SECONDS = 30.0
"""How long the pictures that still wait may take to be encoded at the end."""

# Types of Waysight's own topics, so that their first messages are not lost to looking them up.
_KNOWN = {
    names.DETECTIONS: "vision_msgs/msg/Detection2DArray",
    names.TRACKS: "vision_msgs/msg/Detection2DArray",
    names.LABEL_INFO: "vision_msgs/msg/LabelInfo",
    names.CAMERA_INFO: "sensor_msgs/msg/CameraInfo",
    names.IMAGE: "sensor_msgs/msg/Image",
    names.compressed(names.IMAGE): "sensor_msgs/msg/CompressedImage",
    names.DIAGNOSTICS: "diagnostic_msgs/msg/DiagnosticArray",
}


def _own_name(topic: str) -> str:
    """Which of Waysight's topics `topic` is, in whatever namespace; "" for another."""
    return next((name for name in _KNOWN if f"/{topic}".endswith(f"/{name}")), "")


@dataclass(frozen=True)
class RecorderParameters(NodeParameters):
    """Parameters of the recorder node."""

    output: str = parameter("", "MCAP file to write; later parts get _1, _2, ...; empty: none")
    topics: tuple[str, ...] = parameter(
        (names.DETECTIONS, names.CAMERA_INFO, names.LABEL_INFO, names.DIAGNOSTICS),
        "Topics that go to the MCAP file",
    )
    split_megabytes: int = parameter(
        1024, "Size at which a new part begins; 0: never", minimum=0, unit="MB"
    )
    split_seconds: float = parameter(
        0.0, "Age at which a new part begins; 0: never", minimum=0.0, unit="s"
    )
    video: str = parameter("", "H.264 file (.mp4) of the pictures with boxes; empty: none")
    video_boxes: str = parameter(names.DETECTIONS, "Topic of the boxes that are drawn")
    video_threshold: float = parameter(
        0.0, "Least score of the boxes that are drawn", minimum=0.0, maximum=1.0
    )
    video_patience: float = parameter(
        1.0,
        "How long a picture waits for its boxes before it is marked as without",
        minimum=0.0,
        unit="s",
    )
    depth: int = parameter(
        60, "QoS history depth of the subscriptions; pictures wait here too", minimum=1
    )

    def __post_init__(self) -> None:
        if not self.output and not self.video:
            raise InputError("parameters 'output' and 'video' are both empty: nothing to record")
        if self.video and not self.video.endswith(".mp4"):
            raise InputError(f"parameter 'video': got '{self.video}', expected a name in .mp4")
        for name, topics in (("topics", self.topics), ("video_boxes", (self.video_boxes,))):
            for topic in topics:
                if not names.is_topic(topic):
                    raise InputError(
                        f"parameter '{name}': got '{topic}', expected the name of a topic"
                    )


@dataclass(frozen=True)
class _Heard:
    """A topic with its subscription, and what to subscribe with again."""

    topic: str
    kind: Any
    take: Callable[[bytes], None]
    subscription: Any

    @property
    def publishers(self) -> int:
        """How many there are at present."""
        return int(self.subscription.get_publisher_count())


class RecorderNode(WaysightNode[RecorderParameters]):
    """Writes what it hears; what it cannot write it counts."""

    default_name = "recorder"
    parameters_type = RecorderParameters

    def configure(self) -> None:
        """Open the first file."""
        self._mcap: McapFile | None = None
        self._written = 0
        self._lost = 0
        self._trouble = ""
        self._retry_at = 0.0
        if self.parameters.output:
            self._open_part()
        self._video: _VideoThread | None = None
        if self.parameters.video:
            self._video = _VideoThread(self.parameters)

    def cleanup(self) -> None:
        """Finish and close the files."""
        mcap = self.__dict__.setdefault("_mcap", None)
        if mcap is not None:
            try:
                mcap.close()
            except OSError as error:
                self.get_logger().error(
                    f"{mcap.path}: {error.strerror}; the index is missing, and the last "
                    f"{self._abandon()} messages"
                )
            self._mcap = None
        video = self.__dict__.pop("_video", None)
        if video is not None:
            video.close()
            if video.trouble:
                self.get_logger().error(video.trouble)

    def activate(self) -> None:
        """Subscribe to everything that has a type already; look for the rest."""
        self._heard: dict[str, _Heard] = {}
        self._waiting = list(self.parameters.topics) if self.parameters.output else []
        if self._video is not None:
            self._follow_video(self._video)
        self._look()
        # Under simulated time a clock that stands still must not keep anything from the disk.
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._ticking = [
            self.create_timer(LOOK_SECONDS, self._look, clock=steady),
            self.create_timer(FLUSH_SECONDS, self._flush, clock=steady),
        ]

    def _follow_video(self, video: _VideoThread) -> None:
        self._hear("video boxes", self.parameters.video_boxes, Detection2DArray, video.add_boxes)
        self._hear("video", names.IMAGE, Image, video.add_image)

    def deactivate(self) -> None:
        """Unsubscribe and bring everything to the disk."""
        for timer in self.__dict__.pop("_ticking", []):
            self.destroy_timer(timer)
        for heard in self.__dict__.pop("_heard", {}).values():
            self.destroy_subscription(heard.subscription)
        self._flush()

    def last_words(self) -> None:
        """Bring everything to the disk, so that the last diagnostics hold what became of it."""
        self._flush()

    def diagnostic_values(self) -> Mapping[str, Any]:
        """Counters for /diagnostics."""
        values: dict[str, Any] = {"written": self._written, "lost": self._lost}
        if self._mcap is not None:
            values |= {"file": self._mcap.path.name, "bytes": self._mcap.size}
        if self._video is not None:
            values |= {f"video_{k}": v for k, v in self._video.counters.snapshot().items()}
        return values

    def judge(self) -> Iterable[Status]:
        """What is wrong at present."""
        if self._trouble:
            yield ERROR, self._trouble
        silent = [h.topic for h in self.__dict__.get("_heard", {}).values() if not h.publishers]
        if missing := sorted({*self._waiting, *silent}):
            yield WARN, f"nobody publishes {', '.join(missing)}"
        if self._video is not None and self._video.trouble:
            yield ERROR, self._video.trouble

    # Topics ----------------------------------------------------------------------------------

    def _look(self) -> None:
        published = dict(self.get_topic_names_and_types()) if self._waiting else {}
        for topic in list(self._waiting):
            kinds = published.get(self.resolve_topic_name(topic), [])
            kind = kinds[0] if kinds else _KNOWN.get(_own_name(topic))
            if kind is not None:
                self._waiting.remove(topic)
                self._subscribe(topic, kind)
        for key, heard in list(self._heard.items()):
            # A reliable subscription hears nothing of a best-effort publisher that came later.
            profile = heard.subscription.qos_profile
            wanted = self._profile(heard.topic)
            if profile.reliability != wanted.reliability == ReliabilityPolicy.BEST_EFFORT:
                self.destroy_subscription(heard.subscription)
                self._hear(key, heard.topic, heard.kind, heard.take)

    def _subscribe(self, topic: str, kind: str) -> None:
        try:
            message_type = message_class(kind)
            definition(kind)  # every MCAP file needs it
        except InputError as error:
            self._trouble = f"topic {topic} is not recorded: {error}"
            self.get_logger().error(self._trouble)
            return
        write = partial(self._write, self.resolve_topic_name(topic), kind)
        self._hear(topic, topic, message_type, write)

    def _hear(self, key: str, topic: str, kind: Any, take: Callable[[bytes], None]) -> None:
        subscription = self.create_subscription(kind, topic, take, self._profile(topic), raw=True)
        self._heard[key] = _Heard(topic, kind, take, subscription)

    def _profile(self, topic: str) -> QoSProfile:
        """As reliable and as latched as all present publishers are."""
        offers = [i.qos_profile for i in self.get_publishers_info_by_topic(topic)]
        own = _own_name(topic)
        profile = qos.results(self.parameters.depth)
        if own == names.LABEL_INFO:
            profile = qos.latched()
        if own in (names.IMAGE, names.compressed(names.IMAGE)):
            profile.reliability = ReliabilityPolicy.BEST_EFFORT
        if any(o.reliability == ReliabilityPolicy.BEST_EFFORT for o in offers):
            profile.reliability = ReliabilityPolicy.BEST_EFFORT
        if offers and all(o.durability == DurabilityPolicy.TRANSIENT_LOCAL for o in offers):
            profile.durability = DurabilityPolicy.TRANSIENT_LOCAL
        return profile

    # MCAP ------------------------------------------------------------------------------------

    def _write(self, topic: str, kind: str, data: bytes) -> None:
        if self._mcap is None:
            self._lost += 1
            return
        now = self.get_clock().now().nanoseconds
        self._written += 1
        self._guarded(partial(self._mcap.write, topic, kind, data, now, now))
        self._split_if_due()

    def _split_if_due(self) -> None:
        p = self.parameters
        if self._mcap is None:
            return
        full = p.split_megabytes and self._mcap.size >= p.split_megabytes << 20
        old = p.split_seconds and time.monotonic() - self._opened >= p.split_seconds
        if full or old:
            self._guarded(self._next_part)

    def _next_part(self) -> None:
        assert self._mcap is not None
        self._mcap.close()
        self._mcap = None
        self._open_part()

    def _open_part(self) -> None:
        base = Path(self.parameters.output)
        _make_folder(base)
        self._mcap = McapFile(_free(base.with_suffix(base.suffix or ".mcap")))
        self._opened = time.monotonic()

    def _flush(self) -> None:
        if self._mcap is not None:
            self._guarded(self._mcap.flush)
        elif self._trouble and time.monotonic() > self._retry_at:
            self._try_again()

    def _guarded(self, step: Callable[[], None]) -> None:
        """Do a write; a full disk ends the file at its last whole chunk."""
        try:
            step()
        except (InputError, OSError) as error:
            self._stopped(error)
            self._abandon()
            self.get_logger().error(self._trouble)
            self._retry_at = time.monotonic() + RETRY_SECONDS
            self.diagnose_now()

    def _stopped(self, error: InputError | OSError) -> None:
        """Say why nothing is written any more."""
        reason = str(error)
        if isinstance(error, OSError):
            path = self._mcap.path if self._mcap else self.parameters.output
            reason = f"{path}: {error.strerror}"
        self._trouble = f"{reason}; recording has stopped"

    def _abandon(self) -> int:
        """Leave a file that cannot be written to; the messages that never reached it are lost."""
        mcap, self._mcap = self._mcap, None
        if mcap is None:
            return 0
        mcap.abandon()
        self._written -= mcap.waiting
        self._lost += mcap.waiting
        return mcap.waiting

    def _try_again(self) -> None:
        self._retry_at = time.monotonic() + RETRY_SECONDS
        base = Path(self.parameters.output)
        try:
            _make_folder(base)
            space = os.statvfs(base.parent)
            if space.f_bavail * space.f_frsize < RETRY_BYTES:
                return
            self._open_part()
        except (InputError, OSError) as error:
            self._stopped(error)
            return
        self._trouble = ""
        self.get_logger().info("recording again")


def _make_folder(path: Path) -> None:
    """The folder that `path` goes into; InputError when it cannot be made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot write here: {error.strerror}") from error


def _free(path: Path) -> Path:
    """The name, or the first of NAME_1, NAME_2, ... that no file has.

    A recorder that was started again goes on with the next part.
    """
    parts = (path.with_name(f"{path.stem}_{part}{path.suffix}") for part in itertools.count(1))
    return next(name for name in itertools.chain([path], parts) if not name.exists())


class _VideoThread:
    """Pairs pictures and boxes by stamp, draws and encodes, all in one thread."""

    def __init__(self, parameters: RecorderParameters) -> None:
        self._parameters = parameters
        self._path = Path(parameters.video)
        _make_folder(self._path)
        self._partial = self._path.with_name(f".writing-{self._path.name}")
        if self._partial.exists():  # of a recorder that was killed
            os.replace(self._partial, _free(self._path))
        self._jobs: queue.Queue[Any] = queue.Queue(maxsize=parameters.depth)
        self._pictures: deque[tuple[Frame, float]] = deque()
        self._boxes: dict[int, Detections] = {}
        self._newest_boxes = 0
        self._last: tuple[int, float] | None = None
        self._shown_ns = 0
        self._names = NameIndex()
        self._file: VideoFile | None = None
        self._closing = threading.Event()
        self.counters = Counters()
        self.trouble = ""
        self._thread = threading.Thread(target=self._run, name="video", daemon=True)
        self._thread.start()

    def add_image(self, message: bytes) -> None:
        """Take a serialised picture; when the encoder is too slow it is dropped and counted."""
        self.counters.add(received=1)
        self._put(self._accept_image, message)

    def add_boxes(self, message: bytes) -> None:
        """Take the serialised boxes of a picture."""
        self._put(self._accept_boxes, message)

    def _put(self, accept: Callable[[bytes], None], message: bytes) -> None:
        # Reading is left to the video's thread: the executor's also notes when results arrive.
        try:
            self._jobs.put_nowait((accept, message))
        except queue.Full:
            self.counters.add(dropped=1)

    def close(self) -> None:
        """Encode what is left and move the video into place, also one that a full disk cut."""
        self._closing.set()
        self._thread.join(timeout=DRAIN_SECONDS)
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self.trouble = self.trouble or f"{self._path}: video cut: {error}"
            os.replace(self._partial, _free(self._path))

    def _run(self) -> None:
        try:
            while not (self._closing.is_set() and self._jobs.empty()):
                with suppress(queue.Empty):
                    accept, message = self._jobs.get(timeout=0.1)
                    try:
                        accept(message)
                    except InputError:
                        self.counters.add(invalid=1)
                self._write_ready(self._parameters.video_patience)
            self._write_ready(0.0)
        except Exception as error:
            self.trouble = f"{self._path}: video stopped: {error}"

    def _accept_image(self, message: bytes) -> None:
        frame = raw_image_frame(message)
        self._pictures.append((frame, time.monotonic()))

    def _accept_boxes(self, message: bytes) -> None:
        frame, detections = read_raw_detections(message, self._names)
        if frame.stamp_ns < self._newest_boxes - JUMP_NS:
            self._boxes.clear()  # a bag that began again: they belong to pictures that are past
        self._newest_boxes = frame.stamp_ns
        self._boxes[frame.stamp_ns] = detections

    def _write_ready(self, patience: float) -> None:
        """Write, in order, every picture whose boxes are here or not to be expected any more.

        No more than `depth` pictures wait: the oldest of more is written as without boxes.
        """
        while self._pictures:
            frame, since = self._pictures[0]
            boxes = self._boxes.pop(frame.stamp_ns, None)
            passed = any(later.stamp_ns in self._boxes for later, _ in self._pictures)
            may_wait = len(self._pictures) <= self._parameters.depth and not passed
            if boxes is None and may_wait and time.monotonic() - since < patience:
                return
            self._pictures.popleft()
            self._write(frame, boxes, self._time_ns(frame.stamp_ns, since))
        self._boxes = {
            stamp: boxes
            for stamp, boxes in self._boxes.items()
            if self._newest_boxes - stamp < BOXES_NS
        }

    def _time_ns(self, stamp_ns: int, since: float) -> int:
        """When the video shows a picture that came at `since`.

        Stamps that stand still (a camera without any) or begin again say nothing of the time since
        the picture before; there it is that of the arrivals.
        """
        if self._last is None:
            self._shown_ns = stamp_ns
        else:
            step = stamp_ns - self._last[0]
            if step == 0 or step < -JUMP_NS:
                step = round((since - self._last[1]) * 1e9)
            self._shown_ns += step
        self._last = (stamp_ns, since)
        return self._shown_ns

    def _write(self, frame: Frame, boxes: Detections | None, time_ns: int) -> None:
        image = as_three_channels(frame.image)
        if frame.color == "rgb":
            image = np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2BGR), np.uint8)
        shown = boxes if boxes is not None else Detections.failed("no detections for this picture")
        shown = shown[shown.scores >= self._parameters.video_threshold]
        drawn = draw(image, shown, self._names.names)
        if self._file is None:
            self._file = VideoFile(self._partial, drawn.shape[1], drawn.shape[0])
        width, height = self._file.size
        if drawn.shape[:2] != (height, width):
            drawn = np.asarray(cv2.resize(drawn, (width, height)), np.uint8)
        self._file.write(drawn, time_ns)
        self.counters.add(processed=1, stale=int(boxes is None))


def main() -> None:
    """Run the node until it is told to stop."""
    sys.exit(run([RecorderNode]))


if __name__ == "__main__":
    main()
