"""Tracked boxes to obstacles: the one step between seeing and judging, in nodes and simulation."""

from __future__ import annotations

from collections.abc import Sequence

from perception.detections import UNTRACKED, Detections
from perception.geometry.camera import Camera
from perception.geometry.ground import GroundEstimate, GroundSettings, GroundTracks, locate
from perception.safety.motion import Twist
from perception.safety.obstacles import Obstacles


def place(
    detections: Detections,
    names: Sequence[str],
    camera: Camera,
    tracks: GroundTracks,
    stamp_ns: int,
    ego: Twist,
    settings: GroundSettings | None = None,
) -> tuple[Obstacles, GroundEstimate]:
    """Obstacles in the base frame at the picture's time, and the places they come from.

    detections: boxes in pixels of the original image; labels index `names`. tracks: keeps the
    velocities over ground and is updated. ego: the robot's motion, base frame.
    """
    labels = [names[label] for label in detections.labels]
    ids = ["" if track == UNTRACKED else str(track) for track in detections.track_ids]
    places = locate(detections.boxes, labels, camera, settings)
    velocities = tracks.update(
        ids, places.positions, places.covariances, stamp_ns, (ego.vx, ego.vy, ego.wz)
    )
    obstacles = Obstacles.create(
        places.positions,
        labels,
        radii=places.radii,
        covariances=places.covariances,
        velocities=velocities,
        velocity_sigmas=tracks.velocity_sigmas(ids),
        ids=ids,
    )
    return obstacles, places
