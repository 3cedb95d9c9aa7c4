"""Network outputs to detections: one decoder for each output convention, shared by torch
evaluation, ONNX Runtime and the nodes.

Every decoder gives, for one picture, boxes float32 (A, 4) xyxy in network pixels and scores
float32 (A, C) probabilities; NaN and infinity pass through and are counted afterwards.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.contract import ModelContract
from perception.detections import Detections
from perception.errors import InputError
from perception.geometry.boxes import cxcywh_to_xyxy, nms
from perception.geometry.letterbox import Resize

Array = npt.NDArray[np.float32]
Outputs = Mapping[str, npt.NDArray[Any]]

MAX_CANDIDATES = 1000
"""Rows that enter NMS, best first; bounds the time of a frame on which everything fires."""

DISTANCE_BINS = 8
"""Bins of a NanoDet distance distribution (reg_max 7)."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Rows above the score threshold, before NMS: boxes in network pixels."""

    boxes: Array
    scores: Array
    labels: npt.NDArray[np.int64]
    invalid_rows: int
    total_rows: int


def postprocess(
    outputs: Outputs,
    contract: ModelContract,
    resizes: Sequence[Resize],
    *,
    score_threshold: float | None = None,
    iou_threshold: float | None = None,
    max_detections: int | None = None,
    classes: Sequence[int] | None = None,
) -> list[Detections]:
    """Outputs of one call to one Detections a picture, in pixels of the original pictures.

    outputs: name -> array, first dimension the batch. resizes: one for each picture.
    Thresholds default to the contract's. classes: keep these labels only.
    Rows with NaN or infinity are dropped and counted; a picture all of whose rows are such gives
    an invalid result. Boxes without area inside the picture are dropped.
    Raises InputError when the outputs do not have the shapes of the contract's convention.
    """
    score = contract.score_threshold if score_threshold is None else score_threshold
    iou = contract.iou_threshold if iou_threshold is None else iou_threshold
    limit = contract.max_detections if max_detections is None else max_detections
    _require_a_row_each(outputs, contract, len(resizes))
    results = []
    for index, resize in enumerate(resizes):
        found = decode(outputs, contract, index, score, classes)
        if found.invalid_rows and found.invalid_rows == found.total_rows:
            results.append(
                Detections.failed(
                    f"model output invalid: none of its {found.total_rows} rows is finite",
                    invalid_rows=found.invalid_rows,
                )
            )
            continue
        results.append(_finish(found, resize, contract, iou, limit))
    return results


def decode(
    outputs: Outputs,
    contract: ModelContract,
    index: int,
    score_threshold: float,
    classes: Sequence[int] | None = None,
) -> Candidates:
    """Picture `index` of a batch: its rows above the threshold, best class of each row.

    A score must exceed 0 as well as reach the threshold, so padding rows never pass.
    """
    boxes, scores = _DECODERS[contract.convention](outputs, contract, index)
    if scores.shape[1] != len(contract.names):
        raise InputError(
            f"model gives {scores.shape[1]} classes, but its contract names "
            f"{len(contract.names)}: {', '.join(contract.names)}"
        )
    rows_given = len(boxes)
    with np.errstate(invalid="ignore", over="ignore"):
        # A sum over everything is finite only if every value is: 0.01 ms instead of 0.1 for the
        # masks, on every frame. Sums overflow only for values that are absurd anyway.
        sound = bool(np.isfinite(boxes.sum() + scores.sum()))
    if not sound:
        finite = np.isfinite(boxes).all(axis=1) & np.isfinite(scores).all(axis=1)
        boxes, scores = boxes[finite], scores[finite]
    if classes is not None:
        allowed = np.zeros(len(contract.names), dtype=np.float32)
        allowed[list(classes)] = 1.0
        scores = scores * allowed
    # Class by class over whole columns: six times as fast as a maximum along short rows.
    best = np.maximum.reduce([scores[:, c] for c in range(scores.shape[1])])
    rows = np.flatnonzero((best >= score_threshold) & (best > 0.0))
    if len(rows) > MAX_CANDIDATES:
        rows = rows[np.argsort(-best[rows], kind="stable")[:MAX_CANDIDATES]]
    return Candidates(
        boxes=boxes[rows],
        scores=best[rows],
        labels=scores[rows].argmax(axis=1).astype(np.int64),
        invalid_rows=rows_given - len(boxes),
        total_rows=rows_given,
    )


def _finish(
    found: Candidates,
    resize: Resize,
    contract: ModelContract,
    iou_threshold: float,
    limit: int,
) -> Detections:
    boxes = resize.to_original(found.boxes)
    sides = boxes[:, 2:] - boxes[:, :2]
    rows = np.flatnonzero((sides > 0).all(axis=1))
    kinds = found.labels
    if contract.exclusive:
        members = [contract.names.index(name) for name in contract.exclusive]
        kinds = np.where(np.isin(kinds, members), members[0], kinds)
    keep = rows[nms(boxes[rows], found.scores[rows], kinds[rows], iou_threshold)[:limit]]
    return Detections.create(
        boxes[keep],
        np.minimum(found.scores[keep], 1.0),
        found.labels[keep],
        invalid_rows=found.invalid_rows,
    )


def _require_a_row_each(outputs: Outputs, contract: ModelContract, pictures: int) -> None:
    """InputError for outputs of another number of pictures: whose results would they be?"""
    if contract.convention == "nanodet":
        if pictures != 1:
            raise InputError(f"nanodet models take one picture a call, found {pictures}")
        return
    for name in _names_read(outputs, contract):
        array = outputs[name]
        given = len(array) if array.ndim else 0
        if given != pictures:
            raise InputError(
                f"model output {name!r} holds the results of {given} pictures, expected "
                f"{pictures}: the size of its batch is fixed"
            )


def _names_read(outputs: Outputs, contract: ModelContract) -> list[str]:
    """The outputs that a convention reads; files may give others beside them."""
    if contract.convention == "decoded":
        return [name for name in ("boxes", "scores") if name in outputs]
    counts = {"raw": len(contract.strides), "num_dets": 4}
    return list(outputs)[: counts.get(contract.convention, 1)]


def _output(outputs: Outputs, position: int) -> Array:
    names = list(outputs)
    if position >= len(names):
        raise InputError(f"model has {len(names)} outputs, expected at least {position + 1}")
    return np.asarray(outputs[names[position]], dtype=np.float32)


def _named(outputs: Outputs, name: str) -> Array:
    try:
        return np.asarray(outputs[name], dtype=np.float32)
    except KeyError:
        raise InputError(
            f"model has the outputs {', '.join(outputs)}, expected one named {name!r}"
        ) from None


def _require(array: Array, name: str, shape: Sequence[int | None]) -> None:
    if array.ndim != len(shape) or any(
        wanted is not None and wanted != found
        for wanted, found in zip(shape, array.shape, strict=False)
    ):
        wanted_text = " x ".join("any" if size is None else str(size) for size in shape)
        raise InputError(f"model output {name!r} has shape {array.shape}, expected {wanted_text}")


def _decoded(outputs: Outputs, contract: ModelContract, index: int) -> tuple[Array, Array]:
    boxes, scores = _named(outputs, "boxes"), _named(outputs, "scores")
    _require(boxes, "boxes", (None, None, 4))
    _require(scores, "scores", (None, boxes.shape[1], None))
    return boxes[index], scores[index]


def _raw(outputs: Outputs, contract: ModelContract, index: int) -> tuple[Array, Array]:
    boxes, scores = [], []
    for level, stride in enumerate(contract.strides):
        tensor = _output(outputs, level)
        shape = (None, 4 + len(contract.names), *_grid_shape(contract, stride))
        _require(tensor, list(outputs)[level], shape)
        flat = tensor[index].reshape(tensor.shape[1], -1).T
        boxes.append(_from_distances(_centres(contract, stride, 0.5), flat[:, :4] * stride))
        scores.append(_sigmoid(flat[:, 4:]))
    return np.concatenate(boxes), np.concatenate(scores)


def _e2e(outputs: Outputs, contract: ModelContract, index: int) -> tuple[Array, Array]:
    rows = _output(outputs, 0)
    _require(rows, next(iter(outputs)), (None, None, 6))
    return rows[index, :, :4], _one_hot(rows[index, :, 4], rows[index, :, 5], contract)


def _num_dets(outputs: Outputs, contract: ModelContract, index: int) -> tuple[Array, Array]:
    counts, boxes, scores, classes = (_output(outputs, position) for position in range(4))
    _require(boxes, list(outputs)[1], (None, None, 4))
    for position, array in ((2, scores), (3, classes)):
        _require(array, list(outputs)[position], (None, boxes.shape[1]))
    _require(counts := counts.reshape(len(counts), -1), list(outputs)[0], (None, 1))
    count = counts[index, 0]
    if not 0 <= count <= boxes.shape[1]:
        # None of the rows can be trusted, and no rows at all would mean that nothing is there.
        nothing = np.full((1, len(contract.names)), np.nan, np.float32)
        return np.full((1, 4), np.nan, np.float32), nothing
    rows = slice(int(count))
    return boxes[index, rows], _one_hot(scores[index, rows], classes[index, rows], contract)


def _yolov5(outputs: Outputs, contract: ModelContract, index: int) -> tuple[Array, Array]:
    rows = _output(outputs, 0)
    _require(rows, next(iter(outputs)), (None, None, 5 + len(contract.names)))
    return cxcywh_to_xyxy(rows[index, :, :4]), rows[index, :, 5:] * rows[index, :, 4:5]


def _yolov8(outputs: Outputs, contract: ModelContract, index: int) -> tuple[Array, Array]:
    rows = _output(outputs, 0)
    _require(rows, next(iter(outputs)), (None, 4 + len(contract.names), None))
    return cxcywh_to_xyxy(rows[index, :4].T), rows[index, 4:].T


def _yolox(outputs: Outputs, contract: ModelContract, index: int) -> tuple[Array, Array]:
    rows = _output(outputs, 0)
    cells = sum(int(np.prod(_grid_shape(contract, s))) for s in contract.strides)
    _require(rows, next(iter(outputs)), (None, cells, 5 + len(contract.names)))
    row = rows[index]
    corners = np.concatenate([_centres(contract, s, 0.0) / s for s in contract.strides])
    stride = np.concatenate(
        [
            np.full((int(np.prod(_grid_shape(contract, s))), 1), s, np.float32)
            for s in contract.strides
        ]
    )
    centre = (row[:, :2] + corners) * stride
    with np.errstate(over="ignore"):
        size = np.exp(row[:, 2:4]) * stride
    return cxcywh_to_xyxy(np.hstack([centre, size])), row[:, 5:] * row[:, 4:5]


def _nanodet(outputs: Outputs, contract: ModelContract, index: int) -> tuple[Array, Array]:
    """Legacy NanoDet-m: a probability and a distribution output for each stride, one picture."""
    cells = [int(np.prod(_grid_shape(contract, stride))) for stride in contract.strides]
    arrays = [_output(outputs, position) for position in range(len(outputs))]
    flat = [array.reshape(-1, array.shape[-1]) for array in arrays]
    boxes, scores = [], []
    for stride, count in zip(contract.strides, cells, strict=True):
        by_width = {array.shape[1]: array for array in flat if len(array) == count}
        if set(by_width) != {len(contract.names), 4 * DISTANCE_BINS}:
            raise InputError(
                f"model has no pair of outputs of {count} rows with {len(contract.names)} and "
                f"{4 * DISTANCE_BINS} columns for stride {stride}"
            )
        scores.append(by_width[len(contract.names)])
        distances = _expectation(by_width[4 * DISTANCE_BINS]) * stride
        # This family's anchors sit at (x + 0.5) * stride - 0.5; a half pixel is below its error.
        boxes.append(_from_distances(_centres(contract, stride, 0.5), distances))
    return np.concatenate(boxes), np.concatenate(scores)


def _nanodet_plus(outputs: Outputs, contract: ModelContract, index: int) -> tuple[Array, Array]:
    rows = _output(outputs, 0)
    classes = len(contract.names)
    _require(rows, next(iter(outputs)), (None, None, classes + 4 * DISTANCE_BINS))
    centres = np.concatenate([_centres(contract, s, 0.0) for s in contract.strides])
    stride = np.concatenate(
        [np.full(int(np.prod(_grid_shape(contract, s))), s, np.float32) for s in contract.strides]
    )
    distances = _expectation(rows[index, :, classes:]) * stride[:, None]
    return _from_distances(centres, distances.astype(np.float32)), rows[index, :, :classes]


def _fastestdet(outputs: Outputs, contract: ModelContract, index: int) -> tuple[Array, Array]:
    tensor = _output(outputs, 0)
    _require(tensor, next(iter(outputs)), (None, 5 + len(contract.names), None, None))
    _, _, rows, columns = tensor.shape
    flat = tensor[index].reshape(tensor.shape[1], -1).T
    y, x = (grid.reshape(-1) for grid in np.mgrid[:rows, :columns].astype(np.float32))
    centre = np.stack([(x + np.tanh(flat[:, 1])) / columns, (y + np.tanh(flat[:, 2])) / rows], 1)
    size = _sigmoid(flat[:, 3:5])
    scale = np.array([contract.width, contract.height] * 2, dtype=np.float32)
    with np.errstate(invalid="ignore"):
        # Objectness and class probability are mixed with the exponents of its authors.
        scores = np.power(flat[:, :1], 0.6) * np.power(flat[:, 5:], 0.4)
    return cxcywh_to_xyxy(np.hstack([centre, size]) * scale), scores.astype(np.float32)


def _grid_shape(contract: ModelContract, stride: int) -> tuple[int, int]:
    return -(-contract.height // stride), -(-contract.width // stride)


def _centres(contract: ModelContract, stride: int, offset: float) -> Array:
    """float32 (H * W, 2) x y of the cells of one stride, in network pixels, row by row."""
    rows, columns = _grid_shape(contract, stride)
    y, x = (grid.reshape(-1) for grid in np.mgrid[:rows, :columns].astype(np.float32))
    centres: Array = (np.stack([x, y], axis=1) + np.float32(offset)) * np.float32(stride)
    return centres


def _from_distances(centres: Array, distances: Array) -> Array:
    return np.concatenate([centres - distances[:, :2], centres + distances[:, 2:]], axis=1)


def _expectation(distribution: Array) -> Array:
    """(A, 4 * bins) logits to the expected bin (A, 4): softmax-weighted mean."""
    logits = distribution.reshape(len(distribution), 4, -1)
    with np.errstate(invalid="ignore", over="ignore"):
        weights = np.exp(logits - logits.max(axis=2, keepdims=True))
        bins = np.arange(logits.shape[2], dtype=np.float32)
        expected: Array = (weights @ bins) / weights.sum(axis=2)
    return expected


def _one_hot(scores: Array, classes: Array, contract: ModelContract) -> Array:
    """(K,) scores and class numbers to (K, C); a class number outside the names gives NaN."""
    table = np.zeros((len(scores), len(contract.names)), dtype=np.float32)
    known = np.isfinite(classes) & (classes >= 0) & (classes < len(contract.names))
    rows = np.flatnonzero(known)
    table[rows, classes[rows].astype(np.int64)] = scores[rows]
    table[~known] = np.nan
    return table


def _sigmoid(logits: Array) -> Array:
    with np.errstate(over="ignore"):
        probability: Array = np.float32(1.0) / (np.float32(1.0) + np.exp(-logits))
    return probability


_DECODERS: dict[str, Callable[[Outputs, ModelContract, int], tuple[Array, Array]]] = {
    "decoded": _decoded,
    "raw": _raw,
    "e2e": _e2e,
    "num_dets": _num_dets,
    "yolov5": _yolov5,
    "yolov8": _yolov8,
    "yolox": _yolox,
    "nanodet": _nanodet,
    "nanodet_plus": _nanodet_plus,
    "fastestdet": _fastestdet,
}
