"""Cameras on the network: RTSP, HTTP and MPEG transport streams, read through FFmpeg."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import numpy as np

from perception.errors import InputError
from perception.frame import Frame
from perception.sources import decode_bgr

SCHEMES = ("rtsp", "rtsps", "http", "https", "tcp", "udp")

ANSWER_SECONDS = 5.0
"""s without an answer, or without the next packet, after which a camera is lost."""

MOST_DAMAGED = 10_000
"""Damaged pictures after which the camera is opened anew, as each is described."""

OPTIONS = {
    # Not UDP: a lost packet would damage every picture up to the next key frame.
    "rtsp_transport": "tcp",
    # Nothing is kept while FFmpeg finds out what comes: those pictures would be stamped too late.
    "fflags": "nobuffer",
    "analyzeduration": "500000",
    "err_detect": "explode",
    # A stream may name other places to read from; never a file of this machine.
    "protocol_whitelist": "crypto,http,https,rtp,rtsp,srtp,tcp,tls,udp",
}


class StreamLost(RuntimeError):
    """The camera cannot be reached or sends no more; asking again may help."""


def is_network(source: str) -> bool:
    """Whether a source is the address of a camera and no path."""
    return "://" in source and urlsplit(source).scheme.lower() in SCHEMES


def without_password(url: str) -> str:
    """The address as logs and diagnostics may show it."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=host, query=""))


def pictures(url: str, problems: list[str]) -> Iterator[Frame]:
    """Pictures as they come, stamped with the time of their arrival.

    problems: takes a sentence for every damaged one; of a video the pictures up to the next key
    frame are left out with it, because they show what it lacks. Raises StreamLost when the camera
    cannot be reached or stops, InputError for a stream without video or without PyAV.
    """
    try:
        av: Any = importlib.import_module("av")
    except ImportError:
        raise InputError(
            "source: network cameras need PyAV: pip install 'waysight[bags]'"
        ) from None
    shown = without_password(url)
    try:
        container = av.open(url, options=OPTIONS, timeout=ANSWER_SECONDS)
    except (av.FFmpegError, OSError) as error:
        raise StreamLost(f"{shown}: cannot be opened: {_reason(error)}") from None
    with container:
        if not container.streams.video:
            raise InputError(f"{shown}: a stream without video, expected one with it")
        stream = container.streams.video[0]
        # One picture in, one out: FFmpeg's threads would hold back one picture each.
        stream.thread_type, stream.codec_context.thread_count = "NONE", 1
        stream.codec_context.options = {"err_detect": "explode"}
        try:
            yield from _decoded(av, container.demux(stream), shown, problems)
        except (av.FFmpegError, OSError) as error:
            raise StreamLost(f"{shown}: {_reason(error)}") from None
    raise StreamLost(f"{shown}: sends no more pictures")


def _decoded(av: Any, packets: Iterator[Any], shown: str, problems: list[str]) -> Iterator[Frame]:
    sequence, whole = 0, False  # one may come in between two key frames
    for packet in packets:
        whole = whole or packet.is_keyframe
        if not packet.size or not whole:
            continue
        try:
            if packet.is_corrupt:
                raise InputError("a damaged packet")
            for image in _images(packet):
                yield Frame(image, time.time_ns(), "", sequence)
                sequence += 1
        except (av.error.InvalidDataError, InputError) as error:
            whole = False
            problems.append(f"{shown}: after picture {sequence}: {_reason(error)}")
            if len(problems) >= MOST_DAMAGED:
                raise StreamLost(f"{shown}: {len(problems)} damaged pictures") from None


def _images(packet: Any) -> Iterator[Any]:
    """The pictures that a packet completes, uint8 (H, W, 3), BGR."""
    if packet.stream.codec_context.name == "mjpeg":
        # FFmpeg fills what is missing of a JPEG.
        yield decode_bgr(bytes(packet))
        return
    for frame in packet.decode():
        if frame.is_corrupt:
            raise InputError("a damaged picture")
        yield np.ascontiguousarray(frame.to_ndarray(format="bgr24"))


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
