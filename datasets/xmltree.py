"""XML into small nodes that know their line; entities are refused, as label files need none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from perception.errors import InputError


@dataclass(slots=True)
class Node:
    """An element: its tag, attributes, text, children and line."""

    tag: str
    attributes: dict[str, str]
    line: int
    text: str = ""
    children: list[Node] = field(default_factory=list)

    def find(self, tag: str) -> Node | None:
        """The first child of that tag."""
        return next((child for child in self.children if child.tag == tag), None)

    def all(self, tag: str) -> Iterator[Node]:
        """Children of that tag, in order."""
        return (child for child in self.children if child.tag == tag)

    def value(self, tag: str, default: str = "") -> str:
        """Text of the first child of that tag."""
        child = self.find(tag)
        return default if child is None else child.text.strip()


def parse(path: Path) -> Node:
    """The root element; raises InputError naming file and line."""
    root = Node("", {}, 0)
    stack = [root]
    parser = expat.ParserCreate()

    def start(tag: str, attributes: dict[str, str]) -> None:
        node = Node(tag, attributes, parser.CurrentLineNumber)
        stack[-1].children.append(node)
        stack.append(node)

    def end(tag: str) -> None:
        stack.pop()

    def text(data: str) -> None:
        stack[-1].text += data

    def entity(*_: object) -> None:
        raise InputError(f"{path}:{parser.CurrentLineNumber}: declares an entity; refused")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text
    parser.EntityDeclHandler = entity
    try:
        parser.Parse(path.read_bytes(), True)
    except expat.ExpatError as error:
        raise InputError(
            f"{path}:{error.lineno}: not well-formed XML: {expat.ErrorString(error.code)}"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    return root.children[0]
