import math
from dataclasses import replace

import numpy as np
import pytest

from perception.errors import InputError
from perception.geometry import ground
from perception.geometry.camera import Camera, Mount
from perception.geometry.ground import GroundSettings, GroundTracks

# These tests show flat boards, which reach no further than their foot.
PRIORS = {name: replace(prior, overhang=0.0) for name, prior in ground.PRIORS.items()}


def locate(boxes, labels, camera, settings=None):
    return ground.locate(boxes, labels, camera, settings, PRIORS)


MOUNT = Mount(z=1.2, x=0.2, pitch=math.radians(8))
CAMERA = Camera.create(832, 512, [620, 0, 416, 0, 620, 256, 0, 0, 1], [], MOUNT)


def box(ahead, left=0.0, height=1.7, width=0.5):
    """Box of an upright board standing on the ground, its middle at (ahead, left)."""
    corners = [(ahead, left + side, up) for side in (-width / 2, width / 2) for up in (0, height)]
    pixels = CAMERA.project(corners)
    return np.concatenate([pixels.min(axis=0), pixels.max(axis=0)])


def test_a_person_is_found_where_it_stands():
    found = locate([box(6.0, 1.0)], ["person"], CAMERA)
    true = math.hypot(5.8, 1.0)
    assert found.distances[0] == pytest.approx(true, rel=0.01)
    # The centre is half a person behind the face that the camera sees.
    expected = np.array([0.2, 0]) + np.array([5.8, 1.0]) * (true + 0.3) / true
    np.testing.assert_allclose(found.positions[0], expected, atol=0.1)
    assert found.heights[0] == pytest.approx(1.7, rel=0.02)


def test_both_estimates_are_unbiased_on_their_own():
    found = locate([box(d) for d in (3, 6, 12, 18)], ["person"] * 4, CAMERA)
    true = np.array([3, 6, 12, 18]) - 0.2
    np.testing.assert_allclose(found.by_foot, true, rtol=0.01)
    np.testing.assert_allclose(found.by_size, true, rtol=0.01)


def test_uncertainty_grows_with_distance_and_fusion_beats_the_foot():
    # From 5 m: nearer, the feet are below the picture.
    distances = [5, 6, 8, 12, 20]
    # Side by side: none hides another's foot.
    row = [box(d, left=0.13 * d * place) for place, d in enumerate(distances, -2)]
    found = locate(row, ["person"] * 5, CAMERA)
    assert (np.diff(found.sigmas) > 0).all()
    # A pallet's height says little: its distance is all but the foot's.
    pallets = locate(row, ["pallet"] * 5, CAMERA)
    assert (found.sigmas < pallets.sigmas).all()
    # The error along the ray is larger than the one across.
    along, across = found.covariances[3][0, 0], found.covariances[3][1, 1]
    assert along > 25 * across


def test_the_median_error_on_noisy_boxes_is_under_8_percent():
    rng = np.random.default_rng(5)
    errors = []
    for _ in range(400):
        ahead, left = rng.uniform(3, 20), rng.uniform(-1.5, 1.5)
        label = ["person", "forklift", "pallet"][rng.integers(3)]
        prior = PRIORS[label]
        tall = max(rng.normal(prior.height, prior.height_sigma), 0.2)
        noisy = box(ahead, left, tall, 2 * prior.radius) + rng.normal(0, 1, 4)
        noisy = np.clip(noisy, 0, [832, 512, 832, 512])
        found = locate([noisy], [label], CAMERA)
        true = math.hypot(ahead - 0.2, left)
        errors.append(abs(found.distances[0] - true) / true)
    assert np.median(errors) < 0.08


def test_the_stated_sigma_covers_the_errors():
    rng = np.random.default_rng(6)
    misses = []
    for _ in range(500):
        ahead = rng.uniform(5, 15)
        tall = rng.normal(1.7, 0.1)
        tilted = Mount(z=1.2, x=0.2, pitch=math.radians(8) + rng.normal(0, math.radians(0.3)))
        real = Camera.create(832, 512, CAMERA.matrix, [], tilted)
        corners = real.project([(ahead, side, up) for side in (-0.25, 0.25) for up in (0, tall)])
        seen = np.concatenate([corners.min(axis=0), corners.max(axis=0)])
        sigma_px = max(1.0, 0.02 * (seen[3] - seen[1]))
        seen += rng.normal(0, sigma_px, 4)
        found = locate([seen], ["person"], CAMERA)
        misses.append((found.distances[0] - (ahead - 0.2)) / found.sigmas[0])
    within = np.mean(np.abs(misses) < 2)
    assert 0.9 < within <= 1.0


def test_a_box_cut_below_is_between_the_camera_and_the_nearest_visible_ground():
    cut = box(1.0)
    cut[3] = 512
    found = locate([cut], ["person"], CAMERA)
    nearest_visible = CAMERA.ground_points([(416, 512)])[0, 0] - 0.2
    assert found.distances[0] + math.sqrt(3) * found.sigmas[0] <= nearest_visible * 1.01
    assert found.distances[0] - math.sqrt(3) * found.sigmas[0] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("settings", [GroundSettings(), GroundSettings(1.5, 0.035)])
@pytest.mark.parametrize("short", [3, 6, 12])
def test_a_near_box_that_ends_just_short_of_the_lower_edge_is_cut_too(short, settings):
    # 1 m ahead; the foot is below the picture, the detector's box ends above its edge.
    near = box(1.0)
    near[[1, 3]] = 0, CAMERA.height - short
    found = locate([near], ["person"], CAMERA, settings)
    assert abs(found.distances[0] - 0.8) < 2 * found.sigmas[0]
    nearest_visible = CAMERA.ground_points([(416, 512)])[0, 0] - 0.2
    assert found.distances[0] < 0.6 * nearest_visible


def test_the_height_of_a_box_that_ends_just_short_of_the_upper_edge_says_nothing():
    # The head is above the picture: by its size the box would be a third further away.
    tilted = Camera.create(832, 512, CAMERA.matrix, [], replace(MOUNT, pitch=math.radians(20)))
    corners = tilted.project([(3.0, side, up) for side in (-0.25, 0.25) for up in (0, 1.7)])
    seen = np.concatenate([corners.min(axis=0), corners.max(axis=0)])
    seen[1] = 12
    found = locate([seen], ["person"], tilted)
    assert found.distances[0] == found.by_foot[0]


def test_estimates_that_contradict_each_other_widen_the_uncertainty():
    standing = box(6.0)
    # On a platform of half a metre: the foot says further away, the size does not.
    raised = CAMERA.project([(6.0, side, up) for side in (-0.25, 0.25) for up in (0.5, 2.2)])
    raised = np.concatenate([raised.min(axis=0), raised.max(axis=0)])
    on_floor, on_platform = (locate([b], ["person"], CAMERA) for b in (standing, raised))
    assert on_platform.by_foot[0] > 1.5 * on_platform.by_size[0]
    assert on_platform.sigmas[0] > 2 * on_floor.sigmas[0]
    assert abs(on_platform.distances[0] - 5.8) < 2 * on_platform.sigmas[0]


def test_a_foot_above_the_horizon_leaves_the_size():
    high = np.array([400, 100, 420, 150.0])
    found = locate([high], ["person"], CAMERA)
    assert np.isnan(found.by_foot[0])
    assert found.distances[0] == found.by_size[0]
    # Cut at the upper edge as well: no more than an upper bound.
    cut = np.array([400, 0, 420, 150.0])
    found = locate([cut], ["person"], CAMERA)
    assert found.distances[0] == pytest.approx(found.by_size[0] / 2)


def test_radius_is_the_width_seen_and_at_least_the_class():
    wide = locate([box(6.0, width=2.6, height=2.1)], ["forklift"], CAMERA)
    assert wide.radii[0] == pytest.approx(1.3, rel=0.03)
    thin = locate([box(6.0, width=0.2)], ["person"], CAMERA)
    assert thin.radii[0] == 0.3


def test_an_unknown_class_is_still_placed_by_its_foot():
    found = locate([box(6.0)], ["unicorn"], CAMERA)
    assert found.distances[0] == pytest.approx(5.8, rel=0.03)


def test_no_boxes_no_places():
    found = locate([], [], CAMERA)
    assert found.positions.shape == (0, 2)
    assert feed(GroundTracks(), [], found, 1).shape == (0, 2)


def test_the_part_that_overhangs_the_foot_is_nearer_than_the_foot():
    board = ground.locate([box(6.0)], ["person"], CAMERA)
    assert board.distances[0] == pytest.approx(5.8 - ground.PRIORS["person"].overhang, rel=0.01)
    assert board.heights[0] == pytest.approx(1.7, rel=0.02)


def test_a_foot_behind_someone_nearer_is_uncertain_down_to_there():
    alone = locate([box(10.0)], ["person"], CAMERA)
    hidden = locate([box(10.0), box(6.0, 0.1)], ["person"] * 2, CAMERA)
    assert hidden.distances[0] == alone.distances[0]
    assert hidden.sigmas[0] == pytest.approx((9.8 - 5.8) / math.sqrt(12), rel=0.05)
    # The one in front, and whoever stands beside, are as certain as before.
    front, beside = (locate([box(6.0, y)], ["person"], CAMERA).sigmas[0] for y in (0.1, 3.0))
    assert hidden.sigmas[1] == front
    assert locate([box(10.0), box(6.0, 3.0)], ["person"] * 2, CAMERA).sigmas[1] == beside


def vehicle(near, left, length, width=1.8, height=1.5):
    """Box of a cuboid along the x axis whose near face is at `near`, its middle `left` of it."""
    corners = [
        (x, left + side, up)
        for x in (near, near + length)
        for side in (-width / 2, width / 2)
        for up in (0, height)
    ]
    pixels = CAMERA.project(corners)
    found = np.concatenate([pixels.min(axis=0), pixels.max(axis=0)])
    return np.clip(found, 0, [CAMERA.width, CAMERA.height] * 2)


@pytest.mark.parametrize("left", [3.3, -3.3])
@pytest.mark.parametrize("near", [4.5, 6.0, 9.0, 15.0, 25.0])
def test_a_vehicle_in_the_next_lane_is_not_taken_for_one_that_reaches_into_the_own(near, left):
    # Its flank brings the box to within a metre of the own way; 4.5 m cuts it at the side.
    found = locate([vehicle(near, left, 4.5)], ["car"], CAMERA)
    assert abs(found.positions[0, 1] - left) < 0.45
    assert found.radii[0] == pytest.approx(0.9)


def test_a_vehicle_across_the_way_keeps_its_whole_width():
    # Its front is 1.2 m beside the own way, its tail 5.5 m.
    across = vehicle(10.0, 3.35, 1.8, width=4.3)
    found = locate([across], ["car"], CAMERA)
    assert found.radii[0] > 2.0
    assert abs(found.positions[0, 1]) - found.radii[0] < 1.6


def test_a_vehicle_ahead_is_where_it_was():
    found = locate([vehicle(12.0, 0.2, 4.5)], ["car"], CAMERA)
    assert found.positions[0] == pytest.approx([12.9, 0.2], abs=0.6)


def test_settings_are_checked():
    with pytest.raises(InputError, match="pixel_sigma"):
        GroundSettings(pixel_sigma=0.0)
    with pytest.raises(InputError, match="tilt_sigma"):
        GroundSettings(tilt_sigma=math.nan)


def feed(tracks, ids, found, stamp, ego=(0.0, 0.0, 0.0)):
    return tracks.update(ids, found.positions, found.covariances, stamp, ego)


def drive(tracks, place_at, seconds=1.5, rate=20, ego=(0.0, 0.0, 0.0), name="7"):
    velocity = None
    for step in range(round(seconds * rate) + 1):
        now = step / rate
        found = locate([box(*place_at(now))], ["person"], CAMERA)
        velocity = feed(tracks, [name], found, round((100 + now) * 1e9), ego)
    return velocity[0]


def test_a_walking_person_gets_a_velocity():
    velocity = drive(GroundTracks(), lambda t: (6.0, 1.5 - 1.2 * t))
    np.testing.assert_allclose(velocity, [0, -1.2], atol=0.15)


def test_what_stands_still_has_no_velocity_over_ground_while_the_robot_drives():
    velocity = drive(GroundTracks(), lambda t: (8.0 - 1.0 * t, 0.0), ego=(1.0, 0.0, 0.0))
    np.testing.assert_allclose(velocity, [0, 0], atol=0.15)


def test_turning_on_the_spot_moves_nothing():
    def place(t):
        angle = math.atan2(0, 6) - 0.3 * t
        return 6 * math.cos(angle), 6 * math.sin(angle)

    velocity = drive(GroundTracks(), place, ego=(0.0, 0.0, 0.3))
    np.testing.assert_allclose(velocity, [0, 0], atol=0.2)


def test_a_first_sight_and_an_untracked_box_have_no_velocity():
    found = locate([box(6.0)], ["person"], CAMERA)
    assert np.isnan(feed(GroundTracks(), ["7"], found, 1_000)).all()
    tracks = GroundTracks()
    for stamp in range(20):
        velocity = feed(tracks, [""], found, stamp * 50_000_000)
    assert np.isnan(velocity).all()


def test_tracks_are_forgotten_after_their_retention_and_when_time_goes_back():
    tracks = GroundTracks(retention=0.5)
    found = locate([box(6.0)], ["person"], CAMERA)
    nothing = locate([], [], CAMERA)
    for stamp in range(20):
        feed(tracks, ["7"], found, 10**9 + stamp * 50_000_000)
    feed(tracks, [], nothing, 4 * 10**9)
    assert np.isnan(feed(tracks, ["7"], found, 4 * 10**9 + 1)).all()
    for stamp in range(20):
        known = feed(tracks, ["7"], found, 5 * 10**9 + stamp * 50_000_000)
    assert np.isfinite(known).all()
    assert np.isnan(feed(tracks, ["7"], found, 10**9)).all()


def hand_over(tracks, rows, steps=20, ego=(0.0, 0.0, 0.0), start=100, sigma=0.1):
    """Velocities after `steps` pictures of (id, place) rows that stay where they are."""
    ids, places = [row[0] for row in rows], np.array([row[1] for row in rows])
    covariances = np.tile(np.eye(2) * sigma**2, (len(rows), 1, 1))
    for step in range(steps):
        stamp = round((start + step / 20) * 1e9)
        velocities = tracks.update(ids, places, covariances, stamp, ego)
    return velocities


def test_rows_that_share_an_id_have_no_velocity_and_spoil_none():
    tracks = GroundTracks()
    alone = hand_over(tracks, [("1", (1.5, 0.6)), ("2", (4.0, 0.0))])
    assert np.isfinite(alone).all()
    both = [("1", (1.5, 0.6)), ("2", (4.0, 0.0)), ("1", (1.5, -3.0))]
    velocities = hand_over(tracks, both, start=101)
    assert np.isnan(velocities[[0, 2]]).all()
    np.testing.assert_allclose(velocities[1], 0, atol=1e-6)
    assert np.isnan(tracks.velocity_sigmas(["1", "", "never seen"])).all()
    # Whom the id belongs to afterwards is a new acquaintance.
    assert np.isnan(hand_over(tracks, [("1", (1.5, -3.0))], steps=1, start=102)).all()


def test_the_uncertainty_of_a_velocity_is_told_and_covers_its_worst_axis():
    tracks = GroundTracks(known_speed=1.5)
    covariance = np.diag([0.25, 0.0001])[None]
    for step in range(4):
        stamp = round((100 + step / 20) * 1e9)
        velocity = tracks.update(["1"], np.array([[5.0, 0.0]]), covariance, stamp)
    (sigma,) = tracks.velocity_sigmas(["1"])
    assert np.isfinite(velocity).all()
    # In the mean of both axes, which is what makes it known, it is less than 1.5 m/s.
    assert 1.5 < sigma < 2.0


@pytest.mark.parametrize(
    ("place", "variance"),
    [
        ((30.0, 0.0), 1e6),
        ((30.0, 0.0), 1e20),
        ((30.0, 0.0), 1e308),
        ((1e9, 0.0), 0.0),
        ((1e300, -1e300), 0.01),
        ((1e300, -1e300), 1e308),
    ],
)
def test_absurd_places_have_no_velocity_and_stop_nothing(place, variance):
    tracks = GroundTracks()
    covariances = np.full((1, 2, 2), variance)
    for step in range(20):
        stamp = round((100 + step / 20) * 1e9)
        velocity = tracks.update(["1"], np.array([place]), covariances, stamp)
    assert np.isnan(velocity).all()
    # The next sound measurements count as ever.
    assert np.abs(hand_over(tracks, [("1", (5.0, 1.0))], start=103)).max() < 0.5


@pytest.mark.parametrize(
    "ego", [(0, 0, 1.7e308), (1e308, 0, 0), (math.nan, 0, 0), (0, math.inf, 0), (101, 0, 0)]
)
def test_motion_that_no_robot_has_makes_velocities_unknown(ego):
    tracks = GroundTracks()
    standing = [("1", (5.0, 1.0))]
    assert np.isfinite(hand_over(tracks, standing)).all()
    assert np.isnan(hand_over(tracks, standing, ego=ego, start=102, steps=3)).all()
    np.testing.assert_allclose(hand_over(tracks, standing, start=103), 0, atol=1e-6)


def test_a_filter_that_breaks_down_starts_anew():
    tracks = GroundTracks()
    place, exact = np.array([[5.0, 1.0]]), np.zeros((1, 2, 2))
    tracks.update(["1"], place, exact, 99 * 10**9)
    # No covariance at all: it takes away just what keeps the filter from being singular.
    broken = tracks.update(["1"], place, -4e-6 * np.eye(2)[None], 99 * 10**9)
    assert np.isnan(broken).all()
    np.testing.assert_allclose(hand_over(tracks, [("1", (5.0, 1.0))]), 0, atol=1e-6)
