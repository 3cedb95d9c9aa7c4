"""`waysight demo`: the road graph on a clip, recorded, measured and summed up."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from perception.errors import InputError, WaysightError
from perception.evaluate.coco import evaluate
from perception.evaluate.coco_files import CocoTruth, read_results, read_truth
from perception.files import write_json
from perception.sources import Source, open_source
from perception.zoo import model_path
from ros_nodes.graph import Graph, find_graph, read_graph
from ros_nodes.recording import Recording, read_recording
from ros_nodes.supervisor import Supervisor

CLIP = Path(__file__).resolve().parents[2] / "ros_nodes" / "demo" / "road_demo.mp4"
STOP_SECONDS = 40.0
"""The recorder may still be encoding."""
LINGER_SECONDS = 1.0
"""Between the camera's last picture and the stop, for the detector to finish."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--video", type=Path, help="your own video (default: the shipped clip)")
    parser.add_argument("--out", type=Path, default=Path("out/demo"), metavar="DIR")
    parser.add_argument("--model", help="shipped model or .onnx file (default: the graph's)")


def run(args: argparse.Namespace) -> int:
    """Run the graph once; exit code 2 when the video could not be read to its end."""
    clip = args.video or CLIP
    source = open_source(clip)
    if not source.is_video:
        raise InputError(f"{clip}: expected a video")
    graph = read_graph(find_graph("demo"))
    model = model_path(args.model or graph.node("detector").parameters["model"])
    truth = None if args.video else read_truth(CLIP.with_suffix(".json"))
    work = args.out / ".running"
    shutil.rmtree(work, ignore_errors=True)
    try:
        work.mkdir(parents=True)
    except OSError as error:
        raise InputError(f"{args.out}: cannot write here: {error.strerror}") from error
    try:
        code = _record(graph, clip, model, work, source)
        if code:
            return code
        recording = read_recording(work / "detections.mcap")
        shown = float(graph.node("recorder").parameters["video_threshold"])
        summary = summarise(recording, source, shown)
        summary["ap50"] = None if truth is None else score(recording, truth, work)
        write_json(work / "summary.json", summary)
        for name in ("annotated.mp4", "detections.mcap", "summary.json"):
            os.replace(work / name, args.out / name)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        with suppress(OSError):
            args.out.rmdir()  # only when it is empty: nothing came of it
    _print(summary, args.out)
    sent, expected = summary["frames_sent"], summary["frames_in_video"]
    if sent < expected:
        raise InputError(f"{clip}: ends after frame {sent} of the {expected} that its header names")
    return 0


def _record(graph: Graph, clip: Path, model: Path, work: Path, source: Source) -> int:
    """Run the graph to the clip's end; returns its exit code."""
    graph = graph.change("camera", {"source": str(clip.resolve())})
    graph = graph.change("detector", {"model": str(model.resolve())})
    outputs = {"output": str(work / "detections.mcap"), "video": str(work / "annotated.mp4")}
    graph = graph.change("recorder", outputs)
    console = Console(stderr=True)
    # A domain of its own: cameras of a robot on the same network must not get into the demo.
    own = {
        "ROS_DOMAIN_ID": os.environ.get("ROS_DOMAIN_ID", str(1 + os.getpid() % 100)),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
    }
    assert source.rate is not None
    seconds = source.count / source.rate
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task(f"{clip.name}, {seconds:.0f} s", total=seconds)
        began = time.monotonic()
        supervisor = Supervisor(
            graph,
            lambda text: console.print(f"waysight: {text}", style="dim"),
            own,
            on_tick=lambda: progress.update(bar, completed=time.monotonic() - began),
            linger=LINGER_SECONDS,
            patience=STOP_SECONDS,
        )
        stopped: list[int] = []

        def on_signal(number: int, _frame: object) -> None:
            stopped.append(number)
            supervisor.stop()

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, on_signal)
        code = supervisor.run()
    if stopped:
        raise KeyboardInterrupt
    crashed = [child.name for child in supervisor.children if child.restarts]
    if crashed and not code:
        raise WaysightError(f"the run does not count: {', '.join(crashed)} had to be started again")
    return code


def summarise(recording: Recording, source: Source, shown: float) -> dict[str, Any]:
    """The figures of a run; every picture that was sent is in one of the counts, every object that
    the video shows (scores from `shown`) in `objects`."""
    sent, results = len(recording.stamps_ns), len(recording.results)
    detector = recording.counters.get("detector", {})
    # Where frames come irregularly, the header's count is a guess; the camera has seen the end.
    camera = recording.counters.get("camera", {})
    whole = (camera.get("ended"), camera.get("unreadable")) == ("True", "0")
    ages = recording.latencies_ms()
    span = (
        (max(r.arrived_ns for r in recording.results) - min(recording.stamps_ns)) / 1e9
        if (results)
        else 0.0
    )
    p50, p90, p99 = np.percentile(ages, [50, 90, 99]) if results else (None, None, None)
    return {
        "video": source.paths[0].name,
        "model": detector.get("model"),
        "frames_in_video": sent if whole else source.count,
        "frames_sent": sent,
        "frames_received": int(detector.get("received", 0)),
        "frames_processed": results,
        "frames_dropped": sent - results,
        "frames_invalid": int(detector.get("invalid", 0)),
        "objects": sum(s >= shown for result in recording.results for _, s, _ in result.rows),
        "fps": round(results / span, 2) if span else 0.0,
        "latency_ms": {
            name: None if value is None else round(float(value), 2)
            for name, value in (("p50", p50), ("p90", p90), ("p99", p99))
        },
    }


def score(recording: Recording, truth: CocoTruth, work: Path) -> float | None:
    """COCO AP50 of the recorded detections; picture k of the camera is picture k of the truth."""
    number = {stamp: k for k, stamp in enumerate(recording.stamps_ns)}
    images, categories = (
        list(truth.image_ids),
        dict(zip(truth.names, truth.category_ids, strict=True)),
    )
    rows = [
        {
            "image_id": images[number[result.stamp_ns]],
            "category_id": categories[name],
            "bbox": list(box),
            "score": value,
        }
        for result in recording.results
        if number.get(result.stamp_ns, len(images)) < len(images)
        for name, value, box in result.rows
        if name in categories
    ]
    path = work / "results.json"
    write_json(path, rows)
    ap50 = evaluate(truth.tables(read_results(path, truth))).ap50
    return None if ap50 is None else round(ap50, 4)


def _print(summary: dict[str, Any], out: Path) -> None:
    table = Table(title="Road demo", show_header=False)
    latency = summary["latency_ms"]
    rows = [
        ("model", Path(summary["model"] or "-").stem),
        ("pictures sent", summary["frames_sent"]),
        ("received by the detector", summary["frames_received"]),
        ("with detections published", summary["frames_processed"]),
        ("dropped", summary["frames_dropped"]),
        ("objects shown", summary["objects"]),
        ("frames per second", summary["fps"]),
        ("latency p50 / p90 / p99 (ms)", " / ".join(str(latency[p]) for p in latency)),
        ("AP50 against the ground truth", summary["ap50"] if summary["ap50"] is not None else "-"),
    ]
    for name, value in rows:
        table.add_row(name, str(value))
    console = Console()
    console.print(table)
    console.print(f"watch {out / 'annotated.mp4'}; open {out / 'detections.mcap'} in Foxglove")
