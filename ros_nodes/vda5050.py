"""VDA 5050 messages of versions 2.1 and 3.0, from what the robot knows; no MQTT, no ROS.

The state holds what Waysight can say: velocity, position by odometry, safety state and errors.
Orders are not executed, so everything about orders is what the standard prescribes for "none".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Literal

Version = Literal["2.1.0", "3.0.0"]
VERSIONS: tuple[Version, ...] = ("2.1.0", "3.0.0")

Level = Literal["WARNING", "ERROR"]

MODES: Mapping[str, tuple[str, ...]] = {
    "2.1.0": ("AUTOMATIC", "SEMIAUTOMATIC", "MANUAL", "SERVICE", "TEACHIN"),
    "3.0.0": (
        "STARTUP",
        "AUTOMATIC",
        "SEMIAUTOMATIC",
        "INTERVENED",
        "MANUAL",
        "SERVICE",
        "TEACH_IN",
    ),
}

DRIVING_SPEED = 0.005
"""m/s or rad/s above which the robot counts as driving."""


@dataclass(frozen=True)
class Identity:
    """Whose messages these are; manufacturer and serial number are levels of the MQTT topics."""

    version: Version
    interface: str
    manufacturer: str
    serial_number: str

    def topic(self, name: str) -> str:
        """interfaceName/majorVersion/manufacturer/serialNumber/topic"""
        major = self.version.split(".")[0]
        return f"{self.interface}/v{major}/{self.manufacturer}/{self.serial_number}/{name}"


@dataclass(frozen=True)
class Fault:
    """An active error: its type, where it comes from, and what it says."""

    kind: str
    level: Level
    text: str
    reference: tuple[str, str] | None = None


@dataclass(frozen=True)
class RobotState:
    """What is known of the robot; None where it is not.

    position: x, y (m) and heading (rad) by odometry. velocity: vx, vy (m/s), wz (rad/s).
    charge: percent. field_violation: whether someone is in a zone that stops, or nobody can tell.
    """

    position: tuple[float, float, float] | None
    velocity: tuple[float, float, float] | None
    charge: float | None
    charging: bool
    field_violation: bool
    faults: tuple[Fault, ...]
    mode: str = "AUTOMATIC"
    map_id: str = ""

    @property
    def driving(self) -> bool:
        return self.velocity is not None and any(abs(v) > DRIVING_SPEED for v in self.velocity)


def timestamp(now: datetime | None = None) -> str:
    """ISO 8601 in UTC with milliseconds, such as 2026-03-11T11:40:03.123Z."""
    moment = (now or datetime.now(timezone.utc)).astimezone(timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def header(identity: Identity, number: int) -> dict[str, Any]:
    """The fields that every message begins with; `number` counts per topic."""
    return {
        "headerId": number,
        "timestamp": timestamp(),
        "version": identity.version,
        "manufacturer": identity.manufacturer,
        "serialNumber": identity.serial_number,
    }


def connection_message(
    identity: Identity, number: int, state: Literal["ONLINE", "OFFLINE", "BROKEN"]
) -> dict[str, Any]:
    """The message of the topic `connection`; BROKEN is the last will."""
    broken = "CONNECTIONBROKEN" if identity.version == "2.1.0" else "CONNECTION_BROKEN"
    word = broken if state == "BROKEN" else state
    return header(identity, number) | {"connectionState": word}


def state_message(identity: Identity, number: int, robot: RobotState) -> dict[str, Any]:
    """The message of the topic `state`."""
    second = identity.version == "2.1.0"
    message = header(identity, number) | {
        "orderId": "",
        "orderUpdateId": 0,
        "lastNodeId": "",
        "lastNodeSequenceId": 0,
        "nodeStates": [],
        "edgeStates": [],
        "actionStates": [],
        "driving": robot.driving,
        "paused": False,
        "operatingMode": robot.mode,
        "errors": [_error(fault, second) for fault in _with_battery(robot)],
        "information": [],
    }
    # The standard wants a number even where none is known; an error then says so.
    charge = 0.0 if robot.charge is None else min(max(robot.charge, 0.0), 100.0)
    if second:
        message["batteryState"] = {"batteryCharge": charge, "charging": robot.charging}
        message["safetyState"] = {
            "eStop": "AUTOACK" if robot.field_violation else "NONE",
            "fieldViolation": robot.field_violation,
        }
    else:
        message["instantActionStates"] = []
        message["powerSupply"] = {"stateOfCharge": charge, "charging": robot.charging}
        message["safetyState"] = {
            "activeEmergencyStop": "NONE",
            "fieldViolation": robot.field_violation,
        }
    if robot.velocity is not None:
        message["velocity"] = dict(zip(("vx", "vy", "omega"), robot.velocity, strict=True))
    if robot.position is not None and robot.map_id:
        x, y, theta = robot.position
        place = {"x": x, "y": y, "theta": _wrapped(theta), "mapId": robot.map_id}
        # Odometry drifts: nobody may take it for a localised position.
        if second:
            message["agvPosition"] = place | {"positionInitialized": False}
        else:
            message["mobileRobotPosition"] = place | {"localized": False}
    return message


def same_event(first: RobotState | None, second: RobotState) -> bool:
    """Whether nothing happened that must be reported before the period is over."""
    if first is None:
        return False
    return (first.driving, first.mode, first.field_violation, first.faults) == (
        second.driving,
        second.mode,
        second.field_violation,
        second.faults,
    )


def _with_battery(robot: RobotState) -> Sequence[Fault]:
    if robot.charge is not None:
        return robot.faults
    unknown = Fault("batteryUnknown", "WARNING", "no battery state is known; 0 % stands for it")
    return (*robot.faults, unknown)


def _error(fault: Fault, second: bool) -> dict[str, Any]:
    """Version 2.1 knows WARNING and FATAL; CRITICAL of 3.0 ends the order, not the robot."""
    serious = "FATAL" if second else "CRITICAL"
    error: dict[str, Any] = {
        "errorType": fault.kind,
        "errorLevel": "WARNING" if fault.level == "WARNING" else serious,
        "errorDescription": fault.text,
    }
    if fault.reference is not None:
        key, value = fault.reference
        error["errorReferences"] = [{"referenceKey": key, "referenceValue": value}]
    return error


def _wrapped(angle: float) -> float:
    """The same heading within -pi to pi."""
    return math.remainder(angle, 2 * math.pi)
