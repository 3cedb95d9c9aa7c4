"""`waysight detect` as a user calls it."""

import json
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.onnx_models import bright_cell_detector
from tests.test_sources import write_video


def waysight(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "perception.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return bright_cell_detector(tmp_path / "bright.onnx")


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    image = np.zeros((480, 640, 3), np.uint8)
    cv2.imwrite(str(folder / "dark.png"), image)
    image[160:320, 320:480] = 255
    cv2.imwrite(str(folder / "bright.png"), image)
    return folder


def test_a_folder_gives_coco_results_and_annotated_pictures(
    tmp_path: Path, model: Path, pictures: Path
) -> None:
    out, annotated = tmp_path / "out.json", tmp_path / "annotated"
    done = waysight("detect", pictures, "--model", model, "--json", out, "--annotate", annotated)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(out.read_text())
    assert result["image_id"] == "bright.png"
    assert result["category"] == "bright"
    assert result["bbox"] == pytest.approx([320, 160, 160, 160], abs=2)
    assert 0.9 < result["score"] <= 1
    drawn = cv2.imread(str(annotated / "bright.png"))
    assert drawn.shape == (480, 640, 3)
    assert (drawn != cv2.imread(str(pictures / "bright.png"))).any()
    assert sorted(p.name for p in annotated.iterdir()) == ["bright.png", "dark.png"]


def test_a_video_gives_results_by_frame_and_an_annotated_video(tmp_path: Path, model: Path) -> None:
    video = write_video(tmp_path / "v.mp4", frames=12)
    out = tmp_path / "out.json"
    done = waysight("detect", video, "--model", model, "--json", out, "--annotate", tmp_path / "a")
    assert done.returncode == 0, done.stderr
    assert "12 pictures" in done.stdout
    assert {r["image_id"] for r in json.loads(out.read_text())} == {
        f"v.mp4#{i:05d}" for i in (7, 8, 9, 10, 11)
    }
    capture = cv2.VideoCapture(str(tmp_path / "a" / "v.mp4"))
    assert capture.get(cv2.CAP_PROP_FRAME_COUNT) == 12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.jpg"], "missing.jpg: no such file"),
        (["{pictures}", "--model", "road-x"], "'road-x' is neither a file nor a shipped model"),
        (["{pictures}", "--model", "{text}"], "not an ONNX model"),
        (["{pictures}", "--score-threshold", "7"], "score_threshold is 7.0"),
        (["{pictures}", "--classes", "brihgt"], "'bright'"),
        (["{pictures}", "--threads", "0"], "--threads is 0"),
        (["{empty}"], "folder without pictures"),
        (["{pictures}", "{pictures}/dark.png"], "same file name"),
        (["{pictures}", "--device", "cuda"], "CUDAExecutionProvider"),
    ],
)
def test_bad_input_gives_one_sentence_exit_2_and_no_output(
    tmp_path: Path, model: Path, pictures: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.onnx").write_text("no model")
    places = {
        "pictures": pictures, "empty": tmp_path / "empty", "text": tmp_path / "text.onnx",
    }  # fmt: skip
    filled = [word.format(**places) for word in arguments]
    if "--model" not in filled:
        filled += ["--model", str(model)]
    out = tmp_path / "results" / "out.json"
    done = waysight("detect", *filled, "--json", out, "--annotate", tmp_path / "results")
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert not out.exists()
    assert not list((tmp_path / "results").glob("*")) if (tmp_path / "results").exists() else True


def test_a_damaged_picture_is_named_and_the_rest_is_done(
    tmp_path: Path, model: Path, pictures: Path
) -> None:
    (pictures / "broken.jpg").write_bytes(b"\xff\xd8 garbage")
    out = tmp_path / "out.json"
    done = waysight("detect", pictures, "--model", model, "--json", out)
    assert done.returncode == 2
    assert "broken.jpg" in done.stderr
    assert "2 pictures" in done.stdout
    assert len(json.loads(out.read_text())) == 1


def test_annotated_pictures_never_overwrite_their_source(
    tmp_path: Path, model: Path, pictures: Path
) -> None:
    before = {path: path.read_bytes() for path in pictures.iterdir()}
    link = tmp_path / "link"
    link.symlink_to(pictures)
    for folder in (pictures, link):
        done = waysight("detect", pictures, "--model", model, "--annotate", folder)
        assert done.returncode == 2
        assert "--annotate would overwrite the source" in done.stderr
        assert done.stderr.count("\n") == 1
    assert {path: path.read_bytes() for path in pictures.iterdir()} == before


def test_results_never_overwrite_their_source(tmp_path: Path, model: Path, pictures: Path) -> None:
    done = waysight("detect", pictures, "--model", model, "--json", pictures / "dark.png")
    assert done.returncode == 2 and "--json would overwrite the source" in done.stderr
    assert cv2.imread(str(pictures / "dark.png")) is not None


def test_annotated_videos_overwrite_neither_their_source_nor_each_other(
    tmp_path: Path, model: Path
) -> None:
    video = write_video(tmp_path / "v.mp4", frames=3)
    before = video.read_bytes()
    done = waysight("detect", video, "--model", model, "--annotate", tmp_path)
    assert done.returncode == 2 and "--annotate would overwrite the source" in done.stderr
    assert video.read_bytes() == before
    twin = write_video(tmp_path / "v.avi", frames=3)
    done = waysight("detect", video, twin, "--model", model, "--annotate", tmp_path / "seen")
    assert done.returncode == 2 and "seen/v.mp4 twice" in done.stderr
    assert not (tmp_path / "seen").exists()


def test_an_unknown_command_is_refused() -> None:
    assert waysight("detcet").returncode == 2
