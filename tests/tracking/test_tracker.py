"""The tracker: ids over time, at any rate and whatever comes in."""

import logging
from collections.abc import Iterator

import numpy as np
import pytest

from perception.detections import Detections
from perception.tracking import Tracker, TrackerSettings, Tracks

BOX = [100.0, 100.0, 140.0, 180.0]
ROW = [*BOX, 0.9, 0.0]


def _stamps(rate: float, start_s: float = 100.0) -> Iterator[int]:
    """Stamps in ns of a camera at `rate` pictures a second."""
    n = 0
    while True:
        yield round((start_s + n / rate) * 1e9)
        n += 1


def _run(tracker: Tracker, frames: list[object], rate: float = 30.0) -> list[Tracks]:
    return [
        tracker.update(rows, stamp)  # type: ignore[arg-type]
        for rows, stamp in zip(frames, _stamps(rate), strict=False)
    ]


def test_frames_without_detections_keep_ids_and_age_the_lost() -> None:  # C32
    frames = [[], [ROW], [ROW], [ROW], None, np.empty((0, 6)), [], [ROW]]
    out = _run(Tracker(), frames)
    for i in (0, 4, 5, 6):
        assert len(out[i]) == 0
        assert out[i].ids.dtype == np.int64 and out[i].detections.boxes.shape == (0, 4)
    assert [out[i].lost.hidden_frames.tolist() for i in (4, 5, 6)] == [[1], [2], [3]]
    assert out[7].ids.tolist() == out[1].ids.tolist() == [1]
    assert len(out[7].lost) == 0


def test_detections_type_and_rows_give_the_same_tracks() -> None:
    found = Detections.create([BOX], [0.9], [0])
    assert Tracker().update(found, 0).ids.tolist() == Tracker().update([ROW], 0).ids.tolist() == [1]


@pytest.mark.parametrize("rate", [10, 30, 180])
def test_retention_is_time_at_any_rate(rate: int) -> None:  # C34
    settings = TrackerSettings(retention=1.0)
    short, long = [[]] * round(0.9 * rate), [[]] * round(1.2 * rate)
    frames = [[ROW]] * 5 + short + [[ROW]] + long + [[ROW]]
    out = _run(Tracker(settings), frames, rate)
    assert out[4].ids.tolist() == [1]
    assert out[5 + round(0.9 * rate)].ids.tolist() == [1]
    assert out[-1].ids.tolist() == [2]
    assert settings.frames_kept(rate) == rate


@pytest.mark.parametrize("rate", [10, 30, 180])
def test_retention_holds_when_the_camera_itself_was_silent(rate: int) -> None:
    for gap, expected in ((0.9, 1), (1.2, 2)):
        tracker = Tracker(TrackerSettings(retention=1.0))
        for stamp, _ in zip(_stamps(rate), range(5), strict=False):
            tracker.update([ROW], stamp)
        assert tracker.update([ROW], stamp + round(gap * 1e9)).ids.tolist() == [expected]


@pytest.mark.parametrize("rate", [10, 30, 180])
def test_number_of_missed_pictures_survived_is_retention_times_rate(rate: int) -> None:
    settings = TrackerSettings(retention=0.5)
    for missed, expected in ((rate // 2, 1), (rate // 2 + 1, 2)):
        out = _run(Tracker(settings), [[ROW]] * 5 + [[]] * missed + [[ROW]], rate)
        assert out[-1].ids.tolist() == [expected], f"{missed} missed"


def test_retention_of_one_picture_survives_one_miss_and_ends_at_the_second() -> None:  # C34
    settings = TrackerSettings(retention=0.1)
    assert settings.frames_kept(10) == 1
    out = _run(Tracker(settings), [[ROW]] * 3 + [[]] + [[ROW]] + [[], []] + [[ROW]], 10)
    assert out[4].ids.tolist() == [1]
    assert [len(out[i].lost) for i in (5, 6)] == [1, 0]
    assert out[7].ids.tolist() == [2]


def test_retention_shorter_than_a_period_still_tracks_from_picture_to_picture() -> None:
    out = _run(Tracker(TrackerSettings(retention=0.01)), [[ROW]] * 5, 10)
    assert [o.ids.tolist() for o in out] == [[1]] * 5


@pytest.mark.parametrize("retention", [0.0, -1.0, float("nan"), float("inf")])
def test_retention_must_be_above_zero(retention: float) -> None:  # C34
    with pytest.raises(ValueError, match="retention"):
        TrackerSettings(retention=retention)


@pytest.mark.parametrize("rate", [0.0, -5.0, float("nan")])
def test_frame_rate_must_be_above_zero(rate: float) -> None:  # C34
    with pytest.raises(ValueError, match="frame_rate"):
        TrackerSettings().frames_kept(rate)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("high_threshold", 1.5),
        ("low_threshold", 0.7),
        ("match_iou", -0.1),
        ("start_threshold", 0.2),
    ],
)
def test_settings_out_of_range_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        TrackerSettings(**{name: value})


def test_trackers_share_no_state() -> None:  # C35
    rows = [ROW, [300.0, 100.0, 340.0, 180.0, 0.8, 0.0]]
    a, b, alone = Tracker(), Tracker(), Tracker()
    for stamp, _ in zip(_stamps(30), range(5), strict=False):
        beside, lonely = a.update(rows, stamp), alone.update(rows, stamp)
        assert beside.ids.tolist() == lonely.ids.tolist() == b.update(rows, stamp).ids.tolist()
        assert beside.ids.tolist() == [1, 2]
        assert np.array_equal(beside.detections.velocities, lonely.detections.velocities, True)
    a.reset()
    moved = [[500.0, 400.0, 540.0, 480.0, 0.9, 0.0]]
    assert a.update(moved, stamp + 10).ids.tolist() == [1]
    assert b.update(moved, stamp + 10).ids.tolist() == [3]
    assert Tracker().update(rows, 0).ids.tolist() == [1, 2]


def test_every_detection_comes_back_once_with_its_own_box_class_and_score() -> None:  # C36
    rows = np.array(
        [
            [10, 10, 50, 60, 0.90, 2],
            [200, 10, 250, 60, 0.30, 0],
            [400, 10, 450, 60, 0.65, 1],
        ]
    )
    settings = TrackerSettings(high_threshold=0.6, start_threshold=0.7)
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0], [2, 1, 0]):
        tracker = Tracker(settings)
        for stamp, _ in zip(_stamps(30), range(3), strict=False):
            out = tracker.update(rows[order], stamp)
            assert out.det_index.tolist() == [0, 1, 2]
            np.testing.assert_array_equal(out.detections.boxes, rows[order][:, :4])
            np.testing.assert_allclose(out.detections.scores, rows[order][:, 4], rtol=1e-6)
            assert out.detections.labels.tolist() == rows[order][:, 5].tolist()
            assert dict(zip(order, out.ids.tolist(), strict=True)) == {0: 1, 1: -1, 2: -1}


def test_a_box_stays_the_detections_not_the_filters() -> None:
    boxes = [[100 + 7 * n + (n % 3), 100, 140 + 7 * n, 180 + n % 2, 0.9, 0] for n in range(8)]
    for rows, out in zip(boxes, _run(Tracker(), [[b] for b in boxes]), strict=True):
        assert out.detections.boxes[0].tolist() == rows[:4]


def test_low_scores_keep_a_track_alive_but_start_none() -> None:
    faint = [*BOX, 0.2, 0.0]
    out = _run(Tracker(), [[faint], [ROW], [ROW], [faint], [faint]])
    assert [o.ids.tolist() for o in out] == [[-1], [1], [1], [1], [1]]


def test_high_scores_are_matched_before_low_ones() -> None:
    """A faint box that overlaps a little better must not take the track from a clear one."""
    clear, faint = [104.0, 100.0, 144.0, 180.0, 0.9, 0.0], [*BOX, 0.3, 0.0]
    out = _run(Tracker(), [[ROW], [ROW], [faint, clear]])
    assert out[-1].ids.tolist() == [-1, 1]


def test_class_follows_the_vote_of_the_track_not_the_single_picture() -> None:
    car, truck = ROW, [*BOX, 0.7, 1.0]
    out = _run(Tracker(), [[car], [car], [truck], [car], [truck], [car]])
    assert [o.ids.tolist() for o in out] == [[1]] * 6
    assert [o.labels.tolist() for o in out] == [[0]] * 6
    assert [o.detections.labels.tolist() for o in out] == [[0], [0], [1], [0], [1], [0]]
    assert out[2].voted().labels.tolist() == [0]


@pytest.mark.parametrize("rate", [10, 180])
def test_a_track_that_was_wrong_at_first_takes_the_class_that_outvotes_it(rate: int) -> None:
    frames = [[ROW]] * round(0.3 * rate) + [[[*BOX, 0.9, 1.0]]] * round(1.5 * rate)
    out = _run(Tracker(), frames, rate)
    assert out[-1].ids.tolist() == [1] and out[-1].labels.tolist() == [1]


def test_two_classes_reported_for_one_object_are_one_track() -> None:
    out = _run(Tracker(), [[ROW, [101.0, 100.0, 141.0, 180.0, 0.8, 1.0]]] * 3)
    assert [o.ids.tolist() for o in out] == [[1, -1]] * 3


def test_a_person_on_a_bicycle_keeps_two_tracks_when_one_is_missed() -> None:
    person, bicycle = [100.0, 50.0, 140.0, 150.0, 0.9, 6.0], [95.0, 90.0, 145.0, 165.0, 0.9, 4.0]
    out = _run(Tracker(), [[person, bicycle]] * 3 + [[bicycle]] * 3 + [[person, bicycle]])
    first = out[0].ids.tolist()
    assert [o.ids.tolist() for o in out[3:6]] == [[first[1]]] * 3
    assert out[-1].ids.tolist() == first


@pytest.mark.parametrize("rate", [10, 30, 180])
def test_velocity_is_in_pixels_a_second_at_any_rate(rate: int) -> None:
    speed = np.array([120.0, -40.0])
    frames = [
        [[*(np.array(BOX) + np.tile(speed * n / rate, 2)), 0.9, 0.0]]
        for n in range(int(1.5 * rate))
    ]
    out = _run(Tracker(), frames, rate)
    assert np.isnan(out[0].detections.velocities).all()
    np.testing.assert_allclose(out[-1].detections.velocities[0], speed, atol=3.0)


def test_a_moving_object_is_found_again_where_it_has_gone() -> None:
    def at(n: int) -> list[list[float]]:
        return [[100 + 8.0 * n, 100, 140 + 8.0 * n, 180, 0.9, 0]]

    out = _run(Tracker(), [at(n) for n in range(15)] + [[]] * 12 + [at(27)])
    assert out[-1].ids.tolist() == [1]
    np.testing.assert_allclose(out[-2].lost.boxes[0], np.array(at(26)[0][:4]), atol=12)


def test_crossing_objects_keep_their_ids() -> None:
    def at(n: int) -> list[list[float]]:
        return [
            [10.0 + 8 * n, 100, 50.0 + 8 * n, 180, 0.9, 0],
            [330.0 - 8 * n, 110, 370.0 - 8 * n, 190, 0.9, 0],
        ]

    out = _run(Tracker(), [at(n) for n in range(41)])
    assert out[0].ids.tolist() == out[-1].ids.tolist()


def test_irregular_rates_keep_the_id_of_a_moving_object() -> None:
    tracker, rng, now = Tracker(), np.random.default_rng(0), 0.0
    for _ in range(100):
        now += rng.choice([1 / 180, 0.033, 0.1, 0.25])
        x = 50 + 60 * now
        assert tracker.update([[x, 100, x + 40, 180, 0.9, 0]], round(now * 1e9)).ids.tolist() == [1]


def test_unusable_picture_comes_back_invalid_and_tracks_move_on() -> None:
    def at(n: int) -> list[list[float]]:
        return [[100 + 8.0 * n, 100, 140 + 8.0 * n, 180, 0.9, 0]]

    broken = Detections.failed("corrupt JPEG")
    out = _run(Tracker(), [*(at(n) for n in range(10)), broken, broken, broken, at(13)])
    for i in (10, 11, 12):
        assert not out[i].valid and out[i].detections.reason == "corrupt JPEG"
        assert out[i].lost.ids.tolist() == [1]
        assert out[i].lost.hidden_frames.tolist() == [0]  # nobody could have seen it
    assert out[12].lost.boxes[0, 0] > out[10].lost.boxes[0, 0] > out[9].detections.boxes[0, 0]
    assert out[13].ids.tolist() == [1]


def test_a_late_picture_changes_nothing_and_is_counted() -> None:  # C54
    swapped, straight = Tracker(), Tracker()
    stamps = [round((100 + n / 20) * 1e9) for n in range(20)]
    rows = [[[100 + 3.0 * n, 100, 140 + 3.0 * n, 180, 0.9, 0]] for n in range(20)]
    order = [*range(10), 11, 10, *range(12, 20)]
    for n in order:
        late = swapped.update(rows[n], stamps[n])
        assert late.ids.tolist() == [1]
    for n in order:
        if n != 10:
            last = straight.update(rows[n], stamps[n])
    assert swapped.late == 1 and swapped.resets == 0
    np.testing.assert_array_equal(late.detections.velocities, last.detections.velocities)


def test_the_same_stamp_twice_is_a_late_picture() -> None:
    tracker = Tracker()
    tracker.update([ROW], 5)
    assert tracker.update([ROW, [300, 0, 350, 50, 0.9, 0]], 5).ids.tolist() == [1, -1]
    assert tracker.late == 1


def test_a_looped_bag_starts_a_new_session_with_one_line(  # C54
    caplog: pytest.LogCaptureFixture,
) -> None:
    tracker = Tracker()
    stamps = [round((100 + n / 20) * 1e9) for n in range(100)]
    rows = [[[100 + 3.0 * n, 100, 140 + 3.0 * n, 180, 0.9, 0]] for n in range(100)]
    with caplog.at_level(logging.WARNING):
        passes = [
            [tracker.update(r, s) for r, s in zip(rows, stamps, strict=True)] for _ in range(2)
        ]
    assert tracker.resets == 1 and len(caplog.records) == 1
    assert "5" in caplog.text or "4.95" in caplog.text
    for first, second in zip(*passes, strict=True):
        assert first.ids.tolist() == second.ids.tolist() == [1]
        assert len(second.lost) == 0
        np.testing.assert_array_equal(first.detections.velocities, second.detections.velocities)


@pytest.mark.parametrize("bad", [[[1, 2, 3]], np.zeros((2, 7)), np.zeros(6)])
def test_rows_of_another_shape_are_refused(bad: object) -> None:
    with pytest.raises(ValueError, match=r"expected \(N, 6\)"):
        Tracker().update(bad, 0)  # type: ignore[arg-type]


def test_rows_that_are_not_finite_are_counted_and_point_past_themselves() -> None:
    nan = float("nan")
    rows = [
        [nan, 0, 1, 1, 0.9, 0],
        ROW,
        [0, 0, 9, 9, nan, 0],
        [0, 0, 1e300, 9, 0.9, 0],
        [0, 0, 9, 9, 0.9, nan],
    ]
    out = Tracker().update(rows, 0)
    assert out.ids.tolist() == [1] and out.det_index.tolist() == [1]
    assert out.detections.invalid_rows == 4


@pytest.mark.parametrize("box", [[5, 5, 5, 9], [9, 9, 5, 5], [0, 0, 2e7, 2e7]])
def test_a_box_without_area_or_off_any_picture_is_handed_back_untracked(box: list[float]) -> None:
    for _ in range(2):
        assert Tracker().update([[*box, 0.9, 0]], 0).ids.tolist() == [-1]


def test_a_jump_forward_ends_every_track_and_ids_go_on() -> None:
    tracker = Tracker()
    _run(tracker, [[ROW]] * 5)
    assert tracker.update([ROW], 10**18).ids.tolist() == [2]
