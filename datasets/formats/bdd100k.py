"""BDD100K and Scalabel json: a list of frames, or {"frames": [...], "config": {...}}.

Frames whose labels are null or absent are pictures with nothing in them (bdd100k#152). Labels
without box2d (lanes, drivable areas, polygons) hold no box; they are counted in the report.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from perception.datasets.jsonstream import Piece, Truncated, head, pieces
from perception.datasets.pictures import read_header
from perception.datasets.plan import Plan
from perception.datasets.report import Report
from perception.datasets.rows import PICTURES_A_BATCH, Rows, to_text
from perception.datasets.sample import Sample, typed
from perception.datasets.source import Source, short
from perception.datasets.text import (
    LIMIT,
    Fence,
    Pictures,
    inside,
    is_digits,
    listing_digest,
    several,
    walk,
)
from perception.errors import InputError

HOLDS = frozenset(
    {
        "size",
        "unlabelled",
        "score",
        "track_id",
        "box_id",
        "crowd",
        "sequence",
        "frame",
        "attributes",
        "box_attributes",
        "split",
        "occlusion",
        "truncation",
    }
)
_JSON = frozenset({".json"})
FLAG = 0.5
"""Occlusion or truncation read for a mere flag: some share, nobody knows which."""


def claims(path: Path) -> str:
    """See plan.Format."""
    files = [path] if path.is_file() else (path / file for file in walk(path, _JSON))
    first = next((file for file in files if _is_scalabel(file)), None)
    return f"{first.name} has Scalabel frames" if first else ""


def _is_scalabel(file: Path) -> bool:
    start = head(file)
    if file.suffix.lower() != ".json":
        return False
    if start.startswith(b"{"):
        return b'"frames"' in start and b'"images"' not in start
    return (
        start.startswith(b"[")
        and b'"name"' in start
        and b'"image_id"' not in start
        and (b'"token"' not in start)
    )


def plan(path: Path) -> Plan:
    """See plan.Format; a unit is one json file."""
    root = path if path.is_dir() else path.parent
    files = [root / f for f in walk(path, _JSON)] if path.is_dir() else [path]
    chosen = [file for file in files if _is_scalabel(file)] if path.is_dir() else files
    if not chosen:
        raise InputError(f"{path}: no json with BDD100K or Scalabel frames found here")
    units = tuple(file.relative_to(root).as_posix() for file in chosen)
    return Plan("bdd100k", root, units, None, units, {"pictures": listing_digest(root)})


def read(plan: Plan, units: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """See plan.Format."""
    pictures = Pictures(plan.root)
    for unit in units:
        yield from _File(plan.root, unit, pictures, len(plan.units) > 1).batches()


class _File:
    def __init__(self, root: Path, unit: str, pictures: Pictures, several: bool) -> None:
        self.root, self.unit, self.pictures = root, unit, pictures
        self.report = Report()
        self.fence = Fence(root)
        self.size = (0, 0)
        stem = os.path.splitext(unit.rpartition("/")[2])[0]
        self.split = next((s for s in ("train", "val", "test") if s in stem.split("_")), "")
        if several and not self.split:
            self.split = next((s for s in ("train", "val", "test") if s in unit.split("/")), "")
        self.unboxed = Counter[str]()
        self.names: list[str] = []

    def batches(self) -> Iterator[pa.RecordBatch]:
        rows = Rows()
        try:
            for piece in pieces(self.root / self.unit, frozenset({"", "frames", "config"})):
                if piece.key == "config" and not piece.is_array:
                    self._config(piece)
                    continue
                for text, line in piece.elements():
                    self._frame(rows, text, line)
                    if len(rows) >= PICTURES_A_BATCH:
                        yield rows.batch()
        except Truncated as error:
            self.report.add("error", "truncated", str(error), file=self.unit)
        except InputError as error:
            self.report.add("error", "not-json", str(error), file=self.unit)
        for category, count in sorted(self.unboxed.items()):
            self.report.add(
                "info",
                "no-box2d",
                f"{count} labels of {category!r} have no box2d and are left out",
                file=self.unit,
            )
        if len(rows):
            yield rows.batch()
        rows.declare(self.names, {})
        rows.findings(self.report.findings)
        yield rows.batch()

    def _error(self, code: str, message: str, line: int, picture: str) -> None:
        self.report.add("error", code, message, file=self.unit, line=line, picture=picture)

    def _config(self, piece: Piece) -> None:
        try:
            config = json.loads(b"{" + piece.text + b"}")
        except (ValueError, RecursionError) as error:
            self.report.add("error", "bad-json", f"config: {error}", file=self.unit)
            return
        size = config.get("imageSize")
        if isinstance(size, dict):
            self.size = (_pixels(size.get("width")), _pixels(size.get("height")))
        self.names = _leaves(config.get("categories"))

    def _frame(self, rows: Rows, text: bytes, line: int) -> None:
        try:
            frame = json.loads(text)
            name = frame.get("name", None)
            if not isinstance(name, str) or not name:
                raise ValueError("a frame without a name")
        except (ValueError, RecursionError, TypeError) as error:
            self.report.add(
                "error", "bad-json", f"not a usable frame: {error}", file=self.unit, line=line
            )
            return
        video = str(frame.get("videoName") or frame.get("video_name") or "")
        found = self.pictures.find(f"{video}/{name}" if video else name, self.split)
        if video and not found:  # pictures without a folder for each video
            found = self.pictures.find(name, f"{self.split}/{video}")
        image = found[0] if len(found) == 1 else ""
        if len(found) > 1:
            self._error("ambiguous-picture", several(found), line, name)
        if not image and inside(name) is None:
            message = f"{name!r} leads out of the data set's folder"
            self._error("outside-root", message, line, name)
        size = frame.get("size") if isinstance(frame.get("size"), dict) else {}
        attributes = frame.get("attributes")
        index = frame.get("frameIndex", frame.get("frame_index", -1))
        width = _pixels(size.get("width")) or self.size[0]
        height = _pixels(size.get("height")) or self.size[1]
        if image and not (width and height):
            try:
                header = read_header(self.fence.check(image))
                width, height = header.width, header.height
            except InputError as error:
                self.report.add("error", "bad-picture", str(error), file=image, picture=name)
        rows.picture(
            name,
            image,
            split=self.split,
            sequence=video,
            width=width,
            height=height,
            frame=index if isinstance(index, int) and abs(index) < 2**62 else -1,
            attributes=attributes if isinstance(attributes, dict) else None,
            source=self.unit,
            line=line,
        )
        labels = frame.get("labels") or []
        if not isinstance(labels, list):
            self.report.add(
                "error", "bad-json", "labels is not a list", file=self.unit, line=line, picture=name
            )
            return
        for label in labels:
            self._label(rows, label, line, name)

    def _label(self, rows: Rows, label: Any, line: int, picture: str) -> None:
        category = label.get("category") if isinstance(label, dict) else None
        if not isinstance(category, str) or not category:
            self.report.add(
                "error",
                "bad-label",
                "a label without a category",
                file=self.unit,
                line=line,
                picture=picture,
            )
            return
        box = label.get("box2d")
        if box is None:
            self.unboxed[category] += 1
            return
        corners: list[Any] = (
            [box.get(key) for key in ("x1", "y1", "x2", "y2")] if isinstance(box, dict) else []
        )
        if len(corners) != 4 or not all(_usable(value) for value in corners):
            self.report.add(
                "error",
                "bad-box",
                f"label {label.get('id')}: box2d {box} is not four finite numbers",
                file=self.unit,
                line=line,
                picture=picture,
            )
            return
        x1, y1, x2, y2 = corners
        rows.box(x1, y1, x2, y2, category, lines=line, **_details(label))


def _details(label: Mapping[str, Any]) -> dict[str, Any]:
    """Optional columns of a label."""
    extra: dict[str, Any] = {}
    identity = label.get("id")
    if identity is not None:
        extra["box_ids"] = str(identity)
        if is_digits(str(identity)) and len(str(identity)) < 18:
            extra["track_ids"] = int(identity)
    score = label.get("score")
    if _usable(score):
        extra["scores"] = score
    attributes = label.get("attributes")
    if isinstance(attributes, dict) and attributes:
        lower = {str(key).lower(): value for key, value in attributes.items()}
        for key, column in (("occluded", "occlusion"), ("truncated", "truncation")):
            if isinstance(lower.get(key), bool):
                extra[column] = FLAG if lower[key] else 0.0
        if lower.get("crowd") is True:
            extra["crowd"] = True
        extra["box_attributes"] = to_text(attributes)
    return extra


def _usable(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and -LIMIT <= value <= LIMIT  # false for NaN


def _pixels(value: Any) -> int:
    return int(value) if _usable(value) and value > 0 else 0


def _leaves(categories: Any) -> list[str]:
    """Names of Scalabel's category tree in order; the leaves are the classes."""
    names: list[str] = []
    for category in categories if isinstance(categories, list) else []:
        if isinstance(category, dict) and isinstance(category.get("name"), str):
            inner = _leaves(category.get("subcategories"))
            names += inner or [category["name"]]
    return names


def write(source: Source, out: Path) -> None:
    """Write labels/SPLIT.json and images/SPLIT; see plan.Format."""
    labels = out / "labels"
    labels.mkdir(parents=True)
    files: dict[str, Any] = {}
    shares = 0
    try:
        for sample in source.samples():
            split = sample.split or "train"
            split = split if split in ("train", "val", "test") else "train"
            if split != sample.split:
                source.tally("lost-split", f"split {sample.split!r} is written as {split!r}")
            stem = source.stem(sample)
            name = source.put_picture(sample, out / "images" / split, stem)
            if split not in files:
                files[split] = (labels / f"{split}.json").open("w", encoding="utf-8", newline="\n")
                files[split].write('{"frames": [\n')
            else:
                files[split].write(",\n")
            files[split].write(json.dumps(_written(sample, name, source.names), ensure_ascii=False))
            shares += sum(0 < v != FLAG for v in (*sample.truncation, *sample.occlusion))
        tail = {"categories": [{"name": name} for name in source.names]}
        for file in files.values():
            file.write('\n], "config": ' + json.dumps(tail, ensure_ascii=False) + "}\n")
    finally:
        for file in files.values():
            file.close()
    if shares:
        source.report.add("info", "lost-share", f"{shares} truncations and occlusions become flags")


def _written(sample: Sample, name: str, names: tuple[str, ...]) -> dict[str, Any]:
    frame: dict[str, Any] = {"name": name}
    if sample.sequence:
        frame["videoName"] = sample.sequence
    if sample.frame >= 0:
        frame["frameIndex"] = sample.frame
    if sample.attributes:
        frame["attributes"] = typed(sample.attributes)
    if sample.width:
        frame["size"] = {"width": sample.width, "height": sample.height}
    frame["labels"] = [_written_label(sample, i, names) for i in range(len(sample.truth))]
    return frame


def _written_label(sample: Sample, i: int, names: tuple[str, ...]) -> dict[str, Any]:
    track = int(sample.truth.track_ids[i])
    attributes: dict[str, Any] = {
        key: json.loads(value) if value in ("true", "false") else value
        for key, value in typed(sample.box_attributes[i]).items()
    }
    # A flag under any spelling is kept; another format's level gives way to the flag.
    known = {key.lower() for key, value in attributes.items() if isinstance(value, bool)}
    for key, share in (("occluded", sample.occlusion[i]), ("truncated", sample.truncation[i])):
        if key not in known and share == share:
            attributes[key] = bool(share > 0)
    if "crowd" not in known and sample.crowd[i]:
        attributes["crowd"] = True
    identity = sample.box_ids[i] if track < 0 or is_digits(sample.box_ids[i]) else str(track)
    label: dict[str, Any] = {
        "id": identity or str(i),
        "category": names[int(sample.truth.labels[i])],
    }
    if attributes:
        label["attributes"] = attributes
    corners = (float(short(value)) for value in sample.truth.boxes[i])
    label["box2d"] = dict(zip(("x1", "y1", "x2", "y2"), corners, strict=True))
    if sample.scored[i]:
        label["score"] = float(short(float(sample.truth.scores[i])))
    return label
