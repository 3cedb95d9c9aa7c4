"""Run a detector over a data set with an engine, and write what it finds as COCO results."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from perception.datasets.dataset import Dataset, ParquetStore
from perception.datasets.engine import Engine, LocalEngine
from perception.datasets.formats.coco import picture_id
from perception.datasets.opening import index_file
from perception.datasets.report import Finding, Report
from perception.datasets.rows import FINDING, finding_array, lists
from perception.datasets.sample import BagPicture, Sample
from perception.errors import InputError
from perception.files import atomic_path
from perception.runtime.settings import DetectorSettings

if TYPE_CHECKING:
    from perception.runtime.detector import Detector

PICTURES_A_TASK = 128
"""Pictures of one task of an engine: a second or two of work."""


@lru_cache(maxsize=1)
def load_model(model: DetectorSettings) -> Detector:
    """The detector, loaded once a process. Raises InputError for a model that cannot be used."""
    return model.open()


DETECTED = pa.schema(
    [
        ("name", pa.string()),
        ("id", pa.string()),
        ("source", pa.string()),  # label file, whose ids are numbers or text
        ("place", pa.string()),  # path below the root, "" for a picture of a bag
        ("boxes", pa.list_(pa.float32())),  # left, top, width, height
        ("scores", pa.list_(pa.float32())),
        ("labels", pa.list_(pa.int64())),
        ("findings", pa.list_(FINDING)),  # why there is no result
    ]
)


@dataclass
class Detected:
    """What was found: counts, and in `report` every picture without a result."""

    out: Path
    pictures: int = 0
    failed: int = 0
    detections: int = 0
    classes: Counter[str] = field(default_factory=Counter)
    report: Report = field(default_factory=Report)

    def to_json(self) -> dict[str, object]:
        return {
            "out": str(self.out),
            "pictures": self.pictures,
            "failed": self.failed,
            "detections": self.detections,
            "classes": dict(sorted(self.classes.items())),
            **self.report.to_json(),
        }


def detect(
    dataset: Dataset, model: DetectorSettings, out: Path, engine: Engine | None = None
) -> Detected:
    """Run the model on every picture and write `out`: a JSON list of COCO results.

    The results of a picture have its COCO image id, or in other formats its path below the root;
    category ids are those of the data set where it has the class. Order and bytes do not depend on
    the engine (None: this process). Raises InputError when no picture could be used, and for a COCO
    set in which an image id stands for several pictures.
    """
    engine = engine or LocalEngine(workers=1)
    if dataset.format == "coco":
        _check_ids(dataset)
    names = load_model(model).names
    ids = result_ids(dataset, names)
    done = Detected(out)
    units = [
        f"{begin}:{min(begin + PICTURES_A_TASK, len(dataset))}"
        for begin in range(0, len(dataset), PICTURES_A_TASK)
    ]
    with index_file(dataset, engine.work) as index, atomic_path(out) as temporary:
        task = partial(detect_group, index, dataset.root, model)
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write("[")
            for batch in engine.map(task, units, DETECTED, "detecting"):
                for picture in batch.to_pylist():
                    for row in _results(picture, names, ids, _image_id(picture, dataset)):
                        file.write((",\n" if done.detections else "\n") + json.dumps(row))
                        done.detections += 1
                        done.classes[row["category"]] += 1
                    done.pictures += 1
                    done.failed += bool(picture["findings"])
                    done.report.extend(Finding(**item) for item in picture["findings"])
            file.write("\n]\n")
        if done.failed == done.pictures:
            why = f", the first: {done.report.findings[0].message}" if done.failed else ""
            raise InputError(
                f"{dataset.root}: none of the {done.pictures} pictures could be used{why}"
            )
    return done


def result_ids(dataset: Dataset, names: Sequence[str]) -> list[int]:
    """A category id for each class of the model: the data set's own, else numbers above those."""
    known: dict[str, int] = dict(dataset.facts.get("category_ids", {}))
    if not known:
        known = {name: i for i, name in enumerate(dataset.source_names, 1)}
    free = max(known.values(), default=0)
    strangers = [name for name in names if name not in known]
    known |= {name: free + i for i, name in enumerate(strangers, 1)}
    return [known[name] for name in names]


def _check_ids(dataset: Dataset) -> None:
    """Raise InputError when results could not be told apart by their image id."""
    seen: dict[int | str, tuple[str, str]] = {}
    for columns in dataset.columns():
        for text, source, name in zip(
            columns.values("id"), columns.values("source"), columns.values("name"), strict=True
        ):
            number = picture_id(text, source, dataset.facts)
            first = seen.setdefault(number, (source, name))
            if first != (source, name):
                raise InputError(
                    f"{dataset.root}: image id {number!r} is that of {first[1]} in {first[0]} and "
                    f"of {name} in {source}; name one file, coco:{dataset.root / source}"
                )


def _image_id(picture: dict[str, Any], dataset: Dataset) -> int | str:
    if dataset.format == "coco":
        return picture_id(picture["id"], picture["source"], dataset.facts)
    place: str = picture["place"] or picture["name"]
    return place


def _results(
    picture: dict[str, Any], names: Sequence[str], ids: Sequence[int], image_id: int | str
) -> Iterator[dict[str, Any]]:
    boxes = np.asarray(picture["boxes"], np.float32).reshape(-1, 4)
    for box, score, label in zip(boxes, picture["scores"], picture["labels"], strict=True):
        yield {
            "image_id": image_id,
            "category_id": ids[label],
            "bbox": [round(float(value), 2) for value in box],
            "score": round(score, 5),
            "category": names[label],
            "file_name": picture["name"],
        }


def detect_group(
    index: Path, root: Path, model: DetectorSettings, unit: str
) -> Iterator[pa.RecordBatch]:
    """Detect in the pictures `begin:end` of an index; the rows of DETECTED."""
    detector = load_model(model)
    dataset = Dataset(ParquetStore(index), root)
    begin, end = map(int, unit.split(":"))
    samples = dataset[begin:end]
    boxes, scores, labels, findings = [], list[float](), list[int](), list[Finding]()
    ends, finding_ends = [0], [0]
    for sample in samples:
        try:
            found = detector(dataset.load(sample))
            if not found.valid:
                raise InputError(found.reason)
            boxes.append(found.xywh)
            scores += found.scores.tolist()
            labels += found.labels.tolist()
        except InputError as error:
            findings.append(_fault(sample, root, str(error)))
        ends.append(len(scores))
        finding_ends.append(len(findings))
    box_ends = np.asarray(ends, np.int64)
    flat = np.concatenate(boxes).reshape(-1) if boxes else np.zeros(0)
    arrays = [
        pa.array([sample.name for sample in samples], pa.string()),
        pa.array([sample.id for sample in samples], pa.string()),
        pa.array([sample.source for sample in samples], pa.string()),
        pa.array([_place(sample, root) for sample in samples], pa.string()),
        lists(box_ends * 4, pa.array(flat, pa.float32())),
        lists(box_ends, pa.array(scores, pa.float32())),
        lists(box_ends, pa.array(labels, pa.int64())),
        lists(np.asarray(finding_ends, np.int64), finding_array(findings)),
    ]
    yield pa.RecordBatch.from_arrays(arrays, schema=DETECTED)


def _place(sample: Sample, root: Path) -> str:
    if sample.image is None or isinstance(sample.image, BagPicture):
        return ""
    return sample.image.relative_to(root).as_posix()


def _fault(sample: Sample, root: Path, text: str) -> Finding:
    place = _place(sample, root)
    text = text.removeprefix(f"{sample.image}: ").removeprefix(f"{root}: ")
    return Finding("error", "no-result", text, place or sample.source, 0, sample.name)
