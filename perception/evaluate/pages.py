"""What the HTML reports say: sections built from figures, plots and pictures."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from perception.evaluate import plots, report
from perception.evaluate.coco import CocoResult
from perception.evaluate.compare import METRICS, SliceComparison, SliceScore
from perception.evaluate.diagnosis import Diagnosis, OperatingPoint
from perception.evaluate.matching import class_curves
from perception.evaluate.notes import coco_notes, difference_text

Section = tuple[str, str]
"""Heading and HTML body."""

LEGEND = "Yellow: what the caption speaks of. Green: ground truth. Red: detections."


def coco_sections(
    result: CocoResult,
    scores: Sequence[SliceScore],
    found: Diagnosis,
    point: OperatingPoint,
    *,
    source: str,
    false_alarms: float,
    images: Path | None,
) -> list[Section]:
    """The sections of a report on one set of results.

    source: what was evaluated, for the first line. point: the operating point for at most
    `false_alarms` false alarms a picture. images: folder of the pictures, None to show none.
    """
    tables = found.matches.tables
    curve = plots.precision_recall(class_curves(found.matches), tables.names)
    legend = f'<p class="note">{LEGEND}</p>' if images else ""
    misses, alarms = report.worst_misses(found, images), report.worst_false_alarms(found, images)
    calibration = report.figure_text(found.calibration.ece)
    return [
        ("Figures", _summary(result, source) + report.plots(_figures(result), curve)),
        ("Classes", _classes(result)),
        ("Slices", _slices(scores) + report.plots(plots.slice_intervals(scores, "ap"))),
        ("Operating points", _points(found.best, point, false_alarms)),
        (
            "Error types",
            report.plots(_errors(found), plots.confusion_matrix(found.confusion, tables.names)),
        ),
        (
            "Calibration",
            f"<p>Expected calibration error: {calibration}</p>"
            + report.plots(plots.reliability(found.calibration)),
        ),
        ("Worst misses", legend + report.gallery(misses)),
        ("Worst false alarms", legend + report.gallery(alarms)),
    ]


def _summary(result: CocoResult, source: str) -> str:
    counts = (
        f"{source}: {result.pictures} pictures, {result.truth} objects, "
        f"{result.detections} detections."
    )
    lines = [counts, *coco_notes(result)]
    return "".join(f'<p class="note">{html.escape(line)}</p>' for line in lines)


def _figures(result: CocoResult) -> str:
    names = [item.name for item in fields(CocoResult) if item.name[:2] in ("ap", "ar")]
    return report.table(["figure", "value"], [(name, getattr(result, name)) for name in names])


def _classes(result: CocoResult) -> str:
    return report.table(
        ["class", "AP", "AP50", "AP75", "AR100", "objects", "detections"],
        [
            (item.name, item.ap, item.ap50, item.ap75, item.ar, item.truth, item.detections)
            for item in result.per_class
            if item.truth or item.detections
        ],
    )


def _points(best: OperatingPoint, point: OperatingPoint, false_alarms: float) -> str:
    named = (
        ("for counts and examples below", best),
        (f"at most {false_alarms:g} false alarms a picture", point),
    )
    return report.table(
        ["operating point", "score", "precision", "recall", "F1", "false alarms a picture"],
        [
            (name, item.score, item.precision, item.recall, item.f1, item.false_alarms_per_picture)
            for name, item in named
        ],
    )


def _errors(found: Diagnosis) -> str:
    return report.table(
        ["error", "count", "AP50 gained if repaired"],
        [(item.name, item.count, item.ap50_gain) for item in found.errors],
    )


def _slices(scores: Sequence[SliceScore]) -> str:
    rows = []
    for score in scores:
        cells: list[Any] = [score.name, score.pictures, score.objects]
        for metric in METRICS:
            item = score.figures[metric]
            cells.append(item.value)
            if item.low is not None and item.high is not None:
                cells.append(f"{item.low:.3f} to {item.high:.3f}")
            else:
                cells.append("")
        rows.append(cells)
    head = ["slice", "pictures", "objects"]
    for metric in METRICS:
        head += [metric, "interval"]
    return report.table(head, rows)


def compare_sections(
    rows: Sequence[SliceComparison], failures: Sequence[str] | None
) -> list[Section]:
    """The sections of a report on two sets of results; failures None when there is no gate."""
    sections = []
    if failures is not None:
        items = "".join(f"<li>{html.escape(text)}</li>" for text in failures)
        fails = f'<p class="worse">The gate fails.</p><ul>{items}</ul>'
        sections.append(("Gate", fails if failures else '<p class="better">The gate passes.</p>'))
    for metric in METRICS:
        chosen = [row for row in rows if row.metric == metric]
        body = report.table(
            ["slice", "pictures", "objects", "A", "B", "B - A", "interval", "B is"],
            [
                (row.name, row.pictures, row.objects, row.a, row.b)
                + (*difference_text(row), row.verdict)
                for row in chosen
            ],
            [row.verdict if row.verdict in ("better", "worse") else "" for row in chosen],
        )
        sections.append((metric, body + report.plots(plots.differences(chosen, metric))))
    return sections
