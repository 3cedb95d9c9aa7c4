"""The arrows of the house: a module imports only from its own layer or from one below."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# The lowest layer first. Each name is a module or package of `perception`, or `ros_nodes`; the
# package `perception` itself is the facade on top that re-exports from the others.
LAYERS = (
    {"errors", "extras", "files", "frame", "detections", "jpeg", "labels"},
    {"geometry", "contract"},
    {
        *("models", "train", "export", "evaluate", "datasets"),
        *("runtime", "tracking", "safety", "simulation", "zoo", "sources", "draw", "video"),
    },
    {"cli", "ros_nodes", "perception"},
)
WITHOUT_TORCH = ("runtime", "tracking", "safety", "ros_nodes")


def python_files(part: str) -> list[Path]:
    folder = ROOT / part if part == "ros_nodes" else ROOT / "perception" / part
    if folder.is_dir():
        return sorted(path for path in folder.rglob("*.py") if "launch" not in path.parts)
    return [folder.with_suffix(".py")]


def parts() -> list[str]:
    """Every part of the house as it lies on disk."""
    found = {"ros_nodes"}
    for path in (ROOT / "perception").iterdir():
        if path.suffix == ".py" and path.stem != "__init__":
            found.add(path.stem)
        elif path.is_dir() and any(path.glob("*.py")):
            found.add(path.name)
    return sorted(found)


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of all that a file imports, inside functions and for typing too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            module = node.module or ""
            # `from perception import geometry` names a part, `from perception import Frame` none.
            if module == "perception":
                yield from ((node.lineno, f"perception.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, module


def part_of(module: str) -> str | None:
    """The part that a module belongs to, or None for one that is not ours."""
    names = module.split(".")
    if names[0] == "ros_nodes":
        return "ros_nodes"
    if names[0] != "perception":
        return None
    known = set().union(*LAYERS)
    return names[1] if len(names) > 1 and names[1] in known else "perception"


def layer(part: str) -> int:
    return next(level for level, names in enumerate(LAYERS) if part in names)


def test_every_part_has_a_layer() -> None:
    assert set(parts()) <= set().union(*LAYERS), "give a new part its layer in this test"


def test_imports_point_down_or_sideways() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {part} imports {module}"
        for part in parts()
        for path in python_files(part)
        for line, module in imported_modules(path)
        if (target := part_of(module)) is not None and layer(target) > layer(part)
    ]
    assert not wrong, "\n".join(wrong)


def test_perception_knows_nothing_of_ros() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {module}"
        for part in parts()
        if part != "ros_nodes"
        for path in python_files(part)
        for line, module in imported_modules(path)
        if module.split(".")[0] in {"rclpy", "ros_nodes"} and part != "cli"
    ]
    wrong += [
        f"{path.relative_to(ROOT)}:{line}: {module}"
        for path in python_files("cli")
        for line, module in imported_modules(path)
        if module.split(".")[0] == "rclpy"
    ]
    assert not wrong, "\n".join(wrong)


def test_what_runs_on_robots_never_names_torch() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {module}"
        for part in WITHOUT_TORCH
        for path in python_files(part)
        for line, module in imported_modules(path)
        if module.split(".")[0] in {"torch", "torchvision"}
    ]
    assert not wrong, "\n".join(wrong)


def test_importing_what_runs_on_robots_loads_no_torch() -> None:
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for part in (*WITHOUT_TORCH, "cli/__init__", "zoo", "sources", "draw")
        for path in python_files(part)
    ]
    # Where a ROS package is absent (the wheels bring no `launch`), the test above still reads what
    # needs it.
    program = f"""
import importlib, sys
for name in {modules!r}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in ("rclpy", "launch", "launch_ros"):
            raise
    if "torch" in sys.modules:
        sys.exit(f"importing {{name}} loads torch")
"""
    finished = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=dict(os.environ, OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
