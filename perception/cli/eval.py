"""`waysight eval`: score detections and tracks, compare models, replay bags."""

from __future__ import annotations

import argparse
import html
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress, track
from rich.table import Table

from perception.errors import InputError, VerdictFailed
from perception.evaluate import (
    coco,
    coco_files,
    compare,
    diagnosis,
    kitti,
    notes,
    report,
    slices,
    tracks,
)
from perception.evaluate.coco import CocoResult
from perception.evaluate.coco_files import CocoTruth
from perception.evaluate.compare import METRICS, Resampling
from perception.evaluate.gate import Gate
from perception.evaluate.slices import Conditions
from perception.evaluate.tables import BoxTables
from perception.files import write_json
from perception.labels import LabelMap, LabelSet

if TYPE_CHECKING:
    from perception.datasets import Dataset
    from perception.evaluate.bag import BagScore

REPORT_SAMPLES = 200
"""Resamples of a report: enough for two digits of an interval, and seconds on 5,000 pictures."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands and their options."""
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    _add_coco(kinds.add_parser("coco", help="COCO AP and AR, slices, error types, calibration"))
    _add_kitti(kinds.add_parser("kitti", help="KITTI AP R40 and R11 by difficulty"))
    _add_mot(kinds.add_parser("mot", help="HOTA, MOTA and IDF1 of one sequence of tracks"))
    _add_bag(kinds.add_parser("bag", help="replay a bag through the nodes, in lock-step"))
    _add_compare(kinds.add_parser("compare", help="is result B better than A, slice by slice?"))


def run(args: argparse.Namespace) -> int:
    """Run the chosen evaluation; returns 0, or raises VerdictFailed when a gate fails."""
    return int(args.action(args))


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write one HTML file here")


def _add_grouping(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--group",
        action="append",
        default=[],
        metavar="NAME=CLASS,CLASS",
        help="score these classes as one, may be repeated",
    )
    parser.add_argument(
        "--class-agnostic", action="store_true", help="score all classes as one, 'object'"
    )


def _add_resampling(parser: argparse.ArgumentParser, samples: int | None, note: str) -> None:
    parser.add_argument(
        "--samples", type=int, default=samples, metavar="N", help=f"bootstrap resamples ({note})"
    )
    parser.add_argument(
        "--confidence",
        type=float,
        default=compare.CONFIDENCE,
        help="level of the intervals (default %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=compare.SEED, help="of the resamples (default %(default)s)"
    )


def _add_coco(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(action=_run_coco)
    parser.add_argument("truth", type=Path, metavar="GT.json", help="COCO instances file")
    parser.add_argument("results", type=Path, metavar="DT.json", help="COCO results file")
    _add_outputs(parser)
    parser.add_argument(
        "--images", type=Path, metavar="DIR", help="folder of the pictures, for the report"
    )
    _add_grouping(parser)
    _add_resampling(
        parser, None, f"default {REPORT_SAMPLES} with --report, else none; 0 switches off"
    )
    parser.add_argument(
        "--min-score",
        type=float,
        metavar="S",
        help="operating point of error counts and confusion (default: best F1)",
    )
    parser.add_argument(
        "--false-alarms",
        type=float,
        default=0.1,
        metavar="R",
        help="find the score threshold for R false alarms a picture (default %(default)s)",
    )


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(action=_run_compare)
    parser.add_argument("first", type=Path, metavar="A.json", help="COCO results of the old model")
    parser.add_argument("second", type=Path, metavar="B.json", help="COCO results of the new model")
    parser.add_argument(
        "--gt", type=Path, required=True, metavar="GT.json", help="COCO instances file"
    )
    parser.add_argument(
        "--gate", type=Path, metavar="gate.yaml", help="fail (exit code 1) when a slice regresses"
    )
    _add_outputs(parser)
    _add_grouping(parser)
    _add_resampling(parser, compare.SAMPLES, f"default {compare.SAMPLES}")


def _add_kitti(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(action=_run_kitti)
    parser.add_argument("truth", type=Path, metavar="GT_DIR", help="folder of label files")
    parser.add_argument("results", type=Path, metavar="DT_DIR", help="folder of result files")
    parser.add_argument(
        "--classes",
        nargs="+",
        default=list(kitti.CLASSES),
        metavar="NAME",
        help="classes to score (default: %(default)s)",
    )
    _add_outputs(parser)


def _add_mot(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(action=_run_mot)
    parser.add_argument("truth", type=Path, metavar="GT.txt", help="MOTChallenge ground truth")
    parser.add_argument("results", type=Path, metavar="DT.txt", help="MOTChallenge results")
    parser.add_argument(
        "--rules",
        choices=["auto", *tracks.RULES],
        default="auto",
        help="which classes count and which are distractors (default: by the ground truth)",
    )
    _add_outputs(parser)


def _add_bag(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(action=_run_bag)
    parser.add_argument("bag", type=Path, metavar="BAG", help="rosbag2 folder, .mcap or .db3 file")
    parser.add_argument(
        "--graph", required=True, metavar="road.yaml", help="graph's .yaml file or shipped graph"
    )
    parser.add_argument("--image-topic", metavar="TOPIC", help="default: the bag's only one")
    parser.add_argument("--model", help="shipped model or .onnx file, in place of the graph's")
    parser.add_argument(
        "--map", type=Path, metavar="YAML", help="class map from the truth's to the model's names"
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="replay twice and fail (exit code 1) when the results differ by a byte",
    )
    _add_outputs(parser)


def _groups(args: argparse.Namespace, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
    if args.class_agnostic and args.group:
        raise InputError("--class-agnostic and --group cannot be used together")
    if args.class_agnostic:
        return {"object": names}
    groups: dict[str, list[str]] = {}
    for text in args.group:
        name, equals, members = text.partition("=")
        if not name or not equals or not members:
            raise InputError(f"--group is {text!r}, expected NAME=CLASS,CLASS")
        groups.setdefault(name, []).extend(item.strip() for item in members.split(","))
    return groups


def _conditions(truth: CocoTruth) -> Conditions:
    return Conditions(
        attributes=truth.attributes,
        occlusion=truth.occlusion,
        truncation=truth.truncation,
        distance=truth.distance,
    )


def _with_progress(total: int, label: str) -> tuple[Progress, Callable[[str], None]]:
    """A progress bar on stderr and the function that moves it on."""
    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(label, total=total)
    return bar, lambda name: bar.advance(task)


def _run_coco(args: argparse.Namespace) -> int:
    truth = coco_files.read_truth(args.truth)
    tables = truth.tables(coco_files.read_results(args.results, truth))
    groups = _groups(args, tables.names)
    tables = tables.grouped(groups) if groups else tables
    samples = args.samples
    if samples is None:
        samples = REPORT_SAMPLES if args.report else 0
    settings = Resampling(samples, args.confidence, args.seed) if samples else None

    result = coco.evaluate(tables)
    parts = slices.build(tables, _conditions(truth))
    bar, advance = _with_progress(len(parts), "slices")
    with bar:
        scores = compare.score_slices(
            tables, parts, settings, sequences=truth.sequences, progress=advance
        )
    remarks = notes.resampling_notes(result.pictures, truth.sequences) if settings else []
    found = diagnosis.diagnose(tables, min_score=args.min_score)
    point = diagnosis.threshold_for(found.matches, args.false_alarms)
    data = {
        "ground_truth": str(args.truth),
        "results": str(args.results),
        "figures": result.to_json(),
        "slices": [score.to_json() for score in scores],
        **found.to_json(),
        "threshold_for_false_alarms": {"limit": args.false_alarms, **asdict(point)},
        "resampling": None if settings is None else asdict(settings),
    }
    if args.json:
        write_json(args.json, data)
    if args.report:
        from perception.evaluate import pages  # brings matplotlib

        sections = pages.coco_sections(
            result,
            scores,
            found,
            point,
            source=f"{args.results} against {args.truth}",
            false_alarms=args.false_alarms,
            images=args.images,
        )
        sections[3:3] = _as_sections(remarks)
        report.write(args.report, f"Evaluation of {args.results.name}", sections)
    _print_coco(result, scores if settings else [])
    _print_notes(remarks)
    return 0


def _print_notes(texts: Iterable[str]) -> None:
    for text in texts:
        Console().print(text, highlight=False, soft_wrap=True)


def _as_sections(texts: Iterable[str]) -> list[tuple[str, str]]:
    return [("Intervals", f'<p class="note">{html.escape(text)}</p>') for text in texts]


def _print_coco(result: CocoResult, scores: Sequence[compare.SliceScore]) -> None:
    """Figures by class, with the intervals of AP in `scores` where there are any."""
    console = Console()
    console.print(
        f"{result.pictures} pictures, {result.truth} objects, {result.detections} detections",
        highlight=False,
    )
    figures = (result.ap, result.ap50, result.ap75, result.ar100)
    rows: list[Sequence[Any]] = [("all", *figures, result.truth, result.detections)]
    rows += [
        (item.name, item.ap, item.ap50, item.ap75, item.ar, item.truth, item.detections)
        for item in result.per_class
        if item.truth or item.detections
    ]
    heads = ["class", "AP", "AP50", "AP75", "AR100", "objects", "detections"]
    if scores:
        heads.append("AP from .. to")
        known = {score.name: notes.interval_text(score.figures["ap"]) for score in scores}
        one = known["all"] if len(result.per_class) == 1 else ""  # which makes no slice of its own
        own = [known["all"], *(known.get(f"class={row[0]}", one) for row in rows[1:])]
        rows = [(*row, text) for row, text in zip(rows, own, strict=True)]
    _print_table(heads, rows)
    sizes = (("small", result.ap_small), ("medium", result.ap_medium), ("large", result.ap_large))
    known_sizes = [f"{size} {ap:.4f}" for size, ap in sizes if ap is not None]
    if known_sizes:
        console.print(f"AP by size of the objects: {', '.join(known_sizes)}", highlight=False)
    _print_notes(notes.coco_notes(result))


def _run_kitti(args: argparse.Namespace) -> int:
    from perception.evaluate.kitti_files import read_frames  # brings pyarrow

    frames, remarks = read_frames(args.truth, args.results)
    kitti.require_classes(frames, args.classes)
    scores = kitti.evaluate(frames, args.classes)
    names = [item.name for item in fields(kitti.KittiScore)]
    heads = [name.replace("_", " ") for name in names]
    rows = [tuple(getattr(score, name) for name in names) for score in scores]
    if args.json:
        write_json(
            args.json,
            {
                "ground_truth": str(args.truth),
                "results": str(args.results),
                "frames": len(frames),
                "notes": remarks,
                "scores": [asdict(score) for score in scores],
            },
        )
    if args.report:
        body = "".join(f'<p class="note">{html.escape(text)}</p>' for text in remarks)
        body += report.table(heads, rows)
        report.write(args.report, f"KITTI evaluation of {args.results.name}", [("Scores", body)])
    console = Console()
    console.print(f"{len(frames)} frames", highlight=False)
    _print_table(
        ("class", "difficulty", "AP R40", "AP R11", "found", "false", "missed", "objects"),
        [
            (item.kind, item.difficulty, item.ap_r40, item.ap_r11, item.true_positives)
            + (item.false_alarms, item.missed, item.truth)
            for item in scores
        ],
    )
    for text in remarks:
        console.print(text, highlight=False)
    return 0


def _run_mot(args: argparse.Namespace) -> int:
    from perception.evaluate.mot_files import guess_rules, read_table  # brings pyarrow

    truth, dataset = read_table(args.truth)
    results, _ = read_table(args.results)
    guessed = args.rules == "auto"
    rules = guess_rules(truth, dataset) if guessed else tracks.RULES[args.rules]
    result = tracks.evaluate(truth, results, rules)
    rows = [(item.name, getattr(result, item.name)) for item in fields(tracks.TrackResult)]
    note = f"Rules of {rules.name}" + (" by the look of the ground truth." if guessed else ".")
    if args.json:
        write_json(
            args.json,
            {
                "ground_truth": str(args.truth),
                "results": str(args.results),
                "figures": asdict(result),
            },
        )
    if args.report:
        body = f'<p class="note">{html.escape(note)}</p>' + report.table(["figure", "value"], rows)
        report.write(
            args.report, f"Tracking evaluation of {args.results.name}", [("Figures", body)]
        )
    _print_table(("figure", "value"), rows)
    Console().print(note, highlight=False)
    return 0


def _run_bag(args: argparse.Namespace) -> int:
    # Late: the nodes need ROS 2, which no other evaluation does.
    from perception.datasets.bags import Bag
    from perception.evaluate import bag as bags
    from ros_nodes.graph import find_graph, read_graph
    from ros_nodes.lockstep import Replay, replay

    # road.yaml means the shipped graph where there is no such file here.
    shipped = "/" not in args.graph and not Path(args.graph).exists()
    graph = read_graph(find_graph(Path(args.graph).stem if shipped else args.graph))
    if args.model:
        detectors = [node.name for node in graph.nodes if node.module == "detector"]
        for name in detectors:
            graph = graph.change(name, {"model": args.model})

    def once(bag: Bag, stamps: frozenset[int]) -> tuple[Replay, Dataset | None, list[Any]]:
        with replay(bag, graph, args.image_topic) as running:
            truth = _bag_truth(args, running.names) if stamps else None
            console = Console(stderr=True)
            steps = list(track(running.steps, "replaying", console=console, transient=True))
            return running, truth, steps

    with Bag(args.bag) as bag:
        stamps = bags.truth_stamps(bag)
        running, truth, steps = once(bag, stamps)
        results = [bags.rows(step, running.names) for step in steps]
        if args.verify:
            again = [bags.rows(step, running.names) for step in once(bag, frozenset())[2]]
            if results != again:
                raise VerdictFailed(f"{args.bag}: two replays gave different results")
        remarks = [str(finding) for finding in bag.report.findings]
        whole = not bag.report.count("error")
    score = None if truth is None else bags.score(steps, running.names, truth, stamps)
    if score is None:
        remarks.append("No ground truth in the bag (boxes on a topic named ground_truth, gt...).")
    data = {
        "bag": str(args.bag),
        "graph": str(args.graph),
        "image_topic": running.topic,
        "nodes_left_out": list(running.skipped),
        "pictures": len(steps),
        "invalid": sum(not step.detections.valid for step in steps),
        "whole": whole,
        "remarks": remarks,
        "figures": None if score is None else score.to_json(),
        "results": results,
    }
    if args.json:
        write_json(args.json, data)
    lines = _bag_lines(data, score)
    if args.report:
        body = report.table(["", "value"], lines)
        body += "".join(f'<p class="note">{html.escape(text)}</p>' for text in remarks)
        report.write(args.report, f"Replay of {args.bag.name}", [("Figures", body)])
    _print_table(("", "value"), lines)
    for text in remarks:
        Console().print(text, highlight=False, markup=False, soft_wrap=True)
    # Figures of a part of the drive must not pass for those of the whole.
    return 0 if whole else 1


def _bag_truth(args: argparse.Namespace, names: Sequence[str]) -> Dataset:
    """The bag as a data set of the detector's classes; InputError for a class it lacks."""
    from perception.datasets import open_dataset

    classes = LabelMap.from_yaml(args.map, LabelSet(tuple(names))) if args.map else None
    truth = open_dataset(f"rosbag2:{args.bag}", classes=classes)
    foreign = [name for name in truth.names if name not in names]
    if foreign:
        raise InputError(
            f"{args.bag}: the ground truth has classes that the model lacks, {', '.join(foreign)}; "
            f"map them with --map to {', '.join(names)} or ignore"
        )
    return truth


def _bag_lines(data: Mapping[str, Any], score: BagScore | None) -> list[tuple[str, Any]]:
    """Name and value of what a replay's reader looks for first."""
    lines: list[tuple[str, Any]] = [
        ("pictures", data["pictures"]),
        ("rejected by the detector", data["invalid"]),
        ("objects found", sum(len(item["detections"]) for item in data["results"])),
    ]
    if score is None:
        return lines
    figures = score.detection
    lines += [
        ("pictures with ground truth", score.scored),
        ("AP", figures.ap),
        ("AP50", figures.ap50),
        ("AR100", figures.ar100),
    ]
    for camera, item in score.tracking.items():
        lines += [
            (f"{camera} {name}", value)
            for name, value in (
                ("HOTA", item.hota),
                ("MOTA", item.mota),
                ("IDF1", item.idf1),
                ("identity switches", item.id_switches),
            )
        ]
    return lines


def _print_table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Texts to the left, numbers to the right, as far as the first row shows."""
    grid = Table(box=None, pad_edge=False)
    for column, head in enumerate(heads):
        text = bool(rows) and isinstance(rows[0][column], str)
        grid.add_column(head, justify="left" if text else "right")
    for row in rows:
        grid.add_row(*map(report.figure_text, row))
    # A file or a pipe has no width; cut-off figures would be worse than long lines.
    Console(width=None if sys.stdout.isatty() else 200).print(grid, highlight=False)


def _run_compare(args: argparse.Namespace) -> int:
    gate = Gate.from_yaml(args.gate) if args.gate else None
    settings = Resampling(args.samples, args.confidence, args.seed)
    truth = coco_files.read_truth(args.gt)
    pair = [
        truth.tables(coco_files.read_results(path, truth)) for path in (args.first, args.second)
    ]
    groups = _groups(args, truth.names)
    first, second = (tables.grouped(groups) if groups else tables for tables in pair)
    rows = _compare(first, second, truth, settings)
    failures = gate.failures(rows) if gate else []
    remarks = notes.resampling_notes(len(first.pictures), truth.sequences)
    if args.json:
        write_json(
            args.json,
            {
                "a": str(args.first),
                "b": str(args.second),
                "ground_truth": str(args.gt),
                "resampling": asdict(settings),
                "slices": [row.to_json() for row in rows],
                "gate": None if gate is None else {"passed": not failures, "failures": failures},
            },
        )
    if args.report:
        from perception.evaluate import pages  # brings matplotlib

        title = f"{args.second.name} (B) against {args.first.name} (A)"
        sections = pages.compare_sections(rows, failures if gate else None)
        report.write(args.report, title, [*_as_sections(remarks), *sections])
    metric = gate.metric if gate else METRICS[0]
    _print_comparison([row for row in rows if row.metric == metric])
    _print_notes(remarks)
    if failures:
        raise VerdictFailed("the gate fails: " + "; ".join(failures))
    return 0


def _compare(
    first: BoxTables, second: BoxTables, truth: CocoTruth, settings: Resampling
) -> list[compare.SliceComparison]:
    conditions = _conditions(truth)
    parts = list(
        zip(slices.build(first, conditions), slices.build(second, conditions), strict=True)
    )
    bar, advance = _with_progress(len(parts), "slices")
    with bar:
        return compare.compare(
            first, second, parts, settings, sequences=truth.sequences, progress=advance
        )


def _print_comparison(rows: Sequence[compare.SliceComparison]) -> None:
    metric = rows[0].metric if rows else METRICS[0]
    heads = ("slice", f"{metric} A", f"{metric} B", "B - A", "interval", "B is")
    _print_table(
        heads,
        [(row.name, row.a, row.b, *notes.difference_text(row), row.verdict) for row in rows],
    )
