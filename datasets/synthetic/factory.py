"""Random factory scenes: an aisle between racks, forklifts, pallets and people under hall lamps.

The sibling of `sampling.py`, for the classes of `perception.labels.FACTORY`. No Blender here.
"""

from __future__ import annotations

import numpy as np

from perception.datasets.synthetic import people, warehouse
from perception.datasets.synthetic.mesh import MeshBuilder, placement
from perception.datasets.synthetic.photo import Sensor
from perception.datasets.synthetic.sampling import Crowd, sample_sensor
from perception.datasets.synthetic.scene import Camera, Item, Lamp, Scene, Weather

HALL_WIDTH = 26.0
Y0, Y1 = -6.0, 34.0


def _indoors(name: str) -> Weather:
    """No sun and next to no sky; `name` says how well the hall is lit."""
    return Weather(
        sun_elevation=45.0, sun_azimuth=0.0, sun_strength=0.0, sun_angle=1.0, sky_strength=1.0,
        zenith=(0.01, 0.01, 0.01), horizon=(0.01, 0.01, 0.01), clouds=0.0, haze=5000.0, wet=0.0,
        night=False, name=name,
    )  # fmt: skip


def _camera(rng: np.random.Generator, size: tuple[int, int]) -> tuple[Camera, str]:
    """On a low robot, on a forklift, or under the roof."""
    width, height = size
    view = str(rng.choice(["robot", "truck", "ceiling"], p=[0.5, 0.2, 0.3]))
    z, pitch = {
        "robot": (float(rng.uniform(0.25, 1.1)), float(rng.uniform(-6, 6))),
        "truck": (float(rng.uniform(1.7, 2.2)), float(rng.uniform(-14, -2))),
        "ceiling": (float(rng.uniform(3.5, 5.5)), float(rng.uniform(-40, -15))),
    }[view]
    x, yaw = float(rng.uniform(-1.6, 1.6)), float(rng.normal(0, 12))
    return Camera(x, 0.0, z, yaw, pitch, float(rng.uniform(55, 100)), width, height), view


def sample_factory(seed: int, number: int, size: tuple[int, int]) -> tuple[Scene, Sensor]:
    """Scene `number` of the series `seed`; `size` is the picture's width and height in pixels."""
    rng = np.random.default_rng([seed, number, 2])
    camera, view = _camera(rng, size)
    height = float(rng.uniform(6.6, 9.0))
    items = [Item(warehouse.make_hall(rng, HALL_WIDTH, Y0, Y1, height), np.eye(4))]
    crowd = Crowd(camera)
    loads = [warehouse.make_load(rng) for _ in range(6)]
    light = str(rng.choice(["bright", "dim", "patchy"], p=[0.5, 0.25, 0.25]))
    lamps = _lamps(rng, height, light)
    for side in (-1, 1):
        if rng.random() < 0.75:
            items += _rack(rng, crowd, side, loads)
        else:
            for y in np.arange(4.0, Y1 - 3, 5.0):
                x = side * float(rng.uniform(4.0, 6.0))
                heading = 0.0 if side < 0 else np.pi
                items.append(Item(warehouse.make_machine(rng), placement(x, float(y), heading)))
    for _ in range(int(rng.integers(1, 4))):
        items += _forklift(rng, crowd, loads)
    for _ in range(int(rng.integers(1, 7))):
        x, y = float(rng.uniform(-3.2, 3.2)), float(rng.uniform(2.0, 20.0))
        heading = float(rng.normal(0, 0.3)) + float(rng.choice([0, np.pi / 2]))
        if crowd.place("pallet", warehouse.make_pallet(rng), x, y, heading) and rng.random() < 0.6:
            load = loads[int(rng.integers(len(loads)))]
            items.append(Item(load, placement(x, y, heading, 0.144)))
    for _ in range(int(rng.integers(0, 6))):
        person = people.make_person(rng, bright=rng.random() < 0.45)
        x, y = float(rng.uniform(-3.2, 3.2)), float(rng.uniform(1.5, 22.0))
        crowd.place("person", person, x, y, float(rng.uniform(0, 2 * np.pi)))
    return Scene(camera, _indoors(light), items, crowd.actors, lamps, view, "factory"), _sensor(
        rng, light
    )


def _sensor(rng: np.random.Generator, light: str) -> Sensor:
    sensor = sample_sensor(rng)
    if light == "bright":
        return sensor
    # Little light: darker, with more gain and therefore more noise.
    return Sensor(
        exposure=sensor.exposure - 0.8, noise=sensor.noise * 2 + 2, blur=sensor.blur,
        warmth=sensor.warmth, contrast=sensor.contrast, saturation=sensor.saturation * 0.8,
    )  # fmt: skip


def _lamps(rng: np.random.Generator, height: float, light: str) -> list[Lamp]:
    power = {"bright": 900.0, "dim": 250.0, "patchy": 700.0}[light]
    warm = float(rng.uniform(0.75, 1.0))
    keep = 0.45 if light == "patchy" else 1.0
    return [
        Lamp((x, float(y), height - 0.9), power, (1.0, 0.5 + 0.5 * warm, warm))
        for x in (-HALL_WIDTH / 4, 0.0, HALL_WIDTH / 4)
        for y in np.arange(Y0 + 5, Y1, 9.0)
        if rng.random() < keep
    ]


def _rack(rng: np.random.Generator, crowd: Crowd, side: int, loads: list) -> list[Item]:  # type: ignore[type-arg]
    """A rack beside the aisle; each pallet in it is an actor, its load is not."""
    bays = 7
    x = side * float(rng.uniform(3.0, 4.2))
    middle = 2.0 + bays * warehouse.RACK_BAY / 2
    items = [Item(warehouse.make_rack(bays), placement(x, middle, 0.0 if side < 0 else np.pi))]
    for bay in range(bays):
        for level in warehouse.RACK_LEVELS:
            for dy in (-0.95, 0.0, 0.95):
                if rng.random() < 0.3:
                    continue
                y = middle + (bay - (bays - 1) / 2) * warehouse.RACK_BAY + dy
                # Pallets lie across the beams, so their long side points into the rack.
                crowd.add("pallet", warehouse.make_pallet(rng), placement(x, y, np.pi / 2, level))
                if rng.random() < 0.85:
                    load = loads[int(rng.integers(len(loads)))]
                    items.append(Item(load, placement(x, y, np.pi / 2, level + 0.144)))
    return items


def _forklift(rng: np.random.Generator, crowd: Crowd, loads: list) -> list[Item]:  # type: ignore[type-arg]
    """A forklift, often with a driver and a loaded pallet on its forks."""
    lift = float(rng.choice([0.08, 0.25, 1.2], p=[0.6, 0.3, 0.1]))
    x, y = float(rng.uniform(-1.8, 1.8)), float(rng.uniform(4.5, 18.0))
    heading = float(rng.uniform(0, 2 * np.pi))
    if not crowd.place("forklift", warehouse.make_forklift(rng, lift), x, y, heading):
        return []
    matrix = placement(x, y, heading)
    items: list[Item] = []
    if rng.random() < 0.75:
        driver = MeshBuilder()
        people.add_rider(
            driver, rng, seat=warehouse.SEAT, bar=(0.16, 0.2, 1.25), foot=(0.15, 0.25, 0.66),
            lean=0.06, helmet=0.4,
        )  # fmt: skip
        crowd.add("person", driver.build(), matrix)
    if rng.random() < 0.55:
        ahead = placement(0.0, 1.75, 0.0, lift + 0.03)
        crowd.add("pallet", warehouse.make_pallet(rng), matrix @ ahead)
        if rng.random() < 0.8:
            load = loads[int(rng.integers(len(loads)))]
            items.append(Item(load, matrix @ placement(0.0, 1.75, 0.0, lift + 0.174)))
    return items
