"""Reading and writing small files without half-written results."""

import json
import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from perception.errors import InputError


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; move it into place only when the block succeeds.

    The temporary name keeps the suffix, because writers such as cv2.imwrite choose by it.
    Raises InputError when the folder cannot be written to.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".writing-", suffix=path.suffix, dir=path.parent)
    except OSError as error:
        raise InputError(f"{path}: cannot write here: {error.strerror}") from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes private files; results get the permissions that open() would have given.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: str | Path, data: object) -> None:
    """Write `data` as UTF-8 JSON, atomically; NaN and infinity are refused (ValueError)."""
    with atomic_path(path) as temporary:
        text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def read_text(path: str | Path) -> str:
    """Read UTF-8 text (with or without byte order mark), whatever the locale.

    Raises InputError for a missing or unreadable file or one that is not UTF-8.
    """
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8 text") from error
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from error


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read a YAML mapping with the safe loader.

    Raises InputError naming file and line for text that is not YAML or not a mapping.
    """
    try:
        data = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise InputError(f"{where}: not valid YAML: {getattr(error, 'problem', error)}") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise InputError(f"{path}: expected a YAML mapping, found {type(data).__name__}")
    return data


def is_finite_number(value: object) -> bool:
    """Whether a value read from JSON or YAML is a number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False
