"""Networks: the Waysight family and torchvision's detectors behind the same interface."""

from __future__ import annotations

from torch import nn

from perception.errors import InputError
from perception.models.settings import SIZES, ModelSettings


def make_network(settings: ModelSettings) -> nn.Module:
    """The network that settings describe.

    InputError for no classes, an unknown size, a size that is no multiple of 32, or a group that
    names a class the model does not have.
    """
    if not settings.names:
        raise InputError("model.names is empty, expected at least one class")
    for name, value in (("width", settings.width), ("height", settings.height)):
        if value < 32 or value % 32:
            raise InputError(f"model.{name} is {value}, expected a multiple of 32")
    for member in settings.group:
        if member not in settings.names:
            raise InputError(f"model.group: {member!r} is none of {', '.join(settings.names)}")
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
