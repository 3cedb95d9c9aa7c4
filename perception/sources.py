"""Pictures from files: single pictures, folders, videos."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from perception import jpeg
from perception.errors import InputError
from perception.frame import Frame

PICTURE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff"})
VIDEO_SUFFIXES = frozenset({".mp4", ".avi", ".mkv", ".mov", ".webm", ".m4v", ".mpg", ".mpeg"})

NANOSECONDS = 1_000_000_000

WHOLE_SHARE = 0.95
"""Least part of a video's duration up to its last frame; headers of whole videos are off by a few
frames (edit lists, a sound track that is longer)."""


@dataclass(frozen=True, slots=True)
class SourceFrame:
    """One frame of a source; name is the file name, or `video.mp4#00012` for a video frame."""

    frame: Frame
    name: str


@dataclass
class Source:
    """Pictures or one video, in order. Iterate to read it; it can be read again.

    paths: the pictures, or the one video. count: frames that are expected (a video's header may
    be wrong). rate: frames a second of a video, else None.
    problems: what could not be read in the last pass, one sentence each, in order.
    broken_off: whether the last pass of a video ended well before the end that its header names.
    """

    paths: Sequence[Path]
    count: int
    rate: float | None = None
    problems: list[str] = field(default_factory=list)
    broken_off: bool = False

    @property
    def is_video(self) -> bool:
        """Whether frames come from one video and are a fixed time apart."""
        return self.rate is not None

    def __iter__(self) -> Iterator[SourceFrame]:
        self.problems.clear()
        return self._read_video() if self.is_video else self._read_pictures()

    def _read_pictures(self) -> Iterator[SourceFrame]:
        for index, path in enumerate(self.paths):
            try:
                image = read_picture(path)
            except InputError as error:
                self.problems.append(str(error))
                continue
            yield SourceFrame(Frame(image, 0, "", index), path.name)

    def _read_video(self) -> Iterator[SourceFrame]:
        assert self.rate is not None
        path = self.paths[0]
        capture = cv2.VideoCapture(str(path))
        self.broken_off = False
        try:
            index = 0
            seconds = 0.0
            while True:
                ok, image = capture.read()
                if not ok:
                    break
                seconds = capture.get(cv2.CAP_PROP_POS_MSEC) / 1e3
                picture = np.asarray(image, dtype=np.uint8)
                stamp = round(index * NANOSECONDS / self.rate)
                yield SourceFrame(Frame(picture, stamp, "", index), f"{path.name}#{index:05d}")
                index += 1
        finally:
            capture.release()
        if index < self.count:
            self.problems.append(
                f"{path}: ends after frame {index} of the {self.count} that its header names"
            )
            # By time too: where frames come irregularly, the count is only guessed from a rate.
            self.broken_off = seconds < WHOLE_SHARE * self.count / self.rate


def open_source(path: str | Path) -> Source:
    """Open a picture, a folder of pictures (sorted by name) or a video.

    Raises InputError for a missing path, a folder without pictures, or a file that is neither a
    picture nor a video that can be decoded.
    """
    path = Path(path)
    if path.is_dir():
        pictures = sorted(p for p in path.iterdir() if p.suffix.lower() in PICTURE_SUFFIXES)
        if not pictures:
            suffixes = ", ".join(sorted(PICTURE_SUFFIXES))
            raise InputError(f"{path}: folder without pictures ({suffixes})")
        return Source(pictures, len(pictures))
    if not path.is_file():
        raise InputError(f"{path}: no such file or folder")
    if path.suffix.lower() in PICTURE_SUFFIXES:
        read_picture(path)
        return Source([path], 1)
    return _open_video(path)


def _open_video(path: Path) -> Source:
    capture = cv2.VideoCapture(str(path))
    try:
        ok, _ = capture.read() if capture.isOpened() else (False, None)
        rate = capture.get(cv2.CAP_PROP_FPS)
        count = int(capture.get(cv2.CAP_PROP_FRAME_COUNT))
    finally:
        capture.release()
    if not ok:
        raise InputError(
            f"{path}: not a picture, and no frame of it can be decoded as video (is it truncated?)"
        )
    if not (np.isfinite(rate) and rate > 0):
        raise InputError(f"{path}: video names no frame rate")
    return Source([path], max(count, 1), float(rate))


def read_picture(path: str | Path) -> npt.NDArray[Any]:
    """Decode a picture as it is stored: uint8 or uint16, grey, BGR or BGRA.

    EXIF rotation is applied to colour pictures of 8 bit. The bytes are read by path and then
    decoded, so names of any script work. Raises InputError when the file is missing or damaged.
    """
    try:
        data = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from None
    try:
        return decode_picture(data)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


PNG_START, PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"
# IMREAD_UNCHANGED keeps 16 bit and alpha, but skips the EXIF rotation; plain colour pictures are
# the common case and get it.
_AS_STORED = cv2.IMREAD_ANYDEPTH | cv2.IMREAD_COLOR


def decode_picture(data: Any, flags: int = _AS_STORED) -> npt.NDArray[Any]:
    """Decode compressed picture bytes, any buffer; `flags` are OpenCV's IMREAD_*.

    Raises InputError when they are no picture, damaged or cut short.
    """
    size = memoryview(data).nbytes
    check_complete(data)
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), flags) if size else None
    except cv2.error as error:
        raise InputError(f"{size} bytes that cannot be decoded as a picture: {error.err}") from None
    if image is None:
        raise InputError(f"{size} bytes are not a picture that can be decoded (damaged?)")
    return image


def check_complete(data: Any) -> None:
    """Raise InputError for a JPEG or PNG, in any buffer of bytes, whose end is missing.

    Decoders before OpenCV 5 fill what is missing of a cut JPEG with grey and report success. What
    follows the end is allowed: zeros of a camera's buffer, a phone's notes.
    """
    whole = bytes(data)
    if whole.startswith(jpeg.START):
        # Segments before the scan may hold another whole JPEG, the Exif thumbnail.
        scan = next((at for marker, at in jpeg.segments(whole) if marker == jpeg.SCAN), len(whole))
        if whole.rfind(jpeg.END, scan) < 0:
            raise InputError(f"JPEG of {len(whole)} bytes has no end marker: it is cut short")
    if whole.startswith(PNG_START) and PNG_END not in whole[len(PNG_START) :]:
        raise InputError(f"PNG of {len(whole)} bytes has no end chunk: it is cut short")
