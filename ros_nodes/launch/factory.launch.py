"""The factory graph with the simulated hall; the same YAML as `waysight run factory`."""

from launch import LaunchDescription

from ros_nodes.launching import graph_arguments, start_graph


def generate_launch_description() -> LaunchDescription:
    """`ros2 launch waysight factory.launch.py --show-args` explains the arguments.

    Another scenario: `set:="sim.scenario=lights_out;sim.seed=3"`.
    """
    return LaunchDescription([*graph_arguments("factory"), start_graph("factory")])
