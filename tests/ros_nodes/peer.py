"""A foreign ROS node and child processes, for tests against real nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

# Domains up to 101 are free of clashes with ephemeral ports on Linux; one for each test process.
DOMAIN = 1 + os.getpid() % 100
ENVIRONMENT = {
    **os.environ,
    "ROS_DOMAIN_ID": str(DOMAIN),
    "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
    "PYTHONUNBUFFERED": "1",
}


class Peer:
    """A node in the test process with its own context; spin it with `wait_for` and `spin`."""

    def __init__(self, name: str = "peer") -> None:
        os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        self.context = rclpy.Context()
        rclpy.init(context=self.context, domain_id=DOMAIN)
        self.node = Node(name, context=self.context)
        self._executor = SingleThreadedExecutor(context=self.context)
        self._executor.add_node(self.node)
        self.statuses: list[DiagnosticStatus] = []
        self.node.create_subscription(DiagnosticArray, "/diagnostics", self._on_status, 10)

    def add(self, node: Node) -> None:
        """Spin another node of this process and context too."""
        self._executor.add_node(node)

    def _on_status(self, message: DiagnosticArray) -> None:
        self.statuses += message.status

    def connected(self, name: str, *, to: Sequence[Any] = (), from_: Sequence[str] = ()) -> None:
        """Spin until the node `name` and this peer have found each other, seen from both sides.

        to: publishers of this peer that the node subscribes to. from_: topics of the node to which
        this peer subscribes. A message sent before both sides know of each other is lost, however
        long one side has known of the other.
        """
        began = len(self.statuses)

        def done() -> bool:
            fresh = [s for s in self.statuses[began:] if s.name == name]
            values = (
                {v.key: int(v.value) for v in fresh[-1].values if " of /" in v.key} if fresh else {}
            )
            mine = {
                s.topic_name: s.get_publisher_count()
                for s in self.node.subscriptions
                if s.topic_name in from_
            }
            return all(
                p.get_subscription_count() and values.get(f"publishers of {p.topic_name}")
                for p in to
            ) and all(mine.get(t) and values.get(f"subscribers of {t}") for t in from_)

        self.wait_for(done, f"{name} to be connected", timeout=40.0)

    def collect(self, kind: Any, topic: str, profile: Any = 10) -> list[Any]:
        """A list that grows with every message on `topic`."""
        received: list[Any] = []
        self.node.create_subscription(kind, topic, received.append, profile)
        return received

    def wait_for(self, condition: Callable[[], Any], what: str, timeout: float = 20.0) -> None:
        """Spin until the condition holds; fails the test with `what` after `timeout` seconds."""
        end = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < end, f"not within {timeout} s: {what}"
            self._executor.spin_once(timeout_sec=0.05)

    def spin(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._executor.spin_once(timeout_sec=0.02)

    def status(self, name: str) -> DiagnosticStatus | None:
        """The newest diagnostics of the node called `name`."""
        return next((s for s in reversed(self.statuses) if s.name == name), None)

    def close(self) -> None:
        self._executor.shutdown()
        self.node.destroy_node()
        rclpy.try_shutdown(context=self.context)


class NodeProcess:
    """A node as a process of its own; `output` is what it has written so far."""

    def __init__(
        self, module: str, log: Path, remaps: Sequence[str] = (), **parameters: object
    ) -> None:
        arguments = [f"{name}:={value}" for name, value in parameters.items()]
        command = [sys.executable, "-m", f"ros_nodes.{module}", "--ros-args"]
        for argument in arguments:
            command += ["-p", argument]
        for rule in remaps:
            command += ["-r", rule]
        self._log = log
        with log.open("wb") as sink:
            self.process = subprocess.Popen(
                command, stdout=sink, stderr=subprocess.STDOUT, env=ENVIRONMENT
            )

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def stop(self, number: int = signal.SIGINT) -> int:
        """Send a signal and give the exit code; a process that hangs is killed and fails."""
        self.process.send_signal(number)
        try:
            return self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(
                f"still running 10 s after signal {number}:\n{self.output}"
            ) from None
