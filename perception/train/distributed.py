"""Several processes as one: started by torchrun, joined by gloo (CPU) or NCCL (GPU)."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Processes:
    """This process and how many there are."""

    rank: int = 0
    world: int = 1

    @staticmethod
    def join(device: str = "cpu") -> Processes:
        """Joins the group that torchrun describes in the environment; alone without it."""
        world = int(os.environ.get("WORLD_SIZE", "1"))
        if world == 1:
            return Processes()
        if not dist.is_initialized():
            backend = (
                "gloo" if device == "cpu" or not torch.cuda.is_available() else "cpu:gloo,cuda:nccl"
            )
            dist.init_process_group(backend, timeout=datetime.timedelta(hours=1))
        return Processes(dist.get_rank(), world)

    @property
    def first(self) -> bool:
        """Whether this process logs and writes files."""
        return self.rank == 0

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replaces float tensors by their mean over the processes, in one exchange."""
        tensors = list(tensors)
        if self.world == 1 or not tensors:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        dist.all_reduce(flat)
        flat /= self.world
        for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def gather(self, rows: Tensor) -> Tensor:
        """Rows (N, C) of all processes in order of rank; N may differ."""
        if self.world == 1:
            return rows
        counts = [torch.zeros(1, dtype=torch.long) for _ in range(self.world)]
        dist.all_gather(counts, torch.tensor([len(rows)]))
        most = int(max(int(count) for count in counts))
        padded = torch.zeros(most, rows.shape[1], dtype=rows.dtype)
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in range(self.world)]
        dist.all_gather(parts, padded)
        return torch.cat([part[: int(count)] for part, count in zip(parts, counts, strict=True)])

    def wait(self) -> None:
        """Returns when every process has come here."""
        if self.world > 1:
            dist.barrier()

    def leave(self) -> None:
        """Ends the group."""
        if self.world > 1 and dist.is_initialized():
            dist.destroy_process_group()
