"""The settings that a user gives all brokers of a local cluster: one file, which each broker reads beside its own."""

from __future__ import annotations

from pathlib import Path

from tidelog.errors import ConfigError, LocalError
from tidelog.settings_file import SettingsFile

#: What differs between the brokers of one machine, and what the layout of the data directory says.
DECIDED = ("broker_id", "log_dirs", "listeners", "advertised_listeners", "http_listener", "log_file", "history_file")


def names_in(config: str) -> frozenset[str]:
    """The settings that the file says, none where there is no file.

    LocalError where it cannot be read, or says what `tidelog up` decides. Whether there are such settings, and whether
    they are right, the brokers judge.
    """
    if not config:
        return frozenset()
    try:
        file = SettingsFile.read(Path(config))
    except ConfigError as error:
        raise LocalError(str(error)) from None
    if "zookeeper" in file.values:
        raise LocalError(f"{file.place('zookeeper')}: leave zookeeper out, and pass it as --zookeeper")
    if decided := [name for name in DECIDED if name in file.values]:
        raise LocalError(f"{file.place(decided[0])}: leave {decided[0]} out: tidelog up decides it for each broker")
    return frozenset(file.values)
