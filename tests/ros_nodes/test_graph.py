"""Graph files: what is accepted, what is said about the rest, and what becomes of parameters."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from perception.errors import InputError
from ros_nodes.graph import (
    Graph,
    adapt,
    check_parameters,
    find_graph,
    node_arguments,
    parse_setting,
    process_arguments,
    read_graph,
)

ROAD = find_graph("road")


def _read(tmp_path: Path, text: str) -> Graph:
    path = tmp_path / "graph.yaml"
    path.write_text(text)
    return read_graph(path)


def test_shipped_graphs_can_be_read() -> None:
    for path in ROAD.parent.glob("*.yaml"):
        assert read_graph(path).nodes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes: {camera: {module: camra}}", "there is no ros_nodes/camra_node.py"),
        ("nodes: {camera: {parametres: {}}}", "unknown key 'parametres'"),
        ("nodes: {camera: {enabled: 1}}", "enabled is 1, expected bool"),
        ("nodes: {9lives: {module: camera}}", "node name '9lives'"),
        ("nodes: {camera: 5}", "expected a mapping"),
        ("nodes: {}", "has no nodes"),
        ("robots: {}", "expected the single key 'nodes'"),
        ("nodes: [", "graph.yaml:1: not valid YAML"),
        ("nodes: {camera: {module: foo.bar}}", "there is no ros_nodes/foo.bar_node.py"),
        ("nodes: {camera: {namespace: x y}}", "node 'camera': namespace is 'x y', expected names"),
        ("nodes: {camera: {namespace: a//b}}", "namespace is 'a//b', expected names"),
        ("nodes: {camera: {remap: {image_raw: 5}}}", "remap is 'image_raw': 5, expected two names"),
        ("nodes: {camera: {remap: {image_raw: bad topic}}}", "'bad topic', expected two names"),
        ("nodes: {camera: {remap: {bad topic: a}}}", "'bad topic': 'a', expected two names"),
        ("nodes: {camera: {parameters: {1: 2}}}", "parameter name is 1, expected text"),
        ("nodes:\n  camera: {}\n  camera: {}", "graph.yaml:3: .*key 'camera' is there twice"),
        ("nodes: {camera: {parameters: {rate: 1, rate: 2}}}", "key 'rate' is there twice"),
    ],
)
def test_fault_is_named_with_file_node_and_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        _read(tmp_path, text)


def test_names_that_ros_takes_are_let_through(tmp_path: Path) -> None:
    remap = "{image_raw: /front/image_raw, ~/a: b, camera:x: y, rostopic://c: ~/d, /e: f/g}"
    for namespace in ("front", "/front", "robot_1/front/", "/", "''"):
        text = f"nodes: {{camera: {{namespace: {namespace}, remap: {remap}}}}}"
        assert len(_read(tmp_path, text).nodes[0].remap) == 5


def test_merged_keys_may_be_given_again(tmp_path: Path) -> None:
    text = (
        "nodes:\n"
        "  camera: &camera {module: camera, parameters: {rate: 5}}\n"
        "  other: {<<: *camera, parameters: {rate: 6}}\n"
    )
    assert [n.parameters["rate"] for n in _read(tmp_path, text).nodes] == [5, 6]


def test_unknown_graph_lists_the_shipped_ones() -> None:
    with pytest.raises(InputError, match="shipped graphs: .*road"):
        find_graph("raod")


def test_unknown_node_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'detector'"):
        read_graph(ROAD).change("detectr", {})


def test_digits_with_leading_zeros_stay_text_on_the_way_to_the_node(tmp_path: Path) -> None:
    # C58: YAML 1.1 reads 0042 as 34, and ROS takes digits for an integer.
    text = "nodes: {camera: {parameters: {frame_id: 0042, rate: 30, source: 'a b.mp4'}}}"
    arguments = node_arguments(_read(tmp_path, text).nodes[0], tmp_path)
    written = yaml.safe_load(Path(arguments[-1]).read_text())
    values = written["/**"]["ros__parameters"]
    assert values == {"frame_id": "0042", "rate": 30, "source": "a b.mp4"}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("detector.score_threshold=1", ("detector", "score_threshold", 1)),
        ("detector.score_threshold=.5", ("detector", "score_threshold", 0.5)),
        ("camera.frame_id=0042", ("camera", "frame_id", "0042")),
        ("detector.model=/tmp/my models/m.onnx", ("detector", "model", "/tmp/my models/m.onnx")),
        ("detector.classes=[car, bus]", ("detector", "classes", ["car", "bus"])),
        ("camera.loop=true", ("camera", "loop", True)),
    ],
)
def test_setting_is_split_and_typed(text: str, result: tuple[str, str, object]) -> None:
    assert parse_setting(text) == result


@pytest.mark.parametrize("text", ["detector", "detector=1", "detector.=1", ".x=1", ""])
def test_setting_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"expected NODE\.PARAMETER=VALUE"):
        parse_setting(text)


def test_several_cameras_get_namespaces_and_one_detector() -> None:
    graph = adapt(read_graph(ROAD), source="a.mp4,b.mp4", cameras=["front", "rear"])
    by_module = {
        module: [n for n in graph.nodes if n.module == module]
        for module in ("camera", "detector", "tracker", "viewer")
    }
    assert [n.namespace for n in by_module["camera"]] == ["front", "rear"]
    assert [n.parameters["source"] for n in by_module["camera"]] == ["a.mp4", "b.mp4"]
    assert [n.parameters["cameras"] for n in by_module["detector"]] == [["front", "rear"]]
    assert [n.parameters["web_port"] for n in by_module["viewer"]] == [8600, 8601]
    assert len({n.process for n in graph.nodes}) == len(graph.nodes)
    with pytest.raises(InputError, match="2 cameras .* but 1 sources"):
        adapt(read_graph(ROAD), source="a.mp4", cameras=["front", "rear"])
    with pytest.raises(InputError, match="camera name 'front' is there twice"):
        adapt(read_graph(ROAD), source="a.mp4,b.mp4", cameras=["front", "front"])


def test_image_topic_takes_the_place_of_the_camera_node() -> None:
    graph = adapt(read_graph(ROAD), image_topic="/front/image_rect", record="r.mcap")
    assert [n.name for n in graph.nodes if not n.enabled] == ["camera"]
    wanted = {"image_raw": "/front/image_rect", "camera_info": "/front/camera_info"}
    assert all(n.remap == wanted for n in graph.nodes if n.enabled)
    assert adapt(read_graph(ROAD), image_topic="image").node("detector").remap == {
        "image_raw": "image",
        "camera_info": "camera_info",
    }


def test_image_topics_of_several_cameras_reach_detector_and_viewers() -> None:
    graph = adapt(read_graph(ROAD), image_topic="/a/image, b/image", cameras=["front", "rear"])
    assert graph.node("detector").remap == {
        "front/image_raw": "/a/image",
        "front/camera_info": "/a/camera_info",
        "rear/image_raw": "/b/image",
        "rear/camera_info": "/b/camera_info",
    }
    viewers = [n for n in graph.nodes if n.module == "viewer"]
    assert [n.remap["image_raw"] for n in viewers] == ["/a/image", "/b/image"]
    assert {n.module for n in graph.nodes if not n.enabled} == {"camera", "recorder"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"image_topic": "/a b"}, "image topic is '/a b', expected a name such as"),
        ({"image_topic": "~/image"}, "image topic is '~/image', expected a name such as"),
        ({"image_topic": "/a,/b"}, "image topic is '/a,/b', expected a name such as"),
        ({"image_topic": "/a", "source": "v.mp4"}, "give one of them"),
        ({"image_topic": "/a", "cameras": ["front", "rear"]}, "2 cameras .* but 1 sources"),
    ],
)
def test_image_topic_that_cannot_be_meant_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        adapt(read_graph(ROAD), **given)


def test_graph_without_a_camera_node_takes_no_image_topic(tmp_path: Path) -> None:
    path = tmp_path / "eyes.yaml"
    path.write_text("nodes: {detector: {}}")
    with pytest.raises(InputError, match="graph 'eyes' has no camera node"):
        adapt(read_graph(path), image_topic="/a")


def test_nodes_of_one_process_share_a_command_line(tmp_path: Path) -> None:
    text = "nodes: {camera: {process: all}, detector: {process: all}, tracker: {}}"
    processes = _read(tmp_path, text).processes()
    assert list(processes) == ["all", "tracker"]
    words = process_arguments(processes["all"], tmp_path)
    assert words[:2] == ["-m", "ros_nodes.compose"]
    assert words.count("--node") == words.count("--end") == 2


def test_node_that_is_not_enabled_is_left_out_until_asked_for() -> None:
    assert "recorder" not in read_graph(ROAD).processes()
    assert "recorder" in adapt(read_graph(ROAD), record="x.mcap").processes()


@pytest.mark.parametrize("name", ["road", "factory"])
def test_only_parameters_that_a_node_takes_are_let_through(name: str) -> None:
    pytest.importorskip("rclpy", reason="needs ROS 2")
    graph = read_graph(find_graph(name))
    check_parameters(graph)
    with pytest.raises(InputError, match="node 'detector': .*'modl'; did you mean 'model'"):
        check_parameters(graph.change("detector", {"modl": "x"}))
    check_parameters(graph.change("detector", {"modl": "x"}, enabled=False))
    with pytest.raises(InputError, match="'use_sim_tim'; did you mean 'use_sim_time'"):
        check_parameters(graph.change("detector", {"use_sim_tim": True}))
