"""Building blocks shared by every size of the family."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn


def activation(name: str) -> nn.Module:
    """ReLU for the quantisable n, SiLU above it."""
    return {"relu": nn.ReLU, "silu": nn.SiLU}[name](inplace=True)


class ConvNormAct(nn.Sequential):
    """Convolution, batch norm, activation. `act=""` leaves the activation out."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        stride: int = 1,
        groups: int = 1,
        act: str = "relu",
    ) -> None:
        layers: list[nn.Module] = [
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.03),
        ]
        if act:
            layers.append(activation(act))
        super().__init__(*layers)


class Separable(nn.Sequential):
    """Depthwise k x k, then pointwise: cheap where the map is large.

    No activation between the two: it halves the element-wise work of the largest maps.
    """

    def __init__(
        self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, act: str = "relu"
    ) -> None:
        super().__init__(
            ConvNormAct(inputs, inputs, kernel, stride, groups=inputs, act=""),
            ConvNormAct(inputs, outputs, 1, act=act),
        )


class Pointwise(nn.Module):
    """Pointwise, depthwise, pointwise residual, for the map at stride 8."""

    def __init__(self, channels: int, act: str) -> None:
        super().__init__()
        self.body = nn.Sequential(
            ConvNormAct(channels, channels, 1, act=act),
            ConvNormAct(channels, channels, 3, groups=channels, act=act),
            ConvNormAct(channels, channels, 1, act=""),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + cast(Tensor, self.body(x))


class Residual(nn.Module):
    """Dense 1x1 -> 3x3 residual: cheap at strides 16 and 32, and what tensor cores like."""

    def __init__(self, channels: int, act: str) -> None:
        super().__init__()
        inner = max(8, round(channels * 0.375 / 8) * 8)
        self.body = nn.Sequential(
            ConvNormAct(channels, inner, 1, act=act),
            ConvNormAct(inner, channels, 3, act=act),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + cast(Tensor, self.body(x))


def init_weights(module: nn.Module) -> None:
    """He initialisation for convolutions; batch norm starts at the identity."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def concatenate(levels: list[Tensor]) -> Tensor:
    """[(B, C, h, w)] -> (B, A, C): anchors of all levels, row by row, finest level first."""
    return torch.cat([level.flatten(2).transpose(1, 2) for level in levels], dim=1)
