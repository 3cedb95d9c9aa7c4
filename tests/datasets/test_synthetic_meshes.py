"""The shapes of vehicles, people and scenery, without Blender."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from perception.datasets.synthetic import people, scenery, vehicles
from perception.datasets.synthetic.mesh import Mesh, MeshBuilder, Surface, placement, transform

GREY = Surface("plastic")

# category -> maker, and the least and greatest length and height in metres of the real thing.
MAKERS: list[tuple[Callable[[np.random.Generator], Mesh], tuple[float, float, float, float]]] = [
    (vehicles.make_car, (3.2, 6.3, 1.2, 2.8)),
    (vehicles.make_truck, (4.8, 19.0, 1.6, 4.6)),
    (vehicles.make_bus, (7.5, 13.5, 2.8, 3.8)),
    (vehicles.make_three_wheeler, (2.4, 3.4, 1.5, 2.0)),
    (people.make_motorcycle, (1.6, 2.6, 1.0, 2.0)),
    (people.make_bicycle, (1.5, 2.1, 0.9, 2.0)),
    (people.make_person, (0.2, 1.3, 0.9, 2.2)),
]


@pytest.mark.parametrize(("make", "limits"), MAKERS)
@pytest.mark.parametrize("seed", range(4))
def test_actors_have_the_size_of_the_real_thing_and_stand_on_the_ground(
    make: Callable[[np.random.Generator], Mesh],
    limits: tuple[float, float, float, float],
    seed: int,
) -> None:
    low, high = make(np.random.default_rng(seed)).bounds
    shortest, longest, lowest, highest = limits
    assert shortest <= high[1] - low[1] <= longest
    assert lowest <= high[2] <= highest
    assert -0.06 <= low[2] <= 0.12


@pytest.mark.parametrize(("make", "limits"), MAKERS)
def test_the_same_seed_gives_the_same_mesh_and_another_seed_another(
    make: Callable[[np.random.Generator], Mesh], limits: tuple[float, float, float, float]
) -> None:
    first, again, other = (make(np.random.default_rng(seed)) for seed in (5, 5, 6))
    assert np.array_equal(first.vertices, again.vertices)
    assert first.surfaces == again.surfaces
    assert first.vertices.shape != other.vertices.shape or not np.array_equal(
        first.vertices, other.vertices
    )


def test_a_car_has_paint_glass_tyres_and_lamps() -> None:
    kinds = {s.kind for s in vehicles.car_of(vehicles.SEDAN, np.random.default_rng(0)).surfaces}
    assert {"paint", "glass", "rubber", "headlamp", "taillamp", "metal"} <= kinds


def test_a_car_is_the_same_on_both_sides() -> None:
    mesh = vehicles.car_of(vehicles.HATCHBACK, np.random.default_rng(1))
    low, high = mesh.bounds
    assert low[0] == pytest.approx(-high[0], abs=1e-6)


def test_every_face_points_at_vertices_and_surfaces_that_exist() -> None:
    for make, _ in MAKERS:
        mesh = make(np.random.default_rng(2))
        assert mesh.corners.min() >= 0 and mesh.corners.max() < len(mesh.vertices)
        assert mesh.material.min() >= 0 and mesh.material.max() < len(mesh.surfaces)
        assert int(mesh.sizes.sum()) == len(mesh.corners)
        assert len(mesh.sizes) == len(mesh.material) == len(mesh.smooth)
        assert np.isfinite(mesh.vertices).all()


def test_scenery_is_finite_and_of_sensible_size() -> None:
    rng = np.random.default_rng(3)
    made = [
        scenery.make_building(rng, 12.0, 10.0), scenery.make_tree(rng),
        scenery.make_hedge(rng, 9.0), scenery.make_lamp(rng), scenery.make_sign(rng),
        scenery.make_signal(rng),
        scenery.make_clutter(rng), scenery.make_guard_rail(20.0), scenery.make_backdrop(rng),
    ]  # fmt: skip
    for mesh in made:
        assert np.isfinite(mesh.vertices).all()
        assert 0.3 < mesh.bounds[1][2] < 60


def test_a_box_has_the_size_asked_for_with_and_without_a_bevel() -> None:
    for bevel in (0.0, 0.05):
        builder = MeshBuilder()
        builder.box((1.0, 2.0, 3.0), (0.4, 0.6, 0.8), GREY, bevel)
        low, high = builder.build().bounds
        assert np.allclose(low, [0.8, 1.7, 2.6]) and np.allclose(high, [1.2, 2.3, 3.4])


def test_merged_parts_keep_their_own_surfaces() -> None:
    red, blue = Surface("paint", (1, 0, 0)), Surface("paint", (0, 0, 1))
    part, whole = MeshBuilder(), MeshBuilder()
    part.box((0, 0, 0), (1, 1, 1), blue)
    whole.box((0, 0, 0), (1, 1, 1), red)
    whole.merge(part.build(), placement(5.0, 0.0))
    mesh = whole.build()
    starts = np.cumsum(mesh.sizes) - mesh.sizes
    for start, size, material in zip(starts, mesh.sizes, mesh.material, strict=True):
        x = mesh.vertices[mesh.corners[start : start + size], 0]
        assert mesh.surfaces[material] == (red if x.max() < 2 else blue)


def test_placement_turns_forward_to_the_left_for_a_positive_heading() -> None:
    forward = np.array([[0.0, 1.0, 0.0]])
    moved = transform(forward, placement(10.0, 20.0, np.pi / 2))
    assert np.allclose(moved, [[9.0, 20.0, 0.0]])
