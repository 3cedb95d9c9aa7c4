"""Confidence intervals and paired comparison by resampling pictures.

A resample draws as many units as there are, with replacement; a unit is a picture, or a whole
sequence where the data set has sequences, because neighbouring frames are not independent. Both
models are scored on the same resamples, so that a difference is not hidden by hard pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from perception.errors import InputError
from perception.evaluate.matching import ClassCurve, average_precisions, class_curves
from perception.evaluate.slices import Slice, picture_count, record
from perception.evaluate.tables import BoxTables, Floats, Ints

METRICS = ("ap", "ap50", "ap75")
SAMPLES = 500
CONFIDENCE = 0.95
SEED = 0

MIN_UNITS = 10
"""Units with objects below which nothing is resampled: drawing from a handful of pictures again and
again gives an interval that says more about the drawing than about the model."""

Verdict = Literal["better", "worse", "not distinguishable", "too few pictures", "undefined"]


@dataclass(frozen=True, slots=True)
class Resampling:
    """How intervals are made: number of resamples, confidence level (0 to 1) and seed."""

    samples: int = SAMPLES
    confidence: float = CONFIDENCE
    seed: int = SEED

    def __post_init__(self) -> None:
        if self.samples < 2:
            raise InputError(f"samples is {self.samples}, expected at least 2")
        if not 0.0 < self.confidence < 1.0:
            raise InputError(f"confidence is {self.confidence}, expected between 0 and 1")


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its bootstrap interval; None where undefined, not resampled or too few."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class SliceScore:
    """One slice of one model: metric name -> figure with interval."""

    name: str
    pictures: int
    objects: int
    figures: dict[str, Interval]

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class SliceComparison:
    """B against A on one slice and one metric; difference is B - A."""

    name: str
    metric: str
    pictures: int
    objects: int
    a: float | None
    b: float | None
    difference: Interval
    verdict: Verdict

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values."""
        return asdict(self)


def units(pictures: int, sequences: Sequence[str] = ()) -> Ints:
    """int64 (P,), the resampling unit of each picture: its sequence, itself without one."""
    if not any(sequences):
        return np.arange(pictures, dtype=np.int64)
    own = [text or f"\0{number}" for number, text in enumerate(sequences)]
    return np.unique(own, return_inverse=True)[1].astype(np.int64).reshape(-1)


def resamples(unit: Ints, settings: Resampling) -> Iterator[Floats]:
    """float64 (P,) weights, how often each picture was drawn; the same for the same seed."""
    count = int(unit.max()) + 1 if len(unit) else 0
    rng = np.random.default_rng(settings.seed)
    for _ in range(settings.samples):
        drawn = np.bincount(rng.integers(0, max(count, 1), count), minlength=count)
        yield drawn.astype(np.float64)[unit]


def figures(curves: tuple[ClassCurve, ...], weights: Floats | None = None) -> Floats:
    """float64 (3,): ap, ap50, ap75 as in METRICS; NaN where undefined."""
    values = average_precisions(curves, weights)
    return np.array([_mean(values), _mean(values[:1]), _mean(values[5:6])])


def _mean(values: Floats) -> float:
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if defined.size else float("nan")


def _enough(curves: tuple[ClassCurve, ...], unit: Ints) -> bool:
    """Whether objects stand in at least MIN_UNITS units."""
    if not curves:
        return False
    objects = np.sum([curve.objects for curve in curves], axis=0)
    return len(np.unique(unit[objects > 0])) >= MIN_UNITS


def score_slices(
    tables: BoxTables,
    slices: Sequence[Slice],
    settings: Resampling | None,
    *,
    sequences: Sequence[str] = (),
    progress: Callable[[str], None] = lambda name: None,
) -> list[SliceScore]:
    """Every slice's figures, with intervals unless settings is None."""
    unit = units(len(tables.pictures), sequences)
    scores = []
    for part in slices:
        progress(part.name)
        matches = record(tables, part)
        curves = class_curves(matches)
        value = figures(curves)
        intervals = [Interval(_or_none(item), None, None) for item in value]
        if settings is not None and _enough(curves, unit):
            drawn = np.array([figures(curves, weights) for weights in resamples(unit, settings)])
            intervals = [
                _interval(item, drawn[:, i], settings.confidence) for i, item in enumerate(value)
            ]
        scores.append(
            SliceScore(
                name=part.name,
                pictures=picture_count(tables, part),
                objects=int(matches.counted.sum()),
                figures=dict(zip(METRICS, intervals, strict=True)),
            )
        )
    return scores


def compare(
    first: BoxTables,
    second: BoxTables,
    slices: Sequence[tuple[Slice, Slice]],
    settings: Resampling,
    *,
    sequences: Sequence[str] = (),
    progress: Callable[[str], None] = lambda name: None,
) -> list[SliceComparison]:
    """Say of each slice and metric whether `second` is better, worse or not distinguishable.

    slices: the same slice built for the first and for the second tables.
    """
    unit = units(len(first.pictures), sequences)
    rows = []
    for part, other in slices:
        progress(part.name)
        matches = record(first, part)
        one, two = class_curves(matches), class_curves(record(second, other))
        a, b = figures(one), figures(two)
        enough = _enough(one, unit)
        drawn = np.array(
            [
                figures(two, weights) - figures(one, weights)
                for weights in (resamples(unit, settings) if enough else ())
            ]
        ).reshape(-1, len(METRICS))
        for i, metric in enumerate(METRICS):
            difference = Interval(_or_none(b[i] - a[i]), None, None)
            if enough:
                difference = _interval(b[i] - a[i], drawn[:, i], settings.confidence)
            rows.append(
                SliceComparison(
                    name=part.name,
                    metric=metric,
                    pictures=picture_count(first, part),
                    objects=int(matches.counted.sum()),
                    a=_or_none(a[i]),
                    b=_or_none(b[i]),
                    difference=difference,
                    verdict=_verdict(difference),
                )
            )
    return rows


def _interval(value: float, drawn: Floats, confidence: float) -> Interval:
    defined = drawn[~np.isnan(drawn)]
    if np.isnan(value) or not defined.size:
        return Interval(None, None, None)
    tail = 100.0 * (1.0 - confidence) / 2.0
    low, high = np.percentile(defined, [tail, 100.0 - tail])
    return Interval(float(value), float(low), float(high))


def _verdict(difference: Interval) -> Verdict:
    if difference.value is None:
        return "undefined"
    if difference.low is None or difference.high is None:
        return "too few pictures"
    if difference.low > 0:
        return "better"
    return "worse" if difference.high < 0 else "not distinguishable"


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
