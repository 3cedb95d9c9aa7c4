"""From data set samples to the columns of the evaluation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perception.datasets import Sample
from perception.detections import Detections
from perception.errors import InputError
from perception.evaluate.slices import Conditions
from perception.evaluate.tables import BoxTables, Floats, from_detections
from perception.labels import nearest


def tables(
    samples: Sequence[Sample],
    results: Sequence[Detections],
    sample_names: Sequence[str],
    names: Sequence[str],
) -> BoxTables:
    """Tables of samples against one result a sample, in the order of the samples.

    sample_names: the data set's class names; names: the model's, which the results' labels index.
    Classes meet by name. Ignore regions and crowds are kept.
    Raises InputError for an object of a class that the model does not have.
    """
    return from_detections(
        [_renamed(sample.truth, sample_names, names, sample.name) for sample in samples],
        results,
        names,
        ignore=[sample.ignore for sample in samples],
        crowd=[sample.crowd for sample in samples],
        pictures=[sample.name for sample in samples],
    )


def conditions(samples: Sequence[Sample], tables: BoxTables) -> Conditions:
    """What the samples know about pictures and objects, row by row of their `tables`."""
    rows = len(tables.truth)
    keys = sorted({key for sample in samples for key in sample.attributes})
    attributes = {key: [sample.attributes.get(key, "") for sample in samples] for key in keys}
    return Conditions(
        attributes={**attributes, "camera": [sample.camera for sample in samples]},
        occlusion=_column(samples, "occlusion", rows),
        truncation=_column(samples, "truncation", rows),
        distance=_column(samples, "distance", rows),
    )


def _column(samples: Sequence[Sample], name: str, rows: int) -> Floats:
    """float64 (rows,); the regions that follow the objects in the tables are NaN."""
    known = [np.asarray(getattr(sample, name), dtype=np.float64) for sample in samples]
    column = np.full(rows, np.nan)
    count = sum(map(len, known))
    column[:count] = np.concatenate([*known, np.zeros(0)])
    return column


def _renamed(
    truth: Detections, sample_names: Sequence[str], names: Sequence[str], picture: str
) -> Detections:
    numbers = []
    for label in truth.labels:
        name = sample_names[label]
        if name not in names:
            raise InputError(
                f"{picture}: the model has no class {name!r}{nearest(name, names)}; map it to one "
                f"of {', '.join(names)} or to ignore"
            )
        numbers.append(names.index(name))
    return Detections.create(truth.boxes, truth.scores, numbers, truth.track_ids, truth.velocities)
