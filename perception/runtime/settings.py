"""Which model, and how it is set up: a value that a process can hand to others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perception.contract import ModelContract

if TYPE_CHECKING:
    from perception.runtime.detector import Detector


@dataclass(frozen=True)
class DetectorSettings:
    """What `Detector` takes; None is the model's own value.

    path: shipped model or .onnx file, contract: a YAML declaration for a foreign one. Whoever
    opens the detector opens both, so all machines of a cluster must see them under the same paths.
    threads: of each process that opens it, None for all cores.
    """

    path: str | Path
    contract: Path | None = None
    device: str = "cpu"
    allow_fallback: bool = False
    threads: int | None = 1
    score_threshold: float | None = None
    iou_threshold: float | None = None
    max_detections: int | None = None
    classes: tuple[str, ...] | None = None

    def open(self) -> Detector:
        """The detector. Raises InputError for a model that cannot be used."""
        # Needs ONNX Runtime, which a machine that only plans the work does without.
        from perception.runtime.detector import Detector

        return Detector(
            self.path,
            device=self.device,
            allow_fallback=self.allow_fallback,
            threads=self.threads,
            contract=ModelContract.from_yaml(self.contract) if self.contract else None,
            score_threshold=self.score_threshold,
            iou_threshold=self.iou_threshold,
            max_detections=self.max_detections,
            classes=self.classes,
        )
