"""Words beside figures, the same on the terminal and in a report."""

from __future__ import annotations

from collections.abc import Sequence

from perception.evaluate.coco import CocoResult
from perception.evaluate.compare import MIN_UNITS, Interval, SliceComparison, units


def coco_notes(result: CocoResult) -> list[str]:
    """What a reader of the figures must know besides them."""
    notes = []
    if result.stray_detections:
        names = [item.name for item in result.per_class if not item.truth and item.detections]
        notes.append(
            f"{result.stray_detections} detections of classes with no ground truth "
            f"({', '.join(names)}): their AP is undefined and in no mean."
        )
    if result.invalid_pictures:
        notes.append(
            f"{result.invalid_pictures} pictures without a usable result: their objects count as "
            "missed."
        )
    return notes


def resampling_notes(pictures: int, sequences: Sequence[str]) -> list[str]:
    """Why there are no intervals, where the pictures are too few or of too few sequences."""
    count = int(units(pictures, sequences).max(initial=-1)) + 1
    if count >= MIN_UNITS:
        return []
    what = f"{pictures} pictures"
    if any(sequences):
        what += f" of {count} sequence{'s' if count != 1 else ''}, whose frames are drawn together"
    return [f"No intervals and no verdicts: {what}; at least {MIN_UNITS} are needed."]


def interval_text(item: Interval) -> str:
    """The ends of an interval as text, empty where there is none."""
    if item.low is None or item.high is None:
        return ""
    return f"{item.low:.4f} to {item.high:.4f}"


def difference_text(row: SliceComparison) -> tuple[str, str]:
    """The difference B - A and its interval as text."""
    item = row.difference
    if item.value is None:
        return "undefined", ""
    if item.low is None or item.high is None:
        return f"{item.value:+.4f}", ""
    return f"{item.value:+.4f}", f"{item.low:+.4f} to {item.high:+.4f}"
