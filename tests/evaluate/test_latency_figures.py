"""Latency figures."""

import pytest

from perception.errors import InputError
from perception.evaluate import latency


def test_percentiles_are_in_milliseconds():
    figures = latency.summarize([1_000_000 * i for i in range(1, 101)])
    assert (figures.count, figures.max_ms) == (100, 100.0)
    assert figures.p50_ms == pytest.approx(50.5)
    assert figures.p99_ms == pytest.approx(99.01)
    assert figures.rate == pytest.approx(1000 / 50.5)


def test_warm_up_is_called_but_not_counted():
    calls = []
    assert latency.measure(calls.append, range(10), warm_up=4).count == 6
    assert len(calls) == 10


@pytest.mark.parametrize("durations", [[], [-1.0], [float("nan")]])
def test_no_durations_are_refused(durations):
    with pytest.raises(InputError):
        latency.summarize(durations)
