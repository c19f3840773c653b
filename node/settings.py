"""A broker's settings: one TOML file, every key known, typed and bounded.

    broker_id = 1
    data_dir = "/var/lib/tidelog/broker-1"
    zookeeper = "127.0.0.1:2181/tidelog"
    port = 9600
    replication_port = 9601

Names follow Kafka's broker settings, in snake_case.
"""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from tidelog.errors import ConfigError
from tidelog.model import Endpoint

_LAST_PORT = 65535
_INT32 = 2**31 - 1


def _setting(meaning: str, default: Any = MISSING, *, least: int = 0, most: int = _INT32) -> Any:
    metadata = {"meaning": meaning, "least": least, "most": most}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """Each field's metadata says what it means and its bounds; `_ms` are milliseconds, `_bytes` bytes."""

    broker_id: int = _setting("this broker's id, unique in its cluster")
    data_dir: str = _setting("where the logs lie; created if it does not exist")
    zookeeper: str = _setting("host:port,host:port/chroot of the ZooKeeper ensemble")
    host: str = _setting("the address that clients' requests are taken at", "127.0.0.1")
    port: int = _setting("the port for clients; 0 lets the system choose", 0, most=_LAST_PORT)
    replication_host: str = _setting("the address that brokers' requests are taken at", "127.0.0.1")
    replication_port: int = _setting("the port for brokers; 0 lets the system choose", 0, most=_LAST_PORT)
    zookeeper_session_timeout_ms: int = _setting("silence after which ZooKeeper forgets this broker", 6000, least=1000)
    zookeeper_connect_timeout_ms: int = _setting("how long the start waits for ZooKeeper", 30_000, least=100)
    replica_lag_time_max_ms: int = _setting("a follower this long behind leaves the ISR", 30_000, least=100)
    replica_fetch_wait_max_ms: int = _setting("how long a follower's fetch may wait for records", 500, least=1)
    replica_fetch_max_bytes: int = _setting("bytes of one partition in one fetch of a follower", 1 << 20, least=1024)
    replica_fetch_response_max_bytes: int = _setting("bytes of one fetch of a follower", 10 << 20, least=1024)
    high_watermark_checkpoint_interval_ms: int = _setting("how often high watermarks are written down", 5000, least=10)
    num_partitions: int = _setting("partitions of a topic that does not say", 1, least=1, most=100_000)
    default_replication_factor: int = _setting("replicas of a topic that does not say", 1, least=1, most=1000)
    min_insync_replicas: int = _setting(
        "in-sync replicas that acks=all needs, where the topic does not say", 1, least=1
    )
    controlled_shutdown_timeout_ms: int = _setting("how long a polite stop tries to hand leadership over", 5000)
    log_file: str = _setting("where this broker writes what it does, rotated; empty: standard error", "")
    log_file_max_bytes: int = _setting("size at which the log file is rotated", 4 << 20, least=4096)
    log_file_backups: int = _setting("rotated log files that are kept", 3, most=1000)
    log_level: str = _setting("DEBUG, INFO, WARNING or ERROR", "INFO")

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for each in fields(self):
            value, expected = getattr(self, each.name), hints[each.name]
            if type(value) is not expected:
                raise ConfigError(f"{each.name} must be {_kind(expected)}, not {value!r}")
            if expected is int and not each.metadata["least"] <= value <= each.metadata["most"]:
                least, most = each.metadata["least"], each.metadata["most"]
                raise ConfigError(f"{each.name} must be between {least} and {most}, not {value}")
        if not self.data_dir:
            raise ConfigError("data_dir must name a directory")
        if self.log_level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
            raise ConfigError(f"log_level must be DEBUG, INFO, WARNING or ERROR, not {self.log_level!r}")
        hosts, _, _ = self.zookeeper.partition("/")
        for host in hosts.split(","):
            try:
                Endpoint.parse(host)
            except ValueError as error:
                raise ConfigError(f"zookeeper: {error}") from None

    @classmethod
    def load(cls, path: Path) -> BrokerSettings:
        """The settings in a TOML file; ConfigError names the file and the key that is wrong."""
        try:
            with path.open("rb") as file:
                values = tomllib.load(file)
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is not TOML: {error}") from None
        known = {each.name: each for each in fields(cls)}
        if unknown := sorted(set(values) - set(known)):
            raise ConfigError(f"{path}: no such setting: {', '.join(unknown)}")
        required = {name for name, each in known.items() if each.default is MISSING}
        if missing := sorted(required - set(values)):
            raise ConfigError(f"{path}: missing: {', '.join(missing)}")
        try:
            return cls(**values)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None


def _kind(expected: type) -> str:
    return "a whole number" if expected is int else "a string"
