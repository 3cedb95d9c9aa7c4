"""Boxes, resizing and cameras: pure functions of arrays."""
