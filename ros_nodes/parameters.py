"""Node parameters as frozen dataclasses: the one place of names, defaults, limits and words.

    @dataclass(frozen=True)
    class DetectorParameters(NodeParameters):
        model: str = parameter("road-n", "Shipped model or path of an ONNX file", applies="live")
        score_threshold: float | None = parameter(
            None, "Least score; unset: the model's own", minimum=0.0, maximum=1.0, applies="live"
        )

Annotations may be bool, int, float, str, each `| None`, and tuple[str, ...], tuple[int, ...],
tuple[float, ...]. This module does not import rclpy: launch files, `waysight run` and the
reference page read the same dataclasses.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from perception.errors import InputError

P = TypeVar("P", bound="NodeParameters")

Applies = Literal["live", "configure", "start"]
"""When a new value takes effect: at once, at the next `configure`, or only at a new start."""


@dataclass(frozen=True)
class ParameterInfo:
    """What is known of one parameter beyond its value."""

    name: str
    default: Any
    kind: type  # bool, int, float or str: of the value, or of each element of a list
    many: bool
    optional: bool
    description: str
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]
    unit: str
    applies: Applies

    @property
    def allowed(self) -> str:
        """Type and range in words, as error messages and the reference page show them."""
        words = {bool: "true or false", int: "integer", float: "number", str: "string"}[self.kind]
        if self.many:
            words = f"list of {words}s"
        if self.choices:
            words = "one of " + ", ".join(repr(choice) for choice in self.choices)
        if self.minimum is not None and self.maximum is not None:
            words += f" from {self.minimum} to {self.maximum}"
        elif self.minimum is not None:
            words += f" of at least {self.minimum}"
        elif self.maximum is not None:
            words += f" of at most {self.maximum}"
        return f"{words} ({self.unit})" if self.unit else words


def parameter(
    default: Any,
    description: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Sequence[str] = (),
    unit: str = "",
    applies: Applies = "configure",
) -> Any:
    """A dataclass field that is a ROS parameter."""
    metadata = {
        "description": description,
        "minimum": minimum,
        "maximum": maximum,
        "choices": tuple(choices),
        "unit": unit,
        "applies": applies,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class NodeParameters:
    """Parameters of every Waysight node. Raise InputError in __post_init__ for combined checks."""

    autostart: bool = parameter(
        True,
        "Configure and activate without being told; false under a lifecycle manager",
        applies="start",
    )
    diagnostics_period: float = parameter(
        1.0, "Time between two messages on /diagnostics", minimum=0.1, maximum=60.0, unit="s"
    )


def describe(cls: type[NodeParameters]) -> dict[str, ParameterInfo]:
    """The parameters of a dataclass by name, in order of declaration, subclasses' own first."""
    hints = typing.get_type_hints(cls)
    own = [f for f in dataclasses.fields(cls) if f.name not in NodeParameters.__annotations__]
    shared = [f for f in dataclasses.fields(cls) if f.name in NodeParameters.__annotations__]
    return {
        f.name: ParameterInfo(f.name, f.default, *_kind(hints[f.name]), **f.metadata)
        for f in own + shared
    }


def build(cls: type[P], values: Mapping[str, Any]) -> P:
    """Check every value and make the dataclass; names not given keep their defaults.

    Raises InputError naming the parameter, its value and what is allowed.
    """
    known = describe(cls)
    for name in values:
        if name not in known:
            raise InputError(unknown(name, known))
    return cls(**{name: check(known[name], value) for name, value in values.items()})


def unknown(name: str, known: Iterable[str]) -> str:
    """The sentence about a parameter that nobody takes, with the nearest name."""
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return f"unknown parameter '{name}'{hint}"


def check(info: ParameterInfo, value: Any) -> Any:
    """The value in the parameter's own type. Raises InputError when it cannot be.

    An integer is taken where a number is meant, digits where a string is meant (YAML types them
    by their looks, rclcpp#979), and comma-separated text where a list of strings is meant.
    """
    if value is None:
        if info.optional:
            return None
        raise _refusal(info, value)
    if not info.many:
        return _check_one(info, value, value)
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, (bytes, Mapping)) or not isinstance(value, typing.Iterable):
        raise _refusal(info, value)
    whole = list(value)
    return tuple(_check_one(info, item, whole) for item in whole)


def _check_one(info: ParameterInfo, value: Any, whole: Any) -> Any:
    if info.kind is str and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    elif info.kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not info.kind:
        raise _refusal(info, whole)
    return _check_limits(info, value, whole)


def _check_limits(info: ParameterInfo, value: Any, whole: Any) -> Any:
    if info.choices and value not in info.choices:
        raise _refusal(info, whole)
    if info.kind is float and not math.isfinite(value):
        raise _refusal(info, whole)
    if info.minimum is not None and value < info.minimum:
        raise _refusal(info, whole)
    if info.maximum is not None and value > info.maximum:
        raise _refusal(info, whole)
    return value


def _refusal(info: ParameterInfo, value: Any) -> InputError:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string"}
    kind = "not set" if value is None else kinds.get(type(value), type(value).__name__)
    return InputError(f"parameter '{info.name}': got {value!r} ({kind}), expected {info.allowed}")


def _kind(hint: Any) -> tuple[type, bool, bool]:
    """(element type, is a list, may be unset) of an annotation."""
    optional = False
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        arms = [arm for arm in typing.get_args(hint) if arm is not type(None)]
        if len(arms) != 1:
            raise TypeError(f"parameter annotation {hint} has more than one type")
        hint, optional = arms[0], True
    if typing.get_origin(hint) is tuple:
        return typing.get_args(hint)[0], True, optional
    if hint not in (bool, int, float, str):
        raise TypeError(f"parameter annotation {hint} is not a ROS parameter type")
    return hint, False, optional
