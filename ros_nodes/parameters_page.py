"""The reference page of all node parameters, made from their dataclasses.

python -m ros_nodes.parameters_page > docs/parameters.md
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from ros_nodes.parameters import NodeParameters, ParameterInfo, describe

_APPLIES = {"live": "at once", "configure": "at `configure`", "start": "at start"}

_HEAD = """# Node parameters

Made by `python -m ros_nodes.parameters_page` from the dataclasses in `ros_nodes/*_node.py`; do not
edit. An integer is accepted where a number is meant, digits where a string is meant, and
comma-separated text where a list of strings is meant. A value that is not allowed is refused with
its name, the value and what is allowed: at start with exit code 2, later by the answer to
`ros2 param set`. *Takes effect* says when a new value does: at once, at the next `configure`
transition, or only when the process starts.
"""


def page() -> str:
    """The whole page in Markdown."""
    parts = [_HEAD, _section("Every node", "", list(describe(NodeParameters).values()))]
    shared = set(describe(NodeParameters))
    for path in sorted(Path(__file__).parent.glob("*_node.py")):
        module = importlib.import_module(f"ros_nodes.{path.stem}")
        kind = path.stem.removesuffix("_node")
        stem = "".join(word.capitalize() for word in kind.split("_"))
        own = describe(getattr(module, f"{stem}Parameters"))
        rows = [info for name, info in own.items() if name not in shared]
        summary = (module.__doc__ or "").strip().splitlines()[0]
        parts.append(_section(f"`{kind}`", summary, rows))
    return "\n".join(parts)


def _section(title: str, summary: str, rows: list[ParameterInfo]) -> str:
    lines = [f"## {title}", ""]
    if summary:
        lines += [summary, ""]
    lines += [
        "| parameter | default | allowed | takes effect | meaning |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        cells = (
            f"`{row.name}`",
            _default(row.default),
            row.allowed,
            _APPLIES[row.applies],
            row.description,
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join([*lines, ""])


def _default(value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, tuple):
        return "`[" + ", ".join(map(str, value)) + "]`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value != "" else "empty"


if __name__ == "__main__":
    print(page(), end="")
