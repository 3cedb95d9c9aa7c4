"""Parts of a data set that are scored on their own: size, distance, occlusion, weather, ...

A slice of pictures keeps whole pictures. A slice of objects keeps every picture: the other objects
may be found but need not be. A false alarm has a size of its own, but no distance and no
occlusion, so it counts in every slice of those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from perception.evaluate.coco import SIZES
from perception.evaluate.matching import Matches, match
from perception.evaluate.tables import Bools, BoxTables, Floats, Ints, Results, Truth

DISTANCE_EDGES = (0.0, 20.0, 40.0, 80.0, float("inf"))
"""Metres; 20 m is a stop at walking pace, 40 m in town, 80 m on a country road."""
SHARE_BINS: dict[str, tuple[float, float]] = {
    "none": (0.0, 0.01),
    "partly": (0.01, 0.5),
    "heavily": (0.5, 1.01),
}
"""Hidden or cut-off share of an object, 0 to 1; upper limits are exclusive."""
MAX_VALUES = 20
"""An attribute with more values than this is a name or a number, not a condition."""


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """One part. pictures: bool (P,); truth: bool (G,); results: bool (D,); None keeps all.

    label: the only class of the slice, None for all.
    """

    dimension: str
    value: str
    label: int | None = None
    pictures: Bools | None = None
    truth: Bools | None = None
    results: Bools | None = None

    @property
    def name(self) -> str:
        """`dimension=value`, or `all`."""
        return f"{self.dimension}={self.value}" if self.dimension else "all"


EVERYTHING = Slice("", "all")


@dataclass(frozen=True, slots=True, eq=False)
class Conditions:
    """What is known beyond boxes; columns as in the tables, NaN or "" where unknown.

    attributes: attribute -> one text a picture. occlusion, truncation: float64 (G,), 0 to 1.
    distance: float64 (G,), metres.
    """

    attributes: Mapping[str, Sequence[str]]
    occlusion: Floats | None = None
    truncation: Floats | None = None
    distance: Floats | None = None


NO_CONDITIONS = Conditions(attributes={})


def build(tables: BoxTables, conditions: Conditions = NO_CONDITIONS) -> list[Slice]:
    """`all`, then every slice that holds at least one object to be found, in a fixed order."""
    slices = [
        *_by_class(tables),
        *_by_size(tables.truth, tables.results),
        *_by_distance(conditions.distance),
        *_by_share("occlusion", conditions.occlusion),
        *_by_share("truncation", conditions.truncation),
        *_by_attribute(conditions.attributes),
    ]
    return [EVERYTHING, *(part for part in slices if _objects(tables, part))]


def record(tables: BoxTables, part: Slice) -> Matches:
    """The matches of one slice, pictures outside it removed."""
    keep_truth = _kept(part, tables.truth.image, tables.truth.labels)
    keep_results = _kept(part, tables.results.image, tables.results.labels)
    truth_in = None if part.truth is None else part.truth[keep_truth]
    results_in = None if part.results is None else part.results[keep_results]
    tables = replace(tables, truth=tables.truth[keep_truth], results=tables.results[keep_results])
    return match(tables, truth_in=truth_in, results_in=results_in)


def picture_count(tables: BoxTables, part: Slice) -> int:
    """Pictures in a slice."""
    return len(tables.pictures) if part.pictures is None else int(part.pictures.sum())


def _kept(part: Slice, image: Ints, labels: Ints) -> Bools:
    """bool (N,): rows of the slice's pictures and class."""
    keep = np.ones(len(image), dtype=np.bool_)
    if part.pictures is not None:
        keep &= part.pictures[image]
    if part.label is not None:
        keep &= labels == part.label
    return keep


def _objects(tables: BoxTables, part: Slice) -> int:
    inside = _kept(part, tables.truth.image, tables.truth.labels) & ~tables.truth.crowd
    return int((inside if part.truth is None else inside & part.truth).sum())


def _by_class(tables: BoxTables) -> Iterable[Slice]:
    if len(tables.names) < 2:
        return
    for label, name in enumerate(tables.names):
        yield Slice("class", name, label=label)


def _by_size(truth: Truth, results: Results) -> Iterable[Slice]:
    for name, (low, high) in SIZES.items():
        if name != "all":
            yield Slice(
                "size",
                name,
                truth=(truth.areas >= low) & (truth.areas <= high),
                results=(results.areas >= low) & (results.areas <= high),
            )


def _by_distance(distance: Floats | None) -> Iterable[Slice]:
    if distance is None:
        return
    for low, high in zip(DISTANCE_EDGES[:-1], DISTANCE_EDGES[1:], strict=True):
        name = f"{low:g}-{high:g} m" if np.isfinite(high) else f"over {low:g} m"
        yield Slice("distance", name, truth=(distance >= low) & (distance < high))


def _by_share(dimension: str, share: Floats | None) -> Iterable[Slice]:
    if share is None:
        return
    for name, (low, high) in SHARE_BINS.items():
        yield Slice(dimension, name, truth=(share >= low) & (share < high))


def _by_attribute(attributes: Mapping[str, Sequence[str]]) -> Iterable[Slice]:
    for key in sorted(attributes):
        values: npt.NDArray[np.str_] = np.array([str(value) for value in attributes[key]])
        known = sorted({str(value) for value in values} - {""})
        if len(known) > MAX_VALUES:
            continue
        for value in known:
            yield Slice(key, value, pictures=values == value)
