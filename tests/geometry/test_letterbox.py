"""Resize: fitting pictures and the exact way back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perception.errors import InputError
from perception.geometry.letterbox import Resize, ResizeRule

sizes = st.tuples(st.integers(1, 5000), st.integers(1, 5000))
rules = st.sampled_from(["letterbox", "letterbox_topleft", "stretch"])


@given(sizes, rules, st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_to_original_undoes_to_network_for_any_size(
    size: tuple[int, int], rule: ResizeRule, fractions: list[float]
) -> None:
    plan = Resize.plan(size, (416, 256), rule)
    corners = np.array(fractions, np.float32).reshape(2, 2) * np.array(size, np.float32)
    box = np.sort(corners, axis=0).reshape(1, 4).astype(np.float32)
    back = plan.to_original(plan.to_network(box))
    assert np.allclose(back, box, atol=max(size) * 2e-6 + 1e-3)


@given(sizes, rules)
def test_the_whole_picture_lands_inside_the_target(size: tuple[int, int], rule: ResizeRule) -> None:
    plan = Resize.plan(size, (416, 256), rule)
    box = plan.to_network([[0, 0, *size]])[0]
    assert box[0] >= 0
    assert box[1] >= 0
    assert box[2] <= 416 + 1e-3
    assert box[3] <= 256 + 1e-3


@pytest.mark.parametrize("size", [(640, 480), (333, 777), (416, 256), (1920, 1080)])
def test_painted_rectangle_is_found_where_the_plan_says(size: tuple[int, int]) -> None:
    width, height = size
    image = np.zeros((height, width, 3), np.uint8)
    box = np.array([[width // 4, height // 4, width * 3 // 4, height * 3 // 4]], np.float32)
    left, top, right, bottom = box[0].astype(int)
    image[top:bottom, left:right] = 255
    plan = Resize.plan(size, (416, 256), "letterbox")
    small = plan.apply(image, 0)
    rows, columns = np.nonzero(small[:, :, 0] > 127)
    found = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    assert np.allclose(found, plan.to_network(box)[0], atol=1.0)


def test_padding_holds_the_pad_value() -> None:
    small = Resize.plan((100, 100), (416, 256), "letterbox").apply(
        np.full((100, 100, 3), 9, np.uint8), 114
    )
    assert (small[:, :80] == 114).all()
    assert (small[:, 80:336] == 9).all()
    assert (small[:, 336:] == 114).all()


def test_boxes_are_clipped_to_the_picture() -> None:
    plan = Resize.plan((100, 50), (416, 256), "letterbox")
    assert plan.to_original([[-50, -50, 900, 900]])[0].tolist() == [0, 0, 100, 50]


def test_an_empty_picture_is_refused() -> None:
    with pytest.raises(InputError, match="0x5"):
        Resize.plan((0, 5), (416, 256), "stretch")
