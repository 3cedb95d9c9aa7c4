"""Arguments after --ros-args that cannot be used: one sentence in place of rclpy's trace."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import rclpy
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.impl.logging_severity import LoggingSeverity
from rclpy.logging import get_logger_effective_level, set_logger_level
from rclpy.signals import SignalHandlerOptions

from perception.errors import InputError

_RCL = "rcl"
_FORMS = {
    "-p": "-p NAME:=VALUE",
    "--param": "--param NAME:=VALUE",
    "-r": "-r OLD:=NEW",
    "--remap": "--remap OLD:=NEW",
    "--params-file": "--params-file and a ROS parameter file",
    "--log-level": "--log-level debug, info, warn, error or fatal, or NAME:=LEVEL",
    "--log-config-file": "--log-config-file and a file",
    "-e": "-e and the path of an enclave",
    "--enclave": "--enclave and its path",
}
_UNUSABLE = re.compile(r"Couldn't parse [^:]+: '(?P<argument>.+?)'\. Error: (?P<why>.*)", re.DOTALL)
_ALONE = re.compile(r"Couldn't parse trailing (?P<flag>\S+) flag")
_UNKNOWN = re.compile(r"^\['(?P<argument>.+?)'")
_AT_START = re.compile(r"failed to initialize rcl: (?P<why>.*)", re.DOTALL)
_PLACES = re.compile(r", at \S+:\d+")
_SAYS_NOTHING = re.compile(r"lexeme|token|error not set")


@contextmanager
def refused_in_a_sentence() -> Iterator[None]:
    """InputError in place of rclpy's that is about the command line or the environment."""
    try:
        yield
    except (rclpy_implementation.RCLError, rclpy_implementation.UnknownROSArgsError) as error:
        sentence = _sentence(str(error))
        if not sentence:
            raise
        raise InputError(sentence) from None


def init(argv: Sequence[str] | None) -> None:
    """`rclpy.init` without signal handlers; argv: without the program, None takes `sys.argv`."""
    # rcl prints a line of its own before it reports, which says less.
    set_logger_level(_RCL, LoggingSeverity.FATAL)
    try:
        with refused_in_a_sentence():
            rclpy.init(
                args=None if argv is None else ["node", *argv],
                signal_handler_options=SignalHandlerOptions.NO,
            )
    finally:
        if get_logger_effective_level(_RCL) == LoggingSeverity.FATAL:  # else --log-level has set it
            set_logger_level(_RCL, LoggingSeverity.UNSET)


def _sentence(text: str) -> str:
    """What rclpy says about an argument, naming the form that was expected; '' for the rest."""
    if found := _UNUSABLE.search(text):
        argument, why = found["argument"], _PLACES.sub("", found["why"])
        more = "" if _SAYS_NOTHING.search(why) else f" ({why})"
        return f"ROS argument '{argument}': expected {_form(argument.split()[0])}{more}"
    if found := _ALONE.search(text):
        return f"ROS argument '{found['flag']}': nothing follows, expected {_form(found['flag'])}"
    if found := _UNKNOWN.search(text):
        return f"unknown ROS argument '{found['argument']}', expected one of {', '.join(_FORMS)}"
    if found := _AT_START.search(text):  # a variable such as ROS_DOMAIN_ID
        return f"ROS 2 cannot start: {_PLACES.sub('', found['why'])}"
    return ""


def _form(flag: str) -> str:
    return _FORMS.get(flag, "another form")
