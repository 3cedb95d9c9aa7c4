"""Plots of an evaluation as SVG text that stands on its own and is the same on every run."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perception.evaluate.coco import RECALL_POINTS
from perception.evaluate.compare import Interval, SliceComparison, SliceScore
from perception.evaluate.diagnosis import Calibration
from perception.evaluate.matching import ClassCurve, curve_precision
from perception.evaluate.tables import Ints

MAX_CURVES = 12
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's palette, which stays apart for colour-blind readers."""


def _svg(figure: Figure, title: str) -> str:
    """The figure as an `<svg>` element; `title` keeps the ids of several figures apart."""
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": title, "svg.fonttype": "none", "font.size": 9}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, bbox_inches="tight")
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    # Ids are document-wide in HTML; without a prefix one plot would draw with another's glyphs.
    prefix = re.sub(r"\W+", "-", title)
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}-", text)


def _axes(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height))
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def precision_recall(curves: Sequence[ClassCurve], names: Sequence[str]) -> str:
    """Precision over recall at IoU .5, one line a class, the most frequent classes first."""
    figure, axes = _axes(5.2, 3.6)
    frequent = sorted(curves, key=lambda curve: (-curve.objects.sum(), curve.label))[:MAX_CURVES]
    for place, curve in enumerate(frequent):
        style = "-" if place < len(COLORS) else "--"
        axes.plot(
            RECALL_POINTS,
            curve_precision(curve)[0],
            style,
            color=COLORS[place % len(COLORS)],
            label=f"{names[curve.label]} ({int(curve.objects.sum())})",
        )
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02))
    if frequent:
        axes.legend(frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return _svg(figure, "precision-recall")


def reliability(calibration: Calibration) -> str:
    """Share of right detections over their score, with the number of detections below."""
    figure = Figure(figsize=(4.2, 3.6))
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    upper.plot([0, 1], [0, 1], color="#999999", linewidth=0.8)
    points = [
        (item.mean_score, item.precision)
        for item in calibration.bins
        if item.mean_score is not None and item.precision is not None
    ]
    upper.plot([x for x, _ in points], [y for _, y in points], "o-", color=COLORS[0])
    upper.set(ylabel="share right", ylim=(0, 1.02), xlim=(0, 1))
    lower.bar(
        [item.low for item in calibration.bins],
        [item.count for item in calibration.bins],
        width=[item.high - item.low for item in calibration.bins],
        align="edge",
        color=COLORS[5],
    )
    lower.set(xlabel="score", ylabel="detections")
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
    return _svg(figure, "reliability")


def confusion_matrix(counts: Ints, names: Sequence[str]) -> str:
    """Counts of truth (rows) against result (columns), coloured by share of the row."""
    labels = [*names, "nothing"]
    occurs = counts.sum(axis=0) + counts.sum(axis=1) > 0
    occurs[-1] = True
    used = np.flatnonzero(occurs)
    if len(used) > MAX_CURVES + 1:
        # "nothing" stays whatever its rank.
        ranked = sorted(used[:-1], key=lambda k: (-counts[k].sum(), k))[:MAX_CURVES]
        used = np.array([*sorted(ranked), len(names)])
    part = counts[np.ix_(used, used)]
    share = part / np.maximum(part.sum(axis=1, keepdims=True), 1)
    side = 1.6 + 0.45 * len(used)
    figure, axes = _axes(side, side)
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    ticks = range(len(used))
    axes.set_xticks(ticks, [labels[k] for k in used], rotation=45, ha="right")
    axes.set_yticks(ticks, [labels[k] for k in used])
    axes.set(xlabel="result", ylabel="truth")
    for row in ticks:
        for column in ticks:
            if part[row, column]:
                color = "white" if share[row, column] > 0.6 else "black"
                axes.text(
                    column,
                    row,
                    str(part[row, column]),
                    ha="center",
                    va="center",
                    color=color,
                    fontsize=7,
                )
    return _svg(figure, "confusion")


def _plot_interval(axes: Axes, item: Interval, place: int, color: str) -> None:
    if item.low is not None and item.high is not None:
        axes.plot([item.low, item.high], [place, place], color=color, linewidth=1.5)
    if item.value is not None:
        axes.plot([item.value], [place], "o", color=color, markersize=4)


def slice_intervals(scores: Sequence[SliceScore], metric: str) -> str:
    """A figure of every slice with its interval."""
    rows = [score for score in scores if score.figures[metric].value is not None]
    figure, axes = _axes(6.4, 0.8 + 0.24 * len(rows))
    for place, score in enumerate(rows):
        _plot_interval(axes, score.figures[metric], place, COLORS[0])
    axes.set_yticks(range(len(rows)), [score.name for score in rows])
    axes.invert_yaxis()
    axes.set(xlabel=metric, xlim=(0, 1))
    axes.grid(axis="x", linewidth=0.3)
    return _svg(figure, f"slices-{metric}")


def differences(rows: Sequence[SliceComparison], metric: str) -> str:
    """The difference of two models on every slice with its interval; 0 means equal."""
    chosen = [row for row in rows if row.metric == metric and row.difference.value is not None]
    colors = {"better": COLORS[2], "worse": COLORS[1]}
    figure, axes = _axes(6.4, 0.8 + 0.24 * len(chosen))
    axes.axvline(0, color="#999999", linewidth=0.8)
    for place, row in enumerate(chosen):
        color = colors.get(row.verdict, "#777777")
        _plot_interval(axes, row.difference, place, color)
    axes.set_yticks(range(len(chosen)), [row.name for row in chosen])
    axes.invert_yaxis()
    axes.set(xlabel=f"{metric} of B minus A")
    axes.grid(axis="x", linewidth=0.3)
    return _svg(figure, f"differences-{metric}")
