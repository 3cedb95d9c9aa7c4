"""Data sets: readers and writers, index, lint, conversion, bags."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perception.datasets.dataset import Dataset
    from perception.datasets.opening import open_dataset
    from perception.datasets.report import Finding, Report
    from perception.datasets.sample import Sample

__all__ = ["Dataset", "Finding", "Report", "Sample", "open_dataset"]

_HOME = {
    "Dataset": "dataset",
    "Finding": "report",
    "Report": "report",
    "Sample": "sample",
    "open_dataset": "opening",
}


def __getattr__(name: str) -> Any:
    # Late, so that the picture generator and the bag reader do without pyarrow.
    if name in _HOME:
        return getattr(importlib.import_module(f"perception.datasets.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
