"""Picture files: size without decoding, decoding, perceptual hash."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from perception.datasets.picture_size import plain_size
from perception.errors import InputError
from perception.sources import decode_bgr, read_bgr, read_small_grey

# Exif 2.32, table 4: tag 0x0112; 5 to 8 exchange width and height.
_ORIENTATION = 0x0112
HASH_SIDE = 8
MAX_PIXELS = 1 << 28
"""Pictures above 2**28 pixels are refused, as a decompression bomb would be."""
Image.MAX_IMAGE_PIXELS = None  # the limit above is ours, and an error instead of a warning


@dataclass(frozen=True, slots=True)
class Header:
    """Size after the Exif rotation, as cv2 and every labelling tool show the picture."""

    width: int
    height: int
    orientation: int = 1


def read_header(path: Path | BytesIO) -> Header:
    """Size and orientation from the first bytes; raises InputError when it is no picture."""
    try:
        if isinstance(path, Path) and (size := plain_size(path)):
            return Header(*_allowed(*size, path))
        with Image.open(path) as image:
            return _header(image, path)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        where = f"{path}: " if isinstance(path, Path) else ""
        raise InputError(f"{where}{_reason(error)}") from None


def _header(image: Image.Image, path: Path | BytesIO) -> Header:
    width, height = _allowed(*image.size, path)
    orientation = 1
    if "exif" in image.info or image.format in ("TIFF", "WEBP"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a damaged Exif block leaves the picture usable
            try:
                orientation = int(image.getexif().get(_ORIENTATION, 1))
            except (ValueError, TypeError, SyntaxError, OSError, KeyError):
                orientation = 1
    if orientation in (5, 6, 7, 8):
        width, height = height, width
    return Header(width, height, orientation if 1 <= orientation <= 8 else 1)


def _allowed(width: int, height: int, path: Path | BytesIO) -> tuple[int, int]:
    if width * height > MAX_PIXELS:
        raise InputError(f"{path}: {width}x{height} pixels are more than {MAX_PIXELS}")
    return width, height


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such picture"
    if isinstance(error, UnidentifiedImageError):
        return "not a picture in a known format"
    return f"cannot be read as a picture ({error})"


def load(path: Path) -> npt.NDArray[np.uint8]:
    """The picture as uint8 (H, W, 3), BGR, Exif rotation applied.

    Raises InputError for a missing file and for one that is cut off or damaged.
    """
    return read_bgr(path)


def decode(data: npt.NDArray[np.uint8], name: str) -> npt.NDArray[np.uint8]:
    """Encoded bytes uint8 (B,) to uint8 (H, W, 3), BGR; raises InputError naming `name`."""
    try:
        return decode_bgr(data)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def check_and_hash(path: Path) -> int:
    """Decode the whole picture and return its 64-bit difference hash.

    Bit (row, column) says whether the grey value falls from one column to the next of the picture
    shrunk to 9x8 (N. Krawetz, "Kind of Like That", 2013). JPEG is decoded at a reduced scale, which
    still reads every coded byte. Raises InputError for a cut-off or damaged file.
    """
    try:
        with Image.open(path) as image:
            _header(image, path)
            # A quarter of the cost of a full decode, and finer than the 9x8 cells. Not by Pillow,
            # which takes a JPEG for good that lacks a part other than its end.
            grey = read_small_grey(path, HASH_SIDE * 8)
            if grey is None:
                grey = np.asarray(image.convert("L"))
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise InputError(f"{path}: {_reason(error)}") from None
    return difference_hash(grey)


def pixel_digest(path: Path) -> str:
    """The same for pictures whose pixels are the same; raises InputError as `load` does.

    For those without structure, whose difference hash is 0 whatever their colour.
    """
    return array_digest(load(path))


def array_digest(pixels: npt.NDArray[np.uint8]) -> str:
    """SHA-256 of size and pixels."""
    return hashlib.sha256(repr(pixels.shape).encode() + pixels.tobytes()).hexdigest()


def difference_hash(grey: npt.NDArray[np.uint8]) -> int:
    """64-bit difference hash of a grey picture uint8 (H, W)."""
    small = cv2.resize(grey, (HASH_SIDE + 1, HASH_SIDE), interpolation=cv2.INTER_AREA)
    bits = small[:, :-1] > small[:, 1:]
    return int.from_bytes(np.packbits(bits).tobytes(), "big")
