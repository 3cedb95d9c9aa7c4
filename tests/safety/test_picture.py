import numpy as np
import pytest

from perception.errors import InputError
from perception.safety.picture import PictureSettings, PictureWatch, noise_level

RNG = np.random.default_rng(3)


def scene(height=120, width=160, channels=3):
    """A picture with structure and a little sensor noise."""
    rows, columns = np.mgrid[:height, :width]
    base = 90 + 60 * np.sin(columns / 15) + 40 * (rows > height / 2)
    noisy = base[..., None] + RNG.normal(0, 2, (height, width, channels))
    return np.clip(noisy, 0, 255).astype(np.uint8)


def watch():
    return PictureWatch(PictureSettings())


def test_a_living_picture_is_healthy():
    camera = watch()
    assert [camera.fault(scene()) for _ in range(40)] == [""] * 40


def test_grey_and_large_pictures_are_judged_too():
    assert watch().fault(scene()[:, :, 0]) == ""
    assert watch().fault(scene(720, 1280)) == ""
    assert watch().fault(scene(channels=1)) == ""


def test_darkness_is_not_a_clear_hall():
    assert watch().fault((scene() * 0.08).astype(np.uint8)) == "dark"


def test_a_covered_lens_is_blank():
    assert watch().fault(np.full((120, 160, 3), 128, np.uint8)) == "blank"


def test_heavy_noise_is_noticed_and_its_level_is_right():
    flat = np.full((240, 320), 128.0)
    noisy = (flat + RNG.normal(0, 10, flat.shape)).astype(np.uint8)
    assert noise_level(noisy) == pytest.approx(10, rel=0.05)
    ruined = np.clip(scene() + RNG.normal(0, 60, (120, 160, 3)), 0, 255).astype(np.uint8)
    assert watch().fault(ruined) == "noisy"


def test_the_same_picture_again_is_no_new_look():
    camera, picture = watch(), scene()
    assert [camera.fault(picture) for _ in range(3)] == ["", "repeated", "repeated"]
    assert camera.fault(scene()) == ""


def test_a_driver_that_goes_round_its_old_buffers_shows_nothing_new():
    camera = watch()
    buffers = [scene() for _ in range(8)]
    assert [camera.fault(buffer) for buffer in buffers] == [""] * 8
    assert {camera.fault(buffer) for _ in range(3) for buffer in buffers} == {"repeated"}
    assert camera.fault(scene()) == ""


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((0, 0, 3), np.uint8),
        np.zeros((1, 160, 3), np.uint8),
        np.zeros((4,), np.uint8),
        np.zeros((9, 9), np.float32),
    ],
)
def test_what_is_no_picture_is_unreadable(image):
    assert watch().fault(image) == "unreadable"


def test_settings_are_checked():
    with pytest.raises(InputError, match="max_noise"):
        PictureSettings(max_noise=0.0)
