"""For colcon, which wants this file; see pyproject.toml and setup.cfg."""

from setuptools import setup

setup()
