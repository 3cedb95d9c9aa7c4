"""Size of plain JPEG and PNG files from their first bytes.

Pillow takes about 150 microseconds for what these few lines read in 20, which is most of the time
of indexing a set without decoding. Anything out of the ordinary (an Exif block, a rare coding, a
header that is long, cut off or damaged) is left to Pillow.
"""

from __future__ import annotations

import os
from struct import Struct

from perception import jpeg

FIRST_BYTES = 4096
"""Enough for the tables and comments of usual files: one page, one read."""

_JPEG_FRAMES = (0xC0, 0xC1, 0xC2)  # baseline, extended, progressive (ITU-T T.81, table B.1)
_TABLES = (0xC4, 0xDB, 0xDD, 0xFE)  # DHT, DQT, DRI, COM
_APPLICATION = range(0xE0, 0xF0)
_FRAME = Struct(">BHHB").unpack_from  # precision, height, width, components
_CHUNK = Struct(">I4s").unpack_from
_IHDR = Struct(">II").unpack_from


def plain_size(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    """Width and height in pixels of a plain picture file, None to ask a library.

    What it returns needs no Exif rotation. Raises OSError when the file cannot be read.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        data = os.read(handle, FIRST_BYTES)
    finally:
        os.close(handle)
    if data.startswith(b"\xff\xd8\xff"):
        return _jpeg_size(data)
    if data.startswith(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"):
        return _png_size(data)
    return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Walk the segments up to the first scan, as a decoder would."""
    size = None
    for marker, at in jpeg.segments(data):
        if marker == jpeg.SCAN:
            return size
        if marker in _JPEG_FRAMES:
            if size or at + 10 > len(data):
                return None
            precision, height, width, components = _FRAME(data, at + 4)
            if precision != 8 or components not in (1, 3) or not (width and height):
                return None
            size = (width, height)
        elif marker in _APPLICATION:
            if data.startswith((b"Exif", b"MPF"), at + 4):
                return None
        elif marker not in _TABLES:
            return None
    return None


def _png_size(data: bytes) -> tuple[int, int] | None:
    """Walk the chunks up to the first pixels: an eXIf chunk before them turns the picture."""
    width, height = _IHDR(data, 16) if len(data) >= 24 else (0, 0)
    at = 33  # signature 8, IHDR 4 + 4 + 13 + 4
    while width and height and at + 8 <= len(data):
        length, kind = _CHUNK(data, at)
        if kind == b"IDAT":
            return width, height
        if kind == b"eXIf":
            return None
        at += 12 + length
    return None
