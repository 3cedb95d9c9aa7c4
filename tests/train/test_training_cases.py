"""One run's rules: empty pictures, exact resume, losses that are not finite, several processes."""

from __future__ import annotations

import dataclasses
import io
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from perception.cli import main
from perception.errors import InputError, WaysightError
from perception.export.build import load_run
from perception.models.network import Network
from perception.models.settings import ModelSettings
from perception.train.assign import AssignSettings
from perception.train.augment import Example
from perception.train.distributed import Processes
from perception.train.loader import Batch
from perception.train.loss import DetectionLoss, LossSettings
from perception.train.sets import SetSettings
from perception.train.settings import RunSettings, build
from perception.train.sources import load_source, load_val, remarks, val_names
from perception.train.sparsity import is_24, mask_24, sparse_layers
from perception.train.trainer import BEST, LAST, Report, Trainer
from tests.train.conftest import plain_settings

MODEL = ModelSettings(("car", "truck", "person"), ("car", "truck"), width=64, height=64)


def example(boxes: list[list[float]], labels: list[int]) -> Example:
    rng = np.random.default_rng(0)
    return Example(
        rng.integers(0, 255, (64, 64, 3), dtype=np.uint8),
        np.array(boxes, np.float32).reshape(-1, 4),
        np.array(labels, np.int64),
        np.zeros((0, 6), np.float32),
    )


def losses(examples: list[Example]) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    batch = Batch.stack(examples)
    network = Network(MODEL)
    boxes, logits = network(batch.images.float() / 255)
    parts = DetectionLoss(MODEL, LossSettings(), AssignSettings())(boxes, logits, batch)
    parts["total"].backward()
    assert all(p.grad is None or bool(torch.isfinite(p.grad).all()) for p in network.parameters())
    return parts


def trainer(settings: RunSettings, folder: Path, log: Any = None) -> Trainer:
    folder.mkdir(parents=True, exist_ok=True)
    return Trainer(
        settings, folder, load_source(settings), load_val(settings), Report(log or (lambda _: None))
    )


def test_pictures_without_boxes_train_as_background() -> None:
    # C10
    mixed = losses([example([[8, 8, 40, 40]], [0]), example([], [])])
    assert all(torch.isfinite(v) for v in mixed.values())
    assert float(mixed["giou"].detach()) > 0
    empty = losses([example([], []), example([], [])])
    assert all(torch.isfinite(v) for v in empty.values())
    assert empty["giou"].item() == empty["side"].item() == empty["kind"].item() == 0
    assert empty["score"].item() > 0
    stacked = Batch.stack([example([], []), example([], [])])
    assert (
        stacked.boxes.shape == (0, 4) and stacked.labels.shape == (0,) and len(stacked.images) == 2
    )


def test_a_resumed_run_equals_the_unbroken_one(tiny_settings: RunSettings, tmp_path: Path) -> None:
    lively = dataclasses.replace(
        tiny_settings,
        data=dataclasses.replace(
            tiny_settings.data,
            augment=dataclasses.replace(
                tiny_settings.data.augment,
                flip=0.5,
                mosaic=0.5,
                colour=0.8,
                noise=0.5,
                scale=(0.6, 1.6),
            ),
        ),
        train=dataclasses.replace(tiny_settings.train, optimiser="muon"),
    )
    whole = trainer(lively, tmp_path / "whole")
    whole.run()
    broken = trainer(
        dataclasses.replace(lively, train=dataclasses.replace(lively.train, checkpoint_every=3)),
        tmp_path / "broken",
    )
    with pytest.raises(KeyboardInterrupt):
        stop_after(broken, 4)
        broken.run()
    again = trainer(lively, tmp_path / "broken")
    again.restore(tmp_path / "broken" / LAST)
    assert again.step == 3
    again.run()
    assert again.step == whole.step
    for mine, theirs in (
        (again.network, whole.network),
        (again.average.model, whole.average.model),
    ):
        for key, value in theirs.state_dict().items():
            assert torch.allclose(
                mine.state_dict()[key].double(), value.double(), rtol=0, atol=1e-6
            ), key


def test_a_resumed_run_knows_the_best_score_so_far(
    tiny_settings: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = dataclasses.replace(
        tiny_settings,
        train=dataclasses.replace(tiny_settings.train, evaluate_every=2, checkpoint_every=2),
    )
    scores = iter([0.5, 0.3, 0.2])
    monkeypatch.setattr(
        "perception.train.trainer.validate", lambda *a, **k: {"vehicle/mean": next(scores)}
    )
    first = trainer(settings, tmp_path)
    stop_after(first, 3)
    with pytest.raises(KeyboardInterrupt):
        first.run()
    again = trainer(settings, tmp_path)
    again.restore(tmp_path / LAST)
    again.run()
    assert again.best == 0.5
    assert torch.load(tmp_path / BEST, weights_only=True)["step"] == 2


def test_a_run_does_not_go_on_with_another_optimiser(
    tiny_settings: RunSettings, tmp_path: Path
) -> None:
    trainer(tiny_settings, tmp_path).save(LAST)
    other = dataclasses.replace(
        tiny_settings, train=dataclasses.replace(tiny_settings.train, optimiser="sgd")
    )
    with pytest.raises(InputError, match="train.optimiser was adamw, found sgd"):
        trainer(other, tmp_path).restore(tmp_path / LAST)


def test_random_numbers_of_a_step_do_not_depend_on_the_steps_before(
    tiny_settings: RunSettings, tmp_path: Path
) -> None:
    """torchvision's detectors sample anchors with torch's generator, in every process its own."""
    run = trainer(tiny_settings, tmp_path)
    drawn = []
    for used in (0, 5):
        torch.rand(used)
        run.step = 3
        run._seed_step()
        drawn.append(torch.rand(4))
    assert torch.equal(drawn[0], drawn[1])


def test_the_clock_of_a_long_run_still_moves(tiny_settings: RunSettings, tmp_path: Path) -> None:
    run = trainer(tiny_settings, tmp_path)
    run.elapsed = 1e6  # eleven days: neighbouring float32 numbers are 0.06 s apart
    for _ in range(100):
        run._mark = time.monotonic() - 0.02
        run._exchange()
    assert run.elapsed - 1e6 > 1.9


def spoil(name: str, value: Any) -> Callable[[dict[str, Any]], bytes]:
    def written(state: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        torch.save({**state, name: value}, out)
        return out.getvalue()

    return written


@pytest.mark.parametrize(
    "content",
    [
        lambda state: b"",
        lambda state: b"garbage",
        spoil("settings", "{"),
        spoil("settings", "[]"),
        spoil("settings", 5),
        spoil("average", [1]),
    ],
    ids=["empty", "no archive", "not JSON", "a list", "a number", "weights in a list"],
)
@pytest.mark.parametrize("command", ["train --resume", "export"])
def test_what_is_no_checkpoint_gives_one_sentence(
    tiny_settings: RunSettings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: Callable[[dict[str, Any]], bytes],
    command: str,
) -> None:
    state = trainer(tiny_settings, tmp_path).state()
    (tmp_path / LAST).write_bytes(content(state))
    assert main([*command.split(), str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path / LAST) in line


def test_a_checkpoint_without_what_a_run_needs_to_go_on_is_refused(
    tiny_settings: RunSettings, tmp_path: Path
) -> None:
    state = trainer(tiny_settings, tmp_path).state()
    del state["step"]
    torch.save(state, tmp_path / LAST)
    with pytest.raises(InputError, match="step is missing or of another kind"):
        trainer(tiny_settings, tmp_path / "again").restore(tmp_path / LAST)


def test_every_process_needs_a_picture_of_each_batch(
    tiny_settings: RunSettings, tmp_path: Path
) -> None:
    small = dataclasses.replace(
        tiny_settings, train=dataclasses.replace(tiny_settings.train, batch=1)
    )
    source, val = load_source(small), load_val(small)
    with pytest.raises(InputError, match="batch is 1, expected .* each of the 2 processes"):
        Trainer(small, tmp_path, source, val, processes=Processes(0, 2))


def sparse_settings(settings: RunSettings, **train: Any) -> RunSettings:
    return dataclasses.replace(
        settings,
        model=dataclasses.replace(settings.model, size="s"),
        train=dataclasses.replace(settings.train, steps=2, batch=2, **train),
    )


def all_24(network: torch.nn.Module) -> bool:
    return all(is_24(layer.weight) for layer in sparse_layers(network).values())


def test_a_sparse_run_gives_sparse_averaged_weights(
    tiny_settings: RunSettings, tmp_path: Path
) -> None:
    dense = trainer(sparse_settings(tiny_settings), tmp_path / "dense")
    dense.run()
    assert not all_24(dense.average.model)
    sparse = sparse_settings(tiny_settings, sparse=True, ema_decay=0.9, ema_tau=1.0)
    fresh = trainer(sparse, tmp_path / "fresh")
    fresh.run()
    started = trainer(sparse, tmp_path / "started")
    started.start_from(tmp_path / "dense" / LAST)
    resumed = trainer(
        dataclasses.replace(sparse, train=dataclasses.replace(sparse.train, steps=3)),
        tmp_path / "resumed",
    )
    resumed.restore(tmp_path / "dense" / LAST)
    assert resumed.sparsity is not None
    for name, layer in sparse_layers(dense.network).items():
        assert torch.equal(resumed.sparsity.masks[name], mask_24(layer.weight)), name
    for run in (started, resumed):
        run.run()
    for run in (fresh, started, resumed):
        assert all_24(run.network) and all_24(run.average.model)
    load_run(tmp_path / "fresh")


def test_a_network_without_wide_layers_is_not_called_sparse(
    tiny_settings: RunSettings, tmp_path: Path
) -> None:
    sparse = dataclasses.replace(
        tiny_settings, train=dataclasses.replace(tiny_settings.train, sparse=True)
    )
    with pytest.raises(InputError, match="model.size n has no convolution of 256 channels"):
        trainer(sparse, tmp_path)


def stop_after(run: Trainer, steps: int) -> None:
    update = run._update

    def interrupted(batch: Batch) -> dict[str, float]:
        if run.step == steps:
            raise KeyboardInterrupt
        return update(batch)

    run._update = interrupted  # type: ignore[method-assign]


def test_weights_of_other_classes_lend_all_but_the_class_scores(
    tiny_settings: RunSettings, tmp_path: Path
) -> None:
    first = trainer(tiny_settings, tmp_path / "first")
    first.save(LAST)
    names = (*tiny_settings.model.names, "tram")
    model = dataclasses.replace(tiny_settings.model, names=names)
    told: list[str] = []
    second = trainer(
        dataclasses.replace(tiny_settings, model=model), tmp_path / "second", told.append
    )
    second.start_from(tmp_path / "first" / LAST)
    given, taken = first.average.model.state_dict(), second.average.model.state_dict()
    assert all(
        torch.equal(value, taken[key])
        for key, value in given.items()
        if not key.startswith("head.score.")
    )
    assert any("class scores start fresh" in line for line in told)
    # As many classes, but others: the shapes agree, the meanings do not.
    renamed = dataclasses.replace(tiny_settings.model, names=("person", "car", "truck"))
    third = trainer(
        dataclasses.replace(tiny_settings, model=renamed), tmp_path / "third", told.append
    )
    fresh = third.network.state_dict()["head.score.0.weight"].clone()
    third.start_from(tmp_path / "first" / LAST)
    assert torch.equal(third.network.state_dict()["head.score.0.weight"], fresh)


def test_a_loss_that_is_not_finite_is_skipped_and_counted(
    tiny_settings: RunSettings, tmp_path: Path
) -> None:
    # C15
    lines: list[str] = []
    settings = dataclasses.replace(
        tiny_settings, train=dataclasses.replace(tiny_settings.train, steps=8, evaluate_every=2)
    )
    run = trainer(settings, tmp_path, lines.append)
    poison(run, {3})
    run.run()
    assert run.skipped == 1
    assert any("1 steps skipped" in line for line in lines)
    for name in (LAST, BEST):
        if (tmp_path / name).exists():
            state = torch.load(tmp_path / name, weights_only=True)
            assert all(bool(torch.isfinite(v).all()) for v in state["network"].values())
            assert all(bool(torch.isfinite(v).all()) for v in state["average"].values())


def test_pixels_that_are_not_finite_do_not_spoil_batch_statistics(
    tiny_settings: RunSettings, tmp_path: Path
) -> None:
    # C15: the forward pass has moved the running means before the loss is known.
    run = trainer(tiny_settings, tmp_path)
    losses = run._losses

    def spoiled(batch: Batch) -> dict[str, torch.Tensor]:
        if run.step == 3:
            pixels = torch.full(batch.images.shape, math.nan)
            batch = dataclasses.replace(batch, images=pixels)
        return losses(batch)

    run._losses = spoiled  # type: ignore[method-assign]
    run.run()
    assert run.skipped == 1
    state = torch.load(tmp_path / LAST, weights_only=True)
    for weights in (state["network"], state["average"]):
        assert all(bool(torch.isfinite(value).all()) for value in weights.values())


def test_too_many_bad_steps_stop_the_run(tiny_settings: RunSettings, tmp_path: Path) -> None:
    # C15
    settings = dataclasses.replace(
        tiny_settings, train=dataclasses.replace(tiny_settings.train, steps=20, bad_steps=3)
    )
    run = trainer(settings, tmp_path)
    poison(run, set(range(4, 20)))
    with pytest.raises(WaysightError, match=r"step 7: .* 3 steps in a row"):
        run.run()


def poison(run: Trainer, steps: set[int]) -> None:
    """Makes the loss NaN at these steps."""
    loss = run.loss

    def spoiled(boxes: torch.Tensor, logits: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        parts = loss(boxes, logits, batch)
        return {k: v * float("nan") for k, v in parts.items()} if run.step in steps else parts

    run.loss = spoiled  # type: ignore[assignment]


def test_a_nan_score_never_becomes_the_best(
    tiny_settings: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # C15
    run = trainer(tiny_settings, tmp_path)
    scores = iter([0.2, math.nan, 0.1])
    monkeypatch.setattr(
        "perception.train.trainer.validate", lambda *a, **k: {"vehicle/mean": next(scores)}
    )
    for step in (1, 2, 3):
        run.step = step
        run.evaluate()
    assert run.best == 0.2
    assert torch.load(tmp_path / BEST, weights_only=True)["step"] == 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # The vehicles got better and the persons lost.
        ({"vehicle/mean": 0.6, "person/mean": 0.6}, {"vehicle/mean": 0.7, "person/mean": 0.2}),
        # No set labels vehicles.
        ({"person/mean": 0.6}, {"person/mean": 0.5}),
        ({"vehicle/mean": math.nan, "person/mean": 0.6}, {"vehicle/mean": math.nan}),
    ],
)
def test_the_best_weights_are_those_of_the_best_mean_of_measured_channels(
    tiny_settings: RunSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: dict[str, float],
    second: dict[str, float],
) -> None:
    run = trainer(tiny_settings, tmp_path)
    scores = iter([first, second])
    monkeypatch.setattr("perception.train.trainer.validate", lambda *a, **k: next(scores))
    for step in (1, 2):
        run.step = step
        run.evaluate()
    assert (run.best, run.stale) == (0.6, 1)
    assert torch.load(tmp_path / BEST, weights_only=True)["step"] == 1


def test_the_best_score_of_another_figure_is_not_compared_with(
    tiny_settings: RunSettings, tmp_path: Path
) -> None:
    run = trainer(tiny_settings, tmp_path)
    run.best = 0.9
    run.save(LAST)
    again = trainer(tiny_settings, tmp_path)
    again.restore(tmp_path / LAST)
    assert again.best == 0.9
    state = torch.load(tmp_path / LAST, weights_only=True)
    del state["best_of"]  # as in checkpoints that knew the first channel only
    torch.save(state, tmp_path / LAST)
    again.restore(tmp_path / LAST)
    assert again.best == -1.0


def test_a_new_run_does_not_mix_with_the_checkpoints_of_another(
    tiny_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "run.yaml", tmp_path / "run"
    file.write_text(yaml.safe_dump(plain_settings(tiny_root, steps=1)))
    out.mkdir()
    (out / BEST).write_bytes(b"another run's")
    for extra in ([], ["--fast"]):
        assert main(["train", str(file), "--out", str(out), *extra]) == 2
        assert "best.pt: holds the checkpoint of another run" in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == [BEST]
    assert (out / BEST).read_bytes() == b"another run's"


def test_pictures_in_training_and_validation_and_lost_labels_are_told(tiny_root: Path) -> None:
    plain = plain_settings(tiny_root)
    plain["data"]["val"][0]["annotations"] = "train.json"
    settings = build(RunSettings, plain, "test")
    source, val = load_source(settings), load_val(settings)
    source.pictures[0] = dataclasses.replace(source.pictures[0], lost=3)
    assert remarks(source, val) == [
        "3 labels with less than a pixel inside their picture are left out",
        f"{val[0].name}: 16 of 16 pictures are trained on too",
    ]
    assert remarks(load_source(settings), []) == []


def test_scores_of_sets_in_one_folder_are_kept_apart() -> None:
    sets = [SetSettings("a/train.json"), SetSettings("b/x.json"), SetSettings("b/y.json")]
    assert val_names(sets) == ["a", "b/x.json", "b/y.json"]
    assert val_names([SetSettings("c/annotations/instances_val.json")]) == ["c"]
    halves = [SetSettings("yolo:b", split="one"), SetSettings("yolo:b", split="two")]
    assert val_names(halves) == ["yolo:b one", "yolo:b two"]


def test_weights_that_are_not_finite_are_never_saved(
    tiny_settings: RunSettings, tmp_path: Path
) -> None:
    run = trainer(tiny_settings, tmp_path)
    with torch.no_grad():
        next(run.network.parameters()).fill_(float("nan"))
    with pytest.raises(WaysightError, match="not finite"):
        run.save(LAST)
    assert not (tmp_path / LAST).exists()


def test_early_stopping_ends_the_run(
    tiny_settings: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perception.train.trainer.validate", lambda *a, **k: {"vehicle/mean": 0.5})
    settings = dataclasses.replace(
        tiny_settings,
        train=dataclasses.replace(tiny_settings.train, steps=50, evaluate_every=1, patience=2),
    )
    run = trainer(settings, tmp_path)
    run.run()
    assert run.step == 3


WORKER = """
import sys
from pathlib import Path
import torch
from perception.train.launch import train
torch.set_default_dtype(torch.float64)
from perception.train.settings import read_settings
train(read_settings(Path(sys.argv[1])), Path(sys.argv[2]))
"""


@pytest.fixture
def double() -> Iterator[None]:
    """Everything in float64: rounding in float32 is amplified by batch norm over a few pixels and
    by the assigner's choices, and differs by processor."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def test_two_processes_equal_one_with_the_same_global_batch(
    tiny_root: Path, tmp_path: Path, double: None
) -> None:
    # With SGD: Adam divides by the gradient's own size and turns the rounding noise of parameters
    # without effect (a bias before another batch norm) into full steps.
    plain = plain_settings(tiny_root, steps=3, warmup=1, optimiser="sgd", rate=0.01)
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(plain))
    settings = build(RunSettings, plain, "test")
    one = trainer(settings, tmp_path / "one")
    start = {key: value.clone() for key, value in one.network.state_dict().items()}
    one.run()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(file), str(tmp_path / "two")],
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                **address,
                "OMP_NUM_THREADS": "1",
                "WORLD_SIZE": "2",
                "RANK": str(rank),
            },
        )
        for rank in range(2)
    ]
    for worker in workers:
        _, errors = worker.communicate(timeout=240)
        assert worker.returncode == 0, errors[-2000:]
    two = torch.load(tmp_path / "two" / LAST, weights_only=True)
    assert two["step"] == 3 and two["views"] == one.views == 12
    moved = [
        float((value - start[key]).abs().max()) for key, value in one.network.state_dict().items()
    ]
    assert max(moved) > 1e-3
    for key, value in one.network.state_dict().items():
        assert torch.allclose(value.double(), two["network"][key].double(), rtol=0, atol=1e-5), key
