"""Which detection found which object: the record behind slices, bootstraps and error types.

The rules are COCO's, and the average precision of the record equals that of `coco.evaluate` (a
test holds them together). The record exists because the COCO evaluator returns only sums, and a
bootstrap or an error analysis needs every decision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perception.evaluate.coco import (
    IOU_THRESHOLDS,
    MAX_DETECTIONS,
    RECALL_POINTS,
    pair_overlaps,
    pairs,
    rank,
)
from perception.evaluate.tables import Bools, BoxTables, Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """The record of one evaluation; D detections are left after the limit a picture and class.

    rows: int64 (D,), row of each detection in `tables.results`, by descending score.
    found: int64 (T, D), row of the object found in `tables.truth`, -1 for none.
    ignored: bool (T, D), neither right nor wrong.
    counted: bool (G,), the objects that are to be found.
    thresholds: float64 (T,), IoU.
    """

    tables: BoxTables
    rows: Ints
    found: Ints
    ignored: Bools
    counted: Bools
    thresholds: Floats

    @property
    def scores(self) -> Floats:
        """float64 (D,)."""
        return self.tables.results.scores[self.rows]

    @property
    def labels(self) -> Ints:
        """int64 (D,)."""
        return self.tables.results.labels[self.rows]

    @property
    def image(self) -> Ints:
        """int64 (D,)."""
        return self.tables.results.image[self.rows]

    @property
    def right(self) -> Bools:
        """bool (T, D): detections that found a counted object."""
        return (self.found >= 0) & ~self.ignored

    @property
    def wrong(self) -> Bools:
        """bool (T, D): false alarms."""
        return (self.found < 0) & ~self.ignored

    def missed(self, threshold: int = 0, min_score: float = 0.0) -> Ints:
        """Rows of the counted objects that no detection scored >= min_score has found."""
        hits = self.right[threshold] & (self.scores >= min_score)
        remaining = self.counted.copy()
        remaining[self.found[threshold][hits]] = False
        return np.flatnonzero(remaining)


def match(
    tables: BoxTables,
    *,
    truth_in: Bools | None = None,
    results_in: Bools | None = None,
    thresholds: Floats = IOU_THRESHOLDS,
) -> Matches:
    """Assign detections to objects of the same picture and class, best score first.

    truth_in: bool (G,), objects that count; the others may be found but need not be.
    results_in: bool (D,), detections that are false alarms when they find nothing; the others
        are then ignored. Both default to all.
    """
    truth, results = tables.truth, tables.results
    counted = ~truth.crowd if truth_in is None else ~truth.crowd & truth_in
    classes = max(len(tables.names), 1)
    truth_key = truth.image * classes + truth.labels
    # Within a picture and class: objects that count first, then file order, as COCO does.
    truth_rows = np.lexsort((~counted, truth_key))
    key = results.image * classes + results.labels
    rows = np.lexsort((-results.scores, key))
    ranks = rank(key[rows])
    rows, ranks = rows[ranks < MAX_DETECTIONS[-1]], ranks[ranks < MAX_DETECTIONS[-1]]

    pair_result, pair_truth = pairs(truth_key[truth_rows], key[rows])
    overlaps = pair_overlaps(
        results.boxes[rows[pair_result]],
        truth.boxes[truth_rows[pair_truth]],
        truth.crowd[truth_rows[pair_truth]],
    )
    near = overlaps >= thresholds.min() - 1e-9
    pair_result, pair_truth, overlaps = pair_result[near], pair_truth[near], overlaps[near]
    assigned = _assign(
        pair_result,
        pair_truth,
        overlaps,
        ranks,
        counted=counted[truth_rows],
        crowd=truth.crowd[truth_rows],
        thresholds=thresholds,
    )
    found = np.where(assigned >= 0, np.append(truth_rows, -1)[assigned], -1)
    ignored = (found >= 0) & ~np.append(counted, False)[found]
    if results_in is not None:
        ignored |= (found < 0) & ~results_in[rows]
    # Pictures in order, then by score: the order in which COCO's stable sort breaks ties.
    by_image = np.lexsort((results.scores[rows] * -1.0, results.image[rows]))
    order = by_image[np.argsort(-results.scores[rows][by_image], kind="stable")]
    return Matches(
        tables=tables,
        rows=rows[order],
        found=found[:, order],
        ignored=ignored[:, order],
        counted=counted,
        thresholds=thresholds,
    )


def _assign(
    pair_result: Ints,
    pair_truth: Ints,
    overlaps: Floats,
    ranks: Ints,
    *,
    counted: Bools,
    crowd: Bools,
    thresholds: Floats,
) -> Ints:
    """int64 (T, D): the object of each detection, -1 for none.

    The greedy rule is sequential within a picture and class only, so the detections of one rank
    are handled together in all pictures and classes.
    """
    assigned = np.full((len(thresholds), len(ranks)), -1, dtype=np.int64)
    if not len(pair_result):
        return assigned
    taken = np.zeros((len(thresholds), len(counted)), dtype=np.bool_)
    # The reference caps the threshold just below 1 so that a perfect overlap passes at 1.
    least = np.minimum(thresholds, 1 - 1e-10)[:, None]
    by_rank = np.argsort(ranks[pair_result], kind="stable")
    pair_result, pair_truth, overlaps = (
        pair_result[by_rank],
        pair_truth[by_rank],
        overlaps[by_rank],
    )
    pair_rank = ranks[pair_result]
    edges = np.flatnonzero(np.r_[True, pair_rank[1:] != pair_rank[:-1], True])
    for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        result, truth, overlap = (
            pair_result[start:end],
            pair_truth[start:end],
            overlaps[start:end],
        )
        free = ~taken[:, truth] | crowd[truth]
        # An object that counts is preferred to one that does not, whatever the overlap: + 2.
        value = np.where(free & (overlap >= least), overlap + 2.0 * counted[truth], -1.0)
        first = np.flatnonzero(np.r_[True, result[1:] != result[:-1]])
        best = np.maximum.reduceat(value, first, axis=1)
        spread = np.repeat(best, np.diff(np.r_[first, len(result)]), axis=1)
        # Of equal overlaps the reference takes the last.
        position = np.where((value == spread) & (value >= 0), np.arange(len(result)), -1)
        chosen = np.maximum.reduceat(position, first, axis=1)
        step, column = np.nonzero(chosen >= 0)
        objects = truth[chosen[step, column]]
        assigned[step, result[first][column]] = objects
        taken[step, objects] = True
    return assigned


@dataclass(frozen=True, slots=True, eq=False)
class ClassCurve:
    """Detections of one class by descending score, ready to be summed again and again.

    label: the class. image: int64 (n,). objects: float64 (P,), counted objects a picture.
    hits: for each threshold the positions of the right detections, ascending.
    judged: bool (T, n), right or wrong; (1, n) when all thresholds judge the same detections.
    """

    label: int
    image: Ints
    objects: Floats
    hits: tuple[Ints, ...]
    judged: Bools


def class_curves(matches: Matches) -> tuple[ClassCurve, ...]:
    """One curve for each class that has counted objects; the others are undefined."""
    truth = matches.tables.truth
    pictures = len(matches.tables.pictures)
    useful = ~matches.ignored.all(axis=0)
    curves = []
    for label in range(len(matches.tables.names)):
        objects = truth.image[matches.counted & (truth.labels == label)]
        if not len(objects):
            continue
        columns = np.flatnonzero((matches.labels == label) & useful)
        judged = ~matches.ignored[:, columns]
        curves.append(
            ClassCurve(
                label=label,
                image=matches.image[columns],
                objects=np.bincount(objects, minlength=pictures).astype(np.float64),
                hits=tuple(np.flatnonzero(row) for row in matches.right[:, columns]),
                judged=judged[:1] if (judged == judged[:1]).all() else judged,
            )
        )
    return tuple(curves)


def curve_precision(curve: ClassCurve, weights: Floats | None = None) -> Floats:
    """float64 (T, R): interpolated precision at the 101 recall points; NaN without objects.

    weights: float64 (P,), how often each picture counts (a bootstrap resample); all once if None.
    """
    total = curve.objects.sum() if weights is None else curve.objects @ weights
    if total <= 0:
        return np.full((len(curve.hits), len(RECALL_POINTS)), np.nan)
    share = np.ones(len(curve.image)) if weights is None else weights[curve.image]
    reported = np.cumsum(np.where(curve.judged, share, 0.0), axis=1)
    sampled: Floats = np.empty((len(curve.hits), len(RECALL_POINTS)))
    for step, hits in enumerate(curve.hits):
        # Recall rises, and precision peaks, only where a detection is right.
        right = np.cumsum(share[hits])
        precision = right / (reported[min(step, len(reported) - 1)][hits] + np.spacing(1.0))
        envelope = np.append(np.maximum.accumulate(precision[::-1])[::-1], 0.0)
        sampled[step] = envelope[np.searchsorted(right / total, RECALL_POINTS, side="left")]
    return sampled


def average_precisions(curves: tuple[ClassCurve, ...], weights: Floats | None = None) -> Floats:
    """float64 (T, C) average precision of each curve; NaN where the weights leave no object."""
    if not curves:
        return np.zeros((len(IOU_THRESHOLDS), 0))
    return np.stack([curve_precision(curve, weights).mean(axis=1) for curve in curves], axis=1)


def mean_defined(values: Floats) -> float | None:
    """Mean of what is not NaN, None when nothing is."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if defined.size else None
