"""Polygon meshes in NumPy: the shapes from which vehicles, people and scenery are put together.

Frame of every object: origin on the ground below its middle, +x right, +y forward, +z up, metres.
No Blender here, so that shapes can be made, measured and tested without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Point = tuple[float, float, float]


class Surface(NamedTuple):
    """What a face is made of: a material kind known to `materials.py`, and a linear RGB colour."""

    kind: str
    color: tuple[float, float, float] = (0.5, 0.5, 0.5)


@dataclass(eq=False)
class Mesh:
    """Faces of any number of corners, stored end to end.

    Face i has `sizes[i]` corners, indices into `vertices` (V,3), which follow those of face i-1 in
    `corners`; `surfaces[material[i]]` is what it is made of.
    """

    vertices: Array
    corners: Indices
    sizes: Indices
    material: Indices
    smooth: npt.NDArray[np.bool_]
    surfaces: list[Surface]

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Lowest and highest corner (3,) of the axis-aligned box around the mesh, metres."""
        return self.vertices.min(axis=0), self.vertices.max(axis=0)

    def faces_by_size(self) -> list[Indices]:
        """The faces as arrays (F,K) of vertex indices, one array for each number of corners K."""
        starts = np.cumsum(self.sizes) - self.sizes
        return [
            self.corners[starts[self.sizes == size][:, None] + np.arange(size)]
            for size in np.unique(self.sizes)
        ]


@dataclass
class MeshBuilder:
    """Collects parts into one mesh."""

    _vertices: list[Array] = field(default_factory=list)
    _count: int = 0
    _corners: list[Indices] = field(default_factory=list)
    _sizes: list[Indices] = field(default_factory=list)
    _material: list[Indices] = field(default_factory=list)
    _smooth: list[npt.NDArray[np.bool_]] = field(default_factory=list)
    _surfaces: dict[Surface, int] = field(default_factory=dict)

    def add(
        self,
        vertices: Array | Sequence[Point],
        faces: Indices | Sequence[tuple[int, ...]],
        surface: Surface | Sequence[Surface],
        smooth: bool = False,
    ) -> None:
        """Add vertices (V,3) and faces indexing them, (F,K) or of mixed sizes.

        One surface for all of them or one for each face.
        """
        if isinstance(faces, np.ndarray):
            corners, sizes = faces.reshape(-1), np.full(len(faces), faces.shape[1])
        else:
            corners = np.array([i for face in faces for i in face])
            sizes = np.array([len(face) for face in faces])
        index = self._surfaces
        if isinstance(surface, Surface):
            material = np.full(len(sizes), index.setdefault(surface, len(index)))
        else:
            material = np.array([index.setdefault(s, len(index)) for s in surface])
        points = np.asarray(vertices, dtype=np.float64).reshape(-1, 3)
        self._append(points, corners, sizes, material, np.full(len(sizes), smooth))

    def _append(
        self, points: Array, corners: Indices, sizes: Indices, material: Indices,
        smooth: npt.NDArray[np.bool_],
    ) -> None:  # fmt: skip
        self._vertices.append(points)
        self._corners.append(corners + self._count)
        self._sizes.append(sizes)
        self._material.append(material)
        self._smooth.append(smooth)
        self._count += len(points)

    def build(self) -> Mesh:
        """The mesh of everything added; at least one part must have been."""
        return Mesh(
            np.concatenate(self._vertices),
            np.concatenate(self._corners).astype(np.int64),
            np.concatenate(self._sizes).astype(np.int64),
            np.concatenate(self._material).astype(np.int64),
            np.concatenate(self._smooth),
            list(self._surfaces),
        )

    def loft(
        self,
        rings: Array,
        surface: Surface | Callable[[int, int], Surface],
        caps: bool = True,
        smooth: bool = True,
    ) -> None:
        """Skin over closed rings (S,R,3); a callable gets (station, segment) of each quad."""
        stations, size = rings.shape[:2]
        points = rings.reshape(-1, 3)
        here = np.arange(stations * size).reshape(stations, size)
        after = np.roll(here, -1, axis=1)
        quads = np.stack([here[:-1], after[:-1], after[1:], here[1:]], axis=2).reshape(-1, 4)
        if isinstance(surface, Surface):
            first = last = skin = surface
        else:
            skin = [surface(s, r) for s in range(stations - 1) for r in range(size)]
            first, last = surface(0, size // 4), surface(stations - 2, size // 4)
        self.add(points, quads, skin, smooth)
        if caps:
            self.add(points[:size], np.arange(size)[None, ::-1], first, smooth)
            self.add(points[-size:], np.arange(size)[None], last, smooth)

    def box(self, center: Point, size: Point, surface: Surface, bevel: float = 0.0) -> None:
        """A box with chamfered edges (`bevel` metres)."""
        hx, hy, hz = (s / 2 for s in size)
        b = min(bevel, 0.45 * min(size))

        def ring(inset: float, z: float) -> list[Point]:
            x, y = hx - inset, hy - inset
            if b <= 0:
                return [(x, y, z), (-x, y, z), (-x, -y, z), (x, -y, z)]
            c = b * 0.6
            return [
                (x, y - c, z), (x - c, y, z), (-x + c, y, z), (-x, y - c, z),
                (-x, -y + c, z), (-x + c, -y, z), (x - c, -y, z), (x, -y + c, z),
            ]  # fmt: skip

        if b <= 0:
            rings = [ring(0, -hz), ring(0, hz)]
        else:
            rings = [ring(b, -hz), ring(0, -hz + b), ring(0, hz - b), ring(b, hz)]
        self.loft(np.array(rings) + np.array(center), surface, smooth=False)

    def lathe(
        self,
        center: Point,
        profile: Sequence[tuple[float, float]],
        surface: Surface | Callable[[int, int], Surface],
        axis: int = 0,
        segments: int = 20,
        caps: bool = True,
    ) -> None:
        """Turn a profile of (position along the axis, radius) about an axis (0 x, 1 y, 2 z)."""
        self.loft(_rings(profile, axis, segments) + np.array(center), surface, caps=caps)

    def ellipsoid(self, center: Point, radii: Point, surface: Surface, segments: int = 12) -> None:
        """A smooth ellipsoid."""
        latitude = np.linspace(-np.pi / 2 + 0.02, np.pi / 2 - 0.02, segments // 2 + 1)
        profile = [(float(np.sin(v)), float(np.cos(v))) for v in latitude]
        self.loft(_rings(profile, 2, segments) * np.array(radii) + np.array(center), surface)

    def limb(
        self, start: Point, end: Point, radius: float, radius_end: float, surface: Surface,
        segments: int = 8,
    ) -> None:  # fmt: skip
        """A tapered rod with rounded ends from start to end."""
        a, b = np.array(start), np.array(end)
        axis = b - a
        length = float(np.linalg.norm(axis))
        axis = axis / max(length, 1e-9)
        helper = np.array([1.0, 0, 0]) if abs(axis[0]) < 0.9 else np.array([0, 1.0, 0])
        u = np.cross(axis, helper)
        u /= np.linalg.norm(u)
        v = np.cross(axis, u)
        angle = np.linspace(0, 2 * np.pi, segments, endpoint=False)
        circle = np.outer(np.cos(angle), u) + np.outer(np.sin(angle), v)
        stations = [
            (-radius * 0.7, radius * 0.6), (0.0, radius), (length, radius_end),
            (length + radius_end * 0.7, radius_end * 0.6),
        ]  # fmt: skip
        self.loft(np.array([a + axis * t + circle * r for t, r in stations]), surface)

    def merge(self, mesh: Mesh, matrix: Array | None = None) -> None:
        """Add another mesh, moved by a 4x4 matrix."""
        vertices = mesh.vertices if matrix is None else transform(mesh.vertices, matrix)
        known = self._surfaces
        index = np.array([known.setdefault(s, len(known)) for s in mesh.surfaces])
        self._append(vertices, mesh.corners, mesh.sizes, index[mesh.material], mesh.smooth)


def _rings(profile: Sequence[tuple[float, float]], axis: int, segments: int) -> Array:
    """Circles (S,R,3) about an axis through the origin, one for each (position, radius)."""
    angle = np.linspace(0, 2 * np.pi, segments, endpoint=False)
    along, radius = np.array(profile, dtype=np.float64).T
    rings = np.empty((len(profile), segments, 3))
    rings[:, :, axis] = along[:, None]
    rings[:, :, (axis + 1) % 3] = radius[:, None] * np.cos(angle)
    rings[:, :, (axis + 2) % 3] = radius[:, None] * np.sin(angle)
    return rings


def transform(points: Array, matrix: Array) -> Array:
    """Points (N,3) moved by a 4x4 matrix."""
    return points @ matrix[:3, :3].T + matrix[:3, 3]


def placement(
    x: float, y: float, heading: float = 0.0, z: float = 0.0, scale: float = 1.0
) -> Array:
    """4x4 matrix: turned by `heading` radians about +z (0: +y, positive: left), then moved."""
    c, s = np.cos(heading), np.sin(heading)
    matrix = np.eye(4)
    matrix[:3, :3] = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]) * scale
    matrix[:3, 3] = (x, y, z)
    return matrix
