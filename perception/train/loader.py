"""Batches by step number, prepared ahead by threads.

A batch is a pure function of (seed, step, size): nothing has to be saved to resume exactly, and
every process of a distributed run can compute its own share.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from perception.train.augment import AugmentSettings, Example, mosaic, paint, place
from perception.train.cache import PictureCache
from perception.train.sets import Picture


@dataclass(slots=True, eq=False)
class Batch:
    """images uint8 (B, 3, H, W), channels_last; targets concatenated over the batch.

    boxes float32 (G, 4); labels int64 (G,); owner int64 (G,): position in the batch; regions
    float32 (K, 6) and region_owner int64 (K,) likewise.
    """

    images: Tensor
    boxes: Tensor
    labels: Tensor
    owner: Tensor
    regions: Tensor
    region_owner: Tensor

    @staticmethod
    def stack(examples: list[Example]) -> Batch:
        """Joins examples; one without boxes is a picture of background and stays."""
        images = torch.from_numpy(np.stack([example.image for example in examples]))
        counts = [len(example.boxes) for example in examples]
        regions = [len(example.regions) for example in examples]
        position = np.arange(len(examples))
        return Batch(
            images.permute(0, 3, 1, 2),
            torch.from_numpy(np.concatenate([example.boxes for example in examples])),
            torch.from_numpy(np.concatenate([example.labels for example in examples])),
            torch.from_numpy(np.repeat(position, counts)),
            torch.from_numpy(np.concatenate([example.regions for example in examples])),
            torch.from_numpy(np.repeat(position, regions)),
        )

    def to(self, device: torch.device) -> Batch:
        """The batch on a device; from page-locked memory without waiting."""
        if device.type == "cpu":
            return self
        return Batch(
            *(
                getattr(self, f.name).pin_memory().to(device, non_blocking=True)
                for f in fields(self)
            )
        )


class Source:
    """Pictures of all sets, their cache and how often each is drawn."""

    def __init__(self, pictures: list[Picture], caches: list[PictureCache]) -> None:
        self.pictures = pictures
        self._cache_of = [(cache, i) for cache in caches for i in range(len(cache))]
        weight = np.array([picture.draw for picture in pictures], np.float64)
        self._cumulative = np.cumsum(weight / weight.sum())

    def __len__(self) -> int:
        return len(self.pictures)

    def draw(self, rng: np.random.Generator) -> int:
        """A picture, by weight."""
        return min(int(np.searchsorted(self._cumulative, rng.random())), len(self) - 1)

    def image(self, index: int) -> NDArray[np.uint8]:
        """uint8 (h, w, 3) RGB."""
        cache, position = self._cache_of[index]
        return cache[position]

    def example(
        self, seed: tuple[int, ...], width: int, height: int, settings: AugmentSettings
    ) -> Example:
        """The training picture that belongs to a seed."""
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))
        if rng.random() < settings.mosaic:
            drawn = [self.draw(rng) for _ in range(4)]
            made = mosaic(
                [(self.image(i), self.pictures[i]) for i in drawn], width, height, rng, settings
            )
        else:
            index = self.draw(rng)
            made = place(self.image(index), self.pictures[index], width, height, rng, settings)
        made.image = paint(made.image, rng, settings)
        return made


class Loader:
    """Batches from `first` step on, in order. `waited` sums the seconds spent waiting for them."""

    def __init__(
        self, source: Source, seed: int, batch: int, threads: int = 1, rank: int = 0, world: int = 1
    ) -> None:
        self._source, self._seed, self._batch = source, seed, batch
        self._share = range(rank * batch // world, (rank + 1) * batch // world)
        self._pool = ThreadPoolExecutor(threads, "loader")
        self._ahead = threads + 1
        self.waited = 0.0

    def make(self, step: int, width: int, height: int, settings: AugmentSettings) -> Batch:
        """This process's share of the batch of a step."""
        return Batch.stack(
            [
                self._source.example((self._seed, step, position), width, height, settings)
                for position in self._share
            ]
        )

    def batches(
        self, first: int, last: int, width: int, height: int, settings: AugmentSettings
    ) -> Iterator[Batch]:
        """Batches of the steps first..last-1 at one input size."""
        steps = iter(range(first, last))
        queue: list[Future[Batch]] = []
        for step in steps:
            queue.append(self._pool.submit(self.make, step, width, height, settings))
            if len(queue) > self._ahead:
                yield self._next(queue)
        while queue:
            yield self._next(queue)

    def _next(self, queue: list[Future[Batch]]) -> Batch:
        started = time.monotonic()
        batch = queue.pop(0).result()
        self.waited += time.monotonic() - started
        return batch

    def close(self) -> None:
        """Ends the threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)
