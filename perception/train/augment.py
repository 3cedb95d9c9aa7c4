"""From cached pictures to one training picture: placement, mosaic, colour and weather.

Every random draw comes from the generator handed in, so that a sample depends on nothing but its
seed (exact resume, equal data on any number of processes).
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from perception.errors import InputError
from perception.train import ranges
from perception.train.sets import ALL_CHANNELS, ANY_SIZE, Picture

PAD = 114
FOCUS = (0.3, 1.1)
"""Share of the input that the longer side of an object in focus fills."""

CLOSEST = 5.0
"""Largest zoom of an object in focus, relative to the fitted picture: blurred beyond use above."""


@dataclass(frozen=True)
class AugmentSettings:
    """Probabilities and ranges; all zero (`AugmentSettings.none()`) gives a plain letterbox.

    scale: smallest and largest zoom relative to the fitted picture.
    stretch: chance that the aspect is moved from letterbox towards filling the input.
    focus: chance that a picture outside a mosaic is cut around one of its objects, so that the
        object's longer side fills 0.3 to 1.1 of the input: near vehicles, whole and cut.
    keep_visible: a box cut to less than this share of its area is ignored instead of taught.
    """

    flip: float = 0.5
    mosaic: float = 0.3
    scale: tuple[float, float] = (0.6, 1.8)
    stretch: float = 0.5
    aspect: float = 0.1
    colour: float = 0.8
    grey: float = 0.05
    fog: float = 0.08
    rain: float = 0.04
    night: float = 0.06
    noise: float = 0.12
    blur: float = 0.08
    jpeg: float = 0.05
    focus: float = 0.0
    keep_visible: float = 0.35

    def __post_init__(self) -> None:
        ranges.shares(self, "flip", "mosaic", "stretch", "colour", "grey", "fog", "rain", "night")
        ranges.shares(self, "noise", "blur", "jpeg", "focus", "keep_visible")
        ranges.shares(self, "aspect")
        low, high = self.scale
        if not 0 < low <= high < np.inf:
            raise InputError(f"scale is {low}, {high}, expected two zooms above 0, the lower first")

    @staticmethod
    def none() -> AugmentSettings:
        """Letterbox only."""
        return AugmentSettings(
            flip=0,
            mosaic=0,
            scale=(1, 1),
            stretch=0,
            aspect=0,
            colour=0,
            grey=0,
            fog=0,
            rain=0,
            night=0,
            noise=0,
            blur=0,
            jpeg=0,
            focus=0,
        )


@dataclass(slots=True, eq=False)
class Example:
    """image uint8 (H, W, 3) RGB; boxes, labels and regions as in `Picture`, network pixels."""

    image: NDArray[np.uint8]
    boxes: NDArray[np.float32]
    labels: NDArray[np.int64]
    regions: NDArray[np.float32]


def place(
    image: NDArray[np.uint8],
    picture: Picture,
    width: int,
    height: int,
    rng: np.random.Generator,
    settings: AugmentSettings,
    zoom: float = 1.0,
) -> Example:
    """Warps one picture into a (height, width) canvas, once, straight from the cache."""
    fit_x, fit_y = width / picture.width, height / picture.height
    fit = min(fit_x, fit_y)
    towards = rng.random() if rng.random() < settings.stretch else 0.0
    low, high = settings.scale
    scale = zoom * float(np.exp(rng.uniform(np.log(low), np.log(high))))
    jitter = float(np.exp(rng.uniform(-settings.aspect, settings.aspect)))
    sx = fit * (fit_x / fit) ** towards * scale * jitter
    sy = fit * (fit_y / fit) ** towards * scale / jitter
    centre = None
    # The generator is asked only when there is a chance, so that runs without it stay the same.
    if zoom == 1.0 and settings.focus and len(picture.boxes) and rng.random() < settings.focus:
        closer, centre = _focus(picture.boxes, sx / width, sy / height, rng)
        closer = min(closer, CLOSEST * fit / min(sx, sy))
        sx, sy = sx * closer, sy * closer
    free_x, free_y = width - picture.width * sx, height - picture.height * sy
    if low == high:
        tx, ty = free_x / 2, free_y / 2
    else:
        tx = rng.uniform(min(0, free_x), max(0, free_x))
        ty = rng.uniform(min(0, free_y), max(0, free_y))
    if centre is not None:
        # The object's centre comes somewhere into the middle; no padding where there is picture.
        wish_x = width * rng.uniform(0.25, 0.75) - centre[0] * sx
        wish_y = height * rng.uniform(0.25, 0.75) - centre[1] * sy
        tx = float(np.clip(wish_x, min(0, free_x), max(0, free_x)))
        ty = float(np.clip(wish_y, min(0, free_y), max(0, free_y)))
    if rng.random() < settings.flip:
        sx, tx = -sx, width - tx
    # The cache may hold the picture at a smaller size than its labels speak of.
    px, py = picture.width / image.shape[1], picture.height / image.shape[0]
    matrix = np.array([[sx * px, 0, tx], [0, sy * py, ty]], np.float64)
    # cv2 maps pixel centres, labels speak of edges.
    matrix[0, 2] += (matrix[0, 0] - 1) / 2
    matrix[1, 2] += (matrix[1, 1] - 1) / 2
    warped = cv2.warpAffine(
        image,
        matrix,
        (width, height),
        flags=cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_CONSTANT,
        borderValue=(PAD, PAD, PAD),
    )
    move = np.array([sx, sy, sx, sy], np.float32), np.array([tx, ty, tx, ty], np.float32)
    boxes = _sorted_corners(picture.boxes * move[0] + move[1])
    regions = picture.regions.copy()
    regions[:, :4] = _sorted_corners(regions[:, :4] * move[0] + move[1])
    regions[:, 5] *= abs(sx * sy)
    return _clip(
        Example(np.asarray(warped, np.uint8), boxes, picture.labels, regions),
        (0, 0, width, height),
        settings.keep_visible,
    )


def _focus(
    boxes: NDArray[np.float32], x: float, y: float, rng: np.random.Generator
) -> tuple[float, NDArray[np.float32]]:
    """(zoom, centre) for one of the boxes (N, 4); x, y: share of the input that a pixel fills."""
    box = boxes[int(rng.integers(len(boxes)))]
    side = max(float(box[2] - box[0]) * x, float(box[3] - box[1]) * y)
    return float(rng.uniform(*FOCUS)) / max(side, 1e-6), (box[:2] + box[2:]) / 2


def _sorted_corners(boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Left before right after a mirror."""
    out = boxes.astype(np.float32)
    out[:, 0], out[:, 2] = (
        np.minimum(boxes[:, 0], boxes[:, 2]),
        np.maximum(boxes[:, 0], boxes[:, 2]),
    )
    return out


def _clip(example: Example, window: tuple[int, int, int, int], keep: float) -> Example:
    """Cuts labels to a window; what is cut too far, or too small to see, becomes a region."""
    x1, y1, x2, y2 = window
    low, high = np.array([x1, y1, x1, y1], np.float32), np.array([x2, y2, x2, y2], np.float32)
    cut = np.clip(example.boxes, low, high)
    size = cut[:, 2:] - cut[:, :2]
    full = (example.boxes[:, 2:] - example.boxes[:, :2]).prod(axis=1)
    inside = (size > 0).all(axis=1)
    good = (
        inside
        & (size.prod(axis=1) >= keep * full)
        & (size.min(axis=1) >= 2)
        & (size.max(axis=1) >= 4)
    )
    weak = cut[inside & ~good]
    regions = example.regions.copy()
    regions[:, :4] = np.clip(regions[:, :4], low, high)
    regions = regions[(regions[:, 2] > regions[:, 0]) & (regions[:, 3] > regions[:, 1])]
    # A cut object is no background for any channel.
    extra = np.column_stack([weak, np.full(len(weak), ALL_CHANNELS), np.full(len(weak), ANY_SIZE)])
    return Example(
        example.image,
        cut[good],
        example.labels[good],
        np.concatenate([regions, extra]).astype(np.float32),
    )


def mosaic(
    parts: list[tuple[NDArray[np.uint8], Picture]],
    width: int,
    height: int,
    rng: np.random.Generator,
    settings: AugmentSettings,
) -> Example:
    """Four pictures around a random centre."""
    cx = int(width * rng.uniform(0.35, 0.65))
    cy = int(height * rng.uniform(0.35, 0.65))
    canvas = np.empty((height, width, 3), np.uint8)
    boxes, labels, regions = [], [], []
    windows = ((0, 0, cx, cy), (cx, 0, width, cy), (0, cy, cx, height), (cx, cy, width, height))
    for (image, picture), (x1, y1, x2, y2) in zip(parts, windows, strict=True):
        part = place(image, picture, x2 - x1, y2 - y1, rng, settings, zoom=1.25)
        canvas[y1:y2, x1:x2] = part.image
        shift = np.array([x1, y1, x1, y1], np.float32)
        part.regions[:, :4] += shift
        boxes.append(part.boxes + shift)
        labels.append(part.labels)
        regions.append(part.regions)
    return Example(canvas, np.concatenate(boxes), np.concatenate(labels), np.concatenate(regions))


def paint(
    image: NDArray[np.uint8], rng: np.random.Generator, settings: AugmentSettings
) -> NDArray[np.uint8]:
    """Colour, weather and camera faults; labels do not change."""
    if rng.random() < settings.grey:
        grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        image = np.asarray(cv2.merge([grey, grey, grey]), np.uint8)
    if rng.random() < settings.colour:
        image = _colour(image, rng)
    if rng.random() < settings.night:
        image = _night(image, rng)
    if rng.random() < settings.fog:
        image = _fog(image, rng)
    if rng.random() < settings.rain:
        image = _rain(image, rng)
    if rng.random() < settings.blur:
        image = _blur(image, rng)
    if rng.random() < settings.noise:
        image = _noise(image, rng)
    if rng.random() < settings.jpeg:
        quality = int(rng.integers(15, 60))
        done, data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])
        if done:
            image = np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR), np.uint8)
    return image


def _look_up(image: NDArray[np.uint8], table: NDArray[np.float64]) -> NDArray[np.uint8]:
    return np.asarray(cv2.LUT(image, np.clip(table, 0, 255).astype(np.uint8)), np.uint8)


def _colour(image: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Exposure, contrast, gamma and white balance in one table; saturation by mixing with grey."""
    level = np.arange(256.0)[:, None] / 255
    gamma = np.exp(rng.uniform(-0.4, 0.4))
    gain = np.exp(rng.uniform(-0.25, 0.25)) * np.exp(rng.uniform(-0.12, 0.12, 3))
    contrast = rng.uniform(0.7, 1.25)
    table = ((level**gamma - 0.5) * contrast + 0.5) * gain * 255
    image = _look_up(image, table[:, None, :] if False else table.reshape(256, 1, 3))
    if rng.random() < 0.5:
        grey = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
        amount = rng.uniform(0.3, 1.5)
        image = np.asarray(cv2.addWeighted(image, amount, grey, 1 - amount, 0), np.uint8)
    return image


def _night(image: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Dark and bluish; lights stay."""
    level = np.arange(256.0)[:, None] / 255
    tint = np.array([0.8, 0.9, 1.1])
    table = level ** rng.uniform(1.6, 2.6) * 255 * rng.uniform(0.6, 1.0) * tint
    return _look_up(image, table.reshape(256, 1, 3))


def _fog(image: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """A veil that is thickest at a random horizon, where the way through the air is longest."""
    height = image.shape[0]
    rows = np.arange(height, dtype=np.float32) / height
    horizon, reach = rng.uniform(0.2, 0.5), rng.uniform(0.3, 0.8)
    veil = rng.uniform(0.35, 0.9) * np.exp(-np.maximum(rows - horizon, 0) / reach)
    veil = veil[:, None, None].astype(np.float32)
    return np.asarray(image * (1 - veil) + rng.uniform(150, 225) * veil, np.uint8)


def _rain(image: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Bright slanted streaks and a slight blur."""
    height, width = image.shape[:2]
    streaks = np.zeros((height, width), np.uint8)
    slant = int(rng.integers(-4, 5))
    for x, y in zip(rng.integers(0, width, 120), rng.integers(0, height, 120), strict=True):
        length = int(rng.integers(4, 14))
        cv2.line(
            streaks,
            (int(x), int(y)),
            (int(x) + slant, int(y) + length),
            int(rng.integers(60, 160)),
            1,
        )
    streaks = np.asarray(cv2.GaussianBlur(streaks, (3, 3), 0), np.uint8)
    return np.asarray(cv2.add(image, cv2.merge([streaks, streaks, streaks])), np.uint8)


def _blur(image: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Out of focus, or enlarged from a smaller picture."""
    if rng.random() < 0.5:
        return np.asarray(cv2.GaussianBlur(image, (0, 0), rng.uniform(0.5, 1.4)), np.uint8)
    height, width = image.shape[:2]
    factor = rng.uniform(0.45, 0.8)
    small = cv2.resize(image, (max(1, int(width * factor)), max(1, int(height * factor))))
    return np.asarray(cv2.resize(small, (width, height)), np.uint8)


def _noise(image: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Sensor noise, the same in all channels half of the time."""
    shape = image.shape if rng.random() < 0.5 else (*image.shape[:2], 1)
    noise = rng.standard_normal(shape, np.float32) * rng.uniform(4, 22)
    return np.asarray(np.clip(image + noise, 0, 255), np.uint8)
