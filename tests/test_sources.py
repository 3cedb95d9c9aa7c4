"""Reading pictures, folders and videos."""

from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest

from perception.errors import InputError
from perception.sources import decode_picture, open_source, read_picture


def write_video(path: Path, frames: int = 10, rate: float = 20.0) -> Path:
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"mp4v"), rate, (64, 48))
    for i in range(frames):
        writer.write(np.full((48, 64, 3), min(i * 20, 255), np.uint8))
    writer.release()
    return path


def test_a_folder_is_read_in_name_order(tmp_path: Path) -> None:
    for name in ("b.png", "a.jpg", "c.PNG"):
        cv2.imwrite(str(tmp_path / name), np.zeros((8, 8, 3), np.uint8))
    (tmp_path / "notes.txt").write_text("no picture")
    source = open_source(tmp_path)
    assert [item.name for item in source] == ["a.jpg", "b.png", "c.PNG"]
    assert [item.frame.sequence for item in source] == [0, 1, 2]


def test_video_frames_carry_their_time(tmp_path: Path) -> None:
    source = open_source(write_video(tmp_path / "v.mp4"))
    frames = list(source)
    assert len(frames) == source.count == 10
    assert frames[3].frame.stamp_ns == 150_000_000
    assert frames[3].name == "v.mp4#00003"
    assert not source.problems


def write_irregular_video(path: Path) -> list[int]:
    """Frames 33 ms apart and then 120 ms; gives their times in ms."""
    av = pytest.importorskip("av", reason="needs PyAV")
    times = [33 * n for n in range(30)] + [990 + 120 * n for n in range(30)]
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=30)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.codec_context.time_base = Fraction(1, 1000)
        for number, time_ms in enumerate(times):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 4 * number, np.uint8), "rgb24")
            frame.pts, frame.time_base = time_ms, Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return times


@pytest.mark.parametrize("kind", ["mp4", "mkv"])
def test_frames_of_an_irregular_video_carry_the_times_of_the_container(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / f"v.{kind}"
    times = write_irregular_video(path)
    source = open_source(path)
    assert [item.frame.stamp_ns for item in source] == [time * 1_000_000 for time in times]
    # Matroska names no count; what is guessed from a rate is far more than there are.
    assert source.count == 60 or kind == "mkv"
    assert source.problems == [] and not source.broken_off


def test_a_cut_irregular_video_is_broken_off(tmp_path: Path) -> None:
    path = tmp_path / "v.mkv"
    write_irregular_video(path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])
    source = open_source(path)
    count = len(list(source))
    assert 0 < count < 60 and source.broken_off
    assert f"ends after frame {count} of the " in source.problems[0]


def test_a_damaged_picture_in_a_folder_is_reported_and_the_rest_read(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), np.zeros((8, 8, 3), np.uint8))
    (tmp_path / "b.jpg").write_bytes(b"garbage")
    source = open_source(tmp_path)
    assert [item.name for item in source] == ["a.png"]
    assert len(source.problems) == 1
    assert "b.jpg" in source.problems[0]


def test_a_truncated_video_is_an_error_or_a_reported_problem(tmp_path: Path) -> None:
    whole = write_video(tmp_path / "v.mp4", frames=60).read_bytes()
    (tmp_path / "cut.mp4").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"cut\.mp4"):
        open_source(tmp_path / "cut.mp4")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.mp4", None, "no such file"),
        ("empty.mp4", b"", "video"),
        ("text.jpg", b"hello", "not a picture"),
        ("empty.png", b"", "not a picture"),
    ],
)
def test_unusable_sources_give_one_sentence(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        open_source(tmp_path / name)


def test_a_folder_without_pictures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="folder without pictures"):
        open_source(tmp_path)


def test_names_of_any_script_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "工場_é 01.png"
    path.write_bytes(cv2.imencode(".png", np.zeros((64, 64, 3), np.uint8))[1].tobytes())
    assert read_picture(path).shape == (64, 64, 3)


def test_half_a_jpeg_is_damaged_and_not_a_grey_picture() -> None:  # C51
    picture = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    data = cv2.imencode(".jpg", picture)[1].tobytes()
    assert decode_picture(data).shape == picture.shape
    assert decode_picture(data + bytes(4096) + b"notes").shape == picture.shape
    with pytest.raises(InputError, match="cut short"):
        decode_picture(data[: len(data) // 2])
    with pytest.raises(InputError, match="0 bytes"):
        decode_picture(b"")


def test_the_end_of_a_thumbnail_is_not_the_end_of_a_jpeg() -> None:  # C51
    picture = np.full((64, 64, 3), 99, np.uint8)
    data = cv2.imencode(".jpg", picture)[1].tobytes()
    exif = b"\xff\xe1" + (len(data) + 2).to_bytes(2, "big") + data
    whole = data[:2] + exif + data[2:]
    assert decode_picture(whole).shape == picture.shape
    with pytest.raises(InputError, match="cut short"):
        decode_picture(whole[:-2])


@pytest.mark.parametrize("progressive", [0, 1])
@pytest.mark.parametrize("upright", [True, False])
@pytest.mark.parametrize("exif", [True, False])
def test_a_jpeg_with_a_part_missing_is_damaged_although_its_end_is_there(
    progressive: int, upright: bool, exif: bool
) -> None:  # C51
    picture = np.random.default_rng(0).integers(0, 255, (128, 128, 3), np.uint8)
    kind = [cv2.IMWRITE_JPEG_PROGRESSIVE, progressive]
    data = cv2.imencode(".jpg", picture, kind)[1].tobytes()
    if exif:
        data = _turned(data)
    third = len(data) // 3
    assert decode_picture(data, upright=upright).shape == picture.shape
    for damaged in (
        data[:third] + b"\xff\xd9",  # cut, and the end marker put behind it
        data[:third] + data[2 * third :],
        data[: 2 * third] + data[third:],
        data[:-3] + b"\xff\xd9",
    ):
        with pytest.raises(InputError, match=f"JPEG of {len(damaged)} bytes is damaged"):
            decode_picture(damaged, upright=upright)


def test_jpegs_are_the_pixels_of_opencv_turned_only_where_that_is_wanted() -> None:
    picture = cv2.resize(np.random.default_rng(0).integers(0, 255, (8, 16, 3), np.uint8), (96, 64))
    data = cv2.imencode(".jpg", picture)[1].tobytes()
    plain = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    turned = cv2.rotate(plain, cv2.ROTATE_90_CLOCKWISE)
    assert np.array_equal(decode_picture(data), plain)
    assert np.array_equal(decode_picture(_turned(data)), turned)
    assert np.array_equal(decode_picture(_turned(data), upright=False), plain)
    grey = cv2.imencode(".jpg", picture[..., 0])[1].tobytes()
    assert decode_picture(grey).shape == picture.shape


def test_a_jpeg_that_promises_too_much_is_refused_before_memory_is_taken() -> None:
    data = bytearray(cv2.imencode(".jpg", np.zeros((64, 64, 3), np.uint8))[1].tobytes())
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = (65500).to_bytes(2, "big") * 2
    with pytest.raises(InputError, match="65500x65500 is more than"):
        decode_picture(data)


def _turned(data: bytes) -> bytes:
    """The JPEG with an Exif segment that tells to turn it clockwise by a quarter."""
    entry = bytes.fromhex("0112 0003 00000001 0006 0000".replace(" ", ""))
    tiff = b"MM\0*" + (8).to_bytes(4, "big") + (1).to_bytes(2, "big") + entry + bytes(4)
    body = b"Exif\0\0" + tiff
    return data[:2] + b"\xff\xe1" + (len(body) + 2).to_bytes(2, "big") + body + data[2:]


def test_16_bit_pictures_keep_their_depth(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "deep.png"), np.full((8, 8, 3), 40000, np.uint16))
    assert read_picture(tmp_path / "deep.png").dtype == np.uint16
