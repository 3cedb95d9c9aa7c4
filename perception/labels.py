"""Ordered class names, and maps from one label set to another."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perception.errors import InputError
from perception.files import read_yaml

IGNORE = "ignore"
"""Target of a source class whose objects are neither positives nor negatives."""


def nearest(name: str, known: Sequence[str]) -> str:
    """' (did you mean ...?)' when a known name is close, else an empty string."""
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


@dataclass(frozen=True, slots=True)
class LabelSet:
    """Class names in the order of the model's outputs; unique and not empty strings."""

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if any(not isinstance(name, str) or not name for name in self.names):
            raise InputError(f"class names must be non-empty strings, found {self.names!r}")
        if len(set(self.names)) != len(self.names):
            twice = sorted({name for name in self.names if self.names.count(name) > 1})
            raise InputError(f"class names must be unique, found twice: {', '.join(twice)}")

    def index(self, name: str) -> int:
        """Position of `name`; raises InputError with the nearest known name."""
        try:
            return self.names.index(name)
        except ValueError:
            raise InputError(
                f"class {name!r} is not one of {', '.join(self.names)}{nearest(name, self.names)}"
            ) from None

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> str:
        return self.names[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)


ROAD = LabelSet(("car", "truck", "bus", "motorcycle", "bicycle", "three_wheeler", "person"))
FACTORY = LabelSet(("person", "forklift", "pallet"))

ROAD_VEHICLES = ("car", "truck", "bus", "motorcycle", "bicycle", "three_wheeler")
"""The classes meant by "some vehicle, kind unknown"."""


@dataclass(frozen=True)
class LabelMap:
    """Source class name -> target class, IGNORE, or the name of a group of target classes.

    groups: group name -> the target classes it may stand for, such as vehicle -> car, truck...
    """

    target: LabelSet
    mapping: Mapping[str, str]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for group, members in self.groups.items():
            for member in members:
                if member not in self.target.names:
                    raise InputError(f"group {group!r} names {member!r}, which is no target class")
        known = (*self.target.names, *self.groups, IGNORE)
        for source, name in self.mapping.items():
            if name not in known:
                raise InputError(
                    f"class {source!r} maps to {name!r}, expected one of "
                    f"{', '.join(known)}{nearest(name, known)}"
                )

    @classmethod
    def from_yaml(cls, path: str | Path, target: LabelSet) -> LabelMap:
        """Read `map: {source: target}` and optional `groups: {name: [classes]}`."""
        data = read_yaml(path)
        unknown = sorted(set(data) - {"map", "groups"})
        if unknown:
            raise InputError(f"{path}: unknown key {unknown[0]!r}, expected 'map' or 'groups'")
        groups = {str(key): tuple(map(str, names)) for key, names in data.get("groups", {}).items()}
        mapping = {str(key): str(name) for key, name in data.get("map", {}).items()}
        try:
            return cls(target, mapping, groups)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    def __getitem__(self, source: str) -> str:
        """Target of a source class; raises InputError when the map does not name it."""
        try:
            return self.mapping[source]
        except KeyError:
            raise InputError(
                f"class {source!r} is not in the class map{nearest(source, list(self.mapping))}"
            ) from None
