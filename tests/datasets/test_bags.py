"""C59 and C60 are acceptance cases."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from mcap.writer import CompressionType, Writer

from perception.cli import main
from perception.datasets import open_dataset
from perception.datasets.bags import Bag, default_types
from perception.datasets.convert import convert
from perception.datasets.formats.rosbag2 import pixels_of
from perception.errors import InputError
from tests.datasets.made import FIXTURES, coco

SECOND = 10**9


def write_mcap(
    path: Path,
    messages: Sequence[tuple[int, bytes]],
    *,
    chunk_size: int = 1300,
    compression: CompressionType = CompressionType.NONE,
    chunked: bool = True,
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=chunk_size, compression=compression, use_chunking=chunked)
        writer.start()
        schema = writer.register_schema("test_msgs/msg/Bytes", "ros2msg", b"uint8[] data")
        channel = writer.register_channel("/image", "cdr", schema)
        for i, (time, data) in enumerate(messages):
            writer.add_message(channel, time, data, time, i)
        writer.finish()
    return path


def write_db3(path: Path, messages: Sequence[tuple[int, bytes]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT NOT NULL, type TEXT "
            "NOT NULL, serialization_format TEXT NOT NULL, offered_qos_profiles TEXT)"
        )
        database.execute(
            "CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL, "
            "timestamp INTEGER NOT NULL, data BLOB NOT NULL)"
        )
        database.execute("CREATE INDEX timestamp_idx ON messages (timestamp ASC)")
        database.execute(
            "INSERT INTO topics VALUES (1, '/image', 'test_msgs/msg/Bytes', 'cdr', '')"
        )
        database.executemany(
            "INSERT INTO messages(topic_id, timestamp, data) VALUES (1, ?, ?)", messages
        )
    return path


FIFTY = [(i * SECOND // 10, bytes(100)) for i in range(50)]


@pytest.mark.parametrize("compression", list(CompressionType))
def test_an_mcap_cut_in_its_fourth_chunk_gives_thirty_messages_and_says_so(
    tmp_path: Path, compression: CompressionType
) -> None:  # C59
    whole = write_mcap(tmp_path / "whole.mcap", FIFTY, compression=compression)
    with Bag(whole) as bag:
        assert len(list(bag.messages())) == 50
        assert not bag.truncated and not bag.report.findings
        chunks = bag._files["whole.mcap"].chunks  # type: ignore[attr-defined]
    assert len(chunks) == 5
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(whole.read_bytes()[: chunks[3].offset + 40])
    with Bag(cut) as bag:
        assert [m.log_time_ns for m in bag.messages()] == [time for time, _ in FIFTY[:30]]
        assert bag.truncated
        assert [f.code for f in bag.report.findings] == ["truncated"]


def test_a_damaged_chunk_is_counted_and_the_others_are_read(tmp_path: Path) -> None:
    path = write_mcap(tmp_path / "x.mcap", FIFTY, compression=CompressionType.ZSTD)
    with Bag(path) as bag:
        offset = bag._files["x.mcap"].chunks[1].offset  # type: ignore[attr-defined]
    data = bytearray(path.read_bytes())
    data[offset + 70 : offset + 90] = bytes(20)
    path.write_bytes(bytes(data))
    with Bag(path) as bag:
        assert len(list(bag.messages())) == 40
        assert bag.truncated
        assert "damaged-chunk" in [f.code for f in bag.report.findings]


@pytest.mark.parametrize("kind", ["mcap", "loose mcap", "db3"])
def test_split_files_make_one_time_line_with_stable_ties(tmp_path: Path, kind: str) -> None:  # C60
    first = [(1.0, b"A"), (1.2, b"B"), (1.5, b"C")]
    second = [(1.4, b"D"), (1.5, b"E"), (1.6, b"F")]
    for number, rows in enumerate((first, second)):
        messages = [(round(time * SECOND), data) for time, data in rows]
        if kind == "db3":
            write_db3(tmp_path / f"bag_{number}.db3", messages)
        else:
            write_mcap(tmp_path / f"bag_{number}.mcap", messages, chunked=kind == "mcap")
    with Bag(tmp_path) as bag:
        for _ in range(3):
            assert b"".join(m.data for m in bag.messages()) == b"ABDCEF"
        part = bag.messages(start_ns=1_300_000_000, end_ns=1_550_000_000)
        assert b"".join(m.data for m in part) == b"DCE"
        for message in bag.messages():
            assert bag.fetch(message.file, message.offset, message.inner) == message


def test_overlapping_chunks_of_one_file_come_in_time_order(tmp_path: Path) -> None:
    times = [5, 1, 9, 2, 8, 3, 7, 4, 6, 5]
    path = write_mcap(
        tmp_path / "x.mcap", [(t, bytes([i])) for i, t in enumerate(times)], chunk_size=60
    )
    with Bag(path) as bag:
        found = [(m.log_time_ns, m.data[0]) for m in bag.messages()]
    assert found == sorted((t, i) for i, t in enumerate(times))


def test_reading_a_large_bag_needs_the_memory_of_a_chunk(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    messages = [(i, rng.bytes(200_000)) for i in range(100)]
    path = write_mcap(tmp_path / "x.mcap", messages, chunk_size=1_000_000)
    tracemalloc.start()
    with Bag(path) as bag:
        assert sum(len(m.data) for m in bag.messages()) == 20_000_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8_000_000


def test_what_is_no_bag_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "x.mcap").write_bytes(b"nothing of the kind")
    (tmp_path / "y.db3").write_bytes(b"nothing of the kind")
    for path in (tmp_path / "x.mcap", tmp_path / "y.db3", tmp_path / "z"):
        with pytest.raises(InputError, match=path.name):
            Bag(path)


def test_metadata_cannot_point_out_of_the_bag(tmp_path: Path) -> None:
    write_mcap(tmp_path / "secret.mcap", FIFTY)
    write_mcap(tmp_path / "bag/a.mcap", FIFTY[:3])
    (tmp_path / "bag/metadata.yaml").write_text(
        "rosbag2_bagfile_information:\n  relative_file_paths: [../secret.mcap, a.mcap, gone.mcap]\n"
    )
    with Bag(tmp_path / "bag") as bag:
        assert len(list(bag.messages())) == 3
        assert [f.code for f in bag.report.findings] == ["outside-root", "missing-file"]


def test_pictures_and_boxes_survive_a_bag(tmp_path: Path) -> None:
    dataset = open_dataset(
        f"coco:{coco(tmp_path / 'a', [[(1, 1, 2, 10.5, 10)], [], [(2, 0, 0, 5, 5)]])}"
    )
    convert(dataset, f"rosbag2:{tmp_path / 'b'}")
    bag = open_dataset(str(tmp_path / "b"))
    assert bag.format == "rosbag2"
    assert [s.truth.boxes.tolist() for s in bag] == [s.truth.boxes.tolist() for s in dataset]
    assert [bag.names[i] for s in bag for i in s.truth.labels] == ["car", "bus"]
    for one, other in zip(dataset, bag, strict=True):
        np.testing.assert_array_equal(dataset.pixels(one), bag.pixels(other))
    assert [s.stamp_ns for s in bag] == [SECOND + i * SECOND // 10 for i in range(3)]


def test_boxes_of_several_detectors_can_be_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from rosbags.rosbag2 import StoragePlugin
    from rosbags.rosbag2 import Writer as BagWriter

    folder = coco(tmp_path / "a", [[(1, 1, 2, 10, 10)], [], [(2, 0, 0, 5, 5)]])
    convert(open_dataset(f"coco:{folder}"), f"rosbag2:{tmp_path / 'b'}")
    types = default_types()
    with (
        Bag(tmp_path / "b") as bag,
        BagWriter(tmp_path / "c", version=9, storage_plugin=StoragePlugin.MCAP) as writer,
    ):
        kinds = {name.strip("/"): topic.type for name, topic in bag.topics.items()}
        image = next(name for name, kind in kinds.items() if kind.endswith("Image"))
        topics = {
            name: writer.add_connection(name, kind, typestore=types)
            for name, kind in (
                (f"/{image}", kinds[image]),
                *((name, "vision_msgs/msg/Detection2DArray") for name in ("/one", "/two")),
            )
        }
        for message in bag.messages():
            names = [message.topic] if message.topic in topics else ["/one", "/two"]
            for name in names:
                writer.write(topics[name], message.log_time_ns, message.data)
    both = open_dataset(f"rosbag2:{tmp_path / 'c'}")
    assert [len(sample.truth) for sample in both] == [2, 0, 2]
    assert "several-detectors" in both.report.by_code()
    arguments = ["data", "extract", str(tmp_path / "c")]
    assert main([*arguments, str(tmp_path / "d"), "--boxes", "/two"]) == 0
    assert [len(sample.truth) for sample in open_dataset(str(tmp_path / "d"))] == [1, 0, 1]
    assert main([*arguments, str(tmp_path / "e"), "--boxes", "/three"]) == 2
    assert "no boxes on topic '/three', only on /one, /two" in capsys.readouterr().err


def test_no_file_of_a_bag_is_left_open(tmp_path: Path) -> None:
    convert(
        open_dataset(f"coco:{coco(tmp_path / 'a', [[(1, 1, 2, 10, 10)]])}"),
        f"rosbag2:{tmp_path / 'b'}",
    )
    (tmp_path / "cut.mcap").write_bytes(b"nothing of the kind")
    program = (
        "import sys\n"
        "from perception.datasets import open_dataset\n"
        "from perception.datasets.bags import Bag\n"
        "from perception.errors import InputError\n"
        "data = open_dataset(sys.argv[1])\n"
        "print(data.load(data[0]).size)\n"
        "try:\n"
        "    Bag(sys.argv[2])\n"
        "except InputError as error:\n"
        "    print(error)\n"
    )
    words = [
        "-W",
        "always::ResourceWarning",
        "-c",
        program,
        str(tmp_path / "b"),
        str(tmp_path / "cut.mcap"),
    ]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120)
    assert "no readable storage file" in done.stdout, done.stderr
    assert "ResourceWarning" not in done.stderr


@pytest.mark.parametrize(("big", "values"), [(1, [258, 255]), (0, [513, 65280])])
def test_sixteen_bit_pictures_honour_their_byte_order(big: int, values: list[int]) -> None:
    types = default_types().types
    header = types["std_msgs/msg/Header"](types["builtin_interfaces/msg/Time"](0, 0), "")
    image = types["sensor_msgs/msg/Image"](
        header, 1, 2, "mono16", big, 4, np.asarray([1, 2, 0, 255], np.uint8)
    )
    assert pixels_of(image, "x")[0, :, 0].tolist() == [value >> 8 for value in values]


def test_a_short_picture_is_refused() -> None:
    types = default_types().types
    header = types["std_msgs/msg/Header"](types["builtin_interfaces/msg/Time"](0, 0), "")
    image = types["sensor_msgs/msg/Image"](header, 48, 64, "bgr8", 0, 192, np.zeros(100, np.uint8))
    with pytest.raises(InputError, match="do not make 64x48"):
        pixels_of(image, "x")


@pytest.mark.skipif(not FIXTURES.is_dir(), reason="../shared/fixtures is not there")
@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_recorded_bags_of_both_storages_hold_the_same(storage: str) -> None:
    resources = FIXTURES / "rosbag2/rosbag2_py/test/resources"
    with Bag(resources / storage / "wbag") as bag:
        messages = list(bag.messages())
        assert len(messages) == 6074 and not bag.truncated
        times = [message.log_time_ns for message in messages]
        assert times == sorted(times)
        assert bag.decode(messages[0]).data == "Hello, world! 0 - 0"
