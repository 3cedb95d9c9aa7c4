"""People on foot and on two wheels, as meshes."""

from __future__ import annotations

import numpy as np

from perception.datasets.synthetic.mesh import Mesh, MeshBuilder, Point, Surface
from perception.datasets.synthetic.vehicles import (
    CHROME,
    HEADLAMP,
    PLATE,
    RIM,
    RUBBER,
    SEAM,
    TAILLAMP,
    TRIM,
    _paint,
)

SKINS = ((0.55, 0.33, 0.23), (0.42, 0.24, 0.15), (0.25, 0.13, 0.08), (0.12, 0.06, 0.04))
HAIRS = ((0.01, 0.008, 0.006), (0.06, 0.03, 0.015), (0.25, 0.16, 0.07), (0.3, 0.3, 0.3))


def _cloth(rng: np.random.Generator, bright: bool = False) -> Surface:
    """Dull colours mostly; safety colours when asked."""
    if bright:
        color = ((0.8, 0.7, 0.02), (0.85, 0.25, 0.02))[int(rng.integers(2))]
        return Surface("cloth", color)
    value, tint = rng.uniform(0.01, 0.45), rng.uniform(0.5, 1.3, 3)
    r, g, b = (round(float(np.clip(value * t, 0.008, 0.8)), 3) for t in tint)
    return Surface("cloth", (r, g, b))


class Figure:
    """The colours of one person and the parts put on a skeleton given as joints."""

    def __init__(self, rng: np.random.Generator, bright: bool = False) -> None:
        self.skin = Surface("skin", SKINS[int(rng.integers(len(SKINS)))])
        self.hair = Surface("hair", HAIRS[int(rng.integers(len(HAIRS)))])
        self.top = _cloth(rng, bright)
        self.legs = _cloth(rng)
        self.shoes = Surface("plastic", (0.02, 0.018, 0.016))
        self.bulk = float(rng.uniform(0.88, 1.2))

    def leg(self, mesh: MeshBuilder, hip: Point, knee: Point, ankle: Point) -> None:
        mesh.limb(hip, knee, 0.085 * self.bulk, 0.06 * self.bulk, self.legs)
        mesh.limb(knee, ankle, 0.06 * self.bulk, 0.045 * self.bulk, self.legs)
        mesh.ellipsoid(
            (ankle[0], ankle[1] + 0.06, ankle[2] - 0.04), (0.05, 0.13, 0.05), self.shoes, 8
        )

    def arm(self, mesh: MeshBuilder, shoulder: Point, elbow: Point, hand: Point) -> None:
        mesh.limb(shoulder, elbow, 0.055 * self.bulk, 0.045 * self.bulk, self.top)
        mesh.limb(elbow, hand, 0.043 * self.bulk, 0.032, self.top)
        mesh.ellipsoid(hand, (0.04, 0.05, 0.05), self.skin, 8)

    def torso(self, mesh: MeshBuilder, hips: Point, chest: Point) -> None:
        """Rings of a slightly flat trunk from hips to the neck."""
        a, b = np.array(hips), np.array(chest)
        angle = np.linspace(0, 2 * np.pi, 12, endpoint=False)
        rings = []
        sizes = [(-0.12, 0.12, 0.1), (0, 0.17, 0.12), (0.35, 0.15, 0.11), (0.75, 0.19, 0.125),
                 (1.0, 0.2, 0.11), (1.1, 0.12, 0.08), (1.16, 0.055, 0.055)]  # fmt: skip
        for t, rx, ry in sizes:
            c = a + (b - a) * t
            rings.append([
                (c[0] + rx * self.bulk * np.cos(v), c[1] + ry * self.bulk * np.sin(v), c[2])
                for v in angle
            ])  # fmt: skip
        mesh.loft(np.array(rings), self.top)

    def head(self, mesh: MeshBuilder, at: Point, helmet: Surface | None = None) -> None:
        x, y, z = at
        mesh.limb((x, y - 0.01, z - 0.2), (x, y, z - 0.05), 0.055, 0.055, self.skin)
        if helmet is not None:
            mesh.ellipsoid((x, y, z + 0.02), (0.13, 0.155, 0.145), helmet)
            mesh.ellipsoid((x, y + 0.06, z - 0.0), (0.105, 0.11, 0.075), SEAM)
            return
        mesh.ellipsoid((x, y + 0.01, z), (0.078, 0.098, 0.118), self.skin)
        mesh.ellipsoid((x, y - 0.022, z + 0.035), (0.088, 0.1, 0.1), self.hair)


def make_person(rng: np.random.Generator, bright: bool = False, phase: float | None = None) -> Mesh:
    """A person standing or walking; `phase` in radians sets the stride, random when not given."""
    figure, mesh = Figure(rng, bright), MeshBuilder()
    height = float(rng.normal(1.0, 0.05)) * (0.68 if rng.random() < 0.08 else 1.0)
    walking = rng.random() < 0.75 or phase is not None
    turn = float(rng.uniform(0, 2 * np.pi)) if phase is None else phase
    swing = (0.42 if walking else 0.05) * np.sin(turn)
    hip, shoulder = 0.92, 1.42
    for side, sign in ((-1, 1.0), (1, -1.0)):
        stride = swing * sign
        lift = max(0.0, np.cos(turn) * sign) * (0.12 if walking else 0)
        knee = (side * 0.095, 0.43 * np.sin(stride) + lift * 0.9, hip - 0.43 * np.cos(stride))
        ankle = (side * 0.095, knee[1] + 0.4 * np.sin(stride * 0.7) - lift * 1.4, 0.09 + lift * 0.7)
        figure.leg(mesh, (side * 0.09, 0, hip), knee, ankle)
        back = -stride * 0.9
        elbow = (side * 0.27, 0.28 * np.sin(back), shoulder - 0.28 * np.cos(back))
        hand = (side * 0.28, elbow[1] + 0.25 * np.sin(back + 0.5), elbow[2] - 0.23)
        figure.arm(mesh, (side * 0.2 * figure.bulk, 0, shoulder), elbow, hand)
    figure.torso(mesh, (0, 0, hip), (0, 0.01, 1.43))
    figure.head(mesh, (0, 0.03, 1.65))
    extra = rng.random()
    if extra < 0.2:
        mesh.box((0, -0.19, 1.22), (0.3, 0.18, 0.45), _cloth(rng), 0.06)
    elif extra < 0.35:
        mesh.box((0.32, 0.02, 0.72), (0.1, 0.3, 0.26), _cloth(rng), 0.03)
    elif extra < 0.5:
        skirt = [(0.5, 0.25), (0.8, 0.2), (1.0, 0.17)]
        mesh.lathe((0, 0, 0), skirt, figure.top, axis=2, segments=14)
    built = mesh.build()
    built.vertices *= height
    return built


def _wheel(mesh: MeshBuilder, y: float, radius: float, tyre: float, spokes: int) -> None:
    """A thin wheel with the tyre as a ring about x."""
    angle = np.linspace(0, 2 * np.pi, 8, endpoint=False)
    profile = [(float(tyre * np.cos(a)), float(radius - tyre + tyre * np.sin(a))) for a in angle]
    mesh.lathe((0, y, radius), [*profile, profile[0]], RUBBER, segments=28, caps=False)
    rim = [(-tyre * 0.7, radius - 2 * tyre), (tyre * 0.7, radius - 2 * tyre)]
    mesh.lathe((0, y, radius), rim, RIM, segments=28, caps=False)
    for i in range(spokes):
        a = 2 * np.pi * i / spokes
        reach = radius - 1.8 * tyre
        tip = (0.0, y + reach * np.cos(a), radius + reach * np.sin(a))
        width = 0.004 if spokes > 8 else 0.02
        mesh.limb((0, y, radius), tip, width, width, RIM, 4)


def make_motorcycle(rng: np.random.Generator) -> Mesh:
    """A motorcycle or scooter, nearly always with its rider, who belongs to the object."""
    mesh, paint = MeshBuilder(), _paint(rng)
    scooter = rng.random() < 0.35
    radius, base = (0.24, 1.25) if scooter else (0.31, 1.42)
    tyre = 0.055 if scooter else 0.065
    front, rear = base / 2, -base / 2
    for y in (front, rear):
        _wheel(mesh, y, radius, tyre, 6)
    bar = (0.0, front - 0.32, 1.02)
    for sx in (-1, 1):
        mesh.limb(
            (sx * 0.08, front, radius), (sx * 0.09, front - 0.28, 0.98), 0.028, 0.03, CHROME, 6
        )
        mesh.limb(
            (0, bar[1], bar[2]), (sx * 0.36, bar[1] - 0.1, bar[2] + 0.04), 0.018, 0.022, TRIM, 5
        )
        mesh.ellipsoid((sx * 0.36, bar[1] + 0.02, bar[2] + 0.19), (0.07, 0.02, 0.045), TRIM, 8)
        mesh.limb(
            (sx * 0.33, bar[1] - 0.05, bar[2]),
            (sx * 0.36, bar[1] + 0.02, bar[2] + 0.15),
            0.01,
            0.01,
            TRIM,
            4,
        )
        mesh.ellipsoid(
            (sx * 0.14, rear + 0.0, 0.8),
            (0.03, 0.03, 0.03),
            Surface("plastic", (0.8, 0.25, 0.01)),
            6,
        )
    mesh.ellipsoid((0, front - 0.2, 0.88), (0.1, 0.08, 0.1), HEADLAMP)
    mesh.ellipsoid((0, front - 0.26, 0.92), (0.16, 0.1, 0.16), paint)
    mesh.ellipsoid((0, front, radius * 1.75), (0.075, 0.28, 0.07), paint)
    if scooter:
        mesh.box((0, front - 0.42, 0.68), (0.42, 0.1, 0.6), paint, 0.05)
        mesh.box((0, 0.02, 0.3), (0.36, 0.55, 0.09), TRIM, 0.03)
        mesh.ellipsoid((0, rear + 0.22, 0.55), (0.2, 0.42, 0.22), paint)
        mesh.box((0, rear + 0.25, 0.78), (0.28, 0.7, 0.1), SEAM, 0.04)
    else:
        mesh.ellipsoid((0, 0.16, 0.84), (0.16, 0.3, 0.14), paint)
        mesh.box((0, 0.08, 0.5), (0.3, 0.42, 0.36), TRIM, 0.08)
        mesh.lathe((0, 0.12, 0.62), [(-0.2, 0.1), (0.2, 0.1)], CHROME, axis=0, segments=10)
        mesh.box((0, rear + 0.42, 0.8), (0.25, 0.68, 0.1), SEAM, 0.04)
        mesh.ellipsoid((0, rear + 0.12, 0.82), (0.12, 0.26, 0.08), paint)
        mesh.limb((0.16, 0.1, 0.32), (0.18, rear - 0.12, 0.4), 0.04, 0.055, CHROME, 8)
        mesh.limb((0, rear, radius), (0, 0.0, 0.42), 0.04, 0.05, TRIM, 6)
    mesh.box((0, rear - 0.14, 0.76), (0.16, 0.08, 0.07), TAILLAMP, 0.02)
    mesh.box((0, rear - 0.2, 0.58), (0.2, 0.02, 0.16), PLATE)
    mesh.ellipsoid((0, rear, radius * 1.8), (0.09, 0.24, 0.06), TRIM)
    if rng.random() < 0.93:
        add_rider(
            mesh,
            rng,
            seat=(0, rear + 0.48, 0.86),
            bar=(0.3, bar[1] - 0.08, 1.08),
            foot=(0.17, 0.12, 0.36),
            lean=0.2,
            helmet=0.9,
        )
        if rng.random() < 0.15:
            add_rider(
                mesh,
                rng,
                seat=(0, rear + 0.14, 0.9),
                bar=(0.2, 0.0, 1.05),
                foot=(0.19, rear + 0.3, 0.42),
                lean=0.05,
                helmet=0.7,
            )
    if rng.random() < 0.25:
        mesh.box(
            (0, rear - 0.05, 1.0),
            (0.42, 0.38, 0.36),
            _paint(rng) if rng.random() < 0.6 else TRIM,
            0.05,
        )
    return mesh.build()


def make_bicycle(rng: np.random.Generator) -> Mesh:
    """A bicycle, nearly always with its rider, who belongs to the object."""
    mesh, paint = MeshBuilder(), _paint(rng)
    radius, base = 0.34, 1.05
    front, rear = base / 2, -base / 2
    for y in (front, rear):
        _wheel(mesh, y, radius, 0.022, 14)
    crank: Point = (0.0, -0.1, 0.3)
    saddle: Point = (0.0, -0.24, 0.95)
    head: Point = (0.0, front - 0.16, 0.85)
    tubes = [(crank, saddle), (crank, head), ((0, -0.2, 0.78), head), ((0, rear, radius), crank),
             ((0, rear, radius), (0, -0.2, 0.78)), ((0, front, radius), head),
             (head, (0, front - 0.2, 1.02))]  # fmt: skip
    for a, b in tubes:
        mesh.limb(a, b, 0.019, 0.019, paint, 6)
    for sx in (-1, 1):
        mesh.limb((0, front - 0.2, 1.02), (sx * 0.28, front - 0.26, 1.04), 0.014, 0.018, TRIM, 5)
        mesh.limb(crank, (sx * 0.1, -0.1 + sx * 0.12, 0.3 - sx * 0.11), 0.014, 0.014, CHROME, 5)
    mesh.box((0, -0.27, 0.98), (0.15, 0.26, 0.06), SEAM, 0.025)
    mesh.lathe((0.03, -0.1, 0.3), [(-0.006, 0.1), (0.006, 0.1)], CHROME, axis=0, segments=14)
    mesh.ellipsoid((0, rear - 0.05, 0.72), (0.03, 0.02, 0.03), TAILLAMP, 8)
    if rng.random() < 0.35:
        mesh.box((0, front + 0.02, 0.92), (0.34, 0.26, 0.22), TRIM, 0.03)
    if rng.random() < 0.92:
        add_rider(
            mesh,
            rng,
            seat=(0, -0.24, 1.02),
            bar=(0.24, front - 0.24, 1.07),
            foot=(0.1, 0.0, 0.3),
            lean=0.24,
            helmet=0.35,
            pedal=0.16,
        )
    return mesh.build()


def add_rider(
    mesh: MeshBuilder, rng: np.random.Generator, *, seat: Point, bar: Point, foot: Point,
    lean: float, helmet: float, pedal: float = 0.0,
) -> None:  # fmt: skip
    """A rider from seat to handlebar; `lean` is how far the chest is ahead of the seat, metres."""
    figure = Figure(rng, bright=rng.random() < 0.12)
    _, y, z = seat
    chest = (0.0, y + lean, z + 0.5)
    figure.torso(mesh, (0, y, z + 0.04), chest)
    shell = _paint(rng) if rng.random() < helmet else None
    figure.head(mesh, (0, chest[1] + 0.07, chest[2] + 0.22), shell)
    for sx in (-1, 1):
        drop = pedal * sx
        ankle = (sx * foot[0], foot[1] - drop * 0.5, foot[2] + 0.08 + drop)
        knee = (sx * (foot[0] + 0.06), y + 0.42, z * 0.62 + ankle[2] * 0.38 + 0.06)
        figure.leg(mesh, (sx * 0.1, y, z + 0.02), knee, ankle)
        hand = (sx * bar[0], bar[1], bar[2])
        shoulder = (sx * 0.19 * figure.bulk, chest[1], chest[2])
        elbow = (sx * 0.3, (shoulder[1] + hand[1]) / 2 - 0.06, (shoulder[2] + hand[2]) / 2 - 0.06)
        figure.arm(mesh, shoulder, elbow, hand)
