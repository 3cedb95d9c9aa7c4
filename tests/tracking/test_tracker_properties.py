"""What holds for the tracker whatever is fed to it."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from perception.tracking import Tracker, Tracks

_COORDINATE = st.floats(-50, 700, width=32)
_ROW = st.tuples(
    _COORDINATE,
    _COORDINATE,
    st.floats(-5, 200, width=32),
    st.floats(-5, 200, width=32),
    st.floats(0, 1, width=32),
    st.integers(0, 3),
).map(lambda r: (r[0], r[1], r[0] + r[2], r[1] + r[3], r[4], r[5]))
_FRAME = st.lists(_ROW, max_size=8)
_STEP_MS = st.sampled_from([5, 5, 33, 33, 100, 0, -20, 1500, -3000])
_VIDEO = st.lists(st.tuples(_FRAME, _STEP_MS), min_size=1, max_size=12)


def _play(video: list[tuple[Any, int]]) -> list[Tracks]:
    tracker, now, out = Tracker(), 10_000, []
    for rows, step in video:
        now += step
        out.append(tracker.update(np.array(rows).reshape(-1, 6), now * 10**6))
    return out


@settings(deadline=None, max_examples=40)
@given(_VIDEO)
def test_each_row_comes_back_once_finite_and_with_an_id_of_its_own(video: Any) -> None:
    for (rows, _), out in zip(video, _play(video), strict=True):
        assert out.det_index.tolist() == list(range(len(rows)))
        given_rows = np.array(rows, np.float32).reshape(-1, 6)
        np.testing.assert_array_equal(out.detections.boxes, given_rows[:, :4])
        np.testing.assert_array_equal(out.detections.scores, given_rows[:, 4])
        tracked = out.ids[out.ids >= 0].tolist()
        assert len(set(tracked)) == len(tracked) and 0 not in tracked
        assert not set(tracked) & set(out.lost.ids.tolist())
        for numbers in (out.lost.boxes, out.lost.hidden_s):
            assert np.isfinite(numbers).all()
        known = ~np.isnan(out.detections.velocities)
        assert np.isfinite(out.detections.velocities[known]).all()
        assert (out.lost.hidden_s >= 0).all()
        assert (out.lost.boxes[:, 2:] > out.lost.boxes[:, :2]).all()


@settings(deadline=None, max_examples=40)
@given(_VIDEO)
def test_new_ids_only_ever_grow_within_a_session(video: Any) -> None:
    seen: set[int] = set()
    for (_, step), out in zip(video, _play(video), strict=True):
        if step == -3000:  # the only step that begins a new session, with ids from 1
            seen.clear()
        fresh = sorted(set(out.ids[out.ids >= 0].tolist()) - seen)
        assert not seen or not fresh or fresh[0] > max(seen)
        seen.update(fresh)


@settings(deadline=None, max_examples=40)
@given(_VIDEO, st.randoms(use_true_random=False))
def test_order_of_the_rows_changes_nothing_but_their_order(video: Any, random: Any) -> None:
    distinct = [(list(dict.fromkeys(rows)), step) for rows, step in video]
    orders = [random.sample(range(len(rows)), len(rows)) for rows, _ in distinct]
    shuffled = [
        ([rows[i] for i in order], step)
        for (rows, step), order in zip(distinct, orders, strict=True)
    ]
    for straight, mixed, order in zip(_play(distinct), _play(shuffled), orders, strict=True):
        np.testing.assert_array_equal(mixed.ids, straight.ids[order])
        np.testing.assert_array_equal(mixed.labels, straight.labels[order])
        np.testing.assert_array_equal(mixed.lost.boxes, straight.lost.boxes)


@settings(deadline=None, max_examples=30)
@given(_VIDEO)
def test_the_same_input_gives_the_same_output_twice(video: Any) -> None:
    for first, second in zip(_play(video), _play(video), strict=True):
        np.testing.assert_array_equal(first.ids, second.ids)
        np.testing.assert_array_equal(first.detections.velocities, second.detections.velocities)
