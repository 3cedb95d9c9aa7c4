"""Shared fixtures: where reference data lies, and a small detector made on the spot."""

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parent.parent.parent / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of reference pictures and files kept beside the repository; skips without it."""
    if not SHARED.is_dir():
        pytest.skip("needs the reference data in ../shared, which is not part of a clone")
    return SHARED
