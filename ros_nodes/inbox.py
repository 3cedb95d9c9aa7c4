"""Latest frame wins: one place a camera, shared by a receiving thread and working ones."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """Holds the newest item of each camera; an item that was not fetched in time is replaced.

    Several workers may take; what they took comes out in the order of taking, through `turn`.
    """

    def __init__(self, cameras: Sequence[str]) -> None:
        self._order = list(cameras)
        self._items: dict[str, T] = {}
        self._ready = threading.Condition()
        self._closed = False
        self._taken = 0
        self._turn = 0
        self._turns = threading.Condition()

    def put(self, camera: str, item: T) -> bool:
        """Store the newest item of a camera; False when an older one was thrown away for it."""
        with self._ready:
            kept = camera not in self._items
            self._items[camera] = item
            self._ready.notify()
            return kept

    def take(self, most: int) -> tuple[int, list[tuple[str, T]]]:
        """Wait for up to `most` items, one a camera; returns (ticket for `turn`, items).

        Cameras are served in turn: who was served goes to the back of the line. Without items
        the inbox is closed, and the ticket is not to be used.
        """
        with self._ready:
            while not (self._items or self._closed):
                self._ready.wait()
            if self._closed:
                return -1, []
            served = [name for name in self._order if name in self._items][:most]
            self._order = [name for name in self._order if name not in served] + served
            ticket, self._taken = self._taken, self._taken + 1
            return ticket, [(name, self._items.pop(name)) for name in served]

    @contextmanager
    def turn(self, ticket: int) -> Iterator[None]:
        """Wait until everything taken earlier has had its turn. Every ticket must come here."""
        with self._turns:
            while self._turn != ticket:
                self._turns.wait()
        try:
            yield
        finally:
            with self._turns:
                self._turn += 1
                self._turns.notify_all()

    def close(self) -> int:
        """Wake the workers for the last time; returns the number of items thrown away."""
        with self._ready:
            self._closed = True
            left = len(self._items)
            self._items.clear()
            self._ready.notify_all()
            return left
