"""Proof that an ONNX file gives what torch gives, through the real preprocessing."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from perception.contract import ModelContract
from perception.errors import WaysightError
from perception.export.graph import Exported, ExportedAdapter
from perception.frame import Frame
from perception.runtime.decode import MAX_CANDIDATES, Candidates, decode
from perception.runtime.preprocess import Preprocessor
from perception.runtime.session import Session
from perception.train.sparsity import is_24, prunable


class ExportRefused(WaysightError):
    """The file differs from torch beyond tolerance, or cannot be compared; none was written."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Largest differences over all pictures: scores (0..1), box edges (pixels of the picture)."""

    pictures: int
    rows: int
    score: float
    box: float

    def __str__(self) -> str:
        return (
            f"{self.rows} rows of {self.pictures} pictures, scores within {self.score:.1e}, "
            f"boxes within {self.box:.2g} px"
        )


def torch_outputs(
    module: Exported | ExportedAdapter, blob: NDArray[np.float32]
) -> dict[str, NDArray[np.float32]]:
    """Outputs of the torch module by name."""
    with torch.no_grad():
        values = module(torch.from_numpy(blob.copy()))
    return {name: value.numpy() for name, value in zip(module.output_names, values, strict=True)}


def compare(
    module: Exported | ExportedAdapter,
    model: onnx.ModelProto,
    contract: ModelContract,
    images: Sequence[NDArray[np.uint8]],
    score_tolerance: float,
    box_tolerance: float,
) -> Difference:
    """Compares what both give for every picture, row by row, before non-maximum suppression.

    (After it, a difference in the last bit of an overlap can swap two boxes and say nothing about
    the file.) images: BGR uint8 (H, W, 3), any size. ExportRefused names the picture and what
    differs.
    """
    if not images:
        raise ExportRefused(
            "export: no pictures to compare torch and ONNX Runtime on; no file written"
        )
    prepare = Preprocessor(contract)
    worst_score, worst_box, rows = 0.0, 0.0, 0
    limit = contract.max_detections if contract.convention == "e2e" else MAX_CANDIDATES
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model.SerializeToString())
        session = Session(path)
        for number, image in enumerate(images):
            blob, plans = prepare([Frame(image)])
            scale = np.tile(np.array(plans[0].scale, np.float32), 2)
            both = [
                decode(outputs, contract, 0, 0.0)
                for outputs in (
                    torch_outputs(module, blob),
                    session.run({contract.input_name: blob}),
                )
            ]
            score, box, count = _difference(
                both[0], both[1], scale, score_tolerance, box_tolerance, limit
            )
            rows += count
            worst_score, worst_box = max(worst_score, score), max(worst_box, box)
            if score > score_tolerance or box > box_tolerance:
                raise ExportRefused(
                    f"export: picture {number}: ONNX Runtime differs from torch by {score:.2g} in "
                    f"score (allowed {score_tolerance}) and {box:.2g} px in boxes (allowed "
                    f"{box_tolerance}); no file written"
                )
    if not rows:
        raise ExportRefused("export: no row of any picture could be compared; no file written")
    return Difference(len(images), rows, worst_score, worst_box)


def require_sparse(model: onnx.ModelProto) -> int:
    """How many wide dense convolutions of the graph are 2:4 sparse; all must be.

    Checked in the file, after batch norms were folded: that is what an accelerator sees.
    ExportRefused names the first layer that is not.
    """
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    checked = 0
    for node in model.graph.node:
        tensor = weights.get(node.input[1]) if node.op_type == "Conv" else None
        if tensor is None:
            continue
        outputs, inputs = tensor.dims[:2]
        groups = next((a.i for a in node.attribute if a.name == "group"), 1)
        if groups != 1 or not prunable(inputs, outputs):
            continue
        if not is_24(torch.from_numpy(onnx.numpy_helper.to_array(tensor).copy())):
            raise ExportRefused(
                f"export: {node.name} is not 2:4 sparse, but the run was trained with "
                "train.sparse; no file written"
            )
        checked += 1
    return checked


#: Rows this close to the cut may be on one side only; float32 builds differ by far less.
MARGIN = 1e-5


def _difference(
    a: Candidates,
    b: Candidates,
    scale: NDArray[np.float32],
    score_tolerance: float,
    box_tolerance: float,
    limit: int,
) -> tuple[float, float, int]:
    """Largest (score, box) difference between a row and the row of the other side nearest to it,
    and how many rows were compared."""
    if a.invalid_rows or b.invalid_rows:
        return float("inf"), float("inf"), 0
    score, box, rows = 0.0, 0.0, 0
    # Where rows were cut off at a limit, those near the cut may have no partner.
    cut = [float(side.scores.min()) for side in (a, b) if len(side.scores) >= limit]
    lowest = max([0.0, *cut]) + MARGIN
    for one, other in ((a, b), (b, a)):
        certain = np.flatnonzero(one.scores > lowest)
        if len(certain) and not len(other.scores):
            return float(one.scores.max()), 0.0, len(certain)
        rows += len(certain)
        for i in certain:
            boxes = np.abs((other.boxes - one.boxes[i]) / scale).max(axis=1)
            scores = np.abs(other.scores - one.scores[i])
            j = int(np.maximum(boxes / box_tolerance, scores / score_tolerance).argmin())
            score, box = max(score, float(scores[j])), max(box, float(boxes[j]))
    return score, box, rows
