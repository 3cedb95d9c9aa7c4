"""Waysight: camera perception for vehicles and factory robots.

The common entry points are re-exported here; everything else is found by its file name.
"""

from perception.contract import ModelContract
from perception.detections import Detections
from perception.errors import InputError, VerdictFailed, WaysightError
from perception.frame import Frame
from perception.labels import LabelSet
from perception.runtime.detector import Detector

__version__ = "0.1.0"

__all__ = [
    "Detections",
    "Detector",
    "Frame",
    "InputError",
    "LabelSet",
    "ModelContract",
    "VerdictFailed",
    "WaysightError",
]
