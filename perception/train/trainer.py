"""The training loop."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import torch
import yaml
from torch import Tensor, nn

from perception.errors import InputError, WaysightError
from perception.files import atomic_path
from perception.models import make_network
from perception.models.network import Network
from perception.train.device import choose_device
from perception.train.distributed import Processes
from perception.train.loader import Batch, Loader, Source
from perception.train.loss import DetectionLoss
from perception.train.norm import share_norms
from perception.train.optimise import Average, make_optimisers, rate
from perception.train.settings import Phase, RunSettings, to_plain
from perception.train.sparsity import NARROWEST, Sparsity
from perception.train.validate import ValSet, overall, validate

LAST, BEST, SETTINGS, SCORES = "last.pt", "best.pt", "settings.yaml", "scores.jsonl"
#: What the best score of a run is: `validate.overall`.
BEST_OF = "mean of all measured channels"
#: What every checkpoint holds, and what one that can be resumed holds beyond it.
CONTENT: dict[str, type | tuple[type, ...]] = {"settings": str, "average": dict}
RESUMABLE: dict[str, type | tuple[type, ...]] = {
    "network": dict,
    "average_updates": int,
    "optimisers": list,
    "scaler": dict,
    "masks": dict,
    "step": int,
    "elapsed": (int, float),
    "best": (int, float),
    "views": int,
    "skipped": int,
}
#: Weights whose shape depends on the classes.
CLASS_SCORES = "head.score."
Log = Callable[[str], None]


class Report:
    """Where the loop tells how it goes; this one prints lines."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def step(self, trainer: Trainer, parts: Mapping[str, float]) -> None:
        """After every update."""

    def window(
        self, trainer: Trainer, phase: Phase, parts: Mapping[str, float], speed: float, wait: float
    ) -> None:
        """After every `log_every` steps: mean losses, images a second, share of time waiting."""
        left = trainer.seconds_left()
        losses = " ".join(f"{key} {value:.3f}" for key, value in parts.items())
        skipped = f", {trainer.skipped} steps skipped" if trainer.skipped else ""
        self.log(
            f"step {trainer.step} ({trainer.progress:.1%}, {left / 60:.0f} min left) "
            f"{phase.width}x{phase.height} {losses} {speed:.1f} images/s, "
            f"loader wait {wait:.0%}{skipped}"
        )

    def scores(self, trainer: Trainer, scores: Mapping[str, float], seconds: float) -> None:
        """After every evaluation."""
        shown = " ".join(f"{k} {v:.3f}" for k, v in scores.items() if not k.endswith("/95"))
        self.log(
            f"evaluation at step {trainer.step}, {trainer.views} views: {shown} ({seconds:.0f} s)"
        )

    def close(self) -> None:
        """At the end of the run."""


class Trainer:
    """A run: network, average, optimisers, data, and the state that makes it resumable."""

    def __init__(
        self,
        settings: RunSettings,
        folder: Path,
        source: Source,
        val: list[ValSet],
        report: Report | None = None,
        processes: Processes | None = None,
    ) -> None:
        self.settings, self.folder, self.source, self.val = settings, folder, source, val
        train = settings.train
        self.processes = processes or Processes()
        self.report = report or Report(print)
        if train.torch_threads:
            torch.set_num_threads(train.torch_threads)
        torch.manual_seed(train.seed)
        self._require_a_picture_each()
        self.device = choose_device(
            train.device,
            train.precision,
            train.compile,
            train.channels_last,
            train.tf32,
            self.processes.rank,
            self.report.log,
        )
        self.network: nn.Module = self.device.place(make_network(settings.model))
        if self.processes.world > 1 and train.sync_norm:
            share_norms(self.network)
        # Pruned before it is copied: an average that began dense would never be quite sparse.
        self.sparsity = self._prune() if train.sparse else None
        self.average = Average(self.network, train.ema_decay, train.ema_tau)
        self.optimisers = make_optimisers(
            self.network, train.optimiser, train.rate, train.weight_decay
        )
        self.scaler = torch.amp.GradScaler(self.device.device.type, enabled=self.device.scaled)
        self.loss = DetectionLoss(settings.model, settings.loss, settings.assign)
        self.forward: Callable[[Tensor], tuple[Tensor, Tensor]] = (
            torch.compile(self.network) if self.device.compile else self.network
        )
        self.step, self.elapsed, self.views, self.skipped, self.stale = 0, 0.0, 0, 0, 0
        self.best = -1.0
        self.last_losses: dict[str, float] = {}
        self._mark = time.monotonic()

    def _require_a_picture_each(self) -> None:
        """InputError for a batch of which some process would get nothing."""
        train = self.settings.train
        batches = [phase.batch for phase in train.phases]
        if not train.phases or train.phases[-1].until < 1:
            batches.append(train.batch)
        if min(batches) < self.processes.world:
            raise InputError(
                f"batch is {min(batches)}, expected at least one picture for each of the "
                f"{self.processes.world} processes"
            )

    def _prune(self) -> Sparsity:
        """Masks of the network's weights; InputError where there is nothing to prune."""
        made = Sparsity(self.network)
        if not made.masks:
            raise InputError(
                f"train.sparse: model.size {self.settings.model.size} has no convolution of "
                f"{NARROWEST} channels or more to prune, expected a wider network"
            )
        return made

    # State ------------------------------------------------------------------------------------
    def state(self) -> dict[str, Any]:
        """Everything a resumed run needs; data order and random numbers follow from the step."""
        return {
            "settings": json.dumps(to_plain(self.settings)),
            "network": self.network.state_dict(),
            "average": self.average.model.state_dict(),
            "average_updates": self.average.updates,
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
            "scaler": self.scaler.state_dict(),
            "masks": self.sparsity.masks if self.sparsity else {},
            "step": self.step,
            "elapsed": self.elapsed,
            "best": self.best,
            "best_of": BEST_OF,
            "views": self.views,
            "skipped": self.skipped,
            "stale": self.stale,
        }

    def restore(self, path: Path) -> None:
        """Continues from a checkpoint; InputError when it does not belong to these settings."""
        state = read_checkpoint(path, resumable=True)
        was = json.loads(state["settings"]).get("train", {}).get("optimiser")
        if was != self.settings.train.optimiser:
            raise InputError(
                f"{path}: train.optimiser was {was}, found {self.settings.train.optimiser}; "
                "expected the same: what one optimiser remembers means nothing to another"
            )
        try:
            self.network.load_state_dict(state["network"])
            self.average.model.load_state_dict(state["average"])
            for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
                optimiser.load_state_dict(saved)
            if state["scaler"]:
                self.scaler.load_state_dict(state["scaler"])
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{path}: does not fit these settings: {str(error).splitlines()[0]}"
            ) from None
        self.average.updates = state["average_updates"]
        if self.sparsity and state["masks"]:
            self.sparsity.take(state["masks"])
        elif self.sparsity:
            # A dense run goes on sparse: masks of its own weights, not of the fresh ones before.
            self.sparsity = self._prune()
            self.sparsity.apply_to(self.average.model)
        self.step, self.elapsed = state["step"], state["elapsed"]
        # Older runs kept the score of the first channel: the mean of several is another figure.
        comparable = state.get("best_of") == BEST_OF or len(self.settings.model.channels) == 1
        self.best = state["best"] if comparable else -1.0
        self.views, self.skipped, self.stale = (
            state["views"],
            state["skipped"],
            state.get("stale", 0),
        )

    def start_from(self, path: Path) -> None:
        """Takes the averaged weights of another run; the schedule starts anew.

        Where that run knew other classes its class scores are left out: they start fresh, and a
        line of the log says so. InputError for weights of another network.
        """
        state = read_checkpoint(path)
        weights, mine = dict(state["average"]), self.network.state_dict()
        other = not self._knows_classes_of(state)
        fresh = [key for key in mine if other and key.startswith(CLASS_SCORES)]
        try:
            self.network.load_state_dict({**weights, **{key: mine[key] for key in fresh}})
        except RuntimeError as error:
            raise InputError(
                f"{path}: does not fit this network: {str(error).splitlines()[0]}"
            ) from None
        if fresh:
            self.report.log(f"{path}: trained on other classes; the class scores start fresh")
        if self.settings.train.sparse:
            self.sparsity = self._prune()
        self.average = Average(self.network, self.average.decay, self.average.tau)

    def _knows_classes_of(self, state: Mapping[str, Any]) -> bool:
        """Whether each output of a checkpoint's network means what this one's means."""
        theirs, mine = json.loads(state["settings"])["model"], to_plain(self.settings.model)
        return all(theirs.get(key, []) == mine[key] for key in ("names", "group"))

    def save(self, name: str) -> None:
        """Writes a checkpoint, never half of one and never one with NaN in it."""
        if not all(bool(torch.isfinite(v).all()) for v in self.network.state_dict().values()):
            raise WaysightError(
                f"step {self.step}: the weights are not finite; no checkpoint written"
            )
        if self.processes.first:
            with atomic_path(self.folder / name) as temporary:
                torch.save(self.state(), temporary)

    # Run --------------------------------------------------------------------------------------
    @property
    def progress(self) -> float:
        """Share of the run that is done, 0..1."""
        train = self.settings.train
        by_step = self.step / train.steps
        return min(
            1.0, max(by_step, self.elapsed / (60 * train.minutes)) if train.minutes else by_step
        )

    def seconds_left(self) -> float:
        """Expected time to the end at the pace so far."""
        return self.elapsed * (1 - self.progress) / max(self.progress, 1e-9)

    @property
    def finished(self) -> bool:
        """Whether the schedule has ended or scores have stopped improving."""
        patience = self.settings.train.patience
        return self.progress >= 1 or bool(patience and self.stale >= patience)

    def phase(self) -> Phase:
        """The input size and batch of the current step."""
        train, model = self.settings.train, self.settings.model
        for phase in train.phases:
            if self.progress < phase.until:
                return phase
        return Phase(1.0, model.width, model.height, train.batch, self.settings.data.augment.mosaic)

    def run(self) -> dict[str, float]:
        """Trains to the end; returns the last evaluation."""
        if self.processes.first:
            with atomic_path(self.folder / SETTINGS) as temporary:
                temporary.write_text(
                    yaml.safe_dump(to_plain(self.settings), sort_keys=False, allow_unicode=True),
                    "utf-8",
                )
        evaluated, scores = -1, dict[str, float]()
        while not self.finished:
            phase = self.phase()
            loader = Loader(
                self.source,
                self.settings.train.seed,
                phase.batch,
                self.settings.data.threads,
                self.processes.rank,
                self.processes.world,
            )
            try:
                for latest in self._phase(phase, loader):
                    evaluated, scores = self.step, latest
            finally:
                loader.close()
        if evaluated != self.step:
            scores = self.evaluate()
        self.save(LAST)
        self.report.close()
        return scores

    def _phase(self, phase: Phase, loader: Loader) -> Any:
        """Trains at one input size; yields the scores of each evaluation."""
        train = self.settings.train
        augment = dataclasses.replace(self.settings.data.augment, mosaic=phase.mosaic)
        window = _Window(self, loader)
        bad = 0
        self._mark = time.monotonic()
        for batch in loader.batches(self.step, train.steps, phase.width, phase.height, augment):
            parts = self._update(batch)
            self.last_losses = parts or self.last_losses
            bad = 0 if parts else bad + 1
            self.skipped += not parts
            if bad >= train.bad_steps:
                raise WaysightError(
                    f"step {self.step}: loss or gradient not finite in {bad} steps in a row; the "
                    f"last good checkpoint is {self.folder / LAST}"
                )
            window.add(parts)
            self.report.step(self, parts)
            if self.step % train.log_every == 0:
                self.report.window(self, phase, *window.close())
            evaluated = self.step % train.evaluate_every == 0 and not self.progress >= 1
            if evaluated:
                yield self.evaluate()
            # After the evaluation: a resumed run must know the best score so far.
            if evaluated or self.step % train.checkpoint_every == 0:
                self.save(LAST)
            if evaluated:
                window = _Window(self, loader)
                self._mark = time.monotonic()
            if self.progress >= phase.until or self.finished:
                break

    def _update(self, batch: Batch) -> dict[str, float]:
        """One update; empty when loss or gradient is not finite and the step was skipped."""
        train = self.settings.train
        share = rate(self.progress, train.flat, train.final_rate) * min(
            1.0, (self.step + 1) / max(1, train.warmup)
        )
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = group["peak"] * share
            optimiser.zero_grad(set_to_none=True)
        self.network.train()
        batch = batch.to(self.device.device)
        self._seed_step()
        # Batch statistics move in the forward pass, before anyone knows that the step is bad.
        statistics = self._statistics()
        before = [value.clone() for value in statistics]
        parts = self._losses(batch)
        self.scaler.scale(parts["total"]).backward()
        self.step += 1
        self.views += len(batch.images) * self.processes.world
        # First the exchange, so that all processes see an overflow and scale alike afterwards.
        self._exchange()
        for optimiser in self.optimisers:
            self.scaler.unscale_(optimiser)
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), train.clip)
        # One process with a NaN makes the exchanged gradient NaN on all: they skip together.
        finite = bool(torch.isfinite(norm))
        if finite:
            for optimiser in self.optimisers:
                self.scaler.step(optimiser)
            if self.sparsity:
                self.sparsity.apply()
            self.average.update(self.network)
        else:
            for value, old in zip(statistics, before, strict=True):
                value.copy_(old)
        self.scaler.update()
        return {key: float(value.detach()) for key, value in parts.items()} if finite else {}

    def _statistics(self) -> list[Tensor]:
        """Float buffers of the network: the running means and variances of its batch norms."""
        return [b for b in self.network.buffers() if b.dtype.is_floating_point]

    def _seed_step(self) -> None:
        """Random numbers of a step (torchvision's detectors sample anchors) follow from it."""
        seed, processes = self.settings.train.seed, self.processes
        torch.manual_seed((seed * 1_000_003 + self.step) * processes.world + processes.rank)

    def _losses(self, batch: Batch) -> dict[str, Tensor]:
        """Named losses and their "total"."""
        images = batch.images.to(torch.get_default_dtype()).div_(255)
        with self.device.arithmetic():
            if not isinstance(self.network, Network):
                own: dict[str, Tensor] = cast(Any, self.network).losses(
                    images, batch.boxes, batch.labels, batch.owner
                )
                return own
            boxes, logits = self.forward(images)
        return self.loss(boxes, logits, batch)

    def _exchange(self) -> None:
        """Makes gradients, batch-norm statistics and the clock those of all processes."""
        now = time.monotonic()
        # The seconds of this step only: a float32 sum of days no longer moves by milliseconds.
        clock = torch.tensor([now - self._mark], device=self.device.device)
        self._mark = now
        grads = [p.grad for p in self.network.parameters() if p.grad is not None]
        self.processes.average([*grads, *self._statistics(), clock])
        self.elapsed += float(clock)

    def evaluate(self) -> dict[str, float]:
        """Scores the average on all processes together; keeps it as best.pt when it is better.

        Better is a higher mean over all measured channels: a class that gets lost must show.
        """
        began = time.monotonic()
        scores = validate(
            self.average.model, self.settings.model, self.val, processes=self.processes
        )
        main = overall(scores, self.settings.model)
        # NaN compares false with everything: it can neither win nor count as improvement.
        better = math.isfinite(main) and main > self.best
        self.stale = 0 if better else self.stale + bool(self.val)
        if better:
            self.best = main
            self.save(BEST)
        if self.val and self.processes.first:
            self.report.scores(self, scores, time.monotonic() - began)
            line = {"step": self.step, "views": self.views, "elapsed": self.elapsed, **scores}
            with open(self.folder / SCORES, "a", encoding="utf-8") as out:
                out.write(json.dumps({k: None if v != v else v for k, v in line.items()}) + "\n")
        return scores


class _Window:
    """Mean losses and speed since the last line of the log."""

    def __init__(self, trainer: Trainer, loader: Loader) -> None:
        self._trainer, self._loader = trainer, loader
        self._begin()

    def _begin(self) -> None:
        self._sums, self._count = dict[str, float](), 0
        self._since = time.monotonic(), self._trainer.views, self._loader.waited

    def add(self, parts: Mapping[str, float]) -> None:
        """Losses of one step; a skipped one counts for speed only."""
        self._count += bool(parts)
        for key, value in parts.items():
            self._sums[key] = self._sums.get(key, 0.0) + value

    def close(self) -> tuple[dict[str, float], float, float]:
        """(mean losses, images a second, share of time waiting for the loader); starts anew."""
        started, views, waited = self._since
        seconds = max(1e-9, time.monotonic() - started)
        means = {key: value / max(1, self._count) for key, value in self._sums.items()}
        result = (
            means,
            (self._trainer.views - views) / seconds,
            (self._loader.waited - waited) / seconds,
        )
        self._begin()
        return result


def read_checkpoint(path: Path, resumable: bool = False) -> dict[str, Any]:
    """A checkpoint's content; only tensors and plain values are read, never code.

    resumable: all that a run needs to go on, not only settings and averaged weights.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such checkpoint")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises several classes for a file that is none
        text = str(error).partition(".")[0].partition("\n")[0][:200] or type(error).__name__
        raise InputError(f"{path}: not a checkpoint: {text}") from None
    if not isinstance(state, dict) or not set(state) >= set(CONTENT):
        raise InputError(f"{path}: not a checkpoint of a training run")
    expected = {**CONTENT, **(RESUMABLE if resumable else {})}
    wrong = [key for key, kind in expected.items() if not isinstance(state.get(key), kind)]
    if wrong:
        raise InputError(
            f"{path}: {wrong[0]} is missing or of another kind, expected what "
            f"{'a run writes to go on' if resumable else 'training writes'}"
        )
    try:
        settings = json.loads(state["settings"])
    except ValueError:
        settings = None
    if not isinstance(settings, dict) or not isinstance(settings.get("model"), dict):
        raise InputError(f"{path}: its settings are not those of a training run")
    return state
