"""Which detection belongs to which track: similarity of boxes, and the best set of pairs.

The matching is written here because a robot's install holds NumPy and OpenCV only: scipy's
linear_sum_assignment would add 35 MB of download (over 100 MB unpacked) for this one call. After
gating, nearly every track has one candidate, so the exact search runs on what is contested.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from perception.detections import Detections
from perception.tracking.motion import Floats

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Pairs = tuple[Ints, Ints]

_LARGEST_COORDINATE = 1e6  # pixels; beyond it a box is not from a camera


def canonical_order(found: Detections) -> Ints:
    """Rows by falling score, then by box and class: the result does not depend on input order."""
    left, top, right, bottom = found.boxes.T
    return np.lexsort((found.labels, bottom, right, top, left, -found.scores)).astype(np.int64)


def trackable(boxes: npt.NDArray[np.float32]) -> Mask:
    """(N,) boxes with an area, on a picture of any size that a camera has."""
    sides = boxes[:, 2:] - boxes[:, :2]
    near = np.abs(boxes).max(axis=1, initial=0.0) < _LARGEST_COORDINATE
    return np.asarray((sides.min(axis=1, initial=np.inf) > 0) & near)


def similarity(
    first: npt.NDArray[np.floating], second: npt.NDArray[np.float32], spread: Floats | None = None
) -> Floats:
    """float64 (N, M): IoU of each pair after both boxes are widened on every side.

    spread: (N,) pixels to widen by, at most half a side of `first`; none: plain IoU. Widening
    lets a prediction that has grown uncertain, or a small fast box that no longer overlaps its
    last place, still find its detection (compare the buffered IoU of Yang et al., "Hard to Track
    Objects with Irregular Motions and Similar Appearances", WACV 2023).
    """
    a, b = first.astype(np.float64), second.astype(np.float64)
    side_a, side_b = a[:, 2:] - a[:, :2], b[:, 2:] - b[:, :2]
    extra = np.zeros_like(side_a) if spread is None else np.minimum(2 * spread[:, None], side_a)
    shared, area_a, area_b = np.ones((3, len(a), len(b)))
    for axis in (0, 1):
        margin = extra[:, axis, None]  # both sides together
        near = np.maximum(a[:, axis, None], b[None, :, axis])
        far = np.minimum(a[:, axis + 2, None], b[None, :, axis + 2])
        shared *= np.maximum(far - near + margin, 0.0)
        area_a *= side_a[:, axis, None] + margin
        area_b *= side_b[None, :, axis] + margin
    union = area_a + area_b - shared
    usable = (side_b.min(axis=1, initial=np.inf) > 0)[None, :] & (union > 0)
    return np.asarray(np.divide(shared, union, out=np.zeros_like(shared), where=usable))


def gate(likeness: Floats, least: float) -> Floats:
    return np.where(likeness >= least, likeness, 0.0)


def distinct_rows(alike: Mask) -> Ints:
    """Rows, in order, that are not alike to a row kept before them."""
    kept: list[int] = []
    for row in range(len(alike)):
        if not alike[row, kept].any():
            kept.append(row)
    return np.array(kept, dtype=np.int64)


def match(weights: Floats) -> Pairs:
    """Pair rows with columns so that the sum of the weights is the largest possible.

    weights: float64 (N, M), finite; a weight of 0 or less means that the pair is not allowed.
    Returns (rows, columns), int64 (K,), rows ascending; each row and column at most once.
    """
    allowed = weights > 0
    alone = allowed & (allowed.sum(axis=1) == 1)[:, None] & (allowed.sum(axis=0) == 1)[None, :]
    rows, columns = np.nonzero(alone)
    contested_rows = np.flatnonzero(allowed.any(axis=1) & ~alone.any(axis=1))
    if len(contested_rows):
        contested_columns = np.flatnonzero(allowed.any(axis=0) & ~alone.any(axis=0))
        block = np.maximum(weights[np.ix_(contested_rows, contested_columns)], 0.0)
        more_rows, more_columns = _hungarian(block)
        kept = block[more_rows, more_columns] > 0
        rows = np.concatenate([rows, contested_rows[more_rows[kept]]])
        columns = np.concatenate([columns, contested_columns[more_columns[kept]]])
        order = np.argsort(rows)
        rows, columns = rows[order], columns[order]
    return rows.astype(np.int64), columns.astype(np.int64)


def match_rest(
    weights: Floats, rows_open: Mask, columns_open: Mask, rows: Ints, columns: Ints
) -> Pairs:
    """Add to the pairs (rows, columns) the best ones among rows and columns not yet used.

    weights: as for match(). rows_open (N,), columns_open (M,): which may take part at all.
    """
    rows_open, columns_open = rows_open.copy(), columns_open.copy()
    rows_open[rows] = False
    columns_open[columns] = False
    free_rows, free_columns = np.flatnonzero(rows_open), np.flatnonzero(columns_open)
    more_rows, more_columns = match(weights[np.ix_(free_rows, free_columns)])
    return (
        np.concatenate([rows, free_rows[more_rows]]),
        np.concatenate([columns, free_columns[more_columns]]),
    )


def _hungarian(weights: Floats) -> Pairs:
    """Complete assignment of largest sum by shortest augmenting paths, O(n^3).

    The algorithm of Jonker and Volgenant without its initialisation, as described by Crouse,
    "On implementing 2D rectangular assignment algorithms" (IEEE TAES, 2016).
    """
    if weights.shape[0] > weights.shape[1]:
        columns, rows = _hungarian(weights.T)
        return rows, columns
    cost = weights.max() - weights
    count, width = cost.shape
    row_price, column_price = np.zeros(count), np.zeros(width)
    row_of = np.full(width, -1, dtype=np.int64)  # column -> row
    column_of = np.full(count, -1, dtype=np.int64)
    for start in range(count):
        distance = np.full(width, np.inf)
        previous = np.full(width, -1, dtype=np.int64)  # row from which a column was reached
        done = np.zeros(width, dtype=bool)
        visited_rows = [start]
        row, lowest = start, 0.0
        while True:
            through = lowest + cost[row] - row_price[row] - column_price
            closer = ~done & (through < distance)
            distance[closer] = through[closer]
            previous[closer] = row
            column = int(np.argmin(np.where(done, np.inf, distance)))
            lowest = float(distance[column])
            done[column] = True
            if row_of[column] < 0:
                break
            row = int(row_of[column])
            visited_rows.append(row)
        row_price[start] += lowest
        for other in visited_rows[1:]:
            row_price[other] += lowest - distance[column_of[other]]
        column_price[done] -= lowest - distance[done]
        while True:  # flip the path back to the row it started from
            row = int(previous[column])
            row_of[column] = row
            column_of[row], column = column, int(column_of[row])
            if row == start:
                break
    return np.arange(count, dtype=np.int64), column_of
