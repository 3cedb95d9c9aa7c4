"""Results meet their own pictures."""

from ros_nodes.web.pairing import Pairing


def test_a_result_is_shown_on_its_own_picture_not_on_the_newest() -> None:
    pairing = Pairing(1000)
    for stamp in (1, 2, 3, 4):
        pairing.put_picture(stamp, f"picture {stamp}", 10)
    pairing.put_result(2, "result 2")
    pair = pairing.newest(None)
    assert pair is not None and (pair.picture, pair.result) == ("picture 2", "result 2")
    assert pairing.newest(2) is None
    latest = pairing.newest_picture()
    assert latest is not None and latest.picture == "picture 4" and latest.result is None


def test_a_result_whose_picture_was_lost_falls_back_to_the_one_before() -> None:
    pairing = Pairing(1000)
    pairing.put_picture(1, "picture", 10)
    pairing.put_result(1, "result")
    pairing.put_result(2, "of a lost picture")
    pair = pairing.newest(None)
    assert pair is not None and pair.stamp_ns == 1
    assert pairing.newest_result() == (2, "of a lost picture")


def test_memory_is_bounded_by_bytes_but_two_pictures_stay() -> None:
    pairing = Pairing(100)
    for stamp in range(10):
        pairing.put_picture(stamp, stamp, 30)
        pairing.put_result(stamp, stamp)
    assert [stamp for stamp in range(10) if stamp in pairing._pictures] == [7, 8, 9]
    for stamp in (20, 21, 22):
        pairing.put_picture(stamp, stamp, 10**6)
    assert list(pairing._pictures) == [21, 22]


def test_what_comes_by_reference_and_as_a_message_counts_once() -> None:
    pairing = Pairing(100)
    for _ in range(2):
        pairing.put_picture(1, "p", 10)
        pairing.put_result(1, "r")
    assert (pairing.pictures, pairing.results) == (1, 1)


def test_waiting_ends_with_a_result_and_with_wake() -> None:
    pairing = Pairing(100)
    pairing.put_result(1, "r")
    assert pairing.wait(0, timeout=10) == 1
    pairing.wake()
    assert pairing.wait(1, timeout=10) == 1


def test_cleared_means_nothing_to_show() -> None:
    pairing = Pairing(100)
    pairing.put_picture(1, "p", 10)
    pairing.put_result(1, "r")
    pairing.clear()
    assert pairing.newest(None) is None and pairing.newest_picture() is None
