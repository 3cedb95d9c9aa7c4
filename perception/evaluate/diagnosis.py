"""Why a detector loses precision, and how far its scores can be trusted.

Everything here is at IoU .5. The error types and the idea of pricing each by what its repair
would gain are those of TIDE (Bolya et al., ECCV 2020); expected calibration error is that of
Guo et al., ICML 2017.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.errors import InputError
from perception.evaluate.coco import pair_overlaps, pairs
from perception.evaluate.matching import (
    Matches,
    average_precisions,
    class_curves,
    match,
    mean_defined,
)
from perception.evaluate.tables import Bools, BoxTables, Floats, Ints, Results

FOREGROUND_IOU = 0.5
BACKGROUND_IOU = 0.1
FOREGROUND: Floats = np.array([FOREGROUND_IOU])
BINS = 10

RIGHT, DUPLICATE, CLASSIFICATION, LOCALISATION, BOTH, BACKGROUND, IGNORED = range(7)
KINDS = (
    "right",
    "duplicate",
    "classification",
    "localisation",
    "classification and localisation",
    "background",
    "ignored",
)


@dataclass(frozen=True, slots=True)
class ErrorType:
    """count: detections (or objects, for "missed") at the operating score.

    ap50_gain: how much AP50 would rise if all errors of this type, whatever their score, were
    repaired; None where AP50 is undefined.
    """

    name: str
    count: int
    ap50_gain: float | None


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """Detections whose score lies in [low, high): their mean score and the share that is right."""

    low: float
    high: float
    count: int
    mean_score: float | None
    precision: float | None


@dataclass(frozen=True, slots=True)
class Calibration:
    """ece: mean distance of score and precision, weighted by detections; None without any."""

    ece: float | None
    bins: tuple[CalibrationBin, ...]


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """Counts of detections scored at least `score`; rates are None where undefined."""

    score: float
    precision: float | None
    recall: float | None
    f1: float | None
    false_alarms_per_picture: float
    true_positives: int
    false_alarms: int
    missed: int


@dataclass(frozen=True, slots=True, eq=False)
class Diagnosis:
    """Everything about one model on one data set; see the parts.

    kinds: int64 (D,), index into KINDS of each detection of `matches`.
    partner: int64 (D,), row of the object that a detection took, missed narrowly or confused, -1.
    confusion: int64 (K + 1, K + 1), truth by row, result by column; the last is "nothing".
    """

    matches: Matches
    kinds: Ints
    partner: Ints
    best: OperatingPoint
    errors: tuple[ErrorType, ...]
    calibration: Calibration
    confusion: Ints

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values, without the row-wise arrays."""
        return {
            "operating_point": asdict(self.best),
            "errors": [asdict(item) for item in self.errors],
            "calibration": asdict(self.calibration),
            "confusion": {
                "names": [*self.matches.tables.names, "nothing"],
                "counts": self.confusion.tolist(),
            },
        }


def diagnose(tables: BoxTables, *, min_score: float | None = None) -> Diagnosis:
    """Error types, calibration and confusion; min_score defaults to the score of best F1."""
    matches = match(tables, thresholds=FOREGROUND)
    best = best_point(matches) if min_score is None else operating_point(matches, min_score)
    kinds, partner = _classify(matches)
    return Diagnosis(
        matches=matches,
        kinds=kinds,
        partner=partner,
        best=best,
        errors=_error_types(matches, kinds, partner, best.score),
        calibration=calibrate(matches),
        confusion=confusion(tables, best.score),
    )


def operating_point(matches: Matches, score: float) -> OperatingPoint:
    """Counts and rates at a score threshold (IoU .5)."""
    above = matches.scores >= score
    hits = int((matches.right[0] & above).sum())
    wrong = int((matches.wrong[0] & above).sum())
    objects = int(matches.counted.sum())
    precision = hits / (hits + wrong) if hits + wrong else None
    recall = hits / objects if objects else None
    f1 = 2 * hits / (hits + wrong + objects) if hits + wrong + objects else None
    return OperatingPoint(
        score=float(score),
        precision=precision,
        recall=recall,
        f1=f1,
        false_alarms_per_picture=wrong / max(len(matches.tables.pictures), 1),
        true_positives=hits,
        false_alarms=wrong,
        missed=objects - hits,
    )


def _sums_by_score(matches: Matches) -> tuple[Floats, Floats, Floats]:
    """Each distinct score, descending, with hits and false alarms at or above it."""
    order = np.argsort(-matches.scores, kind="stable")
    scores = matches.scores[order]
    last = (
        np.flatnonzero(np.r_[scores[1:] != scores[:-1], True]) if len(scores) else np.zeros(0, int)
    )
    hits = np.cumsum(matches.right[0][order])[last].astype(np.float64)
    wrong = np.cumsum(matches.wrong[0][order])[last].astype(np.float64)
    return scores[last], hits, wrong


def best_point(matches: Matches) -> OperatingPoint:
    """The threshold of highest F1; of equal ones the highest score."""
    scores, hits, wrong = _sums_by_score(matches)
    if not len(scores):
        return operating_point(matches, 1.0)
    total = hits + wrong + matches.counted.sum()
    f1 = np.divide(2 * hits, total, out=np.zeros_like(hits), where=total > 0)
    return operating_point(matches, float(scores[np.argmax(f1)]))


def threshold_for(matches: Matches, false_alarms_per_picture: float) -> OperatingPoint:
    """The lowest score threshold whose false alarms a picture stay within the limit.

    Raises InputError for a negative limit. When even the best-scored detection exceeds it, the
    threshold lies just above every score: nothing is reported.
    """
    if not false_alarms_per_picture >= 0:
        raise InputError(
            f"false alarms a picture: {false_alarms_per_picture}, expected a number of at least 0"
        )
    scores, _, wrong = _sums_by_score(matches)
    allowed = wrong <= false_alarms_per_picture * len(matches.tables.pictures)
    if not len(scores):
        return operating_point(matches, 0.0)
    if not allowed[0]:
        # In float32, because detectors compare in it: a step of float64 would vanish there.
        above = np.nextafter(np.float32(scores[0]), np.float32(np.inf))
        return operating_point(matches, float(above))
    return operating_point(matches, float(scores[np.flatnonzero(allowed)[-1]]))


def calibrate(matches: Matches, bins: int = BINS) -> Calibration:
    """Reliability of scores 0 to 1 in equal bins; ignored detections are left out."""
    judged = ~matches.ignored[0]
    scores, right = matches.scores[judged], matches.right[0][judged]
    place = np.clip((scores * bins).astype(np.int64), 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    score_sum = np.bincount(place, scores, minlength=bins)
    right_sum = np.bincount(place, right, minlength=bins)
    gap = float(np.abs(score_sum - right_sum).sum())
    return Calibration(
        ece=gap / len(scores) if len(scores) else None,
        bins=tuple(
            CalibrationBin(
                low=i / bins,
                high=(i + 1) / bins,
                count=int(count[i]),
                mean_score=float(score_sum[i] / count[i]) if count[i] else None,
                precision=float(right_sum[i] / count[i]) if count[i] else None,
            )
            for i in range(bins)
        ),
    )


def _best_overlap(
    result: Ints, overlaps: Floats, usable: Bools, rows: int
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """For each detection its largest usable overlap and the pair that has it (-1 for none)."""
    best = np.full(rows, -1.0)
    pair = np.full(rows, -1, dtype=np.int64)
    kept = np.flatnonzero(usable)
    order = kept[np.lexsort((overlaps[kept], result[kept]))]
    best[result[order]] = overlaps[order]
    pair[result[order]] = order
    return best, pair


def _classify(matches: Matches) -> tuple[Ints, Ints]:
    """The kind of each detection, and the row of the object it is about (-1 for none)."""
    truth, results = matches.tables.truth, matches.tables.results
    rows = np.arange(len(matches.rows))
    by_image = np.argsort(matches.image, kind="stable")
    objects = np.flatnonzero(matches.counted)
    objects = objects[np.argsort(truth.image[objects], kind="stable")]
    found, other = pairs(truth.image[objects], matches.image[by_image])
    found, other = by_image[found], objects[other]
    overlaps = pair_overlaps(
        results.boxes[matches.rows[found]],
        truth.boxes[other],
        np.zeros(len(found), dtype=np.bool_),
    )
    same = matches.labels[found] == truth.labels[other]
    own, own_pair = _best_overlap(found, overlaps, same, len(rows))
    foreign, foreign_pair = _best_overlap(found, overlaps, ~same, len(rows))

    kinds = np.full(len(rows), BACKGROUND, dtype=np.int64)
    kinds[foreign >= BACKGROUND_IOU] = BOTH
    kinds[own >= BACKGROUND_IOU] = LOCALISATION
    kinds[foreign >= FOREGROUND_IOU] = CLASSIFICATION
    kinds[own >= FOREGROUND_IOU] = DUPLICATE
    kinds[matches.right[0]] = RIGHT
    kinds[matches.ignored[0]] = IGNORED
    pair = np.where(np.isin(kinds, (DUPLICATE, LOCALISATION)), own_pair, foreign_pair)
    partner = np.where(pair >= 0, np.append(other, -1)[pair], -1)
    partner[np.isin(kinds, (BACKGROUND, IGNORED))] = -1
    partner[kinds == RIGHT] = matches.found[0][kinds == RIGHT]
    return kinds, partner.astype(np.int64)


def _ap50(tables: BoxTables, truth_in: Bools | None = None) -> float | None:
    record = match(tables, thresholds=FOREGROUND, truth_in=truth_in)
    return mean_defined(average_precisions(class_curves(record)))


def _error_types(
    matches: Matches, kinds: Ints, partner: Ints, score: float
) -> tuple[ErrorType, ...]:
    above = matches.scores >= score
    base = _ap50(matches.tables)
    errors = []
    for kind in (CLASSIFICATION, LOCALISATION, BOTH, DUPLICATE, BACKGROUND):
        repaired = _ap50(_repair(matches, kinds, partner, kind))
        gain = None if base is None or repaired is None else max(0.0, repaired - base)
        errors.append(ErrorType(KINDS[kind], int(((kinds == kind) & above).sum()), gain))
    # An object that some detection confused or misplaced counts there, not as missed.
    touched = np.isin(kinds, (CLASSIFICATION, LOCALISATION))
    missed = np.setdiff1d(matches.missed(), partner[touched])
    missed_above = np.setdiff1d(matches.missed(min_score=score), partner[touched & above])
    keep = np.ones(len(matches.counted), dtype=np.bool_)
    keep[missed] = False
    repaired = _ap50(matches.tables, truth_in=keep)
    gain = None if base is None or repaired is None else max(0.0, repaired - base)
    errors.append(ErrorType("missed", len(missed_above), gain))
    return tuple(errors)


def _repair(matches: Matches, kinds: Ints, partner: Ints, kind: int) -> BoxTables:
    """The tables as if every error of one type had been right: moved, renamed, or not made."""
    tables = matches.tables
    chosen = kinds == kind
    boxes, labels = tables.results.boxes.copy(), tables.results.labels.copy()
    rows = matches.rows[chosen]
    keep = np.ones(len(tables.results), dtype=np.bool_)
    if kind in (LOCALISATION, CLASSIFICATION):
        objects = partner[chosen]
        if kind == LOCALISATION:
            boxes[rows] = tables.truth.boxes[objects]
        else:
            labels[rows] = tables.truth.labels[objects]
        # Repairing an error on an object that is already found would only make a duplicate; of
        # several errors on one object only the best-scored (the first) is repaired.
        taken = np.zeros(len(tables.truth), dtype=np.bool_)
        taken[matches.found[0][matches.right[0]]] = True
        first = np.zeros(len(objects), dtype=np.bool_)
        first[np.unique(objects, return_index=True)[1]] = True
        keep[rows[taken[objects] | ~first]] = False
    else:
        keep[rows] = False
    results = tables.results
    repaired = Results(results.image, labels, boxes, results.scores)
    return replace(tables, results=repaired[np.flatnonzero(keep)])


def confusion(tables: BoxTables, min_score: float) -> Ints:
    """int64 (K + 1, K + 1) counts, truth by row and result by column; the last is "nothing".

    Detections scored >= min_score are matched at IoU .5 whatever their class; those in a crowd or
    an ignore region are left out.
    """
    names = len(tables.names)
    kept = np.flatnonzero(tables.results.scores >= min_score)
    results = tables.results[kept]
    # A region stands once for each class; as one class it would only be matched more slowly.
    blind = replace(
        tables,
        names=("any",),
        truth=replace(tables.truth, labels=np.zeros_like(tables.truth.labels)),
        results=replace(results, labels=np.zeros_like(results.labels)),
    )
    matches = match(blind, thresholds=FOREGROUND)
    counts = np.zeros((names + 1, names + 1), dtype=np.int64)
    labels = results.labels[matches.rows]
    hits = matches.right[0]
    np.add.at(counts, (tables.truth.labels[matches.found[0][hits]], labels[hits]), 1)
    counts[names, :names] = np.bincount(labels[matches.wrong[0]], minlength=names)
    counts[:names, names] = np.bincount(tables.truth.labels[matches.missed()], minlength=names)
    return counts
