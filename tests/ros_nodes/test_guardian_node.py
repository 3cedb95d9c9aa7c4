"""Every rule of the watchdog against the real process, driven by a foreign ROS 2 participant."""

import os
import signal
import time

import pytest

rclpy = pytest.importorskip("rclpy", reason="needs ROS 2: pip install waysight[ros]")
pytest.importorskip("vision_msgs", reason="needs vision_msgs: python -m ros_nodes.setup_ros")

from diagnostic_msgs.msg import DiagnosticArray  # noqa: E402
from geometry_msgs.msg import Twist  # noqa: E402
from nav_msgs.msg import Odometry  # noqa: E402
from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue  # noqa: E402
from rcl_interfaces.srv import SetParametersAtomically  # noqa: E402
from std_srvs.srv import Trigger  # noqa: E402
from vision_msgs.msg import Detection3DArray  # noqa: E402

from tests.ros_nodes.guardian_rig import (  # noqa: E402
    PATIENCE,
    SIGNALS,
    GuardianRig,
    obstacles,
)

pytestmark = pytest.mark.timeout(240)
DOMAIN = 1 + os.getpid() % 90


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    rig = GuardianRig(tmp_path_factory.mktemp("guardian"), DOMAIN)
    yield rig.start()
    rig.close()


@pytest.fixture
def fresh(tmp_path):
    """A factory of rigs with a process of their own."""
    made = []

    def make(**options):
        made.append(GuardianRig(tmp_path, DOMAIN + 1, **options))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


def set_parameter(rig, name, value):
    return set_parameters(rig, {name: value})


def set_parameters(rig, values):
    """All in one atomic call."""
    client = rig.node.create_client(SetParametersAtomically, "guardian/set_parameters_atomically")
    assert client.wait_for_service(timeout_sec=PATIENCE)
    kinds = {
        bool: (ParameterType.PARAMETER_BOOL, "bool_value"),
        float: (ParameterType.PARAMETER_DOUBLE, "double_value"),
        str: (ParameterType.PARAMETER_STRING, "string_value"),
    }
    given = []
    for name, value in values.items():
        number, field = kinds[type(value)]
        given.append(Parameter(name=name, value=ParameterValue(type=number, **{field: value})))
    future = client.call_async(SetParametersAtomically.Request(parameters=given))
    rig.wait_for(future.done, f"the answer to {list(values)}")
    return future.result().result


def test_before_anything_comes_the_output_is_zero(fresh):
    rig = fresh().start()
    for _ in range(10):
        rig.tick(see=False)  # commands alone
    assert {v[1:] for v in rig.velocities} == {(0, 0, 0)}
    rig.wait_for(lambda: "never came" in rig.reason(), "the reason")


def test_healthy_frames_let_the_command_through_unchanged(rig):
    rig.drive_until_moving()
    assert rig.speed == 0.3


def test_a_person_stops_and_a_pallet_does_not(rig):
    rig.drive_until_moving(("pallet", 0.8, 0.0))
    person = ("person", 0.8, 0.0)
    rig.drive_until_stopped(person)
    # Fed on meanwhile: on a busy machine the picture is stale before the state is read.
    rig.drive_until(lambda: rig.reason() == "stopped: halt: person", "the reason", person)
    rig.drive_until_moving(("pallet", 0.8, 0.0))


def test_silence_of_the_detections_stops(rig):
    rig.drive_until_moving()
    rig.drive_until_stopped(see=False)
    rig.wait_for(lambda: rig.reason() == "detections stale", "the reason")
    rig.drive_until_moving()


def test_total_silence_stops_by_the_timer(rig):
    rig.drive_until_moving()
    rig.wait_for(lambda: rig.speed == 0.0, "zero without any input")


def test_stale_stamps_stop(rig):
    rig.drive_until_moving()
    rig.drive_until_stopped(late=2.0)
    rig.wait_for(lambda: rig.reason() == "detections late", "the reason")


def test_future_stamps_stop(rig):
    rig.drive_until_moving()
    rig.drive_until_stopped(late=-2.0)
    rig.wait_for(lambda: rig.reason() == "detections future", "the reason")


def broken_messages():
    now = time.time()
    not_finite = obstacles(now, ("person", float("nan"), 0.0))
    negative = obstacles(now, ("person", 5.0, 0.0))
    negative.detections[0].bbox.size.x = -1.0
    no_class = obstacles(now, ("person", 5.0, 0.0))
    no_class.detections[0].results.clear()
    not_covariance = obstacles(now, ("person", 5.0, 0.0))
    not_covariance.detections[0].results[0].pose.covariance[0] = -1.0
    wrong_frame = obstacles(now, frame="camera_optical")
    no_stamp = obstacles(0.0)
    huge = obstacles(now, ("person", 5.0, 0.0))
    huge.detections[0].id = "x" * 3_000_000
    too_many = obstacles(now, *[("pallet", 50.0, float(n)) for n in range(1001)])
    return {
        "not finite": not_finite,
        "negative size": negative,
        "no class": no_class,
        "no covariance": not_covariance,
        "wrong frame": wrong_frame,
        "no stamp": no_stamp,
        "too many": too_many,
        "too large": huge,
        "not even a message": b"\x00\x01\x00\x00garbage",
    }


@pytest.mark.parametrize("kind", list(broken_messages()))
def test_broken_messages_stop(rig, kind):
    rig.drive_until_moving()
    message = broken_messages()[kind]
    rig.drive_until_stopped(message=message)
    rig.drive_until_moving()


def test_one_broken_obstacle_hides_no_other(rig):
    rig.drive_until_moving()
    mixed = obstacles(time.time(), ("pallet", 9.0, 0.0), ("person", float("inf"), 0.0))
    rig.drive_until_stopped(message=mixed)


def test_recovery_needs_a_run_of_healthy_frames(rig):
    rig.drive_until_stopped(see=False)
    for _ in range(3):
        rig.tick()
    assert rig.speed == 0.0
    rig.tick(late=2.0)  # breaks the run
    for _ in range(3):
        rig.tick()
    assert rig.speed == 0.0
    rig.drive_until_moving()


def test_silence_of_the_commands_stops_and_stays(rig):
    rig.drive_until_moving()
    rig.drive_until_stopped(command=False)
    rig.wait_for(lambda: rig.reason() == "command stale", "the reason")


def test_commands_that_are_not_numbers_stop(rig):
    rig.drive_until_moving()
    rig.drive_until_stopped(vx=float("nan"))
    rig.drive_until_stopped(vx=float("inf"))
    rig.drive_until_moving()


def test_a_zone_switched_off_leaves_the_watchdog_on(rig):
    rig.drive_until_moving()
    assert set_parameter(rig, "halt.enabled", False).successful
    rig.drive_until_moving(("person", 0.5, 0.0))
    rig.drive_until_stopped(see=False)
    assert set_parameter(rig, "halt.enabled", True).successful
    rig.drive_until_stopped(("person", 0.5, 0.0))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("source_timeout", 0.0, "source_timeout"),
        ("source_timeout", float("inf"), "source_timeout"),
        ("command_timeout", -1.0, "command_timeout"),
        ("halt.radius", -2.0, "halt.radius is -2.0"),
        ("halt.radius", float("nan"), "halt.radius"),
        ("halt.action", "fly", "halt.action is 'fly'"),
        ("halt.slowdown_ratio", 1.5, "halt.slowdown_ratio is 1.5"),
    ],
)
def test_live_parameters_are_checked(rig, name, value, words):
    answer = set_parameter(rig, name, value)
    assert not answer.successful
    assert words in answer.reason
    rig.drive_until_stopped(("person", 0.8, 0.0))  # the old settings hold


def test_a_live_parameter_takes_effect(rig):
    rig.drive_until_moving(("person", 2.0, 0.0))
    assert set_parameter(rig, "halt.radius", 3.0).successful
    rig.drive_until_stopped(("person", 2.0, 0.0))
    assert set_parameter(rig, "halt.radius", 1.0).successful
    rig.drive_until_moving(("person", 2.0, 0.0))


def test_parameters_of_one_call_take_effect_together(rig):
    both = {"source_timeout": 0.1, "halt.radius": 1.1}
    assert set_parameters(rig, both).successful
    rig.drive_until_stopped(late=0.2)
    rig.wait_for(lambda: "detections late" in rig.reason(), "the reason")
    assert set_parameters(rig, {"source_timeout": 0.5, "halt.radius": 1.0}).successful
    rig.drive_until_moving()


def test_a_refused_call_changes_nothing(rig):
    answer = set_parameters(rig, {"source_timeout": 5.0, "halt.radius": -1.0})
    assert not answer.successful
    rig.drive_until_moving()
    rig.drive_until_stopped(late=1.0)


def test_whoever_vanished_close_by_holds_until_an_operator_has_looked(rig):
    rig.drive_until_moving()
    rig.drive_until_stopped(("person", 0.8, 0.0))
    rig.drive_until(lambda: "person out of sight" in rig.reason(), "the memory")
    for _ in range(30):
        rig.tick()
    assert rig.speed == 0
    assert release(rig) == "1 obstacles out of sight forgotten"
    rig.drive_until_moving()


def test_a_second_source_of_obstacles_stops(rig):
    rig.drive_until_moving()
    other = rig.node.create_publisher(Detection3DArray, "obstacles", 10)
    rig.drive_until_stopped()
    rig.node.destroy_publisher(other)
    rig.drive_until_moving()


def test_two_results_of_one_picture_that_differ_stop(rig):
    """Two trackers feed one obstacles node: the first answer sees nobody."""
    rig.drive_until_moving()
    until = time.monotonic() + PATIENCE
    while rig.reason() != "detections contradictory":
        assert time.monotonic() < until, rig.reason()
        now = time.time()
        rig.detections.publish(obstacles(now))
        rig.detections.publish(obstacles(now, ("person", 0.8, 0.0)))
        rig.tick(see=False)
    assert rig.speed == 0.0
    rig.drive_until_moving()


def test_missing_odometry_is_told_where_something_may_be_out_of_sight(rig):
    heard = []
    rig.node.create_subscription(DiagnosticArray, "/diagnostics", heard.append, 10)
    rig.drive_until(lambda: any("no odom" in said for said in sentences(heard)), "a word")


def test_a_guardian_that_crashed_and_is_started_again_waits_until_somebody_has_looked(
    fresh, tmp_path, monkeypatch
):
    monkeypatch.setenv("WAYSIGHT_RUN_FOLDER", str(tmp_path))
    rig = fresh().start()
    rig.drive_until_moving()
    rig.end(signal.SIGKILL)
    rig.velocities.clear()
    rig.start()
    rig.drive_until(lambda: "started again" in rig.reason(), "the reason")
    for _ in range(30):
        rig.tick()
    assert rig.speed == 0.0
    release(rig)
    rig.drive_until_moving()


def release(rig):
    client = rig.node.create_client(Trigger, "guardian/release")
    assert client.wait_for_service(timeout_sec=PATIENCE)
    future = client.call_async(Trigger.Request())
    rig.drive_until(future.done, "the answer")
    assert future.result().success
    return future.result().message


def test_a_second_publisher_of_velocities_is_told(rig):
    heard = []
    rig.node.create_subscription(DiagnosticArray, "/diagnostics", heard.append, 10)
    other = rig.node.create_publisher(Twist, "cmd_vel", 10)
    rig.drive_until(lambda: any("other publishers" in said for said in sentences(heard)), "a word")
    rig.node.destroy_publisher(other)


def sentences(arrays):
    return [status.message for array in arrays for status in array.status]


def test_a_robot_that_moves_uncommanded_is_judged_by_its_odometry(fresh):
    car = '{shape: circle, radius: 1.0, action: warn, time_to_collision: 2.0, classes: ["person"]}'
    rig = fresh(halt=car).start()
    odometry = rig.node.create_publisher(Odometry, "odom", 10)
    measured = Odometry()
    measured.twist.twist.linear.x = 10.0
    rig.drive_until(lambda: rig.reason() == "free", "a free way", ("person", 90.0, 0.0), vx=0.0)
    began = time.monotonic()
    while "halt: person" not in rig.reason():
        # Who stands is come up to as fast as the robot moves.
        ahead = 90.0 - 10.0 * (time.monotonic() - began)
        assert ahead > 2.0, "never warned"
        odometry.publish(measured)
        rig.tick(("person", ahead, 0.0), vx=0.0)


def test_absurd_odometry_ends_nothing(rig):
    odometry = rig.node.create_publisher(Odometry, "odom", 10)
    absurd = Odometry()
    absurd.twist.twist.angular.z = 1.7e308
    for _ in range(5):
        odometry.publish(absurd)
        rig.tick(("person", 3.0, 0.0))
    rig.drive_until_moving()


def test_without_zones_the_node_says_so(fresh):
    rig = fresh(zones=None, halt=None, rate=30.0).start()
    heard = []
    rig.node.create_subscription(DiagnosticArray, "/diagnostics", heard.append, 10)
    rig.drive_until(lambda: any("no zone" in said for said in sentences(heard)), "a word")


def test_the_process_still_runs_after_all_that(rig):
    assert rig.process.poll() is None
    assert "Traceback" not in rig.log.read_text()


@pytest.mark.parametrize("number", SIGNALS)
def test_c57_the_last_message_on_any_shutdown_is_zero(fresh, number):
    rig = fresh().start()
    rig.drive_until_moving()
    for _ in range(5):
        rig.tick()
    assert rig.speed > 0
    code, took, log = rig.end(number)
    assert rig.velocities[-1][1:] == (0, 0, 0)
    assert code == 0
    # Two seconds of a machine that has a core free; a busy one shares its cores out.
    share = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert took < 2.0 * share
    assert "Traceback" not in log and "already" not in log


def test_stamped_commands_must_be_of_now(fresh):
    rig = fresh(stamped=True).start()
    rig.drive_until_moving()
    for _ in range(3):
        rig.tick(command=False)
        rig.command(age=2.0)
    rig.wait_for(lambda: rig.speed == 0.0, "zero on old commands")


def test_simulated_time_at_zero_and_frozen_stops(fresh):
    rig = fresh(sim_time=True, recovery_frames=3).start()
    for _ in range(10):
        rig.tick(tick_clock=False)
    assert {v[1:] for v in rig.velocities} == {(0, 0, 0)}
    rig.wait_for(lambda: rig.reason() == "clock at zero", "the reason")
    rig.drive_until_moving()
    rig.drive_until_stopped(tick_clock=False)
    rig.wait_for(lambda: rig.reason() == "clock frozen", "the reason")
    rig.drive_until_moving()
    # C54: the clock jumps back, as when a bag loops.
    rig.sim_now = 0.5
    rig.drive_until_stopped(see=False)
    rig.drive_until_moving()


def test_a_mistake_in_the_file_ends_the_start_with_one_sentence(fresh):
    rig = fresh(halt='{shape: circle, radius: 1.0, action: stop, classes: ["persn"]}')
    with pytest.raises(AssertionError, match="the node ended"):
        rig.start()
    log = rig.log.read_text()
    assert rig.process.wait() == 2
    assert "halt.classes names 'persn'" in log and "did you mean 'person'" in log
    assert "Traceback" not in log
