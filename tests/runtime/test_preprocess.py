"""Pictures of every kind to the network's input."""

import numpy as np
import pytest

from perception.contract import ModelContract
from perception.errors import InputError
from perception.frame import Frame
from perception.runtime.preprocess import Preprocessor, as_three_channels

RANDOM = np.random.default_rng(0)
PICTURE = RANDOM.integers(0, 256, (30, 40, 3), np.uint8)


def test_grey_becomes_three_equal_channels() -> None:  # C31 a
    grey = PICTURE[:, :, 0]
    assert (as_three_channels(grey) == grey[:, :, None]).all()
    assert as_three_channels(grey[:, :, None]).shape == (30, 40, 3)


def test_alpha_is_ignored() -> None:  # C31 b
    with_alpha = np.dstack([PICTURE, RANDOM.integers(0, 256, (30, 40), np.uint8)])
    assert (as_three_channels(with_alpha) == PICTURE).all()


def test_16_bit_keeps_its_whole_range() -> None:  # C31 c
    image = np.array([[0, 256], [32768, 65535]], np.uint16)
    assert as_three_channels(image)[:, :, 1].tolist() == [[0, 1], [128, 255]]
    big_endian = image.astype(">u2")
    assert as_three_channels(big_endian)[:, :, 1].tolist() == [[0, 1], [128, 255]]


@pytest.mark.parametrize(
    "view",
    [
        PICTURE[:, ::-1],
        PICTURE[::-1],
        PICTURE[:, :, ::-1],
        PICTURE[::2, 3:31],
        PICTURE.transpose(1, 0, 2),
        np.lib.stride_tricks.as_strided(PICTURE.reshape(-1), (6, 10, 3), (3, 3, 1)),
    ],
    ids=["mirrored", "upside down", "channels swapped", "cut out", "transposed", "overlapping"],
)
def test_views_give_the_same_tensor_as_their_copies(view: np.ndarray) -> None:  # C31 d
    contract = ModelContract(names=("a",), width=64, height=32)
    from_view, _ = Preprocessor(contract)([Frame(view)])
    from_copy, _ = Preprocessor(contract)([Frame(np.ascontiguousarray(view))])
    assert (from_view == from_copy).all()


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((4, 5, 2), np.uint8),
        np.full((4, 5, 3), 200.0, np.float32),
        np.zeros((0, 5, 3), np.uint8),
        np.zeros((2, 4, 5, 3), np.uint8),
        np.zeros((4, 5, 3), np.int32),
        np.array([[None]], dtype=object),
    ],
)
def test_other_shapes_and_dtypes_are_refused_with_what_was_found(image: np.ndarray) -> None:
    with pytest.raises(InputError) as caught:  # C31 e, f
        as_three_channels(image)
    assert str(image.shape) in str(caught.value)
    assert str(image.dtype) in str(caught.value)


def test_the_value_range_is_named_for_a_float_picture() -> None:  # C31 f
    with pytest.raises(InputError, match=r"values 0\.0 to 255\.0"):
        as_three_channels(np.array([[0.0, 255.0]]))


@pytest.mark.parametrize("wanted", ["rgb", "bgr"])
@pytest.mark.parametrize("given", ["rgb", "bgr"])
def test_normalisation_and_channel_order_follow_the_contract(wanted: str, given: str) -> None:
    contract = ModelContract(
        names=("a",), width=40, height=30, color=wanted, mean=(10, 20, 30), std=(2, 4, 8)
    )
    blob, _ = Preprocessor(contract)([Frame(PICTURE, color=given)])
    image = PICTURE if wanted == given else PICTURE[:, :, ::-1]
    expected = (image.astype(np.float64) - [10, 20, 30]) / [2, 4, 8]
    assert blob.dtype == np.float32
    assert np.allclose(blob[0], expected.transpose(2, 0, 1), atol=1e-4)


def test_padding_is_right_when_picture_sizes_alternate() -> None:
    contract = ModelContract(names=("a",), width=64, height=64)
    preprocess = Preprocessor(contract)
    wide, tall = np.zeros((32, 64, 3), np.uint8), np.zeros((64, 32, 3), np.uint8)
    for image in (wide, tall, wide):
        blob, plans = preprocess([Frame(image)])
        fresh, _ = Preprocessor(contract)([Frame(image)])
        assert (blob == fresh).all()
        assert plans[0].source == (image.shape[1], image.shape[0])


def test_a_batch_holds_each_picture_as_if_alone() -> None:
    contract = ModelContract(names=("a",), width=64, height=48)
    pictures = [RANDOM.integers(0, 256, (20 + i, 50, 3), np.uint8) for i in range(3)]
    batch, plans = Preprocessor(contract)([Frame(p) for p in pictures])
    assert batch.shape == (3, 3, 48, 64)
    for i, picture in enumerate(pictures):
        alone, plan = Preprocessor(contract)([Frame(picture)])
        assert (batch[i] == alone[0]).all()
        assert plans[i] == plan[0]
