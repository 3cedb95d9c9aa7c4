"""Settings of a network: what fixes its weights' shapes and the meaning of its outputs."""

from __future__ import annotations

from dataclasses import dataclass

from perception.errors import InputError
from perception.labels import LabelSet

#: Width of the five stages, blocks of the last three, neck width, activation. One set of blocks
#: for the whole family; n is the CPU network measured at 0.09 GMAC for 416x256.
SIZES: dict[str, tuple[tuple[int, int, int, int, int], tuple[int, int, int], int, str]] = {
    "n": ((16, 32, 48, 64, 128), (2, 3, 2), 32, "relu"),
    "s": ((32, 64, 96, 160, 320), (2, 4, 3), 96, "silu"),
    "m": ((48, 96, 192, 320, 640), (3, 5, 4), 160, "silu"),
    "l": ((64, 128, 256, 512, 896), (3, 6, 5), 224, "silu"),
}


@dataclass(frozen=True)
class ModelSettings:
    """The network and its classes.

    names: class names in output order.
    group: names that share one ranking channel ("some vehicle") and are told apart by a second,
        softmax head. Empty: every class has its own channel.
    group_name: what a label of the whole group, kind unknown, is called in label maps.
    width, height: network input in pixels, multiples of 32.
    InputError for names that are none or not unique, a group of other names, or another size.
    """

    names: tuple[str, ...]
    group: tuple[str, ...] = ()
    group_name: str = "vehicle"
    size: str = "n"
    width: int = 416
    height: int = 256

    def __post_init__(self) -> None:
        if not self.names:
            raise InputError("model.names is empty, expected at least one class")
        LabelSet(self.names)
        for member in self.group:
            if member not in self.names:
                raise InputError(f"model.group: {member!r} is none of {', '.join(self.names)}")
        LabelSet(self.group)
        if self.group and self.group_name in set(self.names) - set(self.group):
            raise InputError(
                f"model.group_name is {self.group_name!r}, which is a class outside the group, "
                "expected a name of its own"
            )
        for name in ("width", "height"):
            side = getattr(self, name)
            if side < 32 or side % 32:
                raise InputError(f"model.{name} is {side}, expected a multiple of 32")

    @property
    def channels(self) -> tuple[str, ...]:
        """Ranking channels in output order: the group first, then every class outside it."""
        alone = tuple(name for name in self.names if name not in self.group)
        return ((self.group_name,) if self.group else ()) + alone
