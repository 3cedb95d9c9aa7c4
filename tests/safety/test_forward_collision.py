"""forward_collision.yaml on exact boxes: it warns of what will be hit, and of nothing else.

The truth is the time until the own car's outline, going straight on, touches a vertex of another
road user's mesh when both keep their velocities: of the demo drive, on which nothing comes nearer
than a lane, and of made-up encounters.
"""

import json
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import yaml

from perception.datasets.synthetic import drive, people, vehicles
from perception.detections import Detections
from perception.geometry.camera import Camera
from perception.geometry.ground import GroundSettings, GroundTracks
from perception.labels import ROAD
from perception.safety import Guardian, Times, Twist, guardian_settings
from perception.safety.place import place
from perception.safety.settings import SETTING_KEYS

NODES = Path(__file__).resolve().parents[2] / "ros_nodes"
CAMERA = Camera.from_yaml(NODES / "demo" / "road_demo_camera.yaml")
GRAPH = yaml.safe_load((NODES / "config" / "forward_collision.yaml").read_text())["nodes"]
HALF_WIDTH, FRONT = 0.9, 1.6
"""m of the own car, from the point on the ground below the camera."""

PERIOD = 1 / drive.FPS
EGO = drive.EGO_SPEED


class Warner:
    """The graph's obstacles and guardian nodes as pure functions."""

    def __init__(self):
        self.parameters = GRAPH["guardian"]["parameters"]
        wanted = {*SETTING_KEYS, *self.parameters["zones"]}
        settings = {key: value for key, value in self.parameters.items() if key in wanted}
        self.guardian = Guardian(guardian_settings(settings))
        obstacles = GRAPH["obstacles"]["parameters"]
        known = GroundSettings.__dataclass_fields__
        self.ground = GroundSettings(**{k: v for k, v in obstacles.items() if k in known})
        self.tracks = GroundTracks(
            acceleration=self.parameters["object_acceleration"],
            first_speed=self.parameters["object_speed"],
            known_speed=self.parameters["known_speed"],
        )

    def warns(self, time, boxes, categories, ids):
        """Names of the zones that are triggered by the picture of `time`, s."""
        labels = [ROAD.index(category) for category in categories]
        found = Detections.create(
            np.reshape(boxes, (-1, 4)), [0.9] * len(labels), labels, list(ids)
        )
        now = 10**9 + round(time * 1e9)
        seen, _ = place(found, ROAD.names, CAMERA, self.tracks, now, Twist(), self.ground)
        times = Times(now, now, simulated=True)
        self.guardian.observe(seen, now, True, times)
        return {report.name for report in self.guardian.decide(times).zones}


def outline(actor, x, y, yaw=0.0):
    """(V, 3) m in the own base frame at (x right, y along the road), turned left by `yaw` rad."""
    vertices = actor.mesh.vertices @ actor.matrix[:3, :3].T + actor.matrix[:3, 3]
    ahead, left = vertices[:, 1] - y, x - vertices[:, 0]
    cos, sin = math.cos(yaw), math.sin(yaw)
    return np.column_stack([cos * ahead + sin * left, cos * left - sin * ahead, vertices[:, 2]])


def time_to_collision(now, soon, step):
    """s until a vertex (V, 3) that moves on as from `now` to `soon` in `step` s is at the car."""
    velocity = (soon - now)[:, :2] / step
    with np.errstate(all="ignore"):
        reach = (FRONT - now[:, 0]) / velocity[:, 0]
        beside = np.abs(now[:, 1] + velocity[:, 1] * reach) <= HALF_WIDTH
    hits = reach[beside & (reach >= 0) & (velocity[:, 0] < 0)]
    return float(hits.min()) if len(hits) else math.inf


def test_on_the_demo_drive_nothing_will_be_hit_and_nothing_is_warned_of():
    told = json.loads((NODES / "demo" / "road_demo.json").read_text())
    course = drive.Drive(told["info"]["seed"], (640, 360))
    shown = defaultdict(list)
    for row in told["annotations"]:
        if not row["iscrowd"]:
            shown[row["image_id"]].append(row)
    warner, soonest, warned = Warner(), math.inf, []
    for image in told["images"]:
        rows = shown[image["id"]]
        corners = np.array([row["bbox"] for row in rows], dtype=float).reshape(-1, 4)
        corners[:, 2:] += corners[:, :2]
        names, ids = [row["category"] for row in rows], [row["track_id"] for row in rows]
        time = image["time"]
        if warner.warns(time, corners, names, ids):
            warned.append(time)
        now, soon = (course.scene(t) for t in (time, time + 0.01))
        for one, two in zip(now.actors, soon.actors, strict=True):
            if one.track_id in ids:
                yaw = math.radians(now.camera.yaw)
                places = (
                    outline(a, s.camera.x, s.camera.y, yaw) for a, s in ((one, now), (two, soon))
                )
                soonest = min(soonest, time_to_collision(*places, 0.01))
    assert soonest > 4.0
    assert warned == []


def car(body=vehicles.SEDAN):
    return vehicles.car_of(body, np.random.default_rng(1))


def made(maker):
    return maker(np.random.default_rng(1))


def mover(category, mesh, x, y, speed, shift=0.0, start=0.0, end=1.0):
    return drive.Mover(category, (mesh,), x, y, speed, shift=shift, shift_from=start, shift_to=end)


def drive_at(thing, seconds):
    """Rows (time, true time to collision, zones triggered) while both go on as planned."""
    warner, rows = Warner(), []
    jitter = np.random.default_rng(5)
    for number in range(round(seconds / PERIOD)):
        time = number * PERIOD
        now, soon = (outline(thing.at(t, 1), 0.0, EGO * t) for t in (time, time + 0.01))
        left = time_to_collision(now, soon, 0.01)
        if now[:, 0].max() < 0.5 or (now[:, 0].min() < FRONT and math.isfinite(left)):
            break
        pixels = CAMERA.project(now[now[:, 0] > 0.3])
        low, high = np.nanmin(pixels, axis=0), np.nanmax(pixels, axis=0)
        box = np.round(np.concatenate([low, high]) + jitter.normal(0, 0.5, 4))
        box = np.clip(box, 0, [CAMERA.width, CAMERA.height] * 2)
        seen = (box[2:] - box[:2]).min() >= 10
        zones = warner.warns(
            time, box if seen else [], [thing.category] if seen else [], [1] if seen else []
        )
        rows.append((time, left, zones))
    return rows


COLLISIONS = {
    "a stopped car": lambda: mover("car", car(), 0.0, 60.0, 1e-9),
    "a stopped van": lambda: mover("car", made(vehicles.make_van), 0.3, 60.0, 1e-9),
    "a stopped bus": lambda: mover("bus", made(vehicles.make_bus), 0.0, 65.0, 1e-9),
    "a slow truck": lambda: mover("truck", made(vehicles.make_truck), -0.3, 45.0, 4.0),
    "a slow bicycle": lambda: mover("bicycle", made(people.make_bicycle), 0.5, 45.0, 3.0),
    "someone who runs into the road": lambda: mover(
        "person", made(people.make_person), 6.0, 45.0, 1e-9, -8.0, 1.0, 5.4
    ),
    "a car that comes across": lambda: mover("car", car(), 5.0, 120.0, -11.0, -5.0, 1.0, 3.5),
    "a slow car that pulls in": lambda: mover("car", car(), 3.3, 28.0, 5.0, -3.3, 0.5, 2.5),
    "a car from a side road": lambda: mover("car", car(), 20.0, 50.0, 1e-9, -40.0, 0.0, 8.6),
}


@pytest.mark.parametrize("name", COLLISIONS)
def test_what_will_be_hit_is_warned_of_in_time(name):
    rows = drive_at(COLLISIONS[name](), 10.0)
    assert min(left for _, left, _ in rows) < 0.3, "the encounter is no collision"
    for zone in ("warning", "brake"):
        limit = GRAPH["guardian"]["parameters"][zone]["time_to_collision"]
        true_since = max(time for time, left, _ in rows if left > limit) + PERIOD
        first = next((time for time, _, zones in rows if zone in zones), math.inf)
        left = next((left for _, left, zones in rows if zone in zones), 0.0)
        print(name, zone, round(first - true_since, 2), round(left, 2))
        # The zone's own debounce, and half a second to learn a velocity from pictures.
        assert first - true_since <= GRAPH["guardian"]["parameters"][zone]["trigger_after"] + 0.5


HARMLESS = {
    "oncoming car": lambda: mover("car", car(), -3.3, 90.0, -11.0),
    "oncoming van": lambda: mover("car", made(vehicles.make_van), -3.3, 90.0, -11.0),
    "oncoming truck": lambda: mover("truck", made(vehicles.make_truck), -3.3, 90.0, -11.0),
    "oncoming bus": lambda: mover("bus", made(vehicles.make_bus), -3.3, 90.0, -9.0),
    "bus in the next lane": lambda: mover("bus", made(vehicles.make_bus), 3.3, 40.0, 5.0),
    "parked car": lambda: mover("car", car(), 3.0, 60.0, 1e-9),
    "motorcycle beside": lambda: mover("motorcycle", made(people.make_motorcycle), 2.4, 40.0, 6.0),
    "someone on the pavement": lambda: mover("person", made(people.make_person), 3.0, 60.0, 1.3),
    "car ahead as fast": lambda: mover("car", car(), 0.0, 15.0, 11.0),
    "car that pulls in and away": lambda: mover("car", car(), 3.3, 9.5, 13.6, -3.3, 0.4, 2.6),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_passes_is_not_warned_of(name):
    rows = drive_at(HARMLESS[name](), 10.0)
    assert min(left for _, left, _ in rows) > 4.0, "the encounter is a collision"
    assert [time for time, _, zones in rows if zones] == []
