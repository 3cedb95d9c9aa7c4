"""What each reader makes of odd files; C02, C03, C05, C07, C09 are acceptance cases."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from perception.datasets import Dataset, open_dataset
from perception.datasets.convert import convert
from perception.errors import InputError
from tests.datasets.made import coco, picture


def findings(dataset: Dataset, code: str) -> list[tuple[str, int]]:
    return [(f.file, f.line) for f in dataset.report.findings if f.code == code]


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_yolo_mixed_rows_keep_the_picture_and_itemise_the_rest(tmp_path: Path) -> None:  # C02
    picture(tmp_path / "images/a.png", 100, 50)
    write(
        tmp_path / "labels/a.txt",
        "0 0.5 0.5 0.2 0.4\n0 0.2 0.3 0.6 0.3 0.6 0.9 0.2 0.9\n0 0.5 0.5 0.2 0.4\n1 0.5 0.5 0.2\n",
    )
    write(tmp_path / "classes.txt", "car\nbus\n")
    dataset = open_dataset(f"yolo:{tmp_path}")
    sample = dataset[0]
    np.testing.assert_allclose(sample.truth.boxes, [[40, 15, 60, 35], [20, 15, 60, 45]], atol=1e-4)
    assert sample.truth.labels.tolist() == [0, 0]
    assert findings(dataset, "duplicate-row") == [("labels/a.txt", 3)]
    assert findings(dataset, "bad-row") == [("labels/a.txt", 4)]
    assert findings(dataset, "outline") == [("labels/a.txt", 2)]


def test_yolo_key_points_that_are_not_kept_are_said(tmp_path: Path) -> None:
    picture(tmp_path / "images/a.png", 100, 50)
    write(tmp_path / "labels/a.txt", "\n0 0.5 0.5 0.2 0.4 0.5 0.5 2\n0 0.5 0.5 0.2 0.4 0.4 0.5 2\n")
    write(tmp_path / "data.yaml", "names: [person]\nkpt_shape: [1, 3]\n")
    dataset = open_dataset(f"yolo:{tmp_path}")
    assert len(dataset[0].truth) == 2
    assert findings(dataset, "key-points") == [("labels/a.txt", 2)]


def test_windows_yolo_reads_the_same_in_the_c_locale(tmp_path: Path) -> None:  # C03
    picture(tmp_path / "工場_é 01.png", 64, 64)
    write(
        tmp_path / "工場_é 01.txt", b"\xef\xbb\xbf0 0.5 0.5 0.2 0.2\r\n\r\n1 0.25 0.25 0.1 0.1\r\n"
    )
    write(tmp_path / "classes.txt", "forklift\r\npersonne à pied\r\n")
    code = (
        "import sys, json; from perception.datasets import open_dataset\n"
        "d = open_dataset('yolo:' + sys.argv[1]); s = d[0]\n"
        "print(json.dumps([list(d.names), s.truth.labels.tolist(), list(d.pixels(s).shape),"
        " len(d), len(d.report)]))"
    )
    for locale in ("C", "C.UTF-8"):
        env = {**os.environ, "LC_ALL": locale, "PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run(
            [sys.executable, "-c", code, os.fsencode(tmp_path)],
            env=env,
            capture_output=True,
            check=True,
        )
        names, labels, shape, count, remarks = json.loads(done.stdout)
        assert names == ["forklift", "personne à pied"]
        assert [len(name) for name in names] == [8, 15]
        assert (labels, shape, count, remarks) == ([0, 1], [64, 64, 3], 1, 0)


def test_bdd_frames_without_labels_stay_as_negatives(tmp_path: Path) -> None:  # C05
    write(
        tmp_path / "det.json",
        json.dumps(
            [
                {"name": "f1.jpg", "labels": None},
                {"name": "f2.jpg"},
                {
                    "name": "f3.jpg",
                    "labels": [
                        {
                            "id": "1",
                            "category": "car",
                            "box2d": {"x1": 10, "y1": 20, "x2": 30, "y2": 50},
                        },
                        {
                            "id": "2",
                            "category": "lane",
                            "poly2d": [
                                {"vertices": [[0, 0], [5, 5]], "types": "LL", "closed": False}
                            ],
                        },
                    ],
                },
            ]
        ),
    )
    dataset = open_dataset(str(tmp_path))
    assert dataset.format == "bdd100k" and dataset.guessed
    assert [len(sample.truth) for sample in dataset] == [0, 0, 1]
    assert dataset[2].truth.boxes.tolist() == [[10, 20, 30, 50]]
    assert dataset.names.names == ("car",)
    assert [f.message for f in dataset.report.findings if f.code == "no-box2d"] == [
        "1 labels of 'lane' have no box2d and are left out"
    ]

    convert(dataset, f"coco:{tmp_path / 'out'}")
    data = json.loads((tmp_path / "out/annotations/instances_all.json").read_text())
    assert (len(data["images"]), len(data["annotations"])) == (3, 1)


def test_kitti_scores_dontcare_and_3d_origin(tmp_path: Path) -> None:  # C07
    write(
        tmp_path / "label_2/000000.txt",
        "\n".join(
            [
                "Car 0.00 0 -1.57 100.00 120.00 200.00 180.00 1.50 1.60 3.90 1.00 1.60 20.00 -1.52",
                "Pedestrian 0.10 1 0.20 300.00 100.00 320.00 160.00 1.75 0.60 0.80 5.00 1.70 15.00 "
                "0.50 0.87",
                "DontCare -1 -1 -10 400.00 100.00 600.00 200.00 -1 -1 -1 -1000 -1000 -1000 -10",
            ]
        ),
    )
    dataset = open_dataset(str(tmp_path))
    sample = dataset[0]
    assert dataset.names.names == ("Car", "Pedestrian")
    assert sample.truth.boxes.tolist() == [[100, 120, 200, 180], [300, 100, 320, 160]]
    assert sample.scored.tolist() == [False, True]
    assert sample.truth.scores[1] == pytest.approx(0.87)
    assert sample.ignore.tolist() == [[400, 100, 600, 200]]
    np.testing.assert_allclose(
        sample.boxes_3d[0], [1.0, 0.85, 20.0, 3.9, 1.5, 1.6, -1.52], rtol=1e-6
    )


def nuscenes_tables(folder: Path) -> Path:
    """Instances A (0, 0.5, 1 s at x 0, 1, 3), B (once) and C (twice, 2 s apart); one camera."""
    times = {"s0": 0, "s1": 500_000, "s2": 1_000_000, "s3": 2_000_000}
    rows: dict[str, list[dict[str, Any]]] = {
        "sensor": [{"token": "cam", "channel": "CAM", "modality": "camera"}],
        "calibrated_sensor": [
            {
                "token": "cal",
                "sensor_token": "cam",
                "translation": [0, 0, 0],
                "rotation": [1, 0, 0, 0],
                "camera_intrinsic": [[100, 0, 100], [0, 100, 100], [0, 0, 1]],
            }
        ],
        "ego_pose": [
            {"token": "pose", "timestamp": 0, "translation": [0, 0, -20], "rotation": [1, 0, 0, 0]}
        ],
        "category": [{"token": "car", "name": "vehicle.car"}],
        "instance": [{"token": t, "category_token": "car"} for t in "ABC"],
        "sample": [
            {"token": t, "timestamp": time, "scene_token": "scene"} for t, time in times.items()
        ],
        "scene": [{"token": "scene", "name": "scene-1"}],
        "sample_data": [
            {
                "token": f"d{t}",
                "sample_token": t,
                "ego_pose_token": "pose",
                "calibrated_sensor_token": "cal",
                "filename": f"samples/{t}.jpg",
                "width": 200,
                "height": 200,
                "timestamp": time,
                "is_key_frame": True,
            }
            for t, time in times.items()
        ],
    }

    def annotation(
        token: str, sample: str, x: float, before: str, after: str, points: tuple[int, int] = (5, 0)
    ) -> dict[str, Any]:
        return {
            "token": token,
            "sample_token": sample,
            "instance_token": token[0],
            "translation": [x, 0, 0],
            "size": [1, 1, 1],
            "rotation": [1, 0, 0, 0],
            "prev": before,
            "next": after,
            "num_lidar_pts": points[0],
            "num_radar_pts": points[1],
        }

    rows["sample_annotation"] = [
        annotation("A0", "s0", 0, "", "A1", (0, 1)),
        annotation("A1", "s1", 1, "A0", "A2", (0, 0)),
        annotation("A2", "s2", 3, "A1", ""),
        annotation("B0", "s0", 0, "", ""),
        annotation("C0", "s0", 0, "", "C1"),
        annotation("C1", "s3", 5, "C0", ""),
    ]
    for name, table in rows.items():
        write(folder / "v1.0-mini" / f"{name}.json", json.dumps(table))
    return folder


def test_nuscenes_velocity_and_points(tmp_path: Path) -> None:  # C09
    dataset = open_dataset(f"nuscenes:{nuscenes_tables(tmp_path)}")
    speed = {
        box_id: float(sample.velocity[i, 0])
        for sample in dataset
        for i, box_id in enumerate(sample.box_ids)
    }
    assert set(speed) == {"A0", "A1", "A2", "B0", "C0", "C1"}
    assert [speed[t] for t in ("A0", "A1", "A2")] == [2.0, 3.0, 4.0]
    assert all(np.isnan(speed[t]) for t in ("B0", "C0", "C1"))
    seen = {
        box_id: bool(sample.visible()[i])
        for sample in dataset
        for i, box_id in enumerate(sample.box_ids)
    }
    assert seen == {"A0": True, "A1": False, "A2": True, "B0": True, "C0": True, "C1": True}


def test_projection_covers_the_solid_and_stays_in_the_picture(tmp_path: Path) -> None:
    dataset = open_dataset(f"nuscenes:{nuscenes_tables(tmp_path)}")
    a0 = dataset[0].box_ids.index("A0")
    # A unit cube 20 m ahead: its near face, at 19.5 m, spans +-0.5 m.
    reach = 100 * 0.5 / 19.5
    np.testing.assert_allclose(
        dataset[0].truth.boxes[a0], [100 - reach, 100 - reach, 100 + reach, 100 + reach], rtol=1e-5
    )
    assert dataset[0].distance[a0] == pytest.approx(20.0)


def test_class_id_outside_the_list_names_line_and_range(tmp_path: Path) -> None:
    for name, text in {
        "a": "2 .5 .5 .2 .2",
        "b": "0 .5 .5 .1 .1\n3 .5 .5 .2 .2",
        "c": "-1 .5 .5 .2 .2",
        "d": "1.5 .5 .5 .2 .2",
    }.items():
        picture(tmp_path / f"{name}.png")
        write(tmp_path / f"{name}.txt", text)
    write(tmp_path / "data.yaml", "names: [x, y, z]")
    dataset = open_dataset(str(tmp_path))
    assert findings(dataset, "unknown-class") == [("b.txt", 2), ("c.txt", 1), ("d.txt", 1)]
    assert all("0..2" in f.message for f in dataset.report.findings if f.code == "unknown-class")
    assert len(dataset) == 4


def test_coco_absurd_numbers_and_strangers_are_itemised(tmp_path: Path) -> None:
    folder = coco(tmp_path, [[(1, 1, 2, 10, 10)], []])
    file = folder / "annotations/instances_train.json"
    data = json.loads(file.read_text())
    bad: list[dict[str, Any]] = [
        {"id": 90, "image_id": 1, "category_id": 1, "bbox": [0, 0, float("nan"), 5]},
        {"id": 91, "image_id": 1, "category_id": 1, "bbox": "1e400"},
        {"id": 92, "image_id": 77, "category_id": 1, "bbox": [0, 0, 5, 5]},
        {"id": 93, "image_id": 1, "category_id": 9, "bbox": [0, 0, 5, 5]},
        {"id": 94, "image_id": 1, "category_id": 1, "bbox": [0, 0, 5]},
        {"id": 95, "image_id": 1, "category_id": 1},
        {"id": 96, "image_id": 1, "category_id": 1, "bbox": [0, 0, 96.25, 5]},
    ]
    data["annotations"] += bad
    file.write_text(json.dumps(data, indent=1).replace("96.25", "1e400"))
    dataset = open_dataset(f"coco:{tmp_path}")
    assert [len(sample.truth) for sample in dataset] == [1, 0]
    codes = dataset.report.by_code()
    assert codes == {
        "bad-box": 2,
        "bad-json": 1,
        "not-finite": 2,
        "unknown-class": 1,
        "unknown-image": 1,
    }
    text = file.read_text().splitlines()
    for finding in dataset.report.findings:
        assert finding.file == "annotations/instances_train.json"
        assert text[finding.line - 1].strip() == "{", finding


def test_coco_that_is_cut_off_says_so(tmp_path: Path) -> None:
    folder = coco(tmp_path, [[(1, 1, 2, 10, 10)]] * 3)
    file = folder / "annotations/instances_train.json"
    file.write_bytes(file.read_bytes()[:-300])
    dataset = open_dataset(f"coco:{tmp_path}")
    assert len(dataset) == 3
    assert dataset.report.by_code()["truncated"] == 1


def test_coco_keeps_category_order_and_ids(tmp_path: Path) -> None:
    folder = coco(tmp_path, [[(7, 1, 2, 10, 10)]])
    file = folder / "annotations/instances_train.json"
    data = json.loads(file.read_text())
    data["categories"] = [{"id": 7, "name": "zebra"}, {"id": 3, "name": "ant"}]
    file.write_text(json.dumps(data))
    dataset = open_dataset(f"coco:{tmp_path}")
    assert dataset.names.names == ("ant", "zebra")
    assert dataset[0].truth.labels.tolist() == [1]


@pytest.mark.parametrize("name", ["../../secret.png", "/etc/passwd", "C:\\secret.png"])
def test_a_path_that_leaves_the_root_is_never_opened(tmp_path: Path, name: str) -> None:
    picture(tmp_path / "secret.png")
    folder = coco(tmp_path / "a/b", [[(1, 1, 2, 10, 10)]])
    file = folder / "annotations/instances_train.json"
    data = json.loads(file.read_text())
    data["images"][0]["file_name"] = name
    file.write_text(json.dumps(data))
    dataset = open_dataset(f"coco:{folder}")
    assert dataset[0].image is None and len(dataset[0].truth) == 1
    found = [f for f in dataset.report.findings if f.code == "outside-root"]
    assert [(f.severity, f.file, f.picture) for f in found] == [
        ("error", "annotations/instances_train.json", name)
    ]


def test_readers_do_not_follow_a_link_out_of_the_root(tmp_path: Path) -> None:
    secret = picture(tmp_path / "secret.png", 99, 99)
    for place, label, text in (
        ("yolo/images/a.png", "yolo/labels/a.txt", "0 .5 .5 .1 .1\n"),
        ("kitti/training/image_2/a.png", "kitti/training/label_2/a.txt", ""),
        ("voc/a.png", "voc/a.xml", "<annotation></annotation>"),
    ):
        write(tmp_path / label, text)
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).symlink_to(secret)
    for format in ("yolo", "kitti", "voc"):
        dataset = open_dataset(f"{format}:{tmp_path / format}")
        assert (dataset[0].width, dataset[0].height) == (0, 0)
        bad = next(f for f in dataset.report.findings if f.code == "bad-picture")
        assert "leads out of the data set's folder" in bad.message


def test_a_link_out_of_the_root_is_refused(tmp_path: Path) -> None:
    from perception.errors import InputError

    picture(tmp_path / "secret.png")
    folder = coco(tmp_path / "set", [[]])
    (folder / "images/000.png").unlink()
    (folder / "images/000.png").symlink_to(tmp_path / "secret.png")
    dataset = open_dataset(f"coco:{folder}")
    with pytest.raises(InputError, match="leads out"):
        dataset.load(dataset[0])


def test_kitti_bad_rows_are_itemised(tmp_path: Path) -> None:
    good = "Car 0 0 0 1 2 3 4 1 1 1 1 1 9 0"
    write(
        tmp_path / "label_2/7.txt",
        f"{good}\nCar 1 2\n{good.replace('9 0', '1e400 0')}\n{good.replace('9 0', 'nan 0')}\n",
    )
    write(tmp_path / "label_2/8.txt", b"Car \xff\xfe\n")
    dataset = open_dataset(f"kitti:{tmp_path}")
    assert [len(sample.truth) for sample in dataset] == [1, 0]
    assert findings(dataset, "bad-row") == [("label_2/7.txt", 2)]
    assert findings(dataset, "bad-number") == [("label_2/7.txt", 3), ("label_2/7.txt", 4)]
    assert findings(dataset, "not-utf8") == [("label_2/8.txt", 1)]
    assert len(findings(dataset, "no-picture")) == 2


def test_kitti_tracking_has_tracks_and_empty_frames(tmp_path: Path) -> None:
    row = "Car 0 0 0 1 2 30 40 1 1 1 1 1 9 0"
    write(
        tmp_path / "training/label_02/0003.txt",
        f"0 5 {row}\n2 5 {row}\n2 -1 DontCare -1 -1 -10 0 0 9 9 -1 -1 -1 -1000 -1000 -1000 -10\n",
    )
    for i in range(3):
        picture(tmp_path / f"training/image_02/0003/{i:06d}.png")
    dataset = open_dataset(f"kitti:{tmp_path}")
    assert [sample.truth.track_ids.tolist() for sample in dataset] == [[5], [], [5]]
    assert [(sample.sequence, sample.frame) for sample in dataset] == [
        ("0003", i) for i in range(3)
    ]
    assert len(dataset[2].ignore) == 1 and dataset[2].split == "train"


def test_voc_xml_faults_have_lines(tmp_path: Path) -> None:
    write(
        tmp_path / "a.xml",
        "<annotation>\n<filename>a.png</filename>\n<object>\n<name>x</name>\n"
        "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>nan</xmax><ymax>9</ymax></bndbox>\n</object>\n"
        "<object><name>y</name></object></annotation>",
    )
    write(tmp_path / "b.xml", "<annotation>\n<object>")
    write(tmp_path / "c.xml", '<!DOCTYPE a [<!ENTITY x "y">]>\n<annotation>&x;</annotation>')
    dataset = open_dataset(f"voc:{tmp_path}")
    assert len(dataset) == 3
    assert findings(dataset, "bad-number") == [("a.xml", 5)]
    assert findings(dataset, "bad-box") == [("a.xml", 7)]
    assert [file for file, _ in findings(dataset, "bad-xml")] == ["b.xml", "c.xml"]


def test_mot_seventeen_classes_visibility_and_missing_frames(tmp_path: Path) -> None:
    write(
        tmp_path / "seq/gt/gt.txt",
        "1,2001,10,10,20,40,1,1,0.75\n1,4,150,10,20,40,0,3,1\n"
        "4,2001,12,10,20,40,1,1,1\n4,x,1,1,1,1,1,1,1\n",
    )
    write(
        tmp_path / "seq/seqinfo.ini",
        "[Sequence]\nname=seq\nimDir=img1\nframeRate=10\n"
        "seqLength=5\nimWidth=640\nimHeight=480\nimExt=.jpg\n",
    )
    dataset = open_dataset(str(tmp_path))
    assert dataset.names.names == ("car", "pedestrian")
    assert [len(sample.truth) for sample in dataset] == [2, 0, 0, 1, 0]
    assert dataset[0].truth.track_ids.tolist() == [2001, 4]
    assert dataset[0].occlusion[0] == pytest.approx(0.25)
    assert dataset[3].stamp_ns == 300_000_000 and dataset[0].width == 640
    assert findings(dataset, "bad-number") == [("seq/gt/gt.txt", 4)]


def test_mot_file_that_ends_inside_a_row_says_so(tmp_path: Path) -> None:
    row = "{},1,10,10,20,20,1,-1,-1,-1\n"
    text = "".join(row.format(frame) for frame in (1, 2, 3))
    write(tmp_path / "gt/gt.txt", text[: len(text) - 12])
    dataset = open_dataset(f"mot:{tmp_path}")
    assert findings(dataset, "truncated") == [("gt/gt.txt", 3)]
    assert sum(len(sample.truth) for sample in dataset) == 2


def test_detrac_tracks_weather_and_ignored_regions(tmp_path: Path) -> None:
    write(
        tmp_path / "MVI_1.xml",
        '<sequence name="MVI_1"><sequence_attribute sence_weather="rainy"/>'
        '<ignored_region><box left="1" top="2" width="3" height="4"/></ignored_region>'
        '<frame num="3"><target_list><target id="8"><box left="10" top="20" width="40" '
        'height="50"/><attribute truncation_ratio="0.25" vehicle_type="van"/><occlusion>'
        '<region_overlap left="10" top="20" width="20" height="50"/></occlusion></target>'
        "</target_list></frame></sequence>",
    )
    sample = open_dataset(str(tmp_path))[0]
    assert sample.truth.boxes.tolist() == [[10, 20, 50, 70]]
    assert sample.truth.track_ids.tolist() == [8] and sample.frame == 3
    assert sample.ignore.tolist() == [[1, 2, 4, 6]]
    assert (sample.truncation[0], sample.occlusion[0]) == (0.25, 0.5)
    assert sample.attributes == {"sence_weather": "rainy"}


def test_pictures_are_turned_as_their_exif_says(tmp_path: Path) -> None:
    from PIL import Image

    folder = coco(tmp_path, [[]])
    exif = Image.Exif()
    exif[0x0112] = 6
    image = Image.fromarray(np.zeros((48, 64, 3), np.uint8))
    image.save(folder / "images/000.png", format="JPEG", exif=exif)
    dataset = open_dataset(f"coco:{folder}")
    assert dataset.pixels(dataset[0]).shape == (64, 48, 3)
    assert cv2.imread(str(folder / "images/000.png")).shape == (64, 48, 3)


def yolo(folder: Path, *pictures: str, yaml: str = "names: [car]\n") -> Path:
    """A YOLO set of one object a picture, labels/... beside images/...."""
    for number, name in enumerate(pictures):
        picture(folder / name, seed=number)
        label = f"/{name}".replace("/images/", "/labels/")[1:].replace(".png", ".txt")
        write(folder / label, "0 .5 .5 .2 .2\n")
    write(folder / "data.yaml", yaml)
    return folder


@pytest.mark.parametrize(
    "yaml",
    [
        "names: [car]\n",
        "train: images/train2017\nval: images/val2017\ntest:  # optional\nnames: [car]\n",
        "path: ../somewhere/SET\ntrain: images/train2017\nval: images/val2017\nnames: [car]\n",
        "path: images\ntrain: train2017\nval: [val2017]\nnames: [car]\n",
        "train: ../images/train2017\nval: ../images/val2017\nnames: [car]\n",
    ],
)
def test_yolo_splits_are_those_of_data_yaml_or_of_folders_called_so(
    tmp_path: Path, yaml: str
) -> None:
    names = ("images/train2017/a.png", "images/train2017/b.png", "images/val2017/c.png")
    folder = yolo(tmp_path / "set", *names, yaml=yaml.replace("SET", "set"))
    dataset = open_dataset(f"yolo:{folder}")
    assert [(s.name, s.split, len(s.truth)) for s in dataset] == [
        ("a.png", "train", 1),
        ("b.png", "train", 1),
        ("c.png", "val", 1),
    ]
    assert not dataset.report.findings


def test_yolo_lists_give_splits_and_are_no_labels(tmp_path: Path) -> None:
    yaml = "train: part1.txt\nval: part2.txt\nnames: [car]\n"
    folder = yolo(tmp_path, "images/a.png", "images/b.png", "images/c.png", yaml=yaml)
    write(folder / "part1.txt", f"./images/a.png\n{folder}/images/b.png\n")
    write(folder / "part2.txt", "images/b.png\nimages/c.png\nimages/gone.png\n")
    write(folder / "autosplit_train.txt", "./images/a.png\n")
    dataset = open_dataset(f"yolo:{folder}")
    assert [(s.name, s.split) for s in dataset] == [
        ("a.png", "train"),
        ("b.png", "train"),
        ("c.png", "val"),
    ]
    assert [(f.code, f.file, f.message) for f in dataset.report.findings] == [
        ("split-missing", "part2.txt", "1 lines name no picture of the data set"),
        (
            "split-overlap",
            "data.yaml",
            "1 pictures are in train and val; they are read as train",
        ),
    ]


def test_a_yolo_split_that_is_not_there_is_told(tmp_path: Path) -> None:
    folder = yolo(tmp_path, "images/a.png", yaml="train: images/fold1\nnames: [car]\n")
    dataset = open_dataset(f"yolo:{folder}")
    assert findings(dataset, "split-missing") == [("data.yaml", 0)]
    assert dataset[0].split == ""


def test_yolo_pictures_whose_labels_lie_elsewhere_are_refused(tmp_path: Path) -> None:
    folder = yolo(tmp_path / "set", "images/train/a.png")
    with pytest.raises(InputError, match=f"they are in {folder}/labels; name .* {folder}$"):
        open_dataset(f"yolo:{folder}/images/train")
    with pytest.raises(InputError, match="name the folder of the whole set"):
        open_dataset(f"yolo:{folder}/images")
    assert len(open_dataset(f"yolo:{folder}")[0].truth) == 1


def test_yolo_names_may_pass_over_a_class_id(tmp_path: Path) -> None:
    folder = yolo(tmp_path, "a.png", yaml="names: {1: car, 2: bus}\n")
    write(folder / "a.txt", "2 .5 .5 .2 .2\n")
    dataset = open_dataset(f"yolo:{folder}")
    assert dataset.names.names == ("class_0", "car", "bus")
    assert dataset[0].truth.labels.tolist() == [2]
    assert findings(dataset, "bad-class-name") == [("data.yaml", 0)]


def test_yaml_aliases_never_become_a_class_name(tmp_path: Path) -> None:
    bomb = "a: &a [x]\n" + "".join(
        f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}]\n"
        for a, b in zip("abcdefghijk", "bcdefghijkl", strict=True)
    )
    folder = yolo(tmp_path, "a.png", yaml=f"{bomb}names: [*l]\n")
    dataset = open_dataset(f"yolo:{folder}")
    found = next(f for f in dataset.report.findings if f.code == "bad-yaml")
    assert found.message == "name 0 is a list, expected text"


def bdd(folder: Path, *frames: tuple[str, str], **more: Any) -> Path:
    """A Scalabel file of (video, name), one box a frame."""
    box = {"x1": 10, "y1": 20, "x2": 30, "y2": 40}
    labels = [{"id": "7", "category": "car", "box2d": box}]
    rows = [{"name": n, "videoName": v, "labels": labels, **more} for v, n in frames]
    write(folder / "labels.json", json.dumps(rows))
    return folder


def images(dataset: Dataset) -> list[str]:
    return [
        sample.image.relative_to(dataset.root).as_posix() if isinstance(sample.image, Path) else ""
        for sample in dataset
    ]


def test_a_missing_frame_is_not_that_of_another_video(tmp_path: Path) -> None:
    bdd(tmp_path, ("A", "0.png"), ("A", "1.png"), ("B", "0.png"), ("B", "1.png"))
    for name in ("A/0.png", "B/0.png", "B/1.png"):
        picture(tmp_path / "images" / name)
    there = images(open_dataset(f"bdd100k:{tmp_path}"))
    assert there == ["images/A/0.png", "", "images/B/0.png", "images/B/1.png"]


def test_frames_without_a_folder_for_each_video_are_found(tmp_path: Path) -> None:
    bdd(tmp_path, ("A", "a0.png"), ("B", "b0.png"))
    for name in ("a0.png", "b0.png"):
        picture(tmp_path / "photos" / name)
    assert images(open_dataset(f"bdd100k:{tmp_path}")) == ["photos/a0.png", "photos/b0.png"]


def test_a_picture_name_that_stands_for_several_is_itemised(tmp_path: Path) -> None:
    bdd(tmp_path, ("", "0.png"))
    for name in ("A/0.png", "B/0.png"):
        picture(tmp_path / name)
    dataset = open_dataset(f"bdd100k:{tmp_path}")
    assert images(dataset) == [""]
    assert findings(dataset, "ambiguous-picture") == [("labels.json", 1)]


def test_a_missing_voc_picture_is_not_that_of_another_split(tmp_path: Path) -> None:
    for split in ("train", "val"):
        write(tmp_path / split / "annotations/1.xml", "<annotation></annotation>")
    picture(tmp_path / "train/images/1.png")
    dataset = open_dataset(f"voc:{tmp_path}")
    assert images(dataset) == ["train/images/1.png", ""]
    assert findings(dataset, "no-picture") == [("val/annotations/1.xml", 0)]


def test_bdd_pictures_have_their_size_where_the_file_states_none(tmp_path: Path) -> None:
    bdd(tmp_path, ("", "0.png"), ("", "1.png"))
    picture(tmp_path / "0.png", 100, 50)
    write(tmp_path / "1.png", "no picture")
    dataset = open_dataset(f"bdd100k:{tmp_path}")
    assert [(s.width, s.height) for s in dataset] == [(100, 50), (0, 0)]
    assert findings(dataset, "bad-picture") == [("1.png", 0)]


def test_coco_pictures_have_their_size_where_the_file_states_none(tmp_path: Path) -> None:
    folder = coco(tmp_path, [[(1, 1, 2, 10, 10)]], width=None, height=None)
    dataset = open_dataset(f"coco:{folder}")
    assert (dataset[0].width, dataset[0].height) == (64, 48)


def test_outlines_do_not_make_the_neighbours_of_an_absurd_number_unusable(tmp_path: Path) -> None:
    folder = coco(tmp_path, [[(1, 1, 2, 10, 10), (1, 3, 4, 9, 9)]])
    file = folder / "annotations/instances_train.json"
    data = json.loads(file.read_text())
    data["annotations"][0]["segmentation"] = [[1, 2, 11, 2, 11, 12]]
    data["annotations"][1]["bbox"][0] = float("nan")
    file.write_text(json.dumps(data))
    dataset = open_dataset(f"coco:{folder}")
    assert len(dataset[0].truth) == 1
    assert dataset.report.by_code() == {"not-finite": 1, "outline": 1}


def test_deeply_nested_json_is_itemised(tmp_path: Path) -> None:
    folder = coco(tmp_path, [[(1, 1, 2, 10, 10)], []])
    file = folder / "annotations/instances_train.json"
    deep = "[" * 200_000 + "]" * 200_000
    text = file.read_text().replace(
        '"file_name": "001.png"', f'"file_name": "001.png", "x": {deep}'
    )
    file.write_text(text)
    dataset = open_dataset(f"coco:{folder}")
    assert [sample.name for sample in dataset] == ["000.png"]
    assert dataset.report.by_code() == {"bad-json": 1}


def test_mot_counts_pixels_from_one(tmp_path: Path) -> None:
    write(tmp_path / "gt/gt.txt", "1,7,11,21,30,40,1,1,1\n1,8,1.1,1.35,30,40,1,1,1\n")
    boxes = open_dataset(f"mot:{tmp_path}")[0].truth.boxes
    np.testing.assert_allclose(boxes, [[10, 20, 40, 60], [0.1, 0.35, 30.1, 40.35]], rtol=1e-6)


def test_a_superscript_is_no_number(tmp_path: Path) -> None:
    write(tmp_path / "kitti/training/label_02/0001.txt", "")
    picture(tmp_path / "kitti/training/image_02/0001/000000.png")
    picture(tmp_path / "kitti/training/image_02/0001/².png")
    assert [s.frame for s in open_dataset(f"kitti:{tmp_path / 'kitti'}")] == [0]
    write(tmp_path / "mot/gt/gt.txt", "1,1,1,1,9,9,1,1,1\n")
    picture(tmp_path / "mot/img1/².png")
    assert len(open_dataset(f"mot:{tmp_path / 'mot'}")) == 1
    folder = coco(tmp_path / "coco", [[(1, 1, 2, 10, 10)]])
    file = folder / "annotations/instances_train.json"
    data = json.loads(file.read_text())
    data["annotations"][0]["id"] = "²"
    file.write_text(json.dumps(data))
    convert(open_dataset(f"coco:{folder}"), f"coco:{tmp_path / 'out'}")
    assert open_dataset(f"coco:{tmp_path / 'out'}")[0].box_ids == ("²",)
