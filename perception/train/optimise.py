"""Optimiser, schedule and the moving average of the weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from perception.errors import InputError


class Muon(torch.optim.Optimizer):
    """Momentum whose update is orthogonalised, for dense convolutions (Jordan et al. 2024).

    Kernels are seen as matrices (out, in * k * k). The update is scaled to the root mean square an
    Adam update has (Liu et al. 2025, section 2.2), so learning rate and weight decay carry over.
    """

    def __init__(
        self, params: Iterable[Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.0
    ):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["momentum"] = torch.zeros_like(weight)
                state["momentum"].lerp_(weight.grad, 1 - group["momentum"])
                update = weight.grad.lerp(state["momentum"], group["momentum"])
                matrix = orthogonalise(update.reshape(len(update), -1))
                scale = 0.2 * math.sqrt(max(matrix.shape))
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(matrix.reshape(weight.shape), alpha=-group["lr"] * scale)


def orthogonalise(matrix: Tensor, steps: int = 5) -> Tensor:
    """Nearest semi-orthogonal matrix by Newton-Schulz iterations (Jordan et al. 2024)."""
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-12)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


def make_optimisers(
    model: nn.Module, kind: str, lr: float, weight_decay: float
) -> list[torch.optim.Optimizer]:
    """AdamW, with Muon for dense convolutions where `kind` is "muon"; or plain "sgd".

    Norms, biases, depthwise kernels and the final 1x1 layers stay with AdamW; norms and biases
    are not decayed.
    """
    if kind not in ("adamw", "muon", "sgd"):
        raise InputError(f"train.optimiser is {kind!r}, expected adamw, muon or sgd")
    dense, decayed, plain = [], [], []
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            if parameter.ndim < 2:
                plain.append(parameter)
            elif (
                kind == "muon"
                and isinstance(module, nn.Conv2d)
                and module.groups == 1
                and module.bias is None
            ):
                dense.append(parameter)
            else:
                decayed.append(parameter)
    groups = [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    optimisers: list[torch.optim.Optimizer] = [
        torch.optim.SGD(groups, lr=lr, momentum=0.9, nesterov=True, foreach=True)
        if kind == "sgd"
        else torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.99), foreach=True)
    ]
    if dense:
        optimisers.append(Muon(dense, lr=lr, weight_decay=weight_decay))
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["peak"] = lr
    return optimisers


def rate(progress: float, flat: float, final: float) -> float:
    """Share of the peak rate: flat until `flat` of the run, then a cosine down to `final`."""
    if progress <= flat:
        return 1.0
    along = min(1.0, (progress - flat) / max(1e-9, 1 - flat))
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * along))


class Average:
    """Exponential moving average of the weights and batch-norm statistics.

    The decay grows as d * (1 - exp(-t / tau)), so that early weights are forgotten; both must fit
    the length of the run.
    """

    def __init__(self, model: nn.Module, decay: float, tau: float) -> None:
        self.model = copy.deepcopy(model).eval()
        for parameter in self.model.parameters():
            parameter.requires_grad_(False)
        self.decay, self.tau, self.updates = decay, tau, 0

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Moves towards the weights of `model`."""
        self.updates += 1
        keep = self.decay * (1 - math.exp(-self.updates / self.tau))
        mine, theirs = self.model.state_dict(), model.state_dict()
        floats = [key for key, value in mine.items() if value.dtype.is_floating_point]
        torch._foreach_lerp_(
            [mine[key] for key in floats], [theirs[key].detach() for key in floats], 1 - keep
        )
        for key, value in mine.items():
            if not value.dtype.is_floating_point:
                value.copy_(theirs[key])
