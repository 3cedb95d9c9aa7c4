"""Decoded pictures on disk: one memory-mapped uint8 file a set, so that training never decodes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import cv2
import numpy as np
from numpy.typing import NDArray

from perception.errors import InputError
from perception.files import atomic_path
from perception.sources import read_bgr
from perception.train.coco_json import join_problems


class PictureCache:
    """RGB uint8 pictures by position, shrunk so that the longer side is at most `longest`.

    Several processes read the same file through the page cache; nothing is copied until a
    picture is warped.
    """

    def __init__(self, pixels: Path, shapes: NDArray[np.int64]) -> None:
        self._shapes = shapes
        self._starts = np.concatenate([[0], np.cumsum(shapes.prod(axis=1) * 3)])
        self._pixels = (
            np.memmap(pixels, np.uint8, "r") if self._starts[-1] else np.empty(0, np.uint8)
        )

    def __len__(self) -> int:
        return len(self._shapes)

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        """uint8 (h, w, 3), RGB, read-only."""
        height, width = self._shapes[index]
        start = self._starts[index]
        flat = np.asarray(self._pixels[start : start + height * width * 3])
        return flat.reshape(height, width, 3)


def open_cache(files: Sequence[Path], folder: Path, longest: int) -> PictureCache:
    """The cache of `files`, built where it does not exist or a picture has changed since.

    InputError names the pictures that cannot be decoded, or not to their end.
    """
    key = hashlib.sha256(f"rgb {longest}".encode())
    for file in files:
        state = file.stat()
        key.update(f"{file}|{state.st_size}|{state.st_mtime_ns}\n".encode())
    folder.mkdir(parents=True, exist_ok=True)
    pixels = folder / f"{key.hexdigest()[:20]}.u8"
    index = pixels.with_suffix(".npy")
    if not (pixels.exists() and index.exists()):
        with atomic_path(pixels) as temporary, open(temporary, "wb") as out:
            shapes = np.array(_append_all(files, out, longest), np.int64)
        with atomic_path(index) as temporary, open(temporary, "wb") as out:
            np.save(out, shapes.reshape(-1, 2))
    return PictureCache(pixels, np.load(index))


def _append_all(files: Sequence[Path], out: BinaryIO, longest: int) -> list[tuple[int, int]]:
    """Write all pictures and give their sizes; InputError once all that are damaged are known."""
    shapes, problems = [], []
    for file in files:
        try:
            shapes.append(_append(read_bgr(file), out, longest))
        except InputError as error:
            problems.append(str(error))
    if problems:
        raise InputError(join_problems(problems))
    return shapes


def _append(image: NDArray[np.uint8], out: BinaryIO, longest: int) -> tuple[int, int]:
    scale = longest / max(image.shape[:2])
    if scale < 1:
        size = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
        image = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)
    out.write(np.ascontiguousarray(image[:, :, ::-1]).tobytes())
    return image.shape[0], image.shape[1]
