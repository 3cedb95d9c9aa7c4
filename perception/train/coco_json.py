"""COCO json of a training set: every entry checked by name before the first step.

Not the data set reader (perception/datasets/formats/coco.py). That one goes from the bytes of a
file of any size straight to Arrow columns, keeps what it can and reports the rest, and needs
pyarrow and msgspec; its parts without Arrow are too few to share. This one needs no more packages
than torch's, holds the file whole, keeps ids and refuses. What both must agree on, where the
pictures lie, is perception/datasets/coco_layout.py; a test holds the rest of them together.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perception.datasets.coco_layout import picture_folder, root_of
from perception.datasets.pictures import read_header
from perception.datasets.text import inside
from perception.errors import InputError
from perception.files import is_finite_number, read_text

#: Problems of a set that an error lists.
SHOWN = 20
#: Pictures by which the folder of all is found.
FIRST = 20

Row = Mapping[str, Any]


@dataclass(frozen=True)
class CocoFile:
    """A file without fault; boxes have four finite numbers and a size.

    root: the folder of the set, which no picture may lie outside of. folder: that of the pictures.
    images: image id -> entry. categories: category id -> name. info: the file's remarks on itself.
    """

    path: Path
    root: Path
    folder: Path
    images: Mapping[int | str, Row]
    annotations: Sequence[Row]
    categories: Mapping[int | str, str]
    info: Mapping[str, Any]

    def picture(self, image: Row) -> Path:
        """The picture file of an entry of `images`."""
        return self.folder / image["file_name"]


def read_coco(path: Path) -> CocoFile:
    """A COCO json file; InputError lists every entry that cannot be used."""
    data = read_json(path)
    if not isinstance(data, dict):
        raise InputError(
            f"{path}: found {_short(data)}, expected an object with images, annotations and "
            "categories"
        )
    lists = {key: _entries(path, data, key) for key in ("images", "annotations", "categories")}
    problems: list[str] = []
    categories = _by_id("category", lists["categories"], _category_problem, problems)
    images = _by_id("image", lists["images"], _image_problem, problems)
    for position, annotation in enumerate(lists["annotations"]):
        problem = _annotation_problem(annotation, images, categories)
        if problem:
            name = f"annotation id {annotation.get('id', f'at position {position}')}"
            problems.append(f"{name}: {problem}")
    _refuse(path, problems)
    root = root_of(path)
    first = [image["file_name"] for image in images.values()][:FIRST]
    within = picture_folder(root, path.relative_to(root).as_posix(), first)
    for key, image in images.items():
        name = image["file_name"]
        if os.path.isabs(name) or inside(f"{within}/{name}" if within else name) is None:
            problems.append(f"image id {key}: file_name {name!r} leads out of {root}")
    _refuse(path, problems)
    info = data.get("info")
    return CocoFile(
        path,
        root,
        root / within,
        images,
        lists["annotations"],
        {key: category["name"] for key, category in categories.items()},
        info if isinstance(info, dict) else {},
    )


def _refuse(path: Path, problems: Sequence[str]) -> None:
    if problems:
        raise InputError(f"{path}: {join_problems(problems)}")


def join_problems(problems: Sequence[str]) -> str:
    """The first SHOWN problems, and how many more there are."""
    more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
    return "; ".join(problems[:SHOWN]) + more


def read_json(path: Path) -> Any:
    """Any JSON value; InputError names the file, and the line of text that is not JSON."""
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}: not JSON ({error.msg})") from None
    except (RecursionError, ValueError) as error:
        raise InputError(f"{path}: not usable JSON: {error}") from None


def picture_problem(file: Path, width: int, height: int) -> str:
    """What keeps a picture from having the size that its labels speak of, or ''.

    Labels of a turned or resized picture lie elsewhere, or outside, where they would be lost.
    """
    if not file.is_file():
        return f"no such picture {file}"
    try:
        header = read_header(file)
    except InputError as error:
        return str(error)
    if (header.width, header.height) != (width, height):
        return f"{file} is {header.width}x{header.height} pixels, its labels say {width}x{height}"
    return ""


def _entries(path: Path, data: Mapping[str, Any], key: str) -> list[Row]:
    value = data.get(key)
    if not isinstance(value, list):
        raise InputError(f"{path}: {key} is {_short(value)}, expected a list")
    for position, entry in enumerate(value):
        if not isinstance(entry, dict):
            raise InputError(f"{path}: {key}[{position}] is {_short(entry)}, expected an object")
    return value


def _by_id(
    what: str, entries: Sequence[Row], problem: Callable[[Row], str], problems: list[str]
) -> dict[int | str, Row]:
    """Entries by their id; the problems of those that cannot be used are added."""
    found: dict[int | str, Row] = {}
    for position, entry in enumerate(entries):
        key = entry.get("id")
        if not _is_id(key):
            problems.append(
                f"{what} at position {position}: id is {_short(key)}, expected a number"
            )
        elif key in found:
            problems.append(f"{what} id {key} occurs twice")
        else:
            found[key] = entry
            if text := problem(entry):
                problems.append(f"{what} id {key}: {text}")
    return found


def _category_problem(category: Row) -> str:
    name = category.get("name")
    return "" if isinstance(name, str) and name else f"name is {_short(name)}, expected a text"


def _image_problem(image: Row) -> str:
    name = image.get("file_name")
    if not isinstance(name, str) or not name:
        return f"file_name is {_short(name)}, expected the name of a picture"
    for key in ("width", "height"):
        if not (is_finite_number(image.get(key)) and image[key] >= 1):
            return f"{key} is {_short(image.get(key))}, expected pixels"
    regions = image.get("ignore_regions")
    for box in regions if isinstance(regions, list) else [regions] if regions else []:
        if not _is_box(box):
            return f"ignore_regions: {_short(box)} is not four finite numbers"
    return ""


def _annotation_problem(
    annotation: Row, images: Mapping[Any, Any], categories: Mapping[Any, Any]
) -> str:
    """What makes an annotation unusable, or ''."""
    image, category = annotation.get("image_id"), annotation.get("category_id")
    if not _is_id(image) or image not in images:
        return f"image id {_short(image)} is not in the file"
    if not _is_id(category) or category not in categories:
        return f"class id {_short(category)} is outside {_range(categories)}"
    box = annotation.get("bbox")
    if not _is_box(box):
        return f"bbox {_short(box)} is not four finite numbers"
    if box[2] <= 0 or box[3] <= 0:
        return f"bbox {box} has no width or height (x, y, width, height)"
    crowd = annotation.get("iscrowd")
    if crowd is not None and not (isinstance(crowd, int) and crowd in (0, 1)):
        return f"iscrowd is {_short(crowd)}, expected 0 or 1"
    return ""


def _range(ids: Mapping[Any, Any]) -> str:
    if not ids:
        return "the file's categories, of which there are none"
    whole = sorted(key for key in ids if isinstance(key, int))
    return f"{whole[0]}..{whole[-1]}" if len(whole) == len(ids) else ", ".join(map(str, ids))


def _is_id(value: object) -> bool:
    return isinstance(value, (int, str)) and not isinstance(value, bool)


def _is_box(value: object) -> bool:
    return isinstance(value, list) and len(value) == 4 and all(map(is_finite_number, value))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
