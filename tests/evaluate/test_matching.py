"""The record of matches agrees with the COCO evaluator and allows resampling."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from perception.detections import Detections
from perception.evaluate import coco
from perception.evaluate.matching import average_precisions, class_curves, match, mean_defined
from perception.evaluate.tables import BoxTables, from_detections
from tests.evaluate.small_sets import tables

pytest.importorskip("faster_coco_eval", reason="needs the extra 'eval'")


@settings(max_examples=100, deadline=None)
@given(tables())
def test_average_precision_of_the_record_equals_coco(data):
    result = coco.evaluate(data)
    curves = class_curves(match(data))
    values = average_precisions(curves)
    assert mean_defined(values) == pytest.approx(result.ap, abs=1e-9)
    assert mean_defined(values[:1]) == pytest.approx(result.ap50, abs=1e-9)
    for curve, column in zip(curves, values.T, strict=True):
        assert column.mean() == pytest.approx(result.per_class[curve.label].ap, abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(tables())
def test_slice_by_area_equals_coco_sizes(data):
    result = coco.evaluate(data)
    for size in ("small", "medium", "large"):
        low, high = coco.SIZES[size]
        truth, found = data.truth.areas, data.results.areas
        record = match(
            data,
            truth_in=(truth >= low) & (truth <= high),
            results_in=(found >= low) & (found <= high),
        )
        expected = getattr(result, f"ap_{size}")
        assert mean_defined(average_precisions(class_curves(record))) == pytest.approx(
            expected, abs=1e-9
        )


@settings(max_examples=30, deadline=None)
@given(tables())
def test_weights_equal_repeating_pictures(data):
    rng = np.random.default_rng(0)
    # Distinct scores: the order of ties between pictures is not what is asked here.
    scores = rng.permutation(len(data.results)) / max(len(data.results), 1)
    data = replace(data, results=replace(data.results, scores=scores))
    weights = rng.integers(0, 3, len(data.pictures))
    drawn = np.repeat(np.arange(len(data.pictures)), weights)
    repeated = [np.flatnonzero(data.truth.image == picture) for picture in drawn]
    found = [np.flatnonzero(data.results.image == picture) for picture in drawn]
    again = BoxTables(
        tuple(map(str, range(len(drawn)))),
        data.names,
        _renumber(data.truth, repeated),
        _renumber(data.results, found),
    )
    weighted = average_precisions(class_curves(match(data)), weights.astype(float))
    direct = average_precisions(class_curves(match(again)))
    # A class whose objects were all left out has no curve in the one and NaN in the other.
    weighted = weighted[:, ~np.isnan(weighted).any(axis=0)]
    np.testing.assert_allclose(weighted, direct, atol=1e-9)


def _renumber(columns, groups):
    rows = np.concatenate([*groups, np.zeros(0, np.int64)]).astype(np.int64)
    image = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    return replace(columns[rows], image=image.astype(np.int64))


def test_missed_objects_are_listed_by_row():
    truth = Detections.create([[0, 0, 10, 10], [50, 50, 90, 90]], [1, 1], [0, 0])
    record = match(from_detections([truth], [truth[:1]], ["car"]))
    assert record.missed().tolist() == [1]
    assert record.missed(min_score=1.1).tolist() == [0, 1]
