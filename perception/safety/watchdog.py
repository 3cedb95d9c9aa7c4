"""Whether what the robot drives on is alive: ages of data, clocks, and the run to recover."""

from __future__ import annotations

from dataclasses import dataclass

from perception.errors import InputError

NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class WatchdogSettings:
    """Limits in seconds. None can be switched off.

    source_timeout: oldest picture stamp, and longest silence, that still counts as seeing.
    future_tolerance: a stamp further ahead of the clock than this is not believed; Nav2 tests
        only for old stamps, so that a camera with a wrong clock is trusted for ever.
    clock_timeout: longest standstill of the ROS clock, in real time.
    command_timeout: oldest command that still moves the robot.
    recovery_frames: healthy frames in a row before the robot may move again.
    """

    source_timeout: float = 0.5
    future_tolerance: float = 0.1
    clock_timeout: float = 0.5
    command_timeout: float = 0.5
    recovery_frames: int = 5

    def __post_init__(self) -> None:
        for field, low, high in (
            ("source_timeout", 0.02, 5.0),
            ("future_tolerance", 0.0, 1.0),
            ("clock_timeout", 0.02, 30.0),
            ("command_timeout", 0.02, 5.0),
            ("recovery_frames", 1, 1000),
        ):
            value = getattr(self, field)
            if not low <= value <= high:
                raise InputError(f"{field} is {value}, expected {low:g} to {high:g}")


@dataclass(frozen=True, slots=True)
class Times:
    """The two clocks at one moment.

    now_ns: the ROS clock, which is /clock with simulated time. steady_ns: the monotonic clock.
    simulated: with simulated time silence is measured on the ROS clock, because a simulator that
    runs slower than real time is not a silent camera; a clock that stands still is caught by
    `clock_timeout` in real time.
    """

    now_ns: int
    steady_ns: int
    simulated: bool = False

    @property
    def silence_ns(self) -> int:
        """The clock on which silence is measured."""
        return self.now_ns if self.simulated else self.steady_ns


class ClockWatch:
    """Notices a ROS clock at zero or standing still."""

    def __init__(self) -> None:
        self._now_ns: int | None = None
        self._moved_at_ns = 0

    def fault(self, times: Times, settings: WatchdogSettings) -> str:
        """The reason to stop, or an empty string."""
        if times.now_ns != self._now_ns:
            self._now_ns = times.now_ns
            self._moved_at_ns = times.steady_ns
        if times.now_ns <= 0:
            return "clock at zero"
        still = (times.steady_ns - self._moved_at_ns) / NANOSECONDS
        if still > settings.clock_timeout:
            return "clock frozen"
        return ""


class SourceWatch:
    """Judges one stream of stamped results.

    A frame that is late, repeated, from the future or flagged invalid does not count as seeing:
    the age of the last healthy frame goes on growing, and past `source_timeout` the source has
    failed. After that only a run of `recovery_frames` healthy frames brings it back.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        problems = ("invalid", "late", "repeated", "future", "contradictory")
        self.counts = dict.fromkeys(("healthy", *problems), 0)
        self._fault = ""
        self.restart()

    def restart(self) -> None:
        """Forget all frames, as at the start: the source has to prove itself again."""
        self._stamp_ns: int | None = None
        self._received_ns = 0
        self._run = 0
        self._failed = True
        self._fault = f"{self.name} never came"

    def contradict(self) -> None:
        """Two results of one picture say different things: none of them is to be believed."""
        self.counts["contradictory"] += 1
        self.restart()
        self._fault = f"{self.name} contradictory"

    def observe(self, stamp_ns: int, valid: bool, times: Times, settings: WatchdogSettings) -> bool:
        """Take note of a frame; whether it is healthy, so that its content may be used."""
        # A source that died a moment ago must not be revived by the frame that ends its silence.
        self.fault(times, settings)
        problem = self._problem(stamp_ns, valid, times, settings)
        self.counts[problem or "healthy"] += 1
        if problem == "repeated":
            return False
        if problem:
            self._run = 0
            if self._failed:
                self._fault = f"{self.name} {problem}"
            return False
        self._stamp_ns = stamp_ns
        self._received_ns = times.silence_ns
        self._run += 1
        if self._failed:
            self._failed = self._run < settings.recovery_frames
            self._fault = (
                f"{self.name} recovering, {self._run} of {settings.recovery_frames} frames"
                if self._failed
                else ""
            )
        return True

    def _problem(self, stamp_ns: int, valid: bool, times: Times, settings: WatchdogSettings) -> str:
        if not valid:
            return "invalid"
        age = (times.now_ns - stamp_ns) / NANOSECONDS
        if age > settings.source_timeout or stamp_ns <= 0:
            return "late"
        if age < -settings.future_tolerance:
            return "future"
        if self._stamp_ns is not None and stamp_ns <= self._stamp_ns:
            return "repeated"
        return ""

    def fault(self, times: Times, settings: WatchdogSettings) -> str:
        """The reason to stop, or an empty string."""
        if self._stamp_ns is None:
            return self._fault
        age = (times.now_ns - self._stamp_ns) / NANOSECONDS
        silence = (times.silence_ns - self._received_ns) / NANOSECONDS
        if age < -settings.future_tolerance:
            # The clock went back: nothing seen before can be dated any more.
            self.restart()
        elif age > settings.source_timeout or silence > settings.source_timeout:
            if not self._failed or self._run:
                self._fault = f"{self.name} stale"
            self._failed = True
            self._run = 0
        return self._fault

    def age(self, times: Times) -> float:
        """Seconds since the last healthy frame's stamp; inf when there was none."""
        if self._stamp_ns is None:
            return float("inf")
        return (times.now_ns - self._stamp_ns) / NANOSECONDS


class CommandWatch:
    """Judges velocity commands: a command has an age, and silence means stop."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self._received_ns: int | None = None
        self._stamp_ns = 0

    def outdated(self, stamp_ns: int, times: Times, settings: WatchdogSettings) -> bool:
        """Whether a later stamped command has come already, by the clock as it is now."""
        newest = times.now_ns + settings.future_tolerance * NANOSECONDS
        return 0 < stamp_ns < self._stamp_ns <= newest

    def accept(self, stamp_ns: int, times: Times, settings: WatchdogSettings) -> str:
        """Take note of a command; why it must not be obeyed, or an empty string.

        stamp_ns: 0 for a command without a stamp.
        """
        if stamp_ns:
            age = (times.now_ns - stamp_ns) / NANOSECONDS
            if age > settings.command_timeout:
                return "command late"
            if age < -settings.future_tolerance:
                return "command from the future"
        self._received_ns = times.silence_ns
        self._stamp_ns = stamp_ns
        return ""

    def fault(self, times: Times, settings: WatchdogSettings) -> str:
        """The reason to stop, or an empty string."""
        if self._received_ns is None:
            return "no command"
        silence = (times.silence_ns - self._received_ns) / NANOSECONDS
        # A stamp tells when the wish was made; how long it lay on its way counts too.
        age = (times.now_ns - self._stamp_ns) / NANOSECONDS if self._stamp_ns else silence
        if not 0 <= silence <= settings.command_timeout or age > settings.command_timeout:
            return "command stale"
        return ""
