"""The base of every Waysight node: parameters, lifecycle, self-start and orderly shutdown."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

import rclpy
from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)
from rclpy.exceptions import InvalidHandle
from rclpy.executors import ExternalShutdownException
from rclpy.experimental.events_executor import EventsExecutor
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter
from rclpy.task import Future
from rclpy.utilities import remove_ros_args

from perception.errors import InputError
from perception.files import write_json
from ros_nodes import topics
from ros_nodes.diagnostics import Diagnostics, Status
from ros_nodes.graph import DDS_PROFILE, DDS_VARIABLE, run_folder
from ros_nodes.handover import Handover
from ros_nodes.parameters import NodeParameters, ParameterInfo, build, check, describe, unknown
from ros_nodes.ros_arguments import init, refused_in_a_sentence

P = TypeVar("P", bound=NodeParameters)

EXIT_OK, EXIT_FAILED, EXIT_BAD_INPUT = 0, 1, 2

# M_MMAP_THRESHOLD, M_TRIM_THRESHOLD and M_TOP_PAD of <malloc.h>, in bytes.
_MALLOC = ((-3, 128 << 20), (-1, 256 << 20), (-2, 16 << 20))

LAST_SECONDS = 0.3
"""How long the last diagnostics may take to be acknowledged."""
SPIN_SECONDS = 1.0
"""EventsExecutor.spin() without a time limit never runs a callback in rclpy 9.1.2's wheel (it
polls with its lock held, and every other call then waits for ever); with a limit it works."""


class WaysightNode(LifecycleNode, Generic[P]):
    """A managed node whose parameters are a frozen dataclass.

    Subclasses set `default_name` and `parameters_type` and override the hooks below. A hook that
    raises leaves the node where the same transition can be asked for again: `configure` in
    unconfigured, `activate` in inactive; the others fall back to unconfigured. Whatever
    `configure` may have left half-made must be undone by `cleanup`, which is called then.
    """

    default_name: ClassVar[str]
    parameters_type: ClassVar[type[NodeParameters]]

    def __init__(self, handover: Handover | None = None, **options: Any) -> None:
        """`options` go to rclpy's Node. Raises InputError for a bad parameter value."""
        self._describing: dict[str, ParameterInfo] = {}  # empty until our own are declared
        self.handover = handover or Handover()
        self.failure: BaseException | None = None
        self.finished: int | None = None
        self.starting = False
        self.stop_requested = threading.Event()
        self._diagnostics: Diagnostics | None = None
        super().__init__(self.default_name, **options)
        self.parameters: P = self._declare()
        """The values in force; the node's ROS parameters hold those that are wanted."""
        self._wanted = self.parameters
        # Last of all, so that nobody refuses what is applied already; the public way to add one
        # puts it first.
        self._on_set_parameters_callbacks.append(self._take_over)

    # Hooks -----------------------------------------------------------------------------------

    def configure(self) -> None:
        """Load and check everything that can fail."""

    def activate(self) -> None:
        """Begin to work: subscribe, start timers and threads."""

    def deactivate(self) -> None:
        """Stop working; the opposite of `activate`."""

    def cleanup(self) -> None:
        """The opposite of `configure`; also called when `configure` failed half-way."""

    def last_words(self) -> None:
        """Publish what the world must hear before the process ends; the context is still open."""

    def apply(self, new: P, changed: frozenset[str]) -> None:
        """Take over live parameters. Raise InputError to refuse; the old values then stay.

        new: the values in force from now on. Of a configured node only live ones are among
        `changed`; the others wait for the next `configure`, which finds them in `parameters`.
        """

    def diagnostic_values(self) -> Mapping[str, Any]:
        """Key and value pairs shown in /diagnostics."""
        return {}

    def judge(self) -> Iterable[Status]:
        """Present conditions as (level, sentence)."""
        return ()

    # For subclasses --------------------------------------------------------------------------

    def finish(self, code: int = EXIT_OK) -> None:
        """Ask the process to end with an exit code; from any thread."""
        self.finished = code
        self.stop_requested.set()

    def fail(self, error: InputError) -> None:
        """Ask the process to end with this sentence and EXIT_BAD_INPUT; from any thread."""
        self.failure = error
        self.finish(EXIT_BAD_INPUT)

    def diagnose_now(self) -> None:
        """Publish diagnostics without waiting for the period."""
        if self._diagnostics:
            self._diagnostics.publish()

    def last_diagnostics(self) -> None:
        """Leave the final counters on /diagnostics."""
        if self._diagnostics:
            self._diagnostics.publish()
            self._diagnostics.wait(LAST_SECONDS)

    def leave_counts(self) -> None:
        """Write the whole numbers of the diagnostics into the run's folder, for `waysight run`."""
        folder = run_folder()
        if folder and self._diagnostics:
            name = self.get_fully_qualified_name()
            # Exactly int: a bool is no count.
            counts = {k: v for k, v in self.diagnostic_values().items() if type(v) is int}
            file = folder / f"{name.strip('/').replace('/', '.')}.counts.json"
            write_json(file, {"node": name, "counts": counts})

    def restore(self, name: str, value: Any) -> None:
        """Put a parameter back that was accepted and then failed; `apply` is not called."""
        self.parameters = replace(self.parameters, **{name: value})
        self._wanted = replace(self._wanted, **{name: value})
        super().set_parameters_atomically([_as_ros(self._describing[name], value)])

    def compressed_topic(self, image: str) -> str:
        """Full name of the compressed form of an image topic.

        It goes where the image topic is remapped to, unless it is remapped itself.
        """
        name = topics.compressed(image)
        resolved = self.resolve_topic_name(name)
        if resolved != self.resolve_topic_name(name, only_expand=True):
            return resolved
        return topics.compressed(self.resolve_topic_name(image))

    def _all_values(self) -> dict[str, Any]:
        """The node's own values, and whom it is connected to: what to ask when nothing comes."""
        values = dict(self.diagnostic_values())
        with suppress(InvalidHandle):  # another thread gives one back meanwhile
            for subscription in tuple(self.subscriptions):
                count = subscription.get_publisher_count()
                values[f"publishers of {subscription.topic_name}"] = count
            for publisher in tuple(self.publishers):
                if publisher.topic_name != "/parameter_events":
                    count = publisher.get_subscription_count()
                    values[f"subscribers of {publisher.topic_name}"] = count
        return values

    # Lifecycle -------------------------------------------------------------------------------

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Call `configure`; on failure tidy up and stay unconfigured."""
        self.parameters = self._wanted
        try:
            self.configure()
        except Exception as error:
            self._record("configure", error)
            self._tidy()
            return TransitionCallbackReturn.FAILURE
        self._diagnostics = Diagnostics(
            self, self.parameters.diagnostics_period, self._all_values, self.judge
        )
        return super().on_configure(state)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Call `activate`; on failure undo it and stay inactive."""
        # Managed publishers drop messages until they are activated, so they come first.
        result = super().on_activate(state)
        try:
            self.activate()
        except Exception as error:
            self._record("activate", error)
            self._attempt(self.deactivate)
            super().on_deactivate(state)
            return TransitionCallbackReturn.FAILURE
        return result

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Call `deactivate`."""
        try:
            self.deactivate()
        except Exception as error:
            self._record("deactivate", error)
            return TransitionCallbackReturn.ERROR
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Call `cleanup`."""
        try:
            self._close_diagnostics()
            self.cleanup()
        except Exception as error:
            self._record("cleanup", error)
            return TransitionCallbackReturn.ERROR
        return super().on_cleanup(state)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Undo whatever state the node is in."""
        if state.label == "active":
            self._attempt(self.deactivate)
        self._tidy()
        return super().on_shutdown(state)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Fall back to unconfigured, from where `configure` works again."""
        self._attempt(self.deactivate)
        self._tidy()
        return TransitionCallbackReturn.SUCCESS

    def _tidy(self) -> None:
        self._close_diagnostics()
        self._attempt(self.cleanup)

    def _close_diagnostics(self) -> None:
        if self._diagnostics:
            self._diagnostics.close()
            self._diagnostics = None

    def _attempt(self, hook: Callable[[], None]) -> None:
        try:
            hook()
        except Exception as error:
            self._record(hook.__name__, error)

    def _record(self, step: str, error: Exception) -> None:
        """Keep the first failure, log a user's mistake as a sentence and a bug with its trace."""
        self.failure = self.failure or error
        if isinstance(error, InputError) and self.starting:
            return  # `run` ends the process with this sentence
        detail = str(error) if isinstance(error, InputError) else traceback.format_exc()
        self.get_logger().error(f"{step} failed: {detail}")

    # Parameters ------------------------------------------------------------------------------

    def _declare(self) -> P:
        known = describe(self.parameters_type)
        values = {}
        for info in known.values():
            # Dynamic typing lets the value through whatever its looks; `check` decides.
            loose = ParameterDescriptor(description=info.description, dynamic_typing=True)
            default = list(info.default) if info.many else info.default
            given = self.declare_parameter(info.name, default, loose).value
            values[info.name] = check(info, given)
        parameters: P = build(self.parameters_type, values)  # type: ignore[assignment]
        # rclpy takes "not set" as a wish to undeclare, so unset parameters stay as declared.
        typed = [_as_ros(info, values[n]) for n, info in known.items() if values[n] is not None]
        super().set_parameters(typed)
        for info in known.values():
            self.set_descriptor(info.name, _descriptor(info))
        self._describing = known
        return parameters

    def refuse_unknown(self) -> None:
        """Raise InputError for a parameter given at start that the whole node does not take.

        Called once the node is made: subclasses may declare more than `parameters_type` holds.
        """
        for name in self._parameter_overrides:
            # ROS declares its own, save these, which it looks up for each publisher.
            if not (self.has_parameter(name) or name.startswith("qos_overrides.")):
                raise InputError(f"node '{self.get_name()}': {unknown(name, self._parameters)}")

    def set_parameters_atomically(
        self, parameter_list: list[Parameter[Any]]
    ) -> SetParametersResult:
        """Check first, so that a refused value names what was expected."""
        try:
            checked = [self._checked(parameter) for parameter in parameter_list]
        except InputError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return super().set_parameters_atomically(checked)

    def set_parameters(self, parameter_list: list[Parameter[Any]]) -> list[SetParametersResult]:
        """As `set_parameters_atomically`, one parameter at a time."""
        return [self.set_parameters_atomically([p]) for p in parameter_list]

    def _checked(self, parameter: Parameter[Any]) -> Parameter[Any]:
        """One of our own in its own type; others as they are."""
        info = self._describing.get(parameter.name)
        if info is None:
            return parameter
        if info.applies == "start":
            raise InputError(f"parameter '{info.name}' can only be given at start")
        if parameter.value is None:
            raise InputError(f"parameter '{info.name}' cannot be unset, expected {info.allowed}")
        return _as_ros(info, check(info, parameter.value))

    def _take_over(self, parameters: Sequence[Parameter[Any]]) -> SetParametersResult:
        """Put what takes effect at once in force, and keep the rest for `configure`."""
        known = self._describing
        given = {p.name: check(known[p.name], p.value) for p in parameters if p.name in known}
        # Before `configure` there is nothing that an early value could disturb.
        configured = self._diagnostics is not None
        now = {n: v for n, v in given.items() if known[n].applies == "live" or not configured}
        changed = frozenset(n for n, v in now.items() if v != getattr(self.parameters, n))
        try:
            wanted = replace(self._wanted, **given)
            new = replace(self.parameters, **now)
            if changed:
                self.apply(new, changed)
        except InputError as error:
            return SetParametersResult(successful=False, reason=str(error))
        self._wanted, self.parameters = wanted, new
        return SetParametersResult(successful=True)


def _as_ros(info: ParameterInfo, value: Any) -> Parameter[Any]:
    single = {
        bool: Parameter.Type.BOOL,
        int: Parameter.Type.INTEGER,
        float: Parameter.Type.DOUBLE,
        str: Parameter.Type.STRING,
    }
    several = {
        bool: Parameter.Type.BOOL_ARRAY,
        int: Parameter.Type.INTEGER_ARRAY,
        float: Parameter.Type.DOUBLE_ARRAY,
        str: Parameter.Type.STRING_ARRAY,
    }
    if info.many:
        return Parameter(info.name, several[info.kind], list(value))
    return Parameter(info.name, single[info.kind], value)


def _descriptor(info: ParameterInfo) -> ParameterDescriptor:
    words = {"live": "at once", "configure": "at the next configure", "start": "at start only"}
    descriptor = ParameterDescriptor(
        description=info.description,
        additional_constraints=f"{info.allowed}; takes effect {words[info.applies]}",
        read_only=info.applies == "start",
        dynamic_typing=True,
    )
    if info.minimum is None and info.maximum is None:
        return descriptor
    if info.kind is int:
        low = -(2**62) if info.minimum is None else int(info.minimum)
        high = 2**62 if info.maximum is None else int(info.maximum)
        descriptor.integer_range = [IntegerRange(from_value=low, to_value=high)]
    else:
        least = -1e308 if info.minimum is None else float(info.minimum)
        most = 1e308 if info.maximum is None else float(info.maximum)
        descriptor.floating_point_range = [FloatingPointRange(from_value=least, to_value=most)]
    return descriptor


NodeFactory = Callable[[Handover], WaysightNode[Any]]


def run(factories: Sequence[NodeFactory], argv: Sequence[str] | None = None) -> int:
    """Run nodes in one process until SIGINT, SIGTERM or `finish`; returns the exit code.

    The executor spins in a thread of its own and the main thread waits for signals, because a
    Python signal handler only runs when the main thread does, and rclpy's own handlers would
    close the context before the nodes have said their last words (rclpy#532).
    """
    # For a node that is run alone; `waysight run` and the launch files set it for their children.
    os.environ.setdefault(DDS_VARIABLE, str(DDS_PROFILE))
    if argv is None and not _takes(sys.argv):
        return EXIT_BAD_INPUT
    _keep_freed_memory()
    stop = threading.Event()
    received: list[int] = []

    def on_signal(number: int, _frame: object) -> None:
        received.append(number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    nodes: list[WaysightNode[Any]] = []
    try:
        init(argv)
        return _run(factories, nodes, stop)
    except InputError as error:
        print(f"waysight: error: {error}", file=sys.stderr, flush=True)
        return EXIT_BAD_INPUT
    finally:
        # What is frozen is never freed, not at the end of the process either: the middleware's
        # participant would leave its shared memory (70 MB) behind in /dev/shm.
        gc.unfreeze()
        for node in reversed(nodes):
            node.destroy_node()
        rclpy.try_shutdown()


def _takes(words: Sequence[str]) -> bool:
    """Whether the command line holds ROS arguments alone; says so where it does not.

    rcl passes over all that stands before --ros-args: a remapping there would do nothing.
    """
    try:
        others = remove_ros_args(list(words))[1:]
    except RuntimeError:
        return True  # `init` says what is wrong with them
    if others:
        print(
            f"waysight: error: argument '{others[0]}' is not taken, expected --ros-args before it, "
            "as in --ros-args -r image_raw:=/front/image_raw -p score_threshold:=0.4; parameters "
            "are in docs/parameters.md",
            file=sys.stderr,
        )
    return not others


def _keep_freed_memory() -> None:
    """Let glibc reuse the memory of pictures instead of giving it back after each.

    A block above 128 KiB is a mapping of its own by default, and the kernel clears its pages anew
    for every picture: 3 core-milliseconds a 640x480 picture (docs/performance.md).
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc; other C libraries do without
        for option, value in _MALLOC:
            libc.mallopt(option, value)


def _run(
    factories: Sequence[NodeFactory], nodes: list[WaysightNode[Any]], stop: threading.Event
) -> int:
    handover = Handover()
    executor = EventsExecutor()
    for factory in factories:
        with refused_in_a_sentence():
            node = factory(handover)
        node.stop_requested = stop
        nodes.append(node)
        node.refuse_unknown()
        executor.add_node(node)
    for node in nodes:
        if node.parameters.autostart and not stop.is_set():
            _start(node)
    # Modules and models stay to the end: looking through them again and again for garbage took
    # 6 % of the detector's samples under py-spy, and holds up a picture each time.
    gc.collect()
    gc.freeze()
    crashed: list[BaseException] = []
    done: Future[None] = Future()

    def spin() -> None:
        try:
            while not done.done():
                executor.spin_until_future_complete(done, timeout_sec=SPIN_SECONDS)
        except ExternalShutdownException:
            pass
        except BaseException as error:
            crashed.append(error)
            traceback.print_exc()
        finally:
            stop.set()

    thread = threading.Thread(target=spin, name="executor", daemon=True)
    thread.start()
    stop.wait()
    for node in nodes:
        node._attempt(node.last_words)
        node._attempt(node.last_diagnostics)
        node._attempt(node.leave_counts)
    done.set_result(None)
    executor.wake()
    thread.join(timeout=1.0)
    executor.shutdown()
    for node in nodes:
        _end(node)
    if crashed:
        return EXIT_FAILED
    for node in nodes:
        if node.finished == EXIT_BAD_INPUT and node.failure:
            raise node.failure
    return max((node.finished or EXIT_OK for node in nodes), default=EXIT_OK)


def _start(node: WaysightNode[Any]) -> None:
    node.starting = True
    for step in (node.trigger_configure, node.trigger_activate):
        if step() != TransitionCallbackReturn.SUCCESS:
            raise node.failure or RuntimeError(f"{node.get_name()}: {step.__name__} failed")
    node.starting = False


def _end(node: WaysightNode[Any]) -> None:
    """Stop threads and close files; the transition itself may be refused in a half-made state."""
    try:
        node.trigger_shutdown()
    except Exception as error:
        node.get_logger().warning(f"shutdown transition refused: {error}")
