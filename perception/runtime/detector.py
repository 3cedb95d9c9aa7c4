"""Detector: a model file to a function from pictures to Detections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.contract import METADATA_KEY, SIDECAR_SUFFIX, ModelContract, check_fraction
from perception.detections import Detections
from perception.errors import InputError
from perception.frame import Frame
from perception.runtime.decode import postprocess
from perception.runtime.preprocess import Preprocessor
from perception.runtime.session import Session
from perception.zoo import model_path, shipped_declaration

Picture = npt.NDArray[Any] | Frame


class Detector:
    """Finds objects in pictures with an ONNX model.

    model: path of an .onnx file, or the name of a shipped model such as "road-n".
    device, allow_fallback, threads: see runtime/session.py.
    contract: declaration for a foreign file; None takes the one inside the file, else the
        `<model>.contract.yaml` beside it, else the one that is shipped for exactly this file.
    score_threshold, iou_threshold, max_detections, classes: None takes the contract's values
        and all classes. All four may be set later too; wrong values raise InputError.
    Raises InputError for a model that cannot be used, naming the reason.
    One detector belongs to one thread.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        device: str = "cpu",
        allow_fallback: bool = False,
        threads: int | None = None,
        contract: ModelContract | None = None,
        score_threshold: float | None = None,
        iou_threshold: float | None = None,
        max_detections: int | None = None,
        classes: Sequence[str] | None = None,
    ) -> None:
        self.path = model_path(model)
        self._session = Session(self.path, device, allow_fallback=allow_fallback, threads=threads)
        self.contract = contract or _find_contract(self._session)
        self._check_inputs()
        self._preprocess = Preprocessor(self.contract)
        self.score_threshold = self._default(score_threshold, "score_threshold")
        self.iou_threshold = self._default(iou_threshold, "iou_threshold")
        self.max_detections = self._default(max_detections, "max_detections")
        self.classes = classes
        self._prove()

    def __call__(self, image: Picture) -> Detections:
        """Objects in one picture: uint8/uint16 array (BGR) or a Frame.

        Raises InputError for a picture of a wrong shape or dtype.
        """
        return self.detect_batch([image])[0]

    def detect_batch(self, images: Sequence[Picture]) -> list[Detections]:
        """Objects in each picture, in order; pictures may differ in size.

        Raises InputError for more pictures than the contract's max_batch.
        """
        if not images:
            return []
        if len(images) > self.contract.max_batch:
            raise InputError(
                f"batch of {len(images)} pictures, but {self.path.name} takes at most "
                f"{self.contract.max_batch}"
            )
        frames = [image if isinstance(image, Frame) else Frame(image) for image in images]
        blob, resizes = self._preprocess(frames)
        outputs = self._session.run({self.contract.input_name: blob})
        return postprocess(
            outputs,
            self.contract,
            resizes,
            score_threshold=self._score_threshold,
            iou_threshold=self._iou_threshold,
            max_detections=self._max_detections,
            classes=self._class_indices,
        )

    def warm_up(self, runs: int = 3) -> None:
        """Run on a grey picture, so that the first real one is as fast as the rest."""
        grey = np.full((self.contract.height, self.contract.width, 3), 114, dtype=np.uint8)
        for _ in range(runs):
            self(grey)

    @property
    def names(self) -> tuple[str, ...]:
        """Class names; a label is an index into them."""
        return self.contract.names

    @property
    def provider(self) -> str:
        """ONNX Runtime's name of what really computes, such as CPUExecutionProvider."""
        return self._session.provider

    @property
    def score_threshold(self) -> float:
        """Lowest score that is reported, 0 to 1."""
        return self._score_threshold

    @score_threshold.setter
    def score_threshold(self, value: float) -> None:
        self._score_threshold = check_fraction("score_threshold", value)

    @property
    def iou_threshold(self) -> float:
        """Overlap above which the weaker of two boxes of a class is dropped, 0 to 1."""
        return self._iou_threshold

    @iou_threshold.setter
    def iou_threshold(self, value: float) -> None:
        self._iou_threshold = check_fraction("iou_threshold", value)

    @property
    def max_detections(self) -> int:
        """Most objects reported for one picture, best first."""
        return self._max_detections

    @max_detections.setter
    def max_detections(self, value: int) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"max_detections is {value!r}, expected a whole number above 0")
        self._max_detections = value

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes that are reported; None for all."""
        if self._class_indices is None:
            return None
        return tuple(self.names[index] for index in self._class_indices)

    @classes.setter
    def classes(self, names: Sequence[str] | None) -> None:
        if names is not None and (isinstance(names, str) or not len(names)):
            raise InputError(f"classes is {names!r}, expected a list of class names, or None")
        self._class_indices = (
            None if names is None else [self.contract.labels.index(name) for name in names]
        )

    def _default(self, value: Any, name: str) -> Any:
        return getattr(self.contract, name) if value is None else value

    def _check_inputs(self) -> None:
        """The contract must fit the file: input name, picture size, batch size."""
        shape = self._session.inputs.get(self.contract.input_name)
        if shape is None or len(self._session.inputs) != 1:
            raise InputError(
                f"{self.path}: model has the inputs {', '.join(self._session.inputs)}, expected "
                f"only {self.contract.input_name!r}"
            )
        wanted = (3, self.contract.height, self.contract.width)
        if len(shape) != 4 or any(
            isinstance(found, int) and found != size
            for found, size in zip(shape[1:], wanted, strict=False)
        ):
            raise InputError(
                f"{self.path}: model input {self.contract.input_name!r} has shape {list(shape)}, "
                f"its contract says batch x {' x '.join(map(str, wanted))}"
            )
        if isinstance(shape[0], int) and self.contract.max_batch > shape[0]:
            self.contract = replace(self.contract, max_batch=shape[0])

    def _prove(self) -> None:
        """Run once now: a file that is no detector fails here and not at the first frame."""
        try:
            self.warm_up(1)
        except InputError as error:
            raise InputError(f"{self.path}: not a usable detector: {error}") from None
        except Exception as error:  # whatever the runtime raises for a graph that cannot run
            detail = " ".join(str(error).split())[:300]
            raise InputError(f"{self.path}: not a usable detector: {detail}") from None


def _find_contract(session: Session) -> ModelContract:
    text = session.metadata.get(METADATA_KEY)
    if text is not None:
        try:
            return ModelContract.from_json(text)
        except InputError as error:
            raise InputError(f"{session.path}: {error}") from None
    sidecar = session.path.with_suffix(SIDECAR_SUFFIX)
    if sidecar.is_file():
        return ModelContract.from_yaml(sidecar)
    shipped = shipped_declaration(session.path)
    if shipped is not None:
        return ModelContract.from_yaml(shipped)
    raise InputError(
        f"{session.path}: holds no Waysight contract; declare its classes, input and output "
        f"convention in {sidecar.name} beside it, or name such a file (--contract)"
    )
