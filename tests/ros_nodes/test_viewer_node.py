"""The viewer node as a process: topics, page and what it costs when nobody looks."""

import base64
import http.client
import json
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

pytest.importorskip("rclpy", reason="needs ROS 2")
pytest.importorskip("vision_msgs", reason="needs vision_msgs: python -m ros_nodes.setup_ros")

from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.parameter import Parameter
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from vision_msgs.msg import Detection2DArray, LabelInfo
from visualization_msgs.msg import Marker, MarkerArray

from perception.detections import Detections
from perception.draw import class_color
from perception.errors import InputError
from perception.frame import Frame
from ros_nodes import convert, qos
from ros_nodes.handover import Handover
from ros_nodes.viewer_node import ViewerNode
from ros_nodes.web.markers import box_markers
from tests.ros_nodes.peer import NodeProcess, Peer

NAMES = ("car", "person")
BOX = (40.0, 60.0, 140.0, 160.0)
WIDTH, HEIGHT = 320, 240


class Rig:
    """A running viewer, a camera and a tracker that feed it, and a listener."""

    def __init__(self, tmp_path: Path, **parameters: object) -> None:
        self.peer = Peer()
        node = self.peer.node
        self.image = node.create_publisher(Image, "image_raw", qos.image_publisher())
        self.jpeg = node.create_publisher(
            CompressedImage, "image_raw/compressed", qos.image_publisher()
        )
        self.tracks = node.create_publisher(Detection2DArray, "tracks", qos.results())
        labels = node.create_publisher(LabelInfo, "label_info", qos.latched())
        labels.publish(convert.label_info(NAMES, 0.5))
        self.diagnostics = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self.node = NodeProcess(
            "viewer_node", tmp_path / "log", web_port=0, diagnostics_period=0.2, **parameters
        )
        self.stamp, self.step = 10**9, 10**7
        self.peer.wait_for(lambda: "page at" in self.node.output, "the page")
        found = re.search(r"page at http://127\.0\.0\.1:(\d+)", self.node.output)
        assert found is not None
        self.port = int(found.group(1))

    def picture(self) -> Frame:
        self.stamp += self.step
        return Frame(np.full((HEIGHT, WIDTH, 3), 90, np.uint8), self.stamp, "optical")

    def feed(self, results: bool = True, step: int | None = None, jpeg: bool = False) -> Frame:
        """Send one picture and, with `results`, one box on it."""
        frame = self.picture()
        if jpeg:
            self.jpeg.publish(convert.compressed_message(frame))
        else:
            message = convert.image_message(frame)
            if step is not None:
                message.step = step
            self.image.publish(message)
        if results:
            found = Detections.create([BOX], [0.9], [1], [7])
            self.tracks.publish(convert.detections_message(found, frame, NAMES))
        self.diagnostics.publish(
            DiagnosticArray(
                status=[
                    DiagnosticStatus(
                        level=DiagnosticStatus.OK,
                        name="/detector",
                        message="ok",
                        values=[
                            KeyValue(key="received", value="5"),
                            KeyValue(key="rate", value="9"),
                        ],
                    )
                ]
            )
        )
        return frame

    def feed_until(self, condition: Any, what: str, **feeding: Any) -> None:
        end = time.monotonic() + 25
        while not condition():
            assert time.monotonic() < end, f"not within 25 s: {what}\n{self.node.output}"
            self.feed(**feeding)
            self.peer.spin(0.05)

    def get(self, path: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("GET", path)
        return connection.getresponse()

    def state(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.get("/api/state").read())
        return content

    def value(self, key: str) -> str | None:
        status = self.peer.status("/viewer")
        return next((v.value for v in status.values if v.key == key), None) if status else None

    def close(self) -> None:
        if self.node.process.poll() is None:
            assert self.node.stop() == 0
        assert "Traceback" not in self.node.output
        self.peer.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


def _near(pixel: Any, color: tuple[int, int, int], tolerance: int = 60) -> bool:
    return bool((np.abs(np.asarray(pixel, int) - np.array(color)) <= tolerance).all())


def _next_picture(stream: http.client.HTTPResponse) -> np.ndarray:
    """The next JPEG of an MJPEG stream, decoded."""
    length = 0
    while not length:
        line = stream.readline()
        assert line, "the stream has ended"
        if line.lower().startswith(b"content-length"):
            length = int(line.split(b":")[1])
    stream.readline()
    return np.asarray(cv2.imdecode(np.frombuffer(stream.read(length), np.uint8), cv2.IMREAD_COLOR))


def test_nothing_is_subscribed_while_nobody_looks(rig: Rig) -> None:
    rig.feed()
    rig.peer.wait_for(lambda: rig.peer.status("/viewer"), "diagnostics")
    rig.peer.spin(1.0)
    assert rig.image.get_subscription_count() == rig.tracks.get_subscription_count() == 0
    assert rig.value("watched") == "False" and rig.value("drawn") == "0"
    rig.state()
    rig.peer.wait_for(lambda: rig.image.get_subscription_count(), "subscribed for the page")
    rig.peer.wait_for(
        lambda: not rig.image.get_subscription_count(), "let go after the page has closed"
    )


def test_annotated_picture_has_the_boxes_and_the_header_of_its_own_picture(rig: Rig) -> None:
    out = rig.peer.collect(Image, "image_annotated", qos.image_subscription())

    def edge() -> tuple[int, ...]:
        return tuple(convert.image_frame(out[-1]).image[110, 40].tolist())

    rig.feed_until(lambda: out and edge() == class_color(1), "a box in the colour of its class")
    message = out[-1]
    assert message.header.frame_id == "optical"
    assert 10**9 < convert.stamp_ns(message.header.stamp) <= rig.stamp
    drawn = convert.image_frame(message).image
    assert drawn.shape == (HEIGHT, WIDTH, 3)
    assert tuple(drawn[200, 300]) == (90, 90, 90)


def test_annotated_picture_reaches_those_who_ask_for_reliable_ones(rig: Rig) -> None:
    out = rig.peer.collect(Image, "image_annotated", qos.results())
    rig.feed_until(lambda: out, "the annotated picture")


def test_pictures_of_a_camera_that_stamps_nothing_go_on(rig: Rig) -> None:
    out = rig.peer.collect(Image, "image_annotated", qos.image_subscription())
    rig.step = 0
    rig.stamp = 0
    rig.feed_until(lambda: len(out) >= 5, "one picture after the other")
    assert {convert.stamp_ns(message.header.stamp) for message in out} == {0}

    def told() -> bool:
        status = rig.peer.status("/viewer")
        return status is not None and "pictures carry stamp 0" in status.message

    rig.peer.wait_for(told, "a warning")


def test_annotated_jpeg_only_when_asked_for(rig: Rig) -> None:
    out = rig.peer.collect(CompressedImage, "image_annotated/compressed", qos.image_subscription())
    rig.feed_until(lambda: out, "annotated JPEG")
    assert out[-1].header.frame_id == "optical"
    assert convert.compressed_frame(out[-1]).image.shape == (HEIGHT, WIDTH, 3)


def test_page_shows_the_newest_picture_with_boxes_and_the_state(rig: Rig) -> None:
    stream = rig.get("/stream.mjpg")
    rig.feed_until(lambda: rig.state()["picture"]["objects"] == 1, "the picture")
    latest: list[np.ndarray] = []

    def shown() -> bool:
        latest[:] = [_next_picture(stream)]
        # What comes first may be the notice that there is no picture yet, or a picture from
        # before the class names arrived: colours go by a class's number.
        right_size = latest[0].shape == (HEIGHT, WIDTH, 3)
        return right_size and _near(latest[0][110, 40], class_color(1))

    rig.feed_until(shown, "the box in the colour of its class")
    assert _near(latest[0][200, 300], (90, 90, 90))
    state = rig.state()
    assert state["picture"]["frame_id"] == "optical" and state["picture"]["width"] == WIDTH
    assert state["flow"][0]["name"] == "/detector" and state["flow"][0]["rate"] == 9
    rig.feed_until(lambda: rig.state()["verdict"]["level"] == "OK", "all well")
    stream.close()


def test_lifecycle_states_are_asked_for(rig: Rig) -> None:
    def lifecycle() -> str | None:
        nodes = {node["name"]: node for node in rig.state()["nodes"]}
        return nodes.get("/viewer", {}).get("lifecycle")

    rig.feed_until(lambda: lifecycle() == "active", "the viewer's own state")


def test_a_camera_that_falls_silent_is_stale_on_the_page(rig: Rig) -> None:
    rig.feed_until(lambda: rig.state()["picture"]["objects"] == 1, "the picture")

    def verdict() -> dict[str, Any]:
        found: dict[str, Any] = rig.state()["verdict"]
        return found

    rig.peer.wait_for(lambda: verdict()["level"] == "STALE", "stale")
    assert "no picture for" in verdict()["reasons"][0]["text"]
    assert rig.state()["picture"]["trouble"].startswith("no picture for")
    rig.peer.wait_for(lambda: rig.state()["picture"]["objects"] is None, "objects unknown")
    rig.peer.wait_for(
        lambda: rig.peer.status("/viewer").level == DiagnosticStatus.STALE, "in diagnostics"
    )


def test_broken_pictures_are_an_error_and_counted(rig: Rig) -> None:
    rig.feed_until(
        lambda: "broken picture: step 7" in rig.state()["picture"]["trouble"], "broken", step=7
    )
    assert rig.state()["verdict"]["level"] == "ERROR"
    rig.peer.wait_for(lambda: int(rig.value("broken") or 0) > 0, "counted")
    rig.feed_until(lambda: not rig.state()["picture"]["trouble"], "recovered")


def test_pictures_without_results_are_an_error_not_an_empty_scene(rig: Rig) -> None:
    out = rig.peer.collect(Image, "image_annotated", qos.image_subscription())
    rig.feed_until(
        lambda: "no tracks for" in rig.state()["picture"]["trouble"] and out,
        "missing results",
        results=False,
    )
    assert rig.state()["verdict"]["level"] == "ERROR"
    assert rig.state()["picture"]["objects"] is None
    red = convert.image_frame(out[-1]).image[0, -1]
    assert _near(red, (40, 40, 220))  # the banner on the picture itself


def test_compressed_cameras_can_be_viewed(tmp_path: Path) -> None:
    rig = Rig(tmp_path, compressed=True)
    rig.feed_until(lambda: rig.state()["picture"]["objects"] == 1, "the picture", jpeg=True)
    rig.close()


def test_markers_stand_on_the_viewing_rays(rig: Rig) -> None:
    out = rig.peer.collect(MarkerArray, "markers", qos.results())
    info = rig.peer.node.create_publisher(CameraInfo, "camera_info", qos.image_publisher())

    def markers() -> Any:
        info.publish(_camera_info())
        return out

    rig.feed_until(markers, "markers")
    outline = out[-1].markers[1]
    assert outline.header.frame_id == "optical" and outline.type == Marker.LINE_STRIP
    assert rig.image.get_subscription_count() == 0  # markers need no pictures


def test_page_can_be_turned_off(tmp_path: Path) -> None:
    peer = Peer()
    node = NodeProcess("viewer_node", tmp_path / "log", web=False, diagnostics_period=0.2)
    peer.wait_for(lambda: peer.status("/viewer"), "running")
    values = {value.key: value.value for value in peer.status("/viewer").values}
    assert values["page"] == "off" and "page at" not in node.output
    assert node.stop() == 0
    peer.close()


def test_a_taken_port_ends_the_start_with_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        node = NodeProcess("viewer_node", tmp_path / "log", web_port=taken.getsockname()[1])
        assert node.process.wait(timeout=20) == 2
    assert "web_port" in node.output and "Traceback" not in node.output


def test_pictures_and_results_of_the_same_process_come_by_reference() -> None:
    peer, handover = Peer(), Handover()
    handover.announce("/image_raw")
    handover.announce("/tracks")
    options = [Parameter("web", value=False)]
    node = ViewerNode(handover, context=peer.context, parameter_overrides=options)
    node.trigger_configure()
    node.trigger_activate()
    peer.add(node)
    out = peer.collect(Image, "image_annotated", qos.image_subscription())
    peer.wait_for(lambda: handover.wanted("/image_raw") and handover.wanted("/tracks"), "wanted")
    pixels = np.full((HEIGHT, WIDTH, 3), 90, np.uint8)
    stamp = 10**9

    def fed() -> list[Any]:
        nonlocal stamp
        stamp += 10**7
        frame = Frame(pixels, stamp, "optical")
        handover.send("/image_raw", frame)
        handover.send("/tracks", (frame, Detections.create([BOX], [0.9], [1], [7])))
        return out

    peer.wait_for(fed, "an annotated picture")
    drawn = convert.image_frame(out[-1]).image
    assert tuple(drawn[110, 40]) == class_color(1)
    assert (pixels == 90).all()  # shared with other nodes: never drawn on
    assert peer.node.count_subscribers("image_raw") == 0
    node.trigger_shutdown()
    node.destroy_node()
    peer.close()


# Without a process -------------------------------------------------------------------------------


def _camera_info() -> CameraInfo:
    return CameraInfo(
        width=WIDTH,
        height=HEIGHT,
        distortion_model="plumb_bob",
        d=[0.0] * 5,
        k=[200.0, 0.0, 160.0, 0.0, 200.0, 120.0, 0.0, 0.0, 1.0],
    )


def test_marker_corners_follow_the_pinhole_equation() -> None:
    frame = Frame(np.zeros((0, 0), np.uint8), 5 * 10**9, "optical")
    found = Detections.create([BOX], [0.9], [1], [7])
    first, outline, label = box_markers(found, NAMES, frame, _camera_info(), 2.0).markers
    assert first.action == Marker.DELETEALL and label.text == "#7 person"
    assert outline.header.stamp == Time(sec=5)
    corners = [(point.x, point.y, point.z) for point in outline.points]
    x1, y1, x2, y2 = ((v - c) / 200 * 2 for v, c in zip(BOX, (160, 120, 160, 120), strict=True))
    expected = [(x1, y1, 2), (x2, y1, 2), (x2, y2, 2), (x1, y2, 2), (x1, y1, 2)]
    np.testing.assert_allclose(corners, expected, atol=1e-6)


def test_an_uncalibrated_camera_gives_no_markers_but_a_reason() -> None:
    frame = Frame(np.zeros((0, 0), np.uint8), 0, "optical")
    with pytest.raises(InputError, match="calibrated"):
        box_markers(Detections.empty(), NAMES, frame, CameraInfo(width=4, height=4), 1.0)


# In a browser ------------------------------------------------------------------------------------

BROWSER = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
DRIVER = shutil.which("chromedriver")


class Browser:
    """Headless Chromium by the WebDriver protocol (https://www.w3.org/TR/webdriver2/)."""

    def __init__(self, profile: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._driver = subprocess.Popen(
            [str(DRIVER), f"--port={self._port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        arguments = [
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--window-size=1280,900", f"--user-data-dir={profile}",
        ]  # fmt: skip
        options = {"binary": BROWSER, "args": arguments}
        # A page with an endless picture never counts as loaded.
        wanted = {"pageLoadStrategy": "none", "goog:chromeOptions": options}
        end = time.monotonic() + 30
        while True:
            try:
                made = self._call("POST", "", {"capabilities": {"alwaysMatch": wanted}})
                break
            except OSError:
                assert time.monotonic() < end, "chromedriver does not answer"
                time.sleep(0.2)
        self._session = f"/{made['sessionId']}"

    def _call(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/session{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def open(self, url: str) -> None:
        self._call("POST", f"{self._session}/url", {"url": url})

    def run(self, script: str) -> Any:
        body = {"script": script, "args": []}
        return self._call("POST", f"{self._session}/execute/sync", body)

    def screenshot(self) -> np.ndarray:
        data = base64.b64decode(self._call("GET", f"{self._session}/screenshot"))
        picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        assert picture is not None
        return np.asarray(picture)

    def close(self) -> None:
        try:
            self._call("DELETE", self._session)
        finally:
            self._driver.terminate()
            self._driver.wait(timeout=10)


@pytest.mark.skipif(not (BROWSER and DRIVER), reason="needs chromium and chromedriver")
def test_a_person_sees_the_picture_then_a_stale_camera_then_a_lost_robot(
    rig: Rig, tmp_path: Path
) -> None:
    browser = Browser(tmp_path / "profile")
    try:
        rig.feed_until(lambda: rig.state()["picture"]["objects"] == 1, "the picture")
        browser.open(f"http://127.0.0.1:{rig.port}/")
        text = "return document.getElementById('verdict')?.textContent"
        rig.feed_until(lambda: browser.run(text) == "OK", "OK in the banner")
        width = "return document.getElementById('picture').naturalWidth"
        rig.feed_until(lambda: browser.run(width) == WIDTH, "the live picture")
        assert browser.run("return document.querySelectorAll('#flow tbody tr').length") == 1
        frame = "return document.getElementById('frame').className"
        rig.feed_until(lambda: browser.run(frame) == "live", "a picture that counts as live")
        # The banner fades to its colour within 0.2 s.
        rig.feed_until(
            lambda: _near(browser.screenshot()[40, 600], (67, 160, 46), 15), "a green banner"
        )

        def box_is_seen() -> bool:
            # Somewhere in the left half, where the live picture is.
            left = browser.screenshot()[120:, :640].astype(int)
            return bool((np.abs(left - np.array(class_color(1))).max(axis=2) < 40).sum() > 50)

        rig.feed_until(box_is_seen, "the box in the colour of its class")

        rig.peer.wait_for(lambda: browser.run(text) == "STALE", "STALE in the banner")
        rig.peer.wait_for(lambda: browser.run(frame) == "dead", "a picture that counts as dead")
        assert "no picture" in browser.run("return document.getElementById('veil').textContent")

        rig.node.stop()
        rig.peer.wait_for(lambda: browser.run(text) == "NO CONNECTION", "a lost robot is told")
        assert browser.run("return document.getElementById('banner').className") == "offline"
    finally:
        browser.close()
