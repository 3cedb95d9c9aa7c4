"""The road graph: camera, detector, tracker, viewer; the same YAML as `waysight run road`."""

from launch import LaunchDescription

from ros_nodes.launching import graph_arguments, start_graph


def generate_launch_description() -> LaunchDescription:
    """Arguments and nodes; `ros2 launch waysight road.launch.py --show-args` explains them."""
    return LaunchDescription([*graph_arguments("road"), start_graph("road")])
