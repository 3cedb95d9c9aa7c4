"""A storm of random, broken, huge, stale and future messages and parameters on the real guardian.

WAYSIGHT_FUZZ_SECONDS sets how long, for both clocks together (default 20), WAYSIGHT_FUZZ_SEED which
storm. Whatever comes: the process stays up, and each velocity is a commanded one times one factor
of 0 to 1.
"""

import array
import bisect
import math
import os
import random
import time

import numpy as np
import pytest

rclpy = pytest.importorskip("rclpy", reason="needs ROS 2: pip install waysight[ros]")
pytest.importorskip("vision_msgs", reason="needs vision_msgs: python -m ros_nodes.setup_ros")

from geometry_msgs.msg import Twist  # noqa: E402
from nav_msgs.msg import Odometry  # noqa: E402
from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue  # noqa: E402
from rcl_interfaces.srv import SetParameters  # noqa: E402
from rclpy.serialization import serialize_message  # noqa: E402
from rosgraph_msgs.msg import Clock  # noqa: E402
from sensor_msgs.msg import Image  # noqa: E402

from tests.ros_nodes.guardian_rig import PERIOD, GuardianRig, obstacles, stamp  # noqa: E402

SECONDS = float(os.environ.get("WAYSIGHT_FUZZ_SECONDS", "20"))
SEED = int(os.environ.get("WAYSIGHT_FUZZ_SEED", "0"))
DOMAIN = 1 + (os.getpid() + 2) % 90
pytestmark = pytest.mark.timeout(240 + 2 * SECONDS)

MEMORY = 12.0
"""Seconds for which a command may still be obeyed: the longest timeout, and a busy machine."""

NUMBERS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.3,
    5e-324,
    1e-9,
    1e9,
    1e308,
    -1e308,
    *map(float, ["nan", "inf", "-inf"]),
)
LABELS = ("person", "forklift", "pallet", "unicorn", "", "person\x7f", "x" * 5000)
LIVE = {
    "sigmas": 2.0,
    "unknown_speed": 1.6,
    "source_timeout": 0.5,
    "future_tolerance": 0.1,
    "clock_timeout": 0.5,
    "command_timeout": 0.5,
    "recovery_frames": 5,
    "halt.radius": 1.0,
    "halt.action": "stop",
    "halt.enabled": True,
    "halt.release_after": 0.5,
    "halt.trigger_after": 0.0,
    "halt.slowdown_ratio": 0.5,
    "halt.time_to_collision": 0.0,
    "near.action": "approach",
    "near.radius": 0.6,
}
"""Live parameters and what they are set back to."""


class Storm:
    def __init__(self, rig, seed):
        self.rig = rig
        self.random = random.Random(seed)
        node = rig.node
        self.images = node.create_publisher(Image, "image_raw", 10)
        self.odometry = node.create_publisher(Odometry, "odom", 10)
        self.parameters = node.create_client(SetParameters, "guardian/set_parameters")
        self.sent = []  # (time, vx, vy, wz)
        self.answers = []
        self.events = {}
        grain = np.random.default_rng(seed)
        ramp = np.linspace(40, 200, 64, dtype=np.float64) + np.zeros((48, 1))
        self.pictures = [
            np.clip(ramp + grain.normal(0, 2, ramp.shape), 0, 255).astype(np.uint8)
            for _ in range(40)
        ]

    # Healthy ---------------------------------------------------------------------------------

    def calm(self):
        """One healthy period."""
        rig = self.rig
        if rig.sim_time:
            rig.sim_now += PERIOD
            rig.clock.publish(Clock(clock=stamp(rig.sim_now)))
            time.sleep(0.005)
        self.picture(self.random.choice(self.pictures), rig.now)
        rig.detections.publish(obstacles(rig.now))
        self.command(0.3, 0.0, 0.1)
        time.sleep(PERIOD)

    def picture(self, pixels, when, **changes):
        height, width = pixels.shape
        message = Image(height=height, width=width, encoding="mono8", step=width)
        message.header.stamp = stamp(when)
        message.data = array.array("B", pixels.tobytes())
        for name, value in changes.items():
            setattr(message, name, value)
        self.images.publish(message)

    def command(self, vx, vy, wz):
        message = Twist()
        message.linear.x, message.linear.y, message.angular.z = vx, vy, wz
        self.sent.append((time.monotonic(), vx, vy, wz))
        self.rig.commands.publish(message)

    # Broken ----------------------------------------------------------------------------------

    def number(self):
        draw = self.random
        return draw.choice(NUMBERS) if draw.random() < 0.4 else draw.uniform(-3, 3)

    def when(self):
        draw = self.random
        now = self.rig.now
        shift = draw.choice([0, 0, 0, -0.3, -2, -1e6, 0.05, 0.5, 1e3, 1e8, -now])
        return min(max(now + shift, 0.0), 2**31 - 1)

    def wild_command(self):
        self.command(self.number(), self.number(), self.number())

    def wild_obstacles(self):
        draw = self.random
        count = draw.choice([0, 1, 1, 2, 5, 30, 30, 1200])
        rows = [
            (draw.choice(LABELS[: 6 if count > 5 else 7]), self.number(), self.number())
            for _ in range(count)
        ]
        message = obstacles(self.when(), *rows, frame=draw.choice(["base_link"] * 8 + ["", "map"]))
        for item in message.detections[:5]:
            item.id = draw.choice(["", "1", "2", "é" * 40])
            item.bbox.size.x, item.bbox.size.y = self.number(), self.number()
            item.bbox.center.orientation.z = self.number()
            item.results[0].hypothesis.score = self.number()
            item.results[0].pose.covariance[draw.choice([0, 1, 6, 7])] = self.number()
            if draw.random() < 0.1:
                item.results = item.results * draw.choice([0, 3])
        self.rig.detections.publish(message)

    def wild_odometry(self):
        message = Odometry()
        message.twist.twist.linear.x = self.number()
        message.twist.twist.angular.z = self.number()
        self.odometry.publish(message)

    def wild_picture(self):
        draw = self.random
        changes = draw.choice(
            [
                {},
                {"height": 2**31},
                {"width": 0},
                {"step": 1},
                {"encoding": "bayer_rggb8"},
                {"encoding": "no such thing"},
                {"data": array.array("B", b"")},
            ]
        )
        self.picture(
            draw.choice(self.pictures) // draw.choice([1, 1, 50, 255]), self.when(), **changes
        )

    def wild_bytes(self):
        """A sound message with bytes cut off, put in or changed, or nothing but noise."""
        draw = self.random
        sound = obstacles(self.rig.now, ("person", 2.0, 0.0))
        publisher, message = draw.choice(
            [(self.rig.detections, sound), (self.images, Image()), (self.odometry, Odometry())]
        )
        raw = bytearray(serialize_message(message))
        for _ in range(draw.choice([1, 3, 20])):
            raw[draw.randrange(4, len(raw))] = draw.randrange(256)
        cut = draw.choice([len(raw), len(raw), draw.randrange(4, len(raw)), 4])
        publisher.publish(bytes(raw[:cut]))

    def wild_clock(self):
        if self.rig.sim_time:
            draw = self.random
            self.rig.sim_now = max(self.rig.sim_now + draw.choice([0.0, 0.05, 0.7, -0.5, 1e4]), 0.0)
            shown = draw.choice([self.rig.sim_now, self.rig.sim_now, 0.0])
            self.rig.clock.publish(Clock(clock=stamp(shown)))

    def wild_parameter(self):
        draw = self.random
        name = draw.choice(list(LIVE))
        value = draw.choice(
            [self.number(), draw.randrange(-5, 2000), draw.random() < 0.5]
            + ["stop", "slowdown", "limit", "approach", "warn", "fly", ""]
        )
        self.set({name: value})

    def set(self, values):
        kinds = {
            bool: (ParameterType.PARAMETER_BOOL, "bool_value"),
            int: (ParameterType.PARAMETER_INTEGER, "integer_value"),
            float: (ParameterType.PARAMETER_DOUBLE, "double_value"),
            str: (ParameterType.PARAMETER_STRING, "string_value"),
        }
        given = []
        for name, value in values.items():
            number, field = kinds[type(value)]
            given.append(Parameter(name=name, value=ParameterValue(type=number, **{field: value})))
        self.answers.append(self.parameters.call_async(SetParameters.Request(parameters=given)))
        return self.answers[-1]

    def burst(self):
        """Some random events without a pause worth mentioning."""
        kinds = [
            *[self.wild_command] * 4,
            *[self.wild_obstacles] * 4,
            *[self.wild_picture] * 2,
            *[self.wild_bytes] * 2,
            self.wild_odometry,
            self.wild_clock,
            self.wild_parameter,
        ]
        for _ in range(self.random.randrange(1, 8)):
            event = self.random.choice(kinds)
            self.events[event.__name__] = self.events.get(event.__name__, 0) + 1
            event()
            time.sleep(self.random.choice([0.0, 0.0, 0.01]))

    # Verdict ---------------------------------------------------------------------------------

    def unsafe(self):
        """Velocities that are no commanded one times a factor of 0 to 1."""
        moments = [moment for moment, *_ in self.sent]
        bad = []
        for moment, *out in self.rig.velocities:
            if out == [0, 0, 0]:
                continue
            first = bisect.bisect(moments, moment - MEMORY)
            last = bisect.bisect(moments, moment)
            if not any(_is_share(out, command[1:]) for command in reversed(self.sent[first:last])):
                bad.append((moment, *out))
        return bad


def _is_share(out, command):
    """Whether `out` is `command` times one factor of 0 to 1, up to rounding."""
    if not all(map(math.isfinite, (*out, *command))):
        return False
    largest = max(range(3), key=lambda axis: abs(command[axis]))
    if command[largest] == 0:
        return False
    ratio = out[largest] / command[largest]
    if not 0 <= ratio <= 1:
        return False
    return all(
        abs(found) <= abs(wanted)
        and math.isclose(found, wanted * ratio, rel_tol=1e-6, abs_tol=1e-300)
        for found, wanted in zip(out, command, strict=True)
    )


def test_the_verdict_on_a_velocity_can_say_no():
    assert _is_share([0.1, 0.0, 0.05], [0.2, 0.0, 0.1])
    assert _is_share([-1e308, 0.0, 0.0], [-1e308, 0.0, 0.0])
    for out in ([0.3, 0, 0], [-0.1, 0, 0.0], [0.1, 0, 0.1], [math.nan, 0, 0], [0.1, 0.1, 0.05]):
        assert not _is_share(out, [0.2, 0.0, 0.1])


@pytest.mark.parametrize("sim_time", [False, True], ids=["system clock", "simulated clock"])
def test_a_storm_of_broken_messages_and_parameters(tmp_path, sim_time):
    rig = GuardianRig(
        tmp_path,
        DOMAIN + sim_time,
        sim_time=sim_time,
        watch_camera="true",
        zones='["halt", "near"]',
        near="{shape: circle, radius: 0.6, action: approach}",
    )
    try:
        storm = Storm(rig.start(), SEED)
        assert storm.parameters.wait_for_service(timeout_sec=30)
        until = time.monotonic() + SECONDS / 2
        moved = 0
        while time.monotonic() < until:
            storm.set(LIVE)
            mark = len(rig.velocities)
            for _ in range(12):
                storm.calm()
            moved += any(velocity[1] > 0 for velocity in rig.velocities[mark:])
            for _ in range(storm.random.randrange(10, 40)):
                storm.burst()
            assert rig.process.poll() is None, rig.log.read_text()[-3000:]
        # After all that it drives again, and stops again.
        rig.wait_for(storm.set(LIVE).done, "the parameters set back")
        healthy_again(storm)
        assert storm.unsafe() == []
        log = rig.log.read_text()
        assert "Traceback" not in log and " failed: " not in log, log[-3000:]
        print(f"{len(rig.velocities)} velocities, {moved} calm phases moved, {storm.events}")
        assert moved, "it never moved between the storms, so that nothing was tested"
    finally:
        rig.close()


def healthy_again(storm):
    rig = storm.rig
    rig.velocities.append((time.monotonic(), 0.0, 0.0, 0.0))
    until = time.monotonic() + 30
    while rig.speed <= 0:
        assert time.monotonic() < until, f"does not move again: {rig.reason()}"
        storm.calm()
    while rig.speed != 0:
        assert time.monotonic() < until, "does not stop again"
        time.sleep(PERIOD)
