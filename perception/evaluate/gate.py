"""A gate for continuous integration: which slices may lose how much, read from YAML.

    metric: ap50            # ap, ap50 or ap75
    max_drop: 0.02          # allowed loss of every slice not named below
    slices:                 # allowed loss of single slices; naming one makes it required
      all: 0.0
      timeofday=night: 0.01
    minimum:                # the new model's own figure
      all: 0.30

A slice fails when it is worse beyond doubt (its interval excludes 0) and lost more than allowed,
when it misses its minimum, or when it is named and cannot be judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perception.errors import InputError
from perception.evaluate.compare import METRICS, SliceComparison
from perception.files import read_yaml
from perception.labels import nearest


@dataclass(frozen=True)
class Gate:
    """Limits as fractions of 1. max_drop None judges only the slices that are named."""

    metric: str = "ap"
    max_drop: float | None = 0.0
    slices: dict[str, float] = field(default_factory=dict)
    minimum: dict[str, float] = field(default_factory=dict)

    @classmethod
    def from_yaml(cls, path: str | Path) -> Gate:
        """Read a gate; raises InputError naming the key that is wrong."""
        data = read_yaml(path)
        unknown = sorted(set(data) - {"metric", "max_drop", "slices", "minimum"})
        if unknown:
            known = ["metric", "max_drop", "slices", "minimum"]
            raise InputError(
                f"{path}: unknown key {unknown[0]!r}, expected one of "
                f"{', '.join(known)}{nearest(unknown[0], known)}"
            )
        metric = data.get("metric", "ap")
        if metric not in METRICS:
            raise InputError(f"{path}: metric is {metric!r}, expected one of {', '.join(METRICS)}")
        drop = data.get("max_drop", 0.0)
        return cls(
            metric=metric,
            max_drop=None if drop is None else _limit(path, "max_drop", drop),
            slices=_limits(path, "slices", data.get("slices") or {}),
            minimum=_limits(path, "minimum", data.get("minimum") or {}),
        )

    def failures(self, comparisons: Sequence[SliceComparison]) -> list[str]:
        """One sentence a slice that fails, none when the gate passes.

        Raises InputError for a named slice that the comparison does not hold.
        """
        rows = {row.name: row for row in comparisons if row.metric == self.metric}
        for name in (*self.slices, *self.minimum):
            if name not in rows:
                raise InputError(
                    f"the gate names slice {name!r}, which this ground truth does not have; "
                    f"it has {', '.join(rows)}{nearest(name, list(rows))}"
                )
        messages = []
        for name, row in rows.items():
            limit = self.slices.get(name, self.max_drop)
            named = name in self.slices or name in self.minimum
            change = row.difference.value
            if change is None or row.b is None:
                if named:
                    messages.append(f"{name}: {self.metric} is undefined, so it cannot be judged")
                continue
            if row.verdict == "too few pictures" and name in self.slices:
                messages.append(f"{name}: objects in too few pictures, so it cannot be judged")
            if limit is not None and row.verdict == "worse" and -change > limit:
                messages.append(
                    f"{name}: {self.metric} fell from {row.a:.4f} to {row.b:.4f}, "
                    f"by {-change:.4f} where {limit:g} is allowed"
                )
            least = self.minimum.get(name)
            if least is not None and row.b < least:
                messages.append(
                    f"{name}: {self.metric} is {row.b:.4f}, expected at least {least:g}"
                )
        return messages


def _limit(path: str | Path, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise InputError(f"{path}: {key} is {value!r}, expected a number from 0 to 1")
    return float(value)


def _limits(path: str | Path, key: str, value: Any) -> dict[str, float]:
    if not isinstance(value, dict):
        raise InputError(f"{path}: {key} is {value!r}, expected a mapping of slices to numbers")
    return {str(name): _limit(path, f"{key}.{name}", item) for name, item in value.items()}
