"""Words beside figures, the same on the terminal and in a report."""

from __future__ import annotations

from perception.evaluate.coco import CocoResult
from perception.evaluate.compare import SliceComparison


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


def difference_text(row: SliceComparison) -> tuple[str, str]:
    """The difference B - A and its interval as text."""
    item = row.difference
    if item.value is None:
        return "undefined", ""
    if item.low is None or item.high is None:
        return f"{item.value:+.4f}", ""
    return f"{item.value:+.4f}", f"{item.low:+.4f} to {item.high:+.4f}"
