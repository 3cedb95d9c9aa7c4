"""What a writer gets: samples, pictures to copy, and a count of what its format cannot hold."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np

from perception.datasets.dataset import Dataset
from perception.datasets.pictures import load, read_header
from perception.datasets.report import Finding, Report, Severity
from perception.datasets.sample import BagPicture, Sample
from perception.datasets.text import check_inside
from perception.errors import InputError

# What a sample can hold: how often it does, and what the report calls it.
FEATURES: dict[str, tuple[str, Callable[[Sample], int]]] = {
    "size": ("pictures' width and height", lambda s: int(s.width > 0)),
    "unlabelled": ("pictures without a box", lambda s: int(len(s.truth) == 0)),
    "id": ("picture ids", lambda s: int(bool(s.id))),
    "split": ("pictures' splits", lambda s: int(bool(s.split))),
    "sequence": ("pictures' sequences", lambda s: int(bool(s.sequence))),
    "camera": ("pictures' cameras", lambda s: int(bool(s.camera))),
    "frame": ("frame numbers", lambda s: int(s.frame >= 0)),
    "stamp": ("times", lambda s: int(s.stamp_ns > 0)),
    "attributes": ("pictures' attributes", lambda s: int(bool(s.attributes))),
    "ignore": ("ignore regions", lambda s: len(s.ignore)),
    "score": ("scores", lambda s: int(s.scored.sum())),
    "track_id": ("track ids", lambda s: int((s.truth.track_ids >= 0).sum())),
    "box_id": ("box ids", lambda s: sum(map(bool, s.box_ids))),
    "crowd": ("boxes that cover a group", lambda s: int(s.crowd.sum())),
    "occlusion": ("occlusions", lambda s: int((~np.isnan(s.occlusion)).sum())),
    "truncation": ("truncations", lambda s: int((~np.isnan(s.truncation)).sum())),
    "distance": ("distances", lambda s: int((~np.isnan(s.distance)).sum())),
    "points": ("counts of lidar and radar points", lambda s: int((s.points >= 0).sum())),
    "velocity": ("velocities", lambda s: int((~np.isnan(s.velocity[:, 0])).sum())),
    "boxes_3d": ("3-D boxes", lambda s: int((~np.isnan(s.boxes_3d[:, 0])).sum())),
    "area": ("areas of outlines", lambda s: int((~np.isnan(s.area)).sum())),
    "box_attributes": ("attributes of boxes", lambda s: sum(map(bool, s.box_attributes))),
}
EVERYTHING = frozenset(FEATURES)
MISSING = "picture-missing"


class Source:
    """A data set on its way into another format.

    A box that covers a group is left out where the format cannot say so: it would be taken for one
    object.

    report: what is lost, once `samples` has been read to its end.
    change: makes the sample that is written from the one read, None leaves it out.
    upright: pictures with an Exif rotation are written turned, and without it.
    later: picture files are not copied but listed in `copies` for an engine to copy.
    position: number in the data set of the sample that `samples` handed out last.
    """

    def __init__(
        self,
        dataset: Dataset,
        holds: frozenset[str],
        *,
        pictures: bool = True,
        change: Callable[[Sample], Sample | None] | None = None,
        upright: bool = False,
        later: bool = False,
    ) -> None:
        self.dataset = dataset
        self.names = dataset.names.names
        self.report = Report()
        self.pictures = 0
        self.boxes = 0
        self._holds = holds
        self._copies = pictures
        self._change = change
        self._upright = upright
        self.copies: list[Copy] | None = [] if later else None
        self.position = -1
        self._stems: Counter[str] = Counter()
        self._tally: Counter[tuple[str, str]] = Counter()
        self._used = np.zeros(len(self.names), dtype=np.int64)

    def samples(self) -> Iterator[Sample]:
        """Every sample once, in order; counts what the format cannot hold."""
        lost = Counter[str]()
        absent: list[str] = []
        checks = [(name, count) for name, (_, count) in FEATURES.items() if name not in self._holds]
        for position, original in enumerate(self.dataset):
            self.position = position
            sample = original if self._change is None else self._change(original)
            if sample is None:
                continue
            if "crowd" not in self._holds and sample.crowd.any():
                lost["crowd"] += int(sample.crowd.sum())
                sample = sample.chosen(np.flatnonzero(~sample.crowd))
            if sample.image is None:
                absent.append(sample.name)
            self.pictures += 1
            self.boxes += len(sample.truth)
            np.add.at(self._used, sample.truth.labels, 1)
            for name, count in checks:
                lost[name] += count(sample)
            yield sample
        if absent and self._copies:
            # A set of labels alone is as it should be.
            severity: Severity = "info" if len(absent) == self.pictures else "error"
            text = f"{len(absent)} pictures have no picture file to copy, the first: {absent[0]}"
            self.report.add(severity, "no-picture", text)
        for name, (title, _) in FEATURES.items():
            if lost[name]:
                self.report.add("info", f"lost-{name}", f"{lost[name]} {title} are lost")
        if self.dataset.info and "info" not in self._holds:
            keys = ", ".join(sorted(self.dataset.info))
            self.report.add("info", "lost-info", f"what the set says of itself is lost: {keys}")
        for (code, message), times in self._tally.items():
            self.report.add("info", code, f"{message} ({times} times)")

    def tally(self, code: str, message: str) -> None:
        """Count a remark that would be the same for many pictures; reported once with its count."""
        self._tally[code, message] += 1

    def used_names(self) -> tuple[str, ...]:
        """Class names that had a box so far, in class order."""
        return tuple(name for name, n in zip(self.names, self._used, strict=True) if n)

    def stem(self, sample: Sample, *, folders: bool = False) -> str:
        """A file name without suffix for a sample, unique in this conversion.

        folders: keep the sub-folders of its name.
        """
        name = os.path.splitext(sample.name.replace("\\", "/"))[0] or f"{self.pictures:08d}"
        parts = [part for part in name.split("/") if part not in ("", ".", "..")]
        stem = "/".join(parts) if folders else parts[-1] if parts else f"{self.pictures:08d}"
        stem = stem.replace("\0", "_")
        free = stem
        while free in self._stems:
            self._stems[stem] += 1
            free = f"{stem}_{self._stems[stem]}"
        self._stems[free] = 1
        if free != stem:
            text = f"another picture has that name: written as {free}"
            self.report.add("info", "renamed", text, picture=sample.name)
        return free

    def put_picture(self, sample: Sample, out: Path, stem: str) -> str:
        """Copy the picture to out/stem.suffix; returns that name (also when nothing was copied).

        A picture that is missing or leads out of the data set is itemised.
        """
        if isinstance(sample.image, BagPicture):
            from perception.datasets.formats.rosbag2 import encoded_picture

            data, suffix = encoded_picture(sample.image)
            (out / f"{stem}{suffix}").parent.mkdir(parents=True, exist_ok=True)
            (out / f"{stem}{suffix}").write_bytes(data)
            return f"{stem}{suffix}"
        name = stem + (os.path.splitext(sample.name)[1] or ".jpg")
        if not self._copies:
            return name
        if sample.image is None:
            return name
        name = stem + sample.image.suffix
        root = self.dataset.root
        relative = os.path.relpath(sample.image, root)
        copy = Copy(relative, str((out / name).absolute()), sample.name)
        if self._upright:
            copy = copy._replace(upright_size=(sample.width, sample.height))
        if self.copies is not None:
            self.copies.append(copy)
        else:
            copy_picture(root, copy, self.report)
        return name


class Copy(NamedTuple):
    """A picture to copy.

    source: path below the data set's root; target: full path; name: as the data set names it.
    upright_size: size of the picture that its labels are for, when an Exif rotation is to be
        applied; a picture of another size is copied as it is, because its labels may be for the
        picture before the rotation.
    """

    source: str
    target: str
    name: str
    upright_size: tuple[int, int] | None = None


def copy_picture(root: Path, copy: Copy, report: Report) -> None:
    """Copy one picture; what goes wrong is itemised."""
    name, target = copy.name, Path(copy.target)
    try:
        path = check_inside(root, copy.source)
        target.parent.mkdir(parents=True, exist_ok=True)
        turned = 1
        if copy.upright_size is not None and path.is_file():
            header = read_header(path)
            if tuple(copy.upright_size) in ((0, 0), (header.width, header.height)):
                turned = header.orientation
        if turned == 1:
            shutil.copyfile(path, target)
            return
        jpeg = target.suffix.lower() in (".jpg", ".jpeg")
        options = [cv2.IMWRITE_JPEG_QUALITY, 95] if jpeg else []
        target.write_bytes(cv2.imencode(target.suffix, load(path), options)[1].tobytes())
        report.add(
            "info", "turned", f"Exif orientation {turned} was applied to the pixels", picture=name
        )
    except InputError as error:
        report.add("error", "bad-picture", str(error), picture=name)
    except FileNotFoundError:
        report.add("error", MISSING, f"there is no picture {copy.source}", picture=name)
    except OSError as error:
        report.add("error", "no-picture", f"cannot be copied: {error.strerror}", picture=name)


def only_labels(report: Report, pictures: int) -> None:
    """Say once that none of the pictures is there, instead of once for each."""
    rest = [finding for finding in report.findings if finding.code != MISSING]
    if pictures > 1 and len(report) - len(rest) == pictures:
        text = f"none of the {pictures} pictures is there, only labels are written"
        report.findings = [*rest, Finding("warning", MISSING, text)]


def short(value: float) -> str:
    """The shortest text that gives the same float32 again."""
    return np.format_float_positional(np.float32(value), trim="-")
