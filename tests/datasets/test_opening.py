from __future__ import annotations

import json
import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from perception.datasets import open_dataset, opening
from perception.datasets.lint import lint
from perception.datasets.stats import stats
from perception.errors import InputError
from perception.labels import LabelMap, LabelSet
from tests.datasets.made import FIXTURES, coco, picture


def test_the_guess_is_told_and_a_prefix_needs_none(tmp_path: Path) -> None:
    coco(tmp_path, [[]])
    assert "instances_train.json" in open_dataset(str(tmp_path)).guessed
    assert open_dataset(f"coco:{tmp_path}").guessed == ""


def test_a_folder_of_two_formats_is_not_guessed_at(tmp_path: Path) -> None:
    coco(tmp_path, [[]])
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels/000.txt").write_text("0 .5 .5 .1 .1")
    with pytest.raises(InputError, match="more than one format: coco .* yolo"):
        open_dataset(str(tmp_path))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("cocoo:x", "did you mean 'coco'"),
        ("nowhere", "no such file"),
        ("coco:nowhere", "no such file"),
    ],
)
def test_a_wrong_spec_is_an_input_error(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_dataset(spec)


def test_an_empty_folder_is_no_data_set(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no data set of a known format"):
        open_dataset(str(tmp_path))


def test_a_large_set_is_read_from_its_index_until_a_label_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "IN_MEMORY", 3)
    folder = coco(tmp_path / "set", [[(1, i, 0, 9, 9)] for i in range(8)])
    index = tmp_path / "index.parquet"
    first = open_dataset(f"coco:{folder}", index=index)
    assert index.exists()
    stamp = index.stat().st_mtime_ns
    second = open_dataset(f"coco:{folder}", index=index)
    assert index.stat().st_mtime_ns == stamp
    assert [s.truth.boxes.tolist() for s in first] == [s.truth.boxes.tolist() for s in second]
    assert second[-1].name == "007.png" and len(second) == 8
    with pytest.raises(IndexError):
        second[8]
    file = folder / "annotations/instances_train.json"
    data = json.loads(file.read_text())
    data["annotations"].pop()
    file.write_text(json.dumps(data))
    assert sum(len(s.truth) for s in open_dataset(f"coco:{folder}", index=index)) == 7


def test_a_damaged_index_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "IN_MEMORY", 1)
    folder = coco(tmp_path / "set", [[]] * 3)
    index = tmp_path / "index.parquet"
    index.write_bytes(b"PAR1 and then nothing")
    assert len(open_dataset(f"coco:{folder}", index=index)) == 3
    assert len(open_dataset(f"coco:{folder}", index=index)) == 3


def test_a_data_set_survives_pickling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "IN_MEMORY", 1)
    dataset = open_dataset(
        f"coco:{coco(tmp_path, [[(1, 0, 0, 9, 9)]] * 4)}", index=tmp_path / "index.parquet"
    )
    again = pickle.loads(pickle.dumps(dataset))  # noqa: S301 (our own bytes)
    assert again[3].truth.boxes.tolist() == dataset[3].truth.boxes.tolist()


def test_a_class_map_renames_ignores_and_groups(tmp_path: Path) -> None:
    folder = coco(
        tmp_path,
        [[(1, 0, 0, 9, 9), (2, 9, 9, 9, 9), (3, 20, 20, 5, 5), (4, 30, 30, 5, 5)]],
        names=("suv", "bird", "vehicle", "coach"),
    )
    target = LabelSet(("car", "bus"))
    classes = LabelMap(
        target,
        {"suv": "car", "bird": "ignore", "vehicle": "vehicle", "coach": "bus"},
        {"vehicle": ("car", "bus")},
    )
    sample = open_dataset(f"coco:{folder}", classes=classes)[0]
    assert sample.truth.labels.tolist() == [0, 1]
    assert sample.ignore.tolist() == [[9, 9, 18, 18], [20, 20, 25, 25]]
    dataset = open_dataset(f"coco:{folder}", classes=classes)
    counted = stats(dataset)
    assert counted.classes == {"car": 1, "bus": 1}
    assert (counted.boxes, counted.ignore_regions) == (2, 2)
    assert lint(dataset).classes == {"car": 1, "bus": 1}
    short = LabelMap(target, {"suv": "car"})
    with pytest.raises(InputError, match="'bird' is not in the class map"):
        open_dataset(f"coco:{folder}", classes=short)


def test_order_does_not_depend_on_when_files_were_made(tmp_path: Path) -> None:
    for folder, order in (("a", (3, 1, 2)), ("b", (2, 3, 1))):
        for i in order:
            picture(tmp_path / folder / f"{i}.png", seed=i)
            (tmp_path / folder / f"{i}.txt").write_text(f"{i} .5 .5 .1 .1")
    a, b = (open_dataset(f"yolo:{tmp_path / folder}") for folder in "ab")
    assert [s.name for s in a] == [s.name for s in b] == ["1.png", "2.png", "3.png"]
    assert a.names.names == b.names.names == ("class_1", "class_2", "class_3")


def test_a_zip_is_opened_and_a_cut_one_is_an_input_error(tmp_path: Path) -> None:
    folder = coco(tmp_path / "set", [[(1, 0, 0, 9, 9)]])
    shutil.make_archive(str(tmp_path / "set"), "zip", folder)
    dataset = open_dataset(f"coco:{tmp_path / 'set.zip'}")
    assert dataset[0].truth.boxes.tolist() == [[0, 0, 9, 9]]
    assert dataset.pixels(dataset[0]).shape == (48, 64, 3)
    data = (tmp_path / "set.zip").read_bytes()
    (tmp_path / "cut.zip").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match=r"cut\.zip.*cut off"):
        open_dataset(f"coco:{tmp_path / 'cut.zip'}")


def test_a_zip_that_macos_packed_is_opened(tmp_path: Path) -> None:
    folder = tmp_path / "packed"
    coco(folder / "set", [[(1, 0, 0, 9, 9)]])
    (folder / "__MACOSX/set").mkdir(parents=True)
    (folder / "__MACOSX/set/._set").write_bytes(b"")
    shutil.make_archive(str(tmp_path / "set"), "zip", folder)
    assert len(open_dataset(f"coco:{tmp_path / 'set.zip'}")) == 1


def test_an_archive_without_a_data_set_is_named_itself(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "no.zip", "w") as archive:
        archive.writestr("a.bin", "x")
    for prefix in ("", "coco:"):
        with pytest.raises(InputError) as caught:
            open_dataset(f"{prefix}{tmp_path / 'no.zip'}")
        assert str(caught.value).startswith(f"{tmp_path / 'no.zip'}: no ")


def test_an_index_is_built_again_when_pictures_come_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "IN_MEMORY", 1)
    index = tmp_path / "index.parquet"
    for format in ("coco", "bdd100k"):
        folder = coco(tmp_path / format, [[]] * 3)
        frames = json.dumps([{"name": f"{i:03d}.png"} for i in range(3)])
        (folder / "frames.json").write_text(frames)
        (folder / "images").rename(tmp_path / "elsewhere")
        dataset = open_dataset(f"{format}:{folder}", index=index)
        with pytest.raises(InputError):
            dataset.load(dataset[0])
        (tmp_path / "elsewhere").rename(folder / "images")
        dataset = open_dataset(f"{format}:{folder}", index=index)
        assert dataset.load(dataset[0]).image.shape == (48, 64, 3)


def test_cocos_own_annotations_folder_has_each_picture_once(tmp_path: Path) -> None:
    for kind in ("instances", "person_keypoints", "captions"):
        coco(tmp_path, [[(1, 0, 0, 9, 9)]], file=f"annotations/{kind}_val2017.json")
    coco(tmp_path, [[]], prefix="t", file="annotations/instances_train2017.json")
    dataset = open_dataset(f"coco:{tmp_path}")
    assert [(s.split, len(s.truth)) for s in dataset] == [("train", 0), ("val", 1)]
    assert [f.file for f in dataset.report.findings if f.code == "same-pictures"] == [
        "annotations/captions_val2017.json",
        "annotations/person_keypoints_val2017.json",
    ]
    (tmp_path / "annotations/instances_val2017.json").unlink()
    assert len(open_dataset(f"coco:{tmp_path}")) == 3


def test_a_zip_cannot_write_outside_its_folder(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr("../evil.txt", "x")
    with pytest.raises(InputError, match=r"evil\.txt"):
        open_dataset(f"yolo:{tmp_path / 'evil.zip'}")
    assert not list(tmp_path.parent.glob("evil.txt"))


@pytest.mark.skipif(not FIXTURES.is_dir(), reason="../shared/fixtures is not there")
def test_voc_and_coco_of_the_same_pictures_agree() -> None:
    voc = {s.name: s for s in open_dataset(f"voc:{FIXTURES / 'voc'}")}
    file = FIXTURES / "voc/gts_coco_format/toy_example_coco.JSON"
    compared = 0
    for sample in open_dataset(f"coco:{file}"):
        if len(sample.truth):
            np.testing.assert_array_equal(sample.truth.boxes, voc[sample.name].truth.boxes)
            compared += 1
    assert compared >= 8
