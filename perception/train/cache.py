"""Decoded pictures on disk: one memory-mapped uint8 file a set, so that training never decodes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from perception.errors import InputError
from perception.files import atomic_path


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

    InputError names a picture that cannot be decoded.
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
            shapes = np.array([_append(file, out, longest) for file in files], np.int64)
        with atomic_path(index) as temporary, open(temporary, "wb") as out:
            np.save(out, shapes.reshape(-1, 2))
    return PictureCache(pixels, np.load(index))


def _append(file: Path, out: os.PathLike[str] | object, longest: int) -> tuple[int, int]:
    image = cv2.imread(os.fspath(file), cv2.IMREAD_COLOR)
    if image is None:
        raise InputError(f"{file}: not a picture that can be decoded")
    scale = longest / max(image.shape[:2])
    if scale < 1:
        size = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    out.write(np.ascontiguousarray(image[:, :, ::-1]).tobytes())  # type: ignore[attr-defined]
    return image.shape[0], image.shape[1]
