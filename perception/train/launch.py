"""The work behind `waysight train`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import cv2

from perception.errors import InputError
from perception.train.distributed import Processes
from perception.train.reports import TerminalReport
from perception.train.settings import RunSettings, build, override, read_settings
from perception.train.sources import load_source, load_val, remarks
from perception.train.teacher import fill_labels
from perception.train.trainer import BEST, LAST, Report, Trainer, read_checkpoint


def start(file: Path, overrides: Sequence[str], out: Path | None, weights: Path | None) -> int:
    """A new run; returns the exit code."""
    settings = read_settings(file, overrides)
    train(settings, out or next_folder(Path("runs"), file.stem), weights=weights)
    return 0


def resume(folder: Path, overrides: Sequence[str]) -> int:
    """Continues a run from its last checkpoint; returns the exit code."""
    state = read_checkpoint(folder / LAST, resumable=True)
    data = json.loads(state["settings"])
    override(data, overrides)
    train(build(RunSettings, data, f"{folder / LAST}"), folder, checkpoint=folder / LAST)
    return 0


def train(
    settings: RunSettings, folder: Path, weights: Path | None = None, checkpoint: Path | None = None
) -> Trainer:
    """Trains in `folder`; every process of a distributed run calls this.

    InputError where a new run would mix with the checkpoints of another.
    """
    if checkpoint is None:
        require_no_run(folder)
    processes = Processes.join(settings.train.device)
    try:
        # Loader threads share the cores with torch; OpenCV's own pool would only add switches.
        cv2.setNumThreads(1)
        if not processes.first:
            processes.wait()  # the first process builds the cache
        settings = fill_labels(settings)
        source, val = load_source(settings), load_val(settings)
        if processes.first:
            folder.mkdir(parents=True, exist_ok=True)
            processes.wait()
        report = (
            TerminalReport(folder, settings.train.tensorboard)
            if processes.first
            else Report(lambda _: None)
        )
        trainer = Trainer(settings, folder, source, val, report, processes)
        if checkpoint:
            trainer.restore(checkpoint)
        elif weights:
            trainer.start_from(weights)
        report.log(
            f"{len(source)} pictures, "
            f"{sum(p.numel() for p in trainer.network.parameters()):,} parameters, "
            f"{trainer.device.device}, {processes.world} process(es), run in {folder}"
        )
        for remark in remarks(source, val):
            report.log(remark)
        try:
            trainer.run()
        finally:
            report.close()
    finally:
        processes.leave()
    return trainer


def require_no_run(folder: Path) -> None:
    """InputError where the folder holds checkpoints: export would take those of the wrong run."""
    for name in (BEST, LAST):
        if (folder / name).exists():
            raise InputError(
                f"{folder / name}: holds the checkpoint of another run; give a new folder as "
                "--out, or continue that run with --resume"
            )


def next_folder(root: Path, name: str) -> Path:
    """The first of name-1, name-2, ... that does not exist."""
    number = 1
    while (root / f"{name}-{number}").exists():
        number += 1
    return root / f"{name}-{number}"


def fast(file: Path, overrides: Sequence[str], out: Path | None) -> int:
    """The whole path on a tiny generated set, in a fraction of the time; returns the exit code."""
    from perception.train.rehearsal import rehearse

    settings = read_settings(file, overrides)
    if out:
        require_no_run(out)
    rehearse(settings, out or next_folder(Path("runs"), f"{file.stem}-fast"))
    return 0
