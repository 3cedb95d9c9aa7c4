"""Handing frames and results by reference between nodes that share a process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

Receiver = Callable[[Any], None]


class Handover:
    """Topics inside one process. Items are shared, so nobody may write to them.

    Image topics carry `perception.frame.Frame`; detections and tracks carry
    (Frame, Detections) pairs, because the Frame holds the header.
    Receivers are called in the sender's thread and must return at once.
    """

    def __init__(self) -> None:
        self._receivers: dict[str, tuple[Receiver, ...]] = {}
        self._sources: dict[str, Callable[[], object] | None] = {}
        self._lock = threading.Lock()

    def announce(self, topic: str, on_demand: Callable[[], object] | None = None) -> None:
        """Say that this process publishes the fully resolved `topic`.

        on_demand: called, in the receiver's thread, when somebody has come or gone.
        """
        self._sources[topic] = on_demand

    def offers(self, topic: str) -> bool:
        """Whether `topic` comes from this process, so that no DDS subscription is needed."""
        return topic in self._sources

    def subscribe(self, topic: str, receiver: Receiver) -> Callable[[], None]:
        """Call `receiver` for every item on the fully resolved `topic`; returns the way out."""
        with self._lock:
            self._receivers[topic] = (*self._receivers.get(topic, ()), receiver)
        self._notify(topic)

        def unsubscribe() -> None:
            with self._lock:
                kept = tuple(r for r in self._receivers.get(topic, ()) if r is not receiver)
                self._receivers[topic] = kept
            self._notify(topic)

        return unsubscribe

    def _notify(self, topic: str) -> None:
        on_demand = self._sources.get(topic)
        if on_demand is not None:
            on_demand()

    def wanted(self, topic: str) -> bool:
        """Whether somebody in this process listens to `topic`."""
        return bool(self._receivers.get(topic))

    def send(self, topic: str, item: Any) -> None:
        """Give `item` to every receiver of `topic`."""
        for receiver in self._receivers.get(topic, ()):
            receiver(item)
