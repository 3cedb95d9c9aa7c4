"""`waysight run`: start, watch and stop a ROS 2 graph from one YAML file."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from perception.cli import run_factory
from perception.errors import InputError
from perception.files import write_json
from ros_nodes.graph import Graph, adapt, find_graph, parse_settings, read_graph
from ros_nodes.network_camera import is_network
from ros_nodes.supervisor import EXIT_BAD_INPUT, Supervisor

_JSON_HELP = (
    "write the final report here: restarts and exit codes of each process, and what each node "
    "counted since its last start (sent: pictures published; received, processed, dropped, invalid)"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("graph", help="shipped graph (road, factory) or a graph's .yaml file")
    parser.add_argument(
        "--config", type=Path, metavar="YAML", help="graph file to use in place of the shipped one"
    )
    parser.add_argument(
        "--source",
        help="what the camera reads: video, folder, bag, device such as /dev/video0, or network "
        "camera such as rtsp://host/path",
    )
    parser.add_argument(
        "--image-topic",
        metavar="TOPIC",
        help="pictures of a camera driver that runs already, in place of the camera node; "
        "camera_info is taken from beside it",
    )
    parser.add_argument(
        "--cameras",
        default="",
        metavar="NAME,NAME",
        help="several cameras, each in a namespace; --source, or --image-topic, then names one for "
        "each",
    )
    parser.add_argument("--model", help="shipped model or .onnx file of the detector")
    parser.add_argument("--record", metavar="FILE.mcap", help="record the results to this file")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NODE.PARAMETER=VALUE",
        help="any parameter of any node; may be repeated",
    )
    parser.add_argument("--seconds", type=float, help="stop after this time (default: run on)")
    parser.add_argument("--json", type=Path, metavar="FILE", help=_JSON_HELP)
    run_factory.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the graph until SIGINT, SIGTERM, its end or --seconds."""
    if args.seconds is not None and not args.seconds > 0:
        raise InputError(f"--seconds is {args.seconds}, expected a time above 0")
    if args.graph == run_factory.GRAPH:
        return run_factory.run(args)
    run_factory.refuse_given(
        args,
        run_factory.OPTIONS,
        f"only graph '{run_factory.GRAPH}' takes it, expected that instead of '{args.graph}'",
    )
    graph = graph_of(args)
    console = Console(stderr=True)
    supervisor = Supervisor(graph, lambda text: console.print(f"waysight: {text}", style="dim"))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: supervisor.stop())
    code = supervisor.run(args.seconds)
    if code != EXIT_BAD_INPUT:  # the process that refused its input has said why
        _report(supervisor, args.json)
    return code


def graph_of(args: argparse.Namespace) -> Graph:
    """The graph that the arguments describe, checked as far as it can be without starting it."""
    cameras = [name.strip() for name in args.cameras.split(",") if name.strip()]
    for source in (args.source or "").split(",") if cameras else [args.source]:
        if source is not None:
            check_source(source.strip())
    if args.record is not None:
        check_record(Path(args.record))
    return adapt(
        read_graph(find_graph(args.config or args.graph)),
        source=args.source,
        model=args.model,
        record=args.record,
        cameras=cameras,
        settings=parse_settings(args.set),
        image_topic=args.image_topic,
    )


def check_source(source: str) -> None:
    """Refuse a source that does not exist before any process starts."""
    if not is_network(source) and not Path(source).exists():
        raise InputError(f"{source}: no such file, folder or device")


def check_record(path: Path) -> None:
    """Refuse a recording that cannot be written before any process starts; makes no folder."""
    folder = path.absolute().parent
    while not folder.exists():  # the recorder makes what is missing
        folder = folder.parent
    if not folder.is_dir():
        raise InputError(f"{path}: cannot write here: {folder} is not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{path}: cannot write here: no permission for {folder}")


def _report(supervisor: Supervisor, path: Path | None) -> None:
    rows = [child.report() for child in supervisor.children]
    if path is not None:
        write_json(path, {"processes": rows, "nodes": supervisor.counts})
    table = Table(title="Processes")
    for heading in ("process", "restarts", "exit codes"):
        table.add_column(heading)
    for row in rows:
        codes = ", ".join(map(str, row["exit_codes"])) + (" (killed)" if row["killed"] else "")
        table.add_row(row["process"], str(row["restarts"]), codes)
    Console(file=sys.stdout).print(table)
