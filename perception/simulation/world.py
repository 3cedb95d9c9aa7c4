"""The moving hall: a differential robot, scripted actors, its pictures and the exact truth."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from perception.detections import Detections
from perception.labels import FACTORY
from perception.safety import STOPPED, Twist
from perception.simulation.hall import (
    HEIGHT,
    ROBOT_RADIUS,
    WIDTH,
    Body,
    Look,
    hall_xml,
    random_body,
    robot_camera,
)
from perception.simulation.scenario import Actor, Variation

Floats = npt.NDArray[np.float64]

STEP = 0.01
"""s of one step of motion."""

ACCELERATION = 1.0
DECELERATION = 1.5
TURN_ACCELERATION = 3.0
"""m/s^2 and rad/s^2 that the robot's drives reach; 1.5 m/s^2 is a soft stop with a load."""

MIN_VISIBLE = 0.15
"""Share of an actor that must be seen for the truth to hold a box of it."""

_ROWS, _COLUMNS = 11, 7
"""Rays that judge how much of an actor is hidden."""


@dataclass
class Walker:
    """An actor on its way: place, heading, and the part of its path that is left.

    halted: s for which it has stood before the robot. shift: m by which the rest of its path
    moved because of that.
    """

    plan: Actor
    body: Body
    x: float
    y: float
    heading: float = 0.0
    moving: bool = False
    leg: int = 0
    halted: float = 0.0
    shift: tuple[float, float] = (0.0, 0.0)

    def step(self, seconds: float, robot_x: float, robot_y: float) -> None:
        """Walk on at the planned speed, once the robot is near enough, and halt before it."""
        if not self.moving:
            near = self.plan.start[0] - robot_x <= self.plan.trigger_distance
            self.moving = near or self.plan.trigger_distance == 0.0
        if self._halts(robot_x, robot_y):
            self.halted += seconds
            if self.halted >= self.plan.halt_seconds:
                first_x, first_y = self.plan.path[0]
                self.shift = (self.x - first_x, self.y - first_y)
                self.leg = 1
            return
        left = self.plan.speed * seconds if self.moving else 0.0
        while left > 0 and not self.done:
            goal_x, goal_y = np.add(self.plan.path[self.leg], self.shift).tolist()
            gap = math.hypot(goal_x - self.x, goal_y - self.y)
            if gap > 1e-9:
                self.heading = math.atan2(goal_y - self.y, goal_x - self.x)
            if gap > left:
                self.x += left * math.cos(self.heading)
                self.y += left * math.sin(self.heading)
                return
            self.x, self.y = goal_x, goal_y
            left -= gap
            self.leg += 1

    def _halts(self, robot_x: float, robot_y: float) -> bool:
        """Whether it stands before the robot now."""
        if not self.moving or self.leg > 0 or self.done or self.plan.halt_seconds == 0.0:
            return False
        gap = self.clearance(robot_x, robot_y) - ROBOT_RADIUS
        return self.halted > 0.0 or gap <= self.plan.halt_clearance

    @property
    def done(self) -> bool:
        """Whether it has reached the end of its path."""
        return self.leg >= len(self.plan.path)

    def clearance(self, x: float, y: float) -> float:
        """m from a point to the footprint's rectangle; negative inside is 0."""
        cos, sin = math.cos(self.heading), math.sin(self.heading)
        along = cos * (x - self.x) + sin * (y - self.y)
        across = -sin * (x - self.x) + cos * (y - self.y)
        return math.hypot(
            max(abs(along) - self.body.length / 2, 0.0),
            max(abs(across) - self.body.width / 2, 0.0),
        )


class World:
    """The hall at one moment. `step` moves it, `picture` and `truth` look at it.

    The same variation always gives the same world.
    """

    def __init__(self, variation: Variation, size: tuple[int, int] = (WIDTH, HEIGHT)) -> None:
        self.variation = variation
        self.size = size
        self.seconds = 0.0
        self.x = self.y = self.heading = 0.0
        self.twist = STOPPED
        self._rng = np.random.default_rng([variation.seed, 1])
        bodies = [random_body(actor.kind, self._rng) for actor in variation.actors]
        self.walkers = [
            Walker(actor, body, *actor.start, heading=_first_heading(actor))
            for actor, body in zip(variation.actors, bodies, strict=True)
        ]
        scenario = variation.scenario
        look = Look.random(self._rng, scenario.goal + 4)
        xml = hall_xml(bodies, scenario.gaps, look, self._rng, size)
        self._model = mujoco.MjModel.from_xml_string(xml)
        self._data = mujoco.MjData(self._model)
        self._renderer: Any = None
        self.camera = robot_camera(*size)
        self._place()

    def close(self) -> None:
        """Give the graphics context back."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    # Motion ----------------------------------------------------------------------------------

    def step(
        self,
        command: Twist,
        seconds: float,
        on_motion: Callable[[World], None] = lambda world: None,
    ) -> None:
        """Move on by `seconds`, with the robot following `command` as its drives allow.

        on_motion is called after every STEP of it.
        """
        for _ in range(max(round(seconds / STEP), 1)):
            vx = _follow(self.twist.vx, command.vx)
            limit = TURN_ACCELERATION * STEP
            wz = self.twist.wz + min(max(command.wz - self.twist.wz, -limit), limit)
            self.twist = Twist(vx, 0.0, wz)
            middle = self.heading + wz * STEP / 2
            self.x += vx * math.cos(middle) * STEP
            self.y += vx * math.sin(middle) * STEP
            self.heading += wz * STEP
            self.seconds += STEP
            for walker in self.walkers:
                walker.step(STEP, self.x, self.y)
            on_motion(self)
        self._place()

    def look_from(self, x: float, y: float, heading: float) -> None:
        """Put the robot somewhere else: m and rad in the hall's frame."""
        self.x, self.y, self.heading = x, y, heading
        self._place()

    def clearance(self) -> float:
        """m between the robot's footprint and the nearest actor's; 0 is contact; inf when alone."""
        gaps = [walker.clearance(self.x, self.y) for walker in self.walkers]
        return max(min(gaps, default=math.inf) - ROBOT_RADIUS, 0.0)

    def _place(self) -> None:
        """Tell MuJoCo where everything is."""
        names = [f"body{number}" for number in range(len(self.walkers))]
        poses = [(walker.x, walker.y, walker.heading) for walker in self.walkers]
        for name, (x, y, heading) in zip(
            [*names, "robot"], [*poses, (self.x, self.y, self.heading)], strict=True
        ):
            row = self._model.body(name).mocapid[0]
            self._data.mocap_pos[row] = x, y, 0.0
            self._data.mocap_quat[row] = math.cos(heading / 2), 0, 0, math.sin(heading / 2)
        mujoco.mj_forward(self._model, self._data)

    # Looking ---------------------------------------------------------------------------------

    def picture(self, brightness: float = 1.0, noise: float = 2.0) -> npt.NDArray[np.uint8]:
        """uint8 (H, W, 3) RGB of the robot's camera.

        brightness: factor on the light. noise: standard deviation of the sensor's, grey levels.
        """
        if self._renderer is None:
            self._renderer = mujoco.Renderer(self._model, self.size[1], self.size[0])
        self._renderer.update_scene(self._data, camera="front")
        clean = self._renderer.render().astype(np.float32) * brightness
        grain = self._rng.standard_normal(clean.shape, dtype=np.float32) * noise
        pixels: npt.NDArray[np.uint8] = np.clip(clean + grain, 0, 255).astype(np.uint8)
        return pixels

    def labelled_picture(
        self, brightness: float = 1.0, noise: float = 2.0
    ) -> tuple[npt.NDArray[np.uint8], Detections]:
        """A picture and the exact boxes of what is seen in it, from the drawn pixels.

        The scores are the share of each actor's box within the picture that is seen, 0 to 1.
        """
        picture = self.picture(brightness, noise)
        self._renderer.enable_segmentation_rendering()
        self._renderer.update_scene(self._data, camera="front")
        segments = self._renderer.render()
        self._renderer.disable_segmentation_rendering()
        geoms = np.where(segments[..., 1] == int(mujoco.mjtObj.mjOBJ_GEOM), segments[..., 0], -1)
        owners = np.where(geoms >= 0, self._model.geom_bodyid[geoms], -1)
        boxes, labels, shares = [], [], []
        eye = self._in_world(self.camera.position[None])[0]
        for number, walker in enumerate(self.walkers):
            rows, columns = np.nonzero(owners == self._model.body(f"body{number}").id)
            if len(rows) < 12:
                continue
            box = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
            whole = self.camera.project(self._in_base(_outline_points(walker, eye)))
            seen = 1.0  # who reaches beside or behind the camera is as near as can be
            if np.isfinite(whole).all():
                low, high = whole.min(axis=0), whole.max(axis=0)
                sides = np.clip(high, 0, self.size) - np.clip(low, 0, self.size)
                seen = (box[2] - box[0]) * (box[3] - box[1]) / max(float(sides.prod()), 1.0)
            boxes.append(box)
            labels.append(FACTORY.index(walker.body.kind))
            shares.append(min(float(seen), 1.0))
        return picture, Detections.create(boxes, shares, labels)

    def truth(self) -> Detections:
        """Boxes of the actors that the camera can see, in pixels, by rays instead of drawing.

        A box spans the rays of an 11 x 7 grid over the actor that reach it, and ends at the
        picture's edge where the next ray would lie beyond it. track_ids are the actors' numbers.
        """
        boxes, labels, ids = [], [], []
        for number, walker in enumerate(self.walkers):
            pixels = self._visible_pixels(number, walker)
            if pixels is None:
                continue
            low = np.clip(pixels.min(axis=0), 0, self.size)
            high = np.clip(pixels.max(axis=0), 0, self.size)
            if (high - low).min() >= 2:
                boxes.append((*low, *high))
                labels.append(FACTORY.index(walker.body.kind))
                ids.append(number)
        return Detections.create(boxes, [0.9] * len(boxes), labels, ids)

    def _visible_pixels(self, number: int, walker: Walker) -> Floats | None:
        """(K, 2) pixels of the points of the actor's outline that are seen; None if too few."""
        eye = self._in_world(self.camera.position[None])[0]
        points = _outline_points(walker, eye)
        pixels = self.camera.project(self._in_base(points))
        inside = (pixels >= 0).all(axis=1) & (pixels < self.size).all(axis=1)
        if not inside.any():
            return None
        seen = np.zeros(len(points), dtype=np.bool_)
        own = self._model.body(f"body{number}").id
        hit = np.zeros(1, dtype=np.int32)
        for row in np.flatnonzero(inside):
            ray = points[row] - eye
            reach = mujoco.mj_ray(self._model, self._data, eye, ray, None, True, -1, hit)
            # A ray may pass between an arm and the body; then nothing nearer is in the way.
            seen[row] = reach < 0 or reach > 0.99 or self._model.geom_bodyid[hit[0]] == own
        if seen.sum() < MIN_VISIBLE * len(points):
            return None
        beyond = ~inside & np.isfinite(pixels).all(axis=1)
        return pixels[seen | (beyond & _beside(seen))]

    def _in_base(self, points: Floats) -> Floats:
        cos, sin = math.cos(self.heading), math.sin(self.heading)
        turn = np.array([[cos, sin, 0], [-sin, cos, 0], [0, 0, 1]])
        local: Floats = (points - np.array([self.x, self.y, 0.0])) @ turn.T
        return local

    def _in_world(self, points: Floats) -> Floats:
        cos, sin = math.cos(self.heading), math.sin(self.heading)
        turn = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
        placed: Floats = points @ turn.T + np.array([self.x, self.y, 0.0])
        return placed


def _first_heading(actor: Actor) -> float:
    if not actor.path:
        return 0.0
    return math.atan2(actor.path[0][1] - actor.start[1], actor.path[0][0] - actor.start[0])


def _follow(now: float, wanted: float) -> float:
    """Speed after one step: away from zero with ACCELERATION, towards it with DECELERATION."""
    slower = abs(wanted) < abs(now) or wanted * now < 0
    limit = (DECELERATION if slower else ACCELERATION) * STEP
    return now + min(max(wanted - now, -limit), limit)


def _beside(seen: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which outline points are next to a seen one, in their row or column."""
    padded = np.pad(seen.reshape(_ROWS, _COLUMNS), 1)
    beside: npt.NDArray[np.bool_] = (
        padded[:-2, 1:-1] | padded[2:, 1:-1] | padded[1:-1, :-2] | padded[1:-1, 2:]
    )
    return beside.ravel()


def _outline_points(walker: Walker, eye: Floats) -> Floats:
    """(ROWS * COLUMNS, 3) points on the upright board that the actor looks like from `eye`.

    Sideways it is as wide as the footprint's corners appear; it stands where the footprint is
    nearest, because that is where the picture shows the foot.
    """
    cos, sin = math.cos(walker.heading), math.sin(walker.heading)
    half_length, half_width = walker.body.length / 2, walker.body.width / 2
    corners = np.array(
        [
            (walker.x + cos * a - sin * b, walker.y + sin * a + cos * b)
            for a in (-half_length, half_length)
            for b in (-half_width, half_width)
        ]
    )
    to = np.array([walker.x, walker.y]) - eye[:2]
    forward = to / max(float(np.linalg.norm(to)), 1e-9)
    left = np.array([-forward[1], forward[0]])
    offsets = corners - eye[:2]
    depth = float((offsets @ forward).min())
    # Along the line of sight, scaled to the nearest depth, so that corners further back count
    # with the width that they have in the picture.
    sides = (offsets @ left) * depth / np.maximum(offsets @ forward, 1e-6)
    across = np.linspace(sides.min(), sides.max(), _COLUMNS)
    up = np.linspace(0.0, walker.body.height, _ROWS)
    ground = eye[:2] + depth * forward + across[:, None] * left
    return np.concatenate([np.column_stack([ground, np.full(_COLUMNS, height)]) for height in up])
