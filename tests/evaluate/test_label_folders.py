"""`waysight eval kitti` and `eval mot` on files."""

import json

import numpy as np
import pytest

from perception.cli import main

pytest.importorskip("pyarrow", reason="needs the extra 'data'")

CAR = "Car 0.00 0 -1.57 100.00 100.00 200.00 180.00 1.5 1.6 3.9 1.0 1.5 20.0 0.1"
REGION = "DontCare -1 -1 -10 400.00 100.00 600.00 200.00 -1 -1 -1 -1000 -1000 -1000 -10"
SOLID = "-1 -1 -1 -1000 -1000 -1000 -10"


def folders(tmp_path, frames=100):
    truth, found = tmp_path / "label_2", tmp_path / "results" / "data"
    truth.mkdir()
    found.mkdir(parents=True)
    for i in range(frames):
        (truth / f"{i:06d}.txt").write_text(f"{CAR}\n{REGION}\n")
        (found / f"{i:06d}.txt").write_text(
            f"Car -1 -1 -10 100.00 100.00 200.00 180.00 {SOLID} {0.5 + 0.004 * i:.3f}\n"
            f"Car -1 -1 -10 420.00 110.00 520.00 190.00 {SOLID} 0.95\n"
        )
    return truth, found


def test_kitti_folders_score_as_the_protocol_says(tmp_path):
    # C43 through files
    truth, found = folders(tmp_path)
    out, page = tmp_path / "out.json", tmp_path / "out.html"
    arguments = ["eval", "kitti", str(truth), str(found), "--json", str(out)]
    assert main([*arguments, "--report", str(page)]) == 0
    scores = json.loads(out.read_text())["scores"]
    row = next(s for s in scores if (s["kind"], s["difficulty"]) == ("Car", "moderate"))
    assert (row["true_positives"], row["false_alarms"], row["missed"]) == (100, 0, 0)
    assert row["ap_r40"] == pytest.approx(100.0)
    assert "moderate" in page.read_text()


def test_kitti_heights_fall_as_on_the_text(tmp_path):
    # 25 px exactly is too small for "moderate"; as float32 the same numbers differ by more.
    truth, found = folders(tmp_path, frames=1)
    row = CAR.replace("100.00 200.00 180.00", "173.13 200.00 198.13")
    (truth / "000000.txt").write_text(row + "\n")
    out = tmp_path / "out.json"
    assert main(["eval", "kitti", str(truth), str(found), "--json", str(out)]) == 0
    expected = int(198.13 - 173.13 > 25)
    assert json.loads(out.read_text())["scores"][1]["truth"] == expected


def test_kitti_frame_without_a_result_file_counts_as_missed(tmp_path, capsys):
    truth, found = folders(tmp_path, frames=3)
    (found / "000001.txt").unlink()
    out = tmp_path / "out.json"
    assert main(["eval", "kitti", str(truth), str(found), "--json", str(out)]) == 0
    assert json.loads(out.read_text())["scores"][1]["missed"] == 1
    assert "1 frames have no result file" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Car -1 -1 -10 100 100 200 180\n", "000000.txt:1: found 8 columns"),
        (f"Car -1 -1 -10 100 nan 200 180 {SOLID} 0.5\n", "000000.txt:1"),
        (f"Car -1 -1 -10 100 1e400 200 180 {SOLID} 0.5\n", "000000.txt:1"),
        (f"Car -1 -1 -10 100 100 200 180 {SOLID}\n", "000000.txt:1: a result row has no score"),
    ],
)
def test_kitti_faults_are_itemised(tmp_path, capsys, text, message):
    truth, found = folders(tmp_path, frames=2)
    (found / "000000.txt").write_text(text)
    assert main(["eval", "kitti", str(truth), str(found)]) == 2
    assert message in capsys.readouterr().err


def test_kitti_results_of_other_frames_are_refused(tmp_path, capsys):
    truth, found = folders(tmp_path, frames=2)
    (found / "000777.txt").write_text("")
    assert main(["eval", "kitti", str(truth), str(found)]) == 2
    assert "000777.txt" in capsys.readouterr().err


def test_kitti_fixture_scores_its_own_labels_perfectly(shared, tmp_path):
    labels = shared / "fixtures" / "kitti" / "training" / "label_2"
    found = tmp_path / "results"
    found.mkdir()
    for file in labels.glob("*.txt"):
        rows = [row for row in file.read_text().splitlines() if not row.startswith("DontCare")]
        (found / file.name).write_text("".join(f"{row} 0.9\n" for row in rows))
    out = tmp_path / "out.json"
    assert main(["eval", "kitti", str(labels.parent), str(found), "--json", str(out)]) == 0
    scores = json.loads(out.read_text())["scores"]
    assert sum(row["truth"] for row in scores) > 0
    assert all(row["missed"] == 0 and row["false_alarms"] == 0 for row in scores)


PLACES = (10, 50, 100, 150)
KINDS = ("1,1", "1,1", "0,8", "0,3")  # counted and class: two pedestrians, a distractor, a car
MOT17 = "".join(
    f"1,{i + 1},{x},10,20,40,{kind},1\n"
    for i, (x, kind) in enumerate(zip(PLACES, KINDS, strict=True))
)
TRACKS = "".join(f"1,{2001 + i},{x},10,20,40,-1,-1,-1,-1\n" for i, x in enumerate(PLACES))


def mot(tmp_path, truth=MOT17, found=TRACKS, *extra):
    (tmp_path / "gt.txt").write_text(truth)
    (tmp_path / "dt.txt").write_text(found)
    out = tmp_path / "out.json"
    arguments = ["eval", "mot", str(tmp_path / "gt.txt"), str(tmp_path / "dt.txt")]
    code = main([*arguments, "--json", str(out), *extra])
    return code, json.loads(out.read_text())["figures"] if out.exists() else {}


def test_mot_rules_are_recognised(tmp_path):
    # C46 through files
    pytest.importorskip("trackeval", reason="needs the extra 'eval'")
    code, figures = mot(tmp_path)
    assert code == 0
    assert (figures["true_positives"], figures["false_alarms"], figures["missed"]) == (2, 1, 0)
    assert figures["mota"] == pytest.approx(0.5)
    assert figures["rules"] == "mot17"
    code, figures = mot(tmp_path, MOT17, TRACKS, "--rules", "mot15")
    assert (figures["false_alarms"], figures["mota"]) == (2, pytest.approx(0.0))


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ("1,2001,10,10,nan,40,-1,-1,-1,-1\n", "dt.txt:1"),
        ("1,2001,10,10,20\n", "dt.txt:1"),
        ("1,-1,10,10,20,40,0.5,-1,-1,-1\n", "dt.txt:1: the row has no track id"),
        (
            "1,7,10,10,20,40,1,-1,-1,-1\n1,7,90,10,20,40,1,-1,-1,-1\n",
            "id 7 occurs twice in frame 1",
        ),
    ],
)
def test_mot_faults_are_itemised(tmp_path, capsys, found, message):
    pytest.importorskip("trackeval", reason="needs the extra 'eval'")
    assert mot(tmp_path, MOT17, found)[0] == 2
    assert message in capsys.readouterr().err


def test_a_set_with_classes_of_its_own_is_not_scored_by_pedestrian_rules(tmp_path):
    pytest.importorskip("trackeval", reason="needs the extra 'eval'")
    for name in ("gt", "dt"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "labels.txt").write_text("car\n")
        (tmp_path / name / "gt.txt").write_text("1,1,10,10,20,40,1,1,1\n2,1,12,10,20,40,1,1,1\n")
    out = tmp_path / "out.json"
    files = [str(tmp_path / name / "gt.txt") for name in ("gt", "dt")]
    assert main(["eval", "mot", *files, "--json", str(out)]) == 0
    figures = json.loads(out.read_text())["figures"]
    assert (figures["hota"], figures["truth"], figures["rules"]) == (1.0, 2, "mot15")


def test_a_kitti_class_that_no_file_has_is_refused(tmp_path, capsys):
    truth, found = folders(tmp_path, frames=1)
    assert main(["eval", "kitti", str(truth), str(found), "--classes", "Caar"]) == 2
    assert "no label or result file has the class 'Caar'" in capsys.readouterr().err
    assert main(["eval", "kitti", str(truth), str(found), "--classes", "car"]) == 0


def test_decimal_text_survives_float32():
    from perception.evaluate.label_files import exact

    text = ["113.84", "1242.37", "0.1", "65504"]
    assert exact(np.array(text, dtype=np.float32)).tolist() == [float(item) for item in text]
