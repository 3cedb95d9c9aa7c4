"""COCO average precision and recall of boxes, on the C++ evaluator of `faster-coco-eval`.

Pictures, classes and objects are renumbered before the evaluator sees them, so ids are only names
and id 0 is an id like any other. A class without ground truth is undefined: it is left out of
every mean and its detections are counted in `CocoResult.stray_detections`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.detections import Detections
from perception.evaluate.tables import (
    Bools,
    BoxTables,
    Floats,
    Ints,
    Results,
    Truth,
    from_detections,
    no_collection,
)

IOU_THRESHOLDS: Floats = np.linspace(0.5, 0.95, 10)
RECALL_POINTS: Floats = np.linspace(0.0, 1.0, 101)
MAX_DETECTIONS = (1, 10, 100)
SIZES: dict[str, tuple[float, float]] = {
    "all": (0.0, 1e10),
    "small": (0.0, 32.0**2),
    "medium": (32.0**2, 96.0**2),
    "large": (96.0**2, 1e10),
}
"""Area ranges in square pixels; all constants are those of the COCO detection protocol."""


@dataclass(frozen=True, slots=True)
class ClassScore:
    """One class; None where undefined because the class has no ground truth."""

    name: str
    ap: float | None
    ap50: float | None
    ap75: float | None
    ar: float | None
    truth: int
    detections: int


@dataclass(frozen=True, slots=True)
class CocoResult:
    """COCO figures, 0 to 1; None where undefined (nothing to find).

    ap: mean over IoU .5 to .95 and over the classes with ground truth; ap50, ap75: at one IoU.
    ap_small, ap_medium, ap_large: objects below 32^2, between, above 96^2 square pixels.
    ar1, ar10, ar100: mean recall with that many detections a picture and class.
    undefined: classes without ground truth; stray_detections: how many detections they got.
    invalid_pictures: pictures without a usable result, scored as finding nothing.
    precision: float64 (T, R, K, A, M) as in the reference, -1 where undefined.
    """

    ap: float | None
    ap50: float | None
    ap75: float | None
    ap_small: float | None
    ap_medium: float | None
    ap_large: float | None
    ar1: float | None
    ar10: float | None
    ar100: float | None
    ar_small: float | None
    ar_medium: float | None
    ar_large: float | None
    per_class: tuple[ClassScore, ...]
    undefined: tuple[str, ...]
    stray_detections: int
    pictures: int
    truth: int
    detections: int
    invalid_pictures: int
    precision: npt.NDArray[np.float64]

    def to_json(self) -> dict[str, Any]:
        """All figures as JSON-ready values; the precision array is left out."""
        data = asdict(self)
        del data["precision"]
        return data


def average_precision(
    truth: Sequence[Detections],
    results: Sequence[Detections],
    names: Sequence[str],
    *,
    ignore: Sequence[npt.ArrayLike] | None = None,
    crowd: Sequence[npt.ArrayLike] | None = None,
    groups: Mapping[str, Sequence[str]] | None = None,
) -> CocoResult:
    """COCO figures of one `Detections` a picture against its ground truth.

    truth, results: one entry a picture in the same order, labels index `names`.
    ignore: regions (K, 4) xyxy a picture in which detections do not count.
    crowd: bool (N,) a picture, truth boxes that mark a crowd of their class.
    groups: classes to merge first, such as {"vehicle": ("car", "truck")}; one group of all
        classes makes the evaluation class-agnostic.
    Raises InputError for lengths that differ, labels out of range and numbers not finite.
    """
    tables = from_detections(truth, results, names, ignore=ignore, crowd=crowd)
    return evaluate(tables.grouped(groups) if groups else tables)


@no_collection()
def evaluate(tables: BoxTables) -> CocoResult:
    """COCO figures of whole tables; equal to pycocotools where that is right."""
    found: dict[str, Any] = {"precision": [], "recall": []}
    for label in range(len(tables.names)):
        part = _evaluate_class(
            tables.truth[tables.truth.labels == label],
            tables.results[tables.results.labels == label],
        )
        for name, values in found.items():
            values.append(part[name])
    shape = (len(IOU_THRESHOLDS), 0, len(SIZES), len(MAX_DETECTIONS))
    recall = np.concatenate(found["recall"], axis=1) if found["recall"] else np.zeros(shape)
    precision = (
        np.concatenate(found["precision"], axis=2)
        if found["precision"]
        else np.zeros((shape[0], len(RECALL_POINTS), *shape[1:]))
    )
    return _summary(tables, precision, recall)


def _evaluate_class(truth: Truth, results: Results) -> dict[str, Floats]:
    """Precision (T, R, 1, A, M) and recall (T, 1, A, M) of one class.

    One call a class, over the pictures where it occurs at all: the evaluator works through every
    picture it is told of, and most pictures hold few of the classes.
    """
    import faster_coco_eval.faster_eval_api_cpp as evaluator

    images = np.union1d(truth.image, results.image)
    # By picture, then in file order: the order in which the evaluator breaks ties.
    truth = truth[np.argsort(truth.image, kind="stable")]
    results = results[np.lexsort((-results.scores, results.image))]
    results = results[rank(results.image) < MAX_DETECTIONS[-1]]
    truth_set, result_set = evaluator.Dataset(), evaluator.Dataset()
    # Ids start at 1 because the evaluator reads 0 as "no match".
    truth_rows = zip(
        np.searchsorted(images, truth.image).tolist(),
        truth.areas.tolist(),
        truth.crowd.tolist(),
        strict=True,
    )
    for number, (image, area, crowd) in enumerate(truth_rows, start=1):
        flag = int(crowd)
        truth_set.append_ref(
            image, 0, {"id": number, "area": area, "iscrowd": flag, "ignore": flag}
        )
    result_rows = zip(
        np.searchsorted(images, results.image).tolist(),
        results.areas.tolist(),
        results.scores.tolist(),
        strict=True,
    )
    for number, (image, area, score) in enumerate(result_rows, start=1):
        result_set.append_ref(image, 0, {"id": number, "area": area, "score": score})
    settings = SimpleNamespace(
        iouThrs=IOU_THRESHOLDS.tolist(),
        recThrs=RECALL_POINTS.tolist(),
        maxDets=list(MAX_DETECTIONS),
        areaRng=[list(limits) for limits in SIZES.values()],
        imgIds=list(range(len(images))),
        catIds=[0],
        useCats=1,
    )
    overlaps = [[matrix] for matrix in _overlaps(truth, results, images)]
    found = evaluator.COCOevalEvaluateAccumulate(
        settings, overlaps, truth_set, result_set, settings.imgIds, settings.catIds, True
    )
    shape = (len(IOU_THRESHOLDS), len(RECALL_POINTS), 1, len(SIZES), len(MAX_DETECTIONS))
    return {
        "precision": np.asarray(found["precision"]).reshape(shape),
        "recall": np.asarray(found["recall"]).reshape(shape[0], *shape[2:]),
    }


def rank(keys: Ints) -> Ints:
    """Position of each row within its run of equal keys; keys are sorted."""
    starts = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]]) if len(keys) else keys[:0]
    return np.arange(len(keys), dtype=np.int64) - np.repeat(
        starts, np.diff(np.r_[starts, len(keys)])
    )


def pairs(truth_keys: Ints, result_keys: Ints) -> tuple[Ints, Ints]:
    """Rows (result, truth) of every pair with equal key; both key columns are sorted.

    Pairs come by result row, then by truth row.
    """
    first = np.searchsorted(truth_keys, result_keys, side="left")
    count = np.searchsorted(truth_keys, result_keys, side="right") - first
    result_rows = np.repeat(np.arange(len(result_keys), dtype=np.int64), count)
    offset = np.arange(len(result_rows), dtype=np.int64) - np.repeat(
        np.cumsum(count) - count, count
    )
    return result_rows, np.repeat(first, count).astype(np.int64) + offset


def pair_overlaps(results: Floats, truth: Floats, crowd: Bools) -> Floats:
    """float64 (P,) IoU of boxes xywh pair by pair; over the result's own area for a crowd.

    The operations and their order are those of the reference, so that equal overlaps stay equal.
    """
    width = np.minimum(results[:, 2] + results[:, 0], truth[:, 2] + truth[:, 0]) - np.maximum(
        results[:, 0], truth[:, 0]
    )
    height = np.minimum(results[:, 3] + results[:, 1], truth[:, 3] + truth[:, 1]) - np.maximum(
        results[:, 1], truth[:, 1]
    )
    shared = np.maximum(width, 0.0) * np.maximum(height, 0.0)
    own = results[:, 2] * results[:, 3]
    union = np.where(crowd, own, own + truth[:, 2] * truth[:, 3] - shared)
    overlaps: Floats = np.divide(shared, union, out=np.zeros_like(shared), where=shared > 0)
    return overlaps


def _overlaps(truth: Truth, results: Results, images: Ints) -> list[Any]:
    """For each picture the overlaps as rows of detections, columns of truth; [] when none."""
    rows, columns = pairs(truth.image, results.image)
    values = pair_overlaps(results.boxes[rows], truth.boxes[columns], truth.crowd[columns])
    truths = np.searchsorted(truth.image, images, "right") - np.searchsorted(truth.image, images)
    found = np.searchsorted(results.image, images, "right") - np.searchsorted(results.image, images)
    flat = values.tolist()
    start = 0
    matrices: list[Any] = []
    for height, width in zip(found.tolist(), truths.tolist(), strict=True):
        end = start + height * width
        matrices.append([flat[i : i + width] for i in range(start, end, width or 1)])
        start = end
    return matrices


def _defined_mean(values: Floats) -> float | None:
    defined = values[values > -1]
    return float(defined.mean()) if defined.size else None


def _summary(tables: BoxTables, precision: Floats, recall: Floats) -> CocoResult:
    sizes = list(SIZES)

    def mean_ap(size: str = "all", iou: int | None = None) -> float | None:
        part = precision if iou is None else precision[iou : iou + 1]
        return _defined_mean(part[:, :, :, sizes.index(size), -1])

    def mean_ar(size: str = "all", limit: int = -1) -> float | None:
        return _defined_mean(recall[:, :, sizes.index(size), limit])

    counted = tables.truth.labels[~tables.truth.crowd]
    truths = np.bincount(counted, minlength=len(tables.names))
    found = np.bincount(tables.results.labels, minlength=len(tables.names))
    at75 = 5
    per_class = tuple(
        ClassScore(
            name=name,
            ap=_defined_mean(precision[:, :, k, 0, -1]),
            ap50=_defined_mean(precision[0, :, k, 0, -1]),
            ap75=_defined_mean(precision[at75, :, k, 0, -1]),
            ar=_defined_mean(recall[:, k, 0, -1]),
            truth=int(truths[k]),
            detections=int(found[k]),
        )
        for k, name in enumerate(tables.names)
    )
    return CocoResult(
        ap=mean_ap(),
        ap50=mean_ap(iou=0),
        ap75=mean_ap(iou=at75),
        ap_small=mean_ap("small"),
        ap_medium=mean_ap("medium"),
        ap_large=mean_ap("large"),
        ar1=mean_ar(limit=0),
        ar10=mean_ar(limit=1),
        ar100=mean_ar(),
        ar_small=mean_ar("small"),
        ar_medium=mean_ar("medium"),
        ar_large=mean_ar("large"),
        per_class=per_class,
        undefined=tuple(item.name for item in per_class if item.truth == 0),
        stray_detections=sum(item.detections for item in per_class if item.truth == 0),
        pictures=len(tables.pictures),
        truth=int(truths.sum()),
        detections=len(tables.results),
        invalid_pictures=tables.invalid_pictures,
        precision=precision,
    )
