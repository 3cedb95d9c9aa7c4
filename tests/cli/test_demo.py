"""The figures of `waysight demo`; that it runs is tested with the supervised graph."""

from pathlib import Path

import pytest

pytest.importorskip("mcap_ros2", reason="needs waysight[bags]")

from perception.cli.demo import summarise
from perception.sources import Source
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
