"""Processes of a graph: started together, restarted when they crash, stopped in order."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ros_nodes.graph import (
    DDS_PROFILE,
    DDS_VARIABLE,
    RUN_FOLDER_VARIABLE,
    Graph,
    check_parameters,
    process_arguments,
)
from ros_nodes.shared_memory import reclaim

FIRST_WAIT, LONGEST_WAIT = 0.5, 10.0
"""Seconds before the first restart, doubled for each further one up to the longest."""
HEALTHY_SECONDS = 30.0
"""A process that lived this long begins again with the first wait."""
STOP_SECONDS = 5.0
"""Time for one process to end after SIGTERM before it is killed."""
POLL_SECONDS = 0.1

EXIT_BAD_INPUT = 2
_PR_SET_PDEATHSIG = 1


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The children's environment: Fast DDS profile unless the user has set one."""
    result = {**os.environ, **(extra or {})}
    result.setdefault(DDS_VARIABLE, str(DDS_PROFILE))
    return result


def waits(lived: float, wait: float) -> tuple[float, float]:
    """Seconds to the start after a crash now, and after the next one.

    lived: of the process that crashed, s. wait: the second figure that its last crash gave.
    """
    now = FIRST_WAIT if lived > HEALTHY_SECONDS else wait
    return now, min(2 * now, LONGEST_WAIT)


@dataclass
class Child:
    """One process of the graph."""

    name: str
    command: list[str]
    ends_graph: bool
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    restarts: int = 0
    wait: float = FIRST_WAIT
    start_at: float = 0.0
    exit_codes: list[int] = field(default_factory=list)
    crashes: int = 0
    """In a row, since the last time that it lived HEALTHY_SECONDS."""
    lived: float = 0.0
    """Seconds of the last time."""
    killed: bool = False

    @property
    def failed(self) -> bool:
        """Whether it had to be killed, ended with a crash, or never stayed up between crashes."""
        if self.killed or not self.exit_codes:
            return self.killed
        last = self.exit_codes[-1]
        # SIGTERM ends a process that still imports; that one did not get as far as to crash.
        ended_well = last == 0 or (last == -signal.SIGTERM and not self.crashes)
        return not ended_well or (self.crashes > 1 and self.lived < HEALTHY_SECONDS)

    def report(self) -> dict[str, Any]:
        """What became of it."""
        return {
            "process": self.name,
            "restarts": self.restarts,
            "exit_codes": self.exit_codes,
            "killed": self.killed,
        }


class Supervisor:
    """Runs a graph until it ends, somebody stops it, or a process refuses its input."""

    def __init__(
        self,
        graph: Graph,
        say: Callable[[str], None],
        extra_environment: Mapping[str, str] | None = None,
        *,
        on_tick: Callable[[], None] = lambda: None,
        linger: float = 0.0,
        patience: float = STOP_SECONDS,
    ) -> None:
        """Raises InputError for a misspelt parameter or a value that is not allowed.

        say: takes one line of news for the person at the terminal.

        on_tick: called every POLL_SECONDS. linger: seconds between the end of a node that ends
        the graph and the stop of the others. patience: seconds that one process may take to end.
        """
        check_parameters(graph)
        self._say = say
        self._on_tick = on_tick
        self._linger = linger
        self._patience = patience
        self._folder = tempfile.TemporaryDirectory(prefix="waysight-run-")
        self.environment = {
            **environment(extra_environment),
            RUN_FOLDER_VARIABLE: self._folder.name,
        }
        self.counts: dict[str, dict[str, int]] = {}
        """By full node name, once `run` is over: what its diagnostics counted since it was last
        started. A node that was killed, or never configured, is not there."""
        self.children = [
            Child(
                name,
                [sys.executable, *process_arguments(nodes, Path(self._folder.name))],
                any(node.ends_graph for node in nodes),
            )
            for name, nodes in graph.processes().items()
        ]
        self._stop = False

    def stop(self) -> None:
        """Ask `run` to end; safe in a signal handler."""
        self._stop = True

    def run(self, seconds: float | None = None) -> int:
        """Start everything and watch it; returns its exit code.

        2: a process refused its input. 1: one had to be killed, or crashed and did not recover. 0:
        all went well.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        code = 0
        self._reclaim()
        try:
            for child in self.children:
                self._start(child)
            while not self._stop and (deadline is None or time.monotonic() < deadline):
                ended = [end for end in map(self._watch, self.children) if end is not None]
                if ended:
                    code = max(ended)
                    time.sleep(0.0 if code else self._linger)
                    break
                self._on_tick()
                time.sleep(POLL_SECONDS)
        finally:
            self._stop_all()
            for file in sorted(Path(self._folder.name).glob("*.counts.json")):
                left = json.loads(file.read_text(encoding="utf-8"))
                self.counts[left["node"]] = left["counts"]
            self._folder.cleanup()
        # A refusal counts even when it came together with the stop.
        if any(EXIT_BAD_INPUT in child.exit_codes for child in self.children):
            return EXIT_BAD_INPUT
        failed = [child for child in self.children if child.failed]
        for child in failed:
            if not child.killed:  # which has been said
                self._say(f"{child.name} has crashed and not recovered")
        return code or int(bool(failed))

    def _start(self, child: Child) -> None:
        # A session of its own keeps Ctrl-C at the terminal from reaching all children at once:
        # they are stopped in order instead.
        child.process = subprocess.Popen(
            child.command,
            env=self.environment,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        child.started = time.monotonic()

    def _watch(self, child: Child) -> int | None:
        """Restart what crashed; the exit code of the graph when it must end now."""
        if child.process is None:
            if child.start_at and time.monotonic() >= child.start_at:
                child.restarts += 1
                self._start(child)
            return None
        code = child.process.poll()
        if code is None:
            return None
        self._ended(child, code)
        if code == EXIT_BAD_INPUT:
            return EXIT_BAD_INPUT
        if code == 0:
            child.start_at = 0.0
            self._say(f"{child.name} has finished")
            return 0 if child.ends_graph else None
        if child.lived > HEALTHY_SECONDS:
            child.crashes = 0
        child.crashes += 1
        wait, child.wait = waits(child.lived, child.wait)
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self._say(f"{child.name} ended with {how}; starting it again in {wait:.1f} s")
        child.start_at = time.monotonic() + wait
        self._reclaim()
        return None

    def _reclaim(self) -> None:
        freed = reclaim()
        if freed:
            self._say(f"freed {freed / 1e6:.0f} MB of shared memory that killed processes left")

    def _stop_all(self) -> None:
        for child in self.children:
            process = child.process
            if process is None:
                continue
            if process.poll() is None:
                # Not SIGINT: a child that still imports would end with a KeyboardInterrupt's trace,
                # while SIGTERM ends it without a word. Nodes take both for the same wish.
                process.terminate()
                try:
                    process.wait(self._patience)
                except subprocess.TimeoutExpired:
                    self._say(f"{child.name} did not end within {self._patience:.0f} s; killing it")
                    child.killed = True
                    process.kill()
                    process.wait()
            self._ended(child, process.returncode)

    def _ended(self, child: Child, code: int) -> None:
        child.process = None
        child.exit_codes.append(code)
        child.lived = time.monotonic() - child.started


def _die_with_parent() -> None:
    """No child outlives a supervisor that was killed (Linux)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
