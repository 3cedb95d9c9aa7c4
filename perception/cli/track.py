"""`waysight track`: follow objects through a video or a folder of pictures taken in order."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from perception.cli.detect import (
    add_model_arguments,
    check_outputs,
    detector_settings,
    video_writer,
)
from perception.detections import UNTRACKED, Detections
from perception.draw import draw
from perception.errors import InputError
from perception.files import atomic_path, write_json
from perception.runtime.detector import Detector
from perception.runtime.preprocess import as_three_channels
from perception.sources import NANOSECONDS, VIDEO_SUFFIXES, Source, SourceFrame, open_source
from perception.tracking import Tracker, TrackerSettings, Tracks

_DEFAULTS = TrackerSettings()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("source", metavar="SOURCE", help="video, or folder of pictures in order")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write tracks by picture here")
    parser.add_argument("--mot", type=Path, metavar="FILE", help="write MOTChallenge text here")
    parser.add_argument("--annotate", type=Path, metavar="FILE.mp4", help="write a video with ids")
    parser.add_argument(
        "--frame-rate", type=float, help="pictures a second (default: the video's own)"
    )
    for name, words in (
        ("retention", "seconds that a track outlives its last detection"),
        ("high-threshold", "score from which a detection is matched first"),
        ("low-threshold", "score from which a detection can keep a track alive"),
        ("start-threshold", "score from which a detection starts a track"),
    ):
        default = getattr(_DEFAULTS, name.replace("-", "_"))
        help_text = f"{words} (default: {default})"
        parser.add_argument(f"--{name}", type=float, default=default, help=help_text)
    add_model_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Track through one source; exit code 2 when something could not be read."""
    source = open_source(args.source)
    rate = _rate(args.frame_rate, source)
    if args.annotate and args.annotate.suffix.lower() not in VIDEO_SUFFIXES:
        raise InputError(f"--annotate is {args.annotate}, expected the name of a video (.mp4)")
    options = (("--json", args.json), ("--mot", args.mot), ("--annotate", args.annotate))
    check_outputs([(option, path) for option, path in options if path], [source])
    tracker = Tracker(_settings(args))
    detector = detector_settings(args).open()
    if args.score_threshold is None:
        # The second stage lives on scores that a detector alone would not report.
        detector.score_threshold = tracker.settings.low_threshold
    frames, results = _follow(
        source, rate, detector, tracker, args.annotate, own_times=args.frame_rate is None
    )
    if not frames:
        raise InputError("; ".join(source.problems) or f"{args.source}: holds no picture")
    if args.json:
        write_json(args.json, {"names": list(detector.names), "rate": rate, "frames": frames})
    if args.mot:
        with atomic_path(args.mot) as temporary:
            temporary.write_text("".join(f"{row}\n" for row in results), encoding="ascii")
    ids = {entry["id"] for frame in frames for entry in frame["tracks"]}
    print(f"{len(ids)} tracks in {len(frames)} pictures", end="")
    outputs = [str(path) for path in (args.json, args.mot, args.annotate) if path]
    print(f", results in {', '.join(outputs)}" if outputs else "")
    for problem in source.problems:
        print(f"waysight: error: {problem}", file=sys.stderr)
    return 2 if source.problems else 0


def _rate(given: float | None, source: Source) -> float:
    rate = source.rate if given is None else given
    if rate is None:
        raise InputError(
            f"{source.paths[0].parent}: pictures carry no times; give --frame-rate in pictures a "
            "second"
        )
    if not 0 < rate < float("inf"):
        raise InputError(f"--frame-rate is {rate}, expected pictures a second above 0")
    return rate


def _settings(args: argparse.Namespace) -> TrackerSettings:
    try:
        return TrackerSettings(
            retention=args.retention,
            high_threshold=args.high_threshold,
            low_threshold=args.low_threshold,
            start_threshold=args.start_threshold,
        )
    except ValueError as error:
        raise InputError(str(error)) from None


def _follow(
    source: Source,
    rate: float,
    detector: Detector,
    tracker: Tracker,
    annotate: Path | None,
    *,
    own_times: bool,
) -> tuple[list[dict[str, Any]], list[str]]:
    """(JSON entry of every picture, MOTChallenge rows).

    own_times: take the video's own times, which need not be even, instead of `rate`.
    """
    frames: list[dict[str, Any]] = []
    rows: list[str] = []
    console = Console(stderr=True)
    with ExitStack() as stack:
        write = stack.enter_context(video_writer(annotate, rate)) if annotate else None
        for item in track(
            source,
            total=source.count,
            description=source.paths[0].name,
            console=console,
            disable=not console.is_terminal,
        ):
            detections = _detect(detector, item)
            if not detections.valid:
                source.problems.append(f"{item.name}: {detections.reason}")
            even_ns = round(item.frame.sequence * NANOSECONDS / rate)
            stamp_ns = item.frame.stamp_ns if own_times else even_ns
            tracks = tracker.update(detections, stamp_ns)
            tracked = tracks.voted()[tracks.ids != UNTRACKED]
            frames.append(_entry(item, stamp_ns, tracks, tracked, detector.names))
            rows += mot_rows(item.frame.sequence + 1, tracked)
            if write is not None:
                image = as_three_channels(item.frame.image)
                write(item.name, draw(image, tracked, detector.names))
    return frames, rows


def _detect(detector: Detector, item: SourceFrame) -> Detections:
    try:
        return detector(item.frame)
    except InputError as error:
        return Detections.failed(str(error))


def _entry(
    item: SourceFrame, stamp_ns: int, tracks: Tracks, tracked: Detections, names: tuple[str, ...]
) -> dict[str, Any]:
    """One picture's tracks; bbox is left, top, width, height, velocity is in pixels a second."""
    return {
        "name": item.name,
        "frame": item.frame.sequence,
        "stamp_ns": stamp_ns,
        "valid": tracks.valid,
        "untracked": len(tracks) - len(tracked),
        "tracks": [
            {
                "id": int(track_id),
                "category": names[label],
                "bbox": [round(float(value), 2) for value in box],
                "score": round(float(score), 5),
                "velocity": [round(float(v), 2) for v in velocity] if known else None,
            }
            for track_id, label, box, score, velocity, known in zip(
                tracked.track_ids,
                tracked.labels,
                tracked.xywh,
                tracked.scores,
                tracked.velocities,
                np.isfinite(tracked.velocities.sum(axis=1)),
                strict=True,
            )
        ],
    }


def mot_rows(frame: int, tracked: Detections) -> list[str]:
    """Rows of MOTChallenge result text: frame (from 1), id, left, top, width, height, score.

    Left and top count from 1, as https://motchallenge.net/instructions has it; the last three
    columns are for positions in the world, which are not known: -1.
    """
    rows = []
    for track_id, box, score in zip(tracked.track_ids, tracked.xywh, tracked.scores, strict=True):
        left, top, width, height = box.tolist()
        place = f"{left + 1:.2f},{top + 1:.2f},{width:.2f},{height:.2f}"
        rows.append(f"{frame},{track_id},{place},{score:.5f},-1,-1,-1")
    return rows
