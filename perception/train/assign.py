"""Task-aligned assignment of anchors to objects, for a whole batch at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from perception.train import ranges
from perception.train.loader import Batch


@dataclass(frozen=True)
class AssignSettings:
    """Task-aligned learning (Feng et al. 2021, TOOD): alignment = score^alpha * IoU^beta.

    floor: sides shorter than this many pixels are enlarged to it when candidates are chosen;
        without it an object smaller than a cell may contain no anchor at all.
    """

    top_k: int = 10
    alpha: float = 0.5
    beta: float = 6.0
    floor: float = 12.0

    def __post_init__(self) -> None:
        ranges.at_least(self, 1, "top_k")
        ranges.at_least(self, 0, "alpha", "beta", "floor")


@dataclass(slots=True, eq=False)
class Assignment:
    """Positive anchors: image (P,), anchor (P,), object (P,) as indices; quality (P,) 0..1."""

    image: Tensor
    anchor: Tensor
    target: Tensor
    quality: Tensor


def pair_iou(a: Tensor, b: Tensor) -> Tensor:
    """IoU of boxes (..., 4) xyxy, broadcast."""
    side = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(
        min=0
    )
    inter = side[..., 0] * side[..., 1]
    area_a = (a[..., 2] - a[..., 0]) * (a[..., 3] - a[..., 1])
    area_b = (b[..., 2] - b[..., 0]) * (b[..., 3] - b[..., 1])
    return inter / (area_a + area_b - inter).clamp(min=1e-6)


@torch.no_grad()
def assign(
    boxes: Tensor,
    scores: Tensor,
    anchors: Tensor,
    batch: Batch,
    channel: Tensor,
    settings: AssignSettings,
) -> Assignment:
    """Chooses the anchors that learn each object.

    boxes (B, A, 4), scores (B, A, R) 0..1, anchors (A, 3); channel (G,): ranking channel of each
    object. An anchor wanted by several objects goes to the one it overlaps most.
    """
    count, owner = len(batch.boxes), batch.owner
    if count == 0:
        empty = boxes.new_zeros(0, dtype=torch.long)
        return Assignment(empty, empty, empty, boxes.new_zeros(0))
    truth = batch.boxes
    iou = pair_iou(boxes[owner], truth[:, None])  # (G, A)
    score = scores[owner, :, channel]
    align = score.pow(settings.alpha) * iou.pow(settings.beta)
    centre = (truth[:, :2] + truth[:, 2:]) / 2
    half = ((truth[:, 2:] - truth[:, :2]) / 2).clamp(min=settings.floor / 2)
    offset = (anchors[None, :, :2] - centre[:, None]).abs()
    inside = (offset < half[:, None]).all(dim=-1)
    align = align * inside
    top = align.topk(min(settings.top_k, align.shape[1]), dim=1)
    chosen = torch.zeros_like(inside).scatter_(1, top.indices, top.values > 1e-9)
    rows, columns = _settle(chosen, iou, owner, boxes.shape[0])
    own_align, own_iou = align[rows, columns], iou[rows, columns]
    # Scale so that the best anchor of an object is asked for a score equal to its best IoU.
    best_align = boxes.new_zeros(count).scatter_reduce_(0, rows, own_align, "amax")
    best_iou = boxes.new_zeros(count).scatter_reduce_(0, rows, own_iou, "amax")
    quality = own_align / best_align[rows].clamp(min=1e-12) * best_iou[rows]
    return Assignment(owner[rows], columns, rows, quality)


def _settle(chosen: Tensor, iou: Tensor, owner: Tensor, images: int) -> tuple[Tensor, Tensor]:
    """Leaves every anchor of an image to one object: the one with the largest IoU."""
    rows, columns = chosen.nonzero(as_tuple=True)
    place = owner[rows] * chosen.shape[1] + columns
    overlap = iou[rows, columns]
    best = iou.new_full((images * chosen.shape[1],), -1.0).scatter_reduce_(
        0, place, overlap, "amax"
    )
    keep = overlap >= best[place]
    rows, columns, place = rows[keep], columns[keep], place[keep]
    # Equal IoU (two equal boxes): the first object wins.
    first = rows.new_full((images * chosen.shape[1],), chosen.shape[0]).scatter_reduce_(
        0, place, rows, "amin"
    )
    single = rows == first[place]
    return rows[single], columns[single]
