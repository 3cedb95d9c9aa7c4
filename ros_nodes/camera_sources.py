"""What a camera node can read: videos, picture folders, V4L2 devices, network cameras and bags."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from perception.errors import InputError
from perception.frame import Frame
from perception.sources import NANOSECONDS, open_source
from ros_nodes.network_camera import StreamLost, is_network, pictures

FOLDER_RATE = 10.0
"""Pictures a second of a folder, which names none itself."""


class CameraLost(RuntimeError):
    """A device stopped giving pictures; asking again may help."""


class BrokenOff(InputError):
    """A file ended before its end; reading it again would end there again."""


@dataclass(frozen=True)
class Feed:
    """Pictures in order.

    rate: pictures a second of the source itself, for a video the mean; None when it sets its own
    pace (a device) or names no rate (a bag).
    live: whether pictures come when they come, so that nothing may wait for its time.
    frames: makes an iterator from the beginning of (time of playing in ns, picture);
    Frame.stamp_ns is the source's own time. It raises CameraLost or BrokenOff where the source
    stops giving pictures.
    problems: what could not be read so far, one sentence each.
    timed: whether pictures are to be played at these times, a video's own or a bag's times of
    recording, from any zero; they mean nothing elsewhere.
    recorded: whether they are times of recording, on the clock of all of a bag's messages.
    """

    rate: float | None
    live: bool
    frames: Callable[[], Iterator[tuple[int, Frame]]]
    problems: list[str] = dataclasses.field(default_factory=list)
    timed: bool = False
    recorded: bool = False


def open_feed(
    source: str, *, bag_topic: str = "", width: int = 0, height: int = 0, rate: float | None = None
) -> Feed:
    """Open a source by what it is: /dev/video*, an address such as rtsp://camera/1, a rosbag2
    folder or file, a folder, a video.

    A file of a rosbag2 folder stands for the whole bag; an .mcap of the recorder stands alone.

    width, height, rate: asked of a device; 0 and None leave them to it. A folder's pictures are
    stamped by `rate`, or FOLDER_RATE, from 0 on.
    Raises InputError for what does not exist or cannot be read, CameraLost for a device that
    does not answer.
    """
    path = Path(source)
    if is_network(source):
        return _network(source)
    if source.startswith("/dev/"):
        return _device(source, width, height, rate)
    if path.suffix in (".mcap", ".db3") or (path / "metadata.yaml").is_file():
        return _bag(path, bag_topic)
    files = open_source(path)
    folder_rate = rate or FOLDER_RATE

    def frames() -> Iterator[tuple[int, Frame]]:
        for item in files:
            frame = item.frame
            if files.rate is None:
                stamp_ns = round(frame.sequence * NANOSECONDS / folder_rate)
                frame = dataclasses.replace(frame, stamp_ns=stamp_ns)
            yield frame.stamp_ns, frame
        if files.broken_off:
            raise BrokenOff(files.problems[-1])

    rate_of_source = files.rate or FOLDER_RATE
    return Feed(rate_of_source, False, frames, files.problems, timed=files.is_video)


def _device(source: str, width: int, height: int, rate: float | None) -> Feed:
    if not Path(source).exists():
        raise CameraLost(f"{source}: no such device")

    def frames() -> Iterator[tuple[int, Frame]]:
        capture = cv2.VideoCapture(source, cv2.CAP_V4L2)
        try:
            if not capture.isOpened():
                raise CameraLost(f"{source}: cannot be opened as a V4L2 camera")
            wishes = (
                (cv2.CAP_PROP_FRAME_WIDTH, width),
                (cv2.CAP_PROP_FRAME_HEIGHT, height),
                (cv2.CAP_PROP_FPS, rate),
            )
            for setting, value in wishes:
                if value:
                    capture.set(setting, value)
            capture.set(cv2.CAP_PROP_BUFFERSIZE, 1)
            for sequence in itertools.count():
                ok, image = capture.read()
                if not ok:
                    raise CameraLost(f"{source}: gives no more pictures")
                yield 0, Frame(np.asarray(image, np.uint8), time.time_ns(), "", sequence)
        finally:
            capture.release()

    return Feed(None, True, frames)


def _network(url: str) -> Feed:
    problems: list[str] = []

    def frames() -> Iterator[tuple[int, Frame]]:
        try:
            for frame in pictures(url, problems):
                yield 0, frame
        except StreamLost as error:
            raise CameraLost(str(error)) from None

    return Feed(None, True, frames, problems)


def _bag(path: Path, topic: str) -> Feed:
    from perception.datasets.bags import Bag

    whole = path.parent if _of_rosbag2(path) else path
    kinds = ("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage")
    with Bag(whole) as bag:
        found = {name: kind.type for name, kind in bag.topics.items() if kind.type in kinds}
    chosen = [name for name in found if not topic or name == topic]
    names = ", ".join(sorted(found)) or "none"
    if not chosen:
        raise InputError(f"{path}: no image topic '{topic}'; image topics: {names}")
    if len(chosen) > 1:
        raise InputError(f"{path}: several image topics, choose one by bag_topic: {names}")
    problems: list[str] = []

    def frames() -> Iterator[tuple[int, Frame]]:
        from ros_nodes.convert import raw_compressed_frame, raw_image_frame

        problems.clear()
        decode = raw_image_frame if found[chosen[0]] == kinds[0] else raw_compressed_frame
        with Bag(whole) as bag:
            for sequence, message in enumerate(bag.messages(frozenset(chosen))):
                try:
                    yield message.log_time_ns, decode(message.data, sequence)
                except InputError as error:
                    problems.append(f"{path}: picture {sequence}: {error}")
            for fault in bag.report.findings:
                if fault.severity == "error":
                    problems.append(f"{bag.root / fault.file}: {fault.message}")
            if bag.truncated:
                raise BrokenOff(problems[-1])

    return Feed(None, False, frames, problems, timed=True, recorded=True)


def _of_rosbag2(path: Path) -> bool:
    return path.is_file() and (path.parent / "metadata.yaml").is_file()
