"""Detector: pictures of one or several cameras to Detection2DArray."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rclpy.event_handler import (
    PublisherEventCallbacks,
    QoSRequestedIncompatibleQoSInfo,
    SubscriptionEventCallbacks,
)
from rclpy.qos import qos_policy_name_from_kind
from sensor_msgs.msg import CompressedImage, Image
from std_srvs.srv import SetBool
from vision_msgs.msg import Detection2DArray, LabelInfo

from perception.detections import Detections
from perception.errors import InputError
from perception.frame import Frame
from perception.runtime.detector import Detector
from perception.runtime.session import PROVIDERS
from ros_nodes import qos, topics
from ros_nodes.cdr import read_stamp, write_detections
from ros_nodes.convert import label_info, raw_compressed_frame, raw_image_frame
from ros_nodes.detector_model import ModelSlot
from ros_nodes.diagnostics import ERROR, WARN, Ages, Counters, GapCounter, RateMeter, Status
from ros_nodes.inbox import Inbox
from ros_nodes.lifecycle import WaysightNode, run
from ros_nodes.parameters import NodeParameters, parameter

LOG_SECONDS = 5.0
"""Least time between two log lines about the same trouble."""


@dataclass(frozen=True)
class DetectorParameters(NodeParameters):
    """Parameters of the detector node."""

    model: str = parameter(
        "road-n", "Shipped model or path of an ONNX file; a new one is swapped in", applies="live"
    )
    contract: str = parameter("", "YAML declaration for a model file without one inside")
    device: str = parameter("cpu", "Where the network runs", choices=tuple(PROVIDERS))
    allow_fallback: bool = parameter(False, "Run on the CPU when the device is missing")
    workers: int = parameter(
        2,
        "Pictures worked on at once; results keep their order",
        minimum=1,
        maximum=16,
    )
    threads: int = parameter(
        0,
        "Threads of the network in each worker; 0: the cores shared out among the workers",
        minimum=0,
        maximum=256,
    )
    score_threshold: float | None = parameter(
        None, "Least score; unset: the model's own", minimum=0.0, maximum=1.0, applies="live"
    )
    iou_threshold: float | None = parameter(
        None,
        "Overlap above which the weaker box of a class goes; unset: the model's own",
        minimum=0.0,
        maximum=1.0,
        applies="live",
    )
    max_detections: int | None = parameter(
        None, "Most objects a picture; unset: the model's own", minimum=1, applies="live"
    )
    classes: tuple[str, ...] = parameter((), "Classes to report; empty: all", applies="live")
    cameras: tuple[str, ...] = parameter(
        (), "Namespaces of several cameras, each with its own topics; empty: one camera"
    )
    max_batch: int = parameter(
        1,
        "Pictures of different cameras in one run of the network, as far as the model allows it",
        minimum=1,
        maximum=64,
    )
    compressed: bool = parameter(False, "Subscribe to CompressedImage instead of Image")
    reliability: str = parameter(
        "best_effort",
        "QoS asked of cameras; best_effort takes pictures from reliable ones too",
        choices=("best_effort", "reliable"),
    )
    depth: int = parameter(
        qos.IMAGE_DEPTH, "QoS history depth of the subscription", minimum=1, maximum=1000
    )
    lazy: bool = parameter(False, "Subscribe to cameras only while somebody wants detections")
    silence: float = parameter(
        1.0,
        "Time without a picture, or without finishing one, that counts as an error",
        minimum=0.05,
        unit="s",
    )
    stale: float = parameter(
        0.5, "Age of a result at publication that counts as stale", minimum=0.001, unit="s"
    )


@dataclass
class _Camera:
    """One camera's topics and what is known of it."""

    name: str
    topic: str
    output: str
    publisher: Any
    counters: Counters = field(default_factory=Counters)
    ages: Ages = field(default_factory=Ages)
    gaps: GapCounter = field(default_factory=GapCounter)
    unsubscribe: Callable[[], object] | None = None
    last_received: float = 0.0
    waiting_since: float | None = None  # a picture has come, and none has been finished since
    told: tuple[int, int] = (0, 0)  # lost and missing pictures at the last diagnostics
    incompatible: str = ""
    complaint: str = ""


class DetectorNode(WaysightNode[DetectorParameters]):
    """A receiving thread (the executor's) and working ones; the newest picture wins."""

    default_name = "detector"
    parameters_type = DetectorParameters

    def configure(self) -> None:
        """Load and warm up the model, create the publishers."""
        self._model = ModelSlot(self.parameters)
        self._enabled = True
        self._cameras: dict[str, _Camera] = {}
        for name in self.parameters.cameras or ("",):
            self._cameras[name] = self._camera(name)
        self._labels = self.create_publisher(LabelInfo, topics.LABEL_INFO, qos.latched())
        self._enable = self.create_service(SetBool, "~/enable", self._on_enable)
        self._meter = RateMeter()
        self._work_ms = Ages()
        self._announce()

    def _camera(self, name: str) -> _Camera:
        prefix = f"{name}/" if name else ""
        image = prefix + topics.IMAGE
        publisher = self.create_lifecycle_publisher(
            Detection2DArray,
            prefix + topics.DETECTIONS,
            qos.results(),
            event_callbacks=PublisherEventCallbacks(
                matched=lambda _info: self._follow_demand(), use_default_callbacks=False
            ),
        )
        output = self.resolve_topic_name(prefix + topics.DETECTIONS)
        self.handover.announce(output, self._follow_demand)
        compressed = self.parameters.compressed
        topic = self.compressed_topic(image) if compressed else self.resolve_topic_name(image)
        return _Camera(name, topic, output, publisher)

    def cleanup(self) -> None:
        """Give everything back."""
        for camera in self.__dict__.pop("_cameras", {}).values():
            self.destroy_lifecycle_publisher(camera.publisher)
        for name, destroy in (
            ("_labels", self.destroy_publisher),
            ("_enable", self.destroy_service),
        ):
            entity = self.__dict__.pop(name, None)
            if entity is not None:
                destroy(entity)
        model: ModelSlot | None = self.__dict__.pop("_model", None)
        if model is not None:
            model.close()

    def activate(self) -> None:
        """Start the workers and subscribe."""
        self._inbox: Inbox[bytes | Frame] = Inbox(tuple(self._cameras))
        self._workers = [
            threading.Thread(target=self._work, args=(number,), name=f"worker{number}", daemon=True)
            for number in range(self.parameters.workers)
        ]
        for worker in self._workers:
            worker.start()
        self._follow_demand()

    def deactivate(self) -> None:
        """Unsubscribe and stop the workers."""
        for camera in self._cameras.values():
            self._unsubscribe(camera)
        workers = self.__dict__.pop("_workers", None)
        if workers is not None:
            dropped = self._inbox.close()
            next(iter(self._cameras.values())).counters.add(dropped=dropped)
            for worker in workers:
                worker.join(timeout=2.0)

    def apply(self, new: DetectorParameters, changed: frozenset[str]) -> None:
        """Take over live parameters; a new model is loaded beside the old one."""
        model: ModelSlot | None = self.__dict__.get("_model")
        if model is None:
            return  # `configure` will look at them
        if "model" in changed:
            model.exchange(new, lambda: self.parameters, self._on_swap)
        else:
            model.set_up(new)
            self._announce()  # the threshold is in it

    def _on_swap(self, swapped: bool) -> None:
        """Tell the outcome of a model exchange; a refused name is taken back."""
        if swapped:
            self._announce()
            self.get_logger().info(f"model is now {self._model.loaded}")
        else:
            self.get_logger().error(self._model.trouble)
            self.restore("model", self._model.loaded)
        self.diagnose_now()

    @property
    def names(self) -> tuple[str, ...]:
        """Class names of the loaded model, which labels of handed-over detections index."""
        return self._model.first.names

    def diagnostic_values(self) -> Mapping[str, Any]:
        """Counters, ages and what really computes."""
        values: dict[str, Any] = {
            "model": self._model.first.path.name,
            "provider": self._model.first.provider,
            "enabled": self._enabled,
            "swaps": self._model.swaps,
        }
        processed = 0
        for camera in self._cameras.values():
            prefix = f"{camera.name}/" if camera.name else ""
            counts = camera.counters.snapshot()
            processed += counts["processed"]
            values |= {prefix + key: value for key, value in counts.items()}
            values[prefix + "missing"] = camera.gaps.missing
            values |= {prefix + key: value for key, value in camera.ages.summary().items()}
        values |= {key.replace("age", "work"): v for key, v in self._work_ms.summary().items()}
        values["rate"] = f"{self._meter.rate(processed):.2f}"
        return values

    def judge(self) -> Iterable[Status]:
        """What is wrong at present."""
        if self._model.trouble:
            yield ERROR, self._model.trouble
        if not self._enabled:
            yield WARN, "disabled by ~/enable"
        for camera in self._cameras.values():
            yield from self._judge_camera(camera)

    def _judge_camera(self, camera: _Camera) -> Iterable[Status]:
        if camera.incompatible:
            yield ERROR, camera.incompatible
        if camera.complaint:
            yield ERROR, camera.complaint
            camera.complaint = ""
        now, limit = time.monotonic(), self.parameters.silence
        since = camera.waiting_since  # a worker may finish a picture meanwhile
        if camera.unsubscribe is not None:
            if now - camera.last_received > limit:
                silent = now - camera.last_received
                yield ERROR, f"no picture on {camera.topic} for {silent:.1f} s"
            if since is not None and now - since > limit:
                yield ERROR, f"no picture of {camera.topic} finished for {now - since:.1f} s"
        lost, missing = camera.counters.snapshot()["lost"], camera.gaps.missing
        before, camera.told = camera.told, (lost, missing)
        if camera.told != before:
            yield (
                WARN,
                f"pictures of {camera.topic} did not arrive: {lost - before[0]} lost by the "
                f"middleware's own count, {missing - before[1]} by gaps between their stamps",
            )

    # Receiving -------------------------------------------------------------------------------

    def _follow_demand(self) -> None:
        """Subscribe where a subscription is wanted now, unsubscribe elsewhere."""
        working = "_workers" in self.__dict__ and self._enabled
        for camera in self.__dict__.get("_cameras", {}).values():
            wanted = (
                not self.parameters.lazy
                or camera.publisher.get_subscription_count() > 0
                or self.handover.wanted(camera.output)
            )
            if working and wanted and camera.unsubscribe is None:
                self._subscribe(camera)
            elif not (working and wanted):
                self._unsubscribe(camera)

    def _subscribe(self, camera: _Camera) -> None:
        p = self.parameters
        camera.last_received = time.monotonic()
        camera.waiting_since = None
        camera.gaps.restart()
        camera.incompatible = ""
        receive = partial(self._receive, camera)
        if self.handover.offers(camera.topic):
            camera.unsubscribe = self.handover.subscribe(camera.topic, receive)
            return
        subscription = self.create_subscription(
            CompressedImage if p.compressed else Image,
            camera.topic,
            receive,
            qos.image_subscription(p.reliability, p.depth),
            event_callbacks=SubscriptionEventCallbacks(
                incompatible_qos=partial(self._on_incompatible, camera),
                message_lost=lambda info: camera.counters.add(lost=info.total_count_change),
                use_default_callbacks=False,
            ),
            raw=True,
        )
        camera.unsubscribe = partial(self.destroy_subscription, subscription)

    def _unsubscribe(self, camera: _Camera) -> None:
        if camera.unsubscribe is not None:
            camera.unsubscribe()
            camera.unsubscribe = None

    def _receive(self, camera: _Camera, item: bytes | Frame) -> None:
        # Without MessageInfo, whose publication numbers would tell every loss: EventsExecutor
        # of rclpy 9.1.2 fails on callbacks that take it.
        camera.last_received = time.monotonic()
        if camera.waiting_since is None:
            camera.waiting_since = camera.last_received
        camera.counters.add(received=1)
        with suppress(InputError):  # a message without a header is counted when it is decoded
            camera.gaps.see(item.stamp_ns if isinstance(item, Frame) else read_stamp(item))
        if not self._inbox.put(camera.name, item):
            camera.counters.add(dropped=1)

    def _on_incompatible(self, camera: _Camera, info: QoSRequestedIncompatibleQoSInfo) -> None:
        policy = qos_policy_name_from_kind(info.last_policy_kind)
        camera.incompatible = (
            f"a publisher on {camera.topic} offers an incompatible QoS policy: {policy}"
        )
        self.get_logger().error(camera.incompatible)
        self.diagnose_now()

    def _on_enable(self, request: SetBool.Request, response: SetBool.Response) -> SetBool.Response:
        self._enabled = bool(request.data)
        self._follow_demand()
        response.success = True
        response.message = "enabled" if self._enabled else "disabled"
        return response

    # Working ---------------------------------------------------------------------------------

    def _work(self, number: int) -> None:
        most = min(self.parameters.max_batch, len(self._cameras))
        while True:
            ticket, taken = self._inbox.take(most)
            if not taken:
                return
            # Whatever goes wrong with these pictures, the others wait for this turn to pass.
            began = time.perf_counter()
            pictures = [(self._cameras[name], item) for name, item in taken]
            names: tuple[str, ...] = ()
            results = []
            try:
                detector = self._model.detectors[number]
                names = detector.names
                results = self._detect(detector, pictures)
            except Exception as error:
                for camera, _ in pictures:
                    self._reject(camera, f"{type(error).__name__}: {error}")
            self._work_ms.add((time.perf_counter() - began) * 1e3 / len(taken))
            with self._inbox.turn(ticket):
                for camera, frame, detections in results:
                    try:
                        self._publish(camera, frame, detections, names)
                    except Exception as error:
                        self._reject(camera, f"{type(error).__name__}: {error}")

    def _detect(
        self, detector: Detector, taken: list[tuple[_Camera, bytes | Frame]]
    ) -> list[tuple[_Camera, Frame, Detections]]:
        """Results of the pictures that can be read; the others are counted as invalid."""
        frames: list[tuple[_Camera, Frame]] = []
        for camera, item in taken:
            try:
                frames.append((camera, self._frame(item)))
            except InputError as error:
                self._reject(camera, str(error))
        results: list[tuple[_Camera, Frame, Detections]] = []
        most = detector.contract.max_batch  # the model's own, which a swap may change
        for batch in (frames[at : at + most] for at in range(0, len(frames), most)):
            try:
                found = detector.detect_batch([frame for _, frame in batch])
            except Exception as error:  # a picture that the runtime fails on must not end the node
                kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
                for camera, _ in batch:
                    self._reject(camera, f"{kind}{error}")
                continue
            results += [(*one, result) for one, result in zip(batch, found, strict=True)]
        return results

    def _frame(self, item: bytes | Frame) -> Frame:
        if isinstance(item, Frame):  # from a node of this process, by reference
            return item
        return raw_compressed_frame(item) if self.parameters.compressed else raw_image_frame(item)

    def _publish(
        self, camera: _Camera, frame: Frame, detections: Detections, names: tuple[str, ...]
    ) -> None:
        if not detections.valid:
            self._reject(camera, detections.reason)
            return
        if detections.invalid_rows:  # what they would have shown is missing from the others
            self._reject(camera, f"{detections.invalid_rows} rows of the model are not finite")
            return
        if not frame.stamp_ns:
            self.get_logger().warning(f"{camera.topic}: header stamp is 0", once=True)
        self.handover.send(camera.output, (frame, detections))
        if camera.publisher.get_subscription_count():
            camera.publisher.publish(write_detections(detections, frame, names))
        age = (self.get_clock().now().nanoseconds - frame.stamp_ns) / 1e6
        camera.ages.add(age)
        camera.waiting_since = None
        camera.counters.add(processed=1, stale=int(age > self.parameters.stale * 1e3))

    def _reject(self, camera: _Camera, reason: str) -> None:
        """Count a picture that gives no result; nothing is published for it."""
        camera.waiting_since = None
        camera.counters.add(invalid=1)
        camera.complaint = f"{camera.topic}: {reason}"
        self.get_logger().warning(camera.complaint, throttle_duration_sec=LOG_SECONDS)

    def _announce(self) -> None:
        detector = self._model.first
        self._labels.publish(label_info(detector.names, detector.score_threshold))


def main() -> None:
    """Run the node until it is told to stop."""
    sys.exit(run([DetectorNode]))


if __name__ == "__main__":
    main()
