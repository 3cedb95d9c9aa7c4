"""Axis-aligned boxes as float32 (N, 4) arrays of x1 y1 x2 y2, in one shared pixel frame.

Everything is computed in float32 whatever comes in: in float16 the area of a 400 x 400 box
exceeds 65504, becomes infinite and makes IoU NaN.
"""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]


def _boxes(boxes: npt.ArrayLike) -> Array:
    return np.asarray(boxes, dtype=np.float32).reshape(-1, 4)


def box_area(boxes: npt.ArrayLike) -> Array:
    """float32 (N,) areas in square pixels; 0 for swapped corners."""
    corners = _boxes(boxes)
    sides = np.maximum(corners[:, 2:] - corners[:, :2], 0.0)
    area: Array = sides[:, 0] * sides[:, 1]
    return area


def intersection_matrix(first: npt.ArrayLike, second: npt.ArrayLike) -> Array:
    """float32 (N, M) areas shared by each pair, in square pixels."""
    a, b = _boxes(first), _boxes(second)
    width = np.minimum(a[:, None, 2], b[None, :, 2]) - np.maximum(a[:, None, 0], b[None, :, 0])
    height = np.minimum(a[:, None, 3], b[None, :, 3]) - np.maximum(a[:, None, 1], b[None, :, 1])
    shared: Array = np.maximum(width, 0.0) * np.maximum(height, 0.0)
    return shared


def iou_matrix(first: npt.ArrayLike, second: npt.ArrayLike) -> Array:
    """float32 (N, M) intersection over union; 0 where both boxes are empty."""
    shared = intersection_matrix(first, second)
    union = box_area(first)[:, None] + box_area(second)[None, :] - shared
    ratio: Array = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return ratio


def iof_matrix(first: npt.ArrayLike, second: npt.ArrayLike) -> Array:
    """float32 (N, M) intersection over the area of `first`: how much lies inside a region."""
    shared = intersection_matrix(first, second)
    own = np.broadcast_to(box_area(first)[:, None], shared.shape)
    return np.divide(shared, own, out=np.zeros_like(shared), where=own > 0)


def clip_boxes(boxes: npt.ArrayLike, width: float, height: float) -> Array:
    """Boxes cut at the edges of a picture of this size, in pixels."""
    limit = np.array([width, height, width, height], dtype=np.float32)
    return np.clip(_boxes(boxes), 0.0, limit)


def xyxy_to_xywh(boxes: npt.ArrayLike) -> Array:
    """Corners to left, top, width, height."""
    corners = _boxes(boxes)
    return np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1)


def xywh_to_xyxy(boxes: npt.ArrayLike) -> Array:
    """Left, top, width, height to corners."""
    sides = _boxes(boxes)
    return np.concatenate([sides[:, :2], sides[:, :2] + sides[:, 2:]], axis=1)


def cxcywh_to_xyxy(boxes: npt.ArrayLike) -> Array:
    """Centre, width, height to corners."""
    centred = _boxes(boxes)
    half = centred[:, 2:] / 2
    return np.concatenate([centred[:, :2] - half, centred[:, :2] + half], axis=1)


def nms(
    boxes: npt.ArrayLike, scores: npt.ArrayLike, labels: npt.ArrayLike, iou_threshold: float
) -> npt.NDArray[np.int64]:
    """Greedy non-maximum suppression within each class.

    boxes (N, 4), scores (N,), labels (N,): finite. Returns int64 indices of the kept rows, by
    descending score; equal scores keep their input order, so the result is reproducible.
    A box is removed when its IoU with a kept box of the same class exceeds iou_threshold.
    """
    corners = _boxes(boxes)
    order = np.argsort(-np.asarray(scores, dtype=np.float32), kind="stable")
    if len(order) < 2:
        return order.astype(np.int64)
    corners = corners[order]
    kinds = np.asarray(labels)[order]
    clash = (iou_matrix(corners, corners) > iou_threshold) & (kinds[:, None] == kinds[None, :])
    alive = np.ones(len(order), dtype=bool)
    # Only rows that clash with a later one can remove anything; most rows are skipped.
    clash &= np.triu(np.ones_like(clash), k=1)
    for row in np.flatnonzero(clash.any(axis=1)):
        if alive[row]:
            alive &= ~clash[row]
    return order[alive].astype(np.int64)
