"""Scenarios: what happens in the hall, how it varies with the seed, and what must hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from perception.errors import InputError
from perception.files import read_yaml
from perception.labels import nearest

SCENARIOS = Path(__file__).resolve().parent / "scenarios"

KINDS = ("person", "forklift", "pallet")
FAULTS = (
    "camera_dies",
    "camera_freezes",
    "detector_killed",
    "lights_out",
    "picture_noise",
)

Range = tuple[float, float]


@dataclass(frozen=True)
class ActorPlan:
    """Someone or something in the hall; lengths in m, the lane along x at y = 0.

    start, path: places (x, y). vary: half the range by which all of them shift with the seed.
    speed: range of m/s. trigger_distance: range of the robot's distance along the lane at which
    it sets off; (0, 0) means at once. mirror: whether the seed may swap left and right.
    halt_seconds: range of s for which it stands before the robot once, on the way to the first
    place of its path, halt_clearance: range of m that it leaves to the robot's footprint then.
    The rest of the path begins where it stood. (0, 0) s means that it does not halt.
    """

    kind: str
    start: tuple[float, float]
    path: tuple[tuple[float, float], ...] = ()
    vary: tuple[float, float] = (0.0, 0.0)
    speed: Range = (1.0, 1.0)
    trigger_distance: Range = (0.0, 0.0)
    mirror: bool = False
    halt_clearance: Range = (0.5, 0.5)
    halt_seconds: Range = (0.0, 0.0)


@dataclass(frozen=True)
class FaultPlan:
    """Something breaks at a time in the range `at`, s, and stays broken."""

    kind: str
    at: Range


@dataclass(frozen=True)
class Expectation:
    """What must hold besides "no contact" and that nobody walks into the standing robot.

    clearance: m that must lie between robot and anyone at every moment the robot moves.
    stops: whether the robot must come to a stop for an obstacle (True), must not (False), or may.
    reaches_goal: the same for the end of the lane.
    closest_stop, farthest_stop: m of clearance between which it must stand when it stops.
    fault_margin: s after the watchdog's timeout within which a fault must lead to zero velocity.
    """

    clearance: float = 0.5
    stops: bool | None = None
    reaches_goal: bool | None = None
    farthest_stop: float = 10.0
    fault_margin: float = 0.3


@dataclass(frozen=True)
class Scenario:
    """seconds: length. cruise: range of the driver's speed, m/s. goal: x of the lane's end, m.

    gaps: x of the openings in the racks, where cross aisles meet the lane.
    """

    name: str
    description: str
    seconds: float
    cruise: Range = (0.8, 1.0)
    goal: float = 16.0
    gaps: tuple[float, ...] = (9.0,)
    actors: tuple[ActorPlan, ...] = ()
    fault: FaultPlan | None = None
    expect: Expectation = Expectation()


def scenario_names() -> tuple[str, ...]:
    """The shipped scenarios."""
    return tuple(sorted(path.stem for path in SCENARIOS.glob("*.yaml")))


def load_scenario(name_or_path: str) -> Scenario:
    """A shipped scenario by name, or a YAML file; InputError names what is wrong with it."""
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        path = SCENARIOS / f"{name_or_path}.yaml"
        if not path.is_file():
            names = scenario_names()
            raise InputError(
                f"no scenario {name_or_path!r}, expected one of {', '.join(names)}"
                f"{nearest(name_or_path, names)} or a .yaml file"
            )
    data = read_yaml(path)
    try:
        return _scenario(path.stem, data)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _scenario(name: str, data: Mapping[str, Any]) -> Scenario:
    _known(data, Scenario, "")
    actors = data.get("actors", [])
    if not isinstance(actors, list):
        raise InputError(f"actors is {actors!r}, expected a list")
    fault = data.get("fault")
    return Scenario(
        name=name,
        description=str(data.get("description", "")),
        seconds=_number(data.get("seconds"), "seconds", 0.1, 3600.0),
        cruise=_range(data.get("cruise", 1.0), "cruise", 0.0, 5.0),
        goal=_number(data.get("goal", 16.0), "goal", 1.0, 200.0),
        gaps=tuple(_number(gap, "gaps", 0.0, 200.0) for gap in data.get("gaps", [9.0])),
        actors=tuple(_actor(actor, f"actors[{index}].") for index, actor in enumerate(actors)),
        fault=None if fault is None else _fault(fault),
        expect=_expectation(data.get("expect", {})),
    )


def _actor(data: Any, where: str) -> ActorPlan:
    _known(data, ActorPlan, where)
    kind = data.get("kind")
    if kind not in KINDS:
        raise InputError(f"{where}kind is {kind!r}, expected one of {', '.join(KINDS)}")
    mirror = data.get("mirror", False)
    if not isinstance(mirror, bool):
        raise InputError(f"{where}mirror is {mirror!r}, expected true or false")
    halts = data.get("halt_seconds", 0.0)
    if halts and not data.get("path"):
        raise InputError(f"{where}halt_seconds is {halts!r}, and there is no path to halt on")
    return ActorPlan(
        kind=kind,
        start=_pair(data.get("start"), f"{where}start"),
        path=tuple(_pair(place, f"{where}path") for place in data.get("path", [])),
        vary=_pair(data.get("vary", [0, 0]), f"{where}vary"),
        speed=_range(data.get("speed", 1.0), f"{where}speed", 0.0, 10.0),
        trigger_distance=_range(
            data.get("trigger_distance", 0.0), f"{where}trigger_distance", 0.0, 100.0
        ),
        mirror=mirror,
        halt_clearance=_range(
            data.get("halt_clearance", 0.5), f"{where}halt_clearance", 0.1, 100.0
        ),
        halt_seconds=_range(halts, f"{where}halt_seconds", 0.0, 3600.0),
    )


def _fault(data: Any) -> FaultPlan:
    _known(data, FaultPlan, "fault.")
    kind = data.get("kind")
    if kind not in FAULTS:
        raise InputError(f"fault.kind is {kind!r}, expected one of {', '.join(FAULTS)}")
    return FaultPlan(kind, _range(data.get("at"), "fault.at", 0.0, 3600.0))


def _expectation(data: Any) -> Expectation:
    _known(data, Expectation, "expect.")
    values: dict[str, Any] = {}
    for key, value in data.items():
        if key in ("stops", "reaches_goal"):
            if not isinstance(value, bool):
                raise InputError(f"expect.{key} is {value!r}, expected true or false")
            values[key] = value
        else:
            values[key] = _number(value, f"expect.{key}", 0.0, 100.0)
    return Expectation(**values)


def _known(data: Any, kind: type[Any], where: str) -> None:
    if not isinstance(data, Mapping):
        raise InputError(f"{where.rstrip('.')} is {data!r}, expected a mapping")
    names = [field.name for field in fields(kind) if field.name != "name"]
    for key in data:
        if key not in names:
            raise InputError(
                f"{where}{key} is not a setting, expected one of {', '.join(names)}"
                f"{nearest(str(key), names)}"
            )


def _number(value: Any, name: str, low: float, high: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise InputError(f"{name} is {value!r}, expected a number from {low:g} to {high:g}")
    return float(value)


def _range(value: Any, name: str, low: float, high: float) -> Range:
    """A number, or a list of two in order."""
    if isinstance(value, list) and len(value) == 2:
        first, last = (_number(item, name, low, high) for item in value)
        if first > last:
            raise InputError(f"{name} is {value!r}, expected the smaller number first")
        return first, last
    number = _number(value, name, low, high)
    return number, number


def _pair(value: Any, name: str) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        raise InputError(f"{name} is {value!r}, expected [x, y] in metres")
    x, y = (_number(item, name, -200.0, 200.0) for item in value)
    return x, y


@dataclass(frozen=True)
class Actor:
    """An ActorPlan with the seed's choices made."""

    kind: str
    start: tuple[float, float]
    path: tuple[tuple[float, float], ...]
    speed: float
    trigger_distance: float
    halt_clearance: float = 0.5
    halt_seconds: float = 0.0


@dataclass(frozen=True)
class Variation:
    """A scenario with the seed's choices made. fault_at: s, inf without a fault."""

    scenario: Scenario
    seed: int
    cruise: float
    actors: tuple[Actor, ...]
    fault_at: float

    @classmethod
    def of(cls, scenario: Scenario, seed: int) -> Variation:
        """The same seed always gives the same variation."""
        rng = np.random.default_rng([seed, *scenario.name.encode()])
        actors = []
        for plan in scenario.actors:
            shift = rng.uniform(-1, 1, 2) * plan.vary
            side = -1.0 if plan.mirror and rng.random() < 0.5 else 1.0
            places = [
                (float(x + shift[0]), float(side * (y + shift[1])))
                for x, y in (plan.start, *plan.path)
            ]
            actor = Actor(
                plan.kind,
                places[0],
                tuple(places[1:]),
                float(rng.uniform(*plan.speed)),
                float(rng.uniform(*plan.trigger_distance)),
            )
            if plan.halt_seconds != (0.0, 0.0):
                actor = replace(
                    actor,
                    halt_clearance=float(rng.uniform(*plan.halt_clearance)),
                    halt_seconds=float(rng.uniform(*plan.halt_seconds)),
                )
            actors.append(actor)
        fault_at = float(rng.uniform(*scenario.fault.at)) if scenario.fault else float("inf")
        return cls(scenario, seed, float(rng.uniform(*scenario.cruise)), tuple(actors), fault_at)
