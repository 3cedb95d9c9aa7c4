"""What a model file holds, for `waysight model show`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from perception.contract import METADATA_KEY, ModelContract
from perception.errors import InputError
from perception.export.gmac import Layer, layers, parameter_count
from perception.files import write_json
from perception.runtime.session import Session
from perception.zoo import model_path


def show(model: str, runs: int, threads: int | None, json_file: Path | None) -> int:
    """Prints layers, parameters, GMAC, contract and milliseconds; returns the exit code."""
    if runs < 0:
        raise InputError(f"model show: --runs is {runs}, expected 0 or more")
    path = model_path(model)
    session = Session(path, threads=threads)
    graph = onnx.load(path)
    text = session.metadata.get(METADATA_KEY)
    contract = ModelContract.from_json(text) if text else None
    inputs = {name: _sizes(shape, contract) for name, shape in session.inputs.items()}
    found = layers(graph, inputs)
    report: dict[str, Any] = {
        "file": path.name,
        "bytes": path.stat().st_size,
        "inputs": inputs,
        "outputs": session.output_names,
        "parameters": parameter_count(graph),
        "gmac": sum(layer.macs for layer in found) / 1e9,
        "contract": None
        if contract is None
        else {
            "names": list(contract.names),
            "convention": contract.convention,
            "resize": contract.resize,
            "provenance": dict(contract.provenance),
        },
    }
    if runs:
        report["milliseconds"] = measure(session, inputs, runs)
    _print(report, found)
    if json_file is not None:
        write_json(json_file, report)
    return 0


def _sizes(shape: tuple[int | str | None, ...], contract: ModelContract | None) -> tuple[int, ...]:
    """An input's shape with a batch of one; open height and width from the contract."""
    open_sizes = [1, 3, contract.height, contract.width] if contract else [1] * len(shape)
    return tuple(
        size if isinstance(size, int) and size > 0 else open_sizes[i] if i < len(open_sizes) else 1
        for i, size in enumerate(shape)
    )


def measure(session: Session, inputs: dict[str, tuple[int, ...]], runs: int) -> dict[str, float]:
    """Network alone, in milliseconds: p50 and p90 of `runs` calls after a tenth as warm-up."""
    rng = np.random.default_rng(0)
    feeds = {name: rng.random(shape, np.float32) for name, shape in inputs.items()}
    taken = []
    for i in range(runs + max(3, runs // 10)):
        started = time.perf_counter()
        session.run(feeds)
        if i >= max(3, runs // 10):
            taken.append(1000 * (time.perf_counter() - started))
    return {
        "p50": float(np.percentile(taken, 50)),
        "p90": float(np.percentile(taken, 90)),
        "runs": runs,
    }


def _print(report: dict[str, Any], found: list[Layer]) -> None:
    console = Console()
    table = Table("layer", "kind", "output", "parameters", "MMAC", title=report["file"])
    for layer in found:
        table.add_row(
            layer.name,
            layer.kind,
            "x".join(map(str, layer.shape)),
            f"{layer.parameters:,}",
            f"{layer.macs / 1e6:.2f}",
        )
    console.print(table)
    console.print(
        f"{report['parameters']:,} parameters, {report['gmac']:.4f} GMAC "
        f"(multiply-accumulates, batch 1), "
        f"{report['bytes'] / 1e6:.2f} MB"
    )
    if report["contract"]:
        contract = report["contract"]
        console.print(
            f"classes: {', '.join(contract['names'])}; outputs: {contract['convention']}; "
            f"pictures are fitted by: {contract['resize']}",
            markup=False,
        )
    else:
        console.print("no contract inside: this is a foreign file, declare one to use it")
    if "milliseconds" in report:
        ms = report["milliseconds"]
        console.print(
            f"network alone on this machine now: p50 {ms['p50']:.2f} ms, "
            f"p90 {ms['p90']:.2f} ms ({ms['runs']} runs)"
        )
