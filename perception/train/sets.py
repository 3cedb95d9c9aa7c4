"""Labelled sets in COCO json, with what each of them did and did not annotate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perception.errors import InputError
from perception.geometry.boxes import iof_matrix, iou_matrix
from perception.labels import nearest
from perception.models.settings import ModelSettings
from perception.train import ranges
from perception.train.coco_json import (
    CocoFile,
    join_problems,
    picture_problem,
    read_coco,
    read_json,
)

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
#: Label, box (xyxy), and whether the box covers a group.
Row = tuple[int, list[float], bool]
ANY_SIZE = np.inf
#: Channel of a region of a training picture that holds for every ranking channel.
ALL_CHANNELS = -1


@dataclass(frozen=True)
class SetSettings:
    """One set.

    annotations: COCO json, pictures looked up beside it or, as COCO lays them out, in `images` or a
        folder of the split's name; or `FORMAT:path` or a folder of another format that
        `perception.datasets` reads (`yolo:labels`).
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
    split: take the pictures of this split only ("train"), where a set holds several.
    """

    annotations: str
    classes: Mapping[str, str] = field(default_factory=dict)
    annotated: tuple[str, ...] = ()
    weight: float = 1.0
    unlabelled_below_area: float = -1.0
    skip_empty: bool = False
    filled: str = ""
    fill_above: Mapping[str, float] = field(default_factory=dict)
    split: str = ""

    def __post_init__(self) -> None:
        ranges.at_least(self, 0, "weight")
        if not self.unlabelled_below_area <= 1:
            raise InputError(
                f"unlabelled_below_area is {self.unlabelled_below_area}, expected a share of the "
                "picture or -1"
            )
        for channel, score in self.fill_above.items():
            if not 0 <= score <= 1:
                raise InputError(f"fill_above: {channel} is {score}, expected 0 to 1")


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """One labelled picture.

    boxes: float32 (N, 4), xyxy, pixels of the picture.
    labels: int64 (N,), index into the model's names, or KIND_UNKNOWN.
    regions: float32 (K, 6): x1, y1, x2, y2, ranking channel, largest area in square pixels.
        Inside a region a prediction of that channel up to that area is not punished.
    lost: labels that are left out because less than a pixel of them lies inside the picture.
    """

    file: Path
    width: int
    height: int
    boxes: NDArray[np.float32]
    labels: NDArray[np.int64]
    regions: NDArray[np.float32]
    draw: float = 1.0
    lost: int = 0

    def labels_all(self, channel: int) -> bool:
        """Whether every object of a ranking channel is labelled, small ones apart."""
        whole = (0, 0, self.width, self.height)
        of_channel = self.regions[self.regions[:, 4] == channel]
        open_areas = of_channel[np.isinf(of_channel[:, 5]), :4]
        return not (open_areas == np.array(whole, np.float32)).all(axis=1).any()

    def shows(self, channel: int, model: ModelSettings) -> bool:
        """Whether an object of a ranking channel is labelled."""
        return any(channel_of(model, int(label)) == channel for label in self.labels)


def read_set(settings: SetSettings, model: ModelSettings, root: Path) -> list[Picture]:
    """All pictures of a set: COCO json, or any other format that `perception.datasets` reads.

    InputError lists, with the file, every annotation that cannot be taught: an unknown class or
    picture, a box without width or height or with swapped corners, a picture of another size.
    """
    named, path = located(settings, root)
    if named or path.suffix != ".json":
        # Imported here: these readers need more packages than COCO json does.
        from perception.train.formats import read_dataset

        return read_dataset(settings, model, root)
    check_channels(settings, model)
    file = read_coco(path)
    check_classes(settings, list(file.categories.values()), str(file.path))
    targets = {
        key: class_target(name, str(file.path), settings, model)
        for key, name in file.categories.items()
    }
    images = _of_split(file, settings.split)
    rows: dict[Any, list[Row]] = {key: [] for key in file.images}
    for annotation in file.annotations:
        rows[annotation["image_id"]].append(_row(annotation, targets))
    sizes = {key: (int(image["width"]), int(image["height"])) for key, image in images.items()}
    problems = [
        f"image id {key}: {problem}"
        for key, image in images.items()
        if (problem := picture_problem(file.picture(image), *sizes[key]))
    ]
    if problems:
        raise InputError(f"{file.path}: {join_problems(problems)}")
    filled = read_json(root / settings.filled)["pictures"] if settings.filled else {}
    below = area_limit(settings, file.info, str(file.path))
    return [
        make_picture(
            file.picture(image),
            *sizes[key],
            rows[key] + [ignored(_corners(box)) for box in image.get("ignore_regions") or []],
            settings,
            model,
            below,
            filled.get(str(key), []),
        )
        for key, image in images.items()
        if rows[key] or not settings.skip_empty
    ]


def _row(annotation: Mapping[str, Any], targets: Mapping[int | str, int]) -> Row:
    crowd = bool(annotation.get("iscrowd", 0))
    return targets[annotation["category_id"]], _corners(annotation["bbox"]), crowd


def _corners(box: Sequence[float]) -> list[float]:
    x, y, w, h = box
    return [x, y, x + w, y + h]


def ignored(box: list[float]) -> Row:
    """The row of an ignore region xyxy: a crowd would be one of a single class."""
    return NEUTRAL, box, False


def located(settings: SetSettings, root: Path) -> tuple[str, Path]:
    """The format that is named before a set's path, "" none, and its file or folder."""
    whole = root / settings.annotations
    named, colon, rest = settings.annotations.partition(":")
    return (named, root / rest) if colon and not whole.exists() else ("", whole)


def _of_split(file: CocoFile, split: str) -> dict[int | str, Mapping[str, Any]]:
    """The images of a split, all where none is asked for; InputError when it has none."""
    require_split(split, {image.get("split") for image in file.images.values()}, file.path)
    return {key: im for key, im in file.images.items() if split in ("", im.get("split"))}


def require_split(split: str, splits: Collection[Any], where: str | Path) -> None:
    """InputError with the splits that a set has, where another is asked for."""
    if split and split not in splits:
        known = ", ".join(sorted(str(name) for name in splits if name))
        raise InputError(
            f"{where}: no picture is of the split {split!r}, found {known or 'no named split'}"
        )


def check_channels(settings: SetSettings, model: ModelSettings) -> None:
    """InputError for a name under `annotated` or `fill_above` that is no ranking channel."""
    for key in ("annotated", "fill_above"):
        for name in getattr(settings, key):
            if name not in model.channels:
                raise InputError(
                    f"{settings.annotations}: {key}: {name!r} is none of "
                    f"{', '.join(model.channels)}{nearest(name, model.channels)}"
                )


def check_classes(settings: SetSettings, names: Sequence[str], where: str) -> None:
    """InputError for a class under `classes` that a set, which names all of its own, has not."""
    for name in settings.classes:
        if name not in names:
            raise InputError(
                f"{where}: classes: the set has no class {name!r}, expected some of "
                f"{', '.join(names)}{nearest(name, names)}"
            )


def area_limit(settings: SetSettings, info: Mapping[str, Any], where: str) -> float:
    """Share of the picture below which objects may be unlabelled: the settings', else the set's."""
    if settings.unlabelled_below_area >= 0:
        return settings.unlabelled_below_area
    limit = info.get("unlabelled_below_area", 0.0)
    if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 0 <= limit <= 1:
        raise InputError(
            f"{where}: info: unlabelled_below_area is {limit!r}, expected a share of the picture"
        )
    return float(limit)


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
    boxes, labels, lost = [], [], 0
    for target, box, crowd in rows:
        if target == OTHER:
            continue
        box = [min(max(v, 0.0), whole[2 + i % 2]) for i, v in enumerate(box)]
        if box[2] - box[0] < 1 or box[3] - box[1] < 1:
            lost += 1
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
        lost=lost,
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
