"""VDA 5050 node: tells a fleet control over MQTT how the robot is.

Publishes the topics `state` and `connection` (retained, with a last will) of VDA 5050 2.1 or 3.0.
Orders are not executed: one that arrives is answered by an error in the state.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import paho.mqtt.client as mqtt
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from nav_msgs.msg import Odometry
from paho.mqtt.enums import CallbackAPIVersion
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from sensor_msgs.msg import BatteryState

from perception.errors import InputError
from ros_nodes import qos, topics
from ros_nodes.diagnostics import ERROR, OK, STALE, WARN, Status
from ros_nodes.lifecycle import WaysightNode, run
from ros_nodes.parameters import NodeParameters, parameter
from ros_nodes.vda5050 import (
    MODES,
    VERSIONS,
    Fault,
    Identity,
    RobotState,
    connection_message,
    same_event,
    state_message,
)

PASSWORD = "WAYSIGHT_MQTT_PASSWORD"
"""Environment variable with the broker's password, which does not belong into a parameter file."""

_LOOK = 0.1
_MOST_ORDERS = 10
_LARGEST_ORDER = 2**20


@dataclass(frozen=True)
class Vda5050Parameters(NodeParameters):
    """Broker, identity and periods."""

    version: str = parameter("2.1.0", "Version of VDA 5050", choices=VERSIONS)
    host: str = parameter("127.0.0.1", "MQTT broker")
    port: int = parameter(1883, "Port of the broker", minimum=1, maximum=65535)
    tls: bool = parameter(False, "Encrypt, and check the broker against the system's certificates")
    username: str = parameter("", f"User at the broker; the password comes from {PASSWORD}")
    interface_name: str = parameter("uagv", "First level of the topics")
    manufacturer: str = parameter("waysight", "Third level of the topics")
    serial_number: str = parameter("robot", "Fourth level of the topics")
    operating_mode: str = parameter("AUTOMATIC", "Operating mode to report", applies="live")
    map_id: str = parameter("", "Map that odometry refers to; empty: no position is reported")
    guardian: str = parameter("guardian", "Name of the guardian node")
    state_period: float = parameter(
        10.0, "Longest time between two states", minimum=0.1, maximum=30.0, unit="s"
    )
    silence: float = parameter(
        3.0,
        "Time without word from the guardian or a node after which that is an error",
        minimum=0.5,
        maximum=60.0,
        unit="s",
    )

    def __post_init__(self) -> None:
        for name in ("interface_name", "manufacturer", "serial_number"):
            value = getattr(self, name)
            if not value or set(value) & set("/+#\0"):
                raise InputError(
                    f"parameter '{name}': got {value!r}, expected text without / + #, because it "
                    "is a level of MQTT topics"
                )
        modes = MODES[self.version]
        if self.operating_mode not in modes:
            raise InputError(
                f"parameter 'operating_mode': got {self.operating_mode!r}, expected one of "
                f"{', '.join(modes)} in version {self.version}"
            )


class Vda5050Node(WaysightNode[Vda5050Parameters]):
    """Gathers diagnostics, odometry and the guardian's state into VDA 5050 messages."""

    default_name: ClassVar[str] = "vda5050"
    parameters_type: ClassVar[type[NodeParameters]] = Vda5050Parameters

    def configure(self) -> None:
        """Prepare the client; it connects when activated, and again whenever it has to."""
        parameters = self.parameters
        self._identity = Identity(
            parameters.version,  # type: ignore[arg-type]
            parameters.interface_name,
            parameters.manufacturer,
            parameters.serial_number,
        )
        self._lock = threading.Lock()
        self._numbers = {"state": 0, "connection": 0}
        self._statuses: dict[str, tuple[DiagnosticStatus, float]] = {}
        self._guardian: tuple[DiagnosticStatus, float] | None = None
        self._odometry: tuple[Odometry, float] | None = None
        self._battery: BatteryState | None = None
        self._orders: list[Fault] = []
        self._told: RobotState | None = None
        self._told_at = -math.inf
        self._connected = False
        self._problem = "not connected yet"
        self._client: mqtt.Client | None = None
        self._subscribed: list[Any] = []
        self._timer: Any = None

    def activate(self) -> None:
        """Connect and listen."""
        reports = qos.results(10)
        guardian = f"{self.parameters.guardian}/state"
        self._subscribed = [
            self.create_subscription(
                DiagnosticArray, topics.DIAGNOSTICS, self._on_diagnostics, reports
            ),
            self.create_subscription(DiagnosticStatus, guardian, self._on_guardian, qos.latched()),
            self.create_subscription(
                Odometry, topics.ODOM, self._on_odometry, qos.image_subscription("best_effort", 1)
            ),
            self.create_subscription(
                BatteryState,
                "battery_state",
                self._on_battery,
                qos.image_subscription("best_effort", 1),
            ),
        ]
        self._client = self._connect()
        # Real time: a fleet control must hear of a robot whose simulated clock stands still.
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._timer = self.create_timer(_LOOK, self._report, clock=steady)

    def deactivate(self) -> None:
        """Say good-bye and disconnect."""
        if self._timer is not None:
            self.destroy_timer(self._timer)
            self._timer = None
        for subscription in self._subscribed:
            self.destroy_subscription(subscription)
        self._subscribed = []
        self._disconnect()

    def last_words(self) -> None:
        self._disconnect()

    # MQTT ------------------------------------------------------------------------------------

    def _connect(self) -> mqtt.Client:
        parameters = self.parameters
        client = mqtt.Client(CallbackAPIVersion.VERSION2)
        if parameters.tls:
            client.tls_set()
        if parameters.username:
            client.username_pw_set(parameters.username, os.environ.get(PASSWORD))
        client.will_set(
            self._identity.topic("connection"),
            json.dumps(connection_message(self._identity, 0, "BROKEN")),
            qos=1,
            retain=True,
        )
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_order
        client.reconnect_delay_set(1, 30)
        client.connect_async(parameters.host, parameters.port, keepalive=10)
        client.loop_start()
        return client

    def _disconnect(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is None:
            return
        if self._connected:
            self._number("connection")
            farewell = connection_message(self._identity, self._numbers["connection"], "OFFLINE")
            topic = self._identity.topic("connection")
            try:
                client.publish(topic, json.dumps(farewell), qos=1, retain=True).wait_for_publish(
                    1.0
                )
            except (RuntimeError, ValueError) as error:
                self.get_logger().warning(f"could not say good-bye to the broker: {error}")
        client.disconnect()
        client.loop_stop()
        self._connected = False

    def _on_connect(
        self, client: mqtt.Client, _data: Any, _flags: Any, reason: Any, _properties: Any
    ) -> None:
        if reason.is_failure:
            self._problem = f"the broker refused the connection: {reason}"
            return
        self._connected, self._problem = True, ""
        message = connection_message(self._identity, self._number("connection"), "ONLINE")
        client.publish(self._identity.topic("connection"), json.dumps(message), qos=1, retain=True)
        client.subscribe(self._identity.topic("order"))
        self._told = None  # a state follows at once

    def _on_disconnect(
        self, _client: mqtt.Client, _data: Any, _flags: Any, reason: Any, _properties: Any
    ) -> None:
        self._connected = False
        self._problem = f"the connection to the broker is lost: {reason}"

    def _on_order(self, _client: mqtt.Client, _data: Any, message: mqtt.MQTTMessage) -> None:
        """An order is untrusted text; all that is taken from it is its name for the error."""
        name = ""
        if len(message.payload) <= _LARGEST_ORDER:
            try:
                order = json.loads(message.payload)
                name = str(order.get("orderId", ""))[:200] if isinstance(order, dict) else ""
            except (ValueError, RecursionError):
                name = ""
        fault = Fault("orderError", "WARNING", "orders are not executed", ("orderId", name))
        with self._lock:
            self._orders = [*self._orders, fault][-_MOST_ORDERS:]

    def _number(self, topic: str) -> int:
        with self._lock:
            self._numbers[topic] += 1
            return self._numbers[topic]

    # Inputs ----------------------------------------------------------------------------------

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        now = time.monotonic()
        for status in message.status:
            if status.name != self.get_fully_qualified_name():
                self._statuses[status.name] = (status, now)

    def _on_guardian(self, message: DiagnosticStatus) -> None:
        self._guardian = (message, time.monotonic())

    def _on_odometry(self, message: Odometry) -> None:
        self._odometry = (message, time.monotonic())

    def _on_battery(self, message: BatteryState) -> None:
        self._battery = message

    # State -----------------------------------------------------------------------------------

    def robot_state(self) -> RobotState:
        """What is known now."""
        now = time.monotonic()
        violation, faults = self._safety(now)
        position, velocity = self._motion(now)
        charge, charging = self._power()
        with self._lock:
            orders = tuple(self._orders)
        return RobotState(
            position=position,
            velocity=velocity,
            charge=charge,
            charging=charging,
            field_violation=violation,
            faults=(*faults, *self._node_faults(now), *orders),
            mode=self.parameters.operating_mode,
            map_id=self.parameters.map_id,
        )

    def _safety(self, now: float) -> tuple[bool, tuple[Fault, ...]]:
        """Field violation by the guardian; without word from it nobody knows the field is free."""
        if self._guardian is None or now - self._guardian[1] > self.parameters.silence:
            return True, (Fault("guardianSilent", "ERROR", "no word from the guardian"),)
        values = {entry.key: entry.value for entry in self._guardian[0].values}
        violated = values.get("field_violation") != "false"
        if values.get("cause") == "watchdog":
            text = values.get("reason", "")
            return violated, (Fault("perceptionFault", "ERROR", text),)
        return violated, ()

    def _node_faults(self, now: float) -> list[Fault]:
        """Errors and warnings of /diagnostics, by the nodes' names."""
        faults = []
        for name, (status, at) in sorted(self._statuses.items()):
            where = ("node", name)
            if now - at > self.parameters.silence:
                faults.append(Fault("nodeSilent", "ERROR", f"{name} is silent", where))
            elif status.level in (ERROR, STALE):
                faults.append(Fault("nodeError", "ERROR", status.message, where))
            elif status.level == WARN:
                faults.append(Fault("nodeWarning", "WARNING", status.message, where))
        return faults

    def _motion(
        self, now: float
    ) -> tuple[tuple[float, float, float] | None, tuple[float, float, float] | None]:
        if self._odometry is None or now - self._odometry[1] > self.parameters.silence:
            return None, None
        message = self._odometry[0]
        place, turn = message.pose.pose.position, message.pose.pose.orientation
        heading = math.atan2(
            2 * (turn.w * turn.z + turn.x * turn.y), 1 - 2 * (turn.y**2 + turn.z**2)
        )
        twist = message.twist.twist
        position = (place.x, place.y, heading)
        velocity = (twist.linear.x, twist.linear.y, twist.angular.z)
        # JSON knows no NaN, and neither does the standard.
        return (
            position if all(map(math.isfinite, position)) else None,
            velocity if all(map(math.isfinite, velocity)) else None,
        )

    def _power(self) -> tuple[float | None, bool]:
        if self._battery is None or not math.isfinite(self._battery.percentage):
            return None, False
        charging = self._battery.power_supply_status == BatteryState.POWER_SUPPLY_STATUS_CHARGING
        return 100.0 * self._battery.percentage, charging

    def _report(self) -> None:
        """Publish the state when something happened or the period is over."""
        client = self._client
        if client is None or not self._connected:
            return
        robot, now = self.robot_state(), time.monotonic()
        if same_event(self._told, robot) and now - self._told_at < self.parameters.state_period:
            return
        message = state_message(self._identity, self._number("state"), robot)
        client.publish(self._identity.topic("state"), json.dumps(message, allow_nan=False))
        self._told, self._told_at = robot, now

    def diagnostic_values(self) -> Mapping[str, Any]:
        return {
            "broker": f"{self.parameters.host}:{self.parameters.port}",
            "connected": self._connected,
            "version": self.parameters.version,
            "states_sent": self._numbers["state"],
        }

    def judge(self) -> Iterable[Status]:
        return [(ERROR, self._problem)] if not self._connected else [(OK, "connected")]


def main() -> None:
    """Run the node until it is told to stop."""
    sys.exit(run([Vda5050Node]))


if __name__ == "__main__":
    main()
