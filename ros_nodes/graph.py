"""A ROS 2 graph in one YAML file: nodes, the processes they share, parameters, remappings.

`waysight run` and the launch files read the same file through this module, which imports no rclpy
save in `check_parameters`.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import importlib.util
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from perception.errors import InputError
from perception.files import read_text
from ros_nodes.parameters import check, describe, unknown
from ros_nodes.topics import CAMERA_INFO, IMAGE, is_topic

CONFIG = Path(__file__).resolve().parent / "config"
LAUNCH = Path(__file__).resolve().parent / "launch"
DDS_PROFILE = CONFIG / "fastdds.xml"
DDS_VARIABLE = "FASTDDS_DEFAULT_PROFILES_FILE"
RUN_FOLDER_VARIABLE = "WAYSIGHT_RUN_FOLDER"
"""Environment variable with the folder of one run of a graph: what a process leaves there is found
by the one that is started in its place, and its final counts by `waysight run`."""

_KEYS = {
    "module": str,
    "process": str,
    "namespace": str,
    "enabled": bool,
    "ends_graph": bool,
    "parameters": dict,
    "remap": dict,
}
_ROS_PARAMETERS = ("use_sim_time", "start_type_description_service")
"""What every ROS node takes."""
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_NAMESPACE = re.compile(r"/?[A-Za-z_]\w*(?:/[A-Za-z_]\w*)*/?|/?", re.ASCII)
_SCOPE = re.compile(r"^(?:[A-Za-z_]\w*:(?!//))?(?:rostopic://|rosservice://)?", re.ASCII)
"""What may stand before the left name of a remapping: of one node, of topics or services alone."""


def run_folder() -> Path | None:
    """The folder of the run that this process belongs to; None when it was started alone.

    A variable that was inherited from a run that is over names a folder that is gone.
    """
    folder = os.environ.get(RUN_FOLDER_VARIABLE)
    return Path(folder) if folder and Path(folder).is_dir() else None


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
    """The safe loader, except for 0042 and for keys that are there twice.

    0042 stays text: YAML 1.1 would read it as octal 34. Of equal keys YAML would take the last.
    """

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    problem = f"key '{key.value}' is there twice, expected once"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                seen.add(key.value)
        return node


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
    _check_names(f"{path}: node '{name}'", entry)
    module = entry.get("module", name)
    if not _NAME.match(module) or importlib.util.find_spec(f"ros_nodes.{module}_node") is None:
        raise InputError(f"{path}: node '{name}': there is no ros_nodes/{module}_node.py")
    return NodeSpec(name=name, **{"process": name, **entry, "module": module})


def _check_names(where: str, entry: Mapping[str, Any]) -> None:
    """Refuse what the node's process would not take on its command line."""
    namespace = entry.get("namespace", "")
    if not _NAMESPACE.fullmatch(namespace):
        raise InputError(
            f"{where}: namespace is '{namespace}', expected names of letters, digits, _ with / "
            "between them"
        )
    for old, new in entry.get("remap", {}).items():
        plain = (_SCOPE.sub("", str(old)), str(new))
        if not (isinstance(old, str) and isinstance(new, str) and all(map(is_topic, plain))):
            raise InputError(
                f"{where}: remap is {old!r}: {new!r}, expected two names of topics or services"
            )
    for key in entry.get("parameters", {}):
        if not isinstance(key, str):
            raise InputError(f"{where}: parameter name is {key!r}, expected text")


def parse_setting(text: str) -> tuple[str, str, Any]:
    """(node, parameter, value) of NODE.PARAMETER=VALUE; InputError for another form."""
    target, equals, value = text.strip().partition("=")
    node, dot, parameter = target.partition(".")
    if not (equals and dot and node and parameter):
        raise InputError(f"setting '{text}': expected NODE.PARAMETER=VALUE")
    return node, parameter, parse_value(value)


def parse_settings(texts: Iterable[str]) -> list[tuple[str, str, Any]]:
    """`parse_setting` of each text that is not empty."""
    return [parse_setting(text) for text in texts if text.strip()]


def adapt(
    graph: Graph,
    *,
    source: str | None = None,
    model: str | None = None,
    record: str | None = None,
    frame_id: str | None = None,
    rate: str | None = None,
    score_threshold: str | None = None,
    cameras: Sequence[str] = (),
    settings: Iterable[tuple[str, str, Any]] = (),
    use_sim_time: bool = False,
    image_topic: str | None = None,
) -> Graph:
    """The graph with what the command line or the launch arguments ask for; None leaves it.

    cameras: namespaces, each of which gets its own nodes, save the detector that serves all and
        the recorder; `source` then holds one source a camera, separated by commas.
    image_topic: of a camera that runs already, in place of the camera node; one a camera,
        separated by commas. `camera_info` is the topic of that name beside it.
    """
    if image_topic is not None and source is not None:
        raise InputError(f"source '{source}' and image topic '{image_topic}': give one of them")
    wishes: list[tuple[str, str, Any]] = [
        ("camera", "source", source),
        ("camera", "frame_id", frame_id),
        ("camera", "rate", None if rate is None else parse_value(rate)),
        ("detector", "model", model),
        (
            "detector",
            "score_threshold",
            None if score_threshold is None else parse_value(score_threshold),
        ),
    ]
    for name, parameter, value in [*(w for w in wishes if w[2] is not None), *settings]:
        graph = graph.change(name, {parameter: value})
    if record is not None:
        graph = graph.change("recorder", {"output": record}, enabled=True)
    if image_topic is not None:
        graph = _listening(graph, image_topic, cameras)
    if cameras:
        graph = _for_cameras(graph, cameras)
    if use_sim_time:
        nodes = (
            dataclasses.replace(node, parameters={**node.parameters, "use_sim_time": True})
            for node in graph.nodes
        )
        graph = dataclasses.replace(graph, nodes=tuple(nodes))
    return graph


def _listening(graph: Graph, image_topic: str, cameras: Sequence[str]) -> Graph:
    """The graph without its camera node; what is said of several cameras becomes its source."""
    if not any(node.module == "camera" for node in graph.nodes):
        raise InputError(f"graph '{graph.name}' has no camera node, which an image topic replaces")
    wanted = [t.strip() for t in (image_topic.split(",") if cameras else [image_topic])]
    for topic in wanted:
        if not is_topic(topic) or topic.startswith("~"):
            raise InputError(f"image topic is '{topic}', expected a name such as /front/image_raw")
    nodes = []
    for node in graph.nodes:
        if node.module == "camera":
            # In a camera's namespace a relative name would mean another topic than the detector's.
            full = ",".join(f"/{topic.lstrip('/')}" for topic in wanted)
            parameters = {**node.parameters, "source": full}
            nodes.append(dataclasses.replace(node, enabled=False, parameters=parameters))
        else:
            nodes.append(node if cameras else _hearing(node, wanted[0]))
    return dataclasses.replace(graph, nodes=tuple(nodes))


def _hearing(node: NodeSpec, image_topic: str, camera: str = "") -> NodeSpec:
    """The node with the pictures of `camera` taken from the topic, camera_info from beside it."""
    folder = image_topic.rpartition("/")[0]
    info = f"{folder}/{CAMERA_INFO}" if "/" in image_topic else CAMERA_INFO
    start = f"{camera}/" if camera else ""
    remap = {f"{start}{IMAGE}": image_topic, f"{start}{CAMERA_INFO}": info, **node.remap}
    return dataclasses.replace(node, remap=remap)


def _for_cameras(graph: Graph, cameras: Sequence[str]) -> Graph:
    sources = [s.strip() for s in str(graph.node("camera").parameters.get("source", "")).split(",")]
    if len(sources) != len(cameras):
        raise InputError(
            f"{len(cameras)} cameras ({', '.join(cameras)}) but {len(sources)} sources or image "
            "topics: give one for each, separated by commas"
        )
    for name in cameras:
        if not _NAME.match(name):
            raise InputError(f"camera name '{name}' is not a letter followed by letters, digits, _")
        if cameras.count(name) > 1:
            raise InputError(f"camera name '{name}' is there twice, expected one for each camera")
    heard = [] if graph.node("camera").enabled else list(zip(cameras, sources, strict=True))
    nodes: list[NodeSpec] = []
    for node in graph.nodes:
        if node.module in ("detector", "recorder"):
            shared = _serve_all if node.module == "detector" else _record_all
            one = shared(node, cameras)
            for name, topic in heard:
                one = _hearing(one, topic, name)
            nodes.append(one)
        else:
            nodes += [
                _in_namespace(node, name, position, source, bool(heard))
                for position, (name, source) in enumerate(zip(cameras, sources, strict=True))
            ]
    return dataclasses.replace(graph, nodes=tuple(nodes))


def _in_namespace(node: NodeSpec, camera: str, position: int, source: str, heard: bool) -> NodeSpec:
    parameters = dict(node.parameters)
    remap = dict(node.remap)
    if node.module == "camera":
        parameters["source"] = source
        parameters.setdefault("frame_id", f"{camera}_optical_frame")
    if node.module == "viewer":
        # One page a camera, on neighbouring ports; class names come from the shared detector.
        parameters["web_port"] = int(parameters.get("web_port", 8600)) + position
        remap["label_info"] = "/label_info"
    if heard:
        node = _hearing(node, source)
        remap = {**node.remap, **remap}
    return dataclasses.replace(
        node,
        namespace=camera,
        process=f"{camera}_{node.process}",
        parameters=parameters,
        remap=remap,
    )


def _serve_all(node: NodeSpec, cameras: Sequence[str]) -> NodeSpec:
    return dataclasses.replace(node, parameters={**node.parameters, "cameras": list(cameras)})


def _record_all(node: NodeSpec, cameras: Sequence[str]) -> NodeSpec:
    topics = [f"{camera}/{topic}" for camera in cameras for topic in ("detections", "camera_info")]
    parameters = {**node.parameters, "topics": [*topics, "label_info", "/diagnostics"]}
    return dataclasses.replace(node, parameters=parameters)


def check_parameters(graph: Graph) -> None:
    """Refuse a misspelt parameter, or a value that is not allowed, before anything runs.

    InputError names it. Only plain names of enabled nodes: what a mapping or a dotted name may hold
    (a guardian's zones) depends on other parameters, so the node itself judges it at its start.
    """
    for node in graph.nodes:
        if not node.enabled:
            continue
        stem = "".join(word.capitalize() for word in node.module.split("_"))
        module = importlib.import_module(f"ros_nodes.{node.module}_node")
        known = describe(getattr(module, f"{stem}Parameters"))
        for name, value in node.parameters.items():
            if isinstance(value, Mapping) or "." in name or name in _ROS_PARAMETERS:
                continue
            try:
                if name not in known:
                    raise InputError(unknown(name, [*known, *_ROS_PARAMETERS]))
                # None and an empty list stand for "not given" (`parameter_file`).
                if value is not None and value != []:
                    check(known[name], value)
            except InputError as error:
                raise InputError(f"node '{node.name}': {error}") from None


def node_arguments(node: NodeSpec, folder: Path) -> list[str]:
    """ROS arguments for one node alone in its process; parameters go to a file in `folder`."""
    arguments = ["-r", f"__node:={node.name}"]
    if node.namespace:
        arguments += ["-r", f"__ns:=/{node.namespace.strip('/')}"]
    for old, new in node.remap.items():
        arguments += ["-r", f"{old}:={new}"]
    if node.parameters:
        arguments += ["--params-file", str(parameter_file(node, folder))]
    return arguments


def parameter_file(node: NodeSpec, folder: Path) -> Path:
    """Write the node's parameters as a ROS parameter file in `folder`."""
    # Lists that are empty have no type in YAML and rcl refuses them; they are the default anyway.
    values = {k: v for k, v in node.parameters.items() if v is not None and v != []}
    path = folder / f"{node.namespace.strip('/').replace('/', '.')}.{node.name}.yaml"
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
