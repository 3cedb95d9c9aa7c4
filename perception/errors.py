"""The errors a caller can act on."""


class WaysightError(Exception):
    """Base of every error that Waysight raises on purpose."""


class InputError(WaysightError):
    """Something handed in is wrong: a file, a line, a parameter (CLI exit code 2).

    The message is one sentence that names the place, what was found and what was expected.
    """


class VerdictFailed(WaysightError):
    """Everything ran, and the result misses what was asked for (CLI exit code 1)."""
