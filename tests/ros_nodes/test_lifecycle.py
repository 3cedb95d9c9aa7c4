"""What a managed node does with its parameters."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest

pytest.importorskip("rclpy", reason="needs ROS 2")

from rclpy.exceptions import ParameterNotDeclaredException
from rclpy.parameter import Parameter

from perception.errors import InputError
from ros_nodes.lifecycle import WaysightNode
from ros_nodes.parameters import NodeParameters, parameter
from tests.ros_nodes.peer import Peer


@dataclass(frozen=True)
class LampParameters(NodeParameters):
    """One parameter of each kind."""

    brightness: float = parameter(0.5, "At once", minimum=0.0, maximum=1.0, applies="live")
    dimmest: float = parameter(0.0, "At once", minimum=0.0, maximum=1.0, applies="live")
    colour: str = parameter("red", "At configure")


class LampNode(WaysightNode[LampParameters]):
    """Writes down what it is told."""

    default_name: ClassVar[str] = "lamp"
    parameters_type: ClassVar[type[NodeParameters]] = LampParameters

    def configure(self) -> None:
        self.told: list[tuple[LampParameters, frozenset[str]]] = []

    def apply(self, new: LampParameters, changed: frozenset[str]) -> None:
        if new.brightness < new.dimmest:
            raise InputError(f"brightness {new.brightness} is below the dimmest, {new.dimmest}")
        self.__dict__.setdefault("told", []).append((new, changed))


@pytest.fixture
def lamp() -> Iterator[LampNode]:
    peer = Peer()
    node = LampNode(context=peer.context)
    node.trigger_configure()
    node.trigger_activate()
    yield node
    node.trigger_shutdown()
    node.destroy_node()
    peer.close()


def _wish(**values: object) -> list[Parameter]:
    return [Parameter(name, value=value) for name, value in values.items()]


def test_what_takes_effect_at_configure_waits_for_it(lamp: LampNode) -> None:
    assert lamp.set_parameters_atomically(_wish(colour="green", brightness=0.7)).successful
    assert lamp.get_parameter("colour").value == "green"  # the wish is known
    assert (lamp.parameters.colour, lamp.parameters.brightness) == ("red", 0.7)
    ((new, changed),) = lamp.told
    assert (new.colour, changed) == ("red", {"brightness"})
    assert lamp.set_parameters_atomically(_wish(brightness=0.8)).successful
    lamp.trigger_deactivate()
    lamp.trigger_activate()
    assert lamp.parameters.colour == "red"
    lamp.trigger_deactivate()
    lamp.trigger_cleanup()
    lamp.trigger_configure()
    assert (lamp.parameters.colour, lamp.parameters.brightness) == ("green", 0.8)


def test_node_that_is_not_configured_takes_every_value(lamp: LampNode) -> None:
    lamp.trigger_deactivate()
    lamp.trigger_cleanup()
    assert lamp.set_parameters_atomically(_wish(colour="blue")).successful
    assert lamp.parameters.colour == "blue"


def test_wish_that_is_refused_in_part_changes_nothing(lamp: LampNode) -> None:
    before = lamp.parameters
    refused = lamp.set_parameters_atomically(_wish(brightness=0.1, dimmest=0.2))
    assert "brightness 0.1 is below the dimmest, 0.2" in refused.reason
    # Refused by ROS itself, after our own check.
    assert not lamp.set_parameters_atomically(_wish(brightness=0.9, use_sim_time="yes")).successful
    with pytest.raises(ParameterNotDeclaredException):
        lamp.set_parameters_atomically(_wish(brightness=0.9, watts=40))
    assert lamp.told == []
    assert lamp.parameters == before
    assert lamp.get_parameter("brightness").value == 0.5


def test_restored_value_is_wanted_and_in_force(lamp: LampNode) -> None:
    assert lamp.set_parameters_atomically(_wish(brightness=0.9)).successful
    lamp.restore("brightness", 0.5)
    assert lamp.get_parameter("brightness").value == lamp.parameters.brightness == 0.5
    assert len(lamp.told) == 1  # a value that is put back is not applied anew
    lamp.trigger_deactivate()
    lamp.trigger_cleanup()
    lamp.trigger_configure()
    assert lamp.parameters.brightness == 0.5
