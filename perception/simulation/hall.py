"""The hall as a MuJoCo model: floor, racks, people, forklifts, pallets and the robot's camera.

Everything is moved by setting positions; MuJoCo draws it and answers what a ray hits first.
"""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perception.geometry.camera import Camera, Mount

LANE = 1.35
"""m from the middle of the lane to the racks on either side."""

RACK_DEPTH = 1.0
GAP = 1.4
"""m of opening in the racks at a cross aisle, to either side of its middle."""

WIDTH, HEIGHT = 416, 256
FIELD_OF_VIEW = math.radians(85)
"""Horizontal. A robot that turns into cross aisles needs a wide view."""

MOUNT = Mount(z=0.95, x=0.20, pitch=math.radians(10))
ROBOT_RADIUS = 0.35


def robot_camera(width: int = WIDTH, height: int = HEIGHT) -> Camera:
    """The robot's pinhole camera, square pixels, without distortion."""
    focal = width / 2 / math.tan(FIELD_OF_VIEW / 2)
    matrix = [focal, 0, width / 2, 0, focal, height / 2, 0, 0, 1]
    return Camera.create(width, height, matrix, [], MOUNT)


@dataclass(frozen=True)
class Body:
    """One movable thing: kind, and its footprint as a rectangle (length, width) and height, m.

    colours: rgb triples in 0 to 1, what each is for depends on the kind.
    """

    kind: str
    length: float
    width: float
    height: float
    colours: tuple[tuple[float, float, float], ...]


_SHIRTS = (
    (0.95, 0.45, 0.05),
    (0.80, 0.85, 0.10),
    (0.15, 0.25, 0.55),
    (0.55, 0.12, 0.12),
    (0.30, 0.32, 0.34),
    (0.85, 0.85, 0.82),
    (0.12, 0.40, 0.22),
)
_TROUSERS = ((0.10, 0.12, 0.20), (0.20, 0.20, 0.22), (0.32, 0.27, 0.20), (0.15, 0.22, 0.35))
_SKINS = ((0.90, 0.72, 0.60), (0.75, 0.55, 0.42), (0.50, 0.34, 0.25), (0.35, 0.23, 0.17))
_HELMETS = ((0.95, 0.80, 0.10), (0.92, 0.92, 0.92), (0.15, 0.12, 0.10), (0.20, 0.35, 0.80))
_TRUCKS = ((0.93, 0.62, 0.05), (0.90, 0.40, 0.08), (0.75, 0.10, 0.08), (0.20, 0.45, 0.30))
_LOADS = ((0.72, 0.55, 0.36), (0.62, 0.46, 0.30), (0.85, 0.85, 0.88), (0.35, 0.45, 0.60))


def random_body(kind: str, rng: np.random.Generator) -> Body:
    """A body of a kind with sizes and colours as they occur."""

    def pick(colours: Sequence[tuple[float, float, float]]) -> tuple[float, float, float]:
        red, green, blue = np.clip(
            np.array(colours[int(rng.integers(len(colours)))]) + rng.normal(0, 0.04, 3), 0.02, 1.0
        )
        return float(red), float(green), float(blue)

    if kind == "person":
        tall = float(np.clip(rng.normal(1.70, 0.10), 1.45, 1.98))
        colours = tuple(pick(group) for group in (_SHIRTS, _TROUSERS, _SKINS, _HELMETS))
        return Body(kind, 0.45, 0.50, tall, colours)
    if kind == "forklift":
        colours = (pick(_TRUCKS), pick(_SHIRTS), pick(_SKINS))
        return Body(kind, float(rng.uniform(2.4, 2.9)), 1.15, float(rng.uniform(2.0, 2.3)), colours)
    load = float(rng.choice([0.0, rng.uniform(0.3, 1.4)], p=[0.2, 0.8]))
    wood = (0.62, 0.48, 0.30)
    return Body(kind, 1.2, 0.8, 0.144 + load, (pick([wood]), pick(_LOADS)))


@dataclass(frozen=True)
class Look:
    """How the hall itself looks: rgb in 0 to 1, light levels as factors."""

    floor: tuple[float, float, float]
    wall: tuple[float, float, float]
    rack: tuple[float, float, float]
    light: float
    ambient: float
    speckle: float
    length: float

    @classmethod
    def random(cls, rng: np.random.Generator, length: float) -> Look:
        grey = float(rng.uniform(0.3, 0.6))
        tint = rng.normal(0, 0.02, 3)
        floor = tuple(float(value) for value in np.clip(grey + tint, 0.05, 1))
        wall = tuple(float(value) for value in np.clip(rng.uniform(0.5, 0.85) + tint, 0, 1))
        racks = ((0.10, 0.20, 0.55), (0.75, 0.35, 0.08), (0.35, 0.36, 0.38))
        return cls(
            floor=(floor[0], floor[1], floor[2]),
            wall=(wall[0], wall[1], wall[2]),
            rack=racks[int(rng.integers(len(racks)))],
            light=float(rng.uniform(0.5, 1.1)),
            ambient=float(rng.uniform(0.25, 0.55)),
            speckle=float(rng.uniform(0.02, 0.15)),
            length=length,
        )


def hall_xml(
    bodies: Sequence[Body],
    gaps: Sequence[float],
    look: Look,
    rng: np.random.Generator,
    picture: tuple[int, int] = (WIDTH, HEIGHT),
) -> str:
    """MJCF of the hall. Bodies are named body0, body1, ... and the robot's frame robot."""
    root = ET.Element("mujoco")
    ET.SubElement(root, "compiler", angle="radian")
    visual = ET.SubElement(root, "visual")
    ET.SubElement(visual, "global", offwidth=str(picture[0]), offheight=str(picture[1]))
    # Small pictures only tell whether the camera works: jagged edges halve what they cost.
    samples = 4 if picture[0] >= WIDTH else 0
    ET.SubElement(visual, "quality", shadowsize="1024", offsamples=str(samples))
    # MuJoCo counts both in extents, which would be 57 m: nothing nearer than 1.1 m would be drawn.
    ET.SubElement(visual, "map", znear="0.05", zfar="80")
    ET.SubElement(root, "statistic", extent="1")
    level = f"{look.ambient:.3f}"
    ET.SubElement(
        visual,
        "headlight",
        ambient=f"{level} {level} {level}",
        diffuse=".1 .1 .1",
        specular="0 0 0",
    )
    asset = ET.SubElement(root, "asset")
    _texture(asset, "floor", look.floor, look.speckle, "40 40")
    _texture(asset, "wall", look.wall, look.speckle / 2, "8 3")
    _texture(asset, "load", (0.72, 0.58, 0.40), 0.1, "2 2")
    world = ET.SubElement(root, "worldbody")
    _building(world, look)
    for side in (-1, 1):
        _racks(world, side, gaps, look, rng)
    for number, body in enumerate(bodies):
        _body(world, number, body)
    _robot(world)
    return ET.tostring(root, encoding="unicode")


def _text(values: Sequence[float]) -> str:
    return " ".join(f"{value:.4f}" for value in values)


def _rgba(colour: Sequence[float]) -> str:
    return _text([*colour, 1.0])


def _geom(
    parent: ET.Element,
    kind: str,
    size: Sequence[float],
    place: Sequence[float],
    colour: Sequence[float] | None,
    **more: str,
) -> None:
    attributes = {"type": kind, "size": _text(size), "pos": _text(place), **more}
    if colour is not None:
        attributes["rgba"] = _rgba(colour)
    ET.SubElement(parent, "geom", attributes)


def _texture(
    asset: ET.Element, name: str, colour: Sequence[float], speckle: float, repeat: str
) -> None:
    darker = [value * 0.8 for value in colour]
    ET.SubElement(
        asset,
        "texture",
        name=name,
        type="2d",
        builtin="flat",
        rgb1=_text(colour),
        mark="random",
        markrgb=_text(darker),
        random=f"{speckle:.3f}",
        width="256",
        height="256",
    )
    ET.SubElement(asset, "material", name=name, texture=name, texrepeat=repeat, specular="0.1")


def _building(world: ET.Element, look: Look) -> None:
    half = look.length / 2 + 6
    middle = look.length / 2
    _geom(world, "plane", (half, 12, 0.1), (middle, 0, 0), None, material="floor")
    for side in (-12.0, 12.0):
        _geom(world, "box", (half, 0.1, 3), (middle, side, 3), None, material="wall")
    for end in (middle - half, middle + half):
        _geom(world, "box", (0.1, 12, 3), (end, 0, 3), None, material="wall")
    yellow = (0.85, 0.72, 0.10)
    for line in (-LANE + 0.1, LANE - 0.1):
        _geom(world, "box", (half, 0.05, 0.001), (middle, line, 0.001), yellow)
    diffuse = _text([look.light] * 3)
    for x in np.arange(0, look.length + 6, 6):
        ET.SubElement(
            world,
            "light",
            pos=_text((x, 0, 5.5)),
            dir="0 0 -1",
            diffuse=diffuse,
            specular="0.1 0.1 0.1",
            attenuation="1 0.05 0.01",
            cutoff="75",
            castshadow="false",
        )


def _racks(
    world: ET.Element, side: int, gaps: Sequence[float], look: Look, rng: np.random.Generator
) -> None:
    """Racks along one side of the lane, open at the gaps."""
    edges = [-5.0]
    for gap in sorted(gaps):
        edges += [gap - GAP, gap + GAP]
    edges.append(look.length + 5.0)
    y = side * (LANE + RACK_DEPTH / 2)
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        if end - start < 0.5:
            continue
        middle, half = (start + end) / 2, (end - start) / 2
        bays = max(round((end - start) / 2.7), 1)
        for post in range(bays + 1):
            x = start + post * (end - start) / bays
            for depth in (-RACK_DEPTH / 2, RACK_DEPTH / 2):
                _geom(world, "box", (0.05, 0.05, 1.6), (x, y + depth * 0.95, 1.6), look.rack)
        for shelf in (0.08, 1.25, 2.4):
            _geom(
                world,
                "box",
                (half, RACK_DEPTH / 2, 0.05),
                (middle, y, shelf),
                (0.85, 0.40, 0.08),
            )
            for x in np.arange(start + 0.7, end - 0.4, 1.3):
                # The lowest level is closed, so that nobody is seen through it.
                if shelf > 1 and rng.random() < 0.2:
                    continue
                tall = float(rng.uniform(0.4, 0.55))
                colour = np.clip(np.array([0.70, 0.55, 0.38]) * rng.uniform(0.6, 1.2), 0, 1)
                width = 0.62 if shelf < 1 else float(rng.uniform(0.4, 0.6))
                _geom(
                    world,
                    "box",
                    (width, RACK_DEPTH * 0.45, tall),
                    (x, y, shelf + 0.05 + tall),
                    colour.tolist(),
                )


def _robot(world: ET.Element) -> None:
    robot = ET.SubElement(world, "body", name="robot", mocap="true", pos="0 0 0")
    right, up = MOUNT.rotation[:, 0], -MOUNT.rotation[:, 1]
    vertical = 2 * math.atan(math.tan(FIELD_OF_VIEW / 2) * HEIGHT / WIDTH)
    ET.SubElement(
        robot,
        "camera",
        name="front",
        pos=_text((MOUNT.x, MOUNT.y, MOUNT.z)),
        xyaxes=_text((*right, *up)),
        fovy=f"{math.degrees(vertical):.6f}",  # always in degrees, unlike all other angles,
    )


def _body(world: ET.Element, number: int, body: Body) -> None:
    frame = ET.SubElement(world, "body", name=f"body{number}", mocap="true", pos="0 0 0")
    {"person": _person, "forklift": _forklift, "pallet": _pallet}[body.kind](frame, body)


def _person(frame: ET.Element, body: Body) -> None:
    """A walker facing +x, in mid-stride."""
    shirt, trousers, skin, helmet = body.colours
    tall = body.height
    hip, shoulder = 0.50 * tall, 0.82 * tall
    for side in (-1, 1):
        stride = side * 0.16
        _geom(
            frame,
            "capsule",
            (0.075,),
            (0, 0, 0),
            trousers,
            fromto=_text((stride, side * 0.09, 0.09, 0, side * 0.08, hip)),
        )
        _geom(
            frame, "box", (0.12, 0.045, 0.045), (stride + 0.04, side * 0.09, 0.045), (0.1, 0.1, 0.1)
        )
        _geom(
            frame,
            "capsule",
            (0.05,),
            (0, 0, 0),
            shirt,
            fromto=_text((0, side * 0.21, shoulder - 0.03, -stride, side * 0.22, 0.50 * tall)),
        )
        _geom(frame, "sphere", (0.055,), (-stride, side * 0.22, 0.47 * tall), skin)
    _geom(frame, "ellipsoid", (0.13, 0.20, 0.19 * tall), (0, 0, 0.66 * tall), shirt)
    _geom(frame, "box", (0.135, 0.19, 0.02), (0, 0, 0.62 * tall), (0.85, 0.87, 0.85))
    _geom(frame, "capsule", (0.055, 0.03), (0, 0, 0.86 * tall), skin)
    _geom(frame, "ellipsoid", (0.095, 0.085, 0.115), (0.01, 0, tall - 0.12), skin)
    _geom(frame, "ellipsoid", (0.115, 0.105, 0.075), (0, 0, tall - 0.07), helmet)


def _forklift(frame: ET.Element, body: Body) -> None:
    """A counterbalance truck facing +x: forks in front, driver seated."""
    paint, shirt, skin = body.colours
    dark = (0.12, 0.12, 0.13)
    rear = -body.length / 2
    front = body.length / 2 - 1.0  # the forks take the last metre
    middle, half = (rear + front) / 2, (front - rear) / 2
    _geom(frame, "box", (half, 0.50, 0.28), (middle, 0, 0.50), paint)
    _geom(frame, "box", (0.25, 0.52, 0.40), (rear + 0.25, 0, 0.62), dark)
    for x in (rear + 0.35, front - 0.2):
        for side in (-1, 1):
            _geom(
                frame,
                "cylinder",
                (0.27, 0.10),
                (x, side * 0.47, 0.27),
                (0.07, 0.07, 0.07),
                euler="1.5708 0 0",
            )
    for side in (-1, 1):
        _geom(
            frame, "box", (0.04, 0.05, body.height / 2), (front, side * 0.30, body.height / 2), dark
        )
        _geom(frame, "box", (0.50, 0.06, 0.025), (front + 0.5, side * 0.25, 0.12), dark)
        for x in (rear + 0.35, front - 0.25):
            top = body.height - 0.05
            _geom(
                frame,
                "box",
                (0.03, 0.03, (top - 0.75) / 2),
                (x, side * 0.46, (top + 0.75) / 2),
                dark,
            )
    _geom(frame, "box", (half - 0.2, 0.50, 0.03), (middle, 0, body.height - 0.05), dark)
    _geom(frame, "box", (0.03, 0.40, 0.04), (front + 0.03, 0, 0.45), dark)
    _geom(frame, "ellipsoid", (0.14, 0.20, 0.30), (middle - 0.05, 0, 1.15), shirt)
    _geom(frame, "sphere", (0.11,), (middle - 0.02, 0, 1.56), skin)


def _pallet(frame: ET.Element, body: Body) -> None:
    wood, load = body.colours
    for row in (-1, 0, 1):
        _geom(frame, "box", (0.6, 0.05, 0.06), (0, row * 0.34, 0.06), wood)
    for slat in range(5):
        _geom(frame, "box", (0.6, 0.06, 0.012), (0, -0.32 + slat * 0.16, 0.132), wood)
    tall = body.height - 0.144
    if tall > 0.05:
        _geom(frame, "box", (0.56, 0.37, tall / 2), (0, 0, 0.144 + tall / 2), load)
        _geom(frame, "box", (0.565, 0.03, tall / 2), (0, 0, 0.144 + tall / 2), (0.9, 0.88, 0.8))
