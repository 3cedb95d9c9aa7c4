"""COCO figures: equal to pycocotools where it is right, right where it is not (C39, C41)."""

import contextlib
import io

import numpy as np
import pytest
from hypothesis import given, settings

from perception.detections import Detections
from perception.errors import InputError
from perception.evaluate import average_precision, coco
from perception.evaluate.tables import BoxTables, Results, Truth
from tests.evaluate.small_sets import tables

pytest.importorskip("faster_coco_eval", reason="needs the extra 'eval'")


def one(box, label=0, score=0.9):
    return Detections.create([box], [score], [label])


def reference(tables: BoxTables) -> list[float]:
    """The 12 figures of pycocotools, with ids that start at 1."""
    pycoco = pytest.importorskip("pycocotools.coco")
    from pycocotools.cocoeval import COCOeval

    truth, results = tables.truth, tables.results
    with contextlib.redirect_stdout(io.StringIO()):
        gt = pycoco.COCO()
        gt.dataset = {
            "images": [{"id": i + 1} for i in range(len(tables.pictures))],
            "categories": [{"id": k + 1, "name": n} for k, n in enumerate(tables.names)],
            "annotations": [
                {
                    "id": row + 1,
                    "image_id": int(truth.image[row]) + 1,
                    "category_id": int(truth.labels[row]) + 1,
                    "bbox": truth.boxes[row].tolist(),
                    "area": float(truth.areas[row]),
                    "iscrowd": int(truth.crowd[row]),
                }
                for row in range(len(truth))
            ],
        }
        gt.createIndex()
        dt = pycoco.COCO()
        dt.dataset = {
            **gt.dataset,
            "annotations": [
                {
                    "id": row + 1,
                    "image_id": int(results.image[row]) + 1,
                    "category_id": int(results.labels[row]) + 1,
                    "bbox": results.boxes[row].tolist(),
                    "area": float(results.areas[row]),
                    "score": float(results.scores[row]),
                }
                for row in range(len(results))
            ],
        }
        dt.createIndex()
        judge = COCOeval(gt, dt, "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return [float(value) for value in judge.stats]


FIGURES = [
    "ap",
    "ap50",
    "ap75",
    "ap_small",
    "ap_medium",
    "ap_large",
    "ar1",
    "ar10",
    "ar100",
    "ar_small",
    "ar_medium",
    "ar_large",
]


def figures(result: coco.CocoResult) -> list[float]:
    values = [getattr(result, name) for name in FIGURES]
    return [-1.0 if value is None else value for value in values]


@settings(max_examples=60, deadline=None)
@given(tables())
def test_figures_equal_pycocotools(data):
    assert figures(coco.evaluate(data)) == pytest.approx(reference(data), abs=1e-6)


def test_more_than_100_detections_in_a_picture_equal_pycocotools():
    rng = np.random.default_rng(5)
    corner = rng.uniform(0, 300, (150, 2))
    boxes = np.hstack([corner, rng.uniform(20, 60, (150, 2))])
    data = BoxTables(
        ("a",),
        ("x",),
        Truth(
            np.zeros(40, int),
            np.zeros(40, int),
            boxes[:40],
            boxes[:40, 2] * boxes[:40, 3],
            np.zeros(40, bool),
        ),
        Results(np.zeros(150, int), np.zeros(150, int), boxes, rng.random(150)),
    )
    assert figures(coco.evaluate(data)) == pytest.approx(reference(data), abs=1e-6)


def test_perfect_detection_of_the_very_first_object_scores_one():
    # C39: row 0 of picture 0 and class 0 is the case the reference reads as "no match".
    box = [10, 10, 50, 50]
    result = average_precision([one(box)], [one(box)], ["car"])
    assert (result.ap, result.ap50, result.ap75, result.ar100) == (1.0, 1.0, 1.0, 1.0)


def test_class_without_truth_is_undefined_and_its_detections_are_counted():
    # C41
    truth = Detections.create([[0, 0, 20, 20]], [1], [0])
    found = Detections.create([[0, 0, 20, 20]] * 6, [0.9] + [0.8] * 5, [0] + [1] * 5)
    result = average_precision([truth], [found], ["car", "bus"])
    assert result.ap == 1.0
    assert result.per_class[1].ap is None
    assert result.undefined == ("bus",)
    assert result.stray_detections == 5


def test_detections_in_an_ignore_region_do_not_count():
    truth = one([0, 0, 20, 20], label=1)
    found = Detections.create([[0, 0, 20, 20], [110, 110, 130, 130]], [0.5, 0.9], [1, 1])
    region = [np.array([[100, 100, 200, 200]], dtype=np.float32)]
    assert average_precision([truth], [found], ["car", "bus"], ignore=region).ap == 1.0
    assert average_precision([truth], [found], ["car", "bus"]).ap == pytest.approx(0.5)


def test_classes_of_one_group_may_be_confused():
    truth, found = one([0, 0, 20, 20], label=0), one([0, 0, 20, 20], label=1)
    names = ["car", "truck", "person"]
    assert average_precision([truth], [found], names).ap == 0.0
    grouped = average_precision([truth], [found], names, groups={"vehicle": ["car", "truck"]})
    assert grouped.ap == 1.0
    assert [item.name for item in grouped.per_class] == ["vehicle", "person"]


def test_invalid_result_misses_its_objects_and_is_counted():
    truth = [one([0, 0, 20, 20]), one([0, 0, 20, 20])]
    result = average_precision(truth, [truth[0], Detections.failed("broken picture")], ["car"])
    assert result.invalid_pictures == 1
    assert result.ar100 == pytest.approx(0.5)


def test_nothing_at_all_is_undefined_rather_than_zero():
    assert average_precision([], [], ["car"]).ap is None
    assert average_precision([Detections.empty()], [Detections.empty()], []).ap is None


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([one([0, 0, 9, 9], label=3)], "label 3"),
        ([one([0, 0, 9, np.nan])], "not finite"),
        ([one([0, 0, 9, 9])] * 2, "2 pictures"),
    ],
)
def test_bad_input_is_named(found, message):
    with pytest.raises(InputError, match=message):
        average_precision([one([0, 0, 9, 9])], found, ["car"])


def test_group_of_an_unknown_class_is_named():
    with pytest.raises(InputError, match="lorry"):
        average_precision(
            [one([0, 0, 9, 9])], [one([0, 0, 9, 9])], ["car"], groups={"v": ["lorry"]}
        )


def test_figures_of_real_annotations_equal_pycocotools(shared):
    from dataclasses import replace

    from perception.evaluate.coco_files import read_truth

    folder = shared / "fixtures" / "coco" / "annotations"
    for name in ("instances_train2017.json", "instances_val2017.json"):
        truth = read_truth(folder / name)
        rng = np.random.default_rng(7)
        rows = np.repeat(np.arange(len(truth.truth)), 2)
        near = truth.truth.boxes[rows] + rng.normal(0, 4, (len(rows), 4))
        near[:, 2:] = np.maximum(near[:, 2:], 1)
        found = Results(
            truth.truth.image[rows], truth.truth.labels[rows], near, rng.random(len(rows)).round(2)
        )
        data = replace(truth.tables(found), results=found[rng.random(len(rows)) < 0.8])
        result = coco.evaluate(data)
        assert 0.05 < result.ap < 0.95
        assert figures(result) == pytest.approx(reference(data), abs=1e-6)
