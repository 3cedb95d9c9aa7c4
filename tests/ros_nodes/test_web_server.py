"""The page's server: what it hands out, to whom, and that a slow client delays nobody."""

import http.client
import json
import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from perception.errors import InputError
from ros_nodes.web.server import LatestPicture, WebServer

STATE = {"verdict": {"level": "OK"}}


@pytest.fixture
def pictures() -> LatestPicture:
    return LatestPicture()


@pytest.fixture
def server(pictures: LatestPicture) -> Iterator[WebServer]:
    made = WebServer("127.0.0.1", 0, lambda: STATE, pictures)
    made.start()
    yield made
    made.close()


def _ask(
    server: WebServer, path: str, method: str = "GET", **headers: str
) -> http.client.HTTPResponse:
    place = urlsplit(server.address)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=5)
    connection.request(method, path, headers=headers)
    return connection.getresponse()


def _part(stream: http.client.HTTPResponse) -> bytes:
    """The next picture of an MJPEG stream."""
    length = 0
    while True:
        line = stream.readline().strip()
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
        if not line and length:
            return stream.read(length)


@pytest.mark.parametrize(
    ("path", "kind", "content"),
    [
        ("/", "text/html", b"<title>Waysight</title>"),
        ("/viewer.js", "text/javascript", b"/api/state"),
        ("/viewer.css", "text/css", b"#banner"),
        ("/icon.svg", "image/svg+xml", b"<svg"),
    ],
)
def test_static_files(server: WebServer, path: str, kind: str, content: bytes) -> None:
    answer = _ask(server, path)
    assert answer.status == 200 and answer.headers["Content-Type"].startswith(kind)
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    assert content in answer.read()


def test_no_page_refers_to_another_host(server: WebServer) -> None:
    for path in ("/", "/viewer.js", "/viewer.css"):
        text = _ask(server, path).read().decode()
        assert "http://" not in text and "https://" not in text and "//cdn" not in text


def test_state_is_json_and_counts_as_interest(server: WebServer, pictures: LatestPicture) -> None:
    assert not pictures.wanted
    answer = _ask(server, "/api/state")
    assert json.loads(answer.read()) == STATE
    assert answer.headers["Cache-Control"] == "no-store"
    assert pictures.wanted


@pytest.mark.parametrize(
    "path", ["/../server.py", "/server.py", "/%2e%2e/state.py", "//etc/passwd"]
)
def test_nothing_but_the_page_is_handed_out(server: WebServer, path: str) -> None:
    assert _ask(server, path).status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(server: WebServer, method: str) -> None:
    assert _ask(server, "/api/state", method).status == 501


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8600", "10.0.0.5:8600", ""])
def test_another_name_for_this_machine_is_refused_on_loopback(server: WebServer, host: str) -> None:
    assert _ask(server, "/api/state", Host=host).status == 403


@pytest.mark.parametrize("host", ["localhost:8600", "127.0.0.1", "[::1]:8600"])
def test_local_names_are_served(server: WebServer, host: str) -> None:
    assert _ask(server, "/api/state", Host=host).status == 200


def test_stream_sends_each_new_picture_whole(server: WebServer, pictures: LatestPicture) -> None:
    pictures.put(b"first")
    stream = _ask(server, "/stream.mjpg")
    assert stream.headers["Content-Type"].startswith("multipart/x-mixed-replace")
    assert _part(stream) == b"first"
    pictures.put(b"second" * 1000)
    assert _part(stream) == b"second" * 1000


def test_a_client_gets_the_newest_picture_not_a_queue(pictures: LatestPicture) -> None:
    for n in range(5):
        pictures.put(b"%d" % n)
    newest = pictures.wait(0, 1)
    assert newest == (b"4", 5)
    assert pictures.wait(5, 0.01) is None


def test_a_forgotten_picture_is_not_shown_to_the_next_client(pictures: LatestPicture) -> None:
    pictures.put(b"old")
    pictures.clear()
    assert pictures.wait(0, 0.01) is None
    pictures.put(b"new")
    assert pictures.wait(0, 0.01) == (b"new", 2)


def test_a_client_that_reads_nothing_delays_neither_node_nor_others(
    server: WebServer, pictures: LatestPicture
) -> None:
    place = urlsplit(server.address)
    stuck = socket.create_connection((place.hostname, place.port))
    stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stuck.sendall(b"GET /stream.mjpg HTTP/1.1\r\nHost: localhost\r\n\r\n")
    quick = _ask(server, "/stream.mjpg")
    big = b"x" * 2_000_000
    for n in range(3):
        pictures.put(big + b"%d" % n)
        assert _part(quick)[-1:] == b"%d" % n
    assert pictures._streams == 2  # the stuck one is still being waited for
    stuck.close()


def test_streams_are_limited_and_free_again_when_clients_go(
    server: WebServer, pictures: LatestPicture
) -> None:
    pictures.put(b"x")
    streams = [_ask(server, "/stream.mjpg") for _ in range(8)]
    assert [stream.status for stream in streams] == [200] * 8
    assert _ask(server, "/stream.mjpg").status == 503
    for stream in streams:
        stream.close()
    end = time.monotonic() + 10
    while pictures._streams and time.monotonic() < end:
        pictures.put(b"x")  # a gone client is noticed when something is sent
        time.sleep(0.02)
    assert pictures._streams == 0


def test_closing_ends_open_streams(pictures: LatestPicture) -> None:
    server = WebServer("127.0.0.1", 0, lambda: STATE, pictures)
    server.start()
    pictures.put(b"x")
    stream = _ask(server, "/stream.mjpg")
    assert _part(stream) == b"x"
    server.close()
    stream.read()  # returns because the server ends it
    with pytest.raises(OSError, match="refused"):
        _ask(server, "/")


def test_a_taken_port_is_named(server: WebServer, pictures: LatestPicture) -> None:
    port = urlsplit(server.address).port or 0
    with pytest.raises(InputError, match=f"web_port {port}"):
        WebServer("127.0.0.1", port, lambda: STATE, pictures)


def test_an_address_that_is_not_ours_is_named(pictures: LatestPicture) -> None:
    with pytest.raises(InputError, match=r"web_host '192\.0\.2\.1'"):
        WebServer("192.0.2.1", 0, lambda: STATE, pictures)
