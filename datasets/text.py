"""Text, numbers and paths of files that other people wrote."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from perception.datasets.report import Report
from perception.errors import InputError

PICTURE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm"})

LIMIT = 1e7
"""Largest coordinate taken for a pixel position; float32 still tells whole pixels apart there."""


def read_lines(path: Path, file: str, report: Report) -> list[str]:
    """Lines of a UTF-8 text file (optional byte order mark, any newline), whatever the locale.

    A file that cannot be read or is not UTF-8 is itemised as an error and has no lines.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        report.add(
            "error",
            "not-utf8",
            f"byte {error.start} is not UTF-8 text; the file is not used",
            file=file,
            line=line,
        )
        return []
    except OSError as error:
        report.add("error", "unreadable", f"cannot be read: {error.strerror}", file=file)
        return []
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def number(text: str) -> float:
    """A finite number of sensible size; raises ValueError that says what was found."""
    value = float(text)
    if not math.isfinite(value) or abs(value) > LIMIT:
        raise ValueError(f"{text!r} is not a finite number of sensible size")
    return value


def numbers(texts: Sequence[str]) -> tuple[float, ...]:
    """`number` of each text; the sum of sizes tells NaN, infinity and absurd values at once."""
    values = tuple(map(float, texts))
    if not sum(map(abs, values)) <= LIMIT:
        return tuple(map(number, texts))
    return values


def whole(text: str) -> int:
    """An integer, also when written as 3.0; raises ValueError."""
    value = number(text)
    if value != int(value):
        raise ValueError(f"{text!r} is not a whole number")
    return int(value)


def is_digits(text: str) -> bool:
    """Whether int() reads `text`, and nothing but 0 to 9 is in it; isdigit() takes ² too."""
    return text.isascii() and text.isdigit()


_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")


def is_whole(text: str) -> bool:
    """Whether `text` is a whole number as JSON writes it: 7, but not 007, 7.0 or ²."""
    return _WHOLE.fullmatch(text) is not None


def inside(path: str) -> str | None:
    """`path` as a normalised relative posix path, or None when it would leave its root."""
    text = path.replace("\\", "/")
    if not text or "\0" in text or text.startswith("/") or re.match(r"[A-Za-z]:", text):
        return None
    normal = os.path.normpath(text)
    return None if normal == ".." or normal.startswith("../") else normal


class Fence:
    """Keeps paths of a data set below its root, symbolic links followed.

    What a folder resolves to is looked up once: a data set has far fewer folders than pictures.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._base = os.path.realpath(root)
        self._folders: dict[str, str] = {}

    def check(self, relative: str) -> Path:
        """The file below the root; raises InputError when it is elsewhere."""
        normal = inside(relative)
        if normal is None or not self._holds(normal):
            raise InputError(f"{self.root}: {relative!r} leads out of the data set's folder")
        return self.root / normal

    def _holds(self, normal: str) -> bool:
        folder, _, name = normal.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(os.path.join(self._base, folder))
        path = os.path.join(self._folders[folder], name)
        if os.path.islink(path):
            path = os.path.realpath(path)
        return path == self._base or path.startswith(os.path.join(self._base, ""))


def check_inside(root: Path, relative: str) -> Path:
    """The file below `root`, symbolic links followed; raises InputError when it is elsewhere."""
    return Fence(root).check(relative)


def walk(root: Path, suffixes: frozenset[str]) -> Iterator[str]:
    """Files below `root` with one of the suffixes, as posix paths relative to it.

    The order is by name within each folder, the same on every machine. Folders and files whose
    name begins with a dot are left out; links to folders are not followed.
    """
    stack = [""]
    while stack:
        folder = stack.pop()
        entries = sorted(os.scandir(root / folder), key=lambda entry: entry.name)
        prefix = f"{folder}/" if folder else ""
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_file() and os.path.splitext(entry.name)[1].lower() in suffixes:
                yield prefix + entry.name
        stack.extend(
            prefix + entry.name
            for entry in reversed(entries)
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
        )


def natural(name: str) -> tuple[object, ...]:
    """Sort key that puts frame 10 after frame 9."""
    return tuple(
        (1, int(part), "") if part.isdigit() else (0, 0, part)
        for part in re.split(r"([0-9]+)", name)
        if part
    )


def usual_split(name: str) -> str:
    """train, val or test for the names that data sets give those (train2017, valid, testing)."""
    last = name.rpartition("/")[2].lower()
    return next((split for split in ("train", "val", "test") if last.startswith(split)), name)


# train, val2017, validation, test-dev2017, train_images... but not "valley".
_SPLIT_FOLDER = re.compile(
    r"(train|val|test)(ing|id|idation)?([-_]?(dev|set|split|images))?[-_]?\d*", re.IGNORECASE
)


def folder_split(part: str) -> str:
    """train, val or test where a folder is called after a split, else ""."""
    return usual_split(part) if _SPLIT_FOLDER.fullmatch(part) else ""


class Pictures:
    """The picture files below a root, found by name."""

    def __init__(self, root: Path) -> None:
        self.files = tuple(walk(root, PICTURE_SUFFIXES))
        self._all = frozenset(self.files)
        self._by_name: dict[str, list[str]] = {}
        self._by_stem: dict[str, list[str]] = {}
        for file in self.files:
            name = file.rpartition("/")[2]
            self._by_name.setdefault(name, []).append(file)
            self._by_stem.setdefault(os.path.splitext(name)[0], []).append(file)
        self._common = self._in_all_folders()

    def find(self, name: str, near: str = "") -> list[str]:
        """The pictures that a label file of the folder `near` may call `name`: one, none, several.

        Looked for below `near` first, then by its whole path. A name with folders needs a picture
        whose path ends so. Of a bare name the picture's folders must be those of `near`, or some
        of them, or these and others: frame 1 of one sequence is not frame 1 of another.
        """
        relative = inside(name)
        if relative is None:
            return []
        joined = f"{near}/{relative}" if near else relative
        for candidate in (joined, relative):
            if candidate in self._all:
                return [candidate]
        folder, _, last = relative.rpartition("/")
        found = self._by_name.get(last) or self._by_stem.get(os.path.splitext(last)[0], [])
        if folder:
            stem = os.path.splitext(relative)[0]
            found = [file for file in found if os.path.splitext(file)[0].endswith(f"/{stem}")]
        wanted = _telling(f"{near}/{folder}")
        folders = {file: _telling(file.rpartition("/")[0]) - self._common for file in found}
        same = [file for file in found if folders[file] == wanted]
        if folder:
            return same or found
        return same or [f for f in found if folders[f] < wanted or wanted < folders[f]]

    def _in_all_folders(self) -> frozenset[str]:
        """The folders that every picture is in; such a one tells no pictures apart."""
        folders = {file.rpartition("/")[0] for file in self.files}
        common = frozenset.intersection(*map(_telling, folders)) if folders else frozenset()
        return frozenset(part for part in common if not folder_split(part))


_USUAL_FOLDERS = frozenset(
    [
        "annotations",
        "annotation",
        "labels",
        "label",
        "xml",
        "xmls",
        "jpegimages",
        "images",
        "image",
        "imgs",
        "img",
        "pictures",
        "data",
        "frames",
        "track",
        "100k",
        "10k",
    ]
)


def _telling(folder: str) -> frozenset[str]:
    """The folders of a path but those that only say what kind of file is in them."""
    parts = (part for part in folder.split("/") if part)
    return frozenset(part for part in parts if part.lower() not in _USUAL_FOLDERS)


def listing_digest(root: Path) -> str:
    """Changes when a picture below `root` comes, goes or has another name."""
    return hashlib.sha256("\n".join(walk(root, PICTURE_SUFFIXES)).encode()).hexdigest()


def several(found: Sequence[str]) -> str:
    """What to remark when several pictures could be meant."""
    shown = ", ".join(found[:3]) + (" and others" if len(found) > 3 else "")
    return f"{len(found)} pictures may be meant, none is taken: {shown}"
