import copy

import pytest
import yaml

from perception.errors import InputError
from perception.safety import Action, guardian_settings, read_guardian_settings
from perception.safety.shapes import Circle, Polygon, VelocityPolygon

YAML = """
classes: [person, forklift, pallet]
zones: [halt, slow, path, drive]
source_timeout: 0.4
recovery_frames: 4
watch_camera: true
sigmas: 3
halt: {shape: circle, radius: 0.8, action: stop, classes: [person]}
slow:
  shape: polygon
  points: "[[2, -1], [2, 1], [0, 1], [0, -1]]"   # as in Nav2's files
  action: slowdown
  slowdown_ratio: 0.3
  enabled: false
path: {shape: circle, radius: 0.5, action: approach, time_before_collision: 3}
drive:
  shape: velocity_polygon
  action: limit
  linear_limit: 0.2
  velocity_polygons: [forward, rest]
  forward:
    points: [1, -1, 1, 1, 0, 0]
    linear_min: 0.0
    linear_max: 1
    theta_min: -1
    theta_max: 1
  rest:
    points: [[0, 0], [-1, 1], [-1, -1]]
    linear_min: -1
    linear_max: 0
    theta_min: -1
    theta_max: 1
"""
DATA = yaml.safe_load(YAML)


def test_a_full_file_is_read(tmp_path):
    path = tmp_path / "zones.yaml"
    path.write_text(YAML)
    settings = read_guardian_settings(path)
    assert settings.watchdog.source_timeout == 0.4
    assert settings.watchdog.recovery_frames == 4
    assert settings.watch_camera and settings.sigmas == 3.0
    halt, slow, path_zone, drive = settings.zones
    assert (halt.shape, halt.action, halt.classes) == (Circle(0.8), Action.STOP, ("person",))
    assert slow.shape == Polygon(((2, -1), (2, 1), (0, 1), (0, -1)))
    assert not slow.enabled
    assert path_zone.time_before_collision == 3.0
    assert isinstance(drive.shape, VelocityPolygon) and len(drive.shape.parts) == 2
    assert drive.linear_limit == 0.2


def test_nothing_given_is_the_watchdog_alone():
    assert guardian_settings({}).zones == ()
    # A list without elements has no type in ROS 2; [""] stands for it.
    assert guardian_settings({"zones": [""], "classes": [""]}).zones == ()


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        ("sorce_timeout", 1.0, r"sorce_timeout is not a setting.*mean 'source_timeout'"),
        ("source_timeout", 0, "source_timeout is 0"),
        ("source_timeout", "high", "source_timeout is 'high', expected a number"),
        ("source_timeout", True, "expected a number"),
        ("recovery_frames", 2.5, "recovery_frames is 2.5, expected a whole number"),
        ("watch_camera", "yes please", "watch_camera is 'yes please', expected true or false"),
        ("zones", "halt", "zones is 'halt', expected a list of names"),
        ("zones", ["hall"], "zones names 'hall', but there is no mapping"),
        ("halt.radius", -1, "halt.radius is -1"),
        ("halt.shape", "blob", "halt.shape is 'blob'"),
        ("halt.action", "halt", "halt.action is 'halt'"),
        ("halt.classes", ["persn"], r"halt.classes names 'persn'.*mean 'person'"),
        ("halt.radios", 1, r"halt.radios is not a setting.*mean 'radius'"),
        ("halt.enabled", 1, "halt.enabled is 1"),
        ("slow.points", "[[1, 2], [3", "slow.points is"),
        ("slow.points", "[[1, 2], [3, no], [4, 4]]", "slow.points is"),
        ("slow.points", [1, 2, 3], "slow.points is"),
        ("slow.points", 7, "slow.points is 7"),
        ("slow.slowdown_ratio", 2, "slow.slowdown_ratio is 2"),
        ("drive.velocity_polygons", ["reverse"], "drive.velocity_polygons names 'reverse'"),
        ("drive.forward", {"point": 1}, "drive.forward.point is not a setting"),
        ("drive.rest.linear_min", None, "drive.rest.linear_min is None"),
    ],
)
def test_mistakes_are_named(where, value, message):
    data = copy.deepcopy(DATA)
    *parents, key = where.split(".")
    inner = data
    for parent in parents:
        inner = inner[parent]
    inner[key] = value
    with pytest.raises(InputError, match=message):
        guardian_settings(data)


def test_an_error_in_a_file_names_the_file(tmp_path):
    path = tmp_path / "zones.yaml"
    path.write_text("sigmas: -1")
    with pytest.raises(InputError, match="zones.yaml: sigmas is -1"):
        read_guardian_settings(path)
    path.write_text("sigmas: [")
    with pytest.raises(InputError, match="zones.yaml:1: not valid YAML"):
        read_guardian_settings(path)
