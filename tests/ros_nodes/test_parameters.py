"""Parameter dataclasses: what they accept, refuse and say."""

from dataclasses import dataclass

import pytest

from perception.errors import InputError
from ros_nodes.parameters import NodeParameters, build, describe, parameter


@dataclass(frozen=True)
class Example(NodeParameters):
    score_threshold: float = parameter(0.5, "score", minimum=0.0, maximum=1.0)
    limit: float | None = parameter(None, "limit", minimum=0.0, unit="m")
    camera_id: str = parameter("", "serial number")
    count: int = parameter(1, "count", minimum=1)
    loop: bool = parameter(False, "loop")
    kind: str = parameter("raw", "kind", choices=("raw", "both"))
    classes: tuple[str, ...] = parameter((), "classes")
    offsets: tuple[float, ...] = parameter((), "offsets", minimum=-1.0)


def test_defaults_hold_where_nothing_is_given() -> None:
    assert build(Example, {}) == Example()


@pytest.mark.parametrize(
    ("name", "given", "taken"),
    [
        ("score_threshold", 1, 1.0),  # C58: an integer where a number is meant
        ("camera_id", "0042", "0042"),
        ("camera_id", 42, "42"),
        ("limit", None, None),
        ("classes", "car, truck", ("car", "truck")),
        ("classes", ["car"], ("car",)),
        ("offsets", [1, 0.5], (1.0, 0.5)),
    ],
)
def test_value_arrives_in_its_own_type(name: str, given: object, taken: object) -> None:
    value = getattr(build(Example, {name: given}), name)
    assert value == taken
    assert type(value) is type(taken)


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("score_threshold", "high", "number from 0.0 to 1.0"),
        ("score_threshold", 1.5, "number from 0.0 to 1.0"),
        ("score_threshold", float("nan"), "number from 0.0 to 1.0"),
        ("score_threshold", True, "number from 0.0 to 1.0"),
        ("score_threshold", None, "number from 0.0 to 1.0"),
        ("limit", -1.0, r"number of at least 0.0 \(m\)"),
        ("count", 0, "integer of at least 1"),
        ("count", 1.0, "integer of at least 1"),
        ("loop", 1, "true or false"),
        ("kind", "jpeg", "one of 'raw', 'both'"),
        ("camera_id", 1.5, "string"),
        ("classes", 3, "list of strings"),
        ("offsets", [0.0, -2.0], "list of numbers of at least -1.0"),
    ],
)
def test_refusal_names_parameter_value_and_what_is_allowed(
    name: str, given: object, expected: str
) -> None:
    with pytest.raises(InputError, match=rf"'{name}': got .*, expected {expected}"):
        build(Example, {name: given})


def test_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(InputError, match="'score_treshold'; did you mean 'score_threshold'"):
        build(Example, {"score_treshold": 0.5})


def test_every_parameter_is_described_and_its_default_is_allowed() -> None:
    from ros_nodes.parameters import check

    for info in describe(Example).values():
        assert info.description
        assert check(info, info.default) == info.default
