"""Labelled sets: errors before the first step, partial labels, ignore regions, filled labels."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from perception.cli import main
from perception.contract import ModelContract
from perception.errors import InputError
from perception.models.settings import ModelSettings
from perception.train.augment import AugmentSettings, place
from perception.train.cache import open_cache
from perception.train.sets import KIND_UNKNOWN, Picture, SetSettings, read_set
from perception.train.settings import DataSettings, RunSettings, TeacherSettings
from perception.train.teacher import fill_labels, find
from tests.datasets.made import damaged_jpeg, picture
from tests.onnx_models import bright_cell_detector, fixed_outputs

MODEL = ModelSettings(("car", "truck", "person"), ("car", "truck"))


def write_set(
    tmp_path: Path,
    annotations: list[dict[str, Any]],
    size: int = 640,
    info: dict[str, Any] | None = None,
) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), np.zeros((size, size, 3), np.uint8))
    names = ("car", "truck", "person", "vehicle", "tram")
    (tmp_path / "set.json").write_text(
        json.dumps(
            {
                "info": info or {},
                "images": [{"id": 5, "file_name": "a.png", "width": size, "height": size}],
                "categories": [{"id": i, "name": name} for i, name in enumerate(names)],
                "annotations": annotations,
            }
        )
    )


def row(number: int, bbox: list[float], category: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "id": number,
        "image_id": 5,
        "category_id": category,
        "bbox": bbox,
        "iscrowd": 0,
        **more,
    }


def read(tmp_path: Path, **settings: Any) -> Picture:
    settings = {"classes": {"tram": "ignore"}, **settings}
    return read_set(SetSettings("set.json", **settings), MODEL, tmp_path)[0]


def test_boxes_without_area_or_with_swapped_corners_are_named(tmp_path: Path) -> None:
    # C11: xyxy [290,220,296,220], [50,40,50,60], [500,533,231,255], [10,10,30,30]
    write_set(
        tmp_path,
        [
            row(1, [290, 220, 6, 0]),
            row(2, [50, 40, 0, 20]),
            row(3, [500, 533, -269, -278]),
            row(4, [10, 10, 20, 20]),
        ],
    )
    with pytest.raises(InputError) as error:
        read(tmp_path)
    text = str(error.value)
    assert "set.json" in text
    assert all(f"annotation id {number}:" in text for number in (1, 2, 3))
    assert "annotation id 4" not in text


def test_bad_labels_end_the_command_before_the_first_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # C12 for COCO json
    write_set(
        tmp_path,
        [row(1, [10, 10, 20, 20]), row(2, [10, 10, 20, 20], 7), row(3, [10, 10, 20, 20], -1)],
    )
    file = tmp_path / "run.yaml"
    file.write_text(
        "model: {names: [car, truck, person], group: [car, truck]}\n"
        "data: {train: [{annotations: set.json, classes: {tram: ignore}}], cache: "
        + str(tmp_path / "cache")
        + "}\n"
    )
    assert main(["train", str(file), "--out", str(tmp_path / "run")]) == 2
    text = " ".join(capsys.readouterr().err.split())
    assert "annotation id 2: class id 7 is outside 0..4" in text
    assert "annotation id 3: class id -1 is outside 0..4" in text
    assert "annotation id 1" not in text
    assert not (tmp_path / "run" / "last.pt").exists()


def test_a_label_of_a_missing_picture_is_named(tmp_path: Path) -> None:
    write_set(tmp_path, [row(1, [10, 10, 20, 20])])
    (tmp_path / "a.png").unlink()
    with pytest.raises(InputError, match=r"set\.json: image id 5: no such picture .*a\.png"):
        read(tmp_path)
    write_set(tmp_path, [row(1, [10, 10, 20, 20]), {**row(2, [1, 1, 9, 9]), "image_id": 9}])
    with pytest.raises(InputError, match="annotation id 2: image id 9 is not in the file"):
        read(tmp_path)


def test_a_class_without_target_is_named(tmp_path: Path) -> None:
    write_set(tmp_path, [row(1, [10, 10, 20, 20])])
    with pytest.raises(InputError, match="class 'tram' has no target"):
        read(tmp_path, classes={})


def test_a_broken_json_file_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "set.json").write_text('{"images": [],\n "annotations": [}')
    with pytest.raises(InputError, match=r"set\.json:2: not JSON"):
        read(tmp_path)


def test_what_a_set_did_not_annotate_is_ignored_everywhere(tmp_path: Path) -> None:
    write_set(tmp_path, [row(1, [10, 10, 20, 20])])
    regions = read(tmp_path, annotated=("vehicle",)).regions
    assert regions.tolist() == [[0, 0, 640, 640, 1, np.inf]]


def test_small_objects_may_be_unlabelled(tmp_path: Path) -> None:
    write_set(tmp_path, [row(1, [10, 10, 20, 20])], info={"unlabelled_below_area": 0.01})
    regions = read(tmp_path, annotated=("vehicle", "person")).regions
    assert regions[:, 4].tolist() == [0, 1]
    assert regions[:, 5] == pytest.approx([4096, 4096])


def test_small_objects_may_be_unlabelled_however_the_set_is_named(tmp_path: Path) -> None:
    pytest.importorskip("perception.datasets.dataset", reason="needs the extra 'data'")
    write_set(tmp_path, [row(1, [10, 10, 20, 20])], info={"unlabelled_below_area": 0.01})
    settings = SetSettings("coco:set.json", {"tram": "ignore"}, ("vehicle", "person"))
    (picture,) = read_set(settings, MODEL, tmp_path)
    assert picture.regions[:, 5] == pytest.approx([4096, 4096])
    settings = dataclasses.replace(settings, unlabelled_below_area=0.0)
    assert len(read_set(settings, MODEL, tmp_path)[0].regions) == 0


def test_crowds_and_ignored_classes_become_regions(tmp_path: Path) -> None:
    write_set(
        tmp_path,
        [
            row(1, [10, 10, 20, 20]),
            row(2, [50, 50, 20, 20], iscrowd=1),
            row(3, [90, 90, 20, 20], 4),
        ],
    )
    picture = read(tmp_path, annotated=("vehicle", "person"))
    assert len(picture.boxes) == 1
    # A crowd is one of its own class, as in COCO; what is neutral is so for every class.
    assert sorted(map(tuple, picture.regions[:, [0, 4]].tolist())) == [(50, 0), (90, 0), (90, 1)]


def test_a_class_of_the_background_is_taught_as_nothing(tmp_path: Path) -> None:
    write_set(tmp_path, [row(1, [10, 10, 20, 20]), row(2, [90, 90, 20, 20], 4)])
    classes = {"tram": "background"}
    picture = read(tmp_path, annotated=("vehicle", "person"), classes=classes)
    assert len(picture.boxes) == 1 and len(picture.regions) == 0


def test_a_label_of_the_group_keeps_its_kind_open(tmp_path: Path) -> None:
    write_set(tmp_path, [row(1, [10, 10, 20, 20], 3)])
    assert read(tmp_path).labels.tolist() == [KIND_UNKNOWN]


def test_duplicate_boxes_are_taught_once(tmp_path: Path) -> None:
    write_set(
        tmp_path, [row(1, [10, 10, 20, 20]), row(2, [10, 10, 20, 20]), row(3, [10, 10, 20, 20], 1)]
    )
    assert read(tmp_path).labels.tolist() == [0, 1]


def test_a_teacher_fills_missing_labels_and_names_kinds(tmp_path: Path) -> None:
    write_set(tmp_path, [row(1, [100, 100, 50, 50], 3)])
    (tmp_path / "filled.json").write_text(
        json.dumps(
            {
                "pictures": {
                    "5": [
                        [101, 100, 150, 150, 0.8, 1],  # on the label of unknown kind: a truck
                        [300, 300, 360, 360, 0.7, 0],  # strong, unlabelled: becomes a car
                        [400, 400, 460, 460, 0.3, 0],  # weak: ignored
                        [500, 500, 520, 560, 0.9, 2],  # persons are not filled
                    ]
                }
            }
        )
    )
    picture = read(
        tmp_path, annotated=("vehicle", "person"), filled="filled.json", fill_above={"vehicle": 0.5}
    )
    assert picture.labels.tolist() == [1, 0]
    assert picture.boxes[1].tolist() == [300, 300, 360, 360]
    assert [tuple(r[:2]) for r in picture.regions.tolist()] == [(400, 400)]


def test_a_teacher_finds_the_pictures_of_cocos_own_layout(tmp_path: Path) -> None:
    write_splits(tmp_path)
    bright = np.zeros((64, 64, 3), np.uint8)
    bright[32:48, 32:48] = 255
    cv2.imwrite(str(tmp_path / "images/train/train.png"), bright)
    bright_cell_detector(tmp_path / "teacher.onnx", width=64, height=64)
    settings = RunSettings(
        MODEL,
        DataSettings(
            str(tmp_path),
            (
                SetSettings(
                    "annotations/instances_train.json",
                    {"tram": "ignore"},
                    fill_above={"person": 0.5},
                ),
            ),
            cache=str(tmp_path / "cache"),
            teacher=TeacherSettings(str(tmp_path / "teacher.onnx"), classes={"bright": "person"}),
        ),
    )
    (one,) = fill_labels(settings).data.train
    (picture,) = read_set(one, MODEL, tmp_path)
    assert picture.boxes[1:].tolist() == [[32, 32, 48, 48]]
    folder = dataclasses.replace(
        settings,
        data=dataclasses.replace(
            settings.data, train=(SetSettings("coco:.", fill_above={"person": 0.5}),)
        ),
    )
    with pytest.raises(InputError, match="no such COCO json, which fill_above needs"):
        fill_labels(folder)


def test_another_teacher_of_the_same_size_is_asked_anew(tmp_path: Path) -> None:
    write_set(tmp_path, [], 64)
    contract = ModelContract(names=("a",), width=64, height=64)
    found = []
    for edge in (16.0, 32.0):
        boxes = np.array([[[0, 0, edge, edge]]])
        outputs = {"boxes": boxes, "scores": np.ones((1, 1, 1))}
        fixed_outputs(tmp_path / "teacher.onnx", contract, outputs)
        settings = RunSettings(
            MODEL,
            DataSettings(
                str(tmp_path),
                (SetSettings("set.json", {"tram": "ignore"}, fill_above={"person": 0.5}),),
                cache=str(tmp_path / "cache"),
                teacher=TeacherSettings(str(tmp_path / "teacher.onnx"), classes={"a": "person"}),
            ),
        )
        (one,) = fill_labels(settings).data.train
        found.append(read_set(one, MODEL, tmp_path)[0].boxes.tolist())
    assert found == [[[0, 0, 16, 16]], [[0, 0, 32, 32]]]
    broken = {"boxes": boxes * np.nan, "scores": np.ones((1, 1, 1))}
    fixed_outputs(tmp_path / "teacher.onnx", contract, broken)
    with pytest.raises(InputError, match="a.png: the teacher gives no usable result"):
        fill_labels(settings)


def test_a_rider_that_a_teacher_finds_is_neither_taught_nor_punished(tmp_path: Path) -> None:
    write_set(tmp_path, [row(1, [100, 100, 50, 100], 0)])
    rider, walker = [110, 90, 140, 160, 0.9, 2], [130, 80, 180, 200, 0.9, 2]
    (tmp_path / "filled.json").write_text(json.dumps({"pictures": {"5": [rider, walker]}}))
    picture = read(
        tmp_path, annotated=("vehicle", "person"), filled="filled.json", fill_above={"person": 0.5}
    )
    assert picture.boxes[1:].tolist() == [walker[:4]]
    assert picture.regions.tolist() == [[*rider[:4], 1, np.inf]]


def test_a_damaged_jpeg_is_named_and_not_trained_on(tmp_path: Path) -> None:
    whole = picture(tmp_path / "whole.jpg")
    damaged = [damaged_jpeg(tmp_path / f"{name}.jpg") for name in "ab"]
    cut = tmp_path / "cut.jpg"
    cut.write_bytes(whole.read_bytes()[:-40])
    cache = tmp_path / "cache"
    with pytest.raises(InputError) as error:
        open_cache([damaged[0], whole, damaged[1], cut], cache, 640)
    problems = str(error.value).split("; ")
    assert [problem.split(": ")[0] for problem in problems] == [str(f) for f in (*damaged, cut)]
    assert all("is damaged or cut short" in problem for problem in problems)
    assert list(cache.iterdir()) == []
    assert open_cache([whole], cache, 640)[0].shape == (48, 64, 3)


def test_a_damaged_jpeg_is_not_looked_at_by_a_teacher_nor_by_an_export(tmp_path: Path) -> None:
    build = pytest.importorskip("perception.export.build", reason="needs onnx")
    write_set(tmp_path, [row(1, [10, 10, 20, 20])], size=64)
    damaged = damaged_jpeg(tmp_path / "a.png", 64, 64)

    def teacher(_: object) -> None:
        raise AssertionError("the teacher was shown a damaged picture")

    for look in (
        lambda: find(teacher, {}, tmp_path / "set.json", MODEL),  # type: ignore[arg-type]
        lambda: build.read_pictures([damaged], 1),
    ):
        with pytest.raises(InputError, match=r"a\.png: JPEG of \d+ bytes is damaged"):
            look()


def test_a_picture_of_another_size_than_its_labels_is_refused(tmp_path: Path) -> None:
    write_set(tmp_path, [row(1, [100, 10, 20, 20])])
    cv2.imwrite(str(tmp_path / "a.png"), np.zeros((640, 100, 3), np.uint8))
    message = r"image id 5: .*a\.png is 100x640 pixels, its labels say 640x640"
    with pytest.raises(InputError, match=message):
        read(tmp_path)
    with pytest.raises(InputError, match="is 100x640 pixels"):
        read_set(SetSettings("coco:set.json", classes={"tram": "ignore"}), MODEL, tmp_path)


def test_labels_without_a_pixel_in_the_picture_are_counted(tmp_path: Path) -> None:
    write_set(
        tmp_path,
        [row(1, [10, 10, 20, 20]), row(2, [700, 10, 20, 20]), row(3, [10, 10, 0.5, 20])],
    )
    picture = read(tmp_path)
    assert (len(picture.boxes), picture.lost) == (1, 2)


def change(tmp_path: Path, **keys: Any) -> None:
    """Sets or, with None, removes keys of the set, and of its one image or its first annotation."""
    data = json.loads((tmp_path / "set.json").read_text())
    for key, value in keys.items():
        where, _, name = key.partition("_of_")
        target = {"": data, "image": data["images"][0], "annotation": data["annotations"][0]}
        place = target[name]
        place[where] = value
        if value is None:
            del place[where]
    (tmp_path / "set.json").write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"categories": None}, "categories is None, expected a list"),
        ({"images": None}, "images is None, expected a list"),
        ({"annotations": [3]}, r"annotations\[0\] is 3, expected an object"),
        ({"categories": []}, "annotation id 1: class id 0 is outside the file's categories, of"),
        ({"file_name_of_image": None}, "image id 5: file_name is None"),
        ({"width_of_image": None}, "image id 5: width is None, expected pixels"),
        ({"width_of_image": "wide"}, "image id 5: width is 'wide', expected pixels"),
        (
            {"file_name_of_image": "../secret.png"},
            "image id 5: file_name '../secret.png' leads out of",
        ),
        ({"file_name_of_image": "/secret.png"}, "image id 5: file_name '/secret.png' leads out of"),
        ({"ignore_regions_of_image": [[1, 2]]}, r"image id 5: ignore_regions: \[1, 2\] is not"),
        ({"bbox_of_annotation": ["1", 2, 3, 4]}, "annotation id 1: bbox .* is not four finite"),
        ({"category_id_of_annotation": [0]}, r"annotation id 1: class id \[0\] is outside 0..4"),
        ({"image_id_of_annotation": {}}, "annotation id 1: image id {} is not in the file"),
        ({"iscrowd_of_annotation": "0"}, "annotation id 1: iscrowd is '0', expected 0 or 1"),
        ({"info": {"unlabelled_below_area": "small"}}, "info: unlabelled_below_area is 'small'"),
    ],
)
def test_entries_that_cannot_be_used_are_named(
    tmp_path: Path, keys: dict[str, Any], message: str
) -> None:
    write_set(tmp_path, [row(1, [10, 10, 20, 20])])
    change(tmp_path, **keys)
    with pytest.raises(InputError, match=r"set\.json: " + message):
        read(tmp_path)


def test_a_repeated_image_id_is_named(tmp_path: Path) -> None:
    write_set(tmp_path, [row(1, [10, 10, 20, 20])])
    image = {"id": 5, "file_name": "a.png", "width": 640, "height": 640}
    change(tmp_path, images=[image, image])
    with pytest.raises(InputError, match="image id 5 occurs twice"):
        read(tmp_path)


def test_text_that_is_no_set_is_named_and_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    write_set(tmp_path, [row(1, [10, 10, 20, 20])])
    text = (tmp_path / "set.json").read_text()
    (tmp_path / "set.json").write_text("\ufeff" + text, "utf-8")
    assert len(read(tmp_path).boxes) == 1
    (tmp_path / "set.json").write_text(text.replace("tram", "stra\xdfenbahn"), "latin-1")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        read(tmp_path)
    (tmp_path / "set.json").write_text("[]")
    with pytest.raises(InputError, match=r"found \[\], expected an object"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"annotated": ("caar",)}, "annotated: 'caar' is none of vehicle, person"),
        ({"fill_above": {"persn": 0.5}}, r"fill_above: 'persn' .* \(did you mean 'person'\?\)"),
        ({"classes": {"tram": "ignore", "lorry": "car"}}, "the set has no class 'lorry'"),
    ],
)
@pytest.mark.parametrize("annotations", ["set.json", "coco:set.json"])
def test_names_that_a_set_or_the_model_lacks_are_refused(
    tmp_path: Path, settings: dict[str, Any], message: str, annotations: str
) -> None:
    write_set(tmp_path, [row(1, [10, 10, 20, 20])])
    settings = {"classes": {"tram": "ignore"}, **settings}
    with pytest.raises(InputError, match=message):
        read_set(SetSettings(annotations, **settings), MODEL, tmp_path)


@pytest.mark.parametrize("annotations", ["set.json", "coco:set.json"])
def test_ignore_regions_protect_every_channel(tmp_path: Path, annotations: str) -> None:
    write_set(tmp_path, [row(1, [10, 10, 20, 20])])
    change(tmp_path, ignore_regions_of_image=[[50, 60, 20, 10]])
    settings = SetSettings(annotations, {"tram": "ignore"}, ("vehicle", "person"))
    (picture,) = read_set(settings, MODEL, tmp_path)
    assert picture.regions.tolist() == [[50, 60, 70, 70, k, np.inf] for k in (0, 1)]


@pytest.mark.parametrize(
    ("file", "pictures"),
    [
        ("set.json", "."),
        ("set.json", "data"),
        ("annotations/instances_val2017.json", "val2017"),
        ("annotations/instances_val2017.json", "images/val2017"),
        ("annotations/set.json", "annotations/set"),
        ("captions_val2017.json", "val2017"),
        ("train/_annotations.coco.json", "train"),
    ],
)
def test_coco_json_is_the_same_set_for_both_of_its_readers(
    tmp_path: Path, file: str, pictures: str
) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra 'data'")
    labels = [row(1, [10.3, 10, 20, 20.7]), row(2, [50, 50, 9, 9], 1, iscrowd=1)]
    write_set(tmp_path, [*labels, row(3, [70, 70, 9, 9], 4)])
    change(tmp_path, ignore_regions_of_image=[[90, 60, 20, 10]])
    for old, new in (("a.png", f"{pictures}/a.png"), ("set.json", file)):
        (tmp_path / new).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / old).rename(tmp_path / new)
    settings = SetSettings(file, {"tram": "ignore"}, ("vehicle",))
    (strict,) = read_set(settings, MODEL, tmp_path)
    settings = dataclasses.replace(settings, annotations=f"coco:{file}")
    (lenient,) = read_set(settings, MODEL, tmp_path)
    assert strict.file == lenient.file == tmp_path / pictures / "a.png"
    assert (strict.width, strict.height) == (lenient.width, lenient.height)
    for name in ("boxes", "labels", "regions"):
        assert getattr(strict, name).tolist() == getattr(lenient, name).tolist()


def write_splits(root: Path) -> None:
    """COCO's own layout: annotations/instances_SPLIT.json and images/SPLIT, a picture in each."""
    (root / "annotations").mkdir()
    for split in ("train", "val"):
        write_set(root, [row(1, [10, 10, 20, 20])], size=64)
        (root / "images" / split).mkdir(parents=True)
        (root / "a.png").rename(root / "images" / split / f"{split}.png")
        change(root, file_name_of_image=f"{split}.png", split_of_image=split)
        (root / "set.json").rename(root / "annotations" / f"instances_{split}.json")


def test_one_split_of_cocos_own_layout_is_a_set(tmp_path: Path) -> None:
    write_splits(tmp_path)
    settings = SetSettings("annotations/instances_val.json", {"tram": "ignore"})
    (picture,) = read_set(settings, MODEL, tmp_path)
    assert picture.file == tmp_path / "images/val/val.png"


def test_one_split_of_a_folder_is_a_set(tmp_path: Path) -> None:
    write_splits(tmp_path)
    settings = SetSettings("coco:.", {"tram": "ignore"}, split="val")
    (picture,) = read_set(settings, MODEL, tmp_path)
    assert picture.file == tmp_path / "images/val/val.png"
    with pytest.raises(InputError, match="no picture is of the split 'vall', found train, val"):
        read_set(dataclasses.replace(settings, split="vall"), MODEL, tmp_path)
    with pytest.raises(InputError, match="no picture is of the split 'train', found val"):
        one = dataclasses.replace(
            settings, annotations="annotations/instances_val.json", split="train"
        )
        read_set(one, MODEL, tmp_path)


def test_warped_labels_stay_on_their_pixels() -> None:
    rng = np.random.default_rng(3)
    image = np.zeros((120, 200, 3), np.uint8)
    image[40:80, 60:140] = 255
    picture = Picture(
        Path("x"),
        200,
        120,
        np.array([[60, 40, 140, 80]], np.float32),
        np.array([0]),
        np.zeros((0, 6), np.float32),
    )
    settings = AugmentSettings(scale=(0.6, 1.6), flip=0.5, stretch=1.0, mosaic=0)
    for _ in range(20):
        made = place(image, picture, 96, 64, rng, settings)
        if len(made.boxes):
            ys, xs = np.nonzero(made.image[:, :, 0] > 140)
            seen = [xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]
            assert np.abs(made.boxes[0] - seen).max() <= 1.5


def test_yolo_labels_outside_the_class_list_are_named_with_file_and_line(tmp_path: Path) -> None:
    # C12: three classes; 3, -1 and 1.5 are outside 0..2
    labels = {
        "a": "2 0.5 0.5 0.2 0.2\n",
        "b": "0 0.5 0.5 0.2 0.2\n3 0.5 0.5 0.2 0.2\n",
        "c": "-1 0.5 0.5 0.2 0.2\n",
        "d": "1.5 0.5 0.5 0.2 0.2\n",
    }
    for folder in ("images/train", "labels/train"):
        (tmp_path / folder).mkdir(parents=True)
    for name, text in labels.items():
        cv2.imwrite(str(tmp_path / f"images/train/{name}.png"), np.zeros((64, 64, 3), np.uint8))
        (tmp_path / f"labels/train/{name}.txt").write_text(text)
    (tmp_path / "data.yaml").write_text(
        "path: .\ntrain: images/train\nnames: [car, truck, person]\n"
    )
    with pytest.raises(InputError) as error:
        read_set(SetSettings("yolo:data.yaml"), MODEL, tmp_path)
    text = str(error.value)
    for spot in ("b.txt:2", "c.txt:1", "d.txt:1", "0..2"):
        assert spot in text, text
    assert "a.txt" not in text
    for name in ("b", "c", "d"):
        (tmp_path / f"labels/train/{name}.txt").write_text("")
    pictures = read_set(SetSettings("yolo:data.yaml"), MODEL, tmp_path)
    assert sorted(len(picture.boxes) for picture in pictures) == [0, 0, 0, 1]
