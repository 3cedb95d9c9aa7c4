"""Message types by name, and their definitions as MCAP files carry them."""

from __future__ import annotations

import importlib
import os
import re
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from perception.errors import InputError

_FIELD = re.compile(r"^([A-Za-z]\w*(?:/[A-Za-z]\w*)?)(?:<=\d+)?(?:\[[^\]]*\])?\s+[a-z]\w*")
_BUILT_IN = re.compile(r"^(?:bool|byte|char|w?string|float(?:32|64)|u?int(?:8|16|32|64))$")
_RULER = "=" * 80


def message_class(kind: str) -> Any:
    """The Python class of a type such as `sensor_msgs/msg/Image`; InputError when unknown."""
    package, _, name = kind.partition("/msg/")
    try:
        return getattr(importlib.import_module(f"{package}.msg"), name)
    except (ImportError, AttributeError, ValueError):
        raise InputError(f"message type '{kind}' is not installed") from None


@lru_cache
def definition(kind: str) -> str:
    """The type's .msg text followed by those of every type in it (the `ros2msg` MCAP schema)."""
    parts: list[str] = []
    waiting, seen = [kind], {kind}
    while waiting:
        current = waiting.pop(0)
        text = _read(current)
        if parts:
            parts.append(f"{_RULER}\nMSG: {current.replace('/msg/', '/')}")
        parts.append(text)
        for inner in _references(current, text):
            if inner not in seen:
                seen.add(inner)
                waiting.append(inner)
    return "\n".join(parts)


def _read(kind: str) -> str:
    package, _, name = kind.partition("/msg/")
    # The environment of the wheels is an ament prefix that AMENT_PREFIX_PATH does not name.
    prefixes = [*filter(None, os.environ.get("AMENT_PREFIX_PATH", "").split(":")), sys.prefix]
    for prefix in prefixes:
        path = Path(prefix) / "share" / package / "msg" / f"{name}.msg"
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise InputError(f"definition of message type '{kind}' is not installed")


def _references(kind: str, text: str) -> list[str]:
    package = kind.partition("/msg/")[0]
    found = []
    for line in text.splitlines():
        match = _FIELD.match(line.strip())
        if not match or _BUILT_IN.match(match[1]):
            continue
        owner, _, name = match[1].rpartition("/")
        found.append(f"{owner or package}/msg/{name}")
    return found
