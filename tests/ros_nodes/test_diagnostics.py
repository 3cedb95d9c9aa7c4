"""Counting what did not arrive."""

import pytest

pytest.importorskip("rclpy", reason="needs ROS 2")

from ros_nodes.diagnostics import GapCounter

PERIOD = 5_555_555


def _count(stamps: list[int]) -> int:
    counter = GapCounter()
    for stamp in stamps:
        counter.see(stamp)
    return counter.missing


def test_steady_stream_with_jitter_misses_nothing() -> None:
    assert _count([n * PERIOD + (n % 3) * 600_000 for n in range(1, 200)]) == 0


def test_each_missing_picture_is_counted() -> None:
    kept = [n for n in range(1, 200) if n not in (100, 150, 151, 152)]
    assert _count([n * PERIOD for n in kept]) == 4


def test_stream_that_begins_anew_is_no_loss() -> None:
    first = [n * PERIOD for n in range(100, 200)]
    assert _count(first + [n * 9 * PERIOD for n in range(1, 100)]) == 0


def test_pause_and_clock_that_is_set_ahead_are_no_loss() -> None:
    first = [n * PERIOD for n in range(1, 100)]
    for pause in (5 * 10**9, 50 * 365 * 86_400 * 10**9):
        assert _count(first + [first[-1] + pause + n * PERIOD for n in range(1, 100)]) == 0


def test_slow_camera_may_miss_pictures_for_longer() -> None:
    kept = [n for n in range(1, 60) if n not in (50, 51)]
    assert _count([n * 2 * 10**9 for n in kept]) == 2


def test_what_was_sent_while_nobody_listened_is_no_loss() -> None:
    counter = GapCounter()
    for n in (*range(1, 100), *range(110, 150)):
        counter.see(n * PERIOD)
    assert counter.missing == 10
    counter.restart()
    for n in range(200, 300):
        counter.see(n * PERIOD)
    assert counter.missing == 10
