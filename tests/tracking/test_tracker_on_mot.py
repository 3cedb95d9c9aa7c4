"""The tracker on the annotated pedestrians of MOT text files: real motion, real occlusion."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from perception.tracking import Tracker

MOT = Path(__file__).resolve().parents[3] / "shared" / "fixtures" / "mot"
RATE = 25.0

pytestmark = pytest.mark.skipif(not MOT.is_dir(), reason=f"no MOT annotations in {MOT}")


def _pairs(name: str, missed: float, noise: float) -> list[tuple[int, int]]:
    """(annotated id, track id) of every annotated box that the tracker was shown, in order.

    missed: share of boxes withheld. noise: standard deviation of the corners, box sizes.
    """
    truth = np.loadtxt(MOT / name / "gt.txt", delimiter=",")
    rng, tracker, pairs = np.random.default_rng(0), Tracker(), []
    for frame in np.unique(truth[:, 0]):
        rows = truth[(truth[:, 0] == frame)]
        rows = rows[rng.random(len(rows)) >= missed]
        boxes = np.concatenate([rows[:, 2:4], rows[:, 2:4] + rows[:, 4:6]], axis=1)
        size = np.sqrt(rows[:, 4] * rows[:, 5])[:, None]
        boxes += rng.normal(0, noise, boxes.shape) * size
        ones = np.ones((len(rows), 1))
        out = tracker.update(np.hstack([boxes, 0.9 * ones, 0 * ones]), int(frame / RATE * 1e9))
        pairs += zip(rows[:, 1].astype(int).tolist(), out.ids.tolist(), strict=True)
    return pairs


def _switches(pairs: list[tuple[int, int]]) -> int:
    """Times that an annotated object changes its track id."""
    last: dict[int, int] = {}
    count = 0
    for person, track in pairs:
        count += last.get(person, track) != track
        last[person] = track
    return count


@pytest.mark.parametrize(("name", "people"), [("TUD-Campus", 8), ("TUD-Stadtmitte", 10)])
def test_annotated_people_keep_one_id_each(name: str, people: int) -> None:
    pairs = _pairs(name, missed=0.0, noise=0.0)
    assert _switches(pairs) == 0
    assert len({track for _, track in pairs}) == len({person for person, _ in pairs}) == people


@pytest.mark.parametrize("name", ["TUD-Campus", "TUD-Stadtmitte"])
def test_a_third_missed_and_noisy_boxes_cost_few_ids(name: str) -> None:
    pairs = _pairs(name, missed=0.3, noise=0.05)
    assert _switches(pairs) <= 6
    main = {p: Counter(t for q, t in pairs if q == p).most_common(1)[0][1] for p, _ in pairs}
    assert sum(main.values()) >= 0.9 * len(pairs)
