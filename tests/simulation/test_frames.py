import json

import cv2
import pytest

import perception.simulation  # noqa: F401 - chooses the graphics library before MuJoCo loads

pytest.importorskip("mujoco", reason="needs MuJoCo: pip install waysight[factory]")

from perception.simulation.frames import random_hall, render
from perception.simulation.world import World


@pytest.fixture(scope="module", autouse=True)
def graphics():
    world = World(random_hall(1))
    try:
        world.picture()
    except Exception as error:
        pytest.skip(f"needs EGL to draw pictures (Debian: libegl1): {error}")
    finally:
        world.close()


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
