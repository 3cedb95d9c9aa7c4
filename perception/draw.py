"""Draw detections and tracks on a picture: boxes, labels, track ids, velocities and a fault banner.

One colour per class, taken from a palette that stays apart for colour-blind readers; the label is
drawn on a filled plate of that colour, so that it can be read on any background.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import cv2
import numpy as np

from perception.detections import Detections
from perception.errors import InputError

# Okabe and Ito, "Color Universal Design" (2008), as RGB, without black, then four further hues that
# keep their distance from those in luminance; class i takes entry i modulo 12.
_PALETTE_RGB: tuple[tuple[int, int, int], ...] = (
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (240, 228, 66),
    (204, 121, 167),
    (213, 94, 0),
    (0, 114, 178),
    (153, 221, 85),
    (170, 68, 153),
    (255, 170, 187),
    (119, 238, 221),
    (136, 136, 221),
)
_FAULT_BGR = (40, 40, 220)
_ARROW_SECONDS = 0.5  # a velocity arrow ends where the box centre will be after this time
_FONT = cv2.FONT_HERSHEY_SIMPLEX


def class_color(label: int) -> tuple[int, int, int]:
    """Colour of class index `label` as (blue, green, red), 0..255."""
    red, green, blue = _PALETTE_RGB[label % len(_PALETTE_RGB)]
    return blue, green, red


def draw(
    image: np.ndarray,
    detections: Detections,
    names: Sequence[str],
    *,
    scores: bool = True,
    velocities: bool = True,
    copy: bool = True,
) -> np.ndarray:
    """Draw `detections` on a picture and return it.

    image: uint8 (H, W, 3), BGR; drawn on a copy unless `copy` is False.
    names: class names by label index; an index without a name is shown as its number.
    scores, velocities: whether to print scores and to draw velocity arrows (half a second long).
    Detections with `valid` False get a red banner with the reason, so that a broken picture is
    never taken for an empty one. Raises InputError for another shape or dtype.
    """
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise InputError(
            f"cannot draw on a picture of shape {image.shape} and type {image.dtype}: "
            "expected uint8 (height, width, 3)"
        )
    canvas = np.ascontiguousarray(image)
    if copy and canvas is image:
        canvas = image.copy()
    unit = _unit(canvas)
    corners = _corners(canvas, detections.boxes)
    order = np.argsort(detections.scores, kind="stable").tolist()  # the most certain ends on top
    for i in order:
        _draw_box(canvas, corners[i], int(detections.labels[i]), unit)
    for i in _moving(detections, unit) if velocities else []:
        _draw_velocity(
            canvas, corners[i], detections.velocities[i], int(detections.labels[i]), unit
        )
    for i in order:
        label = int(detections.labels[i])
        text = _label_text(
            names, label, int(detections.track_ids[i]), float(detections.scores[i]), scores
        )
        _draw_label(canvas, corners[i], label, text, unit)
    if not detections.valid:
        draw_banner(canvas, f"INVALID: {detections.reason or 'no usable result'}")
    return canvas


def draw_banner(image: np.ndarray, text: str) -> None:
    """Write `text` in white on a red bar along the top edge of `image` (uint8 (H, W, 3)), in place.

    Text that does not fit is cut at the right edge.
    """
    unit = _unit(image)
    scale, thickness = 0.55 * unit, max(1, round(1.4 * unit))
    (_, height), baseline = cv2.getTextSize("Ag", _FONT, scale, thickness)
    pad = round(5 * unit)
    bottom = min(image.shape[0], height + baseline + 2 * pad)
    cv2.rectangle(image, (0, 0), (image.shape[1], bottom), _FAULT_BGR, cv2.FILLED)
    cv2.putText(
        image,
        _plain(text),
        (pad, pad + height),
        _FONT,
        scale,
        (255, 255, 255),
        thickness,
        cv2.LINE_AA,
    )


def _unit(image: np.ndarray) -> float:
    """Size of a drawing unit in pixels: 1 at 480 rows and growing with the picture."""
    return max(0.7, float(min(image.shape[:2])) / 480.0)


def _corners(image: np.ndarray, boxes: np.ndarray) -> list[list[int]]:
    """Rounded corners of `boxes` (N, 4) kept near the picture: cv2 draws nothing past 2**15."""
    limit = float(max(image.shape[:2]) * 2)
    near = np.clip(np.nan_to_num(boxes), -limit, limit)
    rounded: list[list[int]] = np.rint(near).astype(int).tolist()
    return rounded


def _moving(detections: Detections, unit: float) -> list[int]:
    """Rows whose velocity is known and gives an arrow long enough to be seen."""
    length = np.hypot(detections.velocities[:, 0], detections.velocities[:, 1]) * _ARROW_SECONDS
    rows: list[int] = np.flatnonzero(length >= 4 * unit).tolist()  # NaN compares as False
    return rows


def _draw_box(image: np.ndarray, corners: list[int], label: int, unit: float) -> None:
    x1, y1, x2, y2 = corners
    width = max(1, round(2 * unit))
    cv2.rectangle(
        image, (x1, y1), (x2, y2), (0, 0, 0), width + 2
    )  # dark rim: seen on bright ground
    cv2.rectangle(image, (x1, y1), (x2, y2), class_color(label), width)


def _draw_velocity(
    image: np.ndarray, corners: list[int], velocity: np.ndarray, label: int, unit: float
) -> None:
    x1, y1, x2, y2 = corners
    (dx, dy, _, _) = _corners(image, np.tile(velocity * _ARROW_SECONDS, (1, 2)))[0]
    start = ((x1 + x2) // 2, (y1 + y2) // 2)
    end = (start[0] + dx, start[1] + dy)
    thickness = max(1, round(1.5 * unit))
    cv2.arrowedLine(image, start, end, class_color(label), thickness, cv2.LINE_AA, tipLength=0.25)


def _label_text(
    names: Sequence[str], label: int, track_id: int, score: float, with_score: bool
) -> str:
    text = _plain(names[label], label) if 0 <= label < len(names) else f"class {label}"
    if track_id >= 0:
        text = f"#{track_id} {text}"
    return f"{text} {score:.2f}" if with_score else text


def _draw_label(image: np.ndarray, corners: list[int], label: int, text: str, unit: float) -> None:
    scale, thickness = 0.45 * unit, max(1, round(unit))
    (width, height), baseline = cv2.getTextSize(text, _FONT, scale, thickness)
    pad = max(2, round(2 * unit))
    plate_w, plate_h = width + 2 * pad, height + baseline + pad
    left = max(0, min(corners[0], image.shape[1] - plate_w))  # the plate stays inside the picture
    top = corners[1] - plate_h if corners[1] >= plate_h else max(0, corners[1])
    top = min(top, max(0, image.shape[0] - plate_h))
    color = class_color(label)
    cv2.rectangle(image, (left, top), (left + plate_w, top + plate_h), color, cv2.FILLED)
    # Rec. 601 luma decides whether black or white text reads better on the plate.
    luma = 0.114 * color[0] + 0.587 * color[1] + 0.299 * color[2]
    ink = (0, 0, 0) if luma > 110 else (255, 255, 255)
    origin = (left + pad, top + height + pad // 2 + 1)
    cv2.putText(image, text, origin, _FONT, scale, ink, thickness, cv2.LINE_AA)


def _plain(text: str, label: int | None = None) -> str:
    """`text` in ASCII, which is all that cv2 fonts hold; a name with none left becomes a number."""
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    if ascii_text.strip() or label is None:
        return ascii_text
    return f"class {label}"
