"""Boxes as RViz and Foxglove markers: outlines on a plane before the camera."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from builtin_interfaces.msg import Duration
from geometry_msgs.msg import Point
from sensor_msgs.msg import CameraInfo
from std_msgs.msg import ColorRGBA
from visualization_msgs.msg import Marker, MarkerArray

from perception.detections import UNTRACKED, Detections
from perception.draw import class_color
from perception.frame import Frame
from perception.geometry.camera import Camera, Mount
from ros_nodes.convert import header

_LIFETIME = Duration(nanosec=500_000_000)  # outlives a dropped message, not a dead node
_CORNERS = ((0, 1), (2, 1), (2, 3), (0, 3), (0, 1))  # columns of x and y around the box


def box_markers(
    detections: Detections, names: Sequence[str], frame: Frame, info: CameraInfo, distance: float
) -> MarkerArray:
    """An outline and a label for each box, in the optical frame of the picture.

    A box in the picture says nothing about depth: each corner is put where its viewing ray meets
    the plane `distance` metres before the camera, lens distortion undone. Raises InputError for a
    CameraInfo that is not calibrated. An invalid result clears the markers.
    """
    camera = Camera.create(
        info.width, info.height, info.k, info.d, Mount(z=1.0), info.distortion_model
    )
    shared = header(frame)
    markers = [Marker(header=shared, action=Marker.DELETEALL)]
    for row in range(len(detections)):
        box = detections.boxes[row]
        points = _on_plane(camera, np.array([[box[x], box[y]] for x, y in _CORNERS]), distance)
        color = _color(int(detections.labels[row]))
        outline = Marker(
            header=shared, ns="boxes", id=row, type=Marker.LINE_STRIP, lifetime=_LIFETIME
        )
        outline.pose.orientation.w = 1.0
        outline.scale.x = 0.004 * distance
        outline.color = color
        outline.points = [Point(x=x, y=y, z=z) for x, y, z in points.tolist()]
        label = Marker(
            header=shared, ns="labels", id=row, type=Marker.TEXT_VIEW_FACING, lifetime=_LIFETIME
        )
        label.pose.orientation.w = 1.0
        label.pose.position = outline.points[0]
        label.scale.z = 0.03 * distance
        label.color = color
        number = int(detections.labels[row])
        name = names[number] if number < len(names) else f"class {number}"
        track = int(detections.track_ids[row])
        label.text = name if track == UNTRACKED else f"#{track} {name}"
        markers += [outline, label]
    return MarkerArray(markers=markers)


def _on_plane(camera: Camera, pixels: np.ndarray, distance: float) -> np.ndarray:
    """float64 (N, 3) points of the optical frame with z = distance."""
    rays = camera.rays(pixels) @ camera.mount.rotation  # back from the base to the optical frame
    points: np.ndarray = rays / rays[:, 2:] * distance
    return points


def _color(label: int) -> ColorRGBA:
    blue, green, red = class_color(label)
    return ColorRGBA(r=red / 255, g=green / 255, b=blue / 255, a=1.0)
