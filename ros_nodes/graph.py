"""A ROS 2 graph in one YAML file: nodes, the processes they share, parameters, remappings.

`waysight run` and the launch files read the same file through this module; it imports no rclpy.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib.util
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from perception.errors import InputError
from perception.files import read_text

CONFIG = Path(__file__).resolve().parent / "config"
LAUNCH = Path(__file__).resolve().parent / "launch"
DDS_PROFILE = CONFIG / "fastdds.xml"
DDS_VARIABLE = "FASTDDS_DEFAULT_PROFILES_FILE"

_KEYS = {
    "module": str,
    "process": str,
    "namespace": str,
    "enabled": bool,
    "ends_graph": bool,
    "parameters": dict,
    "remap": dict,
}
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


@dataclass(frozen=True)
class NodeSpec:
    """One node of a graph; `module` names ros_nodes/<module>_node.py."""

    name: str
    module: str
    process: str
    namespace: str = ""
    enabled: bool = True
    ends_graph: bool = False
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    remap: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Graph:
    """Nodes in the order in which they are stopped."""

    name: str
    nodes: tuple[NodeSpec, ...]

    def node(self, name: str) -> NodeSpec:
        """The node of a name; InputError with the nearest one when there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        names = [node.name for node in self.nodes]
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise InputError(f"graph '{self.name}' has no node '{name}', only {', '.join(names)}{hint}")

    def change(self, name: str, parameters: Mapping[str, Any], **fields: Any) -> Graph:
        """The graph with further parameters, and other fields, for one node."""
        old = self.node(name)
        new = dataclasses.replace(old, parameters={**old.parameters, **parameters}, **fields)
        return dataclasses.replace(self, nodes=tuple(new if n is old else n for n in self.nodes))

    def processes(self) -> dict[str, tuple[NodeSpec, ...]]:
        """Enabled nodes by process, in order."""
        result: dict[str, tuple[NodeSpec, ...]] = {}
        for node in self.nodes:
            if node.enabled:
                result[node.process] = (*result.get(node.process, ()), node)
        return result


class _Loader(yaml.SafeLoader):
    """The safe loader, except that 0042 stays text: YAML 1.1 would read it as octal 34."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in pairs if tag != "tag:yaml.org,2002:int"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789")
)


def parse_value(text: str) -> Any:
    """The value of `text` as YAML types it; text that is no YAML stays text."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a subclass of the safe loader
    except yaml.YAMLError:
        return text


def find_graph(name_or_path: str | Path) -> Path:
    """The YAML file of a shipped graph's name, or of a path; InputError lists the names."""
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise InputError(f"{path}: no such graph file")
        return path
    shipped = CONFIG / f"{name_or_path}.yaml"
    if not shipped.is_file():
        names = ", ".join(sorted(p.stem for p in CONFIG.glob("*.yaml")))
        raise InputError(
            f"no graph '{name_or_path}'; shipped graphs: {names}, or give a .yaml file"
        )
    return shipped


def read_graph(path: str | Path) -> Graph:
    """Read and check a graph file; InputError names the file, the node and the key."""
    path = Path(path)
    try:
        data = yaml.load(read_text(path), _Loader)  # noqa: S506 - a subclass of the safe loader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise InputError(f"{where}: not valid YAML: {getattr(error, 'problem', error)}") from error
    if not isinstance(data, dict) or set(data) != {"nodes"} or not isinstance(data["nodes"], dict):
        raise InputError(f"{path}: expected the single key 'nodes' with a mapping of nodes")
    nodes = tuple(_node(path, name, entry) for name, entry in data["nodes"].items())
    if not nodes:
        raise InputError(f"{path}: has no nodes")
    return Graph(path.stem, nodes)


def _node(path: Path, name: object, entry: object) -> NodeSpec:
    if not isinstance(name, str) or not _NAME.match(name):
        raise InputError(
            f"{path}: node name {name!r} is not a letter followed by letters, digits, _"
        )
    if not isinstance(entry, dict):
        raise InputError(f"{path}: node '{name}': expected a mapping, found {entry!r}")
    for key, value in entry.items():
        if key not in _KEYS:
            raise InputError(
                f"{path}: node '{name}': unknown key '{key}', not of: {', '.join(_KEYS)}"
            )
        if not isinstance(value, _KEYS[key]):
            raise InputError(
                f"{path}: node '{name}': {key} is {value!r}, expected {_KEYS[key].__name__}"
            )
    module = entry.get("module", name)
    if importlib.util.find_spec(f"ros_nodes.{module}_node") is None:
        raise InputError(f"{path}: node '{name}': there is no ros_nodes/{module}_node.py")
    return NodeSpec(name=name, **{"process": name, **entry, "module": module})


def node_arguments(node: NodeSpec, folder: Path) -> list[str]:
    """ROS arguments for one node alone in its process; parameters go to a file in `folder`."""
    arguments = ["-r", f"__node:={node.name}"]
    if node.namespace:
        arguments += ["-r", f"__ns:=/{node.namespace.strip('/')}"]
    for old, new in node.remap.items():
        arguments += ["-r", f"{old}:={new}"]
    if node.parameters:
        arguments += ["--params-file", str(_parameter_file(node, folder))]
    return arguments


def _parameter_file(node: NodeSpec, folder: Path) -> Path:
    # Lists that are empty have no type in YAML and rcl refuses them; they are the default anyway.
    values = {k: v for k, v in node.parameters.items() if v is not None and v != []}
    path = folder / f"{node.name}.yaml"
    # safe_dump quotes text that looks like a number, so "0042" arrives with its zeros (C58).
    text = yaml.safe_dump({"/**": {"ros__parameters": values}}, allow_unicode=True)
    path.write_text(text, encoding="utf-8")
    return path


def process_arguments(nodes: Iterable[NodeSpec], folder: Path) -> list[str]:
    """`-m module --ros-args ...` of the process that runs these nodes."""
    nodes = tuple(nodes)
    if len(nodes) == 1:
        module = f"ros_nodes.{nodes[0].module}_node"
        return ["-m", module, "--ros-args", *node_arguments(nodes[0], folder)]
    words = ["-m", "ros_nodes.compose"]
    for node in nodes:
        words += ["--node", node.module, *node_arguments(node, folder), "--end"]
    return words
