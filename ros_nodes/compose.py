"""Several nodes in one process: frames are handed over by reference.

    python -m ros_nodes.compose --node camera -r __node:=front --end --node detector --end

What stands between --node and --end are ROS arguments of that node alone.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from functools import partial

from perception.errors import InputError
from ros_nodes.lifecycle import NodeFactory, run


def node_factory(module: str, ros_arguments: Sequence[str] = ()) -> NodeFactory:
    """The node class of ros_nodes/<module>_node.py: CameraNode of camera_node, and so on."""
    name = "".join(word.capitalize() for word in module.split("_")) + "Node"
    cls = getattr(importlib.import_module(f"ros_nodes.{module}_node"), name)
    if not ros_arguments:
        return cls  # type: ignore[no-any-return]
    return partial(cls, cli_args=["--ros-args", *ros_arguments])


def parse(words: Sequence[str]) -> list[NodeFactory]:
    """Factories from the command line; InputError when it is not of the form above."""
    factories, rest = [], list(words)
    while rest:
        if rest[0] != "--node" or len(rest) < 3 or "--end" not in rest:
            raise InputError(f"expected --node MODULE ... --end, found {' '.join(rest)}")
        end = rest.index("--end")
        factories.append(node_factory(rest[1], rest[2:end]))
        rest = rest[end + 1 :]
    return factories


def main() -> None:
    """Run the nodes named on the command line until they are told to stop."""
    try:
        factories = parse(sys.argv[1:])
    except InputError as error:
        print(f"waysight: error: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(run(factories, []))


if __name__ == "__main__":
    main()
