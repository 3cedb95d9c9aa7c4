"""Label files of other tools, for figures that must not lose a row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from perception.datasets import Dataset, Finding, open_dataset
from perception.errors import InputError
from perception.evaluate.tables import Floats

MAX_FAULTS_SHOWN = 20


def open_sound(spec: str) -> Dataset:
    """Open a data set whose label files are without fault.

    A data set reader reports a faulty row and goes on; a score must refuse, because a file that
    lost rows still scores. A faulty picture does not matter here.
    Raises InputError itemising the rows.
    """
    dataset = open_dataset(spec)
    faults = [
        item
        for item in dataset.report.findings
        if item.severity == "error" and item.code != "bad-picture"
    ]
    if faults:
        shown = [_place(dataset, item) for item in faults[:MAX_FAULTS_SHOWN]]
        rest = len(faults) - len(shown)
        more = [f"... and {rest} more"] if rest else []
        raise InputError("\n  ".join([f"{len(faults)} unusable rows", *shown, *more]))
    return dataset


def _place(dataset: Dataset, finding: Finding) -> str:
    return f"{dataset.root / finding.where}: {finding.message}"


def exact(values: npt.NDArray[np.float32]) -> Floats:
    """float64 of the decimal numbers that float32 values were read from.

    A limit such as 25 pixels must fall as it does on the text; 0.1 read as float32 is 0.1 again.
    """
    return values.astype(np.str_).astype(np.float64)
