"""`waysight detect`: pictures, a folder or a video to JSON and annotated pictures or video."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import cv2
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import track

from perception.detections import Detections
from perception.draw import draw
from perception.errors import InputError
from perception.extras import install_command
from perception.files import atomic_path, write_json
from perception.runtime.detector import Detector
from perception.runtime.preprocess import as_three_channels
from perception.runtime.session import PROVIDERS
from perception.runtime.settings import DetectorSettings
from perception.sources import NANOSECONDS, Source, SourceFrame, open_source


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "sources", nargs="+", metavar="SOURCE", help="picture, folder of pictures, or video"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write COCO results here")
    parser.add_argument(
        "--annotate",
        type=Path,
        metavar="DIR",
        help="write pictures (or, for a video, an .mp4) with boxes here",
    )
    add_model_arguments(parser)


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that choose and set up a model; shared with `track`."""
    parser.add_argument("--model", default="road-n", help="shipped model or .onnx file")
    parser.add_argument("--contract", type=Path, help="YAML declaration for a foreign model")
    parser.add_argument("--device", default="cpu", choices=list(PROVIDERS))
    parser.add_argument(
        "--allow-fallback", action="store_true", help="run on the CPU if the device is missing"
    )
    parser.add_argument("--threads", type=int, help="threads of the network (default: all cores)")
    parser.add_argument("--score-threshold", type=float, help="default: the model's own")
    parser.add_argument("--iou-threshold", type=float, help="default: the model's own")
    parser.add_argument("--max-detections", type=int, help="default: the model's own")
    parser.add_argument("--classes", nargs="+", metavar="NAME", help="report these classes only")


def detector_settings(args: argparse.Namespace) -> DetectorSettings:
    """What the options of add_model_arguments say."""
    if args.threads is not None and args.threads < 1:
        raise InputError(f"--threads is {args.threads}, expected a whole number above 0")
    return DetectorSettings(
        args.model,
        contract=args.contract,
        device=args.device,
        allow_fallback=args.allow_fallback,
        threads=args.threads,
        score_threshold=args.score_threshold,
        iou_threshold=args.iou_threshold,
        max_detections=args.max_detections,
        classes=tuple(args.classes) if args.classes else None,
    )


def coco_results(name: str, detections: Detections, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """One picture's detections as COCO results with class names instead of numbers.

    bbox is left, top, width, height in pixels of the original picture.
    """
    return [
        {
            "image_id": name,
            "category": names[label],
            "bbox": [round(float(value), 2) for value in box],
            "score": round(float(score), 5),
        }
        for box, score, label in zip(
            detections.xywh, detections.scores, detections.labels, strict=True
        )
    ]


class Writer(Protocol):
    """Takes annotated pictures one after the other."""

    def __call__(self, name: str, image: npt.NDArray[np.uint8]) -> None:
        """Write one uint8 BGR picture (H, W, 3)."""


@contextmanager
def picture_writer(folder: Path) -> Iterator[Writer]:
    """Writes each picture into `folder` under its own name."""

    def write(name: str, image: npt.NDArray[np.uint8]) -> None:
        with atomic_path(folder / name) as temporary:
            if not cv2.imwrite(str(temporary), image):
                raise InputError(f"{folder / name}: this picture format cannot be written")

    yield write


@contextmanager
def video_writer(path: Path, rate: float) -> Iterator[Writer]:
    """Writes pictures of one size as H.264; nothing is left behind when it fails.

    Raises InputError where PyAV is not installed.
    """
    try:
        # Imported here: pictures are annotated without it.
        from perception.video import VideoFile
    except ModuleNotFoundError:
        raise InputError(
            f"writing video needs PyAV, which is not installed: {install_command('bags')}"
        ) from None
    with atomic_path(path) as temporary, ExitStack() as stack:
        files: list[VideoFile] = []
        count = 0

        def write(name: str, image: npt.NDArray[np.uint8]) -> None:
            nonlocal count
            if not files:
                files.append(VideoFile(temporary, image.shape[1], image.shape[0]))
                stack.callback(files[0].close)
            files[0].write(image, round(count * NANOSECONDS / rate))
            count += 1

        yield write


def check_names(sources: list[Source]) -> None:
    """Refuse two pictures of one file name: one would overwrite the other's results."""
    seen: dict[str, Path] = {}
    for source in sources:
        for path in source.paths:
            if path.name in seen:
                raise InputError(
                    f"{path}: has the same file name as {seen[path.name]}; results and "
                    "annotated pictures are named by file, run the two apart"
                )
            seen[path.name] = path


def check_outputs(outputs: Iterable[tuple[str, Path]], sources: Iterable[Source]) -> None:
    """Refuse an output, given as (option, path), that is a source or another output too."""
    inputs = {_file_id(path): path for source in sources for path in source.paths}
    seen: set[Path] = set()
    for option, path in outputs:
        if path.exists() and _file_id(path) in inputs:
            raise InputError(
                f"{option} would overwrite the source {inputs[_file_id(path)]}, expected another "
                "place"
            )
        if path.resolve() in seen:
            raise InputError(
                f"{option} would write {path} twice, expected a name of its own for each output"
            )
        seen.add(path.resolve())


def _file_id(path: Path) -> tuple[int, int]:
    """The same for all names of one file, links included."""
    status = path.stat()
    return status.st_dev, status.st_ino


def _annotated_paths(source: Source, folder: Path) -> list[Path]:
    """Where the annotated pictures, or the one video, of a source go."""
    if source.is_video:
        return [folder / f"{source.paths[0].stem}.mp4"]
    return [folder / path.name for path in source.paths]


def run(args: argparse.Namespace) -> int:
    """Detect in every source; exit code 2 when something could not be read."""
    sources = [open_source(path) for path in args.sources]
    check_names(sources)
    outputs = [("--json", args.json)] if args.json else []
    if args.annotate:
        outputs += [("--annotate", p) for s in sources for p in _annotated_paths(s, args.annotate)]
    check_outputs(outputs, sources)
    detector = detector_settings(args).open()
    results: list[dict[str, Any]] = []
    problems: list[str] = []
    frames = 0
    for source in sources:
        found, count = _detect_source(source, detector, args.annotate)
        results += found
        frames += count
        problems += source.problems
    if not frames:
        raise InputError("; ".join(problems) or "no picture could be read")
    if args.json:
        write_json(args.json, results)
    print(f"{len(results)} objects in {frames} pictures", end="")
    print(f", results in {args.json}" if args.json else "", end="")
    print(f", annotated in {args.annotate}" if args.annotate else "")
    for problem in problems:
        print(f"waysight: error: {problem}", file=sys.stderr)
    return 2 if problems else 0


def _detect_source(
    source: Source, detector: Detector, annotate: Path | None
) -> tuple[list[dict[str, Any]], int]:
    results: list[dict[str, Any]] = []
    count = 0
    with ExitStack() as stack:
        write = None
        if annotate is not None:
            write = stack.enter_context(
                video_writer(_annotated_paths(source, annotate)[0], source.rate)
                if source.rate is not None
                else picture_writer(annotate)
            )
        for item in _progress(source):
            try:
                detections = detector(item.frame)
            except InputError as error:
                source.problems.append(f"{item.name}: {error}")
                continue
            if not detections.valid:
                source.problems.append(f"{item.name}: {detections.reason}")
                continue
            count += 1
            results += coco_results(item.name, detections, detector.names)
            if write is not None:
                image = as_three_channels(item.frame.image)
                write(item.name, draw(image, detections, detector.names))
    return results, count


def _progress(source: Source) -> Iterator[SourceFrame]:
    console = Console(stderr=True)
    return iter(
        track(
            source,
            total=source.count,
            description=source.paths[0].name if source.is_video else "pictures",
            console=console,
            disable=not console.is_terminal,
        )
    )
