"""The detector node as a process among foreign ROS nodes."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

pytest.importorskip("rclpy", reason="needs ROS 2")
pytest.importorskip("vision_msgs", reason="needs vision_msgs: python -m ros_nodes.setup_ros")

from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticStatus
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.srv import GetParameters, SetParameters
from rclpy.parameter import Parameter
from sensor_msgs.msg import CompressedImage, Image
from std_srvs.srv import SetBool
from vision_msgs.msg import Detection2DArray, LabelInfo

from perception.frame import Frame
from ros_nodes import convert, qos
from ros_nodes.detector_node import DetectorNode
from ros_nodes.handover import Handover
from tests.onnx_models import bright_cell_detector
from tests.ros_nodes.peer import NodeProcess, Peer
from tests.ros_nodes.slow_model import slow_detector

WHITE = np.zeros((48, 64, 3), np.uint8)
WHITE[16:32, 16:32] = 255
BOX = (24.0, 24.0, 16.0, 16.0)  # centre and size of the bright cell


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bright_cell_detector(tmp_path_factory.mktemp("model") / "cells.onnx")


def _image(stamp_ns: int, picture: np.ndarray = WHITE, frame_id: str = "cam") -> Image:
    return convert.image_message(Frame(picture, stamp_ns, frame_id))


class Rig:
    """A running detector and a peer that feeds it and listens."""

    def __init__(
        self, tmp_path: Path, model: Path, offered: str = "best_effort", **parameters: object
    ) -> None:
        self.peer = Peer()
        self.results: list[Any] = self.peer.collect(Detection2DArray, "detections")
        self.labels: list[Any] = self.peer.collect(LabelInfo, "label_info", qos.latched())
        node = self.peer.node
        self.images = node.create_publisher(
            Image, "image_raw", qos.image_publisher(offered, depth=10)
        )
        self.jpegs = node.create_publisher(
            CompressedImage, "image_raw/compressed", qos.image_publisher(depth=10)
        )
        self.node = NodeProcess(
            "detector_node", tmp_path / "log", model=model, diagnostics_period=0.1, **parameters
        )

    def connected(self, publisher: Any = None, output: str = "/detections") -> None:
        self.peer.connected("/detector", to=[publisher or self.images], from_=[output])

    def values(self) -> dict[str, str]:
        status = self.peer.status("/detector")
        return {item.key: item.value for item in status.values} if status else {}

    def count(self, key: str) -> int:
        return int(self.values().get(key, 0))

    def call(self, kind: Any, service: str, request: Any) -> Any:
        client = self.peer.node.create_client(kind, service)
        self.peer.wait_for(client.service_is_ready, f"service {service}")
        future = client.call_async(request)
        self.peer.wait_for(future.done, f"an answer of {service}")
        self.peer.node.destroy_client(client)
        return future.result()

    def set(self, name: str, value: object) -> Any:
        message = Parameter(name, value=value).to_parameter_msg()
        request = SetParameters.Request(parameters=[message])
        return self.call(SetParameters, "/detector/set_parameters", request).results[0]

    def model_name(self) -> str:
        request = GetParameters.Request(names=["model"])
        answer = self.call(GetParameters, "/detector/get_parameters", request)
        return str(answer.values[0].string_value)

    def send(self, first: int, count: int, period: float = 0.02, **image: Any) -> None:
        for number in range(first, first + count):
            self.images.publish(_image(number, **image))
            self.peer.spin(period)

    def close(self) -> None:
        if self.node.process.poll() is None:
            self.node.stop()
        self.peer.close()


@pytest.fixture
def rig(tmp_path: Path, model: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path, model)
    yield rig
    rig.close()


@pytest.mark.parametrize("reliability", ["best_effort", "reliable"])
def test_best_effort_and_reliable_cameras_both_reach_it(
    tmp_path: Path, model: Path, reliability: str
) -> None:  # C47, first and second run
    rig = Rig(tmp_path, model, reliability)
    try:
        rig.connected()
        rig.send(1, 40, period=0.05)
        rig.peer.wait_for(lambda: rig.count("received") >= 38, "95 % of the pictures")
        assert rig.results
    finally:
        rig.close()


def test_reliable_reader_says_why_it_hears_nothing(tmp_path: Path, model: Path) -> None:
    # C47, third run: within 5 s a log line and an ERROR with topic and policy.
    rig = Rig(tmp_path, model, "best_effort", reliability="reliable")

    def told() -> bool:
        status = rig.peer.status("/detector")
        return (
            status is not None
            and status.level == DiagnosticStatus.ERROR
            and "RELIABILITY" in status.message
            and "/image_raw" in status.message
        )

    try:
        rig.peer.wait_for(lambda: rig.values(), "the detector to run")
        rig.peer.wait_for(told, "an ERROR naming topic and policy", timeout=5.0)
        assert "RELIABILITY" in rig.node.output
    finally:
        rig.close()


def test_header_reaches_every_part_of_the_result_unchanged(rig: Rig) -> None:  # C52
    rig.connected()
    stamp = 12_345_678_901
    rig.images.publish(_image(stamp, frame_id="cam_front_optical"))
    rig.peer.wait_for(lambda: rig.results, "the first result")
    rig.images.publish(_image(0, frame_id="cam_front_optical"))
    rig.peer.wait_for(lambda: len(rig.results) > 1, "the second result")
    for message, expected in zip(rig.results, (stamp, 0), strict=True):
        headers = [message.header, *(d.header for d in message.detections)]
        assert len(headers) == 2
        for header in headers:
            sec, nanosec = divmod(expected, 1_000_000_000)
            assert header.stamp == Time(sec=sec, nanosec=nanosec)
            assert header.frame_id == "cam_front_optical"
    box = rig.results[0].detections[0].bbox
    found = (box.center.position.x, box.center.position.y, box.size_x, box.size_y)
    assert found == pytest.approx(BOX, abs=0.5)
    assert rig.results[0].detections[0].results[0].hypothesis.class_id == "bright"
    assert rig.node.output.count("header stamp is 0") == 1


def test_broken_pictures_are_counted_and_never_published_as_nothing_there(rig: Rig) -> None:
    # C51: good, six broken, good; of the raw kinds.
    rig.connected()
    short = Image(height=48, width=64, step=192, encoding="bgr8", data=bytes(100))
    broken = [
        Image(height=480, width=640, step=1920, encoding="bgr8"),
        Image(encoding="bgr8"),
        short,
        Image(height=48, width=64, step=192, encoding="no_such", data=bytes(9216)),
    ]
    rig.images.publish(_image(1))
    rig.peer.wait_for(lambda: len(rig.results) == 1, "the first good picture")
    for number, message in enumerate(broken, start=1):
        rig.images.publish(message)
        rig.peer.wait_for(lambda n=number: rig.count("invalid") == n, "the count of broken ones")
    levels = [s.level for s in rig.peer.statuses if s.name == "/detector"]
    assert DiagnosticStatus.ERROR in levels
    rig.images.publish(_image(2))
    rig.peer.wait_for(lambda: len(rig.results) == 2, "the second good picture")
    assert [len(r.detections) for r in rig.results] == [1, 1]
    assert rig.node.process.poll() is None


def test_picture_of_which_the_model_loses_a_row_is_invalid(tmp_path: Path, model: Path) -> None:
    broken = onnx.load(str(model))
    (cells,) = (t for t in broken.graph.initializer if t.name == "cells")
    boxes = numpy_helper.to_array(cells).copy()
    boxes[0, 0, 2] = np.nan  # one cell, and not the bright one
    cells.CopyFrom(numpy_helper.from_array(boxes, "cells"))
    onnx.save(broken, str(tmp_path / "broken.onnx"))
    rig = Rig(tmp_path, tmp_path / "broken.onnx")

    def told() -> bool:
        said = "1 rows of the model are not finite"
        errors = [s for s in rig.peer.statuses if s.level == DiagnosticStatus.ERROR]
        return any(said in status.message for status in errors)

    try:
        rig.connected()
        rig.images.publish(_image(1))
        rig.peer.wait_for(lambda: rig.count("invalid") == 1 and told(), "an ERROR and the count")
        assert not rig.results
    finally:
        rig.close()


def test_damaged_jpegs_are_no_grey_pictures(tmp_path: Path, model: Path) -> None:  # C51
    rig = Rig(tmp_path, model, compressed=True)
    try:
        rig.connected(rig.jpegs)
        whole = cv2.imencode(".jpg", WHITE)[1].tobytes()
        for data in (whole, b"", bytes(range(40)), whole[: len(whole) // 2], whole):
            before = rig.count("processed") + rig.count("invalid")
            rig.jpegs.publish(CompressedImage(format="jpeg", data=data))
            rig.peer.wait_for(
                lambda b=before: rig.count("processed") + rig.count("invalid") == b + 1,
                "the picture to be counted",
            )
        rig.peer.wait_for(lambda: len(rig.results) == 2, "both good pictures")
        assert rig.count("invalid") == 3
        assert [len(r.detections) for r in rig.results] == [1, 1]
    finally:
        rig.close()


def test_camera_may_come_back_with_another_size_and_encoding(rig: Rig) -> None:
    rig.connected()
    big = np.zeros((96, 128), np.uint8)
    big[32:64, 32:64] = 255
    for number, picture in enumerate((WHITE, big, WHITE), start=1):
        rig.images.publish(_image(number, picture))
        rig.peer.wait_for(lambda n=number: len(rig.results) == n, f"result {number}")
    centers = [r.detections[0].bbox.center.position.x for r in rig.results]
    assert centers == pytest.approx([24.0, 48.0, 24.0], abs=1.0)


def test_camera_process_restarted_with_another_size_and_encoding_goes_on(
    rig: Rig, tmp_path: Path
) -> None:
    centers: list[set[float]] = []
    for number, (scale, kind) in enumerate(((1, np.uint8), (2, np.uint16)), start=1):
        pictures = tmp_path / f"pictures{number}"
        pictures.mkdir()
        large = cv2.resize(WHITE, None, fx=scale, fy=scale, interpolation=cv2.INTER_NEAREST)
        pixels = large.astype(kind) * (np.iinfo(kind).max // 255)  # sent as bgr8, then as bgr16
        cv2.imwrite(str(pictures / "0.png"), pixels)
        rig.results.clear()
        camera = NodeProcess(
            "camera_node", tmp_path / f"camera{number}", source=pictures, rate=20, loop=True
        )
        try:
            rig.peer.wait_for(lambda: len(rig.results) >= 5, f"results:\n{camera.output}")
        finally:
            camera.stop(signal.SIGKILL)
        rig.peer.spin(0.5)  # what is under way of the killed one
        centers.append({r.detections[0].bbox.center.position.x for r in rig.results})
    assert [sorted(c) for c in centers] == [
        [pytest.approx(24.0, abs=1)],
        [pytest.approx(48, abs=1)],
    ]
    assert rig.count("invalid") == 0


@pytest.mark.parametrize("big", [True, False])
def test_16_bit_pictures_of_either_byte_order_are_seen_alike(rig: Rig, big: bool) -> None:  # C49
    # Bright is 0xff00: read in the wrong order it is 0x00ff, as dark as the rest.
    deep = (WHITE[:, :, 0].astype(np.uint16) << 8).astype(">u2" if big else "<u2")
    message = Image(
        height=48, width=64, encoding="mono16", is_bigendian=int(big), step=128, data=deep.tobytes()
    )
    rig.connected()
    rig.images.publish(message)
    rig.peer.wait_for(lambda: rig.results, "a result")
    (found,) = rig.results[0].detections
    assert found.bbox.center.position.x == pytest.approx(24.0, abs=0.5)


def test_thresholds_change_live_and_bad_values_are_refused_with_a_reason(rig: Rig) -> None:
    rig.connected()
    grey = WHITE // 2  # scores about 0.5 in the bright cell
    grey[16:32, 16:32] = 150
    assert rig.set("score_threshold", 0.9).successful
    rig.images.publish(_image(1, grey))
    rig.peer.wait_for(lambda: len(rig.results) == 1, "the first result")
    assert rig.set("score_threshold", 0).successful  # an integer where a number is meant
    rig.images.publish(_image(2, grey))
    rig.peer.wait_for(lambda: len(rig.results) == 2, "the second result")
    assert rig.set("classes", ["dark"]).successful
    rig.images.publish(_image(3, grey))
    rig.peer.wait_for(lambda: len(rig.results) == 3, "the third result")
    kinds = [{d.results[0].hypothesis.class_id for d in r.detections} for r in rig.results]
    assert kinds[0] == set()
    assert "bright" in kinds[1]
    assert "bright" not in kinds[2]
    refused = rig.set("score_threshold", 1.5)
    assert not refused.successful
    assert "'score_threshold': got 1.5 (number), expected number from 0.0 to 1.0" in refused.reason
    refused = rig.set("classes", ["brigt"])
    assert not refused.successful
    assert "bright" in refused.reason
    assert not rig.set("autostart", False).successful


def test_model_is_swapped_live_and_garbage_leaves_the_old_one(rig: Rig, tmp_path: Path) -> None:
    rig.connected()
    other = bright_cell_detector(tmp_path / "other.onnx", names=("light", "shade"))
    garbage = tmp_path / "garbage.onnx"
    garbage.write_bytes(bytes(range(256)) * 20)
    rig.peer.wait_for(lambda: rig.labels, "the first LabelInfo")

    def name_of(number: int) -> str:
        rig.images.publish(_image(number))
        rig.peer.wait_for(lambda: len(rig.results) == number, f"result {number}")
        return str(rig.results[-1].detections[0].results[0].hypothesis.class_id)

    def troubled() -> bool:
        status = rig.peer.status("/detector")
        return status is not None and "garbage.onnx" in status.message

    assert name_of(1) == "bright"
    assert not rig.set("model", "/no/such.onnx").successful
    rig.set("model", str(garbage))
    rig.peer.wait_for(troubled, "an ERROR naming the garbage")
    assert name_of(2) == "bright"
    assert rig.set("model", str(other)).successful
    rig.peer.wait_for(lambda: rig.values().get("swaps") == "1", "the swap")
    assert name_of(3) == "light"
    rig.peer.wait_for(
        lambda: rig.labels[-1].class_map[0].class_name == "light", "LabelInfo of the new model"
    )
    assert not troubled()


def test_garbage_in_place_of_the_model_during_a_swap_costs_no_picture(
    tmp_path: Path, model: Path
) -> None:
    own = tmp_path / "own.onnx"
    own.write_bytes(model.read_bytes())
    other = bright_cell_detector(tmp_path / "other.onnx", names=("light", "shade"))
    rig = Rig(tmp_path, own, offered="reliable", reliability="reliable", depth=100)

    try:
        rig.connected()
        rig.send(1, 20)
        for path in (own, other):  # the file in use, and the one that is coming
            path.write_bytes(bytes(range(256)) * 20)
        rig.set("model", str(other))
        rig.send(21, 40)
        rig.peer.wait_for(lambda: "other.onnx" in rig.node.output, "a line about the garbage")
        rig.peer.wait_for(lambda: rig.model_name() == str(own), "the old name to come back")
        rig.send(61, 20)
        rig.peer.wait_for(
            lambda: rig.count("processed") + rig.count("dropped") == 80,
            "every picture to be accounted for",
        )
        rig.peer.wait_for(lambda: len(rig.results) == rig.count("processed"), "all results")
        kinds = {d.results[0].hypothesis.class_id for r in rig.results for d in r.detections}
        assert kinds == {"bright"} and all(r.detections for r in rig.results)
        assert rig.values()["swaps"] == "0" and rig.count("invalid") == 0
        assert rig.node.process.poll() is None
    finally:
        rig.close()


def test_refused_model_leaves_the_name_of_the_one_that_runs(
    rig: Rig, model: Path, slow_model: Path, tmp_path: Path
) -> None:
    garbage = tmp_path / "garbage.onnx"
    garbage.write_bytes(bytes(range(256)) * 20)
    rig.connected()
    assert rig.set("model", str(slow_model)).successful  # still loading when the next wish comes
    assert rig.set("model", str(garbage)).successful
    rig.peer.wait_for(lambda: rig.model_name() == str(model), "the name of the one that runs")
    rig.images.publish(_image(1))
    rig.peer.wait_for(lambda: rig.results, "a result")
    assert rig.values()["model"] == model.name and rig.values()["swaps"] == "0"


def test_label_info_tells_the_threshold_that_was_set_last(rig: Rig) -> None:
    rig.peer.wait_for(lambda: rig.labels, "the first LabelInfo")
    assert rig.labels[-1].threshold == 0.5
    assert rig.set("score_threshold", 0.75).successful
    rig.peer.wait_for(lambda: rig.labels[-1].threshold == 0.75, "the new threshold")


def test_disabled_detector_unsubscribes_and_comes_back(rig: Rig) -> None:
    rig.connected()
    assert rig.call(SetBool, "/detector/enable", SetBool.Request(data=False)).success
    rig.peer.wait_for(lambda: rig.images.get_subscription_count() == 0, "unsubscribing")
    assert rig.call(SetBool, "/detector/enable", SetBool.Request(data=True)).success
    rig.connected()
    rig.images.publish(_image(1))
    rig.peer.wait_for(lambda: rig.results, "a result after enabling")


def test_missing_pictures_are_told_once_and_counted_for_good(rig: Rig) -> None:
    def told() -> bool:
        status = rig.peer.status("/detector")
        return status is not None and "did not arrive" in status.message

    rig.connected()
    period = 20_000_000
    for number in range(1, 60):
        if number != 50:
            rig.images.publish(_image(number * period))
        rig.peer.spin(0.02)
    rig.peer.wait_for(lambda: rig.count("missing") >= 1, "the count")
    assert any("did not arrive" in s.message for s in rig.peer.statuses)
    rig.peer.wait_for(lambda: not told(), "the warning to go")
    assert rig.count("missing") >= 1


def test_silent_camera_is_an_error(rig: Rig) -> None:
    rig.connected()

    def silent() -> bool:
        status = rig.peer.status("/detector")
        return (
            status is not None
            and status.level == DiagnosticStatus.ERROR
            and "no picture on /image_raw" in status.message
        )

    rig.peer.wait_for(silent, "an ERROR about the silence")
    rig.send(1, 5)
    rig.peer.wait_for(lambda: rig.results and not silent(), "the error to go")


def test_picture_that_no_worker_finishes_is_an_error(tmp_path: Path) -> None:
    # Far slower than the limit on any machine, so that the wait is seen while it lasts.
    slow = slow_detector(tmp_path / "slow.onnx", products=150)
    rig = Rig(tmp_path, slow, silence=0.05, workers=1)

    def told() -> bool:
        return any("no picture of /image_raw finished" in s.message for s in rig.peer.statuses)

    try:
        rig.connected()
        assert not told()  # silence alone is another sentence
        rig.images.publish(_image(1))
        rig.peer.wait_for(told, "an ERROR about the picture that is not finished")
        rig.peer.wait_for(lambda: rig.results, "its result")
        rig.peer.statuses.clear()
        rig.peer.wait_for(lambda: rig.count("processed") == 1, "its count")
        assert not told()
    finally:
        rig.close()


class InProcess:
    """A detector in this process that takes pictures by reference."""

    def __init__(self, **parameters: object) -> None:
        self.peer, self.handover = Peer(), Handover()
        self.handover.announce("/image_raw")
        self.node = DetectorNode(
            self.handover,
            context=self.peer.context,
            # Its services stay in sight for a while; the next test must not call them.
            cli_args=["--ros-args", "-r", "__node:=inside"],
            parameter_overrides=[Parameter(name, value=v) for name, v in parameters.items()],
        )
        self.node.trigger_configure()
        self.node.trigger_activate()

    def send(self, number: int) -> None:
        self.handover.send("/image_raw", Frame(WHITE, number, "cam"))

    def close(self) -> None:
        self.node.trigger_shutdown()
        self.node.destroy_node()
        self.peer.close()


def test_worker_that_fails_counts_its_picture_and_lets_the_others_go_on(model: Path) -> None:
    detector = InProcess(model=str(model), workers=2)
    peer, node = detector.peer, detector.node
    found: list[Any] = []
    detector.handover.subscribe("/detections", found.append)
    try:
        loaded = node._model.detectors
        node._model.detectors = ()  # what each worker looks for is not there
        for number in range(1, 5):
            detector.send(number)
            peer.wait_for(
                lambda n=number: node._cameras[""].counters.invalid == n, "the picture's count"
            )
        node._model.detectors = loaded
        for number in range(5, 9):
            detector.send(number)
            peer.wait_for(lambda n=number: found and found[-1][0].stamp_ns == n, "its result")
    finally:
        detector.close()


def test_lazy_detector_works_while_a_node_of_its_process_listens(model: Path) -> None:
    detector = InProcess(model=str(model), lazy=True)
    handover, found = detector.handover, []
    try:
        assert not handover.wanted("/image_raw")
        leave = handover.subscribe("/detections", found.append)
        assert handover.wanted("/image_raw")
        detector.send(1)
        detector.peer.wait_for(lambda: found, "a result")
        leave()
        assert not handover.wanted("/image_raw")
    finally:
        detector.close()


def test_lifecycle_goes_down_and_up_again(tmp_path: Path, model: Path) -> None:
    rig = Rig(tmp_path, model, autostart=False)

    def change(label: str) -> bool:
        request = ChangeState.Request()
        request.transition.label = label
        return bool(rig.call(ChangeState, "/detector/change_state", request).success)

    def state() -> str:
        answer = rig.call(GetState, "/detector/get_state", GetState.Request())
        return str(answer.current_state.label)

    try:
        assert state() == "unconfigured"
        assert rig.set("contract", "/no/such.yaml").successful
        assert not change("configure")
        assert state() == "unconfigured"  # from where configure works again
        assert rig.set("contract", "").successful
        for label in ("configure", "activate", "deactivate", "activate"):
            assert change(label), rig.node.output
        rig.connected()
        rig.images.publish(_image(1))
        rig.peer.wait_for(lambda: rig.results, "a result")
        for label in ("deactivate", "cleanup", "configure", "activate"):
            assert change(label), rig.node.output
        rig.connected()
        rig.images.publish(_image(2))
        rig.peer.wait_for(lambda: len(rig.results) == 2, "a result after the round")
    finally:
        rig.close()


def test_lazy_detector_subscribes_only_while_somebody_listens(tmp_path: Path, model: Path) -> None:
    rig = Rig(tmp_path, model, lazy=True)
    try:
        rig.connected()
        subscriptions = list(rig.peer.node.subscriptions)
        listener = next(s for s in subscriptions if s.topic_name == "/detections")
        rig.peer.node.destroy_subscription(listener)
        rig.peer.wait_for(lambda: rig.images.get_subscription_count() == 0, "unsubscribing")
        rig.results = rig.peer.collect(Detection2DArray, "detections")
        rig.connected()
    finally:
        rig.close()


def test_several_cameras_keep_their_headers_and_none_starves(tmp_path: Path, model: Path) -> None:
    rig = Rig(tmp_path, model, cameras="[front,rear]", max_batch=2)
    node = rig.peer.node
    results = {n: rig.peer.collect(Detection2DArray, f"{n}/detections") for n in ("front", "rear")}
    publishers = {
        n: node.create_publisher(Image, f"{n}/image_raw", qos.image_publisher()) for n in results
    }
    try:
        rig.peer.connected(
            "/detector", to=list(publishers.values()), from_=[f"/{n}/detections" for n in results]
        )
        for number in range(1, 21):
            for name, publisher in publishers.items():
                publisher.publish(_image(number, frame_id=name))
            rig.peer.spin(0.03)
        rig.peer.wait_for(
            lambda: all(
                rig.count(f"{n}/processed") + rig.count(f"{n}/dropped") == 20 for n in results
            ),
            "every picture to be accounted for",
        )
        counts = [len(messages) for messages in results.values()]
        assert 2 * min(counts) >= max(counts) > 0
        for name, messages in results.items():
            assert {m.header.frame_id for m in messages} == {name}
    finally:
        rig.close()


def test_model_of_single_pictures_is_not_given_two(tmp_path: Path, model: Path) -> None:
    single = onnx.load(str(model))
    (size,) = (i.type.tensor_type.shape.dim[0] for i in single.graph.input)
    size.dim_value = 1
    onnx.save(single, str(tmp_path / "single.onnx"))
    rig = Rig(
        tmp_path, tmp_path / "single.onnx", cameras="[front,rear]", max_batch=2, workers=1, depth=50
    )
    node = rig.peer.node
    names = ("front", "rear")
    publishers = [
        node.create_publisher(Image, f"{n}/image_raw", qos.image_publisher(depth=50)) for n in names
    ]
    try:
        rig.peer.connected("/detector", to=publishers)
        for number in range(1, 51):
            for publisher in publishers:
                publisher.publish(_image(number))
        rig.peer.wait_for(
            lambda: all(rig.count(f"{n}/processed") > 0 for n in names), "results of both"
        )
        rig.peer.wait_for(
            lambda: all(
                rig.count(f"{n}/received")
                == sum(rig.count(f"{n}/{k}") for k in ("processed", "dropped", "invalid"))
                for n in names
            ),
            "every picture to be accounted for",
        )
        assert [rig.count(f"{n}/invalid") for n in names] == [0, 0]
    finally:
        rig.close()


def test_slow_model_gets_the_newest_picture_and_counts_the_rest(
    tmp_path: Path, slow_model: Path
) -> None:
    rig = Rig(tmp_path, slow_model)
    try:
        rig.connected()
        rig.send(1, 100, period=0.005)
        rig.peer.wait_for(
            lambda: rig.count("processed") + rig.count("dropped") == rig.count("received") > 50,
            "every picture to be accounted for",
        )
        assert rig.count("dropped") > 0
        assert rig.count("processed") == len(rig.results) > 0
        stamps = [r.header.stamp.nanosec for r in rig.results]
        assert stamps == sorted(stamps)
        # The newest picture is among the results, however many were dropped before it.
        rig.images.publish(_image(1000))
        rig.peer.wait_for(
            lambda: rig.results[-1].header.stamp.nanosec == 1000, "the newest picture's result"
        )
    finally:
        rig.close()


@pytest.fixture(scope="module")
def slow_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Slow for any machine: 5 ms a picture must be too fast for two workers.
    return slow_detector(tmp_path_factory.mktemp("slow") / "slow.onnx", products=24)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_it_cleanly_under_load(
    tmp_path: Path, model: Path, number: signal.Signals
) -> None:  # C57, shutdown part
    rig = Rig(tmp_path, model)
    try:
        rig.connected()
        rig.send(1, 10)
        began = time.monotonic()
        rig.node.process.send_signal(number)
        while rig.node.process.poll() is None and time.monotonic() - began < 10:
            rig.images.publish(_image(99))
            rig.peer.spin(0.01)
        assert rig.node.process.poll() == 0, rig.node.output
        assert "Traceback" not in rig.node.output
        assert "shutdown" not in rig.node.output
    finally:
        rig.close()


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (
            {"score_threshold": "high"},
            "parameter 'score_threshold': got 'high' (string), expected number from 0.0 to 1.0",
        ),
        ({"score_threshold": 1.5}, "got 1.5 (number), expected number from 0.0 to 1.0"),
        ({"model": "no-such-model"}, "model 'no-such-model'"),
        ({"classes": "[cat]"}, "cat"),
        ({"modl": "x"}, "unknown parameter 'modl'; did you mean 'model'?"),
    ],
)
def test_bad_start_is_one_sentence_and_exit_code_2(
    tmp_path: Path, model: Path, parameters: dict[str, object], said: str
) -> None:  # C58
    node = NodeProcess("detector_node", tmp_path / "log", **{"model": model, **parameters})
    assert node.process.wait(timeout=30) == 2
    assert said in node.output
    assert "Traceback" not in node.output
    assert node.output.count("\n") == 1


def test_numbers_and_digits_arrive_as_meant(tmp_path: Path, model: Path) -> None:  # C58
    spaced = tmp_path / "my models" / "m.onnx"
    spaced.parent.mkdir()
    spaced.write_bytes(model.read_bytes())
    rig = Rig(tmp_path, spaced, score_threshold=1, silence=30)
    try:
        rig.connected()
        assert rig.values()["model"] == "m.onnx"
    finally:
        rig.close()
