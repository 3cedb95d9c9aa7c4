"""Boxes in a picture to places on the ground, and their motion.

Two estimates of distance, from facts that fail in different ways: where the box's foot meets the
ground plane (wrong when the floor is not flat, the camera pitches or the foot is hidden), and how
tall an object of this class is (wrong for an unusual size). Both are fused by inverse variance.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perception.errors import InputError
from perception.geometry.camera import Camera, Floats

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SizePrior:
    """How large objects of a class are, in m.

    height, height_sigma: mean and standard deviation. radius: half of the footprint's larger
    side as a robot has to keep clear of it. overhang: how far its nearest part reaches beyond
    where it touches the ground. length: of what mostly stands along the camera's way, as vehicles
    on a road do, and then shows its flank beside its front; 0 for what stands any way.
    """

    height: float
    height_sigma: float
    radius: float
    overhang: float = 0.0
    length: float = 0.0


PRIORS: Mapping[str, SizePrior] = {
    # Adult stature is about 1.70 +- 0.10 m (NCD-RisC 2016, men and women together).
    "person": SizePrior(1.70, 0.10, 0.30, 0.10),
    # Counterbalance trucks of 1.5 to 3 t: overhead guard at 2.0 to 2.2 m, mast up to 2.4 m.
    "forklift": SizePrior(2.15, 0.20, 0.90, 0.20),
    # EN 13698-1 pallet 1.2 m x 0.8 m; from 0.14 m bare to about 1.8 m loaded.
    "pallet": SizePrior(1.00, 0.50, 0.60),
    # Overhangs from axle to bumper: 0.8 to 1.0 m on cars, 1.2 to 1.5 m on trucks, 2.5 to 3 m on
    # buses; on two wheels it is about a wheel's radius.
    "car": SizePrior(1.50, 0.15, 0.90, 0.90, 5.0),
    "truck": SizePrior(3.20, 0.60, 1.25, 1.25, 12.0),
    "bus": SizePrior(3.10, 0.30, 1.25, 2.60, 13.0),
    "motorcycle": SizePrior(1.50, 0.20, 0.50, 0.30, 2.3),
    "bicycle": SizePrior(1.65, 0.20, 0.50, 0.30, 1.9),
    "three_wheeler": SizePrior(1.80, 0.15, 0.70, 0.50, 3.0),
}

UNKNOWN_PRIOR = SizePrior(1.5, 1.0, 0.60)
"""For a class without a prior: almost no statement about its height."""


@dataclass(frozen=True, slots=True)
class GroundSettings:
    """pixel_sigma: px, standard deviation of a box edge, at least. relative_sigma: the same as a
    share of the box's height; the larger one counts. tilt_sigma: rad, of the camera's pitch
    against the ground, slope of the floor included. height_sigma: m, of the camera's height.
    edge: px within which an exact box counts as cut by the picture's edge; two standard deviations
    of the box's edges are added to it.
    """

    pixel_sigma: float = 1.0
    relative_sigma: float = 0.02
    tilt_sigma: float = math.radians(0.3)
    height_sigma: float = 0.01
    edge: float = 2.0

    def __post_init__(self) -> None:
        for field, high in (
            ("pixel_sigma", 100.0),
            ("relative_sigma", 1.0),
            ("tilt_sigma", 0.5),
            ("height_sigma", 5.0),
            ("edge", 100.0),
        ):
            value = getattr(self, field)
            if not 0.0 <= value <= high:
                raise InputError(f"{field} is {value}, expected 0 to {high:g}")
        if self.pixel_sigma == 0.0:
            raise InputError("pixel_sigma is 0, expected a positive number of pixels")


@dataclass(frozen=True, slots=True, eq=False)
class GroundEstimate:
    """Places of N boxes.

    distances: (N,) m from below the camera to the object's nearest edge. sigmas: (N,) m.
    by_foot, by_size: (N,) m, the single estimates of where the object touches the ground, NaN
        where one has nothing to say.
    positions: (N, 2) m, the object's centre in the base frame. covariances: (N, 2, 2) m^2.
    radii: (N,) m, half of the object's width, and at least that of its class.
    heights: (N,) m, as seen at this distance.
    """

    distances: Floats
    sigmas: Floats
    by_foot: Floats
    by_size: Floats
    positions: Floats
    covariances: Floats
    radii: Floats
    heights: Floats


def locate(
    boxes: npt.ArrayLike,
    labels: Sequence[str],
    camera: Camera,
    settings: GroundSettings | None = None,
    priors: Mapping[str, SizePrior] = PRIORS,
) -> GroundEstimate:
    """Where the objects of `boxes`, xyxy (N, 4) px of the original image, stand.

    With slopes t = tan(elevation) of the rays through the box's foot and top: distance by foot
    = camera height / -t_foot, and by size = object height / (t_top - t_foot); errors propagate to
    first order, so both sigmas grow with the square of the distance. A box cut by the picture's
    lower edge is only known to be between the camera and the nearest visible ground. Boxes must be
    finite. A foot hidden behind something lower makes both estimates too far.
    """
    settings = settings or GroundSettings()
    corners = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
    prior = [priors.get(label, UNKNOWN_PRIOR) for label in labels]
    tall = np.array([size.height for size in prior])
    tall_sigma = np.array([size.height_sigma for size in prior])
    least = np.array([size.radius for size in prior])
    overhang = np.array([size.overhang for size in prior])
    length = np.array([size.length for size in prior])

    view = _View.of(corners, camera, settings)
    by_foot, foot_sigma = _by_foot(view, camera.mount.z, settings)
    by_size, size_sigma = _by_size(view, tall, tall_sigma)
    # A detector's box may end short of the picture's edge by what its edges err.
    rim = settings.edge + 2 * _edge_sigma(corners, settings)
    cut_below = corners[:, 3] >= camera.height - rim
    cut_above = corners[:, 1] <= rim
    use_foot = np.isfinite(by_foot) & ~cut_below
    use_size = np.isfinite(by_size) & ~cut_below & ~cut_above
    distances, sigmas = _fuse(by_foot, foot_sigma, use_foot, by_size, size_sigma, use_size)
    # Neither holds: all that is known is an upper bound, and the place is uniform below it.
    bound = np.fmin(by_foot, by_size)
    unknown = ~(use_foot | use_size)
    distances = np.where(unknown, bound / 2, distances)
    sigmas = np.where(unknown, bound / math.sqrt(12), sigmas)
    heights = distances * (view.top - view.foot)
    distances = np.where(unknown, distances, np.maximum(distances - overhang, 0.0))

    sigmas = np.maximum(sigmas, _hidden_foot(corners, distances))
    width = distances * (np.tan(view.left - view.bearing) + np.tan(view.bearing - view.right))
    radii = np.maximum(least, width / 2)
    centre = distances + least
    direction = np.stack([np.cos(view.bearing), np.sin(view.bearing)], axis=-1)
    across = np.stack([-direction[:, 1], direction[:, 0]], axis=-1)
    places = centre[:, None] * direction
    sideways = centre * view.bearing_sigma

    cut_at_side = np.where(
        view.bearing >= 0, corners[:, 0] <= rim, corners[:, 2] >= camera.width - rim
    )
    beside = _beside_the_way(view, distances, 2 * least, length, cut_at_side)
    depth = distances * direction[:, 0]
    chosen = beside.found[:, None]
    places = np.where(chosen, np.stack([depth + least, beside.middle], axis=-1), places)
    # There a wrong distance moves the place along the ray of the edge that was used.
    edge = np.stack([np.ones_like(depth), beside.slope], axis=-1) * direction[:, :1]
    direction = np.where(chosen, edge, direction)
    across = np.where(chosen, [0.0, 1.0], across)
    radii = np.where(beside.found, least, radii)
    covariances = (
        sigmas[:, None, None] ** 2 * direction[:, :, None] * direction[:, None, :]
        + sideways[:, None, None] ** 2 * across[:, :, None] * across[:, None, :]
    )
    return GroundEstimate(
        distances=distances,
        sigmas=sigmas,
        by_foot=by_foot,
        by_size=by_size,
        positions=camera.position[:2] + places,
        covariances=covariances,
        radii=radii,
        heights=heights,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _View:
    """Boxes as angles from the camera: bearings in rad, slopes tan(elevation), and their sigmas."""

    bearing: Floats
    left: Floats
    right: Floats
    foot: Floats
    top: Floats
    bearing_sigma: Floats
    foot_sigma: Floats
    top_sigma: Floats
    tilt_sigma: Floats

    @classmethod
    def of(cls, corners: Floats, camera: Camera, settings: GroundSettings) -> _View:
        x1, y1, x2, y2 = corners.T
        middle = (x1 + x2) / 2
        half = (y1 + y2) / 2
        # One call for all pixels: undistortion costs more per call than per point.
        pixels = [
            (middle, y2),
            (middle, y1),
            (x1, half),
            (x2, half),
            (middle, y2 + 1),
            (middle, y1 + 1),
            (middle + 1, y2),
        ]
        rays = camera.rays(np.concatenate([np.stack(pair, axis=-1) for pair in pixels]))
        rays = rays.reshape(len(pixels), len(corners), 3)
        bearing = np.arctan2(rays[..., 1], rays[..., 0])
        slope = rays[..., 2] / np.maximum(np.hypot(rays[..., 0], rays[..., 1]), 1e-9)
        sigma_px = _edge_sigma(corners, settings)
        return cls(
            bearing=bearing[0],
            left=bearing[2],
            right=bearing[3],
            foot=slope[0],
            top=slope[1],
            bearing_sigma=np.abs(bearing[6] - bearing[0]) * sigma_px,
            foot_sigma=np.abs(slope[4] - slope[0]) * sigma_px,
            top_sigma=np.abs(slope[5] - slope[1]) * sigma_px,
            # d tan(e) / de = 1 + tan(e)^2.
            tilt_sigma=(1 + slope[0] ** 2) * settings.tilt_sigma,
        )


def _edge_sigma(corners: Floats, settings: GroundSettings) -> Floats:
    """(N,) px, standard deviation of the edges of boxes (N, 4)."""
    heights = np.abs(corners[:, 3] - corners[:, 1])
    sigma: Floats = np.maximum(settings.pixel_sigma, settings.relative_sigma * heights)
    return sigma


def _hidden_foot(corners: Floats, distances: Floats) -> Floats:
    """(N,) m of standard deviation for boxes whose foot lies behind a nearer box; else 0.

    Such a foot is seen too high, and the object stands anywhere between the nearer one and where
    it seems to: uniform over that gap.
    """
    x1, y1, x2, y2 = corners.T
    shared = np.minimum(x2[:, None], x2) - np.maximum(x1[:, None], x1)
    over = (shared > 0.2 * (x2 - x1)[:, None]) & (y1 < y2[:, None]) & (y2 > y2[:, None])
    gap = np.where(over, distances[:, None] - distances, 0.0)
    hidden: Floats = np.maximum(gap, 0.0).max(axis=1, initial=0.0) / math.sqrt(12)
    return hidden


@dataclass(frozen=True, slots=True, eq=False)
class _Beside:
    """found: (N,) which boxes are of vehicles beside the own way. middle: (N,) m, to the left, of
    the near face's middle. slope: (N,) tan(bearing) of the edge that tells it."""

    found: Bools
    middle: Floats
    slope: Floats


_MIRRORS = 0.2
"""Share of a vehicle's width by which mirrors and load may make it wider."""


def _beside_the_way(
    view: _View,
    distances: Floats,
    width: Floats,
    length: Floats,
    cut: Bools,
) -> _Beside:
    """Boxes that a vehicle along the base frame's x axis, beside the own way, explains.

    Such a vehicle shows its flank: the box's inner edge is its far corner, and at the depth of its
    near face it seems to reach towards the own way. A box wider than `width` whose inner edge a
    flank of up to `length` reaches is taken for one; then the outer edge tells where it is, or,
    where the picture has `cut` that, the inner one. What no flank explains, such as a vehicle
    across the way, is left as it is seen.
    """
    depth = distances * np.cos(view.bearing)
    on_left = view.bearing >= 0
    side = np.where(on_left, 1.0, -1.0)
    left, right = np.tan(view.left), np.tan(view.right)
    inner, outer = np.where(on_left, right, -left), np.where(on_left, left, -right)
    beside = (length > 0) & (inner > 0)
    face = depth * outer - width
    reach = (depth + length) * inner + _MIRRORS * width
    flank = beside & ~cut & (face > depth * inner) & (face <= reach)
    partly = beside & cut
    face = np.where(partly, (depth + length) * inner, face)
    return _Beside(
        found=flank | partly,
        middle=side * (face + width / 2),
        slope=side * np.where(partly, inner, outer),
    )


def _by_foot(view: _View, height: float, settings: GroundSettings) -> tuple[Floats, Floats]:
    """Distance (N,) m from the foot's slope and its sigma; NaN at and above the horizon."""
    below = view.foot < -1e-4
    slope = np.where(below, -view.foot, np.nan)
    distance = height / slope
    slope_sigma = np.hypot(view.foot_sigma, view.tilt_sigma)
    sigma = distance * np.hypot(slope_sigma / slope, settings.height_sigma / height)
    return distance, sigma


def _by_size(view: _View, tall: Floats, tall_sigma: Floats) -> tuple[Floats, Floats]:
    """Distance (N,) m from the known height and its sigma; NaN for a box of no height."""
    rise = view.top - view.foot
    rise = np.where(rise > 1e-6, rise, np.nan)
    distance = tall / rise
    rise_sigma = np.hypot(view.foot_sigma, view.top_sigma)
    sigma = distance * np.hypot(tall_sigma / tall, rise_sigma / rise)
    return distance, sigma


def _fuse(
    first: Floats,
    first_sigma: Floats,
    use_first: Bools,
    second: Floats,
    second_sigma: Floats,
    use_second: Bools,
) -> tuple[Floats, Floats]:
    """Inverse-variance mean of those to be used, and its sigma.

    Estimates that contradict each other widen the result by the Birge ratio (Particle Data Group,
    Review of Particle Physics, section 5.2): sigma times sqrt(chi^2) where chi^2 > 1.
    """
    one = np.where(use_first, first_sigma**-2.0, 0.0)
    two = np.where(use_second, second_sigma**-2.0, 0.0)
    total = np.where(one + two > 0, one + two, np.nan)
    mean = (np.where(use_first, one * first, 0.0) + np.where(use_second, two * second, 0.0)) / total
    both = use_first & use_second
    gap = np.where(both, first - second, 0.0)
    spread = np.where(both, np.hypot(first_sigma, second_sigma), 1.0)
    return mean, np.sqrt(1 / total) * np.maximum(np.abs(gap) / spread, 1.0)


NOISE_SHARE = 0.25
"""Share of a place's variance that differs from picture to picture. The rest is tilt, floor and
size, which shift all places of an object alike and hardly touch its velocity."""


FASTEST = 100.0
"""m/s and rad/s; no robot moves or turns faster, and numbers far beyond it overflow."""

_FARTHEST = 1000.0
"""m; a place that far away, or that uncertain, tells no velocity, and rounding would spoil it."""


@dataclass(slots=True)
class _Motion:
    """Constant-velocity Kalman state of one object: x y vx vy in the base frame, over ground."""

    state: Floats
    covariance: Floats
    stamp_ns: int

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.state).all() and np.isfinite(self.covariance).all())

    @property
    def mean_variance(self) -> float:
        """m^2/s^2 of the velocity along one axis, in the mean of both."""
        return float(self.covariance[2, 2] + self.covariance[3, 3]) / 2

    @property
    def largest_variance(self) -> float:
        """m^2/s^2 of the velocity along the axis on which it is known worst."""
        half_gap = float(self.covariance[2, 2] - self.covariance[3, 3]) / 2
        return self.mean_variance + math.hypot(half_gap, float(self.covariance[2, 3]))


class GroundTracks:
    """Velocities over ground from the places of tracked objects.

    A constant-velocity Kalman filter per track id in metres and seconds, whose state is carried
    along as the base frame moves. Places are not filtered: a camera's errors of tilt and size stay
    the same from picture to picture, and a filter would take their agreement for certainty.
    """

    def __init__(
        self,
        *,
        acceleration: float = 2.0,
        first_speed: float = 2.0,
        known_speed: float = 1.0,
        retention: float = 1.0,
    ) -> None:
        """acceleration: m/s^2, standard deviation of what objects do. first_speed: m/s, that of
        a new object's velocity. known_speed: m/s of standard deviation below which a velocity
        counts as known. retention: s after which an object not seen is forgotten."""
        self._acceleration = acceleration
        self._first_speed = first_speed
        self._known_speed = known_speed
        self._retention = retention
        self._motions: dict[str, _Motion] = {}
        self._stamp_ns: int | None = None

    def restart(self) -> None:
        """Forget everything, after a jump of the clock."""
        self._motions.clear()
        self._stamp_ns = None

    def update(
        self,
        ids: Sequence[str],
        positions: Floats,
        covariances: Floats,
        stamp_ns: int,
        ego: tuple[float, float, float] = (0.0, 0.0, 0.0),
    ) -> Floats:
        """float64 (N, 2) velocities over ground in axes of the base frame, m/s, NaN = unknown.

        ids: track ids, "" where not tracked; rows that share one tell nothing about any of them,
        and count as not tracked. positions: (N, 2) m in the base frame, covariances: (N, 2, 2) m^2;
        a place that is not finite, or only known to a kilometre, is passed over. ego: the robot's
        vx, vy (m/s) and wz (rad/s) since the last picture; one beyond `FASTEST` makes every
        velocity unknown. A velocity is unknown until its standard deviation is below `known_speed`.
        """
        driven = all(abs(value) <= FASTEST for value in ego)
        if not driven or (self._stamp_ns is not None and stamp_ns < self._stamp_ns):
            self.restart()
        self._stamp_ns = stamp_ns
        shared = {name for name, count in Counter(ids).items() if count > 1}
        for name in shared:
            self._motions.pop(name, None)
        velocities = np.full((len(ids), 2), np.nan)
        for row, name in enumerate(ids):
            place, covariance = positions[row], covariances[row]
            if not name or name in shared or not _can_be_followed(place, covariance):
                continue
            motion = self._motions.get(name)
            if motion is not None:
                self._predict(motion, stamp_ns, ego)
                _correct(motion, place, covariance)
            if motion is None or not motion.finite:
                self._motions[name] = self._start(place, covariance, stamp_ns)
            elif 0.0 <= motion.mean_variance < self._known_speed**2:
                velocities[row] = motion.state[2:]
        oldest = stamp_ns - round(self._retention * 1e9)
        self._motions = {
            name: motion for name, motion in self._motions.items() if motion.stamp_ns >= oldest
        }
        return velocities

    def velocity_sigmas(self, ids: Sequence[str]) -> Floats:
        """float64 (N,) m/s: standard deviations of the velocities that `update` gave for `ids`,
        along the axis on which each is known worst; NaN for what is not followed."""
        motions = [self._motions.get(name) for name in ids]
        variances = [motion.largest_variance if motion else math.nan for motion in motions]
        return np.sqrt(np.maximum(np.array(variances, dtype=np.float64), 0.0))

    def _start(self, place: Floats, covariance: Floats, stamp_ns: int) -> _Motion:
        full = np.zeros((4, 4))
        full[:2, :2] = covariance
        full[2:, 2:] = np.eye(2) * self._first_speed**2
        return _Motion(np.concatenate([place, np.zeros(2)]), full, stamp_ns)

    def _predict(self, motion: _Motion, stamp_ns: int, ego: tuple[float, float, float]) -> None:
        seconds = (stamp_ns - motion.stamp_ns) / 1e9
        motion.stamp_ns = stamp_ns
        vx, vy, wz = ego
        angle = wz * seconds
        # Midpoint of the arc: exact to third order in the angle of one picture interval.
        cos, sin = math.cos(angle / 2), math.sin(angle / 2)
        drove = seconds * np.array([vx * cos - vy * sin, vx * sin + vy * cos])
        cos, sin = math.cos(angle), math.sin(angle)
        turn = np.array([[cos, sin], [-sin, cos]])
        motion.state[:2] += seconds * motion.state[2:] - drove
        step = np.eye(4)
        step[0, 2] = step[1, 3] = seconds
        rotate = np.zeros((4, 4))
        rotate[:2, :2] = rotate[2:, 2:] = turn
        motion.state = rotate @ motion.state
        # White-noise acceleration (Bar-Shalom, Estimation with Applications, section 6.3.2).
        variance = self._acceleration**2
        noise = np.zeros((4, 4))
        noise[0, 0] = noise[1, 1] = variance * seconds**4 / 4
        noise[2, 2] = noise[3, 3] = variance * seconds**2
        noise[0, 2] = noise[2, 0] = noise[1, 3] = noise[3, 1] = variance * seconds**3 / 2
        motion.covariance = rotate @ (step @ motion.covariance @ step.T + noise) @ rotate.T


def _can_be_followed(place: Floats, covariance: Floats) -> bool:
    near, sure = np.abs(place) <= _FARTHEST, np.abs(covariance) <= _FARTHEST**2
    return bool(near.all() and sure.all())


def _correct(motion: _Motion, place: Floats, covariance: Floats) -> None:
    # A source that claims to be exact must not make this singular.
    innovation = motion.covariance[:2, :2] + NOISE_SHARE * covariance + np.eye(2) * 1e-6
    # In closed form: it cannot fail on absurd numbers.
    (xx, xy), (yx, yy) = innovation
    with np.errstate(all="ignore"):
        inverse = np.array([[yy, -xy], [-yx, xx]]) / (xx * yy - xy * yx)
        gain = motion.covariance[:, :2] @ inverse
        motion.state = motion.state + gain @ (place - motion.state[:2])
        motion.covariance = motion.covariance - gain @ motion.covariance[:2, :]
