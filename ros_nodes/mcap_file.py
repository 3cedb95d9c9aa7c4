"""One MCAP file of ROS 2 messages that stays readable whatever happens to its writer."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from mcap.writer import CompressionType, Writer

from perception.errors import InputError
from ros_nodes.schemas import definition

CHUNK_BYTES = 1 << 20


class _Sink:
    """A file that holds whole commits only: a failed one is cut off again."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            raise InputError(f"{path}: exists already; recordings are never overwritten") from None
        except OSError as error:
            raise InputError(f"{path}: cannot write here: {error.strerror}") from error
        self.size = 0
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        """Keep `data` for the next commit."""
        self._parts.append(bytes(data))
        return len(data)

    def commit(self) -> bool:
        """Write all that was kept, if anything; raises OSError and leaves nothing of it then."""
        data = b"".join(self._parts)
        self._parts.clear()
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            os.ftruncate(self._file, self.size)
            raise
        self.size += len(data)
        return bool(data)

    def tell(self) -> int:
        """Bytes so far, with those that are kept."""
        return self.size + sum(map(len, self._parts))

    def flush(self) -> None:
        """What is kept waits for `commit`."""

    def close(self) -> None:
        """Close the file; may be called again."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


class McapFile:
    """Writes serialised messages in chunks; `flush` bounds what a killed process can lose.

    waiting: messages that are in no chunk on the disk yet.
    Raises InputError when the file exists or cannot be made; every method may raise OSError
    (disk full), after which the file ends with its last whole chunk and only `abandon` is left.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.waiting = 0
        self._sink = _Sink(path)
        # The Writer asks of its stream only what _Sink has.
        self._writer = Writer(
            self._sink,  # type: ignore[arg-type]
            chunk_size=CHUNK_BYTES,
            compression=CompressionType.ZSTD,
        )
        self._channels: dict[str, int] = {}
        self._schemas: dict[str, int] = {}
        self._writer.start(profile="ros2", library="waysight")
        try:
            self.flush()
        except OSError as error:
            self.abandon()
            path.unlink(missing_ok=True)
            raise InputError(f"{path}: cannot write here: {error.strerror}") from error

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self._sink.size

    def write(self, topic: str, kind: str, data: bytes, log_ns: int, publish_ns: int) -> None:
        """Add one CDR message of type `kind`; times in nanoseconds."""
        self.waiting += 1
        if topic not in self._channels:
            self._channels[topic] = self._channel(topic, kind)
            self._commit(waiting=1)  # a chunk that became full by the schema is without it
        self._writer.add_message(self._channels[topic], log_ns, data, publish_ns)
        self._commit()

    def _channel(self, topic: str, kind: str) -> int:
        if kind not in self._schemas:
            text = definition(kind).encode()
            self._schemas[kind] = self._writer.register_schema(kind, "ros2msg", text)
        return self._writer.register_channel(topic, "cdr", self._schemas[kind])

    def _commit(self, waiting: int = 0) -> None:
        """Bring finished chunks to the disk; `waiting` messages are in none of them."""
        if self._sink.commit():
            self.waiting = waiting

    def flush(self) -> None:
        """Bring every message so far to the file."""
        self._writer.flush()  # type: ignore[no-untyped-call]
        self._commit()

    def close(self) -> None:
        """Write index and footer and close."""
        self.flush()
        self._writer.finish()  # type: ignore[no-untyped-call]
        self._commit()
        self._sink.close()

    def abandon(self) -> None:
        """Close without a footer, after a failed write."""
        with suppress(OSError):  # a disk that is gone says so once more
            self._sink.close()
