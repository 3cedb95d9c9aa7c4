"""Missing labels from another detector: strong finds become labels, weak ones are ignored."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from perception.contract import ModelContract
from perception.errors import InputError
from perception.files import write_json
from perception.geometry.boxes import nms
from perception.models.settings import ModelSettings
from perception.runtime.detector import Detector
from perception.sources import read_bgr
from perception.train.coco_json import read_coco
from perception.train.sets import channel_of
from perception.train.settings import RunSettings

#: Finds below this score are taken for background.
LOWEST = 0.05
#: Overlap from which two finds of one ranking channel are the same object.
SAME = 0.5


def fill_labels(settings: RunSettings, log: Any = print) -> RunSettings:
    """Settings in which every set with `fill_above` names a file of the teacher's finds.

    A channel that the teacher fills counts as annotated. Finds are kept in the cache folder; they
    are made again only when pictures, teacher or class map change. Without `data.teacher` the
    settings come back as they are.
    """
    data = settings.data
    if not data.teacher.model:
        return settings
    detector, index = _open(settings)
    train = []
    for one in data.train:
        if one.fill_above and not one.filled:
            source = Path(data.root) / one.annotations
            if source.suffix != ".json" or not source.is_file():
                raise InputError(f"{source}: no such COCO json, which fill_above needs")
            file = _file(source, settings, detector)
            if not file.is_file():
                log(f"teacher: finding objects on the pictures of {source}")
                write_json(file, {"pictures": find(detector, index, source, settings.model)})
            channels = tuple(dict.fromkeys((*one.annotated, *one.fill_above)))
            one = dataclasses.replace(one, filled=str(file.resolve()), annotated=channels)
        train.append(one)
    return dataclasses.replace(settings, data=dataclasses.replace(data, train=tuple(train)))


def _open(settings: RunSettings) -> tuple[Detector, dict[int, int]]:
    """The teacher, and its class index -> ours."""
    teacher, names = settings.data.teacher, settings.model.names
    contract = ModelContract.from_yaml(teacher.contract) if teacher.contract else None
    detector = Detector(
        teacher.model, contract=contract, score_threshold=LOWEST, classes=list(teacher.classes)
    )
    index = {}
    for theirs, ours in teacher.classes.items():
        if ours not in names:
            raise InputError(f"data.teacher.classes: {ours!r} is none of {', '.join(names)}")
        index[detector.contract.labels.index(theirs)] = names.index(ours)
    return detector, index


def _file(source: Path, settings: RunSettings, detector: Detector) -> Path:
    """Where the finds of a set lie: a name that changes with whatever they depend on."""
    labelled = read_coco(source)
    pictures = [labelled.picture(image) for image in labelled.images.values()]
    states = [file.stat() for file in pictures if file.is_file()]
    depends = [
        str(source),
        source.stat().st_mtime_ns,
        [(state.st_size, state.st_mtime_ns) for state in states],
        # The content: networks of one kind have files of one size.
        hashlib.sha256(detector.path.read_bytes()).hexdigest(),
        detector.contract.to_json(),
        dict(settings.data.teacher.classes),
        settings.model.names,
    ]
    key = hashlib.sha256(json.dumps(depends).encode()).hexdigest()[:20]
    return Path(settings.data.cache) / f"teacher-{key}.json"


def find(
    detector: Detector, index: Mapping[int, int], source: Path, model: ModelSettings
) -> dict[str, list[list[float]]]:
    """Image id -> rows [x1, y1, x2, y2, score, name index] in pixels of the labels.

    The same object found as two kinds of the group is kept once, as the stronger.
    """
    channel = np.array([channel_of(model, label) for label in range(len(model.names))])
    found = {}
    labelled = read_coco(source)
    for key, image in labelled.images.items():
        file = labelled.picture(image)
        picture = read_bgr(file)
        result = detector(picture)
        if not result.valid:
            raise InputError(f"{file}: the teacher gives no usable result: {result.reason}")
        labels = np.array([index[int(label)] for label in result.labels], np.int64)
        kept = nms(result.boxes, result.scores, channel[labels] if len(labels) else labels, SAME)
        scale = np.tile([image["width"] / picture.shape[1], image["height"] / picture.shape[0]], 2)
        found[str(key)] = [
            [
                *np.round(result.boxes[i] * scale, 1).tolist(),
                round(float(result.scores[i]), 3),
                int(labels[i]),
            ]
            for i in kept
        ]
    return found
