"""Detector: pictures of one or several cameras to Detection2DArray."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
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

from perception.contract import ModelContract
from perception.detections import Detections
from perception.errors import InputError
from perception.frame import Frame
from perception.runtime.detector import Detector
from perception.runtime.session import PROVIDERS
from perception.zoo import model_path
from ros_nodes import qos, topics
from ros_nodes.cdr import read_stamp, write_detections
from ros_nodes.convert import label_info, raw_compressed_frame, raw_image_frame
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
    threads: int = parameter(0, "Threads of the network; 0: all cores", minimum=0, maximum=256)
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
        1, "Pictures of different cameras in one run of the network", minimum=1, maximum=64
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
        1.0, "Time without a picture that counts as an error", minimum=0.05, unit="s"
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
    unsubscribe: Callable[[], None] | None = None
    last_received: float = 0.0
    incompatible: str = ""
    complaint: str = ""


class DetectorNode(WaysightNode[DetectorParameters]):
    """A receiving thread (the executor's) and a working one; the newest picture wins."""

    default_name = "detector"
    parameters_type = DetectorParameters

    def configure(self) -> None:
        """Load and warm up the model, create the publishers."""
        self._detector = self._load(self.parameters)
        self._next: Detector | None = None
        self._swap_trouble = ""
        self._swaps = 0
        self._asked = 0
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
        image = topics.compressed(topics.IMAGE) if self.parameters.compressed else topics.IMAGE
        publisher = self.create_lifecycle_publisher(
            Detection2DArray,
            prefix + topics.DETECTIONS,
            qos.results(),
            event_callbacks=PublisherEventCallbacks(
                matched=lambda _info: self._follow_demand(), use_default_callbacks=False
            ),
        )
        output = self.resolve_topic_name(prefix + topics.DETECTIONS)
        self.handover.announce(output)
        return _Camera(name, self.resolve_topic_name(prefix + image), output, publisher)

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
        self.__dict__.pop("_detector", None)

    def activate(self) -> None:
        """Start the worker and subscribe."""
        self._inbox: Inbox[bytes | Frame] = Inbox(tuple(self._cameras))
        self._worker = threading.Thread(target=self._work, name="detector", daemon=True)
        self._worker.start()
        self._follow_demand()

    def deactivate(self) -> None:
        """Unsubscribe and stop the worker."""
        for camera in self._cameras.values():
            self._unsubscribe(camera)
        worker = self.__dict__.pop("_worker", None)
        if worker is not None:
            dropped = self._inbox.close()
            next(iter(self._cameras.values())).counters.add(dropped=dropped)
            worker.join(timeout=2.0)

    def apply(self, new: DetectorParameters, changed: frozenset[str]) -> None:
        """Take over live parameters; a new model is loaded beside the old one."""
        detector = self.__dict__.get("_detector")
        if detector is None:
            return
        if "model" in changed:
            self._begin_swap(new)
            return
        _set_up(detector, new)

    @property
    def names(self) -> tuple[str, ...]:
        """Class names of the loaded model, which labels of handed-over detections index."""
        return self._detector.names

    def diagnostic_values(self) -> Mapping[str, Any]:
        """Counters, ages and what really computes."""
        values: dict[str, Any] = {
            "model": self._detector.path.name,
            "provider": self._detector.provider,
            "enabled": self._enabled,
            "swaps": self._swaps,
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
        if self._swap_trouble:
            yield ERROR, self._swap_trouble
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
        silent = time.monotonic() - camera.last_received
        if camera.unsubscribe is not None and silent > self.parameters.silence:
            yield ERROR, f"no picture on {camera.topic} for {silent:.1f} s"
        lost = camera.counters.snapshot()["lost"]
        if lost or camera.gaps.missing:
            yield (
                WARN,
                f"pictures of {camera.topic} did not arrive: {lost} lost by the middleware's own "
                f"count, {camera.gaps.missing} by gaps between their stamps",
            )

    # Receiving -------------------------------------------------------------------------------

    def _follow_demand(self) -> None:
        """Subscribe where a subscription is wanted now, unsubscribe elsewhere."""
        working = "_worker" in self.__dict__ and self._enabled
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

    def _work(self) -> None:
        while True:
            taken = self._inbox.take(min(self.parameters.max_batch, len(self._cameras)))
            if self._inbox.closed:
                return
            if self._next is not None:
                self._switch()
            if not taken:
                continue
            began = time.perf_counter()
            frames: list[tuple[_Camera, Frame]] = []
            for name, item in taken:
                camera = self._cameras[name]
                try:
                    frames.append((camera, self._frame(item)))
                except InputError as error:
                    self._reject(camera, str(error))
            if frames:
                self._detect(frames)
            self._work_ms.add((time.perf_counter() - began) * 1e3 / len(taken))

    def _frame(self, item: bytes | Frame) -> Frame:
        if isinstance(item, Frame):  # from a node of this process, by reference
            return item
        return raw_compressed_frame(item) if self.parameters.compressed else raw_image_frame(item)

    def _detect(self, frames: list[tuple[_Camera, Frame]]) -> None:
        try:
            results = self._detector.detect_batch([frame for _, frame in frames])
        except InputError as error:
            for camera, _ in frames:
                self._reject(camera, str(error))
            return
        except Exception as error:
            # A runtime that fails on one picture must not silence the node for ever.
            for camera, _ in frames:
                self._reject(camera, f"{type(error).__name__}: {error}")
            return
        for (camera, frame), detections in zip(frames, results, strict=True):
            self._publish(camera, frame, detections)

    def _publish(self, camera: _Camera, frame: Frame, detections: Detections) -> None:
        if not detections.valid:
            self._reject(camera, detections.reason)
            return
        if not frame.stamp_ns:
            self.get_logger().warning(f"{camera.topic}: header stamp is 0", once=True)
        self.handover.send(camera.output, (frame, detections))
        if camera.publisher.get_subscription_count():
            names = self._detector.names
            camera.publisher.publish(write_detections(detections, frame, names))
        age = (self.get_clock().now().nanoseconds - frame.stamp_ns) / 1e6
        camera.ages.add(age)
        camera.counters.add(processed=1, stale=int(age > self.parameters.stale * 1e3))

    def _reject(self, camera: _Camera, reason: str) -> None:
        """Count a picture that gives no result; nothing is published for it."""
        camera.counters.add(invalid=1)
        camera.complaint = f"{camera.topic}: {reason}"
        self.get_logger().warning(camera.complaint, throttle_duration_sec=LOG_SECONDS)

    # The model -------------------------------------------------------------------------------

    def _load(self, parameters: DetectorParameters) -> Detector:
        contract = parameters.contract
        detector = Detector(
            parameters.model,
            device=parameters.device,
            allow_fallback=parameters.allow_fallback,
            threads=parameters.threads or None,
            contract=ModelContract.from_yaml(Path(contract)) if contract else None,
        )
        _set_up(detector, parameters)
        detector.warm_up()
        return detector

    def _begin_swap(self, parameters: DetectorParameters) -> None:
        """Load beside the running model; the worker switches between two frames.

        Refuses at once what can be refused without loading. Loading in the executor's thread
        would lose the pictures that arrive meanwhile.
        """
        model_path(parameters.model)
        self._asked += 1
        arguments = (parameters, self.parameters.model, self._asked)
        threading.Thread(target=self._swap, args=arguments, name="model", daemon=True).start()

    def _swap(self, parameters: DetectorParameters, old: str, number: int) -> None:
        try:
            loaded = self._load(parameters)
        except Exception as error:
            if number == self._asked:
                self._refuse(parameters.model, old, error)
            return
        if number == self._asked:  # else a later wish has overtaken this one
            self._next = loaded
            self._inbox.nudge()

    def _refuse(self, model: str, old: str, error: Exception) -> None:
        self._swap_trouble = f"model '{model}' refused, '{old}' stays: {error}"
        self.get_logger().error(self._swap_trouble)
        self.restore("model", old)
        self.diagnose_now()

    def _switch(self) -> None:
        """Let the new model take over, with the thresholds as they are by now."""
        new, self._next = self._next, None
        assert new is not None
        try:
            _set_up(new, self.parameters)
        except InputError as error:
            self._refuse(new.path.name, self._detector.path.name, error)
            return
        self._detector = new
        self._swaps += 1
        self._swap_trouble = ""
        self._announce()
        self.get_logger().info(f"model is now {self._detector.path.name}")

    def _announce(self) -> None:
        detector = self._detector
        self._labels.publish(label_info(detector.names, detector.score_threshold))


def _set_up(detector: Detector, parameters: DetectorParameters) -> None:
    """Give the detector the parameters that are set; unset ones are the model's own."""
    classes = parameters.classes or None
    if classes is not None:
        for name in classes:
            detector.contract.labels.index(name)
    for name in ("score_threshold", "iou_threshold", "max_detections"):
        value = getattr(parameters, name)
        if value is not None:
            setattr(detector, name, value)
    detector.classes = classes


def main() -> None:
    """Run the node until it is told to stop."""
    sys.exit(run([DetectorNode]))


if __name__ == "__main__":
    main()
