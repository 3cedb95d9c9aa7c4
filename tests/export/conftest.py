"""Without torch (the train extra) there is nothing here to test."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]
