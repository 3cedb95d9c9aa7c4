"""Sizes from the first bytes are those of the library, for whatever the bytes are."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from perception.datasets.picture_size import plain_size
from perception.datasets.pictures import Header, read_header
from perception.errors import InputError


def encoded(mode: str = "RGB", **options: Any) -> bytes:
    shape = (30, 40) if mode == "L" else (30, 40, len(mode))
    pixels = np.random.default_rng(0).integers(0, 255, shape, dtype=np.uint8)
    sink = BytesIO()
    Image.fromarray(pixels, mode).save(sink, **{"format": "JPEG", **options})
    return sink.getvalue()


def turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


PLAIN = {
    "baseline": encoded(),
    "grey": encoded("L"),
    "progressive": encoded(progressive=True),
    "optimised": encoded(optimize=True, quality=30, comment="made for a test"),
    "restart markers": encoded(restart_marker_blocks=2),
    "png": encoded(format="PNG"),
    "png with profile": encoded(format="PNG", icc_profile=bytes(300)),
}
LEFT_TO_THE_LIBRARY = {
    "turned": encoded(exif=turned(6)),
    "turned png": encoded(format="PNG", exif=turned(6)),
    "cmyk": encoded("CMYK"),
    "long header": encoded(icc_profile=np.random.default_rng(1).bytes(9000)),
    "webp": encoded(format="WEBP"),
    "bmp": encoded(format="BMP"),
}


@pytest.mark.parametrize("data", PLAIN.values(), ids=PLAIN)
def test_plain_pictures_need_no_library(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a").write_bytes(data)
    assert plain_size(tmp_path / "a") == (40, 30) == Image.open(tmp_path / "a").size


@pytest.mark.parametrize("data", LEFT_TO_THE_LIBRARY.values(), ids=LEFT_TO_THE_LIBRARY)
def test_anything_else_is_left_to_the_library(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a").write_bytes(data)
    assert plain_size(tmp_path / "a") is None
    expected = Header(30, 40, 6) if b"Exif\0\0" in data or b"eXIf" in data else Header(40, 30)
    assert read_header(tmp_path / "a") == expected


@pytest.mark.parametrize("name", ["baseline", "progressive", "png", "png with profile"])
def test_damage_never_gives_a_size_that_the_library_does_not_give(
    tmp_path: Path, name: str
) -> None:
    data, random = PLAIN[name], np.random.default_rng(0)
    path = tmp_path / "a"
    for trial in range(400):
        changed = bytearray(data[: random.integers(len(data))] if trial % 2 else data)
        for place in random.integers(0, max(1, len(changed)), trial % 3):
            changed[place : place + 1] = random.bytes(1)
        path.write_bytes(changed)
        size = plain_size(path)
        if size is None:
            continue
        try:
            with Image.open(path) as image:
                assert image.size == size
        except (OSError, SyntaxError, ValueError):
            # The library also reads tables and checksums here; damaged ones are found on decoding.
            with pytest.raises(InputError):
                from perception.datasets.pictures import check_and_hash

                check_and_hash(path)


def test_a_picture_of_absurd_size_is_refused(tmp_path: Path) -> None:
    data = bytearray(PLAIN["png"])
    data[16:24] = (60000).to_bytes(4, "big") * 2
    (tmp_path / "a.png").write_bytes(data)
    with pytest.raises(InputError, match="60000x60000 pixels are more than"):
        read_header(tmp_path / "a.png")


def test_what_is_no_picture_says_so(tmp_path: Path) -> None:
    for name, data in (("empty", b""), ("short", b"\xff\xd8\xff"), ("text", b"hello")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match="not a picture"):
            read_header(tmp_path / name)
    with pytest.raises(InputError, match="no such picture"):
        read_header(tmp_path / "gone")
