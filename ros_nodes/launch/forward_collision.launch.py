"""Forward-collision warning; the same YAML as `waysight run forward_collision`."""

from launch import LaunchDescription

from ros_nodes.launching import graph_arguments, start_graph


def generate_launch_description() -> LaunchDescription:
    """`ros2 launch waysight forward_collision.launch.py --show-args` explains the arguments."""
    return LaunchDescription(
        [*graph_arguments("forward_collision"), start_graph("forward_collision")]
    )
