"""Exported files: batches, pictures without objects, half precision, names, refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from perception.cli import main
from perception.contract import METADATA_KEY, ModelContract
from perception.detections import Detections
from perception.errors import InputError
from perception.export.build import make_float32
from perception.export.gate import (
    Build,
    Loss,
    choose,
    measure_build,
    pictures_to_score,
    worst_loss,
)
from perception.export.gmac import layers, parameter_count
from perception.export.graph import Exported
from perception.export.launch import calibration_files, export_run, validation_pictures
from perception.export.onnx_file import embed, save
from perception.export.precision import last_layers, to_float16, to_int8
from perception.export.settings import ExportSettings, Form, Precision
from perception.export.verify import ExportRefused, compare, require_sparse, torch_outputs
from perception.frame import Frame
from perception.models import make_network
from perception.models.network import Network
from perception.models.settings import ModelSettings
from perception.runtime.decode import postprocess
from perception.runtime.detector import Detector
from perception.runtime.preprocess import Preprocessor
from perception.train.rehearsal import draw_set
from perception.train.sets import Picture, SetSettings
from perception.train.settings import DataSettings, RunSettings
from perception.train.sparsity import Sparsity

MODEL = ModelSettings(("car", "truck", "person"), ("car", "truck"), width=96, height=64)


def lively(model: ModelSettings = MODEL) -> Network:
    """A network with random weights that finds something everywhere."""
    torch.manual_seed(0)
    network = Network(model)
    for layer in network.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.momentum = 1.0
    # Statistics of real activations: without them the signal fades and every picture looks alike.
    with torch.no_grad():
        network.train()(torch.rand(4, 3, model.height, model.width))
    network.eval()
    for layer in network.head.score:
        torch.nn.init.normal_(layer.weight, std=0.4)
        torch.nn.init.normal_(layer.bias, std=0.5)
    return network


def pictures(count: int = 5, size: tuple[int, int] = (90, 140)) -> list[NDArray[np.uint8]]:
    rng = np.random.default_rng(1)
    return [rng.integers(0, 255, (*size, 3), dtype=np.uint8) for _ in range(count)]


@pytest.fixture(scope="module")
def built() -> tuple[Exported, onnx.ModelProto, ModelContract]:
    return make_float32(lively(), ExportSettings(), {})


def test_each_picture_of_a_batch_gets_its_own_result(
    built: tuple[Exported, onnx.ModelProto, ModelContract],
) -> None:
    # C19
    _, model, contract = built
    session = onnxruntime.InferenceSession(model.SerializeToString())
    blobs = np.random.default_rng(0).random((5, 3, 64, 96), np.float32)
    single = [session.run(None, {"images": blob[None]}) for blob in blobs]
    for order in ([0], [1, 3], [0, 1, 2, 3, 4], [4, 3, 2, 1, 0]):
        boxes, scores = session.run(None, {"images": blobs[order]})
        assert len(boxes) == len(scores) == len(order)
        for row, i in enumerate(order):
            np.testing.assert_allclose(boxes[row], single[i][0][0], atol=1e-4)
            np.testing.assert_allclose(scores[row], single[i][1][0], atol=1e-4)


def test_a_batch_above_the_declared_maximum_is_refused(tmp_path: Path) -> None:
    # C19
    _, model, _ = make_float32(lively(), ExportSettings(max_batch=2), {})
    save(model, tmp_path / "m.onnx")
    with pytest.raises(InputError, match="2"):
        Detector(tmp_path / "m.onnx").detect_batch(pictures(3))


@pytest.mark.parametrize("form", ["decoded", "raw", "e2e"])
def test_torch_and_onnx_agree_on_any_content(form: Form) -> None:
    # C20: also on pictures unlike the traced one
    module, model, contract = make_float32(lively(), ExportSettings(form=form), {})
    plain = [np.zeros((70, 110, 3), np.uint8), np.full((256, 256, 3), 255, np.uint8), *pictures(2)]
    difference = compare(module, model, contract, plain, 1e-3, 0.5)
    assert difference.rows > 100
    assert difference.score <= 1e-3 and difference.box <= 0.5


def test_nothing_found_is_an_empty_valid_result(
    built: tuple[Exported, onnx.ModelProto, ModelContract], tmp_path: Path
) -> None:
    # C20
    module, model, contract = built
    save(model, tmp_path / "m.onnx")
    detector = Detector(tmp_path / "m.onnx", score_threshold=1.0)
    for picture in (
        np.zeros((64, 96, 3), np.uint8),
        np.full((64, 96, 3), 255, np.uint8),
        *pictures(1),
    ):
        found = detector(picture)
        assert found.valid and found.boxes.shape == (0, 4) and found.scores.shape == (0,)
        assert found.labels.shape == (0,) and found.labels.dtype == np.int64
        blob, plans = Preprocessor(contract)([Frame(picture)])
        ours = postprocess(torch_outputs(module, blob), contract, plans, score_threshold=1.0)[0]
        assert isinstance(ours, Detections) and len(ours) == 0


def test_other_input_sizes_come_from_the_same_weights() -> None:
    # C20
    module, model, contract = make_float32(lively(), ExportSettings(width=160, height=96), {})
    assert (contract.width, contract.height) == (160, 96)
    assert compare(module, model, contract, pictures(2), 1e-3, 0.5).rows > 100
    with pytest.raises(InputError, match="multiple of 32"):
        make_float32(lively(), ExportSettings(width=100), {})


def test_a_file_that_differs_from_torch_is_refused(
    built: tuple[Exported, onnx.ModelProto, ModelContract],
) -> None:
    module, model, contract = built
    spoiled = onnx.ModelProto.FromString(model.SerializeToString())
    weight = next(t for t in spoiled.graph.initializer if len(t.dims) == 4)
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * 1.5, weight.name))
    with pytest.raises(ExportRefused, match="differs from torch"):
        compare(module, spoiled, contract, pictures(1), 1e-3, 0.5)
    with pytest.raises(ExportRefused, match="no pictures"):
        compare(module, model, contract, [], 1e-3, 0.5)


def test_half_precision_keeps_float32_at_the_edges_and_in_resize_scales() -> None:
    # C22: Conv 3->4, Resize x2, Conv 4->2
    rng = np.random.default_rng(0)
    weights = {
        "a": rng.normal(size=(4, 3, 3, 3)).astype(np.float32),
        "b": rng.normal(size=(2, 4, 3, 3)).astype(np.float32),
        "scales": np.array([1, 1, 2, 2], np.float32),
    }
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "a"], ["c"], pads=[1] * 4),
            helper.make_node("Resize", ["c", "", "scales"], ["r"], mode="nearest"),
            helper.make_node("Conv", ["r", "b"], ["y"], pads=[1] * 4),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 64, 64])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    half = to_float16(model)
    onnx.checker.check_model(half, full_check=True)
    for value in (*half.graph.input, *half.graph.output):
        assert value.type.tensor_type.elem_type == TensorProto.FLOAT
    types = {t.name: t.data_type for t in half.graph.initializer}
    resize = next(n for n in half.graph.node if n.op_type == "Resize")
    assert types[resize.input[2]] == TensorProto.FLOAT
    assert TensorProto.FLOAT16 in types.values()
    x = rng.random((1, 3, 32, 32), np.float32)
    full, less = (
        onnxruntime.InferenceSession(m.SerializeToString()).run(None, {"x": x})[0]
        for m in (model, half)
    )
    # Sums of 27 and 36 products here reach 40; the case's 1e-2 is for values around 1.
    assert np.abs(full - less).max() <= 1e-2 * max(1.0, float(np.abs(full).std()))


def test_half_precision_of_the_network_loads_and_keeps_its_contract(
    built: tuple[Exported, onnx.ModelProto, ModelContract],
) -> None:
    _, model, contract = built
    half = to_float16(model)
    session = onnxruntime.InferenceSession(half.SerializeToString())
    assert {p.key: p.value for p in half.metadata_props}[METADATA_KEY] == contract.to_json()
    blob = np.random.default_rng(0).random((1, 3, 64, 96), np.float32)
    scores = session.run(None, {"images": blob})[1]
    exact = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"images": blob})[1]
    assert scores.dtype == np.float32
    assert np.abs(scores - exact).max() < 0.05


def test_int8_quantises_convolutions_but_not_the_head(
    built: tuple[Exported, onnx.ModelProto, ModelContract],
) -> None:
    _, model, contract = built
    small = to_int8(model, contract, pictures(3))
    assert {p.key: p.value for p in small.metadata_props}[METADATA_KEY] == contract.to_json()
    quantised = {n.output[0] for n in small.graph.node if n.op_type == "DequantizeLinear"}
    convolutions = {n.name: n for n in small.graph.node if n.op_type == "Conv"}
    last = last_layers(model)
    assert len(last) == 6
    assert all(convolutions[name].input[1] not in quantised for name in last)
    assert sum(n.input[1] in quantised for n in convolutions.values()) == len(convolutions) - 6
    scores = onnxruntime.InferenceSession(small.SerializeToString()).run(
        None, {"images": np.zeros((2, 3, 64, 96), np.float32)}
    )[1]
    assert scores.shape == (2, 126, 3)


def test_class_names_travel_inside_the_file(tmp_path: Path) -> None:
    # C23
    names = ("pallet: EU, 'A'", "人")
    _, model, _ = make_float32(
        lively(ModelSettings(names, (), width=64, height=64)), ExportSettings(), {}
    )
    save(model, tmp_path / "m.onnx")
    detector = Detector(tmp_path / "m.onnx")
    assert tuple(detector.names) == names
    stored = json.loads(
        onnxruntime.InferenceSession(tmp_path / "m.onnx")
        .get_modelmeta()
        .custom_metadata_map[METADATA_KEY]
    )
    assert stored["names"] == list(names)


def test_more_names_than_outputs_are_refused(
    built: tuple[Exported, onnx.ModelProto, ModelContract],
) -> None:
    # C23
    _, model, contract = built
    wrong = ModelContract(names=("a", "b"), width=contract.width, height=contract.height)
    with pytest.raises(InputError, match="3 classes, but 2 names"):
        embed(onnx.ModelProto.FromString(model.SerializeToString()), wrong)


def test_saving_replaces_whole_files_only(
    built: tuple[Exported, onnx.ModelProto, ModelContract], tmp_path: Path
) -> None:
    _, model, _ = built
    path = tmp_path / "m.onnx"
    path.write_bytes(b"old")
    broken = onnx.ModelProto.FromString(model.SerializeToString())
    broken.graph.node[0].input[0] = "nowhere"
    with pytest.raises(onnx.checker.ValidationError):
        save(broken, path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def build(precision: str, milliseconds: float, ap50: float) -> Build:
    return Build(precision, onnx.ModelProto(), milliseconds, {"vehicle": ap50})


@pytest.mark.parametrize(
    ("half", "int8", "kept"),
    [
        ((3.0, 0.499), (2.0, 0.480), "float16"),  # int8 loses too much
        ((3.0, 0.499), (2.0, 0.497), "int8"),
        ((5.0, 0.500), (6.0, 0.500), "float32"),  # both slower
        ((3.0, float("nan")), (2.0, float("nan")), "float32"),  # not measured never wins
        ((3.0, 0.495), (5.0, 0.5), "float32"),  # a loss of exactly the limit is too much
    ],
)
def test_the_gate_keeps_the_fastest_build_within_the_loss(
    half: tuple[float, float], int8: tuple[float, float], kept: str
) -> None:
    verdicts = choose(
        [build("float32", 4.0, 0.5), build("float16", *half), build("int8", *int8)], 0.005
    )
    assert [v.precision for v in verdicts if v.kept] == [kept]
    assert all(v.reason for v in verdicts)


def test_the_gate_refuses_a_build_that_loses_one_channel() -> None:
    base = Build("float32", onnx.ModelProto(), 4.0, {"person": 0.5, "forklift": 0.8})
    deaf = Build("int8", onnx.ModelProto(), 2.0, {"person": 0.5, "forklift": 0.0})
    assert worst_loss(base, deaf) == Loss(0.8, "forklift")
    kept, refused = choose([base, deaf], 0.005)
    assert kept.kept and not refused.kept
    assert refused.reason == "loses 0.8000 AP50 of forklift, allowed below 0.005"
    assert refused.to_plain()["ap50"] == {"person": 0.5, "forklift": 0.0}
    nothing = Build("float32", onnx.ModelProto(), 4.0, {})
    assert [v.kept for v in choose([nothing, deaf], 0.005)] == [True, False]


def labelled(label: int, open_channels: tuple[int, ...]) -> Picture:
    """A picture 96x64 with one box, whose set does not annotate some channels."""
    return Picture(
        Path("x"),
        96,
        64,
        np.array([[8, 8, 40, 40]], np.float32),
        np.array([label]),
        np.array([[0, 0, 96, 64, k, np.inf] for k in open_channels], np.float32).reshape(-1, 6),
    )


def test_a_channel_is_measured_where_it_is_labelled(
    built: tuple[Exported, onnx.ModelProto, ModelContract],
) -> None:
    _, model, contract = built
    images = pictures(2, (64, 96))
    cars, persons = labelled(0, (1,)), labelled(2, (0,))
    one = measure_build("float32", model, contract, MODEL, [cars, cars], images, runs=1)
    assert set(one.ap50) == {"vehicle"}
    both = measure_build("float32", model, contract, MODEL, [cars, persons], images, runs=1)
    assert set(both.ap50) == {"vehicle", "person"}
    # Labels here and there of a channel that the set does not annotate prove nothing.
    loose = labelled(2, (0, 1))
    assert measure_build("float32", model, contract, MODEL, [loose], images[:1], runs=1).ap50 == {}


def test_a_rare_channel_is_among_the_pictures_to_score() -> None:
    cars, person = labelled(0, ()), labelled(2, ())
    chosen = pictures_to_score([cars, person, *[cars] * 900], MODEL)
    assert person in chosen and 150 <= len(chosen) < 200


def test_validation_sets_of_any_format_are_found(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra 'data'")
    draw_set(tmp_path / "val.json", 3, MODEL.names, seed=1, size=(96, 96))
    sets = tuple(SetSettings(name) for name in ("val.json", "coco:val.json", "coco:gone.json"))
    run = RunSettings(MODEL, DataSettings(str(tmp_path), train=sets, val=sets))
    assert len(validation_pictures(run)) == len(calibration_files(run, [])) == 6


def test_multiply_accumulates_are_counted_from_the_graph(
    built: tuple[Exported, onnx.ModelProto, ModelContract],
) -> None:
    _, model, contract = built
    found = layers(model, {"images": (1, 3, 64, 96)})
    stem = found[0]
    assert stem.shape == (1, 16, 32, 48)
    assert stem.macs == 16 * 3 * 9 * 32 * 48
    weights = sum(p.numel() for p in lively().parameters())
    # Folding a batch norm trades two numbers a channel for one bias.
    assert 0.9 * weights < parameter_count(model) < 1.1 * weights


def test_a_file_that_lost_its_sparsity_is_refused() -> None:
    wide = ModelSettings(("car",), size="s", width=64, height=64)
    network = lively(wide)
    dense = make_float32(network, ExportSettings(), {})[1]
    with pytest.raises(ExportRefused, match=r"is not 2:4 sparse"):
        require_sparse(dense)
    Sparsity(network)
    assert require_sparse(make_float32(network, ExportSettings(), {})[1]) > 2


@pytest.mark.parametrize("precision", ["auto", "float16"])
def test_a_build_that_cannot_be_made_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: Precision
) -> None:
    """The converter to float16 gives up on the graphs of torchvision's detectors."""

    def fails(model: onnx.ModelProto) -> onnx.ModelProto:
        raise RuntimeError("Graph is not a DAG")

    monkeypatch.setattr("perception.export.launch.to_float16", fails)
    monkeypatch.setattr(
        "perception.export.launch.load_run", lambda run: (lively(), run_on(tmp_path))
    )
    draw_set(tmp_path / "val.json", 4, MODEL.names, seed=1, size=(96, 96))
    settings = ExportSettings(precision=precision, max_ap_loss=1.0)
    out = tmp_path / "model.onnx"
    if precision == "float16":
        with pytest.raises(ExportRefused, match="float16 cannot be made .*not a DAG; no file"):
            export_run(tmp_path, out, settings, None)
        assert not out.exists()
        return
    report = export_run(tmp_path, out, settings, None)
    by_name = {build["precision"]: build for build in report["builds"]}
    assert "not a DAG" in by_name["float16"]["reason"] and not by_name["float16"]["kept"]
    assert by_name["float16"]["milliseconds"] is None and {"float32", "int8"} < set(by_name)
    json.dumps(report, allow_nan=False)
    assert Detector(out).names == MODEL.names


def run_on(root: Path) -> RunSettings:
    val = (SetSettings("val.json", annotated=MODEL.channels),)
    return RunSettings(MODEL, DataSettings(str(root), val=val))


def test_a_detector_of_torchvision_exports_and_agrees() -> None:
    pytest.importorskip("torchvision", reason="torchvision is in the train extra")
    torch.manual_seed(0)
    network = make_network(ModelSettings(("car", "person"), size="ssdlite", width=128, height=128))
    model = cast(Any, network).model
    for layer in model.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.momentum = 1.0
    with torch.no_grad():
        # Equal scores everywhere have no order that two runtimes could agree on.
        model.head(list(model.train().backbone(torch.rand(4, 3, 128, 128)).values()))
        for name, weight in model.head.classification_head.named_parameters():
            if name.endswith("1.weight"):
                weight.normal_(std=0.01)
    module, file, contract = make_float32(network.eval(), ExportSettings(), {})
    difference = compare(module, file, contract, pictures(2), 1e-3, 0.5)
    assert difference.rows > 100


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--size", "²56x64", "expected WIDTHxHEIGHT"),
        ("--max-ap-loss", "nan", "--max-ap-loss is nan, expected above 0"),
        ("--max-ap-loss", "-1", "--max-ap-loss is -1.0, expected above 0"),
    ],
)
def test_options_that_mean_nothing_are_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, value: str, message: str
) -> None:
    assert main(["export", str(tmp_path), option, value]) == 2
    assert message in capsys.readouterr().err
