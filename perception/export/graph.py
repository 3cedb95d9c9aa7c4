"""The exported module: a trained network with its decoding, for one input size."""

from __future__ import annotations

import copy
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from perception.export.settings import Form
from perception.models.blocks import ConvNormAct
from perception.models.network import STRIDES, Network, anchor_points, class_scores, decode_boxes


def fuse(network: nn.Module) -> nn.Module:
    """A copy in which every batch norm is folded into the convolution before it."""
    network = copy.deepcopy(network).eval()
    for module in network.modules():
        if isinstance(module, ConvNormAct):
            module[0] = fuse_conv_bn_eval(
                cast(nn.Conv2d, module[0]), cast(nn.BatchNorm2d, module[1])
            )
            module[1] = nn.Identity()
    return network


class Exported(nn.Module):
    """images (B, 3, height, width) -> the outputs of a form (see `runtime.decode`).

    Anchors are constants of the input size: no shape arithmetic is left in the graph.
    """

    def __init__(self, network: Network, form: Form, width: int, height: int, rows: int) -> None:
        super().__init__()
        self.network = cast(Network, fuse(network))
        self.form, self.rows = form, rows
        self.register_buffer("anchors", anchor_points(width, height))
        self.grid = [(height // stride, width // stride) for stride in STRIDES]

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs, in order."""
        return {
            "decoded": ["boxes", "scores"],
            "raw": [f"level_{stride}" for stride in STRIDES],
            "e2e": ["detections"],
        }[self.form]

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        net = self.network
        distances, logits = (
            torch.cat(
                [self._rows(x, h * w) for x, (h, w) in zip(maps, self.grid, strict=True)], dim=1
            )
            for maps in net.head.maps(net.neck(*net.backbone(images)))
        )
        scores = class_scores(logits, net.settings)
        if self.form == "raw":
            return self._levels(distances, scores)
        boxes = decode_boxes(distances, cast(Tensor, self.anchors))
        if self.form == "decoded":
            return boxes, scores
        best, label = scores.max(dim=2)
        top, index = best.topk(min(self.rows, boxes.shape[1]), dim=1)
        chosen = boxes.gather(1, index[..., None].expand(-1, -1, 4))
        return (
            torch.cat([chosen, top[..., None], label.gather(1, index)[..., None].float()], dim=2),
        )

    @staticmethod
    def _rows(level: Tensor, cells: int) -> Tensor:
        """(B, C, h, w) -> (B, h * w, C) with constants only, so that no Shape nodes are traced."""
        return level.reshape(-1, int(level.shape[1]), cells).transpose(1, 2)

    def _levels(self, distances: Tensor, scores: Tensor) -> tuple[Tensor, ...]:
        """Distances in cells and class log-odds, one map a level."""
        # The clamp keeps log-odds finite; at 1e-7 it is beyond any threshold.
        p = scores.clamp(1e-7, 1 - 1e-7)
        rows = torch.cat([distances.clamp(-5.0, 5.0).exp(), (p / (1 - p)).log()], dim=2)
        parts = rows.split([h * w for h, w in self.grid], dim=1)
        return tuple(
            part.transpose(1, 2).reshape(-1, int(rows.shape[2]), h, w)
            for part, (h, w) in zip(parts, self.grid, strict=True)
        )


class ExportedAdapter(nn.Module):
    """One of torchvision's detectors with outputs of a fixed size; one picture a call."""

    output_names = ["boxes", "scores"]

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).eval()

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        boxes, scores = cast(Network, self.network).predict(images)
        return boxes, scores
