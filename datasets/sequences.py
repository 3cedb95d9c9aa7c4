"""Sequences and frame numbers for formats that have a file for each sequence."""

from __future__ import annotations

from collections.abc import Sequence

from perception.datasets.dataset import Dataset

MAX_FRAME = 10_000_000


def places(dataset: Dataset) -> list[tuple[str, int]]:
    """(name of its sequence, frame number from 1) of every picture, each pair once.

    A sequence that several cameras saw becomes one for each, pictures without either become one
    together. Numbers grow with the frame numbers of the data set, or with its order where some are
    not known; they are the same where each is there once, or all are shifted so that the first
    is 1.
    """
    found: dict[tuple[str, str], list[int]] = {}
    frames: list[int] = []
    for columns in dataset.columns():
        keys = zip(columns.values("sequence"), columns.values("camera"), strict=True)
        for position, key in enumerate(keys, len(frames)):
            found.setdefault(key, []).append(position)
        frames += columns.values("frame")
    names = _names(list(found))
    result = [("", 0)] * len(frames)
    for key, positions in found.items():
        if all(frames[i] >= 0 for i in positions):
            positions.sort(key=lambda i: frames[i])  # stable: equal frames stay in reading order
        numbers = _numbers([frames[i] for i in positions])
        for position, number in zip(positions, numbers, strict=True):
            result[position] = (names[key], number)
    return result


def _numbers(frames: Sequence[int]) -> Sequence[int]:
    """Ascending numbers from 1 for frames in their order; -1 is a frame without a number."""
    once = min(frames) >= 0 and len(set(frames)) == len(frames)
    shift = max(0, 1 - min(frames))
    if not once or max(frames) + shift > MAX_FRAME:
        return range(1, len(frames) + 1)
    return [frame + shift for frame in frames]


def _names(keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """A name for each (sequence, camera) that can be a file's and that no other has."""
    cameras: dict[str, int] = {}
    for sequence, _ in keys:
        cameras[sequence] = cameras.get(sequence, 0) + 1
    names: dict[tuple[str, str], str] = {}
    for sequence, camera in keys:
        both = f"{sequence}_{camera}" if sequence and camera else sequence or camera
        text = both if cameras[sequence] > 1 or not sequence else sequence
        plain = "".join(c if c.isalnum() or c in "-_." else "_" for c in text).strip(".")
        name = plain = plain or "sequence"
        number = 1
        while name in names.values():
            number += 1
            name = f"{plain}_{number}"
        names[sequence, camera] = name
    return names
