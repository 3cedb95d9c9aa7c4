"""`waysight eval` as a user meets it: figures, files, exit codes and faults by index."""

import json

import pytest

from perception.cli import main

pytest.importorskip("faster_coco_eval", reason="needs the extra 'eval'")


def truth_file(path, *, ids=1, **image):
    """Two pictures, two classes, ids that start at `ids`."""
    data = {
        "images": [
            {"id": ids + i, "file_name": f"{i}.jpg", "width": 100, "height": 100, **image}
            for i in range(2)
        ],
        "categories": [{"id": ids + k, "name": name} for k, name in enumerate(["car", "bus"])],
        "annotations": [
            {"id": ids + i, "image_id": ids + i, "category_id": ids, "bbox": [10, 10, 40, 40]}
            for i in range(2)
        ],
    }
    path.write_text(json.dumps(data))
    return path


def results_file(path, rows):
    path.write_text(json.dumps(rows))
    return path


def result(image=1, category=1, box=(10, 10, 40, 40), score=0.9):
    return {"image_id": image, "category_id": category, "bbox": list(box), "score": score}


def test_ids_from_zero_score_one(tmp_path):
    # C39 through files
    truth = truth_file(tmp_path / "gt.json", ids=0)
    found = results_file(tmp_path / "dt.json", [result(0, 0), result(1, 0)])
    out = tmp_path / "out.json"
    assert main(["eval", "coco", str(truth), str(found), "--json", str(out)]) == 0
    figures = json.loads(out.read_text())["figures"]
    assert [figures[name] for name in ("ap", "ap50", "ap75", "ar100")] == [1.0] * 4


def test_class_without_truth_is_said_and_undefined(tmp_path, capsys):
    # C41 through files
    truth = truth_file(tmp_path / "gt.json")
    rows = [result(1), result(2), *[result(1, 2, (0, 0, 20, 20), 0.8)] * 5]
    found = results_file(tmp_path / "dt.json", rows)
    out = tmp_path / "out.json"
    assert main(["eval", "coco", str(truth), str(found), "--json", str(out)]) == 0
    figures = json.loads(out.read_text())["figures"]
    assert figures["ap"] == 1.0
    assert figures["per_class"][1]["ap"] is None
    assert "5 detections of classes with no ground truth (bus)" in capsys.readouterr().out


def test_same_input_gives_the_same_bytes(tmp_path):
    truth = truth_file(tmp_path / "gt.json", weather="rainy")
    found = results_file(tmp_path / "dt.json", [result(1), result(2, score=0.4), result(2, 2)])
    written = []
    for run in ("a", "b"):
        out, page = tmp_path / f"{run}.json", tmp_path / f"{run}.html"
        arguments = ["eval", "coco", str(truth), str(found), "--json", str(out)]
        assert main([*arguments, "--report", str(page)]) == 0
        written.append((out.read_bytes(), page.read_bytes()))
    assert written[0] == written[1]


def test_slices_come_from_picture_attributes(tmp_path):
    truth = truth_file(tmp_path / "gt.json", attributes={"timeofday": "night"})
    found = results_file(tmp_path / "dt.json", [result(1)])
    out = tmp_path / "out.json"
    arguments = ["eval", "coco", str(truth), str(found), "--json", str(out), "--samples", "20"]
    assert main(arguments) == 0
    parts = {item["name"]: item for item in json.loads(out.read_text())["slices"]}
    assert set(parts) == {"all", "class=car", "size=medium", "timeofday=night"}
    figure = parts["timeofday=night"]["figures"]["ap50"]
    assert figure["value"] == pytest.approx(51 / 101)
    assert (figure["low"], figure["high"]) == (None, None)  # two pictures are too few


def test_report_holds_everything_and_asks_for_nothing(tmp_path):
    import cv2
    import numpy as np

    (tmp_path / "pictures").mkdir()
    cv2.imwrite(str(tmp_path / "pictures" / "0.jpg"), np.full((100, 100, 3), 90, np.uint8))
    truth = truth_file(tmp_path / "gt.json")
    found = results_file(tmp_path / "dt.json", [result(1, box=(60, 60, 30, 30))])
    page = tmp_path / "out.html"
    arguments = ["eval", "coco", str(truth), str(found), "--report", str(page)]
    assert main([*arguments, "--images", str(tmp_path / "pictures")]) == 0
    text = page.read_text()
    assert text.count("data:image/jpeg;base64,") == 2
    assert "missed car" in text
    assert "no picture" in text  # 1.jpg is not there
    assert 'src="http' not in text
    assert "<script" not in text


def test_names_in_a_report_are_no_markup(tmp_path):
    truth = truth_file(tmp_path / "gt.json")
    data = json.loads(truth.read_text())
    data["categories"][0]["name"] = data["images"][0]["file_name"] = "<script>alert(1)</script>"
    truth.write_text(json.dumps(data))
    found = results_file(tmp_path / "dt.json", [])
    page = tmp_path / "out.html"
    assert main(["eval", "coco", str(truth), str(found), "--report", str(page)]) == 0
    assert "<script" not in page.read_text()


def test_picture_outside_the_folder_is_not_shown(tmp_path):
    import cv2
    import numpy as np

    (tmp_path / "pictures").mkdir()
    cv2.imwrite(str(tmp_path / "secret.jpg"), np.zeros((100, 100, 3), np.uint8))
    truth = truth_file(tmp_path / "gt.json")
    data = json.loads(truth.read_text())
    data["images"][0]["file_name"] = "../secret.jpg"
    truth.write_text(json.dumps(data))
    page = tmp_path / "out.html"
    found = results_file(tmp_path / "dt.json", [])
    arguments = ["eval", "coco", str(truth), str(found), "--report", str(page)]
    assert main([*arguments, "--images", str(tmp_path / "pictures")]) == 0
    assert "data:image/jpeg" not in page.read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "sco', "dt.json:1: not valid"),
        (json.dumps([result(), result(score=float("nan"))]), "results[1]: score is nan"),
        (json.dumps([result(), result(image=99)]), "results[1]: image_id 99 is not among"),
        (json.dumps([result(category=7)]), "results[0]: category_id 7 is not among"),
        (
            '[{"image_id": 1, "category_id": 1, "bbox": [1e400, 2, 3, 4], "score": 0.5}]',
            "results[0]: bbox is [inf",
        ),
        (json.dumps([result(box=(1, 2, -3, 4))]), "results[0]: bbox [1, 2, -3, 4] has a negative"),
        (json.dumps([result(box=(1, 2, 3))]), "results[0]: bbox is [1, 2, 3], expected 4"),
        (json.dumps([result(box=("1", 2, 3, 4))]), "results[0]: bbox"),
        (json.dumps([{"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}]), "has no score"),
        (json.dumps([result(score=10**400)]), "results[0]: score is 1000"),
        (json.dumps([result(), result(score=70.7)]), "results[1]: score is 70.7, expected 0 to 1"),
        (json.dumps([result(score=-0.1)]), "results[0]: score is -0.1, expected 0 to 1"),
        (json.dumps([result(image=[1])]), "results[0]: image_id [1]"),
        (json.dumps([3]), "results[0] is 3, expected an object"),
        (json.dumps("text"), "expected a list of results"),
        ("[" * 100_000, "not usable JSON"),
    ],
)
def test_faulty_results_are_itemised(tmp_path, capsys, text, message):
    truth = truth_file(tmp_path / "gt.json")
    found = tmp_path / "dt.json"
    found.write_text(text)
    out = tmp_path / "out.json"
    assert main(["eval", "coco", str(truth), str(found), "--json", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_every_faulty_entry_is_named(tmp_path, capsys):
    truth = truth_file(tmp_path / "gt.json")
    found = results_file(tmp_path / "dt.json", [result(5), result(), result(score="high")])
    assert main(["eval", "coco", str(truth), str(found)]) == 2
    error = capsys.readouterr().err
    assert "2 unusable entries" in error
    assert "results[0]" in error
    assert "results[2]: score is 'high'" in error


def test_a_fault_of_many_entries_is_said_once_with_what_there_is(tmp_path, capsys):
    truth = named_truth(tmp_path, ["a.jpg", "b.jpg"], ("car", "bus"))
    rows = [named("a.jpg", "lorry")] * 30 + [named("c.jpg")]
    found = results_file(tmp_path / "dt.json", rows)
    assert main(["eval", "coco", str(truth), str(found)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "waysight: error: 31 unusable entries"
    assert [line.partition("dt.json: ")[2] for line in lines[1:]] == [
        "results[0]: category 'lorry' is not among the categories of the ground truth, which has "
        "'car', 'bus' (and 29 more like it)",
        "results[30]: image_id 'c.jpg' is not among the images of the ground truth, which has "
        "'a.jpg', 'b.jpg'",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["images"].append(d["images"][0]), "images[2]: id 1 occurs twice"),
        (lambda d: d["annotations"][1].update(image_id=77), "annotations[1]: image_id 77"),
        (lambda d: d["annotations"][0].update(bbox=None), "annotations[0]: bbox is None"),
        (lambda d: d.pop("categories"), "'categories' is None, expected a list"),
        (lambda d: d["annotations"][0].update(area="big"), "annotations[0]: area is 'big'"),
        (lambda d: d["annotations"][0].update(iscrowd="0"), "annotations[0]: iscrowd is '0'"),
        (
            lambda d: d["images"][1].update(ignore_regions=[[1, 2, 3]]),
            "images[1]: ignore_regions: bbox is [1, 2, 3]",
        ),
    ],
)
def test_faulty_truth_is_itemised(tmp_path, capsys, change, message):
    truth = truth_file(tmp_path / "gt.json")
    data = json.loads(truth.read_text())
    change(data)
    truth.write_text(json.dumps(data))
    found = results_file(tmp_path / "dt.json", [])
    assert main(["eval", "coco", str(truth), str(found)]) == 2
    assert message in capsys.readouterr().err


def test_missing_file_is_named(tmp_path, capsys):
    assert main(["eval", "coco", str(tmp_path / "none.json"), "dt.json"]) == 2
    assert "none.json" in capsys.readouterr().err


@pytest.fixture
def models(tmp_path):
    """Ground truth of 30 pictures, a model that finds all and one that finds a third."""
    pictures = range(30)
    data = {
        "images": [
            {"id": i, "file_name": f"{i}.jpg", "weather": "rainy" if i % 2 else "clear"}
            for i in pictures
        ],
        "categories": [{"id": 1, "name": "car"}],
        "annotations": [
            {"id": i, "image_id": i, "category_id": 1, "bbox": [10, 10, 40, 40]} for i in pictures
        ],
    }
    truth = tmp_path / "gt.json"
    truth.write_text(json.dumps(data))
    good = results_file(tmp_path / "good.json", [result(i) for i in pictures])
    poor = results_file(tmp_path / "poor.json", [result(i) for i in pictures if i % 3 == 0])
    return truth, good, poor


def compare(models, *extra, swap=False):
    truth, good, poor = map(str, models)
    pair = (poor, good) if swap else (good, poor)
    return main(["eval", "compare", *pair, "--gt", truth, "--samples", "100", *extra])


def test_worse_better_and_equal_models_are_told_apart(models, tmp_path):
    out = tmp_path / "out.json"
    for swap, verdict in ((False, "worse"), (True, "better")):
        assert compare(models, "--json", str(out), swap=swap) == 0
        rows = json.loads(out.read_text())["slices"]
        assert {row["verdict"] for row in rows} == {verdict}
        assert {row["name"] for row in rows} == {
            "all",
            "size=medium",
            "weather=clear",
            "weather=rainy",
        }
    truth, good, _ = models
    assert compare((truth, good, good), "--json", str(out)) == 0
    rows = json.loads(out.read_text())["slices"]
    assert {row["verdict"] for row in rows} == {"not distinguishable"}


def test_gate_fails_on_a_regression_and_passes_otherwise(models, tmp_path, capsys):
    gate = tmp_path / "gate.yaml"
    gate.write_text("metric: ap50\nmax_drop: 0.05\nslices:\n  weather=rainy: 0.01\n")
    page = tmp_path / "out.html"
    assert compare(models, "--gate", str(gate), "--report", str(page)) == 1
    assert "weather=rainy: ap50 fell from" in capsys.readouterr().err
    assert "The gate fails." in page.read_text()
    assert compare(models, "--gate", str(gate), swap=True) == 0


def test_gate_does_not_pass_what_it_cannot_judge(models, tmp_path, capsys):
    truth, good, _ = models
    data = json.loads(truth.read_text())
    data["images"][0]["scene"] = "tunnel"
    truth.write_text(json.dumps(data))
    gate = tmp_path / "gate.yaml"
    gate.write_text("slices:\n  scene=tunnel: 0.1\n")
    assert compare((truth, good, good), "--gate", str(gate)) == 1
    assert "scene=tunnel: objects in too few pictures" in capsys.readouterr().err


def test_gate_holds_a_minimum(models, tmp_path, capsys):
    gate = tmp_path / "gate.yaml"
    gate.write_text("max_drop: null\nminimum:\n  all: 0.9\n")
    assert compare(models, "--gate", str(gate)) == 1
    assert "expected at least 0.9" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slices:\n  weather=snowy: 0.1\n", "weather=snowy"),
        ("metrics: ap\n", "unknown key 'metrics'"),
        ("max_drop: -1\n", "max_drop is -1"),
        ("metric: map\n", "metric is 'map'"),
        ("slices: 3\n", "slices is 3"),
    ],
)
def test_faulty_gate_is_an_error_and_no_verdict(models, tmp_path, capsys, text, message):
    gate = tmp_path / "gate.yaml"
    gate.write_text(text)
    assert compare(models, "--gate", str(gate)) == 2
    assert message in capsys.readouterr().err


def named_truth(tmp_path, files, classes=("car", "bus")):
    """A picture of each file name with one car in each."""
    data = {
        "images": [{"id": 7 + i, "file_name": name} for i, name in enumerate(files)],
        "categories": [{"id": 3 + k, "name": name} for k, name in enumerate(classes)],
        "annotations": [
            {"id": i, "image_id": 7 + i, "category_id": 3, "bbox": [10, 10, 40, 40]}
            for i in range(len(files))
        ],
    }
    path = tmp_path / "named.json"
    path.write_text(json.dumps(data))
    return path


def named(image, category="car"):
    return {"image_id": image, "category": category, "bbox": [10, 10, 40, 40], "score": 0.9}


@pytest.mark.parametrize("rows", [["a/1.jpg", "b/2.jpg"], ["1.jpg", "2.jpg"], [7, "2.jpg"]])
def test_results_as_detect_writes_them_name_pictures_and_classes(tmp_path, rows):
    truth = named_truth(tmp_path, ["a/1.jpg", "b/2.jpg"])
    found = results_file(tmp_path / "dt.json", [named(image) for image in rows])
    out = tmp_path / "out.json"
    assert main(["eval", "coco", str(truth), str(found), "--json", str(out)]) == 0
    assert json.loads(out.read_text())["figures"]["ap"] == 1.0


def test_a_whole_file_name_wins_over_the_last_part_of_others(tmp_path):
    truth = named_truth(tmp_path, ["1.jpg", "b/1.jpg"])
    found = results_file(tmp_path / "dt.json", [named("1.jpg"), named("b/1.jpg")])
    out = tmp_path / "out.json"
    assert main(["eval", "coco", str(truth), str(found), "--json", str(out)]) == 0
    assert json.loads(out.read_text())["figures"]["ap"] == 1.0


def test_further_folders_before_a_file_name_do_not_matter_where_one_picture_is_meant(tmp_path):
    truth = named_truth(tmp_path, ["1.jpg", "b/2.jpg"])
    rows = [named("images/train/1.jpg"), named("images/b/2.jpg")]
    found = results_file(tmp_path / "dt.json", rows)
    out = tmp_path / "out.json"
    assert main(["eval", "coco", str(truth), str(found), "--json", str(out)]) == 0
    assert json.loads(out.read_text())["figures"]["ap"] == 1.0


@pytest.mark.parametrize("other", ["images/val/1.jpg", "1.jpg"])
def test_pictures_of_two_folders_are_not_scored_as_one(tmp_path, capsys, other):
    truth = named_truth(tmp_path, ["1.jpg", "b/2.jpg"])
    rows = [named("images/train/1.jpg"), named(other)]
    found = results_file(tmp_path / "dt.json", rows)
    assert main(["eval", "coco", str(truth), str(found)]) == 2
    assert "results[0]: image_id 'images/train/1.jpg' is not among" in capsys.readouterr().err


def test_detections_in_ignore_regions_are_no_false_alarms(tmp_path):
    truth = truth_file(tmp_path / "gt.json", ignore_regions=[[60, 60, 30, 30]])
    data = json.loads(truth.read_text())
    for item in data["annotations"]:
        item["occlusion"] = 0.0
    truth.write_text(json.dumps(data))
    alarms = [result(1, box=(62, 62, 20, 20)), result(1, 2, (62, 62, 20, 20))]
    found = results_file(tmp_path / "dt.json", [*alarms, result(1, score=0.8), result(2)])
    out = tmp_path / "out.json"
    assert main(["eval", "coco", str(truth), str(found), "--json", str(out)]) == 0
    data = json.loads(out.read_text())
    assert (data["figures"]["ap"], data["figures"]["truth"]) == (1.0, 2)
    parts = {item["name"]: item["figures"]["ap"]["value"] for item in data["slices"]}
    assert parts["occlusion=none"] == 1.0
    files = [str(found), str(found), "--gt", str(truth), "--samples", "10"]
    assert main(["eval", "compare", *files, "--json", str(out)]) == 0
    assert json.loads(out.read_text())["slices"][0]["a"] == 1.0


def test_names_of_several_or_of_none_are_itemised(tmp_path, capsys):
    truth = named_truth(tmp_path, ["a/1.jpg", "b/1.jpg", "2.jpg"], ("car", "bus", "bus"))
    rows = [named("1.jpg"), named("2.jpg", "bus"), named("2.jpg", "cat"), named("9.jpg")]
    found = results_file(tmp_path / "dt.json", [*rows, named("2.jpg")])
    assert main(["eval", "coco", str(truth), str(found)]) == 2
    error = capsys.readouterr().err
    assert "4 unusable entries" in error
    assert "results[0]: image_id '1.jpg' is the name of 2 images of the ground truth" in error
    assert "results[1]: category 'bus' is the name of 2 categories of the ground truth" in error
    assert "results[2]: category 'cat' is not among the categories" in error
    assert "results[3]: image_id '9.jpg' is not among the images" in error


def clip(tmp_path, **image):
    """Ground truth and results of twelve pictures: (truth, results) files."""
    images = [
        {"id": i, "file_name": f"{i}.jpg", "width": 99, "height": 99, **image} for i in range(12)
    ]
    boxes = [
        {"id": i, "image_id": i, "category_id": 1, "bbox": [1, 1, 40, 40], "iscrowd": 0}
        for i in range(12)
    ]
    text = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "car"}]}
    truth = tmp_path / "clip.json"
    truth.write_text(json.dumps(text))
    found = [result(i, box=(1, 1, 40, 40)) for i in range(0, 12, 2)]
    return truth, results_file(tmp_path / "clip_dt.json", found)


def test_intervals_and_sizes_are_shown_where_resamples_are_asked_for(tmp_path, capsys):
    truth, found = clip(tmp_path)
    assert main(["eval", "coco", str(truth), str(found), "--samples", "20"]) == 0
    text = capsys.readouterr().out
    rows = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert " to " in rows["all"] and " to " in rows["car"]
    assert "AP by size of the objects: medium 0.5050" in text
    assert "No intervals" not in text


def test_one_sequence_is_named_as_what_no_interval_can_be_made_of(tmp_path, capsys):
    truth, found = clip(tmp_path, sequence="drive")
    page = tmp_path / "page.html"
    said = (
        "No intervals and no verdicts: 12 pictures of 1 sequence, whose frames are drawn together"
    )
    for command in (
        ["coco", str(truth), str(found), "--samples", "20"],
        ["compare", str(found), str(found), "--gt", str(truth), "--samples", "20"],
    ):
        assert main(["eval", *command, "--report", str(page)]) == 0
        assert said in capsys.readouterr().out
        assert said in page.read_text()
