"""YOLO text labels: one .txt a picture, a row an object, in shares of the picture's size.

Rows of 5 columns are class, centre x, centre y, width, height; 6 add a score; an odd count from 7
on is a class and the corners of a polygon, whose enclosing box is taken (yolov5#5210). Anything
else is itemised and not guessed at.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from perception.datasets.pictures import read_header
from perception.datasets.plan import Plan, batched
from perception.datasets.report import Finding, Report
from perception.datasets.rows import Rows
from perception.datasets.sample import Sample
from perception.datasets.source import Source, short
from perception.datasets.text import (
    PICTURE_SUFFIXES,
    Fence,
    folder_split,
    inside,
    numbers,
    read_lines,
    usual_split,
    walk,
)
from perception.errors import InputError
from perception.files import read_yaml

HOLDS = frozenset({"unlabelled", "split", "score"})
_TEXT = frozenset({".txt"})
_SPLITS = ("train", "val", "test")
_YAMLS = ("data.yaml", "dataset.yaml", "data.yml")
_MAX_CLASSES = 100_000
_CLASS_FILES = (
    "classes.txt",
    "obj.names",
    "classes.names",
    "labels.txt",
    "names.txt",
    "_darknet.labels",
)
_NOT_LABELS = frozenset(
    {
        *_CLASS_FILES,
        "train.txt",
        "val.txt",
        "valid.txt",
        "test.txt",
        "README.txt",
        "readme.txt",
        "README.dataset.txt",
        "README.roboflow.txt",
        "requirements.txt",
        "notes.txt",
    }
)
# Ultralytics' autosplit writes these lists of pictures.
_LISTS = re.compile(r"autosplit_\w+\.txt")
_OUTLINES = ("outline", "outline(s) (polygons)")


def claims(path: Path) -> str:
    """See plan.Format."""
    if path.is_file():
        return f"{path.name} names classes" if _yaml_names(path) else ""
    for name in _YAMLS:
        if _yaml_names(path / name):
            return f"{name} names classes"
    for file in walk(path, _TEXT):
        if _may_be_label(file):
            return f"{file} has rows of shares" if _is_label(path / file) else ""
    return ""


def _yaml_names(file: Path) -> bool:
    if file.suffix not in (".yaml", ".yml") or not file.is_file():
        return False
    try:
        return isinstance(read_yaml(file).get("names"), (list, dict))
    except InputError:
        return False


def _is_label(file: Path) -> bool:
    for line in read_lines(file, "", Report()):
        fields = line.split()
        if fields:
            try:
                numbers = [float(text) for text in fields]
            except ValueError:
                return False
            return len(fields) >= 5 and all(-0.5 <= v <= 1.5 for v in numbers[1:])
    return False


def _may_be_label(file: str) -> bool:
    name = file.rpartition("/")[2]
    return name not in _NOT_LABELS and not _LISTS.fullmatch(name)


def plan(path: Path) -> Plan:
    """See plan.Format; a unit is a picture, its label file and its split."""
    root = path if path.is_dir() else path.parent
    pictures = list(walk(root, PICTURE_SUFFIXES))
    findings = Report()
    yaml_file, data = _yaml(path, root, findings)
    splits, lists = _declared_splits(root, yaml_file, data, pictures, findings)
    texts = [file for file in walk(root, _TEXT) if _may_be_label(file) and file not in lists]
    if not texts and not pictures:
        raise InputError(f"{path}: neither label files (.txt) nor pictures found here")
    if not texts:
        _refuse_pictures_alone(path, root)
    names, keypoints = _names(root, yaml_file, data, findings)
    known = set(texts)
    units, used = list[str](), set[str]()
    for picture in pictures:
        label = next((text for text in _label_paths(picture) if text in known), "")
        used.add(label)
        split = splits.get(picture) or _split_of_folder(picture)
        units.append(f"{picture}\0{label}\0{split}")
    units += [f"\0{text}\0" for text in texts if text not in used]
    header = {"names": names, "keypoints": keypoints}
    sources = (*texts, *(f for f in (*_CLASS_FILES, *_YAMLS, *lists) if (root / f).is_file()))
    declared = tuple(names) if names is not None else None
    return Plan("yolo", root, tuple(units), declared, sources, header, tuple(findings.findings))


def _label_paths(picture: str) -> Iterator[str]:
    """Where the labels of a picture may be: .../images/... -> .../labels/..., or beside it."""
    stem = os.path.splitext(picture)[0]
    before, found, after = f"/{stem}".rpartition("/images/")
    if found:
        yield f"{before}/labels/{after}.txt".removeprefix("/")
    yield f"{stem}.txt"


def _refuse_pictures_alone(path: Path, root: Path) -> None:
    """Raise InputError when the labels of these pictures lie beside the folder that was named."""
    before, found, _ = f"{root.absolute().as_posix()}/".rpartition("/images/")
    labels = Path(before, "labels")
    if found and labels.is_dir():
        raise InputError(
            f"{path}: no label file lies here, they are in {labels}; name the folder of the whole "
            f"set, {before}"
        )


def _split_of_folder(picture: str) -> str:
    """The split that the first folder of such a name speaks of, "" when none does."""
    return next(filter(None, map(folder_split, picture.split("/")[:-1])), "")


def _yaml(path: Path, root: Path, report: Report) -> tuple[str, dict[str, Any]]:
    """Name and content of the first file of _YAMLS that can be read, or of the one given."""
    files = [path] if path.is_file() else [root / name for name in _YAMLS]
    for file in files:
        if file.is_file():
            try:
                return file.name, read_yaml(file)
            except InputError as error:
                report.add("error", "bad-yaml", str(error), file=file.name)
    return "", {}


def _declared_splits(
    root: Path, file: str, data: Mapping[str, Any], pictures: Sequence[str], report: Report
) -> tuple[dict[str, str], set[str]]:
    """Picture -> split as `train`, `val` and `test` of data.yaml say, and the lists they name.

    Each is a folder, a list file or several of these, below `path` or beside data.yaml. Of a
    picture that several name the first counts.
    """
    splits: dict[str, str] = {}
    lists: set[str] = set()
    twice: dict[tuple[str, str], int] = {}
    base = data.get("path")
    bases = [base, ""] if isinstance(base, str) else [""]
    for split in _SPLITS:
        value = data.get(split)
        entries = value if isinstance(value, list) else [value]
        for entry in entries:
            if not isinstance(entry, str) or not entry:
                continue
            places = (place for base in bases for place in _below(root, os.path.join(base, entry)))
            found = next((place for place in places if (root / place).exists()), None)
            if found is None:
                text = f"{split} is {entry!r}, and no such folder or list is in the data set"
                report.add("warning", "split-missing", text, file=file)
                continue
            if (root / found).is_file():
                lists.add(found)
                named = _listed_pictures(root, found, set(pictures), report)
            else:
                prefix = "" if found == "." else f"{found}/"
                named = [picture for picture in pictures if picture.startswith(prefix)]
            for picture in named:
                first = splits.setdefault(picture, split)
                if first != split:
                    twice[first, split] = twice.get((first, split), 0) + 1
    for (first, other), count in twice.items():
        text = f"{count} pictures are in {first} and {other}; they are read as {first}"
        report.add("warning", "split-overlap", text, file=file)
    return splits, lists


def _below(root: Path, text: str) -> Iterator[str]:
    """Where in the data set the folder or file may be that data.yaml or a list calls `text`.

    A full path counts where it leads into the set; ../train/images, as Roboflow writes, and paths
    through a folder of the set's own name mean what lies beside data.yaml.
    """
    here = root.absolute()
    parts = [part for part in text.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    after = parts[parts.index(here.name) + 1 :] if here.name in parts else parts
    for candidate in (
        os.path.relpath(os.path.join(here, text), here),
        "/".join(after) or ".",
        "/".join(parts),
    ):
        relative = inside(candidate)
        if relative is not None:
            yield relative


def _listed_pictures(root: Path, file: str, known: set[str], report: Report) -> list[str]:
    """The pictures that a list file names, one a line; lines that name none are counted."""
    folder = file.rpartition("/")[0]
    named, strange = [], 0
    for line in read_lines(root / file, file, report):
        if not line.strip():
            continue
        places = [os.path.join(folder, line.strip()), line.strip()]
        found = next((f for place in places for f in _below(root, place) if f in known), None)
        if found is None:
            strange += 1
        else:
            named.append(found)
    if strange:
        text = f"{strange} lines name no picture of the data set"
        report.add("warning", "split-missing", text, file=file)
    return named


def _names(
    root: Path, yaml_file: str, data: Mapping[str, Any], report: Report
) -> tuple[list[str] | None, bool]:
    """Class names in order, None when the set does not say; and whether rows hold key points."""
    names = _listed(data.get("names"), yaml_file, report)
    if names is not None:
        return _unique(names, yaml_file, report), "kpt_shape" in data
    for folder in ("", "labels", "annotations", "data"):
        for name in _CLASS_FILES:
            file = root / folder / name
            if file.is_file():
                lines = read_lines(file, name, report)
                while lines and not lines[-1].strip():
                    lines.pop()
                return _unique([line.strip() for line in lines], name, report), False
    report.add("warning", "no-class-names", "no data.yaml or classes.txt names the classes")
    return None, False


def _listed(names: Any, file: str, report: Report) -> list[str] | None:
    """Names by class id; an id that a mapping passes over has the name ""."""
    if isinstance(names, dict):
        if not all(type(i) is int and 0 <= i < _MAX_CLASSES for i in names):
            text = f"the keys of 'names' are not whole numbers from 0 to {_MAX_CLASSES - 1}"
            report.add("error", "bad-yaml", text, file=file)
            return None
        names = [names.get(i, "") for i in range(max(names, default=-1) + 1)]
    if not isinstance(names, list):
        return None
    for i, name in enumerate(names):
        # Nested lists are never made text: a few hundred bytes of YAML aliases would fill the
        # memory.
        if not isinstance(name, str | int | float):
            found = type(name).__name__
            report.add("error", "bad-yaml", f"name {i} is a {found}, expected text", file=file)
            return None
    return [str(name).strip() for name in names]


def _unique(names: Sequence[str], file: str, report: Report) -> list[str]:
    """Names without gaps or repeats, so that every class id keeps a name of its own."""
    result: list[str] = []
    for i, name in enumerate(names):
        if not name or name in result:
            report.add(
                "warning",
                "bad-class-name",
                f"class {i} is called {name!r}; it is read as 'class_{i}'",
                file=file,
            )
            name = f"class_{i}"
        result.append(name)
    return result


def read(plan: Plan, units: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """See plan.Format."""
    return batched(units, partial(_read_unit, Fence(plan.root), plan.header))


def _read_unit(fence: Fence, header: Mapping[str, Any], rows: Rows, unit: str) -> None:
    root = fence.root
    picture, label, split = unit.split("\0")
    report = Report()
    lines = read_lines(root / label, label, report) if label else []
    if not picture:
        count = sum(bool(line.strip()) for line in lines)
        report.add(
            "error",
            "no-picture",
            f"no picture for this label file: its {count} rows are "
            "shares of an unknown size and cannot be used",
            file=label,
        )
        rows.picture("", None)
        rows.findings(report.findings)
        return
    width = height = 0
    try:
        size = read_header(fence.check(picture))
        width, height = size.width, size.height
    except InputError as error:
        report.add(
            "error",
            "bad-picture",
            str(error).removeprefix(f"{root / picture}: ").removeprefix(f"{root}: ")
            + (f"; its {len(lines)} label lines cannot be used" if lines else ""),
            file=picture,
            picture=picture,
        )
        lines = []
    if not label:
        report.add(
            "info",
            "no-label-file",
            "there is no label file: read as nothing to see",
            file=picture,
            picture=picture,
        )
    rows.picture(
        picture.rpartition("/")[2],
        picture,
        width=width,
        height=height,
        split=split,
        source=label,
        line=1 if label else 0,
    )
    seen: dict[tuple[float, ...], int] = {}
    shaped = list[int]()
    for i, line in enumerate(lines, 1):
        if fields := line.split():
            place = Finding("error", "", "", label, i, picture)
            if _row(rows, fields, (width, height), header, seen, place, report) > 6:
                shaped.append(i)
    if shaped:
        code, what = ("key-points", "set(s) of key points") if header["keypoints"] else _OUTLINES
        text = f"{len(shaped)} {what} are not kept, only their boxes"
        report.add("info", code, text, file=label, line=shaped[0], picture=picture)
    rows.findings(report.findings)


def _row(
    rows: Rows,
    fields: list[str],
    size: tuple[int, int],
    header: Mapping[str, Any],
    seen: dict[tuple[float, ...], int],
    place: Finding,
    report: Report,
) -> int:
    """Add a row's box; returns how many columns it used, 0 when it was itemised instead."""

    def fault(code: str, message: str, severity: Any = "error") -> None:
        report.add(severity, code, message, file=place.file, line=place.line, picture=place.picture)

    try:
        values = numbers(fields)
    except ValueError as error:
        fault("bad-number", str(error))
        return 0
    name = _class_name(values[0], fields[0], header["names"])
    if name is None:
        names = header["names"]
        allowed = f"0..{len(names) - 1}" if names else "0, 1, 2..."
        fault("unknown-class", f"class {fields[0]} is not in the allowed range {allowed}")
        return 0
    if values in seen:
        fault("duplicate-row", f"the same as line {seen[values]}; left out", "warning")
        return 0
    seen[values] = place.line
    count, extra = len(values), {}
    if count in (5, 6) or (header["keypoints"] and count > 6):
        x, y, w, h = values[1:5]
        box = (x - w / 2, y - h / 2, x + w / 2, y + h / 2)
        if count == 6:
            extra["scores"] = values[5]
    elif count >= 7 and count % 2:
        box = (min(values[1::2]), min(values[2::2]), max(values[1::2]), max(values[2::2]))
        # Every second value from 1 on is an x, from 2 on a y.
    else:
        fault("bad-row", f"found {count} columns, expected 5, 6 or a class and pairs of x y")
        return 0
    width, height = size
    rows.box(
        box[0] * width,
        box[1] * height,
        box[2] * width,
        box[3] * height,
        name,
        lines=place.line,
        **extra,
    )
    return count


def _class_name(value: float, text: str, names: Sequence[str] | None) -> str | None:
    if value < 0 or value != math.floor(value):
        return None
    index = int(value)
    if names is None:
        return f"class_{index}"
    return names[index] if index < len(names) else None


def write(source: Source, out: Path) -> None:
    """Write images/SPLIT, labels/SPLIT and data.yaml; see plan.Format."""
    splits: dict[str, None] = {}
    outside = 0
    for sample in source.samples():
        split = usual_split(sample.split)
        split = split if split in _SPLITS else "train"
        if sample.split != split:
            source.tally("lost-split", f"split {sample.split!r} is written as {split!r}")
        splits[split] = None
        stem = source.stem(sample)
        source.put_picture(sample, out / "images" / split, stem)
        folder = out / "labels" / split
        folder.mkdir(parents=True, exist_ok=True)
        if not (sample.width and sample.height) and len(sample.truth):
            outside += len(sample.truth)
            text = ""
        else:
            text = "".join(_line(sample, i) for i in range(len(sample.truth)))
        (folder / f"{stem}.txt").write_text(text, encoding="utf-8", newline="\n")
    if outside:
        source.report.add(
            "error",
            "lost-box",
            f"{outside} boxes of pictures of unknown size are "
            "lost: YOLO writes shares of the picture's size",
        )
    data: dict[str, Any] = {f"{split}": f"images/{split}" for split in sorted(splits)}
    data["names"] = dict(enumerate(source.names))
    (out / "data.yaml").write_text(
        yaml.safe_dump(data, sort_keys=False, allow_unicode=True), encoding="utf-8", newline="\n"
    )


def _line(sample: Sample, i: int) -> str:
    x1, y1, x2, y2 = (float(v) for v in sample.truth.boxes[i])
    shares = (
        (x1 + x2) / 2 / sample.width,
        (y1 + y2) / 2 / sample.height,
        (x2 - x1) / sample.width,
        (y2 - y1) / sample.height,
    )
    fields = [str(int(sample.truth.labels[i])), *(f"{share:.9f}" for share in shares)]
    if sample.scored[i]:
        fields.append(short(float(sample.truth.scores[i])))
    return " ".join(fields) + "\n"
