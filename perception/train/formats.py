"""Training sets in any format that `perception.datasets` reads (YOLO, KITTI, VOC, BDD100K, ...)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perception.datasets.opening import open_dataset
from perception.datasets.sample import Sample
from perception.errors import InputError
from perception.models.settings import ModelSettings
from perception.train.coco_json import join_problems, picture_problem
from perception.train.sets import (
    Picture,
    Row,
    SetSettings,
    area_limit,
    check_channels,
    check_classes,
    class_target,
    ignored,
    located,
    make_picture,
    require_split,
)

#: Formats that list all classes of a set; the others only have those of the boxes they hold.
NAMES_ALL = ("coco", "yolo")


def read_dataset(settings: SetSettings, model: ModelSettings, root: Path) -> list[Picture]:
    """All pictures of `FORMAT:path` or of a folder whose format is plain.

    InputError lists, with file and line, every label that cannot be taught.
    """
    check_channels(settings, model)
    named, path = located(settings, root)
    spec = f"{named}:{path}" if named else str(path)
    data = open_dataset(spec)
    faults = [finding for finding in data.report.findings if finding.severity == "error"]
    if faults:
        problems = [f"{finding.where}: {finding.message}" for finding in faults]
        raise InputError(f"{spec}: {join_problems(problems)}")
    if data.format in NAMES_ALL:
        check_classes(settings, list(data.names), spec)
    targets = [class_target(name, spec, settings, model) for name in data.names]
    # The reader keeps a COCO file's info since it writes it again; other formats have none.
    below = area_limit(settings, data.info, spec)
    pictures, problems, splits = [], [], set()
    for sample in data:
        splits.add(sample.split)
        if settings.split not in ("", sample.split):
            continue
        rows: list[Row] = [
            (targets[label], [float(v) for v in box], bool(crowd))
            for box, label, crowd in zip(
                sample.truth.boxes, sample.truth.labels, sample.crowd, strict=True
            )
        ]
        if problem := _problem(sample):
            problems.append(f"{sample.source}:{sample.line}: {problem}")
        elif rows or not settings.skip_empty:
            pictures.append(_picture(sample, rows, settings, model, below))
    require_split(settings.split, splits, spec)
    if problems:
        raise InputError(f"{spec}: {join_problems(problems)}")
    return pictures


def _problem(sample: Sample) -> str:
    """What keeps a sample's picture from being taught, or ''."""
    if not isinstance(sample.image, Path):
        return f"no picture for {sample.name}"
    return picture_problem(sample.image, sample.width, sample.height)


def _picture(
    sample: Sample, rows: list[Row], settings: SetSettings, model: ModelSettings, below: float
) -> Picture:
    assert isinstance(sample.image, Path)
    rows = rows + [ignored([float(v) for v in box]) for box in np.asarray(sample.ignore)]
    return make_picture(sample.image, sample.width, sample.height, rows, settings, model, below, [])
