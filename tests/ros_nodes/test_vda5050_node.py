"""The VDA 5050 node as a real process, a real broker, and a foreign MQTT client."""

import json
import queue
import shutil
import signal
import socket
import subprocess
import time

import pytest

rclpy = pytest.importorskip("rclpy", reason="needs ROS 2: pip install waysight[ros]")
mqtt = pytest.importorskip(
    "paho.mqtt.client", reason="needs paho-mqtt: pip install waysight[factory]"
)

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue  # noqa: E402
from nav_msgs.msg import Odometry  # noqa: E402

from ros_nodes import qos  # noqa: E402
from tests.ros_nodes.peer import NodeProcess, Peer  # noqa: E402

pytestmark = pytest.mark.timeout(180)
PATIENCE = 30.0
MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    if MOSQUITTO is None:
        pytest.skip("needs the broker mosquitto (Debian package mosquitto)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = tmp_path_factory.mktemp("broker") / "mosquitto.conf"
    config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\n")
    process = subprocess.Popen(
        [MOSQUITTO, "-c", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            assert time.monotonic() < until, "mosquitto does not listen"
            time.sleep(0.05)
    yield port
    process.terminate()
    process.wait()


class Fleet:
    """A fleet control: hears everything under uagv/."""

    def __init__(self, port):
        self.messages = queue.Queue()
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
        self.client.on_message = lambda _c, _d, message: self.messages.put(message)
        self.client.on_connect = lambda client, *_: client.subscribe("uagv/#", qos=1)
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()

    def wait_for(self, topic, condition, peer=None):
        """The first message on a topic that fulfils the condition."""
        until = time.monotonic() + PATIENCE
        seen = []
        while time.monotonic() < until:
            if peer is not None:
                peer()
            try:
                message = self.messages.get(timeout=0.1)
            except queue.Empty:
                continue
            if message.topic.endswith(topic):
                seen.append(json.loads(message.payload))
                if condition(seen[-1]):
                    return seen[-1], message
        raise AssertionError(f"waited in vain on {topic}; last: {seen[-1:]}")

    def close(self):
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def fleet(broker):
    fleet = Fleet(broker)
    yield fleet
    fleet.close()


@pytest.fixture
def peer():
    peer = Peer()
    yield peer
    peer.close()


@pytest.fixture
def robot(broker, tmp_path):
    made = []

    def start(**parameters):
        made.append(
            NodeProcess(
                "vda5050_node", tmp_path / "node.log", port=broker, serial_number="r1", **parameters
            )
        )
        return made[-1]

    yield start
    for process in made:
        if process.process.poll() is None:
            process.stop()


def guardian_state(cause="free", violated=False, reason=""):
    values = {"cause": cause, "reason": reason, "field_violation": str(violated).lower()}
    return DiagnosticStatus(
        name="/guardian", values=[KeyValue(key=k, value=v) for k, v in values.items()]
    )


class Publisher:
    """What the robot's other nodes would say, said again on every call."""

    def __init__(self, peer):
        self.peer = peer
        node = peer.node
        self.guardian = node.create_publisher(DiagnosticStatus, "guardian/state", qos.latched())
        self.diagnostics = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self.odometry = node.create_publisher(Odometry, "odom", 10)
        self.state = guardian_state()
        self.status = DiagnosticStatus(name="/camera", level=DiagnosticStatus.OK)
        self.speed = 0.0

    def __call__(self):
        self.guardian.publish(self.state)
        self.diagnostics.publish(DiagnosticArray(status=[self.status]))
        message = Odometry()
        message.twist.twist.linear.x = self.speed
        self.odometry.publish(message)
        self.peer.spin(0.05)


@pytest.mark.parametrize(
    ("version", "broken"), [("2.1.0", "CONNECTIONBROKEN"), ("3.0.0", "CONNECTION_BROKEN")]
)
def test_connection_topic_and_last_will(robot, fleet, version, broken):
    process = robot(version=version)
    major = version[0]
    topic = f"v{major}/waysight/r1/connection"
    online, message = fleet.wait_for(topic, lambda m: m["connectionState"] == "ONLINE")
    assert (online["version"], message.qos) == (version, 1)
    process.process.kill()
    fleet.wait_for(topic, lambda m: m["connectionState"] == broken)
    # Back again, and this time an orderly end.
    again = robot(version=version)
    fleet.wait_for(topic, lambda m: m["connectionState"] == "ONLINE")
    assert again.stop(signal.SIGTERM) == 0
    fleet.wait_for(topic, lambda m: m["connectionState"] == "OFFLINE")
    assert "Traceback" not in again.output


def test_the_state_follows_guardian_diagnostics_and_odometry(robot, fleet, peer):
    robot(version="3.0.0", map_id="hall")
    topic = "v3/waysight/r1/state"
    # Before anything is heard, nobody knows that the field is free.
    silent, _ = fleet.wait_for(topic, lambda m: True)
    assert silent["safetyState"]["fieldViolation"] is True
    assert "guardianSilent" in [error["errorType"] for error in silent["errors"]]
    say = Publisher(peer)
    # The guardian may be heard before the first odometry.
    free, _ = fleet.wait_for(
        topic,
        lambda m: not m["safetyState"]["fieldViolation"] and "mobileRobotPosition" in m,
        say,
    )
    assert free["driving"] is False and free["mobileRobotPosition"]["localized"] is False
    say.speed = 0.5
    moving, _ = fleet.wait_for(topic, lambda m: m["driving"], say)
    assert moving["velocity"]["vx"] == 0.5
    say.state = guardian_state("zone", True, "halt: person")
    fleet.wait_for(topic, lambda m: m["safetyState"]["fieldViolation"], say)
    say.state = guardian_state("watchdog", False, "detections stale")
    stale, _ = fleet.wait_for(
        topic, lambda m: any(e["errorType"] == "perceptionFault" for e in m["errors"]), say
    )
    assert stale["errors"][0]["errorDescription"] == "detections stale"
    say.status = DiagnosticStatus(
        name="/camera", level=DiagnosticStatus.ERROR, message="no pictures"
    )
    fleet.wait_for(
        topic,
        lambda m: any(
            e["errorDescription"] == "no pictures" and e["errorLevel"] == "CRITICAL"
            for e in m["errors"]
        ),
        say,
    )


def test_orders_are_not_executed_and_the_state_says_so(robot, fleet):
    robot()
    fleet.wait_for("v2/waysight/r1/connection", lambda m: m["connectionState"] == "ONLINE")
    order = "uagv/v2/waysight/r1/order"
    for payload in (b"\xff not json", b"[1]", json.dumps({"orderId": "o-7"}).encode()):
        fleet.client.publish(order, payload)
    state, _ = fleet.wait_for(
        "v2/waysight/r1/state",
        lambda m: any(
            error.get("errorReferences") == [{"referenceKey": "orderId", "referenceValue": "o-7"}]
            for error in m["errors"]
        ),
    )
    assert (state["orderId"], state["nodeStates"]) == ("", [])


def test_a_topic_level_with_a_slash_is_refused(robot):
    process = robot(manufacturer="a/b")
    assert process.process.wait(timeout=PATIENCE) == 2
    assert "manufacturer" in process.output and "Traceback" not in process.output
