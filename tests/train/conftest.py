"""A tiny generated set and the settings to train on it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from perception.train.settings import RunSettings

# Without torch (the train extra) there is nothing here to test.
collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]

NAMES = ("car", "truck", "person")


def plain_settings(root: Path, **train: Any) -> dict[str, Any]:
    """Settings as YAML would give them: network 64x64, batch 4, no augmentation."""
    one = {"annotations": "train.json", "annotated": ["vehicle", "person"]}
    return {
        "model": {"names": list(NAMES), "group": ["car", "truck"], "width": 64, "height": 64},
        "data": {
            "root": str(root),
            "cache": str(root / "cache"),
            "train": [one],
            "val": [{**one, "annotations": "val.json"}],
            "augment": {
                "flip": 0,
                "mosaic": 0,
                "scale": [1, 1],
                "stretch": 0,
                "aspect": 0,
                "colour": 0,
                "grey": 0,
                "fog": 0,
                "rain": 0,
                "night": 0,
                "noise": 0,
                "blur": 0,
                "jpeg": 0,
            },
        },
        "train": {
            "batch": 4,
            "steps": 6,
            "warmup": 2,
            "log_every": 2,
            "evaluate_every": 100,
            "checkpoint_every": 100,
            "device": "cpu",
            "tensorboard": False,
            "torch_threads": 1,
            **train,
        },
    }


@pytest.fixture(scope="session")
def tiny_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with train.json (16 pictures) and val.json (4)."""
    from perception.train.rehearsal import draw_set

    root = tmp_path_factory.mktemp("tiny")
    draw_set(root / "train.json", 16, NAMES, seed=1, size=(96, 96))
    draw_set(root / "val.json", 4, NAMES, seed=2, size=(96, 96))
    return root


@pytest.fixture
def tiny_settings(tiny_root: Path) -> RunSettings:
    """Settings of a six-step run."""
    from perception.train.settings import RunSettings, build

    return build(RunSettings, plain_settings(tiny_root), "test")
