"""Frames, detections, labels and files."""

import os
from pathlib import Path

import numpy as np
import pytest

from perception.detections import Detections
from perception.errors import InputError
from perception.files import atomic_path, read_yaml, write_json
from perception.labels import IGNORE, ROAD, ROAD_VEHICLES, LabelMap, LabelSet


def test_an_empty_result_has_full_shapes_and_is_valid() -> None:
    empty = Detections.empty()
    assert empty.valid
    assert empty.boxes.shape == (0, 4)
    assert empty.velocities.shape == (0, 2)
    assert len(empty[np.zeros(0, bool)]) == 0
    assert empty.xywh.shape == (0, 4)


def test_a_failed_result_is_not_an_empty_one() -> None:
    failed = Detections.failed("picture damaged")
    assert not failed.valid
    assert failed.reason == "picture damaged"
    assert not failed[np.zeros(0, bool)].valid


def test_rows_are_chosen_together() -> None:
    found = Detections.create([[0, 0, 1, 1], [2, 2, 4, 5]], [0.5, 0.9], [3, 4], [7, 8])
    second = found[found.scores > 0.6]
    assert second.labels.tolist() == [4]
    assert second.track_ids.tolist() == [8]
    assert second.xywh.tolist() == [[2, 2, 2, 3]]
    assert found[1].boxes.shape == (1, 4)


def test_arrays_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Detections\.scores"):
        Detections.create([[0, 0, 1, 1]], [0.5, 0.6], [1])


def test_an_unknown_class_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'truck'"):
        ROAD.index("trucks")
    assert ROAD.index("person") == 6


@pytest.mark.parametrize("names", [("a", "a"), ("",), (1,)])
def test_class_names_must_be_unique_words(names: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="class names"):
        LabelSet(names)


def test_a_label_map_knows_targets_groups_and_ignore(tmp_path: Path) -> None:
    path = tmp_path / "map.yaml"
    path.write_text(
        "groups: {vehicle: [" + ", ".join(ROAD_VEHICLES) + "]}\n"
        "map: {suv: car, vehicle: vehicle, tree: ignore}\n"
    )
    labels = LabelMap.from_yaml(path, ROAD)
    assert labels["suv"] == "car"
    assert labels["tree"] == IGNORE
    assert labels.groups[labels["vehicle"]] == ROAD_VEHICLES
    with pytest.raises(InputError, match="'van' is not in the class map"):
        labels["van"]
    path.write_text("map: {suv: cra}\n")
    with pytest.raises(InputError, match=r"map\.yaml: class 'suv' maps to 'cra'.*'car'"):
        LabelMap.from_yaml(path, ROAD)


def test_a_failing_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"a": float("nan")})
    assert path.read_text() == '{\n "a": 1\n}\n'
    assert os.listdir(tmp_path) == ["out.json"]
    with pytest.raises(RuntimeError), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert os.listdir(tmp_path) == ["out.json"]


def test_written_files_have_ordinary_permissions(tmp_path: Path) -> None:
    write_json(tmp_path / "out.json", [])
    (tmp_path / "plain").write_text("")
    assert (tmp_path / "out.json").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_yaml_errors_name_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: 1\nb: [1,\nc: 2\n")
    with pytest.raises(InputError, match=r"x\.yaml:\d+: not valid YAML"):
        read_yaml(path)
    path.write_text("- 1\n")
    with pytest.raises(InputError, match="expected a YAML mapping, found list"):
        read_yaml(path)
    path.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(InputError, match="not UTF-8"):
        read_yaml(path)
