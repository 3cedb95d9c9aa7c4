"""`waysight train`: settings file to trained weights, resumable at any step."""

from __future__ import annotations

import argparse
from pathlib import Path

from perception.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "settings", nargs="?", type=Path, metavar="FILE.yaml", help="settings of the run"
    )
    parser.add_argument(
        "overrides", nargs="*", metavar="a.b=c", help="settings that replace those of the file"
    )
    parser.add_argument(
        "--resume", type=Path, metavar="RUN", help="continue the run in this folder"
    )
    parser.add_argument(
        "--from",
        dest="start",
        type=Path,
        metavar="CHECKPOINT",
        help="start with the weights of a checkpoint, and a fresh schedule",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder of the run (default: runs/NAME-N)"
    )
    parser.add_argument(
        "--fast",
        action="store_true",
        help="prove the whole path on a tiny generated set: two epochs, evaluate, export, detect",
    )


def take_rest(args: argparse.Namespace, rest: list[str]) -> None:
    """Take what stands after an option: argparse fills both positionals before the first one."""
    first = [] if args.settings is None else [str(args.settings)]
    words = [*first, *args.overrides, *rest]
    args.settings, args.overrides = Path(words[0]), words[1:]


def run(args: argparse.Namespace) -> int:
    """Train; returns the exit code."""
    from perception.train import launch

    if args.resume:
        if args.fast or args.start or (args.settings and "=" not in str(args.settings)):
            raise InputError("train --resume takes its settings from the run: give overrides only")
        overrides = [str(args.settings), *args.overrides] if args.settings else args.overrides
        return launch.resume(args.resume, overrides)
    if args.settings is None:
        raise InputError("train: give a settings file, or --resume RUN")
    if args.fast:
        return launch.fast(args.settings, args.overrides, args.out)
    return launch.start(args.settings, args.overrides, args.out, args.start)
