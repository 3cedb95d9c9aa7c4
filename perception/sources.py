"""Pictures from files: single pictures, folders, videos."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg

from perception import jpeg
from perception.errors import InputError
from perception.frame import Frame

PICTURE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff"})
VIDEO_SUFFIXES = frozenset({".mp4", ".avi", ".mkv", ".mov", ".webm", ".m4v", ".mpg", ".mpeg"})

T = TypeVar("T")

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
    be wrong, and where frames come irregularly, it is a guess from a rate). rate: frames a second
    of a video, else None; the stamps of its frames are the container's own times.
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
        """Whether frames come from one video."""
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
            index = stamp = start = 0
            period = step = round(NANOSECONDS / self.rate)
            while True:
                ok, image = capture.read()
                if not ok:
                    break
                time_ns = round(capture.get(cv2.CAP_PROP_POS_MSEC) * 1e6)
                if index:
                    # Some containers hold no times, or some of them.
                    step = time_ns - start - stamp
                    step = step if step > 0 else period
                    stamp += step
                else:
                    start = time_ns
                picture = np.asarray(image, dtype=np.uint8)
                yield SourceFrame(Frame(picture, stamp, "", index), f"{path.name}#{index:05d}")
                index += 1
        finally:
            capture.release()
        # By time as well: fewer frames than were guessed may be all that there are.
        lasted, whole = stamp + step, self.count * NANOSECONDS / self.rate
        if index < self.count and lasted < whole - period / 2:
            self.problems.append(
                f"{path}: ends after frame {index} of the {self.count} that its header names"
            )
            self.broken_off = lasted < WHOLE_SHARE * whole


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
        live = "; cameras are read by `waysight run road --source`" if _is_camera(path) else ""
        raise InputError(f"{path}: no such file or folder{live}")
    if path.suffix.lower() in PICTURE_SUFFIXES:
        read_picture(path)
        return Source([path], 1)
    return _open_video(path)


def _is_camera(path: Path) -> bool:
    """Whether it looks like a device, or like an address that became a path."""
    return path.parts[:2] == ("/", "dev") or path.parts[:1] in (("rtsp:",), ("http:",), ("https:",))


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

    EXIF rotation is applied to colour pictures of 8 bit. Raises InputError when the file is
    missing, damaged or cut short.
    """
    return _of_file(path, decode_picture)


def read_bgr(path: str | Path) -> npt.NDArray[np.uint8]:
    """A picture as `read_picture` reads it, always uint8 (H, W, 3), BGR, EXIF rotation applied.

    What data sets, training and evaluation read: no damaged picture may count as a good one.
    """
    return _of_file(path, decode_bgr)


def read_small_grey(path: str | Path, side: int) -> npt.NDArray[np.uint8] | None:
    """A JPEG as uint8 (H, W), grey, as taken; None for what is no JPEG.

    As small as a decoder makes it for little, with no side below `side` unless it is the picture's
    own; every bit of the code is read all the same. Raises InputError as `read_picture` does.
    """
    return _of_file(path, lambda data: _small_grey(data, side))


def _of_file(path: str | Path, decode: Callable[[Any], T]) -> T:
    """Read the bytes by path and then decode them, so that names of any script work."""
    try:
        data = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from None
    try:
        return decode(data)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


PNG_START, PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"
# IMREAD_UNCHANGED keeps 16 bit and alpha, but skips the EXIF rotation; plain colour pictures are
# the common case and get it.
_UPRIGHT = cv2.IMREAD_ANYDEPTH | cv2.IMREAD_COLOR
_AS_TAKEN = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
_MOST_PIXELS = 2**30  # OpenCV's limit: memory is taken as the header says, before any of it is read


def decode_picture(data: Any, *, upright: bool = True) -> npt.NDArray[Any]:
    """Decode compressed picture bytes, any buffer.

    upright: turn pictures as their EXIF says, and keep 16 bit; else BGR uint8, as the camera sees.
    Raises InputError when they are no picture, damaged or cut short.
    """
    return _decode_whole(data, _UPRIGHT if upright else _AS_TAKEN)


def decode_bgr(data: Any) -> npt.NDArray[np.uint8]:
    """Decode compressed picture bytes to uint8 (H, W, 3), BGR, turned as their EXIF says.

    Raises InputError as `decode_picture` does.
    """
    return _decode_whole(data, cv2.IMREAD_COLOR)


def _decode_whole(data: Any, flags: int) -> npt.NDArray[Any]:
    view = memoryview(data)
    if bytes(view[: len(jpeg.START)]) == jpeg.START:
        return _decode_jpeg(view, flags)
    whole = bytes(view)
    # What follows the end is allowed: zeros of a camera's buffer.
    if whole.startswith(PNG_START) and PNG_END not in whole[len(PNG_START) :]:
        raise InputError(f"PNG of {len(whole)} bytes has no end chunk: it is cut short")
    return _decode(view, flags)


def _decode(view: memoryview, flags: int) -> npt.NDArray[Any]:
    size = view.nbytes
    try:
        image = cv2.imdecode(np.frombuffer(view, np.uint8), flags) if size else None
    except cv2.error as error:
        raise InputError(f"{size} bytes that cannot be decoded as a picture: {error.err}") from None
    if image is None:
        raise InputError(f"{size} bytes are not a picture that can be decoded (damaged?)")
    return image


def _decode_jpeg(view: memoryview, flags: int) -> npt.NDArray[Any]:
    """OpenCV fills what is missing of a JPEG with grey, prints a warning and reports success.

    simplejpeg raises for the warning. Its pixels are the same, in no more time.
    """
    try:
        height, width, space, _ = simplejpeg.decode_jpeg_header(view)
        if height * width > _MOST_PIXELS:
            raise ValueError(f"{width}x{height} is more than {_MOST_PIXELS} pixels")
        upright = not flags & cv2.IMREAD_IGNORE_ORIENTATION
        if space == "CMYK" or (upright and jpeg.has_exif(bytes(view))):
            # OpenCV knows how to turn and to convert. The smallest size: every bit of the code is
            # read for it all the same.
            simplejpeg.decode_jpeg(view, "GRAY", min_height=1, min_width=1, min_factor=8)
            return _decode(view, flags)
        pixels: npt.NDArray[Any] = simplejpeg.decode_jpeg(view, "BGR")
    except ValueError as error:
        raise _damaged(view, error) from None
    return pixels


def _small_grey(data: Any, side: int) -> npt.NDArray[Any] | None:
    view = memoryview(data)
    if bytes(view[: len(jpeg.START)]) != jpeg.START:
        return None
    try:
        grey: npt.NDArray[Any] = simplejpeg.decode_jpeg(
            view, "GRAY", min_height=side, min_width=side
        )
    except ValueError as error:
        raise _damaged(view, error) from None
    return grey[..., 0]


def _damaged(view: memoryview, error: ValueError) -> InputError:
    return InputError(f"JPEG of {view.nbytes} bytes is damaged or cut short: {error}")
