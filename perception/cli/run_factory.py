"""`waysight run factory`: scenarios in the simulated hall, and their verdict.

Called by perception/cli/run.py when the graph is `factory`.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from perception.errors import InputError, VerdictFailed
from perception.files import write_json
from perception.geometry.ground import GroundSettings
from perception.runtime.settings import DetectorSettings
from perception.safety import GuardianSettings, guardian_settings
from perception.safety.settings import SETTING_KEYS
from perception.simulation.scenario import load_scenario, scenario_names
from perception.tracking import TrackerSettings
from ros_nodes.graph import (
    Graph,
    NodeSpec,
    adapt,
    check_parameters,
    find_graph,
    parse_settings,
    read_graph,
)
from ros_nodes.motion import MotionParameters
from ros_nodes.parameters import build, unknown
from ros_nodes.supervisor import Supervisor

if TYPE_CHECKING:
    from perception.simulation.closed_loop import ChainSettings

T = TypeVar("T")

GRAPH = "factory"

OPTIONS = (
    "scenario", "list_scenarios", "seed", "seeds", "jobs", "headless", "in_process",
    "truth_detections",
)  # fmt: skip
"""What `add_arguments` declares."""

ALL = "all"
"""As `--scenario`: every shipped one."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that only the factory graph has."""
    group = parser.add_argument_group("factory graph")
    group.add_argument(
        "--scenario", help="scenario to play, a scenario's .yaml file, or all (with --seeds)"
    )
    group.add_argument("--list-scenarios", action="store_true", help="list the shipped scenarios")
    group.add_argument("--seed", type=int, default=0, help="variation of the scenario (default 0)")
    group.add_argument(
        "--seeds",
        type=int,
        metavar="N",
        help="play N variations from --seed on, each in one process (as --in-process), and show "
        "the worst figures",
    )
    group.add_argument(
        "--jobs", type=int, metavar="N", help="variations at a time (default: one a core)"
    )
    group.add_argument("--headless", action="store_true", help="without the viewer")
    group.add_argument(
        "--in-process",
        action="store_true",
        help="the same chain in one process, without ROS 2: much faster",
    )
    group.add_argument(
        "--truth-detections",
        action="store_true",
        help="take the simulator's own boxes in the detector's place: tests the safety logic, "
        "not a model",
    )


def refuse_given(args: argparse.Namespace, options: Iterable[str], why: str) -> None:
    """InputError for an option that was given and would not be heeded."""
    for option in options:
        if getattr(args, option):
            raise InputError(f"--{option.replace('_', '-')}: {why}")


def run(args: argparse.Namespace) -> int:
    """Play a scenario; exit code 0 when its verdict holds, 1 when not."""
    refuse_given(
        args,
        ("source", "image_topic", "cameras"),
        f"graph '{GRAPH}' draws its own pictures, expected no source",
    )
    if args.list_scenarios:
        return _list()
    if args.seed < 0:
        raise InputError(f"--seed is {args.seed}, expected 0 or more")
    for option in ("seeds", "jobs"):
        if (value := getattr(args, option)) is not None and value < 1:
            raise InputError(f"--{option} is {value}, expected 1 or more")
    if args.seeds is None:
        refuse_given(args, ("jobs",), "only variations use it, expected --seeds N with it")
    name = args.scenario or "person_from_rack"
    if name == ALL and args.seeds is None:
        raise InputError("--scenario all plays many variations, expected --seeds N with it")
    names = list(scenario_names()) if name == ALL else [name]
    for each in names:
        load_scenario(each)  # its mistakes are the user's, and known before anything starts
    settings = parse_settings(args.set)
    graph = adapt(
        read_graph(find_graph(args.config or GRAPH)),
        model=args.model,
        record=args.record,
        settings=settings,
    )
    if args.in_process or args.seeds is not None:
        refuse_given(args, ("record", "seconds"), _UNUSED)
        _refuse_unused(settings)
        # Types and limits are the nodes' own; without ROS 2 the settings judge what they can.
        if all(importlib.util.find_spec(package) for package in ("rclpy", "vision_msgs")):
            check_parameters(graph)
    if args.seeds is not None:
        return _sweep(graph, names, args)
    report = _in_process(graph, name, args) if args.in_process else _in_graph(graph, name, args)
    if args.json is not None:
        write_json(args.json, report)
    _show(report)
    if not report["passed"]:
        raise VerdictFailed(f"scenario {report['scenario']}: the verdict does not hold")
    return 0


def guardian_of(graph: Graph) -> GuardianSettings:
    """The settings of the graph's guardian, for use without ROS.

    InputError names what cannot be used; so it does a zone that is defined and not named in
    `zones`, which would not protect anybody.
    """
    data: dict[str, Any] = {}
    for name, value in graph.node("guardian").parameters.items():
        # As in ROS 2, "zone.enabled" is the same as enabled in the mapping of the zone.
        *parents, key = name.split(".")
        inner = data
        for parent in parents:
            outer = inner.get(parent, {})
            if not isinstance(outer, Mapping):
                raise InputError(f"node 'guardian': {name}: {parent} is {outer!r}, not a mapping")
            inner[parent] = dict(outer)
            inner = inner[parent]
        inner[key] = value
    zones = data.get("zones")
    wanted = (*SETTING_KEYS, *(zones if isinstance(zones, list | tuple) else ()))
    for key in data:
        if key not in wanted and isinstance(data[key], Mapping):
            raise InputError(f"node 'guardian': {unknown(key, wanted)}")
    return guardian_settings({key: data[key] for key in data if key in wanted})


def chain_of(graph: Graph) -> ChainSettings:
    """The settings of the graph's tracker, obstacles and guardian, for use without ROS."""
    from perception.simulation.closed_loop import ChainSettings  # needs MuJoCo

    obstacles = graph.node("obstacles").parameters
    return ChainSettings(
        guardian_of(graph),
        _settings(TrackerSettings, graph.node("tracker")),
        _settings(GroundSettings, graph.node("obstacles")),
        build(MotionParameters, _of(MotionParameters, obstacles)).ground_tracks,
    )


def _settings(kind: type[T], node: NodeSpec) -> T:
    """The settings that a node's parameters hold; InputError names the node."""
    try:
        return kind(**_of(kind, node.parameters))
    except (InputError, TypeError, ValueError) as error:
        raise InputError(f"node '{node.name}': {error}") from None


def _of(kind: Any, parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if name in _names(kind)}


def _names(*kinds: Any) -> set[str]:
    """The fields of dataclasses."""
    return {field.name for kind in kinds for field in dataclasses.fields(kind)}


_UNUSED = (
    "a run in one process does not use it; leave --in-process and --seeds out to run the nodes"
)


def _refuse_unused(settings: Iterable[tuple[str, str, Any]]) -> None:
    """InputError for a --set that a run in one process would not heed."""
    taken = {
        # Pictures are watched where they are drawn; zones are judged by `guardian_of`.
        "guardian": set(SETTING_KEYS) - {"watch_camera"},
        "detector": {"model", *_names(DetectorSettings)} - {"path"},
        "tracker": _names(TrackerSettings),
        "obstacles": _names(GroundSettings, MotionParameters),
    }
    for node, name, _ in settings:
        zone = node == "guardian" and "." in name
        if not zone and name not in taken.get(node, ()):
            raise InputError(f"--set {node}.{name}: {_UNUSED}")


def _list() -> int:
    table = Table()
    table.add_column("scenario")
    table.add_column("what happens")
    for name in scenario_names():
        table.add_row(name, load_scenario(name).description)
    Console(file=sys.stdout).print(table)
    return 0


def _model(graph: Graph, args: argparse.Namespace, threads: int | None) -> DetectorSettings | None:
    """The detector's model; None for the simulator's own boxes. threads: unless the graph says."""
    if args.truth_detections:
        return None
    node = graph.node("detector")
    model = node.parameters.get("model", "factory-n")
    parameters = {"path": model, "threads": threads, **node.parameters}
    classes = parameters.pop("classes", None)
    if isinstance(classes, str):
        classes = [name.strip() for name in classes.split(",")]
    parameters["classes"] = tuple(classes) if classes else None
    return _settings(DetectorSettings, dataclasses.replace(node, parameters=parameters))


def _in_process(graph: Graph, name: str, args: argparse.Namespace) -> dict[str, Any]:
    from perception.simulation.sweep import Played, model_detect

    model = _model(graph, args, threads=None)  # all cores: there is nobody else
    detect = None if model is None else model_detect(model)
    return Played(chain_of(graph), model).run(name, args.seed, detect)


def _sweep(graph: Graph, names: list[str], args: argparse.Namespace) -> int:
    """Play many variations; exit code 0 when all of their verdicts hold."""
    from perception.simulation.sweep import Played, model_detect, summary, sweep

    played = Played(chain_of(graph), _model(graph, args, threads=1))
    if played.model is not None:
        model_detect(played.model)  # a mistake in it is said here, not by a process of the pool
    seeds = range(args.seed, args.seed + args.seeds)
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("variations", total=len(names) * len(seeds))
        reports = sweep(
            names,
            seeds,
            played,
            args.jobs or os.cpu_count() or 1,
            lambda report: progress.advance(task),
        )
    rows = summary(reports)
    passed = all(report["passed"] for report in reports)
    if args.json is not None:
        write_json(
            args.json,
            {
                "detector": played.detector,
                "passed": passed,
                "scenarios": rows,
                "variations": reports,
            },
        )
    _show_sweep(rows, played.detector)
    if not passed:
        failed = [f"{row['scenario']} {row['failed_seeds']}" for row in rows if row["failed_seeds"]]
        raise VerdictFailed(f"the verdict does not hold for the seeds of {', '.join(failed)}")
    return 0


def _in_graph(graph: Graph, name: str, args: argparse.Namespace) -> dict[str, Any]:
    for package in ("rclpy", "mujoco"):
        # Without them the nodes would end at their imports, and be started again for ever.
        if importlib.util.find_spec(package) is None:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    with tempfile.TemporaryDirectory(prefix="waysight-factory-") as folder:
        verdict, flag = Path(folder) / "verdict.json", Path(folder) / "kill-detector"
        limit = guardian_of(graph).watchdog.source_timeout
        scenario = str(Path(name).resolve()) if Path(name).is_file() else name
        model = str(graph.node("detector").parameters.get("model", ""))
        graph = graph.change(
            "sim",
            {
                "scenario": scenario,
                "seed": args.seed,
                "verdict": str(verdict),
                "fault_flag": str(flag),
                "detector": model,
                "truth_detections": args.truth_detections,
                "source_timeout": limit,
            },
        )
        if args.truth_detections:
            graph = graph.change("detector", {}, enabled=False)
        if args.headless:
            graph = graph.change("viewer", {}, enabled=False)
        console = Console(stderr=True)
        supervisor = Supervisor(
            graph,
            lambda text: console.print(f"waysight: {text}", style="dim"),
            on_tick=lambda: _kill_detector(supervisor, flag),
        )
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: supervisor.stop())
        code = supervisor.run(args.seconds)
        if not verdict.is_file():
            raise InputError(
                f"the graph ended with exit code {code} before the scenario did; its nodes' "
                "messages above say why"
            )
        report: dict[str, Any] = json.loads(verdict.read_text(encoding="utf-8"))
        report["processes"] = [child.report() for child in supervisor.children]
        report["nodes"] = supervisor.counts
        return report


def _kill_detector(supervisor: Supervisor, flag: Path) -> None:
    """Once the simulator asks for it, end the detector as a crash would."""
    if not flag.exists():
        return
    flag.unlink()
    for child in supervisor.children:
        if child.name == "detector" and child.process is not None:
            child.process.send_signal(signal.SIGKILL)


def _show(report: dict[str, Any]) -> None:
    table = Table(title=f"{report['scenario']}, seed {report['seed']}: {report['detector']}")
    for heading in ("check", "found", "allowed", ""):
        table.add_column(heading)
    for check in report["checks"]:
        outcome = "holds" if check["passed"] else "FAILS"
        table.add_row(check["name"], str(check["found"]), check["allowed"], outcome)
    Console(file=sys.stdout).print(table)


def _show_sweep(rows: list[dict[str, Any]], detector: str) -> None:
    # Without padding ten columns fit into the 80 characters of a log.
    table = Table(title=f"Worst of each scenario, m and s: {detector}", padding=0)
    columns = {
        "scenario": "scenario",
        "held": "held",
        "runs": "of",
        "contacts": "hits",
        "least_clearance_m": "least gap",
        "least_travelled_m": "driven",
        "farthest_stop_m": "far stop",
        "most_stops": "stops",
        "slowest_zero_s": "zero",
        "failed_seeds": "failed",
    }
    for key, heading in columns.items():
        name = key == "scenario"
        table.add_column(heading, justify="left" if name else "right", no_wrap=name)
    for row in rows:
        cells = {key: "-" if row[key] is None else str(row[key]) for key in columns}
        cells["failed_seeds"] = ", ".join(map(str, row["failed_seeds"])) or "-"
        table.add_row(*cells.values())
    Console(file=sys.stdout).print(table)
