"""Factory shapes and scenes, without Blender."""

from __future__ import annotations

import numpy as np
import pytest

from perception.datasets.synthetic import warehouse
from perception.datasets.synthetic.factory import sample_factory
from perception.labels import FACTORY

SIZE = (160, 96)


def test_a_pallet_has_the_size_of_the_european_one() -> None:
    low, high = warehouse.make_pallet(np.random.default_rng(0)).bounds
    assert np.allclose(high - low, [0.8, 1.2, 0.144], atol=0.01)


@pytest.mark.parametrize("lift", [0.08, 1.2])
def test_a_forklift_stands_on_the_ground_and_its_mast_rises_with_the_forks(lift: float) -> None:
    mesh = warehouse.make_forklift(np.random.default_rng(1), lift)
    low, high = mesh.bounds
    assert low[2] == pytest.approx(0.0, abs=0.02)
    assert high[2] > 2.0 and high[2] > lift + 1.0
    forks = mesh.vertices[mesh.vertices[:, 1] > 2.0]
    assert lift < forks[:, 2].mean() < lift + 0.1


@pytest.mark.parametrize("seed", range(8))
def test_a_load_fits_its_pallet(seed: int) -> None:
    low, high = warehouse.make_load(np.random.default_rng(seed)).bounds
    assert high[0] - low[0] < 0.95 and high[1] - low[1] < 1.35
    assert low[2] > -0.03 and high[2] < 1.5


def test_factory_scenes_hold_factory_classes_and_follow_from_their_seed() -> None:
    first, again = (sample_factory(2, 5, SIZE)[0] for _ in range(2))
    assert {a.category for a in first.actors} <= set(FACTORY.names)
    assert {"pallet", "forklift"} & {a.category for a in first.actors}
    assert [a.matrix.tolist() for a in first.actors] == [a.matrix.tolist() for a in again.actors]
    assert [a.track_id for a in first.actors] == list(range(1, len(first.actors) + 1))
    assert first.weather.sun_strength == 0 and first.lamps
