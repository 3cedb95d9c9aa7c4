"""Similarity of boxes and the matching behind the tracker."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from perception.tracking.association import distinct_rows, match, similarity


def _weights() -> st.SearchStrategy[np.ndarray]:
    sides = st.tuples(st.integers(0, 8), st.integers(0, 8))
    # Zero often (pairs ruled out by the gate) and a coarse grid, so that ties are common.
    return sides.flatmap(
        lambda s: arrays(np.float64, s, elements=st.sampled_from([0, 0, 0.25, 0.5, 0.75, 1]))
    )


@settings(deadline=None, max_examples=150)
@given(_weights())
def test_matching_reaches_the_sum_that_scipy_reaches(weights: np.ndarray) -> None:
    linear_sum_assignment = pytest.importorskip("scipy.optimize").linear_sum_assignment
    rows, columns = match(weights)
    best = linear_sum_assignment(weights, maximize=True)
    assert weights[rows, columns].sum() == pytest.approx(weights[best].sum())
    assert (weights[rows, columns] > 0).all()
    assert len(set(rows.tolist())) == len(rows) == len(set(columns.tolist()))


@pytest.mark.parametrize("shape", [(40, 60), (60, 40), (50, 50)])
def test_large_contested_matching_is_optimal(shape: tuple[int, int]) -> None:
    linear_sum_assignment = pytest.importorskip("scipy.optimize").linear_sum_assignment
    weights = np.random.default_rng(3).random(shape)
    rows, columns = match(weights)
    best = linear_sum_assignment(weights, maximize=True)
    assert weights[rows, columns].sum() == pytest.approx(weights[best].sum())


def test_two_fair_matches_are_preferred_to_one_good_and_none() -> None:
    rows, columns = match(np.array([[0.9, 0.6], [0.7, 0.0]]))
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == [(0, 1), (1, 0)]


def test_similarity_without_spread_is_iou() -> None:
    a = np.array([[0, 0, 10, 10]], np.float64)
    b = np.array([[5, 0, 15, 10], [0, 0, 10, 10], [20, 0, 30, 10]], np.float32)
    np.testing.assert_allclose(similarity(a, b), [[1 / 3, 1, 0]])


def test_spread_lets_near_boxes_meet_but_never_by_more_than_half_a_side() -> None:
    a = np.array([[0, 0, 10, 10]], np.float64)
    b = np.array([[14, 0, 24, 10], [21, 0, 31, 10]], np.float32)
    assert (similarity(a, b, np.array([3.0])) > 0).tolist() == [[True, False]]
    assert (similarity(a, b, np.array([1e9])) > 0).tolist() == [[True, False]]


def test_boxes_without_area_are_like_nothing() -> None:
    a = np.array([[0, 0, 10, 10]], np.float64)
    b = np.array([[5, 5, 5, 9], [9, 9, 5, 5]], np.float32)
    assert similarity(a, b, np.array([4.0])).tolist() == [[0.0, 0.0]]


def test_distinct_rows_keep_the_first_of_each_group() -> None:
    alike = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]], bool)
    assert distinct_rows(alike).tolist() == [0, 2]
