"""What the hardware offers, and what of the asked settings it can do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import nn

from perception.errors import InputError

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class Device:
    """Where training runs and in which arithmetic.

    autocast: type of the forward pass; float32 means none. scaled: whether gradients need
    loss scaling (float16 only).
    """

    device: torch.device
    autocast: torch.dtype = torch.float32
    compile: bool = False
    channels_last: bool = True

    @property
    def scaled(self) -> bool:
        """Whether small gradients would vanish without loss scaling."""
        return self.autocast is torch.float16

    @property
    def pinned(self) -> bool:
        """Whether page-locked memory makes copies to the device asynchronous."""
        return self.device.type == "cuda"

    def arithmetic(self) -> AbstractContextManager[object]:
        """Context of the forward pass."""
        if self.autocast is torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, self.autocast)

    def place(self, network: nn.Module) -> nn.Module:
        """The network on the device, in the memory format that is fast there."""
        network = network.to(self.device)
        return network.to(memory_format=torch.channels_last) if self.channels_last else network


def choose_device(
    name: str,
    precision: str,
    compile: bool,
    channels_last: bool,
    tf32: bool,
    rank: int,
    log: Callable[[str], None],
) -> Device:
    """The device that `name` asks for ("auto", "cpu", "cuda"); says in one line what it lacks.

    InputError when a named device is not there or the precision is unknown.
    """
    if precision not in PRECISIONS:
        raise InputError(
            f"train.precision is {precision!r}, expected one of {', '.join(PRECISIONS)}"
        )
    if name not in ("auto", "cpu", "cuda"):
        raise InputError(f"train.device is {name!r}, expected auto, cpu or cuda")
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise InputError("train.device is cuda, but torch finds no CUDA device here")
    autocast = PRECISIONS[precision]
    if available and name != "cpu":
        torch.cuda.set_device(rank % torch.cuda.device_count())
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32
        return Device(
            torch.device("cuda", torch.cuda.current_device()), autocast, compile, channels_last
        )
    missing = [
        word
        for asked, word in ((compile, "compile"), (autocast is torch.float16, "float16"))
        if asked
    ]
    if autocast is torch.bfloat16 and not torch.backends.cpu.get_cpu_capability().startswith(
        "AVX512"
    ):
        missing.append("bfloat16")
    kept = torch.float32 if {"float16", "bfloat16"} & set(missing) else autocast
    if missing:
        log(
            f"on this CPU without: {', '.join(missing)}; "
            f"training in {str(kept).removeprefix('torch.')}"
        )
    return Device(torch.device("cpu"), kept, False, channels_last)
