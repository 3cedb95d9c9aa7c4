"""Assigner, losses, optimiser, average, sparsity, device."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from perception.errors import InputError
from perception.models.network import anchor_points
from perception.models.settings import ModelSettings
from perception.train.assign import AssignSettings, assign
from perception.train.augment import AugmentSettings, Example, place
from perception.train.device import choose_device
from perception.train.loader import Batch
from perception.train.loss import DetectionLoss, LossSettings, generalised_iou
from perception.train.optimise import Average, orthogonalise, rate
from perception.train.sets import Picture
from perception.train.sparsity import Sparsity, is_24, mask_24

MODEL = ModelSettings(("car", "truck", "person"), ("car", "truck"), width=64, height=64)
ANCHORS = anchor_points(64, 64)


def batch_of(*examples: tuple[list[list[float]], list[int], list[list[float]]]) -> Batch:
    return Batch.stack(
        [
            Example(
                np.zeros((64, 64, 3), np.uint8),
                np.array(boxes, np.float32).reshape(-1, 4),
                np.array(labels, np.int64),
                np.array(regions, np.float32).reshape(-1, 6),
            )
            for boxes, labels, regions in examples
        ]
    )


def squares(images: int = 1) -> torch.Tensor:
    """A prediction of one cell around every anchor."""
    half = ANCHORS[:, 2:] / 2
    return torch.cat([ANCHORS[:, :2] - half, ANCHORS[:, :2] + half], 1).repeat(images, 1, 1)


def test_an_object_smaller_than_a_cell_still_gets_an_anchor() -> None:
    batch = batch_of(([[17.0, 17, 19, 19]], [0], []))  # between the anchors at 12 and 20
    scores = torch.full((1, len(ANCHORS), 2), 0.1)
    found = assign(squares(), scores, ANCHORS, batch, torch.tensor([0]), AssignSettings())
    assert len(found.anchor) >= 1
    without = assign(squares(), scores, ANCHORS, batch, torch.tensor([0]), AssignSettings(floor=0))
    assert len(without.anchor) == 0


def test_an_anchor_belongs_to_one_object_and_quality_is_its_overlap() -> None:
    same = [[8.0, 8, 24, 24], [8, 8, 24, 24], [10, 10, 30, 30]]
    batch = batch_of((same, [0, 0, 1], []), ([[32.0, 32, 64, 64]], [0], []))
    scores = torch.full((2, len(ANCHORS), 2), 0.1)
    found = assign(squares(2), scores, ANCHORS, batch, torch.tensor([0, 0, 0, 0]), AssignSettings())
    places = list(zip(found.image.tolist(), found.anchor.tolist(), strict=True))
    assert len(places) == len(set(places))
    assert set(found.target[found.image == 1].tolist()) == {3}
    # The stride-32 anchor at (48, 48) predicts the last object exactly.
    assert found.quality[found.target == 3].max().item() == pytest.approx(1.0, abs=1e-5)


def score_gradient(regions: list[list[float]]) -> torch.Tensor:
    """Gradient of the ranking logits on a picture without objects: (A, 2)."""
    logits = torch.zeros(1, len(ANCHORS), 4, requires_grad=True)
    loss = DetectionLoss(MODEL, LossSettings(), AssignSettings())
    loss(squares(), logits, batch_of(([], [], regions)))["total"].backward()
    assert logits.grad is not None
    return logits.grad[0, :, :2]


def test_background_is_punished_unless_a_region_forbids_it() -> None:
    assert bool((score_gradient([]) > 0).all())
    whole_person = score_gradient([[0, 0, 64, 64, 1, math.inf]])
    assert bool((whole_person[:, 0] > 0).all()) and bool((whole_person[:, 1] == 0).all())
    corner = score_gradient([[0, 0, 20, 20, 0, math.inf]])
    centre = (ANCHORS[:, 0] <= 20) & (ANCHORS[:, 1] <= 20)
    assert bool((corner[centre, 0] == 0).all()) and bool((corner[ANCHORS[:, 0] > 40, 0] > 0).all())


def test_a_cut_object_is_background_for_no_class_of_many() -> None:
    names = tuple(f"class {number}" for number in range(12))
    model = ModelSettings(names, width=64, height=64)
    picture = Picture(
        Path("a.png"),
        64,
        64,
        np.array([[10, 10, 30, 30]], np.float32),
        np.array([11]),
        np.zeros((0, 6), np.float32),
    )
    closer = replace(AugmentSettings.none(), scale=(2.4, 2.4), keep_visible=0.99)
    example = place(
        np.zeros((64, 64, 3), np.uint8), picture, 64, 64, np.random.default_rng(0), closer
    )
    assert len(example.boxes) == 0 and len(example.regions)
    logits = torch.zeros(1, len(ANCHORS), len(names), requires_grad=True)
    loss = DetectionLoss(model, LossSettings(), AssignSettings())
    loss(squares(), logits, Batch.stack([example]))["total"].backward()
    assert logits.grad is not None
    x1, y1, x2, y2 = example.regions[0, :4]
    inside = (ANCHORS[:, 0] < x2) & (ANCHORS[:, 1] < y2)
    assert bool(inside.any()) and x1 == y1 == 0
    assert bool((logits.grad[0, inside] == 0).all())
    assert bool((logits.grad[0, ANCHORS[:, 0] > x2 + 32] > 0).all())


def test_only_predictions_up_to_the_region_s_area_go_unpunished() -> None:
    gradient = score_gradient([[0, 0, 64, 64, 0, 100.0]])
    small = ANCHORS[:, 2] == 8  # 64 square pixels each; the next level has 256
    assert bool((gradient[small, 0] == 0).all()) and bool((gradient[~small, 0] > 0).all())


def test_an_object_of_unknown_kind_teaches_the_group_but_no_kind() -> None:
    logits = torch.zeros(1, len(ANCHORS), 4, requires_grad=True)
    loss = DetectionLoss(MODEL, LossSettings(), AssignSettings())
    parts = loss(squares(), logits, batch_of(([[32.0, 32, 64, 64]], [-1], [])))
    parts["total"].backward()
    assert logits.grad is not None
    assert parts["kind"].item() == 0 and bool((logits.grad[..., 2:] == 0).all())
    assert logits.grad[0, -1, 0] < 0  # the vehicle channel of the matching anchor is pulled up


def test_generalised_iou_of_known_boxes() -> None:
    a = torch.tensor([[0.0, 0, 2, 2], [0, 0, 1, 1], [0, 0, 2, 2]])
    b = torch.tensor([[0.0, 0, 2, 2], [2, 0, 3, 1], [1, 1, 3, 3]])
    expected = [1.0, -1 / 3, 1 / 7 - 2 / 9]
    assert generalised_iou(a, b).tolist() == pytest.approx(expected, abs=1e-6)


def test_orthogonalised_updates_have_singular_values_near_one() -> None:
    torch.manual_seed(0)
    for shape in ((8, 30), (30, 8)):
        values = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
        assert values.min() > 0.5 and values.max() < 1.3


def test_the_rate_is_flat_then_falls_to_the_final_share() -> None:
    assert rate(0.2, 0.5, 0.05) == 1 and rate(0.75, 0.5, 0.05) == pytest.approx(0.525)
    assert rate(1.0, 0.5, 0.05) == pytest.approx(0.05)


def test_the_average_follows_weights_and_copies_counters() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    average = Average(network, decay=0.5, tau=1e-9)
    with torch.no_grad():
        before = network[0].weight.clone()
        network[0].weight += 1
        network[1].num_batches_tracked += 7
    average.update(network)
    torch.testing.assert_close(average.model[0].weight, before + 0.5)
    assert average.model[1].num_batches_tracked == 7


def test_two_of_four_weights_stay_and_the_mask_is_kept() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(256, 256, 1), nn.Conv2d(256, 256, 3, groups=256), nn.Conv2d(16, 16, 3)
    )
    sparsity = Sparsity(network)
    assert set(sparsity.masks) == {"0"}  # depthwise and narrow layers gain nothing
    assert is_24(network[0].weight) and float((network[0].weight != 0).float().mean()) == 0.5
    with torch.no_grad():
        network[0].weight += 1
    assert not is_24(network[0].weight)
    sparsity.apply()
    assert is_24(network[0].weight)
    weight = torch.tensor([[4.0, -3, 1, 2, 0, 1, -5, 2]])[:, :, None, None]
    assert mask_24(weight)[0, :, 0, 0].tolist() == [
        True,
        True,
        False,
        False,
        False,
        False,
        True,
        True,
    ]


def test_the_cpu_says_in_one_line_what_it_lacks() -> None:
    lines: list[str] = []
    device = choose_device("cpu", "float16", True, True, True, 0, lines.append)
    assert device.device.type == "cpu" and device.autocast is torch.float32 and not device.compile
    assert len(lines) == 1 and "compile" in lines[0] and "float16" in lines[0]
    assert (
        choose_device("cpu", "float32", False, True, True, 0, lines.append).autocast
        is torch.float32
    )
    assert len(lines) == 1


@pytest.mark.parametrize(("device", "precision"), [("tpu", "float32"), ("cpu", "float8")])
def test_unknown_devices_and_precisions_are_refused(device: str, precision: str) -> None:
    with pytest.raises(InputError, match="expected"):
        choose_device(device, precision, False, True, True, 0, print)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_missing_gpu_is_an_error_when_it_was_asked_for() -> None:
    with pytest.raises(InputError, match="no CUDA device"):
        choose_device("cuda", "float32", False, True, True, 0, print)


def test_focus_brings_an_object_near_and_keeps_its_labels_exact() -> None:
    image = np.zeros((200, 300, 3), np.uint8)
    image[90:110, 200:230] = 255  # the object, 30x20 pixels
    picture = Picture(
        Path("p.png"),
        300,
        200,
        np.array([[200, 90, 230, 110]], np.float32),
        np.array([0]),
        np.zeros((0, 6), np.float32),
    )
    settings = replace(AugmentSettings.none(), focus=1.0, flip=0.5)
    shares = []
    for seed in range(50):
        made = place(image, picture, 416, 256, np.random.default_rng(seed), settings)
        x1, y1, x2, y2 = made.boxes[0]
        shares.append(max((x2 - x1) / 416, (y2 - y1) / 256))
        bright = made.image[..., 0] > 127
        rows, columns = np.flatnonzero(bright.any(axis=1)), np.flatnonzero(bright.any(axis=0))
        drawn = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
        assert np.abs(np.array(drawn) - made.boxes[0]).max() < 3
    # It fills 0.3 of the input or more, and comes five times as near as the fitted picture at most.
    assert min(shares) >= 0.29 and max(shares) == pytest.approx(5 * 20 / 200, rel=0.01)


def test_without_focus_the_generator_is_asked_for_nothing_more() -> None:
    image = np.zeros((20, 30, 3), np.uint8)
    box = np.array([[2, 2, 12, 12]], np.float32)
    picture = Picture(Path("p"), 30, 20, box, np.array([0]), np.zeros((0, 6), np.float32))
    one, two = np.random.default_rng(3), np.random.default_rng(3)
    place(image, picture, 64, 64, one, AugmentSettings())
    place(
        image,
        replace(picture, boxes=box[:0], labels=np.zeros(0, np.int64)),
        64,
        64,
        two,
        replace(AugmentSettings(), focus=1.0),
    )
    assert one.random() == two.random()
