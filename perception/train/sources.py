"""Training and validation pictures of a run, checked before its first step."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perception.errors import InputError
from perception.train.cache import PictureCache, open_cache
from perception.train.loader import Source
from perception.train.sets import Picture, SetSettings, read_set
from perception.train.settings import DataSettings, RunSettings
from perception.train.validate import ValSet

#: Share of the picture above which an object counts as large.
LARGE = 0.05


def load_source(settings: RunSettings) -> Source:
    """All training pictures; InputError lists every label that cannot be taught."""
    data = settings.data
    sets = [read_set(one, settings.model, Path(data.root)) for one in data.train]
    labels = np.concatenate([p.labels for s in sets for p in s] or [np.zeros(0, np.int64)])
    counts = np.bincount(labels[labels >= 0], minlength=len(settings.model.names))
    pictures = [
        picture
        for one, found in zip(data.train, sets, strict=True)
        for picture in weigh(found, one, counts, data)
    ]
    if not any(picture.draw > 0 for picture in pictures):
        raise InputError("data.train: no pictures to train on")
    return Source(pictures, [_cache(found, data) for found in sets])


def load_val(settings: RunSettings) -> list[ValSet]:
    """The sets to score on."""
    found = []
    for name, one in zip(val_names(settings.data.val), settings.data.val, strict=True):
        pictures = read_set(one, settings.model, Path(settings.data.root))
        found.append(ValSet(name, pictures, _cache(pictures, settings.data), one.annotated))
    return found


def val_names(sets: Sequence[SetSettings]) -> list[str]:
    """A name for each set: that of its folder; the whole path and split where several share it.

    Scores are kept by name: of two sets with one name the first would be lost.
    """
    short = [_folder_name(Path(one.annotations)) for one in sets]
    whole = [" ".join(filter(None, (one.annotations, one.split))) for one in sets]
    names = [s if short.count(s) == 1 else w for s, w in zip(short, whole, strict=True)]
    return [n if names.count(n) == 1 else f"{n} #{i}" for i, n in enumerate(names)]


def _folder_name(path: Path) -> str:
    """The name of a file's folder, in COCO's own layout of the one above `annotations`."""
    folder = path.parent.parent if path.parent.name == "annotations" else path.parent
    return folder.name or path.stem


def remarks(source: Source, val: Sequence[ValSet]) -> list[str]:
    """What the owner of the sets should know, a sentence each."""
    found = []
    lost = sum(p.lost for p in [*source.pictures, *(p for one in val for p in one.pictures)])
    if lost:
        found.append(f"{lost} labels with less than a pixel inside their picture are left out")
    taught = {picture.file for picture in source.pictures}
    for one in val:
        both = sum(picture.file in taught for picture in one.pictures)
        if both:
            found.append(f"{one.name}: {both} of {len(one.pictures)} pictures are trained on too")
    return found


def _cache(pictures: list[Picture], data: DataSettings) -> PictureCache:
    return open_cache([picture.file for picture in pictures], Path(data.cache), data.longest)


def weigh(
    pictures: list[Picture], settings: SetSettings, counts: NDArray[np.int64], data: DataSettings
) -> list[Picture]:
    """Pictures with how often each is drawn: set weight, rarest class, large objects.

    counts (C,): how often each class is labelled in all sets.
    """
    out = []
    for picture in pictures:
        known = picture.labels[picture.labels >= 0]
        rarest = max(1, int(counts[known].min())) if len(known) else int(counts.max(initial=1))
        rare = float((counts.max(initial=1) / rarest) ** data.rare_power)
        area = (picture.boxes[:, 2:] - picture.boxes[:, :2]).prod(axis=1)
        large = data.large_boost if (area > LARGE * picture.width * picture.height).any() else 1.0
        out.append(dataclasses.replace(picture, draw=settings.weight * rare * large))
    return out
