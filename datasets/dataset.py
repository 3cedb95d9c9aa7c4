"""Dataset: a sequence of samples read from memory or from an index file when asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from perception.datasets import pictures
from perception.datasets.report import Finding, Report
from perception.datasets.rows import SCHEMA, Columns, relabelled
from perception.datasets.sample import PER_BOX, Attributes, BagPicture, Sample
from perception.datasets.text import check_inside
from perception.detections import Detections
from perception.errors import InputError
from perception.frame import Frame
from perception.labels import IGNORE, LabelMap, LabelSet

META_KEY = b"waysight.dataset"


class Store(Protocol):
    """Where the rows are."""

    sizes: list[int]
    meta: dict[str, Any]

    def group(self, number: int) -> pa.RecordBatch: ...

    def findings(self) -> list[dict[str, Any]]: ...


class MemoryStore:
    """Rows of a small data set."""

    def __init__(self, groups: list[pa.RecordBatch], meta: dict[str, Any]) -> None:
        self._groups = groups
        self.sizes = [group.num_rows for group in groups]
        self.meta = meta

    def group(self, number: int) -> pa.RecordBatch:
        return self._groups[number]

    def findings(self) -> list[dict[str, Any]]:
        flat = [group.column("findings").flatten().to_pylist() for group in self._groups]
        return [item for items in flat for item in items]


class ParquetStore:
    """Rows of an index file; a row group is read when one of its pictures is asked for.

    The file is mapped again in every process, so that data loader workers may fork or spawn.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._process = 0
        try:
            metadata = pq.read_metadata(path)
            self.meta: dict[str, Any] = json.loads(metadata.metadata[META_KEY])
        except (OSError, pa.ArrowInvalid, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: not an index of a data set ({error})") from None
        self.sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]

    def _open(self) -> Any:
        if self._process != os.getpid():
            self._file = pq.ParquetFile(self.path, memory_map=True)
            self._process = os.getpid()
        return self._file

    def findings(self) -> list[dict[str, Any]]:
        column = self._open().read(["findings"]).column("findings")
        return [item for items in column.to_pylist() for item in items or []]

    def group(self, number: int) -> pa.RecordBatch:
        table = self._open().read_row_group(number, use_threads=False).select(SCHEMA.names)
        batches = table.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=SCHEMA)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "sizes": self.sizes, "meta": self.meta, "_process": 0}


class Dataset(Sequence[Sample]):
    """Samples in a fixed order; made by `open_dataset`.

    names: class names that `Sample.truth.labels` index. source_names: the data set's own.
    format: "coco", "kitti"...; guessed: why that format was chosen, "" when it was named.
    root: folder that pictures and labels are in. report: what the reader had to remark.
    """

    def __init__(
        self,
        store: Store,
        root: Path,
        *,
        guessed: str = "",
        classes: LabelMap | None = None,
    ) -> None:
        self.store = store
        self.root = root
        self.format = str(store.meta["format"])
        self.guessed = guessed
        self.source_names = LabelSet(tuple(store.meta["names"]))
        self.classes = classes
        self.names = self.source_names if classes is None else classes.target
        self.targets = self._targets()
        self._numbers = {name: i for i, name in enumerate(self.names)}
        self._ends = np.cumsum([0, *store.sizes])
        # A handful of groups: enough for reading in order and for shuffling within a window.
        self._columns = lru_cache(maxsize=4)(self._load_columns)

    def _targets(self) -> dict[str, str] | None:
        """Source class name -> name, "" for an ignore region; None without a class map."""
        if self.classes is None:
            return None
        targets = {}
        for name in self.source_names:
            target = self.classes[name]
            known = target != IGNORE and target in self.names.names
            # A group says "one of these": neither a positive of one class nor background.
            targets[name] = target if known else ""
        return targets

    def _load_columns(self, group: int) -> Columns:
        columns = Columns(self.store.group(group))
        return columns if self.targets is None else Columns(relabelled(columns, self.targets))

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_columns"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._columns = lru_cache(maxsize=4)(self._load_columns)

    def __len__(self) -> int:
        return int(self._ends[-1])

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...
    def __getitem__(self, index: int | slice) -> Sample | list[Sample]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"picture {index} of {len(self)}")
        group = int(np.searchsorted(self._ends, position, side="right")) - 1
        return self.sample(self._columns(group), position - int(self._ends[group]))

    def __iter__(self) -> Iterator[Sample]:
        for columns in self.columns():
            for picture in range(columns.pictures):
                yield self.sample(columns, picture)

    def columns(self) -> Iterator[Columns]:
        """All rows in order, one batch at a time, for work that needs no Sample objects."""
        for group in range(len(self.store.sizes)):
            yield self._load_columns(group)

    @property
    def facts(self) -> dict[str, dict[str, Any]]:
        """What the label files say beside pictures and boxes; see `Rows.declare`."""
        facts: dict[str, dict[str, Any]] = self.store.meta.get("facts", {})
        return facts

    @property
    def info(self) -> dict[str, Any]:
        """What a COCO file says of itself under `info`.

        Of several files the first that has a key counts, for `unlabelled_below_area` the largest:
        nothing is then taken for labelled that is not.
        """
        infos = list(self.facts.get("info", {}).values())
        joined = {key: value for info in reversed(infos) for key, value in info.items()}
        key = "unlabelled_below_area"
        below = [info[key] for info in infos if isinstance(info.get(key), int | float)]
        return joined | ({key: max(below)} if below else {})

    @property
    def report(self) -> Report:
        """What the reader had to remark, each with file and line."""
        report = Report([Finding(**item) for item in self.store.meta["findings"]])
        report.extend(Finding(**item) for item in self.store.findings())
        return report

    def sample(self, columns: Columns, picture: int) -> Sample:
        """Picture number `picture` of one of this data set's batches."""
        begin, end = int(columns.starts[picture]), int(columns.starts[picture + 1])
        rows = slice(begin, end)
        codes, used = columns.labels()
        numbers = np.asarray([self._numbers[name] for name in used] or [0], dtype=np.int64)
        # Copies, because the columns serve other samples too.
        keep = np.arange(begin, end)
        scores = np.asarray(columns.per_box("scores")[keep], dtype=np.float32)
        scored = ~np.isnan(scores)
        ignore = columns.ignore[
            int(columns.ignore_starts[picture]) : int(columns.ignore_starts[picture + 1])
        ]
        box_ids, texts = columns.per_box("box_ids"), columns.per_box("box_attributes")
        return Sample(
            truth=Detections.create(
                columns.boxes[keep],
                np.where(scored, scores, np.float32(1)),
                numbers[codes[rows]],
                columns.per_box("track_ids")[keep],
            ),
            ignore=ignore,
            scored=scored,
            **{name: columns.per_box(name)[keep] for name in PER_BOX},
            box_ids=tuple(box_ids[rows]),
            box_attributes=tuple(map(_attributes, texts[rows])),
            image=self._image(columns.values("image")[picture]),
            attributes=_attributes(columns.values("attributes")[picture]),
            **{
                name: columns.values(name)[picture]
                for name in (
                    "name",
                    "id",
                    "width",
                    "height",
                    "split",
                    "sequence",
                    "camera",
                    "frame",
                    "stamp_ns",
                    "source",
                    "line",
                )
            },
        )

    def _image(self, text: str) -> Path | BagPicture | None:
        if not text:
            return None
        if self.format == "rosbag2":
            return bag_picture(self.root, text)
        return self.root / text

    def load(self, sample: Sample) -> Frame:
        """Read the sample's picture: uint8 (H, W, 3), BGR, Exif rotation applied.

        Raises InputError when there is none, it cannot be decoded, or its path leaves the root.
        """
        return Frame(
            self.pixels(sample),
            stamp_ns=sample.stamp_ns,
            frame_id=sample.camera,
            sequence=max(0, sample.frame),
        )

    def pixels(self, sample: Sample) -> npt.NDArray[np.uint8]:
        """The picture of `load` without its header."""
        if sample.image is None:
            raise InputError(f"{self.root}: the data set has no picture file for {sample.name!r}")
        if isinstance(sample.image, BagPicture):
            from perception.datasets.formats.rosbag2 import load_picture

            return load_picture(sample.image)
        relative = os.path.relpath(sample.image, self.root)
        return pictures.load(check_inside(self.root, relative))


def bag_picture(root: Path, text: str) -> BagPicture:
    """The reference that the rosbag2 reader wrote as `file#offset:inner`."""
    file, _, place = text.rpartition("#")
    offset, _, inner = place.partition(":")
    return BagPicture(root, file, int(offset), int(inner))


def _attributes(text: str) -> dict[str, str]:
    return Attributes(json.loads(text)) if text else {}
