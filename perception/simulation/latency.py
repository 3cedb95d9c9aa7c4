"""How long it takes from a picture's detections to the limited velocity, in one process."""

from __future__ import annotations

import math
import time

import numpy as np

from perception.detections import Detections
from perception.geometry.camera import Camera
from perception.geometry.ground import PRIORS, GroundTracks
from perception.labels import FACTORY
from perception.safety import Guardian, GuardianSettings, Times, Twist
from perception.safety.place import place
from perception.simulation.hall import robot_camera
from perception.tracking.tracker import Tracker

PERIOD = 1 / 30


def crowd(objects: int, count: int, camera: Camera, seed: int) -> list[Detections]:
    """Boxes of `objects` people, forklifts and pallets that cross before the camera.

    They walk to and fro on straight lines 2 to 15 m ahead; edges jitter by a pixel.
    """
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(FACTORY.names), objects)
    priors = [PRIORS[FACTORY.names[label]] for label in labels]
    half = np.array([prior.radius for prior in priors])
    tall = np.array([prior.height for prior in priors])
    ahead = rng.uniform(2.0, 15.0, objects)
    phase, pace = rng.uniform(0, 2 * math.pi, (2, objects))
    pictures = []
    for number in range(count):
        left = 0.6 * ahead * np.sin(phase + 0.05 * pace * number * PERIOD)
        corners = [
            np.column_stack([ahead, left + side * half, up * tall])
            for side in (-1, 1)
            for up in (0, 1)
        ]
        pixels = camera.project(np.concatenate(corners)).reshape(4, objects, 2)
        pixels += rng.normal(0, 1, pixels.shape)
        boxes = np.concatenate([pixels.min(axis=0), pixels.max(axis=0)], axis=1)
        boxes = np.clip(boxes, 0, [camera.width, camera.height] * 2)
        shown = (boxes[:, 2] - boxes[:, 0] > 2) & (boxes[:, 3] - boxes[:, 1] > 2)
        scores = rng.uniform(0.5, 1.0, int(shown.sum()))
        pictures.append(Detections.create(boxes[shown], scores, labels[shown]))
    return pictures


def latencies(settings: GuardianSettings, objects: int, pictures: int) -> list[float]:
    """ms of tracking, placing and deciding for each of `pictures` pictures of `objects` objects."""
    camera = robot_camera()
    tracker, ground, guardian = Tracker(), GroundTracks(), Guardian(settings)
    wanted = Twist(1.0, 0.0, 0.1)
    taken = []
    for number, detections in enumerate(crowd(objects, pictures, camera, seed=1)):
        now = 10**9 + round(number * PERIOD * 1e9)
        times = Times(now, now, simulated=True)
        guardian.picture(now, "", times)
        guardian.command(wanted, 0, times)
        started = time.perf_counter()
        tracks = tracker.update(detections, now).voted()
        obstacles, _ = place(tracks, FACTORY.names, camera, ground, now, wanted)
        guardian.observe(obstacles, now, True, times)
        guardian.decide(times)
        taken.append((time.perf_counter() - started) * 1e3)
    return taken
