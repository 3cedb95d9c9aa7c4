"""Drawing on a picture: what must be visible, and what must be left alone."""

import numpy as np
import pytest

from perception.detections import Detections
from perception.draw import class_color, draw, draw_banner
from perception.errors import InputError

NAMES = ("car", "personne à pied", "工場")


def _picture(height: int = 240, width: int = 320) -> np.ndarray:
    return np.full((height, width, 3), 90, np.uint8)


def _has_color(image: np.ndarray, color: tuple[int, int, int]) -> bool:
    return bool((image == np.array(color, np.uint8)).all(axis=2).any())


def test_box_is_drawn_in_the_colour_of_its_class_on_a_copy() -> None:
    image = _picture()
    drawn = draw(image, Detections.create([[50, 80, 150, 160]], [0.9], [1]), NAMES)
    assert tuple(drawn[80, 100]) == class_color(1)
    assert (image == 90).all()


def test_copy_false_draws_into_the_given_picture() -> None:
    image = _picture()
    drawn = draw(image, Detections.create([[50, 80, 150, 160]], [0.9], [0]), NAMES, copy=False)
    assert drawn is image and _has_color(image, class_color(0))


def test_nothing_is_drawn_without_detections() -> None:
    assert (draw(_picture(), Detections.empty(), NAMES) == 90).all()


def test_invalid_result_shows_a_red_bar_over_the_whole_width() -> None:
    drawn = draw(_picture(), Detections.failed("corrupt JPEG"), NAMES)
    top = drawn[0].astype(int)
    assert (top[:, 2] > top[:, 0] + 100).all()


@pytest.mark.parametrize("box", [[0, 0, 30, 20], [300, 220, 320, 240], [-1e9, -1e9, 1e9, 1e9]])
def test_label_plate_stays_inside_the_picture_at_every_edge(box: list[float]) -> None:
    drawn = draw(_picture(), Detections.create([box], [0.5], [0]), NAMES)
    plate = (drawn == np.array(class_color(0), np.uint8)).all(axis=2)
    assert plate.sum() > 300


@pytest.mark.parametrize("label", [0, 1, 2, 3, 400])
def test_every_name_and_every_index_can_be_drawn(label: int) -> None:
    found = Detections.create([[50, 80, 150, 160]], [0.5], [label], [7], [[100.0, np.nan]])
    assert _has_color(draw(_picture(), found, NAMES), class_color(label))


def test_velocity_arrow_points_along_the_motion() -> None:
    found = Detections.create([[100, 100, 120, 120]], [0.5], [0], [1], [[200.0, 0.0]])
    with_arrow = draw(_picture(), found, NAMES)
    without = draw(_picture(), found, NAMES, velocities=False)
    changed = np.argwhere((with_arrow != without).any(axis=2))
    assert changed[:, 1].max() > 190 and abs(changed[:, 0].mean() - 110) < 3


@pytest.mark.parametrize(
    "image",
    [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3), np.float32), np.zeros((4, 4, 4), np.uint8)],
)
def test_other_shapes_and_types_are_refused_by_name(image: np.ndarray) -> None:
    with pytest.raises(InputError, match="expected uint8"):
        draw(image, Detections.empty(), NAMES)


def test_banner_fits_a_picture_lower_than_itself() -> None:
    image = _picture(8, 40)
    draw_banner(image, "camera silent")
    assert image.shape == (8, 40, 3) and (image != 90).any()
