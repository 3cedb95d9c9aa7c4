"""Contact sheets and single pictures with their boxes, as PNG or as one self-contained HTML."""

from __future__ import annotations

import base64
import html
import random
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from perception.datasets.dataset import Dataset
from perception.datasets.sample import Sample
from perception.draw import draw, draw_banner
from perception.errors import InputError
from perception.files import atomic_path

_GREY = (150, 150, 150)


def choose(
    dataset: Dataset,
    count: int,
    *,
    names: Sequence[str] = (),
    only: str = "",
    seed: int | None = None,
) -> list[int]:
    """Positions of the pictures to be shown.

    names: exactly these pictures. only: those with a box of that class. seed: draw at random (None:
    evenly spread). Raises InputError for a name or class that the data set does not have.
    """
    if names:
        wanted = dict.fromkeys(names, -1)
        for position, sample in enumerate(dataset):
            for key in (sample.name, sample.id):
                if wanted.get(key) == -1:
                    wanted[key] = position
        missing = [name for name, position in wanted.items() if position < 0]
        if missing:
            raise InputError(f"{dataset.root}: has no picture {missing[0]!r}")
        return list(wanted.values())
    positions = list(range(len(dataset)))
    if only:
        label = dataset.names.index(only)
        positions = [i for i, sample in enumerate(dataset) if label in sample.truth.labels]
    if seed is not None:
        return sorted(random.Random(seed).sample(positions, min(count, len(positions))))
    steps = np.unique(np.linspace(0, len(positions) - 1, min(count, len(positions))).astype(int))
    return [positions[i] for i in steps] if positions else []


def picture_with_boxes(dataset: Dataset, sample: Sample, width: int) -> npt.NDArray[np.uint8]:
    """uint8 (H, W, 3), BGR: the picture at most `width` pixels wide with boxes drawn.

    A picture that cannot be read is grey with the reason on it, its boxes drawn all the same.
    """
    reason = ""
    try:
        image = dataset.pixels(sample)
    except InputError as error:
        reach = sample.truth.boxes.max(axis=0) if len(sample.truth) else np.zeros(4)
        size = (
            sample.height or max(120, int(reach[3]) + 8),
            sample.width or max(160, int(reach[2]) + 8),
        )
        image = np.full((*np.minimum(size, 8192), 3), 96, np.uint8)
        reason = str(error).rpartition(": ")[2]
    scale = min(1.0, width / image.shape[1])
    truth = sample.truth
    if scale < 1:
        size = (width, max(1, round(image.shape[0] * scale)))
        image = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)
    from perception.datasets.repair import replace_boxes

    truth = replace_boxes(sample, truth.boxes * np.float32(scale)).truth
    canvas = np.ascontiguousarray(image)
    for x1, y1, x2, y2 in np.clip(sample.ignore * scale, -1e4, 1e4).astype(int).tolist():
        cv2.rectangle(canvas, (x1, y1), (x2, y2), _GREY, 2)
        cv2.line(canvas, (x1, y1), (x2, y2), _GREY, 1)
    canvas = draw(canvas, truth, dataset.names.names, scores=bool(sample.scored.any()), copy=False)
    if reason:
        draw_banner(canvas, reason)
    return np.asarray(canvas, dtype=np.uint8)


def write_sheet(
    dataset: Dataset, positions: Sequence[int], out: Path, *, columns: int = 4, width: int = 480
) -> None:
    """Write the pictures at `positions` to out.png, .jpg or .html; InputError for another."""
    suffix = out.suffix.lower()
    if suffix not in (".png", ".jpg", ".jpeg", ".html"):
        raise InputError(f"{out}: expected a name ending in .png, .jpg or .html")
    if not positions:
        raise InputError(f"{dataset.root}: there is no picture to show")
    if suffix == ".html":
        _write_html(dataset, positions, out, width)
        return
    single = len(positions) == 1
    tiles = [picture_with_boxes(dataset, dataset[i], 4096 if single else width) for i in positions]
    sheet = tiles[0] if single else _sheet(tiles, columns, width)
    with atomic_path(out) as temporary:
        if not cv2.imwrite(str(temporary), sheet):
            raise InputError(f"{out}: the picture could not be written")


def _sheet(
    tiles: Sequence[npt.NDArray[np.uint8]], columns: int, width: int
) -> npt.NDArray[np.uint8]:
    lines = [tiles[i : i + columns] for i in range(0, len(tiles), columns)]
    heights = [max(tile.shape[0] for tile in line) + 4 for line in lines]
    columns = min(columns, len(tiles))
    sheet = np.full((sum(heights), columns * (width + 4), 3), 32, np.uint8)
    y = 0
    for line, height in zip(lines, heights, strict=True):
        for column, tile in enumerate(line):
            x = column * (width + 4)
            sheet[y : y + tile.shape[0], x : x + tile.shape[1]] = tile
        y += height
    return sheet


def _write_html(dataset: Dataset, positions: Sequence[int], out: Path, width: int) -> None:
    title = html.escape(f"{dataset.format}: {dataset.root.name}")
    with atomic_path(out) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.write(
            f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>"
            "body{font:14px system-ui,sans-serif;margin:1.5em;background:#fafafa}"
            "main{display:flex;flex-wrap:wrap;gap:1em}figure{margin:0;max-width:100%}"
            "img{max-width:100%;display:block}figcaption{color:#333;overflow-wrap:anywhere}"
            f"</style><h1>{title}</h1><p>{len(positions)} of {len(dataset)} pictures</p><main>\n"
        )
        for i in positions:
            sample = dataset[i]
            data = cv2.imencode(".jpg", picture_with_boxes(dataset, sample, width))[1].tobytes()
            caption = html.escape(f"{sample.name}: {len(sample.truth)} boxes")
            file.write(
                f"<figure style='width:{width}px'><img alt='{html.escape(sample.name)}' "
                f"src='data:image/jpeg;base64,{base64.b64encode(data).decode()}'>"
                f"<figcaption>{caption}</figcaption></figure>\n"
            )
        file.write("</main></html>\n")
