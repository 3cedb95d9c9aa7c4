"""Scores of a network on labelled pictures, through the same NumPy post-processing as the nodes."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torch import nn

from perception.contract import ModelContract
from perception.detections import Detections
from perception.geometry.letterbox import Resize
from perception.models.settings import ModelSettings
from perception.runtime.decode import postprocess
from perception.train.cache import PictureCache
from perception.train.distributed import Processes
from perception.train.sets import KIND_UNKNOWN, Picture


@dataclass(frozen=True, slots=True)
class ValSet:
    """A set to score on: name, pictures, and the ranking channels it labels completely."""

    name: str
    pictures: Sequence[Picture]
    cache: PictureCache
    annotated: tuple[str, ...]


def plain_contract(model: ModelSettings, resize: str = "letterbox") -> ModelContract:
    """The contract an export of this network carries."""
    return ModelContract(
        names=model.names,
        width=model.width,
        height=model.height,
        resize=resize,  # type: ignore[arg-type]
        exclusive=model.group,
    )


@torch.no_grad()
def predict(
    network: nn.Module,
    cache: PictureCache,
    contract: ModelContract,
    sizes: Sequence[tuple[int, int]],
    threshold: float = 0.02,
    batch: int = 16,
    processes: Processes = Processes(),  # noqa: B008 - frozen, without state
) -> list[Detections]:
    """Detections of every cached picture, in pixels of pictures of `sizes` (width, height).

    Each process takes every world-th picture; all get the whole list, every picture once.
    """
    network.eval()
    mine = range(processes.rank, len(cache), processes.world)
    rows = [np.zeros((0, 7), np.float32)]
    for start in range(0, len(mine), batch):
        chosen = mine[start : start + batch]
        found = _predict_batch(network, [cache[i] for i in chosen], contract, threshold)
        for i, result in zip(chosen, found, strict=True):
            scale = np.array(sizes[i], np.float32) / np.array(cache[i].shape[1::-1], np.float32)
            head = np.full((len(result), 1), i, np.float32)
            columns = (
                head,
                result.boxes * np.tile(scale, 2),
                result.scores[:, None],
                result.labels[:, None],
            )
            rows.append(np.concatenate(columns, axis=1).astype(np.float32))
    table = processes.gather(torch.from_numpy(np.concatenate(rows))).numpy()
    own = [table[table[:, 0] == i] for i in range(len(cache))]
    return [Detections.create(t[:, 1:5], t[:, 5], t[:, 6].astype(np.int64)) for t in own]


def _predict_batch(
    network: nn.Module, images: Sequence[np.ndarray], contract: ModelContract, threshold: float
) -> list[Detections]:
    """Detections of a few RGB pictures, in their own pixels."""
    target = (contract.width, contract.height)
    plans = [
        Resize.plan((image.shape[1], image.shape[0]), target, contract.resize) for image in images
    ]
    fitted = [
        plan.apply(image, contract.pad_value) for plan, image in zip(plans, images, strict=True)
    ]
    device = next(network.parameters()).device
    pixels = torch.from_numpy(np.stack(fitted)).to(device).permute(0, 3, 1, 2)
    tensor = pixels.to(torch.get_default_dtype()).div_(255)
    boxes, scores = cast(Any, network).predict(tensor)
    outputs = {"boxes": boxes.cpu().numpy(), "scores": scores.cpu().numpy()}
    return postprocess(outputs, contract, plans, score_threshold=threshold)


def channel_ap(
    pictures: Sequence[Picture],
    found: Sequence[Detections],
    model: ModelSettings,
    channel: str,
    neutral: Sequence[str] = (),
) -> tuple[float, float]:
    """COCO AP50 and AP50..95 of one ranking channel, kinds not told apart.

    Objects of the `neutral` classes and ignore regions are neither found nor missed.
    """
    inside = {
        i
        for i, n in enumerate(model.names)
        if n == channel or (channel == model.group_name and n in model.group)
    }
    passive = {model.names.index(name) for name in neutral}
    truth, rows = [], []
    index = model.channels.index(channel)
    for image, (picture, result) in enumerate(zip(pictures, found, strict=True), 1):
        for box, label in zip(picture.boxes, picture.labels, strict=True):
            if label in inside or (label == KIND_UNKNOWN and channel == model.group_name):
                truth.append((image, box, int(label in passive)))
        for region in picture.regions:
            if region[4] == index and np.isinf(region[5]):
                truth.append((image, region[:4], 1))
        for box, score, label in zip(result.boxes, result.scores, result.labels, strict=True):
            if label in inside:
                rows.append((image, box, float(score)))
    return coco_ap(len(pictures), truth, rows)


def coco_ap(
    count: int,
    truth: Sequence[tuple[int, np.ndarray, int]],
    rows: Sequence[tuple[int, np.ndarray, float]],
) -> tuple[float, float]:
    """(AP50, AP50..95) of one class; NaN without truth. Images are numbered from 1."""
    if not any(not crowd for _, _, crowd in truth):
        return float("nan"), float("nan")
    xywh = lambda b: [float(b[0]), float(b[1]), float(b[2] - b[0]), float(b[3] - b[1])]  # noqa: E731
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = {
            "images": [{"id": i} for i in range(1, count + 1)],
            "categories": [{"id": 1}],
            "annotations": [
                {
                    "id": i,
                    "image_id": image,
                    "category_id": 1,
                    "bbox": xywh(b),
                    "iscrowd": crowd,
                    "area": float((b[2] - b[0]) * (b[3] - b[1])),
                }
                for i, (image, b, crowd) in enumerate(truth, 1)
            ],
        }
        coco.createIndex()
        if not rows:
            return 0.0, 0.0
        results = coco.loadRes(
            [
                {"image_id": image, "category_id": 1, "bbox": xywh(b), "score": s}
                for image, b, s in rows
            ]
        )
        scorer = COCOeval(coco, results, "bbox")
        scorer.evaluate()
        scorer.accumulate()
        scorer.summarize()
    return float(scorer.stats[1]), float(scorer.stats[0])


def overall(scores: Mapping[str, float], model: ModelSettings) -> float:
    """Mean of the channels' means; NaN where none was measured.

    A channel without a validation set that labels it does not count.
    """
    means = [scores.get(f"{channel}/mean", float("nan")) for channel in model.channels]
    measured = [mean for mean in means if np.isfinite(mean)]
    return float(np.mean(measured)) if measured else float("nan")


def validate(
    network: nn.Module,
    model: ModelSettings,
    sets: Sequence[ValSet],
    contract: ModelContract | None = None,
    neutral: Sequence[str] = ("three_wheeler",),
    threshold: float = 0.02,
    processes: Processes = Processes(),  # noqa: B008 - frozen, without state
) -> dict[str, float]:
    """AP50 of every ranking channel on every set that labels it, pooled over those sets, and of
    every class; keys like "vehicle/dhaka" and "vehicle/pooled"."""
    contract = contract or plain_contract(model)
    everything = [
        (
            s,
            predict(
                network,
                s.cache,
                contract,
                [(p.width, p.height) for p in s.pictures],
                threshold,
                processes=processes,
            ),
        )
        for s in sets
    ]
    scores: dict[str, float] = {}
    for channel in model.channels:
        with_channel = [(s, f) for s, f in everything if channel in s.annotated]
        passive = [name for name in neutral if name in model.names and channel == model.group_name]
        for one, found in with_channel:
            scores[f"{channel}/{one.name}"], scores[f"{channel}/{one.name}/95"] = channel_ap(
                one.pictures, found, model, channel, passive
            )
        if with_channel:
            pictures = [p for s, _ in with_channel for p in s.pictures]
            found = [d for _, f in with_channel for d in f]
            scores[f"{channel}/pooled"], scores[f"{channel}/pooled/95"] = channel_ap(
                pictures, found, model, channel, passive
            )
            measured = [scores[f"{channel}/{s.name}"] for s, _ in with_channel]
            measured = [score for score in measured if np.isfinite(score)]
            scores[f"{channel}/mean"] = float(np.mean(measured or [np.nan]))
    return scores
