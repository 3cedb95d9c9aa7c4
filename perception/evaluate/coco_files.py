"""COCO ground truth and result files as columns, strictly checked.

Not the data set reader: a figure that must equal the reference to 1e-6 needs boxes in float64 and
the segmented `area`, which a data set for training does not keep; and where a data set reader
reports a fault and goes on, a score must refuse, because a file that lost rows still scores.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from perception.errors import InputError
from perception.evaluate.tables import (
    Bools,
    BoxTables,
    Floats,
    Ints,
    Results,
    Truth,
    no_collection,
    with_regions,
)
from perception.files import is_finite_number, read_text

MAX_FAULTS_SHOWN = 20
MAX_VALUES_SHOWN = 5
PICTURE_KEYS = ("weather", "timeofday", "time_of_day", "scene", "camera")
"""Keys of an image entry that become slices, beside everything under its `attributes`."""
SEQUENCE_KEYS = ("sequence", "video_id", "seq_name")
FRACTIONS = ("occlusion", "truncation", "distance")

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class CocoTruth:
    """A ground truth file.

    image_ids, category_ids: id in the file -> position in `pictures`, `names`.
    class_names: `name` of each category as the file has it, "" none; `names` tells apart by id.
    attributes: attribute -> one text a picture, "" unknown.
    truth: the annotations in the order of the file, then the ignore regions of the pictures, each
        as a crowd of every class.
    occlusion, truncation: float64 (G,), 0 to 1, NaN unknown. distance: metres, NaN unknown.
    sequences: one text a picture, "" unknown.
    """

    path: str
    pictures: tuple[str, ...]
    names: tuple[str, ...]
    image_ids: Mapping[Any, int]
    category_ids: Mapping[Any, int]
    truth: Truth
    class_names: tuple[str, ...] = ()
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sequences: tuple[str, ...] = ()
    occlusion: Floats = field(default_factory=lambda: np.zeros(0))
    truncation: Floats = field(default_factory=lambda: np.zeros(0))
    distance: Floats = field(default_factory=lambda: np.zeros(0))

    def tables(self, results: Results) -> BoxTables:
        """Tables of this ground truth with some model's results."""
        return BoxTables(self.pictures, self.names, self.truth, results)


def read_json(path: str | Path) -> Any:
    """Any JSON value; raises InputError naming the line of text that is not JSON."""
    text = read_text(path)
    # Several times faster, and strict; what it refuses the standard decoder reads or explains.
    with contextlib.suppress(msgspec.DecodeError, RecursionError):
        return msgspec.json.decode(text)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}:{error.lineno}: not valid JSON at column {error.colno}: {error.msg}"
        ) from error
    except (RecursionError, ValueError) as error:
        raise InputError(f"{path}: not usable JSON: {error}") from error


@no_collection()
def read_truth(path: str | Path) -> CocoTruth:
    """Read a COCO instances file; raises InputError with every fault, by index."""
    data = read_json(path)
    if not isinstance(data, dict):
        raise InputError(f"{path}: expected an object with images, annotations and categories")
    images, annotations, categories = (
        _rows(path, data, key) for key in ("images", "annotations", "categories")
    )
    image_ids = _ids(path, "images", images)
    category_ids = _ids(path, "categories", categories)
    check = _Checker(str(path), "annotations", annotations, image_ids, category_ids)
    truth = Truth(
        image=check.index("image_id", image_ids),
        labels=check.index("category_id", category_ids),
        boxes=check.boxes(),
        areas=_areas(annotations, check),
        crowd=check.flags("iscrowd"),
    )
    check.finish(_truth_fault)
    truth = with_regions(truth, _ignore_regions(path, images), len(categories))
    return CocoTruth(
        path=str(path),
        pictures=tuple(str(row.get("file_name", row["id"])) for row in images),
        names=_class_names(categories),
        image_ids=image_ids,
        category_ids=category_ids,
        truth=truth,
        class_names=tuple(str(row.get("name") or "") for row in categories),
        attributes=_picture_attributes(images),
        sequences=tuple(
            next((str(row[key]) for key in SEQUENCE_KEYS if row.get(key) not in (None, "")), "")
            for row in images
        ),
        **{name: _fraction(annotations, name, len(truth)) for name in FRACTIONS},
    )


class _Result(msgspec.Struct, gc=False):
    """A result as it should be; lists of these are decoded in half the time of dictionaries."""

    image_id: int | str
    category_id: int | str
    bbox: tuple[float, float, float, float]
    score: float


@no_collection()
def read_results(path: str | Path, truth: CocoTruth) -> Results:
    """Read COCO results for this ground truth; raises InputError with every fault, by index.

    A list of results, or an object whose `annotations` are results. As `waysight detect` writes
    them, `image_id` may be a picture's file name, with its folders, with further ones before them
    or without any where one picture alone is called so, and `category` a class name in place of
    `category_id`.
    """
    sound = _sound_results(path, truth)
    return _checked_results(path, truth) if sound is None else sound


def _sound_results(path: str | Path, truth: CocoTruth) -> Results | None:
    """The results of a list without any fault, None for everything else."""
    try:
        rows = msgspec.json.decode(Path(path).read_bytes(), type=list[_Result])
        image = [truth.image_ids[row.image_id] for row in rows]
        labels = [truth.category_ids[row.category_id] for row in rows]
    except (OSError, ValueError, KeyError, RecursionError):
        return None
    boxes = np.array([row.bbox for row in rows], dtype=np.float64).reshape(-1, 4)
    scores = np.array([row.score for row in rows], dtype=np.float64)
    if not (np.isfinite(boxes).all() and (boxes[:, 2:] >= 0).all() and _are_scores(scores)):
        return None
    return Results(np.array(image, np.int64), np.array(labels, np.int64), boxes, scores)


def _checked_results(path: str | Path, truth: CocoTruth) -> Results:
    data = read_json(path)
    place = "results"
    if isinstance(data, dict) and "annotations" in data:
        data, place = data["annotations"], "annotations"
    if not isinstance(data, list):
        raise InputError(f"{path}: expected a list of results, found {type(data).__name__}")
    rows = _objects(path, place, data)
    files, classes = _by_file_name(truth), _by_class_name(truth)
    called = {row["image_id"] for row in rows if isinstance(row.get("image_id"), str)}
    image_ids = {**_by_tail(called, truth.pictures), **_unique(files), **truth.image_ids}
    check = _Checker(
        str(path), place, rows, image_ids, truth.category_ids, _unique(classes), (files, classes)
    )
    results = Results(
        image=check.index("image_id", image_ids),
        labels=check.labels(),
        boxes=check.boxes(),
        scores=check.scores(),
    )
    check.finish(_result_fault)
    return results


Positions = Mapping[str, Sequence[int]]
"""Name -> the positions of all that are called so."""


def _by_file_name(truth: CocoTruth) -> Positions:
    """Pictures by file name; by its last part where no picture has that as its whole name."""
    whole: dict[str, list[int]] = {}
    last: dict[str, list[int]] = {}
    for number, name in enumerate(truth.pictures):
        whole.setdefault(name, []).append(number)
        last.setdefault(name.rpartition("/")[2], []).append(number)
    return last | whole


def _by_tail(names: Collection[str], pictures: Sequence[str]) -> dict[str, int]:
    """Pictures by names that end in their file name, as images/train/1.jpg does in train/1.jpg.

    Only names that alone mean their picture: of images/train/1.jpg and images/val/1.jpg, one would
    be scored on the labels of the other's 1.jpg.
    """
    counts = Counter(pictures)
    known = {name: at for at, name in enumerate(pictures) if counts[name] == 1}
    meant: dict[int, set[str]] = {}
    for name in names:
        parts = name.split("/")
        tails = ("/".join(parts[i:]) for i in range(len(parts)))
        tail = next((tail for tail in tails if tail in known), None)
        if tail is not None:
            meant.setdefault(known[tail], set()).add(name)
    return {name: at for at, found in meant.items() if len(found) == 1 for name in found}


def _by_class_name(truth: CocoTruth) -> Positions:
    found: dict[str, list[int]] = {}
    for number, name in enumerate(truth.class_names):
        if name:
            found.setdefault(name, []).append(number)
    return found


def _unique(names: Positions) -> dict[Any, int]:
    return {name: found[0] for name, found in names.items() if len(found) == 1}


class _Checker:
    """Builds columns fast; only when one does not come out is each row looked at for its fault.

    class_names: name -> position, where `category` may stand for `category_id`.
    names: of pictures and classes, to tell a name of several from one of none.
    """

    def __init__(
        self,
        path: str,
        place: str,
        rows: Sequence[Row],
        image_ids: Mapping[Any, int],
        category_ids: Mapping[Any, int],
        class_names: Mapping[Any, int] | None = None,
        names: tuple[Positions, Positions] = ({}, {}),
    ) -> None:
        self.path = path
        self.place = place
        self.rows = rows
        self.image_ids = image_ids
        self.category_ids = category_ids
        self.class_names = class_names
        self.names = names
        self.sound = True

    def index(self, key: str, known: Mapping[Any, int]) -> Ints:
        try:
            found = [known[row[key]] for row in self.rows]
        except (KeyError, TypeError):
            self.sound = False
            return np.zeros(len(self.rows), dtype=np.int64)
        return np.array(found, dtype=np.int64)

    def labels(self) -> Ints:
        """`category_id` of each row, or its `category` where it has none."""
        try:
            found = [known[row[key]] for row in self.rows for key, known in [self._category(row)]]
        except (KeyError, TypeError):
            self.sound = False
            return np.zeros(len(self.rows), dtype=np.int64)
        return np.array(found, dtype=np.int64)

    def flags(self, key: str) -> Bools:
        found = [row.get(key) for row in self.rows]
        self.sound &= all(map(_is_flag, found))
        return np.array([bool(value) for value in found], dtype=np.bool_)

    def numbers(self, key: str) -> Floats:
        return self._column([row.get(key) for row in self.rows], (len(self.rows),))

    def scores(self) -> Floats:
        scores = self.numbers("score")
        self.sound &= _are_scores(scores)
        return scores

    def boxes(self) -> Floats:
        boxes = self._column([row.get("bbox") for row in self.rows], (len(self.rows), 4))
        self.sound &= bool((boxes[:, 2:] >= 0).all())
        return boxes

    def _column(self, values: list[Any], shape: tuple[int, ...]) -> Floats:
        if not values:
            return np.zeros(shape)
        try:
            column = np.array(values)
        except (ValueError, OverflowError):
            column = np.zeros(0, dtype=object)
        if column.shape != shape or column.dtype.kind not in "fiu" or not np.isfinite(column).all():
            self.sound = False
            return np.zeros(shape)
        return column.astype(np.float64)

    def finish(self, fault: Callable[[Row], str]) -> None:
        """Raise InputError naming every fault: its first row, and how many more rows have it."""
        if self.sound:
            return
        faults: dict[str, list[int]] = {}
        for number, row in enumerate(self.rows):
            reason = self._id_fault(row) or fault(row)
            if reason:
                faults.setdefault(reason, []).append(number)
        total = sum(map(len, faults.values()))
        lines = [f"{total} unusable entries"]
        for reason, found in list(faults.items())[:MAX_FAULTS_SHOWN]:
            again = f" (and {len(found) - 1} more like it)" if len(found) > 1 else ""
            lines.append(f"{self.path}: {self.place}[{found[0]}]: {reason}{again}")
        rest = sum(map(len, list(faults.values())[MAX_FAULTS_SHOWN:]))
        raise InputError("\n  ".join([*lines, *([f"... and {rest} more"] if rest else [])]))

    def _category(self, row: Row) -> tuple[str, Mapping[Any, int]]:
        """The key that names the row's class, and its values."""
        if self.class_names is not None and "category_id" not in row and "category" in row:
            return "category", self.class_names
        return "category_id", self.category_ids

    def _id_fault(self, row: Row) -> str:
        for (key, known), where, names in (
            (("image_id", self.image_ids), "images", self.names[0]),
            (self._category(row), "categories", self.names[1]),
        ):
            if key not in row:
                return f"has no {key}"
            value = row[key]
            if isinstance(value, (int, str, float)) and value in known:
                continue
            several = len(names.get(value, ())) if isinstance(value, str) else 0
            if several > 1 and key != "category_id":
                return f"{key} {value!r} is the name of {several} {where} of the ground truth"
            there = _some(names if isinstance(value, str) else known)
            return f"{key} {value!r} is not among the {where} of the ground truth{there}"
        return ""


def _some(known: Collection[Any]) -> str:
    """What there is instead, for the end of a sentence; a name that is nearly right shows why."""
    shown = ", ".join(repr(value) for value in islice(known, MAX_VALUES_SHOWN))
    more = f" and {len(known) - MAX_VALUES_SHOWN} more" if len(known) > MAX_VALUES_SHOWN else ""
    return f", which has {shown}{more}" if shown else ""


def _are_scores(scores: Floats) -> bool:
    """Whether all lie in 0..1: calibration and thresholds take them for probabilities."""
    return bool(((scores >= 0) & (scores <= 1)).all())


def _is_flag(value: object) -> bool:
    return value is None or (isinstance(value, int) and value in (0, 1))


def _box_fault(box: object) -> str:
    if not isinstance(box, list) or len(box) != 4 or not all(map(is_finite_number, box)):
        return f"bbox is {_short(box)}, expected 4 finite numbers"
    return f"bbox {_short(box)} has a negative size" if box[2] < 0 or box[3] < 0 else ""


def _truth_fault(row: Row) -> str:
    if fault := _box_fault(row.get("bbox")):
        return fault
    if "area" in row and not is_finite_number(row["area"]):
        return f"area is {_short(row['area'])}, expected a finite number"
    if not _is_flag(row.get("iscrowd")):
        return f"iscrowd is {_short(row['iscrowd'])}, expected 0 or 1"
    return ""


def _result_fault(row: Row) -> str:
    if "score" not in row:
        return "has no score"
    if not is_finite_number(row["score"]):
        return f"score is {_short(row['score'])}, expected a finite number"
    if not 0 <= row["score"] <= 1:
        return f"score is {_short(row['score'])}, expected 0 to 1"
    return _box_fault(row.get("bbox"))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _areas(annotations: Sequence[Row], check: _Checker) -> Floats:
    """The `area` of each annotation; width times height where the file has none."""
    if all("area" in row for row in annotations):
        return check.numbers("area")
    filled = []
    for row in annotations:
        box = row.get("bbox")
        usable = isinstance(box, list) and len(box) == 4 and all(map(is_finite_number, box))
        filled.append(row["area"] if "area" in row else box[2] * box[3] if box and usable else 0.0)
    return check._column(filled, (len(filled),))


def _rows(path: str | Path, data: Mapping[str, Any], key: str) -> list[Row]:
    value = data.get(key)
    if not isinstance(value, list):
        raise InputError(f"{path}: {key!r} is {_short(value)}, expected a list")
    return _objects(path, key, value)


def _objects(path: str | Path, place: str, values: list[Any]) -> list[Row]:
    odd = next((i for i, value in enumerate(values) if not isinstance(value, dict)), None)
    if odd is not None:
        raise InputError(f"{path}: {place}[{odd}] is {_short(values[odd])}, expected an object")
    return values


def _ids(path: str | Path, place: str, rows: Sequence[Row]) -> dict[Any, int]:
    ids: dict[Any, int] = {}
    for number, row in enumerate(rows):
        value = row.get("id")
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise InputError(f"{path}: {place}[{number}]: id is {_short(value)}, expected a number")
        if value in ids:
            raise InputError(f"{path}: {place}[{number}]: id {value!r} occurs twice")
        ids[value] = number
    return ids


def _class_names(categories: Sequence[Row]) -> tuple[str, ...]:
    """Names in file order; the id is added to a name that is missing or occurs twice."""
    names = [str(row.get("name") or "class") for row in categories]
    return tuple(
        name if names.count(name) == 1 and row.get("name") else f"{name} ({row['id']})"
        for name, row in zip(names, categories, strict=True)
    )


def _picture_attributes(images: Sequence[Row]) -> dict[str, tuple[str, ...]]:
    flat = []
    for row in images:
        nested = row.get("attributes")
        values = (
            {str(key): value for key, value in nested.items()} if isinstance(nested, dict) else {}
        )
        values |= {key: row[key] for key in PICTURE_KEYS if key in row}
        flat.append({k: str(v) for k, v in values.items() if isinstance(v, (str, int, float))})
    keys = sorted({key for row in flat for key in row})
    return {key: tuple(row.get(key, "") for row in flat) for key in keys}


def _ignore_regions(path: str | Path, images: Sequence[Row]) -> list[Floats]:
    """float64 (K, 4) xyxy of each picture's `ignore_regions`, the key that our COCO writer uses."""
    regions = []
    for number, row in enumerate(images):
        boxes = row.get("ignore_regions") or []
        for box in boxes if isinstance(boxes, list) else [boxes]:
            if fault := _box_fault(box):
                raise InputError(f"{path}: images[{number}]: ignore_regions: {fault}")
        left_top_size = np.array(boxes, dtype=np.float64).reshape(-1, 4)
        regions.append(
            np.hstack([left_top_size[:, :2], left_top_size[:, :2] + left_top_size[:, 2:]])
        )
    return regions


def _fraction(annotations: Sequence[Row], name: str, rows: int) -> Floats:
    """A number of each annotation, on itself or under its `attributes`; NaN where it has none.

    rows: length of the column; what follows the annotations is NaN.
    """
    values = np.full(rows, np.nan)
    for number, row in enumerate(annotations):
        value = row.get(name)
        if value is None and "attributes" in row:
            nested = row["attributes"]
            value = nested.get(name) if isinstance(nested, dict) else None
        if value is not None and is_finite_number(value):
            values[number] = float(value)
    return values
