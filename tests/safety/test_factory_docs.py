"""docs/factory.md and the shipped factory graph say what the code takes."""

import re
from pathlib import Path

import pytest
import yaml

from perception.safety import (
    STOPPED,
    Action,
    Guardian,
    Obstacles,
    Times,
    Twist,
    guardian_settings,
)
from perception.safety.settings import SETTING_KEYS
from perception.simulation.scenario import scenario_names

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "factory.md").read_text(encoding="utf-8")
BLOCKS = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


def settings_of(parameters):
    wanted = {*SETTING_KEYS, *parameters.get("zones", ())}
    return guardian_settings({key: parameters[key] for key in parameters if key in wanted})


def test_the_guardian_of_the_page_is_one_that_the_code_takes():
    (guardian,) = [
        b["guardian"] for b in BLOCKS if b.get("guardian", {}).get("parameters", {}).get("zones")
    ]
    settings = settings_of(guardian["parameters"])
    assert [zone.name for zone in settings.zones] == guardian["parameters"]["zones"]
    actions = set(re.findall(r"`(\w+)`", PAGE.split("\nActions: ")[1].split("\n")[0]))
    assert {action.value for action in Action} <= actions


def test_the_page_lists_every_scenario():
    table = PAGE.split("| scenario |")[1].split("\n\n")[0]
    assert set(scenario_names()) == set(re.findall(r"`(\w+)`", table)) - {"source_timeout"}


def test_the_shipped_stop_zone_holds_the_stopping_distance_that_the_page_works_out():
    nodes = yaml.safe_load((ROOT / "ros_nodes" / "config" / "factory.yaml").read_text())["nodes"]
    settings = settings_of(nodes["guardian"]["parameters"])
    (part,) = next(zone.shape.parts for zone in settings.zones if zone.name == "moving_stop")
    ahead = max(x for x, _ in part.polygon.points)
    sums = re.search(r"= (\d\.\d+) m at 1 m/s, and (\d\.\d+) m in reserve", PAGE)
    needed, reserve = map(float, sums.groups())
    assert needed == pytest.approx(0.35 + 1.0 * 0.25 + 1.0 / (2 * 1.5) + 0.5, abs=0.01)
    assert ahead - needed == pytest.approx(reserve, abs=0.05)


@pytest.mark.parametrize(
    ("wish", "passes"),
    [
        (Twist(1.0, 0.0, 0.5), True),
        (Twist(0.0, 0.0, 1.0), True),
        (Twist(-0.1), True),
        (Twist(-0.5), False),  # nothing looks there
        (Twist(2.0), False),  # too fast for the zones
        (Twist(0.5, 0.5), False),
    ],
)
def test_the_shipped_zones_stop_what_they_are_not_made_for(wish, passes):
    nodes = yaml.safe_load((ROOT / "ros_nodes" / "config" / "factory.yaml").read_text())["nodes"]
    settings = settings_of(nodes["guardian"]["parameters"] | {"watch_camera": False})
    guardian = Guardian(settings)
    for step in range(10):
        times = Times(10**9 + step * 50_000_000, 10**9 + step * 50_000_000)
        guardian.observe(Obstacles.empty(), times.now_ns, True, times)
        guardian.command(wish, 0, times)
        decision = guardian.decide(times)
    assert decision.twist == (wish if passes else STOPPED)


def test_the_parameters_that_the_page_names_exist():
    pytest.importorskip("rclpy", reason="needs ROS 2: pip install waysight[ros]")
    from ros_nodes.guardian_node import GuardianParameters
    from ros_nodes.obstacles_node import ObstaclesParameters
    from ros_nodes.parameters import describe

    known = describe(GuardianParameters)
    sentence = PAGE.split("Every key can be changed while the node runs")[1].split("which need")[0]
    fixed = set(re.findall(r"`(\w+)`", sentence.split("except")[1]))
    picture = {"min_brightness", "min_contrast", "max_noise"}  # "the limits for pictures"
    own = {name for name, info in known.items() if info.applies != "live"}
    assert fixed | picture == own - {"autostart", "diagnostics_period"}
    assert {"mount_source", "mount_z", "tilt_sigma"} <= describe(ObstaclesParameters).keys()
