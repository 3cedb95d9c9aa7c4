"""The rules of the watchdog, on clocks that the tests move by hand."""

import math

import pytest

from perception.errors import InputError
from perception.safety.watchdog import (
    ClockWatch,
    CommandWatch,
    SourceWatch,
    Times,
    WatchdogSettings,
)

SETTINGS = WatchdogSettings(recovery_frames=3)
START = 1_000.0
MS = 1_000_000


def at(seconds, simulated=False, steady=None):
    """Both clocks; the steady one has another zero point."""
    steady_s = seconds - START + 7.0 if steady is None else steady
    return Times(round(seconds * 1e9), round(steady_s * 1e9), simulated)


def see(source, seconds, valid=True, late=0.0, simulated=False):
    stamp = round((seconds - late) * 1e9)
    return source.observe(stamp, valid, at(seconds, simulated), SETTINGS)


def healthy_source(until=START):
    source = SourceWatch("detections")
    for step in range(5, -1, -1):
        see(source, until - step * 0.05)
    assert source.fault(at(until), SETTINGS) == ""
    return source


def test_detections_that_never_came_stop():
    assert SourceWatch("detections").fault(at(START), SETTINGS) == "detections never came"


def test_the_start_needs_a_run_of_healthy_frames():
    source = SourceWatch("detections")
    faults = []
    for step in range(3):
        see(source, START + step * 0.05)
        faults.append(source.fault(at(START + step * 0.05), SETTINGS))
    assert faults == [
        "detections recovering, 1 of 3 frames",
        "detections recovering, 2 of 3 frames",
        "",
    ]


def test_silence_is_noticed_at_the_timeout():
    source = healthy_source()
    assert source.fault(at(START + 0.5), SETTINGS) == ""
    assert source.fault(at(START + 0.501), SETTINGS) == "detections stale"


def test_a_source_that_fell_silent_needs_a_run_to_come_back():
    source = healthy_source()
    # No one asked while it was silent: the first frame after the gap must not hide the gap.
    assert see(source, START + 2.0)
    assert source.fault(at(START + 2.0), SETTINGS) == "detections recovering, 1 of 3 frames"
    see(source, START + 2.05)
    see(source, START + 2.1)
    assert source.fault(at(START + 2.1), SETTINGS) == ""


def test_a_gap_during_recovery_starts_the_run_again():
    source = SourceWatch("detections")
    see(source, START)
    see(source, START + 0.05)
    assert source.fault(at(START + 1.0), SETTINGS) == "detections stale"
    see(source, START + 1.0)
    assert source.fault(at(START + 1.0), SETTINGS) == "detections recovering, 1 of 3 frames"


def test_old_pictures_that_keep_coming_are_stale():
    source = healthy_source()
    for step in range(1, 20):
        assert not see(source, START + step * 0.05, late=0.6)
    assert source.fault(at(START + 0.95), SETTINGS) == "detections late"
    assert source.counts["late"] == 19


def test_stamps_from_the_future_are_not_believed():
    source = healthy_source()
    for step in range(1, 20):
        assert not see(source, START + step * 0.05, late=-0.5)
    assert source.fault(at(START + 0.95), SETTINGS) == "detections future"


def test_a_stamp_within_the_tolerance_is_believed():
    assert see(healthy_source(), START + 0.05, late=-0.1)


def test_a_stamp_of_zero_is_not_a_time():
    source = SourceWatch("detections")
    assert not source.observe(0, True, at(0.3), SETTINGS)


def test_invalid_results_do_not_count_as_seeing():
    source = healthy_source()
    for step in range(1, 20):
        assert not see(source, START + step * 0.05, valid=False)
    assert source.fault(at(START + 0.95), SETTINGS) == "detections invalid"


def test_one_invalid_result_among_good_ones_does_not_stop():
    source = healthy_source()
    see(source, START + 0.05, valid=False)
    see(source, START + 0.1)
    assert source.fault(at(START + 0.1), SETTINGS) == ""


def test_an_invalid_result_breaks_the_run_of_recovery():
    source = SourceWatch("detections")
    see(source, START)
    see(source, START + 0.05)
    see(source, START + 0.1, valid=False)
    see(source, START + 0.15)
    assert source.fault(at(START + 0.15), SETTINGS) == "detections recovering, 1 of 3 frames"


def test_a_camera_that_repeats_its_stamp_is_stale():
    source = healthy_source()
    stamp = round(START * 1e9)
    for step in range(1, 20):
        assert not source.observe(stamp, True, at(START + step * 0.02), SETTINGS)
    assert source.fault(at(START + 0.55), SETTINGS) == "detections stale"


def test_two_swapped_frames_do_not_reset():
    source = healthy_source()
    see(source, START + 0.1)
    assert not source.observe(round((START + 0.05) * 1e9), True, at(START + 0.11), SETTINGS)
    assert source.fault(at(START + 0.11), SETTINGS) == ""


def test_a_clock_that_jumps_back_starts_over():
    source = healthy_source()
    back = at(START - 5, steady=7.05)
    assert source.fault(back, SETTINGS) == "detections never came"
    for step in range(3):
        assert see(source, START - 4.9 + step * 0.05)
    assert source.fault(at(START - 4.8), SETTINGS) == ""


def test_with_real_time_silence_is_measured_on_the_steady_clock():
    # The wall clock was set back by a step that hides the silence.
    source = healthy_source()
    assert source.fault(at(START + 0.05, steady=7.6), SETTINGS) == "detections stale"


def test_with_simulated_time_a_slow_simulator_is_not_silent():
    source = SourceWatch("detections")
    for step in range(4):
        see(source, START + step * 0.05, simulated=True)
    slow = at(START + 0.2, simulated=True, steady=60.0)
    assert source.fault(slow, SETTINGS) == ""
    assert source.fault(at(START + 0.7, simulated=True), SETTINGS) == "detections stale"


def test_age_is_that_of_the_last_healthy_stamp():
    assert math.isinf(SourceWatch("detections").age(at(START)))
    assert healthy_source().age(at(START + 0.25)) == pytest.approx(0.25)


def test_a_clock_at_zero_stops():
    clock = ClockWatch()
    assert clock.fault(at(0.0, simulated=True), SETTINGS) == "clock at zero"
    assert clock.fault(at(1.0, simulated=True), SETTINGS) == ""


def test_a_frozen_clock_is_noticed_in_real_time():
    clock = ClockWatch()
    assert clock.fault(at(5.0, steady=10.0), SETTINGS) == ""
    assert clock.fault(at(5.0, steady=10.5), SETTINGS) == ""
    assert clock.fault(at(5.0, steady=10.6), SETTINGS) == "clock frozen"
    assert clock.fault(at(5.1, steady=10.7), SETTINGS) == ""


def test_commands_have_an_age():
    commands = CommandWatch()
    assert commands.fault(at(START), SETTINGS) == "no command"
    assert commands.accept(0, at(START), SETTINGS) == ""
    assert commands.fault(at(START + 0.5), SETTINGS) == ""
    assert commands.fault(at(START + 0.501), SETTINGS) == "command stale"
    assert commands.fault(at(START - 1), SETTINGS) == "command stale"
    commands.restart()
    assert commands.fault(at(START), SETTINGS) == "no command"


def test_stamped_commands_must_be_of_now():
    commands = CommandWatch()
    stamp = round(START * 1e9)
    assert commands.accept(stamp, at(START + 0.4), SETTINGS) == ""
    assert commands.accept(stamp, at(START + 0.6), SETTINGS) == "command late"
    assert commands.accept(stamp, at(START - 0.2), SETTINGS) == "command from the future"


def test_the_age_of_a_command_counts_from_its_stamp():
    commands = CommandWatch()
    assert commands.accept(round(START * 1e9), at(START + 0.4), SETTINGS) == ""
    assert commands.fault(at(START + 0.5), SETTINGS) == ""
    assert commands.fault(at(START + 0.51), SETTINGS) == "command stale"


def test_a_command_that_was_overtaken_is_told_from_a_new_one():
    commands = CommandWatch()
    stamp = round(START * 1e9)
    commands.accept(stamp, at(START), SETTINGS)
    assert commands.outdated(stamp - 1, at(START), SETTINGS)
    assert not commands.outdated(stamp, at(START), SETTINGS)
    assert not commands.outdated(0, at(START), SETTINGS)
    # After a clock that went back, earlier stamps are new.
    assert not commands.outdated(stamp - 5_000_000_000, at(START - 4.9), SETTINGS)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("source_timeout", 0.0),  # 0 switches Nav2's watchdog off
        ("source_timeout", math.nan),
        ("source_timeout", math.inf),
        ("command_timeout", -1.0),
        ("clock_timeout", 0.0),
        ("future_tolerance", 100.0),
        ("recovery_frames", 0),
    ],
)
def test_no_limit_can_be_switched_off(field, value):
    with pytest.raises(InputError, match=field):
        WatchdogSettings(**{field: value})
