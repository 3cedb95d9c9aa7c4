"""Many variations of scenarios in one go, and the worst figure of each scenario."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

from perception.frame import Frame
from perception.runtime.settings import DetectorSettings
from perception.simulation.closed_loop import (
    TRUTH,
    ChainSettings,
    Detect,
    factory_labels,
    run_scenario,
)
from perception.simulation.scenario import load_scenario


@dataclass(frozen=True)
class Played:
    """What every variation of a sweep shares. model: the detector's; None for exact boxes."""

    settings: ChainSettings
    model: DetectorSettings | None

    @property
    def detector(self) -> str:
        return TRUTH if self.model is None else str(self.model.path)

    def run(self, scenario: str, seed: int, detect: Detect | None) -> dict[str, Any]:
        """The report of one variation; `scenario` is a shipped one's name or a .yaml file."""
        verdict = run_scenario(
            load_scenario(scenario), seed, self.settings, detect=detect, detector=self.detector
        )
        return verdict.report() | {"mode": "one process in lock-step"}


def model_detect(model: DetectorSettings) -> Detect:
    """A model as `run_scenario` takes it. Raises InputError for one without a person class."""
    detector = model.open()
    to_factory = factory_labels(detector.names)
    return lambda picture: to_factory(detector(Frame(picture, color="rgb")))


def sweep(
    scenarios: Sequence[str],
    seeds: Sequence[int],
    played: Played,
    jobs: int,
    on_run: Callable[[dict[str, Any]], None] = lambda report: None,
) -> list[dict[str, Any]]:
    """Play every scenario with every seed, `jobs` at a time; reports by scenario, then seed.

    on_run is called with each report as it comes. Every run has a world of its own and simulated
    time, so that neither their order nor their number at a time changes a result.
    """
    tasks = [(scenario, seed) for scenario in scenarios for seed in seeds]
    found: dict[tuple[str, int], dict[str, Any]] = {}
    # Not forked: a graphics context and a model's threads do not survive that.
    pool = ProcessPoolExecutor(
        min(jobs, len(tasks)), multiprocessing.get_context("spawn"), _start, (played,)
    )
    with pool:
        futures = {pool.submit(_run, *task): task for task in tasks}
        try:
            for future in as_completed(futures):
                found[futures[future]] = future.result()
                on_run(future.result())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return [found[task] for task in tasks]


def summary(reports: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each scenario: how many hold, which seeds fail, and the worst figures.

    least_clearance_m: while the robot moved. farthest_stop_m: clearance of the stop for an obstacle
    that was furthest off. most_stops: of one run. slowest_zero_s: from a fault to zero velocity.
    least_travelled_m: of one run. None where there is nothing to measure.
    """
    rows = []
    for scenario in dict.fromkeys(report["scenario"] for report in reports):
        runs = [report for report in reports if report["scenario"] == scenario]
        for_obstacles = [s for run in runs for s in run["stops"] if s["cause"] == "zone"]
        rows.append(
            {
                "scenario": scenario,
                "runs": len(runs),
                "held": sum(run["passed"] for run in runs),
                "failed_seeds": [run["seed"] for run in runs if not run["passed"]],
                "contacts": sum(run["contact"] for run in runs),
                "least_clearance_m": _worst(min, (r["clearance_while_moving_m"] for r in runs)),
                "least_travelled_m": min(run["travelled_m"] for run in runs),
                "farthest_stop_m": _worst(max, (stop["clearance"] for stop in for_obstacles)),
                "most_stops": max(len(run["stops"]) for run in runs),
                "slowest_zero_s": _worst(max, (run["zero_after_fault_s"] for run in runs)),
            }
        )
    return rows


def _worst(pick: Callable[..., float], values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return pick(known) if known else None


_played: Played
_detect: Detect | None


def _start(played: Played) -> None:
    """Load the model once in each process."""
    global _played, _detect
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _played = played
    _detect = None if played.model is None else model_detect(played.model)


def _end_with_parent() -> None:
    """A sweep that is killed cannot tell its processes, which would play on for minutes."""
    parent = multiprocessing.parent_process()
    assert parent
    parent.join()
    os._exit(1)


def _run(scenario: str, seed: int) -> dict[str, Any]:
    return _played.run(scenario, seed, _detect)
