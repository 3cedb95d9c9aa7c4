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
    ],
)
def test_a_wrong_field_is_named_with_what_was_found(
    change: dict[str, object], message: str
) -> None:
    data = {**json.loads(CONTRACT.to_json()), **change}
    with pytest.raises(InputError, match=message):
        ModelContract.from_mapping(data)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"width": 3}'])
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
