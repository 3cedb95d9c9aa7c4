"""Shared memory that Fast DDS processes leave behind when they are killed.

Each participant has a segment of 70 MB with the shipped profile (`config/fastdds.xml`). One that
ends removes it; one that is killed cannot, and nobody else does: a process that is killed again
and again fills the machine's memory.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from pathlib import Path

FOLDER = Path("/dev/shm")
#: A segment's lock file; its owner holds an exclusive flock on it as long as it lives.
_LOCK = re.compile(r"fastdds_[0-9a-f]{16}_el")
#: A younger lock file may not have been locked yet by the process that makes it. Seconds.
SETTLED = 10.0


def reclaim(folder: Path = FOLDER) -> int:
    """Removes the segments whose owner is dead; returns the bytes that became free."""
    if not folder.is_dir():
        return 0
    freed = 0
    for lock in folder.iterdir():
        if _LOCK.fullmatch(lock.name):
            freed += _remove_if_dead(lock)
    return freed


def _remove_if_dead(lock: Path) -> int:
    segment = lock.with_name(lock.name.removesuffix("_el"))
    try:
        descriptor = os.open(lock, os.O_RDONLY)
    except OSError:  # somebody else's, or gone by now
        return 0
    try:
        if time.time() - os.fstat(descriptor).st_mtime < SETTLED:
            return 0
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        size = segment.stat().st_size if segment.exists() else 0
        segment.unlink(missing_ok=True)
        lock.unlink(missing_ok=True)
        return size
    except OSError:  # locked: the owner lives; or not ours to remove
        return 0
    finally:
        os.close(descriptor)
