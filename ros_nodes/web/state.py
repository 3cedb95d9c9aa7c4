"""What the page shows: one verdict, the flow through each node, and what each node says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

OK, WARN, STALE, ERROR, WAITING = "OK", "WARN", "STALE", "ERROR", "WAITING"
_RANK = {OK: 0, WARN: 1, WAITING: 2, STALE: 3, ERROR: 4}

LEVELS = {0: OK, 1: WARN, 2: ERROR, 3: STALE}
"""diagnostic_msgs/DiagnosticStatus levels in words."""

_MOST_NODES = 256  # names come from outside
_COUNTERS = ("received", "processed", "dropped", "invalid", "stale", "lost")
_AGES = ("age_p50_ms", "age_p90_ms", "age_p99_ms", "age_max_ms")

Reason = tuple[str, str]
"""(level, sentence)."""


@dataclass
class _Node:
    level: str = WARN
    message: str = "no diagnostics yet"
    values: dict[str, str] = field(default_factory=dict)
    heard: float | None = None
    lifecycle: str = ""


@dataclass
class Board:
    """Newest diagnostics and lifecycle state of every node; safe to use from any thread.

    silence: seconds without diagnostics after which a node counts as stale.
    """

    silence: float = 3.0
    clock: Callable[[], float] = time.monotonic
    _nodes: dict[str, _Node] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hear(self, name: str, level: int, message: str, values: Mapping[str, str]) -> None:
        """Take in one DiagnosticStatus; an unknown level counts as an error."""
        with self._lock:
            node = self._node(name)
            if node is not None:
                node.level, node.message = LEVELS.get(level, ERROR), message
                node.values, node.heard = dict(values), self.clock()

    def set_lifecycle(self, name: str, state: str) -> None:
        """Note a node's lifecycle state, e.g. `active`."""
        with self._lock:
            node = self._node(name)
            if node is not None:
                node.lifecycle = state

    def _node(self, name: str) -> _Node | None:
        if name not in self._nodes and len(self._nodes) >= _MOST_NODES:
            return None
        return self._nodes.setdefault(name, _Node())

    def snapshot(
        self, own: Iterable[Reason], picture: Mapping[str, Any], own_name: str = ""
    ) -> dict[str, Any]:
        """Everything the page shows, as JSON-ready data.

        own: what the viewer itself finds wrong now; it stands in for what the node `own_name` said
        in its last diagnostics. picture: what is known of the shown picture.
        """
        now = self.clock()
        with self._lock:
            nodes = [
                _entry(name, node, now, self.silence) for name, node in sorted(self._nodes.items())
            ]
        reasons = [*own]
        for node in nodes:
            if node["level"] != OK and node["name"] != own_name:
                reasons.append((node["level"], f"{node['name']}: {node['message']}"))
        if not any(node["name"] != own_name for node in nodes):
            reasons.append((WAITING, "no node has sent diagnostics yet"))
        reasons.sort(key=lambda reason: -_RANK[reason[0]])
        return {
            "verdict": {
                "level": reasons[0][0] if reasons else OK,
                "reasons": [{"level": level, "text": text} for level, text in reasons],
            },
            "picture": dict(picture),
            "nodes": nodes,
            "flow": [row for node in nodes for row in _flow(node)],
        }


def _entry(name: str, node: _Node, now: float, silence: float) -> dict[str, Any]:
    age = None if node.heard is None else now - node.heard
    level, message = node.level, node.message
    if age is not None and age > silence:
        level, message = STALE, f"no diagnostics for {age:.0f} s"
    if node.lifecycle == "not answering":
        level, message = STALE, f"does not answer; {message}"
    elif node.lifecycle not in ("", "active"):
        # A node that was switched off on purpose is silent; one nobody configured is, too.
        level, message = max(level, WARN, key=_RANK.__getitem__), f"{node.lifecycle}; {message}"
    return {
        "name": name,
        "level": level,
        "message": message,
        "lifecycle": node.lifecycle,
        "age_s": None if age is None else round(age, 1),
        "values": node.values,
    }


def _flow(node: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rate, counters and ages of a node, one row for each of its cameras (`camera/key`)."""
    values: Mapping[str, str] = node["values"]
    cameras = sorted({key.rpartition("/")[0] for key in values if key.endswith("received")})
    rows = []
    for camera in cameras:
        prefix = f"{camera}/" if camera else ""
        row: dict[str, Any] = {"name": node["name"] + (f" [{camera}]" if camera else "")}
        for key in (*_COUNTERS, *_AGES):
            row[key] = _number(values.get(prefix + key))
        row["rate"] = _number(values.get(prefix + "rate", values.get("rate")))
        row["stale_row"] = node["level"] == STALE
        rows.append(row)
    return rows


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else None
    except ValueError:
        return None
    # JSON has no NaN and no infinity.
    return number if number is not None and abs(number) < float("inf") else None
