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


@pytest.fixture(scope="session")
def graphics() -> None:
    """Skips where the simulator cannot draw: no EGL, or no software renderer behind it."""
    from perception.simulation.scenario import Variation, load_scenario
    from perception.simulation.world import World

    world = World(Variation.of(load_scenario("person_from_rack"), 0))
    try:
        world.picture()
    except Exception as error:
        pytest.skip(f"needs EGL to draw pictures (Debian: libegl1): {error}")
    finally:
        world.close()
