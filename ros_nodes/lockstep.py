"""Lock-step replay: a bag's pictures through the detector and tracker nodes, one after the other.

The nodes are those of the graph, with its parameters, in this process; pictures reach the detector
and results the tracker by handover. A picture is handed in only when the one before is done, so
nothing is dropped, and what comes out depends on the bag and the graph alone.

Nothing leaves the process: DDS discovery is switched off, and the nodes live in a namespace of
their own, because a robot must never take replayed detections for its own.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import rclpy
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.signals import SignalHandlerOptions

from perception.datasets.bags import Bag, BagMessage
from perception.datasets.formats.rosbag2 import COMPRESSED, IMAGE, header_of
from perception.detections import Detections
from perception.errors import InputError, WaysightError
from perception.frame import Frame
from ros_nodes import topics
from ros_nodes.compose import node_factory
from ros_nodes.convert import label_info, raw_compressed_frame, raw_image_frame
from ros_nodes.detector_node import DetectorNode
from ros_nodes.graph import Graph, NodeSpec, node_arguments
from ros_nodes.handover import Handover
from ros_nodes.lifecycle import WaysightNode

NAMESPACE = "waysight_replay"
DISCOVERY = "ROS_AUTOMATIC_DISCOVERY_RANGE"
PATIENCE = 120.0
"""Seconds after which a picture that is not done counts as a node that hangs."""
POLL = 0.005
"""Seconds between two looks whether a picture was rejected; results are heard of at once."""


@dataclass(frozen=True, slots=True)
class Step:
    """What the nodes made of one picture.

    stamp_ns, frame_id: of the picture's header; the time of recording where the stamp is 0.
    detections: invalid where the detector rejected the picture. tracks: None without a tracker.
    """

    stamp_ns: int
    frame_id: str
    detections: Detections
    tracks: Detections | None


@dataclass(frozen=True, slots=True)
class Replay:
    """An opened replay: the class names of the detector, and the steps to iterate over once.

    topic: the image topic; skipped: nodes of the graph that take no part.
    """

    names: tuple[str, ...]
    topic: str
    skipped: tuple[str, ...]
    steps: Iterator[Step]


def image_topic(bag: Bag, wanted: str | None = None) -> tuple[str, bool]:
    """The image topic to replay, and whether it is compressed.

    Raises InputError when the bag has none, has several and none is wanted, or lacks the wanted.
    """
    found = {
        t.name: t.type == COMPRESSED for t in bag.topics.values() if t.type in (IMAGE, COMPRESSED)
    }
    names = ", ".join(sorted(found)) or "none"
    if wanted is not None:
        if wanted not in found:
            raise InputError(f"{bag.path}: no image topic {wanted!r}, image topics are: {names}")
        return wanted, found[wanted]
    if len(found) != 1:
        raise InputError(
            f"{bag.path}: expected one image topic or --image-topic, image topics are: {names}"
        )
    return next(iter(found.items()))


def _spec(graph: Graph, module: str) -> NodeSpec | None:
    """The graph's node of a module; raises InputError when there are several."""
    specs = [node for node in graph.nodes if node.module == module and node.enabled]
    if len(specs) > 1:
        names = ", ".join(node.name for node in specs)
        raise InputError(f"graph {graph.name!r} has several {module} nodes: {names}; expected one")
    return specs[0] if specs else None


@contextmanager
def replay(bag: Bag, graph: Graph, topic: str | None = None) -> Iterator[Replay]:
    """Start the graph's detector and tracker and offer the bag's pictures step by step.

    topic: image topic, the only one by default. Raises InputError for a graph without a detector
    or with several cameras, and for what the nodes themselves refuse.
    """
    chosen, compressed = image_topic(bag, topic)
    detector = _spec(graph, "detector")
    if detector is None:
        raise InputError(f"graph {graph.name!r} has no enabled detector node")
    if detector.parameters.get("cameras"):
        raise InputError(f"graph {graph.name!r}: a detector of several cameras cannot be replayed")
    tracker = _spec(graph, "tracker")
    taking_part = [detector] if tracker is None else [detector, tracker]
    skipped = tuple(node.name for node in graph.nodes if node not in taking_part)
    detector = replace(detector, parameters={**detector.parameters, "compressed": compressed})
    with _nodes([detector, *taking_part[1:]]) as (handover, nodes):
        lockstep = _Lockstep(handover, nodes, compressed)
        steps = lockstep.steps(bag, chosen)
        yield Replay(lockstep.names, chosen, skipped, steps)


@contextmanager
def _nodes(specs: list[NodeSpec]) -> Iterator[tuple[Handover, list[WaysightNode[Any]]]]:
    before = os.environ.get(DISCOVERY)
    os.environ[DISCOVERY] = "OFF"
    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    nodes: list[WaysightNode[Any]] = []
    try:
        handover = Handover()
        with tempfile.TemporaryDirectory(prefix="waysight-") as folder:
            for spec in specs:
                own = replace(spec, namespace=NAMESPACE, remap={})
                arguments = node_arguments(own, Path(folder))
                nodes.append(node_factory(spec.module, arguments)(handover))
        yield handover, nodes
    finally:
        for node in reversed(nodes):
            node.trigger_shutdown()
            node.destroy_node()
        rclpy.try_shutdown()
        del os.environ[DISCOVERY]
        if before is not None:
            os.environ[DISCOVERY] = before


class _Lockstep:
    """Hands pictures in and waits for their results."""

    def __init__(
        self, handover: Handover, nodes: list[WaysightNode[Any]], compressed: bool
    ) -> None:
        self._handover = handover
        self._decode = raw_compressed_frame if compressed else raw_image_frame
        assert isinstance(nodes[0], DetectorNode)
        self._detector = nodes[0]
        self._found: Detections | None = None
        self._tracks: Detections | None = None
        self._done = threading.Event()
        self._tracking = len(nodes) > 1
        picture = topics.compressed(topics.IMAGE) if compressed else topics.IMAGE
        self._topic = self._detector.resolve_topic_name(picture)
        handover.announce(self._topic)
        for node in nodes:
            for step in (node.trigger_configure, node.trigger_activate):
                if step() != TransitionCallbackReturn.SUCCESS:
                    raise node.failure or WaysightError(f"{node.get_name()}: cannot be started")
        self.names = self._detector.names
        # The latched names come by DDS, which would have to be waited for.
        message = label_info(self.names, 0.0)
        for node in nodes[1:]:
            for subscription in node.subscriptions:
                if subscription.topic_name == node.resolve_topic_name(topics.LABEL_INFO):
                    receive: Any = subscription.callback  # typed for no arguments in rclpy
                    receive(message)
            handover.subscribe(node.resolve_topic_name(topics.TRACKS), self._on_tracks)
        handover.subscribe(
            self._detector.resolve_topic_name(topics.DETECTIONS), self._on_detections
        )

    def _on_detections(self, item: tuple[Frame, Detections]) -> None:
        # The tracker has subscribed earlier, so its result is there already.
        self._found = item[1]
        self._done.set()

    def _on_tracks(self, item: tuple[Frame, Detections]) -> None:
        self._tracks = item[1]

    def steps(self, bag: Bag, topic: str) -> Iterator[Step]:
        """One step a picture, in the order of recording."""
        for message in bag.messages(frozenset({topic})):
            yield self._step(message)

    def _step(self, message: BagMessage) -> Step:
        self._found = self._tracks = None
        self._done.clear()
        rejected = self._rejected()
        stamp, frame_id = header_of(message.data)
        item: bytes | Frame = message.data
        if stamp == 0:
            # Else the tracker would go by the time of arrival, which differs from run to run.
            stamp = message.log_time_ns
            item = replace(self._decode(message.data), stamp_ns=stamp)
        self._handover.send(self._topic, item)
        self._wait(rejected)
        found = self._found
        if found is None:
            found = Detections.failed("the detector rejected the picture")
        tracks = self._tracks
        if tracks is None and self._tracking:
            tracks = Detections.failed("no detections to track")
        return Step(stamp, frame_id, found, tracks)

    def _rejected(self) -> int:
        return int(self._detector.diagnostic_values()["invalid"])

    def _wait(self, rejected: int) -> None:
        """Until the detector has given a result or rejected one more picture than before."""
        deadline = time.monotonic() + PATIENCE
        while not self._done.wait(POLL):
            if self._rejected() > rejected:
                return
            if time.monotonic() > deadline:
                raise WaysightError(f"a picture was not done after {PATIENCE:g} s")
