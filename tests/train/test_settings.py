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
        ("train.phases.².batch=1", r"train\.phases\.² is not in the list"),
    ],
)
def test_a_wrong_override_is_refused_by_name(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_settings(write(tmp_path), [PHASE, override])


SQUARE = "width: 64, height: 64"
PHASE = f"train.phases=[{{until: 1.0, {SQUARE}}}]"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.steps=-3", "train: steps is -3, expected at least 1"),
        ("train.steps=0", "train: steps is 0, expected at least 1"),
        ("train.evaluate_every=0", "train: evaluate_every is 0, expected at least 1"),
        ("train.minutes=.nan", "train: minutes is nan, expected at least 0"),
        ("train.rate=0", "train: rate is 0.0, expected a number above 0"),
        ("train.ema_decay=2", "train: ema_decay is 2.0, expected 0 to 1"),
        ("train.phases.0.batch=0", r"train: phases\[0\]: batch is 0, expected at least 1"),
        ("train.phases.0.width=63", r"phases\[0\]: width is 63, expected a multiple of 32"),
        ("train.phases.0.until=0", r"phases\[0\]: until is 0.0, expected a number above 0"),
        ("data=3", "data: expected keys and values, found 3"),
        ("train.seed=4294967296", "train: seed is 4294967296, expected at most 4294967295"),
        (
            f"train.phases=[{{until: 0.5, {SQUARE}}}, {{until: 0.3, {SQUARE}}}]",
            r"phases end at \[0.5, 0.3\], expected each later than the one before",
        ),
        ("loss.score=-1", "loss: score is -1.0, expected at least 0"),
        ("assign.top_k=0", "assign: top_k is 0, expected at least 1"),
        ("model.names=[a, a]", "model: class names must be unique, found twice: a"),
        ("model.width=65", "model: model.width is 65, expected a multiple of 32"),
        ("data.augment.aspect=1000", "augment: aspect is 1000.0, expected 0 to 1"),
        ("data.threads=0", "data: threads is 0, expected at least 1"),
        ("data.augment.flip=50", "augment: flip is 50.0, expected 0 to 1"),
        ("data.augment.scale=[2, 1]", "augment: scale is 2.0, 1.0, expected two zooms"),
        ("data.train=[{annotations: a.json, weight: -1}]", r"train\[0\]: weight is -1.0"),
        ("data.train=[{annotations: a.json, fill_above: {car: 50}}]", "fill_above: car is 50.0"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(
    tmp_path: Path, override: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_settings(write(tmp_path), [PHASE, override])


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
