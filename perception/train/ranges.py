"""Ranges of settings, so that a slip of the pen ends before the first step and by name."""

from __future__ import annotations

import math
from typing import Any

from perception.errors import InputError


def at_least(settings: Any, low: int, *names: str) -> None:
    """InputError for a field that is below `low`, or no finite number."""
    for name in names:
        value = getattr(settings, name)
        _require(low <= value < math.inf, name, value, f"at least {low}")


def above_zero(settings: Any, *names: str) -> None:
    """InputError for a field that is 0 or below, or no finite number."""
    for name in names:
        value = getattr(settings, name)
        _require(0 < value < math.inf, name, value, "a number above 0")


def shares(settings: Any, *names: str) -> None:
    """InputError for a field outside 0..1."""
    for name in names:
        value = getattr(settings, name)
        _require(0 <= value <= 1, name, value, "0 to 1")


def input_sides(settings: Any, *names: str) -> None:
    """InputError for a field that is no size of a network's input."""
    for name in names:
        value = getattr(settings, name)
        _require(value >= 32 and value % 32 == 0, name, value, "a multiple of 32")


def _require(right: bool, name: str, value: object, expected: str) -> None:
    if not right:
        raise InputError(f"{name} is {value}, expected {expected}")
