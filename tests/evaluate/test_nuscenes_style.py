"""nuScenes-style scores in the picture plane."""

import numpy as np
import pytest

from perception.detections import Detections
from perception.evaluate import nuscenes

BOX = [100, 100, 130, 140]  # diagonal 50


def score(truth, results):
    return nuscenes.evaluate(truth, results, ["car"])[0]


def one(box, score=0.9, velocity=None):
    return Detections.create(
        [box], [score], [0], velocities=None if velocity is None else [velocity]
    )


def shifted(pixels):
    return [BOX[0] + pixels, BOX[1], BOX[2] + pixels, BOX[3]]


def test_perfect_detections_score_one_without_error():
    truth = [one(BOX, velocity=(3, 4))] * 20
    result = score(truth, truth)
    assert result.ap == pytest.approx(1.0)
    assert (result.translation_error, result.scale_error, result.velocity_error) == (0, 0, 0)


def test_distance_is_measured_in_diagonals_of_the_truth():
    # 15 px are .3 diagonals: found at .5 and 1, not at .125 and .25.
    result = score([one(BOX)] * 20, [one(shifted(15))] * 20)
    assert result.aps == pytest.approx((0, 0, 1, 1))
    assert result.translation_error == pytest.approx(0.3)
    assert result.scale_error == pytest.approx(0)


def test_scale_error_is_that_of_aligned_boxes():
    wide = [BOX[0] - 15, BOX[1], BOX[2] + 15, BOX[3]]
    assert score([one(BOX)] * 20, [one(wide)] * 20).scale_error == pytest.approx(0.5)


def test_velocity_error_is_the_length_of_the_difference():
    truth, found = [one(BOX, velocity=(10, 0))] * 20, [one(BOX, velocity=(13, 4))] * 20
    assert score(truth, found).velocity_error == pytest.approx(5.0)
    assert score([one(BOX)] * 20, found).velocity_error is None


def test_recall_below_a_tenth_has_the_worst_errors():
    truth = [one(BOX)] * 30
    result = score(truth, [one(BOX)] + [Detections.empty()] * 29)
    assert (result.ap, result.translation_error) == (0, 1)


def test_nearest_free_object_is_taken():
    pair = Detections.create([BOX, shifted(20)], [1, 1], [0, 0])
    found = Detections.create([shifted(18), shifted(2)], [0.9, 0.8], [0, 0])
    assert score([pair] * 10, [found] * 10).translation_error == pytest.approx(0.04)


def test_class_without_truth_is_undefined():
    result = score([Detections.empty()], [one(BOX)])
    assert (result.ap, result.detections) == (None, 1)


def test_ap_cuts_a_tenth_of_precision_and_recall():
    # Half of the objects are found without false alarms: recall points .11 to .50 of .11 to 1.
    truth = [one(BOX)] * 100
    found = [one(BOX) if i < 50 else Detections.empty() for i in range(100)]
    assert score(truth, found).ap == pytest.approx(40 / 90, abs=0.006)
    assert np.isfinite(score(truth, found).ap)
