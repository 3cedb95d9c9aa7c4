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
            backend = "nccl" if device.startswith("cuda") else "gloo"
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

    def wait(self) -> None:
        """Returns when every process has come here."""
        if self.world > 1:
            dist.barrier()

    def leave(self) -> None:
        """Ends the group."""
        if self.world > 1 and dist.is_initialized():
            dist.destroy_process_group()
