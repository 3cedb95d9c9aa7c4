"""`waysight bench safety`: figures, and a verdict that depends on them alone."""

import json

import pytest

from perception.cli import main
from perception.geometry.ground import locate
from perception.labels import FACTORY
from perception.simulation import latency
from perception.simulation.hall import robot_camera


@pytest.mark.parametrize(("slow_share", "code"), [(0.005, 0), (0.02, 1)])
def test_the_verdict_is_about_the_99th_percentile(tmp_path, monkeypatch, capsys, slow_share, code):
    slow = round(1000 * slow_share)
    asked = {}

    def measured(settings, objects, pictures):
        asked.update(zones=len(settings.zones), objects=objects, pictures=pictures)
        return [1.0] * (1000 - slow) + [9.0] * slow

    monkeypatch.setattr(latency, "latencies", measured)
    out = tmp_path / "out.json"
    command = ["bench", "safety", "--objects", "3", "--pictures", "50", "--json", str(out)]
    assert main(command) == code
    report = json.loads(out.read_text())
    assert report["verdict"]["met"] is (code == 0)
    assert report["latency_ms"]["p50"] == 1.0
    assert asked == {"zones": 6, "objects": 3, "pictures": 50}
    shown = capsys.readouterr()
    assert ("p99 within 3 ms: yes" in shown.out) == (code == 0)
    assert ("p99 is 9.00 ms" in shown.err) == (code == 1)


def test_every_picture_is_timed_and_shows_what_was_asked_for():
    from perception.safety import GuardianSettings

    taken = latency.latencies(GuardianSettings(), 4, 20)
    assert len(taken) == 20 and min(taken) > 0
    camera = robot_camera()
    pictures = latency.crowd(4, 20, camera, seed=1)
    assert max(map(len, pictures)) == 4
    boxes = pictures[0]
    labels = [FACTORY.names[label] for label in boxes.labels]
    distances = locate(boxes.boxes, labels, camera).distances
    assert ((distances > 0.5) & (distances < 20)).all()


def test_mistakes_are_exit_code_2(capsys):
    assert main(["bench", "safety", "--objects", "0"]) == 2
    assert "--objects is 0" in capsys.readouterr().err
