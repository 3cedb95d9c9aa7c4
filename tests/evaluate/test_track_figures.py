"""Tracking figures: any ids, missing frames, distractors (C46), equality with TrackEval."""

import numpy as np
import pytest

from perception.detections import Detections
from perception.errors import InputError
from perception.evaluate import tracks
from perception.evaluate.tracks import MOT15, MOT17, TrackTable

pytest.importorskip("trackeval", reason="needs the extra 'eval'")


def table(rows):
    """rows: (frame, id, x, y, w, h, counted, class)."""
    data = np.array(rows, dtype=float).reshape(-1, 8)
    return TrackTable(
        data[:, 0].astype(np.int64),
        data[:, 1].astype(np.int64),
        data[:, 2:6],
        data[:, 6] != 0,
        data[:, 7].astype(np.int64),
    )


def test_boxes_on_distractors_vanish_and_boxes_on_other_classes_are_false_alarms():
    # C46
    truth = table(
        [
            (1, 1, 10, 10, 20, 40, 1, 1),
            (1, 2, 50, 10, 20, 40, 1, 1),
            (1, 3, 100, 10, 20, 40, 0, 8),
            (1, 4, 150, 10, 20, 40, 0, 3),
        ]
    )
    found = table([(1, 2001 + i, x, 10, 20, 40, 1, 1) for i, x in enumerate((10, 50, 100, 150))])
    result = tracks.evaluate(truth, found, MOT17)
    assert (result.true_positives, result.false_alarms, result.missed) == (2, 1, 0)
    assert result.mota == pytest.approx(0.5)
    assert result.ignored == 1
    plain = tracks.evaluate(truth, found, MOT15)
    assert (plain.false_alarms, plain.mota) == (2, pytest.approx(0.0))


def test_perfect_tracks_score_one_whatever_the_ids_and_frame_numbers():
    truth = table([(f, 7, 10 * f, 10, 30, 30, 1, 1) for f in (3, 4, 9)])
    found = table([(f, 10**12, 10 * f, 10, 30, 30, 1, 1) for f in (3, 4, 9)])
    result = tracks.evaluate(truth, found)
    assert (result.hota, result.mota, result.idf1) == pytest.approx((1, 1, 1))


def test_identity_switch_is_counted_once():
    truth = table([(f, 1, 10, 10, 30, 30, 1, 1) for f in range(6)])
    found = table([(f, 5 if f < 3 else 6, 10, 10, 30, 30, 1, 1) for f in range(6)])
    result = tracks.evaluate(truth, found)
    assert result.id_switches == 1
    assert result.idf1 == pytest.approx(0.5)


def test_frames_without_truth_only_hold_false_alarms():
    truth = table([(1, 1, 10, 10, 30, 30, 1, 1)])
    found = table([(1, 1, 10, 10, 30, 30, 1, 1), (2, 1, 10, 10, 30, 30, 1, 1)])
    result = tracks.evaluate(truth, found)
    assert (result.false_alarms, result.mota) == (1, pytest.approx(0.0))


def test_no_truth_is_undefined():
    result = tracks.evaluate(table([]), table([(1, 1, 10, 10, 30, 30, 1, 1)]))
    assert result.hota is None
    assert result.mota is None
    assert result.false_alarms == 1


def test_no_tracks_miss_everything():
    result = tracks.evaluate(table([(1, 1, 10, 10, 30, 30, 1, 1)]), table([]))
    assert (result.missed, result.mota) == (1, pytest.approx(0.0))


def test_id_twice_in_a_frame_is_named():
    twice = table([(4, 9, 10, 10, 30, 30, 1, 1), (4, 9, 90, 10, 30, 30, 1, 1)])
    with pytest.raises(InputError, match="id 9 occurs twice in frame 4"):
        tracks.evaluate(twice, table([]))


def test_untracked_detections_are_left_out_of_the_table():
    picture = Detections.create([[0, 0, 9, 9], [5, 5, 9, 9]], [1, 1], [0, 2], track_ids=[-1, 4])
    rows = tracks.table([Detections.empty(), picture])
    assert (rows.frames.tolist(), rows.ids.tolist(), rows.classes.tolist()) == ([1], [4], [2])


def _mot_rows(path):
    data = np.loadtxt(path, delimiter=",", ndmin=2)
    return table(np.hstack([data[:, :7], np.ones((len(data), 1))]))


@pytest.mark.parametrize(
    ("sequence", "mota", "idf1"),
    # Figures that py-motmetrics documents for these two sequences.
    [("TUD-Campus", 0.526, 0.558), ("TUD-Stadtmitte", 0.564, 0.645)],
)
def test_figures_equal_the_reference_tools(shared, tmp_path, sequence, mota, idf1):
    folder = shared / "fixtures" / "mot" / sequence
    result = tracks.evaluate(_mot_rows(folder / "gt.txt"), _mot_rows(folder / "test.txt"))
    assert result.mota == pytest.approx(mota, abs=5e-4)
    assert result.idf1 == pytest.approx(idf1, abs=5e-4)
    reference = _trackeval(folder, sequence, tmp_path)
    for name, (group, key) in {
        "hota": ("HOTA", "HOTA"),
        "deta": ("HOTA", "DetA"),
        "assa": ("HOTA", "AssA"),
        "mota": ("CLEAR", "MOTA"),
        "motp": ("CLEAR", "MOTP"),
        "idf1": ("Identity", "IDF1"),
        "id_switches": ("CLEAR", "IDSW"),
    }.items():
        assert getattr(result, name) == pytest.approx(np.mean(reference[group][key]), abs=1e-9)


def _trackeval(folder, sequence, tmp_path):
    """The same files through TrackEval's own reader and evaluator."""
    import trackeval

    gt = tmp_path / "gt" / "MOT15-train" / sequence
    (gt / "gt").mkdir(parents=True)
    (gt / "gt" / "gt.txt").write_bytes((folder / "gt.txt").read_bytes())
    frames = int(np.loadtxt(folder / "gt.txt", delimiter=",")[:, 0].max())
    (gt / "seqinfo.ini").write_text(f"[Sequence]\nname={sequence}\nseqLength={frames}\n")
    results = tmp_path / "trackers" / "MOT15-train" / "ours" / "data"
    results.mkdir(parents=True)
    (results / f"{sequence}.txt").write_bytes((folder / "test.txt").read_bytes())
    quiet = {"PRINT_CONFIG": False}
    dataset = trackeval.datasets.MotChallenge2DBox(
        {
            **quiet,
            "GT_FOLDER": str(tmp_path / "gt"),
            "TRACKERS_FOLDER": str(tmp_path / "trackers"),
            "BENCHMARK": "MOT15",
            "SEQ_INFO": {sequence: frames},
        }
    )
    judge = trackeval.Evaluator(
        {
            **quiet,
            "PRINT_RESULTS": False,
            "TIME_PROGRESS": False,
            "OUTPUT_SUMMARY": False,
            "OUTPUT_DETAILED": False,
            "PLOT_CURVES": False,
        }
    )
    metrics = [
        trackeval.metrics.HOTA(),
        trackeval.metrics.CLEAR(quiet),
        trackeval.metrics.Identity(quiet),
    ]
    found, _ = judge.evaluate([dataset], metrics)
    return found["MotChallenge2DBox"]["ours"][sequence]["pedestrian"]
