"""ROS 2 nodes: parameters, QoS, lifecycle, diagnostics and messages around `perception`."""
