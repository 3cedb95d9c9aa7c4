"""Topic names: relative and remappable, save those that begin with a slash."""

import re

IMAGE = "image_raw"
CAMERA_INFO = "camera_info"
DETECTIONS = "detections"
LABEL_INFO = "label_info"
TRACKS = "tracks"
TRACK_VELOCITIES = "track_velocities"
OBSTACLES = "obstacles"
ANNOTATED = "image_annotated"
MARKERS = "markers"
CMD_VEL_IN = "cmd_vel_raw"
CMD_VEL = "cmd_vel"
ODOM = "odom"
DIAGNOSTICS = "/diagnostics"
CLOCK = "/clock"
TF_STATIC = "/tf_static"


def compressed(topic: str) -> str:
    """The name under which image_transport publishes the compressed form of an image topic."""
    return f"{topic}/compressed"


_TOPIC = re.compile(r"(?:~/|/)?[A-Za-z_]\w*(?:/[A-Za-z_]\w*)*", re.ASCII)


def is_topic(text: str) -> bool:
    """Whether ROS 2 takes `text` as the name of a topic."""
    return _TOPIC.fullmatch(text) is not None
