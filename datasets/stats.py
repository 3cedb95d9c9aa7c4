"""Count what a data set holds, and plot it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.datasets.dataset import Dataset
from perception.datasets.rows import Columns
from perception.files import atomic_path

# COCO's limits of small, medium and large objects, square pixels (cocoeval.py).
SMALL, LARGE = 32.0**2, 96.0**2
_HEAT = 32
_WIDE = 50  # times the rarest class: a linear scale would hide that one
_SIDES = np.geomspace(1, 4096, 49)  # borders of the histogram of box sides, pixels


@dataclass
class Stats:
    """Counts over a whole data set.

    sides: int64 (48,), boxes by the root of their area, borders at geomspace(1, 4096, 49) pixels.
    centres: int64 (32, 32), boxes by row and column of their centre in the picture.
    a_picture: pictures by their number of boxes.
    """

    pictures: int = 0
    boxes: int = 0
    unlabelled: int = 0
    ignore_regions: int = 0
    classes: dict[str, int] = field(default_factory=dict)
    splits: Counter[str] = field(default_factory=Counter)
    sequences: int = 0
    cameras: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)
    areas: Counter[str] = field(default_factory=Counter)
    a_picture: Counter[int] = field(default_factory=Counter)
    attributes: Counter[str] = field(default_factory=Counter)
    sides: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(48, np.int64))
    centres: npt.NDArray[np.int64] = field(
        default_factory=lambda: np.zeros((_HEAT, _HEAT), np.int64)
    )

    def to_json(self) -> dict[str, Any]:
        return {
            "pictures": self.pictures,
            "boxes": self.boxes,
            "unlabelled_pictures": self.unlabelled,
            "ignore_regions": self.ignore_regions,
            "classes": self.classes,
            "splits": dict(sorted(self.splits.items())),
            "sequences": self.sequences,
            "cameras": dict(sorted(self.cameras.items())),
            "picture_sizes": dict(self.sizes.most_common()),
            "box_areas": {name: self.areas[name] for name in ("small", "medium", "large")},
            "boxes_a_picture": {str(k): v for k, v in sorted(self.a_picture.items())},
            "attributes": dict(sorted(self.attributes.items())),
            "box_sides": {
                "borders": [round(float(v), 3) for v in _SIDES],
                "counts": self.sides.tolist(),
            },
        }


def stats(dataset: Dataset) -> Stats:
    """Count a data set, batch by batch."""
    result = Stats(classes=dict.fromkeys(dataset.names, 0))
    sequences: set[str] = set()
    for columns in dataset.columns():
        _add(result, columns)
        sequences.update(value for value in columns.values("sequence") if value)
    result.sequences = len(sequences)
    return result


def _add(result: Stats, columns: Columns) -> None:
    counts = np.diff(columns.starts)
    result.pictures += columns.pictures
    result.boxes += len(columns.boxes)
    result.unlabelled += int((counts == 0).sum())
    result.ignore_regions += len(columns.ignore)
    result.a_picture.update(counts.tolist())
    result.splits.update(columns.values("split"))
    result.cameras.update(value for value in columns.values("camera") if value)
    widths, heights = columns.values("width"), columns.values("height")
    result.sizes.update(f"{w}x{h}" for w, h in zip(widths, heights, strict=True))
    result.attributes.update(value for value in columns.values("attributes") if value)
    codes, used = columns.labels()
    for name, count in zip(used, np.bincount(codes, minlength=len(used)).tolist(), strict=True):
        result.classes[name] = result.classes.get(name, 0) + count
    sides = np.maximum(columns.boxes[:, 2:] - columns.boxes[:, :2], 0).astype(np.float64)
    area = sides[:, 0] * sides[:, 1]
    result.areas.update({"small": int((area < SMALL).sum()), "large": int((area >= LARGE).sum())})
    result.areas["medium"] += int(((area >= SMALL) & (area < LARGE)).sum())
    result.sides += np.histogram(np.clip(np.sqrt(area), 1, 4095), _SIDES)[0]
    owners = np.repeat(np.arange(columns.pictures), counts)
    size = np.column_stack([np.asarray(widths), np.asarray(heights)])[owners].astype(np.float64)
    known = (size > 0).all(axis=1)
    centre = (columns.boxes[:, :2] + columns.boxes[:, 2:])[known] / 2 / size[known]
    cells = np.clip((centre * _HEAT).astype(np.int64), 0, _HEAT - 1)
    np.add.at(result.centres, (cells[:, 1], cells[:, 0]), 1)


def class_scale(counts: Sequence[int]) -> str:
    """Scale of the axis of boxes a class: on a linear one the bars' lengths are the shares."""
    present = [count for count in counts if count]
    return "symlog" if present and max(present) > _WIDE * min(present) else "linear"


def plot(result: Stats, path: Path) -> None:
    """Draw the counts as one PNG: classes, box sizes, boxes a picture, where the centres are."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(13, 9), layout="constrained")
    shown = sorted(result.classes.items(), key=lambda item: -item[1])[:30]
    axes[0, 0].barh([name for name, _ in shown][::-1], [count for _, count in shown][::-1])
    axes[0, 0].set(
        title="boxes of each class (30 most frequent)",
        xlabel="boxes",
        xscale=class_scale([count for _, count in shown]),
    )
    axes[0, 1].stairs(result.sides, _SIDES, fill=True)
    axes[0, 1].set(
        title="box sizes", xlabel="root of the area, pixels", ylabel="boxes", xscale="log"
    )
    for limit in (SMALL, LARGE):
        axes[0, 1].axvline(limit**0.5, color="black", linewidth=0.8, linestyle=":")
    numbers = sorted(result.a_picture)
    axes[1, 0].bar(numbers, [result.a_picture[n] for n in numbers])
    axes[1, 0].set(title="boxes a picture", xlabel="boxes", ylabel="pictures")
    axes[1, 0].xaxis.get_major_locator().set_params(integer=True)
    heat = axes[1, 1].imshow(result.centres, extent=(0, 1, 1, 0), aspect="auto", cmap="magma")
    axes[1, 1].set(title="box centres", xlabel="share of width", ylabel="share of height")
    figure.colorbar(heat, ax=axes[1, 1], label="boxes")
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=110, metadata={"Software": None})
    pyplot.close(figure)
