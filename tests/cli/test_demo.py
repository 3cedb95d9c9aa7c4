"""The figures of `waysight demo`; that it runs is tested with the supervised graph."""

import json
from pathlib import Path

import pytest

pytest.importorskip("mcap_ros2", reason="needs waysight[bags]")

from perception.cli.demo import summarise
from perception.sources import Source, open_source
from ros_nodes.recording import Recording


@pytest.mark.parametrize(
    ("camera", "frames"),
    [
        ({"ended": "True", "unreadable": "0"}, 60),  # the header's count was a guess
        ({"ended": "True", "unreadable": "1"}, 150),
        ({"ended": "False", "unreadable": "0"}, 150),
        ({}, 150),
    ],
)
def test_video_has_as_many_frames_as_were_sent_once_its_end_was_reached(
    camera: dict[str, str], frames: int
) -> None:
    recording = Recording(tuple(range(60)), (), {"camera": camera})
    summary = summarise(recording, Source([Path("v.mkv")], 150, 30.0), 0.5)
    assert summary["frames_sent"] == 60 and summary["frames_in_video"] == frames


def test_the_demo_clip_and_its_truth_call_the_frames_alike() -> None:
    demo = Path(__file__).resolve().parents[2] / "ros_nodes" / "demo"
    truth = json.loads((demo / "road_demo.json").read_text())
    frames = [item.name for item in open_source(demo / "road_demo.mp4")]
    assert [image["file_name"] for image in truth["images"]] == frames
