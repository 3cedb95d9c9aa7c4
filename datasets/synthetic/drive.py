"""The demo drive: a car in city traffic, described as a scene for any moment. No Blender here.

The camera car keeps the inner lane of a four-lane street. Ahead of it a car pulls out to pass a
bus, a motorcycle is passed, a truck, a van, a rickshaw and cars come the other way, others are
parked, and people walk on the pavement.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perception.datasets.synthetic import people, vehicles
from perception.datasets.synthetic.mesh import Mesh, placement
from perception.datasets.synthetic.sampling import Place, add_surroundings
from perception.datasets.synthetic.scene import Actor, Camera, Item, Scene, Weather

FPS = 15
EGO_SPEED = 11.0
"""Metres per second, 40 km/h."""
CAMERA_HEIGHT = 1.3
CAMERA_PITCH = -2.0
CAMERA_HFOV = 64.0
STRIDE = 8
"""Poses of a walking cycle, two steps long (1.4 m)."""

PLACE = Place("avenue", 4, 3.3, 3.0, 2.4, "double", 0.0)
INNER, OUTER = 1.65, 4.95
WEATHER = Weather(
    sun_elevation=42.0, sun_azimuth=150.0, sun_strength=3.2, sun_angle=0.8, sky_strength=1.0,
    zenith=(0.09, 0.23, 0.6), horizon=(0.5, 0.6, 0.74), clouds=0.4, haze=900.0, wet=0.0,
    night=False, name="clear",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Mover:
    """Something on a straight course; a pull-out moves it sideways between two moments.

    `speed` is along +y in m/s. `poses` are the meshes of its walking cycle, or its only mesh.
    """

    category: str
    poses: tuple[Mesh, ...]
    x: float
    y: float
    speed: float
    z: float = 0.0
    shift: float = 0.0  # metres to the side
    shift_from: float = 0.0  # s
    shift_to: float = 1.0  # s

    def at(self, time: float, track_id: int) -> Actor:
        """Where it is `time` seconds after the start."""
        share = float(np.clip((time - self.shift_from) / (self.shift_to - self.shift_from), 0, 1))
        x = self.x + self.shift * share * share * (3 - 2 * share)
        sideways = self.shift * 6 * share * (1 - share) / (self.shift_to - self.shift_from)
        heading = 0.0 if self.speed >= 0 else np.pi
        if sideways:
            heading -= float(np.arctan2(sideways, self.speed))
        y = self.y + self.speed * time
        step = int(abs(self.speed) * time / 1.4 * STRIDE) % len(self.poses)
        return Actor(self.poses[step], placement(x, y, heading, self.z), self.category, track_id)


class Drive:
    """The whole drive of one seed: scenery made once, actors placed for each moment."""

    def __init__(self, seed: int, size: tuple[int, int]) -> None:
        self._size = size
        rng = np.random.default_rng([seed, 7])
        scenery, _ = add_surroundings(rng, PLACE, -20.0, 330.0, signals=False)
        self._scenery: list[Item] = scenery
        self._movers = [*_traffic(rng), *_parked(rng), *_walkers(rng)]

    def scene(self, time: float) -> Scene:
        """The scene `time` seconds after the start."""
        width, height = self._size
        camera = Camera(
            x=INNER + 0.12 * float(np.sin(time * 0.7)),
            y=EGO_SPEED * time,
            z=CAMERA_HEIGHT + 0.012 * float(np.sin(time * 7.0)),
            yaw=-0.5 * float(np.cos(time * 0.7)),
            pitch=CAMERA_PITCH + 0.12 * float(np.sin(time * 5.0)),
            hfov=CAMERA_HFOV, width=width, height=height,
        )  # fmt: skip
        actors = [mover.at(time, i + 1) for i, mover in enumerate(self._movers)]
        return Scene(camera, WEATHER, self._scenery, actors, [], "dash", PLACE.name)


def _traffic(rng: np.random.Generator) -> list[Mover]:
    def car(style: vehicles.Body) -> tuple[Mesh, ...]:
        return (vehicles.car_of(style, rng),)

    bus, rigid = (vehicles.make_bus(rng),), (vehicles.make_truck(rng),)
    return [
        # The way of the camera car, nearest first.
        Mover(
            "car", car(vehicles.SEDAN), OUTER, 9.5, 13.6, shift=-3.3, shift_from=0.4, shift_to=2.6
        ),
        Mover("motorcycle", (people.make_motorcycle(rng),), OUTER + 0.6, 20.0, 7.8),
        Mover("bus", bus, OUTER - 0.15, 41.0, 6.6),
        Mover("car", car(vehicles.SUV), INNER, 36.0, 12.2),
        Mover("truck", rigid, OUTER, 74.0, 8.0),
        Mover("bicycle", (people.make_bicycle(rng),), OUTER + 1.45, 24.0, 5.0),
        Mover("car", car(vehicles.CITY), INNER + 0.1, 58.0, 11.6),
        # The other way.
        Mover("car", car(vehicles.HATCHBACK), -INNER, 38.0, -11.0),
        Mover("three_wheeler", (vehicles.make_three_wheeler(rng),), -OUTER, 46.0, -8.0),
        Mover("car", car(vehicles.ESTATE), -OUTER, 72.0, -10.0),
        Mover("truck", (vehicles.make_truck(rng),), -INNER, 92.0, -10.5),
        Mover("motorcycle", (people.make_motorcycle(rng),), -OUTER + 0.4, 104.0, -11.0),
        Mover("car", (vehicles.make_van(rng),), -INNER, 126.0, -10.5),
        Mover("bus", (vehicles.make_bus(rng),), -OUTER, 150.0, -9.0),
        Mover("car", car(vehicles.PEOPLE_CARRIER), -INNER, 160.0, -11.0),
        Mover("car", car(vehicles.SEDAN), -INNER, 192.0, -11.0),
        Mover("bicycle", (people.make_bicycle(rng),), -OUTER - 1.5, 84.0, -4.5),
    ]


def _parked(rng: np.random.Generator) -> list[Mover]:
    x = PLACE.half + 1.35
    styles = (vehicles.HATCHBACK, vehicles.SEDAN, vehicles.SUV, vehicles.CITY, vehicles.ESTATE)
    movers = []
    for y in np.arange(8.0, 190.0, 6.6):
        for side in (-1, 1):
            if rng.random() < 0.3:
                style = styles[int(rng.integers(len(styles)))]
                mesh = vehicles.car_of(style, rng)
                # A speed too small to see tells which way it faces.
                movers.append(Mover("car", (mesh,), side * x, float(y), side * 1e-9))
    return movers


def _walkers(rng: np.random.Generator) -> list[Mover]:
    movers = []
    for i, y in enumerate((12.0, 21.0, 34.0, 47.0, 63.0, 80.0, 96.0, 118.0, 130.0)):
        look = int(rng.integers(1 << 30))
        poses = tuple(
            people.make_person(np.random.default_rng(look), phase=2 * np.pi * i / STRIDE)
            for i in range(STRIDE)
        )
        side = float(rng.choice([-1, 1]))
        x = side * (PLACE.half + PLACE.shoulder + 0.7 + 0.74 * (i % 4))
        movers.append(Mover("person", poses, x, y, float(rng.choice([-1.3, 1.3])), z=0.125))
    return movers
