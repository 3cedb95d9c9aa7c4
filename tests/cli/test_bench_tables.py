"""The tables of `waysight bench` show numbers with their units."""

import json

import numpy as np
import pytest

from perception.cli import bench, main
from tests.onnx_models import fixed_outputs

pytest.importorskip("onnxruntime", reason="needs ONNX Runtime: pip install waysight[cpu]")


def test_a_model_is_shown_with_its_percentiles(tmp_path, monkeypatch, capsys):
    pytest.importorskip("rclpy", reason="needs ROS 2: pip install waysight[ros]")
    monkeypatch.setenv("COLUMNS", "140")
    out = tmp_path / "out.json"
    command = ["bench", "model", "road-n", "--seconds", "0.2", "--threads", "1"]
    assert main([*command, "--json", str(out)]) == 0
    latency = json.loads(out.read_text())["models"][0]["latency_ms"]
    shown = capsys.readouterr().out
    assert "p50 / p90 / p99 ms" in shown
    assert " / ".join(str(latency[key]) for key in ("p50", "p90", "p99")) in shown
    assert "{" not in shown


def test_a_foreign_model_is_timed_by_a_declaration_that_lies_elsewhere(tmp_path):
    pytest.importorskip("rclpy", reason="needs ROS 2: pip install waysight[ros]")
    folder = tmp_path / "models"
    folder.mkdir()
    outputs = {"output0": np.zeros((1, 6, 5))}
    model = fixed_outputs(folder / "foreign.onnx", None, outputs)
    declared = tmp_path / "foreign.contract.yaml"
    declared.write_text("names: [a, b]\nwidth: 64\nheight: 48\nconvention: yolov8\n")
    command = ["bench", "model", str(model), "--contract", str(declared), "--size", "64x48"]
    out = tmp_path / "out.json"
    assert main([*command, "--seconds", "0.1", "--json", str(out)]) == 0
    assert json.loads(out.read_text())["models"][0]["session_fps"] > 0


def test_a_node_is_shown_without_mappings(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "140")
    bench._show(
        {
            "rate": 30.0,
            "latency_ms": {"p50": 5.0, "p90": 6.0, "p99": 7.0, "max": 9.5},
            "work_ms": {},
            "cpu_percent": {"camera": 10.0, "detector": 49.0},
            "memory_growth_mb": {"camera": 0.1},
            "node_fps": 201.5,
            "per_camera": [{"sent": 1}],
        }
    )
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "│ latency: p50 / p90 / p99 / max │ 5.0 / 6.0 / 7.0 / 9.5 ms │" in lines
    assert "│ cpu: camera / detector │ 10.0 / 49.0 % of a core │" in lines
    assert "│ memory growth: camera │ 0.1 MB │" in lines
    assert "│ node │ 201.5 fps │" in lines
    assert "│ work │ - │" in lines


def test_a_graph_is_shown_rate_by_rate(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "140")
    latency = {"p50": 5.0, "p90": 6.0, "p99": 7.0, "max": 9.5}
    fixed = [{"rate": 30.0, "sent": 300, "processed": 299, "latency_ms": latency}]
    bench._show({"size": "640x480", "fixed": fixed})
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "│ 30 │ 300 │ 299 │ 5.0 / 6.0 / 7.0 / 9.5 │" in lines
