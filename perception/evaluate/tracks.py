"""Tracking figures HOTA, MOTA and IDF1, on the metric classes of `trackeval`.

The library's own data set classes want a folder tree per benchmark and refuse other classes, so
frames are prepared here: ids are names and may be any integer, a frame without a line is an empty
frame, and the MOTChallenge rule for distractors is applied before scoring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.detections import Detections
from perception.errors import InputError
from perception.evaluate.coco import pair_overlaps
from perception.evaluate.tables import Bools, Floats, Ints

MATCH_IOU = 0.5
"""Overlap at which a track box matches a truth box in CLEAR, IDF1 and the distractor rule."""


@dataclass(frozen=True, slots=True)
class MotRules:
    """Which truth counts. MOTChallenge class numbers; see motchallenge.net.

    evaluated: class to score, None for all. distractors: classes whose matched track boxes are
    removed before scoring; track boxes on any other class are false alarms.
    """

    name: str
    evaluated: int | None
    distractors: tuple[int, ...]


MOT15 = MotRules("mot15", None, ())
MOT17 = MotRules("mot17", 1, (2, 7, 8, 12))
MOT20 = MotRules("mot20", 1, (2, 6, 7, 8, 12))
RULES = {rules.name: rules for rules in (MOT15, MOT17, MOT20)}


@dataclass(frozen=True, slots=True, eq=False)
class TrackTable:
    """Boxes with identities, one row each.

    frames: int64 (N,), any numbering. ids: int64 (N,), unique within a frame.
    boxes: float64 (N, 4), left, top, width, height in pixels.
    counted: bool (N,), False where the truth is marked as not to be scored.
    classes: int64 (N,).
    """

    frames: Ints
    ids: Ints
    boxes: Floats
    counted: Bools
    classes: Ints

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: npt.NDArray[np.generic]) -> TrackTable:
        return TrackTable(*(getattr(self, name)[index] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class TrackResult:
    """Tracking figures of one sequence; fractions of 1 (MOTA may be negative), counts as such.

    hota, deta, assa, loca: means over the localisation thresholds .05 to .95.
    mota, motp, idf1 and the counts: at IoU .5. None where undefined (no ground truth).
    ignored: track boxes removed because they match a distractor.
    """

    hota: float | None
    deta: float | None
    assa: float | None
    loca: float | None
    mota: float | None
    motp: float | None
    idf1: float | None
    id_precision: float | None
    id_recall: float | None
    id_switches: int
    fragmentations: int
    mostly_tracked: int
    partly_tracked: int
    mostly_lost: int
    true_positives: int
    false_alarms: int
    missed: int
    truth: int
    truth_tracks: int
    boxes: int
    tracks: int
    frames: int
    ignored: int
    rules: str


def table(pictures: Sequence[Detections]) -> TrackTable:
    """A table from one `Detections` a frame; rows without a track id are left out."""
    rows = [item[item.track_ids >= 0] for item in pictures]
    frames = np.repeat(np.arange(len(rows), dtype=np.int64), [len(item) for item in rows])
    empty = Detections.empty()
    boxes = np.concatenate([item.boxes for item in [*rows, empty]]).astype(np.float64)
    boxes[:, 2:] -= boxes[:, :2]
    return TrackTable(
        frames=frames,
        ids=np.concatenate([item.track_ids for item in [*rows, empty]]),
        boxes=boxes,
        counted=np.ones(len(frames), dtype=np.bool_),
        classes=np.concatenate([item.labels for item in [*rows, empty]]),
    )


def evaluate(truth: TrackTable, results: TrackTable, rules: MotRules = MOT15) -> TrackResult:
    """HOTA, MOTA, IDF1 and their parts of one sequence.

    Raises InputError for an id that occurs twice in one frame.
    """
    from trackeval.metrics import CLEAR, HOTA, Identity

    data = _prepare(truth, results, rules)
    hota = HOTA().eval_sequence(data)
    clear = CLEAR({"PRINT_CONFIG": False, "THRESHOLD": MATCH_IOU}).eval_sequence(data)
    identity = Identity({"PRINT_CONFIG": False, "THRESHOLD": MATCH_IOU}).eval_sequence(data)
    objects = int(data["num_gt_dets"])

    def figure(value: object) -> float | None:
        return float(np.mean(np.asarray(value, dtype=np.float64))) if objects else None

    # The library leaves MOTA and IDF1 at 0 when one side is empty; the formula still holds.
    errors = int(clear["CLR_FN"] + clear["CLR_FP"] + clear["IDSW"])
    return TrackResult(
        hota=figure(hota["HOTA"]),
        deta=figure(hota["DetA"]),
        assa=figure(hota["AssA"]),
        loca=figure(hota["LocA"]),
        mota=1.0 - errors / objects if objects else None,
        motp=figure(clear["MOTP"]),
        idf1=figure(identity["IDF1"]),
        id_precision=figure(identity["IDP"]),
        id_recall=figure(identity["IDR"]),
        id_switches=int(clear["IDSW"]),
        fragmentations=int(clear["Frag"]),
        mostly_tracked=int(clear["MT"]),
        partly_tracked=int(clear["PT"]),
        mostly_lost=int(clear["ML"]),
        true_positives=int(clear["CLR_TP"]),
        false_alarms=int(clear["CLR_FP"]),
        missed=int(clear["CLR_FN"]),
        truth=objects,
        truth_tracks=int(data["num_gt_ids"]),
        boxes=int(data["num_tracker_dets"]),
        tracks=int(data["num_tracker_ids"]),
        frames=int(data["num_timesteps"]),
        ignored=len(results) - int(data["num_tracker_dets"]),
        rules=rules.name,
    )


def iou(first: Floats, second: Floats) -> Floats:
    """float64 (N, M) IoU of boxes left, top, width, height."""
    rows = np.repeat(np.arange(len(first)), len(second))
    columns = np.tile(np.arange(len(second)), len(first))
    plain = np.zeros(len(rows), dtype=np.bool_)
    return pair_overlaps(first[rows], second[columns], plain).reshape(len(first), len(second))


def _by_frame(rows: TrackTable, frames: Ints, kind: str) -> list[TrackTable]:
    order = np.lexsort((rows.ids, rows.frames))
    rows = rows[order]
    twice = np.flatnonzero((rows.frames[1:] == rows.frames[:-1]) & (rows.ids[1:] == rows.ids[:-1]))
    if len(twice):
        row = twice[0]
        raise InputError(f"{kind}: id {rows.ids[row]} occurs twice in frame {rows.frames[row]}")
    starts = np.searchsorted(rows.frames, frames, side="left").tolist()
    ends = np.searchsorted(rows.frames, frames, side="right").tolist()
    return [rows[np.arange(start, end)] for start, end in zip(starts, ends, strict=True)]


def _on_distractor(truth: TrackTable, overlaps: Floats, rules: MotRules) -> Bools:
    """bool (D,): track boxes matched one to one with a distractor."""
    from scipy.optimize import linear_sum_assignment

    gone = np.zeros(overlaps.shape[1], dtype=np.bool_)
    # The reference compares with a tolerance of one machine epsilon.
    scores = np.where(overlaps >= MATCH_IOU - np.finfo(np.float64).eps, overlaps, 0.0)
    rows, columns = linear_sum_assignment(-scores)
    matched = scores[rows, columns] > np.finfo(np.float64).eps
    rows, columns = rows[matched], columns[matched]
    gone[columns[np.isin(truth.classes[rows], rules.distractors)]] = True
    return gone


def _prepare(truth: TrackTable, results: TrackTable, rules: MotRules) -> dict[str, Any]:
    """The dictionary that trackeval's metrics read, ids renumbered from 0."""
    frames = np.union1d(truth.frames, results.frames)
    kept_truth, kept_results, similarities = [], [], []
    frame_pairs = zip(
        _by_frame(truth, frames, "truth"), _by_frame(results, frames, "results"), strict=True
    )
    for objects, found in frame_pairs:
        overlaps = iou(objects.boxes, found.boxes)
        stays = np.ones(len(found), dtype=np.bool_)
        if rules.distractors and len(objects) and len(found):
            stays = ~_on_distractor(objects, overlaps, rules)
        counted = objects.counted
        if rules.evaluated is not None:
            counted = counted & (objects.classes == rules.evaluated)
        kept_truth.append(objects[counted].ids)
        kept_results.append(found[stays].ids)
        similarities.append(overlaps[counted][:, stays])
    truth_ids = np.unique(np.concatenate([*kept_truth, np.zeros(0, np.int64)]))
    result_ids = np.unique(np.concatenate([*kept_results, np.zeros(0, np.int64)]))
    return {
        "num_timesteps": len(frames),
        "gt_ids": [np.searchsorted(truth_ids, ids) for ids in kept_truth],
        "tracker_ids": [np.searchsorted(result_ids, ids) for ids in kept_results],
        "similarity_scores": similarities,
        "num_gt_ids": len(truth_ids),
        "num_tracker_ids": len(result_ids),
        "num_gt_dets": sum(map(len, kept_truth)),
        "num_tracker_dets": sum(map(len, kept_results)),
    }
