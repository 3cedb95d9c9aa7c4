"""The training loop."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import nn

from perception.errors import InputError, WaysightError
from perception.files import atomic_path, write_json
from perception.models.network import Network
from perception.train.augment import AugmentSettings
from perception.train.cache import open_cache
from perception.train.distributed import Processes
from perception.train.loader import Batch, Loader, Source
from perception.train.loss import DetectionLoss
from perception.train.optimise import Average, make_optimisers, rate
from perception.train.sets import Picture, SetSettings, read_set
from perception.train.settings import Phase, RunSettings, to_plain
from perception.train.validate import ValSet, validate

LAST, BEST, SETTINGS = "last.pt", "best.pt", "settings.yaml"


def weigh(pictures: list[Picture], model_names: tuple[str, ...], settings: SetSettings,
          counts: np.ndarray, rare_power: float, large_boost: float) -> list[Picture]:
    """Pictures with their draw weight: set weight, rarest class, large objects."""
    common = counts.max() if counts.size else 1
    out = []
    for picture in pictures:
        known = picture.labels[picture.labels >= 0]
        rare = float((common / max(1, counts[known].min())) ** rare_power) if len(known) else 1.0
        area = (picture.boxes[:, 2:] - picture.boxes[:, :2]).prod(axis=1)
        large = large_boost if (area > 0.05 * picture.width * picture.height).any() else 1.0
        out.append(dataclasses.replace(picture, draw=settings.weight * rare * large))
    return out


def load_source(settings: RunSettings) -> Source:
    """All training pictures, checked before the first step."""
    data, root = settings.data, Path(settings.data.root)
    sets = [read_set(one, settings.model, root) for one in data.train]
    labels = np.concatenate([p.labels for s in sets for p in s] or [np.zeros(0, np.int64)])
    counts = np.bincount(labels[labels >= 0], minlength=len(settings.model.names))
    caches = [open_cache([p.file for p in s], Path(data.cache), data.longest) for s in sets]
    pictures = [
        p for one, s in zip(data.train, sets, strict=True)
        for p in weigh(s, settings.model.names, one, counts, data.rare_power, data.large_boost)
    ]
    if not pictures:
        raise InputError("data.train: no pictures to train on")
    return Source(pictures, caches)


def load_val(settings: RunSettings) -> list[ValSet]:
    """The sets to score on."""
    out = []
    for one in settings.data.val:
        pictures = read_set(one, settings.model, Path(settings.data.root))
        cache = open_cache([p.file for p in pictures], Path(settings.data.cache), settings.data.longest)
        name = Path(one.annotations).parent.name or Path(one.annotations).stem
        out.append(ValSet(name, pictures, cache, one.annotated))
    return out


def _silent(_: str) -> None:
    """Log of every process but the first."""


class Trainer:
    """A run: network, average, optimisers, data, and the state that makes it resumable."""

    def __init__(self, settings: RunSettings, folder: Path, log: Callable[[str], None] = print) -> None:
        self.settings, self.folder = settings, folder
        train = settings.train
        self.processes = Processes.join(train.device)
        self.log = log if self.processes.first else _silent
        if train.torch_threads:
            torch.set_num_threads(train.torch_threads)
        torch.manual_seed(train.seed)
        self.source, self.val = load_source(settings), load_val(settings)
        self.network: nn.Module = Network(settings.model)
        if train.channels_last:
            self.network = self.network.to(memory_format=torch.channels_last)
        self.average = Average(self.network, train.ema_decay, train.ema_tau)
        self.optimisers = make_optimisers(self.network, train.optimiser, train.rate, train.weight_decay)
        self.loss = DetectionLoss(settings.model, settings.loss, settings.assign)
        self._mark = time.monotonic()
        self.step, self.elapsed, self.best, self.views, self.skipped = 0, 0.0, -1.0, 0, 0

    # State ------------------------------------------------------------------------------------
    def state(self) -> dict[str, Any]:
        """Everything a resumed run needs; data order and augmentation follow from the step."""
        return {
            "settings": json.dumps(to_plain(self.settings)),
            "network": self.network.state_dict(),
            "average": self.average.model.state_dict(),
            "average_updates": self.average.updates,
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
            "step": self.step, "elapsed": self.elapsed, "best": self.best, "views": self.views,
            "skipped": self.skipped, "torch_rng": torch.get_rng_state(),
        }

    def restore(self, path: Path) -> None:
        """Continues from a checkpoint."""
        state = torch.load(path, map_location="cpu", weights_only=True)
        self.network.load_state_dict(state["network"])
        self.average.model.load_state_dict(state["average"])
        self.average.updates = state["average_updates"]
        for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(saved)
        self.step, self.elapsed, self.best = state["step"], state["elapsed"], state["best"]
        self.views, self.skipped = state["views"], state["skipped"]
        torch.set_rng_state(state["torch_rng"])

    def save(self, name: str) -> None:
        """Writes a checkpoint, never half of one and never one with NaN in it."""
        if not all(bool(torch.isfinite(v).all()) for v in self.network.state_dict().values()):
            raise WaysightError(f"step {self.step}: the weights are not finite; no checkpoint written")
        if self.processes.first:
            with atomic_path(self.folder / name) as temporary:
                torch.save(self.state(), temporary)

    # Run --------------------------------------------------------------------------------------
    @property
    def progress(self) -> float:
        """Share of the run that is done, 0..1."""
        train = self.settings.train
        by_step = self.step / train.steps
        return min(1.0, max(by_step, self.elapsed / (60 * train.minutes)) if train.minutes else by_step)

    def phase(self) -> Phase:
        """The input size and batch of the current step."""
        train, model = self.settings.train, self.settings.model
        for phase in train.phases:
            if self.progress < phase.until:
                return phase
        return Phase(1.0, model.width, model.height, train.batch, self.settings.data.augment.mosaic)

    def run(self) -> dict[str, float]:
        """Trains to the end; returns the last evaluation."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with atomic_path(self.folder / SETTINGS) as temporary:
            temporary.write_text(yaml.safe_dump(to_plain(self.settings), sort_keys=False, allow_unicode=True))
        scores: dict[str, float] = {}
        while self.progress < 1:
            phase = self.phase()
            loader = Loader(
                self.source, self.settings.train.seed, phase.batch, self.settings.data.threads,
                self.processes.rank, self.processes.world,
            )
            try:
                scores = self._phase(phase, loader) or scores
            finally:
                loader.close()
        scores = self.evaluate()
        self.save(LAST)
        return scores

    def _phase(self, phase: Phase, loader: Loader) -> dict[str, float]:
        train = self.settings.train
        augment = dataclasses.replace(self.settings.data.augment, mosaic=phase.mosaic)
        scores: dict[str, float] = {}
        self._mark = time.monotonic()
        window = (self._mark, self.views, loader.waited)
        sums: dict[str, float] = {}
        bad = 0
        for batch in loader.batches(self.step, train.steps, phase.width, phase.height, augment):
            parts = self._step(batch)
            now = time.monotonic()
            if parts is None:
                bad += 1
                self.skipped += 1
                if bad >= train.bad_steps:
                    raise WaysightError(f"step {self.step}: loss not finite {bad} times in a row")
            else:
                bad = 0
                for key, value in parts.items():
                    sums[key] = sums.get(key, 0.0) + value
            if self.step % 100 == 0:
                seconds = now - window[0]
                self.log(
                    f"step {self.step} {self.progress:.3f} {phase.width}x{phase.height} "
                    + " ".join(f"{k} {v / 100:.3f}" for k, v in sums.items())
                    + f" {(self.views - window[1]) / seconds:.1f} img/s wait {(loader.waited - window[2]) / seconds:.0%}"
                    + (f" skipped {self.skipped}" if self.skipped else "")
                )
                sums, window = {}, (now, self.views, loader.waited)
            if self.step % train.checkpoint_every == 0:
                self.save(LAST)
            if self.step % train.evaluate_every == 0:
                scores = self.evaluate()
                self._mark = time.monotonic()
                window = (self._mark, self.views, loader.waited)
            if self.progress >= phase.until or self.progress >= 1:
                break
        return scores

    def _step(self, batch: Batch) -> dict[str, float] | None:
        """One update; None when the loss or the gradient is not finite and the step was skipped."""
        train = self.settings.train
        share = rate(self.progress, train.flat, train.final_rate) * min(1.0, (self.step + 1) / train.warmup)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = group["peak"] * share
            optimiser.zero_grad(set_to_none=True)
        self.network.train()
        boxes, logits = self.network(batch.images.float().div_(255))
        parts = self.loss(boxes, logits, batch)
        self.step += 1
        self.views += len(batch.images) * self.processes.world
        parts["total"].backward()  # type: ignore[no-untyped-call]
        self._exchange()
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), train.clip)
        if not torch.isfinite(norm):
            return None
        for optimiser in self.optimisers:
            optimiser.step()
        self.average.update(self.network)
        values = {key: float(value.detach()) for key, value in parts.items()}
        values["norm"] = float(norm)
        return values

    def _exchange(self) -> None:
        """Makes gradients, batch-norm statistics and the clock those of all processes."""
        now = time.monotonic()
        clock = torch.tensor([self.elapsed + now - self._mark], dtype=torch.float32)
        self._mark = now
        floats = [b for b in self.network.buffers() if b.dtype.is_floating_point]
        grads = [p.grad for p in self.network.parameters() if p.grad is not None]
        self.processes.average([*grads, *floats, clock])
        self.elapsed = float(clock)

    def evaluate(self) -> dict[str, float]:
        """Scores the average; keeps it as best.pt when its main score is better."""
        if not self.val or not self.processes.first:
            self.processes.wait()
            return {}
        began = time.monotonic()
        scores = validate(self.average.model, self.settings.model, self.val)
        main = scores.get(f"{self.settings.model.channels[0]}/mean", float("nan"))
        self.log(
            f"eval {self.step} views {self.views} min {self.elapsed / 60:.1f} "
            + " ".join(f"{k} {v:.3f}" for k, v in scores.items() if not k.endswith("/95"))
            + f" ({time.monotonic() - began:.0f} s)"
        )
        with open(self.folder / "scores.jsonl", "a") as out:
            out.write(json.dumps({"step": self.step, "views": self.views, "elapsed": self.elapsed, **scores}) + "\n")
        if math.isfinite(main) and main > self.best:
            self.best = main
            self.save(BEST)
        self.processes.wait()
        return scores
