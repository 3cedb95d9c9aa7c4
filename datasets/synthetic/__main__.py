"""Makes synthetic pictures: `python -m perception.datasets.synthetic COMMAND --out DIR`.

`scenes` writes single random road scenes for training, `factory` the same of factory halls, `clip`
a drive with ground truth. All go on where an earlier run of the same seed stopped.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from perception.errors import InputError
from perception.extras import install_command

MODULES = ("bpy", "OpenEXR", "imageio_ffmpeg")


def _size(text: str) -> tuple[int, int]:
    try:
        width, height = (int(part) for part in text.lower().split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not WIDTHxHEIGHT") from None
    if not (32 <= width <= 4096 and 32 <= height <= 4096):
        raise argparse.ArgumentTypeError(f"{text!r}: each side must be 32 to 4096 pixels")
    return width, height


def _positive(text: str) -> int:
    value = int(text) if text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return value


def parser() -> argparse.ArgumentParser:
    """The options of both commands."""
    top = argparse.ArgumentParser("python -m perception.datasets.synthetic", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)
    scenes = commands.add_parser("scenes", help="random road pictures for training")
    factory = commands.add_parser("factory", help="random factory pictures for training")
    for series in (scenes, factory):
        series.add_argument("--count", type=_positive, default=300, help="default 300")
        series.add_argument("--size", type=_size, default=(416, 256), help="default 416x256")
        series.add_argument("--samples", type=_positive, default=3, help="rays a pixel (default 3)")
    clip = commands.add_parser("clip", help="the demo drive, a video with ground truth")
    clip.add_argument("--frames", type=_positive, default=150, help="default 150")
    clip.add_argument("--size", type=_size, default=(640, 360), help="default 640x360")
    clip.add_argument("--samples", type=_positive, default=3, help="rays a pixel (default 3)")
    for command, seed in ((scenes, 1), (factory, 1), (clip, 3)):
        command.add_argument("--seed", type=int, default=seed, help=f"default {seed}")
        command.add_argument("--out", type=Path, required=True, help="folder to write into")
    return top


def require_blender() -> None:
    """Raise InputError when a module of the `synthetic` extra is missing."""
    missing = [name for name in MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(
            f"rendering needs {', '.join(missing)}, not installed here: "
            f"{install_command('synthetic')} (Python 3.11)"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run; 0 when done, 2 for a user's mistake."""
    options = parser().parse_args(argv)
    try:
        require_blender()
        from perception.datasets.synthetic import produce  # needs bpy

        out, seed, size, samples = options.out, options.seed, options.size, options.samples
        if options.command == "scenes":
            produce.roads(out, seed, options.count, size, samples)
        elif options.command == "factory":
            produce.factories(out, seed, options.count, size, samples)
        else:
            produce.clip(out, seed, options.frames, size, samples)
    except InputError as error:
        print(f"waysight: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
