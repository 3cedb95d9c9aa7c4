"""`waysight model show`: what a model file or a checkpoint holds."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser("show", help="layers, parameters, GMAC, contract and milliseconds")
    show.add_argument("model", metavar="NAME|PATH", help="shipped name or .onnx file")
    show.add_argument("--runs", type=int, default=50, help="timed calls (0: do not measure)")
    show.add_argument("--threads", type=int, default=None)
    show.add_argument("--json", type=Path, metavar="FILE")


def run(args: argparse.Namespace) -> int:
    """Show; returns the exit code."""
    from perception.export import show

    return show.show(args.model, args.runs, args.threads, args.json)
