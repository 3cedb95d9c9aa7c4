"""HTTP server of the viewer's page: static files, the state as JSON, the picture as MJPEG.

Each client has a thread of its own and gets the newest picture when it is ready for one, so that a
slow client delays nobody. Only reading is possible.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from perception.errors import InputError

_LOG = logging.getLogger(__name__)

_FOLDER = Path(__file__).resolve().parent
_PAGES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/viewer.css": ("viewer.css", "text/css; charset=utf-8"),
    "/viewer.js": ("viewer.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_MOST_STREAMS = 8
_MOST_THREADS = 64
_CLIENT_SECONDS = 5.0  # a client that takes nothing for so long is cut off
_INTEREST_SECONDS = 5.0  # after its last question a page counts as closed
_BOUNDARY = "waysight-picture"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class LatestPicture:
    """The newest JPEG and its number; whoever waits gets the newest, never a queue."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._jpeg = b""
        self._number = 0
        self._closed = False
        self._streams = 0
        self._asked = float("-inf")

    def put(self, jpeg: bytes) -> None:
        """Replace the picture and wake those who wait."""
        with self._changed:
            self._jpeg = jpeg
            self._number += 1
            self._changed.notify_all()

    def wait(self, seen: int, timeout: float) -> tuple[bytes, int] | None:
        """(JPEG, number) newer than number `seen`; None after `timeout` seconds or when closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_newer(seen) or self._closed, timeout)
            if self._closed or not self._is_newer(seen):
                return None
            return self._jpeg, self._number

    def _is_newer(self, seen: int) -> bool:
        return bool(self._jpeg) and self._number > seen

    def clear(self) -> None:
        """Forget the picture, so that nobody is shown it later as if it were new."""
        with self._changed:
            self._jpeg = b""

    def close(self) -> None:
        """Let every stream end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def wanted(self) -> bool:
        """Whether a page is open: a stream runs, or the state was asked for a moment ago."""
        return self._streams > 0 or time.monotonic() - self._asked < _INTEREST_SECONDS

    def note_interest(self) -> None:
        """A page has asked for the state."""
        self._asked = time.monotonic()

    def enter(self) -> bool:
        """Count a stream in; False when there are too many."""
        with self._changed:
            if self._streams >= _MOST_STREAMS:
                return False
            self._streams += 1
            return True

    def leave(self) -> None:
        """Count a stream out."""
        with self._changed:
            self._streams -= 1


class WebServer:
    """Serves the page from `start` to `close`.

    host, port: where to listen; port 0 takes a free one, see `address`. state: gives the JSON-ready
    content of /api/state and is called in a client's thread. pictures: what /stream.mjpg sends.
    Raises InputError when the address cannot be had.
    """

    def __init__(
        self, host: str, port: int, state: Callable[[], dict[str, Any]], pictures: LatestPicture
    ) -> None:
        handler = type("Handler", (_Handler,), {"state": staticmethod(state), "pictures": pictures})
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        server_type = type("Server", (_Server,), {"address_family": family})
        try:
            self._server = server_type((host, port), handler)
        except OSError as error:
            raise InputError(
                f"web_host '{host}', web_port {port}: cannot listen there: {error.strerror}"
            ) from None
        self._server.loopback = _is_loopback(self._server.server_address[0])
        self._pictures = pictures
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.2},
            name="web",
            daemon=True,
        )

    @property
    def address(self) -> str:
        """URL of the page."""
        host, port = self._server.server_address[:2]
        return f"http://{f'[{host}]' if ':' in str(host) else host}:{port}"

    def start(self) -> None:
        """Serve in threads of its own."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening and end every stream."""
        self._pictures.close()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(timeout=2.0)
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a stream to a stuck client must not hold up the node's end
    request_queue_size = 32

    def __init__(self, *arguments: Any) -> None:
        self.loopback = True
        self._free = threading.BoundedSemaphore(_MOST_THREADS)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no event; anything else is a bug and is logged."""
        if not isinstance(sys.exc_info()[1], OSError):
            _LOG.exception("answering %s failed", client_address)


class _Handler(BaseHTTPRequestHandler):
    state: Callable[[], dict[str, Any]]
    pictures: LatestPicture
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = "waysight"
    sys_version = ""
    timeout = _CLIENT_SECONDS

    def do_GET(self) -> None:
        """Answer one request; every other method is refused by the base class."""
        if self.server.loopback and not _is_local_name(self.headers.get("Host", "")):
            # A page from elsewhere whose name was pointed at this machine (DNS rebinding).
            self._refuse(HTTPStatus.FORBIDDEN)
            return
        path = self.path.partition("?")[0]
        if path in _PAGES:
            name, kind = _PAGES[path]
            self._send((_FOLDER / name).read_bytes(), kind)
        elif path == "/api/state":
            self.pictures.note_interest()
            text = json.dumps(self.state(), allow_nan=False, ensure_ascii=False)
            self._send(text.encode(), "application/json")
        elif path == "/stream.mjpg":
            self._stream()
        else:
            self._refuse(HTTPStatus.NOT_FOUND)

    def _stream(self) -> None:
        if not self.pictures.enter():
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
            return
        try:
            self.close_connection = True
            # What lies in the kernel's buffer is already old when a slow client gets it.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 17)
            self._head(f"multipart/x-mixed-replace; boundary={_BOUNDARY}", None)
            self.wfile.write(f"--{_BOUNDARY}\r\n".encode())
            number = 0
            while not self.pictures.closed:
                newer = self.pictures.wait(number, timeout=_CLIENT_SECONDS)
                if newer is None:
                    continue
                jpeg, number = newer
                part = f"Content-Type: image/jpeg\r\nContent-Length: {len(jpeg)}\r\n\r\n".encode()
                # The boundary goes out at once: browsers show a part when the next one begins.
                self.wfile.write(part + jpeg + f"\r\n--{_BOUNDARY}\r\n".encode())
        except OSError:
            pass  # the client has gone, or took nothing for _CLIENT_SECONDS
        finally:
            self.pictures.leave()

    def _send(self, body: bytes, kind: str) -> None:
        self._head(kind, len(body))
        self.wfile.write(body)

    def _refuse(self, status: HTTPStatus) -> None:
        body = f"{status.value} {status.phrase}\n".encode()
        self._head("text/plain; charset=utf-8", len(body), status)
        self.wfile.write(body)

    def _head(self, kind: str, length: int | None, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are no news."""


def _is_loopback(host: object) -> bool:
    try:
        return ipaddress.ip_address(str(host)).is_loopback
    except ValueError:
        return False


def _is_local_name(host: str) -> bool:
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    return name == "localhost" or _is_loopback(name.strip("[]"))
