"""Metrics, slices, comparisons and reports for detections and tracks."""

from perception.evaluate.coco import CocoResult, average_precision

__all__ = ["CocoResult", "average_precision"]
