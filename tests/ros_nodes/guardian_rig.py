"""A real guardian process, and a foreign ROS 2 participant that drives and watches it."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import rclpy
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import Twist, TwistStamped
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import DurabilityPolicy, QoSProfile
from rosgraph_msgs.msg import Clock
from vision_msgs.msg import Detection3D, Detection3DArray, ObjectHypothesisWithPose

ROOT = Path(__file__).resolve().parent.parent.parent
PERIOD = 0.05
PATIENCE = 30.0
"""Seconds to wait for something that must come, on a busy machine."""


def stamp(seconds):
    whole = int(seconds // 1)
    return Time(sec=whole, nanosec=int((seconds - whole) * 1e9))


def obstacles(when, *rows, frame="base_link"):
    """Detection3DArray of (label, x, y) rows, each half a metre wide."""
    message = Detection3DArray()
    message.header.stamp = stamp(when)
    message.header.frame_id = frame
    for number, (label, x, y) in enumerate(rows):
        item = Detection3D(header=message.header, id=str(number))
        item.bbox.center.position.x, item.bbox.center.position.y = x, y
        item.bbox.size.x = item.bbox.size.y = 0.5
        result = ObjectHypothesisWithPose()
        result.hypothesis.class_id, result.hypothesis.score = label, 0.9
        item.results.append(result)
        message.detections.append(item)
    return message


class GuardianRig:
    """`start` runs the node; `drive` feeds it; `velocities` is what it let through."""

    def __init__(
        self, tmp_path, domain, *, stamped=False, sim_time=False, module=None, **parameters
    ):
        self.domain = domain
        self.stamped = stamped
        self.sim_time = sim_time
        self.sim_now = 0.0
        self.module = module or "ros_nodes.guardian_node"
        self.log = tmp_path / "node.log"
        self.environment = {
            **os.environ,
            "ROS_DOMAIN_ID": str(domain),
            "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
            "PYTHONPATH": str(ROOT),
        }
        self.file = tmp_path / "guardian.yaml"
        self.file.write_text(self._yaml(parameters))
        self.process = None
        os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
        self.context = rclpy.Context()
        rclpy.init(context=self.context, domain_id=domain)
        self.node = rclpy.create_node("foreign", context=self.context)
        kind = TwistStamped if stamped else Twist
        self.commands = self.node.create_publisher(kind, "cmd_vel_raw", 10)
        self.detections = self.node.create_publisher(Detection3DArray, "obstacles", 10)
        self.clock = self.node.create_publisher(Clock, "/clock", 10)
        self.velocities = []
        self.states = []
        self.node.create_subscription(kind, "cmd_vel", self._heard, 100)
        latched = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self.node.create_subscription(
            DiagnosticStatus, "guardian/state", self.states.append, latched
        )
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.thread = threading.Thread(target=self._spin, daemon=True)
        self.thread.start()

    def _yaml(self, parameters):
        lines = ["guardian:", "  ros__parameters:"]
        if self.sim_time:
            lines.append("    use_sim_time: true")
        if self.stamped:
            lines.append("    command_type: TwistStamped")
        defaults = {
            "zones": '["halt"]',
            "halt": '{shape: circle, radius: 1.0, action: stop, classes: ["person"]}',
        }
        given = {name: value for name, value in (defaults | parameters).items() if value}
        for name, value in given.items():
            lines.append(f"    {name}: {value}")
        return "\n".join(lines) + "\n"

    def _spin(self):
        try:
            self.executor.spin()
        except Exception:
            if self.context.ok():
                raise

    def _heard(self, message):
        twist = message.twist if self.stamped else message
        self.velocities.append((time.monotonic(), twist.linear.x, twist.linear.y, twist.angular.z))

    def start(self):
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self.module]
                + ["--ros-args", "--params-file", str(self.file)],
                env=self.environment,
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.wait_for(
            lambda: self.commands.get_subscription_count() and self.velocities,
            "the guardian's first message",
        )
        return self

    def close(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.executor.shutdown()
        rclpy.try_shutdown(context=self.context)
        self.thread.join(timeout=5)

    def wait_for(self, condition, what, step=0.02):
        until = time.monotonic() + PATIENCE
        while not condition():
            if self.process and self.process.poll() is not None:
                raise AssertionError(f"the node ended: {self.log.read_text()}")
            if time.monotonic() > until:
                raise AssertionError(f"waited in vain for {what}: {self.log.read_text()[-2000:]}")
            time.sleep(step)

    @property
    def now(self):
        return self.sim_now if self.sim_time else time.time()

    def command(self, vx=0.3, wz=0.0, age=0.0):
        twist = Twist()
        twist.linear.x, twist.angular.z = vx, wz
        if self.stamped:
            message = TwistStamped(twist=twist)
            message.header.stamp = stamp(self.now - age)
            self.commands.publish(message)
        else:
            self.commands.publish(twist)

    def tick(self, *rows, see=True, command=True, late=0.0, tick_clock=True, vx=0.3, message=None):
        """One period: a picture's obstacles and a command."""
        if self.sim_time and tick_clock:
            self.sim_now += PERIOD
            self.clock.publish(Clock(clock=stamp(self.sim_now)))
            time.sleep(0.005)
        if see:
            self.detections.publish(message or obstacles(self.now - late, *rows))
        if command:
            self.command(vx)
        time.sleep(PERIOD)

    def drive_until(self, condition, what, *rows, **how):
        until = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > until:
                raise AssertionError(f"waited in vain for {what}: {self.log.read_text()[-2000:]}")
            self.tick(*rows, **how)

    def drive_until_moving(self, *rows, **how):
        self.velocities.clear()
        self.drive_until(lambda: self.speed > 0, "a moving robot", *rows, **how)

    def drive_until_stopped(self, *rows, **how):
        """Feed until a zero comes, and then on: it must stay zero."""
        mark = len(self.velocities)
        self.drive_until(
            lambda: any(v[1:] == (0, 0, 0) for v in self.velocities[mark:]), "zero", *rows, **how
        )
        first = next(i for i, v in enumerate(self.velocities) if i >= mark and v[1:] == (0, 0, 0))
        for _ in range(10):
            self.tick(*rows, **how)
        assert {v[1:] for v in self.velocities[first:]} == {(0, 0, 0)}

    @property
    def speed(self):
        return self.velocities[-1][1] if self.velocities else 0.0

    def reason(self):
        return self.states[-1].message if self.states else ""

    def end(self, number):
        """Send a signal; (exit code, seconds it took, log)."""
        started = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(timeout=PATIENCE)
        took = time.monotonic() - started
        time.sleep(0.3)  # what was still on its way
        return code, took, self.log.read_text()


SIGNALS = [signal.SIGINT, signal.SIGTERM]
