"""What makes the distribution `waysight` the ROS 2 package `waysight` too; see pyproject.toml."""

from glob import glob

from setuptools import setup

setup(
    data_files=[
        ("share/ament_index/resource_index/packages", ["resource/waysight"]),
        ("share/waysight", ["package.xml"]),
        ("share/waysight/launch", sorted(glob("ros_nodes/launch/*.launch.py"))),
        ("share/waysight/config", sorted(glob("ros_nodes/config/*.*"))),
        # Not console scripts: those come from pyproject.toml alone, and pip would put names as
        # general as `camera` on the PATH.
        ("lib/waysight", sorted(glob("ros_nodes/executables/*"))),
    ],
)
