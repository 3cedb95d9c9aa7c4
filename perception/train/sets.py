"""Labelled sets in COCO json, with what each of them did and did not annotate."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perception.errors import InputError
from perception.geometry.boxes import iof_matrix, iou_matrix
from perception.models.settings import ModelSettings

#: Target of a class that is neither taught nor punished.
IGNORE = "ignore"
#: Target of a class that is none of the model's: what it covers is background.
BACKGROUND = "background"
#: Label of an object of the group whose kind is not known.
KIND_UNKNOWN = -1
#: Label of an object that is neither taught nor punished.
NEUTRAL = -2
#: Label of an object of the background.
OTHER = -3
#: Share of a teacher's find inside a vehicle's label from which it may be a rider or driver.
ABOARD = 0.6
#: Problems of a set that an error lists.
SHOWN = 20
#: Label, box (xyxy), and whether the box covers a group.
Row = tuple[int, list[float], bool]
ANY_SIZE = np.inf


@dataclass(frozen=True)
class SetSettings:
    """One set.

    annotations: COCO json, pictures looked up beside it; or `FORMAT:path` or a folder of another
        format that `perception.datasets` reads (`yolo:labels`).
    classes: the set's class name -> one of the model's names, the group's name (kind unknown), or
        "ignore" (neither taught nor punished) or "background" (nothing to find there). A class
        that is one of the model's names needs no entry; any other is an error.
    annotated: ranking channels of which the set labels every object. Only these give negatives.
    weight: how often its pictures are drawn, relative to one picture of another set.
    unlabelled_below_area: share of the picture below which objects may be unlabelled; -1 takes
        the figure from the file's `info`.
    skip_empty: leave out pictures without a box (sets where that means "nobody labelled it").
    filled: json {"pictures": {image id: [[x1, y1, x2, y2, score, name index], ...]}} of a
        teacher that fills missing labels (`perception.train.teacher`).
    fill_above: {channel: score} from which a teacher's detection becomes a label. Weaker ones are
        ignored. With a teacher such a channel counts as annotated.
    """

    annotations: str
    classes: Mapping[str, str] = field(default_factory=dict)
    annotated: tuple[str, ...] = ()
    weight: float = 1.0
    unlabelled_below_area: float = -1.0
    skip_empty: bool = False
    filled: str = ""
    fill_above: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """One labelled picture.

    boxes: float32 (N, 4), xyxy, pixels of the picture.
    labels: int64 (N,), index into the model's names, or KIND_UNKNOWN.
    regions: float32 (K, 6): x1, y1, x2, y2, ranking channel, largest area in square pixels.
        Inside a region a prediction of that channel up to that area is not punished.
    """

    file: Path
    width: int
    height: int
    boxes: NDArray[np.float32]
    labels: NDArray[np.int64]
    regions: NDArray[np.float32]
    draw: float = 1.0


def read_set(settings: SetSettings, model: ModelSettings, root: Path) -> list[Picture]:
    """All pictures of a set: COCO json, or any other format that `perception.datasets` reads.

    InputError lists, with the file, every annotation that cannot be taught: an unknown class or
    picture, a box without width or height or with swapped corners.
    """
    if not settings.annotations.endswith(".json"):
        # Imported here: these readers need more packages than COCO json does.
        from perception.train.formats import read_dataset

        return read_dataset(settings, model, root)
    path = root / settings.annotations
    data = _read_json(path)
    targets = {
        category["id"]: class_target(category["name"], str(path), settings, model)
        for category in data["categories"]
    }
    images = {image["id"]: image for image in data["images"]}
    rows: dict[Any, list[Row]] = {key: [] for key in images}
    problems = []
    for position, annotation in enumerate(data["annotations"]):
        problem = _problem(annotation, images, targets)
        if problem:
            name = f"annotation id {annotation.get('id', f'at position {position}')}"
            problems.append(f"{name}: {problem}")
        else:
            rows[annotation["image_id"]].append(_row(annotation, targets))
    for image in images.values():
        file = path.parent / image["file_name"]
        if not file.is_file():
            problems.append(f"image id {image['id']}: no such picture {file}")
    if problems:
        raise InputError(f"{path}: {join_problems(problems)}")
    filled = _read_json(root / settings.filled)["pictures"] if settings.filled else {}
    below = settings.unlabelled_below_area
    if below < 0:
        below = float(data.get("info", {}).get("unlabelled_below_area", 0.0))
    return [
        make_picture(
            path.parent / image["file_name"],
            int(image["width"]),
            int(image["height"]),
            rows[key],
            settings,
            model,
            below,
            filled.get(str(key), []),
        )
        for key, image in images.items()
        if rows[key] or not settings.skip_empty
    ]


def _row(annotation: Any, targets: Mapping[int, int]) -> Row:
    x, y, w, h = annotation["bbox"]
    crowd = bool(annotation.get("iscrowd", 0))
    return targets[annotation["category_id"]], [x, y, x + w, y + h], crowd


def join_problems(problems: Sequence[str]) -> str:
    """The first SHOWN problems, and how many more there are."""
    more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
    return "; ".join(problems[:SHOWN]) + more


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}: not JSON ({error.msg})") from None


def class_target(name: str, where: str, settings: SetSettings, model: ModelSettings) -> int:
    """A set's class -> index into the model's names, KIND_UNKNOWN, NEUTRAL or OTHER."""
    special = {IGNORE: NEUTRAL, BACKGROUND: OTHER}
    if model.group:
        special[model.group_name] = KIND_UNKNOWN
    target = settings.classes.get(name, name)
    if target in model.names:
        return model.names.index(target)
    if target in special:
        return special[target]
    raise InputError(
        f"{where}: class {name!r} has no target; name one of "
        f"{', '.join((*model.names, *special))} for it under `classes`"
    )


def _problem(annotation: Any, images: Mapping[Any, Any], targets: Mapping[int, int]) -> str:
    """What makes an annotation unusable, or ''."""
    if annotation.get("image_id") not in images:
        return f"image id {annotation.get('image_id')} is not in the file"
    if annotation.get("category_id") not in targets:
        allowed = sorted(targets)
        return f"class id {annotation.get('category_id')} is outside {allowed[0]}..{allowed[-1]}"
    box = annotation.get("bbox")
    if not (isinstance(box, list) and len(box) == 4 and np.isfinite(np.asarray(box, float)).all()):
        return f"bbox {box} is not four finite numbers"
    if box[2] <= 0 or box[3] <= 0:
        return f"bbox {box} has no width or height (x, y, width, height)"
    return ""


def make_picture(
    file: Path,
    width: int,
    height: int,
    rows: Sequence[Row],
    settings: SetSettings,
    model: ModelSettings,
    below: float,
    filled: list[list[float]],
) -> Picture:
    """A picture from its labels, with regions for what the set did not annotate.

    below: share of the picture below which objects may be unlabelled. filled: a teacher's finds.
    """
    whole = [0.0, 0.0, float(width), float(height)]
    channels = model.channels
    regions: list[list[float]] = []
    for index, channel in enumerate(channels):
        if channel not in settings.annotated:
            regions.append([*whole, index, ANY_SIZE])
        elif below > 0:
            regions.append([*whole, index, below * width * height])
    boxes, labels = [], []
    for target, box, crowd in rows:
        if target == OTHER:
            continue
        box = [min(max(v, 0.0), whole[2 + i % 2]) for i, v in enumerate(box)]
        if box[2] - box[0] < 1 or box[3] - box[1] < 1:
            continue
        if target == NEUTRAL:
            regions += [[*box, index, ANY_SIZE] for index in range(len(channels))]
        elif crowd:
            # As in COCO: a crowd of one class says nothing of the others.
            regions.append([*box, channel_of(model, target), ANY_SIZE])
        else:
            boxes.append(box)
            labels.append(target)
    kept_boxes = np.array(boxes, np.float32).reshape(-1, 4)
    kept_labels = np.array(labels, np.int64)
    first = _first_of_duplicates(kept_boxes, kept_labels)
    kept_boxes, kept_labels = kept_boxes[first], kept_labels[first]
    kept_boxes, kept_labels, more = _fill(kept_boxes, kept_labels, filled, settings, model)
    return Picture(
        file,
        width,
        height,
        kept_boxes,
        kept_labels,
        np.array(regions + more, np.float32).reshape(-1, 6),
    )


def _first_of_duplicates(
    boxes: NDArray[np.float32], labels: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Marks boxes that no earlier box of the same class covers with IoU > 0.9."""
    same = (iou_matrix(boxes, boxes) > 0.9) & (labels[:, None] == labels[None])
    return ~np.triu(same, 1).any(axis=0)


def channel_of(model: ModelSettings, label: int) -> int:
    """The ranking channel of an index into names or KIND_UNKNOWN."""
    if label == KIND_UNKNOWN or model.names[label] in model.group:
        return 0
    return model.channels.index(model.names[label])


def _fill(
    boxes: NDArray[np.float32],
    labels: NDArray[np.int64],
    filled: list[list[float]],
    settings: SetSettings,
    model: ModelSettings,
) -> tuple[NDArray[np.float32], NDArray[np.int64], list[list[float]]]:
    """Adds a teacher's detections ([x1, y1, x2, y2, score, name index]) where no label is.

    Strong ones become labels, weak ones ignore regions; on a label of unknown kind a strong one
    names the kind. Who may sit in or on a labelled vehicle is neither taught nor punished: sets do
    not agree on whether riders are persons.
    """
    if not filled:
        return boxes, labels, []
    labels = labels.copy()
    found = np.array(filled, np.float32).reshape(-1, 6)
    kinds = found[:, 5].astype(np.int64)
    overlap, inside = iou_matrix(found[:, :4], boxes), iof_matrix(found[:, :4], boxes)
    own = np.array([channel_of(model, int(label)) for label in labels], np.int64)
    regions: list[list[float]] = []
    new: list[int] = []
    for i, row in enumerate(found):
        channel = channel_of(model, int(kinds[i]))
        above = settings.fill_above.get(model.channels[channel])
        same = own == channel
        best = int(np.argmax(np.where(same, overlap[i], -1))) if same.any() else -1
        if best >= 0 and overlap[i, best] > 0.4:
            if labels[best] == KIND_UNKNOWN and row[4] > 0.45 and overlap[i, best] > 0.6:
                labels[best] = kinds[i]
            continue
        if above is None:
            continue
        vehicles = own == 0 if model.group and channel != 0 else np.zeros(len(own), bool)
        aboard = bool((inside[i, vehicles] > ABOARD).any())
        if row[4] >= above and not aboard:
            new.append(i)
        else:
            regions.append([*row[:4].tolist(), channel, ANY_SIZE])
    if new:
        boxes = np.concatenate([boxes, found[new, :4]])
        labels = np.concatenate([labels, kinds[new]])
    return boxes, labels, regions


def kind_counts(pictures: list[Picture], names: tuple[str, ...]) -> Counter[str]:
    """How often each class is labelled."""
    counts: Counter[str] = Counter()
    for picture in pictures:
        counts.update("kind unknown" if label < 0 else names[label] for label in picture.labels)
    return counts
