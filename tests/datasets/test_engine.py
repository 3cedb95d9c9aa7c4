"""Local and Spark engines give the same; a worker that is killed loses nothing."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from perception.datasets import open_dataset, opening
from perception.datasets.engine import LocalEngine, SparkEngine
from perception.datasets.inference import detect
from perception.datasets.lint import LintSettings, lint
from perception.errors import InputError
from perception.runtime.settings import DetectorSettings
from tests.datasets.made import picture

SCHEMA = pa.schema([("unit", pa.string()), ("process", pa.int64())])


def yolo_set(folder: Path, count: int) -> str:
    for i in range(count):
        picture(folder / "images" / f"{i:04d}.png", seed=i % 7)
        (folder / "labels").mkdir(exist_ok=True)
        (folder / "labels" / f"{i:04d}.txt").write_text(
            f"{i % 2} .5 .5 .2 .{1 + i % 8}\n0 2 2 .1 .1\n"
        )
    (folder / "data.yaml").write_text("names: [car, bus]")
    return f"yolo:{folder}"


def slow(folder: str, unit: str) -> Iterator[pa.RecordBatch]:
    """Two rows a unit; leaves a mark that says which process worked on it."""
    Path(folder, f"{unit}-{os.getpid()}").touch()
    time.sleep(0.4)
    yield pa.RecordBatch.from_pydict({"unit": [unit, unit + "'"], "process": [0, 1]}, schema=SCHEMA)


def test_all_cores_give_what_one_process_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perception.datasets.engine.UNITS_A_TASK", 10)
    monkeypatch.setattr(opening, "PICTURES_A_BATCH", 16)
    spec = yolo_set(tmp_path, 40)
    alone, together = open_dataset(spec), open_dataset(spec, engine=LocalEngine(workers=2))
    assert [s.truth.boxes.tolist() for s in alone] == [s.truth.boxes.tolist() for s in together]
    assert alone.report.to_json() == together.report.to_json()
    assert lint(alone).to_json() == lint(together, None, LocalEngine(workers=2)).to_json()


def test_a_fault_in_a_worker_reaches_the_caller() -> None:
    with pytest.raises(InputError, match="gone"):
        list(LocalEngine(workers=2).map(partial(_fail, "gone"), ["a", "b"], SCHEMA, "x"))


def _fail(text: str, unit: str) -> Iterator[pa.RecordBatch]:
    raise InputError(text)
    yield


def test_no_cluster_is_an_input_error() -> None:
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    engine = SparkEngine("nonsense://nowhere")
    with pytest.raises(InputError, match="nonsense"):
        list(engine.map(partial(slow, "."), ["a"], SCHEMA, "x"))


class Cluster:
    """A Spark master and two workers on loopback, from the pyspark package itself."""

    def __init__(self, folder: Path) -> None:
        import pyspark

        self.home = Path(pyspark.__file__).parent
        self.folder = folder
        self.port = _free_port()
        self.url = f"spark://127.0.0.1:{self.port}"
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self._start("master.Master", "--port", str(self.port), "--webui-port", "0")
        _wait_for(self.port)
        for _ in range(2):
            self._start(
                "worker.Worker",
                "--cores",
                "1",
                "--memory",
                "600m",
                "--webui-port",
                "0",
                "--work-dir",
                str(self.folder / "work"),
                self.url,
            )

    def _start(self, name: str, *arguments: str) -> None:
        root = str(Path(__file__).resolve().parents[2])
        env = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": root,
            "SPARK_HOME": str(self.home),
            "SPARK_DAEMON_MEMORY": "256m",
        }
        command = [
            str(self.home / "bin/spark-class"),
            f"org.apache.spark.deploy.{name}",
            "--host",
            "127.0.0.1",
            *arguments,
        ]
        log = (self.folder / f"{name}-{len(self.processes)}.log").open("wb")
        self.processes.append(
            subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
        )

    def kill_worker(self) -> None:
        """End one worker and the executor it started."""
        worker = self.processes[-1]
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(worker.pid)],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.split()
        for pid in (*map(int, children), worker.pid):
            os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        from pyspark.sql import SparkSession

        with contextlib.suppress(Exception):  # a session that broke is no reason to leak processes
            session = SparkSession.getActiveSession()
            if session is not None:
                session.stop()
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int) -> None:
    for _ in range(1200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the Spark master did not come up")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    pytest.importorskip("pyspark", reason="needs the spark extra")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    running = Cluster(tmp_path_factory.mktemp("spark"))
    try:
        running.start()
        yield running
    finally:
        running.stop()


def engine_of(cluster: Cluster) -> SparkEngine:
    root = str(Path(__file__).resolve().parents[2])
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "500m",
        "spark.executor.cores": "1",
        "spark.ui.enabled": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.executorEnv.PYTHONPATH": root,
    }
    return SparkEngine(cluster.url, cluster.folder, tuple(settings.items()))


@pytest.mark.timeout(900)  # four Java processes start from cold
def test_spark_gives_what_this_process_gives(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bright_cell_detector = pytest.importorskip("tests.onnx_models").bright_cell_detector
    monkeypatch.setattr("perception.datasets.engine.UNITS_A_TASK", 10)
    monkeypatch.setattr("perception.datasets.inference.PICTURES_A_TASK", 10)
    spec = yolo_set(tmp_path, 15)
    alone, spark = open_dataset(spec), open_dataset(spec, engine=engine_of(cluster))
    assert [s.truth.boxes.tolist() for s in alone] == [s.truth.boxes.tolist() for s in spark]
    assert [s.name for s in alone] == [s.name for s in spark]
    assert alone.report.to_json() == spark.report.to_json()
    settings = LintSettings()
    assert lint(alone, settings).to_json() == lint(spark, settings, engine_of(cluster)).to_json()
    model = DetectorSettings(bright_cell_detector(tmp_path / "cells.onnx"))
    detect(alone, model, tmp_path / "alone.json")
    detect(spark, model, tmp_path / "spark.json", engine_of(cluster))
    assert (tmp_path / "alone.json").read_bytes() == (tmp_path / "spark.json").read_bytes()
    assert len(json.loads((tmp_path / "alone.json").read_text())) > 15


@pytest.mark.timeout(900)  # four Java processes start from cold
def test_a_killed_worker_loses_nothing(cluster: Cluster, tmp_path: Path) -> None:
    units = [f"u{i:02d}" for i in range(10)]

    def kill_soon() -> None:
        while len(list(tmp_path.iterdir())) < 4:
            time.sleep(0.05)
        cluster.kill_worker()

    thread = threading.Thread(target=kill_soon, daemon=True)
    thread.start()
    batches = list(engine_of(cluster).map(partial(slow, str(tmp_path)), units, SCHEMA, "slow"))
    thread.join(timeout=1)
    assert not thread.is_alive(), "the worker was not killed while the job ran"
    found = [row["unit"] for batch in batches for row in batch.to_pylist()]
    assert found == [name for unit in units for name in (unit, unit + "'")]
