"""What a format module tells about a data set before it reads it, and the list of formats."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import pyarrow as pa

from perception.datasets.report import Finding
from perception.datasets.rows import PICTURES_A_BATCH, Rows
from perception.errors import InputError
from perception.labels import nearest

if TYPE_CHECKING:
    from perception.datasets.source import Source

FORMATS = (
    "coco",
    "kitti",
    "bdd100k",
    "nuscenes",
    "voc",
    "yolo",
    "mot",
    "ua_detrac",
    "rosbag2",
)
"""Each is a module of perception.datasets.formats."""

ALIASES = {"scalabel": "bdd100k", "bdd": "bdd100k", "mcap": "rosbag2", "bag": "rosbag2"}


@dataclass(frozen=True)
class Plan:
    """How a data set will be read.

    root: the folder that every path of the data set is relative to and must stay inside.
    units: pieces that can be read independently of each other, in reading order.
    names: class names in the order the data set declares, None when it only uses names.
    sources: label files relative to root; the index is rebuilt when one of them changes.
    header: what `read` needs besides the units.
    findings: what was noticed while planning.
    """

    format: str
    root: Path
    units: tuple[str, ...]
    names: tuple[str, ...] | None
    sources: tuple[str, ...]
    header: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


class Format(Protocol):
    """A module of perception.datasets.formats."""

    HOLDS: frozenset[str]

    def claims(self, path: Path) -> str:
        """Why `path` looks like this format; "" when it does not."""

    def plan(self, path: Path) -> Plan:
        """Find label files and pictures; raises InputError when there is nothing to read."""

    def read(self, plan: Plan, units: Iterable[str]) -> Iterator[pa.RecordBatch]:
        """Read some units, in the order given, as batches of rows.SCHEMA."""

    def write(self, source: Source, out: Path) -> None:
        """Write all samples to the empty folder `out`; what is lost goes to source.report."""


def format_name(text: str) -> str:
    """The module name of a format as a user writes it; raises InputError."""
    name = ALIASES.get(text.lower(), text.lower().replace("-", "_"))
    if name not in FORMATS:
        raise InputError(
            f"unknown data set format {text!r}, expected one of "
            f"{', '.join(FORMATS)}{nearest(name, FORMATS)}"
        )
    return name


def format_module(name: str) -> Format:
    """The module that reads and writes the format `name`."""
    return cast(Format, importlib.import_module(f"perception.datasets.formats.{format_name(name)}"))


def batched(
    units: Iterable[str], read_unit: Callable[[Rows, str], None]
) -> Iterator[pa.RecordBatch]:
    """Let `read_unit` fill rows for each unit, and hand them on in batches of bounded size."""
    rows = Rows()
    for unit in units:
        read_unit(rows, unit)
        if len(rows) >= PICTURES_A_BATCH:
            yield rows.batch()
    if len(rows):
        yield rows.batch()
