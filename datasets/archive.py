"""Data sets that come as one zip file: unpacked once into the cache, with care."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import zipfile
import zlib
from pathlib import Path

from perception.datasets.text import inside
from perception.errors import InputError

MAX_RATIO = 200
"""Archives that unpack to more than so many times their size are refused (pictures hardly shrink,
and label text by no more than a factor of 30)."""


def cache_folder() -> Path:
    """The user's cache folder for data sets (XDG base directories)."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "waysight" / "datasets"


def unpacked(path: Path) -> Path:
    """The folder that holds the files of the zip at `path`.

    Raises InputError when it is cut off or damaged, when a name leads out of the folder, or when it
    unpacks to absurdly much.
    """
    status = path.stat()
    key = f"{os.path.realpath(path)}\0{status.st_size}\0{status.st_mtime_ns}"
    folder = cache_folder() / f"zip-{hashlib.sha256(key.encode()).hexdigest()[:24]}"
    if not folder.is_dir():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=folder.parent))
        except OSError as error:
            raise InputError(f"{folder.parent}: cannot write here: {error.strerror}") from None
        try:
            _unpack(path, temporary)
            os.replace(temporary, folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    # macOS puts __MACOSX and .DS_Store beside the folder that was packed.
    entries = [e for e in folder.iterdir() if e.name != "__MACOSX" and not e.name.startswith(".")]
    return entries[0] if len(entries) == 1 and entries[0].is_dir() else folder


def _unpack(path: Path, folder: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            for member in members:
                if inside(member.filename) is None:
                    raise InputError(f"{path}: holds {member.filename!r}, which leads out of it")
            total = sum(member.file_size for member in members)
            if total > MAX_RATIO * max(1 << 20, path.stat().st_size):
                raise InputError(
                    f"{path}: unpacks to {total} bytes, more than {MAX_RATIO} times its size"
                )
            archive.extractall(folder)  # checks each file's check sum
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise InputError(f"{path}: the zip file is cut off or damaged ({error})") from None
    except RuntimeError as error:  # needs a password, or a method that this Python lacks
        raise InputError(f"{path}: cannot be unpacked: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be unpacked: {error.strerror}") from None
