"""What is not traffic: road, markings, pavements, buildings, trees, street furniture."""

from __future__ import annotations

import numpy as np

from perception.datasets.synthetic.mesh import Mesh, MeshBuilder, Surface

ASPHALT = Surface("asphalt", (0.055, 0.055, 0.058))
MARKING = Surface("marking", (0.62, 0.62, 0.6))
YELLOW_MARKING = Surface("marking", (0.6, 0.4, 0.05))
KERB = Surface("concrete", (0.32, 0.31, 0.3))
PAVING = Surface("paving", (0.24, 0.23, 0.22))
GRASS = Surface("grass", (0.06, 0.11, 0.025))
GALVANISED = Surface("metal", (0.42, 0.43, 0.45))
BARK = Surface("bark", (0.09, 0.06, 0.04))
WINDOW = Surface("window", (0.02, 0.025, 0.032))


def _strip(
    mesh: MeshBuilder, x0: float, x1: float, y0: float, y1: float, z: float, surface: Surface
) -> None:
    """A flat rectangle facing up."""
    mesh.add([(x0, y0, z), (x1, y0, z), (x1, y1, z), (x0, y1, z)], [(0, 1, 2, 3)], surface)


def make_ground(surface: Surface, reach: float = 600.0) -> Mesh:
    """The land all round."""
    mesh = MeshBuilder()
    _strip(mesh, -reach, reach, -reach, reach, -0.06, surface)
    return mesh.build()


def make_road(
    lanes: int, lane_width: float, y0: float, y1: float, *, pavement: float, divider: str,
    color: Surface = ASPHALT, crossing_at: float | None = None, shoulder: float = 0.35,
) -> Mesh:  # fmt: skip
    """A straight road along y with `lanes` in all, centred on x = 0.

    `divider` is the middle line: "dashed", "solid", "double" or "none" for a one-way road;
    `pavement` is the width of the footway on either side, 0 for a bare edge; `shoulder` the
    asphalt between the outer lanes and the kerb.
    """
    mesh = MeshBuilder()
    half = lanes * lane_width / 2
    _strip(mesh, -half - shoulder, half + shoulder, y0, y1, 0.0, color)
    top = 0.006
    for lane in range(1, lanes):
        x = -half + lane * lane_width
        if 2 * lane == lanes and divider in ("solid", "double"):
            for dx in (-0.13, 0.13) if divider == "double" else (0.0,):
                _strip(
                    mesh,
                    x + dx - 0.07,
                    x + dx + 0.07,
                    y0,
                    y1,
                    top,
                    YELLOW_MARKING if divider == "double" else MARKING,
                )
            continue
        for start in np.arange(y0, y1, 9.0 if lanes > 2 else 6.0):
            _strip(mesh, x - 0.07, x + 0.07, start, start + 3.0, top, MARKING)
    for sx in (-1, 1):
        if pavement <= 0 or lanes > 2:
            _strip(mesh, sx * half - 0.08, sx * half + 0.08, y0, y1, top, MARKING)
        if pavement > 0:
            edge = sx * (half + shoulder + 0.09)
            mesh.box((edge, (y0 + y1) / 2, 0.03), (0.18, y1 - y0, 0.2), KERB, 0.03)
            a, b = edge + sx * 0.09, edge + sx * (0.09 + pavement)
            _strip(mesh, min(a, b), max(a, b), y0, y1, 0.125, PAVING)
    if crossing_at is not None:
        for x in np.arange(-half + 0.3, half - 0.3, 1.0):
            _strip(mesh, x, x + 0.5, crossing_at, crossing_at + 3.0, top + 0.002, MARKING)
    return mesh.build()


def make_patches(rng: np.random.Generator, half: float, y0: float, y1: float) -> Mesh:
    """Repairs, manholes and tar lines: the marks by which asphalt is told from a grey plane."""
    mesh = MeshBuilder()
    for _ in range(int((y1 - y0) / 9)):
        x, y = float(rng.uniform(-half, half)), float(rng.uniform(y0, y1))
        shade = float(rng.uniform(0.02, 0.08))
        surface = Surface("asphalt", (shade, shade, shade))
        kind = rng.random()
        if kind < 0.4:
            w, h = float(rng.uniform(0.5, 1.6)), float(rng.uniform(0.8, 6))
            _strip(mesh, x - w / 2, x + w / 2, y, y + h, 0.003, surface)
        elif kind < 0.65:
            mesh.lathe(
                (x, y, 0.0),
                [(0.0, 0.34), (0.004, 0.33)],
                Surface("metal", (0.08, 0.08, 0.085)),
                axis=2,
                segments=16,
            )
        else:
            w = 0.04
            _strip(
                mesh,
                x - w,
                x + w,
                y,
                y + float(rng.uniform(2, 14)),
                0.003,
                Surface("asphalt", (0.012,) * 3),
            )
    return mesh.build()


def make_building(rng: np.random.Generator, width: float, depth: float) -> Mesh:
    """A house, block or hall; y runs along the road, the front faces +x.

    The front wall stands on x = 0 and the building reaches to x = -depth.
    """
    mesh = MeshBuilder()
    floors = int(rng.choice([1, 2, 2, 3, 4, 5, 7], p=[0.1, 0.2, 0.2, 0.2, 0.15, 0.1, 0.05]))
    story = float(rng.uniform(2.9, 3.5))
    height = floors * story + 0.4
    kind = "brick" if rng.random() < 0.4 else "plaster"
    base = {
        "brick": [(0.3, 0.1, 0.06), (0.4, 0.2, 0.12), (0.2, 0.09, 0.06), (0.42, 0.33, 0.24)],
        "plaster": [(0.6, 0.55, 0.45), (0.65, 0.63, 0.6), (0.5, 0.4, 0.25), (0.35, 0.38, 0.4),
                    (0.55, 0.3, 0.2)],
    }[kind]  # fmt: skip
    r, g, b = (
        float(c) for c in np.array(base[int(rng.integers(len(base)))]) * rng.uniform(0.8, 1.2, 3)
    )
    wall = Surface(kind, (round(r, 2), round(g, 2), round(b, 2)))
    mesh.box((-depth / 2, 0, height / 2), (depth, width, height), wall)
    bay = float(rng.uniform(2.2, 3.6))
    bays = max(1, int((width - 0.6) // bay))
    frame = Surface("plastic", (0.6, 0.6, 0.58) if rng.random() < 0.6 else (0.06, 0.05, 0.04))
    shop = floors > 1 and rng.random() < 0.4
    w, h = bay * float(rng.uniform(0.35, 0.7)), story * float(rng.uniform(0.42, 0.62))
    for floor in range(floors):
        z = floor * story + story * 0.55
        for i in range(bays):
            y = (i - (bays - 1) / 2) * bay
            if floor == 0 and shop:
                mesh.box((0.0, y, story * 0.45), (0.12, bay * 0.86, story * 0.7), frame)
                mesh.box((0.05, y, story * 0.45), (0.06, bay * 0.78, story * 0.62), WINDOW)
            elif floor == 0 and i == bays // 2:
                mesh.box((0.0, y, 1.1), (0.14, 1.1, 2.2), frame)
                door = Surface("wood", tuple(float(c) for c in rng.uniform(0.02, 0.25, 3)))  # type: ignore[arg-type]
                mesh.box((0.04, y, 1.05), (0.1, 0.95, 2.05), door)
            else:
                mesh.box((0.0, y, z), (0.12, w + 0.16, h + 0.16), frame)
                mesh.box((0.04, y, z), (0.06, w, h), WINDOW)
                mesh.box((0.06, y, z), (0.04, 0.05, h), frame)
                mesh.box((0.08, y, z - h / 2 - 0.1), (0.24, w + 0.3, 0.08), KERB)
        for side in (-1, 1):
            for i in range(max(1, int(depth // 3.5))):
                x = -1.8 - 3.5 * i
                mesh.box((x, side * width / 2, z), (w, 0.1, h), WINDOW)
    if shop:
        color = Surface("plastic", tuple(float(c) for c in rng.uniform(0.02, 0.6, 3)))  # type: ignore[arg-type]
        mesh.box((0.1, 0, story * 0.92), (0.25, width * 0.9, 0.5), color, 0.03)
    if rng.random() < 0.5 and floors < 5:
        roof = Surface(
            "tiles",
            ((0.25, 0.07, 0.04), (0.08, 0.08, 0.09), (0.2, 0.12, 0.08))[int(rng.integers(3))],
        )
        rise, over = float(rng.uniform(1.8, 3.6)), 0.5
        points = [
            (over, -width / 2 - over, height), (over, width / 2 + over, height),
            (-depth - over, width / 2 + over, height), (-depth - over, -width / 2 - over, height),
            (-depth / 2, -width / 2 - over, height + rise),
            (-depth / 2, width / 2 + over, height + rise),
        ]  # fmt: skip
        mesh.add(points, [(0, 1, 5, 4), (2, 3, 4, 5)], roof)
        mesh.add(points, [(0, 4, 3), (1, 2, 5)], wall)
        mesh.box((-depth * 0.3, width * 0.25, height + rise * 0.8), (0.6, 0.6, 1.6), wall)
    else:
        mesh.box((-depth / 2, 0, height + 0.12), (depth + 0.3, width + 0.3, 0.3), KERB, 0.04)
        mesh.box((-depth * 0.5, width * 0.2, height + 0.8), (2.0, 2.4, 1.2), wall)
    return mesh.build()


def make_tree(rng: np.random.Generator) -> Mesh:
    """A broad-leaved tree or a conifer: a trunk, limbs, and many small leaf clusters."""
    mesh = MeshBuilder()
    conifer = rng.random() < 0.25
    height = float(rng.uniform(5, 11))
    trunk = height * (0.15 if conifer else 0.35)
    radius = height * 0.018 + 0.04
    mesh.limb((0, 0, -0.1), (0, 0, height * (0.9 if conifer else 0.6)), radius, radius * 0.35, BARK)
    hue = rng.uniform(0.75, 1.3, 3)
    base = np.array((0.025, 0.06, 0.02) if conifer else (0.05, 0.105, 0.022)) * hue
    r, g, b = (round(float(c), 3) for c in base)
    shades = [Surface("leaf", (r * k, g * k, b * k)) for k in (0.7, 1.0, 1.35)]
    count = 1300
    if conifer:
        level = rng.uniform(0, 1, count) ** 1.5
        spread = (1 - level) * height * 0.2 * rng.uniform(0.5, 1.0, count)
        angle = rng.uniform(0, 2 * np.pi, count)
        z = trunk + level * (height - trunk) - spread * 0.25
        center = np.stack([spread * np.cos(angle), spread * np.sin(angle), z], axis=1)
        size = height * 0.035
    else:
        crown = np.array([0, 0, height * 0.68])
        lobes = rng.normal(0, 1, (9, 3))
        lobes = lobes / np.linalg.norm(lobes, axis=1, keepdims=True) * height * 0.17
        for lobe in lobes:
            tip = crown + lobe
            mesh.limb(
                (0, 0, trunk),
                (float(tip[0]), float(tip[1]), float(tip[2])),
                radius * 0.5,
                0.03,
                BARK,
                5,
            )
        direction = rng.normal(0, 1, (count, 3))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        reach = height * 0.15 * rng.uniform(0.55, 1.05, (count, 1))
        center = (
            crown
            + lobes[rng.integers(0, 9, count)] * np.array([1.15, 1.15, 0.95])
            + direction * reach
        )
        size = height * 0.034
    a, c = rng.normal(0, 1, (count, 3)), rng.normal(0, 1, (count, 3))
    a = a / np.linalg.norm(a, axis=1, keepdims=True) * size
    c = np.cross(a, c)
    c = c / np.linalg.norm(c, axis=1, keepdims=True) * size
    vertices = np.stack([center - a, center - c, center + a, center + c], axis=1).reshape(-1, 3)
    faces = np.arange(4 * count).reshape(-1, 4)
    mesh.add(vertices, faces, [shades[int(k)] for k in rng.integers(0, 3, count)])
    return mesh.build()


def make_hedge(rng: np.random.Generator, length: float) -> Mesh:
    """A row of leaf clusters about a metre high, along y."""
    mesh = MeshBuilder()
    count = int(length * 90)
    height = float(rng.uniform(0.8, 1.5))
    center = rng.uniform((-0.4, -length / 2, 0.0), (0.4, length / 2, height), (count, 3))
    a, c = rng.normal(0, 0.1, (count, 3)), rng.normal(0, 0.1, (count, 3))
    vertices = np.stack([center - a, center - c, center + a, center + c], axis=1).reshape(-1, 3)
    shades = [Surface("leaf", (0.04 * k, 0.085 * k, 0.02 * k)) for k in (0.7, 1.0, 1.3)]
    faces = np.arange(4 * count).reshape(-1, 4)
    mesh.add(vertices, faces, [shades[int(k)] for k in rng.integers(0, 3, count)])
    mesh.box(
        (0, 0, height * 0.45),
        (0.6, length, height * 0.85),
        Surface("leaf", (0.02, 0.04, 0.012)),
        0.1,
    )
    return mesh.build()


def make_lamp(rng: np.random.Generator) -> Mesh:
    """A street lamp; its arm reaches along -x."""
    mesh = MeshBuilder()
    height = float(rng.uniform(6, 9))
    mesh.limb((0, 0, 0), (0, 0, height), 0.09, 0.055, GALVANISED)
    mesh.limb((0, 0, height), (-1.7, 0, height + 0.3), 0.05, 0.04, GALVANISED, 6)
    mesh.box((-1.9, 0, height + 0.28), (0.75, 0.3, 0.14), GALVANISED, 0.04)
    mesh.box((-1.9, 0, height + 0.2), (0.6, 0.22, 0.03), Surface("lamp", (0.9, 0.75, 0.5)))
    return mesh.build()


def make_sign(rng: np.random.Generator) -> Mesh:
    """A traffic sign on a pole, its face towards -y."""
    mesh = MeshBuilder()
    height = float(rng.uniform(2.1, 2.6))
    mesh.limb((0, 0, 0), (0, 0, height + 0.3), 0.035, 0.035, GALVANISED, 6)
    white, red = Surface("plastic", (0.75, 0.75, 0.75)), Surface("plastic", (0.55, 0.015, 0.02))
    blue = Surface("plastic", (0.01, 0.08, 0.4))
    kind = int(rng.integers(4))
    if kind == 0:
        mesh.lathe((0, -0.05, height), [(-0.01, 0.34), (0.01, 0.34)], red, axis=1, segments=24)
        mesh.lathe((0, -0.07, height), [(-0.005, 0.25), (0.005, 0.25)], white, axis=1, segments=24)
        for dx in (-0.07, 0.07):
            mesh.box((dx, -0.08, height), (0.09, 0.01, 0.2), Surface("plastic", (0.01,) * 3), 0.003)
    elif kind == 1:
        for scale, y, color in ((0.42, -0.05, red), (0.28, -0.06, white)):
            points = [
                (scale * np.cos(v), y, height + scale * np.sin(v))
                for v in (np.pi / 2, np.pi * 7 / 6, np.pi * 11 / 6)
            ]
            mesh.add(points, [(0, 1, 2)], color)
    elif kind == 2:
        mesh.box((0, -0.05, height), (0.6, 0.02, 0.6), blue, 0.004)
        mesh.box((0, -0.065, height), (0.2, 0.01, 0.36), white, 0.003)
    else:
        mesh.lathe((0, -0.05, height), [(-0.01, 0.36), (0.01, 0.36)], red, axis=1, segments=8)
        mesh.box((0, -0.07, height), (0.48, 0.01, 0.12), white, 0.003)
    return mesh.build()


def make_signal(rng: np.random.Generator) -> Mesh:
    """A traffic light, its face towards -y."""
    mesh, lit = MeshBuilder(), int(rng.integers(3))
    mesh.limb((0, 0, 0), (0, 0, 3.3), 0.06, 0.06, Surface("plastic", (0.03, 0.03, 0.03)), 8)
    mesh.box((0, -0.12, 2.85), (0.34, 0.24, 0.95), Surface("plastic", (0.015, 0.015, 0.015)), 0.03)
    colors = ((0.01, 0.5, 0.1), (0.7, 0.35, 0.01), (0.7, 0.01, 0.01))
    for i, color in enumerate(colors):
        surface = (
            Surface("lamp", color)
            if i == lit
            else Surface("plastic", tuple(c * 0.1 for c in color))
        )  # type: ignore[arg-type]
        mesh.ellipsoid((0, -0.25, 2.55 + 0.3 * i), (0.1, 0.03, 0.1), surface)
    return mesh.build()


def make_guard_rail(length: float) -> Mesh:
    """A crash barrier along y."""
    mesh = MeshBuilder()
    for z, x in ((0.52, 0.0), (0.6, 0.05), (0.68, 0.0), (0.76, 0.05)):
        mesh.box((x, 0, z), (0.04, length, 0.09), GALVANISED, 0.01)
    for y in np.arange(-length / 2, length / 2, 4.0):
        mesh.box((0.08, float(y), 0.35), (0.1, 0.12, 0.8), GALVANISED, 0.01)
    return mesh.build()


def make_clutter(rng: np.random.Generator) -> Mesh:
    """Something that is none of the classes: bin, bollard, cabinet, bench or cone."""
    mesh, kind = MeshBuilder(), int(rng.integers(5))
    r, g, b = (round(float(c), 2) for c in rng.uniform(0.02, 0.4, 3))
    color = Surface("plastic", (r, g, b))
    dark = Surface("plastic", (0.03, 0.03, 0.03))
    if kind == 0:
        mesh.box((0, 0, 0.55), (0.55, 0.6, 1.0), color, 0.05)
        mesh.box((0, 0, 1.07), (0.6, 0.66, 0.07), color, 0.03)
    elif kind == 1:
        mesh.limb((0, 0, 0), (0, 0, 0.95), 0.07, 0.07, dark)
        mesh.lathe(
            (0, 0, 0.8),
            [(-0.05, 0.075), (0.05, 0.075)],
            Surface("plastic", (0.7, 0.7, 0.7)),
            axis=2,
            caps=False,
        )
    elif kind == 2:
        mesh.box((0, 0, 0.65), (0.45, 0.95, 1.3), Surface("plastic", (0.2, 0.24, 0.2)), 0.03)
    elif kind == 3:
        mesh.box((0, 0, 0.45), (0.45, 1.7, 0.07), Surface("wood", (0.2, 0.11, 0.05)), 0.02)
        mesh.box((0.22, 0, 0.72), (0.06, 1.7, 0.35), Surface("wood", (0.2, 0.11, 0.05)), 0.02)
        for y in (-0.65, 0.65):
            mesh.box((0, y, 0.22), (0.4, 0.07, 0.44), dark, 0.01)
    else:
        mesh.lathe(
            (0, 0, 0.0),
            [(0, 0.2), (0.35, 0.13), (0.7, 0.05)],
            Surface("plastic", (0.7, 0.16, 0.02)),
            axis=2,
            segments=14,
        )
        mesh.lathe(
            (0, 0, 0.0),
            [(0.3, 0.15), (0.45, 0.115)],
            Surface("plastic", (0.75, 0.75, 0.75)),
            axis=2,
            caps=False,
        )
        mesh.box((0, 0, 0.02), (0.45, 0.45, 0.05), dark, 0.01)
    return mesh.build()


def make_backdrop(rng: np.random.Generator, distance: float = 320.0) -> Mesh:
    """A ring of far woods and hills that closes the horizon."""
    mesh = MeshBuilder()
    angle = np.linspace(0, 2 * np.pi, 240, endpoint=False)
    profile = sum(
        rng.uniform(0.3, 1.0) * np.sin(angle * k + rng.uniform(0, 6)) / k**0.5
        for k in (2, 3, 5, 9, 17, 31, 60)
    )
    heights = 9 + 4.0 * profile + rng.uniform(0, 2.0, len(angle))
    x, y = distance * np.cos(angle), distance * np.sin(angle)
    low = np.stack([x, y, np.full_like(x, -1.0)], axis=1)
    high = np.stack([x, y, np.maximum(heights, 3.0)], axis=1)
    n = len(angle)
    faces = [(i, (i + 1) % n, n + (i + 1) % n, n + i) for i in range(n)]
    mesh.add(np.concatenate([low, high]), faces, Surface("grass", (0.04, 0.07, 0.03)))
    return mesh.build()
