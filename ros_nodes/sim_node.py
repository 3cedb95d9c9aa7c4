"""Simulator node: the factory hall as a camera, a robot and a clock.

Publishes /clock, `image_raw`, `camera_info`, `odom` and the driver's wish on `cmd_vel_raw`; takes
`cmd_vel`, and from `guardian/state` what a stop is for. It works in lock-step: a picture goes out,
and time stands still until its obstacles and the guardian's answer have come back, so that a run
does not depend on how fast the machine is. Only where nothing can come back (a dead camera, a dead
detector) it goes on without.
"""

from __future__ import annotations

import array
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import Twist as TwistMessage
from nav_msgs.msg import Odometry
from rosgraph_msgs.msg import Clock as ClockMessage
from sensor_msgs.msg import CameraInfo, Image
from std_msgs.msg import Header
from vision_msgs.msg import Detection2DArray, Detection3DArray

from perception.errors import InputError
from perception.files import write_json
from perception.frame import Frame
from perception.labels import FACTORY
from perception.safety import STOPPED, Cause, Decision, Twist
from perception.simulation.closed_loop import (
    PICTURE_PERIOD,
    START_NS,
    TRUTH,
    Driver,
    Log,
    PictureFault,
    judge,
)
from perception.simulation.scenario import Variation, load_scenario
from perception.simulation.world import World
from ros_nodes import convert, qos, topics
from ros_nodes.lifecycle import WaysightNode, run
from ros_nodes.parameters import NodeParameters, parameter

OPTICAL_FRAME = "front_camera_optical"
GUARDIAN_STATE = "guardian/state"


@dataclass(frozen=True)
class SimParameters(NodeParameters):
    """Which scenario to play, and how long to wait for the rest of the graph."""

    scenario: str = parameter("person_from_rack", "Shipped scenario or a scenario's YAML file")
    seed: int = parameter(0, "Chooses the variation", minimum=0, maximum=2**31 - 1)
    verdict: str = parameter("", "File for the verdict as JSON; empty: none is written")
    fault_flag: str = parameter(
        "", "File to create when the scenario kills the detector; who supervises it does the rest"
    )
    detector: str = parameter("", "Name of the detector's model, for the verdict")
    truth_detections: bool = parameter(
        False,
        "Publish the simulator's own boxes on detections in a detector's place; says nothing "
        "about any model",
    )
    base_frame: str = parameter("base_link", "Frame of the robot")
    source_timeout: float = parameter(
        0.5, "The guardian's timeout, for the verdict", minimum=0.02, maximum=5.0, unit="s"
    )
    patience: float = parameter(
        5.0,
        "Longest wait, in real time, for the answer to one picture",
        minimum=0.1,
        maximum=60.0,
        unit="s",
    )
    start_patience: float = parameter(
        60.0,
        "Longest wait, in real time, until the graph is up and the guardian lets the robot go",
        minimum=1.0,
        maximum=600.0,
        unit="s",
    )


class SimNode(WaysightNode[SimParameters]):
    """Plays one scenario and ends with its verdict."""

    default_name: ClassVar[str] = "sim"
    parameters_type: ClassVar[type[NodeParameters]] = SimParameters

    def configure(self) -> None:
        """Build the hall; the scenario's mistakes show here."""
        parameters = self.parameters
        self._variation = Variation.of(load_scenario(parameters.scenario), parameters.seed)
        self._now_ns = START_NS
        self._commanded = STOPPED
        self._stop: tuple[Cause, str] | None = None
        self._answers = 0
        self._obstacles_ns = 0
        self._news = threading.Condition()
        self._late = 0
        self._steps = 0
        self._thread: threading.Thread | None = None
        self._halt = threading.Event()
        self._clock_out = self.create_publisher(ClockMessage, "/clock", qos.results(1))
        self._images = self.create_publisher(Image, topics.IMAGE, qos.image_publisher("reliable"))
        self._infos = self.create_publisher(CameraInfo, topics.CAMERA_INFO, qos.results())
        self._odometry = self.create_publisher(Odometry, topics.ODOM, qos.results())
        self._wishes = self.create_publisher(TwistMessage, topics.CMD_VEL_IN, qos.results())
        self._boxes = (
            self.create_publisher(Detection2DArray, topics.DETECTIONS, qos.results())
            if parameters.truth_detections
            else None
        )

    def activate(self) -> None:
        """Listen for answers and let the scenario run in a thread of its own."""
        self.create_subscription(TwistMessage, topics.CMD_VEL, self._on_command, qos.results())
        self.create_subscription(
            Detection3DArray, topics.OBSTACLES, self._on_obstacles, qos.results()
        )
        self.create_subscription(
            DiagnosticStatus, GUARDIAN_STATE, self._on_guardian_state, qos.latched()
        )
        self._halt.clear()
        self._thread = threading.Thread(target=self._play, name="scenario", daemon=True)
        self._thread.start()

    def deactivate(self) -> None:
        """Stop the scenario."""
        self._halt.set()
        with self._news:
            self._news.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=2.0)
        self._thread = None

    def diagnostic_values(self) -> Mapping[str, Any]:
        return {
            "scenario": self._variation.scenario.name,
            "seed": self._variation.seed,
            "steps": self._steps,
            "answers_missed": self._late,
        }

    # Inputs ----------------------------------------------------------------------------------

    def _on_command(self, message: TwistMessage) -> None:
        with self._news:
            self._commanded = Twist(message.linear.x, message.linear.y, message.angular.z)
            self._answers += 1
            if self._commanded.moving:
                self._stop = None
            self._news.notify_all()

    def _on_guardian_state(self, message: DiagnosticStatus) -> None:
        with self._news:
            self._stop = stop_reason(message)
            self._news.notify_all()

    def _on_obstacles(self, message: Detection3DArray) -> None:
        with self._news:
            self._obstacles_ns = convert.stamp_ns(message.header.stamp)
            self._answers = 0
            self._news.notify_all()

    # The scenario ----------------------------------------------------------------------------

    def _play(self) -> None:
        try:
            # The graphics context belongs to the thread that draws.
            world = World(self._variation)
            try:
                self._scenario(world)
            finally:
                world.close()
        except InputError as error:
            self.get_logger().error(str(error))
            self.finish(2)
        except Exception as error:
            self._record("scenario", error)
            self.finish(1)

    def _scenario(self, world: World) -> None:
        scenario = self._variation.scenario
        driver = Driver(self._variation.cruise, scenario.goal)
        fault = PictureFault(self._variation)
        log = Log()
        self._wait_for_release(world, driver, fault)
        told = silent = False
        while world.seconds < scenario.seconds - 1e-9 and not self._halt.is_set():
            if fault.broken(world.seconds, "detector_killed") and not told:
                told = True
                if self.parameters.fault_flag:
                    Path(self.parameters.fault_flag).touch()
            wish = driver.command(world.x, world.y, world.heading)
            self._exchange(world, wish, fault)
            decision = self._decision(wish)
            if told:
                # Who supervises the detector may start it again; then the robot may drive again.
                late = self._now_ns - self._obstacles_ns > self.parameters.source_timeout * 1e9
                log.fault_over = log.fault_over or (silent and not late)
                silent = silent or late
            world.step(decision.twist, PICTURE_PERIOD, log.moved)
            log.record(world, decision, wish)
            if world.x >= scenario.goal:
                log.reached_goal = True
                if scenario.expect.stops is not False:
                    break
                log.laps += 1
                world.x = 0.0
        if not self._halt.is_set():
            self._judge(log)
            self.finish(0)

    def _decision(self, wish: Twist) -> Decision:
        """What the guardian made of the wish; its state says what a stop is for."""
        with self._news:
            twist = self._commanded
            if twist.moving or not wish.moving:
                return Decision(twist, 1.0, Cause.FREE, "")
            # The state follows the velocity, on a topic of its own.
            said = self._news.wait_for(
                lambda: self._halt.is_set() or self._stop is not None, self.parameters.patience
            )
            self._late += int(not said)
            cause, reason = self._stop or (Cause.COMMAND, "the guardian does not say why")
            return Decision(twist, 0.0, cause, reason)

    def _wait_for_release(self, world: World, driver: Driver, fault: PictureFault) -> None:
        """Show the still hall until the graph is up and the robot may move."""
        until = time.monotonic() + self.parameters.start_patience
        wish = driver.command(world.x, world.y, world.heading)
        while not self._commanded.moving and not self._halt.is_set():
            if time.monotonic() > until:
                raise InputError(
                    f"the guardian did not let the robot go within "
                    f"{self.parameters.start_patience:g} s; is every node of the graph running?"
                )
            self._exchange(world, wish, fault, patience=0.5)

    def _exchange(
        self, world: World, wish: Twist, fault: PictureFault, patience: float | None = None
    ) -> None:
        """One tick: clock, wish and picture out; wait for what must come back."""
        self._now_ns += round(PICTURE_PERIOD * 1e9)
        self._steps += 1
        stamp = Time(sec=self._now_ns // 10**9, nanosec=self._now_ns % 10**9)
        with self._news:
            self._answers = 0
        self._clock_out.publish(ClockMessage(clock=stamp))
        self._publish_odometry(world, stamp)
        self._publish_wish(wish)
        answered = self._publish_picture(world, fault, stamp)
        # A guardian without news decides at 30 Hz by its own timer: its second answer after the
        # tick is certain to know the new time.
        needed = 1 if answered else 2
        limit = self.parameters.patience if patience is None else patience
        with self._news:
            done = self._news.wait_for(
                lambda: (
                    self._halt.is_set()
                    or (
                        self._answers >= needed
                        and (not answered or self._obstacles_ns >= self._now_ns)
                    )
                ),
                timeout=limit,
            )
        self._late += int(not done)

    def _publish_picture(self, world: World, fault: PictureFault, stamp: Time) -> bool:
        """Send the picture, or what the fault left of it; whether obstacles will follow."""
        pixels = fault.picture(world)
        if pixels is None:
            return False
        header = Header(stamp=stamp, frame_id=OPTICAL_FRAME)
        height, width = pixels.shape[:2]
        camera = world.camera
        k = camera.matrix.ravel().tolist()
        self._infos.publish(
            CameraInfo(
                header=header,
                width=width,
                height=height,
                distortion_model="plumb_bob",
                d=[0.0] * 5,
                k=k,
                r=np.eye(3).ravel().tolist(),
                p=[*k[0:3], 0.0, *k[3:6], 0.0, *k[6:9], 0.0],
            )
        )
        message = Image(header=header, width=width, height=height, encoding="rgb8", step=3 * width)
        message.data = array.array("B", pixels.tobytes())
        self._images.publish(message)
        if fault.broken(world.seconds, "detector_killed"):
            return False
        if self._boxes is not None:
            frame = Frame(pixels, self._now_ns, OPTICAL_FRAME, color="rgb")
            self._boxes.publish(convert.detections_message(world.truth(), frame, FACTORY.names))
        return True

    def _publish_odometry(self, world: World, stamp: Time) -> None:
        message = Odometry(
            header=Header(stamp=stamp, frame_id="odom"), child_frame_id=self.parameters.base_frame
        )
        message.pose.pose.position.x, message.pose.pose.position.y = world.x, world.y
        message.pose.pose.orientation.z = float(np.sin(world.heading / 2))
        message.pose.pose.orientation.w = float(np.cos(world.heading / 2))
        message.twist.twist.linear.x = world.twist.vx
        message.twist.twist.angular.z = world.twist.wz
        self._odometry.publish(message)

    def _publish_wish(self, wish: Twist) -> None:
        message = TwistMessage()
        message.linear.x, message.angular.z = wish.vx, wish.wz
        self._wishes.publish(message)

    def _judge(self, log: Log) -> None:
        parameters = self.parameters
        name = TRUTH if parameters.truth_detections else parameters.detector or "detector"
        verdict = judge(self._variation, log, parameters.source_timeout, name)
        report = verdict.report() | {
            "mode": "ROS 2 graph in lock-step",
            "steps": self._steps,
            "answers_missed": self._late,
        }
        if parameters.verdict:
            write_json(parameters.verdict, report)
        outcome = "holds" if verdict.passed else "does not hold"
        self.get_logger().info(f"{self._variation.scenario.name}: {outcome}")


def stop_reason(state: DiagnosticStatus) -> tuple[Cause, str] | None:
    """Cause and reason of a stop from the guardian's state; None while it lets the robot move."""
    values = {item.key: item.value for item in state.values}
    causes = {cause.value: cause for cause in Cause}
    cause = causes.get(values.get("cause", ""))
    if cause is None or values.get("ratio") != "0.000":
        return None
    return cause, values.get("reason", "")


def main() -> None:
    """Run the node until the scenario ends or it is told to stop."""
    sys.exit(run([SimNode]))


if __name__ == "__main__":
    main()
