"""Fuzzes a broker's settings file: any content yields settings, or an error of one sentence."""

from __future__ import annotations

import atexit
import tempfile
from functools import cache
from pathlib import Path

from node.settings.broker_settings import BrokerSettings
from tidelog.errors import ConfigError
from tools.fuzz.targets.target import Target, check

#: The error is one sentence for a person. It quotes the file's content, which may be long.
_LONGEST_BEYOND_THE_FILE = 2_000


@cache
def _path() -> Path:
    directory = tempfile.TemporaryDirectory(prefix="tidelog-fuzz-")
    atexit.register(directory.cleanup)
    return Path(directory.name) / "broker.toml"


def run_settings(data: bytes) -> None:
    """Check that a file with these bytes yields complete settings, or a short ConfigError that names the file."""
    path = _path()
    path.write_bytes(data)
    try:
        settings = BrokerSettings.load(path)
    except ConfigError as error:
        message = str(error)
        check(str(path) in message, f"the file is not named: {message}")
        check(len(message) < 20 * len(data) + _LONGEST_BEYOND_THE_FILE, f"a complaint of {len(message)} characters")
        return
    check(bool(settings.listener_endpoints) and bool(settings.log_dirs), settings)
    check(all(isinstance(text, str) for text in settings.given.values()), settings.given)


_LEAST = b'broker_id = 1\nlog_dirs = ["/disk1/tidelog", "/disk2/tidelog"]\nzookeeper = "127.0.0.1:2181/tidelog"\n'
_MORE = b"""listeners = ["KAFKA://0.0.0.0:9092", "REPLICATION://0.0.0.0:9601", "KAFKA_X://[::1]:9093"]
advertised_listeners = ["KAFKA://host-1:9092", "REPLICATION://host-1:9601"]
log_retention_hours = 72
http_listener = "127.0.0.1:9700"
log_cleaner_enable = false
"""
_TABLE = b"[log]\ndirs = '/a, /b'\nretention.ms = -1\n[broker]\nid = 0x7f\n"

TARGETS = (
    Target(
        "settings",
        "a broker's TOML file",
        run_settings,
        lambda: [_LEAST, _LEAST + _MORE, _LEAST + b'message_timestamp_type = "LogAppendTime"\n' + _TABLE],
        (
            "node.settings.broker_settings",
            "node.settings.listeners",
            "tidelog.settings_file",
            "storage.configs",
            "tomllib",
        ),
        (
            b"[[",
            b"]]",
            b'"""',
            b"'''",
            b"inf",
            b"nan",
            b"1979-05-27T07:32:00Z",
            b"0x" + b"f" * 3700,
            b"\\u0000",
            b" = ",
        ),
    ),
)
