"""Latest frame wins, and no camera waits for ever."""

import threading

from ros_nodes.inbox import Inbox


def test_newest_item_replaces_the_one_that_waits() -> None:
    inbox: Inbox[int] = Inbox(["a"])
    assert inbox.put("a", 1)
    assert not inbox.put("a", 2)
    assert inbox.take(1) == (0, [("a", 2)])
    assert inbox.put("a", 3)


def test_cameras_take_turns_under_load() -> None:
    inbox: Inbox[int] = Inbox(["a", "b", "c"])
    served = []
    for number in range(9):
        for name in "abc":
            inbox.put(name, number)
        served += [name for name, _ in inbox.take(1)[1]]
    assert [served.count(name) for name in "abc"] == [3, 3, 3]


def test_a_batch_holds_one_item_a_camera() -> None:
    inbox: Inbox[int] = Inbox(["a", "b", "c"])
    for name in "cab":
        inbox.put(name, 0)
    assert sorted(inbox.take(2)[1] + inbox.take(2)[1]) == [("a", 0), ("b", 0), ("c", 0)]


def test_close_wakes_the_worker_and_counts_what_it_threw_away() -> None:
    inbox: Inbox[int] = Inbox(["a"])
    taken: list[list[tuple[str, int]]] = []
    worker = threading.Thread(target=lambda: taken.append(inbox.take(1)[1]))
    worker.start()
    assert inbox.close() == 0
    worker.join(timeout=5)
    assert taken == [[]]
    inbox = Inbox(["a"])
    inbox.put("a", 1)
    assert inbox.close() == 1


def test_results_of_several_workers_come_out_in_the_order_of_taking() -> None:
    inbox: Inbox[int] = Inbox(["a"])
    tickets = []
    for number in range(3):
        inbox.put("a", number)
        tickets.append(inbox.take(1)[0])
    out: list[int] = []

    def finish(ticket: int) -> None:
        with inbox.turn(ticket):
            out.append(ticket)

    threads = [threading.Thread(target=finish, args=(t,)) for t in reversed(tickets)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=5)
    assert out == tickets
