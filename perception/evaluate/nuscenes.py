"""nuScenes-style scores in the picture plane: AP by centre distance, and errors of what was found.

The rules are those of the nuScenes detection benchmark (Caesar et al., CVPR 2020, and its
development kit): greedy matching by centre distance, precision and recall below 10 % cut off,
errors as running means over recall. Metres become shares of the truth box's diagonal, because a
picture has no metres: .5 of a car's diagonal is about the kit's 2 m.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perception.detections import Detections
from perception.evaluate.tables import Bools, Floats, Ints, from_detections

DISTANCES = (0.125, 0.25, 0.5, 1.0)
"""Centre distances of AP in diagonals of the truth box; the kit's are 0.5 to 4 m."""
ERROR_DISTANCE = 0.5
"""The distance at which errors are measured."""
MIN_RECALL = 0.1
MIN_PRECISION = 0.1
RECALLS: Floats = np.linspace(0.0, 1.0, 101)
FIRST = round(100 * MIN_RECALL) + 1
"""First recall point above the cut."""


@dataclass(frozen=True, slots=True)
class NuScenesScore:
    """One class; None where undefined.

    ap: mean of aps; aps: at each of DISTANCES, 0 to 1.
    translation_error: centre distance in diagonals; scale_error: 1 - IoU of the boxes with their
        centres aligned; velocity_error: pixels a second, over objects whose velocity is known on
        both sides. Errors are 1 (velocity: None) when recall stays below 10 %.
    """

    name: str
    ap: float | None
    aps: tuple[float, ...]
    translation_error: float | None
    scale_error: float | None
    velocity_error: float | None
    truth: int
    detections: int


@dataclass(frozen=True, slots=True, eq=False)
class _Class:
    """Columns of one class; results by descending score. Boxes are xywh, velocities px/s."""

    truth_image: Ints
    truth_boxes: Floats
    truth_velocities: Floats
    image: Ints
    boxes: Floats
    velocities: Floats


def evaluate(
    truth: Sequence[Detections], results: Sequence[Detections], names: Sequence[str]
) -> tuple[NuScenesScore, ...]:
    """Score one `Detections` a picture against its ground truth, one score a class.

    Raises InputError for lengths that differ, labels out of range and numbers not finite.
    """
    tables = from_detections(truth, results, names)
    none = np.zeros((0, 2), dtype=np.float32)
    truth_velocities = np.concatenate([*[item.velocities for item in truth], none])
    velocities = np.concatenate([*[item.velocities for item in results], none])
    scores = []
    for label, name in enumerate(names):
        own = tables.truth.labels == label
        found = np.flatnonzero(tables.results.labels == label)
        found = found[np.argsort(-tables.results.scores[found], kind="stable")]
        columns = _Class(
            truth_image=tables.truth.image[own],
            truth_boxes=tables.truth.boxes[own],
            truth_velocities=truth_velocities[own].astype(np.float64),
            image=tables.results.image[found],
            boxes=tables.results.boxes[found],
            velocities=velocities[found].astype(np.float64),
        )
        scores.append(_score(columns, name))
    return tuple(scores)


def _score(columns: _Class, name: str) -> NuScenesScore:
    objects, count = len(columns.truth_image), len(columns.image)
    if not objects:
        return NuScenesScore(name, None, (), None, None, None, 0, count)
    aps = tuple(_ap(_match(columns, limit) >= 0, objects) for limit in DISTANCES)
    partner = _match(columns, ERROR_DISTANCE)
    hits = partner >= 0
    pairs = (columns.truth_boxes[partner[hits]], columns.boxes[hits])
    change = columns.velocities[hits] - columns.truth_velocities[partner[hits]]
    return NuScenesScore(
        name=name,
        ap=float(np.mean(aps)),
        aps=aps,
        translation_error=_over_recall(_distances(*pairs), hits, objects, worst=1.0),
        scale_error=_over_recall(_scale_errors(*pairs), hits, objects, worst=1.0),
        velocity_error=_over_recall(np.hypot(*change.T), hits, objects, worst=None),
        truth=objects,
        detections=count,
    )


def _distances(truth: Floats, found: Floats) -> Floats:
    """Distance of the centres in diagonals of the truth; boxes (N, 4) xywh."""
    offset = (found[:, :2] + found[:, 2:] / 2) - (truth[:, :2] + truth[:, 2:] / 2)
    diagonal = np.maximum(np.hypot(truth[:, 2], truth[:, 3]), np.finfo(np.float64).tiny)
    distances: Floats = np.hypot(offset[:, 0], offset[:, 1]) / diagonal
    return distances


def _scale_errors(truth: Floats, found: Floats) -> Floats:
    shared = np.minimum(truth[:, 2:], found[:, 2:]).prod(axis=1)
    union = truth[:, 2:].prod(axis=1) + found[:, 2:].prod(axis=1) - shared
    errors: Floats = 1.0 - np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return errors


def _match(columns: _Class, limit: float) -> Ints:
    """int64 (D,): the nearest object still free and nearer than `limit` diagonals, else -1."""
    partner = np.full(len(columns.image), -1, dtype=np.int64)
    free = np.ones(len(columns.truth_image), dtype=np.bool_)
    # The truth is in order of picture, as the tables build it.
    first = np.searchsorted(columns.truth_image, columns.image, side="left")
    last = np.searchsorted(columns.truth_image, columns.image, side="right")
    for row in range(len(columns.image)):
        rows = np.arange(first[row], last[row])
        rows = rows[free[rows]]
        if not len(rows):
            continue
        distances = _distances(
            columns.truth_boxes[rows], np.repeat(columns.boxes[row][None], len(rows), axis=0)
        )
        nearest = int(np.argmin(distances))
        if distances[nearest] < limit:
            partner[row] = rows[nearest]
            free[rows[nearest]] = False
    return partner


def _ap(hits: Bools, objects: int) -> float:
    if not hits.any():
        return 0.0
    found = np.cumsum(hits)
    precision = found / np.arange(1, len(hits) + 1)
    sampled = np.interp(RECALLS, found / objects, precision, right=0.0)[FIRST:]
    return float(np.maximum(sampled - MIN_PRECISION, 0.0).mean() / (1.0 - MIN_PRECISION))


def _over_recall(errors: Floats, hits: Bools, objects: int, *, worst: float | None) -> float | None:
    """Mean over the reached recall points above 10 % of the running mean of `errors`."""
    reached = int(100 * hits.sum() / objects)
    if reached < FIRST:
        return worst
    known = np.isfinite(errors)
    if not known.any():
        return None
    recall = np.flatnonzero(known) + 1.0
    running = np.cumsum(errors[known]) / np.arange(1, known.sum() + 1)
    sampled = np.interp(RECALLS[FIRST : reached + 1] * objects, recall, running)
    return float(sampled.mean())
