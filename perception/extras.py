"""Which extra brings a package that is missing, and the command that installs it."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
"""The folder that holds this package: a checkout when it holds pyproject.toml as well."""

DISTRIBUTIONS = {"PIL": "pillow", "mcap_ros2": "mcap-ros2-support", "paho": "paho-mqtt"}
"""Distributions that are called otherwise than what one imports from them."""


def extra_of(package: str, preferred: str) -> str:
    """The extra that requires the importable `package`, as Waysight's own metadata has it.

    preferred: the answer where several extras require it, or none does itself.
    """
    name = DISTRIBUTIONS.get(package, package).lower().replace("_", "-")
    found = [extra for extra, required in _requirements() if required in (name, f"ros-{name}")]
    return found[0] if found and preferred not in found else preferred


def install_command(extra: str) -> str:
    """The pip command that adds an extra to this installation of Waysight."""
    if not (CHECKOUT / "pyproject.toml").is_file():
        return f"pip install 'waysight[{extra}]'"
    # "." is only right for someone who stands in the checkout.
    folder = "." if Path.cwd() == CHECKOUT else str(CHECKOUT)
    return f"pip install -e '{folder}[{extra}]'"


def _requirements() -> list[tuple[str, str]]:
    """(extra, name of a distribution it requires), in the order of pyproject.toml."""
    try:
        lines = importlib.metadata.requires("waysight") or []
    except importlib.metadata.PackageNotFoundError:  # run from a folder, without installing
        return []
    pairs = []
    for line in lines:
        name = re.match(r"[\w.-]+", line)
        extra = re.search(r"""extra == ["']([\w.-]+)["']""", line)
        if name and extra:
            pairs.append((extra[1], name[0].lower().replace("_", "-")))
    return pairs
