"""The QoS profiles of Waysight's topics."""

from __future__ import annotations

from rclpy.qos import (
    DurabilityPolicy,
    HistoryPolicy,
    QoSProfile,
    ReliabilityPolicy,
)

IMAGE_DEPTH = 10
"""Pictures that the middleware holds while a node's thread gets no time: 55 ms at 180 Hz."""


def image_subscription(reliability: str = "best_effort", depth: int = IMAGE_DEPTH) -> QoSProfile:
    """A reader that matches best-effort and reliable cameras alike, unless set to `reliable`."""
    return _profile(ReliabilityPolicy[reliability.upper()], depth)


def image_publisher(reliability: str = "best_effort", depth: int = IMAGE_DEPTH) -> QoSProfile:
    """Sensor data: a late picture is worth less than the next one."""
    return _profile(ReliabilityPolicy[reliability.upper()], depth)


def results(depth: int = 10) -> QoSProfile:
    """Detections, tracks, obstacles, commands: small, and none may get lost on the way."""
    return _profile(ReliabilityPolicy.RELIABLE, depth)


def latched(depth: int = 1) -> QoSProfile:
    """The last value reaches every late subscriber (LabelInfo)."""
    return _profile(ReliabilityPolicy.RELIABLE, depth, DurabilityPolicy.TRANSIENT_LOCAL)


def _profile(
    reliability: ReliabilityPolicy,
    depth: int,
    durability: DurabilityPolicy = DurabilityPolicy.VOLATILE,
) -> QoSProfile:
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=reliability,
        durability=durability,
    )
