"""KITTI 2-D average precision with difficulty rules, DontCare regions and neutral classes.

The protocol is that of the KITTI object development kit (evaluate_object, 2-D part): R40 is the
mean precision at recall 1/40 to 40/40 (the benchmark's figure since 2019-10-08), R11 at
0, 1/10, ... 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perception.errors import InputError
from perception.evaluate.tables import Floats
from perception.labels import nearest

RECALL_STEPS = 40
CLASSES = ("Car", "Pedestrian", "Cyclist")
NEUTRAL = {"car": ("van",), "pedestrian": ("person_sitting",)}
"""Lower-case class -> classes so alike that detecting them is neither right nor wrong."""
MIN_OVERLAP = {"car": 0.7}
OTHER_MIN_OVERLAP = 0.5
DONT_CARE = "dontcare"


@dataclass(frozen=True, slots=True)
class Difficulty:
    """Limits of one difficulty: min_height in pixels, max_occlusion 0 to 3, max_truncation 0..1."""

    name: str
    min_height: float
    max_occlusion: int
    max_truncation: float


DIFFICULTIES = (
    Difficulty("easy", 40, 0, 0.15),
    Difficulty("moderate", 25, 1, 0.30),
    Difficulty("hard", 25, 2, 0.50),
)


@dataclass(frozen=True, slots=True, eq=False)
class KittiFrame:
    """One picture: truth columns of length G, result columns of length D.

    boxes and result_boxes: float64 (N, 4), x1 y1 x2 y2 in pixels. kinds and result_kinds: class
    names, any case; "DontCare" in the truth marks a region. truncation: 0 to 1, occlusion: 0
    visible to 2 largely occluded, 3 unknown.
    """

    name: str
    kinds: tuple[str, ...]
    boxes: Floats
    truncation: Floats
    occlusion: Floats
    result_kinds: tuple[str, ...]
    result_boxes: Floats
    scores: Floats


@dataclass(frozen=True, slots=True)
class KittiScore:
    """One class at one difficulty; AP 0 to 100 as KITTI prints it, None without ground truth.

    true_positives, false_alarms, missed: counts over all detections whatever their score.
    """

    kind: str
    difficulty: str
    min_overlap: float
    ap_r40: float | None
    ap_r11: float | None
    true_positives: int
    false_alarms: int
    missed: int
    truth: int
    detections: int


@dataclass(frozen=True, slots=True)
class _Object:
    """A truth box of the class: counted or neutral, and the detections that overlap it enough."""

    counted: bool
    candidates: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """One picture for one class and difficulty, the detections of no concern already gone."""

    objects: tuple[_Object, ...]
    scores: tuple[float, ...]
    counted: tuple[bool, ...]
    in_region: tuple[bool, ...]


@dataclass(slots=True)
class _Counts:
    hits: int = 0
    false_alarms: int = 0
    missed: int = 0


def evaluate(
    frames: Sequence[KittiFrame], classes: Sequence[str] = CLASSES
) -> tuple[KittiScore, ...]:
    """Score every class at every difficulty; overlap needed is .7 for Car and .5 for others."""
    scores = []
    for kind in classes:
        overlap = MIN_OVERLAP.get(kind.lower(), OTHER_MIN_OVERLAP)
        for difficulty in DIFFICULTIES:
            prepared = [_prepare(frame, kind.lower(), difficulty, overlap) for frame in frames]
            scores.append(_score(prepared, kind, difficulty, overlap))
    return tuple(scores)


def require_classes(frames: Sequence[KittiFrame], classes: Sequence[str]) -> None:
    """InputError for a class that is neither KITTI's nor in the frames: it would score nothing."""
    found = {kind for frame in frames for kind in (*frame.kinds, *frame.result_kinds)}
    known = sorted({*CLASSES, *found} - {DONT_CARE})
    unknown = [name for name in classes if name.lower() not in {kind.lower() for kind in known}]
    if unknown:
        raise InputError(
            f"--classes: no label or result file has the class {unknown[0]!r}, expected some of "
            f"{', '.join(known)}{nearest(unknown[0], known)}"
        )


def _shared(first: Floats, second: Floats) -> Floats:
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    sides = np.maximum(high - low, 0.0)
    area: Floats = sides[..., 0] * sides[..., 1]
    return area


def _area(boxes: Floats) -> Floats:
    area: Floats = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return area


def _ratio(shared: Floats, whole: Floats) -> Floats:
    ratio: Floats = np.divide(shared, whole, out=np.zeros_like(shared), where=shared > 0)
    return ratio


def _prepare(frame: KittiFrame, kind: str, difficulty: Difficulty, overlap: float) -> _Prepared:
    result_kinds = np.array([name.lower() for name in frame.result_kinds], dtype=object)
    # The kit cuts the fraction off a detection's height before it compares.
    heights = np.floor(np.abs(frame.result_boxes[:, 3] - frame.result_boxes[:, 1]))
    small = heights < difficulty.min_height
    # Too small comes before the class: a small detection of another class is neutral as well.
    kept = np.flatnonzero(small | (result_kinds == kind))
    boxes, scores = frame.result_boxes[kept], frame.scores[kept]

    kinds = np.array([name.lower() for name in frame.kinds], dtype=object)
    neutral = np.isin(kinds, NEUTRAL.get(kind, ()))
    rows = np.flatnonzero((kinds == kind) | neutral)
    easy_enough = (
        (frame.occlusion <= difficulty.max_occlusion)
        & (frame.truncation <= difficulty.max_truncation)
        & (frame.boxes[:, 3] - frame.boxes[:, 1] > difficulty.min_height)
    )
    shared = _shared(frame.boxes[rows], boxes)
    iou = _ratio(shared, _area(frame.boxes[rows])[:, None] + _area(boxes)[None, :] - shared)
    regions = frame.boxes[kinds == DONT_CARE]
    inside = _ratio(
        _shared(boxes, regions), np.broadcast_to(_area(boxes)[:, None], (len(kept), len(regions)))
    )
    return _Prepared(
        objects=tuple(
            _Object(
                counted=bool(easy_enough[row] and not neutral[row]),
                candidates=tuple(
                    (int(j), float(iou[k, j])) for j in np.flatnonzero(iou[k] > overlap)
                ),
            )
            for k, row in enumerate(rows)
        ),
        scores=tuple(scores.tolist()),
        counted=tuple(not flag for flag in small[kept]),
        in_region=tuple(bool(row.any()) for row in inside > overlap),
    )


def _hit_scores(frame: _Prepared) -> list[float]:
    """Scores of the detections that find a counted object, the best-scored candidate first."""
    taken: set[int] = set()
    hits = []
    for item in frame.objects:
        best, best_score = -1, -np.inf
        for j, _ in item.candidates:
            if j not in taken and frame.scores[j] > best_score:
                best, best_score = j, frame.scores[j]
        if best < 0:
            continue
        taken.add(best)
        if item.counted and frame.counted[best]:
            hits.append(best_score)
    return hits


def _count(frame: _Prepared, threshold: float, counts: _Counts) -> None:
    """Add one picture's hits, false alarms and misses among detections scored >= threshold."""
    taken: set[int] = set()
    for item in frame.objects:
        best, best_overlap, best_counted = -1, 0.0, False
        for j, overlap in item.candidates:
            if j in taken or frame.scores[j] < threshold:
                continue
            if frame.counted[j]:
                if overlap > best_overlap or not best_counted:
                    best, best_overlap, best_counted = j, overlap, True
            elif best < 0:
                best = j
        if best < 0:
            counts.missed += item.counted
            continue
        taken.add(best)
        counts.hits += item.counted and best_counted
    for j, score in enumerate(frame.scores):
        if score >= threshold and frame.counted[j] and j not in taken and not frame.in_region[j]:
            counts.false_alarms += 1


def _thresholds(hits: Floats, truth: int) -> list[float]:
    """Scores at which recall comes nearest to 0, 1/40, ... 1; hits in descending order."""
    chosen = []
    recall = 0.0
    for i, score in enumerate(hits.tolist()):
        last = i == len(hits) - 1
        left = (i + 1) / truth
        right = left if last else (i + 2) / truth
        if right - recall < recall - left and not last:
            continue
        chosen.append(score)
        recall += 1.0 / RECALL_STEPS
    return chosen


def _score(
    frames: Sequence[_Prepared], kind: str, difficulty: Difficulty, overlap: float
) -> KittiScore:
    truth = sum(item.counted for frame in frames for item in frame.objects)
    busy = [frame for frame in frames if frame.objects or frame.scores]
    hits = np.sort(np.array([score for frame in busy for score in _hit_scores(frame)]))[::-1]
    precision = np.zeros(RECALL_STEPS + 1)
    for i, threshold in enumerate(_thresholds(hits, truth)[: RECALL_STEPS + 1]):
        counts = _Counts()
        for frame in busy:
            _count(frame, threshold, counts)
        found = counts.hits + counts.false_alarms
        precision[i] = counts.hits / found if found else 0.0
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    everything = _Counts()
    for frame in busy:
        _count(frame, -np.inf, everything)
    return KittiScore(
        kind=kind,
        difficulty=difficulty.name,
        min_overlap=overlap,
        ap_r40=100.0 * float(precision[1:].mean()) if truth else None,
        ap_r11=100.0 * float(precision[::4].mean()) if truth else None,
        true_positives=everything.hits,
        false_alarms=everything.false_alarms,
        missed=everything.missed,
        truth=truth,
        detections=sum(sum(frame.counted) for frame in busy),
    )
