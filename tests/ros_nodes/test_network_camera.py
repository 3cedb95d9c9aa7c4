"""Network cameras: real HTTP and RTSP connections on the loopback."""

import itertools
import socket
import sys

import pytest

from perception.errors import InputError
from ros_nodes import network_camera
from ros_nodes.camera_sources import CameraLost, open_feed
from tests.ros_nodes.network_cameras import (
    PICTURES,
    jpeg,
    mjpeg_camera,
    number_of,
    rtsp_camera,
)


def _read(url, most=1000):
    """(pictures, problems, how it ended) of a network camera."""
    feed = open_feed(url)
    assert feed.live
    frames, ended = [], None
    try:
        for _, frame in itertools.islice(feed.frames(), most):
            frames.append(frame)
    except CameraLost as error:
        ended = str(error)
    return frames, feed.problems, ended


def test_mjpeg_camera_gives_its_pictures_until_it_hangs_up():
    with mjpeg_camera([jpeg(number) for number in range(60)]) as server:
        url = f"http://127.0.0.1:{server.server_port}/video"
        frames, problems, ended = _read(url)
    numbers = [number_of(frame.image) for frame in frames]
    # Those that came while FFmpeg found out what comes are left out.
    assert numbers == list(range(numbers[0], 60)) and numbers[0] < 10 and not problems
    assert [frame.sequence for frame in frames] == list(range(len(frames)))
    stamps = [frame.stamp_ns for frame in frames]
    assert stamps == sorted(stamps) and stamps[0] > 1e18  # times of arrival
    assert ended.startswith(f"{url}: ")


def test_damaged_picture_of_an_mjpeg_camera_is_left_out_and_counted():
    cut = jpeg(30)[:-200] + b"\xff\xd9"
    pictures = [cut if number == 30 else jpeg(number) for number in range(60)]
    with mjpeg_camera(pictures) as server:
        frames, problems, _ = _read(f"http://127.0.0.1:{server.server_port}/")
    numbers = [number_of(frame.image) for frame in frames]
    assert numbers == [number for number in range(numbers[0], 60) if number != 30]
    assert len(problems) == 1 and ": JPEG of" in problems[0]


def test_rtsp_camera_gives_its_pictures_from_a_key_frame_on():
    with rtsp_camera() as port:
        frames, problems, ended = _read(f"rtsp://127.0.0.1:{port}/1")
    numbers = [number_of(frame.image) for frame in frames]
    assert numbers == list(range(numbers[0], PICTURES)) and numbers[0] % 10 == 0
    assert not problems and ended.startswith("rtsp://")


def test_what_a_damaged_picture_damages_is_left_out_up_to_the_next_key_frame():
    with rtsp_camera(damaged=90) as port:
        frames, problems, _ = _read(f"rtsp://127.0.0.1:{port}/1")
    numbers = [number_of(frame.image) for frame in frames]
    assert numbers == [n for n in range(numbers[0], PICTURES) if n not in range(90, 100)]
    assert len(problems) == 1


def test_camera_that_cannot_be_reached_is_lost_without_telling_its_password():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    _, _, ended = _read(f"rtsp://me:secret@127.0.0.1:{port}/1?token=secret")
    assert ended == f"rtsp://127.0.0.1:{port}/1: cannot be opened: Connection refused"


def test_camera_that_goes_silent_is_lost(monkeypatch):
    monkeypatch.setattr(network_camera, "ANSWER_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        _, _, ended = _read(f"http://127.0.0.1:{silent.getsockname()[1]}/")
    assert "cannot be opened" in ended


def test_a_stream_cannot_name_a_file_of_this_machine(tmp_path):
    """A playlist that points to a local video."""
    (tmp_path / "local.ts").write_bytes(b"G" * 188 * 10)
    playlist = f"#EXTM3U\n#EXTINF:1,\nfile://{tmp_path}/local.ts\n#EXT-X-ENDLIST\n".encode()
    with mjpeg_camera([playlist]) as server:
        frames, _, ended = _read(f"http://127.0.0.1:{server.server_port}/list.m3u8")
    assert not frames and "cannot be opened" in ended


def test_without_pyav_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(InputError, match=r"PyAV: pip install 'waysight\[bags\]'"):
        next(open_feed("rtsp://127.0.0.1/1").frames())
