"""Shared memory: nodes remove theirs, and what killed ones leave is found and removed."""

import fcntl
import os
import signal
import time
from pathlib import Path

import pytest

from ros_nodes.shared_memory import FOLDER, SETTLED, reclaim


def _segment(folder: Path, number: int, age: float = 2 * SETTLED) -> tuple[Path, Path]:
    segment = folder / f"fastdds_{number:016x}"
    segment.write_bytes(bytes(1000))
    lock = folder / f"{segment.name}_el"
    lock.touch()
    os.utime(lock, (time.time() - age,) * 2)
    return segment, lock


def test_only_segments_of_dead_processes_are_removed(tmp_path: Path) -> None:
    dead = _segment(tmp_path, 1)
    alive = _segment(tmp_path, 2)
    being_made = _segment(tmp_path, 3, age=0.0)
    port = tmp_path / "fastdds_port7000_el"
    port.touch()
    os.utime(port, (0, 0))
    with alive[1].open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert reclaim(tmp_path) == 1000
    assert sorted(tmp_path.iterdir()) == sorted([*alive, *being_made, port])
    assert not any(path.exists() for path in dead)


def test_machine_without_shared_memory_has_nothing_to_reclaim(tmp_path: Path) -> None:
    assert reclaim(tmp_path / "absent") == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_node_that_ends_leaves_no_shared_memory(tmp_path: Path, number: int) -> None:
    pytest.importorskip("rclpy", reason="needs ROS 2")
    pytest.importorskip("vision_msgs", reason="needs vision_msgs: python -m ros_nodes.setup_ros")
    from tests.ros_nodes.peer import NodeProcess, Peer

    if os.environ.get("RMW_IMPLEMENTATION", "rmw_fastrtps_cpp") != "rmw_fastrtps_cpp":
        pytest.skip("another middleware than Fast DDS")
    peer = Peer()
    node = NodeProcess("tracker_node", tmp_path / "log")
    try:
        peer.wait_for(lambda: peer.status("/tracker"), "the tracker's diagnostics", timeout=30)
        held = _held(node.process.pid)
        assert held, "the node holds no segment: is the Fast DDS profile applied?"
        assert node.stop(number) == 0
        assert [path for path in held if path.exists()] == []
    finally:
        node.process.kill()
        peer.close()


def _held(process: int) -> list[Path]:
    """The segments whose lock files a process holds open."""
    files = []
    for entry in Path(f"/proc/{process}/fd").iterdir():
        target = os.readlink(entry)
        if target.startswith(f"{FOLDER}/fastdds_") and "port" not in target:
            files.append(Path(target.removesuffix("_el")))
    return files
