"""Divide a data set into train, val and test, the same way on every run and machine."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np

from perception.datasets.dataset import Dataset
from perception.datasets.duplicates import groups_of_similar
from perception.datasets.pictures import check_and_hash, pixel_digest
from perception.datasets.plan import format_module, format_name
from perception.datasets.text import check_inside
from perception.errors import InputError

By = Literal["sequence", "hash"]


def parse_shares(text: str) -> dict[str, float]:
    """`train=0.8,val=0.2` as a mapping; raises InputError unless the shares add up to 1."""
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        try:
            shares[name] = float(value)
        except ValueError:
            equals = ""
        if not equals or not name or not 0 < shares[name] <= 1:
            raise InputError(f"--shares: {part!r} is not NAME=SHARE with a share of 0 to 1")
    if abs(sum(shares.values()) - 1) > 1e-6:
        raise InputError(f"--shares: {text!r} adds up to {sum(shares.values()):g}, expected 1")
    return shares


def check_target(target: str, names: Iterable[str]) -> None:
    """Raise InputError when `FORMAT:OUT` cannot say which split a picture is in."""
    name = format_name(target.partition(":")[0])
    usual = ("train", "val", "test")
    if "split" not in format_module(name).HOLDS:
        raise InputError(f"--out {target}: {name} has no splits, the division would be lost")
    strange = [split for split in names if split not in usual]
    if strange and name != "coco":
        raise InputError(
            f"--out {target}: {name} has the splits {', '.join(usual)}, "
            f"--shares names {', '.join(strange)}"
        )


def split(
    dataset: Dataset,
    shares: Mapping[str, float],
    *,
    by: By = "sequence",
    seed: int = 0,
    similar: int | None = None,
) -> list[str]:
    """The split of every picture, in the order of the data set.

    by: "sequence" keeps the pictures of a sequence (or, where there is none, of a camera) together
        and fills the splits to their shares, a picture without either is alone; "hash" puts each
        picture where the SHA-256 of its name falls, so that it stays there when others are added.
    similar: decode the pictures, and keep those together whose 64-bit hashes differ in at most so
        many bits.
    """
    keys = [_key(dataset, i, by) for i in range(len(dataset))]
    if by == "sequence" and len(set(keys)) < len(shares):
        raise InputError(
            f"{dataset.root}: has {len(set(keys))} sequence(s), too few for {len(shares)} splits "
            "(--by hash divides single pictures)"
        )
    if similar is not None:
        keys = _joined(dataset, keys, similar)
    places = {key: _place(key, seed) for key in set(keys)}
    if by == "hash":
        return [_split_at(places[key], shares) for key in keys]
    counts = Counter(keys)
    order = sorted(counts, key=lambda key: (places[key], key))
    assigned: dict[str, str] = {}
    filled = dict.fromkeys(shares, 0)
    for number, key in enumerate(order):
        # The split that lacks most of its share; each gets one sequence before any gets two.
        empty = [name for name in shares if not filled[name]]
        names = empty if len(order) - number <= len(empty) else list(shares)
        name = max(names, key=lambda n: shares[n] * len(keys) - filled[n])
        assigned[key] = name
        filled[name] += counts[key]
    return [assigned[key] for key in keys]


def _key(dataset: Dataset, index: int, by: By) -> str:
    sample = dataset[index]
    if by == "sequence" and (sample.sequence or sample.camera):
        return sample.sequence or sample.camera
    return f"{sample.sequence}/{sample.camera}/{sample.name}"


def _joined(dataset: Dataset, keys: list[str], similar: int) -> list[str]:
    """Keys where pictures that look alike have the same one."""
    hashes, known = [], []
    plain: dict[str, list[int]] = {}  # pictures without structure, by their pixels
    for i, sample in enumerate(dataset):
        if sample.image is not None and not hasattr(sample.image, "bag"):
            try:
                file = sample.image.relative_to(dataset.root).as_posix()
                path = check_inside(dataset.root, file)
                value = check_and_hash(path)
                if not value:
                    plain.setdefault(pixel_digest(path), []).append(i)
            except InputError:
                continue  # lint reports it; it stays a picture of its own
            if value:
                hashes.append(value)
                known.append(i)
    leader: dict[str, str] = {}

    def find(key: str) -> str:
        while leader.get(key, key) != key:
            key = leader[key]
        return key

    alike = groups_of_similar(np.asarray(hashes, np.uint64), similar)
    for group in (*([known[i] for i in group] for group in alike), *plain.values()):
        first = find(keys[group[0]])
        for member in group[1:]:
            other = find(keys[member])
            if other != first:
                leader[max(first, other)] = min(first, other)
                first = min(first, other)
    return [find(key) for key in keys]


def _place(key: str, seed: int) -> float:
    """A number from 0 to 1 that depends on nothing but key and seed."""
    digest = hashlib.sha256(f"{seed}\0{key}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def _split_at(place: float, shares: Mapping[str, float]) -> str:
    total = 0.0
    for name, share in shares.items():
        total += share
        if place < total:
            return name
    return list(shares)[-1]
