"""Batch norm over all processes, on any device."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn


class _Sum(torch.autograd.Function):
    """Sum over the processes; the gradient is summed likewise."""

    @staticmethod
    def forward(ctx: object, value: Tensor) -> Tensor:
        value = value.clone()
        dist.all_reduce(value)
        return value

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:  # type: ignore[override]
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


class SharedNorm(nn.BatchNorm2d):
    """Batch norm whose mean and variance are those of the global batch.

    torch's own SyncBatchNorm refuses CPU tensors; this one needs nothing but all_reduce. In
    evaluation, and alone, it is plain batch norm. Weights carry the same names.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and dist.is_available() and dist.is_initialized()):
            return super().forward(x)
        # Two exchanges, mean first: E[x^2] - E[x]^2 loses the digits that equal runs need.
        count = _Sum.apply(x.new_tensor([x.numel() / x.shape[1]]))
        mean = _Sum.apply(x.sum(dim=(0, 2, 3))) / count
        centred = x - mean[:, None, None]
        variance = _Sum.apply(centred.square().sum(dim=(0, 2, 3))) / count
        with torch.no_grad():
            momentum = 0.1 if self.momentum is None else self.momentum
            assert self.running_mean is not None and self.running_var is not None
            self.running_mean.lerp_(mean, momentum)
            self.running_var.lerp_(variance * count / (count - 1).clamp(min=1), momentum)
            if self.num_batches_tracked is not None:
                self.num_batches_tracked += 1
        scale = self.weight * (variance + self.eps).rsqrt()
        return centred * scale[:, None, None] + self.bias[:, None, None]


def share_norms(network: nn.Module) -> None:
    """Turns every batch norm into a SharedNorm, in place; weights and statistics stay."""
    for module in network.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = SharedNorm
