"""Open a data set, lint it, divide it without leaks, and write what a trainer reads.

    python examples/prepare_a_data_set.py kitti:/data/kitti yolo:/data/ready

The same as `waysight data lint` and `waysight data split --out`, with a rule of one's own in
between: boxes lower than --least-height pixels become ignore regions where the target can hold
them, and are left out and counted where it cannot.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import replace

import numpy as np

from perception.datasets import Sample, open_dataset
from perception.datasets.convert import convert
from perception.datasets.engine import LocalEngine
from perception.datasets.lint import LintSettings, lint
from perception.datasets.split import By, parse_shares, split


def without_low_boxes(sample: Sample, least_height: float) -> Sample:
    """Boxes lower than `least_height` pixels as ignore regions: a trainer must not call them
    background, and need not find them."""
    boxes = sample.truth.boxes
    low = boxes[:, 3] - boxes[:, 1] < least_height
    kept = sample.chosen(np.flatnonzero(~low))
    return replace(kept, ignore=np.concatenate([sample.ignore, boxes[low]]))


def main() -> int:
    parser = argparse.ArgumentParser(description="Lint, divide and convert a data set.")
    parser.add_argument("dataset", metavar="SPEC")
    parser.add_argument("target", metavar="FORMAT:OUT")
    parser.add_argument("--shares", default="train=0.8,val=0.2")
    parser.add_argument("--least-height", type=float, default=0.0, metavar="PIXELS")
    args = parser.parse_args()

    engine = LocalEngine(quiet=not sys.stderr.isatty())
    dataset = open_dataset(args.dataset, engine=engine)
    print(f"{dataset.format}: {len(dataset)} pictures, {len(dataset.names)} classes")

    report = lint(dataset, LintSettings(similar=3), engine).report
    for code, count in report.by_code().items():
        print(f"  {count:6} {code}")
    for finding in report.findings:
        if finding.severity == "error":
            print(f"  {finding}")

    # Frames of one sequence, and pictures that look alike, stay on one side.
    by: By = "sequence" if any(sample.sequence for sample in dataset) else "hash"
    places = split(dataset, parse_shares(args.shares), by=by, similar=3)
    print(f"divided by {by}: {dict(sorted(Counter(places).items()))}")

    place = iter(places)

    def change(sample: Sample) -> Sample:
        return replace(without_low_boxes(sample, args.least_height), split=next(place))

    done = convert(dataset, args.target, change=change)
    print(f"{done.out}: {done.pictures} pictures, {done.boxes} boxes as {done.format}")
    for finding in done.report.findings:  # what the target format cannot hold
        print(f"  {finding}")
    return 1 if done.report.count("error") else 0


if __name__ == "__main__":
    sys.exit(main())
