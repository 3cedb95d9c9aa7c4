"""A detector over a data set: every picture once, in order, whatever the engine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perception.cli import main
from perception.datasets import inference, open_dataset
from perception.datasets.engine import LocalEngine
from perception.datasets.inference import detect
from perception.runtime.detector import Detector
from perception.runtime.settings import DetectorSettings
from tests.datasets.made import coco, damaged_jpeg

onnx_models = pytest.importorskip("tests.onnx_models", reason="needs onnx")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path: Path = onnx_models.bright_cell_detector(tmp_path / "cells.onnx")
    return path


def test_results_are_those_of_the_detector_in_the_order_of_the_pictures(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference, "PICTURES_A_TASK", 3)
    folder = coco(tmp_path / "set", [[]] * 10, names=("dark", "bright"))
    dataset = open_dataset(f"coco:{folder}")
    done = detect(dataset, DetectorSettings(model), tmp_path / "one.json")
    several = detect(
        dataset, DetectorSettings(model), tmp_path / "two.json", LocalEngine(workers=2)
    )
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    assert done.classes == several.classes and done.pictures == 10
    detector = Detector(model, threads=1)
    expected = [
        (int(sample.id), 2, [round(float(v), 2) for v in box], round(float(score), 5))
        for sample in dataset
        for found in [detector(dataset.load(sample))]
        for box, score in zip(found.xywh, found.scores, strict=True)
    ]
    rows = json.loads((tmp_path / "one.json").read_text())
    assert expected
    assert [
        (row["image_id"], row["category_id"], row["bbox"], row["score"]) for row in rows
    ] == expected
    assert done.detections == len(rows)


def test_a_class_that_the_set_lacks_gets_an_id_of_its_own_or_is_left_out(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = coco(tmp_path / "set", [[(2, 1, 1, 9, 9)]] * 3)
    arguments = ["data", "detect", f"coco:{folder}", "--model", str(model)]
    assert main([*arguments, "--out", str(tmp_path / "all.json"), "--workers", "1"]) == 0
    rows = json.loads((tmp_path / "all.json").read_text())
    assert {(row["category_id"], row["category"]) for row in rows} == {(3, "bright")}
    assert main([*arguments, "--out", str(tmp_path / "none.json"), "--known-classes"]) == 2
    assert "no class in common, the model has bright, dark, the data set car, bus" in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "none.json").exists()


def test_a_picture_without_a_result_is_named_and_fails_the_command(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = coco(tmp_path / "set", [[]] * 5)
    (folder / "images/001.png").write_bytes(b"no picture")
    damaged_jpeg(folder / "images/004.png")
    (folder / "images/002.png").unlink()
    out, report = tmp_path / "out.json", tmp_path / "report.json"
    arguments = ["data", "detect", f"coco:{folder}", "--model", str(model), "--out", str(out)]
    assert main([*arguments, "--workers", "1", "--json", str(report)]) == 1
    text = capsys.readouterr().out
    assert "001.png: error: 10 bytes are not a picture" in text
    assert "002.png: error: cannot read: No such file" in text
    assert "004.png: error: JPEG of " in text and "is damaged or cut short" in text
    assert "3 pictures without a result" in text
    assert json.loads(report.read_text())["failed"] == 3
    assert {row["image_id"] for row in json.loads(out.read_text())} <= {1, 4}


def test_nothing_is_written_when_no_picture_can_be_used(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = coco(tmp_path / "set", [[]] * 2)
    for file in (folder / "images").iterdir():
        file.unlink()
    out = tmp_path / "out.json"
    assert main(["data", "detect", str(folder), "--model", str(model), "--out", str(out)]) == 2
    assert "none of the 2 pictures could be used" in capsys.readouterr().err
    assert not out.exists()


def test_image_ids_that_stand_for_several_pictures_are_refused(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = coco(tmp_path / "set", [[]] * 2, prefix="a")
    coco(folder, [[]] * 2, prefix="b", file="annotations/instances_val.json")
    out = tmp_path / "out.json"
    assert main(["data", "detect", f"coco:{folder}", "--model", str(model), "--out", str(out)]) == 2
    assert (
        "image id 1 is that of a000.png in annotations/instances_train.json and of b000.png in "
        "annotations/instances_val.json; name one file, coco:"
    ) in capsys.readouterr().err


@pytest.mark.parametrize("kind", [str, "{:04d}".format, int])
def test_image_ids_keep_their_type(tmp_path: Path, model: Path, kind: Callable[[int], Any]) -> None:
    folder = coco(tmp_path / "set", [[]] * 2)
    file = folder / "annotations/instances_train.json"
    data = json.loads(file.read_text())
    for image in data["images"]:
        image["id"] = kind(image["id"])
    file.write_text(json.dumps(data))
    detect(open_dataset(f"coco:{folder}"), DetectorSettings(model), tmp_path / "out.json")
    rows = json.loads((tmp_path / "out.json").read_text())
    assert rows and {row["image_id"] for row in rows} <= {kind(1), kind(2)}


def test_inference_imports_no_torch(tmp_path: Path, model: Path) -> None:
    folder = coco(tmp_path / "set", [[]] * 2)
    code = (
        "import sys; from perception.cli import main; "
        "assert main(sys.argv[1:]) == 0; assert 'torch' not in sys.modules"
    )
    arguments = [f"coco:{folder}", "--model", str(model), "--out", str(tmp_path / "out.json")]
    subprocess.run(
        [sys.executable, "-c", code, "data", "detect", *arguments, "--workers", "1"],
        check=True,
        cwd=Path(__file__).parents[2],
    )
