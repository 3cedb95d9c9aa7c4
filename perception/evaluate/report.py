"""One HTML file that holds a whole evaluation: tables, plots and pictures, no network needed."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from perception.errors import InputError
from perception.evaluate.diagnosis import BACKGROUND, KINDS, RIGHT, Diagnosis
from perception.evaluate.tables import Floats
from perception.files import atomic_path
from perception.sources import read_bgr

EXAMPLES = 12
"""Pictures of the worst misses, and as many of the worst false alarms."""
CROP = (320, 240)
"""Width and height of an example in pixels."""
MAX_PICTURE_BYTES = 100 << 20
TRUTH_BGR = (80, 200, 40)
RESULT_BGR = (40, 60, 230)
SUBJECT_BGR = (0, 220, 255)

STYLE = """
body{font:14px/1.45 system-ui,sans-serif;max-width:1080px;margin:2em auto;padding:0 1em;color:#222}
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em;border-bottom:1px solid #ccc}
table{border-collapse:collapse;margin:.6em 0}td,th{padding:.2em .7em;border-bottom:1px solid #eee;
text-align:left}td.n{text-align:right;font-variant-numeric:tabular-nums}
.better{color:#00704f}.worse{color:#b34700;font-weight:600}.note{color:#555}
.plots{display:flex;flex-wrap:wrap;gap:1em;align-items:flex-start}
.plots svg{max-width:100%;height:auto}
.examples{display:flex;flex-wrap:wrap;gap:.7em}figure{margin:0;width:250px}
figure img{width:100%;border:1px solid #ddd}
figcaption{font-size:12px;color:#444;overflow-wrap:anywhere}
"""


@dataclass(frozen=True, slots=True)
class Example:
    """A miss or a false alarm: picture name, caption, and the cut-out as JPEG, None without one."""

    picture: str
    caption: str
    jpeg: bytes | None


def page(title: str, sections: Sequence[tuple[str, str]]) -> str:
    """An HTML document; sections are (heading, HTML body)."""
    parts = [f"<h2>{html.escape(heading)}</h2>\n{body}" for heading, body in sections]
    # The policy makes sure that the file never asks the network for anything.
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "img-src data:; style-src 'unsafe-inline'\">\n"
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style></head>\n"
        f"<body><h1>{html.escape(title)}</h1>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def write(path: str | Path, title: str, sections: Sequence[tuple[str, str]]) -> None:
    """Write a report atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(page(title, sections), encoding="utf-8")


def figure_text(value: Any) -> str:
    """A cell: fractions with four digits, None as "undefined"."""
    if value is None:
        return "undefined"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], classes: Sequence[str] = ()) -> str:
    """An HTML table; numbers to the right. classes: one CSS class a row, "" for none."""
    lines = ["<table><tr>" + "".join(f"<th>{html.escape(item)}</th>" for item in head) + "</tr>"]
    for number, row in enumerate(rows):
        cells = "".join(
            f"<td{'' if isinstance(cell, str) else ' class=n'}>"
            f"{html.escape(figure_text(cell))}</td>"
            for cell in row
        )
        style = f' class="{classes[number]}"' if classes and classes[number] else ""
        lines.append(f"<tr{style}>{cells}</tr>")
    return "\n".join([*lines, "</table>"])


def plots(*drawings: str) -> str:
    """SVG drawings side by side."""
    return f'<div class="plots">{"".join(f"<div>{item}</div>" for item in drawings)}</div>'


def worst_misses(diagnosis: Diagnosis, images: Path | None, limit: int = EXAMPLES) -> list[Example]:
    """The largest objects that no detection at the operating point has found."""
    tables = diagnosis.matches.tables
    missed = diagnosis.matches.missed(min_score=diagnosis.best.score)
    areas = tables.truth.areas[missed]
    worst = missed[np.lexsort((missed, -areas))][:limit]
    return [
        _example(
            diagnosis,
            images,
            int(tables.truth.image[row]),
            tables.truth.boxes[row],
            f"missed {tables.names[tables.truth.labels[row]]}, {_size(tables.truth.boxes[row])}",
        )
        for row in worst
    ]


def worst_false_alarms(
    diagnosis: Diagnosis, images: Path | None, limit: int = EXAMPLES
) -> list[Example]:
    """The false alarms with the highest scores."""
    matches = diagnosis.matches
    wrong = np.flatnonzero((diagnosis.kinds > RIGHT) & (diagnosis.kinds <= BACKGROUND))
    worst = wrong[np.lexsort((wrong, -matches.scores[wrong]))][:limit]
    examples = []
    for row in worst:
        box = matches.tables.results.boxes[matches.rows[row]]
        name = matches.tables.names[matches.labels[row]]
        caption = f"{name} {matches.scores[row]:.2f}: {KINDS[diagnosis.kinds[row]]}, {_size(box)}"
        examples.append(_example(diagnosis, images, int(matches.image[row]), box, caption))
    return examples


def gallery(examples: Sequence[Example]) -> str:
    """Examples as figures; without pictures as a list."""
    if not examples:
        return '<p class="note">None.</p>'
    figures = []
    for item in examples:
        caption = f"{html.escape(item.caption)}<br>{html.escape(item.picture)}"
        source = "" if item.jpeg is None else base64.b64encode(item.jpeg).decode("ascii")
        image = f'<img alt="" src="data:image/jpeg;base64,{source}">' if source else ""
        figures.append(f"<figure>{image}<figcaption>{caption}</figcaption></figure>")
    return f'<div class="examples">{"".join(figures)}</div>'


def _size(box: Floats) -> str:
    return f"{box[2]:.0f} x {box[3]:.0f} px"


def _example(
    diagnosis: Diagnosis, images: Path | None, image: int, box: Floats, caption: str
) -> Example:
    name = diagnosis.matches.tables.pictures[image]
    picture = None if images is None else _read_picture(images, name)
    if picture is None:
        return Example(name, caption if images is None else f"{caption} (no picture)", None)
    drawn = _draw(diagnosis, image, picture, box)
    return Example(name, caption, _cut(drawn, box))


def _read_picture(folder: Path, name: str) -> npt.NDArray[np.uint8] | None:
    """The picture `name` inside `folder`; None when it is not there, damaged or no picture.

    A name that leads out of the folder is treated as not there: ground truth is untrusted.
    """
    root = folder.resolve()
    path = (root / name).resolve()
    if not path.is_relative_to(root) or not path.is_file():
        return None
    if path.stat().st_size > MAX_PICTURE_BYTES:
        return None
    try:
        return read_bgr(path)
    except InputError:
        return None


def _draw(
    diagnosis: Diagnosis, image: int, picture: npt.NDArray[np.uint8], subject: Floats
) -> npt.NDArray[np.uint8]:
    """Truth in green, detections at the operating point in red, the subject in yellow on top."""
    matches = diagnosis.matches
    above = (matches.image == image) & (matches.scores >= diagnosis.best.score)
    layers = (
        (matches.tables.truth.boxes[matches.tables.truth.image == image], TRUTH_BGR, 2),
        (matches.tables.results.boxes[matches.rows[above]], RESULT_BGR, 2),
        (subject[None], SUBJECT_BGR, 4),
    )
    for boxes, color, width in layers:
        corners = np.clip(np.hstack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]]), -1e4, 1e5)
        for x1, y1, x2, y2 in np.rint(corners).astype(int).tolist():
            cv2.rectangle(picture, (x1, y1), (x2, y2), color, width)
    return picture


def _cut(picture: npt.NDArray[np.uint8], box: Floats) -> bytes:
    """JPEG of the box with three times its size around it, CROP pixels large."""
    height, width = picture.shape[:2]
    center = box[:2] + box[2:] / 2
    half_width = max(box[2] * 1.5, box[3] * 1.5 * CROP[0] / CROP[1], CROP[0] / 4)
    half = np.array([half_width, half_width * CROP[1] / CROP[0]])
    low = np.clip(np.floor(center - half), 0, [width - 1, height - 1]).astype(int)
    high = np.clip(np.ceil(center + half), low + 1, [width, height]).astype(int)
    part = picture[low[1] : high[1], low[0] : high[0]]
    scale = min(CROP[0] / part.shape[1], CROP[1] / part.shape[0])
    size = (max(1, round(part.shape[1] * scale)), max(1, round(part.shape[0] * scale)))
    resized = cv2.resize(part, size, interpolation=cv2.INTER_AREA)
    return bytes(cv2.imencode(".jpg", resized, [cv2.IMWRITE_JPEG_QUALITY, 80])[1])
