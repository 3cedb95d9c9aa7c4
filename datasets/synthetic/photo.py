"""From linear light to the 8-bit picture a camera would give: haze, exposure, noise, blur."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from perception.datasets.synthetic.scene import Picture, Render, Weather

FloatImage = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Sensor:
    """How good the camera is: `exposure` in stops off neutral, `noise` as standard deviation of
    8-bit values, `blur` as Gaussian sigma in pixels, `warmth` -1 (blue) .. 1 (yellow)."""

    exposure: float = 0.0
    noise: float = 0.0
    blur: float = 0.0
    warmth: float = 0.0
    contrast: float = 1.0
    saturation: float = 1.0


def add_haze(color: FloatImage, depth: FloatImage, weather: Weather) -> FloatImage:
    """Blend towards the horizon's colour with distance (Koschmieder's law); the sky stays."""
    air = np.array(weather.horizon, np.float32) * np.float32(weather.sky_strength * 0.85)
    share = 1 - np.exp(-np.minimum(depth, 500.0) / weather.haze)
    share = np.where(depth > 1e6, 0.0, share).astype(np.float32)[..., None]
    return (color * (1 - share) + air * share).astype(np.float32)


def tone_map(color: FloatImage, stops: float = 0.0) -> npt.NDArray[np.float32]:
    """Linear RGB -> display values 0..1, exposed so that the log-average is middle grey.

    The curve is Narkowicz's fit of the ACES filmic response ("ACES Filmic Tone Mapping Curve",
    2016), then the sRGB transfer function (IEC 61966-2-1).
    """
    luminance = color @ np.array([0.2126, 0.7152, 0.0722], np.float32)
    average = float(np.exp(np.mean(np.log(np.maximum(luminance, 1e-4)))))
    x = color * np.float32(0.17 / max(average, 1e-3) * 2.0**stops)
    x = np.clip(x * (2.51 * x + 0.03) / (x * (2.43 * x + 0.59) + 0.14), 0, 1)
    return np.where(x <= 0.0031308, 12.92 * x, 1.055 * np.power(x, 1 / 2.4) - 0.055).astype(
        np.float32
    )


def develop(render: Render, weather: Weather, sensor: Sensor, rng: np.random.Generator) -> Picture:
    """The picture, uint8 (H,W,3) BGR."""
    stops = sensor.exposure - (1.4 if weather.night else 0.0)
    image = tone_map(add_haze(render.color, render.depth, weather), stops)
    grey = image.mean(axis=2, keepdims=True)
    image = grey + (image - grey) * np.float32(sensor.saturation)
    image = image * np.array([1 + 0.08 * sensor.warmth, 1.0, 1 - 0.08 * sensor.warmth], np.float32)
    image = (image - 0.5) * np.float32(sensor.contrast) + 0.5
    if sensor.blur > 0:
        image = cv2.GaussianBlur(image, (0, 0), sensor.blur).astype(np.float32)
    image = image * 255
    if sensor.noise > 0:
        image = image + rng.normal(0, sensor.noise, image.shape).astype(np.float32)
    return np.ascontiguousarray(np.clip(np.rint(image), 0, 255).astype(np.uint8)[..., ::-1])
