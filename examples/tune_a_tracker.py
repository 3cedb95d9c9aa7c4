"""Choose a tracker setting by HOTA on MOTChallenge sequences, with noisy ground truth as detector.

    python examples/tune_a_tracker.py MOT17-train/*/gt/gt.txt --fps 30

Every ground-truth box becomes a detection that is now and then lost and always a little off, the
way a detector's are; the tracker is scored for several values of `retention`.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from perception.detections import Detections
from perception.evaluate import mot_files, tracks
from perception.tracking import Tracker, TrackerSettings

RETENTIONS = (0.1, 0.3, 1.0, 3.0)
"""Seconds that a track outlives its last detection."""


def noisy(truth: tracks.TrackTable, frame: int, rng: np.random.Generator) -> Detections:
    """Detections of one frame: a tenth lost, corners off by 3 % of the size (one sigma)."""
    boxes = truth.boxes[(truth.frames == frame) & truth.counted]
    boxes = boxes[rng.random(len(boxes)) > 0.1]
    corners = np.hstack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]])
    corners += rng.normal(0, 0.03, corners.shape) * np.tile(boxes[:, 2:], 2)
    return Detections.create(corners, rng.uniform(0.6, 1.0, len(boxes)), [0] * len(boxes))


def run(truth: tracks.TrackTable, settings: TrackerSettings, fps: float) -> tracks.TrackResult:
    """Track one sequence and score it."""
    rng = np.random.default_rng(0)  # the same noise for every setting
    tracker = Tracker(settings)
    frames = range(int(truth.frames.min()), int(truth.frames.max()) + 1)
    found = []
    for frame in frames:
        result = tracker.update(noisy(truth, frame, rng), stamp_ns=round(frame / fps * 1e9))
        found.append(result.detections)
    results = tracks.table(found)
    results = replace(results, frames=results.frames + frames[0])
    return tracks.evaluate(truth, results)


def main() -> None:
    parser = argparse.ArgumentParser(description="Choose a tracker setting by HOTA.")
    parser.add_argument("truth", nargs="+", type=Path, metavar="GT.txt")
    parser.add_argument("--fps", type=float, default=30.0, help="pictures a second")
    args = parser.parse_args()
    for path in args.truth:
        truth, _ = mot_files.read_table(path)
        for seconds in RETENTIONS:
            result = run(truth, TrackerSettings(retention=seconds), args.fps)
            print(
                f"{path}: retention {seconds:g} s: HOTA {result.hota:.4f}, MOTA {result.mota:.4f}, "
                f"IDF1 {result.idf1:.4f}, {result.id_switches} switches"
            )


if __name__ == "__main__":
    main()
