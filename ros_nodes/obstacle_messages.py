"""Obstacles to and from vision_msgs, points and markers; the robot's own motion from nav_msgs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from builtin_interfaces.msg import Duration
from nav_msgs.msg import Odometry
from sensor_msgs.msg import PointCloud2, PointField
from std_msgs.msg import Header
from vision_msgs.msg import Detection3D, Detection3DArray, ObjectHypothesisWithPose
from visualization_msgs.msg import Marker, MarkerArray

from perception.errors import InputError
from perception.geometry.ground import FASTEST
from perception.safety import Twist
from perception.safety.obstacles import Obstacles

POINT_HEIGHTS = (0.1, 0.2, 0.3, 0.4)
"""Metres. Each place on an obstacle's outline gets a point at each height: Nav2's collision
monitor ignores fewer than `min_points` (4) points in a zone, so a zone that holds one place of the
outline must hold four points; all lie within its default height band of 0.05 to 0.5 m."""

OUTLINE_PLACES = 12

MARKER_SECONDS = 0.5

FARTHEST = 1e8
"""Metres. Nothing on Earth is further off, or less certain; larger numbers overflow later."""

_LEVEL = 1e-6
"""A component of a quaternion below which it does not turn."""

_COLOURS = {
    "person": (0.9, 0.2, 0.2),
    "forklift": (1.0, 0.7, 0.1),
    "pallet": (0.6, 0.4, 0.2),
}


def obstacles_message(
    obstacles: Obstacles, heights: npt.NDArray[np.float64], scores: Sequence[float], header: Header
) -> Detection3DArray:
    """Boxes standing on the ground in the base frame; heights (N,) m.

    The hypothesis holds class name and score; its pose repeats the place and carries the
    covariance of x and y, m^2.
    """
    message = Detection3DArray(header=header)
    for row, label in enumerate(obstacles.labels):
        item = Detection3D(header=header, id=obstacles.ids[row])
        x, y = (float(value) for value in obstacles.positions[row])
        side = 2.0 * float(obstacles.radii[row])
        tall = float(heights[row])
        centre = item.bbox.center.position
        centre.x, centre.y, centre.z = x, y, tall / 2
        item.bbox.size.x, item.bbox.size.y, item.bbox.size.z = side, side, tall
        hypothesis = ObjectHypothesisWithPose()
        hypothesis.hypothesis.class_id = label
        hypothesis.hypothesis.score = float(scores[row])
        place = hypothesis.pose.pose.position
        place.x, place.y, place.z = x, y, tall / 2
        (xx, xy), (yx, yy) = obstacles.covariances[row].tolist()
        covariance = np.zeros(36)
        covariance[[0, 1, 6, 7]] = xx, xy, yx, yy
        hypothesis.pose.covariance = covariance
        item.results.append(hypothesis)
        message.detections.append(item)
    return message


def read_obstacles(message: Detection3DArray, base_frame: str) -> Obstacles:
    """Obstacles of a message in the base frame, the best hypothesis of each; velocities unknown.

    A covariance of zero is an exact place. Raises InputError when any row is unusable: of another
    frame, without a class, without a size, not finite or absurdly large. One broken row makes the
    whole message invalid, because where one obstacle is not known to be, no place is known to be
    free.
    """
    _check_frame("obstacles are", message.header.frame_id, base_frame)
    positions, covariances, radii, labels, ids = [], [], [], [], []
    for item in message.detections:
        if item.header.frame_id:
            _check_frame(f"obstacle {item.id!r} is", item.header.frame_id, base_frame)
        best = max(item.results, key=lambda result: result.hypothesis.score, default=None)
        if best is None:
            raise InputError(
                f"obstacle {item.id!r} has no hypothesis, expected a class and a score"
            )
        centre = item.bbox.center.position
        covariance = np.asarray(best.pose.covariance, dtype=np.float64).reshape(6, 6)[:2, :2]
        numbers = (centre.x, centre.y, best.hypothesis.score)
        # Written so that NaN is refused too.
        if not (np.abs(numbers) <= FARTHEST).all() or not (np.abs(covariance) <= FARTHEST**2).all():
            raise InputError(
                f"obstacle {item.id!r} is at {numbers[:2]} with the score {numbers[2]} and the "
                f"covariance {covariance.tolist()}, expected numbers within {FARTHEST:g} m"
            )
        if not _is_covariance(covariance):
            raise InputError(
                f"obstacle {item.id!r} has the covariance {covariance.tolist()}, expected a "
                "symmetric matrix without negative variances"
            )
        positions.append((centre.x, centre.y))
        covariances.append(covariance)
        radii.append(_radius(item))
        labels.append(best.hypothesis.class_id)
        ids.append(item.id)
    found = Obstacles.create(
        positions, labels, radii=radii, covariances=np.reshape(covariances, (-1, 2, 2)), ids=ids
    )
    if not found.usable:
        raise InputError(f"{len(found)} obstacles are more than can be judged")
    return found


def read_odometry(message: Odometry) -> Twist:
    """The robot's velocity; raises InputError for one that is no number or that no robot has."""
    twist = message.twist.twist
    velocity = Twist(twist.linear.x, twist.linear.y, twist.angular.z)
    # Written so that NaN is refused too.
    if not all(abs(value) <= FASTEST for value in (velocity.vx, velocity.vy, velocity.wz)):
        raise InputError(
            f"odometry is {velocity}, expected velocities within {FASTEST:g} m/s and rad/s"
        )
    return velocity


def points_message(obstacles: Obstacles, sigmas: float, header: Header) -> PointCloud2:
    """Outlines as points x y z (float32, m), for costmaps and Nav2's collision monitor.

    Each obstacle is a circle of its radius, moved towards the robot by `sigmas` standard
    deviations of its distance.
    """
    count = len(obstacles)
    places = np.zeros((count, OUTLINE_PLACES, len(POINT_HEIGHTS), 3), dtype=np.float32)
    if count:
        ranges = np.linalg.norm(obstacles.positions, axis=1)
        bearing = obstacles.positions / np.maximum(ranges, 1e-9)[:, None]
        variance = np.einsum("ni,nij,nj->n", bearing, obstacles.covariances, bearing)
        # Never past the robot: behind it the points would be on the wrong side.
        shift = np.minimum(sigmas * np.sqrt(np.maximum(variance, 0.0)), ranges)
        centre = obstacles.positions - shift[:, None] * bearing
        # The first place is the one nearest to the robot.
        first = np.arctan2(-bearing[:, 1], -bearing[:, 0])
        angles = first[:, None] + np.linspace(0, 2 * math.pi, OUTLINE_PLACES, endpoint=False)
        outline = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
        outline = centre[:, None] + obstacles.radii[:, None, None] * outline
        places[..., :2] = outline[:, :, None]
        places[..., 2] = POINT_HEIGHTS
    total = places.size // 3
    message = PointCloud2(
        header=header,
        height=1,
        width=total,
        is_bigendian=False,
        point_step=12,
        row_step=12 * total,
        is_dense=True,
    )
    message.fields = [
        PointField(name=name, offset=4 * number, datatype=PointField.FLOAT32, count=1)
        for number, name in enumerate("xyz")
    ]
    # Assigning bytes would be checked element by element (rclpy#763).
    message._data = _bytes(places)
    return message


def markers_message(
    obstacles: Obstacles,
    heights: npt.NDArray[np.float64],
    times: npt.NDArray[np.float64],
    header: Header,
) -> MarkerArray:
    """A cylinder and a text for each obstacle; times (N,) s to collision, inf for never."""
    message = MarkerArray()
    message.markers.append(Marker(header=header, action=Marker.DELETEALL))
    for row, label in enumerate(obstacles.labels):
        x, y = (float(value) for value in obstacles.positions[row])
        body = Marker(header=header, ns="obstacles", id=2 * row, type=Marker.CYLINDER)
        body.pose.position.x, body.pose.position.y = x, y
        body.pose.position.z = float(heights[row]) / 2
        body.pose.orientation.w = 1.0
        body.scale.x = body.scale.y = 2.0 * float(obstacles.radii[row])
        body.scale.z = float(heights[row])
        red, green, blue = _COLOURS.get(label, (0.5, 0.5, 0.9))
        body.color.r, body.color.g, body.color.b, body.color.a = red, green, blue, 0.6
        body.lifetime = Duration(nanosec=round(MARKER_SECONDS * 1e9))
        text = Marker(header=header, ns="obstacles", id=2 * row + 1, type=Marker.TEXT_VIEW_FACING)
        text.pose.position.x, text.pose.position.y = x, y
        text.pose.position.z = float(heights[row]) + 0.2
        text.pose.orientation.w = 1.0
        text.scale.z = 0.25
        text.color.r = text.color.g = text.color.b = text.color.a = 1.0
        soon = f", {times[row]:.1f} s" if math.isfinite(times[row]) else ""
        text.text = f"{label} {obstacles.ids[row]} {math.hypot(x, y):.1f} m{soon}"
        text.lifetime = body.lifetime
        message.markers += [body, text]
    return message


def _is_covariance(matrix: npt.NDArray[np.float64]) -> bool:
    """Whether a (2, 2) matrix is symmetric and not indefinite, up to rounding."""
    (xx, xy), (yx, yy) = matrix
    slack = 1e-6 * (abs(xx) + abs(yy)) + 1e-12
    sound = xx >= 0 and yy >= 0 and abs(xy - yx) <= slack
    return bool(sound and abs(xy) <= math.sqrt(xx) * math.sqrt(yy) + slack)


def _check_frame(who: str, frame: str, expected: str) -> None:
    if frame != expected:
        raise InputError(f"{who} in frame {frame!r}, expected {expected!r}")


def _radius(item: Detection3D) -> float:
    """m, of a circle on the ground that covers the box however it is turned."""
    size, turn = item.bbox.size, item.bbox.center.orientation
    if not all(math.isfinite(part) for part in (turn.x, turn.y, turn.z, turn.w)):
        raise InputError(
            f"obstacle {item.id!r} has the orientation {turn}, expected finite numbers"
        )
    # A box that is tilted may lie on the ground with what is its height.
    tilted = abs(turn.x) > _LEVEL or abs(turn.y) > _LEVEL
    sides = (size.x, size.y, size.z) if tilted else (size.x, size.y)
    if not all(0.0 < side <= FARTHEST for side in sides):
        raise InputError(
            f"obstacle {item.id!r} measures {' x '.join(f'{side:g}' for side in sides)} m, "
            f"expected positive sides up to {FARTHEST:g} m"
        )
    turned = tilted or abs(turn.z) > _LEVEL
    return (math.hypot(*sides) if turned else max(sides)) / 2


def _bytes(values: npt.NDArray[np.float32]) -> object:
    import array

    raw = array.array("B")
    raw.frombytes(values.astype("<f4").tobytes())
    return raw
