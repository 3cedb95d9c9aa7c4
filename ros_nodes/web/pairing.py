"""Results found again with the picture that they belong to, by stamp."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

_RESULTS_KEPT = 8


@dataclass(frozen=True, slots=True)
class Pair:
    """A picture and the result of the same stamp; `result` is None where there is none."""

    stamp_ns: int
    picture: Any
    result: Any


class Pairing:
    """Holds the newest pictures, up to `limit` bytes, and the newest results.

    At 180 Hz a result comes a few pictures after its own, so pictures are kept as they arrived,
    not decoded, and only those are decoded that are drawn.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._pictures: OrderedDict[int, tuple[Any, int]] = OrderedDict()
        self._results: OrderedDict[int, Any] = OrderedDict()
        self._changed = threading.Condition()
        self._woken = False
        self.pictures = 0
        self.results = 0
        self.clear()

    def clear(self) -> None:
        """Forget everything; ages count from now."""
        with self._changed:
            self._pictures.clear()
            self._results.clear()
            self._size = 0
            self.picture_heard = self.result_heard = self.matched = time.monotonic()

    def put_picture(self, stamp_ns: int, picture: Any, size: int) -> None:
        """Add a picture of `size` bytes; the newest two stay whatever their size."""
        with self._changed:
            self.picture_heard = time.monotonic()
            self.pictures += 1
            # The same stamp again: a recording that is repeated, or a camera that stamps nothing.
            _, before = self._pictures.pop(stamp_ns, (None, 0))
            self._size -= before
            self._pictures[stamp_ns] = (picture, size)
            self._size += size
            while self._size > self._limit and len(self._pictures) > 2:
                _, (_, gone) = self._pictures.popitem(last=False)
                self._size -= gone

    def put_result(self, stamp_ns: int, result: Any) -> None:
        """Add a result and wake the one who draws."""
        with self._changed:
            self.result_heard = time.monotonic()
            self.results += 1
            self._results.pop(stamp_ns, None)
            self._results[stamp_ns] = result
            while len(self._results) > _RESULTS_KEPT:
                self._results.popitem(last=False)
            self._changed.notify_all()

    def wake(self) -> None:
        """Let `wait` return, now and for ever."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def wait(self, seen: int, timeout: float) -> int:
        """Until more than `seen` results have come, for at most `timeout` s; how many have now."""
        with self._changed:
            self._changed.wait_for(lambda: self.results > seen or self._woken, timeout)
            return self.results

    def newest(self, shown: Any) -> Pair | None:
        """The newest result that has its picture, unless that is the result `shown` already."""
        with self._changed:
            for stamp, result in reversed(self._results.items()):
                if result is shown:
                    return None
                if stamp in self._pictures:
                    self.matched = time.monotonic()
                    return Pair(stamp, self._pictures[stamp][0], result)
            return None

    def newest_result(self) -> Any:
        """The result that came last; None before the first."""
        with self._changed:
            return next(reversed(self._results.values()), None)

    def newest_picture(self) -> Pair | None:
        """The last picture, without a result."""
        with self._changed:
            for stamp in reversed(self._pictures):
                return Pair(stamp, self._pictures[stamp][0], None)
            return None
