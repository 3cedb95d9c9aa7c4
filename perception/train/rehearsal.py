"""The whole path on a tiny generated set: data, training, evaluation, export, detection."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from perception.errors import WaysightError
from perception.files import atomic_path, write_json
from perception.train.sets import SetSettings
from perception.train.settings import RunSettings


def draw_set(
    file: Path, count: int, names: tuple[str, ...], seed: int, size: tuple[int, int] = (320, 192)
) -> None:
    """Writes `count` pictures of coloured blocks on a road, and their COCO json `file`.

    Every fourth picture is empty road: background must train too.
    """
    rng = np.random.default_rng(seed)
    folder = file.parent / file.stem
    folder.mkdir(parents=True, exist_ok=True)
    images, annotations = [], []
    for number in range(count):
        picture = _road(rng, size)
        for _ in range(0 if number % 4 == 3 else int(rng.integers(1, 5))):
            label = int(rng.integers(0, len(names)))
            box = _block(picture, label, rng)
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": label,
                    "bbox": box,
                    "area": box[2] * box[3],
                    "iscrowd": 0,
                }
            )
        name = f"{folder.name}/{number:04d}.png"
        cv2.imwrite(str(file.parent / name), picture)
        images.append({"id": number, "file_name": name, "width": size[0], "height": size[1]})
    write_json(
        file,
        {
            "info": {"description": "generated blocks on a road"},
            "images": images,
            "categories": [{"id": i, "name": name} for i, name in enumerate(names)],
            "annotations": annotations,
        },
    )


def _road(rng: np.random.Generator, size: tuple[int, int]) -> NDArray[np.uint8]:
    width, height = size
    picture = np.empty((height, width, 3), np.uint8)
    picture[: height // 2] = rng.integers(150, 220, 3)
    picture[height // 2 :] = rng.integers(70, 110)
    noise = rng.normal(0, 6, picture.shape)
    return np.clip(picture + noise, 0, 255).astype(np.uint8)


def _block(picture: NDArray[np.uint8], label: int, rng: np.random.Generator) -> list[float]:
    """One block; its colour and shape tell the class. Returns x, y, width, height."""
    height, width = picture.shape[:2]
    w = int(rng.integers(24, 90))
    h = max(12, int(w * (0.55 + 0.25 * (label % 3))))
    x, y = (
        int(rng.integers(0, width - w)),
        int(rng.integers(height // 3, max(height // 3 + 1, height - h))),
    )
    h = min(h, height - y)
    hue = np.array([[[label * 37 % 180, 220, int(rng.integers(150, 255))]]], np.uint8)
    colour = tuple(int(v) for v in cv2.cvtColor(hue, cv2.COLOR_HSV2BGR)[0, 0])
    cv2.rectangle(picture, (x, y), (x + w - 1, y + h - 1), colour, -1)
    cv2.rectangle(picture, (x + w // 6, y + h // 8), (x + w - w // 6, y + h // 3), (40, 30, 25), -1)
    return [float(x), float(y), float(w), float(h)]


def rehearse(settings: RunSettings, folder: Path) -> None:
    """Trains two epochs, evaluates, exports, verifies and detects.

    WaysightError names the part that did not do its work.
    """
    from perception.export.launch import export_run
    from perception.export.settings import ExportSettings
    from perception.runtime.detector import Detector
    from perception.train.launch import train

    console = Console()
    data = folder / "data"
    draw_set(data / "train.json", 64, settings.model.names, seed=1)
    draw_set(data / "val.json", 16, settings.model.names, seed=2)
    trainer = train(shrink(settings, data), folder)
    if not all(math.isfinite(v) for v in trainer.last_losses.values()) or not trainer.last_losses:
        raise WaysightError("rehearsal: the last losses are not finite")
    report = export_run(folder, folder / "model.onnx", ExportSettings(), None)
    detector = Detector(folder / "model.onnx")
    picture = cv2.imread(str(data / "val" / "0000.png"))
    found = detector(np.asarray(picture))
    if not found.valid or detector.names != settings.model.names:
        raise WaysightError("rehearsal: the exported file does not detect")
    with atomic_path(folder / "rehearsal.json") as temporary:
        temporary.write_text(
            json.dumps({"steps": trainer.step, "detections": len(found), **report}, indent=1)
        )
    console.print(
        f"rehearsal passed: {trainer.step} steps, exported and verified, {len(found)} detections "
        f"in one picture after two epochs; {folder}",
        markup=False,
    )


def shrink(settings: RunSettings, data: Path) -> RunSettings:
    """The same run on the generated set, two epochs at a quarter of the input size."""
    width, height = (
        max(64, side // 2 // 32 * 32) for side in (settings.model.width, settings.model.height)
    )
    return dataclasses.replace(
        settings,
        model=dataclasses.replace(settings.model, width=width, height=height),
        data=dataclasses.replace(
            settings.data,
            root=str(data.resolve()),
            cache=str(data.resolve() / "cache"),
            train=(SetSettings("train.json", annotated=settings.model.channels),),
            val=(SetSettings("val.json", annotated=settings.model.channels),),
        ),
        train=dataclasses.replace(
            settings.train,
            steps=16,
            minutes=0.0,
            batch=8,
            phases=(),
            warmup=4,
            log_every=4,
            evaluate_every=8,
            checkpoint_every=8,
            ema_decay=0.9,
            ema_tau=4.0,
        ),
    )
