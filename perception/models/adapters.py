"""torchvision's detectors behind the same training and export as the Waysight family.

Faster R-CNN, RetinaNet, FCOS and SSDLite with random weights (nothing is downloaded). They have no
second head and no ignore regions: objects of unknown kind are left out of their targets, and what
a set did not annotate counts as background.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torchvision.models import detection

from perception.models.settings import ModelSettings

#: ModelSettings.size -> builder. Each normalises and decodes by itself.
BUILDERS: dict[str, Callable[..., nn.Module]] = {
    "fasterrcnn": detection.fasterrcnn_mobilenet_v3_large_fpn,
    "fasterrcnn_resnet50": detection.fasterrcnn_resnet50_fpn_v2,
    "retinanet": detection.retinanet_resnet50_fpn_v2,
    "fcos": detection.fcos_resnet50_fpn,
    "ssdlite": detection.ssdlite320_mobilenet_v3_large,
}
#: Rows of the fixed-size output; unused rows are zero.
ROWS = 100


class TorchvisionDetector(nn.Module):
    """Same interface as `Network`: `losses` to train, `predict` for boxes and scores."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.settings = settings
        size = (settings.height, settings.width)
        # One class more: these models count background as class 0.
        options: dict[str, Any] = {
            "weights": None,
            "weights_backbone": None,
            "num_classes": len(settings.names) + 1,
            "image_mean": [0.0] * 3,
            "image_std": [1.0] * 3,
            "detections_per_img": ROWS,
        }
        if settings.size.startswith("fasterrcnn"):
            options["box_detections_per_img"] = options.pop("detections_per_img")
        if settings.size != "ssdlite":
            # Pictures arrive at the input size; the model must not resize them again.
            options |= {"min_size": min(size), "max_size": max(size)}
        self.model = BUILDERS[settings.size](**options)
        if settings.size == "ssdlite":
            cast(Any, self.model).transform.fixed_size = (settings.width, settings.height)

    def losses(
        self, images: Tensor, boxes: Tensor, labels: Tensor, owner: Tensor
    ) -> dict[str, Tensor]:
        """The model's own losses and their sum, "total".

        boxes (G, 4), labels (G,) indices into names or -1, owner (G,) position in the batch.
        """
        known = labels >= 0
        targets = [
            {"boxes": boxes[known & (owner == i)], "labels": labels[known & (owner == i)] + 1}
            for i in range(len(images))
        ]
        parts = dict(self.model(list(images), targets))
        parts["total"] = torch.stack(list(parts.values())).sum()
        return parts

    def predict(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """images (B, 3, H, W) 0..1 -> boxes (B, ROWS, 4) network pixels, scores (B, ROWS, C)."""
        found = self.model(list(images))
        rows = [self._rows(one["boxes"], one["scores"], one["labels"]) for one in found]
        return torch.stack([boxes for boxes, _ in rows]), torch.stack(
            [scores for _, scores in rows]
        )

    def _rows(self, boxes: Tensor, scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Pads to ROWS, so that the output's shape does not depend on the picture."""
        count = len(self.settings.names)
        columns = torch.arange(1, count + 1, device=boxes.device)
        wide = (labels[:, None] == columns[None]).to(scores.dtype) * scores[:, None]
        return (
            torch.cat([boxes, boxes.new_zeros(ROWS, 4)])[:ROWS],
            torch.cat([wide, wide.new_zeros(ROWS, count)])[:ROWS],
        )
