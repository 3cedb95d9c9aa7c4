from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from perception.datasets import jsonstream
from perception.errors import InputError

KEYS = frozenset({"", "info", "images", "annotations"})


def value(random_: random.Random, depth: int = 0) -> Any:
    kind = random_.random()
    if kind < 0.3 or depth > 3:
        return random_.choice([1, 2.5, 'a"]}[{\\', None, True, 'x,\\\\"y', "ü\n"])
    if kind < 0.6:
        return [value(random_, depth + 1) for _ in range(random_.randint(0, 4))]
    return {f'k{i}"': value(random_, depth + 1) for i in range(random_.randint(0, 4))}


@pytest.mark.parametrize("block", [7, 50, 1 << 20])
@pytest.mark.parametrize("seed", range(12))
def test_pieces_equal_the_standard_parser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, seed: int
) -> None:
    monkeypatch.setattr(jsonstream, "BLOCK", block)
    random_ = random.Random(seed)
    images = [{"i": i, "v": value(random_)} for i in range(random_.randint(0, 9))]
    document: Any = {
        "info": {"a": [1, {"b": "]"}]},
        "skip": [1, [2, 3]],
        "images": images,
        "n": 5,
        "annotations": [{"j": value(random_)} for _ in range(5)],
        "z": "s]",
    }
    if seed % 3 == 0:
        document = images
    path = tmp_path / "x.json"
    path.write_text(json.dumps(document, indent=random_.choice([None, 1])), encoding="utf-8-sig")
    lines = path.read_text(encoding="utf-8-sig").split("\n")
    found: dict[str, Any] = {}
    for piece in jsonstream.pieces(path, KEYS):
        if not piece.is_array:
            found[piece.key] = json.loads(b"{" + piece.text + b"}")
            continue
        for text, line in piece.elements():
            found.setdefault(piece.key, []).append(json.loads(text))
            assert "{" in lines[line - 1]
    if isinstance(document, list):
        assert found.get("", []) == document
    else:
        for key in ("info", "images", "annotations"):
            assert found.get(key, []) == document[key]


@pytest.mark.parametrize("keep", [1, 10, 40, 60, -1])
def test_a_text_that_is_cut_off_is_noticed(tmp_path: Path, keep: int) -> None:
    text = json.dumps({"images": [{"a": i} for i in range(5)], "z": 1})
    path = tmp_path / "x.json"
    path.write_text(text[:keep])
    with pytest.raises(jsonstream.Truncated, match=str(path)):
        list(jsonstream.pieces(path, KEYS))


def test_something_else_than_json_is_an_input_error(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(InputError, match="expected JSON"):
        list(jsonstream.pieces(path, KEYS))
