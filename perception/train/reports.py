"""Progress on the terminal, and TensorBoard."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from perception.train.settings import Phase
from perception.train.trainer import Report, Trainer


class TerminalReport(Report):
    """A bar with losses, images a second and time left, and a table of scores at the end.

    Without a terminal it prints lines. TensorBoard files lie in the run's folder.
    """

    def __init__(self, folder: Path, tensorboard: bool) -> None:
        self._console = Console()
        super().__init__(
            lambda text: self._console.print(text, markup=False, highlight=False, soft_wrap=True)
        )
        self._writer = _writer(folder, self.log) if tensorboard else None
        self._last: dict[str, float] = {}
        self._text = ""
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[text]}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("training", total=1.0, text="")
        self._bar.start()

    def step(self, trainer: Trainer, parts: Mapping[str, float]) -> None:
        left = trainer.seconds_left()
        self._bar.update(
            self._task,
            completed=trainer.progress,
            text=f"{datetime.timedelta(seconds=int(left))} left {self._text}",
        )

    def window(
        self, trainer: Trainer, phase: Phase, parts: Mapping[str, float], speed: float, wait: float
    ) -> None:
        loss = parts.get("total", float("nan"))
        self._text = f"loss {loss:.2f}, {speed:.0f} images/s, loader wait {wait:.0%}"
        if self._bar.disable:
            super().window(trainer, phase, parts, speed, wait)
        self._write(
            trainer,
            {f"loss/{k}": v for k, v in parts.items()}
            | {
                "speed/images_per_second": speed,
                "speed/loader_wait": wait,
                "run/skipped_steps": trainer.skipped,
                "run/rate": trainer.optimisers[0].param_groups[0]["lr"],
            },
        )

    def scores(self, trainer: Trainer, scores: Mapping[str, float], seconds: float) -> None:
        super().scores(trainer, scores, seconds)
        self._last = dict(scores)
        self._write(trainer, {f"ap50/{k}": v for k, v in scores.items() if v == v})

    def _write(self, trainer: Trainer, values: Mapping[str, float]) -> None:
        if self._writer:
            for key, value in values.items():
                self._writer.add_scalar(key, value, trainer.step)

    def close(self) -> None:
        self._bar.stop()
        if self._writer:
            self._writer.close()
        if self._last:
            self._console.print(score_table(self._last))
            self._last = {}


def score_table(scores: Mapping[str, float]) -> Table:
    """AP50 and AP50..95 by channel and set."""
    table = Table(
        "channel / set", "AP50", "AP50..95", title="averaged weights on the validation sets"
    )
    for key, value in scores.items():
        if not key.endswith("/95"):
            wide = scores.get(f"{key}/95")
            table.add_row(key, f"{value:.3f}", "" if wide is None else f"{wide:.3f}")
    return table


def _writer(folder: Path, log: Any) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        log("TensorBoard is not installed: scores are in scores.jsonl only")
        return None
    return SummaryWriter(str(folder / "tensorboard"))
