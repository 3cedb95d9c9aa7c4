"""Tracker node: `detections` in, the same detections with ids out on `tracks`.

Every Detection2D comes back once, in its order and with its box and score; `id` is filled where it
belongs to a track and empty where it does not, and the class is the one that the whole track votes
for. The header is the picture's, unchanged.

vision_msgs has no place for a velocity: `pose` of a hypothesis is a pose, and RViz and others show
it as one. Velocities therefore travel beside the tracks on `track_velocities`, a PointCloud2 with
the same header and one point for each track: fields id (int32), x, y (float32, box centre in
pixels), vx, vy (float32, pixels a second; NaN: not known yet). It is made only when subscribed to.
"""

from __future__ import annotations

import array
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from rclpy.event_handler import QoSRequestedIncompatibleQoSInfo, SubscriptionEventCallbacks
from rclpy.qos import ReliabilityPolicy
from sensor_msgs.msg import PointCloud2, PointField
from vision_msgs.msg import Detection2DArray, LabelInfo

from perception.detections import UNTRACKED, Detections
from perception.errors import InputError
from perception.frame import Frame
from perception.tracking import Tracker, TrackerSettings, Tracks
from ros_nodes import convert, qos, topics
from ros_nodes.cdr import write_detections
from ros_nodes.diagnostics import ERROR, WARN, Ages, Counters, RateMeter, Status
from ros_nodes.lifecycle import WaysightNode, run
from ros_nodes.parameters import NodeParameters, parameter

_DEFAULTS = TrackerSettings()
_MOST_CAMERAS = 64  # frame_ids come from outside; each gets a tracker, so they are counted

VELOCITY_POINT = np.dtype([("id", "<i4"), ("x", "<f4"), ("y", "<f4"), ("vx", "<f4"), ("vy", "<f4")])
_VELOCITY_FIELDS = [
    PointField(
        name=name,
        offset=VELOCITY_POINT.fields[name][1],  # type: ignore[index]
        datatype=PointField.INT32 if name == "id" else PointField.FLOAT32,
        count=1,
    )
    for name in VELOCITY_POINT.names or ()
]


@dataclass(frozen=True)
class TrackerParameters(NodeParameters):
    """Parameters of the tracker node."""

    retention: float = parameter(
        _DEFAULTS.retention,
        "Time that a track outlives its last detection",
        minimum=0.001,
        maximum=60.0,
        unit="s",
        applies="live",
    )
    high_threshold: float = parameter(
        _DEFAULTS.high_threshold,
        "Score from which a detection is matched in the first stage",
        minimum=0.0,
        maximum=1.0,
        applies="live",
    )
    low_threshold: float = parameter(
        _DEFAULTS.low_threshold,
        "Score from which a detection can keep a track alive in the second stage",
        minimum=0.0,
        maximum=1.0,
        applies="live",
    )
    start_threshold: float = parameter(
        _DEFAULTS.start_threshold,
        "Score from which a detection starts a track",
        minimum=0.0,
        maximum=1.0,
        applies="live",
    )
    input_reliability: str = parameter(
        "reliable",
        "Reliability asked of the publisher of detections",
        choices=("reliable", "best_effort"),
    )
    silence: float = parameter(
        1.0, "Time without detections that is an error", minimum=0.05, maximum=60.0, unit="s"
    )

    def __post_init__(self) -> None:
        self.settings()

    def settings(self) -> TrackerSettings:
        """The tracker's own settings; raises InputError when they contradict each other."""
        try:
            return TrackerSettings(
                retention=self.retention,
                high_threshold=self.high_threshold,
                low_threshold=self.low_threshold,
                start_threshold=self.start_threshold,
            )
        except ValueError as error:
            raise InputError(str(error)) from None


class TrackerNode(WaysightNode[TrackerParameters]):
    """One tracker for each camera, told apart by frame_id."""

    default_name: ClassVar[str] = "tracker"
    parameters_type: ClassVar[type[NodeParameters]] = TrackerParameters

    def configure(self) -> None:
        """Create the publishers; trackers are made as cameras appear."""
        self._lock = threading.Lock()  # results may be handed over in the detector's thread
        self._counters = Counters()
        self._ages = Ages()
        self._rate = RateMeter()
        self._index = convert.NameIndex()
        self._labels: tuple[str, ...] = ()  # of detections that are handed over in the process
        self._trackers: dict[str, Tracker] = {}
        self._last: Tracks | None = None
        self._heard = time.monotonic()
        self._incompatible = ""
        self._refused = ""  # of more cameras than there may be, the last one
        self._stampless = False
        self._tracks = self.create_lifecycle_publisher(
            Detection2DArray, topics.TRACKS, qos.results()
        )
        self._velocities = self.create_lifecycle_publisher(
            PointCloud2, topics.TRACK_VELOCITIES, qos.results()
        )
        self._tracks_topic = self.resolve_topic_name(topics.TRACKS)
        self.handover.announce(self._tracks_topic)

    def cleanup(self) -> None:
        """Give the publishers back."""
        for name in ("_tracks", "_velocities"):
            publisher = self.__dict__.pop(name, None)
            if publisher is not None:
                self.destroy_lifecycle_publisher(publisher)

    def activate(self) -> None:
        """Subscribe; results of a node in this process come by reference, without DDS."""
        self._heard = time.monotonic()
        self._names = self.create_subscription(
            LabelInfo, topics.LABEL_INFO, self._on_labels, qos.latched()
        )
        topic = self.resolve_topic_name(topics.DETECTIONS)
        if self.handover.offers(topic):
            self._leave: Callable[[], object] = self.handover.subscribe(topic, self._on_handover)
            return
        profile = qos.results()
        profile.reliability = ReliabilityPolicy[self.parameters.input_reliability.upper()]
        subscription = self.create_subscription(
            Detection2DArray,
            topics.DETECTIONS,
            self._on_message,
            profile,
            event_callbacks=SubscriptionEventCallbacks(
                incompatible_qos=self._on_incompatible,
                message_lost=lambda info: self._counters.add(lost=info.total_count_change),
                use_default_callbacks=False,
            ),
            raw=True,
        )
        self._leave = partial(self.destroy_subscription, subscription)

    def deactivate(self) -> None:
        """Unsubscribe; what was seen before a pause is no part of what comes after."""
        leave = self.__dict__.pop("_leave", None)
        if leave is not None:
            leave()
        names = self.__dict__.pop("_names", None)
        if names is not None:
            self.destroy_subscription(names)
        with self._lock:
            self._trackers.clear()
            self._refused = ""

    def apply(self, new: TrackerParameters, changed: frozenset[str]) -> None:
        """Hand new thresholds to the running trackers."""
        for tracker in getattr(self, "_trackers", {}).values():
            tracker.settings = new.settings()

    def diagnostic_values(self) -> Mapping[str, Any]:
        """Counters, ages and the state of the tracks."""
        last = self._last
        return {
            **self._counters.snapshot(),
            "rate": f"{self._rate.rate(self._counters.processed):.2f}",
            "tracks": int((last.ids != UNTRACKED).sum()) if last else 0,
            "untracked": int((last.ids == UNTRACKED).sum()) if last else 0,
            "hidden": len(last.lost) if last else 0,
            "late": sum(tracker.late for tracker in self._trackers.values()),
            "time_jumps": sum(tracker.resets for tracker in self._trackers.values()),
            "cameras": len(self._trackers),
            **self._ages.summary(),
        }

    def judge(self) -> Iterable[Status]:
        """What is wrong at present."""
        if self._incompatible:
            yield ERROR, self._incompatible
        silence = time.monotonic() - self._heard
        if "_leave" in self.__dict__ and silence > self.parameters.silence:
            yield ERROR, f"no detections for {silence:.1f} s"
        if self._last is not None and not self._last.valid:
            yield ERROR, f"last detections unusable: {self._last.detections.reason}"
        if self._refused:
            yield ERROR, self._refused
        if self._stampless:
            yield WARN, "detections carry stamp 0; tracked by time of arrival"

    # Callbacks -------------------------------------------------------------------------------

    def _on_message(self, message: bytes) -> None:
        with self._lock:
            try:
                frame, detections = convert.read_raw_detections(message, self._index)
            except InputError as error:
                self._counters.add(received=1, invalid=1)
                self.get_logger().error(f"{topics.DETECTIONS}: {error}", throttle_duration_sec=5.0)
                return
            self._take(frame, detections, self._index.names)

    def _on_handover(self, item: tuple[Frame, Detections]) -> None:
        frame, detections = item
        with self._lock:
            self._take(frame, detections, self._labels)

    def _on_labels(self, message: LabelInfo) -> None:
        self._labels = tuple(entry.class_name for entry in message.class_map)

    def _on_incompatible(self, info: QoSRequestedIncompatibleQoSInfo) -> None:
        self._incompatible = (
            f"a publisher of {topics.DETECTIONS} does not offer {info.last_policy_kind.name} as "
            f"asked: set input_reliability to 'best_effort'"
        )
        self.get_logger().error(self._incompatible)
        self.diagnose_now()

    # Work ------------------------------------------------------------------------------------

    def _take(self, frame: Frame, detections: Detections, names: Sequence[str]) -> None:
        self._counters.add(received=1)
        self._heard = time.monotonic()
        tracker = self._tracker_of(frame.frame_id)
        if tracker is None:
            self._counters.add(dropped=1)
            return
        if detections.valid and detections.invalid_rows:
            # The others would look like all that there is.
            reason = f"{detections.invalid_rows} of their rows cannot be used"
            detections = Detections.failed(reason, invalid_rows=detections.invalid_rows)
        tracks = tracker.update(detections, self._time_of(frame))
        self._last = tracks
        voted = tracks.voted()
        self.handover.send(self._tracks_topic, (frame, voted))
        if not tracks.valid:
            self._counters.add(invalid=1)
            return
        if self._tracks.get_subscription_count():
            if len(voted) and voted.labels.max() >= len(names):
                # The latched LabelInfo that names them comes a moment after a start or a new model.
                self._counters.add(dropped=1)
                return
            self._tracks.publish(write_detections(voted, frame, names))
        if self._velocities.get_subscription_count():
            self._velocities.publish(velocity_message(tracks.detections, frame))
        self._counters.add(processed=1)
        if frame.stamp_ns:
            self._ages.add((self.get_clock().now().nanoseconds - frame.stamp_ns) * 1e-6)

    def _tracker_of(self, frame_id: str) -> Tracker | None:
        tracker = self._trackers.get(frame_id)
        if tracker is None:
            if len(self._trackers) >= _MOST_CAMERAS:
                self._refused = (
                    f"more than {_MOST_CAMERAS} frame_ids on {topics.DETECTIONS}: "
                    f"'{frame_id}' is not tracked"
                )
                self.get_logger().error(self._refused, once=True)
                return None
            tracker = Tracker(self.parameters.settings(), log=self.get_logger().warning)
            self._trackers[frame_id] = tracker
        return tracker

    def _time_of(self, frame: Frame) -> int:
        """The picture's time; of a picture without one, the time of arrival."""
        if frame.stamp_ns:
            return frame.stamp_ns
        if not self._stampless:
            self._stampless = True
            self.get_logger().warning(
                f"{topics.DETECTIONS} carries stamp 0: passed on as it is, tracked by time of "
                "arrival"
            )
        return self.get_clock().now().nanoseconds


def velocity_message(tracks: Detections, frame: Frame) -> PointCloud2:
    """The velocities of the tracked rows as described at the top of this file."""
    tracked = tracks[tracks.track_ids != UNTRACKED]
    points = np.empty(len(tracked), VELOCITY_POINT)
    points["id"] = tracked.track_ids
    points["x"] = tracked.boxes[:, [0, 2]].mean(axis=1)
    points["y"] = tracked.boxes[:, [1, 3]].mean(axis=1)
    points["vx"], points["vy"] = tracked.velocities.T
    message = PointCloud2(
        header=convert.header(frame),
        height=1,
        width=len(points),
        fields=_VELOCITY_FIELDS,
        is_bigendian=False,
        point_step=VELOCITY_POINT.itemsize,
        row_step=VELOCITY_POINT.itemsize * len(points),
        is_dense=bool(np.isfinite(tracked.velocities).all()),
    )
    message.data = array.array("B", points.tobytes())
    return message


def main() -> None:
    """Run the tracker as a process of its own."""
    sys.exit(run([TrackerNode]))


if __name__ == "__main__":
    main()
