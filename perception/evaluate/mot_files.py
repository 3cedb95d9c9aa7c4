"""MOTChallenge text files as tables of the tracking evaluation."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perception.datasets import Dataset
from perception.datasets.formats.mot import CLASSES
from perception.errors import InputError
from perception.evaluate.label_files import exact, open_sound
from perception.evaluate.tables import Ints
from perception.evaluate.tracks import MOT15, MOT17, MotRules, TrackTable


def read_table(path: Path) -> tuple[TrackTable, Dataset]:
    """One sequence's boxes, and the data set they were read from.

    Raises InputError itemising rows that cannot be used, and for a row without a track id.
    """
    if not path.is_file():
        raise InputError(f"{path}: expected a MOT text file")
    dataset = open_sound(f"mot:{path}")
    samples = list(dataset)
    for sample in samples:
        without = np.flatnonzero(sample.truth.track_ids < 0)
        if len(without):
            raise InputError(f"{path}:{sample.lines[without[0]]}: the row has no track id")
    counts = [len(sample.truth) for sample in samples]
    corners = np.concatenate(
        [*[item.truth.boxes for item in samples], np.zeros((0, 4), np.float32)]
    )
    boxes = exact(corners)
    boxes[:, 2:] -= boxes[:, :2]
    considered = [
        item.get("considered", "1") for sample in samples for item in sample.box_attributes
    ]
    none = np.zeros(0, dtype=np.int64)
    labels = np.concatenate([*[item.truth.labels for item in samples], none])
    table = TrackTable(
        frames=np.repeat(np.array([item.frame for item in samples], dtype=np.int64), counts),
        ids=np.concatenate([*[item.truth.track_ids for item in samples], none]),
        boxes=boxes,
        counted=np.array([float(text) != 0 for text in considered], dtype=np.bool_),
        classes=_class_numbers(dataset)[labels],
    )
    return table, dataset


def _is_challenge(dataset: Dataset) -> bool:
    """Whether the classes are MOTChallenge's own, not those of a labels.txt.

    The names do not tell: a set of cars alone has one of MOTChallenge's names too.
    """
    return not dataset.store.meta["header"]["names"]


def _class_numbers(dataset: Dataset) -> Ints:
    """MOTChallenge's number (from 1) of each of the data set's labels."""
    names = CLASSES if set(dataset.names) <= set(CLASSES) else tuple(dataset.names)
    return np.array([names.index(name) + 1 for name in dataset.names] or [1], dtype=np.int64)


def guess_rules(truth: TrackTable, dataset: Dataset) -> MotRules:
    """MOT17's rules where the ground truth has classes or visibilities of MOT16 and later."""
    if not _is_challenge(dataset):
        return MOT15
    with_visibility = any(np.isfinite(sample.occlusion).any() for sample in dataset)
    return MOT17 if with_visibility or (truth.classes != 1).any() else MOT15
