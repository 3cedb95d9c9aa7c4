"""The work behind `waysight export`."""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from rich.console import Console
from rich.table import Table

from perception.contract import ModelContract
from perception.errors import InputError, WaysightError
from perception.export import gate
from perception.export.build import load_run, make_float32, read_pictures
from perception.export.onnx_file import save
from perception.export.precision import to_float16, to_int8
from perception.export.settings import ExportSettings
from perception.export.verify import ExportRefused, compare, require_sparse
from perception.files import write_json
from perception.models.settings import ModelSettings
from perception.sources import PICTURE_SUFFIXES
from perception.train.sets import Picture, SetSettings, located, read_set
from perception.train.settings import RunSettings

#: Pictures on which torch and ONNX Runtime are compared.
COMPARED = 16


def export(args: argparse.Namespace) -> int:
    """Runs `waysight export`; returns the exit code."""
    width, height = parse_size(args.size) if args.size else (0, 0)
    if not 0 < args.max_ap_loss <= 1:
        raise InputError(f"--max-ap-loss is {args.max_ap_loss}, expected above 0 and at most 1")
    settings = ExportSettings(
        form=args.form,
        precision=args.precision,
        width=width,
        height=height,
        resize=args.resize,
        max_batch=args.max_batch,
        max_ap_loss=args.max_ap_loss,
    )
    out = args.out or (args.run if args.run.is_dir() else args.run.parent) / "model.onnx"
    report = export_run(args.run, out, settings, args.pictures)
    if args.json:
        write_json(args.json, report)
    return 0


def parse_size(text: str) -> tuple[int, int]:
    """ "416x256" -> (416, 256)."""
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise InputError(f"size {text!r}: expected WIDTHxHEIGHT, such as 416x256")
    return int(parts[0]), int(parts[1])


def export_run(
    run: Path, out: Path, settings: ExportSettings, pictures: Path | None
) -> dict[str, Any]:
    """Builds, verifies and writes; returns what was measured. Refusal leaves no file."""
    console = Console()
    network, of_run = load_run(run)
    scored = validation_pictures(of_run)
    files = (
        sorted(p for p in pictures.rglob("*") if p.suffix.lower() in PICTURE_SUFFIXES)
        if pictures
        else [p.file for p in scored]
    )
    images = read_pictures(files, COMPARED)
    provenance = {"run": run.name, "size": network.settings.size}
    module, float32, contract = make_float32(network, settings, provenance)
    difference = compare(
        module, float32, contract, images, settings.score_tolerance, settings.box_tolerance
    )
    console.print(f"torch and ONNX Runtime agree: {difference}")
    if of_run.train.sparse:
        console.print(f"2:4 sparse: all {require_sparse(float32)} wide convolutions")
    chosen, verdicts = _precision(
        settings, float32, contract, network.settings, of_run, scored, files
    )
    save(chosen, out)
    _table(console, verdicts)
    console.print(f"wrote {out}", markup=False)
    return {
        "file": str(out),
        "agreement": dataclasses.asdict(difference),
        "builds": [verdict.to_plain() for verdict in verdicts],
    }


def validation_pictures(run: RunSettings) -> list[Picture]:
    """The labelled pictures of the run's validation sets that are still where they were."""
    return _pictures(run, run.data.val)


def _pictures(run: RunSettings, sets: Sequence[SetSettings]) -> list[Picture]:
    root = Path(run.data.root)
    return [
        picture
        for one in sets
        if located(one, root)[1].exists()
        for picture in read_set(one, run.model, root)
    ]


def _precision(
    settings: ExportSettings,
    float32: onnx.ModelProto,
    contract: ModelContract,
    model: ModelSettings,
    run: RunSettings,
    scored: list[Picture],
    files: list[Path],
) -> tuple[onnx.ModelProto, list[gate.Verdict]]:
    """The build to write, and the verdicts of the gate where it was asked."""
    if settings.precision == "float32":
        return float32, []
    makers = {
        "float16": lambda: to_float16(float32),
        "int8": lambda: to_int8(
            float32, contract, read_pictures(calibration_files(run, files), settings.calibration)
        ),
    }
    wanted = ["float16", "int8"] if settings.precision == "auto" else [settings.precision]
    made, failed = {"float32": float32}, list[gate.Verdict]()
    for name in wanted:
        try:
            made[name] = makers[name]()
        except WaysightError:
            raise
        except Exception as error:  # each converter raises its own for a graph it cannot turn
            text = " ".join(str(error).split())[:200]
            if settings.precision != "auto":
                raise ExportRefused(
                    f"export: {name} cannot be made of this graph: {text}; no file written"
                ) from None
            failed.append(gate.Verdict.not_made(name, text))
    if not scored:
        raise ExportRefused(
            f"export: precision {settings.precision} needs labelled validation pictures to prove "
            "what it loses; the run's data is not there; no file written"
        )
    pictures = gate.pictures_to_score(scored, model)
    images = read_pictures([p.file for p in pictures], len(pictures))
    builds = [
        gate.measure_build(name, one, contract, model, pictures, images)
        for name, one in made.items()
    ]
    if settings.precision == "auto":
        verdicts = gate.choose(builds, settings.max_ap_loss)
        kept = next(v.precision for v in verdicts if v.kept)
        return made[kept], verdicts + failed
    loss = gate.worst_loss(*builds)
    if not loss.ap50 < settings.max_ap_loss:
        raise ExportRefused(
            f"export: {settings.precision}: {loss}, allowed is less than {settings.max_ap_loss}; "
            "no file written"
        )
    return made[settings.precision], []


def calibration_files(run: RunSettings, otherwise: list[Path]) -> list[Path]:
    """Training pictures, so that nothing is scored on what it was calibrated on."""
    return [picture.file for picture in _pictures(run, run.data.train)] or otherwise


def _table(console: Console, verdicts: list[gate.Verdict]) -> None:
    if not verdicts:
        return
    table = Table("build", "ms p50", "AP50", "kept", "why", title="precision on this machine")
    for v in verdicts:
        table.add_row(
            v.precision,
            "" if math.isnan(v.milliseconds) else f"{v.milliseconds:.2f}",
            ", ".join(f"{channel} {ap:.3f}" for channel, ap in v.ap50.items()) or "not measured",
            "yes" if v.kept else "no",
            v.reason,
        )
    console.print(table)
