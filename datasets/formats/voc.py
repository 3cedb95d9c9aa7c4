"""Pascal VOC: one XML file a picture.

Corners are taken as written. The VOC devkit counts pixels from 1, but most exporters (CVAT,
Roboflow, labelImg) write corners from 0, and nothing in the file tells which one it was.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pyarrow as pa

from perception.datasets.pictures import read_header
from perception.datasets.plan import Plan, batched
from perception.datasets.report import Report
from perception.datasets.rows import Rows, to_text
from perception.datasets.sample import Sample
from perception.datasets.source import Source, short
from perception.datasets.text import Fence, Pictures, number, several, walk, whole
from perception.datasets.xmltree import Node, parse
from perception.errors import InputError

HOLDS = frozenset({"size", "unlabelled", "truncation", "occlusion", "box_attributes", "split"})
_XML = frozenset({".xml"})
_FLAGS = ("pose", "difficult", "truncated", "occluded")
FLAG = 0.5
"""Truncation or occlusion read for a mere flag 1: some share, nobody knows which."""


def claims(path: Path) -> str:
    """See plan.Format."""
    if path.is_file():
        return f"{path.name} is a VOC annotation" if _is_voc(path) else ""
    first = next(walk(path, _XML), None)
    return f"{first} is a VOC annotation" if first and _is_voc(path / first) else ""


def _is_voc(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return path.suffix.lower() == ".xml" and b"<annotation" in file.read(2048)
    except OSError:
        return False


def plan(path: Path) -> Plan:
    """See plan.Format; a unit is a label file and its picture."""
    root = path if path.is_dir() else path.parent
    files = list(walk(root, _XML)) if path.is_dir() else [path.name]
    if not files:
        raise InputError(f"{path}: no .xml file found here, expected Pascal VOC annotations")
    pictures = Pictures(root)
    splits = _splits(root)
    units, used, findings = list[str](), set[str](), Report()
    for file in files:
        stem = os.path.splitext(file.rpartition("/")[2])[0]
        found = pictures.find(
            f"{stem}.jpg", file.rpartition("/")[0].replace("Annotations", "JPEGImages")
        )
        if len(found) > 1:
            findings.add("error", "ambiguous-picture", several(found), file=file)
        picture = found[0] if len(found) == 1 else ""
        used.add(picture)
        units.append(f"{file}\0{picture}\0{splits.get(stem, '')}")
    if path.is_dir():
        units += [f"\0{picture}\0" for picture in pictures.files if picture not in used]
    return Plan("voc", root, tuple(units), None, tuple(files), findings=tuple(findings.findings))


def _splits(root: Path) -> dict[str, str]:
    """Stem -> split, from ImageSets/Main/{train,val,test}.txt."""
    splits: dict[str, str] = {}
    for folder in sorted(root.rglob("ImageSets/Main")):
        for split in ("train", "val", "test"):
            file = folder / f"{split}.txt"
            if file.is_file():
                for line in read_stems(file):
                    splits.setdefault(line, split)
    return splits


def read_stems(file: Path) -> list[str]:
    """First words of the lines of a list file."""
    text = file.read_bytes().decode("utf-8-sig", "replace")
    return [line.split()[0] for line in text.splitlines() if line.split()]


def read(plan: Plan, units: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """See plan.Format."""
    return batched(units, partial(_read_unit, Fence(plan.root)))


def _read_unit(fence: Fence, rows: Rows, unit: str) -> None:
    root = fence.root
    file, picture, split = unit.split("\0")
    report = Report()
    node: Node | None = None
    if file:
        try:
            node = parse(root / file)
            if node.tag != "annotation":
                raise InputError(f"{file}:{node.line}: found <{node.tag}>, expected <annotation>")
        except InputError as error:
            report.add("error", "bad-xml", str(error), file=file, picture=picture)
            node = None
    else:
        report.add(
            "warning",
            "no-label-file",
            "there is no label file for this picture",
            file=picture,
            picture=picture,
        )
    size = (0, 0)
    if picture:
        try:
            header = read_header(fence.check(picture))
            size = (header.width, header.height)
        except InputError as error:
            report.add("error", "bad-picture", str(error), file=picture, picture=picture)
    else:
        report.add("warning", "no-picture", "there is no picture for this label file", file=file)
    if node is not None:
        size = _stated_size(node, file, size, report)
    name = node.value("filename") if node is not None else picture.rpartition("/")[2]
    rows.picture(
        name or picture.rpartition("/")[2] or f"{os.path.splitext(os.path.basename(file))[0]}.jpg",
        picture,
        width=size[0],
        height=size[1],
        split=split,
        source=file,
        line=1 if file else 0,
    )
    for item in node.all("object") if node is not None else ():
        _object(rows, item, file, picture, report)
    rows.findings(report.findings)


def _stated_size(node: Node, file: str, found: tuple[int, int], report: Report) -> tuple[int, int]:
    """Size that the labels were made for; a picture of another size is lint's to remark."""
    size = node.find("size")
    if size is None:
        return found
    try:
        stated = (whole(size.value("width", "0")), whole(size.value("height", "0")))
    except ValueError as error:
        report.add("error", "bad-number", str(error), file=file, line=size.line)
        return found
    return stated if min(stated) > 0 else found


def _object(rows: Rows, item: Node, file: str, picture: str, report: Report) -> None:
    box = item.find("bndbox")
    name = item.value("name")
    if box is None or not name:
        report.add(
            "error",
            "bad-box",
            f"an object without {'name' if box else 'bndbox'}",
            file=file,
            line=item.line,
            picture=picture,
        )
        return
    try:
        x1, y1, x2, y2 = (number(box.value(key)) for key in ("xmin", "ymin", "xmax", "ymax"))
    except ValueError as error:
        report.add(
            "error",
            "bad-number",
            str(error) or "a corner is missing",
            file=file,
            line=box.line,
            picture=picture,
        )
        return
    extra: dict[str, Any] = {}
    attributes = {key: item.value(key) for key in _FLAGS if item.value(key)}
    if attributes:
        extra["box_attributes"] = to_text(attributes)
    for key, column in (("truncated", "truncation"), ("occluded", "occlusion")):
        if attributes.get(key) in ("0", "1"):
            extra[column] = FLAG if attributes[key] == "1" else 0.0
    rows.box(x1, y1, x2, y2, name, lines=item.line, **extra)


def write(source: Source, out: Path) -> None:
    """Write Annotations, JPEGImages and ImageSets/Main; see plan.Format."""
    folder = out / "Annotations"
    folder.mkdir(parents=True)
    splits: dict[str, list[str]] = {}
    shares = 0
    for sample in source.samples():
        stem = source.stem(sample)
        name = source.put_picture(sample, out / "JPEGImages", stem)
        (folder / f"{stem}.xml").write_text(
            _xml(sample, name, source.names), encoding="utf-8", newline="\n"
        )
        lost = {key for item in sample.box_attributes for key in item} - set(_FLAGS)
        if lost:
            source.tally("lost-box_attributes", f"attributes {sorted(lost)} of boxes have no place")
        shares += sum(v > 0 and v != FLAG for v in (*sample.truncation, *sample.occlusion))
        if sample.split:
            splits.setdefault(sample.split, []).append(stem)
    if shares:
        source.report.add("info", "lost-share", f"{shares} truncations and occlusions become flags")
    for split, stems in sorted(splits.items()):
        lists = out / "ImageSets" / "Main"
        lists.mkdir(parents=True, exist_ok=True)
        safe = split if split in ("train", "val", "test") else ""
        if not safe:
            source.report.add(
                "info",
                "lost-split",
                f"{len(stems)} pictures of split {split!r}: VOC has train, val, test",
            )
            continue
        (lists / f"{safe}.txt").write_text(
            "".join(f"{s}\n" for s in stems), encoding="utf-8", newline="\n"
        )
    source.report.add(
        "info",
        "lost-class-order",
        "VOC lists no classes: their order and those without a box are lost",
    )


def _xml(sample: Sample, name: str, names: tuple[str, ...]) -> str:
    lines = [
        "<annotation>",
        f"  <filename>{escape(name)}</filename>",
        "  <size>",
        f"    <width>{sample.width}</width>",
        f"    <height>{sample.height}</height>",
        "    <depth>3</depth>",
        "  </size>",
    ]
    for i in range(len(sample.truth)):
        attributes = dict(sample.box_attributes[i])
        for key, share in (("truncated", sample.truncation[i]), ("occluded", sample.occlusion[i])):
            if share == share:
                attributes[key] = str(int(share > 0))
        lines += ["  <object>", f"    <name>{escape(names[int(sample.truth.labels[i])])}</name>"]
        lines += [
            f"    <{key}>{escape(attributes[key])}</{key}>" for key in _FLAGS if key in attributes
        ]
        lines.append("    <bndbox>")
        corners = zip(("xmin", "ymin", "xmax", "ymax"), sample.truth.boxes[i], strict=True)
        lines += [f"      <{key}>{short(value)}</{key}>" for key, value in corners]
        lines += ["    </bndbox>", "  </object>"]
    return "\n".join([*lines, "</annotation>", ""])
