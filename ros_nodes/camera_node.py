"""Camera: a video, pictures, a device, a network camera or a bag to Image and CameraInfo."""

from __future__ import annotations

import itertools
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rclpy.qos import QoSProfile
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, CompressedImage, Image

from perception.errors import InputError
from perception.frame import Frame
from ros_nodes import qos, topics
from ros_nodes.calibration import fit, read_calibration
from ros_nodes.camera_sources import BrokenOff, CameraLost, Feed, open_feed
from ros_nodes.convert import compressed_message, header, raw_image_message, ros_time
from ros_nodes.diagnostics import ERROR, WARN, RateMeter, Status
from ros_nodes.lifecycle import EXIT_FAILED, WaysightNode, run
from ros_nodes.parameters import NodeParameters, parameter

FRAME_ID = "camera_optical_frame"
REOPEN_SECONDS = 1.0
SUBSCRIBER_PATIENCE = 30.0
"""Seconds to wait for `wait_subscribers` before starting without them."""
SETTLE_SECONDS = 0.5
"""Between the last awaited subscriber and the first picture: discovery ends on both sides."""

BURST_SECONDS = 0.1
"""How far behind a bag's times pictures may be that were recorded in bursts."""


@dataclass(frozen=True)
class CameraParameters(NodeParameters):
    """Parameters of the camera node."""

    source: str = parameter(
        "",
        "Video file, picture folder, rosbag2 bag, MCAP file, device such as /dev/video0, or camera "
        "on the network such as rtsp://name:password@host/path (rtsp, http, tcp, udp)",
    )
    bag_topic: str = parameter("", "Image topic of a bag that has several")
    rate: float | None = parameter(
        None,
        "Pictures a second; unset: the source's own, which for a video is the times of its frames "
        "and for a bag its times of recording",
        minimum=0.1,
        maximum=10_000.0,
        unit="Hz",
        applies="live",
    )
    loop: bool = parameter(False, "Begin again at the end of a file, folder or bag")
    preload: int = parameter(
        0,
        "Pictures to decode before starting and to repeat from memory, so that decoding takes no "
        "time from the others; 0: decode while running",
        minimum=0,
        maximum=1000,
    )
    width: int = parameter(0, "Width asked of a device; 0: its own", minimum=0, unit="pixels")
    height: int = parameter(0, "Height asked of a device; 0: its own", minimum=0, unit="pixels")
    frame_id: str = parameter(
        "", f"Optical frame in every header (REP 103); empty: the bag's own, elsewhere {FRAME_ID}"
    )
    calibration: str = parameter("", "Calibration YAML of camera_calibration; empty: uncalibrated")
    format: str = parameter(
        "raw", "Which image topics to publish", choices=("raw", "compressed", "both")
    )
    jpeg_quality: int = parameter(90, "Of compressed pictures", minimum=1, maximum=100)
    reliability: str = parameter(
        "best_effort", "QoS of the image topics", choices=("best_effort", "reliable")
    )
    depth: int = parameter(
        qos.IMAGE_DEPTH, "QoS history depth of the image topics", minimum=1, maximum=1000
    )
    stamps: str = parameter(
        "now", "Time in the headers: of publication, or the source's own", choices=("now", "source")
    )
    publish_clock: bool = parameter(
        False,
        "Publish /clock from a bag's times of recording, for nodes with use_sim_time; needs stamps "
        "to be 'source'",
    )
    wait_subscribers: int = parameter(
        0, "Subscribers of the image topic to wait for before the first picture", minimum=0
    )
    exit_at_end: bool = parameter(False, "End the process after the last picture")

    def __post_init__(self) -> None:
        if not self.source:
            raise InputError(
                "parameter 'source': got '', expected a video, folder, bag, device or address"
            )
        if self.publish_clock and self.stamps != "source":
            raise InputError(
                f"parameter 'publish_clock': got true with stamps '{self.stamps}', expected stamps "
                "'source', because pictures stamped now do not fit the clock of a bag"
            )


class CameraNode(WaysightNode[CameraParameters]):
    """Publishes pictures at their times, or at a rate, from a thread of its own."""

    default_name = "camera"
    parameters_type = CameraParameters

    def configure(self) -> None:
        """Open the source and read the calibration."""
        p = self.parameters
        self._calibration = read_calibration(p.calibration) if p.calibration else CameraInfo()
        self._fitted: CameraInfo | None = None
        self._fitted_size = (0, 0)
        self._unfit = ""  # why there is no camera_info for the pictures that come
        self._feed: Feed | None = None
        self._sent = 0
        self._late = 0
        self._trouble = ""
        self._ended = False
        try:
            self._open()
        except CameraLost as error:  # a device may be plugged in later
            self._complain(str(error))
        self._meter = RateMeter()
        self._image_qos = qos.image_publisher(p.reliability, p.depth)
        self._info = self.create_lifecycle_publisher(
            CameraInfo, topics.CAMERA_INFO, qos.results(100)
        )
        self._raw = self._publisher(Image, topics.IMAGE, "compressed")
        self._compressed = self._publisher(
            CompressedImage, self.compressed_topic(topics.IMAGE), "raw"
        )
        self._clock_out = (
            self.create_publisher(Clock, topics.CLOCK, qos.results(1)) if p.publish_clock else None
        )
        self._image_topic = self.resolve_topic_name(topics.IMAGE)
        self.handover.announce(self._image_topic)

    def _publisher(self, kind: type, topic: str, unless: str) -> Any:
        if self.parameters.format == unless:
            return None
        profile: QoSProfile = self._image_qos
        return self.create_lifecycle_publisher(kind, topic, profile)

    def cleanup(self) -> None:
        """Give the publishers back."""
        for name in ("_info", "_raw", "_compressed"):
            publisher = self.__dict__.pop(name, None)
            if publisher is not None:
                self.destroy_lifecycle_publisher(publisher)
        clock = self.__dict__.pop("_clock_out", None)
        if clock is not None:
            self.destroy_publisher(clock)

    def activate(self) -> None:
        """Start the thread that reads and publishes."""
        self._ended = False
        # The thread's own: one that was left in a blocked read must not go on with the next one.
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(self._stop,), name="camera", daemon=True
        )
        self._thread.start()

    def deactivate(self) -> None:
        """Stop the thread."""
        thread = self.__dict__.pop("_thread", None)
        if thread is not None:
            self._stop.set()
            thread.join(timeout=2.0)

    def last_words(self) -> None:
        """Stop first, so that the last diagnostics hold the final count."""
        self.deactivate()

    def diagnostic_values(self) -> Mapping[str, Any]:
        """Counters for /diagnostics."""
        return {
            "sent": self._sent,
            "late": self._late,
            "rate": f"{self._meter.rate(self._sent):.2f}",
            "unreadable": len(self._feed.problems) if self._feed else 0,
            "ended": self._ended,
        }

    def judge(self) -> Iterable[Status]:
        """What is wrong at present."""
        if self._trouble:
            yield ERROR, self._trouble
        if self._unfit:
            yield ERROR, f"no {topics.CAMERA_INFO}: {self._unfit}"
        if self._feed and self._feed.problems:
            yield WARN, self._feed.problems[-1]

    # The thread ------------------------------------------------------------------------------

    def _open(self) -> Feed:
        p = self.parameters
        self._feed = open_feed(
            p.source, bag_topic=p.bag_topic, width=p.width, height=p.height, rate=p.rate
        )
        if p.publish_clock and not self._feed.recorded:
            raise InputError(f"parameter 'publish_clock': {p.source} is no bag, expected a bag")
        return self._feed

    def _run(self, stop: threading.Event) -> None:
        try:
            self._wait_for_subscribers(stop)
            while not stop.is_set():
                try:
                    self._play(self._feed or self._open(), stop)
                    break
                except CameraLost as error:
                    self._complain(str(error))
                    self._feed = None
                    stop.wait(REOPEN_SECONDS)
        except BrokenOff as error:
            self._trouble = f"{error}; pictures sent: {self._sent}"
        except Exception as error:
            if stop.is_set():
                return  # what it works with may be gone
            self._ended = True
            self._complain(f"camera stopped: {error}")
            if isinstance(error, InputError):
                self.fail(error)
            else:
                self.get_logger().error(traceback.format_exc())
                self.finish(EXIT_FAILED)
            return
        if not stop.is_set():
            self._ended = True
            self._end()

    def _end(self) -> None:
        """Say how it ended; no picture at all, or a broken file to be repeated, is bad input."""
        p = self.parameters
        if not self._sent and not self._trouble:
            problems = self._feed.problems if self._feed else []
            self._trouble = f"{p.source}: no picture sent" + "".join(
                f": {x}" for x in problems[-1:]
            )
        self.diagnose_now()
        if p.exit_at_end and self._trouble and (p.loop or not self._sent):
            self.fail(InputError(self._trouble))
            return
        if self._trouble:
            self.get_logger().error(self._trouble)
        self.get_logger().info(f"end of {p.source}: {self._sent} pictures sent")
        if p.exit_at_end:
            self.finish()

    def _complain(self, text: str) -> None:
        self._trouble = text
        self.get_logger().error(text, throttle_duration_sec=5.0)

    def _wait_for_subscribers(self, stop: threading.Event) -> None:
        wanted = self.parameters.wait_subscribers
        deadline = time.monotonic() + SUBSCRIBER_PATIENCE
        publisher = self._raw or self._compressed
        while publisher.get_subscription_count() < wanted:
            if time.monotonic() > deadline:
                self._complain(f"started without the {wanted} subscribers waited for")
                return
            if stop.wait(0.05):
                return
        if wanted:
            stop.wait(SETTLE_SECONDS)

    def _play(self, feed: Feed, stop: threading.Event) -> None:
        """Publish every picture at its time; a late one moves the following ones back."""
        due, period = time.monotonic(), 0.0
        before_ns: int | None = None
        for time_ns, frame in self._endless(feed):
            if before_ns is not None:
                period = self._period(feed, time_ns - before_ns, period)
                due += period
            before_ns = time_ns
            wait = due - time.monotonic()
            if wait > 0 and stop.wait(wait):
                return
            if stop.is_set():
                return
            if period and wait < -self._patience(feed, period):
                self._late += 1
                due -= wait
            if self._clock_out:
                self._clock_out.publish(Clock(clock=ros_time(time_ns)))
            self._publish(frame)
            self._trouble = ""

    def _period(self, feed: Feed, step_ns: int, last: float) -> float:
        """Seconds to a picture that comes `step_ns` after the one before it in the source."""
        if feed.live:
            return 0.0
        rate = self.parameters.rate or (None if feed.timed else feed.rate)
        if rate:
            return 1.0 / rate
        # Where the source begins again, the last period is as good as any.
        return step_ns / 1e9 if step_ns >= 0 else last

    def _patience(self, feed: Feed, period: float) -> float:
        """Seconds that a picture may be behind before the following ones are moved back."""
        if feed.recorded:
            return BURST_SECONDS
        if self.parameters.rate or not feed.rate:
            return period
        # In an irregular video a period may be shorter than it takes to decode a picture.
        return max(period, 1.0 / feed.rate)

    def _endless(self, feed: Feed) -> Iterator[tuple[int, Frame]]:
        p = self.parameters
        if p.preload and not feed.live:
            held = list(itertools.islice(feed.frames(), p.preload))
            yield from itertools.cycle(held) if p.loop else held
            return
        while True:
            before = self._sent
            yield from feed.frames()
            if not p.loop or self._sent == before:
                return

    def _publish(self, frame: Frame) -> None:
        p = self.parameters
        now = self.get_clock().now().nanoseconds
        stamp = frame.stamp_ns if p.stamps == "source" else now
        frame = replace(frame, stamp_ns=stamp, frame_id=p.frame_id or frame.frame_id or FRAME_ID)
        self._fit(frame.size)
        self.handover.send(self._image_topic, frame)
        # Nothing is serialised for nobody.
        if self._raw and self._raw.get_subscription_count():
            self._raw.publish(raw_image_message(frame))
        if self._compressed and self._compressed.get_subscription_count():
            self._compressed.publish(compressed_message(frame, p.jpeg_quality))
        if self._fitted and self._info.get_subscription_count():
            self._fitted.header = header(frame)
            self._info.publish(self._fitted)
        self._sent += 1

    def _fit(self, size: tuple[int, int]) -> None:
        """Make the calibration fit pictures of this size; InputError if the first ones do not.

        Where later ones do not, there is no calibration for them.
        """
        if size == self._fitted_size:
            return
        self._fitted, self._unfit = None, ""
        try:
            self._fitted = fit(self._calibration, *size)
        except InputError as error:
            if not self._sent:
                raise
            self._unfit = str(error)
            self.get_logger().error(f"no {topics.CAMERA_INFO}: {error}")
        self._fitted_size = size


def main() -> None:
    """Run the node until it is told to stop."""
    sys.exit(run([CameraNode]))


if __name__ == "__main__":
    main()
