"""ModelContract: what an ONNX file needs and what it gives, stored inside the file.

A Waysight file carries the contract as JSON in its metadata under METADATA_KEY. A foreign file
needs a declaration: a YAML file of the same fields named `<model>.contract.yaml` beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from perception.errors import InputError
from perception.files import is_finite_number, read_yaml
from perception.geometry.letterbox import ResizeRule
from perception.labels import LabelSet, nearest

METADATA_KEY = "waysight"
CONTRACT_VERSION = 1
SIDECAR_SUFFIX = ".contract.yaml"
MOST_SIDE = 16384
"""Pixels. A file from anywhere may claim any size, and memory is taken before its graph runs."""
MOST_ROWS = 1_000_000
LARGEST_PIXEL = 1e6
"""Far above 16 bit; a mean or std beyond it, or a std below its inverse, overflows float32."""

Convention = Literal[
    "decoded",  # boxes (B, A, 4) xyxy network pixels, scores (B, A, C) probabilities
    "raw",  # one (B, 4 + C, H, W) a stride: left top right bottom in strides, class logits
    "e2e",  # (B, K, 6): x1 y1 x2 y2 score class, network pixels, unused rows zero
    "num_dets",  # num_dets (B, 1), boxes (B, K, 4), scores (B, K), classes (B, K)
    "yolov5",  # (B, A, 5 + C): cx cy w h pixels, objectness, class probabilities
    "yolov8",  # (B, 4 + C, A): cx cy w h pixels, class probabilities
    "yolox",  # (B, A, 5 + C): grid offsets, log sizes, objectness, class probabilities
    "nanodet",  # a class (A, C) and a distance (A, 4 * bins) output for each stride
    "nanodet_plus",  # (B, A, C + 4 * bins)
    "fastestdet",  # (B, 5 + C, H, W)
]


@dataclass(frozen=True, slots=True)
class ModelContract:
    """Everything between a picture and its detections that the network does not hold.

    names: class names in output order.
    width, height: network input in pixels. input_name: name of the picture tensor.
    color: channel order. mean, std: the input is (pixel - mean) / std, per channel in that order,
        for pixels 0 to 255.
    resize, pad_value: how a picture of another size is fitted (geometry/letterbox.py).
    convention: how the outputs are read (runtime/decode.py). strides: feature strides in pixels.
    score_threshold, iou_threshold, max_detections: defaults of the detector.
    max_batch: largest number of pictures in one call.
    exclusive: class names of which one place holds only one, such as the kinds of vehicle: boxes
        of them suppress each other as if they were of one class.
    provenance: free text such as training data, licence, recipe.
    """

    names: tuple[str, ...]
    width: int
    height: int
    input_name: str = "images"
    color: Literal["rgb", "bgr"] = "rgb"
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (255.0, 255.0, 255.0)
    resize: ResizeRule = "letterbox"
    pad_value: int = 114
    convention: Convention = "decoded"
    strides: tuple[int, ...] = (8, 16, 32)
    score_threshold: float = 0.25
    iou_threshold: float = 0.6
    max_detections: int = 300
    max_batch: int = 16
    exclusive: tuple[str, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)
    version: int = CONTRACT_VERSION

    def __post_init__(self) -> None:
        if not self.names:
            raise InputError("contract: names is empty, expected at least one class name")
        LabelSet(self.names)
        for name, allowed in (
            ("color", ("rgb", "bgr")),
            ("resize", get_args(ResizeRule)),
            ("convention", get_args(Convention)),
        ):
            value = getattr(self, name)
            if value not in allowed:
                raise InputError(
                    f"contract: {name} is {value!r}, expected one of {', '.join(allowed)}"
                )
        for name, most in (
            ("width", MOST_SIDE),
            ("height", MOST_SIDE),
            ("max_detections", MOST_ROWS),
            ("max_batch", MOST_ROWS),
        ):
            value = getattr(self, name)
            if not _is_whole(value) or not 1 <= value <= most:
                raise InputError(
                    f"contract: {name} is {value!r}, expected a whole number from 1 to {most}"
                )
        for name in ("score_threshold", "iou_threshold"):
            check_fraction(f"contract: {name}", getattr(self, name))
        if not _is_whole(self.pad_value) or not 0 <= self.pad_value <= 255:
            raise InputError(f"contract: pad_value is {self.pad_value!r}, expected 0 to 255")
        for name in ("mean", "std"):
            values = getattr(self, name)
            if len(values) != 3 or not all(
                is_finite_number(v) and abs(v) <= LARGEST_PIXEL for v in values
            ):
                raise InputError(
                    f"contract: {name} is {values!r}, expected three numbers of pixel values"
                )
        if any(value < 1 / LARGEST_PIXEL for value in self.std):
            raise InputError(f"contract: std is {self.std!r}, expected numbers above 0")
        if not self.strides or any(not _is_whole(s) or s < 1 for s in self.strides):
            raise InputError(f"contract: strides is {self.strides!r}, expected whole numbers")
        if not isinstance(self.input_name, str):
            raise InputError(f"contract: input_name is {self.input_name!r}, expected a text")
        for name in LabelSet(self.exclusive):
            self.labels.index(name)
        if not isinstance(self.provenance, Mapping):
            raise InputError(
                f"contract: provenance is {self.provenance!r}, expected keys and values"
            )
        if not _is_whole(self.version) or self.version != CONTRACT_VERSION:
            raise InputError(
                f"contract: version is {self.version!r}, this release reads {CONTRACT_VERSION}"
            )

    @property
    def labels(self) -> LabelSet:
        """The class names as a label set."""
        return LabelSet(self.names)

    def to_json(self) -> str:
        """The contract as JSON text; class names of any script survive."""
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> ModelContract:
        """Read what to_json wrote; raises InputError for anything else."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"contract: not valid JSON: {error}") from None
        return cls.from_mapping(data)

    @classmethod
    def from_yaml(cls, path: str | Path) -> ModelContract:
        """Read a declaration for a foreign model; raises InputError naming the file."""
        try:
            return cls.from_mapping(read_yaml(path))
        except InputError as error:
            raise InputError(_prefixed(path, error)) from None

    @classmethod
    def from_mapping(cls, data: object) -> ModelContract:
        """Build from plain JSON or YAML values; unknown and missing keys are refused by name."""
        if not isinstance(data, dict):
            raise InputError(f"contract: expected a mapping, found {type(data).__name__}")
        known = [f.name for f in fields(cls)]
        for key in data:
            if key not in known:
                raise InputError(f"contract: unknown key {key!r}{nearest(str(key), known)}")
        for key in ("names", "width", "height"):
            if key not in data:
                raise InputError(f"contract: {key} is missing")
        values: dict[str, Any] = dict(data)
        for key in ("names", "mean", "std", "strides", "exclusive"):
            if key in values:
                if not isinstance(values[key], (list, tuple)):
                    raise InputError(f"contract: {key} is {values[key]!r}, expected a list")
                values[key] = tuple(values[key])
        return cls(**values)


def _prefixed(path: str | Path, error: InputError) -> str:
    text = str(error)
    return text if text.startswith(str(path)) else f"{path}: {text}"


def check_fraction(name: str, value: object) -> float:
    """Return `value` as a float in 0 to 1, or raise InputError naming it."""
    if not is_finite_number(value) or not 0.0 <= value <= 1.0:  # type: ignore[operator]
        raise InputError(f"{name} is {value!r}, expected a number from 0 to 1")
    return float(value)  # type: ignore[arg-type]


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
