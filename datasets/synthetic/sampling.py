"""Random road scenes: which road, what stands beside it, who drives there, and who looks.

Everything follows from one seed. No Blender here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from perception.datasets.synthetic import people, scenery, vehicles
from perception.datasets.synthetic.mesh import Array, Mesh, Surface, placement
from perception.datasets.synthetic.photo import Sensor
from perception.datasets.synthetic.scene import Actor, Camera, Item, Lamp, Scene, Weather

Maker = Callable[[np.random.Generator], Mesh]
MAKERS: dict[str, Maker] = {
    "car": vehicles.make_car,
    "truck": vehicles.make_truck,
    "bus": vehicles.make_bus,
    "motorcycle": people.make_motorcycle,
    "bicycle": people.make_bicycle,
    "three_wheeler": vehicles.make_three_wheeler,
    "person": people.make_person,
}
SHARE = {
    "car": 0.49,
    "truck": 0.14,
    "bus": 0.09,
    "motorcycle": 0.12,
    "bicycle": 0.06,
    "three_wheeler": 0.1,
}
"""How often a class drives in a lane, averaged over scenes; people walk beside the road."""


@dataclass(frozen=True)
class Place:
    """A kind of road: lanes in all, their width in metres, the footway's width (0: none)."""

    name: str
    lanes: int
    lane_width: float
    pavement: float
    shoulder: float
    divider: str
    density: float  # vehicles for each 100 m of lane

    @property
    def half(self) -> float:
        """Half the width of the driving lanes, metres."""
        return self.lanes * self.lane_width / 2


PLACES = (
    Place("street", 2, 3.3, 2.5, 2.3, "dashed", 6.0),
    Place("street", 2, 3.1, 2.0, 0.35, "solid", 6.0),
    Place("avenue", 4, 3.2, 3.0, 0.4, "double", 5.5),
    Place("highway", 6, 3.6, 0.0, 2.5, "double", 4.0),
    Place("country", 2, 3.3, 0.0, 0.5, "dashed", 3.5),
)


def sample_weather(rng: np.random.Generator) -> Weather:
    """Clear, cloudy, overcast, hazy, rain-wet, low sun or night."""
    name = str(rng.choice(
        ["clear", "cloudy", "overcast", "haze", "wet", "low sun", "night"],
        p=[0.26, 0.18, 0.17, 0.1, 0.12, 0.09, 0.08],
    ))  # fmt: skip
    elevation = float(rng.uniform(6, 16) if name == "low sun" else rng.uniform(22, 75))
    azimuth = float(rng.uniform(0, 360))
    soft = name in ("overcast", "haze", "wet")
    night = name == "night"
    blue = float(rng.uniform(0.6, 1.1))
    zenith = (0.45, 0.48, 0.52) if soft else (0.16 * blue, 0.32 * blue, 0.68 * blue)
    horizon = (0.6, 0.62, 0.65) if soft else (0.62, 0.7, 0.8)
    if name == "low sun":
        horizon = (0.85, 0.62, 0.42)
    if night:
        zenith, horizon = (0.003, 0.004, 0.009), (0.02, 0.018, 0.02)
    return Weather(
        sun_elevation=elevation,
        sun_azimuth=azimuth,
        sun_strength=0.0
        if night
        else float(rng.uniform(0.0, 0.7) if soft else rng.uniform(1.8, 4.2)),
        sun_angle=25.0 if soft else 0.8,
        sky_strength=1.0,
        zenith=zenith,
        horizon=horizon,
        clouds=float({"clear": 0.2, "low sun": 0.3, "night": 0.1, "cloudy": 0.6}.get(name, 0.9)),
        haze=float(rng.uniform(60, 160) if name == "haze" else rng.uniform(500, 3000)),
        wet=float(rng.uniform(0.5, 1.0))
        if name == "wet" or (night and rng.random() < 0.4)
        else 0.0,
        night=night,
        name=name,
    )


def sample_sensor(rng: np.random.Generator) -> Sensor:
    """A camera's faults, mild in most pictures."""
    return Sensor(
        exposure=float(rng.normal(0, 0.35)),
        noise=float(rng.gamma(1.5, 1.6)),
        blur=float(rng.uniform(0.3, 0.9)) if rng.random() < 0.4 else 0.0,
        warmth=float(rng.normal(0, 0.5)),
        contrast=float(rng.uniform(0.8, 1.15)),
        saturation=float(rng.uniform(0.45, 1.05)),
    )


def sample_camera(
    rng: np.random.Generator, place: Place, size: tuple[int, int], side: int
) -> tuple[Camera, str]:
    """A dash camera, one beside the road, or a traffic camera on a mast, and which of them."""
    width, height = size
    view = str(rng.choice(["dash", "roadside", "mast"], p=[0.42, 0.25, 0.33]))
    if view == "dash":
        lane = int(rng.integers(place.lanes // 2))
        x = side * (lane + 0.5) * place.lane_width + float(rng.normal(0, 0.2))
        z = float(rng.uniform(2.0, 2.5) if rng.random() < 0.15 else rng.uniform(1.1, 1.6))
        return Camera(
            x, 0.0, z, float(rng.normal(0, 4)), float(rng.uniform(-7, 1)),
            float(rng.uniform(48, 95)), width, height,
        ), view  # fmt: skip
    if view == "roadside":
        x = float(rng.choice([-1, 1])) * (
            place.half + place.shoulder + float(rng.uniform(0.4, 3.0))
        )
        z, far = float(rng.uniform(1.3, 4.0)), float(rng.uniform(7, 28))
        hfov = float(rng.uniform(45, 85))
    else:
        x = float(rng.uniform(-place.half - 3, place.half + 3))
        z, far = float(rng.uniform(4.5, 10.5)), float(rng.uniform(13, 36))
        hfov = float(rng.uniform(32, 75))
    aim_x = float(rng.uniform(-0.7, 0.7)) * place.half
    yaw = float(np.degrees(np.arctan2(x - aim_x, far)))
    pitch = -float(np.degrees(np.arctan2(z - 0.6, np.hypot(far, x - aim_x))))
    return Camera(x, 0.0, z, yaw, pitch, hfov, width, height), view


class Crowd:
    """The actors placed so far; refuses one that would stand in another or before the lens."""

    def __init__(self, camera: Camera) -> None:
        self.actors: list[Actor] = []
        self._camera = camera
        self._footprints: list[np.ndarray] = []

    def place(
        self, category: str, mesh: Mesh, x: float, y: float, heading: float, z: float = 0.0
    ) -> bool:
        """Add the actor when there is room."""
        matrix = placement(x, y, heading, z)
        low, high = mesh.bounds
        corners = np.array(
            [[low[0], low[1]], [high[0], low[1]], [high[0], high[1]], [low[0], high[1]]]
        )
        footprint = corners @ matrix[:2, :2].T + matrix[:2, 3]
        eye = np.array([[self._camera.x, self._camera.y]])
        if self._camera.z < high[2] + 0.5 and not _apart(footprint, eye, 1.0):
            return False
        if any(not _apart(footprint, other, 0.25) for other in self._footprints):
            return False
        self._footprints.append(footprint)
        self.add(category, mesh, matrix)
        return True

    def add(self, category: str, mesh: Mesh, matrix: Array) -> None:
        """Add an actor that is carried by another or by scenery, without asking for room."""
        self.actors.append(Actor(mesh, matrix, category, len(self.actors) + 1))


def _apart(a: np.ndarray, b: np.ndarray, margin: float) -> bool:
    """Whether some edge direction of the rectangle `a` or `b` separates them by `margin` metres."""
    for shape in (a, b):
        for i in range(len(shape) - 1):
            edge = shape[i + 1] - shape[i]
            normal = np.array([-edge[1], edge[0]]) / max(float(np.linalg.norm(edge)), 1e-9)
            pa, pb = a @ normal, b @ normal
            if pa.max() + margin < pb.min() or pb.max() + margin < pa.min():
                return True
    if len(b) == 1:
        nearest = np.clip(b[0], a.min(axis=0), a.max(axis=0))
        return float(np.linalg.norm(nearest - b[0])) > margin
    return False


def add_traffic(
    rng: np.random.Generator, crowd: Crowd, place: Place, side: int, reach: float
) -> None:
    """Vehicles in the lanes, parked cars, cyclists at the edge and people on foot."""
    names = list(SHARE)
    # A Dirichlet draw about the shares: some pictures are full of buses, others of rickshaws.
    chance = rng.dirichlet([8 * SHARE[n] for n in names])
    density = place.density * float(rng.uniform(0.5, 1.9))
    for lane in range(place.lanes):
        x = -place.half + (lane + 0.5) * place.lane_width
        along = 0.0 if x * side > 0 else np.pi
        y = float(rng.uniform(-3, 12))
        while y < reach:
            name = names[int(rng.choice(len(names), p=chance))]
            mesh = MAKERS[name](rng)
            length = float(mesh.bounds[1][1] - mesh.bounds[0][1])
            heading = along + float(rng.normal(0, 0.03))
            if rng.random() < 0.07:
                heading = float(rng.uniform(0, 2 * np.pi))
            at = x + float(rng.normal(0, 0.2)) * (1.0 if length > 3 else 3.0)
            crowd.place(name, mesh, at, y + length / 2, heading)
            y += length + 1.8 + float(rng.exponential(100 / density * 0.7))
    if place.shoulder > 2 and place.pavement > 0:
        for sx in (-1, 1):
            for y in np.arange(float(rng.uniform(-4, 4)), reach * 0.8, 6.2):
                if rng.random() < 0.5:
                    heading = (0.0 if sx * side > 0 else np.pi) + float(rng.normal(0, 0.02))
                    crowd.place(
                        "car", MAKERS["car"](rng), sx * (place.half + 1.15), float(y), heading
                    )
    for _ in range(int(rng.integers(0, 3))):
        sx = float(rng.choice([-1, 1]))
        name = str(rng.choice(["bicycle", "motorcycle"]))
        crowd.place(
            name,
            MAKERS[name](rng),
            sx * (place.half - 0.5),
            float(rng.uniform(6, 30)),
            0.0 if sx * side > 0 else np.pi,
        )
    walkers = int(rng.integers(0, 9)) if place.pavement > 0 else int(rng.integers(0, 2))
    for _ in range(walkers):
        sx = float(rng.choice([-1, 1]))
        beside = (
            place.half
            + place.shoulder
            + 0.4
            + float(rng.uniform(0, max(place.pavement - 0.6, 0.4)))
        )
        crossing = rng.random() < 0.2
        x = float(rng.uniform(-place.half, place.half)) if crossing else sx * beside
        z = 0.125 if not crossing and place.pavement > 0 else 0.0
        crowd.place(
            "person",
            people.make_person(rng),
            x,
            float(rng.uniform(4, 35)),
            float(rng.uniform(0, 2 * np.pi)),
            z,
        )


def add_surroundings(
    rng: np.random.Generator,
    place: Place,
    y0: float,
    y1: float,
    *,
    night: bool = False,
    signals: bool = True,
) -> tuple[list[Item], list[Lamp]]:
    """Road, land, buildings, trees and street furniture from y0 to y1."""
    identity = np.eye(4)
    shade = float(rng.uniform(0.03, 0.11))
    asphalt = Surface("asphalt", (shade, shade, shade * float(rng.uniform(0.95, 1.1))))
    green = rng.uniform(0.7, 1.4)
    land = scenery.GRASS if rng.random() < 0.65 else Surface("dirt", (0.2, 0.15, 0.1))
    if land is scenery.GRASS:
        land = Surface("grass", (0.07 * float(green), 0.1, 0.03))
    crossing = float(rng.uniform(8, 30)) if place.pavement > 0 and rng.random() < 0.35 else None
    items = [
        Item(scenery.make_ground(land), identity),
        Item(scenery.make_backdrop(rng), placement(0, (y0 + y1) / 2)),
        Item(scenery.make_road(
            place.lanes, place.lane_width, y0, y1, pavement=place.pavement, divider=place.divider,
            color=asphalt, crossing_at=crossing, shoulder=place.shoulder,
        ), identity),
        Item(scenery.make_patches(rng, place.half, y0, min(y1, y0 + 160)), identity),
    ]  # fmt: skip
    edge = place.half + place.shoulder + place.pavement
    trees = [scenery.make_tree(rng) for _ in range(3)]
    built = {"street": 0.85, "avenue": 0.75, "country": 0.12, "highway": 0.12}[place.name]
    houses = [(scenery.make_building(rng, w, 11.0), w) for w in rng.uniform(9, 22, 5)]
    lamps: list[Lamp] = []
    for sx in (-1, 1):
        y = y0 + float(rng.uniform(0, 10))
        while y < y1:
            mesh, width = houses[int(rng.integers(len(houses)))]
            if rng.random() < built:
                setback = (
                    float(rng.uniform(0.6, 5)) if place.pavement > 0 else float(rng.uniform(9, 25))
                )
                items.append(
                    Item(
                        mesh,
                        placement(sx * (edge + setback), y + width / 2, 0.0 if sx < 0 else np.pi),
                    )
                )
            y += width + float(rng.exponential(3.0))
        spacing = float(rng.uniform(7, 16))
        if rng.random() < 0.85:
            off = -1.0 if place.pavement > 0 else float(rng.uniform(3, 8))
            for y in np.arange(y0, y1, spacing):
                if rng.random() < 0.75:
                    items.append(Item(trees[int(rng.integers(3))], placement(
                        sx * (edge + off + float(rng.normal(0, 0.3))),
                        float(y) + float(rng.normal(0, 1)),
                        float(rng.uniform(0, 6)), 0.0, float(rng.uniform(0.7, 1.15)))))  # fmt: skip
            for _ in range(12):
                items.append(Item(trees[int(rng.integers(3))], placement(
                    sx * (edge + float(rng.uniform(18, 60))), float(rng.uniform(y0, y1)),
                    float(rng.uniform(0, 6)), 0.0, float(rng.uniform(0.8, 1.4)))))  # fmt: skip
        lamp = scenery.make_lamp(rng)
        kerb = place.half + place.shoulder + 0.5
        top = float(lamp.bounds[1][2])
        for y in np.arange(y0 + 9 + 6 * sx, y1, 24.0):
            items.append(Item(lamp, placement(sx * kerb, float(y), 0.0 if sx > 0 else np.pi)))
            if night and -12 < y < 75:
                lamps.append(
                    Lamp((sx * (kerb - 1.9), float(y), top - 0.4), 900.0, (1.0, 0.78, 0.5))
                )
        if place.pavement <= 0 and place.lanes > 2:
            items.append(
                Item(
                    scenery.make_guard_rail(y1 - y0),
                    placement(sx * (edge + 0.3), (y0 + y1) / 2, 0.0 if sx > 0 else np.pi),
                )
            )
        if place.pavement <= 0 and place.lanes == 2 and rng.random() < 0.4:
            items.append(
                Item(
                    scenery.make_hedge(rng, 26.0),
                    placement(sx * (edge + 2.0), float(rng.uniform(12, 40))),
                )
            )
        for _ in range(int(rng.integers(1, 5))):
            beside = (
                place.half + place.shoulder + float(rng.uniform(0.45, 1.0 + place.pavement * 0.6))
            )
            thing = scenery.make_sign(rng) if rng.random() < 0.45 else scenery.make_clutter(rng)
            z = 0.125 if place.pavement > 0 else 0.0
            items.append(
                Item(
                    thing,
                    placement(
                        sx * beside,
                        float(rng.uniform(5, 55)),
                        0.0 if sx > 0 else float(rng.choice([0, np.pi])),
                        z,
                    ),
                )
            )
    if signals and place.pavement > 0 and rng.random() < 0.3:
        signal = scenery.make_signal(rng)
        y = crossing if crossing is not None else float(rng.uniform(12, 35))
        for sx in (-1, 1):
            items.append(
                Item(
                    signal,
                    placement(
                        sx * (place.half + place.shoulder + 0.5), y, 0.0 if sx > 0 else np.pi
                    ),
                )
            )
    return items, lamps


CLEARANCE = 9.0
"""Nothing slender and tall (tree, lamp, sign) stands nearer to a camera than this, metres."""


def clear_view(items: list[Item], camera: Camera) -> list[Item]:
    """The items without the trees and posts whose crowns and arms would hang before the lens."""

    def blocks(item: Item) -> bool:
        low, high = item.mesh.bounds
        slender = float(np.max((high - low)[:2])) < 9.0 and float(high[2]) > 2.0
        gap = np.hypot(item.matrix[0, 3] - camera.x, item.matrix[1, 3] - camera.y)
        return slender and bool(gap < CLEARANCE)

    return [item for item in items if not blocks(item)]


def sample_road(seed: int, number: int, size: tuple[int, int]) -> tuple[Scene, Sensor]:
    """Scene `number` of the series `seed`; `size` is the picture's width and height in pixels."""
    rng = np.random.default_rng([seed, number])
    place = PLACES[int(rng.choice(len(PLACES), p=[0.24, 0.14, 0.26, 0.2, 0.16]))]
    weather = sample_weather(rng)
    side = -1 if rng.random() < 0.3 else 1  # which side of the road is driven on
    camera, view = sample_camera(rng, place, size, side)
    items, lamps = add_surroundings(rng, place, -25.0, 170.0, night=weather.night)
    items = clear_view(items, camera)
    crowd = Crowd(camera)
    add_traffic(rng, crowd, place, side, reach=float(rng.uniform(45, 95)))
    if weather.night and view == "dash":
        lamps.append(Lamp((camera.x, 0.5, 0.7), 1500.0, (1.0, 0.95, 0.85)))
    return Scene(camera, weather, items, crowd.actors, lamps, view, place.name), sample_sensor(rng)
