"""Guardian settings from plain mappings, as YAML files and ROS parameters give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from perception.errors import InputError
from perception.files import read_yaml
from perception.labels import nearest
from perception.safety.guardian import GuardianSettings
from perception.safety.shapes import Circle, Polygon, Shape, VelocityPart, VelocityPolygon
from perception.safety.watchdog import WatchdogSettings
from perception.safety.zones import Action, Zone

SHAPES = ("polygon", "circle", "velocity_polygon")
_SHAPE_KEYS = ("shape", "points", "radius", "velocity_polygons")
_PART_KEYS = ("linear_min", "linear_max", "theta_min", "theta_max")
_ZONE_NUMBERS = tuple(field.name for field in fields(Zone) if field.type == "float")
_ZONE_KEYS = (
    *_SHAPE_KEYS,
    *(field.name for field in fields(Zone) if field.name not in ("name", "shape")),
)
_WATCHDOG_KEYS = tuple(field.name for field in fields(WatchdogSettings))
_OWN_KEYS = ("sigmas", "unknown_speed", "sight_near", "sight_angle")
SETTING_KEYS = ("classes", "zones", "watch_camera", *_OWN_KEYS, *_WATCHDOG_KEYS)
"""Keys of the guardian's settings besides the zones' own names."""


def read_guardian_settings(path: str | Path) -> GuardianSettings:
    """Read the settings from a YAML file; raises InputError naming file and key."""
    try:
        return guardian_settings(read_yaml(path))
    except InputError as error:
        text = str(error)
        raise InputError(text if text.startswith(str(path)) else f"{path}: {text}") from None


def guardian_settings(data: Mapping[str, Any]) -> GuardianSettings:
    """Build settings from a mapping; raises InputError naming the key, e.g. "stop.radius".

    Keys: `classes` (names), `zones` (names, each with a mapping of its own under that key),
    `watch_camera`, `sigmas`, `unknown_speed`, `sight_near`, `sight_angle` and the fields of
    `WatchdogSettings`.
    """
    names = _names(data, "zones")
    classes = _names(data, "classes")
    zones = tuple(_zone(name, data.get(name), classes) for name in names)
    _refuse_unknown(data, (*SETTING_KEYS, *names), "")
    numbers = {key: _number(data, key, "") for key in _OWN_KEYS if key in data}
    limits: dict[str, Any] = {key: _number(data, key, "") for key in _WATCHDOG_KEYS if key in data}
    if "recovery_frames" in limits:
        if limits["recovery_frames"] != int(limits["recovery_frames"]):
            raise InputError(
                f"recovery_frames is {limits['recovery_frames']}, expected a whole number"
            )
        limits["recovery_frames"] = int(limits["recovery_frames"])
    return GuardianSettings(
        zones=zones,
        classes=classes,
        watch_camera=_switch(data, "watch_camera", False, ""),
        watchdog=WatchdogSettings(**limits),
        **numbers,
    )


def _zone(name: str, data: object, classes: tuple[str, ...]) -> Zone:
    if not isinstance(data, Mapping):
        raise InputError(f"zones names {name!r}, but there is no mapping {name!r} that defines it")
    where = f"{name}."
    reacts_to = _names(data, "classes", where)
    for label in reacts_to:
        # A misspelt class would make a zone that never triggers.
        if label not in classes:
            raise InputError(
                f"{where}classes names {label!r}, expected one of {', '.join(classes) or 'none'}"
                f"{nearest(label, classes)}"
            )
    actions = [action.value for action in Action]
    action = data.get("action")
    if action not in actions:
        raise InputError(f"{where}action is {action!r}, expected one of {', '.join(actions)}")
    numbers = {key: _number(data, key, where) for key in _ZONE_NUMBERS if key in data}
    try:
        shape = _shape(data)
        _refuse_unknown(data, (*_ZONE_KEYS, *_names(data, "velocity_polygons")), "")
        return Zone(
            name=name,
            shape=shape,
            action=Action(action),
            classes=reacts_to,
            enabled=_switch(data, "enabled", True, where),
            **numbers,
        )
    except InputError as error:
        raise InputError(f"{where}{error}") from None


def _shape(data: Mapping[str, Any]) -> Shape:
    shape = data.get("shape")
    if shape == "circle":
        return Circle(_number(data, "radius", ""))
    if shape == "polygon":
        return Polygon(_points(data.get("points")))
    if shape == "velocity_polygon":
        names = _names(data, "velocity_polygons")
        return VelocityPolygon(tuple(_part(name, data.get(name)) for name in names))
    raise InputError(f"shape is {shape!r}, expected one of {', '.join(SHAPES)}")


def _part(name: str, data: object) -> VelocityPart:
    if not isinstance(data, Mapping):
        raise InputError(f"velocity_polygons names {name!r}, but there is no mapping of that name")
    where = f"{name}."
    _refuse_unknown(data, ("points", *_PART_KEYS), where)
    try:
        return VelocityPart(
            Polygon(_points(data.get("points"))), *(_number(data, key, "") for key in _PART_KEYS)
        )
    except InputError as error:
        raise InputError(f"{where}{error}") from None


def _points(value: object) -> tuple[tuple[float, float], ...]:
    """[[x, y], ...], flat [x, y, x, y, ...], or either as text, as in Nav2's parameter files."""
    given = value
    if isinstance(value, str):
        try:
            value = yaml.safe_load(value)
        except yaml.YAMLError:
            value = None
    if isinstance(value, list | tuple):
        flat = [
            item
            for pair in value
            for item in (pair if isinstance(pair, list | tuple) and len(pair) == 2 else [pair])
        ]
        numbers = [item for item in flat if _is_number(item)]
        if len(numbers) == len(flat) and len(flat) % 2 == 0:
            return tuple((float(x), float(y)) for x, y in zip(flat[::2], flat[1::2], strict=True))
    raise InputError(f"points is {given!r}, expected corners as [[x, y], ...] in metres")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(data: Mapping[str, Any], key: str, where: str) -> float:
    value = data.get(key)
    if not _is_number(value):
        raise InputError(f"{where}{key} is {value!r}, expected a number")
    return float(data[key])


def _switch(data: Mapping[str, Any], key: str, default: bool, where: str) -> bool:
    value = data.get(key, default)
    if not isinstance(value, bool):
        raise InputError(f"{where}{key} is {value!r}, expected true or false")
    return value


def _names(data: Mapping[str, Any], key: str, where: str = "") -> tuple[str, ...]:
    value = data.get(key, [])
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise InputError(f"{where}{key} is {value!r}, expected a list of names")
    # ROS 2 YAML files cannot hold an empty list of strings; [""] is the custom for it.
    return tuple(name for name in value if name)


def _refuse_unknown(data: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in data:
        if key not in known:
            raise InputError(
                f"{where}{key} is not a setting, expected one of {', '.join(known)}"
                f"{nearest(str(key), known)}"
            )
