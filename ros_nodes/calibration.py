"""CameraInfo from the YAML file that camera_calibration and camera_info_manager write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sensor_msgs.msg import CameraInfo

from perception.errors import InputError
from perception.files import read_yaml

_MODELS = {"plumb_bob": 5, "rational_polynomial": 8, "equidistant": 4}
"""Distortion models (sensor_msgs/distortion_models.hpp) and their least number of coefficients."""


def read_calibration(path: str | Path) -> CameraInfo:
    """CameraInfo without header; raises InputError naming the key that is missing or wrong."""
    data = read_yaml(path)
    info = CameraInfo(
        width=_whole(path, data, "image_width"),
        height=_whole(path, data, "image_height"),
        distortion_model=str(data.get("distortion_model", "plumb_bob")),
        k=_matrix(path, data, "camera_matrix", 9),
        r=_matrix(path, data, "rectification_matrix", 9),
        p=_matrix(path, data, "projection_matrix", 12),
        d=_matrix(path, data, "distortion_coefficients", None),
    )
    least = _MODELS.get(info.distortion_model)
    if least is None:
        known = ", ".join(_MODELS)
        raise InputError(f"{path}: distortion_model is '{info.distortion_model}', not of: {known}")
    if len(info.d) < least:
        raise InputError(
            f"{path}: {info.distortion_model} needs {least} coefficients, found {len(info.d)}"
        )
    if info.k[0] <= 0 or info.k[4] <= 0:
        raise InputError(f"{path}: camera_matrix has the focal lengths {info.k[0]}, {info.k[4]}")
    return info


def fit(info: CameraInfo, width: int, height: int) -> CameraInfo:
    """The calibration for pictures of another size of the same field of view.

    A calibration of no size (none was given) only gets the size. Raises InputError when the
    aspect differs by more than rounding, because then the field of view does.
    """
    result = CameraInfo(
        width=width,
        height=height,
        distortion_model=info.distortion_model,
        d=info.d,
        k=info.k,
        r=info.r,
        p=info.p,
    )
    if not info.width or (info.width, info.height) == (width, height):
        return result
    sx, sy = width / info.width, height / info.height
    if abs(sx - sy) * max(info.width, info.height) > 2.0:
        raise InputError(
            f"calibration is for {info.width}x{info.height}, but pictures are {width}x{height}"
        )
    result.k = [v * s for v, s in zip(info.k, (sx,) * 3 + (sy,) * 3 + (1,) * 3, strict=True)]
    result.p = [v * s for v, s in zip(info.p, (sx,) * 4 + (sy,) * 4 + (1,) * 4, strict=True)]
    return result


def _whole(path: str | Path, data: dict[str, Any], key: str) -> int:
    value = data.get(key)
    if not isinstance(value, int) or value <= 0:
        raise InputError(f"{path}: {key} is {value!r}, expected a positive integer")
    return value


def _matrix(path: str | Path, data: dict[str, Any], key: str, length: int | None) -> list[float]:
    block = data.get(key)
    values = block.get("data") if isinstance(block, dict) else None
    if not isinstance(values, list) or not all(isinstance(v, (int, float)) for v in values):
        raise InputError(f"{path}: {key}.data is missing or not a list of numbers")
    if length is not None and len(values) != length:
        raise InputError(f"{path}: {key}.data has {len(values)} numbers, expected {length}")
    return [float(v) for v in values]
