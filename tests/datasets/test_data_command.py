"""`waysight data` end to end: exit codes, files, messages."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pytest

from perception.cli import main
from perception.cli.data import _print_report
from perception.datasets import open_dataset
from perception.datasets.bags import Bag, default_types
from perception.datasets.convert import convert
from perception.datasets.extract import disagreement
from perception.datasets.report import Finding, Report
from perception.datasets.split import parse_shares, split
from perception.datasets.stats import class_scale
from perception.detections import Detections
from perception.errors import InputError
from tests.datasets.made import coco


def test_lint_passes_a_sound_set_and_fails_a_faulty_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = coco(tmp_path / "good", [[(1, 5, 5, 20, 20), (2, 1, 1, 9, 9)]] * 10)
    assert main(["data", "lint", f"coco:{good}"]) == 0
    bad = coco(tmp_path / "bad", [[(1, 5, 5, 0, 20)]])
    out = tmp_path / "lint.json"
    assert main(["data", "lint", str(bad), "--json", str(out), "--fix", str(tmp_path / "ok")]) == 1
    text = capsys.readouterr().out
    assert "read as coco" in text and "box-degenerate" in text
    data = json.loads(out.read_text())
    assert data["errors"] == 1 and data["by_code"]["box-degenerate"] == 1
    fault = next(f for f in data["findings"] if f["severity"] == "error")
    assert fault["file"] == "annotations/instances_train.json" and fault["line"] > 1
    assert len(open_dataset(str(tmp_path / "ok"))[0].truth) == 0


def test_lint_of_one_named_file_says_nothing_of_its_neighbours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = coco(tmp_path / "set", [[(1, 5, 5, 20, 20), (2, 1, 1, 9, 9)]] * 10)
    file = folder / "annotations" / "instances_train.json"
    (folder / "annotations" / "results.json").write_text("[]")
    assert main(["data", "lint", f"coco:{folder}"]) == 0
    assert "not read as coco" in capsys.readouterr().out
    assert main(["data", "lint", f"coco:{file}", "--strict"]) == 0
    assert "not read" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["lint", "nowhere"],
        ["convert", "SET", "coco"],
        ["convert", "SET", "cocoo:x"],
        ["convert", "SET", "coco:SET"],
        ["show", "SET", "--out", "x.gif"],
        ["show", "SET", "--only", "z"],
        ["show", "SET", "--picture", "z"],
        ["split", "SET", "--shares", "a=2"],
        ["extract", "SET", "x"],
        ["stats", "SET", "--engine", "spark"],
        ["stats", "SET", "--master", "local[2]"],
        ["stats", "SET", "--plot", "x.txt"],
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    coco(tmp_path / "set", [[]])
    assert main(["data", *(text.replace("SET", "set") for text in arguments)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("waysight: error: ") and error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set"]


def test_a_command_that_is_terminated_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = coco(tmp_path / "set", [[]] * 3)
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(
        "perception.datasets.formats.yolo.write", lambda *_: os.kill(os.getpid(), signal.SIGTERM)
    )
    with pytest.raises(SystemExit) as stopped:
        main(["data", "convert", f"coco:{folder}", f"yolo:{tmp_path / 'out'}"])
    assert stopped.value.code == 128 + signal.SIGTERM
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_convert_names_the_pictures_that_it_renames(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = coco(tmp_path / "a", [[], []])
    file = folder / "annotations/instances_train.json"
    file.write_text(file.read_text().replace("001.png", "x/000.png"))
    (folder / "images/x").mkdir()
    (folder / "images/001.png").rename(folder / "images/x/000.png")
    main(["data", "convert", str(folder), f"yolo:{tmp_path / 'b'}"])
    assert "000.png: info: another picture has that name: written as 000_2" in (
        capsys.readouterr().out
    )


def test_convert_lists_what_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = coco(tmp_path / "a", [[(1, 5, 5, 20, 20)]], camera="front")
    out = tmp_path / "c.json"
    assert main(["data", "convert", str(folder), f"yolo:{tmp_path / 'b'}", "--json", str(out)]) == 0
    assert "1 pictures' cameras are lost" in capsys.readouterr().out
    assert json.loads(out.read_text())["by_code"]["lost-camera"] == 1


def test_stats_counts_and_plots(tmp_path: Path) -> None:
    folder = coco(tmp_path, [[(1, 5, 5, 20, 20), (2, 1, 1, 40, 40)], []])
    out, plot = tmp_path / "s.json", tmp_path / "s.png"
    assert main(["data", "stats", str(folder), "--json", str(out), "--plot", str(plot)]) == 0
    data = json.loads(out.read_text())
    assert (data["pictures"], data["boxes"], data["unlabelled_pictures"]) == (2, 2, 1)
    assert data["classes"] == {"car": 1, "bus": 1}
    assert data["box_areas"] == {"small": 1, "medium": 1, "large": 0}
    assert cv2.imread(str(plot)).shape[2] == 3


@pytest.mark.parametrize("action", ["stats", "show", "split"])
def test_what_could_not_be_read_is_never_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    folder = coco(tmp_path / "a", [[(1, 5, 5, 20, 20), (9, 1, 1, 9, 9)]] * 2)
    options = {"show": ["--out", str(tmp_path / "a.png")], "split": ["--by", "hash"]}
    assert main(["data", action, f"coco:{folder}", *options.get(action, [])]) == 0
    error = capsys.readouterr().err
    assert "2 errors while reading" in error and "category id 9" in error


def test_show_writes_a_sheet_one_picture_and_a_page(tmp_path: Path) -> None:
    folder = coco(tmp_path / "set", [[(1, 5, 5, 20, 20)]] * 5)
    (folder / "images/004.png").write_bytes(b"broken")
    sheet, one, page = (tmp_path / name for name in ("s.png", "o.png", "p.html"))
    assert main(["data", "show", str(folder), "--out", str(sheet), "--columns", "2"]) == 0
    assert cv2.imread(str(sheet)).shape == (3 * 52, 2 * 484, 3)
    assert main(["data", "show", str(folder), "--out", str(one), "--picture", "001.png"]) == 0
    drawn, plain = cv2.imread(str(one)), cv2.imread(str(folder / "images/001.png"))
    assert drawn.shape == plain.shape and (drawn != plain).any()
    assert main(["data", "show", str(folder), "--out", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.count("data:image/jpeg;base64,") == 5 and "http" not in text


def test_split_keeps_sequences_together_and_is_the_same_each_time(tmp_path: Path) -> None:
    for i in range(6):
        coco(
            tmp_path,
            [[]] * (i + 1),
            prefix=f"s{i}-",
            sequence=f"drive-{i}",
            file=f"annotations/instances_{i}.json",
        )
    dataset = open_dataset(f"coco:{tmp_path}")
    shares = parse_shares("train=0.6,val=0.4")
    one = split(dataset, shares)
    assert one == split(dataset, shares)
    by_sequence: dict[str, set[str]] = {}
    for sample, name in zip(dataset, one, strict=True):
        by_sequence.setdefault(sample.sequence, set()).add(name)
    assert all(len(names) == 1 for names in by_sequence.values())
    assert 0.4 <= one.count("train") / len(one) <= 0.8
    assert {"train", "val"} == set(one)


def test_split_by_hash_does_not_move_pictures_when_others_come(tmp_path: Path) -> None:
    few = open_dataset(f"coco:{coco(tmp_path / 'a', [[]] * 20)}")
    many = open_dataset(f"coco:{coco(tmp_path / 'b', [[]] * 40)}")
    shares = parse_shares("train=0.5,val=0.5")
    assert split(few, shares, by="hash") == split(many, shares, by="hash")[:20]
    assert split(few, shares, by="hash") != split(few, shares, by="hash", seed=1)


def test_split_keeps_similar_pictures_together(tmp_path: Path) -> None:
    folder = coco(tmp_path, [[]] * 12)
    for i in range(1, 12, 2):
        image = cv2.imread(str(folder / f"images/{i - 1:03d}.png"))
        cv2.imwrite(str(folder / f"images/{i:03d}.png"), cv2.add(image, (2, 2, 2, 0)))
    dataset = open_dataset(f"coco:{folder}")
    places = split(dataset, parse_shares("train=0.5,val=0.5"), by="hash", similar=3)
    assert places[0::2] == places[1::2]


def test_pictures_without_sequence_and_camera_are_divided_one_by_one(tmp_path: Path) -> None:
    coco(tmp_path, [[]] * 2, prefix="s", sequence="drive")
    coco(tmp_path, [[]] * 20, prefix="b", file="annotations/instances_b.json")
    assigned = split(open_dataset(f"coco:{tmp_path}"), parse_shares("train=0.5,val=0.5"))
    assert Counter(assigned) == {"train": 11, "val": 11}


@pytest.mark.parametrize(
    ("shares", "target", "message"),
    [
        ("train=.5,val=.5", "kitti", "kitti has no splits"),
        ("train=.5,val=.5", "mot", "mot has no splits"),
        ("fold1=.5,fold2=.5", "yolo", "yolo has the splits train, val, test"),
    ],
)
def test_a_division_that_the_format_cannot_hold_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shares: str, target: str, message: str
) -> None:
    folder = coco(tmp_path / "a", [[(1, 5, 5, 20, 20)]] * 4)
    command = ["data", "split", f"coco:{folder}", "--shares", shares]
    assert main([*command, "--out", f"{target}:{tmp_path / 'b'}"]) == 2
    assert message in capsys.readouterr().err
    assert main([*command, "--out", f"coco:{tmp_path / 'c'}"]) == 0


def test_split_that_loses_boxes_fails_as_convert_does(tmp_path: Path) -> None:
    folder = coco(tmp_path / "a", [[(1, 5, 5, 20, 20), (9, 1, 1, 9, 9)]] * 20)
    assert main(["data", "split", f"coco:{folder}", "--out", f"coco:{tmp_path / 'b'}"]) == 1


@pytest.mark.parametrize("text", ["train=1.5", "train", "train=.5,val=.4", "train=x", "=1"])
def test_shares_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--shares"):
        parse_shares(text)


def test_split_writes_the_divided_set(tmp_path: Path) -> None:
    folder = coco(tmp_path / "a", [[(1, 5, 5, 20, 20)]] * 20)
    assert (
        main(
            [
                "data",
                "split",
                str(folder),
                "--out",
                f"yolo:{tmp_path / 'b'}",
                "--json",
                str(tmp_path / "s.json"),
            ]
        )
        == 0
    )
    told = {
        row["name"]: row["split"]
        for row in json.loads((tmp_path / "s.json").read_text())["pictures"]
    }
    assert {s.name: s.split for s in open_dataset(str(tmp_path / "b"))} == told


def test_bars_of_classes_are_in_proportion_unless_the_rarest_would_vanish() -> None:
    assert class_scale([42, 41, 35]) == class_scale([7, 0]) == class_scale([]) == "linear"
    assert class_scale([5000, 3]) == "symlog"


def test_equal_findings_are_shown_once_with_their_number(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = Report()
    for label in ("a.jpg", "b.jpg", "c.jpg"):
        report.findings.append(Finding("info", "no-picture", "no picture", "x.mcap", 0, label))
    _print_report(report)
    assert capsys.readouterr().out == "x.mcap: info: no picture [no-picture] (3 times)\n"


def test_recording_without_pictures_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = coco(tmp_path / "a", [[(1, 1, 5, 20, 20)], [(1, 2, 5, 20, 20)]])
    convert(open_dataset(f"coco:{folder}"), f"rosbag2:{tmp_path / 'bag'}")
    from rosbags.rosbag2 import StoragePlugin
    from rosbags.rosbag2 import Writer as BagWriter

    storage = StoragePlugin.MCAP
    with (
        Bag(tmp_path / "bag") as bag,
        BagWriter(tmp_path / "boxes", version=9, storage_plugin=storage) as writer,
    ):
        boxes = next(n for n, t in bag.topics.items() if t.type.endswith("Detection2DArray"))
        topic = writer.add_connection(boxes, bag.topics[boxes].type, typestore=default_types())
        for message in bag.messages():
            if message.topic == boxes:
                writer.write(topic, message.log_time_ns, message.data)
    assert main(["data", "extract", str(tmp_path / "boxes"), str(tmp_path / "x")]) == 2
    said = capsys.readouterr().err
    assert "boxes.mcap: has boxes and no pictures, expected an image topic among" in said


def test_extract_by_time_rate_and_motion(tmp_path: Path) -> None:
    folder = coco(tmp_path / "a", [[(1, i, 5, 20, 20)] for i in range(10)])
    for i in (3, 4, 5):  # a scene that stands still
        (folder / f"images/{i:03d}.png").write_bytes((folder / "images/002.png").read_bytes())
    convert(open_dataset(f"coco:{folder}"), f"rosbag2:{tmp_path / 'bag'}")  # a picture each 100 ms

    def taken(*options: str) -> list[int]:
        out = tmp_path / "-".join(options).replace("/", "_").strip("-")
        assert main(["data", "extract", str(tmp_path / "bag"), str(out), *options]) == 0
        return [int(s.truth.boxes[0, 0]) for s in open_dataset(str(out))]

    assert taken("--start", "0.2", "--end", "0.5") == [2, 3, 4]
    assert taken("--every", "0.3") == [0, 3, 6, 9]
    assert taken("--motion", "5") == [0, 1, 2, 6, 7, 8, 9]
    assert taken("--topic", "/camera/image_raw/compressed") == list(range(10))
    assert (
        main(["data", "extract", str(tmp_path / "bag"), str(tmp_path / "x"), "--topic", "/no"]) == 2
    )


CLIP = Path(__file__).resolve().parents[2] / "ros_nodes" / "demo" / "road_demo.mp4"


@pytest.fixture
def drive(tmp_path: Path) -> Path:
    """A bag of six pictures of the demo clip; those of odd number lack the boxes of road-n."""
    from perception.cli.detect import coco_results
    from perception.runtime.detector import Detector

    pytest.importorskip("onnxruntime", reason="needs the extra 'cpu'")
    detector, clip = Detector("road-n"), cv2.VideoCapture(str(CLIP))
    images, annotations = [], []
    while len(images) < 6:
        picture = clip.read()[1]
        found = detector(picture)
        if not len(found):
            continue
        number = len(images)
        height, width = picture.shape[:2]
        name = f"{number}.png"
        images.append({"id": number, "file_name": name, "width": width, "height": height})
        (tmp_path / "set").mkdir(exist_ok=True)
        cv2.imwrite(str(tmp_path / "set" / name), picture)
        for row in coco_results(name, found, detector.names) if number % 2 == 0 else ():
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": detector.names.index(row["category"]),
                    **{key: row[key] for key in ("bbox", "score")},
                }
            )
    categories = [{"id": i, "name": name} for i, name in enumerate(detector.names)]
    truth = {"images": images, "annotations": annotations, "categories": categories}
    (tmp_path / "set/instances.json").write_text(json.dumps(truth))
    convert(open_dataset(f"coco:{tmp_path / 'set'}"), f"rosbag2:{tmp_path / 'bag'}")
    return tmp_path / "bag"


def test_extract_takes_pictures_on_which_a_real_model_and_the_recording_disagree(
    tmp_path: Path, drive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--disagreement", "0.5", "--model", "road-n"]
    assert main(["data", "extract", str(drive), str(tmp_path / "one"), *options]) == 0
    taken = open_dataset(f"coco:{tmp_path / 'one'}")
    assert [sample.frame for sample in taken] == [1, 3, 5]
    assert all(taken.pixels(sample).any() for sample in taken)
    # A model does not disagree with itself.
    twice = [*options, "--model", "road-n"]
    assert main(["data", "extract", str(drive), str(tmp_path / "two"), *twice]) == 2
    assert "no picture is left: 6 by the rule 'agreement'" in capsys.readouterr().err
    assert not (tmp_path / "two").exists()


def test_disagreement_counts_boxes_without_a_partner() -> None:
    one = Detections.create([[0, 0, 10, 10], [50, 50, 60, 60]], [1, 1], [0, 0])
    other = Detections.create([[1, 0, 11, 10]], [1], [0])
    assert disagreement(one, one) == 0.0
    assert disagreement(one, other) == pytest.approx(1 / 3)
    assert disagreement(one, Detections.empty()) == 1.0
    assert disagreement(Detections.empty(), Detections.empty()) == 0.0
    assert disagreement(one, Detections.failed("camera")) == 1.0


def test_pictures_of_a_sheet_are_spread_evenly(tmp_path: Path) -> None:
    from perception.datasets.show import choose

    dataset = open_dataset(f"coco:{coco(tmp_path, [[(1 + i % 2, 5, 5, 9, 9)] for i in range(9)])}")
    assert choose(dataset, 3) == [0, 4, 8]
    assert choose(dataset, 100, only="bus") == [1, 3, 5, 7]
    assert np.array_equal(choose(dataset, 4, seed=5), choose(dataset, 4, seed=5))
