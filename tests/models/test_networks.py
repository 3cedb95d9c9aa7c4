"""The family, its scores, and torchvision's detectors behind the same interface."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from perception.errors import InputError
from perception.models import make_network
from perception.models.network import (
    PRIOR,
    Network,
    anchor_points,
    class_scores,
    decode_boxes,
)
from perception.models.settings import SIZES, ModelSettings

ROAD = ModelSettings(("car", "truck", "person"), ("car", "truck"), width=96, height=64)


def test_outputs_have_one_row_an_anchor() -> None:
    network = Network(ROAD).eval()
    with torch.no_grad():
        boxes, logits = network(torch.rand(2, 3, 64, 96))
    anchors = 12 * 8 + 6 * 4 + 3 * 2
    assert boxes.shape == (2, anchors, 4)
    assert logits.shape == (2, anchors, 2 + 2)
    assert bool((boxes[..., 2:] > boxes[..., :2]).all())


def test_an_untrained_network_scores_the_prior() -> None:
    network = Network(ROAD).eval()
    with torch.no_grad():
        _, scores = network.predict(torch.rand(1, 3, 64, 96))
    assert scores.max(dim=2).values.mean().item() == pytest.approx(PRIOR, rel=0.2)


def test_the_likeliest_kind_scores_what_the_group_channel_says() -> None:
    torch.manual_seed(0)
    logits = torch.randn(50, 4)
    scores = class_scores(logits, ROAD)
    torch.testing.assert_close(scores[:, :2].amax(dim=1), logits[:, 0].sigmoid())
    torch.testing.assert_close(scores[:, 2], logits[:, 1].sigmoid())
    assert torch.equal(scores[:, :2].argmax(dim=1), logits[:, 2:].argmax(dim=1))


def test_scores_come_in_the_order_of_the_names() -> None:
    mixed = ModelSettings(("person", "truck", "sign", "car"), ("car", "truck"))
    assert mixed.channels == ("vehicle", "person", "sign")
    logits = torch.tensor([[0.0, 1.0, 2.0, 5.0, -5.0]])  # vehicle, person, sign, car, truck
    scores = class_scores(logits, mixed)[0]
    expected = torch.tensor([1.0, 0.0, 2.0, 0.0]).sigmoid()
    torch.testing.assert_close(scores[[0, 2, 3]], expected[[0, 2, 3]])
    assert scores[1] < 1e-3


def test_boxes_are_decoded_in_cells_around_the_anchor() -> None:
    anchors = anchor_points(32, 32)
    assert anchors[0].tolist() == [4, 4, 8] and anchors[-1].tolist() == [16, 16, 32]
    boxes = decode_boxes(torch.zeros(1, len(anchors), 4), anchors)
    assert boxes[0, 0].tolist() == [-4, -4, 12, 12]


@pytest.mark.parametrize(
    ("size", "millions"), [("n", (0.2, 0.3)), ("s", (1, 3)), ("m", (6, 12)), ("l", (14, 26))]
)
def test_the_family_grows(size: str, millions: tuple[float, float]) -> None:
    with torch.device("meta"):
        network = make_network(ModelSettings(("car",), size=size))
    count = sum(p.numel() for p in network.parameters()) / 1e6
    assert millions[0] < count < millions[1]
    assert size in SIZES


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": "x"}, "model.size is 'x', expected one of n, s, m, l"),
        ({"width": 100}, "model.width is 100, expected a multiple of 32"),
        ({"group": ("van",)}, "'van' is none of car"),
        ({"names": ()}, "model.names is empty"),
        ({"names": ("car", "car")}, "unique, found twice: car"),
        (
            {"names": ("car", "vehicle"), "group": ("car",)},
            "model.group_name is 'vehicle', which is a class outside the group",
        ),
    ],
)
def test_settings_that_describe_no_network_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make_network(ModelSettings(**{"names": ("car",), **settings}))


def test_torchvision_detectors_train_and_predict_behind_the_same_interface() -> None:
    pytest.importorskip("torchvision", reason="torchvision is in the train extra")
    from perception.models.adapters import ROWS

    torch.manual_seed(0)
    network = make_network(ModelSettings(("car", "person"), size="ssdlite", width=64, height=64))
    boxes, labels = torch.tensor([[8.0, 8, 40, 40], [5, 5, 20, 20]]), torch.tensor([0, -1])
    parts = network.train().losses(torch.rand(2, 3, 64, 64), boxes, labels, torch.tensor([0, 0]))
    assert torch.isfinite(parts["total"])
    with torch.no_grad():
        found, scores = network.eval().predict(torch.rand(2, 3, 64, 64))
    assert found.shape == (2, ROWS, 4) and scores.shape == (2, ROWS, 2)
