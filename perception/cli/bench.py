"""`waysight bench`: time a model, the detector node, or a graph; JSON and a verdict."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

from perception.contract import SIDECAR_SUFFIX, ModelContract
from perception.errors import InputError, VerdictFailed
from perception.files import write_json
from perception.runtime.detector import Detector
from perception.runtime.session import PROVIDERS
from perception.zoo import model_path

if TYPE_CHECKING:
    from ros_nodes.bench import Load

CLIP = Path(__file__).resolve().parents[2] / "ros_nodes" / "demo" / "road_demo.mp4"
BARE_SECONDS = 5.0
FLOOD = 1.3
"""How much faster than the bare loop the pictures come when the node's own ceiling is sought."""
SEARCH_SECONDS = 4.0
SEARCH_STEP = 5.0
"""Hz: the search ends when the highest rate without loss is known this well."""
SAFETY_MS = 3.0
"""p99 from detections to velocity: a tenth of a picture's period at 30 Hz, beside the network."""
FIXED_RATES = (30.0, 60.0, 120.0, 180.0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands and their arguments."""
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    model = kinds.add_parser("model", help="time models without ROS")
    model.add_argument("models", nargs="+", metavar="MODEL", help="shipped model or .onnx file")
    model.add_argument(
        "--contract",
        type=Path,
        action="append",
        default=[],
        metavar="MODEL.contract.yaml",
        help="declaration for the foreign file MODEL.onnx; may be given several times",
    )
    model.add_argument("--seconds", type=float, default=5.0, help="for each model")
    model.set_defaults(measure=bench_model)
    node = kinds.add_parser("node", help="time the detector node against a camera process")
    node.add_argument("--rate", type=float, default=180.0, help="pictures a second and camera")
    node.add_argument("--cameras", type=int, default=1)
    node.add_argument("--seconds", type=float, default=60.0)
    node.add_argument("--plot", type=Path, metavar="FILE.png", help="latencies over time")
    node.set_defaults(measure=bench_node)
    graph = kinds.add_parser("graph", help="seek the highest rate without loss, then fixed rates")
    graph.add_argument("--highest", type=float, default=240.0, help="rate to begin the search at")
    graph.add_argument("--cameras", type=int, default=1)
    graph.add_argument("--seconds", type=float, default=10.0, help="for each fixed rate")
    graph.add_argument(
        "--graph",
        help="shipped graph or .yaml file whose tracker, obstacles and guardian run too "
        "(default: the detector alone)",
    )
    graph.set_defaults(measure=bench_graph)
    safety = kinds.add_parser("safety", help="time detections to limited velocity without ROS")
    safety.add_argument("--graph", default="factory", help="shipped graph or .yaml file: its zones")
    safety.add_argument("--objects", type=int, default=10, help="in each picture")
    safety.add_argument("--pictures", type=int, default=3000)
    safety.set_defaults(measure=bench_safety)
    for each in (node, graph):
        each.add_argument(
            "--model", help="shipped model or .onnx file (default: the graph's, else road-n)"
        )
    for each in (model, node, graph):
        each.add_argument("--size", default="640x480", help="of the pictures, WIDTHxHEIGHT")
        each.add_argument("--device", default="cpu", choices=list(PROVIDERS))
        each.add_argument("--allow-fallback", action="store_true")
        each.add_argument("--threads", type=int, default=0, help="of the network; 0: all cores")
    for each in (model, node, graph, safety):
        each.add_argument(
            "--json",
            nargs="?",
            const="-",
            metavar="FILE",
            help="write the figures to FILE, or print them when no file is named",
        )


def run(args: argparse.Namespace) -> int:
    """Measure, show and write; exit code 1 when what was asked for is not met."""
    for name in ("rate", "seconds", "cameras", "highest", "objects", "pictures"):
        value = getattr(args, name, 1)
        if not value > 0:
            raise InputError(f"--{name} is {value}, expected a number above 0")
    result: dict[str, Any] = args.measure(args)
    if args.json == "-":
        Console().print_json(data=result)
    elif args.json:
        write_json(args.json, result)
    if args.json != "-":
        _show(result)
    verdict = result.get("verdict")
    if verdict and not verdict["met"]:
        raise VerdictFailed(f"{verdict['asked']}: no: {'; '.join(verdict['reasons'])}")
    return 0


def parse_size(text: str) -> tuple[int, int]:
    """(width, height) of WIDTHxHEIGHT; InputError for another form."""
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise InputError(f"--size is '{text}', expected WIDTHxHEIGHT such as 640x480")
    return int(parts[0]), int(parts[1])


def bench_model(args: argparse.Namespace) -> dict[str, Any]:
    """Whole detector calls and the session alone, for each model."""
    from ros_nodes.bench import Load, bare_rate, machine, pictures

    width, height = parse_size(args.size)
    images = pictures(width, height, CLIP)
    declared = {path.name.removesuffix(SIDECAR_SUFFIX): path for path in args.contract}
    unused = declared.keys() - {Path(name).stem for name in args.models}
    if unused:
        raise InputError(
            f"--contract {declared[min(unused)]}: no model is called {min(unused)}.onnx"
        )
    rows = []
    for name in args.models:
        contract = declared.get(Path(name).stem)
        detector = Detector(
            name,
            contract=ModelContract.from_yaml(contract) if contract else None,
            device=args.device,
            allow_fallback=args.allow_fallback,
            threads=args.threads or None,
        )
        times: list[float] = []
        deadline = time.perf_counter() + args.seconds
        while time.perf_counter() < deadline:
            began = time.perf_counter()
            detector(images[len(times) % len(images)])
            times.append((time.perf_counter() - began) * 1e3)
        load = Load(
            str(detector.path),
            width,
            height,
            1.0,
            device=args.device,
            allow_fallback=args.allow_fallback,
            threads=args.threads,
        )
        p50, p90, p99 = np.percentile(times, [50, 90, 99])
        rows.append(
            {
                "model": str(name),
                "input": f"{detector.contract.width}x{detector.contract.height}",
                "provider": detector.provider,
                "on_requested_device": detector.provider == PROVIDERS[args.device],
                "calls": len(times),
                "fps": round(1e3 / float(np.mean(times)), 1),
                "latency_ms": {
                    "p50": round(float(p50), 3),
                    "p90": round(float(p90), 3),
                    "p99": round(float(p99), 3),
                },
                "session_fps": round(bare_rate(load, images, args.seconds, detector.contract), 1),
            }
        )
    return {"size": args.size, "models": rows, "machine": machine()}


def bench_node(args: argparse.Namespace) -> dict[str, Any]:
    """One rate, long: every picture accounted for."""
    from ros_nodes.bench import (
        bare_rate,
        ceiling,
        machine,
        measure,
        picture_folder,
        pictures,
        verdict,
    )

    load = _load(args, args.rate)
    where = machine()
    images = pictures(load.width, load.height, CLIP)
    with picture_folder(images) as folder:
        bare = bare_rate(load, images, BARE_SECONDS)
        own = ceiling(load, folder, min(bare * FLOOD, 10_000.0), BARE_SECONDS)
        result = measure(load, folder, args.seconds)
    arrivals = result.pop("arrivals")
    if args.plot:
        _plot(args.plot, arrivals, load)
    return {
        "rate": load.rate,
        "size": args.size,
        "cameras": load.cameras,
        "seconds": args.seconds,
        "model": load.model,
        **result,
        "bare_fps": round(bare, 1),
        "node_fps": round(own, 1),
        "node_to_bare_ratio": round(own / bare, 3),
        "verdict": {"asked": f"{load.rate:g} fps", **verdict(load, result)},
        "machine": where,
    }


def bench_graph(args: argparse.Namespace) -> dict[str, Any]:
    """The highest rate without loss by halving, then fixed rates."""
    from ros_nodes.bench import machine, measure, picture_folder, pictures

    where = machine()
    probes: list[dict[str, Any]] = []
    fixed: list[dict[str, Any]] = []
    low, high = 0.0, args.highest
    load = _load(args, high)
    with picture_folder(pictures(load.width, load.height, CLIP)) as folder:

        def probe(rate: float, seconds: float) -> dict[str, Any]:
            result = measure(replace(load, rate=rate), folder, seconds)
            del result["arrivals"]
            return {"rate": rate, **result}

        candidate = high
        while high - low > SEARCH_STEP:
            probes.append(probe(candidate, SEARCH_SECONDS))
            last = probes[-1]
            if min(last["processed"], last["results_at_monitor"]) == last["sent"]:
                low = candidate
            else:
                high = candidate
            candidate = high if low == 0.0 and high != candidate else (low + high) / 2
        for rate in FIXED_RATES:
            fixed.append(probe(rate, args.seconds))
    return {
        "size": args.size,
        "cameras": load.cameras,
        "graph": args.graph,
        "model": load.model,
        "highest_rate_without_loss": low,
        "search": probes,
        "fixed": fixed,
        "machine": where,
    }


def bench_safety(args: argparse.Namespace) -> dict[str, Any]:
    """Tracking, obstacles in metres, zones and watchdog, with a graph's zones."""
    from perception.cli.run_factory import guardian_of
    from perception.simulation.latency import latencies
    from ros_nodes.bench import machine
    from ros_nodes.graph import find_graph, read_graph

    settings = guardian_of(read_graph(find_graph(args.graph)))
    p50, p99 = np.percentile(latencies(settings, args.objects, args.pictures), [50, 99])
    met = bool(p99 <= SAFETY_MS)
    return {
        "zones": len(settings.zones),
        "objects": args.objects,
        "pictures": args.pictures,
        "latency_ms": {"p50": round(float(p50), 3), "p99": round(float(p99), 3)},
        "verdict": {
            "asked": f"p99 within {SAFETY_MS:g} ms",
            "met": met,
            "reasons": [] if met else [f"p99 is {p99:.2f} ms"],
        },
        "machine": machine(),
    }


def _load(args: argparse.Namespace, rate: float) -> Load:
    from ros_nodes.bench import Load
    from ros_nodes.graph import find_graph, read_graph

    width, height = parse_size(args.size)
    name = getattr(args, "graph", None)
    if name and args.cameras > 1:
        raise InputError(f"--cameras {args.cameras}: with --graph there is one camera")
    graph = read_graph(find_graph(name)) if name else None
    own = graph.node("detector").parameters.get("model") if graph else None
    return Load(
        str(model_path(args.model or own or "road-n").resolve()),
        width,
        height,
        rate,
        args.cameras,
        args.device,
        args.allow_fallback,
        args.threads,
        graph,
    )


def _plot(path: Path, arrivals: Any, load: Load) -> None:
    """Latency of each result over time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot((arrivals[:, 0] - arrivals[0, 0]) / 1e9, (arrivals[:, 1] - arrivals[:, 0]) / 1e6, ".")
    axes.set_xlabel("time (s)")
    axes.set_ylabel("stamp to detections (ms)")
    axes.set_title(f"{load.width}x{load.height} at {load.rate:g} Hz, {load.cameras} camera(s)")
    figure.savefig(path)


NOT_SHOWN = ("machine", "search", "fixed", "models", "verdict", "per_camera")
UNITS = {"_ms": "ms", "_mb": "MB", "_percent": "% of a core", "_fps": "fps"}


def _show(result: dict[str, Any]) -> None:
    console = Console()
    figures = Table(show_header=False)
    for key, value in result.items():
        if key not in NOT_SHOWN:
            figures.add_row(*_row(key, value))
    console.print(figures)
    rows = result.get("models") or result.get("fixed")
    if rows:
        console.print(_models(rows) if "models" in result else _rates(rows))
    if result.get("verdict", {}).get("met"):
        console.print(f"{result['verdict']['asked']}: yes")


def _row(key: str, value: Any) -> tuple[str, str]:
    """A figure as its name, with the names of its parts and the unit, and its numbers."""
    unit = next((unit for end, unit in UNITS.items() if key.endswith(end)), "")
    name = key.replace("_", " ") if not unit else key[: key.rindex("_")].replace("_", " ")
    if isinstance(value, dict):
        if not value:
            return name, "-"
        return f"{name}: {' / '.join(value)}", f"{_numbers(value)} {unit}".rstrip()
    return name, f"{value} {unit}".rstrip()


def _numbers(values: dict[str, Any]) -> str:
    return " / ".join(map(str, values.values()))


def _models(rows: list[dict[str, Any]]) -> Table:
    table = Table("model", "input", "provider", "p50 / p90 / p99 ms", "fps", "session fps")
    for row in rows:
        latency = _numbers(row["latency_ms"])
        fps = (str(row["fps"]), str(row["session_fps"]))
        table.add_row(row["model"], row["input"], row["provider"], latency, *fps)
    return table


def _rates(rows: list[dict[str, Any]]) -> Table:
    table = Table("Hz", "sent", "processed", "p50 / p90 / p99 / max ms")
    for row in rows:
        counts = (str(row["sent"]), str(row["processed"]))
        table.add_row(f"{row['rate']:g}", *counts, _numbers(row["latency_ms"]))
    return table
