"""2:4 structured sparsity: of four weights in a row, two are zero (Ampere sparse tensor cores)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

#: TensorRT gains from sparsity only in wide layers.
NARROWEST = 256


def prunable(inputs: int, outputs: int) -> bool:
    """Whether a dense convolution can be grouped by four and is wide enough to gain."""
    return inputs % 4 == 0 and max(inputs, outputs) >= NARROWEST


def sparse_layers(network: nn.Module) -> dict[str, nn.Conv2d]:
    """The convolutions that are pruned."""
    return {
        name: module
        for name, module in network.named_modules()
        if isinstance(module, nn.Conv2d)
        and module.groups == 1
        and prunable(module.in_channels, module.out_channels)
    }


def mask_24(weight: Tensor) -> Tensor:
    """bool mask that keeps the two largest of every four weights along the input channels.

    weight (O, I, k, k): I is the dimension sparse tensor cores compress (NHWC order).
    """
    rows = weight.detach().permute(0, 2, 3, 1).reshape(-1, 4)
    keep = torch.zeros_like(rows, dtype=torch.bool)
    keep.scatter_(1, rows.abs().topk(2, dim=1).indices, True)
    o, i, h, w = weight.shape
    return keep.reshape(o, h, w, i).permute(0, 3, 1, 2).contiguous()


def is_24(weight: Tensor) -> bool:
    """Whether at most two of every four weights along the input channels are not zero."""
    rows = weight.detach().permute(0, 2, 3, 1).reshape(-1, 4)
    return bool(((rows != 0).sum(dim=1) <= 2).all())


class Sparsity:
    """Masks chosen once from the weights and kept through training."""

    def __init__(self, network: nn.Module) -> None:
        self._layers = sparse_layers(network)
        self.masks = {name: mask_24(layer.weight) for name, layer in self._layers.items()}
        self.apply()

    def take(self, masks: Mapping[str, Tensor]) -> None:
        """Masks of an earlier run of the same network."""
        self.masks = {
            name: masks[name].to(layer.weight.device) for name, layer in self._layers.items()
        }
        self.apply()

    def apply(self) -> None:
        """Zeroes what is masked; called after every update."""
        self._prune(self._layers)

    def apply_to(self, network: nn.Module) -> None:
        """Zeroes what is masked in a network of the same shape."""
        self._prune(sparse_layers(network))

    @torch.no_grad()
    def _prune(self, layers: Mapping[str, nn.Conv2d]) -> None:
        for name, layer in layers.items():
            layer.weight.mul_(self.masks[name])
