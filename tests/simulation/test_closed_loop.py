"""Short forms of the factory scenarios in lock-step, with the simulator's own boxes."""

import dataclasses
import math
from pathlib import Path

import pytest
import yaml

import perception.simulation  # noqa: F401 - chooses the graphics library before MuJoCo loads

pytest.importorskip("mujoco", reason="needs MuJoCo: pip install waysight[factory]")

from perception.errors import InputError
from perception.safety import STOPPED, Cause, Decision, Guardian, Twist
from perception.safety.settings import SETTING_KEYS, guardian_settings
from perception.simulation import closed_loop
from perception.simulation.closed_loop import (
    PICTURE_PERIOD,
    TRUTH,
    ChainSettings,
    Log,
    run_scenario,
)
from perception.simulation.scenario import (
    ActorPlan,
    FaultPlan,
    Scenario,
    Variation,
    load_scenario,
    scenario_names,
)
from perception.simulation.world import STEP, World

CONFIG = Path(__file__).resolve().parents[2] / "ros_nodes" / "config" / "factory.yaml"
DRAWN = ("camera_freezes", "lights_out", "picture_noise")


@pytest.fixture(scope="module")
def settings():
    parameters = yaml.safe_load(CONFIG.read_text())["nodes"]["guardian"]["parameters"]
    wanted = {*SETTING_KEYS, *parameters["zones"]}
    return ChainSettings(
        guardian_settings({key: parameters[key] for key in parameters if key in wanted})
    )


@pytest.mark.parametrize("name", [n for n in scenario_names() if n not in (*DRAWN, "empty_hall")])
def test_scenario_holds(settings, name):
    verdict = run_scenario(load_scenario(name), 1, settings)
    assert verdict.passed, verdict.report()
    assert verdict.report()["detector"] == TRUTH


@pytest.mark.parametrize("name", DRAWN)
def test_scenario_with_drawn_pictures_holds(settings, graphics, name):
    verdict = run_scenario(load_scenario(name), 1, settings)
    assert verdict.passed, verdict.report()


def test_the_empty_hall_is_driven_without_a_stop(settings):
    # A tenth of the ten minutes; `waysight run factory --scenario empty_hall` plays all of them.
    scenario = dataclasses.replace(load_scenario("empty_hall"), seconds=60)
    verdict = run_scenario(scenario, 1, settings)
    assert verdict.passed, verdict.report()
    assert verdict.log.laps >= 2


def test_the_same_seed_gives_the_same_run(settings):
    scenario = load_scenario("person_from_rack")
    first, again = (run_scenario(scenario, 5, settings).report() for _ in range(2))
    assert first == again
    assert first != run_scenario(scenario, 6, settings).report()


def test_without_zones_the_verdict_fails(settings):
    # The verdict must be able to say no.
    bare = ChainSettings(guardian_settings({"classes": list(settings.guardian.classes)}))
    verdict = run_scenario(load_scenario("person_from_rack"), 1, bare)
    assert not verdict.passed
    assert verdict.log.contact


def failed_checks(verdict):
    return {check.name for check in verdict.checks if not check.passed}


def test_a_robot_that_never_moves_passes_no_scenario(settings):
    watchdog = dataclasses.replace(settings.guardian.watchdog, recovery_frames=1000)
    guardian = dataclasses.replace(settings.guardian, watchdog=watchdog)
    for name, failed in (
        ("camera_dies", "drives when the fault strikes"),
        ("detector_killed", "drives when the fault strikes"),
        ("empty_hall", "drives on"),
    ):
        scenario = dataclasses.replace(load_scenario(name), seconds=12)
        verdict = run_scenario(scenario, 0, dataclasses.replace(settings, guardian=guardian))
        assert verdict.log.travelled == 0.0
        assert failed in failed_checks(verdict), name


class Forgetful(Guardian):
    """Stops for a fault, and forgets it after eight decisions."""

    zeros = 0

    def decide(self, times):
        decision = super().decide(times)
        self.zeros += decision.reason == "detections stale"
        if self.zeros > 8:
            return Decision(self._command, 1.0, Cause.FREE, "")
        return decision


def test_a_zero_that_ends_before_the_fault_does_is_none(settings, monkeypatch):
    # Nobody is there, so that nothing else stops the robot.
    scenario = dataclasses.replace(load_scenario("detector_killed"), actors=())
    assert run_scenario(scenario, 0, settings).passed
    monkeypatch.setattr(closed_loop, "Guardian", Forgetful)
    verdict = run_scenario(scenario, 0, settings)
    assert failed_checks(verdict) == {"zero velocity after the fault"}


def test_a_zone_that_stops_is_no_watchdog(settings):
    # The watchdog waits longer than the run lasts.
    watchdog = dataclasses.replace(settings.guardian.watchdog, source_timeout=5.0)
    guardian = dataclasses.replace(settings.guardian, watchdog=watchdog)
    scenario = dataclasses.replace(
        load_scenario("detector_killed"), seconds=11, fault=FaultPlan("detector_killed", (6.5, 6.5))
    )
    verdict = run_scenario(scenario, 0, dataclasses.replace(settings, guardian=guardian))
    assert {stop["cause"] for stop in verdict.log.stops} == {"zone"}
    assert failed_checks(verdict) == {"zero velocity after the fault"}


def hall_with(*actors):
    """A world with these actors, and an empty log."""
    return World(Variation.of(Scenario("mine", "", 10.0, actors=actors), 0)), Log()


def test_clearance_is_the_least_between_two_pictures_too():
    # A metre from picture to picture: at none of them is the runner nearest to the robot.
    runner = ActorPlan("person", (1.2, 2.5), path=((1.2, -2.5),), speed=(20.0, 20.0))
    world, log = hall_with(runner)
    fine, _ = hall_with(runner)
    gaps = []
    for _ in range(8):
        world.step(Twist(1.0), PICTURE_PERIOD, log.moved)
        for _ in range(round(PICTURE_PERIOD / STEP)):
            fine.step(Twist(1.0), STEP)
            gaps.append(fine.clearance() if fine.twist.speed > 0.02 else 9.0)
    assert log.clearance_moving == pytest.approx(min(gaps))
    assert log.travelled == pytest.approx(world.x)


def test_who_walks_into_the_standing_robot_is_not_hit_by_it():
    walker = ActorPlan("person", (2.0, 0.0), path=((0.0, 0.0),))
    for speed, contact, walked_into in ((0.0, False, True), (0.01, True, False)):
        world, log = hall_with(walker)
        world.step(Twist(speed), 2.0, log.moved)
        world.step(STOPPED, 1.0, log.moved)
        assert (log.contact, log.walked_into) == (contact, walked_into), speed


def test_a_verdict_does_not_hold_where_the_script_leads_into_the_robot(settings):
    # The robot waits for who comes along the lane; nobody can wait for who walks on.
    walker = ActorPlan("person", (9.0, 0.0), path=((0.0, 0.0),), trigger_distance=(5.0, 5.0))
    verdict = run_scenario(Scenario("mine", "", 14.0, actors=(walker,)), 0, settings)
    assert "nobody walks into the robot" in failed_checks(verdict)
    assert verdict.report()["walked_into"]


def test_who_halts_stands_before_the_robot_and_goes_on_from_there():
    plan = ActorPlan(
        "person",
        (3.0, 0.0),
        path=((-1.0, 0.0), (-1.0, 4.0)),
        halt_clearance=(0.2, 0.2),
        halt_seconds=(2.0, 2.0),
    )
    world, log = hall_with(plan)
    (walker,) = world.walkers
    gaps = []
    for _ in range(100):
        world.step(STOPPED, PICTURE_PERIOD, log.moved)
        gaps.append(world.clearance())
    standing = [gap for gap in gaps if gap == pytest.approx(0.2, abs=0.02)]
    assert len(standing) * PICTURE_PERIOD == pytest.approx(2.0, abs=0.15)
    assert (walker.x, walker.heading) == pytest.approx((0.765, math.pi / 2), abs=0.02)
    assert not (log.walked_into or log.contact)


@pytest.mark.parametrize("seed", range(4))
def test_a_guardian_that_holds_long_enough_lets_the_near_person_leave(settings, seed):
    zones = [dataclasses.replace(zone, release_after=10.0) for zone in settings.guardian.zones]
    guardian = dataclasses.replace(settings.guardian, zones=tuple(zones))
    gaps, unseen = [], []

    def look(world, decision, detections):
        gaps.append(world.clearance())
        unseen.append(world.walkers[0].halted > 0 and len(detections) == 0)

    verdict = run_scenario(
        load_scenario("person_comes_close"),
        seed,
        dataclasses.replace(settings, guardian=guardian),
        on_step=look,
    )
    assert verdict.passed, verdict.report()
    assert 0.03 < min(gaps) < 0.6
    if min(gaps) < 0.15:
        assert sum(unseen) * PICTURE_PERIOD > 5.0


def test_truth_agrees_with_the_drawn_pixels(graphics):
    world = World(Variation.of(load_scenario("pallet_in_lane"), 2))
    _, drawn = world.labelled_picture()
    found = world.truth()
    world.close()
    assert len(drawn) == len(found) == 1
    assert abs(drawn.boxes - found.boxes).max() < 4


@pytest.mark.parametrize("x", [0.9, 1.2, 1.5])
def test_who_is_near_is_drawn_and_ends_at_the_edges_of_the_picture(graphics, x):
    world, _ = hall_with(ActorPlan("person", (x, 0.0), path=((0.0, 0.0),)))
    _, drawn = world.labelled_picture()
    found = world.truth()
    world.close()
    for seen in (drawn, found):
        assert seen.boxes[:, [1, 3]].tolist() == [[0, world.size[1]]]
    assert 0 < found.boxes[0, 0] <= drawn.boxes[0, 0]
    assert drawn.boxes[0, 2] <= found.boxes[0, 2] < world.size[0]


def test_who_is_behind_a_rack_is_not_seen():
    world = World(Variation.of(load_scenario("person_from_rack"), 1))
    assert len(world.truth()) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("second: 5", "second is not a setting"),
        ("seconds: -1", "seconds is -1"),
        ("{seconds: 5, actors: [{kind: dog, start: [1, 2]}]}", r"actors\[0\].kind is 'dog'"),
        ("{seconds: 5, actors: [{kind: person}]}", r"actors\[0\].start is None"),
        ("{seconds: 5, actors: {}}", "actors is {}"),
        (
            "{seconds: 5, actors: [{kind: person, start: [1, 2], halt_clearance: 0}]}",
            r"actors\[0\].halt_clearance is 0",
        ),
        (
            "{seconds: 5, actors: [{kind: person, start: [1, 2], halt_seconds: 3}]}",
            r"actors\[0\].halt_seconds is 3, and there is no path",
        ),
        ("{seconds: 5, cruise: [2, 1]}", "smaller number first"),
        ("{seconds: 5, fault: {kind: flood, at: 1}}", "fault.kind is 'flood'"),
        ("{seconds: 5, expect: {stops: often}}", "expect.stops is 'often'"),
        ("{seconds: 5, fault: 3}", "fault is 3, expected a mapping"),
    ],
)
def test_mistakes_in_a_scenario_are_named(tmp_path, text, message):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load_scenario(str(path))


def test_an_unknown_scenario_lists_the_known_ones():
    with pytest.raises(InputError, match=r"expected one of camera_dies.*mean 'empty_hall'"):
        load_scenario("empty_hal")
