"""Pictures to the network's input tensor, as the contract says."""

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from perception.contract import ModelContract
from perception.errors import InputError
from perception.frame import Frame
from perception.geometry.letterbox import Resize


def as_three_channels(image: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Any camera picture as uint8 (H, W, 3), channel order unchanged.

    Grey is repeated, alpha dropped, 16 bit scaled to 8 by dropping the low byte (the whole range
    0 to 65535 maps to 0 to 255). A picture that already fits is returned as it is, view or not.
    Raises InputError stating shape, dtype and range for anything else.
    """
    if not isinstance(image, np.ndarray):
        raise InputError(f"picture is a {type(image).__name__}, expected a NumPy array")
    grey = image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 1)
    colour = image.ndim == 3 and image.shape[2] in (3, 4)
    if (
        not (grey or colour)
        or image.size == 0
        or not (image.dtype.kind == "u" and image.dtype.itemsize in (1, 2))
    ):
        raise InputError(
            f"picture has shape {image.shape}, dtype {image.dtype}{_value_range(image)}; expected "
            "uint8 or uint16 of shape (H, W), (H, W, 3) or (H, W, 4)"
        )
    if image.dtype.itemsize == 2:
        image = (image >> 8).astype(np.uint8)
    if grey:
        return cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_GRAY2BGR)  # type: ignore[return-value]
    if image.shape[2] == 4:
        return cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_BGRA2BGR)  # type: ignore[return-value]
    return image


def _value_range(image: npt.NDArray[Any]) -> str:
    if image.size == 0 or not np.issubdtype(image.dtype, np.number):
        return ""
    return f" and values {image.min()} to {image.max()}"


class Preprocessor:
    """Turns frames into one float32 (B, 3, H, W) tensor; keeps its buffers between calls.

    Not safe for use from several threads at once: each call overwrites the last tensor.
    """

    def __init__(self, contract: ModelContract) -> None:
        self._contract = contract
        self._target = (contract.width, contract.height)
        self._canvas = np.empty((contract.height, contract.width, 3), dtype=np.uint8)
        self._canvas_plan: Resize | None = None
        self._blob = np.empty((0, 3, contract.height, contract.width), dtype=np.float32)
        # (x - mean) / std as one multiply-add a channel.
        self._gain = [np.float32(1.0 / value) for value in contract.std]
        self._offset = [
            np.float32(-mean / std) for mean, std in zip(contract.mean, contract.std, strict=True)
        ]
        self._planes = [np.empty(self._canvas.shape[:2], dtype=np.uint8) for _ in range(3)]

    def __call__(self, frames: Sequence[Frame]) -> tuple[npt.NDArray[np.float32], list[Resize]]:
        """The network's input and, for each frame, the way back to its pixels.

        Raises InputError for a picture of a wrong shape or dtype. The tensor is valid until the
        next call.
        """
        if len(self._blob) != len(frames):
            shape = (len(frames), 3, self._contract.height, self._contract.width)
            self._blob = np.empty(shape, dtype=np.float32)
        plans = [self._write(frame, self._blob[i]) for i, frame in enumerate(frames)]
        return self._blob, plans

    def _write(self, frame: Frame, out: npt.NDArray[np.float32]) -> Resize:
        image = as_three_channels(frame.image)
        packed = image.strides[1:] == (3, 1) and image.strides[0] >= 3 * image.shape[1]
        if not packed:
            image = np.ascontiguousarray(image)  # OpenCV reads rows of packed pixels only
        plan = Resize.plan((image.shape[1], image.shape[0]), self._target, self._contract.resize)
        if plan != self._canvas_plan:
            self._canvas[:] = self._contract.pad_value
            self._canvas_plan = plan
        canvas = plan.apply(image, self._contract.pad_value, out=self._canvas)
        order = (0, 1, 2) if frame.color == self._contract.color else (2, 1, 0)
        # Split, then scale each plane straight into the tensor: 0.13 ms at 416x256, where
        # cv2.dnn.blobFromImage of OpenCV 5.0 took 2.9 and a strided NumPy copy 0.3.
        planes = cv2.split(canvas, self._planes)
        for channel, source in enumerate(order):
            np.multiply(planes[source], self._gain[channel], out=out[channel], dtype=np.float32)
            if self._offset[channel]:
                out[channel] += self._offset[channel]
        return plan
