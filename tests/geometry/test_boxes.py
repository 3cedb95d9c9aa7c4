"""Boxes: IoU, NMS, clipping."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from perception.geometry.boxes import (
    clip_boxes,
    cxcywh_to_xyxy,
    iof_matrix,
    iou_matrix,
    nms,
    xywh_to_xyxy,
    xyxy_to_xywh,
)

coordinates = st.floats(-1000, 5000, width=32)


def box_sets() -> st.SearchStrategy[np.ndarray]:
    """Sets of up to 12 boxes with ordered corners."""
    corners = st.integers(0, 12).flatmap(
        lambda count: arrays(np.float32, (count, 2, 2), elements=coordinates)
    )
    return corners.map(lambda pairs: np.sort(pairs, axis=1).reshape(-1, 4))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_half_precision_at_4k_coordinates_gives_the_same_survivors(dtype: type) -> None:  # C27
    boxes = np.array([[3000, 1500, 3400, 1900], [3002, 1502, 3402, 1902]], dtype=dtype)
    scores = np.array([0.9, 0.8], dtype=dtype)
    assert nms(boxes, scores, [0, 0], 0.5).tolist() == [0]
    three = np.concatenate([boxes, boxes[1:]])
    assert nms(three, np.array([0.9, 0.8, 0.7], dtype=dtype), [0, 0, 1], 0.5).tolist() == [0, 2]
    assert iou_matrix(boxes, boxes)[0, 1] == pytest.approx(0.980247, abs=1e-6)


def test_empty_inputs_give_empty_results_of_the_right_shape() -> None:
    assert iou_matrix([], [[0, 0, 1, 1]]).shape == (0, 1)
    assert nms([], [], [], 0.5).shape == (0,)
    assert nms([], [], [], 0.5).dtype == np.int64
    assert clip_boxes([], 10, 10).shape == (0, 4)


def test_boxes_without_area_have_no_overlap() -> None:
    assert iou_matrix([[5, 5, 5, 5]], [[5, 5, 5, 5]])[0, 0] == 0
    assert iof_matrix([[5, 5, 5, 9]], [[0, 0, 9, 9]])[0, 0] == 0


@given(box_sets(), box_sets())
def test_iou_is_symmetric_and_between_0_and_1(first: np.ndarray, second: np.ndarray) -> None:
    overlap = iou_matrix(first, second)
    assert np.allclose(overlap, iou_matrix(second, first).T, atol=1e-6)
    assert (overlap >= 0).all()
    assert (overlap <= 1 + 1e-5).all()


@given(box_sets(), st.floats(0.1, 0.9), st.integers(0, 2**32 - 1))
def test_nms_keeps_no_two_clashing_boxes_and_drops_only_clashing_ones(
    boxes: np.ndarray, threshold: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    scores, labels = random.random(len(boxes), np.float32), random.integers(0, 2, len(boxes))
    keep = nms(boxes, scores, labels, threshold)
    assert (np.diff(scores[keep]) <= 0).all()
    overlap = iou_matrix(boxes, boxes)
    same = labels[:, None] == labels[None, :]
    kept = overlap[np.ix_(keep, keep)] * same[np.ix_(keep, keep)] * (1 - np.eye(len(keep)))
    assert (kept <= threshold).all()
    for row in set(range(len(boxes))) - set(keep.tolist()):
        assert ((overlap[row, keep] > threshold) & same[row, keep]).any()


@given(box_sets())
def test_corner_and_size_forms_are_inverse(boxes: np.ndarray) -> None:
    assert np.allclose(xywh_to_xyxy(xyxy_to_xywh(boxes)), boxes, atol=2e-3)
    centre = np.concatenate([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]], 1)
    assert np.allclose(cxcywh_to_xyxy(centre), boxes, atol=2e-3)
