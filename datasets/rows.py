"""The columnar form of a data set: one Arrow row a picture, lists for its boxes.

Readers fill `Rows`; the index on disk, the checks and the Spark jobs use the same schema, so that a
million pictures never become a million Python objects at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perception.datasets.report import Finding

FINDING = pa.struct(
    [
        ("severity", pa.string()),
        ("code", pa.string()),
        ("message", pa.string()),
        ("file", pa.string()),
        ("line", pa.int64()),
        ("picture", pa.string()),
    ]
)

PER_BOX: dict[str, tuple[pa.DataType, int, Any]] = {
    "scores": (pa.float32(), 1, np.nan),
    "track_ids": (pa.int64(), 1, -1),
    "box_ids": (pa.string(), 1, ""),
    "lines": (pa.int64(), 1, 0),
    "crowd": (pa.bool_(), 1, False),
    "occlusion": (pa.float32(), 1, np.nan),
    "truncation": (pa.float32(), 1, np.nan),
    "distance": (pa.float32(), 1, np.nan),
    "points": (pa.int64(), 1, -1),
    "velocity": (pa.float32(), 3, np.nan),
    "boxes_3d": (pa.float32(), 7, np.nan),
    "area": (pa.float64(), 1, np.nan),
    "box_attributes": (pa.string(), 1, ""),
}
"""Optional list columns: value type, values a box, default. An empty list means all default."""

SCHEMA = pa.schema(
    [
        ("image", pa.string()),  # null: no picture, the row only carries findings
        ("name", pa.string()),
        ("id", pa.string()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("split", pa.string()),
        ("sequence", pa.string()),
        ("camera", pa.string()),
        ("frame", pa.int64()),
        ("stamp_ns", pa.int64()),
        ("attributes", pa.string()),
        ("source", pa.string()),
        ("line", pa.int64()),
        ("boxes", pa.list_(pa.float32())),
        ("labels", pa.list_(pa.string())),
        *((name, pa.list_(kind)) for name, (kind, _, _) in PER_BOX.items()),
        ("ignore", pa.list_(pa.float32())),
        ("findings", pa.list_(FINDING)),
    ]
)

PICTURES_A_BATCH = 2048
"""Rows of a batch, and of a row group of the index: some megabytes at 20 boxes a picture."""


def to_text(attributes: Mapping[str, object] | None) -> str:
    """Attributes as JSON with sorted keys, "" when there are none."""
    if not attributes:
        return ""
    plain = {str(key): value for key, value in attributes.items()}
    return json.dumps(plain, sort_keys=True, ensure_ascii=False, default=str)


def scalar_text(value: object) -> str:
    """An attribute's value as text; true and false in lower case as in JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


class Rows:
    """Pictures, boxes and findings on their way into Arrow; filled in reading order."""

    def __init__(self) -> None:
        self._pictures: list[tuple[Any, ...]] = []
        self._box_ends: list[int] = []
        self._ignore_ends: list[int] = []
        self._finding_ends: list[int] = []
        self._boxes: list[float] = []
        self._labels: list[str] = []
        self._ignore: list[float] = []
        self._findings: list[Finding] = []
        self._sparse: dict[str, dict[int, Any]] = {name: {} for name in PER_BOX}

    def __len__(self) -> int:
        return len(self._pictures)

    def picture(
        self,
        name: str,
        image: str | None,
        *,
        id: str = "",
        width: int = 0,
        height: int = 0,
        split: str = "",
        sequence: str = "",
        camera: str = "",
        frame: int = -1,
        stamp_ns: int = 0,
        attributes: Mapping[str, object] | None = None,
        source: str = "",
        line: int = 0,
    ) -> None:
        """Begin a picture; boxes, ignore regions and findings that follow belong to it.

        image: relative path of the file, "" when there is none to be used.
        """
        self._pictures.append(
            (
                image,
                name,
                id,
                width,
                height,
                split,
                sequence,
                camera,
                frame,
                stamp_ns,
                to_text(attributes),
                source,
                line,
            )
        )
        self._box_ends.append(len(self._labels))
        self._ignore_ends.append(len(self._ignore))
        self._finding_ends.append(len(self._findings))

    def box(self, x1: float, y1: float, x2: float, y2: float, label: str, **extra: Any) -> None:
        """Add a box (pixels) to the picture begun last; `extra` are names of PER_BOX."""
        index = len(self._labels)
        self._boxes += (x1, y1, x2, y2)
        self._labels.append(label)
        self._box_ends[-1] = index + 1
        for key, value in extra.items():
            self._sparse[key][index] = value

    def ignore(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """Add an ignore region (pixels) to the picture begun last."""
        self._ignore += (x1, y1, x2, y2)
        self._ignore_ends[-1] = len(self._ignore)

    def findings(self, findings: Iterable[Finding]) -> None:
        """Attach findings to the picture begun last, or to a row of their own before any."""
        findings = list(findings)
        if not findings:
            return
        if not self._pictures:
            self.picture("", None)
        self._findings.extend(findings)
        self._finding_ends[-1] = len(self._findings)

    def declare(self, names: Sequence[str], facts: Mapping[str, Mapping[str, Any]]) -> None:
        """Say the class names in their order, and facts to keep, before any picture.

        The facts of several files are joined key by key. For files that only tell them after
        everything else was read.
        """
        self.picture("", None, attributes=facts)
        self._labels.extend(names)
        self._box_ends[-1] = len(self._labels)
        self._boxes.extend([0.0] * 4 * len(names))

    def batch(self) -> pa.RecordBatch:
        """Everything so far as one batch; the object is empty afterwards."""
        pictures = {
            name: list(values)
            for name, values in zip(PER_PICTURE, zip(*self._pictures, strict=True), strict=False)
        }
        ends = np.asarray([0, *self._box_ends], dtype=np.int64)
        batch = assemble(
            pictures,
            ends,
            np.asarray(self._boxes, dtype=np.float32),
            pa.array(self._labels, pa.string()),
            {
                name: _dense(sparse, int(ends[-1]), name)
                for name, sparse in self._sparse.items()
                if sparse
            },
            ignore=(np.asarray([0, *self._ignore_ends], dtype=np.int64), self._ignore),
            findings=(np.asarray([0, *self._finding_ends], dtype=np.int64), self._findings),
        )
        self.__init__()  # type: ignore[misc]
        return batch


PER_PICTURE = SCHEMA.names[:13]


def assemble(
    pictures: Mapping[str, Sequence[Any]],
    ends: npt.NDArray[np.int64],
    boxes: npt.NDArray[np.float32],
    labels: pa.Array,
    per_box: Mapping[str, Any],
    *,
    ignore: tuple[npt.NDArray[np.int64], Sequence[float]] | None = None,
    findings: tuple[npt.NDArray[np.int64], Sequence[Finding]] | None = None,
) -> pa.RecordBatch:
    """A batch of SCHEMA from columns.

    pictures: values of each column of PER_PICTURE. ends: int64 (P + 1,), picture p has the boxes
    ends[p]:ends[p + 1]. boxes: float32 (boxes, 4), labels: one name a box, per_box: the columns of
    PER_BOX that are not all default. ignore: ends in values (four a region), and the values.
    """
    none = np.zeros_like(ends)
    ignore_ends, regions = ignore or (none, [])
    finding_ends, items = findings or (none, [])
    columns = [pa.array(pictures[name], SCHEMA.field(name).type) for name in PER_PICTURE]
    columns.append(lists(ends * 4, pa.array(boxes.reshape(-1), pa.float32())))
    columns.append(lists(ends, labels))
    for name, (kind, width, _) in PER_BOX.items():
        if name in per_box:
            columns.append(lists(ends * width, _array(per_box[name], kind)))
        else:
            columns.append(lists(none, pa.array([], kind)))
    columns.append(lists(ignore_ends, pa.array(regions, pa.float32())))
    columns.append(lists(finding_ends, finding_array(items)))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    return pa.array(values.reshape(-1) if isinstance(values, np.ndarray) else values, kind)


def finding_array(findings: Sequence[Finding]) -> pa.Array:
    """Findings as an Arrow struct array."""
    rows = [
        (item.severity, item.code, item.message, item.file, item.line, item.picture)
        for item in findings
    ]
    columns = list(zip(*rows, strict=True)) or [()] * len(FINDING)
    return pa.StructArray.from_arrays(
        [pa.array(column, FINDING.field(i).type) for i, column in enumerate(columns)],
        fields=list(FINDING),
    )


def lists(ends: npt.NDArray[np.int64], values: pa.Array) -> pa.Array:
    """A list array whose list i is values[ends[i]:ends[i + 1]]."""
    return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), values)


def _dense(sparse: Mapping[int, Any], count: int, name: str) -> Any:
    _, width, default = PER_BOX[name]
    if width > 1:
        dense = np.full((count, width), default, dtype=np.float32)
        for index, value in sparse.items():
            dense[index] = value
        return dense
    if len(sparse) == count:  # in order, since boxes are only ever appended
        return list(sparse.values())
    values = [default] * count
    for index, value in sparse.items():
        values[index] = value
    return values


class Columns:
    """NumPy views of one batch: flat arrays over all boxes, and where each picture's begin.

    starts: int64 (P + 1,), boxes of picture p are starts[p]:starts[p + 1].
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.pictures = batch.num_rows
        boxes = batch.column("boxes")
        self.starts = _offsets(boxes) // 4
        self.boxes = _flat(boxes, np.float32).reshape(-1, 4)
        ignore = batch.column("ignore")
        self.ignore_starts = _offsets(ignore) // 4
        self.ignore = _flat(ignore, np.float32).reshape(-1, 4)
        self._cache: dict[str, Any] = {}

    def values(self, name: str) -> list[Any]:
        """A per-picture column as Python values, which are not to be changed."""
        if name not in self._cache:
            self._cache[name] = self.batch.column(name).to_pylist()
        values: list[Any] = self._cache[name]
        return values

    def labels(self) -> tuple[npt.NDArray[np.int64], list[str]]:
        """int64 (boxes,): index into the class names that this batch uses, and those names."""
        if "labels" not in self._cache:
            coded = self.batch.column("labels").flatten()
            if not pa.types.is_dictionary(coded.type):
                coded = coded.dictionary_encode()
            self._cache["labels"] = (
                coded.indices.to_numpy(zero_copy_only=False).astype(np.int64),
                [str(name) for name in coded.dictionary.to_pylist()],
            )
        indices, names = self._cache["labels"]
        return indices, names

    def per_box(self, name: str) -> Any:
        """An optional column, (boxes,) or (boxes, width): an array, or a list for text."""
        if name not in self._cache:
            self._cache[name] = self._dense(name)
        return self._cache[name]

    def has(self, name: str) -> bool:
        """Whether any picture of the batch has values in the optional column `name`."""
        return bool(len(self.batch.column(name).flatten()))

    def _dense(self, name: str) -> Any:
        kind, width, default = PER_BOX[name]
        count = len(self.boxes)
        column = self.batch.column(name)
        is_text = pa.types.is_string(kind)
        flat = column.flatten()
        values = flat.to_pylist() if is_text else flat.to_numpy(zero_copy_only=False)
        if len(flat) != count * width:
            filled: Any = (
                [default] * count
                if is_text
                else np.full(count * width, default, kind.to_pandas_dtype())
            )
            offsets = _offsets(column)
            for p in np.flatnonzero(np.diff(offsets)):
                begin = int(self.starts[p]) * width
                filled[begin : begin + int(offsets[p + 1] - offsets[p])] = values[
                    offsets[p] : offsets[p + 1]
                ]
            values = filled
        if is_text:
            return values
        return values.reshape(count, width) if width > 1 else values


def relabelled(columns: Columns, targets: Mapping[str, str]) -> pa.RecordBatch:
    """The batch with other class names; boxes of a class whose target is "" are ignore regions."""
    codes, used = columns.labels()
    names = [targets[name] for name in used]
    kept = np.asarray([bool(name) for name in names] or [True])[codes]
    ends = np.concatenate([[0], np.cumsum(kept)])[columns.starts]
    regions, ignore_ends = list[npt.NDArray[np.float32]](), [0]
    for p in range(columns.pictures):
        boxes = slice(columns.starts[p], columns.starts[p + 1])
        regions.append(columns.ignore[columns.ignore_starts[p] : columns.ignore_starts[p + 1]])
        regions.append(columns.boxes[boxes][~kept[boxes]])
        ignore_ends.append(ignore_ends[-1] + 4 * (len(regions[-2]) + len(regions[-1])))
    per_box = {name: columns.per_box(name) for name in PER_BOX if columns.has(name)}
    findings = [items or [] for items in columns.values("findings")]
    return assemble(
        {name: columns.values(name) for name in PER_PICTURE},
        ends,
        columns.boxes[kept],
        pa.array([names[code] for code in codes[kept]], pa.string()),
        {
            name: [value for value, keep in zip(values, kept, strict=True) if keep]
            if isinstance(values, list)
            else values[kept]
            for name, values in per_box.items()
        },
        ignore=(np.asarray(ignore_ends, np.int64), _flat_list(regions)),
        findings=(
            np.cumsum([0, *map(len, findings)]),
            [Finding(**item) for items in findings for item in items],
        ),
    )


def _flat_list(regions: Sequence[npt.NDArray[np.float32]]) -> list[float]:
    return [float(value) for region in regions for value in region.reshape(-1)]


def _offsets(column: pa.Array) -> npt.NDArray[np.int64]:
    """int64 (P + 1,), from 0: also for sliced and Spark-made arrays, where null counts as empty."""
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def _flat(column: pa.Array, kind: type) -> npt.NDArray[Any]:
    return np.asarray(column.flatten().to_numpy(zero_copy_only=False), dtype=kind)
