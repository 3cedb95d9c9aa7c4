"""A data set for torch's DataLoader. torch is imported only when a picture is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from perception.datasets.dataset import Dataset
from perception.datasets.sample import Sample
from perception.errors import InputError

Pixels = Any
Transform = Callable[[Pixels, Sample], tuple[Pixels, Sample]]


class TorchDataset:
    """Map-style data set of (image, target), as torchvision's detection models take them.

    image: uint8 tensor (3, H, W), RGB. target: boxes float32 (N, 4) xyxy in pixels, labels int64
    (N,), iscrowd uint8 (N,), area float32 (N,), ignore float32 (K, 4), image_id int64 (1,) = the
    position in the data set. A picture without boxes has tensors of shape (0, 4) and (0,).
    transform: changes pixels uint8 (H, W, 3) BGR and the sample before they become tensors.
    Boxes without width or height raise InputError naming file and line: no loss can use them.
    skip_degenerate: leave them out instead.
    """

    def __init__(
        self, dataset: Dataset, transform: Transform | None = None, *, skip_degenerate: bool = False
    ) -> None:
        self.dataset = dataset
        self.transform = transform
        self.skip_degenerate = skip_degenerate

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[Any, dict[str, Any]]:
        import torch

        sample = self._usable(self.dataset[index])
        pixels: Pixels = self.dataset.pixels(sample)
        if self.transform is not None:
            pixels, sample = self.transform(pixels, sample)
        boxes = sample.truth.boxes
        sides = boxes[:, 2:] - boxes[:, :2]
        # Copies: the arrays of a sample may be views of the index file, which cannot be written.
        target = {
            "boxes": boxes,
            "labels": sample.truth.labels,
            "iscrowd": sample.crowd.astype(np.uint8),
            "area": sides[:, 0] * sides[:, 1],
            "ignore": sample.ignore,
            "image_id": np.asarray([index], np.int64),
        }
        rgb = np.ascontiguousarray(pixels[:, :, ::-1].transpose(2, 0, 1))
        return torch.from_numpy(rgb), {
            key: torch.from_numpy(np.array(value)) for key, value in target.items()
        }

    def _usable(self, sample: Sample) -> Sample:
        boxes = sample.truth.boxes
        good = (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
        if good.all():
            return sample
        if self.skip_degenerate:
            return sample.chosen(np.flatnonzero(good))
        i = int(np.flatnonzero(~good)[0])
        raise InputError(
            f"{self.dataset.root / sample.source}:{int(sample.lines[i])}: box "
            f"{boxes[i].tolist()} of {sample.name!r} has no width or no height, or swapped corners"
        )


def collate(batch: Sequence[tuple[Any, dict[str, Any]]]) -> tuple[list[Any], list[dict[str, Any]]]:
    """A batch as lists, because pictures differ in size and in their number of boxes."""
    return [image for image, _ in batch], [target for _, target in batch]
