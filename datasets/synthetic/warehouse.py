"""Forklifts, pallets, loads, racks and the hall around them, as meshes."""

from __future__ import annotations

import numpy as np

from perception.datasets.synthetic.mesh import Mesh, MeshBuilder, Surface
from perception.datasets.synthetic.vehicles import HEADLAMP, RUBBER, SEAM, TAILLAMP, TRIM, add_wheel

STEEL = Surface("metal", (0.4, 0.41, 0.43))
DARK = Surface("plastic", (0.025, 0.025, 0.028))
CARDBOARD = Surface("wood", (0.32, 0.2, 0.11))
RACK_LEVELS = (0.0, 1.65, 3.3, 4.95)
RACK_BAY = 2.8
RACK_DEPTH = 1.1
SEAT = (0.0, -0.32, 1.0)
"""Where the driver of a forklift sits, in the forklift's frame, metres."""


def make_forklift(rng: np.random.Generator, lift: float) -> Mesh:
    """A counterbalance forklift; its forks, `lift` metres above the ground, point along +y."""
    paints = ((0.75, 0.45, 0.02), (0.7, 0.18, 0.02), (0.5, 0.02, 0.02), (0.03, 0.2, 0.08),
              (0.35, 0.36, 0.37), (0.02, 0.09, 0.35), (0.8, 0.62, 0.05))  # fmt: skip
    paint = Surface("paint", paints[int(rng.integers(len(paints)))])
    mesh = MeshBuilder()
    mesh.box((0, -0.82, 0.68), (1.12, 0.62, 0.84), paint, 0.16)
    mesh.box((0, -0.1, 0.52), (1.1, 1.25, 0.4), paint, 0.05)
    mesh.box((0, -0.38, 0.82), (0.74, 0.7, 0.34), DARK, 0.06)
    mesh.box((0, -0.62, 1.22), (0.5, 0.12, 0.5), DARK, 0.05)
    mesh.box((0, 0.5, 0.82), (0.85, 0.18, 0.44), paint, 0.05)
    mesh.limb((0, 0.42, 1.0), (0, 0.22, 1.18), 0.02, 0.02, DARK, 6)
    mesh.lathe((0, 0.2, 1.2), [(-0.02, 0.17), (0.02, 0.17)], DARK, axis=1, segments=14)
    for sx in (-1, 1):
        add_wheel(mesh, sx * 0.5, 0.55, 0.34, 0.24, 6)
        add_wheel(mesh, sx * 0.46, -0.86, 0.26, 0.2, 6)
        mesh.limb((sx * 0.5, 0.5, 0.8), (sx * 0.46, 0.16, 2.1), 0.035, 0.035, DARK, 6)
        mesh.limb((sx * 0.5, -0.8, 1.0), (sx * 0.46, -0.66, 2.1), 0.035, 0.035, DARK, 6)
        mesh.limb((sx * 0.46, 0.16, 2.1), (sx * 0.46, -0.66, 2.1), 0.035, 0.035, DARK, 6)
        mesh.ellipsoid((sx * 0.46, 0.24, 1.9), (0.07, 0.05, 0.07), HEADLAMP, 8)
        mesh.box((sx * 0.42, -1.12, 0.95), (0.16, 0.06, 0.1), TAILLAMP, 0.02)
    for y in np.linspace(-0.62, 0.12, 6):
        mesh.box((0, float(y), 2.1), (0.92, 0.035, 0.05), DARK)
    mesh.lathe(
        (0, -0.6, 2.14), [(0, 0.05), (0.12, 0.04)], Surface("lamp", (0.9, 0.35, 0.02)), axis=2
    )
    top = max(2.15, lift + 1.1)
    for sx in (-1, 1):
        mesh.box((sx * 0.36, 0.98, top / 2 + 0.05), (0.1, 0.14, top), DARK, 0.01)
        mesh.box((sx * 0.27, 1.02, top / 2), (0.06, 0.1, top - 0.1), STEEL, 0.01)
        mesh.box((sx * 0.26, 1.68, lift + 0.04), (0.12, 1.15, 0.05), DARK, 0.015)
        mesh.box((sx * 0.26, 1.13, lift + 0.3), (0.12, 0.05, 0.55), DARK, 0.01)
    for z in (0.5, top * 0.6, top):
        mesh.box((0, 0.98, z), (0.75, 0.08, 0.09), DARK)
    for z in (lift + 0.15, lift + 0.5):
        mesh.box((0, 1.1, z), (0.98, 0.06, 0.1), DARK, 0.01)
    for x in np.linspace(-0.46, 0.46, 6):
        mesh.box((float(x), 1.09, lift + 0.85), (0.03, 0.03, 0.75), DARK)
    mesh.box((0, 1.09, lift + 1.22), (0.96, 0.04, 0.04), DARK)
    return mesh.build()


def make_pallet(rng: np.random.Generator) -> Mesh:
    """A wooden pallet, 0.8 m x 1.2 m x 0.144 m as in EN 13698-1, rarely a blue plastic one."""
    tone = float(rng.uniform(0.6, 1.3))
    wood = Surface("wood", (0.42 * tone, 0.29 * tone, 0.16 * tone))
    if rng.random() < 0.12:
        wood = Surface("plastic", (0.02, 0.07, 0.3))
    mesh = MeshBuilder()
    for x in np.linspace(-0.33, 0.33, 5):
        mesh.box((float(x), 0, 0.133), (0.13, 1.2, 0.022), wood, 0.004)
    for y in (-0.53, 0, 0.53):
        mesh.box((0, y, 0.111), (0.8, 0.14, 0.022), wood)
        for x in (-0.35, 0, 0.35):
            mesh.box((x, y, 0.061), (0.1, 0.14, 0.078), wood)
    for x in (-0.35, 0, 0.35):
        mesh.box((x, 0, 0.011), (0.1, 1.2, 0.022), wood)
    return mesh.build()


def make_load(rng: np.random.Generator, highest: float = 1.3) -> Mesh:
    """Cartons, drums, sacks or a wrapped stack for a pallet; it stands on z = 0."""
    mesh, kind = MeshBuilder(), int(rng.integers(4))
    if kind == 0:
        layers = int(rng.integers(1, max(2, int(highest / 0.32) + 1)))
        for layer in range(layers):
            for x in (-0.2, 0.2):
                for y in (-0.4, 0, 0.4):
                    if layer < layers - 1 or rng.random() < 0.8:
                        tone = float(rng.uniform(0.75, 1.2))
                        r, g, b = CARDBOARD.color
                        card = Surface("wood", (r * tone, g * tone, b * tone))
                        mesh.box((x, y, 0.16 + 0.32 * layer), (0.38, 0.38, 0.31), card, 0.01)
                        mesh.box((x, y, 0.318 + 0.32 * layer), (0.06, 0.38, 0.004), SEAM)
        if layers == 1:
            mesh.box((0, 0, 0.1), (0.6, 0.9, 0.2), CARDBOARD, 0.01)
    elif kind == 1:
        color = Surface(
            "paint",
            ((0.02, 0.08, 0.3), (0.03, 0.03, 0.03), (0.4, 0.05, 0.03))[int(rng.integers(3))],
        )
        for x in (-0.2, 0.2):
            for y in (-0.4, 0.0, 0.4):
                rib = [
                    (0, 0.18),
                    (0.28, 0.18),
                    (0.3, 0.195),
                    (0.32, 0.18),
                    (0.58, 0.18),
                    (0.6, 0.195),
                    (0.62, 0.18),
                    (0.88, 0.18),
                ]
                mesh.lathe((x, y, 0), [(z, r) for z, r in rib], color, axis=2, segments=14)
    elif kind == 2:
        sack = Surface("cloth", (0.5, 0.47, 0.4))
        for layer in range(int(rng.integers(2, 6))):
            for x in (-0.2, 0.2):
                for y in (-0.38, 0, 0.38):
                    mesh.ellipsoid((x, y, 0.09 + 0.16 * layer), (0.22, 0.22, 0.11), sack, 10)
    else:
        height = float(rng.uniform(0.6, highest))
        film = Surface("glass", tuple(float(c) for c in rng.uniform(0.15, 0.5, 3)))  # type: ignore[arg-type]
        mesh.box((0, 0, height / 2), (0.78, 1.16, height), film, 0.04)
    return mesh.build()


def make_rack(bays: int) -> Mesh:
    """A pallet rack along y, its front at +x: posts, braces and beams, without pallets."""
    mesh = MeshBuilder()
    post, beam = Surface("paint", (0.02, 0.08, 0.35)), Surface("paint", (0.75, 0.22, 0.02))
    height, length = RACK_LEVELS[-1] + 1.3, bays * RACK_BAY
    for i in range(bays + 1):
        y = i * RACK_BAY - length / 2
        for x in (-RACK_DEPTH / 2, RACK_DEPTH / 2):
            mesh.box((x, y, height / 2), (0.09, 0.09, height), post)
        for k in range(int(height / 0.9)):
            mesh.limb(
                (-RACK_DEPTH / 2, y, 0.3 + 0.9 * k),
                (RACK_DEPTH / 2, y, 0.9 + 0.9 * k),
                0.02,
                0.02,
                STEEL,
                4,
            )
        mesh.box(
            (RACK_DEPTH / 2 + 0.1, y, 0.2),
            (0.08, 0.3, 0.4),
            Surface("paint", (0.75, 0.55, 0.02)),
            0.02,
        )
    for level in RACK_LEVELS[1:]:
        for x in (-RACK_DEPTH / 2, RACK_DEPTH / 2):
            mesh.box((x, 0, level - 0.06), (0.05, length, 0.11), beam)
    return mesh.build()


def make_hall(rng: np.random.Generator, width: float, y0: float, y1: float, height: float) -> Mesh:
    """Floor with painted lanes, walls, roof, trusses, columns, doors and strips of light."""
    mesh = MeshBuilder()
    tone = float(rng.uniform(0.12, 0.4))
    floor = Surface("concrete", (tone, tone * float(rng.uniform(0.95, 1.03)), tone * 0.97))
    half, middle, length = width / 2, (y0 + y1) / 2, y1 - y0
    mesh.box((0, middle, -0.05), (width, length, 0.1), floor)
    wall = Surface(
        "plaster", tuple(float(c) for c in rng.uniform(0.2, 0.6) * rng.uniform(0.9, 1.1, 3))
    )  # type: ignore[arg-type]
    for x in (-half, half):
        mesh.box((x, middle, height / 2), (0.2, length, height), wall)
    for y in (y0, y1):
        mesh.box((0, y, height / 2), (width, 0.2, height), wall)
    mesh.box(
        (0, middle, height + 0.1), (width, length, 0.1), Surface("concrete", (0.25, 0.25, 0.25))
    )
    paint = Surface("marking", (0.65, 0.45, 0.03) if rng.random() < 0.75 else (0.6, 0.6, 0.6))
    for x in (-1.9, 1.9):
        mesh.box((x, middle, 0.003), (0.1, length, 0.004), paint)
    for y in np.arange(y0 + 6, y1, float(rng.uniform(7, 14))):
        mesh.box((0, float(y), 0.004), (3.8, 0.1, 0.004), paint)
    for y in np.arange(y0 + 3, y1, 6.0):
        mesh.box((0, float(y), height - 0.5), (width, 0.12, 0.14), STEEL)
        mesh.box((0, float(y), height - 0.1), (width, 0.12, 0.14), STEEL)
        for x in (-half * 0.8, half * 0.8):
            mesh.box((x, float(y), height / 2), (0.25, 0.25, height), STEEL, 0.02)
            mesh.box((x, float(y), 0.6), (0.3, 0.3, 1.2), Surface("paint", (0.7, 0.5, 0.02)), 0.02)
    glow = Surface("lamp", (0.9, 0.92, 0.95))
    for x in (-half * 0.5, 0.0, half * 0.5):
        for y in np.arange(y0 + 3, y1, 5.0):
            mesh.box((x, float(y), height - 0.62), (0.18, 1.5, 0.06), glow)
    for x in (-half * 0.45, half * 0.45):
        mesh.box((x, y1 - 0.12, 1.9), (3.4, 0.1, 3.8), Surface("plastic", (0.3, 0.32, 0.35)), 0.02)
        for z in np.arange(0.4, 3.7, 0.4):
            mesh.box((x, y1 - 0.18, float(z)), (3.4, 0.03, 0.02), SEAM)
    return mesh.build()


def make_machine(rng: np.random.Generator) -> Mesh:
    """A machine, cabinet or conveyor: large, and none of the classes."""
    mesh = MeshBuilder()
    r, g, b = (float(c) for c in rng.uniform(0.05, 0.5, 3))
    body = Surface("paint", (r, g, b))
    if rng.random() < 0.5:
        mesh.box((0, 0, 0.9), (1.3, 2.2, 1.8), body, 0.05)
        mesh.box((0.66, 0.2, 1.1), (0.06, 1.1, 0.8), Surface("glass", (0.02, 0.025, 0.03)), 0.02)
        mesh.box((0.7, -0.8, 1.3), (0.1, 0.4, 0.5), TRIM, 0.02)
        mesh.limb((0, -0.9, 1.8), (0, -0.9, 2.1), 0.03, 0.03, Surface("lamp", (0.05, 0.6, 0.1)), 8)
    else:
        mesh.box((0, 0, 0.75), (0.7, 4.0, 0.12), RUBBER, 0.03)
        for sx in (-1, 1):
            mesh.box((sx * 0.38, 0, 0.76), (0.06, 4.0, 0.2), body, 0.01)
            for y in (-1.8, 0.0, 1.8):
                mesh.box((sx * 0.36, y, 0.35), (0.07, 0.07, 0.7), STEEL)
    return mesh.build()
