"""Results meet their own pictures."""

from ros_nodes.web.pairing import Pairing


def test_a_result_is_shown_on_its_own_picture_not_on_the_newest() -> None:
    pairing = Pairing(1000)
    for stamp in (1, 2, 3, 4):
        pairing.put_picture(stamp, f"picture {stamp}", 10)
    pairing.put_result(2, "result 2")
    pair = pairing.newest(None)
    assert pair is not None and (pair.picture, pair.result) == ("picture 2", "result 2")
    assert pairing.newest(pair.result) is None
    latest = pairing.newest_picture()
    assert latest is not None and latest.picture == "picture 4" and latest.result is None


def test_a_result_whose_picture_was_lost_falls_back_to_the_one_before() -> None:
    pairing = Pairing(1000)
    pairing.put_picture(1, "picture", 10)
    pairing.put_result(1, "result")
    pairing.put_result(2, "of a lost picture")
    pair = pairing.newest(None)
    assert pair is not None and pair.stamp_ns == 1
    assert pairing.newest_result() == "of a lost picture"


def test_memory_is_bounded_by_bytes_but_two_pictures_stay() -> None:
    pairing = Pairing(100)
    for stamp in range(10):
        pairing.put_picture(stamp, stamp, 30)
        pairing.put_result(stamp, stamp)
    assert [stamp for stamp in range(10) if stamp in pairing._pictures] == [7, 8, 9]
    for stamp in (20, 21, 22):
        pairing.put_picture(stamp, stamp, 10**6)
    assert list(pairing._pictures) == [21, 22]


def test_the_same_stamp_again_is_another_picture_with_another_result() -> None:
    pairing = Pairing(100)
    shown = None
    for number in range(20):  # of a camera that stamps nothing
        pairing.put_picture(0, f"picture {number}", 10)
        pairing.put_result(0, f"result {number}")
        pair = pairing.newest(shown)
        assert pair is not None
        assert (pair.picture, pair.result) == (f"picture {number}", f"result {number}")
        shown = pair.result
    assert (pairing.pictures, pairing.results) == (20, 20)
    pairing.put_picture(1, "another", 90)
    assert len(pairing._pictures) == 2  # a replaced picture takes no room


def test_a_recording_that_begins_anew_is_shown_in_its_order() -> None:
    pairing = Pairing(1000)
    for stamp in (1, 2, 3, 1, 2):
        pairing.put_picture(stamp, f"picture {stamp}", 10)
        pairing.put_result(stamp, f"result {stamp}")
    pair = pairing.newest(None)
    assert pair is not None and pair.stamp_ns == 2


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
