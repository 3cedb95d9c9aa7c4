"""Large JSON files in bounded memory: the elements of top-level arrays, a block at a time.

msgspec decodes a whole text at once, and ijson takes half a minute for two million small objects.
So the file is cut at element borders found with NumPy, and each piece is decoded with msgspec.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.errors import InputError

BLOCK = 1 << 20
MAX_ELEMENT = 256 << 20
"""One element larger than this (bytes) is refused: it would break the promise about memory."""

_KEY = re.compile(rb'"((?:[^"\\]|\\.)*)"\s*:\s*$', re.DOTALL)
_QUOTE = 2
_KIND = np.zeros(256, np.int8)
_KIND[[ord("["), ord("{")]] = 1
_KIND[[ord("]"), ord("}")]] = -1
_KIND[ord('"')] = _QUOTE

Ints = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Piece:
    """Some consecutive elements of one top-level array, or one whole top-level object.

    key: its key, "" for the elements of a file that is itself an array.
    text: the elements with the commas between them. is_array: False for a whole object.
    starts, ends: int64 (N,), where elements that are objects or arrays begin and end in text.
    lines: int64 (N,), the line of the file on which each begins.
    """

    key: str
    text: bytes
    is_array: bool
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    lines: npt.NDArray[np.int64]

    def elements(self) -> Iterator[tuple[bytes, int]]:
        """Each element's text and line."""
        for start, end, line in zip(self.starts, self.ends, self.lines, strict=True):
            yield self.text[start:end], int(line)

    def only_objects(self) -> bool:
        """False when something stands between the elements that is no object, such as a number."""
        between = bytearray(self.text)
        for start, end in zip(self.starts[::-1], self.ends[::-1], strict=True):
            del between[start:end]
        return not bytes(between).strip(b", \t\r\n")


class Truncated(InputError):
    """The JSON text ends, or breaks off, inside a value; what came before has been handed on."""


def head(path: Path, size: int = 4096) -> bytes:
    """The first bytes of a file without byte order mark and leading blanks; b"" if unreadable."""
    try:
        with path.open("rb") as file:
            return file.read(size).removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError:
        return b""


def pieces(path: Path, wanted: frozenset[str]) -> Iterator[Piece]:
    """Stream the wanted top-level values of a JSON file whose top is an object or an array.

    Raises InputError when it cannot be read or is neither, Truncated when it ends too early.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    with file:
        scanner = _Scanner(path, wanted)
        size = BLOCK
        while block := file.read(size):
            before = len(scanner.text)
            yield from scanner.feed(block)
            # A value larger than a block is scanned again with each one: take larger steps then.
            size = BLOCK if len(scanner.text) < before + len(block) else 2 * size
        scanner.finish()


class _Scanner:
    """Keeps the text from the last border between two values on, and where that border was."""

    def __init__(self, path: Path, wanted: frozenset[str]) -> None:
        self.path, self.wanted = path, wanted
        self.text = b""
        self.line = 1
        self.top = b""  # "{" or "[" once the first block was seen
        self.key: str | None = None  # section that self.text begins in, None between sections
        self.is_array = True
        self.begun = False
        self.closed = False

    def feed(self, block: bytes) -> Iterator[Piece]:
        if not self.top:
            block = block.removeprefix(b"\xef\xbb\xbf")
            self.top = (self.text + block).lstrip()[:1]
            if self.top not in (b"{", b"[", b""):
                raise InputError(f"{self.path}:1: expected JSON, found {block[:16]!r}")
        text = self.text = self.text + block
        if len(text) > MAX_ELEMENT:
            raise InputError(f"{self.path}:{self.line}: one value is larger than {MAX_ELEMENT} B")
        marks, steps, depths = _structure(text)
        # Depth of sections: values of the top object, or the top array itself.
        level = 1 if self.top == b"{" else 0
        depths = depths + (level + 1 if self.key is not None else level if self.begun else 0)
        opens = marks[(steps == 1) & (depths == level + 2)]
        closes = marks[(steps == -1) & (depths == level + 1)]
        newlines = np.flatnonzero(np.frombuffer(text, np.uint8) == 10)
        borders = marks[
            ((steps == 1) & (depths == level + 1)) | ((steps == -1) & (depths <= level))
        ]
        position = 0
        for border in borders.tolist():
            if text[border] in b"[{":
                self._begin(text[position:border], text[border : border + 1])
            elif self.key is not None:
                yield from self._piece(text, position, border, opens, closes, newlines)
                self.key = None
                self.closed = level == 0
            else:
                self.closed = True
            position = border + 1
        stop = self._last_border(text, position, closes)
        if stop > position and self.key is not None:
            yield from self._piece(text, position, stop, opens, closes, newlines)
            position = stop
        self.line += int(np.searchsorted(newlines, position))
        self.text = text[position:]

    def _begin(self, before: bytes, bracket: bytes) -> None:
        self.begun = True
        self.is_array = bracket == b"["
        found = _KEY.search(before)
        self.key = found[1].decode("utf-8", "replace") if found else ""

    def _last_border(self, text: bytes, position: int, closes: Ints) -> int:
        """Where the values of the section at hand that are complete end in the text."""
        if self.key is None or (self.key in self.wanted and not self.is_array):
            return position
        if len(closes) and closes[-1] >= position:
            return int(closes[-1]) + 1
        if self.key not in self.wanted and b'"' not in text[position:]:
            # A long list of numbers that nobody wants.
            return max(position, text.rfind(b",") + 1)
        return position

    def _piece(
        self, text: bytes, begin: int, end: int, opens: Ints, closes: Ints, newlines: Ints
    ) -> Iterator[Piece]:
        assert self.key is not None
        if self.key not in self.wanted:
            return
        starts = opens[(opens >= begin) & (opens < end)]
        ends = closes[(closes >= begin) & (closes < end)] + 1
        lines = self.line + np.searchsorted(newlines, starts)
        yield Piece(self.key, text[begin:end], self.is_array, starts - begin, ends - begin, lines)

    def finish(self) -> None:
        """Raise Truncated unless the top value was closed."""
        if not self.closed:
            line = self.line + self.text.count(b"\n")
            raise Truncated(f"{self.path}:{line}: the JSON text ends inside a value (cut off)")


def _structure(text: bytes) -> tuple[Ints, Ints, Ints]:
    """Positions of the brackets outside strings, their step (+1 opens, -1 closes), depth after.

    The text begins outside a string; the depth counts from 0.
    """
    characters = np.frombuffer(text, np.uint8)
    places = np.flatnonzero(_KIND[characters])
    kinds = _KIND[characters[places]]
    quotes = kinds == _QUOTE
    if b'\\"' in text:
        at = places[quotes]
        for place in at[characters[at - 1] == ord("\\")].tolist():
            before = text[max(0, place - 4096) : place]
            if (len(before) - len(before.rstrip(b"\\"))) % 2:
                quotes[np.searchsorted(places, place)] = False
    inside = np.cumsum(quotes, dtype=np.int32) & 1
    brackets = np.flatnonzero((inside == 0) & ~quotes & (kinds != _QUOTE))
    step = kinds[brackets]
    return places[brackets], step, np.cumsum(step, dtype=np.int32)
