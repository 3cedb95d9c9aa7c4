"""Obstacles node: `tracks` in pixels in, `obstacles` in metres in the base frame out.

Publishes Detection3DArray on `obstacles`, and, when somebody listens, `obstacle_points`
(PointCloud2 for Nav2's collision monitor and costmaps) and `obstacle_markers`. Stamps are the
picture's, unchanged; the frame is the base frame, because that is what the numbers are in. What
cannot be placed for lack of a camera model of these pictures, or is broken, is not published: a
silent source stops the robot, an empty message would not.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from builtin_interfaces.msg import Time
from nav_msgs.msg import Odometry
from sensor_msgs.msg import CameraInfo, PointCloud2
from std_msgs.msg import Header
from vision_msgs.msg import Detection2DArray, Detection3DArray
from visualization_msgs.msg import MarkerArray

from perception.detections import Detections
from perception.errors import InputError
from perception.geometry.camera import Camera, Mount
from perception.geometry.frames import StaticFrames
from perception.geometry.ground import GroundEstimate, GroundSettings
from perception.safety import Obstacles, Twist
from perception.safety.obstacles import Capsules
from perception.safety.place import place
from perception.safety.shapes import Circle, collision_times
from ros_nodes import convert, qos, topics
from ros_nodes.diagnostics import ERROR, Ages, Counters, RateMeter, Status
from ros_nodes.lifecycle import WaysightNode, run
from ros_nodes.motion import MotionParameters
from ros_nodes.obstacle_messages import (
    markers_message,
    obstacles_message,
    points_message,
    read_odometry,
)
from ros_nodes.parameters import parameter

_DEFAULTS = GroundSettings()
_ODOMETRY_SECONDS = 0.5
_STEP = 0.1

_SHIPPED = Path(__file__).resolve().parent / "demo"

POINTS = "obstacle_points"
MARKERS = "obstacle_markers"


@dataclass(frozen=True)
class ObstaclesParameters(MotionParameters):
    """Where the camera sits, how sure it is, and what is published."""

    base_frame: str = parameter("base_link", "Frame of the results; its origin is on the ground")
    calibration: str = parameter(
        "",
        "Calibration file with a mapping 'mount' (z, x, y in m; roll, pitch, yaw in rad), or the "
        "demo drive's own, road_demo_camera.yaml; "
        "empty: lens from camera_info, mount as mount_source says",
    )
    mount_source: str = parameter(
        "parameters",
        "Where the mount comes from: the mount_ parameters, or the static transforms on /tf_static "
        "from base_frame to the frame of camera_info",
        choices=("parameters", "tf"),
    )
    mount_z: float = parameter(
        1.0, "Height of the camera above the ground", minimum=0.01, maximum=100.0, unit="m"
    )
    mount_x: float = parameter(
        0.0, "Camera ahead of the base frame", minimum=-100.0, maximum=100.0, unit="m"
    )
    mount_y: float = parameter(
        0.0, "Camera to the left of the base frame", minimum=-100.0, maximum=100.0, unit="m"
    )
    mount_roll: float = parameter(
        0.0, "Turn about the forward axis", minimum=-math.pi, maximum=math.pi, unit="rad"
    )
    mount_pitch: float = parameter(
        0.0, "Turn about the left axis; positive looks down", minimum=-1.6, maximum=1.6, unit="rad"
    )
    mount_yaw: float = parameter(
        0.0, "Turn about the upward axis", minimum=-math.pi, maximum=math.pi, unit="rad"
    )
    pixel_sigma: float = parameter(
        _DEFAULTS.pixel_sigma,
        "Standard deviation of a box's edge, at least",
        minimum=0.1,
        maximum=100.0,
        unit="px",
        applies="live",
    )
    relative_sigma: float = parameter(
        _DEFAULTS.relative_sigma,
        "Standard deviation of a box's edge as a share of its height",
        minimum=0.0,
        maximum=1.0,
        applies="live",
    )
    tilt_sigma: float = parameter(
        _DEFAULTS.tilt_sigma,
        "Standard deviation of the camera's pitch against the ground, slopes included",
        minimum=0.0,
        maximum=0.5,
        unit="rad",
        applies="live",
    )
    height_sigma: float = parameter(
        _DEFAULTS.height_sigma,
        "Standard deviation of the camera's height",
        minimum=0.0,
        maximum=5.0,
        unit="m",
        applies="live",
    )
    point_sigmas: float = parameter(
        2.0,
        "Standard deviations by which the points lie nearer than the obstacle's best estimate",
        minimum=0.0,
        maximum=10.0,
        applies="live",
    )
    footprint_radius: float = parameter(
        0.5, "Robot's radius for the time to collision", minimum=0.01, maximum=20.0, unit="m"
    )
    collision_horizon: float = parameter(
        10.0, "Longest time to collision that is looked for", minimum=0.1, maximum=60.0, unit="s"
    )
    silence: float = parameter(
        1.0, "Time without tracks that is an error", minimum=0.05, maximum=60.0, unit="s"
    )

    def __post_init__(self) -> None:
        if self.calibration and self.mount_source == "tf":
            raise InputError(
                f"mount_source is 'tf', but the calibration '{self.calibration}' brings a mount, "
                "expected one of them"
            )

    def ground(self) -> GroundSettings:
        """How sure single measurements are."""
        return GroundSettings(
            pixel_sigma=self.pixel_sigma,
            relative_sigma=self.relative_sigma,
            tilt_sigma=self.tilt_sigma,
            height_sigma=self.height_sigma,
        )

    def mount(self) -> Mount:
        """Where the camera sits when no calibration file says so."""
        return Mount(
            z=self.mount_z,
            x=self.mount_x,
            y=self.mount_y,
            roll=self.mount_roll,
            pitch=self.mount_pitch,
            yaw=self.mount_yaw,
        )


class ObstaclesNode(WaysightNode[ObstaclesParameters]):
    """Places tracks on the ground and follows them in metres."""

    default_name: ClassVar[str] = "obstacles"
    parameters_type: ClassVar[type[MotionParameters]] = ObstaclesParameters

    def configure(self) -> None:
        """Read the calibration, if there is a file, and create the publishers."""
        path = self.parameters.calibration
        self._calibration = Camera.from_yaml(find_calibration(path)) if path else None
        self._camera = self._calibration
        self._camera_problem = "" if path else f"no {topics.CAMERA_INFO} yet"
        self._info: CameraInfo | None = None
        self._frames = StaticFrames()
        self._frames_problem = ""
        self._tf_message = _tf_message() if self.parameters.mount_source == "tf" else None
        self._tracks = self.parameters.ground_tracks()
        self._index = convert.NameIndex()
        self._odometry = (Twist(), -math.inf)
        self._counters = Counters()
        self._ages = Ages()
        self._rate = RateMeter()
        self._nearest = math.inf
        self._soonest = math.inf
        self._problem = ""
        self._fault = ""
        self._heard = time.monotonic()
        self._output = self.create_publisher(Detection3DArray, topics.OBSTACLES, qos.results())
        self._points = self.create_publisher(PointCloud2, POINTS, qos.results())
        self._markers = self.create_publisher(MarkerArray, MARKERS, qos.results())
        self._subscribed: list[Any] = []

    def cleanup(self) -> None:
        """Give the publishers back."""
        for name in ("_output", "_points", "_markers"):
            publisher = self.__dict__.pop(name, None)
            if publisher is not None:
                self.destroy_publisher(publisher)

    def activate(self) -> None:
        """Subscribe; best effort matches publishers of either kind."""
        self._heard = time.monotonic()
        incoming = qos.image_subscription("best_effort", 5)
        wanted: list[tuple[Any, str, Any]] = [
            (Detection2DArray, topics.TRACKS, self._on_tracks),
            (Odometry, topics.ODOM, self._on_odometry),
            (CameraInfo, topics.CAMERA_INFO, self._on_camera_info),
        ]
        self._subscribed = [
            self.create_subscription(kind, topic, callback, incoming)
            for kind, topic, callback in wanted
        ]
        if self._tf_message is not None:
            # Every broadcaster keeps its own last message for those who come later.
            self._subscribed.append(
                self.create_subscription(
                    self._tf_message, topics.TF_STATIC, self._on_transforms, qos.latched(100)
                )
            )

    def deactivate(self) -> None:
        """Unsubscribe and forget: what was seen before a pause is no part of what comes after."""
        for subscription in self._subscribed:
            self.destroy_subscription(subscription)
        self._subscribed = []
        self._tracks.restart()

    # Inputs ----------------------------------------------------------------------------------

    def _on_camera_info(self, message: CameraInfo) -> None:
        message.header.stamp = Time()
        if message != self._info:
            self._info = message
            self._build_camera()

    def _on_transforms(self, message: Any) -> None:
        self._frames_problem = ""
        for item in message.transforms:
            place, turn = item.transform.translation, item.transform.rotation
            try:
                self._frames.add(
                    item.header.frame_id,
                    item.child_frame_id,
                    (place.x, place.y, place.z),
                    (turn.x, turn.y, turn.z, turn.w),
                )
            except InputError as error:
                self._frames_problem = f"; {error}"
        if self._info:
            self._build_camera()

    def _build_camera(self) -> None:
        """Lens and mount as last told; none of both when either is unusable."""
        assert self._info
        source = topics.CAMERA_INFO
        try:
            lens = self._lens(self._info)
            if self._tf_message is not None:
                source = topics.TF_STATIC
                frame = self._info.header.frame_id
                matrix = self._frames.between(self.parameters.base_frame, frame)
                lens = replace(lens, mount=Mount.from_matrix(matrix))
            self._camera, self._camera_problem = lens, ""
        except InputError as error:
            # An old model would place the new pictures' boxes wrongly.
            self._camera = None
            self._camera_problem = f"{source}: {error}{self._frames_problem}"
            self.get_logger().error(self._camera_problem)

    def _lens(self, info: CameraInfo) -> Camera:
        """For the pictures that `info` tells of, which may be a part of the sensor's, and binned.

        Of a camera with a calibration file only their size is taken from it, where it tells one.
        """
        if self._calibration is None:
            mount = self.parameters.mount()
            lens = Camera.create(
                info.width, info.height, info.k, info.d, mount, info.distortion_model
            )
        elif info.width or info.height:
            lens = self._calibration.fitted(info.width, info.height)
        else:
            lens = self._calibration
        roi = info.roi
        part = (roi.x_offset, roi.y_offset, roi.width, roi.height)
        left, top, width, height = part if any(part) else (0, 0, lens.width, lens.height)
        across, down = max(info.binning_x, 1), max(info.binning_y, 1)
        return lens.window(left, top, width, height, across, down)

    def _on_odometry(self, message: Odometry) -> None:
        try:
            self._odometry = (read_odometry(message), time.monotonic())
        except InputError as error:
            self._say(str(error))

    def _ego(self) -> Twist:
        """The robot's motion; without fresh odometry it is taken to stand.

        Velocities are then relative to the robot, which makes things ahead come faster.
        """
        velocity, at = self._odometry
        return velocity if time.monotonic() - at < _ODOMETRY_SECONDS else Twist()

    def _on_tracks(self, message: Detection2DArray) -> None:
        self._counters.add(received=1)
        self._heard = time.monotonic()
        detections = convert.read_detections(message, self._index)
        if self._camera is None:
            self._counters.add(dropped=1)
            return
        self._fault = self._fault_of(detections, message.header.frame_id, self._camera)
        if self._fault:
            self._counters.add(invalid=1)
            self._say(self._fault)
            return
        stamp = convert.stamp_ns(message.header.stamp)
        found, places = self._place(detections, stamp)
        self._counters.add(processed=1)
        self._publish(found, places, detections, Header(
            stamp=message.header.stamp, frame_id=self.parameters.base_frame
        ))  # fmt: skip
        if stamp:
            self._ages.add((self.get_clock().now().nanoseconds - stamp) * 1e-6)

    def _fault_of(self, detections: Detections, frame: str, camera: Camera) -> str:
        """Why these boxes cannot be placed by `camera`; empty when they can."""
        if not detections.valid or detections.invalid_rows:
            return f"{detections.invalid_rows} rows of {topics.TRACKS} cannot be used"
        told = self._info.header.frame_id if self._info else ""
        if frame and told and frame != told:
            return f"{topics.TRACKS} are of {frame!r}, expected {told!r} as in {topics.CAMERA_INFO}"
        if not camera.shows(detections.boxes):
            return (
                f"a box of {topics.TRACKS} lies outside the picture, expected boxes within "
                f"{camera.width}x{camera.height}"
            )
        return ""

    def _say(self, problem: str) -> None:
        self._problem = problem
        self.get_logger().warning(problem, throttle_duration_sec=5.0)

    # Work ------------------------------------------------------------------------------------

    def _place(self, detections: Detections, stamp: int) -> tuple[Obstacles, GroundEstimate]:
        assert self._camera
        return place(
            detections,
            self._index.names,
            self._camera,
            self._tracks,
            stamp,
            self._ego(),
            self.parameters.ground(),
        )

    def _publish(
        self, found: Obstacles, places: GroundEstimate, detections: Detections, header: Header
    ) -> None:
        heights = np.maximum(places.heights, 0.05)
        self._output.publish(obstacles_message(found, heights, detections.scores.tolist(), header))
        ranges = np.linalg.norm(found.positions, axis=1)
        self._nearest = float(ranges.min()) if len(found) else math.inf
        if self._points.get_subscription_count():
            self._points.publish(points_message(found, self.parameters.point_sigmas, header))
        if self._markers.get_subscription_count():
            times = self._times_to_collision(found)
            self._soonest = float(times.min()) if len(found) else math.inf
            self._markers.publish(markers_message(found, heights, times, header))

    def _times_to_collision(self, found: Obstacles) -> np.ndarray[Any, np.dtype[np.float64]]:
        """(N,) s until the robot touches each obstacle if both keep their velocities."""
        parameters = self.parameters
        with np.errstate(all="ignore"):
            capsules = Capsules.around(found, 0.0, 0.0, 0.0)
            return collision_times(
                Circle(parameters.footprint_radius),
                capsules,
                self._ego(),
                parameters.collision_horizon,
                _STEP,
            )

    # Diagnostics -----------------------------------------------------------------------------

    def diagnostic_values(self) -> Mapping[str, Any]:
        return {
            **self._counters.snapshot(),
            "rate": f"{self._rate.rate(self._counters.processed):.2f}",
            "nearest_m": f"{self._nearest:.2f}",
            "time_to_collision_s": f"{self._soonest:.2f}",
            "last_problem": self._problem,
            **self._ages.summary(),
        }

    def judge(self) -> Iterable[Status]:
        if self._camera is None:
            yield ERROR, self._camera_problem
        elif self._fault:
            yield ERROR, self._fault
        silence = time.monotonic() - self._heard
        if silence > self.parameters.silence:
            yield ERROR, f"no tracks for {silence:.1f} s"


def _tf_message() -> Any:
    """tf2_msgs/TFMessage, which only robots that publish their mount need."""
    try:
        from tf2_msgs.msg import TFMessage
    except ImportError:
        raise InputError(
            "mount_source is 'tf', but there is no tf2_msgs: run python -m ros_nodes.setup_ros"
        ) from None
    return TFMessage


def find_calibration(name: str) -> Path:
    """The file itself, or the calibration that ships with the demo drive under that name."""
    shipped = _SHIPPED / Path(name).name
    return shipped if name == shipped.name and not Path(name).exists() else Path(name)


def main() -> None:
    """Run the node until it is told to stop."""
    sys.exit(run([ObstaclesNode]))


if __name__ == "__main__":
    main()
