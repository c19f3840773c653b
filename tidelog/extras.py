"""Name the packages of an extra that are not installed.

The base installation has what the clients need. Each other use has an extra: `pip install 'tidelog[local]'`. Code of
such a use calls `missing` or `require` before it imports the packages, so that the user gets one line with the pip
command.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from tidelog.errors import MissingExtraError

_CLI = {"click": "click"}
_BROKER = {
    "kazoo": "kazoo",
    "orjson": "orjson",
    "prometheus_client": "prometheus_client",
    "zmq": "pyzmq",
}
_ARROW = {"numpy": "numpy", "pyarrow": "pyarrow"}

#: The packages without which the uses of each extra fail: the name that Python imports, and the name that pip installs.
#: `tidelog.local.zookeeper` looks for pyspark itself, because a local cluster with another ZooKeeper does not need it.
NEEDED: Mapping[str, Mapping[str, str]] = {
    "arrow": _ARROW,
    "broker": _BROKER,
    "cli": _CLI,
    "local": {**_CLI, **_BROKER},
    "spark": {**_ARROW, "pyspark": "pyspark"},
}


def missing(extra: str, use: str) -> str:
    """Return one line that says which packages of the extra `use` lacks, and how to install them; "" if it lacks none.

    `use` is the subject of the line, for example "a broker". No package is imported.
    """
    lacking = [name for module, name in NEEDED[extra].items() if find_spec(module) is None]
    if not lacking:
        return ""
    *others, last = lacking
    names = f"{', '.join(others)} and {last}" if others else last
    verb = "are" if others else "is"
    return f"{use} needs {names}, which {verb} not installed: pip install 'tidelog[{extra}]'"


def require(extra: str, use: str) -> None:
    """Raise MissingExtraError with the line of `missing` if `use` lacks a package of the extra."""
    if line := missing(extra, use):
        raise MissingExtraError(line)
