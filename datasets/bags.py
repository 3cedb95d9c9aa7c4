"""Read rosbag2 recordings (MCAP and sqlite3) in time order on a machine without ROS.

Messages come by log time over all files of the bag; equal times keep the order of files and of
positions in them. A file that was cut off gives what is whole, and the bag says `truncated`.
"""

from __future__ import annotations

import heapq
import io
import sqlite3
import struct
import tempfile
import urllib.request
import weakref
import zlib
from array import array
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import lz4.frame  # type: ignore[import-untyped]
import zstandard
from mcap.data_stream import ReadDataStream
from mcap.exceptions import McapError
from mcap.opcode import Opcode
from mcap.reader import make_reader
from mcap.records import Channel, Chunk, Message, Schema
from mcap.stream_reader import breakup_chunk
from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from perception.datasets.report import Report
from perception.datasets.text import inside, natural
from perception.errors import InputError
from perception.files import read_yaml

MAGIC = b"\x89MCAP0\r\n"
MAX_CHUNK = 1 << 30
"""Chunks and messages that unpack to more bytes than this are refused."""
_SUFFIXES = (".mcap", ".db3", ".mcap.zstd", ".db3.zstd")

# vision_msgs 4.1 (Jazzy), for bags that hold no definitions and as what the writer writes.
VISION_MSGS = {
    "vision_msgs/msg/Point2D": "float64 x\nfloat64 y\n",
    "vision_msgs/msg/Pose2D": "vision_msgs/Point2D position\nfloat64 theta\n",
    "vision_msgs/msg/BoundingBox2D": "vision_msgs/Pose2D center\nfloat64 size_x\nfloat64 size_y\n",
    "vision_msgs/msg/ObjectHypothesis": "string class_id\nfloat64 score\n",
    "vision_msgs/msg/ObjectHypothesisWithPose": (
        "vision_msgs/ObjectHypothesis hypothesis\ngeometry_msgs/PoseWithCovariance pose\n"
    ),
    "vision_msgs/msg/Detection2D": (
        "std_msgs/Header header\nvision_msgs/ObjectHypothesisWithPose[] results\n"
        "vision_msgs/BoundingBox2D bbox\nstring id\n"
    ),
    "vision_msgs/msg/Detection2DArray": (
        "std_msgs/Header header\nvision_msgs/Detection2D[] detections\n"
    ),
    "vision_msgs/msg/VisionClass": "uint16 class_id\nstring class_name\n",
    "vision_msgs/msg/LabelInfo": (
        "std_msgs/Header header\nvision_msgs/VisionClass[] class_map\nfloat32 threshold\n"
    ),
}


def default_types() -> Typestore:
    """The types of ROS 2 Jazzy and vision_msgs."""
    store = get_typestore(Stores.ROS2_JAZZY)
    types: dict[str, Any] = {}
    for name, text in VISION_MSGS.items():
        types.update(get_types_from_msg(text, name))
    store.register({name: kind for name, kind in types.items() if name not in store.types})
    return store


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the bag: its message type, and the definition recorded with it ("" if none)."""

    name: str
    type: str
    encoding: str
    definition: str = ""
    definition_format: str = "ros2msg"


@dataclass(frozen=True, slots=True)
class BagMessage:
    """One recorded message, not decoded. file, offset, inner: see sample.BagPicture."""

    topic: str
    log_time_ns: int
    data: bytes
    file: str
    offset: int
    inner: int


class _File(Protocol):
    topics: dict[str, Topic]
    truncated: bool

    def messages(
        self, topics: frozenset[str] | None, start: int, stop: int
    ) -> Iterator[BagMessage]: ...

    def fetch(self, offset: int, inner: int) -> BagMessage: ...


class Bag:
    """A rosbag2: a folder with metadata.yaml, a folder of storage files, or one storage file.

    topics: by name. truncated: a file was cut off; report: that and everything else that is odd.
    Raises InputError when there is no bag at `path`. Use as a context manager; one that is left to
    the garbage collector is closed by it, and at the end of the program.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.report = Report()
        self._unpacked = ""
        # It must not know of the bag, or the bag would never be garbage.
        self._resources = ExitStack()
        self._close = weakref.finalize(self, self._resources.close)
        self._message_compression = ""
        self._types: dict[str, tuple[Typestore, str]] = {}
        self.root, names = self._storage_files()
        self._files: dict[str, _File] = {}
        for name in names:
            opened = self._open(name)
            if opened is not None:
                self._files[name] = opened
        if not self._files:
            reasons = "; ".join(item.message for item in self.report.findings) or "nothing to read"
            raise InputError(f"{self.path}: no readable storage file ({reasons})")
        self.topics: dict[str, Topic] = {}
        for file in self._files.values():
            for topic in file.topics.values():
                known = self.topics.setdefault(topic.name, topic)
                if known.type != topic.type:
                    self.report.add(
                        "error",
                        "two-types",
                        f"topic {topic.name} is both {known.type} and {topic.type}",
                    )

    @property
    def files(self) -> tuple[str, ...]:
        """Storage files in order, relative to `root`."""
        return tuple(self._files)

    @property
    def truncated(self) -> bool:
        """Whether a file was cut off. Complete once `messages` came to its end."""
        return any(file.truncated for file in self._files.values())

    def __enter__(self) -> Bag:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        self._close()

    def messages(
        self,
        topics: frozenset[str] | None = None,
        start_ns: int | None = None,
        end_ns: int | None = None,
    ) -> Iterator[BagMessage]:
        """Messages of some topics (None: all) with start_ns <= log time < end_ns, in order."""
        start = -(2**63) if start_ns is None else start_ns
        stop = 2**63 - 1 if end_ns is None else end_ns
        streams = [
            self._guarded(name, file.messages(topics, start, stop))
            for name, file in self._files.items()
        ]
        # heapq.merge is stable: of equal keys the earlier stream comes first.
        for message in heapq.merge(*streams, key=lambda item: item.log_time_ns):
            yield self._plain(message)

    def _guarded(self, name: str, messages: Iterator[BagMessage]) -> Iterator[BagMessage]:
        yield from messages
        if self._files[name].truncated and not any(
            item.code == "truncated" and item.file == name for item in self.report.findings
        ):
            self.report.add(
                "error",
                "truncated",
                "the file is cut off or damaged; what is whole was read",
                file=name,
            )

    def _plain(self, message: BagMessage) -> BagMessage:
        if self._message_compression != "zstd":
            return message
        data = _unzstd(message.data, MAX_CHUNK)
        return BagMessage(
            message.topic, message.log_time_ns, data, message.file, message.offset, message.inner
        )

    def fetch(self, file: str, offset: int, inner: int) -> BagMessage:
        """One message again, by the place that `messages` gave; raises InputError."""
        if file not in self._files:
            raise InputError(f"{self.path}: has no storage file {file!r}")
        return self._plain(self._files[file].fetch(offset, inner))

    def decode(self, message: BagMessage) -> Any:
        """The message as an object with the fields of its type (rosbags' classes).

        Raises InputError when its type is unknown or its bytes do not fit.
        """
        topic = self.topics[message.topic]
        if topic.encoding != "cdr":
            raise InputError(
                f"{self.path}: topic {topic.name} is encoded as {topic.encoding!r}, expected 'cdr'"
            )
        if topic.name not in self._types:
            self._types[topic.name] = (_types_of(topic), topic.type)
        store, name = self._types[topic.name]
        try:
            return store.deserialize_cdr(message.data, name)
        except KeyError:
            raise InputError(
                f"{self.path}: the type {name} of topic {topic.name} is not known and "
                "the bag does not define it"
            ) from None
        except Exception as error:  # rosbags' generated code raises whatever the bytes provoke
            raise InputError(
                f"{self.path}: a message of topic {topic.name} is damaged ({error})"
            ) from None

    def _storage_files(self) -> tuple[Path, list[str]]:
        path = self.path
        if path.is_file():
            return path.parent, [path.name]
        if not path.is_dir():
            raise InputError(f"{path}: no such bag")
        if not (path / "metadata.yaml").is_file() and not _storage_names(path):
            inner = [
                child
                for child in sorted(path.iterdir())
                if child.is_dir() and (child / "metadata.yaml").is_file()
            ]
            if len(inner) != 1:
                raise InputError(
                    f"{path}: expected metadata.yaml or files ending in "
                    f"{', '.join(_SUFFIXES)}, found neither"
                )
            path = inner[0]
        present = _storage_names(path)
        if not (path / "metadata.yaml").is_file():
            return path, present
        return path, self._listed(path, present)

    def _listed(self, path: Path, present: list[str]) -> list[str]:
        """Storage files in the order of metadata.yaml, those it forgot behind them."""
        try:
            data = read_yaml(path / "metadata.yaml").get("rosbag2_bagfile_information", {})
        except InputError as error:
            self.report.add("error", "bad-metadata", str(error), file="metadata.yaml")
            return present
        data = data if isinstance(data, dict) else {}
        if str(data.get("compression_mode", "")).lower() == "message":
            self._message_compression = str(data.get("compression_format", ""))
        listed = []
        paths = data.get("relative_file_paths")
        for entry in paths if isinstance(paths, list) else []:
            name = inside(str(entry))
            if name is None:
                self.report.add(
                    "error",
                    "outside-root",
                    f"{entry!r} leads out of the bag's folder",
                    file="metadata.yaml",
                )
            elif not (path / name).is_file():
                self.report.add(
                    "error",
                    "missing-file",
                    f"storage file {entry} is missing",
                    file="metadata.yaml",
                )
            elif name not in listed:
                listed.append(name)
        for name in present:
            if name not in listed:
                self.report.add(
                    "warning",
                    "unlisted-file",
                    "metadata.yaml does not list this storage file; it is read after the others",
                    file=name,
                )
        return [*listed, *(name for name in present if name not in listed)]

    def _open(self, name: str) -> _File | None:
        path = self.root / name
        if name.endswith(".zstd"):
            path = self._unpack(path, name)
        try:
            if path.suffix == ".db3":
                return _Sqlite(path, name, self._resources)
            return _Mcap(path, name, self.report, self._resources)
        except (InputError, OSError) as error:
            self.report.add("error", "unreadable", str(error), file=name)
            return None

    def _unpack(self, path: Path, name: str) -> Path:
        if not self._unpacked:
            folder = tempfile.TemporaryDirectory(prefix="waysight-bag-")
            self._unpacked = self._resources.enter_context(folder)
        target = Path(self._unpacked) / name.replace("/", "_").removesuffix(".zstd")
        try:
            with path.open("rb") as source, target.open("wb") as out:
                zstandard.ZstdDecompressor().copy_stream(source, out)
        except zstandard.ZstdError as error:
            self.report.add("error", "truncated", f"zstd: {error}", file=name)
        return target


def _storage_names(folder: Path) -> list[str]:
    names = (entry.name for entry in folder.iterdir() if entry.is_file())
    return sorted((name for name in names if name.endswith(_SUFFIXES)), key=natural)


def _types_of(topic: Topic) -> Typestore:
    """The types that the topic's definition needs, or the known ones when it has none."""
    if not topic.definition:
        return default_types()
    parse = get_types_from_idl if topic.definition_format == "ros2idl" else get_types_from_msg
    store = get_typestore(Stores.EMPTY)
    try:
        types = (
            parse(topic.definition)
            if parse is get_types_from_idl
            else get_types_from_msg(topic.definition, topic.type)
        )
        known = default_types()
        base = {
            name: kind
            for name, kind in known.fielddefs.items()
            if name.startswith("builtin_interfaces/") and name not in types
        }
        store.register({**base, **types})
    except Exception as error:  # a definition is untrusted text, and the parser has no error class
        raise InputError(
            f"topic {topic.name}: its definition of {topic.type} cannot be read ({error})"
        ) from None
    return store


def _unzstd(data: bytes, limit: int) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)) as reader:
        try:
            plain = reader.read(limit + 1)
        except zstandard.ZstdError as error:
            raise InputError(f"zstd data is damaged ({error})") from None
    if len(plain) > limit:
        raise InputError(f"unpacks to more than {limit} bytes")
    return plain


class _Sqlite:
    """A .db3 file, opened read-only."""

    truncated = False

    def __init__(self, path: Path, name: str, resources: ExitStack) -> None:
        self.name = name
        uri = f"file:{urllib.request.pathname2url(str(path.resolve()))}?mode=ro&immutable=1"
        try:
            self.connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
            resources.callback(self.connection.close)
            columns = {row[1] for row in self.connection.execute("PRAGMA table_info(topics)")}
            if "name" not in columns:
                raise InputError(f"{path}: no table 'topics', not a rosbag2")
            self.ids = {}
            for number, topic, kind, encoding in self.connection.execute(
                "SELECT id, name, type, serialization_format FROM topics ORDER BY id"
            ):
                self.ids[int(number)] = Topic(str(topic), str(kind), str(encoding))
            self._definitions()
        except sqlite3.Error as error:
            raise InputError(f"{path}: not a readable sqlite3 bag ({error})") from None
        self.topics = {topic.name: topic for topic in self.ids.values()}

    def _definitions(self) -> None:
        tables = self.connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
        if ("message_definitions",) not in tables.fetchall():
            return
        rows = self.connection.execute(
            "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions"
        )
        found = {str(kind): (str(form), str(text)) for kind, form, text in rows if text}
        for number, topic in self.ids.items():
            if topic.type in found and found[topic.type][0] in ("ros2msg", "ros2idl"):
                form, text = found[topic.type]
                self.ids[number] = Topic(topic.name, topic.type, topic.encoding, text, form)

    def messages(
        self, topics: frozenset[str] | None, start: int, stop: int
    ) -> Iterator[BagMessage]:
        wanted = [n for n, topic in self.ids.items() if topics is None or topic.name in topics]
        if not wanted:
            return
        marks = ",".join("?" * len(wanted))
        try:
            # Ids grow in the order of writing, so they order what has the same time.
            cursor = self.connection.execute(
                "SELECT id, topic_id, timestamp, data FROM messages WHERE timestamp >= ? AND "
                f"timestamp < ? AND topic_id IN ({marks}) ORDER BY timestamp, id",
                (start, stop, *wanted),
            )
            for row, topic, time, data in cursor:
                yield BagMessage(self.ids[topic].name, int(time), bytes(data), self.name, row, 0)
        except sqlite3.Error:
            self.truncated = True

    def fetch(self, offset: int, inner: int) -> BagMessage:
        try:
            row = self.connection.execute(
                "SELECT topic_id, timestamp, data FROM messages WHERE id = ?", (offset,)
            ).fetchone()
        except sqlite3.Error as error:
            raise InputError(f"{self.name}: cannot be read ({error})") from None
        if row is None or row[0] not in self.ids:
            raise InputError(f"{self.name}: has no message {offset}")
        return BagMessage(self.ids[row[0]].name, int(row[1]), bytes(row[2]), self.name, offset, 0)


@dataclass(frozen=True, slots=True)
class _ChunkPlace:
    start: int
    end: int
    offset: int


class _Mcap:
    """An .mcap file; without a usable summary it is scanned from the front."""

    def __init__(self, path: Path, name: str, report: Report, resources: ExitStack) -> None:
        self.name, self.path, self.report = name, path, report
        self.size = path.stat().st_size
        self.stream: BinaryIO = resources.enter_context(path.open("rb"))
        self.truncated = False
        self.channels: dict[int, Channel] = {}
        self.schemas: dict[int, Schema] = {}
        self.chunks: list[_ChunkPlace] = []
        self.loose_times, self.loose_offsets = array("Q"), array("Q")
        if self.stream.read(len(MAGIC)) != MAGIC:
            raise InputError(f"{path}: does not begin like an MCAP file")
        if not self._summary():
            self._scan()
        self._cached: tuple[int, list[Message]] = (-1, [])
        self.topics = {c.topic: self._topic(c) for _, c in sorted(self.channels.items())}

    def _topic(self, channel: Channel) -> Topic:
        schema = self.schemas.get(channel.schema_id)
        known = schema is not None and schema.encoding in ("ros2msg", "ros2idl")
        return Topic(
            channel.topic,
            schema.name if schema is not None else "",
            channel.message_encoding,
            schema.data.decode("utf-8", "replace") if known and schema is not None else "",
            schema.encoding if known and schema is not None else "ros2msg",
        )

    def _summary(self) -> bool:
        """Take chunk places and channels from the summary; False when there is none to trust."""
        self.stream.seek(max(0, self.size - len(MAGIC)))
        if self.stream.read() != MAGIC:
            return False
        self.stream.seek(0)
        try:
            summary = make_reader(self.stream).get_summary()
        except (McapError, struct.error, ValueError, OSError, KeyError, EOFError):
            return False
        if summary is None or not summary.chunk_indexes:
            return False
        self.channels, self.schemas = dict(summary.channels), dict(summary.schemas)
        self.chunks = [
            _ChunkPlace(c.message_start_time, c.message_end_time, c.chunk_start_offset)
            for c in summary.chunk_indexes
        ]
        return True

    def _scan(self) -> None:
        """Walk over the records; what is whole is noted, the rest makes the file truncated."""
        offset = len(MAGIC)
        ended = False
        while offset + 9 <= self.size:
            self.stream.seek(offset)
            opcode, length = struct.unpack("<BQ", self.stream.read(9))
            if offset + 9 + length > self.size or length > MAX_CHUNK:
                break
            try:
                ended = self._note(opcode, offset, length)
            except (McapError, struct.error, ValueError, EOFError, InputError):
                self._damaged(offset)
            offset += 9 + length
            if ended:
                break
        if not ended:
            self._cut(offset)

    def _note(self, opcode: int, offset: int, length: int) -> bool:
        """One record of the scan; True at the end of the data section."""
        if opcode == Opcode.CHUNK:
            for record in self._chunk_records(offset):
                self._learn(record)
            start, end = self._chunk_times(offset)
            self.chunks.append(_ChunkPlace(start, end, offset))
        elif opcode == Opcode.MESSAGE:
            head = self.stream.read(14)
            self.loose_times.append(struct.unpack("<Q", head[6:14])[0])
            self.loose_offsets.append(offset)
        elif opcode in (Opcode.SCHEMA, Opcode.CHANNEL):
            stream = ReadDataStream(io.BytesIO(self.stream.read(length)))
            self._learn(Schema.read(stream) if opcode == Opcode.SCHEMA else Channel.read(stream))
        return opcode in (Opcode.DATA_END, Opcode.FOOTER)

    def _learn(self, record: object) -> None:
        if isinstance(record, Schema):
            self.schemas.setdefault(record.id, record)
        elif isinstance(record, Channel):
            self.channels.setdefault(record.id, record)

    def _cut(self, offset: int) -> None:
        self.truncated = True
        self.report.add(
            "error",
            "truncated",
            f"the file is cut off after byte {offset}; what is whole before it is read",
            file=self.name,
        )

    def _damaged(self, offset: int) -> None:
        self.truncated = True
        self.report.add(
            "error",
            "damaged-chunk",
            f"the record at byte {offset} is damaged; its messages are lost",
            file=self.name,
        )

    def _chunk_times(self, offset: int) -> tuple[int, int]:
        self.stream.seek(offset + 9)
        start, end = struct.unpack("<QQ", self.stream.read(16))
        return start, end

    def _chunk_records(self, offset: int) -> list[Any]:
        """Schemas, channels and messages of a chunk; raises for a damaged one."""
        self.stream.seek(offset)
        opcode, length = struct.unpack("<BQ", self.stream.read(9))
        if opcode != Opcode.CHUNK or offset + 9 + length > self.size:
            raise InputError(f"{self.path}: no whole chunk at byte {offset}")
        chunk = Chunk.read(ReadDataStream(io.BytesIO(self.stream.read(length))))
        size = chunk.uncompressed_size
        if size > MAX_CHUNK:
            raise InputError(f"{self.path}: a chunk unpacks to {size} bytes, more than {MAX_CHUNK}")
        if chunk.compression == "zstd":
            chunk.data = _unzstd(chunk.data, size)
        elif chunk.compression == "lz4":
            try:
                chunk.data = lz4.frame.LZ4FrameDecompressor().decompress(chunk.data, size + 1)
            except RuntimeError as error:
                raise InputError(f"{self.path}: lz4 data is damaged ({error})") from None
        elif chunk.compression:
            raise InputError(f"{self.path}: compression {chunk.compression!r} is not known")
        if len(chunk.data) != size:
            raise InputError(f"{self.path}: a chunk unpacks to {len(chunk.data)} of {size} bytes")
        if chunk.uncompressed_crc and zlib.crc32(chunk.data) != chunk.uncompressed_crc:
            raise InputError(f"{self.path}: the check sum of the chunk at {offset} is wrong")
        chunk.compression = ""
        return breakup_chunk(chunk)

    def _chunk_messages(self, offset: int) -> list[Message]:
        if self._cached[0] != offset:
            records = self._chunk_records(offset)
            for record in records:
                self._learn(record)
            self._cached = (offset, [r for r in records if isinstance(r, Message)])
        return self._cached[1]

    def messages(
        self, topics: frozenset[str] | None, start: int, stop: int
    ) -> Iterator[BagMessage]:
        if self.loose_times:
            yield from self._loose(topics, start, stop)
            return
        waiting = sorted(
            (c for c in self.chunks if c.end >= start and c.start < stop),
            key=lambda chunk: (chunk.start, chunk.offset),
            reverse=True,
        )
        heap: list[tuple[int, int, int, Message]] = []
        while waiting or heap:
            # A chunk is unpacked when its first message may be next: overlapping ones together.
            while waiting and (not heap or waiting[-1].start <= heap[0][0]):
                for item in self._of_chunk(waiting.pop().offset, topics, start, stop):
                    heapq.heappush(heap, item)
            if heap:
                time, offset, inner, message = heapq.heappop(heap)
                topic = self.channels[message.channel_id].topic
                yield BagMessage(topic, time, message.data, self.name, offset, inner)

    def _of_chunk(
        self, offset: int, topics: frozenset[str] | None, start: int, stop: int
    ) -> Iterator[tuple[int, int, int, Message]]:
        try:
            messages = self._chunk_messages(offset)
        except (McapError, struct.error, ValueError, EOFError, InputError):
            self._damaged(offset)
            return
        for inner, message in enumerate(messages):
            channel = self.channels.get(message.channel_id)
            if channel is None:
                self._damaged(offset)
            elif start <= message.log_time < stop and (topics is None or channel.topic in topics):
                yield message.log_time, offset, inner, message

    def _loose(self, topics: frozenset[str] | None, start: int, stop: int) -> Iterator[BagMessage]:
        """Messages of a file without chunks."""
        order = sorted(range(len(self.loose_times)), key=self.loose_times.__getitem__)
        for i in order:
            if start <= self.loose_times[i] < stop:
                message = self.fetch(self.loose_offsets[i], -1)
                if topics is None or message.topic in topics:
                    yield message

    def fetch(self, offset: int, inner: int) -> BagMessage:
        try:
            if inner >= 0:
                message = self._chunk_messages(offset)[inner]
            else:
                self.stream.seek(offset)
                _, length = struct.unpack("<BQ", self.stream.read(9))
                data = self.stream.read(min(length, self.size))
                message = Message.read(ReadDataStream(io.BytesIO(data)), length)
            topic = self.channels[message.channel_id].topic
        except (McapError, struct.error, ValueError, EOFError, IndexError, KeyError) as error:
            raise InputError(f"{self.path}: no message at {offset}:{inner} ({error!r})") from None
        return BagMessage(topic, message.log_time, message.data, self.name, offset, inner)
