"""`waysight run factory`: scenarios in the simulated hall, and their verdict.

Called by perception/cli/run.py when the graph is `factory`.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from perception.errors import InputError, VerdictFailed
from perception.files import write_json
from perception.safety import GuardianSettings, guardian_settings
from perception.safety.settings import SETTING_KEYS
from perception.simulation.scenario import load_scenario, scenario_names
from ros_nodes.graph import Graph, adapt, find_graph, parse_settings, read_graph
from ros_nodes.supervisor import Supervisor

GRAPH = "factory"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that only the factory graph has."""
    group = parser.add_argument_group("factory graph")
    group.add_argument("--scenario", help="scenario to play, or a scenario's .yaml file")
    group.add_argument("--list-scenarios", action="store_true", help="list the shipped scenarios")
    group.add_argument("--seed", type=int, default=0, help="variation of the scenario (default 0)")
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


def run(args: argparse.Namespace) -> int:
    """Play a scenario; exit code 0 when its verdict holds, 1 when not."""
    if args.list_scenarios:
        return _list()
    if args.seed < 0:
        raise InputError(f"--seed is {args.seed}, expected 0 or more")
    name = args.scenario or "person_from_rack"
    load_scenario(name)  # its mistakes are the user's, and known before anything starts
    graph = adapt(
        read_graph(find_graph(args.config or GRAPH)),
        model=args.model,
        record=args.record,
        settings=parse_settings(args.set),
    )
    report = _in_process(graph, name, args) if args.in_process else _in_graph(graph, name, args)
    if args.json is not None:
        write_json(args.json, report)
    _show(report)
    if not report["passed"]:
        raise VerdictFailed(f"scenario {report['scenario']}: the verdict does not hold")
    return 0


def guardian_of(graph: Graph) -> GuardianSettings:
    """The settings of the graph's guardian, for use without ROS."""
    data: dict[str, Any] = {}
    for name, value in graph.node("guardian").parameters.items():
        # As in ROS 2, "zone.enabled" is the same as enabled in the mapping of the zone.
        *parents, key = name.split(".")
        inner = data
        for parent in parents:
            inner[parent] = dict(inner.get(parent, {}))
            inner = inner[parent]
        inner[key] = value
    wanted = (*SETTING_KEYS, *data.get("zones", ()))
    return guardian_settings({key: data[key] for key in data if key in wanted})


def _list() -> int:
    table = Table()
    table.add_column("scenario")
    table.add_column("what happens")
    for name in scenario_names():
        table.add_row(name, load_scenario(name).description)
    Console(file=sys.stdout).print(table)
    return 0


def _in_process(graph: Graph, name: str, args: argparse.Namespace) -> dict[str, Any]:
    from perception.simulation.closed_loop import TRUTH, run_scenario

    detect, detector = None, TRUTH
    if not args.truth_detections:
        from perception.frame import Frame
        from perception.runtime.detector import Detector
        from perception.simulation.closed_loop import factory_labels

        detector = str(graph.node("detector").parameters.get("model", "factory-n"))
        model = Detector(detector)
        to_factory = factory_labels(model.names)

        def detect(picture: Any) -> Any:
            return to_factory(model(Frame(picture, color="rgb")))

    verdict = run_scenario(
        load_scenario(name), args.seed, guardian_of(graph), detect=detect, detector=detector
    )
    return verdict.report() | {"mode": "one process in lock-step"}


def _in_graph(graph: Graph, name: str, args: argparse.Namespace) -> dict[str, Any]:
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
