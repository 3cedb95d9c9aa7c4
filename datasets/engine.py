"""Where the work on a large data set runs: on all cores of this machine, or as a Spark job.

Both engines map one function over units and give its batches back in the order of the units, so
their results are equal. Units and functions are small and picklable: a function opens the files it
needs itself, which a Spark cluster must therefore see under the same paths.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from rich.progress import Progress

from perception.datasets.plan import Plan, format_module
from perception.datasets.rows import SCHEMA
from perception.errors import InputError
from perception.extras import install_command

Task = Callable[[str], Iterator[pa.RecordBatch]]

UNITS_A_TASK = 512
"""Label files read by one task: some tenths of a second of work."""


class Engine(Protocol):
    """Runs a function over units. work: folder that all its processes see, None for any."""

    @property
    def work(self) -> Path | None: ...

    def map(
        self, task: Task, units: Sequence[str], schema: pa.Schema, title: str
    ) -> Iterator[pa.RecordBatch]:
        """Batches of task(unit) for every unit, in the order of the units."""

    def read(self, plan: Plan) -> Iterator[pa.RecordBatch]:
        """The rows of a data set; see open_dataset."""


def _read_task(plan: Plan, unit: str) -> Iterator[pa.RecordBatch]:
    yield from format_module(plan.format).read(plan, json.loads(unit))


def _read(engine: Engine, plan: Plan) -> Iterator[pa.RecordBatch]:
    """Read a plan's units in groups with an engine; a single unit is read in this process."""
    if len(plan.units) < 2:
        yield from format_module(plan.format).read(plan, plan.units)
        return
    groups = [
        json.dumps(plan.units[i : i + UNITS_A_TASK])
        for i in range(0, len(plan.units), UNITS_A_TASK)
    ]
    # Formats ask whether there is more than one unit, and nothing else about the others.
    small = replace(plan, units=plan.units[:2], sources=(), findings=())
    yield from engine.map(partial(_read_task, small), groups, SCHEMA, "reading labels")


@dataclass(frozen=True)
class LocalEngine:
    """All cores of this machine (workers 0), with a progress bar unless `quiet`."""

    workers: int = 0
    quiet: bool = True
    work: Path | None = None

    def read(self, plan: Plan) -> Iterator[pa.RecordBatch]:
        return _read(self, plan)

    def map(
        self, task: Task, units: Sequence[str], schema: pa.Schema, title: str
    ) -> Iterator[pa.RecordBatch]:
        workers = min(self.workers or len(os.sched_getaffinity(0)), len(units))
        with Progress(transient=True, disable=self.quiet) as progress:
            bar = progress.add_task(title, total=len(units))
            if workers <= 1:
                for unit in units:
                    yield from task(unit)
                    progress.advance(bar)
                return
            # Spawned, because a fork would copy Arrow's thread pools in whatever state they are.
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(workers, mp_context=context) as pool:
                yield from self._ordered(pool, task, units, workers, lambda: progress.advance(bar))

    @staticmethod
    def _ordered(
        pool: ProcessPoolExecutor,
        task: Task,
        units: Sequence[str],
        workers: int,
        done: Callable[[], None],
    ) -> Iterator[pa.RecordBatch]:
        """Results in order, with only a few waiting, so that memory stays bounded."""
        waiting: deque[Future[bytes]] = deque()
        for unit in units:
            waiting.append(pool.submit(_packed, task, unit))
            if len(waiting) > 2 * workers:
                yield from _unpacked(waiting.popleft().result())
                done()
        while waiting:
            yield from _unpacked(waiting.popleft().result())
            done()


def _packed(task: Task, unit: str) -> bytes:
    """Run a task and pack its batches as an Arrow stream."""
    sink = pa.BufferOutputStream()
    writer = None
    for batch in task(unit):
        writer = writer or pa.ipc.new_stream(sink, batch.schema)
        writer.write_batch(batch)
    if writer is None:
        return b""
    writer.close()
    return bytes(sink.getvalue())


def _unpacked(data: bytes) -> Iterator[pa.RecordBatch]:
    if data:
        with pa.ipc.open_stream(data) as reader:
            yield from reader


@dataclass(frozen=True)
class SparkEngine:
    """An Apache Spark cluster: `master` such as spark://host:7077, yarn or local[4].

    work: folder that the driver and all workers see, for units and results as Parquet.
    conf: further Spark settings, as text.
    """

    master: str
    work: Path | None = None
    conf: tuple[tuple[str, str], ...] = ()

    def read(self, plan: Plan) -> Iterator[pa.RecordBatch]:
        return _read(self, plan)

    def map(
        self, task: Task, units: Sequence[str], schema: pa.Schema, title: str
    ) -> Iterator[pa.RecordBatch]:
        work = None if self.work is None else self.work.absolute()
        folder = Path(tempfile.mkdtemp(prefix="waysight-spark-", dir=work))
        folder.chmod(0o777)  # workers may run as another user
        try:
            self._run(task, units, schema, title, folder)
            yield from _in_order(folder / "results", schema)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _run(
        self, task: Task, units: Sequence[str], schema: pa.Schema, title: str, folder: Path
    ) -> None:
        from pyspark.sql.pandas.types import from_arrow_schema

        session = self._session(title)
        table = pa.table(
            {
                "number": pa.array(range(len(units)), pa.int64()),
                "unit": pa.array(units, pa.string()),
            }
        )
        pq.write_table(table, folder / "units.parquet")
        try:
            frame = session.read.parquet(f"file://{folder}/units.parquet")
            # One partition a unit: a lost worker costs what it was working on, nothing else.
            frame = frame.repartition(max(1, len(units)))
            result = frame.mapInArrow(
                partial(_spark_task, task), from_arrow_schema(_numbered(schema))
            )
            result.write.parquet(f"file://{folder}/results")
        except Exception as error:
            if type(error).__module__.split(".")[0] not in ("pyspark", "py4j"):
                raise
            line = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
            raise InputError(f"the Spark job {title!r} on {self.master} failed: {line}") from error

    def _session(self, title: str) -> Any:
        try:
            from pyspark.sql import SparkSession
        except ModuleNotFoundError:
            raise InputError(f"--engine spark needs pyspark: {install_command('spark')}") from None
        # Spark would start "python3"; workers need the packages that this interpreter has.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master(self.master).appName(f"waysight: {title}")
        settings = {
            "spark.sql.execution.arrow.pyspark.enabled": "true",
            "spark.ui.showConsoleProgress": "false",
            **dict(self.conf),
        }
        for key, value in settings.items():
            builder = builder.config(key, value)
        try:
            return builder.getOrCreate()
        except Exception as error:
            line = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
            raise InputError(f"no Spark session on {self.master}: {line}") from error


def _numbered(schema: pa.Schema) -> pa.Schema:
    return pa.schema([("_unit", pa.int64()), ("_part", pa.int64()), *schema])


def _spark_task(task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run a task for the units of a partition; its rows carry unit and place, to be sorted by."""
    for batch in batches:
        for number, unit in zip(
            batch.column("number").to_pylist(), batch.column("unit").to_pylist(), strict=True
        ):
            row = 0
            for result in task(unit):
                count = result.num_rows
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array([number] * count, pa.int64()),
                        pa.array(range(row, row + count), pa.int64()),
                        *result.columns,
                    ],
                    schema=_numbered(result.schema),
                )
                row += count


def _in_order(folder: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows of the result files by unit and place. All rows of a unit are in one file."""
    files: dict[int, Path] = {}
    for file in sorted(folder.glob("*.parquet")):
        units = pq.read_table(file, columns=["_unit"]).column("_unit").unique()
        files.update(dict.fromkeys(units.to_pylist(), file))
    for unit, file in sorted(files.items()):
        table = pq.read_table(file, filters=[("_unit", "=", unit)]).sort_by("_part")
        for batch in table.combine_chunks().to_batches():
            columns = [batch.column(name).cast(schema.field(name).type) for name in schema.names]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
