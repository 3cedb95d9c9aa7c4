"""Convert a data set into another format, and say what the other format cannot hold."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perception.datasets.dataset import Dataset
from perception.datasets.plan import format_module, format_name
from perception.datasets.report import Report
from perception.datasets.sample import Sample
from perception.datasets.source import Source
from perception.errors import InputError


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
) -> Converted:
    """Write `dataset` as `FORMAT:OUT`; OUT appears only when all of it was written.

    pictures: copy picture files too. partial: go on although the source is cut off.
    change, upright: see source.Source.
    Raises InputError for an unknown format, an OUT that exists and is not empty, or a source that
    is cut off.
    """
    text, colon, folder = target.partition(":")
    if not colon or not folder:
        raise InputError(f"{target!r} is no target, expected FORMAT:FOLDER such as coco:out")
    name = format_name(text)
    cut = [item for item in dataset.report.findings if item.code in ("truncated", "damaged-chunk")]
    if cut and not partial:
        raise InputError(f"{dataset.root / cut[0].file}: the data set is cut off, and a copy would "
                         "look complete (--partial converts what is whole)")
    if not len(dataset):
        raise InputError(f"{dataset.root}: holds no picture and no boxes, there is nothing to convert")
    module = format_module(name)
    source = Source(dataset, module.HOLDS, pictures=pictures, change=change, upright=upright)
    with new_folder(Path(folder)) as temporary:
        module.write(source, temporary)
        if not source.pictures:
            raise InputError(f"{dataset.root}: no picture is left to be written")
    return Converted(name, Path(folder), source.pictures, source.boxes, source.report)


class new_folder:  # noqa: N801 (used like a function)
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
