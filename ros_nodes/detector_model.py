"""The model of a detector node: loaded once for each worker, exchanged as a whole."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from perception.contract import ModelContract
from perception.runtime.detector import Detector
from perception.zoo import model_path

if TYPE_CHECKING:
    from ros_nodes.detector_node import DetectorParameters


class ModelSlot:
    """The detectors in use, one a worker.

    `detectors` is replaced as a whole, so a worker that looks once a picture changes models
    between two pictures. Loading happens in a thread of its own: in the executor's it would lose
    the pictures that arrive meanwhile.
    """

    def __init__(self, parameters: DetectorParameters) -> None:
        """Raises InputError for a model or thresholds that cannot be used."""
        self.detectors = _load(parameters)
        self.loaded = parameters.model
        self.swaps = 0
        self.trouble = ""
        self._asked = 0

    @property
    def first(self) -> Detector:
        """One of the detectors, to ask what the model is."""
        return self.detectors[0]

    def set_up(self, parameters: DetectorParameters) -> None:
        """Take over live thresholds; InputError leaves all as it was."""
        _check_classes(self.first, parameters)
        for detector in self.detectors:
            _set_up(detector, parameters)

    def exchange(
        self,
        parameters: DetectorParameters,
        now: Callable[[], DetectorParameters],
        done: Callable[[bool], None],
    ) -> None:
        """Load `parameters.model` beside the running one, then let it take over.

        Refuses at once (InputError) what can be refused without loading. now: the parameters at
        the moment of taking over. done: called in the loading thread with the outcome; the reason
        of a refusal is in `trouble`. A wish that a later one has overtaken ends without a word.
        """
        model_path(parameters.model)
        self._asked += 1
        number = self._asked

        def load() -> None:
            try:
                loaded = _load(parameters)
                for detector in loaded:
                    _set_up(detector, now())
            except Exception as error:  # whatever a file can make a runtime raise
                if number == self._asked:
                    self.trouble = f"model '{parameters.model}' refused, the old one stays: {error}"
                    done(False)
                return
            if number == self._asked:
                self.detectors = loaded
                self.loaded = parameters.model
                self.swaps += 1
                self.trouble = ""
                done(True)

        threading.Thread(target=load, name="model", daemon=True).start()

    def close(self) -> None:
        """Let a wish that is still being loaded end without a word."""
        self._asked += 1


def _load(parameters: DetectorParameters) -> tuple[Detector, ...]:
    cores = len(os.sched_getaffinity(0))
    threads = parameters.threads or max(1, cores // parameters.workers)
    contract = parameters.contract
    detectors = []
    for _ in range(parameters.workers):
        detector = Detector(
            parameters.model,
            device=parameters.device,
            allow_fallback=parameters.allow_fallback,
            threads=threads,
            contract=ModelContract.from_yaml(Path(contract)) if contract else None,
        )
        _set_up(detector, parameters)
        detector.warm_up()
        detectors.append(detector)
    return tuple(detectors)


def _check_classes(detector: Detector, parameters: DetectorParameters) -> None:
    for name in parameters.classes:
        detector.contract.labels.index(name)


def _set_up(detector: Detector, parameters: DetectorParameters) -> None:
    """Give the detector the parameters that are set; unset ones are the model's own."""
    _check_classes(detector, parameters)
    for name in ("score_threshold", "iou_threshold", "max_detections"):
        value = getattr(parameters, name)
        if value is not None:
            setattr(detector, name, value)
    detector.classes = parameters.classes or None
