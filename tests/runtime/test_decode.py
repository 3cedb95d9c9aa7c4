"""Outputs of every convention to detections."""

import warnings

import numpy as np
import pytest

from perception.contract import ModelContract
from perception.errors import InputError
from perception.geometry.letterbox import Resize
from perception.runtime.decode import postprocess

NAMES = ("car", "truck")
IDENTITY = Resize.plan((96, 96), (96, 96), "letterbox")


def contract(convention: str, **changes: object) -> ModelContract:
    values = {"names": NAMES, "width": 96, "height": 96, "strides": (8, 16, 32), **changes}
    return ModelContract(convention=convention, **values)  # type: ignore[arg-type]


def rows_to_e2e(rows: list[tuple[float, ...]]) -> dict[str, np.ndarray]:
    return {"output": np.array([rows], np.float32)}


def test_rows_that_are_not_finite_are_dropped_and_counted() -> None:  # C28, frame 1
    nan, inf = float("nan"), float("inf")
    rows = [
        (10, 10, 50, 50, 0.9, 0),
        (nan, 10, 50, 50, 0.8, 0),
        (10, 10, inf, 50, 0.7, 0),
        (60, 60, 90, 90, nan, 0),
        (20, 20, 60, 60, 0.6, 1),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = postprocess(rows_to_e2e(rows), contract("e2e"), [IDENTITY])[0]
    assert found.scores.tolist() == pytest.approx([0.9, 0.6])
    assert found.labels.tolist() == [0, 1]
    assert found.invalid_rows == 3
    assert found.valid


@pytest.mark.parametrize("count", [-3.0, 6.0, np.nan, np.inf])
def test_a_senseless_count_of_rows_is_invalid_and_not_empty(count: float) -> None:
    outputs = {
        "num_dets": np.array([[count]], np.float32),
        "boxes": np.ones((1, 5, 4), np.float32),
        "scores": np.ones((1, 5), np.float32),
        "classes": np.zeros((1, 5), np.float32),
    }
    found = postprocess(outputs, contract("num_dets"), [IDENTITY])[0]
    assert not found.valid and "model output invalid" in found.reason


def test_results_of_another_number_of_pictures_are_refused() -> None:
    for rows, resizes in ((1, [IDENTITY] * 2), (3, [IDENTITY])):
        outputs = {
            "boxes": np.ones((rows, 5, 4), np.float32),
            "scores": np.ones((rows, 5, 2), np.float32),
        }
        with pytest.raises(InputError, match=f"results of {rows} pictures, expected"):
            postprocess(outputs, contract("decoded"), resizes)
    # What a convention does not read may have any shape.
    beside = {**rows_to_e2e([(10, 10, 50, 50, 0.9, 0)]), "count": np.zeros(7, np.int64)}
    assert len(postprocess(beside, contract("e2e"), [IDENTITY])[0]) == 1


@pytest.mark.parametrize("convention", ["e2e", "decoded"])
def test_a_frame_of_nan_is_invalid_and_not_empty(convention: str) -> None:  # C28, frame 2
    outputs = {
        "e2e": {"output": np.full((1, 5, 6), np.nan, np.float32)},
        "decoded": {
            "boxes": np.full((1, 5, 4), np.nan, np.float32),
            "scores": np.full((1, 5, 2), np.nan, np.float32),
        },
    }[convention]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = postprocess(outputs, contract(convention), [IDENTITY])[0]
    assert not found.valid
    assert len(found) == 0
    assert found.invalid_rows == 5
    assert "model output invalid" in found.reason


@pytest.mark.parametrize("count", [3, 0])
def test_unused_rows_of_a_fixed_size_output_are_not_objects(count: int) -> None:  # C29
    boxes = np.zeros((1, 6, 4), np.float32)
    boxes[0, :3] = [[0, 0, 10, 10], [20, 20, 30, 30], [40, 40, 60, 60]]
    scores = np.zeros((1, 6), np.float32)
    scores[0, :3] = [0.9, 0.5, 0.26]
    outputs = {
        "num_dets": np.array([[count]]),
        "boxes": boxes,
        "scores": scores,
        "classes": np.zeros((1, 6), np.float32),
    }
    found = postprocess(outputs, contract("num_dets"), [IDENTITY], score_threshold=0.25)[0]
    assert len(found) == count
    padded = np.concatenate([boxes, scores[..., None], np.zeros((1, 6, 1))], axis=2)
    if count:
        same = postprocess({"output": padded}, contract("e2e"), [IDENTITY], score_threshold=0.0)[0]
        assert len(same) == 3
        assert (same.boxes[:, 2:] > same.boxes[:, :2]).all()
        assert (same.scores > 0).all()


def test_half_precision_outputs_are_read_in_full_precision() -> None:  # C27
    outputs = {
        "boxes": np.array([[[3000, 1500, 3400, 1900], [3002, 1502, 3402, 1902]]], np.float16),
        "scores": np.array([[[0.9, 0], [0.8, 0]]], np.float16),
    }
    size = (3840, 2160)
    found = postprocess(
        outputs,
        contract("decoded", width=size[0], height=size[1]),
        [Resize.plan(size, size, "letterbox")],
        iou_threshold=0.5,
    )[0]
    assert len(found) == 1
    assert found.scores[0] == pytest.approx(0.9, abs=1e-3)


def test_boxes_return_to_the_pixels_of_the_original_picture() -> None:
    plan = Resize.plan((1280, 720), (96, 96), "letterbox")
    box = np.array([[100, 200, 300, 500]], np.float32)
    outputs = {
        "boxes": plan.to_network(box)[None],
        "scores": np.array([[[0.9, 0.1]]], np.float32),
    }
    found = postprocess(outputs, contract("decoded"), [plan])[0]
    assert np.allclose(found.boxes, box, atol=1e-3)


def one_object(convention: str) -> dict[str, np.ndarray]:
    """Raw outputs of a truck, score 0.8, at 24, 16 to 56, 48 (stride 8, row 3, column 4)."""
    cells = [12 * 12, 6 * 6, 3 * 3]
    total, hit = sum(cells), 3 * 12 + 4
    logit = float(np.log(0.8 / 0.2))
    if convention == "raw":
        level = np.full((1, 6, 12, 12), -20.0, np.float32)
        centre = (36.0, 28.0)
        level[0, :4, 3, 4] = [(centre[0] - 24) / 8, (centre[1] - 16) / 8, 20 / 8, 20 / 8]
        level[0, 5, 3, 4] = logit
        others = [np.full((1, 6, n, n), -20.0, np.float32) for n in (6, 3)]
        return {"level_8": level, "level_16": others[0], "level_32": others[1]}
    if convention == "yolov8":
        rows = np.zeros((1, 6, total), np.float32)
        rows[0, :, hit] = [40, 32, 32, 32, 0, 0.8]
        return {"output0": rows}
    rows = np.zeros((1, total, 7), np.float32)
    if convention == "yolov5":
        rows[0, hit] = [40, 32, 32, 32, 1.0, 0, 0.8]
    else:
        assert convention == "yolox"
        rows[0, hit] = [40 / 8 - 4, 32 / 8 - 3, np.log(4), np.log(4), 1.0, 0, 0.8]
    return {"output": rows}


@pytest.mark.parametrize("convention", ["raw", "yolov8", "yolov5", "yolox"])
def test_each_convention_finds_the_same_object(convention: str) -> None:
    found = postprocess(one_object(convention), contract(convention), [IDENTITY])[0]
    assert len(found) == 1
    assert found.labels.tolist() == [1]
    assert found.scores[0] == pytest.approx(0.8, abs=1e-4)
    assert np.allclose(found.boxes[0], [24, 16, 56, 48], atol=1e-3)


def test_nanodet_distances_are_the_expected_bin() -> None:
    names = contract("nanodet").names
    scores = {f"cls_{s}": np.zeros((n * n, len(names))) for s, n in ((8, 12), (16, 6), (32, 3))}
    bins = {f"dis_{s}": np.zeros((n * n, 32)) for s, n in ((8, 12), (16, 6), (32, 3))}
    scores["cls_8"][3 * 12 + 4, 1] = 0.8
    distribution = np.full((4, 8), -50.0)
    distribution[:, 2] = 0.0  # all the weight on two strides
    bins["dis_8"][3 * 12 + 4] = distribution.reshape(-1)
    found = postprocess({**scores, **bins}, contract("nanodet"), [IDENTITY])[0]
    assert np.allclose(found.boxes[0], [36 - 16, 28 - 16, 36 + 16, 28 + 16], atol=1e-3)
    assert found.labels.tolist() == [1]


def test_classes_that_are_not_wanted_give_way_to_the_next_best() -> None:
    outputs = {
        "boxes": np.array([[[0, 0, 50, 50]]], np.float32),
        "scores": np.array([[[0.9, 0.4]]], np.float32),
    }
    found = postprocess(outputs, contract("decoded"), [IDENTITY], classes=[1])[0]
    assert found.labels.tolist() == [1]
    assert found.scores.tolist() == pytest.approx([0.4])


def test_exclusive_classes_share_a_place_with_others_only() -> None:
    rows = [(0, 0, 50, 50, 0.9, 0), (1, 0, 50, 50, 0.8, 1), (0, 0, 50, 50, 0.7, 2)]
    names = ("car", "truck", "person")
    apart = postprocess(rows_to_e2e(rows), contract("e2e", names=names), [IDENTITY])[0]
    assert apart.labels.tolist() == [0, 1, 2]
    exclusive = contract("e2e", names=names, exclusive=("car", "truck"))
    found = postprocess(rows_to_e2e(rows), exclusive, [IDENTITY])[0]
    assert found.labels.tolist() == [0, 2]


def test_a_class_number_outside_the_names_counts_as_invalid() -> None:
    rows = [(0, 0, 10, 10, 0.9, 7), (0, 0, 10, 10, 0.9, 1)]
    found = postprocess(rows_to_e2e(rows), contract("e2e"), [IDENTITY])[0]
    assert found.labels.tolist() == [1]
    assert found.invalid_rows == 1


@pytest.mark.parametrize(
    ("convention", "outputs"),
    [
        ("decoded", {"boxes": np.zeros((1, 5, 4))}),
        ("decoded", {"boxes": np.zeros((1, 5, 4)), "scores": np.zeros((1, 5, 3))}),
        ("decoded", {"boxes": np.zeros((1, 5, 5)), "scores": np.zeros((1, 5, 2))}),
        ("yolox", {"output": np.zeros((1, 10, 7))}),
        ("raw", {"level_8": np.zeros((1, 6, 12, 12))}),
        ("nanodet", {"a": np.zeros((144, 2)), "b": np.zeros((36, 2))}),
    ],
)
def test_outputs_that_do_not_fit_the_convention_are_refused(
    convention: str, outputs: dict[str, np.ndarray]
) -> None:
    with pytest.raises(InputError, match="model"):
        postprocess(outputs, contract(convention), [IDENTITY])
