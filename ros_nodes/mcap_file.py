"""One MCAP file of ROS 2 messages that stays readable whatever happens to its writer."""

from __future__ import annotations

import os
from pathlib import Path

from mcap.writer import CompressionType, Writer

from perception.errors import InputError
from ros_nodes.schemas import definition

CHUNK_BYTES = 1 << 20


class _Sink:
    """An unbuffered file that holds whole writes only: a failed one is cut off again."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            raise InputError(f"{path}: exists already; recordings are never overwritten") from None
        except OSError as error:
            raise InputError(f"{path}: cannot write here: {error.strerror}") from error
        self.size = 0

    def write(self, data: bytes) -> int:
        """Write all of `data`; raises OSError and leaves nothing of it when that fails."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            os.ftruncate(self._file, self.size)
            raise
        self.size += len(data)
        return len(data)

    def tell(self) -> int:
        """Bytes written so far."""
        return self.size

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class McapFile:
    """Writes serialised messages in chunks; `flush` bounds what a killed process can lose.

    Raises InputError when the file exists or cannot be made; every method may raise OSError
    (disk full), after which the file ends with its last whole chunk and only `abandon` is left.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sink = _Sink(path)
        # The Writer asks of its stream only what _Sink has.
        self._writer = Writer(
            self._sink,  # type: ignore[arg-type]
            chunk_size=CHUNK_BYTES,
            compression=CompressionType.ZSTD,
        )
        self._writer.start(profile="ros2", library="waysight")
        self._channels: dict[str, int] = {}
        self._schemas: dict[str, int] = {}

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self._sink.size

    def write(self, topic: str, kind: str, data: bytes, log_ns: int, publish_ns: int) -> None:
        """Add one CDR message of type `kind`; times in nanoseconds."""
        if topic not in self._channels:
            self._channels[topic] = self._channel(topic, kind)
        self._writer.add_message(self._channels[topic], log_ns, data, publish_ns)

    def _channel(self, topic: str, kind: str) -> int:
        if kind not in self._schemas:
            text = definition(kind).encode()
            self._schemas[kind] = self._writer.register_schema(kind, "ros2msg", text)
        return self._writer.register_channel(topic, "cdr", self._schemas[kind])

    def flush(self) -> None:
        """Bring every message so far to the file."""
        self._writer.flush()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Write index and footer and close."""
        self._writer.finish()  # type: ignore[no-untyped-call]
        self._sink.close()

    def abandon(self) -> None:
        """Close without a footer, after a failed write."""
        self._sink.close()
