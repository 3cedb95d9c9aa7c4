"""Measuring unmodified nodes: a camera process at a given rate, the graph, and a lean monitor."""

from __future__ import annotations

import os
import platform
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import rclpy
import yaml
from diagnostic_msgs.msg import DiagnosticArray
from rcl_interfaces.srv import SetParameters
from rclpy.experimental.events_executor import EventsExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.task import Future
from vision_msgs.msg import Detection2DArray, Detection3DArray

from perception.contract import ModelContract
from perception.errors import InputError, WaysightError
from perception.frame import Frame
from perception.runtime.detector import Detector
from perception.runtime.preprocess import Preprocessor
from perception.runtime.session import Session
from ros_nodes import qos, topics
from ros_nodes.cdr import read_stamp
from ros_nodes.graph import DDS_VARIABLE, Graph, NodeSpec
from ros_nodes.supervisor import Supervisor

PICTURES = 8
FOLLOWERS = ("tracker", "obstacles", "guardian")
"""Modules of a graph that are measured with the detector; viewer and recorder are for people."""
START_SECONDS = 60.0
"""Patience until the first result."""
TICKS = os.sysconf("SC_CLK_TCK")
PROCESSED_SHARE = 0.995
LATENCY_PERIODS = 4.0
"""A rate counts as reached when p99 stays within this many picture periods (22 ms at 180 Hz)."""


@dataclass(frozen=True)
class Load:
    """What the cameras send and what looks at it."""

    model: str
    width: int
    height: int
    rate: float
    cameras: int = 1
    device: str = "cpu"
    allow_fallback: bool = False
    threads: int = 0
    graph: Graph | None = None
    """Whose nodes follow the camera; None for the detector alone."""

    @property
    def names(self) -> tuple[str, ...]:
        """Namespaces of the cameras; none for a single one."""
        return tuple(f"camera{k}" for k in range(self.cameras)) if self.cameras > 1 else ()


def machine() -> dict[str, Any]:
    """What a figure depends on, the load of others included."""
    model = ""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
        model = next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), "")
    versions = {}
    for package in ("waysight", "onnxruntime", "numpy", "opencv-python-headless", "ros-rclpy"):
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return {
        "cpu": model or platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "versions": versions,
    }


def pictures(width: int, height: int, clip: Path | None) -> list[npt.NDArray[np.uint8]]:
    """PICTURES different pictures, BGR uint8 (height, width, 3): of a clip, or made of shapes."""
    found: list[npt.NDArray[np.uint8]] = []
    if clip is not None and clip.is_file():
        capture = cv2.VideoCapture(str(clip))
        step = max(1, int(capture.get(cv2.CAP_PROP_FRAME_COUNT)) // PICTURES)
        for number in range(PICTURES):
            capture.set(cv2.CAP_PROP_POS_FRAMES, number * step)
            ok, image = capture.read()
            if ok:
                found.append(np.asarray(cv2.resize(image, (width, height)), np.uint8))
        capture.release()
    rng = np.random.default_rng(0)
    while len(found) < PICTURES:
        image = rng.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), np.uint8)
        found.append(np.asarray(cv2.resize(image, (width, height)), np.uint8))
    return found


def bare_rate(
    load: Load,
    images: Sequence[npt.NDArray[np.uint8]],
    seconds: float,
    contract: ModelContract | None = None,
) -> float:
    """Pictures a second of the ONNX Runtime session alone on these pictures, ready as tensors.

    contract: the declaration of a foreign file that has none in or beside it.
    """
    detector = Detector(
        load.model, device=load.device, allow_fallback=load.allow_fallback, contract=contract
    )
    prepare = Preprocessor(detector.contract)
    feeds = [{detector.contract.input_name: prepare([Frame(i)])[0].copy()} for i in images]
    session = Session(
        detector.path,
        load.device,
        allow_fallback=load.allow_fallback,
        threads=load.threads or None,
    )
    for feed in feeds:
        session.run(feed)
    count, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        session.run(feeds[count % len(feeds)])
        count += 1
    return count / elapsed


def node_graph(load: Load, folder: Path, *, one_process: bool = False, **camera: Any) -> Graph:
    """Cameras in one process and the detector in another, or all in one (by reference)."""
    source = {
        "source": str(folder),
        "rate": float(load.rate),
        "loop": True,
        "preload": PICTURES,
        # The detector, and a guardian that watches the pictures too.
        "wait_subscribers": 0 if one_process else 1 + _watching(load),
        **camera,
    }
    nodes = [
        NodeSpec(
            name="camera",
            module="camera",
            process="all" if one_process else "camera",
            namespace=name,
            parameters=source,
        )
        for name in load.names or ("",)
    ]
    detector = NodeSpec(
        name="detector",
        module="detector",
        process="all" if one_process else "detector",
        parameters={
            "model": load.model,
            "device": load.device,
            "allow_fallback": load.allow_fallback,
            "threads": load.threads,
            "cameras": list(load.names),
            "lazy": not one_process,
        },
    )
    return Graph("bench", (*nodes, detector, *_followers(load, folder)))


def _followers(load: Load, folder: Path) -> list[NodeSpec]:
    """The nodes of the load's graph after the detector, on the machine's clock."""
    found = []
    for node in _following(load):
        parameters = {**node.parameters, "use_sim_time": False}
        if node.module == "obstacles":
            parameters["calibration"] = str(_calibration(load, folder))
        found.append(replace(node, parameters=parameters))
    return found


def _calibration(load: Load, folder: Path) -> Path:
    """A level camera with a horizontal view of 90 degrees, beside the pictures."""
    matrix = [load.width / 2, 0, load.width / 2, 0, load.width / 2, load.height / 2, 0, 0, 1]
    path = folder / "camera.yaml"
    text = yaml.safe_dump(
        {
            "image_width": load.width,
            "image_height": load.height,
            "camera_matrix": {"rows": 3, "cols": 3, "data": matrix},
            "distortion_model": "plumb_bob",
            "distortion_coefficients": {"rows": 1, "cols": 5, "data": [0.0] * 5},
            "mount": {"z": 1.0},
        }
    )
    path.write_text(text, encoding="utf-8")
    return path


def _last_output(load: Load) -> tuple[str, Any]:
    """Topic and type of what the last node gives for each picture."""
    modules = {node.module for node in _following(load)}
    if "obstacles" in modules:
        return topics.OBSTACLES, Detection3DArray
    return (topics.TRACKS if "tracker" in modules else topics.DETECTIONS), Detection2DArray


def _watching(load: Load) -> int:
    """Guardians that subscribe to the pictures themselves."""
    return sum(bool(node.parameters.get("watch_camera")) for node in _following(load))


def _following(load: Load) -> list[NodeSpec]:
    nodes = load.graph.nodes if load.graph else ()
    return [node for node in nodes if node.enabled and node.module in FOLLOWERS]


class Monitor:
    """Receives results as bytes, reads only their stamp, and keeps the last diagnostics."""

    def __init__(self, outputs: Sequence[str], kind: Any = Detection2DArray) -> None:
        """outputs: topics of messages of `kind`, which begin with the picture's header."""
        self.arrivals: dict[str, list[tuple[int, int]]] = {name: [] for name in outputs}
        self.counters: dict[str, dict[str, str]] = {}
        self._context = rclpy.Context()
        rclpy.init(context=self._context)
        self._node = Node("bench_monitor", context=self._context)
        for name in outputs:
            self._node.create_subscription(
                kind, name, self._receiver(name), qos.results(100), raw=True
            )
        self._node.create_subscription(DiagnosticArray, topics.DIAGNOSTICS, self._on_status, 100)
        self._executor = EventsExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._done: Future[None] = Future()
        self._thread = threading.Thread(target=self._spin, name="monitor", daemon=True)
        self._thread.start()

    def _receiver(self, name: str) -> Any:
        arrivals = self.arrivals[name]

        def receive(message: bytes) -> None:
            arrivals.append((read_stamp(message), time.time_ns()))

        return receive

    def _on_status(self, message: DiagnosticArray) -> None:
        for status in message.status:
            self.counters[status.name] = {item.key: item.value for item in status.values}

    def _spin(self) -> None:
        while not self._done.done():
            self._executor.spin_until_future_complete(self._done, timeout_sec=1.0)

    @property
    def count(self) -> int:
        """Results so far."""
        return sum(len(values) for values in self.arrivals.values())

    def set_rate(self, camera: str, rate: float) -> None:
        """Change a running camera's rate; WaysightError when it does not answer."""
        client: Any = self._node.create_client(SetParameters, f"{camera}/set_parameters")
        try:
            if not client.wait_for_service(timeout_sec=5.0):
                raise WaysightError(f"{camera} has no parameter service")
            value = Parameter("rate", Parameter.Type.DOUBLE, rate).to_parameter_msg()
            future = client.call_async(SetParameters.Request(parameters=[value]))
            answered = threading.Event()
            future.add_done_callback(lambda _: answered.set())
            if not answered.wait(5.0) or not future.result().results[0].successful:
                raise WaysightError(f"{camera} did not take the rate {rate}")
        finally:
            self._node.destroy_client(client)

    def close(self) -> None:
        """End the thread and the context."""
        self._done.set_result(None)
        self._executor.wake()
        self._thread.join(timeout=2.0)
        self._executor.shutdown()
        self._node.destroy_node()
        rclpy.shutdown(context=self._context)


@dataclass
class Running:
    """A graph under measurement."""

    supervisor: Supervisor
    monitor: Monitor
    thread: threading.Thread
    codes: list[int]

    def wait_for_results(self) -> None:
        """Until the first result; InputError or WaysightError when none comes."""
        deadline = time.monotonic() + START_SECONDS
        while not self.monitor.count:
            if not self.thread.is_alive():
                kind = InputError if self.codes and self.codes[0] == 2 else WaysightError
                raise kind("the graph ended before it gave a result")
            if time.monotonic() > deadline:
                raise WaysightError(f"no result within {START_SECONDS:.0f} s")
            time.sleep(0.05)

    def processes(self) -> dict[str, int]:
        """Process ids by name."""
        children = self.supervisor.children
        return {c.name: c.process.pid for c in children if c.process is not None}

    def stop(self) -> None:
        """Stop in order; the final counters are then in the monitor."""
        self.supervisor.stop()
        self.thread.join()


@contextmanager
def running(
    graph: Graph, outputs: Sequence[str], kind: Any = Detection2DArray
) -> Iterator[Running]:
    """The graph and its monitor, in a ROS domain of their own."""
    domain = {
        "ROS_DOMAIN_ID": os.environ.get("ROS_DOMAIN_ID", str(1 + os.getpid() % 100)),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
    }
    os.environ.update(domain)
    supervisor = Supervisor(graph, print)
    # The monitor takes part with the same profile as the nodes.
    os.environ.setdefault(DDS_VARIABLE, supervisor.environment[DDS_VARIABLE])
    monitor = Monitor(outputs, kind)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(supervisor.run()), name="supervisor")
    thread.start()
    run = Running(supervisor, monitor, thread, codes)
    try:
        yield run
    finally:
        run.stop()
        monitor.close()


@dataclass
class Usage:
    """Processor time and memory of processes between two moments."""

    ticks: dict[str, int]
    at: float
    memory_mb: dict[str, float]

    @classmethod
    def now(cls, processes: Mapping[str, int]) -> Usage:
        """Read /proc for each process that still runs."""
        ticks, memory = {}, {}
        for name, pid in processes.items():
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2]
                ticks[name] = sum(int(value) for value in fields.split()[11:13])
                pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
                memory[name] = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
        return cls(ticks, time.monotonic(), memory)

    def percent_since(self, earlier: Usage) -> dict[str, float]:
        """Percent of one core."""
        seconds = self.at - earlier.at
        return {
            name: round(100 * (ticks - earlier.ticks[name]) / TICKS / seconds, 1)
            for name, ticks in self.ticks.items()
            if name in earlier.ticks
        }


def measure(load: Load, folder: Path, seconds: float) -> dict[str, Any]:
    """The cameras at their rate for some seconds: what became of every picture, and when."""
    output, kind = _last_output(load)
    outputs = [f"/{name}/{output}" for name in load.names] or [f"/{output}"]
    with running(node_graph(load, folder), outputs, kind) as run:
        run.wait_for_results()
        processes = run.processes()
        before = middle = Usage.now(processes)
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, 1.0))
            if left > seconds / 2:
                middle = Usage.now(processes)
        after = Usage.now(processes)
        run.stop()
        monitor = run.monitor
        time.sleep(0.2)
    prefixes = [f"{name}/" for name in load.names] or [""]
    cameras = [f"/{name}/camera" for name in load.names] or ["/camera"]
    detector = monitor.counters.get("/detector", {})
    sent = [int(monitor.counters.get(name, {}).get("sent", 0)) for name in cameras]
    counts = {
        key: sum(int(detector.get(prefix + key, 0)) for prefix in prefixes)
        for key in ("received", "processed", "dropped", "invalid", "lost")
    }
    pairs = np.array([pair for values in monitor.arrivals.values() for pair in values], np.int64)
    return {
        "sent": sum(sent),
        **counts,
        "not_received": sum(sent) - counts["received"],
        "results_at_monitor": len(pairs),
        "per_camera": [
            {
                "sent": number,
                "received": int(detector.get(prefix + "received", 0)),
                "processed": int(detector.get(prefix + "processed", 0)),
            }
            for number, prefix in zip(sent, prefixes, strict=True)
        ],
        "fps": round(_rate(pairs[:, 1]), 2),
        "latency_ms": _percentiles((pairs[:, 1] - pairs[:, 0]) / 1e6),
        "jitter_ms": _jitter(monitor.arrivals),
        "work_ms": {
            key: float(detector[f"work_{key}_ms"])
            for key in ("p50", "p90", "p99", "max")
            if f"work_{key}_ms" in detector
        },
        "cpu_percent": after.percent_since(before),
        "memory_mb": {name: round(value, 1) for name, value in after.memory_mb.items()},
        "memory_growth_mb": {
            name: round(after.memory_mb[name] - middle.memory_mb[name], 2)
            for name in after.memory_mb
            if name in middle.memory_mb
        },
        "provider": detector.get("provider"),
        "arrivals": pairs,
    }


def ceiling(load: Load, folder: Path, rate: float, seconds: float) -> float:
    """Results a second of the node fed by reference, without transport, faster than it can go."""
    flood = Load(load.model, load.width, load.height, rate, 1, load.device, load.allow_fallback)
    with running(node_graph(flood, folder, one_process=True), [f"/{topics.DETECTIONS}"]) as run:
        run.wait_for_results()
        time.sleep(1.0)
        before, began = run.monitor.count, time.monotonic()
        time.sleep(seconds)
        return (run.monitor.count - before) / (time.monotonic() - began)


@contextmanager
def picture_folder(images: Sequence[npt.NDArray[np.uint8]]) -> Iterator[Path]:
    """The pictures as files for a camera node."""
    with tempfile.TemporaryDirectory(prefix="waysight-bench-") as name:
        for number, image in enumerate(images):
            cv2.imwrite(str(Path(name) / f"{number:03d}.png"), image)
        yield Path(name)


def verdict(load: Load, result: Mapping[str, Any]) -> dict[str, Any]:
    """Whether the rate was reached: all received, nearly all processed, none late."""
    reasons = []
    if result["received"] < result["sent"]:
        missing = result["sent"] - result["received"]
        reasons.append(f"{missing} of {result['sent']} pictures did not reach the detector")
    if result["processed"] < PROCESSED_SHARE * result["sent"]:
        share = 100 * result["processed"] / max(result["sent"], 1)
        reasons.append(f"only {share:.2f} % of the pictures sent were processed")
    limit = LATENCY_PERIODS * 1e3 / (load.rate * load.cameras)
    if result["latency_ms"]["p99"] > limit:
        reasons.append(f"p99 latency {result['latency_ms']['p99']} ms is above {limit:.1f} ms")
    if load.device != "cpu" and result.get("provider") == "CPUExecutionProvider":
        reasons.append(f"it ran on the CPU, not on the requested device '{load.device}'")
    return {
        "rate": load.rate,
        "cameras": load.cameras,
        "met": not reasons,
        "reasons": reasons,
    }


def _rate(times_ns: npt.NDArray[np.int64]) -> float:
    if len(times_ns) < 2:
        return 0.0
    return float((len(times_ns) - 1) / max((times_ns.max() - times_ns.min()) / 1e9, 1e-9))


def _percentiles(values: npt.NDArray[np.float64]) -> dict[str, float]:
    p50, p90, p99, top = np.percentile(values, [50, 90, 99, 100])
    return {
        "p50": round(float(p50), 2),
        "p90": round(float(p90), 2),
        "p99": round(float(p99), 2),
        "max": round(float(top), 2),
    }


def _jitter(arrivals: Mapping[str, list[tuple[int, int]]]) -> dict[str, float]:
    """Change of the time between results, as the mean and p99 of its absolute value."""
    changes = [
        np.abs(np.diff([arrived for _, arrived in values], n=2)) / 1e6
        for values in arrivals.values()
        if len(values) > 2
    ]
    joined = np.concatenate(changes) if changes else np.zeros(1)
    return {
        "mean": round(float(joined.mean()), 2),
        "p99": round(float(np.percentile(joined, 99)), 2),
    }
