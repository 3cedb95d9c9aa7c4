"""open_dataset: find the format, read the labels or their index."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from perception.datasets.archive import cache_folder, unpacked
from perception.datasets.dataset import META_KEY, Dataset, MemoryStore, ParquetStore, Store
from perception.datasets.plan import ALIASES, FORMATS, Plan, format_module, format_name
from perception.datasets.report import Finding
from perception.datasets.rows import PICTURES_A_BATCH, SCHEMA
from perception.datasets.text import natural, walk
from perception.errors import InputError
from perception.files import atomic_path
from perception.labels import LabelMap

IN_MEMORY = 2 * PICTURES_A_BATCH
"""Data sets up to this many pictures are read anew each time; larger ones get an index."""

INDEX_VERSION = 2


def open_dataset(
    spec: str | os.PathLike[str],
    *,
    classes: LabelMap | None = None,
    index: Path | None = None,
    engine: Any = None,
) -> Dataset:
    """Open `format:path`, or a path whose format is guessed (see `Dataset.guessed`).

    classes: map from the data set's class names to others. Boxes of a class mapped to "ignore", or
        to a group of classes, become ignore regions. A class that the map lacks is an InputError.
    index: where to keep the index of a large set; by default in the user's cache folder.
    engine: perception.datasets.engine, reads the labels with it; None reads in this process.
    Raises InputError for a missing path, an unknown format, or a folder that could be several.
    """
    format, path, guessed = resolve(str(spec))
    module = format_module(format)
    try:
        plan = module.plan(path)
    except InputError as error:
        # Of an archive the cache folder is named, which says nothing to whoever named the archive.
        name = str(spec).removeprefix(f"{format}:")
        raise InputError(str(error).replace(str(path), name)) from None
    store = _from_index(index or index_path(plan, path), plan)
    if store is None:
        batches = module.read(plan, plan.units) if engine is None else engine.read(plan)
        store = build(plan, batches, index or index_path(plan, path))
    return Dataset(store, plan.root, guessed=guessed, classes=classes)


def resolve(spec: str) -> tuple[str, Path, str]:
    """Format, path and, when the format was guessed, the reason."""
    prefix, colon, rest = spec.partition(":")
    if colon and (prefix.lower() in FORMATS or prefix.lower() in ALIASES):
        path = _existing(rest)
        return format_name(prefix), path, ""
    if colon and not Path(spec).exists():
        format_name(prefix)
    path = _existing(spec)
    claims = {name: reason for name in FORMATS if (reason := format_module(name).claims(path))}
    if not claims:
        raise InputError(
            f"{spec}: no data set of a known format found here, expected one of "
            f"{', '.join(FORMATS)}; name it as FORMAT:{spec}"
        )
    if len(claims) > 1:
        found = "; ".join(f"{name} ({reason})" for name, reason in claims.items())
        raise InputError(f"{spec}: holds more than one format: {found}; name it as FORMAT:{spec}")
    name, reason = next(iter(claims.items()))
    return name, path, reason


def _existing(text: str) -> Path:
    path = Path(text).expanduser()
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    path = path.absolute()  # workers of an engine have another current folder
    return unpacked(path) if path.is_file() and path.suffix.lower() == ".zip" else path


def index_path(plan: Plan, path: Path) -> Path:
    """The index file of a data set in the user's cache folder."""
    key = hashlib.sha256(f"{plan.format}:{os.path.realpath(path)}".encode()).hexdigest()[:24]
    return cache_folder() / f"{key}.parquet"


def fingerprint(plan: Plan) -> str:
    """Changes when the label files, the list of pictures or what was planned changes."""
    digest = hashlib.sha256(f"{INDEX_VERSION}{plan.format}{os.path.realpath(plan.root)}".encode())
    digest.update(json.dumps(plan.header, sort_keys=True, default=str).encode())
    digest.update("\n".join(plan.units).encode())
    root = str(plan.root)
    for source in plan.sources:
        try:
            status = os.stat(f"{root}/{source}")
            digest.update(f"{source}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
        except OSError:
            digest.update(f"{source}\0missing\n".encode())
    return digest.hexdigest()


def _from_index(path: Path, plan: Plan) -> Store | None:
    if not path.exists():
        return None
    try:
        store = ParquetStore(path)
    except InputError:
        return None  # damaged, or of another version: it is rebuilt from the labels
    if store.meta.get("fingerprint") != fingerprint(plan):
        return None
    if plan.format == "coco":
        from perception.datasets.formats.coco import is_current

        return store if is_current(plan.root, store.meta["facts"]) else None
    return store


def build(plan: Plan, batches: Iterable[pa.RecordBatch], path: Path) -> Store:
    """Collect a reader's batches in memory, or in an index at `path` when there are many."""
    gathered = _Gathered(plan)
    groups = gathered.groups(batches)
    first: list[pa.RecordBatch] = []
    for group in groups:
        first.append(group)
        if sum(item.num_rows for item in first) > IN_MEMORY:
            return _write_index(gathered, first, groups, path)
    return MemoryStore(first, gathered.meta())


class _Gathered:
    """Regroups batches, and keeps what belongs to the whole data set."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._findings = list(plan.findings)
        self._labels: dict[str, None] = {}
        self._declared: dict[str, None] = {}
        self._facts: dict[str, dict[str, Any]] = {}

    def groups(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of about PICTURES_A_BATCH rows; rows without a picture end in the meta data."""
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            kept = self._take(batch)
            waiting.append(kept)
            rows += kept.num_rows
            if rows >= PICTURES_A_BATCH:
                yield _merge(waiting)
                waiting, rows = [], 0
        if rows:
            yield _merge(waiting)

    def _take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        labels = batch.column("labels").flatten()
        self._labels.update(dict.fromkeys(labels.unique().to_pylist()))
        images = batch.column("image")
        if not images.null_count:
            return batch
        loose = batch.filter(images.is_null())
        for row in loose.select(["labels", "attributes", "findings"]).to_pylist():
            self._findings.extend(Finding(**item) for item in row["findings"] or [])
            self._declared.update(dict.fromkeys(row["labels"] or []))
            for fact, values in json.loads(row["attributes"] or "{}").items():
                self._facts.setdefault(fact, {}).update(values)
        return batch.filter(images.is_valid())

    def meta(self) -> dict[str, Any]:
        declared = self._plan.names if self._plan.names is not None else list(self._declared)
        names = [*declared, *sorted(set(self._labels) - set(declared), key=natural)]
        return {
            "format": self._plan.format,
            "names": names,
            "header": dict(self._plan.header),
            "facts": self._facts,
            "findings": [asdict(finding) for finding in self._findings],
            "fingerprint": fingerprint(self._plan),
        }


def _merge(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    plain = [
        pa.RecordBatch.from_arrays(
            [_cast(batch.column(field.name), field.type) for field in SCHEMA], schema=SCHEMA
        )
        for batch in batches
    ]
    if len(plain) == 1:
        return plain[0]
    return pa.Table.from_batches(plain).combine_chunks().to_batches()[0]


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type.equals(kind) else column.cast(kind)


def _write_index(
    gathered: _Gathered, first: list[pa.RecordBatch], rest: Iterable[pa.RecordBatch], path: Path
) -> Store:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = os.access(path.parent, os.W_OK)
    except OSError:
        kept = False
    holder = None
    if not kept:  # a read-only home: the index lives as long as this data set
        holder = tempfile.TemporaryDirectory(prefix="waysight-")
        path = Path(holder.name) / "index.parquet"
    _write(chain(first, rest), gathered.meta, path)
    store = ParquetStore(path)
    if holder is not None:
        weakref.finalize(store, holder.cleanup)
    return store


def _write(
    groups: Iterable[pa.RecordBatch], meta: Callable[[], dict[str, Any]], path: Path
) -> None:
    """Write an index; `meta` is asked for when all groups have passed."""
    with (
        atomic_path(path) as temporary,
        pq.ParquetWriter(temporary, SCHEMA, compression="snappy") as writer,
    ):
        for group in groups:
            writer.write_batch(group, row_group_size=max(1, group.num_rows))
        writer.add_key_value_metadata({META_KEY.decode(): json.dumps(meta())})


def write_index(store: Store, path: Path) -> None:
    """Write the rows of a data set as an index file, for other processes."""
    groups = (store.group(number) for number in range(len(store.sizes)))
    _write(groups, lambda: store.meta, path)


@contextmanager
def index_file(dataset: Dataset, work: Path | None) -> Iterator[Path]:
    """The data set's index as a file that other processes can open, made in `work` if need be."""
    if isinstance(dataset.store, ParquetStore):
        yield dataset.store.path
        return
    assert isinstance(dataset.store, MemoryStore)
    with tempfile.TemporaryDirectory(prefix="waysight-", dir=work) as folder:
        Path(folder).chmod(0o755)  # workers may run as another user
        path = Path(folder) / "index.parquet"
        write_index(dataset.store, path)
        yield path


# Folders and files that belong to a data set and hold no labels.
_BESIDES = frozenset(
    {
        "calib",
        "ImageSets",
        "oxts",
        "velodyne",
        "devkit",
        "labels.txt",
        "data.yaml",
        "classes.txt",
        "README.txt",
        "LICENSE.txt",
        "repairs.json",
    }
)


def foreign_labels(plan: Plan) -> list[Finding]:
    """Label files below the root that the format did not read, by folder and kind."""
    read = set(plan.sources)
    counts: dict[tuple[str, str], list[str]] = {}
    for file in walk(plan.root, frozenset({".json", ".xml", ".txt"})):
        if file not in read and not _BESIDES.intersection(file.split("/")):
            folder, _, name = file.rpartition("/")
            counts.setdefault((folder, os.path.splitext(name)[1].lower()), []).append(file)
    return [
        Finding(
            "warning",
            "foreign-file",
            f"{len(files)} {suffix} file(s) in this folder were not read as {plan.format}",
            file=files[0],
        )
        for (_, suffix), files in sorted(counts.items())
    ]
