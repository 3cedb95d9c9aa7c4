"""`waysight data`: lint, convert, stats, show, split, extract and run a detector over data sets."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from perception.cli import sentence
from perception.errors import InputError
from perception.files import write_json

if TYPE_CHECKING:
    from perception.datasets.convert import Converted
    from perception.datasets.dataset import Dataset
    from perception.datasets.engine import Engine
    from perception.datasets.report import Report
    from perception.datasets.sample import Sample
    from perception.runtime.settings import DetectorSettings

SPEC = "FORMAT:PATH, or a path whose format is guessed"
_SHOWN = 200
"""Findings of one kind printed; all of them are in --json."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See perception.cli."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _lint_arguments(_action(actions, "lint", "list every fault with file and line", _lint))
    _convert_arguments(
        _action(actions, "convert", "write another format, list what is lost", _convert)
    )
    _stats_arguments(_action(actions, "stats", "count pictures, boxes and classes", _stats))
    _show_arguments(_action(actions, "show", "draw pictures with their boxes", _show))
    _split_arguments(_action(actions, "split", "divide into train, val and test", _split))
    _extract_arguments(_action(actions, "extract", "make a data set of a recording", _extract))
    _detect_arguments(
        _action(actions, "detect", "run a detector over all pictures", _detect, classes=False)
    )


def run(args: argparse.Namespace) -> int:
    """See perception.cli."""
    action: Callable[[argparse.Namespace], int] = args.run_action
    with _cleaned_up():
        return action(args)


@contextmanager
def _cleaned_up() -> Iterator[None]:
    """Let SIGTERM unwind the command, so that half-written files and folders are removed."""

    def stop(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    if threading.current_thread() is not threading.main_thread():
        yield  # a program that calls this from a thread looks after its signals itself
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _action(
    actions: Any,
    name: str,
    text: str,
    function: Callable[[argparse.Namespace], int],
    *,
    classes: bool = True,
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=text, description=sentence(text)
    )
    what = "a rosbag2 folder or storage file" if name == "extract" else SPEC
    parser.add_argument("spec", metavar="BAG" if name == "extract" else "SPEC", help=what)
    parser.set_defaults(run_action=function)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result as JSON")
    if classes:
        parser.add_argument(
            "--classes",
            type=Path,
            metavar="YAML",
            help="map class names: 'names: [...]', 'map: {source: target or ignore}', "
            "'groups: {...}'",
        )
    parser.add_argument(
        "--engine",
        choices=("local", "spark"),
        default="local",
        help="where large sets are worked on (default: local, all cores)",
    )
    parser.add_argument("--master", default="", help="Spark master URL, with --engine spark")
    parser.add_argument(
        "--spark-conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="further Spark settings",
    )
    parser.add_argument(
        "--work",
        type=Path,
        metavar="DIR",
        help="folder that all Spark workers see (default: the temporary folder)",
    )
    parser.add_argument("--workers", type=int, default=0, help="processes (default: one a core)")
    return parser


def _engine(args: argparse.Namespace) -> Engine:
    from perception.datasets.engine import LocalEngine, SparkEngine

    if args.workers < 0:
        raise InputError(f"--workers is {args.workers}, expected 0 (all cores) or more")
    if args.engine == "local":
        if args.master:
            raise InputError("--master is for --engine spark")
        return LocalEngine(args.workers, quiet=not Console(stderr=True).is_terminal)
    if not args.master:
        raise InputError("--engine spark needs --master, such as spark://host:7077 or local[4]")
    pairs = [text.partition("=") for text in args.spark_conf]
    return SparkEngine(args.master, args.work, tuple((key, value) for key, _, value in pairs))


def _open(args: argparse.Namespace, spec: str | None = None) -> Dataset:
    """Open the data set, and say what was guessed."""
    from perception.datasets import open_dataset

    classes = None
    if args.classes is not None:
        classes = _label_map(args.classes)
    dataset = open_dataset(spec or args.spec, classes=classes, engine=_engine(args))
    if dataset.guessed:
        print(f"read as {dataset.format}: {dataset.guessed}")
    return dataset


def _say_faults(args: argparse.Namespace, dataset: Dataset) -> None:
    """What could not be read is not in the figures that follow: say so, for commands that list
    no findings."""
    report = dataset.report
    count = report.count("error")
    if count:
        first = next(finding for finding in report.findings if finding.severity == "error")
        print(
            f"waysight: warning: {count} errors while reading, what they concern is left out "
            f"(waysight data lint {shlex.quote(args.spec)} lists them); the first: {first}",
            file=sys.stderr,
        )


def _label_map(path: Path) -> Any:
    from perception.files import read_yaml
    from perception.labels import LabelMap, LabelSet

    data = read_yaml(path)
    names = data.get("names")
    if not isinstance(names, list) or not names:
        raise InputError(f"{path}: expected 'names' with the target classes in order")
    mapping = data.get("map", {})
    groups = data.get("groups", {})
    if not isinstance(mapping, dict) or not isinstance(groups, dict):
        raise InputError(f"{path}: 'map' and 'groups' must be mappings")
    target = LabelSet(tuple(map(str, names)))
    full = {**{name: name for name in target}, **{str(k): str(v) for k, v in mapping.items()}}
    return LabelMap(target, full, {str(k): tuple(map(str, v)) for k, v in groups.items()})


def _print_report(report: Report, *, infos: bool = True) -> None:
    """Findings on standard output, equal ones once, at most _SHOWN of a kind, then counts."""
    wanted = [f for f in report.findings if infos or f.severity != "info"]
    times = Counter(map(str, wanted))
    shown = Counter[str]()
    for finding in {str(finding): finding for finding in wanted}.values():
        shown[finding.code] += 1
        if shown[finding.code] <= _SHOWN:
            again = times[str(finding)]
            print(f"{finding} ({again} times)" if again > 1 else finding)
    for code, count in shown.items():
        if count > _SHOWN:
            print(f"... and {count - _SHOWN} more of [{code}]")


def _summary(report: Report) -> str:
    return (
        f"{report.count('error')} errors, {report.count('warning')} warnings, "
        f"{report.count('info')} remarks"
    )


# lint


def _lint_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-decode",
        action="store_true",
        help="do not decode pictures: ten times as fast, finds no damaged and no similar pictures",
    )
    parser.add_argument("--fix", metavar="OUT", help="write a repaired copy to OUT (or FORMAT:OUT)")
    parser.add_argument("--strict", action="store_true", help="warnings fail too")


def _lint(args: argparse.Namespace) -> int:
    from perception.datasets.lint import LintSettings, lint
    from perception.datasets.opening import foreign_labels
    from perception.datasets.plan import format_module
    from perception.datasets.repair import repair

    dataset = _open(args)
    settings = LintSettings(decode=not args.no_decode)
    linted = lint(dataset, settings, _engine(args))
    path = _path_of(args.spec)
    plan = format_module(dataset.format).plan(path)
    # Whoever names the one file to read asks nothing of its neighbours.
    if path.is_dir() or len(plan.sources) > 1:
        linted.report.extend(foreign_labels(plan))
    _print_report(linted.report)
    print(f"{linted.pictures} pictures, {linted.boxes} boxes: {_summary(linted.report)}")
    fixed = None
    if args.fix:
        target = args.fix if _has_format(args.fix) else f"{dataset.format}:{args.fix}"
        fixed = repair(dataset, linted.report, target)
        print(
            f"repaired copy in {fixed.out}: {fixed.pictures} pictures, {fixed.boxes} boxes, "
            f"{len(fixed.report)} changes in {fixed.out / 'repairs.json'}"
        )
    if args.json:
        data = {"spec": args.spec, "format": dataset.format, **linted.to_json()}
        if fixed is not None:
            data["fix"] = _converted_json(fixed)
        write_json(args.json, data)
    failed = linted.report.count("error") or (args.strict and linted.report.count("warning"))
    return 1 if failed else 0


def _path_of(spec: str) -> Path:
    from perception.datasets.opening import resolve

    return resolve(spec)[1]


def _has_format(text: str) -> bool:
    from perception.datasets.plan import ALIASES, FORMATS

    return text.partition(":")[0] in (*FORMATS, *ALIASES)


# convert


def _convert_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="FORMAT:OUT", help="format and folder to write")
    parser.add_argument("--no-pictures", action="store_true", help="write labels only")
    parser.add_argument(
        "--partial", action="store_true", help="convert what is whole of a data set that is cut off"
    )


def _convert(args: argparse.Namespace) -> int:
    from perception.datasets.convert import convert

    dataset = _open(args)
    done = convert(
        dataset,
        args.target,
        pictures=not args.no_pictures,
        partial=args.partial,
        engine=_engine(args),
    )
    done.report.findings[:0] = dataset.report.findings
    return _report_converted(args, done)


def _converted_json(done: Converted) -> dict[str, object]:
    return {
        "format": done.format,
        "out": str(done.out),
        "pictures": done.pictures,
        "boxes": done.boxes,
        **done.report.to_json(),
    }


def _report_converted(args: argparse.Namespace, done: Converted) -> int:
    code = _print_converted(done)
    if args.json:
        write_json(args.json, _converted_json(done))
    return code


def _print_converted(done: Converted) -> int:
    """Print what was written and what is lost; returns the exit code."""
    _print_report(done.report)
    print(
        f"{done.out}: {done.pictures} pictures, {done.boxes} boxes as {done.format}; "
        f"{_summary(done.report)}"
    )
    return 1 if done.report.count("error") else 0


# stats


def _stats_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw the counts")


def _stats(args: argparse.Namespace) -> int:
    from perception.datasets.stats import plot, stats

    if args.plot and args.plot.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(f"--plot {args.plot}: expected a name ending in .png, .svg or .pdf")
    dataset = _open(args)
    _say_faults(args, dataset)
    result = stats(dataset)
    table = Table("class", "boxes", "share")
    table.columns[1].justify = table.columns[2].justify = "right"
    for name, count in result.classes.items():
        table.add_row(name, str(count), f"{count / max(1, result.boxes):.1%}")
    console = Console()
    console.print(args.spec, markup=False, highlight=False, soft_wrap=True)
    console.print(table)
    console.print(
        f"{result.pictures} pictures ({result.unlabelled} without a box), {result.boxes} boxes, "
        f"{result.ignore_regions} ignore regions, {result.sequences} sequences"
    )
    for title, counts in (
        ("splits", result.splits),
        ("cameras", result.cameras),
        ("box areas", result.areas),
    ):
        if counts:
            parts = ", ".join(f"{key or '(none)'} {value}" for key, value in sorted(counts.items()))
            console.print(f"{title}: {parts}")
    if args.json:
        data = {"spec": args.spec, "format": dataset.format, **result.to_json()}
        write_json(args.json, {**data, "reading_errors": dataset.report.count("error")})
    if args.plot:
        plot(result, args.plot)
        console.print(f"plots in {args.plot}")
    return 0


# show


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("show.png"),
        metavar="FILE",
        help=".png, .jpg or .html (default: show.png)",
    )
    parser.add_argument(
        "--picture",
        action="append",
        default=[],
        metavar="NAME",
        help="show this picture (may be given again)",
    )
    parser.add_argument("--count", type=int, default=16, help="pictures of a sheet (default: 16)")
    parser.add_argument("--columns", type=int, default=4, help="columns of a sheet (default: 4)")
    parser.add_argument("--width", type=int, default=480, help="width of a picture (default: 480)")
    parser.add_argument("--only", default="", metavar="CLASS", help="pictures with this class")
    parser.add_argument("--seed", type=int, help="draw pictures at random instead of evenly")


def _show(args: argparse.Namespace) -> int:
    from perception.datasets.show import choose, write_sheet

    for name in ("count", "columns", "width"):
        if getattr(args, name) < 1:
            raise InputError(f"--{name} is {getattr(args, name)}, expected 1 or more")
    dataset = _open(args)
    _say_faults(args, dataset)
    positions = choose(dataset, args.count, names=args.picture, only=args.only, seed=args.seed)
    write_sheet(dataset, positions, args.out, columns=args.columns, width=args.width)
    print(f"{args.out}: {len(positions)} of {len(dataset)} pictures")
    if args.json:
        names = [dataset[i].name for i in positions]
        write_json(args.json, {"spec": args.spec, "out": str(args.out), "pictures": names})
    return 0


# split


def _split_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shares", default="train=0.8,val=0.1,test=0.1", help="default: train=0.8,val=0.1,test=0.1"
    )
    parser.add_argument(
        "--by",
        choices=("sequence", "hash"),
        default="",
        help="keep sequences together (default where there are any), or divide "
        "pictures by the hash of their name",
    )
    parser.add_argument("--seed", type=int, default=0, help="another division (default: 0)")
    parser.add_argument(
        "--similar",
        type=int,
        metavar="BITS",
        help="keep pictures together whose "
        "perceptual hashes differ in at most BITS of 64 bits (decodes them)",
    )
    parser.add_argument("--out", metavar="FORMAT:OUT", help="write the divided data set")


def _split(args: argparse.Namespace) -> int:
    from perception.datasets.convert import convert
    from perception.datasets.split import By, check_target, parse_shares, split

    shares = parse_shares(args.shares)
    if args.out:
        check_target(args.out, shares)
    if args.similar is not None and not 0 <= args.similar <= 16:
        raise InputError(f"--similar is {args.similar}, expected 0 to 16 bits")
    dataset = _open(args)
    _say_faults(args, dataset)
    by: By = args.by or ("sequence" if any(s.sequence for s in dataset) else "hash")
    assigned = split(dataset, shares, by=by, seed=args.seed, similar=args.similar)
    counts = Counter(assigned)
    print(
        f"divided by {by}: "
        + ", ".join(
            f"{name} {counts[name]} ({counts[name] / max(1, len(assigned)):.1%})" for name in shares
        )
    )
    code = 0
    if args.out:
        places = iter(assigned)

        def change(sample: Sample) -> Sample:
            return replace(sample, split=next(places))

        done = convert(dataset, args.out, change=change)
        done.report.findings[:0] = dataset.report.findings
        code = _print_converted(done)
    if args.json:
        rows = [
            {"name": s.name, "id": s.id, "split": name}
            for s, name in zip(dataset, assigned, strict=True)
        ]
        write_json(
            args.json,
            {
                "spec": args.spec,
                "by": by,
                "seed": args.seed,
                "shares": shares,
                "counts": {name: counts[name] for name in shares},
                "pictures": rows,
            },
        )
    return code


# extract


def _extract_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="OUT", help="folder to write as COCO, or FORMAT:OUT")
    parser.add_argument("--topic", action="append", default=[], help="only pictures of this topic")
    parser.add_argument(
        "--boxes",
        action="append",
        default=[],
        metavar="TOPIC",
        help="only boxes of this topic, where several detectors were recorded",
    )
    parser.add_argument("--start", type=float, metavar="S", help="seconds from the first picture")
    parser.add_argument("--end", type=float, metavar="S", help="seconds from the first picture")
    parser.add_argument("--every", type=float, metavar="S", help="at most one picture in S seconds")
    parser.add_argument(
        "--motion",
        type=float,
        metavar="LEVELS",
        help="leave out pictures that "
        "differ by less (mean grey levels at 64x36) from the last one taken",
    )
    parser.add_argument(
        "--disagreement",
        type=float,
        metavar="SHARE",
        help="only pictures with at "
        "least this share of boxes that the other detector does not have",
    )
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        help="detector for --disagreement: one (against the recorded boxes) or two",
    )


def _extract(args: argparse.Namespace) -> int:
    from perception.datasets.extract import Selection, extract

    if len(args.model) > 2:
        raise InputError(f"--model was given {len(args.model)} times, expected one or two")
    if args.model and args.disagreement is None:
        raise InputError("--model needs --disagreement")
    for name in ("every", "motion", "disagreement"):
        value = getattr(args, name)
        if value is not None and not value >= 0:
            raise InputError(f"--{name} is {value}, expected 0 or more")
    detectors: list[Any] = []
    if args.model:
        from perception.runtime.detector import Detector

        detectors = [Detector(model) for model in args.model]
    spec = args.spec if _has_format(args.spec) else f"rosbag2:{args.spec}"
    dataset = _open(args, spec)
    selection = Selection(
        args.start,
        args.end,
        tuple(args.topic),
        args.every,
        args.motion,
        args.disagreement,
        tuple(args.boxes),
    )
    target = args.target if _has_format(args.target) else f"coco:{args.target}"
    first, second = (*detectors, None, None)[:2]
    done = extract(dataset, target, selection, first=first, second=second)
    done.report.findings[:0] = dataset.report.findings
    return _report_converted(args, done)


# detect


def _detect_arguments(parser: argparse.ArgumentParser) -> None:
    from perception.cli.detect import add_model_arguments

    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="write COCO results here"
    )
    parser.add_argument(
        "--known-classes",
        action="store_true",
        help="report only classes that the data set has too, as scoring against it needs",
    )
    add_model_arguments(parser)


def _detect(args: argparse.Namespace) -> int:
    from perception.datasets import open_dataset
    from perception.datasets.inference import detect, load_model

    dataset = open_dataset(args.spec, engine=_engine(args))
    if dataset.guessed:
        print(f"read as {dataset.format}: {dataset.guessed}")
    _say_faults(args, dataset)
    model = _model(args)
    if args.known_classes:
        offered = model.classes or load_model(model).names
        classes = tuple(name for name in offered if name in dataset.source_names.names)
        if not classes:
            raise InputError(
                f"--known-classes: model and data set have no class in common, the model has "
                f"{', '.join(offered)}, the data set {', '.join(dataset.source_names) or 'none'}"
            )
        model = replace(model, classes=classes)
        left_out = [name for name in offered if name not in classes]
        print(f"classes left out, not in the data set: {', '.join(left_out) or 'none'}")
    done = detect(dataset, model, args.out, _engine(args))
    _print_report(done.report)
    print(
        f"{done.out}: {done.detections} objects in {done.pictures - done.failed} pictures"
        + (f", {done.failed} pictures without a result" if done.failed else "")
    )
    if args.json:
        write_json(args.json, {"spec": args.spec, "format": dataset.format, **done.to_json()})
    return 1 if done.failed else 0


def _model(args: argparse.Namespace) -> DetectorSettings:
    """The options' settings as every process of an engine can open them."""
    from perception.cli.detect import detector_settings
    from perception.zoo import model_path

    chosen = detector_settings(args)
    return replace(
        chosen,
        path=model_path(chosen.path).absolute(),
        contract=chosen.contract.absolute() if chosen.contract else None,
        # An engine has a process for each core.
        threads=chosen.threads or 1,
    )
