"""One tree, two packages: what pip installs and what `ros2 run` and `ros2 launch` look for."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXECUTABLES = sorted((ROOT / "ros_nodes" / "executables").iterdir())


def declared_version() -> str:
    # Python 3.10 has no tomllib.
    found = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel built from a copy, so that no build folder lands in the tree."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "tree"
    copy.mkdir()
    for name in ("perception", "datasets", "ros_nodes", "resource"):
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=without)
    for name in ("pyproject.toml", "setup.py", "setup.cfg", "package.xml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    # No isolation: setuptools is in the extra `dev`, and a test asks no package registry.
    command = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([sys.executable, *command, "-w", folder, copy], check=True)
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built)


def test_wheel_holds_all_that_lies_in_the_packages(wheel: zipfile.ZipFile) -> None:
    # Walked in the copy that the wheel was made from: the tree may be worked on meanwhile.
    copy = Path(str(wheel.filename)).parent / "tree"
    files = {
        str((Path(folder) / name).relative_to(copy))
        for top in ("perception", "ros_nodes")
        for folder, _, names in os.walk(copy / top, followlinks=True)
        for name in names
    }
    assert {"perception/datasets/__init__.py", "ros_nodes/vision_msgs/msg/Pose2D.msg"} <= files
    assert files - set(wheel.namelist()) == set()


def test_wheel_is_a_ros_package(wheel: zipfile.ZipFile) -> None:
    data = f"waysight-{declared_version()}.data/data"
    wanted = {"share/ament_index/resource_index/packages/waysight", "share/waysight/package.xml"}
    wanted |= {f"lib/waysight/{path.name}" for path in EXECUTABLES}
    for kind in ("launch", "config"):
        files = (ROOT / "ros_nodes" / kind).glob("*.*")
        wanted |= {f"share/waysight/{kind}/{path.name}" for path in files}
    assert wanted <= {name.removeprefix(f"{data}/") for name in wheel.namelist()}
    for path in EXECUTABLES:
        mode = wheel.getinfo(f"{data}/lib/waysight/{path.name}").external_attr >> 16
        assert mode & 0o111, f"{path.name} lost its executable bit: ros2 run would not find it"


def test_wheel_puts_one_command_on_the_path(wheel: zipfile.ZipFile) -> None:
    entry_points = wheel.read(f"waysight-{declared_version()}.dist-info/entry_points.txt").decode()
    assert entry_points.split("\n\n")[0].splitlines() == [
        "[console_scripts]",
        "waysight = perception.cli:main",
    ]


@pytest.mark.parametrize("path", EXECUTABLES, ids=lambda path: path.name)
def test_executable_runs_the_main_of_its_node(path: Path) -> None:
    module = ROOT / "ros_nodes" / f"{path.name}_node.py"
    assert f"from ros_nodes.{module.stem} import main\n" in path.read_text()
    functions = [node for node in ast.parse(module.read_text()).body if hasattr(node, "name")]
    assert "main" in {function.name for function in functions}


def test_every_node_has_an_executable() -> None:
    nodes = {path.stem.removesuffix("_node") for path in (ROOT / "ros_nodes").glob("*_node.py")}
    assert nodes == {path.name for path in EXECUTABLES}


def test_package_xml_agrees_with_pyproject() -> None:
    package = ElementTree.parse(ROOT / "package.xml").getroot()
    assert package.findtext("name") == "waysight"
    assert package.findtext("version") == declared_version()


def imported_packages(folder: Path) -> set[str]:
    """Top-level names of all that the modules under a folder import."""
    names = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.split(".")[0])
    return names


def test_package_xml_names_every_ros_package_that_the_nodes_import() -> None:
    package = ElementTree.parse(ROOT / "package.xml").getroot()
    declared = {depend.text for depend in package.findall("exec_depend")}
    of_ros = {
        name
        for name in imported_packages(ROOT / "ros_nodes")
        if re.search(r"_(msgs|srvs|interfaces)$", name)
        or name in {"rclpy", "launch", "launch_ros", "ament_index_python"}
    }
    assert of_ros, "the nodes import no ROS package?"
    assert of_ros <= declared


def normal(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_imported_distribution_is_declared() -> None:
    project = (ROOT / "pyproject.toml").read_text().split("[project.scripts]")[0]
    declared = {normal(name) for name in re.findall(r'"([A-Za-z0-9][\w.-]*)', project)}
    ours = {"perception", "ros_nodes", "tf2_msgs", "vision_msgs"}
    owners_of = importlib.metadata.packages_distributions()
    for folder in ("perception", "ros_nodes", "datasets"):
        for package in imported_packages(ROOT / folder) - ours:
            owners = {normal(owner) for owner in owners_of.get(package, [])}
            # The ROS 2 wheels list what they install a second time without `ros-`.
            owners |= {f"ros-{owner}" for owner in owners}
            assert not owners or owners & declared, f"{folder} imports {package}, from {owners}"


def test_every_extra_that_the_command_line_names_exists() -> None:
    from perception.cli import COMMANDS

    extras = importlib.metadata.metadata("waysight").get_all("Provides-Extra")
    named = {extra for command in COMMANDS.values() for extra in command.extra.split(",") if extra}
    assert named <= set(extras or [])
