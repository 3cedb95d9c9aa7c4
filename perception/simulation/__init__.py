"""A factory hall in MuJoCo that closes the loop: camera, perception, guardian, robot. No ROS."""

import os

# MuJoCo picks its graphics library when it is first imported; robots and servers have no display.
os.environ.setdefault("MUJOCO_GL", "egl")
