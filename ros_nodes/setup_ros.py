"""Make `vision_msgs` and `tf2_msgs` importable: the sourced ROS 2 distribution's, or our own.

The ROS 2 wheels bring neither. Run with the Python that has the wheels
(`python -m ros_nodes.setup_ros`), this builds the interface packages in `ros_nodes/vision_msgs` and
`ros_nodes/tf2_msgs` against them and installs them into that Python's prefix. A second run does
nothing.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from perception.errors import InputError
from perception.extras import install_command

COMMON = Path(__file__).resolve().parent / "messages.cmake"
"""What the packages of SOURCES include."""
SOURCES = tuple(Path(__file__).resolve().parent / name for name in ("vision_msgs", "tf2_msgs"))


def input_hash(source: Path) -> str:
    """SHA-256 over all that decides what the build gives: sources, Python, the ROS 2 wheels."""
    digest = hashlib.sha256(COMMON.read_bytes())
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(source)}\0".encode() + path.read_bytes() + b"\0")
    wheels = sorted(
        f"{distribution.name}=={distribution.version}"
        for distribution in importlib.metadata.distributions()
        if distribution.name.startswith("ros-")
    )
    digest.update("\0".join([sys.version, sys.prefix, *wheels]).encode())
    return digest.hexdigest()


def require_build_tools(include_folder: Path) -> dict[str, str]:
    """Paths of cmake and ninja; InputError names what is missing and what brings it.

    `include_folder` is where this Python's headers should be.
    """
    for variable, program, package in (("CC", "cc", "gcc"), ("CXX", "c++", "g++")):
        compiler = os.environ.get(variable) or program
        if shutil.which(compiler) is None:
            raise InputError(
                f"building messages needs the compiler {compiler!r}, which is not on PATH: "
                f"install the Debian package {package}"
            )
    if not (include_folder / "Python.h").is_file():
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise InputError(
            f"building messages needs {include_folder / 'Python.h'}, which is missing: "
            f"install the Debian package python{version}-dev"
        )
    # The wheels' programs lie beside this Python, whether or not the environment is activated.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    tools = {}
    for program, package in (("cmake", "cmake"), ("ninja", "ninja-build")):
        found = shutil.which(program, path=path)
        if found is None:
            raise InputError(
                f"building messages needs {program}: install waysight[ros], which brings it, "
                f"or the Debian package {package}"
            )
        tools[program] = found
    return tools


def build(source: Path, prefix: Path, tools: dict[str, str]) -> None:
    """Configure, build and install `source` into `prefix`; InputError carries the log's end."""
    environment = dict(os.environ, AMENT_PREFIX_PATH=str(prefix), CMAKE_PREFIX_PATH=str(prefix))
    # Never built inside the source tree, which may be a read-only site-packages folder.
    with tempfile.TemporaryDirectory(prefix=f"{source.name}-") as folder:
        configure = [
            tools["cmake"],
            "-GNinja",
            f"-DCMAKE_MAKE_PROGRAM={tools['ninja']}",
            "-DCMAKE_BUILD_TYPE=Release",
            "-DBUILD_TESTING=OFF",
            "-DRCLPY_ONLY=ON",
            f"-DPython3_EXECUTABLE={sys.executable}",
            f"-DCMAKE_INSTALL_PREFIX={prefix}",
            "-S",
            str(source),
            "-B",
            folder,
        ]
        for command in (configure, [tools["cmake"], "--build", folder, "--target", "install"]):
            finished = subprocess.run(
                command,
                env=environment,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
            if finished.returncode != 0:
                end = "\n".join(finished.stdout.splitlines()[-40:])
                raise InputError(f"{command[0]} could not build {source.name}:\n{end}")


def check_distribution(name: str) -> None:
    """InputError unless the sourced ROS 2 distribution `name` brings all that the nodes need."""
    wheels = [wheel.name for wheel in importlib.metadata.distributions(name="ros-rclpy")]
    if wheels:
        raise InputError(
            f"ROS 2 {name} is sourced and the ROS 2 wheels are in {sys.prefix}: their libraries "
            "do not mix, so remove that environment and set it up again, or do not source the other"
        )
    try:
        importlib.import_module("rclpy")
    except ImportError as error:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise InputError(
            f"the sourced ROS 2 {name} does not work with {sys.executable} (Python {version}): "
            f"{error}; use the Python that the distribution was made for"
        ) from error
    for package in (source.name for source in SOURCES):
        if importlib.util.find_spec(package) is None:
            raise InputError(
                f"the sourced ROS 2 {name} has no {package}: install the Debian package "
                f"ros-{name}-{package.replace('_', '-')}"
            )


def build_once(source: Path, prefix: Path) -> None:
    """Build `source` into `prefix`, unless what is there came from the same inputs."""
    if importlib.util.find_spec("rclpy") is None:
        raise InputError(
            "no ROS 2 found: source a distribution, or install the wheels with "
            f"{install_command('ros')}"
        )
    stamp = prefix / "share" / source.name / "waysight-build.sha256"
    wanted = input_hash(source)
    if stamp.is_file() and stamp.read_text(encoding="ascii") == wanted:
        return
    tools = require_build_tools(Path(sysconfig.get_paths()["include"]))
    print(f"{source.name}: building the interface package (up to a minute)", flush=True)
    # Gone while the build runs: one that is interrupted has to be done again.
    stamp.unlink(missing_ok=True)
    build(source, prefix, tools)
    stamp.write_text(wanted, encoding="ascii")


def main() -> int:
    distribution = os.environ.get("ROS_DISTRO")
    try:
        if distribution:
            check_distribution(distribution)
        else:
            for source in SOURCES:
                build_once(source, Path(sys.prefix))
    except InputError as error:
        print(f"waysight: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
