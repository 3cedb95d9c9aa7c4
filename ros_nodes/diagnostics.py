"""Counters of a node and their publication on /diagnostics."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.duration import Duration
from rclpy.node import Node

from ros_nodes import topics

OK, WARN, ERROR, STALE = (
    DiagnosticStatus.OK,
    DiagnosticStatus.WARN,
    DiagnosticStatus.ERROR,
    DiagnosticStatus.STALE,
)


@dataclass
class Counters:
    """What became of every picture; received = processed + dropped + invalid + in work.

    lost: pictures that the middleware reports as lost before this node saw them.
    stale: results given out although the picture was older than the node's limit.
    """

    received: int = 0
    processed: int = 0
    dropped: int = 0
    invalid: int = 0
    stale: int = 0
    lost: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, **amounts: int) -> None:
        """Add to counters by name, safely from any thread."""
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)

    def snapshot(self) -> dict[str, int]:
        """All counters at one moment."""
        with self._lock:
            return {
                name: getattr(self, name)
                for name in ("received", "processed", "dropped", "invalid", "stale", "lost")
            }


class GapCounter:
    """Pictures missing in a steady stream, told by their stamps.

    The middleware reports only some of its losses (a reader's history that overflows is silent),
    and the publisher's own numbers do not reach EventsExecutor callbacks in rclpy 9.1.2. A camera
    of steady rate shows every loss as a gap of two periods or more; a camera that itself leaves
    pictures out is counted here too.
    """

    _WINDOW = 31
    # A longer step is a pause or a clock that was set, not so many pictures lost one by one. In
    # seconds for usual cameras, in periods for slow ones.
    _PAUSE_NS, _PAUSE_PERIODS = 3_000_000_000, 20

    def __init__(self) -> None:
        self.missing = 0
        self._last_ns: int | None = None
        self._steps: deque[int] = deque(maxlen=self._WINDOW)

    def see(self, stamp_ns: int) -> None:
        """Take the stamp of the next picture; one that goes back or far ahead begins anew."""
        last, self._last_ns = self._last_ns, stamp_ns
        if last is None or stamp_ns <= last:
            self._steps.clear()
            return
        step = stamp_ns - last
        if len(self._steps) == self._WINDOW:
            period = sorted(self._steps)[self._WINDOW // 2]
            if step > max(self._PAUSE_NS, self._PAUSE_PERIODS * period):
                self._steps.clear()
                return
            if step > 1.5 * period:
                self.missing += round(step / period) - 1
        self._steps.append(step)

    def restart(self) -> None:
        """The stream was left: what it sent meanwhile is not missing. The count stays."""
        self._last_ns = None


class Ages:
    """Ages of the newest results in milliseconds; percentiles on request."""

    def __init__(self, length: int = 512) -> None:
        self._values: deque[float] = deque(maxlen=length)

    def add(self, age_ms: float) -> None:
        self._values.append(age_ms)

    def summary(self) -> dict[str, str]:
        """`age_p50_ms`, `age_p90_ms`, `age_p99_ms`, `age_max_ms`; empty before the first result."""
        values = list(self._values)
        if not values:
            return {}
        p50, p90, p99, top = np.percentile(values, [50, 90, 99, 100])
        return {
            "age_p50_ms": f"{p50:.2f}",
            "age_p90_ms": f"{p90:.2f}",
            "age_p99_ms": f"{p99:.2f}",
            "age_max_ms": f"{top:.2f}",
        }


Status = tuple[int, str]
"""(level, sentence)."""


class Diagnostics:
    """Publishes one DiagnosticStatus a period: the worst of what the sources say, with values.

    `judge` returns the node's present conditions, worst or not; `values` what to show. Both are
    called in the executor's thread, once a period. Timers run on wall time on purpose: under
    simulated time a stopped clock must not silence the diagnostics.
    """

    def __init__(
        self,
        node: Node,
        period: float,
        values: Callable[[], Mapping[str, Any]],
        judge: Callable[[], Iterable[Status]],
        hardware_id: str = "",
    ) -> None:
        self._node = node
        self._values = values
        self._judge = judge
        self._hardware_id = hardware_id
        self._publisher = node.create_publisher(DiagnosticArray, topics.DIAGNOSTICS, 10)
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._timer = node.create_timer(period, self.publish, clock=steady)

    def publish(self) -> None:
        """Publish now."""
        conditions = sorted(self._judge(), key=lambda status: status[0], reverse=True)
        level = conditions[0][0] if conditions else OK
        text = "; ".join(sentence for _, sentence in conditions) or "ok"
        status = DiagnosticStatus(
            level=level,
            name=self._node.get_fully_qualified_name(),
            message=text,
            hardware_id=self._hardware_id,
            values=[KeyValue(key=str(k), value=str(v)) for k, v in self._values().items()],
        )
        message = DiagnosticArray(status=[status])
        message.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(message)

    def wait(self, seconds: float) -> None:
        """Until every reliable subscriber has the last message, or the time is over."""
        self._publisher.wait_for_all_acked(Duration(seconds=seconds))

    def close(self) -> None:
        """Stop publishing and give the publisher back."""
        self._node.destroy_timer(self._timer)
        self._node.destroy_publisher(self._publisher)


class RateMeter:
    """Events a second over the time since the last look."""

    def __init__(self) -> None:
        self._count = 0
        self._since = time.monotonic()

    def rate(self, count: int) -> float:
        """Events a second since the previous call, given the running total."""
        now = time.monotonic()
        elapsed = max(now - self._since, 1e-9)
        result = (count - self._count) / elapsed
        self._count, self._since = count, now
        return result
