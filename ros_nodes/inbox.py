"""Latest frame wins: one place a camera, shared by a receiving thread and a working one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """Holds the newest item of each camera; an item that was not fetched in time is replaced."""

    def __init__(self, cameras: Sequence[str]) -> None:
        self._order = list(cameras)
        self._items: dict[str, T] = {}
        self._ready = threading.Condition()
        self._nudged = False
        self.closed = False

    def put(self, camera: str, item: T) -> bool:
        """Store the newest item of a camera; False when an older one was thrown away for it."""
        with self._ready:
            kept = camera not in self._items
            self._items[camera] = item
            self._ready.notify()
            return kept

    def take(self, most: int) -> list[tuple[str, T]]:
        """Wait for and take up to `most` items, one a camera; empty when nudged or closed.

        Cameras are served in turn: who was served goes to the back of the line.
        """
        with self._ready:
            while not (self._items or self._nudged or self.closed):
                self._ready.wait()
            self._nudged = False
            if self.closed:
                return []
            served = [name for name in self._order if name in self._items][:most]
            self._order = [name for name in self._order if name not in served] + served
            return [(name, self._items.pop(name)) for name in served]

    def nudge(self) -> None:
        """Wake the worker although there may be nothing to take."""
        with self._ready:
            self._nudged = True
            self._ready.notify()

    def close(self) -> int:
        """Wake the worker for the last time; returns the number of items thrown away."""
        with self._ready:
            self.closed = True
            left = len(self._items)
            self._items.clear()
            self._ready.notify_all()
            return left
