"""Detections over time: the same object keeps one id from picture to picture."""

from perception.tracking.tracker import LostTracks, Tracker, TrackerSettings, Tracks

__all__ = ["LostTracks", "Tracker", "TrackerSettings", "Tracks"]
