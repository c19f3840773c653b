"""The file of settings that a user gives all brokers of a local cluster. Each broker reads it beside its own file."""

from __future__ import annotations

from pathlib import Path

from tidelog.errors import ConfigError, LocalError
from tidelog.settings_file import SettingsFile

#: Settings that differ between the brokers of one machine, or that follow from the layout of the data directory.
RESERVED = ("broker_id", "log_dirs", "listeners", "advertised_listeners", "http_listener", "log_file", "history_file")


def setting_names(config: str) -> frozenset[str]:
    """Return the names of the settings in the file at this path; empty if `config` is "".

    Raises LocalError if the file cannot be read, or has a setting that `tidelog up` decides. The brokers check whether
    the settings exist and are valid.
    """
    if not config:
        return frozenset()
    try:
        file = SettingsFile.read(Path(config))
    except ConfigError as error:
        raise LocalError(str(error)) from None
    if "zookeeper" in file.values:
        raise LocalError(f"{file.place('zookeeper')}: leave zookeeper out, and pass it as --zookeeper")
    if reserved := [name for name in RESERVED if name in file.values]:
        raise LocalError(f"{file.place(reserved[0])}: leave {reserved[0]} out: tidelog up decides it for each broker")
    return frozenset(file.values)
