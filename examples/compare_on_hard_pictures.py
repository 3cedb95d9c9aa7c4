"""Is model B better than model A on pictures of one's own choice?

    python examples/compare_on_hard_pictures.py GT.json A.json B.json --min-objects 5

Takes COCO ground truth and two COCO result files and compares on the crowded pictures only: a
slice is a mask, so anything that can be computed about a picture or an object can be one.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from perception.evaluate import coco_files, compare
from perception.evaluate.notes import difference_text
from perception.evaluate.slices import EVERYTHING, Slice


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare two models on crowded pictures.")
    parser.add_argument("truth", type=Path, metavar="GT.json")
    parser.add_argument("first", type=Path, metavar="A.json")
    parser.add_argument("second", type=Path, metavar="B.json")
    parser.add_argument("--min-objects", type=int, default=5, help="objects of a crowded picture")
    args = parser.parse_args()

    truth = coco_files.read_truth(args.truth)
    first = truth.tables(coco_files.read_results(args.first, truth))
    second = truth.tables(coco_files.read_results(args.second, truth))
    objects = np.bincount(truth.truth.image, minlength=len(truth.pictures))
    crowded = Slice("objects", f"{args.min_objects} or more", pictures=objects >= args.min_objects)
    rows = compare.compare(
        first,
        second,
        [(part, part) for part in (EVERYTHING, crowded)],
        compare.Resampling(samples=300),
        sequences=truth.sequences,
    )
    for row in rows:
        change, interval = difference_text(row)
        print(f"{row.name:24} {row.metric:5} {change} ({interval}): B is {row.verdict}")


if __name__ == "__main__":
    main()
