"""The contract survives the trip through JSON and refuses what it does not know."""

import json
from pathlib import Path

import pytest

from perception.contract import ModelContract
from perception.errors import InputError

CONTRACT = ModelContract(names=("pallet: EU, 'A'", "人"), width=416, height=256)


def test_json_round_trip_keeps_everything() -> None:
    changed = ModelContract(
        names=("a", "b"), width=32, height=64, color="bgr", mean=(1.0, 2.0, 3.0),
        std=(1.0, 1.0, 1.0), resize="stretch", convention="e2e", strides=(4,),
        score_threshold=0.1, provenance={"data": "made"},
    )  # fmt: skip
    for contract in (CONTRACT, changed):
        assert ModelContract.from_json(contract.to_json()) == contract


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": []}, "names is empty"),
        ({"names": ["a", "a"]}, "unique"),
        ({"width": 0}, "width is 0"),
        ({"width": "416"}, "width is '416'"),
        ({"colour": "rgb"}, "unknown key 'colour' .did you mean 'color'"),
        ({"color": "rbg"}, "color is 'rbg'"),
        ({"convention": "yolo"}, "convention is 'yolo'"),
        ({"std": [1, 0, 1]}, "std"),
        ({"mean": [1, 2]}, "mean"),
        ({"mean": 1}, "expected a list"),
        ({"score_threshold": 2}, "score_threshold is 2"),
        ({"iou_threshold": None}, "iou_threshold is None"),
        ({"pad_value": 300}, "pad_value"),
        ({"version": 9}, "version is 9"),
        ({"strides": []}, "strides"),
        ({"exclusive": ["car"]}, "'car' is not one of"),
        # What files from anywhere may claim.
        ({"width": 10**9}, "width is 1000000000, expected a whole number from 1 to 16384"),
        ({"height": 10**30}, "height is 10+, expected a whole number from 1 to 16384"),
        ({"max_detections": 10**30}, "max_detections is 10+, expected"),
        ({"std": [1e-300, 1, 1]}, "std"),
        ({"mean": [1e39, 0, 0]}, "mean"),
        ({"mean": [10**400, 0, 0]}, "mean"),
        ({"score_threshold": 10**400}, "score_threshold is 10+"),
        ({"input_name": ["images"]}, "input_name is .'images'., expected a text"),
        ({"exclusive": [1]}, "non-empty strings"),
        ({"provenance": [1]}, "provenance is .1., expected keys and values"),
        ({"strides": [8, True]}, "strides"),
        ({"version": True}, "version is True"),
    ],
)
def test_a_wrong_field_is_named_with_what_was_found(
    change: dict[str, object], message: str
) -> None:
    data = {**json.loads(CONTRACT.to_json()), **change}
    with pytest.raises(InputError, match=message):
        ModelContract.from_mapping(data)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"width": 3}', "[" * 100_000])
def test_text_that_is_no_contract_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="contract"):
        ModelContract.from_json(text)


def test_a_yaml_declaration_names_its_file_in_errors(tmp_path: Path) -> None:
    path = tmp_path / "m.contract.yaml"
    path.write_text("names: [a]\nwidth: 8\n")
    with pytest.raises(InputError, match=r"m\.contract\.yaml: contract: height is missing"):
        ModelContract.from_yaml(path)
    path.write_text("names: [a\n")
    with pytest.raises(InputError, match=r"m\.contract\.yaml:2: not valid YAML"):
        ModelContract.from_yaml(path)
