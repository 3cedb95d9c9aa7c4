"""Small data sets that the tests make themselves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

SHARED = Path(__file__).resolve().parents[3] / "shared"
FIXTURES = SHARED / "fixtures"


def picture(path: Path, width: int = 64, height: int = 48, seed: int = 0) -> Path:
    """A picture with structure that depends on the seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = np.random.default_rng(seed).integers(0, 255, (6, 8, 3), dtype=np.uint8)
    image = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    path.write_bytes(cv2.imencode(path.suffix, image)[1].tobytes())
    return path


def damaged_jpeg(path: Path, width: int = 64, height: int = 48) -> Path:
    """A JPEG without a part of its middle, which OpenCV and Pillow decode without a word."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(0).integers(0, 255, (height, width, 3), dtype=np.uint8)
    data = cv2.imencode(".jpg", noise)[1].tobytes()
    path.write_bytes(data[: len(data) // 2] + data[len(data) * 2 // 3 :])
    return path


def coco(
    folder: Path,
    boxes: Sequence[Sequence[Sequence[float]]],
    *,
    names: Sequence[str] = ("car", "bus"),
    file: str = "annotations/instances_train.json",
    prefix: str = "",
    **image: Any,
) -> Path:
    """A COCO set: for each picture rows of (category id, left, top, width, height)."""
    images, annotations = [], []
    for i, rows in enumerate(boxes):
        name = f"{prefix}{i:03d}.png"
        picture(folder / "images" / name, seed=hash_seed(prefix, i))
        images.append({"id": i + 1, "file_name": name, "width": 64, "height": 48, **image})
        for category, *box in rows:
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": i + 1,
                    "bbox": box,
                    "category_id": category,
                    "area": box[2] * box[3],
                    "iscrowd": 0,
                }
            )
    categories = [{"id": i + 1, "name": name} for i, name in enumerate(names)]
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {"images": images, "annotations": annotations, "categories": categories}
    path.write_text(json.dumps(data, indent=1), encoding="utf-8")
    return folder


def hash_seed(prefix: str, number: int) -> int:
    """A seed that is the same in every process."""
    return sum(prefix.encode()) * 1000 + number
