"""The simulator as a real process; the test plays the rest of the graph."""

import json
import time

import pytest

import perception.simulation  # noqa: F401 - chooses the graphics library before MuJoCo loads

pytest.importorskip("rclpy", reason="needs ROS 2")
pytest.importorskip("vision_msgs", reason="needs vision_msgs: python -m ros_nodes.setup_ros")
pytest.importorskip("mujoco", reason="needs MuJoCo: pip install waysight[factory]")

from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from geometry_msgs.msg import Twist
from nav_msgs.msg import Odometry
from rosgraph_msgs.msg import Clock
from vision_msgs.msg import Detection2DArray, Detection3DArray

from ros_nodes import qos
from tests.ros_nodes.peer import NodeProcess, Peer

pytestmark = pytest.mark.usefixtures("graphics")

PALLET = """
seconds: 2
cruise: 1.0
actors: [{kind: pallet, start: [2.8, 0]}]
expect: {stops: true, farthest_stop: 2}
"""
KILLED = """
seconds: 2.6
cruise: 1.0
fault: {kind: detector_killed, at: 0.7}
"""


class Rest:
    """Tracker, obstacles and guardian in one; `judge(self)` gives the cause of a stop.

    x: m that the robot has come. seen: when the last detections came, s. sees_again: s after which
    obstacles come without detections, as from a detector that was started again.
    """

    def __init__(self, judge, sees_again=float("inf")):
        self.peer = Peer("rest")
        node = self.peer.node
        self._judge, self._sees_again = judge, sees_again
        self.x = self.now = self.seen = 0.0
        self.wish = Twist()
        self._velocity = node.create_publisher(Twist, "cmd_vel", qos.results())
        self._obstacles = node.create_publisher(Detection3DArray, "obstacles", qos.results())
        self._state = node.create_publisher(DiagnosticStatus, "guardian/state", qos.latched())
        node.create_subscription(Clock, "/clock", self._on_clock, qos.results())
        node.create_subscription(Odometry, "odom", self._on_odometry, qos.results())
        node.create_subscription(Twist, "cmd_vel_raw", self._on_wish, qos.results())
        node.create_subscription(Detection2DArray, "detections", self._on_detections, qos.results())

    def _on_clock(self, message):
        self.now = message.clock.sec + message.clock.nanosec * 1e-9
        self._stamp = message.clock

    def _on_odometry(self, message):
        self.x = message.pose.pose.position.x

    def _on_wish(self, message):
        self.wish = message
        if self.seen and self.now - self.seen > self._sees_again:
            self._see(self._stamp)
        if self.now - self.seen > 0.06:  # nothing comes that could be answered instead
            self._answer()
            self._answer()

    def _on_detections(self, message):
        self.seen = self.now
        self._see(message.header.stamp)
        self._answer()

    def _see(self, stamp):
        message = Detection3DArray()
        message.header.stamp = stamp
        self._obstacles.publish(message)
        time.sleep(0.005)  # a guardian answers to obstacles that others have by then, too

    def _answer(self):
        cause = self._judge(self)
        self._velocity.publish(Twist() if cause else self.wish)
        values = {"cause": cause or "free", "ratio": "0.000" if cause else "1.000", "reason": "why"}
        items = [KeyValue(key=key, value=value) for key, value in values.items()]
        self._state.publish(DiagnosticStatus(values=items))


def play(tmp_path, scenario, rest):
    """The verdict of a scenario's text."""
    (tmp_path / "mine.yaml").write_text(scenario)
    verdict = tmp_path / "verdict.json"
    process = NodeProcess(
        "sim_node",
        tmp_path / "log",
        scenario=tmp_path / "mine.yaml",
        truth_detections=True,
        verdict=verdict,
    )
    try:
        rest.peer.wait_for(lambda: process.process.poll() is not None, "its end", timeout=120)
        assert verdict.is_file(), process.output
        return json.loads(verdict.read_text())
    finally:
        process.process.kill()
        rest.peer.close()


def failed(report):
    return {check["name"] for check in report["checks"] if not check["passed"]}


@pytest.mark.parametrize(
    ("cause", "missing"), [("zone", set()), ("watchdog", {"stops for the obstacle"})]
)
def test_a_stop_counts_for_what_the_guardian_says_that_it_is_for(tmp_path, cause, missing):
    report = play(tmp_path, PALLET, Rest(lambda rest: cause if rest.x > 0.5 else ""))
    assert [(stop["cause"], stop["reason"]) for stop in report["stops"]] == [(cause, "why")]
    assert failed(report) == missing


@pytest.mark.parametrize(
    ("sees_again", "missing"),
    [(1.0, set()), (float("inf"), {"zero velocity after the fault"})],
)
def test_after_a_killed_detector_the_robot_drives_only_once_it_is_back(
    tmp_path, sees_again, missing
):
    """The guardian stops half a second after the last detections, and drives on 0.7 s later."""

    def judge(rest):
        return "watchdog" if 0.5 < rest.now - rest.seen < 1.2 else ""

    report = play(tmp_path, KILLED, Rest(judge, sees_again))
    assert report["travelled_m"] > 1.2
    assert failed(report) == missing
