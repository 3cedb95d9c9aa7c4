"""`waysight eval bag`: lock-step replay through the nodes, nothing dropped, the same every time."""

import json

import numpy as np
import pytest
import yaml

from perception.cli import main

pytest.importorskip("rclpy", reason="needs ROS 2")
pytest.importorskip("vision_msgs", reason="needs vision_msgs: python -m ros_nodes.setup_ros")
pytest.importorskip("rosbags", reason="needs the extra 'bags'")
onnx_models = pytest.importorskip("tests.onnx_models", reason="needs onnx")
pytest.importorskip("trackeval", reason="needs the extra 'eval'")

PICTURES = 12
CUT_SHORT = 6  # this picture's data end early
CELL = (16, 32)


def write_bag(path, *, truth=True):
    """A bright cell that stands still, labelled with track id 5; one picture is broken."""
    from rosbags.rosbag2 import StoragePlugin, Writer

    from perception.datasets.bags import default_types

    types = default_types()
    kinds = types.types
    image, array = "sensor_msgs/msg/Image", "vision_msgs/msg/Detection2DArray"
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        pictures = writer.add_connection("/front/image_raw", image, typestore=types)
        labels = writer.add_connection("/front/ground_truth", array, typestore=types)
        for number in range(PICTURES):
            stamp = 10**9 + number * 5 * 10**7
            time = kinds["builtin_interfaces/msg/Time"](stamp // 10**9, stamp % 10**9)
            header = kinds["std_msgs/msg/Header"](time, "front")
            pixels = np.zeros((48, 64, 3), np.uint8)
            pixels[CELL[0] : CELL[0] + 16, CELL[1] : CELL[1] + 16] = 255
            data = pixels.reshape(-1)[: 1000 if number == CUT_SHORT else None]
            message = kinds[image](header, 48, 64, "bgr8", 0, 192, data)
            writer.write(pictures, stamp, types.serialize_cdr(message, image))
            if truth:
                message = kinds[array](header, [detection(kinds, header)])
                writer.write(labels, stamp, types.serialize_cdr(message, array))
    return path


def detection(kinds, header):
    point = kinds["vision_msgs/msg/Point2D"](CELL[1] + 8.0, CELL[0] + 8.0)
    box = kinds["vision_msgs/msg/BoundingBox2D"](
        kinds["vision_msgs/msg/Pose2D"](point, 0.0), 16, 16
    )
    pose = kinds["geometry_msgs/msg/PoseWithCovariance"](
        kinds["geometry_msgs/msg/Pose"](
            kinds["geometry_msgs/msg/Point"](0.0, 0.0, 0.0),
            kinds["geometry_msgs/msg/Quaternion"](0.0, 0.0, 0.0, 1.0),
        ),
        np.zeros(36),
    )
    hypothesis = kinds["vision_msgs/msg/ObjectHypothesis"]("bright", 1.0)
    result = kinds["vision_msgs/msg/ObjectHypothesisWithPose"](hypothesis, pose)
    return kinds["vision_msgs/msg/Detection2D"](header, [result], box, "5")


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graph")
    model = onnx_models.bright_cell_detector(folder / "cells.onnx")
    path = folder / "road.yaml"
    path.write_text(
        "nodes:\n"
        "  camera:\n    module: camera\n"
        f"  detector:\n    module: detector\n    parameters: {{model: {model}}}\n"
        "  tracker:\n    module: tracker\n"
    )
    return path


@pytest.fixture(scope="module")
def replayed(tmp_path_factory, graph):
    """The JSON of two replays of one bag, as bytes."""
    folder = tmp_path_factory.mktemp("bag")
    bag = write_bag(folder / "drive")
    written = []
    for run in ("a", "b"):
        out = folder / f"{run}.json"
        assert main(["eval", "bag", str(bag), "--graph", str(graph), "--json", str(out)]) == 0
        written.append(out.read_bytes())
    return written


def test_every_picture_is_accounted_for(replayed):
    data = json.loads(replayed[0])
    assert (data["pictures"], data["invalid"]) == (PICTURES, 1)
    assert [item["valid"] for item in data["results"]].index(False) == CUT_SHORT
    stamps = [item["stamp_ns"] for item in data["results"]]
    assert stamps == [10**9 + i * 5 * 10**7 for i in range(PICTURES)]
    assert data["nodes_left_out"] == ["camera"]


def test_two_replays_are_the_same_bytes(replayed):
    assert replayed[0] == replayed[1]


def test_detections_and_tracks_are_scored_against_the_bag(replayed):
    figures = json.loads(replayed[0])["figures"]
    assert figures["scored"] == PICTURES
    assert figures["detection"]["invalid_pictures"] == 1
    assert figures["detection"]["ar100"] == pytest.approx((PICTURES - 1) / PICTURES)
    tracking = figures["tracking"]["front"]
    assert (tracking["id_switches"], tracking["missed"]) == (0, 1)
    assert tracking["mota"] == pytest.approx((PICTURES - 1) / PICTURES)


def test_tracks_keep_their_id_over_the_broken_picture(replayed):
    results = json.loads(replayed[0])["results"]
    ids = {row["track_id"] for item in results if item["valid"] for row in item["tracks"]}
    assert len(ids) == 1


def test_verify_passes_and_a_bag_without_truth_says_so(tmp_path, graph, capsys):
    bag = write_bag(tmp_path / "drive", truth=False)
    assert main(["eval", "bag", str(bag), "--graph", str(graph), "--verify"]) == 0
    assert "No ground truth in the bag" in capsys.readouterr().out


def test_figures_of_a_part_of_a_bag_do_not_pass_for_the_whole(tmp_path, graph, capsys):
    bag = write_bag(tmp_path / "drive")
    metadata = bag / "metadata.yaml"
    data = yaml.safe_load(metadata.read_text())
    data["rosbag2_bagfile_information"]["relative_file_paths"].append("drive_1.mcap")
    metadata.write_text(yaml.safe_dump(data))
    out = tmp_path / "out.json"
    assert main(["eval", "bag", str(bag), "--graph", str(graph), "--json", str(out)]) == 1
    assert "drive_1.mcap" in capsys.readouterr().out
    data = json.loads(out.read_text())
    assert (data["whole"], data["pictures"]) == (False, PICTURES)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--image-topic", "/rear/image_raw"], "image topics are: /front/image_raw"),
        (["--model", "no-such-model"], "no-such-model"),
    ],
)
def test_what_cannot_be_replayed_is_named(tmp_path, graph, capfd, change, message):
    bag = write_bag(tmp_path / "drive")
    assert main(["eval", "bag", str(bag), "--graph", str(graph), *change]) == 2
    assert message in capfd.readouterr().err


def test_graph_without_a_detector_is_refused(tmp_path, capsys):
    graph = tmp_path / "empty.yaml"
    graph.write_text("nodes:\n  camera:\n    module: camera\n")
    bag = write_bag(tmp_path / "drive")
    assert main(["eval", "bag", str(bag), "--graph", str(graph)]) == 2
    assert "has no enabled detector" in capsys.readouterr().err


def test_truth_of_a_class_that_the_model_lacks_is_named_and_can_be_mapped(tmp_path, graph, capsys):
    model = onnx_models.bright_cell_detector(tmp_path / "other.onnx", names=("lamp", "dark"))
    bag = write_bag(tmp_path / "drive")
    arguments = ["eval", "bag", str(bag), "--graph", str(graph), "--model", str(model)]
    assert main(arguments) == 2
    assert "classes that the model lacks, bright; map them with --map" in capsys.readouterr().err
    (tmp_path / "map.yaml").write_text("map: {bright: lamp}\n")
    out = tmp_path / "out.json"
    assert main([*arguments, "--map", str(tmp_path / "map.yaml"), "--json", str(out)]) == 0
    assert json.loads(out.read_text())["figures"]["detection"]["ar100"] > 0.9
