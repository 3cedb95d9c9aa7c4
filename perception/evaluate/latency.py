"""Latency figures: percentiles of durations, the way every benchmark of Waysight states them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from perception.errors import InputError

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Latency:
    """Durations in milliseconds. rate: calls a second, one after the other."""

    count: int
    mean_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float
    rate: float


def summarize(durations_ns: npt.ArrayLike) -> Latency:
    """Figures of durations in nanoseconds; raises InputError when there are none or one is < 0."""
    values = np.asarray(durations_ns, dtype=np.float64).reshape(-1) / 1e6
    if not len(values) or not (values >= 0).all():
        raise InputError(f"latency needs durations of at least 0 ns, found {len(values)} values")
    p50, p90, p99 = np.percentile(values, [50, 90, 99])
    total = float(values.sum())
    return Latency(
        count=len(values),
        mean_ms=float(values.mean()),
        p50_ms=float(p50),
        p90_ms=float(p90),
        p99_ms=float(p99),
        max_ms=float(values.max()),
        rate=1e3 * len(values) / total if total > 0 else float("inf"),
    )


def measure(call: Callable[[Item], object], items: Iterable[Item], *, warm_up: int = 3) -> Latency:
    """Time `call` on each item, one after the other; the first `warm_up` are not counted.

    Raises InputError when no item is left to be counted.
    """
    durations = []
    for number, item in enumerate(items):
        start = time.perf_counter_ns()
        call(item)
        if number >= warm_up:
            durations.append(time.perf_counter_ns() - start)
    return summarize(durations)
