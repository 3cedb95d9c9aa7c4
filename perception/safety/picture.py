"""Whether a picture can show anything: dark, blank, noisy or frozen cameras still send frames."""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from perception.errors import InputError

_LAPLACE = np.array([[1, -2, 1], [-2, 4, -2], [1, -2, 1]], dtype=np.float32)
_WINDOW = (240, 320)
"""Rows and columns in the middle of the picture that the noise is measured on."""


@dataclass(frozen=True, slots=True)
class PictureSettings:
    """Grey levels of 0 to 255.

    min_brightness: the brightest tenth of a usable picture reaches this level.
    min_contrast: standard deviation below which a picture is blank (covered lens, no exposure).
    max_noise: standard deviation of the noise, as Immerkaer estimates it.
    """

    min_brightness: float = 30.0
    min_contrast: float = 5.0
    max_noise: float = 20.0

    def __post_init__(self) -> None:
        for field, low, high in (
            ("min_brightness", 0.0, 255.0),
            ("min_contrast", 0.0, 127.0),
            ("max_noise", 0.5, 255.0),
        ):
            value = getattr(self, field)
            if not low <= value <= high:
                raise InputError(f"{field} is {value}, expected {low:g} to {high:g}")


def noise_level(grey: npt.NDArray[np.uint8]) -> float:
    """Standard deviation of the noise in grey levels, of a picture (H, W) of at least 3 x 3.

    Immerkaer, "Fast Noise Variance Estimation", CVIU 64(2), 1996: the mean absolute response to
    a difference of two Laplacians, which image structure hardly excites.
    """
    response = cv2.filter2D(grey.astype(np.float32), -1, _LAPLACE)[1:-1, 1:-1]
    return float(np.sqrt(np.pi / 2) / 6 * np.abs(response).mean())


REPEATED = "repeated"
"""Fault of a picture that is one of the last few, bit for bit.

A sensor's own noise changes every real picture, so this is a frozen camera, a driver that goes
round its ring of old buffers, or a second copy of one picture. None of them is a new look: it must
not make the last look younger.
"""


BUFFERS = 16
"""Pictures that a new one is compared with; camera drivers go round 4 to 8 buffers."""


class PictureWatch:
    """Judges the pictures of one camera, in their order."""

    def __init__(self, settings: PictureSettings) -> None:
        self.settings = settings
        self._recent: deque[bytes] = deque(maxlen=BUFFERS)

    def fault(self, image: npt.NDArray[np.uint8]) -> str:
        """Why the picture is not usable, or an empty string.

        image: uint8 (H, W) grey or (H, W, C).
        """
        if image.ndim not in (2, 3) or image.dtype != np.uint8 or min(image.shape[:2]) < 3:
            return "unreadable"
        # The second channel is green in every colour order: half of a Bayer sensor's pixels.
        grey = image if image.ndim == 2 else image[:, :, min(1, image.shape[2] - 1)]
        height, width = grey.shape
        top, left = max(height - _WINDOW[0], 0) // 2, max(width - _WINDOW[1], 0) // 2
        window = np.ascontiguousarray(grey[top : top + _WINDOW[0], left : left + _WINDOW[1]])
        content = hashlib.blake2b(window.data, digest_size=16).digest()
        repeated = content in self._recent
        self._recent.append(content)
        sample = grey[:: max(height // 64, 1), :: max(width // 64, 1)]
        if float(np.percentile(sample, 90)) < self.settings.min_brightness:
            return "dark"
        if float(sample.std()) < self.settings.min_contrast:
            return "blank"
        if noise_level(window) > self.settings.max_noise:
            return "noisy"
        return REPEATED if repeated else ""
