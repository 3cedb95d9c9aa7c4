"""Write a repaired copy of a data set: what lint finds and can be put right without guessing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from perception.datasets.convert import Converted, convert
from perception.datasets.dataset import Dataset
from perception.datasets.report import Report
from perception.datasets.sample import Sample
from perception.files import write_json

REPORT = "repairs.json"
OUTSIDE = "outside-root"
_UNUSABLE = frozenset({"picture-missing", "picture-corrupt", "bad-picture", OUTSIDE})


def repair(dataset: Dataset, found: Report, target: str) -> Converted:
    """Write `FORMAT:OUT` without unusable pictures, with boxes clipped and repeats taken out.

    Boxes without width or height and with swapped corners are left out: nobody knows what was
    meant. Pictures with an Exif rotation are turned. A picture of another size than its labels are
    for stays as it is, boxes and all: it may have been turned or scaled since. Every change is in
    the report, which is also written to OUT/repairs.json. found: what `lint` reported. The original
    is not touched.
    """
    changes = Report()
    unusable = {item.file for item in found.findings if item.code in _UNUSABLE and item.file}
    outside = {(item.file, item.picture) for item in found.findings if item.code == OUTSIDE}
    mismatched = {item.file for item in found.findings if item.code == "size-mismatch"}
    relative = str(dataset.root)

    def change(sample: Sample) -> Sample | None:
        file = str(sample.image)[len(relative) + 1 :] if isinstance(sample.image, Path) else ""
        if file in mismatched:
            text = "left as it is: it has another size than its labels are for"
            changes.add("warning", "picture-untouched", text, file=file, picture=sample.name)
            return sample
        if file in unusable or (sample.source, sample.name) in outside:
            changes.add(
                "info",
                "picture-left-out",
                "the picture is missing, damaged or outside the data set's folder",
                file=file,
                picture=sample.name,
            )
            return None
        return _repaired(sample, changes)

    done = convert(dataset, target, change=change, upright=True)
    done.report.findings[:0] = changes.findings
    write_json(done.out / REPORT, done.report.to_json())
    return done


def _repaired(sample: Sample, changes: Report) -> Sample:
    boxes = sample.truth.boxes.copy()
    keep = (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
    _note(sample, ~keep, "box-left-out", "no width or height", changes)
    if sample.width and sample.height:
        clipped = np.clip(boxes, 0, [sample.width, sample.height] * 2).astype(np.float32)
        gone = keep & ((clipped[:, 2] <= clipped[:, 0]) | (clipped[:, 3] <= clipped[:, 1]))
        _note(sample, gone, "box-left-out", "outside the picture", changes)
        _note(
            sample,
            keep & ~gone & (clipped != boxes).any(axis=1),
            "box-clipped",
            "clipped to the picture",
            changes,
        )
        keep &= ~gone
        boxes = clipped
    keys = np.column_stack([sample.truth.labels, np.rint(boxes).astype(np.int64)])
    seen: set[bytes] = set()
    twice = np.zeros(len(boxes), np.bool_)
    for i in np.flatnonzero(keep):
        twice[i] = keys[i].tobytes() in seen
        seen.add(keys[i].tobytes())
    _note(sample, twice, "box-left-out", "there twice", changes)
    changed = (boxes != sample.truth.boxes).any(axis=1)
    repaired = replace(replace_boxes(sample, boxes), area=np.where(changed, np.nan, sample.area))
    return repaired.chosen(np.flatnonzero(keep & ~twice))


def _note(
    sample: Sample, which: npt.NDArray[np.bool_], code: str, text: str, changes: Report
) -> None:
    for i in np.flatnonzero(which):
        box = ", ".join(f"{value:g}" for value in sample.truth.boxes[i])
        changes.add(
            "info",
            code,
            f"box [{box}]: {text}",
            file=sample.source,
            line=int(sample.lines[i]),
            picture=sample.name,
        )


def replace_boxes(sample: Sample, boxes: npt.NDArray[np.float32]) -> Sample:
    """The sample with other corners, float32 (N, 4)."""
    return replace(sample, truth=replace(sample.truth, boxes=boxes))
