"""The `waysight` command: one module of this package for each sub-command."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from perception import __version__
from perception.errors import VerdictFailed, WaysightError
from perception.extras import extra_of, install_command


@dataclass(frozen=True, slots=True)
class Command:
    """A sub-command: one line of help, and the extra that brings most of what it imports."""

    help: str
    extra: str


COMMANDS = {
    "detect": Command("find objects in pictures, folders and videos", "cpu"),
    "track": Command("follow objects through a video", "cpu"),
    "run": Command("run a ROS 2 graph from one YAML file", "ros"),
    "demo": Command("run the road graph on the demo clip or a video and sum it up", "ros"),
    "bench": Command("measure a model, a node or a graph", "ros"),
    "train": Command("train a detector", "train"),
    "export": Command("export a training run to ONNX, verified", "train"),
    "eval": Command("score detections and tracks, compare models", "eval"),
    "data": Command("lint, convert, show, split and extract data sets", "data"),
    "model": Command("show what a model file holds", "train"),
}
"""The module perception/cli/<name>.py is imported only when its command is called."""


def sentence(text: str) -> str:
    """A line of help as a sentence: names in it keep their capitals."""
    return f"{text[:1].upper()}{text[1:]}."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 done, 1 verdict failed, 2 bad input."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="waysight", description="Camera perception for vehicles and factory robots."
    )
    parser.add_argument("--version", action="version", version=f"waysight {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    module = None
    try:
        for name, entry in COMMANDS.items():
            command = commands.add_parser(name, help=entry.help, description=sentence(entry.help))
            if name == chosen:
                module = importlib.import_module(f"perception.cli.{name}")
                module.add_arguments(command)
        parsed, rest = parser.parse_known_args(arguments)
        assert module is not None  # argparse has refused an unknown command by now
        if rest and (any(w.startswith("-") for w in rest) or not hasattr(module, "take_rest")):
            parser.error(f"unrecognized arguments: {' '.join(rest)}")
        if rest:
            module.take_rest(parsed, rest)
        return int(module.run(parsed))
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if chosen not in COMMANDS or missing in ("perception", "ros_nodes", ""):
            raise
        print(
            f"waysight: error: '{chosen}' needs the Python package {missing!r}: "
            f"{install_command(extra_of(missing, COMMANDS[chosen].extra))}",
            file=sys.stderr,
        )
        return 2
    except VerdictFailed as error:
        print(f"waysight: {error}", file=sys.stderr)
        return 1
    except WaysightError as error:
        print(f"waysight: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("waysight: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output went away (`waysight ... | head`): nothing is wrong here.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
