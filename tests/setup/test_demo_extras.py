"""The demo and the road's nodes import nothing but what `make demo` installs."""

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
MODULES = (
    *(f"perception.cli.{name}" for name in ("demo", "run", "detect")),
    *(f"ros_nodes.{name}_node" for name in ("camera", "detector", "tracker", "viewer", "recorder")),
)

# Imports every module while all packages outside the demo's environment are hidden.
PROGRAM = """
import importlib, json, sys
hidden = set(json.loads(sys.argv[1]))

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hide())
for module in json.loads(sys.argv[2]):
    importlib.import_module(module)
"""


def demo_extras() -> frozenset[str]:
    """The extras that the Makefile gives the demo where no ROS 2 distribution is sourced."""
    line = re.search(r"^DEMO_EXTRAS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert line
    fixed, _, choice = line[1].partition("$(if $(ROS_DISTRO),")
    return frozenset(f"{fixed}{choice.rstrip(')').split(',')[-1]}".split(","))


def installed_for(name: str, extras: frozenset[str], seen: set[tuple[str, str]]) -> set[str]:
    """The distribution and all that it requires with these extras, by normalised name."""
    found = {canonicalize_name(name)}
    try:
        requirements = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return found
    for extra in ("", *sorted(extras)):
        if (canonicalize_name(name), extra) in seen:
            continue
        seen.add((canonicalize_name(name), extra))
        for requirement in map(Requirement, requirements):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                found |= installed_for(requirement.name, frozenset(requirement.extras), seen)
    return found


def test_the_demo_needs_no_more_than_its_extras() -> None:
    extras = demo_extras()
    assert {"cpu", "demo", "ros"} <= extras
    allowed = installed_for("waysight", extras, set())
    # The ROS 2 wheels list what they install a second time without `ros-`.
    allowed |= {name.removeprefix("ros-") for name in allowed}
    hidden = [
        package
        for package, owners in importlib.metadata.packages_distributions().items()
        if not {canonicalize_name(owner) for owner in owners} & allowed
    ]
    assert "torch" in hidden  # else this test would hide nothing
    # Our own, and the messages that `ros_nodes.setup_ros` builds.
    ours = ("perception", "ros_nodes", "tf2_msgs", "vision_msgs")
    hidden = [package for package in hidden if package not in ours]
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(hidden), json.dumps(MODULES)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
