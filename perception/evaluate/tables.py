"""Ground truth and results of a whole data set as columns, the input of every box metric.

Columns instead of one object a picture because 100,000 detections must be scored in seconds, and
float64 because equal-overlap decisions have to fall as they do in the reference implementations.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from perception.detections import Detections
from perception.errors import InputError
from perception.labels import LabelSet

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@contextmanager
def no_collection() -> Iterator[None]:
    """Switch Python's cycle collector off for a block (also usable as a decorator).

    For code that makes a hundred thousand small objects without cycles: the collector would walk
    them, and everything else in memory, again and again (a fifth of the time of an evaluation).
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """Labelled objects and regions, one row each.

    image: int64 (G,), index of the picture.
    labels: int64 (G,), index into the class names.
    boxes: float64 (G, 4), left, top, width, height in pixels.
    areas: float64 (G,), square pixels; the segmented area where the data set has one.
    crowd: bool (G,), a region in which detections of this class are neither right nor wrong.
    """

    image: Ints
    labels: Ints
    boxes: Floats
    areas: Floats
    crowd: Bools

    def __len__(self) -> int:
        return len(self.image)

    def __getitem__(self, index: npt.NDArray[np.generic]) -> Truth:
        return Truth(*(getattr(self, name)[index] for name in self.__slots__))


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """Detections, one row each: columns as in `Truth`, scores float64 (D,)."""

    image: Ints
    labels: Ints
    boxes: Floats
    scores: Floats

    def __len__(self) -> int:
        return len(self.image)

    def __getitem__(self, index: npt.NDArray[np.generic]) -> Results:
        return Results(*(getattr(self, name)[index] for name in self.__slots__))

    @property
    def areas(self) -> Floats:
        """float64 (D,) areas of the boxes in square pixels."""
        return self.boxes[:, 2] * self.boxes[:, 3]


@dataclass(frozen=True, slots=True, eq=False)
class BoxTables:
    """Everything a box metric needs.

    pictures: one name a picture, for reports; `image` columns index it.
    names: class names; `labels` columns index it.
    invalid_pictures: pictures for which the model gave no usable result. Their objects count as
        missed.
    """

    pictures: tuple[str, ...]
    names: tuple[str, ...]
    truth: Truth
    results: Results
    invalid_pictures: int = 0

    def grouped(self, groups: Mapping[str, Sequence[str]]) -> BoxTables:
        """The same tables with classes merged: group name -> its classes.

        Classes in no group keep their name. Raises InputError for an unknown class and for one
        in two groups.
        """
        known = LabelSet(self.names)
        owner: dict[str, str] = {}
        for group, members in groups.items():
            for member in members:
                known.index(member)
                if member in owner:
                    raise InputError(f"class {member!r} is in groups {owner[member]!r}, {group!r}")
                owner[member] = group
        merged = tuple(dict.fromkeys(owner.get(name, name) for name in self.names))
        lookup = np.array([merged.index(owner.get(name, name)) for name in self.names] or [0])
        return replace(
            self,
            names=merged,
            truth=replace(self.truth, labels=lookup[self.truth.labels]),
            results=replace(self.results, labels=lookup[self.results.labels]),
        )


def _columns(
    pictures: Sequence[Detections], names: Sequence[str], kind: str
) -> tuple[Ints, Ints, Floats, Floats]:
    image = np.repeat(np.arange(len(pictures), dtype=np.int64), [len(item) for item in pictures])
    labels = np.concatenate([item.labels for item in pictures] or [np.zeros(0, np.int64)])
    corners = np.concatenate([item.boxes for item in pictures] or [np.zeros((0, 4), np.float32)])
    scores = np.concatenate([item.scores for item in pictures] or [np.zeros(0, np.float32)])
    outside = np.flatnonzero((labels < 0) | (labels >= len(names)))
    if len(outside):
        row = outside[0]
        raise InputError(
            f"{kind}: picture {image[row]} has label {labels[row]}, expected 0 to {len(names) - 1}"
        )
    broken = np.flatnonzero(~np.isfinite(corners).all(axis=1) | ~np.isfinite(scores))
    if len(broken):
        raise InputError(f"{kind}: picture {image[broken[0]]} has a box or score not finite")
    boxes = corners.astype(np.float64)
    boxes[:, 2:] -= boxes[:, :2]
    return image, labels.astype(np.int64), boxes, scores.astype(np.float64)


def from_detections(
    truth: Sequence[Detections],
    results: Sequence[Detections],
    names: Sequence[str],
    *,
    ignore: Sequence[npt.ArrayLike] | None = None,
    crowd: Sequence[npt.ArrayLike] | None = None,
    pictures: Sequence[str] | None = None,
) -> BoxTables:
    """Columns from one `Detections` a picture, the two sequences in the same order.

    ignore: regions float32 (K, 4) xyxy a picture, in which no class counts.
    crowd: bool (N,) a picture, truth boxes that mark a crowd of their class.
    An invalid result counts its picture as `invalid_pictures` and finds nothing.
    Raises InputError for lengths that differ, labels out of range and numbers not finite.
    """
    lengths = {"results": len(results)}
    lengths |= {} if ignore is None else {"ignore": len(ignore)}
    lengths |= {} if crowd is None else {"crowd": len(crowd)}
    lengths |= {} if pictures is None else {"pictures": len(pictures)}
    for what, length in lengths.items():
        if length != len(truth):
            raise InputError(f"{what} has {length} pictures, the truth has {len(truth)}")
    image, labels, boxes, _ = _columns(truth, names, "truth")
    flags = np.zeros(len(image), dtype=np.bool_)
    if crowd is not None and len(image):
        flags = np.concatenate([np.asarray(item, dtype=np.bool_).reshape(-1) for item in crowd])
        if len(flags) != len(image):
            raise InputError(f"crowd has {len(flags)} flags, the truth has {len(image)} boxes")
    table = Truth(image, labels, boxes, boxes[:, 2] * boxes[:, 3], flags)
    if ignore is not None:
        table = with_regions(table, ignore, len(names))
    return BoxTables(
        pictures=tuple(map(str, range(len(truth)) if pictures is None else pictures)),
        names=tuple(names),
        truth=table,
        results=Results(*_columns(results, names, "results")),
        invalid_pictures=sum(not item.valid for item in results),
    )


def with_regions(truth: Truth, ignore: Sequence[npt.ArrayLike], classes: int) -> Truth:
    """Add regions (K, 4) xyxy of each picture, once for every class, after the objects.

    COCO's crowd rule is a rule of one class.
    """
    regions = [np.asarray(item, dtype=np.float64).reshape(-1, 4) for item in ignore]
    image = np.repeat(np.arange(len(regions), dtype=np.int64), [len(item) for item in regions])
    boxes = np.concatenate(regions or [np.zeros((0, 4))])
    boxes[:, 2:] -= boxes[:, :2]
    image = np.repeat(image, classes)
    labels = np.tile(np.arange(classes, dtype=np.int64), len(boxes))
    boxes = np.repeat(boxes, classes, axis=0)
    return Truth(
        np.concatenate([truth.image, image]),
        np.concatenate([truth.labels, labels]),
        np.concatenate([truth.boxes, boxes]),
        np.concatenate([truth.areas, boxes[:, 2] * boxes[:, 3]]),
        np.concatenate([truth.crowd, np.ones(len(boxes), dtype=np.bool_)]),
    )
