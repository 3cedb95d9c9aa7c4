"""Find what is wrong with a data set: boxes, pictures, duplicates, leaks between splits.

Checks of single pictures run batch by batch with an engine (see engine.py); what concerns the whole
set (near-duplicates, leaks, class balance) is found from their small results.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perception.datasets.dataset import Dataset, ParquetStore, bag_picture
from perception.datasets.duplicates import groups_of_similar
from perception.datasets.engine import Engine, LocalEngine
from perception.datasets.opening import index_file
from perception.datasets.pictures import (
    array_digest,
    check_and_hash,
    difference_hash,
    pixel_digest,
    read_header,
)
from perception.datasets.report import Finding, Report, Severity
from perception.datasets.rows import FINDING, Columns, finding_array, lists, relabelled
from perception.datasets.text import Fence
from perception.errors import InputError


@dataclass(frozen=True)
class LintSettings:
    """Limits of the checks.

    decode: decode every picture: finds damaged ones, and near-duplicates by their hash.
    outside: pixels by which a box may stick out of its picture.
    tiny: pixels below which a side is suspicious. aspect: ratio of sides above which a box is.
    full: share of the picture from which a box is suspicious.
    similar: bits of 64 by which the hashes of near-duplicates may differ.
    imbalance: how many times rarer than the most frequent class a class may be.
    rare: boxes below which a class is called rare.
    classes: the class names allowed, () for any.
    """

    decode: bool = True
    outside: float = 1.0
    tiny: float = 2.0
    aspect: float = 20.0
    full: float = 0.99
    similar: int = 3
    imbalance: float = 100.0
    rare: int = 10
    classes: tuple[str, ...] = ()


CHECKED = pa.schema(
    [
        ("position", pa.int64()),
        ("image", pa.string()),
        ("name", pa.string()),
        ("split", pa.string()),
        ("sequence", pa.string()),
        ("has_picture", pa.bool_()),
        # 16 hexadecimal digits, because Spark has no unsigned numbers; null: not decoded.
        ("hash", pa.string()),
        ("digest", pa.string()),  # of the pixels where the hash is 0, else ""
        ("labels", pa.list_(pa.string())),  # class names that occur, and how often:
        ("counts", pa.list_(pa.int64())),
        ("findings", pa.list_(FINDING)),
    ]
)


@dataclass
class Linted:
    """Result of `lint`: what was found, and counts for a summary."""

    report: Report
    pictures: int = 0
    boxes: int = 0
    classes: dict[str, int] = field(default_factory=dict)
    splits: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        return {
            "pictures": self.pictures,
            "boxes": self.boxes,
            "classes": self.classes,
            "splits": self.splits,
            **self.report.to_json(),
        }


def lint(
    dataset: Dataset, settings: LintSettings | None = None, engine: Engine | None = None
) -> Linted:
    """Check a data set; see LintSettings. engine None runs in this process."""
    settings = settings or LintSettings()
    engine = engine or LocalEngine(workers=1)
    rows = _Checked()
    with index_file(dataset, engine.work) as index:
        task = partial(check_group, index, dataset.root, settings, dataset.targets)
        units = [str(i) for i in range(len(dataset.store.sizes))]
        for batch in engine.map(task, units, CHECKED, "checking"):
            rows.take(batch)
    report = Report(list(dataset.report.findings))
    report.extend(rows.findings())
    linted = Linted(report, len(rows.names), sum(rows.classes.values()))
    linted.classes = {name: rows.classes[name] for name in dataset.names}
    linted.splits = dict(sorted(Counter(rows.splits).items()))
    report.extend(_similar(rows, settings))
    report.extend(_leaks(rows))
    report.extend(_repeated(rows))
    report.extend(_balance(linted.classes, rows, settings))
    if not rows.names:
        report.add("warning", "empty", "the data set holds no picture")
    return linted


class _Checked:
    """What is kept of every picture: some bytes each."""

    def __init__(self) -> None:
        self.images: list[str] = []
        self.names: list[str] = []
        self.splits: list[str] = []
        self.sequences: list[str] = []
        self.hashes: list[int | None] = []
        self.digests: list[str] = []
        self.classes: Counter[str] = Counter()
        self.by_split: dict[str, Counter[str]] = {}
        self.missing = 0
        self._findings: list[dict[str, Any]] = []

    def take(self, batch: pa.RecordBatch) -> None:
        columns = batch.to_pydict()
        self.images += columns["image"]
        self.names += columns["name"]
        self.splits += columns["split"]
        self.sequences += columns["sequence"]
        self.hashes += [None if h is None else int(h, 16) for h in columns["hash"]]
        self.digests += columns["digest"]
        self.missing += columns["has_picture"].count(False)
        for split, names, counts in zip(
            columns["split"], columns["labels"], columns["counts"], strict=True
        ):
            counter = self.by_split.setdefault(split, Counter())
            for name, count in zip(names, counts, strict=True):
                self.classes[name] += count
                counter[name] += count
        for items in columns["findings"]:
            self._findings += items

    def findings(self) -> Iterator[Finding]:
        """Findings of single pictures; a set without any picture says so once."""
        none = self.missing == len(self.names) and self.missing > 1
        for item in self._findings:
            if not (none and item["code"] == "picture-missing"):
                yield Finding(**item)
        if none:
            yield Finding(
                "warning",
                "picture-missing",
                f"none of the {self.missing} pictures is there, only labels",
            )


def check_group(
    index: Path, root: Path, settings: LintSettings, targets: Mapping[str, str] | None, unit: str
) -> Iterator[pa.RecordBatch]:
    """Check one row group of an index; the rows of CHECKED. targets: see Dataset.targets."""
    store = ParquetStore(index)
    group = int(unit)
    columns = Columns(store.group(group))
    if targets is not None:
        columns = Columns(relabelled(columns, targets))
    findings: list[list[Finding]] = [[] for _ in range(columns.pictures)]
    for picture, finding in _check_boxes(columns, settings):
        findings[picture].append(finding)
    hashes: list[int | None] = []
    digests: list[str] = []
    present: list[bool] = []
    fence = Fence(root)
    is_bag = store.meta["format"] == "rosbag2"
    for picture in range(columns.pictures):
        looked = _check_picture(columns, picture, fence, settings.decode, is_bag)
        findings[picture] += looked.findings
        hashes.append(looked.hash)
        digests.append(looked.digest)
        present.append(looked.is_there)
    names, ends, counts = _class_counts(columns)
    items = [item for group_ in findings for item in group_]
    finding_ends = np.cumsum([0, *map(len, findings)])
    start = sum(store.sizes[:group])
    arrays = [
        pa.array(range(start, start + columns.pictures), pa.int64()),
        *(columns.batch.column(name) for name in ("image", "name", "split", "sequence")),
        pa.array(present, pa.bool_()),
        pa.array([None if h is None else f"{h:016x}" for h in hashes], pa.string()),
        pa.array(digests, pa.string()),
        lists(ends, pa.array(names, pa.string())),
        lists(ends, pa.array(counts, pa.int64())),
        lists(finding_ends, finding_array(items)),
    ]
    yield pa.RecordBatch.from_arrays(arrays, schema=CHECKED)


def _class_counts(
    columns: Columns,
) -> tuple[list[str], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Class names of each picture with their counts, and where each picture's end."""
    codes, used = columns.labels()
    owners = np.repeat(np.arange(columns.pictures), np.diff(columns.starts))
    keys, counts = np.unique(owners * max(1, len(used)) + codes, return_counts=True)
    names = [used[key % max(1, len(used))] for key in keys]
    ends = np.searchsorted(keys, np.arange(columns.pictures + 1) * max(1, len(used)))
    return names, ends, counts


def _check_boxes(columns: Columns, settings: LintSettings) -> Iterator[tuple[int, Finding]]:
    """Every box at once; yields the picture's number and what is wrong."""
    if not len(columns.boxes):
        return
    boxes = columns.boxes.astype(np.float64)
    owners = np.repeat(np.arange(columns.pictures), np.diff(columns.starts))
    width = np.asarray(columns.values("width"), np.float64)[owners]
    height = np.asarray(columns.values("height"), np.float64)[owners]
    codes, used = columns.labels()
    w, h = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    known = (width > 0) & (height > 0)
    good = (w > 0) & (h > 0)
    over = np.max([-boxes[:, 0], -boxes[:, 1], boxes[:, 2] - width, boxes[:, 3] - height], axis=0)
    gone = (
        (boxes[:, 2] <= 0) | (boxes[:, 3] <= 0) | (boxes[:, 0] >= width) | (boxes[:, 1] >= height)
    )
    outside = known & good & gone
    out = known & good & ~gone & (over > settings.outside)
    tiny = good & (np.minimum(w, h) < settings.tiny)
    with np.errstate(divide="ignore", invalid="ignore"):
        thin = good & ~tiny & (np.maximum(w / h, h / w) > settings.aspect)
        full = good & known & (w * h >= settings.full * width * height)
    allowed = np.asarray([not settings.classes or name in settings.classes for name in used])
    checks: tuple[tuple[Severity, str, Any, Callable[[int], str]], ...] = (
        (
            "error",
            "box-degenerate",
            ~good,
            lambda i: (
                "corners are swapped" if w[i] < 0 or h[i] < 0 else f"{w[i]:g} x {h[i]:g} pixels"
            ),
        ),
        (
            "error",
            "box-outside",
            outside,
            lambda i: f"lies outside the {width[i]:.0f}x{height[i]:.0f} picture",
        ),
        (
            "warning",
            "box-outside",
            out,
            lambda i: (
                f"sticks out by {over[i]:.1f} pixels of the {width[i]:.0f}x{height[i]:.0f} picture"
            ),
        ),
        ("warning", "box-duplicate", _duplicates(boxes, owners, codes), lambda i: "is there twice"),
        ("warning", "box-tiny", tiny, lambda i: f"is {w[i]:.1f} x {h[i]:.1f} pixels"),
        ("warning", "box-thin", thin, lambda i: f"has sides of {w[i]:.0f} and {h[i]:.0f} pixels"),
        ("warning", "box-full", full, lambda i: "fills the whole picture"),
        ("error", "unknown-class", ~allowed[codes], lambda i: "is not one of the classes allowed"),
    )
    lines = columns.per_box("lines")
    for severity, code, wrong, text in checks:
        for i in np.flatnonzero(wrong).tolist():
            picture = int(owners[i])
            corners = ", ".join(f"{value:g}" for value in columns.boxes[i])
            yield (
                picture,
                Finding(
                    severity,
                    code,
                    f"{used[codes[i]]} [{corners}] {text(i)}",
                    columns.values("source")[picture],
                    int(lines[i]),
                    columns.values("name")[picture],
                ),
            )


def _duplicates(
    boxes: npt.NDArray[Any], owners: npt.NDArray[Any], codes: npt.NDArray[Any]
) -> npt.NDArray[np.bool_]:
    """True for each box that repeats an earlier one of its picture and class to a pixel."""
    keys = np.column_stack([owners, codes, np.rint(boxes).astype(np.int64)])
    _, first = np.unique(keys, axis=0, return_index=True)
    repeated = np.ones(len(boxes), np.bool_)
    repeated[first] = False
    return repeated


@dataclass(frozen=True)
class _Looked:
    """Findings of the file itself, whether there is one, its hash when decoded, and for hash 0 a
    digest of its pixels."""

    findings: list[Finding]
    is_there: bool
    hash: int | None = None
    digest: str = ""


def _check_picture(
    columns: Columns, picture: int, fence: Fence, decode: bool, is_bag: bool
) -> _Looked:
    image, name = columns.values("image")[picture], columns.values("name")[picture]
    source, line = columns.values("source")[picture], columns.values("line")[picture]

    def fault(code: str, text: str, severity: Any = "error") -> Finding:
        return Finding(severity, code, text, image or source, 0 if image else line, name)

    if not image:
        return _Looked(
            [fault("picture-missing", f"there is no picture {name!r}", "warning")], False
        )
    if is_bag:
        return _check_recorded(fence.root, image, decode, fault)
    path = fence.root / image
    try:
        header = read_header(fence.check(image))
        value = check_and_hash(path) if decode else None
        digest = pixel_digest(path) if value == 0 else ""
    except InputError as error:
        text = str(error).removeprefix(f"{path}: ")
        if "leads out" in text:
            return _Looked([fault("outside-root", text)], False)
        there = path.is_file()
        return _Looked([fault("picture-corrupt" if there else "picture-missing", text)], there)
    findings = []
    width, height = columns.values("width")[picture], columns.values("height")[picture]
    if header.orientation != 1:
        findings.append(
            fault(
                "exif-rotation",
                f"the Exif orientation is {header.orientation}: "
                "tools that ignore it see a turned picture",
                "warning",
            )
        )
    if width and (width, height) != (header.width, header.height):
        findings.append(
            fault(
                "size-mismatch",
                f"the labels are for {width}x{height} pixels, the "
                f"picture has {header.width}x{header.height}",
            )
        )
    return _Looked(findings, True, value, digest)


def _check_recorded(root: Path, image: str, decode: bool, fault: Any) -> _Looked:
    if not decode:
        return _Looked([], True)
    from perception.datasets.formats.rosbag2 import load_picture

    try:
        pixels = load_picture(bag_picture(root, image))
    except InputError as error:
        return _Looked([fault("picture-corrupt", str(error))], True)
    value = difference_hash(np.ascontiguousarray(pixels[:, :, 1]))
    return _Looked([], True, value, "" if value else array_digest(pixels))


def _similar(rows: _Checked, settings: LintSettings) -> Iterator[Finding]:
    """Groups of pictures that look alike, those that span splits as errors."""
    # A picture without structure has the hash 0, as every other such picture: only those with the
    # same pixels are alike.
    plain: dict[str, list[int]] = {}
    for i, digest in enumerate(rows.digests):
        if digest:
            plain.setdefault(digest, []).append(i)
    known = [i for i, value in enumerate(rows.hashes) if value]
    hashes = np.asarray([rows.hashes[i] for i in known], np.uint64)
    alike = [[known[i] for i in group] for group in groups_of_similar(hashes, settings.similar)]
    for members in (*alike, *(group for group in plain.values() if len(group) > 1)):
        splits = sorted({rows.splits[i] for i in members})
        crossing = len(splits) > 1
        listed = ", ".join(rows.images[i] for i in members[:10])
        more = f" and {len(members) - 10} more" if len(members) > 10 else ""
        yield Finding(
            "error" if crossing else "warning",
            "similar-across-splits" if crossing else "similar-pictures",
            f"{len(members)} pictures look alike"
            + (
                f" and are in the splits {', '.join(s or '(none)' for s in splits)}"
                if crossing
                else ""
            )
            + f": {listed}{more}",
            rows.images[members[0]],
            0,
            rows.names[members[0]],
        )


def _leaks(rows: _Checked) -> Iterator[Finding]:
    """Sequences with pictures in more than one split."""
    splits: dict[str, Counter[str]] = {}
    for sequence, split in zip(rows.sequences, rows.splits, strict=True):
        if sequence:
            splits.setdefault(sequence, Counter())[split] += 1
    for sequence, counts in sorted(splits.items()):
        if len(counts) > 1:
            shares = ", ".join(
                f"{count} in {split or '(none)'}" for split, count in sorted(counts.items())
            )
            yield Finding(
                "error", "sequence-leak", f"sequence {sequence!r} is in several splits: {shares}"
            )


def _repeated(rows: _Checked) -> Iterator[Finding]:
    """Picture files that are listed more than once."""
    for image, count in Counter(image for image in rows.images if image).items():
        if count > 1:
            yield Finding(
                "error",
                "picture-duplicate",
                f"the picture is listed {count} times",
                image,
                0,
                os.path.basename(image),
            )


def _balance(classes: dict[str, int], rows: _Checked, settings: LintSettings) -> Iterator[Finding]:
    most = max(classes.values(), default=0)
    for name, count in classes.items():
        if count == 0:
            yield Finding("warning", "class-empty", f"class {name!r} has no box")
        elif count * settings.imbalance < most or (count < settings.rare <= most):
            yield Finding(
                "warning",
                "class-rare",
                f"class {name!r} has {count} boxes, the most frequent class {most}",
            )
    train = rows.by_split.get("train")
    for split, counts in sorted(rows.by_split.items()):
        for name in sorted(counts):
            if train is not None and split != "train" and not train[name]:
                yield Finding(
                    "warning",
                    "class-not-trained",
                    f"class {name!r} is in split {split!r} ({counts[name]} boxes) but not in train",
                )
