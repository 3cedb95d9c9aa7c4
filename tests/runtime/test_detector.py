"""Detector: from a model file to objects in a picture's own pixels."""

import json
from pathlib import Path

import numpy as np
import pytest

from perception.contract import ModelContract
from perception.errors import InputError
from perception.frame import Frame
from perception.geometry.boxes import iou_matrix, xywh_to_xyxy
from perception.runtime.detector import Detector
from perception.sources import read_picture
from tests.onnx_models import bright_cell_detector, fixed_outputs


@pytest.fixture
def detector(tmp_path: Path) -> Detector:
    return Detector(bright_cell_detector(tmp_path / "bright.onnx"))


def picture_with_bright_cell(row: int, column: int) -> np.ndarray:
    """A 640x480 picture; the network sees it as 64x48, so a cell is 160 pixels wide."""
    image = np.zeros((480, 640, 3), np.uint8)
    image[row * 160 : (row + 1) * 160, column * 160 : (column + 1) * 160] = 255
    return image


def test_a_bright_cell_is_found_in_original_pixels(detector: Detector) -> None:
    found = detector(picture_with_bright_cell(1, 2))
    assert len(found) == 1
    assert np.allclose(found.boxes[0], [320, 160, 480, 320], atol=1)
    assert found.scores[0] > 0.9
    assert detector.names[found.labels[0]] == "bright"


def test_a_dark_picture_gives_a_valid_empty_result(detector: Detector) -> None:
    found = detector(np.zeros((480, 640, 3), np.uint8))
    assert found.valid
    assert found.boxes.shape == (0, 4)
    assert found.labels.dtype == np.int64


def test_a_batch_of_different_sizes_equals_single_pictures(detector: Detector) -> None:
    pictures = [picture_with_bright_cell(0, 0), picture_with_bright_cell(2, 3)[:400, :500]]
    batch = detector.detect_batch([Frame(p) for p in pictures])
    for picture, found in zip(pictures, batch, strict=True):
        alone = detector(picture)
        assert np.allclose(found.boxes, alone.boxes)
        assert np.allclose(found.scores, alone.scores, atol=1e-6)


def test_thresholds_and_classes_are_validated_when_set(detector: Detector) -> None:
    for name, value in (
        ("score_threshold", 1.5),
        ("score_threshold", float("nan")),
        ("iou_threshold", -0.1),
        ("iou_threshold", "high"),
        ("max_detections", 0),
        ("classes", ["brigt"]),
        ("classes", []),
        ("classes", "bright"),
    ):
        with pytest.raises(InputError, match="brigt" if value == ["brigt"] else name):
            setattr(detector, name, value)
    detector.classes = ["dark"]
    assert len(detector(picture_with_bright_cell(1, 1))) == 0
    detector.classes = None
    assert len(detector(picture_with_bright_cell(1, 1))) == 1


def test_too_large_a_batch_is_refused_with_the_limit(detector: Detector) -> None:
    with pytest.raises(InputError, match="at most 16"):
        detector.detect_batch([np.zeros((8, 8, 3), np.uint8)] * 17)


def test_a_missing_device_is_an_error_that_names_provider_and_reason(tmp_path: Path) -> None:
    model = bright_cell_detector(tmp_path / "m.onnx")  # C24
    with pytest.raises(InputError, match=r"CUDAExecutionProvider.*not available"):
        Detector(model, device="cuda")
    with pytest.warns(RuntimeWarning, match="running on the CPU") as caught:
        detector = Detector(model, device="cuda", allow_fallback=True)
    assert len(caught) == 1
    assert detector.provider == "CPUExecutionProvider"


def test_class_names_of_any_script_travel_inside_the_file(tmp_path: Path) -> None:  # C23
    names = ("pallet: EU, 'A'", "人")
    model = bright_cell_detector(tmp_path / "m.onnx", names=names)
    assert Detector(model).names == names


def test_a_contract_that_does_not_fit_the_outputs_is_refused_at_load(tmp_path: Path) -> None:
    contract = ModelContract(names=("a", "b", "c"), width=64, height=48)
    outputs = {"boxes": np.zeros((1, 5, 4)), "scores": np.zeros((1, 5, 2))}
    model = fixed_outputs(tmp_path / "m.onnx", contract, outputs)
    with pytest.raises(InputError, match="2 classes, but its contract names 3"):
        Detector(model)


def test_a_number_of_threads_below_zero_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="threads is -3"):
        Detector(bright_cell_detector(tmp_path / "m.onnx"), threads=-3)


def test_a_foreign_file_needs_a_declaration(tmp_path: Path) -> None:
    outputs = {"output0": np.zeros((1, 6, 5))}
    model = fixed_outputs(tmp_path / "m.onnx", None, outputs)
    with pytest.raises(InputError, match=r"m\.contract\.yaml"):
        Detector(model)
    (tmp_path / "m.contract.yaml").write_text(
        "names: [a, b]\nwidth: 64\nheight: 48\nconvention: yolov8\n"
    )
    assert Detector(model).names == ("a", "b")


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x07" * 50])
def test_a_file_that_is_no_model_gives_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"m\.onnx: not an ONNX model"):
        Detector(path)


def test_an_unknown_model_name_lists_what_is_shipped() -> None:
    with pytest.raises(InputError, match=r"'raod-n' is neither a file nor a shipped model"):
        Detector("raod-n")


@pytest.mark.parametrize("file", ["yolox_nano.onnx", "nanodet_m_320.onnx", "FastestDet.onnx"])
def test_published_detectors_find_the_vehicles_of_real_pictures(
    shared: Path, tmp_path: Path, file: str
) -> None:
    # Waysight ships a declaration for exactly these files; what they are called does not matter.
    model = tmp_path / "model.onnx"
    model.write_bytes((shared / "peers" / file).read_bytes())
    detector = Detector(model, score_threshold=0.3)
    vehicle = [detector.names.index(name) for name in ("car", "bus", "truck")]
    truth = json.loads((shared / "data/road_portraits/val.json").read_text())
    kinds = {c["id"]: c["name"] for c in truth["categories"]}
    large, found = 0, 0
    for image in truth["images"]:
        boxes = [
            a["bbox"]
            for a in truth["annotations"]
            if a["image_id"] == image["id"]
            and kinds[a["category_id"]] in ("car", "bus", "truck")
            and a["area"] > 0.1 * image["width"] * image["height"]
        ]
        result = detector(read_picture(shared / "data/road_portraits" / image["file_name"]))
        vehicles = result[np.isin(result.labels, vehicle)]
        large += len(boxes)
        found += int((iou_matrix(xywh_to_xyxy(boxes), vehicles.boxes) > 0.5).any(axis=1).sum())
    assert large > 20
    assert found > 0.4 * large
