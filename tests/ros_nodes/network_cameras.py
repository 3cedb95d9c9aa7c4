"""Network cameras for tests, on the loopback: MJPEG over HTTP and H.264 over RTSP."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import av
import cv2
import numpy as np
import numpy.typing as npt

PICTURES = 120


def numbered(number: int) -> npt.NDArray[np.uint8]:
    """uint8 (48, 64, 3), noise with the bits of the number as eight upright bands."""
    bits = np.repeat([number >> bit & 1 for bit in range(8)], 8)
    noise = np.random.default_rng(0).integers(-40, 41, (48, 64, 3))
    return (128 + noise + 80 * (2 * bits[None, :, None] - 1)).astype(np.uint8)


def number_of(image: npt.NDArray[np.uint8]) -> int:
    """The number that a picture shows, bands that are neither dark nor bright count as 256."""
    bands = image.reshape(48, 8, 8, 3).mean(axis=(0, 2, 3))
    if (np.abs(bands - 128) < 60).any():
        return 256
    return int(((bands > 128) << np.arange(8)).sum())


def jpeg(number: int) -> bytes:
    return cv2.imencode(".jpg", numbered(number))[1].tobytes()


@contextmanager
def mjpeg_camera(pictures: Sequence[bytes], port: int = 0) -> Iterator[ThreadingHTTPServer]:
    """Sends each of the pictures once and hangs up."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=frame")
            self.end_headers()
            for picture in pictures:
                head = f"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {len(picture)}"
                self.wfile.write(head.encode() + b"\r\n\r\n" + picture + b"\r\n")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def rtsp_camera(damaged: int = -1) -> Iterator[int]:
    """The port of a camera of PICTURES numbered pictures, every tenth a key frame.

    damaged: number of a picture that arrives with wrong bytes.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_serve, args=(listener, damaged), daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()


def _serve(listener: socket.socket, damaged: int) -> None:
    try:
        connection, _ = listener.accept()
    except OSError:
        return
    with connection, connection.makefile("rb") as lines:
        while request := lines.readline():
            method, fields = request.split()[0].decode(), {}
            while line := lines.readline().strip():
                name, _, value = line.decode().partition(":")
                fields[name.lower()] = value.strip()
            body, more = b"", ""
            if method == "DESCRIBE":
                more, body = "Content-Type: application/sdp\r\n", _description()
            if method == "SETUP":
                more = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\nSession: 1\r\n"
            head = f"RTSP/1.0 200 OK\r\nCSeq: {fields['cseq']}\r\n{more}"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            if method == "PLAY":
                _play(connection, damaged)
                return


def _description() -> bytes:
    return (
        b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=test\r\nt=0 0\r\nm=video 0 RTP/AVP 96\r\n"
        b"a=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1\r\na=control:track\r\n"
    )


def _play(connection: socket.socket, damaged: int) -> None:
    """FFmpeg makes the RTP packets; they are sent on inside the RTSP connection."""
    inbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    inbox.bind(("127.0.0.1", 0))
    inbox.settimeout(1.0)
    url = f"rtp://127.0.0.1:{inbox.getsockname()[1]}?pkt_size=400"
    with av.open(url, "w", format="rtp") as out, inbox:
        stream = out.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.options = {
            "tune": "zerolatency",
            "g": "10",
            "x264-params": "repeat-headers=1:scenecut=0:threads=1",
        }
        for picture in range(PICTURES):
            frame = av.VideoFrame.from_ndarray(numbered(picture), format="bgr24")
            frame.pts = picture
            for packet in stream.encode(frame):
                out.mux(packet)
            for data in _waiting(inbox):
                if picture == damaged:
                    data = (
                        data[: len(data) // 2] + bytes(len(data) // 4) + data[len(data) * 3 // 4 :]
                    )
                connection.sendall(b"$\0" + len(data).to_bytes(2, "big") + data)


def _waiting(inbox: socket.socket) -> list[bytes]:
    packets: list[bytes] = []
    time.sleep(0.005)
    inbox.setblocking(False)
    try:
        while True:
            packets.append(inbox.recv(2000))
    except BlockingIOError:
        return packets
