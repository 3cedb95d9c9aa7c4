"""Pictures from ROS messages: every encoding, padding and byte order; and what is no picture."""

import array

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("rclpy", reason="needs ROS 2")
pytest.importorskip("vision_msgs", reason="needs vision_msgs: python -m ros_nodes.setup_ros")

from sensor_msgs.msg import CompressedImage, Image

from perception.errors import InputError
from perception.frame import Frame
from ros_nodes import convert
from ros_nodes.convert import decode_compressed, decode_image

RNG = np.random.default_rng(5)
PICTURE = np.asarray(
    cv2.GaussianBlur(RNG.integers(0, 256, (48, 64, 3), np.uint8), (0, 0), 4), np.uint8
)


def _decode(pixels: np.ndarray, encoding: str, padding: int = 0, bigendian: bool = False):
    """Decode a picture whose rows are `pixels` with `padding` bytes after each."""
    rows = pixels.reshape(len(pixels), -1)
    raw = np.frombuffer(rows.tobytes(), np.uint8).reshape(len(rows), -1)
    padded = np.pad(raw, ((0, 0), (0, padding)), constant_values=255)
    height = len(pixels) * 2 // 3 if encoding in ("nv12", "nv21") else len(pixels)
    width = pixels.shape[1]
    return decode_image(padded.tobytes(), width, height, padded.shape[1], encoding, bigendian)


@pytest.mark.parametrize("encoding", ["mono16", "16UC1"])
@pytest.mark.parametrize(("bigendian", "values"), [(True, [258, 255]), (False, [513, 65280])])
def test_sixteen_bit_pictures_keep_all_bits_in_either_byte_order(
    encoding: str, bigendian: bool, values: list[int]
) -> None:  # C49
    image, _ = decode_image(bytes([1, 2, 0, 255]), 2, 1, 4, encoding, bigendian)
    assert image.dtype == np.uint16
    assert image.dtype.isnative
    assert image.tolist() == [values]


@pytest.mark.parametrize(
    ("encoding", "channels", "dtype", "color"),
    [
        ("mono8", 1, np.uint8, "bgr"),
        ("8UC1", 1, np.uint8, "bgr"),
        ("rgb8", 3, np.uint8, "rgb"),
        ("bgr8", 3, np.uint8, "bgr"),
        ("8UC3", 3, np.uint8, "bgr"),
        ("rgba8", 4, np.uint8, "rgb"),
        ("bgra8", 4, np.uint8, "bgr"),
        ("mono16", 1, np.uint16, "bgr"),
        ("rgb16", 3, np.uint16, "rgb"),
        ("bgr16", 3, np.uint16, "bgr"),
        ("rgba16", 4, np.uint16, "rgb"),
        ("bgra16", 4, np.uint16, "bgr"),
    ],
)
@pytest.mark.parametrize("padding", [0, 4, 61])
def test_packed_pixels_come_out_as_they_went_in(
    encoding: str, channels: int, dtype: type, color: str, padding: int
) -> None:
    shape = (5, 7) if channels == 1 else (5, 7, channels)
    pixels = RNG.integers(0, np.iinfo(dtype).max, shape, dtype)
    image, order = _decode(pixels, encoding, padding)
    assert np.array_equal(image, pixels)
    assert order == color
    swapped, _ = _decode(pixels.byteswap(), encoding, padding, bigendian=True)
    assert np.array_equal(swapped, pixels if dtype is np.uint16 else pixels.byteswap())


def test_row_step_that_is_no_multiple_of_the_pixel_does_not_shear() -> None:
    # vision_opencv#115: rgb8 of width 641 with step 1984.
    pixels = RNG.integers(0, 256, (3, 641, 3), np.uint8)
    image, _ = _decode(pixels, "rgb8", 1984 - 641 * 3)
    assert np.array_equal(image, pixels)


def test_packed_picture_is_a_view_that_nobody_can_write_to() -> None:
    data = bytes(range(48))
    image, _ = decode_image(data, 4, 4, 12, "bgr8", False)
    assert np.shares_memory(image, np.frombuffer(data, np.uint8))
    assert not image.flags.writeable


def _yuv422(order: str) -> np.ndarray:
    yuv = cv2.cvtColor(PICTURE, cv2.COLOR_BGR2YUV)
    chroma = np.where(np.arange(64) % 2 == 0, yuv[:, :, 1], np.roll(yuv[:, :, 2], 1, axis=1))
    pairs = (chroma, yuv[:, :, 0]) if order == "uyvy" else (yuv[:, :, 0], chroma)
    return np.stack(pairs, axis=2).astype(np.uint8)


def _nv12(swap: bool) -> np.ndarray:
    planes = cv2.cvtColor(PICTURE, cv2.COLOR_BGR2YUV_I420)
    u, v = planes[48:].reshape(2, 24, 32)
    chroma = np.stack((v, u) if swap else (u, v), axis=2).reshape(24, 64)
    return np.vstack([planes[:48], chroma])


@pytest.mark.parametrize(
    ("encoding", "pixels"),
    [
        ("yuv422", _yuv422("uyvy")),
        ("uyvy", _yuv422("uyvy")),
        ("yuv422_yuy2", _yuv422("yuyv")),
        ("yuyv", _yuv422("yuyv")),
        ("nv12", _nv12(False)),
        ("nv21", _nv12(True)),
    ],
)
@pytest.mark.parametrize("padding", [0, 6])
def test_yuv_has_the_colours_of_the_picture(
    encoding: str, pixels: np.ndarray, padding: int
) -> None:
    image, order = _decode(pixels, encoding, padding)
    assert order == "bgr"
    assert image.shape == PICTURE.shape
    assert np.abs(image.astype(int) - PICTURE).mean() < 3


@pytest.mark.parametrize("pattern", ["rggb", "bggr", "gbrg", "grbg"])
@pytest.mark.parametrize(("bits", "dtype"), [(8, np.uint8), (16, np.uint16)])
def test_bayer_mosaic_of_one_colour_gives_that_colour(pattern: str, bits: int, dtype: type) -> None:
    scale = 257 if bits == 16 else 1
    value = {"r": 200 * scale, "g": 100 * scale, "b": 50 * scale}
    cell = np.array([value[c] for c in pattern], dtype).reshape(2, 2)
    image, _ = _decode(np.tile(cell, (8, 8)), f"bayer_{pattern}{bits}", padding=4)
    assert (image == np.array([value["b"], value["g"], value["r"]])).all()


@pytest.mark.parametrize(
    ("data", "width", "height", "step", "encoding", "said"),
    [  # C51 and its kind
        (b"", 640, 480, 1920, "bgr8", "has 0 bytes, expected 921600"),
        (b"x" * 100, 64, 48, 192, "bgr8", "has 100 bytes, expected 9216"),
        (b"", 0, 0, 0, "bgr8", "both must be positive"),
        (b"x" * 9216, 64, 48, 100, "bgr8", "step 100"),
        (b"x" * 9216, 64, 48, 0, "bgr8", "step 0"),
        (b"x" * 100, 64, 48, 64, "nv12", "has 100 bytes, expected 4608"),
        (b"x" * 100, 5, 4, 10, "yuyv", "even width"),
        (b"x" * 100, 4, 5, 4, "nv12", "even numbers"),
        (b"x" * 100, 4, 4, 16, "32FC1", "encoding '32FC1' is not one of"),
        (b"x" * 100, 4, 4, 16, "bayer_rggb", "encoding 'bayer_rggb' is not one of"),
        (b"x" * 100, 4, 4, 16, "", "encoding '' is not one of"),
    ],
)
def test_broken_picture_is_an_error_that_says_what_is_wrong(
    data: bytes, width: int, height: int, step: int, encoding: str, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        decode_image(data, width, height, step, encoding, False)


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
def test_whole_compressed_picture_decodes_and_a_cut_one_never_does(suffix: str) -> None:
    whole = cv2.imencode(suffix, PICTURE)[1].tobytes()
    assert np.abs(decode_compressed(whole).astype(int) - PICTURE).mean() < 3
    assert decode_compressed(whole + bytes(7)).shape == PICTURE.shape  # padded by the driver
    for length in (len(whole) // 2, len(whole) - 1, 4):
        with pytest.raises(InputError, match="cut short"):
            decode_compressed(whole[:length] if length > 8 else whole[:8])


@pytest.mark.parametrize("data", [b"", bytes(40), b"\xff\xd8" + bytes(30) + b"\xff\xd9"])
def test_garbage_is_no_compressed_picture(data: bytes) -> None:
    with pytest.raises(InputError):
        decode_compressed(data)


@given(
    st.binary(max_size=400),
    st.integers(0, 20),
    st.integers(0, 20),
    st.integers(0, 80),
    st.sampled_from(convert.ENCODINGS),
    st.booleans(),
)
def test_any_field_values_give_a_picture_of_that_size_or_an_error(
    data: bytes, width: int, height: int, step: int, encoding: str, bigendian: bool
) -> None:
    try:
        image, _ = decode_image(data, width, height, step, encoding, bigendian)
    except InputError:
        return
    assert image.shape[:2] == (height, width)


def test_frame_survives_the_way_through_a_message() -> None:
    for pixels, color in ((PICTURE, "rgb"), (PICTURE[:, :, 0], "bgr"), (PICTURE[::2, ::-1], "bgr")):
        frame = Frame(pixels, 12_345_678_901, "cam_front_optical", 0, color)  # type: ignore[arg-type]
        message = convert.image_message(frame)
        assert isinstance(message.data, array.array)
        for back in (
            convert.image_frame(message),
            convert.raw_image_frame(convert.raw_image_message(frame)),
        ):
            assert np.array_equal(back.image, pixels)
            assert (back.stamp_ns, back.frame_id) == (12_345_678_901, "cam_front_optical")
            assert back.color == (color if pixels.ndim == 3 else "bgr")


def test_compressed_message_keeps_header_and_colours() -> None:
    rgb = Frame(PICTURE[:, :, ::-1], 5, "cam", 0, "rgb")
    message = convert.compressed_message(rgb, quality=95)
    assert isinstance(message, CompressedImage)
    back = convert.compressed_frame(message)
    assert (back.stamp_ns, back.frame_id, back.color) == (5, "cam", "bgr")
    assert np.abs(back.image.astype(int) - PICTURE).mean() < 4


def test_image_with_wrong_step_is_refused_from_a_message_too() -> None:
    message = Image(height=48, width=64, step=192, encoding="bgr8")
    message.data = array.array("B", bytes(100))
    with pytest.raises(InputError, match="has 100 bytes"):
        convert.image_frame(message)
