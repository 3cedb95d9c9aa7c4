"""Networks: the Waysight family and torchvision's detectors behind the same interface."""

from __future__ import annotations

from torch import nn

from perception.errors import InputError
from perception.models.settings import SIZES, ModelSettings


def make_network(settings: ModelSettings) -> nn.Module:
    """The network that settings describe.

    InputError for an unknown size.
    """
    if settings.size in SIZES:
        from perception.models.network import Network

        return Network(settings)
    # torchvision is needed for its own detectors only.
    from perception.models.adapters import BUILDERS, TorchvisionDetector

    if settings.size not in BUILDERS:
        raise InputError(
            f"model.size is {settings.size!r}, expected one of {', '.join((*SIZES, *BUILDERS))}"
        )
    return TorchvisionDetector(settings)
