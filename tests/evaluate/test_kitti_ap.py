"""KITTI AP: DontCare (C43), neutral classes, difficulty limits, recall points."""

import numpy as np
import pytest

from perception.evaluate import kitti
from perception.evaluate.kitti import KittiFrame
from tests.evaluate.kitti_traffic import traffic


def frame(truth, results, name="0"):
    """truth rows: (kind, box, truncation, occlusion); result rows: (kind, box, score)."""
    return KittiFrame(
        name=name,
        kinds=tuple(row[0] for row in truth),
        boxes=np.array([row[1] for row in truth], dtype=float).reshape(-1, 4),
        truncation=np.array([row[2] for row in truth], dtype=float),
        occlusion=np.array([row[3] for row in truth], dtype=float),
        result_kinds=tuple(row[0] for row in results),
        result_boxes=np.array([row[1] for row in results], dtype=float).reshape(-1, 4),
        scores=np.array([row[2] for row in results], dtype=float),
    )


def score(frames, kind="Car", difficulty="moderate"):
    return next(
        item
        for item in kitti.evaluate(frames)
        if (item.kind, item.difficulty) == (kind, difficulty)
    )


CAR = [100, 100, 200, 180]
REGION = [400, 100, 600, 200]


@pytest.mark.parametrize("in_region", [True, False])
def test_detections_in_dont_care_regions_are_no_false_alarms(in_region):
    # C43
    frames = []
    for i in range(100):
        results = [("Car", CAR, 0.5 + 0.004 * i)]
        results += [("Car", [420, 110, 520, 190], 0.95)] if in_region else []
        frames.append(frame([("Car", CAR, 0, 0), ("DontCare", REGION, -1, -1)], results))
    result = score(frames)
    assert (result.true_positives, result.false_alarms, result.missed) == (100, 0, 0)
    assert result.ap_r40 == pytest.approx(100.0)


def test_false_alarms_outside_regions_halve_the_precision():
    frames = [
        frame([("Car", CAR, 0, 0)], [("Car", CAR, 0.5), ("Car", [420, 110, 520, 190], 0.95)])
        for _ in range(100)
    ]
    result = score(frames)
    assert (result.true_positives, result.false_alarms, result.missed) == (100, 100, 0)
    assert result.ap_r40 == pytest.approx(50.0)


@pytest.mark.parametrize(("kind", "neutral"), [("Car", "Van"), ("Pedestrian", "Person_sitting")])
def test_neutral_class_is_neither_missed_nor_a_false_alarm(kind, neutral):
    truth = [(kind, CAR, 0, 0), (neutral, [300, 100, 400, 180], 0, 0)]
    results = [(kind, CAR, 0.9), (kind, [300, 100, 400, 180], 0.95)]
    result = score([frame(truth, results)] * 50, kind)
    assert (result.true_positives, result.false_alarms, result.missed) == (50, 0, 0)


@pytest.mark.parametrize(
    ("truncation", "occlusion", "height", "counted"),
    [
        (0.0, 0, 50, ("easy", "moderate", "hard")),
        (0.2, 0, 50, ("moderate", "hard")),
        (0.0, 1, 50, ("moderate", "hard")),
        (0.0, 2, 50, ("hard",)),
        (0.4, 0, 50, ("hard",)),
        (0.0, 0, 30, ("moderate", "hard")),
        (0.0, 0, 20, ()),
        (0.0, 3, 50, ()),
    ],
)
def test_difficulty_limits(truncation, occlusion, height, counted):
    truth = [("Car", [0, 0, 80, height], truncation, occlusion)]
    found = kitti.evaluate([frame(truth, [])], ["Car"])
    assert tuple(item.difficulty for item in found if item.truth) == counted


def test_overlap_needed_is_seven_tenths_for_cars_and_half_for_others():
    shifted = [100, 100, 160, 180]  # IoU .6 with CAR
    for kind, hits in (("Car", 0), ("Pedestrian", 1), ("Cyclist", 1)):
        result = score([frame([(kind, CAR, 0, 0)], [(kind, shifted, 0.9)])], kind)
        assert result.true_positives == hits


def test_class_without_truth_is_undefined():
    result = score([frame([], [("Car", CAR, 0.9)])])
    assert result.ap_r40 is None
    assert result.false_alarms == 1


def test_eleven_points_include_recall_zero_and_forty_do_not():
    # One object found among two: KITTI's thresholds then reach recall .5 only.
    frames = [frame([("Car", CAR, 0, 0)], [("Car", CAR, 0.9)] if i < 20 else []) for i in range(40)]
    result = score(frames)
    assert result.ap_r40 == pytest.approx(100 * 19 / 40)
    assert result.ap_r11 == pytest.approx(100 * 5 / 11)


def test_figures_equal_the_development_kit():
    # What the kit's evaluate_object (C++) printed for the same files: R40 and R11.
    expected = {
        ("Car", "easy"): (5.385, 11.888),
        ("Car", "moderate"): (17.944, 21.426),
        ("Car", "hard"): (35.580, 37.841),
        ("Pedestrian", "easy"): (4.333, 11.636),
        ("Pedestrian", "moderate"): (6.052, 14.205),
        ("Pedestrian", "hard"): (10.789, 15.341),
        ("Cyclist", "easy"): (1.286, 3.030),
        ("Cyclist", "moderate"): (4.277, 5.980),
        ("Cyclist", "hard"): (7.177, 9.552),
    }
    found = {
        (item.kind, item.difficulty): (item.ap_r40, item.ap_r11)
        for item in kitti.evaluate(traffic())
    }
    for key, figures in expected.items():
        assert found[key] == pytest.approx(figures, abs=6e-4), key
