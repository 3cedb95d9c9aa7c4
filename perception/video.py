"""H.264 video that browsers play.

PyAV is BSD-licensed and reaches FFmpeg's encoders. Its wheels hold x264 (GPL), which the user
installs and this package only calls; an FFmpeg built without it is used through OpenH264 (BSD).
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import numpy.typing as npt

from perception.errors import InputError

ENCODERS = ("libx264", "libopenh264", "h264_v4l2m2m")
TIME_BASE = Fraction(1, 90_000)
"""The clock of MPEG transport, which every rate in use divides."""
FRAGMENT = 60
"""Pictures from one key frame to the next; so many are lost at most when a process is killed."""


def encoder() -> str:
    """The first H.264 encoder that this FFmpeg has; InputError when it has none."""
    for name in ENCODERS:
        try:
            av.codec.Codec(name, "w")
            return name
        except Exception:  # av raises a class of its own by version
            continue
    raise InputError(f"this PyAV has none of the H.264 encoders {', '.join(ENCODERS)}")


class VideoFile:
    """Writes BGR pictures of one size with their own times.

    A file that is never closed, or whose disk is full, plays up to its last whole fragment; a
    reader may complain of what follows it.
    """

    def __init__(self, path: Path, width: int, height: int) -> None:
        """width, height: of the pictures; an odd last row or column is repeated (yuv420p)."""
        self.size = (width, height)
        # Written out at each key frame, or 256 KiB, minutes of a quiet scene, would be lost.
        options = {"movflags": "hybrid_fragmented+frag_keyframe", "flush_packets": "1"}
        self._container = av.open(str(path), "w", options=options)
        name = encoder()
        stream: Any = self._container.add_stream(name)
        stream.width, stream.height = width + width % 2, height + height % 2
        stream.pix_fmt = "yuv420p"
        stream.time_base = TIME_BASE
        stream.codec_context.time_base = TIME_BASE
        stream.codec_context.thread_count = 1
        stream.codec_context.gop_size = FRAGMENT
        if name == "libx264":
            stream.options = {"preset": "veryfast", "crf": "23", "tune": "zerolatency"}
        self._stream = stream
        self._first_ns: int | None = None
        self._last_pts = -1

    def write(self, image: npt.NDArray[np.uint8], stamp_ns: int) -> None:
        """Add uint8 (H, W, 3) BGR; times must grow, an older one is moved just past the last."""
        height, width = image.shape[:2]
        if width % 2 or height % 2:
            image = cv2.copyMakeBorder(  # type: ignore[assignment]
                image, 0, height % 2, 0, width % 2, cv2.BORDER_REPLICATE
            )
        if self._first_ns is None:
            self._first_ns = stamp_ns
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="bgr24")
        pts = round((stamp_ns - self._first_ns) * TIME_BASE.denominator / 1e9)
        self._last_pts = max(pts, self._last_pts + 1)
        frame.pts, frame.time_base = self._last_pts, TIME_BASE
        self._container.mux(self._stream.encode(frame))

    def close(self) -> None:
        """Write what is left and close."""
        self._container.mux(self._stream.encode(None))
        self._container.close()
