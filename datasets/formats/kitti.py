"""KITTI object (label_2/NNNNNN.txt) and tracking (label_02/NNNN.txt) labels.

A row is: type, truncated, occluded, alpha, left, top, right, bottom, h, w, l, x, y, z, rotation_y
and, in results, score (devkit readme of the object benchmark). Tracking puts frame and track id in
front. x y z is the middle of the bottom face in camera coordinates, y down; `Sample.boxes_3d` holds
the geometric centre. DontCare rows are ignore regions.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from perception.datasets.pictures import read_header
from perception.datasets.plan import Plan, batched
from perception.datasets.report import Report
from perception.datasets.rows import Rows
from perception.datasets.sample import Sample
from perception.datasets.source import Source, short
from perception.datasets.text import (
    PICTURE_SUFFIXES,
    Fence,
    is_digits,
    listing_digest,
    numbers,
    read_lines,
    usual_split,
    whole,
)
from perception.errors import InputError

HOLDS = frozenset(
    {"unlabelled", "score", "truncation", "occlusion", "boxes_3d", "distance", "ignore", "crowd"}
)

# Levels of the devkit: 0 fully visible, 1 partly occluded, 2 largely occluded, 3 unknown. The
# shares stand for the levels when they are compared with other data sets' shares.
OCCLUSION = {0: 0.0, 1: 0.5, 2: 0.8}
_COLUMNS = 15
_LABELS = frozenset({".txt"})


def claims(path: Path) -> str:
    """See plan.Format."""
    for folder, labels in _label_folders(path):
        return f"{folder or '.'} has {labels}"
    if path.is_dir() and (file := next(iter(_texts(path)), None)) and _is_label(path / file):
        return f"{file} has rows of {_COLUMNS} columns"
    return ""


def _texts(folder: Path) -> list[str]:
    return sorted(e.name for e in os.scandir(folder) if e.name.endswith(".txt") and e.is_file())


def _is_label(file: Path) -> bool:
    for line in read_lines(file, "", Report()):
        fields = line.split()
        if fields:
            return len(fields) in (15, 16) and not fields[0][0].isdigit() and "." not in fields[2]
    return False


def _label_folders(path: Path) -> Iterator[tuple[str, str]]:
    for folder in (
        "",
        "training",
        "testing",
        "train",
        "val",
        "test",
        "data_object",
        "data_tracking",
    ):
        for labels in ("label_2", "label_02"):
            if (path / folder / labels).is_dir():
                yield folder, labels


def plan(path: Path) -> Plan:
    """See plan.Format; a unit is split folder, stem, picture and label folder."""
    if path.is_file():
        raise InputError(f"{path}: expected the folder that holds label_2, found a file")
    folders = list(_label_folders(path))
    if not folders:
        if not _texts(path):
            raise InputError(f"{path}: expected a folder label_2 or label files, found neither")
        return _flat(path)
    units, sources = list[str](), list[str]()
    for folder, labels in folders:
        base = f"{folder}/" if folder else ""
        texts = [f"{base}{labels}/{name}" for name in _texts(path / folder / labels)]
        sources += texts
        if labels == "label_02":
            units += [f"tracking\0{text}" for text in texts]
        else:
            pictures = _listing(path / folder / "image_2")
            stems = {os.path.splitext(os.path.basename(text))[0] for text in texts}
            units += [
                f"{folder}\0{stem}\0{pictures.get(stem, '')}\0{'label_2' if stem in stems else ''}"
                for stem in sorted(stems | set(pictures))
            ]
    if (path / "testing" / "image_2").is_dir() and not (path / "testing" / "label_2").is_dir():
        units += [
            f"testing\0{stem}\0{name}\0none"
            for stem, name in sorted(_listing(path / "testing" / "image_2").items())
        ]
    tracking = any(labels == "label_02" for _, labels in folders)
    header = {"pictures": listing_digest(path)} if tracking else {}
    return Plan("kitti", path, tuple(units), None, tuple(sources), header)


def _flat(path: Path) -> Plan:
    """A folder of label files alone, such as a detector's results."""
    sibling = path.parent / "image_2"
    root = path.parent if sibling.is_dir() else path
    labels = path.name if sibling.is_dir() else "."
    pictures = _listing(sibling if sibling.is_dir() else path)
    texts = _texts(path)
    units = tuple(f"\0{name[:-4]}\0{pictures.get(name[:-4], '')}\0{labels}" for name in texts)
    sources = tuple(name if labels == "." else f"{labels}/{name}" for name in texts)
    return Plan("kitti", root, units, None, sources)


def _listing(folder: Path) -> dict[str, str]:
    """Stem -> file name of the pictures of a folder."""
    if not folder.is_dir():
        return {}
    names = sorted(entry.name for entry in os.scandir(folder))
    split = (os.path.splitext(name) for name in names)
    return {stem: stem + suffix for stem, suffix in split if suffix.lower() in PICTURE_SUFFIXES}


def read(plan: Plan, units: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """See plan.Format."""
    return batched(units, partial(_read_unit, Fence(plan.root)))


def _read_unit(fence: Fence, rows: Rows, unit: str) -> None:
    root = fence.root
    if unit.startswith("tracking\0"):
        _read_tracking(fence, rows, unit.partition("\0")[2])
        return
    folder, stem, picture, labels = unit.split("\0")
    base = f"{folder}/" if folder else ""
    flat = labels == "."
    report = Report()
    image = (picture if flat else f"{base}image_2/{picture}") if picture else ""
    source = f"{stem}.txt" if flat else f"{base}{labels or 'label_2'}/{stem}.txt"
    width, height = _size(fence, image, stem, source, report)
    split = usual_split(folder)
    rows.picture(
        picture or f"{stem}.png",
        image,
        id=stem,
        width=width,
        height=height,
        split=split,
        source="" if labels == "none" else source,
    )
    if labels == "":
        report.add(
            "warning",
            "no-label-file",
            "there is no label file for this picture",
            file=source,
            picture=picture,
        )
    elif labels != "none":
        for i, line in enumerate(read_lines(root / source, source, report), 1):
            if line.strip():
                _row(rows, line.split(), source, i, report, image or stem)
    rows.findings(report.findings)


def _size(fence: Fence, image: str, name: str, source: str, report: Report) -> tuple[int, int]:
    if not image:
        report.add(
            "warning",
            "no-picture",
            "there is no picture for this label file",
            file=source,
            picture=name,
        )
        return 0, 0
    try:
        header = read_header(fence.check(image))
    except InputError as error:
        report.add("error", "bad-picture", str(error), file=image, picture=image)
        return 0, 0
    return header.width, header.height


def _row(
    rows: Rows,
    fields: list[str],
    source: str,
    line: int,
    report: Report,
    picture: str,
    **extra: Any,
) -> None:
    """One object; anything odd is itemised and the row is not used."""
    if len(fields) not in (_COLUMNS, _COLUMNS + 1):
        report.add(
            "error",
            "bad-row",
            f"found {len(fields)} columns, expected {_COLUMNS} or with a score {_COLUMNS + 1}",
            file=source,
            line=line,
            picture=picture,
        )
        return
    try:
        values = list(numbers(fields[1:]))
        level = whole(fields[2])
    except ValueError as error:
        report.add("error", "bad-number", str(error), file=source, line=line, picture=picture)
        return
    truncated, _, alpha, x1, y1, x2, y2, h, w, length, x, y, z, yaw = values[:14]
    if fields[0] == "DontCare":
        rows.ignore(x1, y1, x2, y2)
        return
    if len(values) == _COLUMNS:
        extra["scores"] = values[14]
    if 0 <= truncated <= 1:
        extra["truncation"] = truncated
    if level in OCCLUSION:
        extra["occlusion"] = OCCLUSION[level]
    if x > -999 and z > -999 and h > 0:  # the devkit writes -1000 and -1 for "no 3-D box"
        extra["boxes_3d"] = (x, y - h / 2, z, length, h, w, yaw)
        extra["distance"] = math.hypot(x, z)
    attributes = (
        f'{{"alpha": "{fields[3]}", "occluded": "{level}"}}'
        if alpha > -10
        else (f'{{"occluded": "{level}"}}')
    )
    rows.box(x1, y1, x2, y2, fields[0], lines=line, box_attributes=attributes, **extra)


def _read_tracking(fence: Fence, rows: Rows, source: str) -> None:
    root = fence.root
    report = Report()
    frames: dict[int, list[tuple[int, list[str]]]] = {}
    for i, line in enumerate(read_lines(root / source, source, report), 1):
        fields = line.split()
        if not fields:
            continue
        try:
            frames.setdefault(whole(fields[0]), []).append((i, fields))
        except ValueError as error:
            report.add("error", "bad-number", str(error), file=source, line=i)
    folder, _, name = (
        source.rpartition("/label_02/")
        if "/label_02/" in source
        else ("", "", source.rpartition("/")[2])
    )
    sequence = name[:-4]
    base = f"{folder}/image_02/{sequence}" if folder else f"image_02/{sequence}"
    pictures = {int(stem): file for stem, file in _listing(root / base).items() if is_digits(stem)}
    rows.findings(report.findings)
    for frame in sorted(set(frames) | set(pictures)):
        items = Report()
        image = f"{base}/{pictures[frame]}" if frame in pictures else ""
        shown = f"{sequence}/{frame:06d}"
        width, height = _size(fence, image, shown, source, items)
        rows.picture(
            image.rpartition("image_02/")[2] or f"{shown}.png",
            image,
            id=shown,
            width=width,
            height=height,
            split=usual_split(folder),
            sequence=sequence,
            frame=frame,
            source=source,
        )
        for line_number, fields in frames.get(frame, []):
            try:
                track = whole(fields[1]) if len(fields) > 1 else -1
            except ValueError as error:
                items.add("error", "bad-number", str(error), file=source, line=line_number)
                continue
            _row(rows, fields[2:], source, line_number, items, shown, track_ids=track)
        rows.findings(items.findings)


def write(source: Source, out: Path) -> None:
    """Write training/label_2 and training/image_2; see plan.Format.

    Class names with blanks get underscores, because columns are parted by blanks.
    """
    labels = out / "training" / "label_2"
    labels.mkdir(parents=True)
    names = list[str]()
    for name in source.names:
        name = re.sub(r"\s", "_", name)
        while name in names:
            name += "_"
        names.append(name)
    for before, after in zip(source.names, names, strict=True):
        if before != after:
            source.report.add("info", "renamed-class", f"class {before!r} is written as {after!r}")
    for sample in source.samples():
        stem = source.stem(sample)
        if any(v == v and v not in OCCLUSION.values() for v in map(float, sample.occlusion)):
            source.tally("lost-share", "occlusions become one of KITTI's three levels")
        source.put_picture(sample, out / "training" / "image_2", stem)
        lines = [_line(sample, i, names) for i in np.flatnonzero(~sample.crowd).tolist()]
        crowds = sample.truth.boxes[sample.crowd]
        for _ in crowds:
            source.tally("lost-crowd", "boxes that cover a group become DontCare regions")
        lines += [
            "DontCare -1 -1 -10 " + " ".join(map(short, box)) + " -1 -1 -1 -1000 -1000 -1000 -10"
            for box in (*crowds, *sample.ignore)
        ]
        text = "".join(f"{line}\n" for line in lines)
        (labels / f"{stem}.txt").write_text(text, encoding="utf-8", newline="\n")
    used = source.used_names()
    if list(used) != sorted(used) or len(used) < len(names):
        source.report.add(
            "info",
            "lost-class-order",
            "KITTI lists no classes: their order and those without a box are lost",
        )


def _line(sample: Sample, i: int, names: list[str]) -> str:
    attributes = sample.box_attributes[i]
    truncation, occlusion = float(sample.truncation[i]), float(sample.occlusion[i])
    level = (
        3 if math.isnan(occlusion) else min(OCCLUSION, key=lambda k: abs(OCCLUSION[k] - occlusion))
    )
    stored = attributes.get("occluded", "")
    level = int(stored) if stored in ("0", "1", "2", "3") else level
    solid = "-1 -1 -1 -1000 -1000 -1000 -10"
    if not np.isnan(sample.boxes_3d[i]).any():
        x, y, z, length, h, w, yaw = sample.boxes_3d[i]
        solid = " ".join(map(short, (h, w, length, x, y + h / 2, z, yaw)))
    fields = [
        names[int(sample.truth.labels[i])],
        "-1" if math.isnan(truncation) else short(truncation),
        str(level),
        attributes.get("alpha", "-10"),
        *map(short, sample.truth.boxes[i]),
        solid,
    ]
    if sample.scored[i]:
        fields.append(short(float(sample.truth.scores[i])))
    return " ".join(fields)
