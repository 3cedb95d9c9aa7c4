"""Error types, operating points, calibration and confusion."""

import numpy as np
import pytest

from perception.detections import Detections
from perception.errors import InputError
from perception.evaluate import diagnosis
from perception.evaluate.diagnosis import KINDS, diagnose
from perception.evaluate.tables import from_detections

NAMES = ["car", "bus"]
BOX = [100, 100, 200, 200]


def tables(truth, results, **extra):
    """truth: (box, label) rows; results: (box, label, score) rows, all in one picture."""
    objects = Detections.create(
        [row[0] for row in truth], [1] * len(truth), [row[1] for row in truth]
    )
    found = Detections.create(
        [row[0] for row in results], [row[2] for row in results], [row[1] for row in results]
    )
    return from_detections([objects], [found], NAMES, **extra)


def kind_of(truth, results, **extra):
    """The kind of the lowest-scored detection."""
    found = diagnose(tables(truth, results, **extra), min_score=0.0)
    return KINDS[found.kinds[-1]]


@pytest.mark.parametrize(
    ("box", "label", "kind"),
    [
        (BOX, 0, "right"),
        (BOX, 1, "classification"),
        ([150, 100, 250, 200], 0, "localisation"),
        ([150, 100, 250, 200], 1, "classification and localisation"),
        ([195, 195, 295, 295], 0, "background"),
        ([400, 400, 500, 500], 1, "background"),
    ],
)
def test_kind_of_a_single_detection(box, label, kind):
    assert kind_of([(BOX, 0)], [(box, label, 0.9)]) == kind


def test_second_detection_of_a_found_object_is_a_duplicate():
    assert kind_of([(BOX, 0)], [(BOX, 0, 0.9), ([101, 101, 201, 201], 0, 0.5)]) == "duplicate"


def test_detection_in_an_ignore_region_has_no_error():
    region = [np.array([[400, 400, 600, 600]])]
    results = [(BOX, 0, 0.9), ([420, 420, 500, 500], 0, 0.5)]
    assert kind_of([(BOX, 0)], results, ignore=region) == "ignored"


def test_object_that_was_confused_is_not_missed_as_well():
    found = diagnose(tables([(BOX, 0)], [(BOX, 1, 0.9)]), min_score=0.0)
    counts = {item.name: item.count for item in found.errors}
    assert counts["classification"] == 1
    assert counts["missed"] == 0


def test_repairing_the_only_error_gains_the_whole_loss():
    other = [300, 300, 400, 400]
    truth = [(BOX, 0), (other, 1)]
    for results, name in (
        ([(BOX, 1, 0.9), (other, 1, 0.8)], "classification"),
        ([([140, 100, 240, 200], 0, 0.9), (other, 1, 0.8)], "localisation"),
        ([(other, 1, 0.8)], "missed"),
        ([([500, 0, 600, 50], 0, 0.95), (BOX, 0, 0.9), (other, 1, 0.8)], "background"),
    ):
        found = diagnose(tables(truth, results), min_score=0.0)
        gains = {item.name: item.ap50_gain for item in found.errors}
        assert gains[name] == max(gains.values()) > 0, name
        repaired = {item.name for item in found.errors if item.ap50_gain}
        assert repaired == {name}


def test_best_point_has_the_highest_f1():
    results = [(BOX, 0, 0.9), ([500, 0, 600, 50], 0, 0.3)]
    best = diagnose(tables([(BOX, 0)], results)).best
    assert (best.score, best.f1, best.recall) == (pytest.approx(0.9), 1.0, 1.0)


def test_threshold_for_a_rate_is_the_lowest_that_keeps_it():
    results = [(BOX, 0, 0.9), ([500, 0, 600, 50], 0, 0.6), ([0, 500, 60, 600], 0, 0.3)]
    matches = diagnose(tables([(BOX, 0)], results)).matches
    for limit, score, false_alarms in ((0, 0.9, 0), (1, 0.6, 1), (5, 0.3, 2)):
        point = diagnosis.threshold_for(matches, limit)
        assert (point.score, point.false_alarms) == (pytest.approx(score), false_alarms)


def test_threshold_that_no_detection_can_meet_reports_nothing():
    matches = diagnose(tables([(BOX, 0)], [([500, 0, 600, 50], 0, 0.9)])).matches
    point = diagnosis.threshold_for(matches, 0)
    assert np.float32(point.score) > np.float32(0.9)
    assert (point.true_positives, point.false_alarms, point.missed) == (0, 0, 1)


def test_negative_rate_is_refused():
    matches = diagnose(tables([], [])).matches
    with pytest.raises(InputError, match="-1"):
        diagnosis.threshold_for(matches, -1)


def test_calibration_error_is_the_gap_of_score_and_precision():
    # Ten detections scored .75, five of them right.
    truth = [([100 * i, 0, 100 * i + 50, 50], 0) for i in range(5)]
    wrong = [([100 * i, 500, 100 * i + 50, 550], 0, 0.75) for i in range(5)]
    found = diagnose(tables(truth, [(box, 0, 0.75) for box, _ in truth] + wrong))
    assert found.calibration.ece == pytest.approx(0.25)
    (used,) = [item for item in found.calibration.bins if item.count]
    assert (used.low, used.precision) == (pytest.approx(0.7), pytest.approx(0.5))


def test_confusion_counts_classes_misses_and_false_alarms():
    other = [300, 300, 400, 400]
    truth = [(BOX, 0), (other, 1), ([600, 0, 650, 50], 1)]
    results = [(BOX, 1, 0.9), (other, 1, 0.8), ([0, 600, 50, 650], 0, 0.7)]
    found = diagnose(tables(truth, results), min_score=0.5)
    assert found.confusion.tolist() == [[0, 1, 0], [0, 1, 1], [1, 0, 0]]


def test_nothing_found_and_nothing_there_has_no_figures():
    found = diagnose(tables([], []))
    assert found.best.precision is None
    assert found.calibration.ece is None
    assert {item.ap50_gain for item in found.errors} == {None}
