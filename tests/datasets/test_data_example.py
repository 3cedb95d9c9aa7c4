"""The data script under examples/ runs on a small set."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from perception.datasets import open_dataset
from tests.datasets.made import coco

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "prepare_a_data_set.py"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", [EXAMPLE.name, *arguments])
    with pytest.raises(SystemExit) as done:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert isinstance(done.value.code, int)
    return done.value.code


def test_prepare_a_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    boxes = [[(1, 5, 5, 20, 20), (2, 30, 30, 9, 4)], [(1, 1, 1, 9, 0)]] * 6
    folder = coco(tmp_path / "set", boxes)
    target = f"coco:{tmp_path / 'out'}"
    options = ("--least-height", "5", "--shares", "train=0.5,val=0.5")
    assert run(monkeypatch, f"coco:{folder}", target, *options) == 0
    text = capsys.readouterr().out
    assert "coco: 12 pictures, 2 classes" in text
    assert "instances_train.json" in text and "[box-degenerate]" in text
    written = open_dataset(target)
    assert len(written) == 12 and {sample.split for sample in written} == {"train", "val"}
    assert sum(len(sample.truth) for sample in written) == 6
    # COCO holds ignore regions: the low boxes, and those without height.
    assert {len(sample.ignore) for sample in written} == {1}


def test_prepare_a_data_set_says_what_the_target_cannot_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = coco(tmp_path / "set", [[(1, 5, 5, 20, 20), (2, 30, 30, 9, 4)]] * 12)
    target = f"yolo:{tmp_path / 'out'}"
    assert run(monkeypatch, f"coco:{folder}", target, "--least-height", "5") == 0
    assert "12 ignore regions are lost" in capsys.readouterr().out
