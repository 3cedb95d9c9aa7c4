"""Settings: YAML, overrides, unknown keys by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from perception.errors import InputError
from perception.train.settings import RunSettings, build, read_settings, to_plain

ROAD = Path(__file__).parents[2] / "configs" / "road-n.yaml"


def write(tmp_path: Path, **content: object) -> Path:
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump({"model": {"names": ["car"]}, **content}))
    return file


def test_the_shipped_settings_are_valid() -> None:
    settings = read_settings(ROAD)
    assert settings.model.names[-1] == "person"
    assert settings.model.channels == ("vehicle", "person")


def test_dotted_overrides_replace_values_of_their_type(tmp_path: Path) -> None:
    settings = read_settings(
        write(tmp_path),
        ["train.steps=7", "train.rate=1e-3", "model.names=[a, b]", "data.augment.flip=0"],
    )
    assert (settings.train.steps, settings.train.rate) == (7, 1e-3)
    assert settings.model.names == ("a", "b")
    assert settings.data.augment.flip == 0.0


def test_an_override_reaches_into_a_list(tmp_path: Path) -> None:
    file = write(tmp_path, data={"train": [{"annotations": "a.json"}, {"annotations": "b.json"}]})
    assert read_settings(file, ["data.train.1.weight=2"]).data.train[1].weight == 2.0
    with pytest.raises(InputError, match=r"data\.train\.2 is not in the list"):
        read_settings(file, ["data.train.2.weight=2"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.stepps=3", r"unknown key 'stepps' \(did you mean 'steps'\?\)"),
        ("trian.steps=3", r"unknown key 'trian' \(did you mean 'train'\?\)"),
        ("train.steps=many", "steps: expected int, found 'many'"),
        ("train.steps=true", "steps: expected int, found True"),
        ("train.steps", "expected key=value"),
    ],
)
def test_a_wrong_override_is_refused_by_name(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_settings(write(tmp_path), [override])


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("model: {size: n}\n")
    with pytest.raises(InputError, match="model: key 'names' is missing"):
        read_settings(file)


def test_a_relative_root_is_relative_to_the_file(tmp_path: Path) -> None:
    assert read_settings(write(tmp_path, data={"root": "pictures"})).data.root == str(
        tmp_path / "pictures"
    )


def test_resolved_settings_survive_yaml() -> None:
    settings = read_settings(ROAD)
    assert (
        build(RunSettings, yaml.safe_load(yaml.safe_dump(to_plain(settings))), "again") == settings
    )
