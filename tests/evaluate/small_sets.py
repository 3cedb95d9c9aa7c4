"""Hypothesis strategy for small evaluation sets."""

import numpy as np
from hypothesis import strategies as st

from perception.evaluate.tables import BoxTables, Results, Truth


@st.composite
def tables(draw):
    """Small sets with ties, crowds, empty pictures, unused classes and clustered boxes."""
    pictures, classes = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = draw(st.sampled_from([20.0, 60.0, 200.0]))

    def boxes(count):
        corner = rng.integers(0, 4, (count, 2)) * size / 4
        return np.hstack([corner, np.ceil(rng.uniform(0.6, 1.1, (count, 2)) * size)])

    g, d = draw(st.integers(0, 15)), draw(st.integers(0, 25))
    truth_boxes, found_boxes = boxes(g), boxes(d)
    return BoxTables(
        pictures=tuple(map(str, range(pictures))),
        names=tuple(f"class{k}" for k in range(classes)),
        truth=Truth(
            rng.integers(0, pictures, g),
            rng.integers(0, classes, g),
            truth_boxes,
            truth_boxes[:, 2] * truth_boxes[:, 3] * 0.8,
            rng.random(g) < 0.15,
        ),
        results=Results(
            rng.integers(0, pictures, d),
            rng.integers(0, classes, d),
            found_boxes,
            rng.integers(0, 6, d) / 5,
        ),
    )
