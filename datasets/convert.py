"""Convert a data set into another format, and say what the other format cannot hold."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from perception.datasets.dataset import Dataset
from perception.datasets.engine import Engine
from perception.datasets.plan import format_module, format_name
from perception.datasets.report import Finding, Report
from perception.datasets.rows import FINDING, finding_array, lists
from perception.datasets.sample import Sample
from perception.datasets.source import Copy, Source, copy_picture, only_labels
from perception.errors import InputError

PICTURES_A_TASK = 256
"""Pictures copied by one task of an engine."""


@dataclass(frozen=True)
class Converted:
    """What was written, and in `report` what is lost, renamed or missing."""

    format: str
    out: Path
    pictures: int
    boxes: int
    report: Report


def convert(
    dataset: Dataset,
    target: str,
    *,
    pictures: bool = True,
    partial: bool = False,
    change: Callable[[Sample], Sample | None] | None = None,
    upright: bool = False,
    engine: Engine | None = None,
) -> Converted:
    """Write `dataset` as `FORMAT:OUT`; OUT appears only when all of it was written.

    pictures: copy picture files too. partial: go on although the source is cut off.
    change, upright: see source.Source. engine: copies the pictures (None: this process).
    Raises InputError for an unknown format, an OUT that exists and is not empty, or a source that
    is cut off.
    """
    text, colon, folder = target.partition(":")
    if not colon or not folder:
        raise InputError(f"{target!r} is no target, expected FORMAT:FOLDER such as coco:out")
    name = format_name(text)
    cut = [item for item in dataset.report.findings if item.code in ("truncated", "damaged-chunk")]
    if cut and not partial:
        raise InputError(
            f"{dataset.root / cut[0].file}: the data set is cut off, and a copy would "
            "look complete (--partial converts what is whole)"
        )
    if not len(dataset):
        raise InputError(
            f"{dataset.root}: holds no picture and no boxes, there is nothing to convert"
        )
    module = format_module(name)
    source = Source(
        dataset,
        module.HOLDS,
        pictures=pictures,
        change=change,
        upright=upright,
        later=engine is not None,
    )
    with new_folder(Path(folder)) as temporary:
        module.write(source, temporary)
        if not source.pictures:
            raise InputError(f"{dataset.root}: no picture is left to be written")
        if engine is not None and source.copies:
            _copy_with(engine, dataset.root, source)
    only_labels(source.report, source.pictures)
    return Converted(name, Path(folder), source.pictures, source.boxes, source.report)


_COPIED = pa.schema([("findings", pa.list_(FINDING))])


def _copy_with(engine: Engine, root: Path, source: Source) -> None:
    """Copy the listed pictures with an engine, a few hundred a task."""
    copies = source.copies or []
    units = [
        json.dumps(copies[i : i + PICTURES_A_TASK]) for i in range(0, len(copies), PICTURES_A_TASK)
    ]
    task = partial(copy_group, root)
    for batch in engine.map(task, units, _COPIED, "copying pictures"):
        for row in batch.to_pylist():
            source.report.extend(Finding(**item) for item in row["findings"])


def copy_group(root: Path, unit: str) -> Iterator[pa.RecordBatch]:
    """Copy the pictures of a unit (json of source.Copy); one row with what went wrong."""
    report = Report()
    for copy in json.loads(unit):
        copy_picture(root, Copy(*copy), report)
    ends = np.asarray([0, len(report)], np.int64)
    yield pa.RecordBatch.from_arrays([lists(ends, finding_array(report.findings))], schema=_COPIED)


class new_folder:
    """Context of a temporary folder beside `out` that becomes `out` when the block succeeds."""

    def __init__(self, out: Path) -> None:
        self.out = out

    def __enter__(self) -> Path:
        if self.out.exists() and (not self.out.is_dir() or any(self.out.iterdir())):
            raise InputError(f"{self.out}: exists and is not an empty folder")
        try:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            name = tempfile.mkdtemp(prefix=".writing-", dir=self.out.parent)
        except OSError as error:
            raise InputError(f"{self.out}: cannot write here: {error.strerror}") from None
        self.temporary = Path(name)
        return self.temporary

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            shutil.rmtree(self.temporary, ignore_errors=True)
            return
        self.temporary.chmod(0o755)
        if self.out.is_dir():
            self.out.rmdir()
        self.temporary.rename(self.out)
