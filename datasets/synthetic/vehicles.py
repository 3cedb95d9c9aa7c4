"""Road vehicles as meshes: bodies lofted from side profiles, glass, wheels, lamps and plates.

A body is a row of cross-sections from tail to nose. Each has the same points from the underside
over sill, waist, belt line and window to the roof, so that one function of (station, segment)
says which faces are paint, glass or trim.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from perception.datasets.synthetic.mesh import Mesh, MeshBuilder, Surface

GLASS = Surface("glass", (0.012, 0.016, 0.02))
RUBBER = Surface("rubber", (0.012, 0.012, 0.013))
TRIM = Surface("plastic", (0.015, 0.015, 0.017))
SEAM = Surface("plastic", (0.006, 0.006, 0.006))
RIM = Surface("metal", (0.55, 0.56, 0.58))
CHROME = Surface("metal", (0.8, 0.8, 0.82))
HEADLAMP = Surface("headlamp", (0.9, 0.92, 0.95))
TAILLAMP = Surface("taillamp", (0.5, 0.008, 0.008))
AMBER = Surface("plastic", (0.8, 0.25, 0.01))
PLATE = Surface("plastic", (0.75, 0.75, 0.7))
REFLECTOR = Surface("plastic", (0.75, 0.03, 0.02))

# Car paints as linear RGB; whites, greys and blacks are repeated as they are the most sold colours.
PAINTS: tuple[tuple[float, float, float], ...] = (
    (0.8, 0.8, 0.8), (0.75, 0.75, 0.74), (0.4, 0.41, 0.42), (0.22, 0.23, 0.24), (0.02, 0.02, 0.022),
    (0.01, 0.01, 0.012), (0.08, 0.085, 0.09), (0.35, 0.01, 0.012), (0.5, 0.02, 0.01),
    (0.01, 0.04, 0.25), (0.02, 0.1, 0.4), (0.01, 0.02, 0.08), (0.03, 0.12, 0.05), (0.3, 0.22, 0.13),
    (0.6, 0.3, 0.02), (0.12, 0.05, 0.03), (0.2, 0.3, 0.38), (0.7, 0.5, 0.05), (0.45, 0.4, 0.33),
)  # fmt: skip


@dataclass(frozen=True)
class Body:
    """Side profile and widths of a body, metres; y grows towards the nose."""

    length: float
    width: float
    height: float
    wheelbase: float
    wheel: float  # outer radius of the tyre
    clearance: float
    belt: float  # height of the lower edge of the side windows
    hood: float  # height of the front edge of the bonnet
    cowl: float  # foot of the windscreen, distance from the nose
    roof_front: float  # distance from the nose
    roof_rear: float  # distance from the tail
    deck: float  # foot of the rear window, distance from the tail
    deck_height: float
    roof_width: float = 0.76  # of the body's width
    window_top: float = 0.11  # below the roof
    front_overhang: float = 0.85
    rounding: float = 0.16  # how much nose and tail are narrower
    pillars: tuple[float, ...] = (0.5,)  # between the side windows, fraction of the cabin
    seams: tuple[float, ...] = (0.05, 0.5, 0.93)  # of the doors, fraction of the cabin
    glazed_rear: float = 1.0  # fraction of the cabin, from the front, that has side windows

    @property
    def front_axle(self) -> float:
        return self.length / 2 - self.front_overhang

    @property
    def rear_axle(self) -> float:
        return self.front_axle - self.wheelbase


SEDAN = Body(4.65, 1.82, 1.45, 2.75, 0.33, 0.2, 0.93, 0.72, 1.25, 2.0, 1.35, 0.55, 0.98)
HATCHBACK = Body(4.05, 1.76, 1.47, 2.55, 0.31, 0.19, 0.92, 0.74, 1.0, 1.65, 0.55, 0.1, 0.98)
ESTATE = Body(
    4.75, 1.83, 1.47, 2.8, 0.33, 0.19, 0.94, 0.73, 1.25, 1.95, 0.5, 0.08, 1.0, pillars=(0.42, 0.72)
)
SUV = Body(
    4.6, 1.9, 1.72, 2.72, 0.37, 0.25, 1.08, 0.95, 1.15, 1.75, 0.5, 0.1, 1.12, 0.8, 0.12,
    pillars=(0.42, 0.74),
)  # fmt: skip
CITY = Body(3.5, 1.64, 1.5, 2.35, 0.29, 0.18, 0.94, 0.8, 0.75, 1.35, 0.35, 0.07, 0.98)
PEOPLE_CARRIER = Body(
    4.8, 1.92, 1.85, 2.95, 0.34, 0.2, 1.08, 0.9, 0.75, 1.55, 0.4, 0.08, 1.12, 0.82, 0.14,
    pillars=(0.33, 0.66),
)  # fmt: skip
COUPE = Body(
    4.5, 1.86, 1.32, 2.65, 0.34, 0.16, 0.88, 0.68, 1.4, 2.15, 1.5, 0.35, 0.95, 0.7, pillars=(0.75,)
)
PICKUP = Body(5.3, 1.92, 1.8, 3.2, 0.39, 0.3, 1.12, 1.02, 1.35, 1.85, 2.05, 1.85, 1.1, 0.8, 0.12)
PANEL_VAN = Body(
    5.6, 2.02, 2.45, 3.4, 0.36, 0.24, 1.2, 1.0, 0.55, 1.5, 0.2, 0.05, 1.2, 0.9, 0.35,
    rounding=0.1, glazed_rear=0.28, pillars=(), seams=(0.05, 0.28, 0.6),
)  # fmt: skip
BUS = Body(
    11.8, 2.55, 3.1, 6.0, 0.48, 0.3, 1.15, 1.1, 0.04, 0.3, 0.22, 0.04, 1.3, 0.93, 0.55,
    front_overhang=2.6, rounding=0.04, pillars=(0.14, 0.28, 0.42, 0.56, 0.7, 0.84),
    seams=(0.02, 0.11),
)  # fmt: skip
TRUCK_CAB = Body(
    2.1, 2.45, 2.75, 10.0, 0.48, 0.55, 1.55, 1.5, 0.04, 0.32, 0.1, 0.03, 1.6, 0.92, 0.45,
    front_overhang=1.25, rounding=0.06, pillars=(), seams=(0.1, 0.72), glazed_rear=0.66,
)  # fmt: skip
RICKSHAW = Body(
    2.75, 1.36, 1.75, 2.0, 0.22, 0.22, 0.78, 0.7, 0.35, 0.75, 0.25, 0.08, 0.9, 0.9, 0.13,
    front_overhang=0.4, rounding=0.4, pillars=(0.4,), seams=(),
)  # fmt: skip


def vary(body: Body, rng: np.random.Generator) -> Body:
    """The same style with proportions a few per cent away, so that no two cars are alike."""
    length, width, height = (float(v) for v in rng.uniform(0.95, 1.05, 3))
    return replace(
        body,
        length=body.length * length,
        wheelbase=body.wheelbase * length,
        front_overhang=body.front_overhang * length,
        cowl=body.cowl * length,
        deck=body.deck * length,
        roof_front=body.roof_front * length,
        roof_rear=body.roof_rear * length * float(rng.uniform(0.93, 1.07)),
        width=body.width * width,
        height=body.height * height,
        belt=body.belt * (1 + (height - 1) * 0.6),
        hood=body.hood * (1 + (height - 1) * 0.6),
    )


def _stations(body: Body, arches: tuple[float, ...]) -> np.ndarray:
    """Positions along y, dense at wheel arches, ends, window posts and door seams."""
    half = body.length / 2
    ends = np.array([0.0, 0.02, 0.06, 0.12, 0.2, 0.35])
    parts = [np.linspace(-half, half, 34), half - ends, -half + ends]
    for axle in arches:
        parts.append(axle + body.wheel * 1.18 * np.sin(np.linspace(-1.57, 1.57, 15)))
    rear, front = _cabin(body)
    for fraction in body.pillars:
        parts.append(front - fraction * (front - rear) + np.array([-0.05, 0.05]))
    for fraction in body.seams:
        parts.append(front - fraction * (front - rear) + np.array([-0.009, 0.009]))
    parts.append(front - body.glazed_rear * (front - rear) + np.zeros(1))
    edges = [half - body.cowl, half - body.roof_front, body.roof_rear - half, body.deck - half]
    parts.append(np.array(edges))
    y = np.unique(np.round(np.clip(np.concatenate(parts), -half, half), 3))
    return y


def _cabin(body: Body) -> tuple[float, float]:
    """Rear and front end of the glazed cabin along y."""
    return body.deck - body.length / 2, body.length / 2 - body.cowl


def add_body(
    mesh: MeshBuilder,
    body: Body,
    paint: Surface,
    arches: tuple[float, ...],
    *,
    side: Surface = GLASS,
    roof: Surface | None = None,
    lower: Surface | None = None,
    offset: float = 0.0,
    bed: float | None = None,
) -> None:
    """Loft the shell. `lower` colours it below the waist; `bed` opens the top behind that y."""
    y = _stations(body, arches)
    half = body.length / 2
    top_line = np.interp(
        y,
        [-half, body.deck - half, body.roof_rear - half, half - body.roof_front, half - body.cowl],
        [0, 0, 1, 1, 0],
    )
    rear, front = _cabin(body)
    belt = np.interp(
        y,
        [-half, -half + 0.06, rear, front, half - 0.25, half - 0.06, half],
        [body.deck_height - 0.12, body.deck_height - 0.02, body.deck_height, body.belt,
         body.hood + 0.06, body.hood, body.hood - 0.14],
    )  # fmt: skip
    # Smoothstep rounds the corners where windscreen and roof meet; the camber keeps the roof alive.
    top_line = top_line * top_line * (3 - 2 * top_line)
    middle = (rear + front) / 2
    camber = 0.035 * ((y - middle) / max(front - rear, 0.1) * 2) ** 2
    roof_line = belt + top_line * (body.height - belt) - camber * top_line
    u = np.abs(y) / half
    width = body.width / 2 * (1 - body.rounding * u**5 - 0.05 * np.clip((u - 0.97) / 0.03, 0, 1))
    bottom = np.full_like(y, body.clearance)
    for axle in arches:
        radius = body.wheel * 1.18
        inside = np.abs(y - axle) < radius
        arch = body.wheel + np.sqrt(np.maximum(radius**2 - (y - axle) ** 2, 0))
        bottom = np.where(inside, np.maximum(bottom, arch), bottom)
    bottom = bottom + 0.07 * np.clip((u - 0.96) / 0.04, 0, 1)

    waist = np.maximum(body.clearance + 0.5 * (belt - body.clearance), bottom + 0.02)
    waist = np.minimum(waist, belt - 0.05)
    sill = np.minimum(bottom + 0.06, waist - 0.01)
    inner = width * (0.93 - 0.05 * top_line)
    roof_half = width * (0.9 + (body.roof_width - 0.9) * top_line)
    window = roof_line - (body.window_top - 0.05) * top_line
    zero = np.zeros_like(y)
    right = [
        (zero, bottom), (width * 0.8, bottom), (width * 0.975, sill), (width, waist),
        (width * 0.985, belt - 0.07), (width * 0.94, belt), (inner, belt + 0.015 * top_line),
        (np.maximum(roof_half, inner + (roof_half - inner) * 0.92), window - 0.05 * top_line),
        (roof_half * (1 - 0.03 * top_line), roof_line - 0.03 * top_line),
        (roof_half * 0.82, roof_line + 0.01), (zero, roof_line + 0.03),
    ]  # fmt: skip
    points = len(right)
    rings = np.zeros((len(y), 2 * points - 2, 3))
    for k, (x, z) in enumerate(right):
        rings[:, k] = np.stack([x, y + offset, z], axis=1)
        if 0 < k < points - 1:
            rings[:, 2 * points - 2 - k] = np.stack([-x, y + offset, z], axis=1)

    glazed_end = front - body.glazed_rear * (front - rear)
    posts = [front - f * (front - rear) for f in body.pillars]
    doors = [front - f * (front - rear) for f in body.seams]

    def surface(station: int, segment: int) -> Surface:
        k = segment if segment < points - 1 else 2 * points - 3 - segment
        at = (y[station] + y[min(station + 1, len(y) - 1)]) / 2
        level = (top_line[station] + top_line[min(station + 1, len(y) - 1)]) / 2
        sloped = 0.03 < level < 0.97
        if k <= 1:
            return TRIM
        if k in (2, 3, 4) and any(abs(at - d) < 0.009 for d in doors):
            return SEAM
        if k == 2:
            return lower or paint
        if k == 6 and level > 0.12 and rear < at < front:
            if at < glazed_end or any(abs(at - p) < 0.05 for p in posts):
                return TRIM if at >= glazed_end else paint
            return side
        if k == 9 and sloped and (at > middle or body.glazed_rear > 0.5):
            return GLASS
        if k == 8 and sloped and body.length > 8:
            return GLASS
        if k >= 8 and bed is not None and at < bed:
            return SEAM
        return (roof or paint) if k >= 7 and level > 0.5 else paint

    mesh.loft(rings, surface)


def add_wheel(
    mesh: MeshBuilder, x: float, y: float, radius: float, width: float, spokes: int
) -> None:
    """A tyre on a spoked rim; x is the wheel's middle, the outer face looks away from x = 0."""
    out = 1.0 if x >= 0 else -1.0
    w = width / 2
    tyre = [
        (-w, radius * 0.6), (-w, radius * 0.9), (-w * 0.7, radius), (w * 0.7, radius),
        (w, radius * 0.92), (w, radius * 0.68), (w * 0.55, radius * 0.64),
    ]  # fmt: skip
    mesh.lathe((x, y, radius), [(out * a, r) for a, r in tyre], RUBBER, segments=24, caps=False)
    disc = [(w * 0.5, radius * 0.68), (w * 0.2, radius * 0.6), (w * 0.2, 0.02)]
    mesh.lathe((x, y, radius), [(out * a, r) for a, r in disc], TRIM, segments=20)
    ring = [(w * 0.6, radius * 0.69), (w * 0.85, radius * 0.66), (w * 0.55, radius * 0.58)]
    mesh.lathe((x, y, radius), [(out * a, r) for a, r in ring], RIM, segments=20, caps=False)
    face = x + out * w * 0.6
    for i in range(spokes):
        angle = 2 * np.pi * i / spokes + 0.3
        tip = (face, y + radius * 0.6 * np.cos(angle), radius + radius * 0.6 * np.sin(angle))
        mesh.limb((face, y, radius), tip, radius * 0.12, radius * 0.08, RIM, segments=5)
    mesh.ellipsoid((face, y, radius), (w * 0.35, radius * 0.16, radius * 0.16), RIM, 8)


def _front(mesh: MeshBuilder, body: Body, rng: np.random.Generator, paint: Surface) -> None:
    """Grille, lamps, bumper intake, plate and mirrors."""
    nose, w, z = body.length / 2, body.width / 2, body.hood
    style = int(rng.integers(3))
    lamp_width = float(rng.uniform(0.16, 0.24))
    for sx in (-1, 1):
        if style == 0:
            mesh.ellipsoid((sx * w * 0.7, nose - 0.1, z - 0.12), (lamp_width, 0.13, 0.09), HEADLAMP)
        else:
            mesh.box(
                (sx * w * 0.68, nose - 0.05, z - 0.11),
                (lamp_width * 1.8, 0.14, 0.10 if style == 1 else 0.15), HEADLAMP, 0.03,
            )  # fmt: skip
        mesh.ellipsoid((sx * w * 0.66, nose - 0.02, body.clearance + 0.2), (0.09, 0.05, 0.06), TRIM)
    grille = float(rng.uniform(0.45, 0.75))
    mesh.box((0, nose - 0.02, z - 0.13), (w * grille, 0.07, 0.13), TRIM, 0.02)
    mesh.box((0, nose + 0.012, z - 0.12), (w * grille * 0.9, 0.02, 0.02), CHROME)
    mesh.box((0, nose - 0.02, body.clearance + 0.16), (w * 1.3, 0.07, 0.12), TRIM, 0.03)
    mesh.box((0, nose + 0.01, body.clearance + 0.3), (0.5, 0.03, 0.11), PLATE, 0.005)
    _, front = _cabin(body)
    for sx in (-1, 1):
        at = (sx * (w + 0.08), front - 0.32, body.belt + 0.06)
        mesh.ellipsoid(at, (0.12, 0.07, 0.08), paint if rng.random() < 0.7 else TRIM, 8)


def _rear(mesh: MeshBuilder, body: Body, rng: np.random.Generator) -> None:
    """Tail lamps, bumper, plate, number plate recess and exhaust."""
    tail, w = -body.length / 2, body.width / 2
    z = body.deck_height - 0.17
    tall = body.deck < 0.2 and rng.random() < 0.6
    size = (0.2, 0.16, 0.38) if tall else (0.42, 0.16, 0.14)
    for sx in (-1, 1):
        mesh.box((sx * w * (0.8 if tall else 0.7), tail + 0.05, z), size, TAILLAMP, 0.03)
        mesh.box((sx * w * 0.72, tail + 0.02, body.clearance + 0.13), (0.18, 0.05, 0.04), REFLECTOR)
    mesh.box((0, tail + 0.01, z - 0.12), (0.52, 0.05, 0.12), PLATE, 0.005)
    mesh.box((0, tail + 0.03, body.clearance + 0.12), (w * 1.5, 0.1, 0.16), TRIM, 0.03)


def _wheels(mesh: MeshBuilder, body: Body, axles: tuple[float, ...], spokes: int) -> None:
    width = 0.2 if body.wheel < 0.42 else 0.28
    for axle in axles:
        for sx in (-1, 1):
            add_wheel(
                mesh, sx * (body.width / 2 - width / 2 - 0.02), axle, body.wheel, width, spokes
            )


def _paint(rng: np.random.Generator) -> Surface:
    color = np.array(PAINTS[int(rng.integers(len(PAINTS)))]) * rng.uniform(0.85, 1.1, 3)
    return Surface("paint", tuple(round(float(c), 3) for c in np.clip(color, 0.004, 0.9)))  # type: ignore[arg-type]


def make_car(rng: np.random.Generator) -> Mesh:
    """A passenger car (sedan, hatchback, estate, SUV, city car, people carrier, coupé) or a van."""
    if rng.random() < 0.1:
        return make_van(rng)
    styles = (SEDAN, HATCHBACK, ESTATE, SUV, CITY, PEOPLE_CARRIER, COUPE)
    chance = (0.27, 0.22, 0.13, 0.22, 0.06, 0.06, 0.04)
    style = styles[int(rng.choice(len(styles), p=chance))]
    return car_of(style, rng)


def car_of(style: Body, rng: np.random.Generator) -> Mesh:
    """A car of one style with random proportions, paint and details."""
    body, paint = vary(style, rng), _paint(rng)
    mesh = MeshBuilder()
    axles = (body.front_axle, body.rear_axle)
    roof = TRIM if rng.random() < 0.12 else None
    lower = TRIM if style in (SUV, PICKUP) and rng.random() < 0.6 else None
    bed = body.deck - body.length / 2 - 0.1 if style is PICKUP else None
    add_body(mesh, body, paint, axles, roof=roof, lower=lower, bed=bed)
    _front(mesh, body, rng, paint)
    _rear(mesh, body, rng)
    _wheels(mesh, body, axles, int(rng.integers(5, 8)))
    if style in (SUV, ESTATE) and rng.random() < 0.6:
        for sx in (-1, 1):
            x, z = sx * body.width * 0.31, body.height + 0.03
            mesh.limb((x, -body.length * 0.3, z), (x, body.length * 0.12, z), 0.02, 0.02, CHROME, 5)
    if style is PICKUP:
        wall, back = body.width / 2 - 0.06, -body.length / 2
        for sx in (-1, 1):
            mesh.box((sx * wall, back + 0.93, 1.13), (0.1, 1.75, 0.12), paint, 0.03)
        mesh.box((0, back + 0.06, 1.13), (wall * 2, 0.1, 0.12), paint, 0.03)
    if style is SEDAN and rng.random() < 0.12:
        mesh.box(
            (0, 0.0, body.height + 0.08),
            (0.5, 0.2, 0.15),
            Surface("plastic", (0.85, 0.7, 0.1)),
            0.03,
        )
    return mesh.build()


def make_van(rng: np.random.Generator) -> Mesh:
    """A panel van."""
    body = vary(PANEL_VAN, rng)
    paint = Surface("paint", (0.78, 0.78, 0.77)) if rng.random() < 0.6 else _paint(rng)
    mesh = MeshBuilder()
    axles = (body.front_axle, body.rear_axle)
    add_body(mesh, body, paint, axles, lower=TRIM if rng.random() < 0.5 else None)
    _front(mesh, body, rng, TRIM)
    _rear(mesh, body, rng)
    _wheels(mesh, body, axles, 6)
    back = -body.length / 2
    mesh.box((0, back - 0.0, 1.35), (0.012, 0.05, 1.9), SEAM)
    for sx in (-1, 1):
        if rng.random() < 0.6:
            mesh.box((sx * 0.42, back + 0.012, 1.75), (0.62, 0.05, 0.5), GLASS, 0.02)
        if rng.random() < 0.4:
            color = Surface("paint", tuple(float(c) for c in rng.uniform(0.02, 0.6, 3)))  # type: ignore[arg-type]
            mesh.box((sx * body.width * 0.488, -0.6, 1.55), (0.03, 2.4, 0.45), color, 0.01)
    return mesh.build()


def make_bus(rng: np.random.Generator) -> Mesh:
    """A city bus or coach: doors, destination board, window band, lamps."""
    body = vary(BUS, rng)
    if rng.random() < 0.3:
        body = replace(body, length=8.6, wheelbase=4.4, front_overhang=1.9)
    paint, mesh = _paint(rng), MeshBuilder()
    second = Surface("paint", (0.75, 0.75, 0.73)) if rng.random() < 0.5 else None
    axles = (body.front_axle, body.rear_axle)
    add_body(mesh, body, paint, axles, lower=second or TRIM, roof=second)
    _wheels(mesh, body, axles, 8)
    nose, w = body.length / 2, body.width / 2
    board = Surface("taillamp", (0.7, 0.32, 0.02))
    mesh.box((0, nose - 0.2, body.height - 0.28), (w * 1.3, 0.24, 0.24), SEAM, 0.03)
    mesh.box((0, nose - 0.06, body.height - 0.28), (w * 1.05, 0.04, 0.13), board)
    for sx in (-1, 1):
        mesh.box((sx * w * 0.72, nose - 0.03, 0.72), (0.34, 0.12, 0.16), HEADLAMP, 0.04)
        mesh.box((sx * w * 0.86, -nose + 0.03, 1.05), (0.18, 0.12, 0.5), TAILLAMP, 0.03)
        mesh.box((sx * w * 0.86, -nose + 0.03, 2.7), (0.2, 0.1, 0.09), TAILLAMP, 0.02)
        mesh.limb(
            (sx * w * 0.9, nose - 0.1, 2.5),
            (sx * (w + 0.22), nose + 0.2, 2.35),
            0.03,
            0.03,
            TRIM,
            5,
        )
        mesh.box((sx * (w + 0.22), nose + 0.2, 2.1), (0.2, 0.08, 0.42), TRIM, 0.03)
    mesh.box((0, nose, 0.5), (0.5, 0.05, 0.12), PLATE)
    mesh.box((0, -nose, 0.75), (0.5, 0.05, 0.12), PLATE)
    mesh.box((0, nose - 0.02, 0.42), (w * 1.7, 0.14, 0.2), TRIM, 0.04)
    mesh.box((0, -nose + 0.03, 2.15), (w * 1.45, 0.09, 0.85), GLASS, 0.05)
    mesh.box((0, -nose + 0.03, 1.15), (w * 1.1, 0.09, 0.55), TRIM, 0.03)
    side = 1 if rng.random() < 0.5 else -1
    for y in (nose - 1.25, -0.2):
        mesh.box((side * (w - 0.01), y, 1.4), (0.05, 1.15, 2.0), TRIM, 0.02)
        for dy in (-0.28, 0.28):
            mesh.box((side * (w + 0.005), y + dy, 1.45), (0.05, 0.48, 1.7), GLASS, 0.02)
    mesh.box((0, -nose * 0.25, body.height + 0.1), (w * 1.3, 2.4, 0.22), second or paint, 0.06)
    return mesh.build()


def make_truck(rng: np.random.Generator) -> Mesh:
    """A pickup, a rigid truck, or a tractor and trailer: box, curtain, tank, tipper, flat bed."""
    if rng.random() < 0.15:
        return car_of(PICKUP, rng)
    articulated = rng.random() < 0.4
    light = not articulated and rng.random() < 0.4
    cab_paint, mesh = _paint(rng), MeshBuilder()
    load_length = float(rng.uniform(11.5, 13.4)) if articulated else float(rng.uniform(4.2, 7.0))
    width = 2.15 if light else 2.5
    cab = replace(vary(TRUCK_CAB, rng), width=width - 0.05)
    if light:
        cab = replace(
            cab, height=2.25, wheel=0.38, clearance=0.45, belt=1.25, hood=1.2, deck_height=1.3
        )
    gap = 1.0 if articulated else 0.15
    total = cab.length + gap + load_length
    front = total / 2
    add_body(mesh, cab, cab_paint, (cab.front_axle,), offset=front - cab.length / 2, lower=TRIM)
    _cab_details(mesh, cab, front, rng)
    chassis_top = cab.wheel * 2 + 0.12
    back = front - cab.length - gap - load_length
    middle = back + load_length / 2
    dark = Surface("plastic", (0.03, 0.03, 0.035))
    mesh.box((0, middle + 0.6, chassis_top - 0.2), (0.9, load_length + 2.2, 0.28), dark, 0.02)
    _load(mesh, rng, middle, load_length, width, chassis_top, articulated)
    r, tread = cab.wheel, 0.34
    x = width / 2 - tread / 2 - 0.02
    axles = [front - cab.front_overhang]
    if articulated:
        axles += [front - cab.length - 0.9, front - cab.length - 2.1]
        axles += [back + 1.9 + 1.25 * i for i in range(3)]
    else:
        axles += [back + load_length * 0.26] + (
            [back + load_length * 0.26 + 1.2] if not light else []
        )
    for axle in axles:
        for sx in (-1, 1):
            add_wheel(mesh, sx * x, axle, r, tread, 8)
    for sx in (-1, 1):
        rear_mid = (back + front - cab.length) / 2
        mesh.box(
            (sx * (width / 2 - 0.06), rear_mid, 0.75), (0.05, load_length * 0.3, 0.4), dark, 0.02
        )
        mesh.box((sx * x, back + 0.75, 0.5), (0.36, 0.03, 0.5), RUBBER)
        mesh.box(
            (sx * width * 0.4, back + 0.02, chassis_top - 0.12), (0.36, 0.1, 0.15), TAILLAMP, 0.02
        )
    mesh.box(
        (0, back + 0.1, 0.55), (width * 0.92, 0.1, 0.12), REFLECTOR if rng.random() < 0.4 else dark
    )
    mesh.box((0, back + 0.01, chassis_top - 0.12), (0.5, 0.06, 0.12), PLATE)
    if articulated or rng.random() < 0.4:
        top = cab.height
        mesh.box((0, front - 1.3, top + 0.28), (width * 0.8, 1.1, 0.6), cab_paint, 0.18)
    return mesh.build()


def _cab_details(mesh: MeshBuilder, cab: Body, front: float, rng: np.random.Generator) -> None:
    w = cab.width / 2
    mesh.box((0, front - 0.02, cab.hood - 0.32), (w * 1.3, 0.1, 0.55), TRIM, 0.03)
    for i in range(4):
        mesh.box((0, front + 0.03, cab.hood - 0.5 + 0.12 * i), (w * 1.2, 0.03, 0.03), CHROME)
    mesh.box((0, front - 0.03, cab.clearance + 0.05), (w * 1.96, 0.2, 0.32), TRIM, 0.05)
    for sx in (-1, 1):
        mesh.box(
            (sx * w * 0.72, front + 0.03, cab.clearance + 0.12), (0.38, 0.16, 0.17), HEADLAMP, 0.04
        )
        mesh.box(
            (sx * w * 0.93, front + 0.02, cab.clearance + 0.12), (0.1, 0.14, 0.12), AMBER, 0.02
        )
        mesh.box((sx * (w + 0.2), front - 0.2, cab.belt + 0.5), (0.18, 0.1, 0.5), TRIM, 0.03)
        mesh.limb(
            (sx * w, front - 0.25, cab.belt + 0.7),
            (sx * (w + 0.2), front - 0.2, cab.belt + 0.7),
            0.025,
            0.025,
            TRIM,
            5,
        )
    mesh.box((0, front + 0.07, cab.clearance + 0.02), (0.5, 0.04, 0.12), PLATE)


def _load(
    mesh: MeshBuilder, rng: np.random.Generator, y: float, length: float, width: float,
    floor: float, articulated: bool,
) -> None:  # fmt: skip
    """What stands on the chassis."""
    kind = rng.choice(["box", "curtain", "tank", "tipper", "flat"], p=[0.46, 0.2, 0.1, 0.14, 0.1])
    height = 2.6 if articulated else float(rng.uniform(1.9, 2.5))
    white = Surface("paint", (0.75, 0.75, 0.74))
    color = _paint(rng)
    back = y - length / 2
    steel = Surface("metal", (0.5, 0.5, 0.52))
    if kind == "box" or kind == "curtain":
        body = white if rng.random() < 0.5 else color
        if kind == "curtain":
            body = Surface("cloth", color.color)
        mesh.box((0, y, floor + height / 2), (width, length, height), body, 0.05)
        for sx in (-1, 1):
            x = sx * width / 2
            for z in (floor + 0.04, floor + height - 0.04):
                mesh.box((x, y, z), (0.05, length - 0.1, 0.1), steel, 0.01)
            if kind == "curtain":
                for i in range(int(length // 0.9)):
                    mesh.box(
                        (x, back + 0.5 + 0.9 * i, floor + height / 2),
                        (0.03, 0.05, height - 0.2),
                        SEAM,
                    )
            elif rng.random() < 0.6:
                stripe = _paint(rng)
                z = floor + height * float(rng.uniform(0.3, 0.7))
                mesh.box((x, y, z), (0.03, length * 0.62, height * 0.28), stripe, 0.01)
        mesh.box((0, back, floor + height / 2), (0.02, 0.03, height - 0.1), SEAM)
        for x in (-0.72, -0.35, 0.35, 0.72):
            mesh.limb(
                (x, back - 0.03, floor + 0.1),
                (x, back - 0.03, floor + height - 0.1),
                0.02,
                0.02,
                steel,
                5,
            )
        for z in (floor + 0.03, floor + height - 0.03):
            mesh.box((0, back, z), (width, 0.06, 0.1), steel, 0.01)
    elif kind == "tank":
        r = width / 2 - 0.12
        profile = [(-length / 2, r * 0.5), (-length / 2 + 0.2, r * 0.92), (-length / 2 + 0.5, r),
                   (length / 2 - 0.5, r), (length / 2 - 0.2, r * 0.92),
                   (length / 2, r * 0.5)]  # fmt: skip
        mesh.lathe(
            (0, y, floor + r), profile, steel if rng.random() < 0.6 else white, axis=1, segments=24
        )
        for i in range(3):
            at = y + (i - 1) * length * 0.28
            mesh.lathe(
                (0, at, floor + 2 * r), [(-0.02, 0.3), (0.14, 0.28)], steel, axis=2, segments=12
            )
            mesh.lathe(
                (0, at, floor + r), [(-0.05, r + 0.02), (0.05, r + 0.02)], TRIM, axis=1, caps=False
            )
    elif kind == "tipper":
        h = 1.25
        mesh.box((0, y, floor + h / 2), (width, length, h), color, 0.06)
        mesh.box(
            (0, y, floor + h),
            (width - 0.2, length - 0.2, 0.1),
            Surface("dirt", (0.2, 0.15, 0.1)),
            0.04,
        )
        for sx in (-1, 1):
            for i in range(int(length // 0.8)):
                mesh.box(
                    (sx * width / 2, back + 0.4 + 0.8 * i, floor + h / 2),
                    (0.1, 0.1, h),
                    color,
                    0.02,
                )
        mesh.box(
            (0, y + length / 2 + 0.3, floor + h + 0.05), (width * 0.95, 0.9, 0.08), color, 0.02
        )
    else:
        mesh.box(
            (0, y, floor + 0.06), (width, length, 0.16), Surface("wood", (0.2, 0.13, 0.08)), 0.01
        )
        for i in range(int(length // 1.3)):
            h = float(rng.uniform(0.5, 1.4))
            cargo = Surface("wood", (0.35, 0.23, 0.13)) if rng.random() < 0.5 else _paint(rng)
            mesh.box(
                (0, back + 0.8 + 1.3 * i, floor + 0.14 + h / 2), (width * 0.8, 1.15, h), cargo, 0.02
            )


def make_three_wheeler(rng: np.random.Generator) -> Mesh:
    """An auto-rickshaw: narrow nose, one front wheel, soft canopy, open sides."""
    body = vary(RICKSHAW, rng)
    schemes = (((0.7, 0.45, 0.02), (0.02, 0.18, 0.05)), ((0.02, 0.16, 0.05), (0.7, 0.5, 0.03)),
               ((0.02, 0.02, 0.02), (0.7, 0.45, 0.02)), ((0.03, 0.1, 0.4), (0.7, 0.7, 0.7)),
               ((0.45, 0.02, 0.02), (0.45, 0.02, 0.02)))  # fmt: skip
    top, bottom = schemes[int(rng.integers(len(schemes)))]
    mesh = MeshBuilder()
    paint = Surface("paint", bottom)
    add_body(
        mesh, body, paint, (body.rear_axle,), roof=Surface("cloth", top), side=SEAM,
        lower=Surface("paint", top) if rng.random() < 0.5 else None,
    )  # fmt: skip
    for sx in (-1, 1):
        add_wheel(mesh, sx * (body.width / 2 - 0.08), body.rear_axle, body.wheel, 0.12, 5)
        mesh.box(
            (sx * body.width * 0.4, -body.length / 2 + 0.02, 0.62),
            (0.13, 0.08, 0.13),
            TAILLAMP,
            0.02,
        )
        mesh.ellipsoid((sx * 0.42, body.length * 0.33, 1.15), (0.07, 0.04, 0.09), TRIM, 8)
        mesh.limb(
            (sx * 0.25, body.length * 0.4, 1.0),
            (sx * 0.45, body.length * 0.33, 1.1),
            0.015,
            0.015,
            TRIM,
            5,
        )
    add_wheel(mesh, 0.0, body.length / 2 - 0.05, body.wheel, 0.11, 5)
    mesh.ellipsoid((0, body.length / 2 - 0.08, body.wheel + 0.16), (0.12, 0.32, 0.14), paint)
    mesh.ellipsoid((0, body.length / 2 - 0.03, 0.62), (0.11, 0.09, 0.11), HEADLAMP)
    mesh.box((0, -body.length / 2, 0.5), (0.4, 0.04, 0.12), PLATE)
    mesh.box((0, -body.length / 2 + 0.02, 1.25), (body.width * 0.5, 0.1, 0.26), GLASS, 0.03)
    mesh.box((0, -body.length / 2, 0.32), (body.width * 0.9, 0.1, 0.08), TRIM, 0.02)
    return mesh.build()
