"""The evaluation scripts under examples/ run on small data."""

import json
import runpy
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

pytest.importorskip("faster_coco_eval", reason="needs the extra 'eval'")
pytest.importorskip("pyarrow", reason="needs the extra 'data'")

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"


@pytest.fixture
def run(monkeypatch, capsys):
    def call(script, *arguments):
        monkeypatch.setattr(sys, "argv", [script, *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / script), run_name="__main__")
        return capsys.readouterr().out

    return call


@pytest.fixture
def truth(tmp_path):
    """Twelve pictures with one bright square each, labelled `bright`."""
    for i in range(12):
        picture = np.zeros((48, 64, 3), np.uint8)
        picture[16:32, 32:48] = 255
        cv2.imwrite(str(tmp_path / f"{i}.png"), picture)
    data = {
        "images": [
            {"id": i, "file_name": f"{i}.png", "width": 64, "height": 48} for i in range(12)
        ],
        "categories": [{"id": 0, "name": "bright"}],
        "annotations": [
            {"id": i, "image_id": i, "category_id": 0, "bbox": [32, 16, 16, 16], "area": 256}
            for i in range(12)
        ],
    }
    path = tmp_path / "truth.json"
    path.write_text(json.dumps(data))
    return path


def results(path, found):
    rows = [
        {"image_id": i, "category_id": 0, "bbox": [32, 16, 16, 16], "score": 0.9} for i in found
    ]
    path.write_text(json.dumps(rows))
    return path


def test_score_a_model(run, truth, tmp_path):
    onnx_models = pytest.importorskip("tests.onnx_models", reason="needs onnx")
    model = onnx_models.bright_cell_detector(tmp_path / "cells.onnx")
    text = run("score_a_model.py", f"coco:{truth}", "--model", model)
    assert "AP 1.0, AP50 1.0" in text
    assert "size=small" in text


def test_compare_on_hard_pictures(run, truth, tmp_path):
    good = results(tmp_path / "a.json", range(12))
    poor = results(tmp_path / "b.json", [0])
    text = run("compare_on_hard_pictures.py", truth, good, poor, "--min-objects", 1)
    assert "objects=1 or more" in text
    assert "B is worse" in text


def test_tune_a_tracker(run, tmp_path):
    pytest.importorskip("trackeval", reason="needs the extra 'eval'")
    rows = [f"{f},1,{10 + f},10,40,80,1,-1,-1,-1\n" for f in range(1, 31)]
    (tmp_path / "gt.txt").write_text("".join(rows))
    text = run("tune_a_tracker.py", tmp_path / "gt.txt")
    assert text.count("HOTA") == 4
