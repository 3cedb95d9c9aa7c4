from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from perception.datasets import open_dataset
from perception.datasets.duplicates import groups_of_similar
from perception.datasets.lint import LintSettings, lint
from perception.datasets.repair import repair
from perception.datasets.split import split
from perception.errors import InputError
from tests.datasets.made import coco, damaged_jpeg, picture


def codes(folder: Path, **settings: bool) -> dict[str, int]:
    report = lint(open_dataset(f"coco:{folder}"), LintSettings(**settings)).report  # type: ignore[arg-type]
    return {c: n for c, n in report.by_code().items() if c not in ("class-rare", "class-empty")}


def test_a_sound_set_has_no_finding(tmp_path: Path) -> None:
    boxes = [[(1, 5, 5, 20, 20), (2, 1, 1, 9, 9)]] * 10
    assert not lint(open_dataset(f"coco:{coco(tmp_path, boxes)}")).report.findings


def test_each_odd_box_is_itemised_with_file_and_line(tmp_path: Path) -> None:
    folder = coco(
        tmp_path,
        [
            [
                (1, 5, 5, 20, 20),
                (1, 5.2, 5.2, 20, 20),
                (1, 40, 40, 30, 4),
                (1, 70, 5, 5, 5),
                (1, 9, 9, 0, 5),
                (1, 9, 9, 5, -4),
                (1, 1, 30, 1, 9),
                (1, 2, 8, 62, 2),
                (1, 0, 0, 64, 48),
            ]
        ],
    )
    report = lint(open_dataset(f"coco:{folder}")).report
    found = [(f.severity, f.code) for f in report.findings if f.line]
    assert sorted(found) == [
        ("error", "box-degenerate"),
        ("error", "box-degenerate"),
        ("error", "box-outside"),
        ("warning", "box-duplicate"),
        ("warning", "box-full"),
        ("warning", "box-outside"),
        ("warning", "box-thin"),
        ("warning", "box-tiny"),
    ]
    lines = (folder / "annotations/instances_train.json").read_text().splitlines()
    duplicate = next(f for f in report.findings if f.code == "box-duplicate")
    assert '"id": 2' in lines[duplicate.line]


def test_pictures_missing_damaged_turned_and_of_another_size(tmp_path: Path) -> None:
    folder = coco(tmp_path, [[]] * 5)
    images = folder / "images"
    (images / "000.png").unlink()
    data = (images / "001.png").read_bytes()
    (images / "001.png").write_bytes(data[: len(data) // 2])
    exif = Image.Exif()
    exif[0x0112] = 3
    Image.open(images / "002.png").save(images / "002.png", format="JPEG", exif=exif)
    picture(images / "003.png", 32, 32, seed=77)
    expected = {"picture-missing": 1, "picture-corrupt": 1, "exif-rotation": 1, "size-mismatch": 1}
    assert codes(folder) == expected
    assert codes(folder, decode=False) == {
        k: v for k, v in expected.items() if k != "picture-corrupt"
    }


def test_a_jpeg_cut_in_half_is_damaged(tmp_path: Path) -> None:
    folder = coco(tmp_path, [[]])
    image = cv2.imread(str(folder / "images/000.png"))
    data = cv2.imencode(".jpg", image)[1].tobytes()
    (folder / "images/000.png").write_bytes(data[: len(data) * 2 // 3])
    assert codes(folder)["picture-corrupt"] == 1


def test_a_jpeg_without_its_middle_is_damaged(tmp_path: Path) -> None:
    folder = coco(tmp_path, [[]] * 2)
    damaged_jpeg(folder / "images/001.png")
    data = open_dataset(f"coco:{folder}")
    (found,) = [f for f in lint(data).report.findings if f.code == "picture-corrupt"]
    assert found.file == "images/001.png" and "is damaged or cut short" in found.message
    with pytest.raises(InputError, match=r"001\.png: JPEG of \d+ bytes is damaged or cut short"):
        data.load(data[1])


def test_similar_pictures_within_and_between_splits(tmp_path: Path) -> None:
    coco(tmp_path, [[]] * 4, prefix="a")
    coco(tmp_path, [[]] * 2, prefix="b", file="annotations/instances_val.json")
    images = tmp_path / "images"
    brighter = cv2.imread(str(images / "a000.png"))
    cv2.imwrite(str(images / "a001.png"), cv2.add(brighter, (3, 3, 3, 0)))
    (images / "b001.png").write_bytes((images / "a003.png").read_bytes())
    report = lint(open_dataset(f"coco:{tmp_path}")).report
    within = [f for f in report.findings if f.code == "similar-pictures"]
    between = [f for f in report.findings if f.code == "similar-across-splits"]
    assert [f.severity for f in (*within, *between)] == ["warning", "error"]
    assert "a000.png, images/a001.png" in within[0].message
    assert "a003.png, images/b001.png" in between[0].message


def test_equal_pictures_without_structure_are_found_too(tmp_path: Path) -> None:
    coco(tmp_path, [[]] * 2, prefix="a")
    coco(tmp_path, [[]] * 1, prefix="b", file="annotations/instances_val.json")
    for name, level in (("a000", 90), ("a001", 120), ("b000", 90)):
        plain = np.full((48, 64, 3), level, np.uint8)
        cv2.imwrite(str(tmp_path / f"images/{name}.png"), plain)
    dataset = open_dataset(f"coco:{tmp_path}")
    found = [f for f in lint(dataset).report.findings if f.code.startswith("similar")]
    assert [f.code for f in found] == ["similar-across-splits"]
    assert "a000.png, images/b000.png" in found[0].message
    places = split(dataset, {"train": 0.5, "val": 0.5}, by="hash", similar=0)
    assert places[0] == places[2]


def test_a_sequence_in_two_splits_leaks(tmp_path: Path) -> None:
    coco(tmp_path, [[]], prefix="a", sequence="drive-1")
    coco(tmp_path, [[]], prefix="b", sequence="drive-1", file="annotations/instances_val.json")
    assert codes(tmp_path)["sequence-leak"] == 1


def test_classes_that_are_rare_empty_or_untrained_are_told(tmp_path: Path) -> None:
    coco(tmp_path, [[(1, i, 1, 9, 9) for i in range(20)]], names=("car", "bus", "tram"), prefix="a")
    coco(
        tmp_path,
        [[(2, 1, 1, 9, 9)]],
        names=("car", "bus", "tram"),
        prefix="b",
        file="annotations/instances_val.json",
    )
    report = lint(open_dataset(f"coco:{tmp_path}")).report
    assert [(f.code, f.message.split("'")[1]) for f in report.findings] == [
        ("class-rare", "bus"),
        ("class-empty", "tram"),
        ("class-not-trained", "bus"),
    ]


def test_a_repaired_copy_is_sound_and_the_original_is_not_touched(tmp_path: Path) -> None:
    folder = coco(
        tmp_path / "a",
        [
            [
                (1, 5, 5, 20, 20),
                (1, 5, 5, 20, 20),
                (1, 40, 40, 30, 4),
                (1, 70, 5, 5, 5),
                (1, 9, 9, 0, 5),
            ],
            [(1, 1, 1, 5, 5)],
            [],
        ],
    )
    (folder / "images/001.png").write_bytes(b"no picture")
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.full((64, 48, 3), 200, np.uint8)).save(
        folder / "images/002.png", format="JPEG", exif=exif
    )
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    dataset = open_dataset(f"coco:{folder}")
    done = repair(dataset, lint(dataset).report, f"coco:{tmp_path / 'b'}")
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before
    assert done.report.by_code() == {
        "box-clipped": 1,
        "box-left-out": 3,
        "picture-left-out": 1,
        "turned": 1,
    }
    assert json.loads((tmp_path / "b/repairs.json").read_text())["by_code"] == done.report.by_code()
    fixed = open_dataset(f"coco:{tmp_path / 'b'}")
    assert fixed[0].truth.boxes.tolist() == [[5, 5, 25, 25], [40, 40, 64, 44]]
    assert Image.open(tmp_path / "b/images/002.png").getexif().get(0x0112, 1) == 1
    assert not [f for f in lint(fixed).report.findings if f.code.startswith(("box", "exif"))]


def test_a_picture_of_another_size_than_its_labels_stays_as_it_is(tmp_path: Path) -> None:
    folder = coco(tmp_path / "a", [[(1, 40, 30, 20, 15)], [(1, 40, 30, 20, 15)]])
    picture(folder / "images/000.png", 32, 24)
    exif = Image.Exif()
    exif[0x0112] = 6  # the labels are for the picture before it is turned
    Image.fromarray(np.full((48, 64, 3), 200, np.uint8)).save(
        folder / "images/001.png", format="JPEG", exif=exif
    )
    dataset = open_dataset(f"coco:{folder}")
    done = repair(dataset, lint(dataset).report, f"coco:{tmp_path / 'b'}")
    assert done.report.by_code() == {"picture-untouched": 2}
    fixed = open_dataset(f"coco:{tmp_path / 'b'}")
    for before, after in zip(dataset, fixed, strict=True):
        np.testing.assert_array_equal(before.truth.boxes, after.truth.boxes)
        assert isinstance(before.image, Path) and isinstance(after.image, Path)
        assert before.image.read_bytes() == after.image.read_bytes()


def test_a_repaired_copy_leaves_out_pictures_outside_the_folder(tmp_path: Path) -> None:
    folder = coco(tmp_path / "a", [[(1, 1, 2, 3, 4)], [(1, 1, 2, 3, 4)]])
    file = folder / "annotations/instances_train.json"
    file.write_text(file.read_text().replace("000.png", "../../000.png"))
    dataset = open_dataset(f"coco:{folder}")
    done = repair(dataset, lint(dataset).report, f"coco:{tmp_path / 'b'}")
    assert [sample.name for sample in open_dataset(f"coco:{tmp_path / 'b'}")] == ["001.png"]
    assert done.report.by_code()["picture-left-out"] == 1


def test_a_folder_that_is_not_empty_is_never_written_to(tmp_path: Path) -> None:
    dataset = open_dataset(f"coco:{coco(tmp_path / 'a', [[]])}")
    with pytest.raises(InputError, match="not an empty folder"):
        repair(dataset, lint(dataset).report, f"coco:{tmp_path / 'a'}")


@pytest.mark.parametrize("distance", [0, 3, 7])
def test_groups_of_similar_equal_comparing_every_pair(distance: int) -> None:
    rng = np.random.default_rng(distance)
    base = rng.integers(0, 2**63, 40, dtype=np.uint64)
    flips = [
        np.uint64(sum(1 << int(b) for b in rng.choice(64, rng.integers(0, 6), replace=False)))
        for _ in range(160)
    ]
    hashes = np.asarray([base[i % 40] ^ flip for i, flip in enumerate(flips)], np.uint64)
    near = [[bin(int(a ^ b)).count("1") <= distance for b in hashes] for a in hashes]
    seen: set[int] = set()
    expected = []
    for start in range(len(hashes)):
        group, stack = set(), [start]
        while stack:
            i = stack.pop()
            if i not in group:
                group.add(i)
                stack += [j for j in range(len(hashes)) if near[i][j]]
        if start not in seen and len(group) > 1:
            expected.append(sorted(group))
        seen |= group
    assert groups_of_similar(hashes, distance) == expected
