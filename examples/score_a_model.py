"""Score a detector on a data set: COCO figures, slices, error types and a score threshold.

    python examples/score_a_model.py kitti:/data/kitti --model road-n --limit 500

The data set is named as for `waysight data`: kitti:/path, coco:/path/instances.json, a folder...
Classes of data set and model meet by name; --map gives a class map (map: {Car: car, ...}).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from rich.progress import track

from perception.datasets import Dataset, Sample, open_dataset
from perception.detections import Detections
from perception.errors import InputError
from perception.evaluate import compare, diagnosis, samples, slices
from perception.evaluate.coco import evaluate
from perception.labels import LabelMap
from perception.runtime.detector import Detector


def detect(detector: Detector, dataset: Dataset, pictures: Sequence[Sample]) -> list[Detections]:
    """One result a picture; a picture that cannot be read counts as an invalid result."""
    results = []
    for sample in track(pictures, description="detecting"):
        try:
            results.append(detector(dataset.load(sample)))
        except InputError as error:
            results.append(Detections.failed(str(error)))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description="Score a detector on a data set.")
    parser.add_argument("dataset", metavar="SPEC")
    parser.add_argument("--model", default="road-n", help="shipped model or .onnx file")
    parser.add_argument("--map", type=Path, help="YAML class map")
    parser.add_argument("--limit", type=int, default=500, help="pictures, from the first")
    args = parser.parse_args()

    # A low threshold: average precision needs the uncertain detections as well.
    detector = Detector(args.model, score_threshold=0.01)
    classes = LabelMap.from_yaml(args.map, detector.contract.labels) if args.map else None
    dataset = open_dataset(args.dataset, classes=classes)
    pictures = list(islice(dataset, args.limit))
    results = detect(detector, dataset, pictures)
    tables = samples.tables(pictures, results, tuple(dataset.names), detector.names)

    figures = evaluate(tables)
    print(f"AP {figures.ap}, AP50 {figures.ap50}, AR100 {figures.ar100}")
    parts = slices.build(tables, samples.conditions(pictures, tables))
    for score in compare.score_slices(tables, parts, compare.Resampling(samples=100)):
        item = score.figures["ap50"]
        enough = item.low is not None and item.high is not None
        interval = f"{item.low:.3f} to {item.high:.3f}" if enough else "too few pictures"
        print(f"  {score.name:24} AP50 {item.value:.3f} ({interval})")

    found = diagnosis.diagnose(tables)
    for error in found.errors:
        print(f"  {error.name:32} {error.count:5}, repaired AP50 would gain {error.ap50_gain}")
    point = diagnosis.threshold_for(found.matches, false_alarms_per_picture=0.1)
    print(f"for 0.1 false alarms a picture: score {point.score:.3f}, recall {point.recall}")


if __name__ == "__main__":
    main()
