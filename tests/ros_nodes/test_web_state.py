"""The verdict at the top of the page, and the figures below it."""

import json

import pytest

from ros_nodes.web.state import ERROR, OK, STALE, WAITING, WARN, Board


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(clock: Clock) -> Board:
    return Board(silence=3.0, clock=clock)


def _verdict(board: Board, own: list[tuple[str, str]] | None = None) -> tuple[str, list[str]]:
    verdict = board.snapshot(own or [], {}, "/viewer")["verdict"]
    return verdict["level"], [reason["text"] for reason in verdict["reasons"]]


def test_nothing_heard_is_waiting_and_never_ok(board: Board) -> None:
    assert _verdict(board)[0] == WAITING
    board.hear("/viewer", 0, "ok", {})
    assert _verdict(board)[0] == WAITING


def test_all_well_is_ok(board: Board) -> None:
    board.hear("/camera", 0, "ok", {})
    assert _verdict(board) == (OK, [])


@pytest.mark.parametrize(
    ("level", "expected"), [(1, WARN), (2, ERROR), (3, STALE), (7, ERROR), (-1, ERROR)]
)
def test_the_worst_node_decides_and_is_named(board: Board, level: int, expected: str) -> None:
    board.hear("/camera", 0, "ok", {})
    board.hear("/detector", level, "model refused", {})
    assert _verdict(board) == (expected, ["/detector: model refused"])


def test_errors_come_before_warnings(board: Board) -> None:
    board.hear("/a", 1, "slow", {})
    board.hear("/b", 2, "blind", {})
    assert _verdict(board) == (ERROR, ["/b: blind", "/a: slow"])


def test_a_silent_node_turns_stale_whatever_it_said_last(board: Board, clock: Clock) -> None:
    board.hear("/detector", 0, "ok", {})
    clock.now = 3.1
    assert _verdict(board) == (STALE, ["/detector: no diagnostics for 3 s"])
    board.hear("/detector", 0, "ok", {})
    assert _verdict(board)[0] == OK


def test_what_the_viewer_sees_counts_at_once_and_once(board: Board) -> None:
    board.hear("/camera", 0, "ok", {})
    board.hear("/viewer", 2, "no tracks for 1.1 s", {})
    assert _verdict(board, [(ERROR, "no tracks for 1.5 s")]) == (ERROR, ["no tracks for 1.5 s"])


def test_a_node_that_nobody_configured_is_shown(board: Board) -> None:
    board.hear("/camera", 0, "ok", {})
    board.set_lifecycle("/detector", "unconfigured")
    level, reasons = _verdict(board)
    assert level == WARN and reasons == ["/detector: unconfigured; no diagnostics yet"]


def test_an_active_node_is_judged_by_its_diagnostics(board: Board) -> None:
    board.hear("/camera", 0, "ok", {})
    board.set_lifecycle("/camera", "active")
    assert _verdict(board)[0] == OK


def test_an_error_of_an_inactive_node_stays_an_error(board: Board) -> None:
    board.hear("/camera", 2, "no device", {})
    board.set_lifecycle("/camera", "inactive")
    assert _verdict(board) == (ERROR, ["/camera: inactive; no device"])


def test_a_node_that_does_not_answer_is_stale(board: Board) -> None:
    board.hear("/camera", 0, "ok", {})
    board.set_lifecycle("/camera", "not answering")
    assert _verdict(board)[0] == STALE


def test_flow_has_a_row_for_each_node_and_camera(board: Board) -> None:
    board.hear("/tracker", 0, "ok", {"received": "5", "processed": "4", "rate": "9.50"})
    board.hear(
        "/detector",
        0,
        "ok",
        {"left/received": "7", "left/age_p99_ms": "12.5", "right/received": "8", "rate": "30"},
    )
    board.hear("/guardian", 0, "ok", {"zone": "none"})
    rows = {row["name"]: row for row in board.snapshot([], {})["flow"]}
    assert set(rows) == {"/tracker", "/detector [left]", "/detector [right]"}
    assert rows["/tracker"]["rate"] == 9.5 and rows["/tracker"]["age_p50_ms"] is None
    assert rows["/detector [left]"]["age_p99_ms"] == 12.5


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "many", ""])
def test_values_that_are_no_numbers_never_break_the_json(board: Board, text: str) -> None:
    board.hear("/tracker", 0, "ok", {"received": text, "rate": text})
    snapshot = board.snapshot([], {})
    json.dumps(snapshot, allow_nan=False)
    assert snapshot["flow"][0]["rate"] is None


def test_made_up_names_cannot_fill_the_memory(board: Board) -> None:
    for n in range(1000):
        board.hear(f"/n{n}", 0, "ok", {})
        board.set_lifecycle(f"/m{n}", "active")
    assert len(board.snapshot([], {})["nodes"]) == 256
