"""MOTChallenge text: one file a sequence, rows of frame, id, left, top, width, height and more.

Nine columns are MOT16 and later (confidence, class, visibility at the end), ten are MOT15 and
results (confidence and world x y z). Frames count from 1, and those without a row are pictures with
nothing in them. Left and top count from 1 too, which reader and writer take off and add.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from perception.datasets.pictures import read_header
from perception.datasets.plan import Plan, batched
from perception.datasets.report import Report
from perception.datasets.rows import Rows, to_text
from perception.datasets.sample import Sample
from perception.datasets.sequences import MAX_FRAME, places
from perception.datasets.source import Source, short
from perception.datasets.text import (
    PICTURE_SUFFIXES,
    check_inside,
    is_digits,
    listing_digest,
    number,
    numbers,
    read_lines,
    walk,
    whole,
)
from perception.errors import InputError

HOLDS = frozenset({"size", "unlabelled", "score", "track_id", "occlusion", "sequence", "frame"})

# Class numbers of MOT16, MOT17 and MOT20 (Milan et al., "MOT16", 2016, table 3).
CLASSES = (
    "pedestrian",
    "person_on_vehicle",
    "car",
    "bicycle",
    "motorbike",
    "non_mot_vehicle",
    "static_person",
    "distractor",
    "occluder",
    "occluder_on_ground",
    "occluder_full",
    "reflection",
    "crowd",
)
_TEXT = frozenset({".txt"})
FIRST_PIXEL = 1
"""Left and top count from 1 (https://motchallenge.net/instructions), here they do from 0."""


def claims(path: Path) -> str:
    """See plan.Format."""
    # A sequence may have no object at all; the first that has one tells.
    file = next((file for file in _files(path) if file.stat().st_size), None)
    return f"{file.name} has rows of frame, id and box" if file and _is_mot(file) else ""


def _files(path: Path) -> list[Path]:
    """gt.txt of every sequence, or the one file given."""
    if path.is_file():
        return [path] if path.suffix.lower() == ".txt" else []
    return [path / file for file in walk(path, _TEXT) if file.rpartition("/")[2] == "gt.txt"]


def _is_mot(file: Path) -> bool:
    for line in read_lines(file, "", Report()):
        if line.strip():
            fields = _split(line)
            try:
                return len(fields) >= 6 and [float(text) for text in fields[:6]][0] >= 1
            except ValueError:
                return False
    return False


def _split(line: str) -> list[str]:
    return [text.strip() for text in line.split(",")] if "," in line else line.split()


def plan(path: Path) -> Plan:
    """See plan.Format; a unit is one label file."""
    files = _files(path)
    if not files:
        raise InputError(f"{path}: no gt.txt found here, expected MOT sequences")
    root = path if path.is_dir() else path.parent
    if path.is_file() and path.parent.name in ("gt", "det"):
        root = path.parent.parent
    units = tuple(file.relative_to(root).as_posix() for file in files)
    extra = [f"{_folder(unit)}seqinfo.ini" for unit in units]
    labels = _class_names(root, units)
    sources = (*units, *(name for name in extra if (root / name).is_file()))
    header = {"names": labels, "base": path.name if path.is_dir() else files[0].stem}
    if path.is_dir():
        header["pictures"] = listing_digest(root)
    return Plan("mot", root, units, tuple(labels) if labels else None, sources, header)


def _folder(unit: str) -> str:
    """The sequence's folder, with a slash at its end unless it is the root."""
    parts = unit.split("/")[:-1]
    if parts and parts[-1] in ("gt", "det"):
        parts.pop()
    return "".join(f"{part}/" for part in parts)


def _class_names(root: Path, units: Sequence[str]) -> list[str]:
    """Names from a labels.txt beside gt.txt (CVAT's way), [] when there is none."""
    for unit in units:
        file = (root / unit).parent / "labels.txt"
        if file.is_file():
            return [name.strip() for name in read_lines(file, "", Report()) if name.strip()]
    return []


def read(plan: Plan, units: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """See plan.Format."""
    names = list(plan.header["names"]) or list(CLASSES)
    return batched(units, partial(_read_unit, plan.root, names, str(plan.header["base"])))


class _Sequence:
    """seqinfo.ini and the pictures of a sequence."""

    def __init__(self, root: Path, unit: str, base: str, report: Report) -> None:
        folder = _folder(unit)
        self.name = folder.rstrip("/").rpartition("/")[2] or base
        self.width = self.height = self.length = 0
        self.rate = 0.0
        directory, suffix = "img1", ""
        info = root / folder / "seqinfo.ini"
        if info.is_file():
            parser = configparser.ConfigParser(interpolation=None)
            try:
                parser.read_string("\n".join(read_lines(info, f"{folder}seqinfo.ini", report)))
                section = parser["Sequence"]
                self.name = section.get("name", self.name)
                self.rate = number(section.get("frameRate", "0"))
                self.length = min(whole(section.get("seqLength", "0")), MAX_FRAME)
                self.width = whole(section.get("imWidth", "0"))
                self.height = whole(section.get("imHeight", "0"))
                directory, suffix = section.get("imDir", directory), section.get("imExt", "")
            except (configparser.Error, KeyError, ValueError) as error:
                text = str(error).replace("\n", " ")
                report.add("error", "bad-seqinfo", text, file=f"{folder}seqinfo.ini")
        self.pictures: dict[int, str] = {}
        self.suffix = suffix or ".jpg"
        here = root / folder / directory
        if "/" not in directory and here.is_dir():
            for entry in sorted(os.scandir(here), key=lambda item: item.name):
                stem, ending = os.path.splitext(entry.name)
                if ending.lower() in PICTURE_SUFFIXES and is_digits(stem):
                    self.pictures[int(stem)] = f"{folder}{directory}/{entry.name}"
        if self.pictures and not self.width:
            try:
                header = read_header(check_inside(root, next(iter(self.pictures.values()))))
                self.width, self.height = header.width, header.height
            except InputError as error:
                report.add("error", "bad-picture", str(error))


def _read_unit(root: Path, names: Sequence[str], base: str, rows: Rows, unit: str) -> None:
    report = Report()
    sequence = _Sequence(root, unit, base, report)
    frames: dict[int, list[tuple[int, list[str]]]] = {}
    lines = read_lines(root / unit, unit, report)
    columns = len(_split(lines[0])) if lines else 0
    for i, line in enumerate(lines, 1):
        fields = _split(line)
        if not any(fields):
            continue
        if i == len(lines) and len(fields) < columns:  # no newline follows it either
            text = f"ends inside a row: found {len(fields)} columns, the first row has {columns}"
            report.add("error", "truncated", text, file=unit, line=i)
            continue
        try:
            frame = whole(fields[0])
            if not 1 <= frame <= MAX_FRAME:
                raise ValueError(f"frame {fields[0]} is not in 1..{MAX_FRAME}")
            frames.setdefault(frame, []).append((i, fields))
        except ValueError as error:
            report.add("error", "bad-number", str(error), file=unit, line=i)
    last = max([sequence.length, *frames, *sequence.pictures], default=0)
    # A frame number far above the rest is a slip; the gap is not filled with a million pictures.
    if last > 1000 and last > 100 * (len(frames) + len(sequence.pictures) + sequence.length):
        report.add(
            "error",
            "absurd-frame",
            f"frame {last} is far above the number of rows; frames without rows are not listed",
            file=unit,
            line=frames.get(last, [(0, [])])[0][0],
        )
        numbers: Iterable[int] = sorted(frames)
    else:
        numbers = range(1, last + 1)
    for frame in numbers:
        name = f"{sequence.name}/{frame:06d}{sequence.suffix}"
        stamp = round((frame - 1) / sequence.rate * 1e9) if sequence.rate > 0 else 0
        rows.picture(
            name,
            sequence.pictures.get(frame, ""),
            width=sequence.width,
            height=sequence.height,
            sequence=sequence.name,
            frame=frame,
            stamp_ns=stamp,
            source=unit,
            line=frames[frame][0][0] if frame in frames else 0,
        )
        for line_number, fields in frames.get(frame, []):
            _row(rows, fields, names, unit, line_number, name, report)
    if not last:
        rows.picture("", None)
    rows.findings(report.findings)


def _row(
    rows: Rows,
    fields: list[str],
    names: Sequence[str],
    unit: str,
    line: int,
    picture: str,
    report: Report,
) -> None:
    if not 6 <= len(fields) <= 10:
        report.add(
            "error",
            "bad-row",
            f"found {len(fields)} columns, expected 6 to 10",
            file=unit,
            line=line,
            picture=picture,
        )
        return
    try:
        values = list(numbers(fields))
        track = whole(fields[1])
        kind = whole(fields[7]) if len(fields) in (8, 9) else 1
    except ValueError as error:
        report.add("error", "bad-number", str(error), file=unit, line=line, picture=picture)
        return
    if len(fields) in (8, 9) and kind == -1:
        kind = 1
    if not 1 <= kind <= len(names):
        report.add(
            "error",
            "unknown-class",
            f"class {kind} is not in 1..{len(names)}",
            file=unit,
            line=line,
            picture=picture,
        )
        return
    left, top, width, height = values[2:6]
    left, top = left - FIRST_PIXEL, top - FIRST_PIXEL
    extra: dict[str, Any] = {"track_ids": track}
    attributes: dict[str, object] = {}
    if len(values) > 6 and 0 <= values[6] <= 1:
        if values[6] in (0.0, 1.0):  # ground truth: whether the evaluation looks at the box
            attributes["considered"] = fields[6]
        else:
            extra["scores"] = values[6]
    elif len(values) > 6 and values[6] != -1:
        attributes["confidence"] = fields[6]  # some detectors' scores have no upper limit
    if len(fields) == 9 and 0 <= values[8] <= 1:
        extra["occlusion"] = 1 - values[8]
    if len(fields) == 10 and any(value != -1 for value in values[7:]):
        attributes["world"] = " ".join(fields[7:])
    if attributes:
        extra["box_attributes"] = to_text(attributes)
    rows.box(left, top, left + width, top + height, names[kind - 1], lines=line, **extra)


def write(source: Source, out: Path) -> None:
    """Write SEQUENCE/gt/gt.txt, labels.txt, seqinfo.ini and SEQUENCE/img1; see plan.Format.

    Frames are those of sequences.places; boxes without a track id get -1.
    """
    where = places(source.dataset)
    sequences: dict[str, _Output] = {}
    for sample in source.samples():
        name, frame = where[source.position]
        if name not in sequences:
            sequences[name] = _Output(out / name, name, source)
        sequences[name].add(sample, frame)
    for writer in sequences.values():
        writer.close()


class _Output:
    """One sequence on its way to disk."""

    def __init__(self, folder: Path, name: str, source: Source) -> None:
        self.folder, self.name, self.source = folder, name, source
        self.frames: dict[int, str] = {}
        self.size = (0, 0)
        (folder / "gt").mkdir(parents=True)
        (folder / "gt" / "labels.txt").write_text(
            "".join(f"{n}\n" for n in source.names), encoding="utf-8", newline="\n"
        )

    def add(self, sample: Sample, frame: int) -> None:
        if sample.frame >= 0 and sample.frame != frame:
            self.source.tally(
                "renumbered", "MOT counts frames from 1 and each once: another number"
            )
        self.size = (max(self.size[0], sample.width), max(self.size[1], sample.height))
        if sample.image is not None:
            self.source.put_picture(sample, self.folder / "img1", f"{frame:06d}")
        self.frames[frame] = "".join(_line(sample, i, frame) for i in range(len(sample.truth)))

    def close(self) -> None:
        with (self.folder / "gt" / "gt.txt").open("w", encoding="utf-8", newline="\n") as file:
            for _, text in sorted(self.frames.items()):
                file.write(text)
        lines = [
            "[Sequence]",
            f"name={self.name}",
            "imDir=img1",
            f"seqLength={max(self.frames)}",
            f"imWidth={self.size[0]}",
            f"imHeight={self.size[1]}",
            "imExt=.jpg",
            "",
        ]
        (self.folder / "seqinfo.ini").write_text("\n".join(lines), encoding="utf-8", newline="\n")


def _line(sample: Sample, i: int, frame: int) -> str:
    x1, y1, x2, y2 = (float(value) for value in sample.truth.boxes[i])
    hidden = float(sample.occlusion[i])
    score = (
        float(sample.truth.scores[i])
        if sample.scored[i]
        else float(sample.box_attributes[i].get("considered", "1") or 1)
    )
    visible = -1.0 if hidden != hidden else 1 - hidden
    fields = [
        str(frame),
        str(int(sample.truth.track_ids[i])),
        short(x1 + FIRST_PIXEL),
        short(y1 + FIRST_PIXEL),
        short(x2 - x1),
        short(y2 - y1),
        short(score),
        str(int(sample.truth.labels[i]) + 1),
        short(visible),
    ]
    return ",".join(fields) + "\n"
