"""Launch actions of a graph file: what `waysight run` does by itself, for `ros2 launch`."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launch.actions import (
    DeclareLaunchArgument,
    EmitEvent,
    LogInfo,
    OpaqueFunction,
    RegisterEventHandler,
    SetEnvironmentVariable,
    TimerAction,
)
from launch.event_handlers import OnProcessExit
from launch.events import Shutdown
from launch_ros.actions import Node

from perception.errors import InputError
from ros_nodes.graph import (
    DDS_PROFILE,
    DDS_VARIABLE,
    RUN_FOLDER_VARIABLE,
    Graph,
    NodeSpec,
    adapt,
    find_graph,
    parameter_file,
    parse_settings,
    read_graph,
)
from ros_nodes.supervisor import EXIT_BAD_INPUT, FIRST_WAIT, waits


def graph_arguments(graph: str, several_cameras: bool = False) -> list[DeclareLaunchArgument]:
    """The launch arguments of a graph, described."""
    source = "what the camera reads: video, folder, bag, or device such as /dev/video0"
    topic = "image topic of a camera that runs already, in place of the camera node"
    if several_cameras:
        source = "what each camera reads, comma-separated, in the order of 'cameras'"
        topic = "image topic of each camera that runs already, comma-separated; as 'source'"
    arguments = [
        ("config", graph, "graph: a shipped one's name, or the path of a .yaml file"),
        ("source", "", source),
        ("image_topic", "", topic),
        ("model", "", "detector model: a shipped one's name or an .onnx file; empty: the graph's"),
        ("score_threshold", "", "least score of a detection, 0.0 to 1.0; empty: the model's own"),
        ("rate", "", "pictures a second; empty: the source's own"),
        ("frame_id", "", "optical frame of the pictures; empty: the graph's"),
        ("record", "", "record the results to this .mcap file; empty: do not record"),
        ("set", "", "further parameters: NODE.PARAMETER=VALUE, several separated by ';'"),
        ("use_sim_time", "false", "whether the nodes follow /clock"),
    ]
    if several_cameras:
        names = "namespaces of the cameras, comma-separated"
        arguments.insert(1, ("cameras", "front,rear", names))
    return [
        DeclareLaunchArgument(name, default_value=default, description=text)
        for name, default, text in arguments
    ]


def start_graph(graph: str, several_cameras: bool = False) -> OpaqueFunction:
    """The action that starts the graph once the arguments are known."""

    def start(context: Any) -> list[Any]:
        given: dict[str, str] = dict(context.launch_configurations)
        wanted = adapt(
            read_graph(find_graph(given.get("config", graph))),
            source=given.get("source") or None,
            image_topic=given.get("image_topic") or None,
            model=given.get("model") or None,
            record=given.get("record") or None,
            frame_id=given.get("frame_id") or None,
            rate=given.get("rate") or None,
            score_threshold=given.get("score_threshold") or None,
            cameras=_split(given.get("cameras", "")) if several_cameras else (),
            settings=parse_settings(given.get("set", "").split(";")),
            use_sim_time=given.get("use_sim_time", "false").lower() == "true",
        )
        return actions(wanted)

    return OpaqueFunction(function=start)


def actions(graph: Graph) -> list[Any]:
    """One process a node, watched by the rules of `waysight run` (ros_nodes/supervisor.py).

    What crashes is started again, ever more slowly. What has ended well stays ended, and ends the
    launch where the graph says `ends_graph`. A node that refuses its input ends the launch.
    """
    # Lives as long as the launch process, whose children read the files when they start again.
    folder = tempfile.TemporaryDirectory(prefix="waysight-launch-")
    result: list[Any] = []
    if DDS_VARIABLE not in os.environ:
        result.append(SetEnvironmentVariable(DDS_VARIABLE, str(DDS_PROFILE)))
    for node in graph.nodes:
        if node.enabled:
            result += _watched(node, folder, FIRST_WAIT)
    return result


def _node(node: NodeSpec, folder: tempfile.TemporaryDirectory[str]) -> Node:
    action = Node(
        executable=sys.executable,
        arguments=["-m", f"ros_nodes.{node.module}_node"],
        name=node.name,
        exec_name=node.process,  # or every line of the terminal would begin with [python-1]
        namespace=node.namespace or None,
        parameters=[str(parameter_file(node, Path(folder.name)))] if node.parameters else [],
        remappings=list(node.remap.items()),
        additional_env={RUN_FOLDER_VARIABLE: folder.name},
        output="screen",
    )
    action.parameter_folder = folder  # keeps the files; see `actions`
    return action


def _watched(node: NodeSpec, folder: tempfile.TemporaryDirectory[str], wait: float) -> list[Any]:
    """The node's process and what becomes of its end; wait: seconds to a start after a crash.

    Not launch's own respawn, which starts again what has ended well, too.
    """
    action = _node(node, folder)
    started = time.monotonic()

    def decide(event: Any, context: Any) -> list[Any]:
        if event.returncode == EXIT_BAD_INPUT:
            # The one way to make `ros2 launch` itself end with an exit code other than 0.
            raise InputError(f"{node.name} refused its input; it has said why above")
        if context.is_shutdown:
            return []
        if event.returncode == 0:
            reason = f"{node.name} has ended"
            return [EmitEvent(event=Shutdown(reason=reason))] if node.ends_graph else []
        now, again = waits(time.monotonic() - started, wait)
        start = OpaqueFunction(function=lambda _: _watched(node, folder, again))
        news = LogInfo(msg=f"{node.name} has crashed; starting it again in {now:.1f} s")
        return [news, TimerAction(period=now, actions=[start])]

    handler: Callable[..., list[Any]] = decide
    on_exit = OnProcessExit(target_action=action, on_exit=handler, handle_once=True)
    return [RegisterEventHandler(on_exit), action]


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
