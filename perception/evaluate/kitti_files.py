"""KITTI label and result folders as frames of the KITTI evaluation."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perception.datasets import Dataset, Sample
from perception.errors import InputError
from perception.evaluate.kitti import DONT_CARE, KittiFrame
from perception.evaluate.label_files import exact, open_sound

NEVER_TRUNCATED = -1.0
"""What the kit's own labels hold where truncation was not annotated; no limit excludes it."""
UNKNOWN_OCCLUSION = 3


def read_frames(truth: Path, results: Path) -> tuple[list[KittiFrame], list[str]]:
    """Frames of the ground truth with the results of the same name, and notes for the reader.

    truth, results: folders of label files NNNNNN.txt, or of the folders that hold them. A frame
    without a result file has no detections. Raises InputError itemising rows that cannot be used,
    results without a score, and result files without ground truth.
    """
    for folder in (truth, results):
        if not folder.is_dir():
            raise InputError(f"{folder}: expected a folder of KITTI label files")
    labels, found = open_sound(f"kitti:{truth}"), open_sound(f"kitti:{results}")
    by_id = {sample.id: sample for sample in found}
    samples = [sample for sample in labels if sample.source]
    unknown = sorted(set(by_id) - {sample.id for sample in samples})
    if unknown:
        raise InputError(
            f"{results}: {len(unknown)} result files have no ground truth in {truth}, "
            f"the first is {unknown[0]}.txt"
        )
    _require_scores(results, found)
    frames = [_frame(sample, by_id.get(sample.id), labels, found) for sample in samples]
    missing = sum(sample.id not in by_id for sample in samples)
    notes = [f"{missing} frames have no result file: all their objects count as missed."]
    return frames, notes if missing else []


def _require_scores(folder: Path, results: Dataset) -> None:
    for sample in results:
        without = np.flatnonzero(~sample.scored)
        if len(without):
            raise InputError(
                f"{folder / Path(sample.source).name}:{sample.lines[without[0]]}: a result row has "
                "no score, expected 16 columns"
            )


def _frame(sample: Sample, result: Sample | None, labels: Dataset, found: Dataset) -> KittiFrame:
    regions = len(sample.ignore)
    levels = [int(item.get("occluded", UNKNOWN_OCCLUSION)) for item in sample.box_attributes]
    truncation = np.nan_to_num(exact(sample.truncation), nan=NEVER_TRUNCATED)
    kinds = [labels.names[label] for label in sample.truth.labels]
    return KittiFrame(
        name=sample.id,
        kinds=(*kinds, *[DONT_CARE] * regions),
        boxes=exact(np.vstack([sample.truth.boxes, sample.ignore]).astype(np.float32)),
        truncation=np.r_[truncation, np.full(regions, NEVER_TRUNCATED)],
        occlusion=np.r_[np.array(levels, dtype=np.float64), np.full(regions, UNKNOWN_OCCLUSION)],
        result_kinds=() if result is None else tuple(found.names[k] for k in result.truth.labels),
        result_boxes=np.zeros((0, 4)) if result is None else exact(result.truth.boxes),
        scores=np.zeros(0) if result is None else exact(result.truth.scores),
    )
