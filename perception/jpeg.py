"""The segments of a JPEG file (ITU-T T.81, annex B)."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

START = b"\xff\xd8"
SCAN = 0xDA
"""Marker of the first coded data."""
_APP1, _EXIF = 0xE1, b"Exif\0"

_LENGTH = Struct(">H").unpack_from


def segments(data: bytes) -> Iterator[tuple[int, int]]:
    """Marker and position of each segment from the start up to the first scan, that included.

    Ends early where the data end or are no segment.
    """
    at, end = len(START), len(data) - 4
    while at <= end and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        yield marker, at
        (length,) = _LENGTH(data, at + 2)
        if marker == SCAN or length < 2:
            return
        at += 2 + length


def has_exif(data: bytes) -> bool:
    """Whether the file says, among other things, which way up the picture is."""
    return any(marker == _APP1 and data.startswith(_EXIF, at + 4) for marker, at in segments(data))
