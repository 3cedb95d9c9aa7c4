"""The Waysight detector: a small FPN network without anchors or objectness."""

from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from perception.models.blocks import (
    ConvNormAct,
    Pointwise,
    Residual,
    Separable,
    concatenate,
    init_weights,
)
from perception.models.settings import SIZES, ModelSettings

STRIDES = (8, 16, 32)
#: Score an untrained network gives everywhere (focal-loss prior, Lin et al. 2017, section 3.3).
PRIOR = 0.01


def anchor_points(width: int, height: int, device: torch.device | None = None) -> Tensor:
    """Cell centres of all levels: float32 (A, 3): x, y, stride in network pixels."""
    rows = []
    for stride in STRIDES:
        y, x = torch.meshgrid(
            (torch.arange(height // stride, device=device) + 0.5) * stride,
            (torch.arange(width // stride, device=device) + 0.5) * stride,
            indexing="ij",
        )
        rows.append(torch.stack([x, y, torch.full_like(x, stride)], dim=-1).reshape(-1, 3))
    return torch.cat(rows)


class Backbone(nn.Module):
    """Maps at strides 8, 16 and 32."""

    def __init__(self, size: str) -> None:
        super().__init__()
        (c1, c2, c3, c4, c5), (n3, n4, n5), _, act = SIZES[size]
        self.stem = ConvNormAct(3, c1, 3, 2, act=act)
        self.p2 = nn.Sequential(Separable(c1, c2, 3, 2, act), Separable(c2, c2, 3, 1, act))
        self.p3 = nn.Sequential(
            Separable(c2, c3, 3, 2, act), *[Pointwise(c3, act) for _ in range(n3)]
        )
        self.p4 = nn.Sequential(
            Separable(c3, c4, 3, 2, act), *[Residual(c4, act) for _ in range(n4)]
        )
        self.p5 = nn.Sequential(
            Separable(c4, c5, 3, 2, act), *[Residual(c5, act) for _ in range(n5)]
        )

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        p3 = self.p3(self.p2(self.stem(images)))
        p4 = self.p4(p3)
        return p3, p4, self.p5(p4)


class Neck(nn.Module):
    """FPN then PAN, joined by addition: Concat is a slow-down in quantised TensorRT graphs."""

    def __init__(self, size: str) -> None:
        super().__init__()
        (_, _, c3, c4, c5), _, width, act = SIZES[size]
        self.lateral = nn.ModuleList([ConvNormAct(c, width, 1, act=act) for c in (c3, c4, c5)])
        self.down = nn.ModuleList([Separable(width, width, 5, 1, act) for _ in range(2)])
        self.shrink = nn.ModuleList([Separable(width, width, 5, 2, act) for _ in range(2)])
        self.up = nn.ModuleList([Separable(width, width, 5, 1, act) for _ in range(2)])

    def forward(self, p3: Tensor, p4: Tensor, p5: Tensor) -> list[Tensor]:
        n3, n4, n5 = (layer(x) for layer, x in zip(self.lateral, (p3, p4, p5), strict=True))
        n4 = self.down[1](n4 + F.interpolate(n5, scale_factor=2.0, mode="nearest"))
        n3 = self.down[0](n3 + F.interpolate(n4, scale_factor=2.0, mode="nearest"))
        n4 = self.up[0](n4 + self.shrink[0](n3))
        n5 = self.up[1](n5 + self.shrink[1](n4))
        return [n3, n4, n5]


class Head(nn.Module):
    """One tower a level, then one 1x1 for boxes and one for scores."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        _, _, width, act = SIZES[settings.size]
        classes = len(settings.channels) + len(settings.group)
        self.tower = nn.ModuleList([self._tower(level, width, act) for level in range(3)])
        self.box = nn.ModuleList([nn.Conv2d(width, 4, 1) for _ in STRIDES])
        self.score = nn.ModuleList([nn.Conv2d(width, classes, 1) for _ in STRIDES])
        self.channels = len(settings.channels)

    @staticmethod
    def _tower(level: int, width: int, act: str) -> nn.Module:
        # Dense 3x3 where the map is small, separable at stride 8 where it is 4 to 16 times larger.
        if level == 0:
            return nn.Sequential(*[Separable(width, width, 5, 1, act) for _ in range(2)])
        return ConvNormAct(width, width, 3, act=act)

    def reset(self) -> None:
        """Scores start at PRIOR, boxes at about three cells."""
        for box, score in zip(self.box, self.score, strict=True):
            nn.init.normal_(cast(Tensor, box.weight), std=0.01)
            nn.init.normal_(cast(Tensor, score.weight), std=0.01)
            nn.init.constant_(cast(Tensor, box.bias), 0.4)
            bias = cast(Tensor, score.bias)
            nn.init.zeros_(bias)
            nn.init.constant_(bias[: self.channels], -math.log(1 / PRIOR - 1))

    def maps(self, levels: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """(B, 4, h, w) log distances and (B, R + K, h, w) logits of every level."""
        features = [tower(x) for tower, x in zip(self.tower, levels, strict=True)]
        boxes = [layer(x) for layer, x in zip(self.box, features, strict=True)]
        scores = [layer(x) for layer, x in zip(self.score, features, strict=True)]
        return boxes, scores

    def forward(self, levels: list[Tensor]) -> tuple[Tensor, Tensor]:
        boxes, scores = self.maps(levels)
        return concatenate(boxes), concatenate(scores)


class Network(nn.Module):
    """images float32 (B, 3, H, W), RGB 0..1 -> boxes (B, A, 4), logits (B, A, R + K).

    boxes are xyxy in network pixels. The first R logits are ranking channels
    (`ModelSettings.channels`), the last K tell the kinds of the group apart.
    """

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.settings = settings
        self.backbone = Backbone(settings.size)
        self.neck = Neck(settings.size)
        self.head = Head(settings)
        init_weights(self)
        self.head.reset()

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        distances, logits = self.head(self.neck(*self.backbone(images)))
        anchors = anchor_points(images.shape[3], images.shape[2], images.device)
        full = torch.get_default_dtype()  # out of autocast
        return decode_boxes(distances.to(full), anchors), logits.to(full)

    def predict(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """images (B, 3, H, W) 0..1 -> boxes (B, A, 4) network pixels, scores (B, A, C)."""
        boxes, logits = self(images)
        return boxes, class_scores(logits, self.settings)


def decode_boxes(distances: Tensor, anchors: Tensor) -> Tensor:
    """(B, A, 4) log distances left, top, right, bottom in cells -> xyxy in network pixels.

    The logarithm makes the error of a box relative to its size. The clamp (e^5 = 148 cells)
    keeps a diverging step finite.
    """
    reach = distances.clamp(-5.0, 5.0).exp() * anchors[:, 2:3]
    points = anchors[:, :2]
    return torch.cat([points - reach[..., :2], points + reach[..., 2:]], dim=-1)


def class_scores(logits: Tensor, settings: ModelSettings) -> Tensor:
    """(B, A, R + K) logits -> (B, A, C) scores 0..1 in the order of `settings.names`.

    Inside the group a class gets the group's score times exp(k - max k): the likeliest kind
    scores exactly what the ranking channel says, so telling kinds apart never costs a detection.
    """
    ranking = len(settings.channels)
    channel = logits[..., :ranking].sigmoid()
    if not settings.group:
        return channel
    kinds = logits[..., ranking:]
    share = (kinds - kinds.amax(dim=-1, keepdim=True)).exp()
    scores = torch.cat([channel[..., :1] * share, channel[..., 1:]], dim=-1)
    have = (*settings.group, *settings.channels[1:])
    if have == settings.names:
        return scores
    return scores[..., [have.index(name) for name in settings.names]]
