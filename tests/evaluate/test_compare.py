"""Slices, resampling units and intervals."""

import numpy as np
import pytest

from perception.detections import Detections
from perception.errors import InputError
from perception.evaluate import compare, slices
from perception.evaluate.compare import Resampling
from perception.evaluate.slices import Conditions
from perception.evaluate.tables import from_detections


def tables(pictures=8):
    truth = [Detections.create([[0, 0, 10, 10], [50, 50, 90, 90]], [1, 1], [0, 1])] * pictures
    return from_detections(truth, truth, ["car", "bus"])


def by_name(data, conditions):
    return {part.name: part for part in slices.build(data, conditions)}


def test_slices_are_built_in_a_fixed_order_and_only_where_objects_are():
    conditions = Conditions(
        attributes={"weather": ["rainy", "clear"] * 4, "camera": ["front"] * 7 + [""]},
        distance=np.array([5.0, 50.0] * 8),
        occlusion=np.array([0.0, np.nan] * 8),
    )
    names = [part.name for part in slices.build(tables(), conditions)]
    assert names == [
        "all",
        "class=car",
        "class=bus",
        "size=small",
        "size=medium",
        "distance=0-20 m",
        "distance=40-80 m",
        "occlusion=none",
        "camera=front",
        "weather=clear",
        "weather=rainy",
    ]


def test_attribute_with_too_many_values_is_no_condition():
    conditions = Conditions(attributes={"name": [str(i) for i in range(30)]})
    assert all(part.dimension != "name" for part in slices.build(tables(30), conditions))


def test_objects_outside_a_slice_are_neither_missed_nor_false_alarms():
    data = tables()
    part = by_name(data, Conditions({}, distance=np.array([5.0, 50.0] * 8)))["distance=0-20 m"]
    record = slices.record(data, part)
    assert record.counted.sum() == 8
    assert record.right[0].sum() == 8
    assert not record.wrong.any()


def test_slice_of_pictures_leaves_the_others_out():
    data = tables()
    part = by_name(data, Conditions({"weather": ["rainy"] * 2 + ["clear"] * 6}))["weather=rainy"]
    assert slices.record(data, part).counted.sum() == 4
    assert slices.picture_count(data, part) == 2


def test_pictures_of_a_sequence_are_drawn_together():
    unit = compare.units(5, ["a", "a", "", "b", "b"])
    assert len(set(unit.tolist())) == 3
    for weights in compare.resamples(unit, Resampling(samples=20)):
        assert weights[0] == weights[1]
        assert weights[3] == weights[4]


def test_resamples_are_those_of_the_seed():
    unit = compare.units(50)
    one, two, other = (
        np.array(list(compare.resamples(unit, Resampling(10, seed=seed)))) for seed in (3, 3, 4)
    )
    assert (one == two).all()
    assert (one != other).any()
    assert (one.sum(axis=1) == 50).all()


def test_interval_of_a_share_is_that_of_its_sampling_error():
    # Half of 400 pictures are found: the error of a share is sqrt(.25 / 400), 1.96 times each way.
    truth = [Detections.create([[0, 0, 50, 50]], [1], [0])] * 400
    found = [item if i % 2 else Detections.empty() for i, item in enumerate(truth)]
    data = from_detections(truth, found, ["car"])
    (score,) = compare.score_slices(data, [slices.EVERYTHING], Resampling(400))
    figure = score.figures["ap50"]
    assert figure.value == pytest.approx(0.5, abs=0.01)
    assert figure.high - figure.low == pytest.approx(2 * 1.96 * 0.025, rel=0.15)


def test_without_resampling_there_is_no_interval():
    (score,) = compare.score_slices(tables(), [slices.EVERYTHING], None)
    assert (score.figures["ap"].value, score.figures["ap"].low) == (1.0, None)


@pytest.mark.parametrize("settings", [{"samples": 1}, {"confidence": 1.0}, {"confidence": 0.0}])
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(InputError):
        Resampling(**settings)


@pytest.mark.parametrize(("pictures", "verdict"), [(9, "too few pictures"), (10, "worse")])
def test_a_handful_of_pictures_gives_no_verdict(pictures, verdict):
    good = tables(pictures)
    poor = from_detections(
        [Detections.create([[0, 0, 10, 10]], [1], [0])] * pictures,
        [Detections.empty()] * pictures,
        ["car", "bus"],
    )
    pair = [(slices.EVERYTHING, slices.EVERYTHING)]
    rows = compare.compare(good, poor, pair, Resampling(20))
    assert {row.verdict for row in rows} == {verdict}
    assert {row.difference.value for row in rows} == {-1.0}
