"""Waysight: camera perception for vehicles and factory robots.

The common entry points are re-exported here; everything else is found by its file name.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

_HOMES = {
    "Detections": "detections",
    "Detector": "runtime.detector",
    "Frame": "frame",
    "InputError": "errors",
    "LabelSet": "labels",
    "ModelContract": "contract",
    "VerdictFailed": "errors",
    "WaysightError": "errors",
}


def __getattr__(name: str) -> object:
    """Import an entry point when it is first asked for (PEP 562).

    Importing the package costs nothing then, so that `waysight` is up, and takes Ctrl-C in good
    order, before it loads OpenCV.
    """
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
