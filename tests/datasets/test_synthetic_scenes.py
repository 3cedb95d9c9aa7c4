"""Random scenes, the demo drive and the command line, without Blender."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from perception.datasets.synthetic import __main__ as command
from perception.datasets.synthetic.drive import EGO_SPEED, FPS, Drive
from perception.datasets.synthetic.sampling import sample_road
from perception.datasets.synthetic.scene import Actor, Scene
from perception.errors import InputError
from perception.extras import install_command
from perception.labels import ROAD

SIZE = (160, 96)


def rectangle(actor: Actor) -> np.ndarray:
    """Corners (4,2) of the actor's box on the ground."""
    low, high = actor.mesh.bounds
    corners = np.array([[low[0], low[1]], [high[0], low[1]], [high[0], high[1]], [low[0], high[1]]])
    return corners @ actor.matrix[:2, :2].T + actor.matrix[:2, 3]


def overlap(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two convex shapes meet (separating axes)."""
    for shape in (a, b):
        for i in range(4):
            x, y = shape[(i + 1) % 4] - shape[i]
            pa, pb = a @ np.array([-y, x]), b @ np.array([-y, x])
            if pa.max() < pb.min() or pb.max() < pa.min():
                return False
    return True


def same(a: Scene, b: Scene) -> bool:
    return (
        a.camera == b.camera
        and a.weather == b.weather
        and [(x.category, x.matrix.tolist()) for x in a.actors]
        == [(x.category, x.matrix.tolist()) for x in b.actors]
    )


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    return [sample_road(8, number, SIZE)[0] for number in range(3)]


def test_a_scene_follows_from_its_seed_and_number(scenes: list[Scene]) -> None:
    assert same(scenes[1], sample_road(8, 1, SIZE)[0])
    assert not same(scenes[1], scenes[2])
    assert not same(scenes[0], sample_road(9, 0, SIZE)[0])


def test_scenes_hold_known_classes_with_their_own_ids_and_no_two_share_a_place(
    scenes: list[Scene],
) -> None:
    for scene in scenes:
        actors = scene.actors
        assert actors and {a.category for a in actors} <= set(ROAD.names)
        assert [a.track_id for a in actors] == list(range(1, len(actors) + 1))
        shapes = [rectangle(a) for a in actors]
        pairs = [(i, j) for i in range(len(shapes)) for j in range(i)]
        assert not [p for p in pairs if overlap(shapes[p[0]], shapes[p[1]])]


def test_no_actor_and_no_tree_stands_on_the_camera(scenes: list[Scene]) -> None:
    for scene in scenes:
        eye = np.array([scene.camera.x, scene.camera.y])
        dot = eye + np.array([[0, 0], [0.01, 0], [0.01, 0.01], [0, 0.01]])
        for actor in scene.actors:
            if actor.mesh.bounds[1][2] > scene.camera.z:
                assert not overlap(rectangle(actor), dot)
        for item in scene.scenery:
            low, high = item.mesh.bounds
            if high[2] > 4 and (high - low)[:2].max() < 6:
                assert np.hypot(*(item.matrix[:2, 3] - eye)) > 5


@pytest.fixture(scope="module")
def drive() -> Drive:
    return Drive(3, (640, 360))


def test_the_drive_keeps_its_actors_and_their_ids_from_start_to_end(drive: Drive) -> None:
    start, end = drive.scene(0.0), drive.scene(9.9)
    assert [(a.track_id, a.category) for a in start.actors] == [
        (a.track_id, a.category) for a in end.actors
    ]
    assert set(ROAD.names) == {a.category for a in start.actors}


def test_the_camera_moves_at_its_speed_and_things_move_smoothly(drive: Drive) -> None:
    now, after = drive.scene(3.0), drive.scene(3.0 + 1 / FPS)
    assert after.camera.y - now.camera.y == pytest.approx(EGO_SPEED / FPS)
    for a, b in zip(now.actors, after.actors, strict=True):
        assert np.linalg.norm(b.matrix[:3, 3] - a.matrix[:3, 3]) < 20 / FPS


@pytest.mark.parametrize("time", [0.0, 1.2, 2.4, 4.0, 6.0, 8.0, 9.9])
def test_nobody_collides_during_the_drive(drive: Drive, time: float) -> None:
    actors = drive.scene(time).actors
    shapes = [rectangle(a) for a in actors]
    met = [
        (actors[i].track_id, actors[j].track_id)
        for i in range(len(shapes))
        for j in range(i)
        if overlap(shapes[i], shapes[j])
    ]
    assert met == []


def test_the_modules_without_blender_do_not_import_it() -> None:
    assert "bpy" not in sys.modules


def test_without_blender_the_command_names_the_extra_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "MODULES", ("a_module_nobody_has",))
    target = tmp_path / "out"
    assert command.main(["scenes", "--count", "1", "--out", str(target)]) == 2
    error = capsys.readouterr().err
    assert install_command("synthetic") in error and error.count("\n") == 1
    assert not target.exists()


def test_what_is_installed_is_not_reported_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "MODULES", ("numpy",))
    command.require_blender()
    monkeypatch.setattr(command, "MODULES", ("numpy", "a_module_nobody_has"))
    with pytest.raises(InputError, match="a_module_nobody_has"):
        command.require_blender()


@pytest.mark.parametrize("size", ["416", "axb", "0x10", "99999x20"])
def test_a_size_that_is_none_is_refused(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        command.main(["scenes", "--out", "x", "--size", size])
    assert stop.value.code == 2 and "--size" in capsys.readouterr().err
