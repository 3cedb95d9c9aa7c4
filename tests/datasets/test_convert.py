"""Every format into every format that can hold it, and back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perception.cli import main
from perception.datasets import Dataset, open_dataset
from perception.datasets.convert import convert
from perception.datasets.plan import FORMATS, format_module
from perception.datasets.sample import PER_BOX
from perception.datasets.source import FEATURES
from perception.errors import InputError
from tests.datasets.made import FIXTURES, coco, picture

SOURCES = {
    "coco": "coco",
    "kitti": "kitti",
    "voc": "voc",
    "bdd100k": "bdd100k",
    "mot": "mot",
    "ua_detrac": "mot/detrac.xml",
    "nuscenes": "nuscenes",
    "yolo": "yolo_polygons",
}
needs_fixtures = pytest.mark.skipif(not FIXTURES.is_dir(), reason="../shared/fixtures is not there")


def rows(dataset: Dataset, crowds: bool = True) -> list[list[tuple[str, list[float]]]]:
    """Class name and box of everything, picture by picture in an order that no format changes."""
    pictures = [
        sorted(
            (
                (dataset.names[int(label)].replace(" ", "_"), [float(v) for v in box])
                for label, box, crowd in zip(
                    sample.truth.labels, sample.truth.boxes, sample.crowd, strict=True
                )
                if crowds or not crowd
            ),
            key=_coarse,
        )
        for sample in dataset
    ]
    return sorted(pictures, key=lambda picture: [_coarse(row) for row in picture])


def _coarse(row: tuple[str, list[float]]) -> tuple[str, list[int]]:
    return row[0], [round(value + 0.0137) for value in row[1]]


def assert_same(one: Dataset, other: Dataset, crowds: bool = True) -> None:
    """Equal but for blanks in class names, which KITTI cannot hold; crowds: compare them too."""
    first, second = rows(one, crowds), rows(other)
    assert [len(p) for p in first] == [len(p) for p in second]
    for boxes, again in zip(first, second, strict=True):
        assert [name for name, _ in boxes] == [name for name, _ in again]
        if boxes:
            np.testing.assert_allclose([b for _, b in boxes], [b for _, b in again], atol=2e-3)


@needs_fixtures
@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", SOURCES)
def test_fixtures_survive_conversion_and_back(tmp_path: Path, source: str, target: str) -> None:
    dataset = open_dataset(f"{source}:{FIXTURES / SOURCES[source]}")
    done = convert(dataset, f"{target}:{tmp_path / 'there'}")
    lost = done.report.by_code()
    if "lost-box" in lost:
        assert target == "yolo" and not any(sample.width for sample in dataset)
        return
    there = open_dataset(str(tmp_path / "there"))
    assert there.format == target
    assert len(there) == len(dataset) == done.pictures
    assert_same(dataset, there, crowds="lost-crowd" not in lost)
    holds = format_module(target).HOLDS
    for name, (_, count) in FEATURES.items():
        before, after = sum(map(count, dataset)), sum(map(count, there))
        if before and name not in holds:
            assert f"lost-{name}" in lost or name == "size"
        if before and name in holds and f"lost-{name}" not in lost and name != "size":
            # Formats add ids and times of their own, but lose nothing without saying so.
            gone = sum(count(s.chosen(np.flatnonzero(s.crowd))) for s in dataset if s.crowd.any())
            assert after >= before - ("lost-crowd" in lost) * gone, name
    if not any(s.width for s in dataset):
        return
    back = convert(there, f"{source}:{tmp_path / 'back'}")
    assert "lost-box" not in back.report.by_code()
    assert_same(there, open_dataset(f"{source}:{tmp_path / 'back'}"))


def test_two_conversions_write_the_same_bytes(tmp_path: Path) -> None:
    dataset = open_dataset(f"coco:{coco(tmp_path / 'a', [[(1, 1, 2, 3.3, 4)], [(2, 5, 6, 7, 8)]])}")
    for target in FORMATS:
        contents = []
        for run in ("one", "two"):
            out = tmp_path / run / target
            convert(dataset, f"{target}:{out}")
            contents.append(
                {
                    p.relative_to(out).as_posix(): p.read_bytes()
                    for p in out.rglob("*")
                    if p.is_file()
                }
            )
        assert contents[0] == contents[1], target


def test_coco_there_and_back_keeps_everything(tmp_path: Path) -> None:
    folder = coco(
        tmp_path / "a",
        [[(2, 1.5, 2, 30.25, 10)], []],
        sequence="s",
        camera="front",
        stamp_ns=12,
        attributes={"weather": "rain"},
        ignore_regions=[[1, 2, 3, 4]],
    )
    file = folder / "annotations/instances_train.json"
    data = json.loads(file.read_text())
    data["annotations"][0].update(
        track_id=7,
        score=0.5,
        occlusion=0.25,
        truncation=0.5,
        distance=12.5,
        points=3,
        velocity=[1, 2, 3],
        box_3d=[1, 2, 3, 4, 5, 6, 7],
        iscrowd=1,
        attributes={"colour": "red"},
    )
    file.write_text(json.dumps(data))
    dataset = open_dataset(f"coco:{folder}")
    done = convert(dataset, f"coco:{tmp_path / 'b'}")
    assert set(done.report.by_code()) == {"extension"}
    one, other = dataset[0], open_dataset(f"coco:{tmp_path / 'b'}")[0]
    for name in (
        "width",
        "height",
        "id",
        "sequence",
        "camera",
        "stamp_ns",
        "attributes",
        "box_ids",
        "box_attributes",
    ):
        assert getattr(one, name) == getattr(other, name), name
    for name in ("ignore", "scored", *PER_BOX):
        if name != "lines":  # of the file that was read, not of the picture
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for name in ("boxes", "scores", "labels", "track_ids"):
        np.testing.assert_array_equal(getattr(one.truth, name), getattr(other.truth, name))


def test_a_source_that_is_cut_off_is_not_converted_unasked(tmp_path: Path) -> None:
    folder = coco(tmp_path / "a", [[(1, 1, 2, 3, 4)]] * 3)
    file = folder / "annotations/instances_train.json"
    file.write_bytes(file.read_bytes()[:-250])
    dataset = open_dataset(f"coco:{folder}")
    with pytest.raises(InputError, match="cut off"):
        convert(dataset, f"yolo:{tmp_path / 'b'}")
    assert not (tmp_path / "b").exists()
    assert convert(dataset, f"yolo:{tmp_path / 'b'}", partial=True).pictures == 3


def test_a_failed_conversion_leaves_nothing_behind(tmp_path: Path) -> None:
    dataset = open_dataset(f"coco:{coco(tmp_path / 'a', [[]])}")

    def fail(sample: object) -> None:
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        convert(dataset, f"coco:{tmp_path / 'b'}", change=fail)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def written(folder: Path, split: str = "all") -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / f"annotations/instances_{split}.json").read_text())
    return data


def test_coco_ids_are_whole_numbers_and_none_is_there_twice(tmp_path: Path) -> None:
    box = {"x1": 1, "y1": 2, "x2": 30, "y2": 40}
    frames = [
        {"name": f"{i}.jpg", "labels": [{"id": text, "category": "car", "box2d": box}]}
        for i, text in enumerate(["7", "7", "00a1", "1"])
    ]
    (tmp_path / "labels.json").write_text(json.dumps(frames))
    done = convert(open_dataset(f"bdd100k:{tmp_path / 'labels.json'}"), f"coco:{tmp_path / 'b'}")
    ids = [(row["id"], row.get("source_id")) for row in written(tmp_path / "b")["annotations"]]
    assert ids == [(7, None), (1, "7"), (2, "00a1"), (3, "1")]
    assert [(f.code, f.message) for f in done.report.findings if f.code == "new-box-id"] == [
        ("new-box-id", "box ids are new, the old ones in source_id (3 times)")
    ]
    again = open_dataset(f"coco:{tmp_path / 'b'}")
    assert [sample.box_ids for sample in again] == [("7",), ("7",), ("00a1",), ("1",)]


def test_coco_files_that_become_one_keep_image_ids_apart(tmp_path: Path) -> None:
    coco(tmp_path / "a", [[(1, 1, 2, 3, 4)]] * 2, prefix="a")
    coco(tmp_path / "a", [[(1, 1, 2, 3, 4)]], prefix="b", file="annotations/instances_val.json")
    dataset = open_dataset(f"coco:{tmp_path / 'a'}")
    done = convert(dataset, f"coco:{tmp_path / 'b'}", change=lambda s: replace(s, split=""))
    data = written(tmp_path / "b")
    assert [(row["id"], row.get("source_id")) for row in data["images"]] == [
        (1, None),
        (2, None),
        (3, "1"),
    ]
    assert [row["id"] for row in data["annotations"]] == [1, 2, 3]
    assert done.report.by_code() == {"new-box-id": 1, "new-image-id": 1}


def test_coco_to_coco_keeps_what_the_file_says_beside_boxes(tmp_path: Path) -> None:
    folder = coco(tmp_path / "a", [[(1, 1, 2, 30, 10)], [(2, 1, 2, 3, 4)]])
    file = folder / "annotations/instances_train.json"
    data = json.loads(file.read_text())
    data["info"] = {"year": 2020, "unlabelled_below_area": 0.01}
    data["licenses"] = [{"id": 1, "name": "CC0"}]
    data["categories"][0]["supercategory"] = "vehicle"
    data["annotations"][0].update(
        area=123.456789012345, attributes={"occluded": False, "lanes": 2, "colour": "red"}
    )
    data["annotations"][1].update(keypoints=[1, 2, 2], num_keypoints=1)
    data["images"][0].update(license=1, date_captured="", coco_url="http://x/1.jpg")
    file.write_text(json.dumps(data))
    dataset = open_dataset(f"coco:{folder}")
    assert dataset[0].box_attributes[0] == {"occluded": "false", "lanes": "2", "colour": "red"}
    assert sorted(f.message for f in dataset.report.findings) == [
        "'coco_url' of 1 images is not kept",
        "'keypoints' of 1 annotations is not kept",
        "'license' of 1 images is not kept",
        "'num_keypoints' of 1 annotations is not kept",
    ]
    convert(dataset, f"coco:{tmp_path / 'b'}")
    after = written(tmp_path / "b")
    for key in ("info", "licenses", "categories"):
        assert after[key] == data[key], key
    for key in ("area", "attributes", "bbox", "id"):
        assert after["annotations"][0][key] == data["annotations"][0][key], key
    assert after["annotations"][1]["area"] == 12
    assert "lost-info" in convert(dataset, f"yolo:{tmp_path / 'c'}").report.by_code()


def test_what_files_say_of_themselves_is_joined_on_the_safe_side(tmp_path: Path) -> None:
    for split, below in (("train", 0.02), ("val", 0.01)):
        folder = coco(tmp_path, [[]], prefix=split, file=f"annotations/instances_{split}.json")
        file = folder / f"annotations/instances_{split}.json"
        info = {"unlabelled_below_area": below, "description": split}
        file.write_text(json.dumps({"info": info, **json.loads(file.read_text())}))
    info = open_dataset(f"coco:{tmp_path}").info
    assert info == {"unlabelled_below_area": 0.02, "description": "train"}


@pytest.mark.parametrize("target", [name for name in FORMATS if name not in ("coco", "bdd100k")])
def test_a_crowd_never_becomes_an_object(tmp_path: Path, target: str) -> None:
    folder = coco(tmp_path / "a", [[(1, 1, 2, 30, 10), (2, 5, 6, 20, 20)]], sequence="s")
    file = folder / "annotations/instances_train.json"
    data = json.loads(file.read_text())
    data["annotations"][0]["iscrowd"] = 1
    file.write_text(json.dumps(data))
    done = convert(open_dataset(f"coco:{folder}"), f"{target}:{tmp_path / 'b'}")
    sample = open_dataset(f"{target}:{tmp_path / 'b'}")[0]
    np.testing.assert_allclose(sample.truth.boxes, [[5, 6, 25, 26]], atol=1e-3)
    assert len(sample.ignore) == (target == "kitti")
    assert done.report.by_code()["lost-crowd"] == 1


def test_kitti_class_names_have_no_blank_of_any_kind_and_stay_apart(tmp_path: Path) -> None:
    names = ("fork\tlift", "fork lift", "fork_lift")
    folder = coco(tmp_path / "a", [[(i, i, 2, 30, 10) for i in (1, 2, 3)]], names=names)
    convert(open_dataset(f"coco:{folder}"), f"kitti:{tmp_path / 'b'}")
    again = open_dataset(f"kitti:{tmp_path / 'b'}")
    assert set(again.names.names) == {"fork_lift", "fork_lift_", "fork_lift__"}
    assert len(again[0].truth) == 3


def test_pictures_that_are_not_there_are_named_and_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = coco(tmp_path / "a", [[(1, 1, 2, 3, 4)]] * 3)
    (folder / "images/001.png").unlink()
    assert main(["data", "convert", f"coco:{folder}", f"yolo:{tmp_path / 'b'}"]) == 1
    shown = capsys.readouterr().out
    assert "001.png: error: there is no picture images/001.png [picture-missing]" in shown
    for name in ("000", "002"):
        (folder / f"images/{name}.png").unlink()
    assert main(["data", "convert", f"coco:{folder}", f"coco:{tmp_path / 'c'}"]) == 0
    assert "warning: none of the 3 pictures is there, only labels are written" in (
        capsys.readouterr().out
    )


def test_pictures_that_the_labels_do_not_lead_to_are_counted_as_missing(tmp_path: Path) -> None:
    frames = [{"name": f"{i}.png", "labels": []} for i in range(3)]
    (tmp_path / "labels.json").write_text(json.dumps(frames))
    dataset = open_dataset(f"bdd100k:{tmp_path}")
    done = convert(dataset, f"coco:{tmp_path / 'b'}")
    assert [f.severity for f in done.report.findings if f.code == "no-picture"] == ["info"]
    picture(tmp_path / "images/1.png")
    done = convert(open_dataset(f"bdd100k:{tmp_path / 'labels.json'}"), f"coco:{tmp_path / 'c'}")
    assert [(f.severity, f.message) for f in done.report.findings if f.code == "no-picture"] == [
        ("error", "2 pictures have no picture file to copy, the first: 0.png")
    ]


def test_mot_keeps_cameras_apart_and_frames_in_order(tmp_path: Path) -> None:
    folder = coco(tmp_path / "a", [[(1, i, 2, 3, 4)] for i in range(6)])
    file = folder / "annotations/instances_train.json"
    data = json.loads(file.read_text())
    for image, (camera, frame) in zip(
        data["images"],
        [("left", 2), ("right", 0), ("left", 0), ("right", 1), ("left", 1), ("right", 2)],
        strict=True,
    ):
        image.update(sequence="drive", camera=camera, frame_id=frame)
    file.write_text(json.dumps(data))
    done = convert(open_dataset(f"coco:{folder}"), f"mot:{tmp_path / 'b'}")
    text = (tmp_path / "b/drive_left/gt/gt.txt").read_text()
    assert text == "1,-1,3,3,3,4,1,1,-1\n2,-1,5,3,3,4,1,1,-1\n3,-1,1,3,3,4,1,1,-1\n"
    again = open_dataset(f"mot:{tmp_path / 'b'}")
    assert [(s.sequence, s.frame, float(s.truth.boxes[0, 0])) for s in again] == [
        *(("drive_left", frame, left) for frame, left in ((1, 2), (2, 4), (3, 0))),
        *(("drive_right", frame, left) for frame, left in ((1, 1), (2, 3), (3, 5))),
    ]
    assert {f.code: f.message for f in done.report.findings}["renumbered"].endswith("(6 times)")


def test_frames_that_are_there_twice_get_numbers_of_their_own(tmp_path: Path) -> None:
    coco(tmp_path / "a", [[(1, 5, 2, 3, 4)], []], sequence="s", frame_id=7)
    dataset = open_dataset(f"coco:{tmp_path / 'a'}")
    for target in ("mot", "ua_detrac"):
        convert(dataset, f"{target}:{tmp_path / target}")
        again = open_dataset(f"{target}:{tmp_path / target}")
        assert [(s.sequence, s.frame, len(s.truth)) for s in again] == [("s", 1, 1), ("s", 2, 0)]
