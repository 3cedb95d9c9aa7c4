"""Columns from data set samples."""

import numpy as np
import pytest

from perception.detections import Detections
from perception.errors import InputError

pytest.importorskip("pyarrow", reason="needs the extra 'data'")

CAR = "Car 0.40 0 -1.57 100.00 100.00 200.00 180.00 1.5 1.6 3.9 1.0 1.5 20.0 0.1"
REGION = "DontCare -1 -1 -10 400.00 100.00 600.00 200.00 -1 -1 -1 -1000 -1000 -1000 -10"


@pytest.fixture
def dataset(tmp_path):
    from perception.datasets import open_dataset

    (tmp_path / "000000.txt").write_text(f"{CAR}\n{REGION}\n")
    (tmp_path / "000001.txt").write_text(f"{CAR}\n")
    return open_dataset(f"kitti:{tmp_path}")


def build(dataset, names=("bus", "Car")):
    from perception.evaluate import samples

    pictures = list(dataset)
    found = Detections.create([[100, 100, 200, 180], [420, 110, 520, 190]], [0.9, 0.8], [1, 1])
    tables = samples.tables(pictures, [found, found], tuple(dataset.names), names)
    return pictures, tables


def test_classes_meet_by_name_and_regions_are_kept(dataset):
    _, tables = build(dataset)
    assert tables.truth.labels[~tables.truth.crowd].tolist() == [1, 1]
    assert tables.truth.crowd.sum() == 2  # one region, once for each class
    assert tables.pictures == ("000000.png", "000001.png")


def test_conditions_have_a_row_for_each_row_of_the_tables(dataset):
    from perception.evaluate import samples, slices

    pictures, tables = build(dataset)
    known = samples.conditions(pictures, tables)
    assert len(known.distance) == len(tables.truth) == 4
    assert np.isnan(known.distance[tables.truth.crowd]).all()
    names = [part.name for part in slices.build(tables, known)]
    assert "distance=20-40 m" in names
    assert "truncation=partly" in names


def test_class_that_the_model_lacks_is_named(dataset):
    with pytest.raises(InputError, match="no class 'Car'"):
        build(dataset, names=("bus", "van"))
