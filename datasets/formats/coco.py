"""COCO json: one file a split, read as a stream.

Boxes are [left, top, width, height] in pixels from the picture's corner. Keys that COCO does not
know but other exporters write are read too: `track_id` and `score` of annotations, CVAT's
`attributes`; the keys this module writes for the rest are listed in docs/datasets.md.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perception.datasets.coco_layout import picture_folder, root_of, split_of
from perception.datasets.jsonstream import Piece, Truncated, head, pieces
from perception.datasets.pictures import read_header
from perception.datasets.plan import Plan
from perception.datasets.report import Finding, Report
from perception.datasets.rows import (
    PER_BOX,
    PER_PICTURE,
    PICTURES_A_BATCH,
    Rows,
    assemble,
    to_text,
)
from perception.datasets.sample import Sample, typed
from perception.datasets.source import EVERYTHING, Source, short
from perception.datasets.text import LIMIT, Fence, inside, is_whole, usual_split
from perception.errors import InputError

HOLDS = EVERYTHING | {"info"}
_KEYS = frozenset({"images", "annotations", "categories", "info", "licenses"})
OCCLUDED_FLAG = 0.5
"""Occlusion written for a mere flag "occluded": some share, nobody knows which."""


# What Arrow's int64 holds; anything larger is itemised like every other unusable value.
Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Image(msgspec.Struct, gc=False):
    id: int | str
    file_name: str
    width: float | None = 0
    height: float | None = 0
    video_id: int | str | None = None
    frame_id: Whole | None = None
    sequence: str | None = None
    camera: str | None = None
    split: str | None = None
    stamp_ns: Whole | None = None
    attributes: dict[str, Any] | None = None
    ignore_regions: list[list[float]] | None = None
    source_id: Any = None


class _Annotation(msgspec.Struct, gc=False):
    image_id: int | str
    category_id: Whole
    id: Whole | str | None = None
    bbox: list[float] | None = None
    iscrowd: int | bool | None = 0
    segmentation: msgspec.Raw = msgspec.Raw()
    area: Any = None
    score: float | None = None
    track_id: Whole | None = None
    occlusion: float | None = None
    truncation: float | None = None
    distance: float | None = None
    points: Whole | None = None
    velocity: list[float] | None = None
    box_3d: list[float] | None = None
    attributes: dict[str, Any] | None = None
    source_id: Any = None


class _Category(msgspec.Struct):
    id: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    name: str
    supercategory: Any = None


_T = TypeVar("_T", _Image, _Annotation, _Category)


def claims(path: Path) -> str:
    """See plan.Format."""
    files = _files(path)
    return f"{files[0].name} has images and annotations" if files else ""


def _files(path: Path) -> list[Path]:
    if path.is_file():
        candidates = [path] if path.suffix.lower() == ".json" else []
    else:
        folders = [path, *(child for child in sorted(path.iterdir()) if child.is_dir())]
        candidates = [
            file
            for folder in folders
            for file in sorted(folder.iterdir())
            if file.suffix.lower() == ".json"
        ]
    return [file for file in candidates if _looks_like_coco(file)]


_OTHER_LABELS = re.compile(r"(person_keypoints|captions|stuff|panoptic)_")


def _without_repeats(files: Sequence[Path]) -> list[Path]:
    """The files without those that label the pictures of an instances file in another way.

    COCO's own annotations folder lists every picture in up to five files of a split.
    """
    instances = {file for file in files if file.name.startswith("instances_")}
    return [
        file
        for file in files
        if not _OTHER_LABELS.match(file.name)
        or file.with_name(_OTHER_LABELS.sub("instances_", file.name, count=1)) not in instances
    ]


def _looks_like_coco(file: Path) -> bool:
    start = head(file)
    if not start.startswith(b"{") or re.match(rb'\{\s*"(frames|config)"', start):
        return False
    if re.search(rb'"(images|annotations|categories)"\s*:\s*\[', start):
        return True
    if not re.match(rb'\{\s*"(info|licenses|type)"', start):
        return False
    size = file.stat().st_size
    with file.open("rb") as stream:
        stream.seek(max(0, size - (1 << 16)))
        return bool(re.search(rb'"(images|annotations|categories)"\s*:\s*\[', stream.read()))


def plan(path: Path) -> Plan:
    """See plan.Format."""
    found = _files(path)
    files = _without_repeats(found)
    findings = Report()
    for file in found:
        if file not in files:
            text = "not read: an instances file lists the same pictures"
            findings.add("info", "same-pictures", text, file=file.relative_to(path).as_posix())
    if path.is_file():
        files = [path]
        root = root_of(path)
    else:
        root = path
    if not files:
        raise InputError(f"{path}: no COCO json with images and annotations in this folder")
    units = tuple(file.relative_to(root).as_posix() for file in files)
    return Plan("coco", root, units, None, units, findings=tuple(findings.findings))


def read(plan: Plan, units: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """See plan.Format; a unit is one json file."""
    for unit in units:
        yield from _File(plan.root, unit, len(plan.units) > 1).batches()


@dataclass
class _Boxes:
    """Columns of all annotations, a chunk for each piece of the file."""

    images: list[npt.NDArray[np.int32]] = field(default_factory=list)
    labels: list[npt.NDArray[np.int32]] = field(default_factory=list)
    boxes: list[npt.NDArray[np.float32]] = field(default_factory=list)
    lines: list[npt.NDArray[np.int32]] = field(default_factory=list)
    more: dict[str, list[Any]] = field(default_factory=dict)
    counts: list[int] = field(default_factory=list)

    def column(self, name: str) -> Any:
        """A column of PER_BOX over all annotations, None when it is all default."""
        chunks = self.more.get(name, [])
        kind, width, default = PER_BOX[name]
        if all(chunk is None for chunk in chunks):
            return None
        is_text = pa.types.is_string(kind)
        parts = []
        for chunk, count in zip(chunks, self.counts, strict=True):
            if chunk is None:
                values = [default] * count if is_text else np.full(count * width, default)
                chunk = pa.array(values, kind)
            parts.append(chunk)
        whole = all(pa.types.is_integer(part.type) for part in parts)
        one = parts[0].type if whole else kind
        return pa.chunked_array([part.cast(one) for part in parts], one).combine_chunks()


class _File:
    """One json file on its way into batches."""

    def __init__(self, root: Path, unit: str, several: bool) -> None:
        self.root, self.unit = root, unit
        self.report = Report()
        self.fence = Fence(root)
        self.ids: dict[int | str, int] = {}  # image id -> number, in order of first sight
        self.images: list[_Image] = []
        self.image_lines: list[int] = []
        self.categories: dict[int, str] = {}
        self.facts: dict[str, dict[str, Any]] = {}
        self.unkept: Counter[tuple[str, str]] = Counter()
        self.boxes = _Boxes()
        self.outlines = 0
        self.split = split_of(unit) if several else ""

    def batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for piece in pieces(self.root / self.unit, _KEYS):
                self._take(piece)
        except Truncated as error:
            self._error("truncated", str(error), 0)
        except InputError as error:
            self._error("not-json", str(error), 0)
        if self.outlines:
            self.report.add(
                "info",
                "outline",
                f"{self.outlines} outlines (segmentation) are not kept, only their boxes",
                file=self.unit,
            )
        for (what, key), count in self.unkept.items():
            text = f"{key!r} of {count} {what} is not kept"
            self.report.add("info", "key-not-kept", text, file=self.unit)
        yield from self._assemble()

    def _error(self, code: str, message: str, line: int, picture: str = "") -> None:
        self.report.add("error", code, message, file=self.unit, line=line, picture=picture)

    def _take(self, piece: Piece) -> None:
        if piece.key == "info":
            if not piece.is_array:
                self._keep("info", b"{" + piece.text + b"}")
        elif piece.key == "licenses":
            self._keep("licenses", b"[" + piece.text.strip(b", \t\r\n") + b"]")
        elif piece.key == "images":
            images, lines = self._decode(piece, _Image, "image")
            self.images += images
            self.image_lines += lines
            for image in images:
                self.ids.setdefault(image.id, len(self.ids))
            if any(isinstance(image.id, str) and is_whole(image.id) for image in images):
                self.facts["text_ids"] = {self.unit: True}
        elif piece.key == "categories":
            for category, line in zip(*self._decode(piece, _Category, "category"), strict=True):
                if category.id in self.categories:
                    self._error("duplicate-category", f"category id {category.id} again", line)
                self.categories.setdefault(category.id, category.name)
                if isinstance(category.supercategory, str):
                    above = self.facts.setdefault("supercategories", {})
                    above[category.name] = category.supercategory
        else:
            self._annotations(piece)

    def _keep(self, fact: str, text: bytes) -> None:
        """Keep a value of the top level as a fact of this file."""
        try:
            self.facts[fact] = {self.unit: json.loads(text)}
        except (ValueError, RecursionError) as error:
            self._error("bad-json", f"{fact}: {error}", 0)

    def _count_unkept(self, piece: Piece, kind: type[msgspec.Struct]) -> None:
        """Count the keys that are read past, as the first and last element of the piece have them.

        Values that say nothing (0, "", null), which exporters write by habit, do not count.
        """
        for i in {0, len(piece.starts) - 1} if len(piece.starts) else ():
            try:
                element = json.loads(piece.text[piece.starts[i] : piece.ends[i]])
            except (ValueError, RecursionError):
                continue
            if isinstance(element, dict):
                unknown = {k for k in element if element[k]} - set(kind.__struct_fields__)
                for key in sorted(unknown):
                    self.unkept.setdefault((piece.key, key), 0)
        for what, key in self.unkept:
            if what == piece.key:
                self.unkept[what, key] += piece.text.count(json.dumps(key).encode())

    def _decode(self, piece: Piece, kind: type[_T], what: str) -> tuple[list[_T], list[int]]:
        """Elements of a piece and their lines; those of the wrong form are itemised."""
        self._count_unkept(piece, kind)
        try:
            text = b"[" + piece.text.strip(b", \t\r\n") + b"]"
            values = msgspec.json.decode(text, type=list[kind])  # type: ignore[valid-type]
            if len(values) == len(piece.lines):
                return values, piece.lines.tolist()
        except (msgspec.MsgspecError, RecursionError):
            pass
        values = []
        lines = []
        if not piece.only_objects():
            line = int(piece.lines[0]) if len(piece.lines) else 0
            self._error("bad-json", f"something beside {what} objects in the list", line)
        for element, line in piece.elements():
            try:
                values.append(_lenient(element, kind))
                lines.append(line)
            except (ValueError, RecursionError, msgspec.ValidationError) as error:
                self._error("bad-json", f"not a usable {what}: {error}", line)
        return values, lines

    def _annotations(self, piece: Piece) -> None:
        kept, lines = self._decode(piece, _Annotation, "annotation")
        if any(item.bbox is None or len(item.bbox) != 4 for item in kept):
            kept, lines = self._with_box(kept, lines)
        with np.errstate(over="ignore"):
            raw = np.asarray([item.bbox for item in kept], np.float64).reshape(-1, 4)
        good = np.asarray((np.isfinite(raw) & (np.abs(raw) <= LIMIT)).all(axis=1))
        for i in np.flatnonzero(~good).tolist():
            self._error(
                "not-finite",
                f"annotation {kept[i].id}: bbox {kept[i].bbox} is not finite or not sensible",
                lines[i],
            )
        if not good.all():
            raw = raw[good]
            lines = [line for line, ok in zip(lines, good, strict=True) if ok]
            kept = [item for item, ok in zip(kept, good, strict=True) if ok]
        raw[:, 2:] += raw[:, :2]
        columns, ids = self.boxes, self.ids
        columns.images.append(
            np.asarray([ids.setdefault(item.image_id, len(ids)) for item in kept], np.int32)
        )
        columns.labels.append(_category_ids(kept))
        columns.boxes.append(raw.astype(np.float32))
        columns.lines.append(np.asarray(lines, np.int32))
        columns.counts.append(len(kept))
        self.outlines += sum(len(item.segmentation) > 2 for item in kept)
        for name, values in _optional(kept).items():
            columns.more.setdefault(name, []).append(values)

    def _with_box(
        self, items: list[_Annotation], lines: list[int]
    ) -> tuple[list[_Annotation], list[int]]:
        good = []
        for i, item in enumerate(items):
            if item.bbox is not None and len(item.bbox) == 4:
                good.append(i)
                continue
            found = "no bbox" if item.bbox is None else f"a bbox of {len(item.bbox)} numbers"
            self._error("bad-box", f"annotation {item.id} has {found}, expected 4", lines[i])
        return [items[i] for i in good], [lines[i] for i in good]

    def _assemble(self) -> Iterator[pa.RecordBatch]:
        rows = Rows()
        names = self._names()
        first = [image.file_name for image in self.images[:20]]
        folder = picture_folder(self.root, self.unit, first)
        self.facts["folders"] = {self.unit: {"folder": folder, "names": first}}
        rows.declare(
            list(dict.fromkeys(names.values())),
            {
                "category_ids": {name: number for number, name in reversed(names.items())},
                **self.facts,
            },
        )
        order, owners, labels, by_picture = self._match(names)
        rows.findings(self.report.findings)
        yield rows.batch()
        boxes = _joined(self.boxes.boxes, np.float32).reshape(-1, 4)
        lines = _joined(self.boxes.lines, np.int32)
        self.boxes.boxes, self.boxes.lines = [boxes], [lines]  # the parts may go
        self.boxes.images, self.boxes.labels = [], []
        more = {name: self.boxes.column(name) for name in self.boxes.more}
        self.boxes.more = {}
        codes = pa.array(list(names.values()), pa.string())
        for begin in range(0, len(self.images), PICTURES_A_BATCH):
            stop = min(begin + PICTURES_A_BATCH, len(self.images))
            ends = np.searchsorted(owners, np.arange(begin, stop + 1))
            chosen = order[ends[0] : ends[-1]]
            per_box: dict[str, Any] = {"lines": lines[chosen]}
            for name, values in more.items():
                if values is not None:
                    per_box[name] = _rows_of(name, values, chosen)
            pictures = self._pictures(begin, stop, folder, by_picture)
            yield assemble(
                pictures,
                ends - ends[0],
                boxes[chosen],
                pa.DictionaryArray.from_arrays(pa.array(labels[chosen]), codes).cast(pa.string()),
                per_box,
                ignore=_regions(self.images[begin:stop]),
                findings=_findings_of(by_picture, begin, stop),
            )

    def _names(self) -> dict[int, str]:
        """Category id -> name, by id; a name used twice stays one class."""
        names = dict(sorted(self.categories.items()))
        seen: set[str] = set()
        for number, name in names.items():
            if not name:
                names[number] = f"category_{number}"
            if name in seen:
                self.report.add(
                    "warning",
                    "duplicate-category",
                    f"category {number} has the name of another: {name!r}",
                    file=self.unit,
                )
            seen.add(name)
        return names

    def _match(
        self, names: Mapping[int, str]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], dict[int, list[Finding]]]:
        """Annotations sorted by picture, and what does not fit, itemised."""
        boxes = self.boxes
        position = np.full(len(self.ids), -1, np.int32)
        for i, (image, line) in enumerate(zip(self.images, self.image_lines, strict=True)):
            number = self.ids[image.id]
            if position[number] >= 0:
                self._error(
                    "duplicate-image-id",
                    f"image id {image.id!r} again; its annotations belong to the first",
                    line,
                    image.file_name,
                )
            else:
                position[number] = i
        owners = position[_joined(boxes.images, np.int32)] if self.ids else np.zeros(0, np.int32)
        raw = _joined(boxes.labels, np.int32)
        known = np.asarray(list(names), np.int32)
        labels = np.searchsorted(known, raw)
        right = np.isin(raw, known)
        lines = _joined(boxes.lines, np.int32)
        by_picture: dict[int, list[Finding]] = {}
        for i in np.flatnonzero(owners < 0).tolist():
            self._error(
                "unknown-image", "an annotation belongs to no image of the file", int(lines[i])
            )
        for i in np.flatnonzero(~right & (owners >= 0)).tolist():
            picture = self.images[owners[i]].file_name
            by_picture.setdefault(int(owners[i]), []).append(
                Finding(
                    "error",
                    "unknown-class",
                    f"category id {raw[i]} is not one of the file's categories ({_range(known)})",
                    self.unit,
                    int(lines[i]),
                    picture,
                )
            )
        usable = np.flatnonzero(right & (owners >= 0)).astype(np.int32)
        if len(usable) and (np.diff(owners[usable]) < 0).any():  # most files are sorted already
            usable = usable[np.argsort(owners[usable], kind="stable")]
        return usable, owners[usable], labels.astype(np.int16), by_picture

    def _pictures(
        self, begin: int, stop: int, folder: str, by_picture: dict[int, list[Finding]]
    ) -> dict[str, list[Any]]:
        """Columns of PER_PICTURE; a name that leads out of the root is itemised."""
        columns: dict[str, list[Any]] = {name: [] for name in PER_PICTURE}
        lines = self.image_lines[begin:stop]
        for i, (image, line) in enumerate(zip(self.images[begin:stop], lines, strict=True), begin):
            path = inside(f"{folder}/{image.file_name}" if folder else image.file_name)
            if not inside(image.file_name):
                path = None
                text = f"{image.file_name!r} leads out of the data set's folder"
                by_picture.setdefault(i, []).append(
                    Finding("error", "outside-root", text, self.unit, line, image.file_name)
                )
            width, height = _pixels(image.width), _pixels(image.height)
            if path and not (width and height):
                width, height = self._size(path, i, by_picture)
            video = "" if image.video_id is None else str(image.video_id)
            row = (
                path or "",
                image.file_name,
                str(image.id),
                width,
                height,
                image.split or usual_split(self.split),
                image.sequence or video,
                image.camera or "",
                -1 if image.frame_id is None else image.frame_id,
                image.stamp_ns or 0,
                to_text(image.attributes),
                self.unit,
                line,
            )
            for name, value in zip(PER_PICTURE, row, strict=True):
                columns[name].append(value)
        return columns

    def _size(self, path: str, i: int, by_picture: dict[int, list[Finding]]) -> tuple[int, int]:
        """Size of a picture whose entry states none; a file that is no picture is itemised."""
        if not (self.root / path).is_file():
            return 0, 0
        try:
            header = read_header(self.fence.check(path))
        except InputError as error:
            name = self.images[i].file_name
            by_picture.setdefault(i, []).append(
                Finding("error", "bad-picture", str(error), path, 0, name)
            )
            return 0, 0
        return header.width, header.height


def is_current(root: Path, facts: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the pictures are still where they were found when the label files were read."""
    return all(
        picture_folder(root, unit, found["names"]) == found["folder"]
        for unit, found in facts.get("folders", {}).items()
    )


def _lenient(element: bytes, kind: type[_T]) -> _T:
    """One element; raises ValueError, RecursionError or ValidationError when it is unusable.

    The standard parser takes NaN and 1e400, which other exporters write; whether the numbers can
    be used is decided where they are.
    """
    value = json.loads(element)
    outline = value.pop("segmentation", None) if kind is _Annotation else None
    item = msgspec.convert(value, kind)
    if outline and isinstance(item, _Annotation):
        item.segmentation = msgspec.Raw(json.dumps(outline).encode())
    return item


def _findings_of(
    by_picture: Mapping[int, list[Finding]], begin: int, stop: int
) -> tuple[npt.NDArray[np.int64], list[Finding]]:
    lists = [by_picture.get(i, []) for i in range(begin, stop)]
    ends = np.cumsum([0, *(len(items) for items in lists)])
    return ends, [item for items in lists for item in items]


def _regions(images: Sequence[_Image]) -> tuple[npt.NDArray[np.int64], list[float]]:
    ends, values = [0], list[float]()
    for image in images:
        for region in image.ignore_regions or []:
            if len(region) == 4 and all(abs(value) <= LIMIT for value in region):
                left, top, width, height = region
                values += (left, top, left + width, top + height)
        ends.append(len(values))
    return np.asarray(ends, np.int64), values


def _optional(items: Sequence[_Annotation]) -> dict[str, pa.Array | None]:
    """The columns of PER_BOX that these annotations fill, None where all are default."""
    ids = [item.source_id or item.id for item in items]
    all_whole = all(type(number) is int for number in ids)
    columns: dict[str, list[Any]] = {
        "crowd": [item.iscrowd for item in items],
        "scores": [item.score for item in items],
        "track_ids": [item.track_id for item in items],
        "occlusion": [item.occlusion for item in items],
        "truncation": [item.truncation for item in items],
        "distance": [item.distance for item in items],
        "points": [item.points for item in items],
        "velocity": [item.velocity for item in items],
        "boxes_3d": [item.box_3d for item in items],
        "area": [_outline_area(item) for item in items],
        "box_attributes": [item.attributes for item in items],
    }
    if any(columns["box_attributes"]):
        flags = [_flag(item.attributes) for item in items]
        columns["occlusion"] = [
            flag if value is None else value
            for value, flag in zip(columns["occlusion"], flags, strict=True)
        ]
        columns["box_attributes"] = [to_text(item.attributes) for item in items]
    columns["crowd"] = [bool(flag) for flag in columns["crowd"]] if any(columns["crowd"]) else []
    return {
        # Whole numbers stay numbers until their batch is made: a third of the memory.
        "box_ids": (
            pa.array(ids, pa.int64())
            if all_whole
            else pa.array(["" if number is None else str(number) for number in ids], pa.string())
        ),
        **{name: _column(name, values) for name, values in columns.items()},
    }


def _column(name: str, values: list[Any]) -> pa.Array | None:
    kind, width, default = PER_BOX[name]
    if values.count(None) == len(values):
        return None
    if width > 1:
        blank = [default] * width
        flat = [
            v
            for value in values
            for v in (value if value is not None and len(value) == width else blank)
        ]
        return pa.array(flat, kind)
    return pa.array([default if value is None else value for value in values], kind)


def _outline_area(item: _Annotation) -> float | None:
    """The stated area where it is not that of the box."""
    area, box = item.area, item.bbox
    usable = isinstance(area, int | float) and 0 < area < LIMIT**2
    if not usable or box is None or area in (box[2] * box[3], round(box[2] * box[3], 4)):
        return None
    return float(area)


def _category_ids(items: Sequence[_Annotation]) -> npt.NDArray[np.int32]:
    """int32 (N,); an id that does not fit is no category's, and becomes -1."""
    ids = np.asarray([item.category_id for item in items], np.int64)
    return np.where((ids >= 0) & (ids < 2**31), ids, -1).astype(np.int32)


def _flag(attributes: Mapping[str, Any] | None) -> float | None:
    occluded = attributes.get("occluded") if attributes else None
    return None if not isinstance(occluded, bool) else OCCLUDED_FLAG if occluded else 0.0


def _rows_of(name: str, values: pa.Array, chosen: npt.NDArray[Any]) -> pa.Array:
    width = PER_BOX[name][1]
    if width > 1:
        chosen = (chosen[:, None] * width + np.arange(width)).reshape(-1)
    taken = values.take(pa.array(chosen))
    return taken.cast(pa.string()) if name == "box_ids" else taken


def _joined(chunks: list[npt.NDArray[Any]], kind: type) -> npt.NDArray[Any]:
    return np.concatenate(chunks) if chunks else np.zeros(0, kind)


def _pixels(value: float | None) -> int:
    return int(value) if value is not None and 0 <= value <= LIMIT else 0


def _range(known: npt.NDArray[np.int32]) -> str:
    return f"{known[0]} to {known[-1]}" if len(known) else "it lists none"


def write(source: Source, out: Path) -> None:
    """Write annotations/instances_SPLIT.json and images; see plan.Format.

    What COCO has no key for goes into keys that its readers pass over; docs/datasets.md lists them.
    """
    folder = out / "annotations"
    folder.mkdir(parents=True)
    files: dict[str, _Writer] = {}
    ids = _category_numbers(source)
    regions = 0
    try:
        for sample in source.samples():
            raw = sample.split or "all"
            split = "".join(c if c.isalnum() or c in "-_." else "_" for c in raw)
            if split not in files:
                files[split] = _Writer(folder / f"instances_{split}.json", source)
            stem = source.stem(sample, folders=True)
            name = source.put_picture(sample, out / "images", stem)
            files[split].add(sample, name, ids)
            regions += len(sample.ignore)
        for file in files.values():
            file.finish(ids)
    finally:
        for file in files.values():
            file.close()
    if regions:
        source.report.add(
            "info",
            "extension",
            f"{regions} ignore regions are kept in the key "
            "ignore_regions of their pictures, which other tools do not read",
        )


def _category_numbers(source: Source) -> list[int]:
    """The data set's own category ids when it came from COCO, else 1, 2, 3..."""
    numbers = source.dataset.facts.get("category_ids", {})
    if all(name in numbers for name in source.names):
        return [int(numbers[name]) for name in source.names]
    return list(range(1, len(source.names) + 1))


class _Ids:
    """Whole numbers of which none is given out twice."""

    def __init__(self) -> None:
        self._used: set[int] = set()
        self._free = 1

    def give(self, wanted: str) -> int:
        """`wanted` where it is a whole number still free, else the next free one."""
        number = int(wanted) if is_whole(wanted.lstrip("0") or wanted[:1]) else self._free
        while number in self._used:
            number = self._free
            self._free += 1
        self._used.add(number)
        return number


def picture_id(text: str, source: str, facts: Mapping[str, Mapping[str, Any]]) -> int | str:
    """The image id as the label file `source` has it: of several files some may have text."""
    is_text = source in facts.get("text_ids", {}) or not is_whole(text)
    return text if is_text else int(text)


class _Writer:
    """One json file; annotations wait in a second file, so that memory is that of their ids."""

    def __init__(self, path: Path, source: Source) -> None:
        self.source = source
        self.file = path.open("w", encoding="utf-8", newline="\n")
        head = {
            "info": source.dataset.info,
            "licenses": [
                license
                for licenses in source.dataset.facts.get("licenses", {}).values()
                for license in licenses
            ],
        }
        self.file.write("{")
        for key, value in head.items():
            if value:
                self.file.write(f'"{key}": {json.dumps(value, ensure_ascii=False)},\n')
        self.file.write('"images": [')
        self.rest = tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n")  # noqa: SIM115
        self.images = self.annotations = 0
        self.image_ids, self.box_ids = _Ids(), _Ids()

    def add(self, sample: Sample, name: str, ids: Sequence[int]) -> None:
        self.images += 1
        number = self.image_ids.give(sample.id)
        image = _written_image(sample, name, number)
        facts = self.source.dataset.facts
        if sample.id and number != picture_id(sample.id, sample.source, facts):
            image["source_id"] = sample.id
            self.source.tally("new-image-id", "picture ids are new, the old ones in source_id")
        if not (sample.width and sample.height):
            self.source.tally("no-size", "the size of a picture is not known and written as 0")
        self.file.write(",\n" if self.images > 1 else "\n")
        self.file.write(json.dumps(image, ensure_ascii=False))
        for i in range(len(sample.truth)):
            self.annotations += 1
            text = sample.box_ids[i]
            box_id = self.box_ids.give(text)
            item = _written_box(sample, i, number, box_id, ids)
            if text and str(box_id) != text:
                item["source_id"] = text
                self.source.tally("new-box-id", "box ids are new, the old ones in source_id")
            self.rest.write(",\n" if self.annotations > 1 else "\n")
            self.rest.write(json.dumps(item, ensure_ascii=False))

    def finish(self, ids: Sequence[int]) -> None:
        self.file.write('\n], "annotations": [')
        self.rest.seek(0)
        shutil.copyfileobj(self.rest, self.file, 1 << 20)
        above = self.source.dataset.facts.get("supercategories", {})
        categories = [
            {"id": i, "name": name, **({"supercategory": above[name]} if name in above else {})}
            for i, name in zip(ids, self.source.names, strict=True)
        ]
        self.file.write('\n], "categories": ' + json.dumps(categories, ensure_ascii=False) + "}\n")

    def close(self) -> None:
        self.file.close()
        self.rest.close()


def _written_image(sample: Sample, name: str, number: int) -> dict[str, Any]:
    image: dict[str, Any] = {
        "id": number,
        "file_name": name,
        "width": sample.width,
        "height": sample.height,
    }
    optional = {
        "sequence": sample.sequence,
        "camera": sample.camera,
        "split": sample.split,
        "stamp_ns": sample.stamp_ns,
        "attributes": typed(sample.attributes),
        "ignore_regions": [_left_top(box) for box in sample.ignore],
    }
    image.update({key: value for key, value in optional.items() if value})
    if sample.frame >= 0:
        image["frame_id"] = sample.frame
    return image


def _written_box(
    sample: Sample, i: int, image: int, number: int, ids: Sequence[int]
) -> dict[str, Any]:
    box = _left_top(sample.truth.boxes[i])
    area = float(sample.area[i])
    item: dict[str, Any] = {
        "id": number,
        "image_id": image,
        "category_id": ids[int(sample.truth.labels[i])],
        "bbox": box,
        "area": round(box[2] * box[3], 4) if math.isnan(area) else area,
        "iscrowd": int(sample.crowd[i]),
    }
    if sample.truth.track_ids[i] >= 0:
        item["track_id"] = int(sample.truth.track_ids[i])
    if sample.scored[i]:
        item["score"] = _plain(sample.truth.scores[i])
    if sample.points[i] >= 0:
        item["points"] = int(sample.points[i])
    for key, value in (
        ("occlusion", sample.occlusion[i]),
        ("truncation", sample.truncation[i]),
        ("distance", sample.distance[i]),
    ):
        if value == value:
            item[key] = _plain(value)
    for key, values in (("velocity", sample.velocity[i]), ("box_3d", sample.boxes_3d[i])):
        if not np.isnan(values).any():
            item[key] = [_plain(value) for value in values]
    if sample.box_attributes[i]:
        item["attributes"] = typed(sample.box_attributes[i])
    return item


def _plain(value: float) -> float:
    return float(short(value))


def _left_top(box: npt.NDArray[np.float32]) -> list[float]:
    x1, y1, x2, y2 = (float(value) for value in box)
    # In double precision: the sum gives the same float32 corner back.
    return [_plain(x1), _plain(y1), round(x2 - x1, 6), round(y2 - y1, 6)]
