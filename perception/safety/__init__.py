"""Zones, watchdog and the guardian that limits a robot's velocity. Pure functions of obstacles,
commands and time; no ROS."""

from perception.safety.guardian import Cause, Decision, Guardian, GuardianSettings
from perception.safety.motion import STOPPED, Twist
from perception.safety.obstacles import Obstacles
from perception.safety.settings import guardian_settings, read_guardian_settings
from perception.safety.watchdog import Times, WatchdogSettings
from perception.safety.zones import Action, Zone

__all__ = [
    "STOPPED",
    "Action",
    "Cause",
    "Decision",
    "Guardian",
    "GuardianSettings",
    "Obstacles",
    "Times",
    "Twist",
    "WatchdogSettings",
    "Zone",
    "guardian_settings",
    "read_guardian_settings",
]
