import json
import math
from datetime import datetime, timezone

import pytest

from ros_nodes.vda5050 import (
    Fault,
    Identity,
    RobotState,
    connection_message,
    same_event,
    state_message,
    timestamp,
)

SECOND = Identity("2.1.0", "uagv", "acme", "0042")
THIRD = Identity("3.0.0", "uagv", "acme", "0042")
HEADER = {"headerId", "timestamp", "version", "manufacturer", "serialNumber"}
# The fields that the public schemas of the two versions require of a state.
ORDER = {"orderId", "orderUpdateId", "lastNodeId", "lastNodeSequenceId", "nodeStates", "edgeStates"}
BOTH = HEADER | ORDER | {"driving", "actionStates", "operatingMode", "errors", "safetyState"}
REQUIRED = {
    "2.1.0": BOTH | {"batteryState"},
    "3.0.0": BOTH | {"powerSupply", "instantActionStates"},
}


def robot(**changes):
    known = {
        "position": (1.0, 2.0, 0.5),
        "velocity": (0.4, 0.0, 0.1),
        "charge": 80.0,
        "charging": False,
        "field_violation": False,
        "faults": (),
        "map_id": "hall",
    }
    return RobotState(**(known | changes))


@pytest.mark.parametrize("identity", [SECOND, THIRD])
def test_a_state_has_all_required_fields_and_is_json(identity):
    message = state_message(identity, 7, robot())
    assert set(message) >= REQUIRED[identity.version]
    json.dumps(message, allow_nan=False)
    assert message["headerId"] == 7 and message["version"] == identity.version
    assert message["velocity"] == {"vx": 0.4, "vy": 0.0, "omega": 0.1}
    assert message["driving"] is True
    assert (message["orderId"], message["nodeStates"]) == ("", [])


def test_safety_state_is_worded_as_each_version_wants():
    violated = robot(field_violation=True)
    assert state_message(SECOND, 1, violated)["safetyState"] == {
        "eStop": "AUTOACK",
        "fieldViolation": True,
    }
    assert state_message(THIRD, 1, violated)["safetyState"] == {
        "activeEmergencyStop": "NONE",
        "fieldViolation": True,
    }
    assert state_message(SECOND, 1, robot())["safetyState"]["eStop"] == "NONE"


def test_odometry_is_never_called_localised():
    assert state_message(SECOND, 1, robot())["agvPosition"]["positionInitialized"] is False
    assert state_message(THIRD, 1, robot())["mobileRobotPosition"]["localized"] is False


def test_the_heading_is_wrapped():
    theta = state_message(THIRD, 1, robot(position=(0, 0, 7.0)))["mobileRobotPosition"]["theta"]
    assert theta == pytest.approx(7.0 - 2 * math.pi)


def test_what_is_not_known_is_left_out_or_named():
    message = state_message(SECOND, 1, robot(position=None, velocity=None, charge=None))
    assert "velocity" not in message and "agvPosition" not in message
    assert message["driving"] is False
    assert message["errors"][0]["errorType"] == "batteryUnknown"
    assert "agvPosition" not in state_message(SECOND, 1, robot(map_id=""))


def test_error_levels_are_those_of_the_version():
    faults = (
        Fault("nodeError", "ERROR", "no picture", ("node", "/camera")),
        Fault("nodeWarning", "WARNING", "slow"),
    )
    second = state_message(SECOND, 1, robot(faults=faults))["errors"]
    third = state_message(THIRD, 1, robot(faults=faults))["errors"]
    assert [error["errorLevel"] for error in second] == ["FATAL", "WARNING"]
    assert [error["errorLevel"] for error in third] == ["CRITICAL", "WARNING"]
    assert second[0]["errorReferences"] == [{"referenceKey": "node", "referenceValue": "/camera"}]


def test_connection_states():
    assert connection_message(SECOND, 1, "ONLINE")["connectionState"] == "ONLINE"
    assert connection_message(SECOND, 1, "BROKEN")["connectionState"] == "CONNECTIONBROKEN"
    assert connection_message(THIRD, 1, "BROKEN")["connectionState"] == "CONNECTION_BROKEN"


def test_topics_carry_the_major_version():
    assert SECOND.topic("state") == "uagv/v2/acme/0042/state"
    assert THIRD.topic("state") == "uagv/v3/acme/0042/state"


def test_timestamps_are_utc_with_milliseconds():
    moment = datetime(2026, 3, 11, 11, 40, 3, 123456, tzinfo=timezone.utc)
    assert timestamp(moment) == "2026-03-11T11:40:03.123Z"


def test_events_are_changes_of_what_others_act_on():
    assert not same_event(None, robot())
    assert same_event(robot(), robot(velocity=(0.41, 0, 0.1), position=(9, 9, 0)))
    assert not same_event(robot(), robot(velocity=(0.0, 0, 0)))
    assert not same_event(robot(), robot(field_violation=True))
    assert not same_event(robot(), robot(faults=(Fault("a", "ERROR", "b"),)))
