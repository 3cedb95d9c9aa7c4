from pathlib import Path

import pytest

from perception.datasets import open_dataset
from perception.errors import InputError
from tests.datasets.made import coco

torch = pytest.importorskip("torch")

from perception.datasets.torch_adapter import TorchDataset, collate  # noqa: E402


def test_pictures_and_targets_in_torchvision_form(tmp_path: Path) -> None:
    dataset = open_dataset(f"coco:{coco(tmp_path, [[(2, 1, 2, 10, 20)], []])}")
    loader = torch.utils.data.DataLoader(TorchDataset(dataset), batch_size=2, collate_fn=collate)
    images, targets = next(iter(loader))
    assert images[0].shape == (3, 48, 64) and images[0].dtype == torch.uint8
    assert images[0][:, 5, 5].tolist() == dataset.pixels(dataset[0])[5, 5, ::-1].tolist()
    assert targets[0]["boxes"].tolist() == [[1, 2, 11, 22]]
    assert targets[0]["labels"].tolist() == [1] and targets[0]["area"].tolist() == [200]
    assert targets[1]["boxes"].shape == (0, 4) and targets[1]["labels"].shape == (0,)


def test_a_box_without_height_is_refused_by_file_and_line(tmp_path: Path) -> None:
    dataset = open_dataset(f"coco:{coco(tmp_path, [[(1, 290, 220, 6, 0), (1, 10, 10, 20, 20)]])}")
    with pytest.raises(InputError, match=r"instances_train\.json:\d+: box"):
        TorchDataset(dataset)[0]
    _, target = TorchDataset(dataset, skip_degenerate=True)[0]
    assert target["boxes"].tolist() == [[10, 10, 30, 30]]
