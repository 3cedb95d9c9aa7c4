"""Where the pictures of a COCO json file lie, for all who read one."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from perception.datasets.text import inside


def root_of(path: Path) -> Path:
    """The folder of the set that a json file belongs to, which no picture may lie outside of."""
    return path.parent.parent if path.parent.name == "annotations" else path.parent


def split_of(unit: str) -> str:
    """The split that a file name speaks of: instances_val2017.json -> val2017."""
    stem = os.path.splitext(os.path.basename(unit))[0]
    split = re.sub(r"^(instances|annotations|person_keypoints|captions)_", "", stem)
    return os.path.basename(os.path.dirname(unit)) if split == "_annotations.coco" else split


def picture_folder(root: Path, unit: str, names: Sequence[str]) -> str:
    """The folder below the root in which most of the pictures called `names` are.

    unit: the json file, relative to the root; its own folder where no picture is found. COCO's own
    layout keeps annotations/instances_val2017.json and images/val2017 or val2017.
    """
    parent = os.path.dirname(unit)
    split = split_of(unit)
    candidates = [
        "",
        parent,
        "images",
        f"images/{split}",
        split,
        f"{parent}/images",
        f"{parent}/{split}",
        "data",
        "train",
        "val",
    ]
    counts = [
        sum((root / folder / name).exists() for name in names if inside(name))
        for folder in candidates
    ]
    return candidates[counts.index(max(counts))] if max(counts) else parent
