from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from perception.errors import InputError
from ros_nodes import setup_ros

VISION = setup_ros.SOURCES[0]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH, with stand-ins for the programs that a build needs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("cc", "c++", "cmake", "ninja", "python"):
        (folder / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    (tmp_path / "Python.h").touch()
    return folder


def test_build_tools_are_found_beside_python(programs: Path, tmp_path: Path) -> None:
    tools = setup_ros.require_build_tools(tmp_path)
    assert tools == {"cmake": str(programs / "cmake"), "ninja": str(programs / "ninja")}


@pytest.mark.parametrize(
    ("missing", "package"),
    [("cc", "gcc"), ("c++", r"g\+\+"), ("cmake", "cmake"), ("ninja", "ninja-build")],
)
def test_missing_program_is_told_with_its_debian_package(
    programs: Path, tmp_path: Path, missing: str, package: str
) -> None:
    (programs / missing).unlink()
    with pytest.raises(InputError, match=rf"Debian package {package}$"):
        setup_ros.require_build_tools(tmp_path)


def test_missing_header_is_told_with_its_debian_package(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "Python.h").unlink()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    with pytest.raises(InputError, match=rf"Debian package python{version}-dev$"):
        setup_ros.require_build_tools(tmp_path)


def test_changed_message_changes_the_hash(tmp_path: Path) -> None:
    copy = tmp_path / "vision_msgs"
    shutil.copytree(VISION, copy)
    before = setup_ros.input_hash(copy)
    assert before == setup_ros.input_hash(VISION)
    with (copy / "msg" / "Point2D.msg").open("a") as message:
        message.write("float64 z\n")
    assert setup_ros.input_hash(copy) != before


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The prefixes built into; nothing is built for real."""
    made: list[Path] = []
    monkeypatch.setattr(setup_ros.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(setup_ros, "require_build_tools", lambda include_folder: {})

    def build(source: Path, prefix: Path, tools: dict[str, str]) -> None:
        (prefix / "share" / "vision_msgs").mkdir(parents=True, exist_ok=True)
        made.append(prefix)

    monkeypatch.setattr(setup_ros, "build", build)
    return made


def test_second_run_builds_nothing(tmp_path: Path, builds: list[Path]) -> None:
    setup_ros.build_once(VISION, tmp_path)
    setup_ros.build_once(VISION, tmp_path)
    assert builds == [tmp_path]


def test_both_packages_are_built_into_this_python(builds: list[Path]) -> None:
    made: list[str] = []
    assert [source.name for source in setup_ros.SOURCES] == ["vision_msgs", "tf2_msgs"]
    assert all((source / "CMakeLists.txt").is_file() for source in setup_ros.SOURCES)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ROS_DISTRO", raising=False)
        patch.setattr(setup_ros, "build_once", lambda source, prefix: made.append(source.name))
        assert setup_ros.main() == 0
    assert made == ["vision_msgs", "tf2_msgs"]


def test_failed_build_is_done_again(
    tmp_path: Path, builds: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    setup_ros.build_once(VISION, tmp_path)
    good_build = setup_ros.build
    monkeypatch.setattr(setup_ros, "input_hash", lambda source: "of other inputs")

    def failing_build(source: Path, prefix: Path, tools: dict[str, str]) -> None:
        raise InputError("the compiler ran out of memory")

    monkeypatch.setattr(setup_ros, "build", failing_build)
    with pytest.raises(InputError):
        setup_ros.build_once(VISION, tmp_path)
    monkeypatch.setattr(setup_ros, "build", good_build)
    setup_ros.build_once(VISION, tmp_path)
    assert len(builds) == 2


def test_failing_compiler_shows_the_end_of_its_output(tmp_path: Path) -> None:
    cmake = tmp_path / "cmake"
    cmake.write_text("#!/bin/sh\necho the reason\nexit 3\n")
    cmake.chmod(0o755)
    with pytest.raises(InputError, match="the reason"):
        setup_ros.build(tmp_path, tmp_path, {"cmake": str(cmake), "ninja": "ninja"})


def test_distribution_without_vision_msgs_is_told_with_its_debian_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROS_DISTRO", "kilted")
    monkeypatch.setattr(setup_ros.importlib.metadata, "distributions", lambda **of: [])
    monkeypatch.setattr(setup_ros.importlib, "import_module", lambda name: None)
    monkeypatch.setattr(setup_ros.importlib.util, "find_spec", lambda name: None)
    assert setup_ros.main() == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.endswith("install the Debian package ros-kilted-vision-msgs\n")


def test_sourced_distribution_is_used_and_nothing_built(
    monkeypatch: pytest.MonkeyPatch, builds: list[Path]
) -> None:
    monkeypatch.setenv("ROS_DISTRO", "kilted")
    monkeypatch.setattr(setup_ros.importlib.metadata, "distributions", lambda **of: [])
    monkeypatch.setattr(setup_ros.importlib, "import_module", lambda name: None)
    assert setup_ros.main() == 0
    assert builds == []
