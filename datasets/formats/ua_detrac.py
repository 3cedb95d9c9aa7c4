"""UA-DETRAC: one XML file a sequence, with tracks, vehicle types, weather and ignored regions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import pyarrow as pa

from perception.datasets.pictures import read_header
from perception.datasets.plan import Plan, batched
from perception.datasets.report import Report
from perception.datasets.rows import Rows, to_text
from perception.datasets.sample import Sample
from perception.datasets.sequences import places
from perception.datasets.source import Source, short
from perception.datasets.text import Pictures, check_inside, number, walk, whole
from perception.datasets.xmltree import Node, parse
from perception.errors import InputError

HOLDS = frozenset(
    {
        "track_id",
        "truncation",
        "occlusion",
        "sequence",
        "frame",
        "attributes",
        "box_attributes",
        "ignore",
    }
)
_XML = frozenset({".xml"})
_KEPT = ("orientation", "speed", "trajectory_length", "color")
UNNAMED = "vehicle"
"""Class of a target without vehicle_type, as in the benchmark's test sequences."""


def claims(path: Path) -> str:
    """See plan.Format."""
    files = [path.name] if path.is_file() else walk(path, _XML)
    root = path.parent if path.is_file() else path
    first = next((file for file in files if file.lower().endswith(".xml")), None)
    return f"{first} is a DETRAC sequence" if first and _is_detrac(root / first) else ""


def _is_detrac(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            return re.search(rb"<sequence\s", stream.read(2048)) is not None
    except OSError:
        return False


def plan(path: Path) -> Plan:
    """See plan.Format; a unit is one XML file."""
    root = path if path.is_dir() else path.parent
    files = tuple(walk(root, _XML)) if path.is_dir() else (path.name,)
    if not files:
        raise InputError(f"{path}: no .xml file found here, expected UA-DETRAC sequences")
    folders: dict[str, list[str]] = {}
    for picture in Pictures(root).files:
        folder, _, name = picture.rpartition("/")
        folders.setdefault(folder.rpartition("/")[2], []).append(picture)
    return Plan("ua_detrac", root, files, None, files, {"pictures": folders})


def read(plan: Plan, units: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """See plan.Format."""
    return batched(units, partial(_read_unit, plan.root, plan.header["pictures"]))


def _read_unit(root: Path, folders: dict[str, list[str]], rows: Rows, unit: str) -> None:
    report = Report()
    try:
        node = parse(root / unit)
        if node.tag != "sequence":
            raise InputError(f"{unit}:{node.line}: found <{node.tag}>, expected <sequence>")
    except InputError as error:
        report.add("error", "bad-xml", str(error), file=unit)
        rows.picture("", None)
        rows.findings(report.findings)
        return
    name = node.attributes.get("name", unit.rpartition("/")[2][:-4])
    about = node.find("sequence_attribute")
    regions = _regions(node, unit, report)
    pictures = {_frame_number(file): file for file in folders.get(name, [])}
    frames: dict[int, Node] = {}
    for frame in node.all("frame"):
        try:
            number_ = whole(frame.attributes.get("num", ""))
        except ValueError as error:
            report.add("error", "bad-number", str(error), file=unit, line=frame.line)
            continue
        if number_ in frames:
            report.add(
                "error",
                "duplicate-frame",
                f"frame {number_} again; the first is used",
                file=unit,
                line=frame.line,
            )
        frames.setdefault(number_, frame)
    size = _size(root, pictures, report)
    for index in sorted(set(frames) | set(pictures)):
        found = frames.get(index)
        title = f"{name}/img{index:05d}.jpg"
        rows.picture(
            title,
            pictures.get(index, ""),
            width=size[0],
            height=size[1],
            sequence=name,
            frame=index,
            source=unit,
            line=found.line if found else 0,
            attributes=dict(about.attributes) if about else None,
        )
        for region in regions:
            rows.ignore(*region)
        targets = found.find("target_list") if found else None
        for target in targets.all("target") if targets else ():
            _target(rows, target, unit, title, report)
    if not frames and not pictures:
        rows.picture("", None)
    rows.findings(report.findings)


def _frame_number(file: str) -> int:
    digits = re.findall(r"[0-9]+", file.rpartition("/")[2])
    return int(digits[-1]) if digits else 0


def _size(root: Path, pictures: dict[int, str], report: Report) -> tuple[int, int]:
    """Size of the sequence's first picture: one camera, one size."""
    if not pictures:
        return 0, 0
    first = pictures[min(pictures)]
    try:
        header = read_header(check_inside(root, first))
    except InputError as error:
        report.add("error", "bad-picture", str(error), file=first)
        return 0, 0
    return header.width, header.height


def _corners(box: Node) -> tuple[float, float, float, float]:
    left, top, width, height = (
        number(box.attributes.get(key, "")) for key in ("left", "top", "width", "height")
    )
    return left, top, left + width, top + height


def _regions(node: Node, unit: str, report: Report) -> list[tuple[float, float, float, float]]:
    regions = []
    for ignored in node.all("ignored_region"):
        for box in ignored.all("box"):
            try:
                regions.append(_corners(box))
            except ValueError as error:
                report.add("error", "bad-number", str(error), file=unit, line=box.line)
    return regions


def _target(rows: Rows, target: Node, unit: str, picture: str, report: Report) -> None:
    box, about = target.find("box"), target.find("attribute")
    attributes = about.attributes if about else {}
    try:
        if box is None:
            raise ValueError("a target without a box")
        corners = _corners(box)
        extra: dict[str, Any] = {"track_ids": whole(target.attributes.get("id", "-1"))}
        if "truncation_ratio" in attributes:
            extra["truncation"] = number(attributes["truncation_ratio"])
        hidden = _hidden(target, corners)
    except ValueError as error:
        report.add(
            "error",
            "bad-number",
            str(error) or "a number is missing",
            file=unit,
            line=target.line,
            picture=picture,
        )
        return
    if hidden is not None:
        extra["occlusion"] = hidden
    kept = {key: attributes[key] for key in _KEPT if key in attributes}
    if kept:
        extra["box_attributes"] = to_text(kept)
    label = attributes.get("vehicle_type", UNNAMED) or UNNAMED
    rows.box(*corners, label, lines=target.line, **extra)


def _hidden(target: Node, corners: tuple[float, float, float, float]) -> float | None:
    """Share of the box that others cover: overlap regions over its area, None without any."""
    occlusion = target.find("occlusion")
    if occlusion is None:
        return None
    area = (corners[2] - corners[0]) * (corners[3] - corners[1])
    covered = 0.0
    for region in occlusion.all("region_overlap"):
        x1, y1, x2, y2 = _corners(region)
        covered += max(0.0, x2 - x1) * max(0.0, y2 - y1)
    return min(1.0, covered / area) if area > 0 else None


def write(source: Source, out: Path) -> None:
    """Write annotations/SEQUENCE.xml and images/SEQUENCE; see plan.Format."""
    where = places(source.dataset)
    sequences: dict[str, dict[int, str]] = {}
    heads: dict[str, Sample] = {}
    for sample in source.samples():
        name, frame = where[source.position]
        if sample.frame >= 0 and sample.frame != frame:
            source.tally("renumbered", "frames count from 1 and each once: another number")
        first = heads.setdefault(name, sample)
        if first.ignore.tolist() != sample.ignore.tolist():
            source.tally(
                "lost-ignore", "ignore regions are written as those of the sequence's first picture"
            )
        if sample.image is not None:
            source.put_picture(sample, out / "images" / name, f"img{frame:05d}")
        lost = {key for item in sample.box_attributes for key in item} - set(_KEPT)
        if lost:
            source.tally("lost-box_attributes", f"attributes {sorted(lost)} of boxes have no place")
        sequences.setdefault(name, {})[frame] = _frame(sample, frame, source.names)
    (out / "annotations").mkdir(parents=True, exist_ok=True)
    for name, frames in sequences.items():
        text = _document(name, heads[name], [text for _, text in sorted(frames.items())])
        (out / "annotations" / f"{name}.xml").write_text(text, encoding="utf-8", newline="\n")


def _document(name: str, first: Sample, frames: list[str]) -> str:
    about = "".join(
        f" {key}={quoteattr(value)}"
        for key, value in first.attributes.items()
        if re.fullmatch(r"[A-Za-z_][\w.-]*", key)
    )
    ignored = "".join(f"      {_box('box', box)}\n" for box in first.ignore)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f"<sequence name={quoteattr(name)}>\n   <sequence_attribute{about}/>\n"
        f"   <ignored_region>\n{ignored}   </ignored_region>\n{''.join(frames)}</sequence>\n"
    )


def _box(tag: str, box: object) -> str:
    x1, y1, x2, y2 = (float(v) for v in box)  # type: ignore[attr-defined]
    return (
        f'<{tag} left="{short(x1)}" top="{short(y1)}" width="{short(x2 - x1)}" '
        f'height="{short(y2 - y1)}"/>'
    )


def _frame(sample: Sample, frame: int, names: tuple[str, ...]) -> str:
    lines = [f'   <frame density="{len(sample.truth)}" num="{frame}">', "      <target_list>"]
    for i, box in enumerate(sample.truth.boxes):
        attributes = {
            key: sample.box_attributes[i][key] for key in _KEPT if key in sample.box_attributes[i]
        }
        if sample.truncation[i] == sample.truncation[i]:
            attributes["truncation_ratio"] = short(float(sample.truncation[i]))
        attributes["vehicle_type"] = names[int(sample.truth.labels[i])]
        text = "".join(f" {key}={quoteattr(value)}" for key, value in attributes.items())
        lines += [
            f'         <target id="{int(sample.truth.track_ids[i])}">',
            f"            {_box('box', box)}",
            f"            <attribute{text}/>",
        ]
        hidden = float(sample.occlusion[i])
        if hidden == hidden:
            x1, y1, x2, y2 = (float(v) for v in box)
            region = _box("region_overlap", (x1, y1, x2, y1 + (y2 - y1) * hidden))
            lines.append(f"            <occlusion>{region}</occlusion>")
        lines.append("         </target>")
    return "\n".join([*lines, "      </target_list>", "   </frame>", ""])
