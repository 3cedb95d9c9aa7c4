"""What importing the package brings."""

import subprocess
import sys

import perception


def test_every_entry_point_is_there_when_asked_for() -> None:
    assert sorted(perception._HOMES) == perception.__all__
    for name in perception.__all__:
        assert getattr(perception, name).__name__ == name


def test_the_command_is_up_before_heavy_packages_load() -> None:
    program = "import sys, perception.cli; print('cv2' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"], done.stderr
