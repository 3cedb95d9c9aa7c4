"""Training settings: frozen dataclasses, read from YAML with dotted overrides."""

from __future__ import annotations

import dataclasses
import itertools
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from perception.errors import InputError
from perception.files import read_yaml
from perception.labels import nearest
from perception.models.settings import ModelSettings
from perception.train import ranges
from perception.train.assign import AssignSettings
from perception.train.augment import AugmentSettings
from perception.train.loss import LossSettings
from perception.train.sets import SetSettings

#: A step's random numbers start from seed, step and process together, in 64 bits.
MOST_SEED = 2**32 - 1


@dataclass(frozen=True)
class TeacherSettings:
    """A detector that fills missing labels (`perception.train.teacher`).

    model: ONNX file; empty means no teacher. contract: declaration of a foreign file, relative to
        the YAML file. classes: its class name -> one of ours; others are not used.
    """

    model: str = ""
    contract: str = ""
    classes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DataSettings:
    """Where the pictures are.

    root: folder the sets' paths are relative to; a relative root is relative to the YAML file.
    cache: folder of decoded pictures. longest: their longer side in pixels.
    rare_power: a picture is drawn more often by (commonest / its rarest class) ** rare_power.
    large_boost: how much more often a picture with an object over 5 % of its area is drawn.
    threads: loader threads.
    """

    root: str = "."
    train: tuple[SetSettings, ...] = ()
    val: tuple[SetSettings, ...] = ()
    cache: str = "cache"
    longest: int = 640
    rare_power: float = 0.3
    large_boost: float = 1.5
    threads: int = 1
    teacher: TeacherSettings = TeacherSettings()
    augment: AugmentSettings = AugmentSettings()

    def __post_init__(self) -> None:
        ranges.at_least(self, 1, "longest", "threads")
        ranges.at_least(self, 0, "rare_power")
        ranges.above_zero(self, "large_boost")


@dataclass(frozen=True)
class Phase:
    """A stretch of the run at one input size. `until`: share of the run at which it ends."""

    until: float
    width: int
    height: int
    batch: int = 16
    mosaic: float = 0.3

    def __post_init__(self) -> None:
        ranges.shares(self, "until", "mosaic")
        ranges.above_zero(self, "until")
        ranges.input_sides(self, "width", "height")
        ranges.at_least(self, 1, "batch")


@dataclass(frozen=True)
class TrainSettings:
    """The run.

    steps: optimiser steps. minutes: when above 0, progress is the wall-clock share of this budget
        instead (it counts across restarts) and `steps` only bounds it.
    evaluate_every: steps between evaluations; a checkpoint is written with each of them and every
        `checkpoint_every` steps.
    patience: evaluations without improvement (of the mean of all ranking channels that a validation
        set labels) after which the run stops; 0 never.
    bad_steps: steps in a row with a loss that is not finite after which the run stops.
    ema_decay, ema_tau: see `optimise.Average`.
    optimiser: "adamw", "muon" (for dense convolutions, AdamW for the rest) or "sgd".
    device: "auto", "cpu" or "cuda". precision: "float32", "bfloat16" or "float16". compile,
        channels_last, tf32: used where the device has them.
    sync_norm: batch statistics of the global batch when several processes train; without it each
        normalises its own share, which exchanges less.
    sparse: prune wide convolutions to 2:4 structured sparsity at the start and keep the mask
        (start from trained weights).
    torch_threads: threads of torch in each process; 0 leaves its default.
    """

    steps: int = 10000
    minutes: float = 0.0
    seed: int = 0
    optimiser: str = "adamw"
    rate: float = 2e-3
    warmup: int = 300
    flat: float = 0.45
    final_rate: float = 0.05
    weight_decay: float = 0.05
    clip: float = 10.0
    ema_decay: float = 0.999
    ema_tau: float = 300.0
    phases: tuple[Phase, ...] = ()
    batch: int = 16
    evaluate_every: int = 500
    checkpoint_every: int = 200
    patience: int = 0
    bad_steps: int = 10
    log_every: int = 50
    device: str = "auto"
    precision: str = "float32"
    compile: bool = False
    channels_last: bool = True
    tf32: bool = True
    sync_norm: bool = True
    sparse: bool = False
    torch_threads: int = 0
    tensorboard: bool = True

    def __post_init__(self) -> None:
        ranges.at_least(self, 1, "steps", "batch", "bad_steps")
        ranges.at_least(self, 1, "evaluate_every", "checkpoint_every", "log_every")
        ranges.at_least(self, 0, "minutes", "seed", "warmup", "weight_decay", "patience")
        ranges.at_least(self, 0, "torch_threads")
        ranges.above_zero(self, "rate", "clip", "ema_tau")
        ranges.shares(self, "flat", "final_rate", "ema_decay")
        if self.seed > MOST_SEED:
            raise InputError(f"seed is {self.seed}, expected at most {MOST_SEED}")
        ends = [phase.until for phase in self.phases]
        if any(later <= end for end, later in itertools.pairwise(ends)):
            raise InputError(f"phases end at {ends}, expected each later than the one before")


@dataclass(frozen=True)
class RunSettings:
    """Everything `waysight train` reads."""

    model: ModelSettings
    data: DataSettings = DataSettings()
    train: TrainSettings = TrainSettings()
    loss: LossSettings = LossSettings()
    assign: AssignSettings = AssignSettings()


def read_settings(file: Path, overrides: Sequence[str] = ()) -> RunSettings:
    """Settings of a YAML file with `a.b=value` overrides.

    InputError names an unknown key with its nearest match, or a value of the wrong type or range.
    """
    data = read_yaml(file)
    override(data, overrides)
    sets = data.setdefault("data", {})
    if isinstance(sets, dict):
        _resolve_paths(sets, file.parent)
    return build(RunSettings, data, str(file))


def _resolve_paths(data: dict[str, Any], folder: Path) -> None:
    """Makes the paths of `data` that are relative to the settings file absolute, in place."""
    root = Path(str(data.get("root", "."))).expanduser()
    data["root"] = str(root if root.is_absolute() else (folder / root).resolve())
    teacher = data.get("teacher")
    if isinstance(teacher, dict) and teacher.get("contract"):
        teacher["contract"] = str((folder / str(teacher["contract"])).resolve())


def override(data: dict[str, Any], overrides: Sequence[str]) -> None:
    """Applies `a.b=value` to plain settings, in place; values are read as YAML."""
    for text in overrides:
        path, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"override {text!r}: expected key=value, such as train.steps=100")
        try:
            parsed = yaml.safe_load(value)
        except yaml.YAMLError:
            raise InputError(f"override {text!r}: the value is not valid YAML") from None
        _set(data, path.split("."), parsed, text)


def _set(data: Any, keys: list[str], value: Any, override: str) -> None:
    for i, key in enumerate(keys):
        if isinstance(data, list):
            if not key.isdecimal() or int(key) >= len(data):
                raise InputError(
                    f"override {override!r}: {'.'.join(keys[: i + 1])} is not in the list"
                )
            at: Any = int(key)
        elif isinstance(data, dict):
            at = key
        else:
            raise InputError(f"override {override!r}: {'.'.join(keys[:i])} holds no keys")
        if i == len(keys) - 1:
            data[at] = value
        else:
            data = data[at] if isinstance(data, list) else data.setdefault(at, {})


T = typing.TypeVar("T")


def build(kind: type[T], data: Any, where: str) -> T:
    """A frozen dataclass from plain YAML data, recursively; `where` starts error messages."""
    if not isinstance(data, Mapping):
        raise InputError(f"{where}: expected keys and values, found {data!r}")
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(kind)
    values = {}
    for key, value in data.items():
        if key not in fields:
            raise InputError(f"{where}: unknown key {key!r}{nearest(str(key), list(fields))}")
        values[key] = _value(hints[key], value, f"{where}: {key}")
    missing = [
        name
        for name, f in fields.items()
        if name not in values
        and f.default is dataclasses.MISSING
        and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise InputError(f"{where}: key {missing[0]!r} is missing")
    try:
        return kind(**values)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _value(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return build(typing.cast(type, hint), value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise InputError(f"{where}: expected a list, found {value!r}")
        inner = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
        if len(inner) != len(value):
            raise InputError(f"{where}: expected {len(inner)} values, found {value!r}")
        return tuple(
            _value(h, v, f"{where}[{i}]") for i, (h, v) in enumerate(zip(inner, value, strict=True))
        )
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise InputError(f"{where}: expected keys and values, found {value!r}")
        return types.MappingProxyType(
            {str(k): _value(arguments[1], v, f"{where}.{k}") for k, v in value.items()}
        )
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is float and isinstance(value, str):
        # YAML 1.1 reads 2e-3 as text.
        try:
            return float(value)
        except ValueError:
            pass
    if not isinstance(value, hint) or (hint is not bool and isinstance(value, bool)):
        raise InputError(f"{where}: expected {hint.__name__}, found {value!r}")
    return value


def to_plain(settings: Any) -> Any:
    """Settings as dicts, lists and scalars, for YAML and checkpoints."""
    if dataclasses.is_dataclass(settings):
        return {f.name: to_plain(getattr(settings, f.name)) for f in dataclasses.fields(settings)}
    if isinstance(settings, Mapping):
        return {key: to_plain(value) for key, value in settings.items()}
    if isinstance(settings, tuple | list):
        return [to_plain(value) for value in settings]
    return settings
