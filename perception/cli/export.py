"""`waysight export`: a training run to a verified ONNX file."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run, or a checkpoint")
    parser.add_argument("--out", type=Path, metavar="FILE.onnx", help="default: RUN/model.onnx")
    parser.add_argument(
        "--form",
        choices=("decoded", "raw", "e2e"),
        default="decoded",
        help="what the file gives (default: boxes and scores of every anchor)",
    )
    parser.add_argument(
        "--precision",
        choices=("float32", "float16", "int8", "auto"),
        default="float32",
        help="auto: the fastest here that loses less than --max-ap-loss",
    )
    parser.add_argument(
        "--size", metavar="WxH", help="network input, multiples of 32 (default: the run's)"
    )
    parser.add_argument(
        "--resize", choices=("letterbox", "letterbox_topleft", "stretch"), default="letterbox"
    )
    parser.add_argument("--max-batch", type=int, default=16)
    parser.add_argument(
        "--max-ap-loss",
        type=float,
        default=0.005,
        metavar="AP",
        help="AP50 (0..1) a build may lose against float32 in any class or group",
    )
    parser.add_argument(
        "--pictures",
        type=Path,
        metavar="DIR",
        help="real pictures to compare on (default: the run's validation pictures)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report here")


def run(args: argparse.Namespace) -> int:
    """Export; returns the exit code."""
    from perception.export import launch

    return launch.export(args)
