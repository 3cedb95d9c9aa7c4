"""Projection, boxes, occlusion, truncation, the COCO file and the photograph, without Blender."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perception.datasets.synthetic.annotate import Rules, Shot, annotate, coco, silhouette
from perception.datasets.synthetic.mesh import MeshBuilder, Surface, placement
from perception.datasets.synthetic.photo import Sensor, add_haze, develop, tone_map
from perception.datasets.synthetic.scene import Actor, Camera, Render, Weather
from perception.labels import ROAD

CAMERA = Camera(0.0, 0.0, 1.5, 0.0, 0.0, 90.0, 200, 100)
WEATHER = Weather(
    45.0, 0.0, 3.0, 1.0, 1.0, (0.1, 0.2, 0.6), (0.6, 0.7, 0.8), 0.2, 500.0, 0.0, False, "clear"
)


def cube(track_id: int, x: float, y: float, side: float = 1.0, category: str = "car") -> Actor:
    builder = MeshBuilder()
    builder.box((0, 0, 1.5), (side, side, side), Surface("paint"))
    return Actor(builder.build(), placement(x, y), category, track_id)


def paint(*actors: Actor) -> np.ndarray:
    """The index picture of actors given from near to far."""
    index = np.zeros((CAMERA.height, CAMERA.width), np.int32)
    for actor in reversed(actors):
        h, w = index.shape
        index[silhouette(actor, CAMERA)[h : 2 * h, w : 2 * w]] = actor.track_id
    return index


def test_a_point_ahead_is_seen_in_the_middle_and_one_to_the_right_further_right() -> None:
    position, depth = CAMERA.project(np.array([[0, 10.0, 1.5], [5, 10.0, 1.5], [0, 10.0, 0.5]]))
    assert np.allclose(position, [[100, 50], [150, 50], [100, 60]])
    assert np.allclose(depth, 10)


def test_yaw_turns_left_and_pitch_turns_up() -> None:
    left = replace(CAMERA, yaw=30.0).project(np.array([[0, 10.0, 1.5]]))[0]
    up = replace(CAMERA, pitch=10.0).project(np.array([[0, 10.0, 1.5]]))[0]
    assert left[0, 0] > 100 and up[0, 1] > 50


def test_the_axes_are_a_right_handed_frame() -> None:
    axes = replace(CAMERA, yaw=37.0, pitch=-12.0).axes
    assert np.allclose(axes @ axes.T, np.eye(3)) and np.linalg.det(axes) == pytest.approx(1.0)


def test_ground_distance_does_not_depend_on_pitch_or_height() -> None:
    points = np.array([[2.0, 10.0, 0.0], [2.0, 10.0, 3.0]])
    assert np.allclose(replace(CAMERA, pitch=-40.0).ground_distance(points), 10.0)


def test_a_box_bounds_the_projected_object_and_the_distance_is_that_of_its_nearest_face() -> None:
    actor = cube(1, 0.0, 10.5)
    (found,) = annotate(paint(actor), [actor], CAMERA, Rules())
    # The near face is 10 m ahead, 1 m wide: 10 px about the middle (100, 50).
    assert found.bbox == pytest.approx((95, 45, 10, 10), abs=1)
    assert found.distance == pytest.approx(10.0)
    assert (found.occlusion, found.truncation, found.visible) == (0.0, 0.0, 1.0)
    assert not found.ignore


def test_an_object_behind_another_is_measured_by_what_is_left_of_it() -> None:
    near, far = cube(1, -0.5, 8.5), cube(2, 0.0, 8.5 + 2.0, side=1.25)
    found = {a.track_id: a for a in annotate(paint(near, far), [near, far], CAMERA, Rules())}
    assert found[1].occlusion == 0.0
    assert 0.4 < found[2].occlusion < 0.7
    assert found[2].visible == pytest.approx(1 - found[2].occlusion, abs=0.01)
    assert found[2].bbox[0] > found[1].bbox[0]


def test_an_object_partly_outside_the_frame_is_truncated_and_not_occluded() -> None:
    actor = cube(1, 10.0, 10.5)
    (found,) = annotate(paint(actor), [actor], CAMERA, Rules())
    # Its near face (100 px) is half outside, the face turned to the middle (82 px) all inside.
    assert found.truncation == pytest.approx(50 / 182, abs=0.06)
    assert found.occlusion == 0.0
    assert found.bbox[0] + found.bbox[2] == CAMERA.width


def test_an_unseen_object_is_dropped_and_a_barely_seen_one_is_marked() -> None:
    wall, hidden = cube(1, 0.0, 6.0, side=3.0), cube(2, 0.0, 20.0)
    assert [a.track_id for a in annotate(paint(wall, hidden), [wall, hidden], CAMERA, Rules())] == [
        1
    ]
    speck = cube(3, 0.0, 60.0)
    (found,) = annotate(paint(speck), [speck], CAMERA, Rules(min_side=4))
    assert found.ignore and max(found.bbox[2:]) < 4


def test_an_object_behind_the_camera_covers_nothing() -> None:
    assert not silhouette(cube(1, 0.0, -10.0), CAMERA).any()


def test_the_nearest_object_comes_first() -> None:
    far, near = cube(1, 3.0, 20.0), cube(2, -3.0, 9.0)
    found = annotate(paint(near, far), [far, near], CAMERA, Rules())
    assert [a.track_id for a in found] == [2, 1]


def test_coco_ids_point_at_their_pictures_and_categories() -> None:
    actor = cube(7, 0.0, 10.5, category="bus")
    found = tuple(annotate(paint(actor), [actor], CAMERA, Rules()))
    shots = [Shot("a.jpg", 200, 100, (), {}), Shot("b.jpg", 200, 100, found, {"time": 0.5})]
    document = coco(shots, ROAD.names, {"seed": 1})
    (row,) = document["annotations"]
    names = {c["id"]: c["name"] for c in document["categories"]}
    assert [i["id"] for i in document["images"]] == [1, 2]
    assert row["image_id"] == 2 and names[row["category_id"]] == row["category"] == "bus"
    assert row["track_id"] == 7 and row["iscrowd"] == 0 and document["images"][1]["time"] == 0.5


def test_haze_hides_what_is_far_and_leaves_what_is_near_and_the_sky() -> None:
    black = np.zeros((1, 3, 3), np.float32)
    depth = np.array([[0.1, 400.0, 1e10]], np.float32)
    hazy = add_haze(black, depth, replace(WEATHER, haze=100.0))
    assert hazy[0, 0].max() < 0.01 and hazy[0, 1].min() > 0.45 and hazy[0, 2].max() == 0


def test_tone_mapping_is_monotonic_and_puts_middle_grey_in_the_middle() -> None:
    ramp = np.geomspace(0.01, 10, 50, dtype=np.float32)[None, :, None].repeat(3, axis=2)
    shown = tone_map(ramp)[0, :, 0]
    assert (np.diff(shown) >= 0).all() and shown.max() <= 1
    assert 0.3 < float(tone_map(np.full((4, 4, 3), 0.18, np.float32)).mean()) < 0.65


def test_developing_the_same_render_twice_gives_the_same_picture() -> None:
    rng = np.random.default_rng(0)
    render = Render(
        rng.uniform(0, 1, (20, 30, 3)).astype(np.float32),
        np.full((20, 30), 10, np.float32), np.zeros((20, 30), np.int32),
    )  # fmt: skip
    sensor = Sensor(noise=4.0, blur=0.5, warmth=0.5)
    first, again = (develop(render, WEATHER, sensor, np.random.default_rng(3)) for _ in range(2))
    assert first.dtype == np.uint8 and first.shape == (20, 30, 3)
    assert np.array_equal(first, again)
