"""`waysight track` as a user calls it."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from perception.cli.track import mot_rows
from perception.datasets import open_dataset
from perception.detections import Detections
from tests.cli.test_detect import waysight
from tests.onnx_models import bright_cell_detector
from tests.test_sources import write_video


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return bright_cell_detector(tmp_path / "bright.onnx")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twenty pictures of one bright square, hidden in four of them."""
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for i in range(20):
        image = np.zeros((480, 640, 3), np.uint8)
        if not 8 <= i < 12:
            image[160:320, 320:480] = 255
        cv2.imwrite(str(pictures / f"{i:03d}.png"), image)
    return pictures


def test_one_object_keeps_its_id_in_every_output(tmp_path: Path, model: Path, folder: Path) -> None:
    out, mot, video = tmp_path / "t.json", tmp_path / "t.txt", tmp_path / "t.mp4"
    done = waysight(
        "track", folder, "--model", model, "--frame-rate", 10,
        "--json", out, "--mot", mot, "--annotate", video,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 tracks in 20 pictures")
    document = json.loads(out.read_text())
    assert document["names"] == ["bright", "dark"] and document["rate"] == 10
    assert [len(frame["tracks"]) for frame in document["frames"]] == [1] * 8 + [0] * 4 + [1] * 8
    last = document["frames"][-1]["tracks"][0]
    assert last["id"] == 1 and last["category"] == "bright"
    assert last["bbox"] == pytest.approx([320, 160, 160, 160], abs=2)
    assert last["velocity"] == pytest.approx([0, 0], abs=1)
    assert document["frames"][0]["tracks"][0]["velocity"] is None
    rows = [line.split(",") for line in mot.read_text().splitlines()]
    assert [int(row[0]) for row in rows] == [*range(1, 9), *range(13, 21)]
    assert {row[1] for row in rows} == {"1"} and {len(row) for row in rows} == {10}
    first = open_dataset(f"mot:{mot}")[0].truth.xywh[0]
    assert first == pytest.approx(document["frames"][0]["tracks"][0]["bbox"], abs=0.01)
    assert cv2.VideoCapture(str(video)).get(cv2.CAP_PROP_FRAME_COUNT) == 20


def test_retention_is_in_seconds_of_the_given_rate(
    tmp_path: Path, model: Path, folder: Path
) -> None:
    command = ("track", folder, "--model", model, "--retention", 0.5)
    assert waysight(*command, "--frame-rate", 10).stdout.startswith("1 tracks")
    assert waysight(*command, "--frame-rate", 5).stdout.startswith("2 tracks")


def test_a_video_is_tracked_at_its_own_rate(tmp_path: Path, model: Path) -> None:
    out = tmp_path / "t.json"
    done = waysight("track", write_video(tmp_path / "v.mp4"), "--model", model, "--json", out)
    assert done.returncode == 0, done.stderr
    frames = json.loads(out.read_text())["frames"]
    assert frames[3]["name"] == "v.mp4#00003" and frames[3]["stamp_ns"] == 150_000_000


def test_a_damaged_picture_is_named_and_the_rest_is_tracked(
    tmp_path: Path, model: Path, folder: Path
) -> None:
    (folder / "005.png").write_bytes(b"no picture")
    out = tmp_path / "t.json"
    done = waysight("track", folder, "--model", model, "--frame-rate", 10, "--json", out)
    assert done.returncode == 2 and "005.png" in done.stderr
    frames = json.loads(out.read_text())["frames"]
    assert [f["frame"] for f in frames] == [*range(5), *range(6, 20)]
    assert {t["id"] for f in frames for t in f["tracks"]} == {1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --frame-rate"),
        (["--frame-rate", 0], "--frame-rate is 0"),
        (["--frame-rate", 10, "--retention", 0], "retention is 0"),
        (["--frame-rate", 10, "--high-threshold", 0.05], "ascending order"),
        (["--frame-rate", 10, "--annotate", "folder"], "--annotate is folder"),
    ],
)
def test_bad_input_gives_one_sentence_and_exit_2(
    tmp_path: Path, model: Path, folder: Path, arguments: list[object], message: str
) -> None:
    out = tmp_path / "t.json"
    done = waysight("track", folder, "--model", model, "--json", out, *arguments)
    assert done.returncode == 2 and message in done.stderr
    assert done.stderr.count("\n") == 1 and not out.exists()


@pytest.mark.parametrize("option", ["--annotate", "--json", "--mot"])
def test_no_output_overwrites_the_source(tmp_path: Path, model: Path, option: str) -> None:
    video = write_video(tmp_path / "v.mp4", frames=3)
    before = video.read_bytes()
    done = waysight("track", video, "--model", model, option, video)
    assert done.returncode == 2 and f"{option} would overwrite the source" in done.stderr
    assert done.stderr.count("\n") == 1 and video.read_bytes() == before


def test_two_outputs_of_one_name_are_refused(tmp_path: Path, model: Path) -> None:
    video, out = write_video(tmp_path / "v.mp4", frames=3), tmp_path / "out"
    done = waysight("track", video, "--model", model, "--json", out, "--mot", out)
    assert done.returncode == 2 and "--mot would write" in done.stderr and not out.exists()


def test_mot_rows_count_frames_and_pixels_from_one() -> None:
    tracked = Detections.create([[10, 20, 40, 60]], [0.5], [0], [7])
    assert mot_rows(3, tracked) == ["3,7,11.00,21.00,30.00,40.00,0.50000,-1,-1,-1"]
