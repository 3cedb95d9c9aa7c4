"""The road graph with several cameras, each in a namespace, and one detector for all of them."""

from launch import LaunchDescription

from ros_nodes.launching import graph_arguments, start_graph


def generate_launch_description() -> LaunchDescription:
    """Arguments and nodes; `--show-args` explains them."""
    return LaunchDescription(
        [*graph_arguments("road", several_cameras=True), start_graph("road", several_cameras=True)]
    )
