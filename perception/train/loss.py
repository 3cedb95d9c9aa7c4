"""Quality-focal, GIoU and kind losses with partial labels and ignore regions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from perception.models.network import anchor_points
from perception.models.settings import ModelSettings
from perception.train import ranges
from perception.train.assign import Assignment, AssignSettings, assign
from perception.train.loader import Batch
from perception.train.sets import ALL_CHANNELS, KIND_UNKNOWN, channel_of


@dataclass(frozen=True)
class LossSettings:
    """Weights of the parts: ranking scores, GIoU, box sides relative to the object, kinds."""

    score: float = 1.0
    giou: float = 2.0
    side: float = 0.5
    kind: float = 0.5

    def __post_init__(self) -> None:
        ranges.at_least(self, 0, "score", "giou", "side", "kind")


class DetectionLoss:
    """Callable: network outputs and a batch -> dict of scalar losses ("total" is their sum)."""

    def __init__(self, model: ModelSettings, loss: LossSettings, assigner: AssignSettings) -> None:
        self._loss, self._assigner = loss, assigner
        self._ranking = len(model.channels)
        # The last entry serves KIND_UNKNOWN = -1.
        labels = [*range(len(model.names)), KIND_UNKNOWN]
        self._channel = torch.tensor([channel_of(model, label) for label in labels])
        self._kind = torch.tensor(
            [model.group.index(name) if name in model.group else -1 for name in model.names] + [-1]
        )

    def __call__(self, boxes: Tensor, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        if self._channel.device != boxes.device:
            self._channel, self._kind = self._channel.to(boxes.device), self._kind.to(boxes.device)
        height, width = batch.images.shape[2:]
        anchors = anchor_points(width, height, boxes.device)
        ranking = logits[..., : self._ranking]
        found = assign(
            boxes.detach(),
            ranking.detach().sigmoid(),
            anchors,
            batch,
            self._channel[batch.labels],
            self._assigner,
        )
        channel = self._channel[batch.labels[found.target]]
        target = torch.zeros_like(ranking)
        target[found.image, found.anchor, channel] = found.quality
        weight = self._negative_weight(boxes.detach(), anchors, batch)
        weight[found.image, found.anchor, channel] = 1.0
        total = _over_processes(found.quality.sum())
        score = quality_focal(ranking, target) * weight
        parts = {"score": self._loss.score * score.sum() / total}
        parts.update(self._positive(boxes, logits, batch, found, anchors, total))
        parts["total"] = torch.stack(list(parts.values())).sum()
        return parts

    def _negative_weight(self, boxes: Tensor, anchors: Tensor, batch: Batch) -> Tensor:
        """(B, A, R): 0 where a prediction must not be punished, else 1."""
        shape = (boxes.shape[0], boxes.shape[1], self._ranking)
        free = boxes.new_zeros(shape, dtype=torch.bool)
        regions, owner = batch.regions, batch.region_owner
        if len(regions):
            own = boxes[owner]  # (K, A, 4)
            area = (own[..., 2] - own[..., 0]) * (own[..., 3] - own[..., 1])
            centre = anchors[None, :, :2]
            inside = ((centre >= regions[:, None, :2]) & (centre <= regions[:, None, 2:4])).all(-1)
            side = (
                torch.minimum(own[..., 2:], regions[:, None, 2:4])
                - torch.maximum(own[..., :2], regions[:, None, :2])
            ).clamp(min=0)
            covered = side[..., 0] * side[..., 1] > 0.5 * area
            hit = (inside | covered) & (area <= regions[:, 5:6])
            rows, columns = hit.nonzero(as_tuple=True)
            channel = regions[rows, 4].long()
            one, every = channel != ALL_CHANNELS, channel == ALL_CHANNELS
            free[owner[rows[one]], columns[one], channel[one]] = True
            free[owner[rows[every]], columns[every]] = True
        return (~free).to(boxes.dtype)

    def _positive(
        self,
        boxes: Tensor,
        logits: Tensor,
        batch: Batch,
        found: Assignment,
        anchors: Tensor,
        total: Tensor,
    ) -> dict[str, Tensor]:
        """Box and kind losses, averaged over the matched anchors; exactly 0 without any."""
        own = boxes[found.image, found.anchor]
        truth = batch.boxes[found.target]
        giou = ((1 - generalised_iou(own, truth)) * found.quality).sum() / total
        parts = {"giou": self._loss.giou * giou}
        # Sides relative to the object's size: large and small boxes pull alike.
        size = (truth[:, 2:] - truth[:, :2]).repeat(1, 2).clamp(min=1.0)
        side = F.smooth_l1_loss(own / size, truth / size, reduction="none", beta=0.1).mean(dim=1)
        parts["side"] = self._loss.side * (side * found.quality).sum() / total
        kind = self._kind[batch.labels[found.target]]
        known = kind >= 0
        if logits.shape[-1] > self._ranking:
            chosen = logits[found.image[known], found.anchor[known], self._ranking :]
            entropy = F.cross_entropy(chosen, kind[known], reduction="none")
            parts["kind"] = self._loss.kind * (entropy * found.quality[known]).sum() / total
        return parts


def quality_focal(logits: Tensor, target: Tensor) -> Tensor:
    """Quality focal loss, beta 2 (Li et al. 2020, equation 5), not reduced."""
    score = logits.detach().sigmoid()
    entropy = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    return entropy * (target - score).square()


def generalised_iou(a: Tensor, b: Tensor) -> Tensor:
    """GIoU of paired boxes (N, 4) xyxy -> (N,) (Rezatofighi et al. 2019)."""
    side = (torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])).clamp(min=0)
    inter = side.prod(dim=1)
    union = (a[:, 2:] - a[:, :2]).prod(dim=1) + (b[:, 2:] - b[:, :2]).prod(dim=1) - inter
    hull = (torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])).prod(dim=1)
    return inter / union.clamp(min=1e-6) - (hull - union) / hull.clamp(min=1e-6)


def _over_processes(amount: Tensor) -> Tensor:
    """A sum over all processes, at least 1, per process: averaged gradients equal one's."""
    if dist.is_available() and dist.is_initialized():
        amount = amount.clone()
        dist.all_reduce(amount)
        return amount.clamp(min=1.0) / dist.get_world_size()
    return amount.clamp(min=1.0)
