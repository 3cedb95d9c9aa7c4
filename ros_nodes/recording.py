"""What a recording of a graph says: pictures sent, results and their ages, final counters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from mcap.exceptions import McapError
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory

from perception.errors import InputError
from ros_nodes import topics


@dataclass(frozen=True)
class Result:
    """Detections of one picture, as they reached the recorder."""

    stamp_ns: int
    arrived_ns: int
    rows: tuple[tuple[str, float, tuple[float, float, float, float]], ...]
    """(class name, score, (left, top, width, height) in pixels) of each object."""

    @property
    def latency_ms(self) -> float:
        """From the picture's stamp to the arrival of its detections."""
        return (self.arrived_ns - self.stamp_ns) / 1e6


@dataclass(frozen=True)
class Recording:
    """One run.

    stamps_ns: of every picture that the camera published, in order (from camera_info).
    results: by arrival. counters: node name -> its last values in /diagnostics.
    """

    stamps_ns: tuple[int, ...]
    results: tuple[Result, ...]
    counters: dict[str, dict[str, str]]

    def latencies_ms(self) -> npt.NDArray[np.float64]:
        """float64 (N,), one entry a result."""
        return np.array([result.latency_ms for result in self.results])


def read_recording(path: str | Path) -> Recording:
    """Read an MCAP file of the recorder; InputError when it is none."""
    stamps: list[int] = []
    results: list[Result] = []
    counters: dict[str, dict[str, str]] = {}
    for topic, log_ns, message in _messages(Path(path)):
        if topic == topics.CAMERA_INFO:
            stamps.append(_stamp(message))
        elif topic == topics.DETECTIONS:
            results.append(Result(_stamp(message), log_ns, tuple(_rows(message))))
        elif topic == topics.DIAGNOSTICS.strip("/"):
            for status in message.status:
                counters[status.name.strip("/")] = {v.key: v.value for v in status.values}
    return Recording(tuple(sorted(stamps)), tuple(results), counters)


def _messages(path: Path) -> Iterator[tuple[str, int, Any]]:
    """(last part of the topic, time of arrival, message)."""
    try:
        with path.open("rb") as stream:
            reader = make_reader(stream, decoder_factories=[DecoderFactory()])
            for _, channel, message, decoded in reader.iter_decoded_messages():
                yield channel.topic.rpartition("/")[2], message.log_time, decoded
    except (OSError, McapError) as error:
        raise InputError(f"{path}: not a readable recording: {error}") from error


def _stamp(message: Any) -> int:
    return int(message.header.stamp.sec) * 1_000_000_000 + int(message.header.stamp.nanosec)


def _rows(message: Any) -> Iterator[tuple[str, float, tuple[float, float, float, float]]]:
    for item in message.detections:
        center, width, height = item.bbox.center.position, item.bbox.size_x, item.bbox.size_y
        best = item.results[0].hypothesis
        box = (center.x - width / 2, center.y - height / 2, width, height)
        yield best.class_id, best.score, box
