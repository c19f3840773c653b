"""The settings that a user gives all brokers of a local cluster: one file, which each broker reads beside its own."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tidelog.errors import LocalError

#: What differs between the brokers of one machine, and what the layout of the data directory says.
_DECIDED = ("broker_id", "log_dirs", "listeners", "advertised_listeners", "http_listener", "log_file")


def names_in(config: str) -> frozenset[str]:
    """The settings that the file says, none where there is no file.

    LocalError where it cannot be read, or says what `tidelog up` decides. Whether there are such settings, and whether
    they are right, the brokers judge.
    """
    if not config:
        return frozenset()
    try:
        names = frozenset(tomllib.loads(Path(config).read_text(encoding="utf-8")))
    except OSError as error:
        raise LocalError(f"cannot read {config}: {error.strerror}; pass another --config") from None
    except ValueError as error:
        raise LocalError(f"{config} is not TOML: {error}") from None
    if "zookeeper" in names:
        raise LocalError(f"{config}: leave zookeeper out, and pass it as --zookeeper")
    if decided := [name for name in _DECIDED if name in names]:
        raise LocalError(f"{config}: leave {decided[0]} out: tidelog up decides it for each broker")
    return names
