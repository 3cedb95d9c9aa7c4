"""The guardian as a node: `cmd_vel_raw` in, `cmd_vel` out, never faster than is safe."""

from __future__ import annotations

import dataclasses
import math
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from geometry_msgs.msg import Point, Twist, TwistStamped
from nav_msgs.msg import Odometry
from rcl_interfaces.msg import ParameterDescriptor, SetParametersResult
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.duration import Duration
from rclpy.parameter import Parameter
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import Image
from std_srvs.srv import Trigger
from vision_msgs.msg import Detection3DArray
from visualization_msgs.msg import Marker, MarkerArray

from perception.errors import InputError
from perception.labels import FACTORY
from perception.safety import (
    STOPPED,
    Action,
    Cause,
    Decision,
    Guardian,
    GuardianSettings,
    Obstacles,
    Times,
    WatchdogSettings,
    Zone,
    guardian_settings,
)
from perception.safety import Twist as Velocity
from perception.safety.obstacles import MAX_OBSTACLES
from perception.safety.picture import PictureSettings, PictureWatch
from perception.safety.shapes import Circle
from ros_nodes import qos, topics
from ros_nodes.convert import image_frame, stamp_ns
from ros_nodes.diagnostics import ERROR, OK, WARN, Status
from ros_nodes.graph import run_folder
from ros_nodes.lifecycle import WaysightNode, run
from ros_nodes.motion import MotionParameters
from ros_nodes.obstacle_messages import read_obstacles, read_odometry
from ros_nodes.parameters import check, parameter

_WATCHDOG = WatchdogSettings()
_PICTURE = PictureSettings()
_SETTINGS = GuardianSettings()
_WATCHDOG_FIELDS = tuple(field.name for field in dataclasses.fields(WatchdogSettings))
_OWN_FIELDS = ("sigmas", "unknown_speed", "sight_near", "sight_angle")
_PICTURE_FIELDS = tuple(field.name for field in dataclasses.fields(PictureSettings))
_ZONE_DEFAULTS: dict[str, Any] = {
    field.name: field.default
    for field in dataclasses.fields(Zone)
    if isinstance(field.default, bool | float)
}
_STATE_SECONDS = 1.0
_CIRCLE_CORNERS = 36
STARTED_AGAIN = (
    "the guardian had to be started again and does not know who is out of sight; "
    "look, then call ~/release"
)
_LARGEST_MESSAGE = 2000 * MAX_OBSTACLES
"""Bytes of obstacles; to read more would hold up the next decision, and the robot goes on."""


@dataclass(frozen=True)
class GuardianParameters(MotionParameters):
    """Each zone named in `zones` has parameters of its own under its name, such as
    `stop.shape`; see perception.safety.settings."""

    zones: tuple[str, ...] = parameter((), "Names of the zones; each has parameters of its own")
    classes: tuple[str, ...] = parameter(
        FACTORY.names, "Class names that obstacles may carry; zones may name only these"
    )
    base_frame: str = parameter("base_link", "Frame that obstacles must be given in")
    command_type: str = parameter(
        "Twist",
        "Message type of both velocity topics",
        choices=("Twist", "TwistStamped"),
    )
    rate: float = parameter(
        30.0,
        "Least rate of decisions, from a timer of its own",
        minimum=10.0,
        maximum=200.0,
        unit="Hz",
    )
    sigmas: float = parameter(
        _SETTINGS.sigmas,
        "Standard deviations of an obstacle's place that count as occupied",
        minimum=0.0,
        maximum=10.0,
        applies="live",
    )
    unknown_speed: float = parameter(
        _SETTINGS.unknown_speed,
        "Speed at which an obstacle of unknown velocity is taken to come",
        minimum=0.0,
        maximum=100.0,
        unit="m/s",
        applies="live",
    )
    sight_near: float = parameter(
        _SETTINGS.sight_near,
        "Distance from the base's origin within which the camera may miss somebody: what was in a "
        "zone and vanished there holds the robot until it is seen again or `~/release` is called",
        minimum=0.0,
        maximum=10.0,
        unit="m",
        applies="live",
    )
    sight_angle: float = parameter(
        _SETTINGS.sight_angle,
        "Angle to either side beyond which the camera may miss somebody, as `sight_near`",
        minimum=0.0,
        maximum=math.pi,
        unit="rad",
        applies="live",
    )
    source_timeout: float = parameter(
        _WATCHDOG.source_timeout,
        "Oldest picture, and longest silence, that still counts as seeing",
        minimum=0.02,
        maximum=5.0,
        unit="s",
        applies="live",
    )
    future_tolerance: float = parameter(
        _WATCHDOG.future_tolerance,
        "How far a stamp may lie ahead of the clock",
        minimum=0.0,
        maximum=1.0,
        unit="s",
        applies="live",
    )
    clock_timeout: float = parameter(
        _WATCHDOG.clock_timeout,
        "Longest standstill of the ROS clock, in real time",
        minimum=0.02,
        maximum=30.0,
        unit="s",
        applies="live",
    )
    command_timeout: float = parameter(
        _WATCHDOG.command_timeout,
        "Oldest command that still moves the robot",
        minimum=0.02,
        maximum=5.0,
        unit="s",
        applies="live",
    )
    recovery_frames: int = parameter(
        _WATCHDOG.recovery_frames,
        "Healthy frames in a row before the robot may move again",
        minimum=1,
        maximum=1000,
        applies="live",
    )
    watch_camera: bool = parameter(
        False, "Judge the pictures too: dark, blank, noisy, frozen or missing ones stop"
    )
    min_brightness: float = parameter(
        _PICTURE.min_brightness,
        "Grey level that the brightest tenth of a picture must reach",
        minimum=0.0,
        maximum=255.0,
    )
    min_contrast: float = parameter(
        _PICTURE.min_contrast,
        "Standard deviation of grey levels below which a picture is blank",
        minimum=0.0,
        maximum=127.0,
    )
    max_noise: float = parameter(
        _PICTURE.max_noise,
        "Standard deviation of the noise, in grey levels, that is too much",
        minimum=0.5,
        maximum=255.0,
    )


class GuardianNode(WaysightNode[GuardianParameters]):
    """Limits velocity commands by zones and by a watchdog over everything that it rests on."""

    default_name = "guardian"
    parameters_type = GuardianParameters

    # Set before the base class declares parameters, which calls back into this class.
    _zone_values: Mapping[str, Any] = {}
    _guardian: Guardian | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._publish_lock = threading.Lock()
        self._closed = True
        self._first_configure = True
        self._zone_values = self._declare_zones()
        self._settings(self.parameters, self._zone_values)  # refuse mistakes at the start

    # Parameters ------------------------------------------------------------------------------

    def _declare_zones(self) -> dict[str, Any]:
        """Declare what was given for each zone, and the defaults of what was not."""
        loose = ParameterDescriptor(dynamic_typing=True)
        values: dict[str, Any] = {}
        for zone in self.parameters.zones:
            given = {
                name: override.value
                for name, override in self._parameter_overrides.items()
                if name.startswith(f"{zone}.")
            }
            defaults = {f"{zone}.{key}": value for key, value in _ZONE_DEFAULTS.items()}
            for name, value in (defaults | given).items():
                values[name] = self.declare_parameter(name, value, loose).value
        return values

    @staticmethod
    def _settings(
        parameters: GuardianParameters, zone_values: Mapping[str, Any]
    ) -> GuardianSettings:
        data: dict[str, Any] = {}
        for name, value in zone_values.items():
            *parents, key = name.split(".")
            inner = data
            for parent in parents:
                inner = inner.setdefault(parent, {})
            inner[key] = (
                list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
            )
        plain = ("zones", "classes", "watch_camera", *_OWN_FIELDS, *_WATCHDOG_FIELDS)
        data |= {name: getattr(parameters, name) for name in plain}
        return guardian_settings(data)

    def set_parameters_atomically(
        self, parameter_list: list[Parameter[Any]]
    ) -> SetParametersResult:
        """As in the base class, zones included: refused when they make no sound settings."""
        changed = {p.name: p.value for p in parameter_list if p.name in self._zone_values}
        before, self._zone_values = self._zone_values, {**self._zone_values, **changed}
        known = self._describing
        try:
            given = {
                p.name: check(known[p.name], p.value) for p in parameter_list if p.name in known
            }
            # What waits for `configure` is judged now too; what does not is by way of `apply`.
            self._settings(dataclasses.replace(self._wanted, **given), self._zone_values)
            result = super().set_parameters_atomically(parameter_list)
        except InputError as error:
            result = SetParametersResult(successful=False, reason=str(error))
        if not result.successful:
            self._zone_values = before
        if self._guardian:
            # By exactly what the node shows now, whatever was refused on the way.
            self._guardian.configure(self._settings(self.parameters, self._zone_values))
        return result

    def apply(self, new: GuardianParameters, changed: frozenset[str]) -> None:
        self._settings(new, self._zone_values)

    # Lifecycle -------------------------------------------------------------------------------

    def configure(self) -> None:
        parameters = self.parameters
        self._guardian = Guardian(self._settings(parameters, self._zone_values))
        if self._first_configure and self._was_here_before():
            self._guardian.distrust(STARTED_AGAIN)
        self._first_configure = False
        self._tracks = parameters.ground_tracks()
        self._pictures = PictureWatch(
            PictureSettings(**{name: getattr(parameters, name) for name in _PICTURE_FIELDS})
        )
        self._command_type = TwistStamped if parameters.command_type == "TwistStamped" else Twist
        self._output = self.create_publisher(self._command_type, topics.CMD_VEL, qos.results())
        self._state = self.create_publisher(DiagnosticStatus, "~/state", qos.latched())
        self._outlines = self.create_publisher(MarkerArray, "~/zones", qos.latched())
        self._decision = Decision(STOPPED, 0.0, Cause.WATCHDOG, "not started")
        self._said: tuple[object, ...] = ()
        self._said_at = -math.inf
        self._counts = {"commands": 0, "obstacles": 0, "broken": 0, "stopped": 0}
        self._problem = ""
        self._release = self.create_service(Trigger, "~/release", self._on_release)
        self._subscribed: list[Any] = []
        self._timer: Any = None

    def _was_here_before(self) -> bool:
        """Whether this run of the graph had a guardian already, which must have crashed."""
        folder = run_folder()
        if folder is None:
            return False
        mark = folder / f"{self.get_fully_qualified_name().replace('/', '.')}.started"
        before = mark.exists()
        mark.touch()
        return before

    def activate(self) -> None:
        parameters = self.parameters
        # Best effort matches publishers of either kind; raw, so that a message that cannot be
        # read is counted here instead of ending the executor.
        incoming = qos.image_subscription("best_effort", 5)
        wanted: list[tuple[Any, str, Any]] = [
            (self._command_type, topics.CMD_VEL_IN, self._on_command),
            (Detection3DArray, topics.OBSTACLES, self._on_obstacles),
            (Odometry, topics.ODOM, self._on_odometry),
        ]
        if parameters.watch_camera:
            wanted.append((Image, topics.IMAGE, self._on_image))
        self._closed = False
        self._subscribed = [
            self.create_subscription(kind, topic, callback, incoming, raw=True)
            for kind, topic, callback in wanted
        ]
        # A timer on the ROS clock would stop with it: the very case it has to notice.
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._timer = self.create_timer(1 / parameters.rate, self._decide, clock=steady)

    def deactivate(self) -> None:
        if self._timer is not None:
            self.destroy_timer(self._timer)
            self._timer = None
        for subscription in self._subscribed:
            self.destroy_subscription(subscription)
        self._subscribed = []
        self._close("deactivated")

    def cleanup(self) -> None:
        for name in ("_output", "_state", "_outlines"):
            publisher = self.__dict__.pop(name, None)
            if publisher is not None:
                self.destroy_publisher(publisher)
        service = self.__dict__.pop("_release", None)
        if service is not None:
            self.destroy_service(service)
        self._guardian = None

    def last_words(self) -> None:
        self._close("shutting down")

    def _close(self, reason: str) -> None:
        """Publish zero and let nothing follow it."""
        if self._guardian is None:
            return
        with self._publish_lock:
            if self._closed:
                return
            self._closed = True
            self._publish_velocity(STOPPED)
        self._decision = Decision(STOPPED, 0.0, Cause.WATCHDOG, reason)
        self._publish_state()
        # The process may end right after this; give the middleware time to deliver.
        self._output.wait_for_all_acked(Duration(seconds=0.5))

    # Inputs ----------------------------------------------------------------------------------

    def _times(self) -> Times:
        simulated = bool(self.get_parameter("use_sim_time").value)
        return Times(self.get_clock().now().nanoseconds, time.monotonic_ns(), simulated)

    def _read(self, raw: bytes, kind: Any) -> Any | None:
        try:
            return deserialize_message(raw, kind)
        except Exception as error:  # the middleware raises several kinds
            self._broken(f"{kind.__name__} cannot be read: {error}")
            return None

    def _broken(self, problem: str) -> None:
        self._counts["broken"] += 1
        self._problem = problem
        self.get_logger().warning(problem, throttle_duration_sec=5.0)

    def _publishers_of(self, topic: str) -> int:
        return self.count_publishers(self.resolve_topic_name(topic))

    def _on_command(self, raw: bytes) -> None:
        assert self._guardian
        message = self._read(raw, self._command_type)
        if message is None:
            # A command that cannot be read is no reason to go on with the one before.
            self._guardian.command(Velocity(math.nan), 0, self._times())
            self._decide()
            return
        self._counts["commands"] += 1
        stamp = 0
        twist = message
        if isinstance(message, TwistStamped):
            stamp, twist = stamp_ns(message.header.stamp), message.twist
        velocity = Velocity(twist.linear.x, twist.linear.y, twist.angular.z)
        self._guardian.command(velocity, stamp, self._times())
        self._decide()

    def _on_release(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        """Somebody has looked, and nothing stands where the camera cannot see."""
        count = self._guardian.forget() if self._guardian else 0
        response.success = True
        response.message = f"{count} obstacles out of sight forgotten"
        self.get_logger().warning(response.message)
        return response

    def _on_obstacles(self, raw: bytes) -> None:
        assert self._guardian
        times = self._times()
        message = None
        if len(raw) > _LARGEST_MESSAGE:
            self._broken(f"{len(raw)} bytes of obstacles, expected at most {_LARGEST_MESSAGE}")
        else:
            message = self._read(raw, Detection3DArray)
        sources = self._publishers_of(topics.OBSTACLES)
        if message is not None and sources > 1:
            # One of them may see nothing while the other is silent: neither says what is free.
            self._broken(f"{sources} publishers send obstacles, expected one")
            message = None
        if message is None:
            self._guardian.observe(Obstacles.empty(), times.now_ns, False, times)
            self._decide()
            return
        self._counts["obstacles"] += 1
        stamp = stamp_ns(message.header.stamp)
        try:
            seen = read_obstacles(message, self.parameters.base_frame)
        except InputError as error:
            self._broken(str(error))
            self._guardian.observe(Obstacles.empty(), stamp, False, times)
        else:
            ego = self._guardian.motion(times)
            velocities = self._tracks.update(
                seen.ids, seen.positions, seen.covariances, stamp, (ego.vx, ego.vy, ego.wz)
            )
            sigmas = self._tracks.velocity_sigmas(seen.ids)
            seen = dataclasses.replace(seen, velocities=velocities, velocity_sigmas=sigmas)
            self._guardian.observe(seen, stamp, True, times)
        self._decide()

    def _on_image(self, raw: bytes) -> None:
        assert self._guardian
        times = self._times()
        message = self._read(raw, Image)
        if message is None:
            self._guardian.picture(times.now_ns, "unreadable", times)
            return
        stamp = stamp_ns(message.header.stamp)
        try:
            frame = image_frame(message)
        except InputError as error:
            self._broken(str(error))
            self._guardian.picture(stamp, "unreadable", times)
            return
        wide = frame.image.dtype == np.uint16
        pixels = (frame.image >> 8 if wide else frame.image).astype(np.uint8, copy=False)
        fault = self._pictures.fault(pixels)
        if fault:
            self._broken(f"picture is {fault}")
        self._guardian.picture(stamp, fault, times)

    def _on_odometry(self, raw: bytes) -> None:
        message = self._read(raw, Odometry)
        if message is None:
            return
        assert self._guardian
        try:
            velocity = read_odometry(message)
        except InputError as error:
            self._broken(str(error))
            return
        self._guardian.moved(velocity, self._times())

    # Output ----------------------------------------------------------------------------------

    def _decide(self) -> None:
        assert self._guardian
        decision = self._guardian.decide(self._times())
        with self._publish_lock:
            if self._closed:
                return
            self._publish_velocity(decision.twist)
        self._counts["stopped"] += int(decision.ratio == 0.0)
        self._decision = decision
        zones = tuple(report.reason for report in decision.zones)
        said = (decision.cause, decision.reason, zones, decision.ratio == 0.0)
        now = time.monotonic()
        if said != self._said or now - self._said_at >= _STATE_SECONDS:
            if said != self._said:
                self.get_logger().info(self._status()[1], throttle_duration_sec=1.0)
            self._said, self._said_at = said, now
            self._publish_state()
            if self._outlines.get_subscription_count():
                self._outlines.publish(self._zone_markers())

    def _publish_velocity(self, velocity: Velocity) -> None:
        message = self._command_type()
        twist = message
        if isinstance(message, TwistStamped):
            message.header.stamp = self.get_clock().now().to_msg()
            message.header.frame_id = self.parameters.base_frame
            twist = message.twist
        twist.linear.x, twist.linear.y, twist.angular.z = velocity.vx, velocity.vy, velocity.wz
        self._output.publish(message)

    def _publish_state(self) -> None:
        level, sentence = self._status()
        values = {key: str(value) for key, value in self.state_values().items()}
        self._state.publish(
            DiagnosticStatus(
                level=level,
                name=self.get_fully_qualified_name(),
                message=sentence,
                values=[KeyValue(key=key, value=value) for key, value in values.items()],
            )
        )

    def _status(self) -> Status:
        """ERROR when the watchdog stops, WARN when anything else limits, else OK."""
        decision = self._decision
        if decision.cause is Cause.WATCHDOG:
            return ERROR, decision.reason
        if decision.cause is Cause.FREE:
            return OK, "free"
        # A warning must be seen where nobody commands the robot too.
        zones = [report.reason for report in decision.zones if report.reason != decision.reason]
        sentence = "; ".join([decision.reason, *zones])
        if decision.cause is not Cause.ZONE or decision.ratio == 1.0:
            return WARN, sentence
        share = "stopped" if decision.ratio == 0.0 else f"slowed to {decision.ratio:.1%}"
        return WARN, f"{share}: {sentence}"

    def state_values(self) -> dict[str, object]:
        """What the state topic tells, by key."""
        decision = self._decision
        action = decision.action.value if decision.action else ""
        return {
            "cause": decision.cause.value,
            "action": action,
            "zone": decision.zone,
            "reason": decision.reason,
            "ratio": f"{decision.ratio:.3f}",
            "vx": f"{decision.twist.vx:.3f}",
            "vy": f"{decision.twist.vy:.3f}",
            "wz": f"{decision.twist.wz:.3f}",
            "zones": "; ".join(
                f"{report.reason} ({report.action.value})" for report in decision.zones
            ),
            "field_violation": str(_field_violated(decision)).lower(),
        }

    def diagnostic_values(self) -> Mapping[str, Any]:
        assert self._guardian
        sources = {"detections": self._guardian.source, "camera": self._guardian.camera}
        seen = {
            f"{name}_{what}": number
            for name, source in sources.items()
            for what, number in source.counts.items()
        }
        return {
            **self.state_values(),
            **self._counts,
            **seen,
            "out_of_sight": len(self._guardian.hidden),
            "last_problem": self._problem,
        }

    def judge(self) -> Iterable[Status]:
        assert self._guardian
        level, sentence = self._status()
        if level != OK:
            yield level, sentence
        others = self._publishers_of(topics.CMD_VEL) - 1
        if others > 0:
            yield ERROR, f"{others} other publishers send {topics.CMD_VEL}, which nothing limits"
        blind = not self._guardian.settings.sees_all
        if blind and not self._closed and not self._guardian.knows_motion(self._times()):
            yield WARN, f"no {topics.ODOM}: what is out of sight is followed by the commands alone"
        if not self.parameters.zones:
            yield WARN, "no zone is defined: only the watchdog limits the robot"

    def _zone_markers(self) -> MarkerArray:
        assert self._guardian
        active = {report.name: report for report in self._decision.zones}
        message = MarkerArray()
        for number, zone in enumerate(self._guardian.settings.zones):
            marker = Marker(ns="zones", id=number, type=Marker.LINE_STRIP)
            marker.header.frame_id = self.parameters.base_frame
            marker.header.stamp = self.get_clock().now().to_msg()
            marker.scale.x = 0.03
            marker.pose.orientation.w = 1.0
            marker.color.a = 1.0 if zone.enabled else 0.2
            marker.color.r, marker.color.g = (1.0, 0.2) if zone.name in active else (0.3, 0.8)
            marker.points = [Point(x=x, y=y) for x, y in self._corners(zone)]
            message.markers.append(marker)
        return message

    def _corners(self, zone: Zone) -> list[tuple[float, float]]:
        outline = zone.outline(self._decision.twist)
        if outline is None:
            return []
        if isinstance(outline, Circle):
            steps = [2 * math.pi * step / _CIRCLE_CORNERS for step in range(_CIRCLE_CORNERS + 1)]
            return [(outline.radius * math.cos(a), outline.radius * math.sin(a)) for a in steps]
        return [*outline.points, outline.points[0]]


def _field_violated(decision: Decision) -> bool:
    """Whether an obstacle is in a zone that stops, as VDA 5050 means a protective field.

    Where the watchdog stops nobody can tell; that counts as violated.
    """
    stops = any(r.action is Action.STOP or r.ratio == 0.0 for r in decision.zones)
    return stops or decision.cause is Cause.WATCHDOG


def main() -> None:
    """Run the node until it is told to stop."""
    sys.exit(run([GuardianNode]))


if __name__ == "__main__":
    main()
