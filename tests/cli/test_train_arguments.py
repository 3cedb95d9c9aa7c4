"""Where the settings and what replaces them may stand on the command line of `waysight train`."""

import argparse
from pathlib import Path

import pytest

from perception.cli import main, train


@pytest.mark.parametrize(
    "words",
    [
        ["my.yaml", "train.steps=3", "--out", "run"],
        ["my.yaml", "--out", "run", "train.steps=3"],
        ["--out", "run", "my.yaml", "train.steps=3"],
    ],
)
def test_settings_may_stand_before_and_after_options(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[argparse.Namespace] = []
    monkeypatch.setattr(train, "run", lambda args: seen.append(args) or 0)
    assert main(["train", *words]) == 0
    assert (seen[0].settings, seen[0].overrides) == (Path("my.yaml"), ["train.steps=3"])


@pytest.mark.parametrize(
    "words",
    [["train", "my.yaml", "--epochs", "3"], ["track", "a.mp4", "b.mp4"]],
)
def test_what_no_command_takes_is_still_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert "unrecognized arguments" in capsys.readouterr().err
