"""What a picture is made from: camera, weather, scenery and actors. No Blender here.

World frame: +x right, +y along the road, +z up, metres, the road's middle at x = 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from perception.datasets.synthetic.mesh import Array, Mesh, transform


@dataclass(frozen=True)
class Camera:
    """A pinhole camera without distortion, square pixels, principal point in the middle.

    `yaw` and `pitch` in degrees: yaw 0 looks along +y and grows to the left, pitch grows upwards.
    `hfov` is the horizontal field of view in degrees; roll is always 0.
    """

    x: float
    y: float
    z: float
    yaw: float
    pitch: float
    hfov: float
    width: int
    height: int

    @property
    def focal(self) -> float:
        """Focal length in pixels, the same along both axes."""
        return self.width / 2 / float(np.tan(np.radians(self.hfov) / 2))

    @property
    def axes(self) -> Array:
        """Rows (3,3): the optical frame's x (right), y (down) and z (forward) in the world."""
        yaw, pitch = np.radians(self.yaw), np.radians(self.pitch)
        forward = np.array(
            [-np.sin(yaw) * np.cos(pitch), np.cos(yaw) * np.cos(pitch), np.sin(pitch)]
        )
        right = np.array([np.cos(yaw), np.sin(yaw), 0.0])
        return np.stack([right, np.cross(forward, right), forward])

    def project(self, points: Array) -> tuple[Array, Array]:
        """World points (N,3) -> pixel positions (N,2) and depths (N,) along the optical axis.

        Pixel (0, 0) is the corner of the picture, not the middle of the first pixel. Positions of
        points at or behind the camera mean nothing: look at the depth first.
        """
        optical = (points - np.array([self.x, self.y, self.z])) @ self.axes.T
        depth = optical[:, 2]
        safe = np.where(np.abs(depth) < 1e-9, 1e-9, depth)
        u = self.width / 2 + self.focal * optical[:, 0] / safe
        v = self.height / 2 + self.focal * optical[:, 1] / safe
        return np.stack([u, v], axis=1), depth

    def ground_distance(self, points: Array) -> Array:
        """Distances (N,) along the optical axis laid flat on the ground, metres."""
        yaw = np.radians(self.yaw)
        return (points[:, :2] - np.array([self.x, self.y])) @ np.array([-np.sin(yaw), np.cos(yaw)])


@dataclass(frozen=True)
class Weather:
    """Light and air. Strengths are in Blender's units (W/m2 for the sun), angles in degrees."""

    sun_elevation: float
    sun_azimuth: float
    sun_strength: float
    sun_angle: float  # apparent size: small gives hard shadows
    sky_strength: float
    zenith: tuple[float, float, float]
    horizon: tuple[float, float, float]
    clouds: float  # 0 none .. 1 overcast
    haze: float  # distance in metres at which 63 % of the light comes from the haze
    wet: float  # 0 dry .. 1 wet road
    night: bool
    name: str


@dataclass(frozen=True, eq=False)
class Item:
    """A mesh at a place; the same mesh may stand at many places."""

    mesh: Mesh
    matrix: Array

    @property
    def points(self) -> Array:
        """Vertices in the world (V,3)."""
        return transform(self.mesh.vertices, self.matrix)


@dataclass(frozen=True, eq=False)
class Actor(Item):
    """An item that is annotated; `track_id` (from 1) is also its value in the index picture."""

    category: str
    track_id: int


@dataclass(frozen=True)
class Lamp:
    """A point of light, for night scenes."""

    position: tuple[float, float, float]
    power: float  # W
    color: tuple[float, float, float]


@dataclass
class Scene:
    """One picture to be taken."""

    camera: Camera
    weather: Weather
    scenery: list[Item]
    actors: list[Actor]
    lamps: list[Lamp] = field(default_factory=list)
    view: str = ""
    place: str = ""


Picture = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Render:
    """What the renderer gives back for a scene, all of the camera's size.

    `color` float32 (H,W,3) linear RGB; `depth` float32 (H,W) metres along the optical axis, very
    large for the sky; `index` int32 (H,W): the actor's `track_id` at each pixel, 0 elsewhere.
    """

    color: npt.NDArray[np.float32]
    depth: npt.NDArray[np.float32]
    index: npt.NDArray[np.int32]
