"""How obstacles may move: parameters of every node that follows them on the ground."""

from __future__ import annotations

from dataclasses import dataclass

from perception.geometry.ground import GroundTracks
from ros_nodes.parameters import NodeParameters, parameter


@dataclass(frozen=True)
class MotionParameters(NodeParameters):
    """The settings of `GroundTracks`."""

    object_speed: float = parameter(
        2.0,
        "Standard deviation of the speed of what has just come into sight",
        minimum=0.1,
        maximum=50.0,
        unit="m/s",
    )
    known_speed: float = parameter(
        1.0,
        "Standard deviation below which an obstacle's velocity counts as known",
        minimum=0.05,
        maximum=50.0,
        unit="m/s",
    )
    object_acceleration: float = parameter(
        2.0,
        "Standard deviation of the acceleration of obstacles",
        minimum=0.1,
        maximum=50.0,
        unit="m/s^2",
    )

    def ground_tracks(self) -> GroundTracks:
        """Empty tracks that move so."""
        return GroundTracks(
            acceleration=self.object_acceleration,
            first_speed=self.object_speed,
            known_speed=self.known_speed,
        )
