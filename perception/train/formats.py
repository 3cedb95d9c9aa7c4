"""Training sets in any format that `perception.datasets` reads (YOLO, KITTI, VOC, BDD100K, ...)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perception.datasets.opening import open_dataset
from perception.datasets.sample import Sample
from perception.errors import InputError
from perception.models.settings import ModelSettings
from perception.train.sets import (
    Picture,
    Row,
    SetSettings,
    class_target,
    join_problems,
    make_picture,
)


def read_dataset(settings: SetSettings, model: ModelSettings, root: Path) -> list[Picture]:
    """All pictures of `FORMAT:path` or of a folder whose format is plain.

    InputError lists, with file and line, every label that cannot be taught.
    """
    prefix, colon, rest = settings.annotations.partition(":")
    spec = f"{prefix}:{root / rest}" if colon else str(root / prefix)
    data = open_dataset(spec)
    faults = [finding for finding in data.report.findings if finding.severity == "error"]
    if faults:
        problems = [f"{finding.where}: {finding.message}" for finding in faults]
        raise InputError(f"{spec}: {join_problems(problems)}")
    targets = [class_target(name, spec, settings, model) for name in data.names]
    pictures = []
    for sample in data:
        if not isinstance(sample.image, Path) or not sample.image.is_file():
            raise InputError(f"{spec}: {sample.source}:{sample.line}: no picture for {sample.name}")
        rows: list[Row] = [
            (targets[label], [float(v) for v in box], bool(crowd))
            for box, label, crowd in zip(
                sample.truth.boxes, sample.truth.labels, sample.crowd, strict=True
            )
        ]
        if rows or not settings.skip_empty:
            pictures.append(_picture(sample, rows, settings, model))
    return pictures


def _picture(
    sample: Sample,
    rows: list[Row],
    settings: SetSettings,
    model: ModelSettings,
) -> Picture:
    assert isinstance(sample.image, Path)
    # An ignore region is a crowd of every class.
    rows = rows + [(0, [float(v) for v in box], True) for box in np.asarray(sample.ignore)]
    below = max(0.0, settings.unlabelled_below_area)
    return make_picture(sample.image, sample.width, sample.height, rows, settings, model, below, [])
