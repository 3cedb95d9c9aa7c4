import json

import cv2
import pytest

import perception.simulation  # noqa: F401 - chooses the graphics library before MuJoCo loads

pytest.importorskip("mujoco", reason="needs MuJoCo: pip install waysight[factory]")

from perception.detections import Detections
from perception.simulation.frames import render
from perception.simulation.world import World

pytestmark = pytest.mark.usefixtures("graphics")


def test_pictures_and_labels_form_a_coco_data_set(tmp_path):
    counts = render(tmp_path, 3, seed=2)
    data = json.loads((tmp_path / "annotations.json").read_text())
    assert [c["name"] for c in data["categories"]] == ["person", "forklift", "pallet"]
    assert len(data["images"]) == 3
    for entry in data["images"]:
        picture = cv2.imread(str(tmp_path / entry["file_name"]))
        assert picture.shape == (entry["height"], entry["width"], 3)
        assert picture.std() > 3
    sound = [a for a in data["annotations"] if not a["iscrowd"]]
    assert sum(counts.values()) == len(sound)
    for annotation in data["annotations"]:
        x, y, width, height = annotation["bbox"]
        assert x >= 0 and y >= 0 and x + width <= 416 and y + height <= 256


def test_near_pictures_show_somebody_close_more_often(tmp_path):
    shares = {}
    for near in (False, True):
        render(tmp_path / str(near), 24, seed=5, near=near)
        data = json.loads((tmp_path / str(near) / "annotations.json").read_text())
        tall = {a["image_id"] for a in data["annotations"] if a["bbox"][3] > 100}
        shares[near] = len(tall)
    assert shares[True] > shares[False]


def test_a_little_of_something_near_is_taught_and_a_speck_of_it_is_not(tmp_path, monkeypatch):
    """Of each less than a fifth is seen: 40x40 pixels, a speck, and a helmet above the horizon."""
    boxes = [[0, 100, 40, 140], [100, 100, 110, 140], [200, 1, 230, 40]]
    seen = Detections.create(boxes, [0.1, 0.1, 0.1], [1, 1, 0])
    monkeypatch.setattr(World, "labelled_picture", lambda self, *_: (self.picture(), seen))
    render(tmp_path, 1, seed=2)
    data = json.loads((tmp_path / "annotations.json").read_text())
    assert [a["iscrowd"] for a in data["annotations"]] == [0, 1, 1]


def test_near_halls_show_racks_without_anybody_too(tmp_path):
    render(tmp_path, 9, seed=5, near=True)
    data = json.loads((tmp_path / "annotations.json").read_text())
    shown = {a["image_id"] for a in data["annotations"]}
    assert 0 < len(shown) < 9
