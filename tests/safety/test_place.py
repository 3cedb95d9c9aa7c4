"""Tracked boxes to obstacles."""

import numpy as np
import pytest

from perception.detections import Detections
from perception.geometry.camera import Camera, Mount
from perception.geometry.ground import GroundTracks
from perception.safety import Twist
from perception.safety.place import place

NAMES = ("person", "pallet")


@pytest.fixture
def camera() -> Camera:
    return Camera(
        matrix=np.array([[500.0, 0, 320], [0, 500, 240], [0, 0, 1]]),
        width=640,
        height=480,
        distortion=np.zeros(5),
        mount=Mount(z=1.0),
    )


def test_tracked_and_untracked_boxes_keep_name_and_identity(camera: Camera) -> None:
    found = Detections.create(
        [[300, 150, 340, 340], [100, 200, 200, 300]], [0.9, 0.8], [0, 1], [7, -1]
    )
    obstacles, places = place(found, NAMES, camera, GroundTracks(), 1_000_000_000, Twist())
    assert tuple(obstacles.labels) == NAMES
    assert tuple(obstacles.ids) == ("7", "")
    # The foot is 100 px below the horizon: 1 m high, 500 px focal length, so 5 m ahead.
    assert obstacles.positions[0, 0] == pytest.approx(5.0, rel=0.15)
    assert len(obstacles) == len(places.positions) == 2


def test_nothing_seen_gives_no_obstacles(camera: Camera) -> None:
    obstacles, _ = place(Detections.empty(), NAMES, camera, GroundTracks(), 1, Twist())
    assert len(obstacles) == 0


def test_a_velocity_comes_with_its_uncertainty(camera: Camera) -> None:
    tracks = GroundTracks()
    found = Detections.create(
        [[300, 150, 340, 340], [100, 200, 200, 300]], [0.9, 0.8], [0, 1], [7, -1]
    )
    for picture in range(20):
        stamp = 10**9 + picture * 50_000_000
        obstacles, _ = place(found, NAMES, camera, tracks, stamp, Twist())
    assert np.isfinite(obstacles.velocities[0]).all()
    assert 0.0 < obstacles.velocity_sigmas[0] < 2.0
    assert np.isnan(obstacles.velocities[1]).all() and np.isnan(obstacles.velocity_sigmas[1])


def test_boxes_that_share_a_track_number_have_no_velocity(camera: Camera) -> None:
    tracks = GroundTracks()
    found = Detections.create(
        [[300, 150, 340, 340], [100, 200, 200, 300]], [0.9, 0.8], [0, 1], [1, 1]
    )
    for picture in range(20):
        stamp = 10**9 + picture * 50_000_000
        obstacles, _ = place(found, NAMES, camera, tracks, stamp, Twist())
    assert np.isnan(obstacles.velocities).all()
