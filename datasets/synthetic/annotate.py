"""Exact boxes from what the renderer saw, and the COCO file they go into. No Blender here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from perception.datasets.synthetic.scene import Actor, Camera

NEAR = 0.05
"""Faces with a corner nearer than this many metres to the image plane are not projected."""

MIN_VISIBLE = 0.15
"""Below this visible fraction an object is marked as a crowd, which neither helps nor harms."""

MIN_SIDE = 4
"""So is one whose box is narrower or lower than this many pixels."""


@dataclass(frozen=True)
class Rules:
    """When an object that can be seen is still not asked for."""

    min_visible: float = MIN_VISIBLE
    min_side: int = MIN_SIDE


@dataclass(frozen=True)
class Annotation:
    """One object as the camera saw it.

    `bbox` [left, top, width, height] in pixels bounds the visible pixels; `occlusion` is the share
    of its silhouette inside the frame hidden behind others; `truncation` the share of the whole
    silhouette outside the frame; `visible` what is left of the whole, 0..1. `distance` in metres
    from the camera to the object's nearest point, along the optical axis laid flat on the ground.
    """

    category: str
    track_id: int
    bbox: tuple[int, int, int, int]
    area: int
    visible: float
    occlusion: float
    truncation: float
    distance: float
    ignore: bool


def silhouette(actor: Actor, camera: Camera) -> npt.NDArray[np.bool_]:
    """What the actor covers if nothing stands before it, on a canvas of three frames by three.

    The frame is the middle ninth. What lies farther out than one frame is cut off, so that the
    truncation of an object that fills the view many times over is a lower bound.
    """
    position, depth = camera.project(actor.points)
    w, h = camera.width, camera.height
    canvas = np.zeros((3 * h, 3 * w), np.uint8)
    usable = depth > NEAR
    # cv2 takes fixed-point positions; four fractional bits are a sixteenth of a pixel. The half
    # pixel puts our corner origin on its pixel-centre grid.
    limit = 2.0**20
    fixed = np.clip((position + np.array([w, h]) - 0.5) * 16, -limit, limit).astype(np.int32)
    for faces in actor.mesh.faces_by_size():
        for polygon in fixed[faces[usable[faces].all(axis=1)]]:
            cv2.fillConvexPoly(canvas, polygon, 1, lineType=cv2.LINE_8, shift=4)
    return canvas.astype(bool)


def annotate(
    index: npt.NDArray[np.int32], actors: Sequence[Actor], camera: Camera, rules: Rules
) -> list[Annotation]:
    """The visible actors, nearest first; `index` (H,W) has each pixel's `track_id`, 0 for none."""
    w, h = camera.width, camera.height
    found = []
    for actor in actors:
        rows, columns = np.nonzero(index == actor.track_id)
        if len(rows) == 0:
            continue
        left, top = int(columns.min()), int(rows.min())
        box = (left, top, int(columns.max()) + 1 - left, int(rows.max()) + 1 - top)
        whole = silhouette(actor, camera)
        inside = int(whole[h : 2 * h, w : 2 * w].sum())
        seen = len(rows)
        # The renderer samples pixels, the silhouette fills polygons: they differ by edge pixels.
        inside, total = max(inside, seen), max(int(whole.sum()), inside, seen)
        visible = seen / total
        points = actor.points
        ahead = camera.ground_distance(points)
        found.append(
            Annotation(
                category=actor.category,
                track_id=actor.track_id,
                bbox=box,
                area=seen,
                visible=round(visible, 3),
                occlusion=round(1 - seen / inside, 3),
                truncation=round(1 - inside / total, 3),
                distance=round(max(0.0, float(ahead.min())), 2),
                ignore=visible < rules.min_visible or min(box[2], box[3]) < rules.min_side,
            )
        )
    return sorted(found, key=lambda a: a.distance)


#: Vehicles whose rider is in the open: belongs to the object, and is a person all the same.
RIDDEN = ("motorcycle", "bicycle")


def _rider(ridden: dict[str, Any], number: int, category: dict[str, int]) -> dict[str, Any]:
    """A crowd of persons on a two-wheeler: whoever finds a person there is not wrong."""
    return {
        "id": number,
        "image_id": ridden["image_id"],
        "category_id": category["person"],
        "category": "person",
        "bbox": ridden["bbox"],
        "area": ridden["area"],
        "iscrowd": 1,
        "ignore": 1,
    }


@dataclass(frozen=True)
class Shot:
    """One picture of a data set: its file, its keys and what is in it."""

    file_name: str
    width: int
    height: int
    annotations: tuple[Annotation, ...]
    keys: dict[str, Any]


def coco(shots: Iterable[Shot], names: Sequence[str], info: dict[str, Any]) -> dict[str, Any]:
    """The COCO document; picture and category ids count from 1."""
    category = {name: i + 1 for i, name in enumerate(names)}
    images, annotations = [], []
    for number, shot in enumerate(shots, start=1):
        images.append(
            {"id": number, "file_name": shot.file_name, "width": shot.width,
             "height": shot.height, **shot.keys}
        )  # fmt: skip
        for a in shot.annotations:
            annotations.append({
                "id": len(annotations) + 1,
                "image_id": number,
                "category_id": category[a.category],
                "category": a.category,
                "bbox": list(a.bbox),
                "area": a.area,
                "iscrowd": int(a.ignore),
                "ignore": int(a.ignore),
                "track_id": a.track_id,
                "distance": a.distance,
                "visible_fraction": a.visible,
                "occlusion": a.occlusion,
                "truncation": a.truncation,
            })  # fmt: skip
            if a.category in RIDDEN:
                annotations.append(_rider(annotations[-1], len(annotations) + 1, category))
    categories = [{"id": i, "name": name} for name, i in category.items()]
    return {"info": info, "images": images, "annotations": annotations, "categories": categories}
