"""Viewer node: pictures with boxes as a topic, as markers and as a web page.

Nothing is received, decoded or drawn unless somebody looks: pictures and results are subscribed to
while `image_annotated`, `markers` or the page has an audience. Pictures are taken as raw bytes and
only those are decoded that are drawn, `max_rate` a second at most.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import cv2
import numpy as np
import numpy.typing as npt
from diagnostic_msgs.msg import DiagnosticArray
from lifecycle_msgs.srv import GetState
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.event_handler import QoSRequestedIncompatibleQoSInfo, SubscriptionEventCallbacks
from rclpy.qos import qos_policy_name_from_kind
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from vision_msgs.msg import Detection2DArray, LabelInfo
from visualization_msgs.msg import MarkerArray

from perception.detections import Detections
from perception.draw import draw, draw_banner
from perception.errors import InputError
from perception.frame import Frame
from perception.runtime.preprocess import as_three_channels
from ros_nodes import convert, qos, topics
from ros_nodes.cdr import read_stamp
from ros_nodes.diagnostics import ERROR, STALE, WARN, Ages, RateMeter, Status
from ros_nodes.lifecycle import WaysightNode, run
from ros_nodes.parameters import NodeParameters, parameter
from ros_nodes.web import state as web_state
from ros_nodes.web.markers import box_markers
from ros_nodes.web.pairing import Pairing
from ros_nodes.web.server import LatestPicture, WebServer

Picture = npt.NDArray[np.uint8]

_DEMAND_PERIOD = 0.2  # s between two looks at who is watching
_LIFECYCLE_PERIOD = 1.0  # s between two questions for the nodes' states
_NOTICE_PERIOD = 1.0  # s between two pictures that only say what is wrong
_MOST_NODES = 256  # names come from outside
_LOST_PATIENCE = 2.0  # s that a node may take to answer before it counts as gone


@dataclass(frozen=True)
class ViewerParameters(NodeParameters):
    """Parameters of the viewer node."""

    results: str = parameter(
        topics.TRACKS,
        "Topic whose boxes are drawn",
        choices=(topics.TRACKS, topics.DETECTIONS),
    )
    compressed: bool = parameter(False, "Subscribe to CompressedImage instead of Image")
    reliability: str = parameter(
        "best_effort",
        "QoS asked of cameras; best_effort takes pictures from reliable ones too",
        choices=("best_effort", "reliable"),
    )
    max_rate: float = parameter(
        15.0,
        "Pictures drawn a second at most",
        minimum=0.1,
        maximum=240.0,
        unit="Hz",
        applies="live",
    )
    silence: float = parameter(
        1.0,
        "Time without a picture or a result that is shown as a fault",
        minimum=0.1,
        maximum=60.0,
        unit="s",
    )
    buffer: int = parameter(
        64, "Pictures held until their result comes", minimum=1, maximum=4096, unit="MiB"
    )
    jpeg_quality: int = parameter(80, "Quality of JPEG pictures", minimum=1, maximum=100)
    web: bool = parameter(True, "Serve the web page")
    web_host: str = parameter(
        "127.0.0.1", "Address that the page is served on; 0.0.0.0 opens it to the network"
    )
    web_port: int = parameter(
        8600, "Port of the page; 0 takes a free one", minimum=0, maximum=65535
    )
    web_width: int = parameter(
        960, "Widest picture sent to the page", minimum=64, maximum=8192, unit="px"
    )
    marker_distance: float = parameter(
        1.0, "Distance before the camera at which markers stand", minimum=0.01, unit="m"
    )


class ViewerNode(WaysightNode[ViewerParameters]):
    """The executor's thread receives, one thread draws, each web client has its own."""

    default_name: ClassVar[str] = "viewer"
    parameters_type: ClassVar[type[NodeParameters]] = ViewerParameters

    def configure(self) -> None:
        """Create the publishers, listen to diagnostics and serve the page."""
        p = self.parameters
        self._pairing = Pairing(p.buffer * 2**20)
        self._index = convert.NameIndex()
        self._labels: tuple[str, ...] = ()
        self._info: CameraInfo | None = None
        self._marker_fault = ""
        self._shown = _Shown()
        self._ages = Ages()
        self._drawn_rate = RateMeter()
        self._inputs: dict[str, Callable[[], object]] = {}  # topic -> how to unsubscribe
        self._incompatible = ""
        self._stampless = False
        self._states: dict[str, tuple[Any, float]] = {}
        self._board = web_state.Board()
        self._latest = LatestPicture()
        reliable = qos.image_publisher("reliable")  # RViz asks for it; best effort is served too
        self._annotated = self.create_lifecycle_publisher(Image, topics.ANNOTATED, reliable)
        self._annotated_jpeg = self.create_lifecycle_publisher(
            CompressedImage, self.compressed_topic(topics.ANNOTATED), reliable
        )
        self._markers = self.create_lifecycle_publisher(MarkerArray, topics.MARKERS, qos.results())
        self._statuses = self.create_subscription(
            DiagnosticArray, topics.DIAGNOSTICS, self._on_diagnostics, 10
        )
        self._names = self.create_subscription(
            LabelInfo, topics.LABEL_INFO, self._on_labels, qos.latched()
        )
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._lifecycle_timer = self.create_timer(_LIFECYCLE_PERIOD, self._ask_states, clock=steady)
        if p.web:
            self._web = WebServer(p.web_host, p.web_port, self._page_state, self._latest)
            self._web.start()
            self.get_logger().info(f"page at {self._web.address}")

    def cleanup(self) -> None:
        """Close the page and give everything back."""
        web = self.__dict__.pop("_web", None)
        if web is not None:
            web.close()
        for client, _ in self.__dict__.pop("_states", {}).values():
            self.destroy_client(client)
        for names, destroy in (
            (("_annotated", "_annotated_jpeg", "_markers"), self.destroy_lifecycle_publisher),
            (("_statuses", "_names"), self.destroy_subscription),
            (("_lifecycle_timer",), self.destroy_timer),
        ):
            for name in names:
                entity = self.__dict__.pop(name, None)
                if entity is not None:
                    destroy(entity)

    def activate(self) -> None:
        """Start to draw, as soon as somebody looks."""
        self._stop = threading.Event()
        self._worker = threading.Thread(target=self._work, name="viewer", daemon=True)
        self._worker.start()
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._demand_timer = self.create_timer(_DEMAND_PERIOD, self._follow_demand, clock=steady)

    def deactivate(self) -> None:
        """Unsubscribe and stop drawing."""
        timer = self.__dict__.pop("_demand_timer", None)
        if timer is not None:
            self.destroy_timer(timer)
        worker = self.__dict__.pop("_worker", None)
        if worker is not None:
            self._stop.set()
            self._pairing.wake()
            worker.join(timeout=2.0)
        self._set_inputs({})

    def diagnostic_values(self) -> Mapping[str, Any]:
        """What was received and drawn."""
        return {
            "page": self._web.address if "_web" in self.__dict__ else "off",
            "watched": bool(self._inputs),
            "pictures": self._pairing.pictures,
            "results": self._pairing.results,
            "drawn": self._shown.drawn,
            "broken": self._shown.broken,
            "drawn_rate": f"{self._drawn_rate.rate(self._shown.drawn):.2f}",
            **self._ages.summary(),
        }

    def judge(self) -> Iterable[Status]:
        """What is wrong with the picture, as far as somebody looks at it."""
        levels = {web_state.STALE: STALE, web_state.ERROR: ERROR}
        for level, text in self._own_reasons():
            yield levels[level], text
        if self._stampless:
            yield WARN, "pictures carry stamp 0; boxes are drawn on the newest picture"
        if topics.CAMERA_INFO in self._inputs:
            if self._info is None:
                yield WARN, f"no markers: nothing on {topics.CAMERA_INFO} yet"
            elif self._marker_fault:
                yield WARN, self._marker_fault

    def _own_reasons(self) -> list[web_state.Reason]:
        reasons = []
        if self._incompatible:
            reasons.append((web_state.ERROR, self._incompatible))
        trouble = self._trouble()
        if trouble:
            reasons.append(trouble)
        return reasons

    def _trouble(self) -> web_state.Reason | None:
        """What stands between the viewer and a picture with its boxes; None: nothing."""
        if topics.IMAGE not in self._inputs:
            return None
        now, limit = time.monotonic(), self.parameters.silence
        silent = now - self._pairing.picture_heard
        if silent > limit:
            return web_state.STALE, f"no picture for {silent:.1f} s"
        if self._shown.fault:
            return web_state.ERROR, f"broken picture: {self._shown.fault}"
        silent = now - self._pairing.result_heard
        if silent > limit:
            return web_state.ERROR, f"no {self.parameters.results} for {silent:.1f} s"
        if now - self._pairing.matched > limit:
            return web_state.ERROR, f"{self.parameters.results} do not belong to these pictures"
        if self._shown.invalid:
            return web_state.ERROR, f"unusable result: {self._shown.invalid}"
        return None

    # Who is watching -------------------------------------------------------------------------

    def _follow_demand(self) -> None:
        """Subscribe to what is needed now, and to nothing else."""
        page = "_web" in self.__dict__ and self._latest.wanted
        audience = (
            self._annotated.get_subscription_count() + self._annotated_jpeg.get_subscription_count()
        )
        markers = self._markers.get_subscription_count() > 0
        wanted: dict[str, Callable[[], Callable[[], object]]] = {}
        if page or audience:
            wanted[topics.IMAGE] = self._subscribe_images
        if wanted or markers:
            wanted[self.parameters.results] = self._subscribe_results
        if markers:
            wanted[topics.CAMERA_INFO] = self._subscribe_info
        self._set_inputs(wanted)

    def _set_inputs(self, wanted: Mapping[str, Callable[[], Callable[[], object]]]) -> None:
        for topic in [topic for topic in self._inputs if topic not in wanted]:
            self._inputs.pop(topic)()
            if topic == topics.IMAGE:
                # The next one to look must not be shown what the last one saw.
                self._latest.clear()
                self._shown.forget()
        for topic, subscribe in wanted.items():
            if topic not in self._inputs:
                self._pairing.clear()  # silence counts from now
                self._incompatible = ""
                self._inputs[topic] = subscribe()

    def _subscribe_images(self) -> Callable[[], object]:
        p = self.parameters
        image = topics.IMAGE
        name = self.compressed_topic(image) if p.compressed else self.resolve_topic_name(image)
        if self.handover.offers(name):
            return self.handover.subscribe(name, self._on_frame)
        subscription = self.create_subscription(
            CompressedImage if p.compressed else Image,
            name,
            self._on_image,
            qos.image_subscription(p.reliability),
            raw=True,
            event_callbacks=self._events(name),
        )
        return partial(self.destroy_subscription, subscription)

    def _subscribe_results(self) -> Callable[[], object]:
        topic = self.parameters.results
        name = self.resolve_topic_name(topic)
        if self.handover.offers(name):
            return self.handover.subscribe(name, self._on_pair)
        subscription = self.create_subscription(
            Detection2DArray,
            topic,
            self._on_result,
            qos.image_subscription("best_effort"),
            raw=True,
            event_callbacks=self._events(topic),
        )
        return partial(self.destroy_subscription, subscription)

    def _subscribe_info(self) -> Callable[[], object]:
        subscription = self.create_subscription(
            CameraInfo, topics.CAMERA_INFO, self._on_info, qos.image_subscription()
        )
        return partial(self.destroy_subscription, subscription)

    def _events(self, topic: str) -> SubscriptionEventCallbacks:
        def incompatible(info: QoSRequestedIncompatibleQoSInfo) -> None:
            policy = qos_policy_name_from_kind(info.last_policy_kind)
            self._incompatible = (
                f"a publisher on {self.resolve_topic_name(topic)} offers an incompatible QoS "
                f"policy: {policy}"
            )
            self.get_logger().error(self._incompatible)
            self.diagnose_now()

        return SubscriptionEventCallbacks(
            incompatible_qos=incompatible, use_default_callbacks=False
        )

    # Receiving -------------------------------------------------------------------------------

    def _on_image(self, data: bytes) -> None:
        try:
            self._pairing.put_picture(read_stamp(data), data, len(data))
        except InputError as error:
            self._shown.fault = str(error)

    def _on_result(self, data: bytes) -> None:
        try:
            self._pairing.put_result(read_stamp(data), data)
        except InputError as error:
            self._shown.invalid = str(error)

    def _on_frame(self, frame: Frame) -> None:
        self._pairing.put_picture(frame.stamp_ns, frame, frame.image.nbytes)

    def _on_pair(self, item: tuple[Frame, Detections]) -> None:
        self._pairing.put_result(item[0].stamp_ns, item)

    def _on_labels(self, message: LabelInfo) -> None:
        self._labels = tuple(entry.class_name for entry in message.class_map)
        # Numbers, and so colours, are then those of the model and not of who appeared first.
        self._index = convert.NameIndex(self._labels)

    def _on_info(self, message: CameraInfo) -> None:
        self._info = message
        self._marker_fault = ""

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            level = status.level[0] if isinstance(status.level, bytes) else int(status.level)
            values = {value.key: value.value for value in status.values}
            self._board.hear(status.name, level, status.message, values)

    # Lifecycle states ------------------------------------------------------------------------

    def _ask_states(self) -> None:
        """Ask every managed node for its state while the page is open."""
        if not self._latest.wanted:
            return
        now = time.monotonic()
        suffix, kind = "/get_state", "lifecycle_msgs/srv/GetState"
        for service, kinds in self.get_service_names_and_types():
            name = service.removesuffix(suffix)
            known = name in self._states or len(self._states) >= _MOST_NODES
            if name != service and kind in kinds and not known:
                self._states[name] = (self.create_client(GetState, service), now)
        for name, (client, answered) in self._states.items():
            if now - answered > _LOST_PATIENCE:
                self._board.set_lifecycle(name, "not answering")
            if client.service_is_ready():
                client.call_async(GetState.Request()).add_done_callback(
                    lambda future, name=name: self._on_state(name, future)
                )

    def _on_state(self, name: str, future: Any) -> None:
        if future.cancelled() or future.exception() is not None or name not in self._states:
            return
        self._states[name] = (self._states[name][0], time.monotonic())
        self._board.set_lifecycle(name, future.result().current_state.label)

    # Drawing ---------------------------------------------------------------------------------

    def _work(self) -> None:
        noticed, seen = 0.0, 0
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                if not self._draw_newest() and began - noticed > _NOTICE_PERIOD:
                    noticed = began
                    self._draw_notice()
            except Exception as error:
                # One picture that cannot be drawn must not end the view of the next.
                self._shown.fault = f"{type(error).__name__}: {error}"
                self._shown.broken += 1
                self.get_logger().error(self._shown.fault, throttle_duration_sec=5.0)
            self._stop.wait(max(0.0, 1.0 / self.parameters.max_rate - (time.monotonic() - began)))
            seen = self._pairing.wait(seen, timeout=0.5)

    def _draw_newest(self) -> bool:
        """Draw the newest result that has not been shown; False when there is none."""
        if topics.CAMERA_INFO in self._inputs:
            self._publish_markers()
        if topics.IMAGE not in self._inputs:
            return False
        pair = self._pairing.newest(self._shown.result)
        if pair is None:
            return False
        self._shown.result = pair.result
        if not pair.stamp_ns:
            self._stampless = True
        try:
            frame = self._decode_picture(pair.picture)
            _, detections, names = self._decode_result(pair.result)
        except InputError as error:
            self._shown.fault = str(error)
            self._shown.broken += 1
            return False
        self._shown.fault = ""
        self._shown.invalid = "" if detections.valid else detections.reason
        canvas = draw(_bgr(frame), detections, names, copy=not _owned(frame))
        self._give_out(canvas, frame)
        self._shown.note(frame, len(detections) if detections.valid else None)
        if frame.stamp_ns:
            self._ages.add((self.get_clock().now().nanoseconds - frame.stamp_ns) * 1e-6)
        return True

    def _draw_notice(self) -> None:
        """Say on the picture itself what is wrong with it."""
        trouble = self._trouble()
        if trouble is None:
            return
        pair = self._pairing.newest_picture()
        frame = None
        if pair is not None:
            try:
                frame = self._decode_picture(pair.picture)
            except InputError as error:
                self._shown.fault = str(error)
        if frame is None:
            canvas = np.zeros((480, 640, 3), np.uint8)
            draw_banner(canvas, trouble[1].upper())
            self._put_page(canvas)
            return
        canvas = _bgr(frame).copy()
        if trouble[0] == web_state.STALE:
            canvas //= 3  # an old picture must not look like a live one
            self._shown.objects = None
        else:
            self._shown.note(frame, None)
        draw_banner(canvas, trouble[1].upper())
        self._give_out(canvas, frame)

    def _decode_picture(self, picture: bytes | Frame) -> Frame:
        if isinstance(picture, Frame):
            return picture
        if self.parameters.compressed:
            return convert.raw_compressed_frame(picture)
        return convert.raw_image_frame(picture)

    def _decode_result(
        self, result: bytes | tuple[Frame, Detections]
    ) -> tuple[Frame, Detections, tuple[str, ...]]:
        if isinstance(result, tuple):
            return *result, self._labels
        index = self._index  # the executor's thread may replace it meanwhile
        frame, detections = convert.read_raw_detections(result, index)
        return frame, detections, tuple(index.names)

    def _give_out(self, canvas: Picture, frame: Frame) -> None:
        annotated = Frame(canvas, frame.stamp_ns, frame.frame_id, frame.sequence, "bgr")
        if self._annotated.get_subscription_count():
            self._annotated.publish(convert.raw_image_message(annotated))
        if self._annotated_jpeg.get_subscription_count():
            quality = self.parameters.jpeg_quality
            self._annotated_jpeg.publish(convert.compressed_message(annotated, quality))
        self._put_page(canvas)

    def _put_page(self, canvas: Picture) -> None:
        if not self._latest.wanted:
            return
        height, width = canvas.shape[:2]
        widest = self.parameters.web_width
        if width > widest:
            size = (widest, max(1, round(height * widest / width)))
            canvas = np.asarray(cv2.resize(canvas, size, interpolation=cv2.INTER_AREA), np.uint8)
        quality = [cv2.IMWRITE_JPEG_QUALITY, self.parameters.jpeg_quality]
        done, encoded = cv2.imencode(".jpg", canvas, quality)
        if done:
            self._latest.put(encoded.tobytes())

    def _publish_markers(self) -> None:
        newest, info = self._pairing.newest_result(), self._info
        if newest is None or newest is self._shown.marked or info is None:
            return
        self._shown.marked = newest
        try:
            frame, detections, names = self._decode_result(newest)
            distance = self.parameters.marker_distance
            self._markers.publish(box_markers(detections, names, frame, info, distance))
        except InputError as error:
            self._marker_fault = f"no markers: {error}"

    def _page_state(self) -> dict[str, Any]:
        """Content of /api/state; called in a web client's thread."""
        shown, trouble = self._shown, self._trouble()
        watched = topics.IMAGE in self._inputs
        age = time.monotonic() - self._pairing.picture_heard if watched else None
        picture = {
            "trouble": trouble[1] if trouble else ("" if shown.known else "waiting for a picture"),
            "frame_id": shown.frame_id,
            "width": shown.width,
            "height": shown.height,
            "stamp": shown.stamp,
            "age_s": None if age is None else round(age, 2),
            "objects": shown.objects,
            "rate": round(shown.rate(), 2),
        }
        own = self._own_reasons() if watched else []
        return self._board.snapshot(own, picture, self.get_fully_qualified_name())


class _Shown:
    """What was drawn last."""

    def __init__(self) -> None:
        self.broken = 0
        self.drawn = 0
        self.forget()

    def forget(self) -> None:
        """Nothing is on show any more; the counters go on."""
        self.result: Any = None  # the one that was drawn
        self.marked: Any = None  # the one that markers were made of
        self.known = False
        self.fault = ""  # why the last picture could not be read
        self.invalid = ""  # why the last result says nothing
        self.frame_id = ""
        self.stamp = ""
        self.width = self.height = 0
        self.objects: int | None = None
        self._times: deque[float] = deque(maxlen=30)

    def note(self, frame: Frame, objects: int | None) -> None:
        """A picture went out, with so many objects; None: they are not known."""
        self.known = True
        self.drawn += 1
        self._times.append(time.monotonic())
        self.frame_id = frame.frame_id
        sec, nanosec = divmod(frame.stamp_ns, 10**9)
        self.stamp = f"{sec}.{nanosec:09d}"
        self.height, self.width = frame.image.shape[:2]
        self.objects = objects

    def rate(self) -> float:
        """Pictures a second over the last two seconds."""
        now = time.monotonic()
        times = [moment for moment in list(self._times) if now - moment < 2.0]
        return len(times) / 2.0 if len(times) < 2 else (len(times) - 1) / (now - times[0])


def _bgr(frame: Frame) -> Picture:
    pixels = as_three_channels(frame.image)
    if frame.color == "rgb" and frame.image.ndim == 3:
        pixels = np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), np.uint8)
    return pixels


def _owned(frame: Frame) -> bool:
    """Whether drawing needs no copy: the pixels were converted and belong to nobody else."""
    return frame.color == "rgb" and frame.image.ndim == 3


def main() -> None:
    """Run the viewer as a process of its own."""
    sys.exit(run([ViewerNode]))


if __name__ == "__main__":
    main()
