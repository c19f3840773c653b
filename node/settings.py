"""A broker's settings: TOML, every key known, typed and bounded.

    broker_id = 1
    log_dirs = ["/disk1/tidelog", "/disk2/tidelog"]
    zookeeper = "127.0.0.1:2181/tidelog"
    listeners = ["TIDELOG://0.0.0.0:9600", "REPLICATION://0.0.0.0:9601"]
    advertised_listeners = ["TIDELOG://host-1:9600", "REPLICATION://host-1:9601"]
    log_retention_hours = 72

Names follow Kafka's broker settings, in snake_case; so do those that topics take their defaults from
(`storage.configs.broker_config`). They may be spread over several files, so that the brokers of a cluster share one:
each setting stands in one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from node.net.listeners import ListenerEndpoint, plan_doors
from storage.configs.broker_config import SYNONYMS, renamed, topic_defaults
from storage.configs.log_config import LogConfig
from storage.configs.parsers import as_text
from tidelog.errors import ConfigError, InvalidConfigError
from tidelog.model import Endpoint
from tidelog.nearest_names import nearest_names
from tidelog.settings_file import SettingsFile

_INT16, _INT32, _INT64 = 2**15 - 1, 2**31 - 1, 2**63 - 1

#: The settings that topics take their defaults from: our names to Kafka's.
_TOPIC_DEFAULTS = {name.replace(".", "_"): name for synonyms in SYNONYMS.values() for name, _ in synonyms}


def _setting(meaning: str, default: Any = MISSING, *, least: int = 0, most: int = _INT32) -> Any:
    metadata = {"meaning": meaning, "least": least, "most": most}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """Each field's metadata says what it means and its bounds; `_ms` are milliseconds, `_bytes` bytes.

    topic_defaults   the settings of a topic that has none of its own, in a file under their brokers' names
    given            what the files say, as text, by the names there
    """

    broker_id: int = _setting("this broker's id, unique in its cluster")
    log_dirs: tuple[str, ...] = _setting("where the logs lie: a list, or names with commas between them")
    zookeeper: str = _setting("host:port,host:port/chroot of the ZooKeeper ensemble")
    listeners: tuple[str, ...] = _setting(
        "where requests are taken: NAME://address:port; TIDELOG and TIDELOG_… are for clients, REPLICATION for brokers",
        ("TIDELOG://127.0.0.1:9600", "REPLICATION://127.0.0.1:9601"),
    )
    advertised_listeners: tuple[str, ...] = _setting(
        "where others find those listeners: NAME://host:port; what is not named here is found where it is bound", ()
    )
    http_listener: str = _setting("host:port of /healthz, /readyz and /metrics; empty: none", "")
    zookeeper_session_timeout_ms: int = _setting("silence after which ZooKeeper forgets this broker", 6000, least=1000)
    zookeeper_connect_timeout_ms: int = _setting("how long the start waits for ZooKeeper", 30_000, least=100)
    replica_lag_time_max_ms: int = _setting("a follower this long behind leaves the ISR", 30_000, least=100)
    replica_fetch_wait_max_ms: int = _setting(
        "how long a follower's fetch may wait for records; up to four times as long where none come", 500, least=1
    )
    replica_fetch_max_bytes: int = _setting("bytes of one partition in one fetch of a follower", 1 << 20, least=1024)
    replica_fetch_response_max_bytes: int = _setting("bytes of one fetch of a follower", 10 << 20, least=1024)
    replica_high_watermark_checkpoint_interval_ms: int = _setting(
        "how often high watermarks are written down", 5000, least=10
    )
    num_recovery_threads_per_data_dir: int = _setting("logs of one directory opened at once", 1, least=1, most=1000)
    log_retention_check_interval_ms: int = _setting(
        "how often it is looked for segments that may go", 300_000, least=1, most=_INT64
    )
    log_cleaner_enable: bool = _setting("whether logs are compacted", True)
    log_cleaner_threads: int = _setting("logs that are compacted at once", 1, most=100)
    log_cleaner_io_max_bytes_per_second: int = _setting(
        "how fast all cleaners together read", _INT64, least=1 << 20, most=_INT64
    )
    log_cleaner_dedupe_buffer_size: int = _setting(
        "bytes that all cleaners together take for their maps of keys", 128 << 20, least=1 << 20
    )
    log_cleaner_backoff_ms: int = _setting("pause of the cleaner when no log is worth it", 15_000, least=1, most=_INT64)
    #: Kafka never looks unless it is told to, so that a topic's flush.ms alone does nothing there.
    log_flush_scheduler_interval_ms: int = _setting(
        "how often it is looked for logs that flush.ms wants on the disk", 1000, least=10, most=_INT64
    )
    log_flush_offset_checkpoint_interval_ms: int = _setting(
        "how often recovery points are written down", 60_000, least=10
    )
    log_flush_start_offset_checkpoint_interval_ms: int = _setting(
        "how often log starts are written down", 60_000, least=10
    )
    producer_id_expiration_ms: int = _setting("silence after which a producer is forgotten", 86_400_000, least=1)
    producer_id_expiration_check_interval_ms: int = _setting("how often it is looked for such", 600_000, least=1)
    num_partitions: int = _setting("partitions of a topic that does not say", 1, least=1, most=100_000)
    default_replication_factor: int = _setting("replicas of a topic that does not say", 1, least=1, most=1000)
    offsets_topic_num_partitions: int = _setting(
        "partitions of __consumer_offsets, when it is made", 50, least=1, most=10_000
    )
    offsets_topic_replication_factor: int = _setting(
        "replicas of __consumer_offsets, when it is made; it is not made with fewer", 3, least=1, most=1000
    )
    offsets_topic_segment_bytes: int = _setting(
        "segment.bytes of __consumer_offsets, when it is made", 100 << 20, least=1024
    )
    offsets_retention_minutes: int = _setting(
        "how long what a group has committed outlives its last member, or the commit where it never had one",
        10_080,
        least=1,
    )
    offsets_retention_check_interval_ms: int = _setting(
        "how often it is looked for such", 600_000, least=1, most=_INT64
    )
    offset_metadata_max_bytes: int = _setting("bytes of the note in a committed offset", 4096, most=_INT16)
    offsets_commit_timeout_ms: int = _setting("how long a commit waits for all in-sync replicas", 5000, least=1)
    group_min_session_timeout_ms: int = _setting("the least session timeout of a group's member", 6000, least=1)
    group_max_session_timeout_ms: int = _setting("the most", 1_800_000, least=1)
    group_initial_rebalance_delay_ms: int = _setting("how long an empty group waits for more than one member", 3000)
    group_max_size: int = _setting("members of a group", _INT32, least=1)
    auto_leader_rebalance_enable: bool = _setting(
        "whether preferred leaders are given back what they should lead", True
    )
    leader_imbalance_check_interval_seconds: int = _setting("how often the controller looks for such", 300, least=1)
    leader_imbalance_per_broker_percentage: int = _setting(
        "per cent of what a broker should lead that others may lead for it", 10
    )
    unclean_recovery_timeout_ms: int = _setting(
        "how long a partition waits for the rest of its ISR, and for those whom the controller took out of it last,"
        " while those that are there may have lost records",
        300_000,
    )
    controlled_shutdown_timeout_ms: int = _setting("how long a polite stop tries to hand leadership over", 5000)
    log_file: str = _setting("where this broker writes what it does, rotated; empty: standard error", "")
    log_file_max_bytes: int = _setting("size at which the log file is rotated", 4 << 20, least=4096)
    log_file_backups: int = _setting("rotated log files that are kept", 3, most=1000)
    log_level: str = _setting("DEBUG, INFO, WARNING or ERROR", "INFO")
    history_file: str = _setting("where this broker keeps the history that tidelog chaos judges; empty: none", "")
    topic_defaults: LogConfig = field(default_factory=LogConfig)
    given: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for each in _own_fields():
            value, expected = getattr(self, each.name), hints[each.name]
            if type(value) is not (tuple if expected == tuple[str, ...] else expected):
                raise ConfigError(f"{each.name} must be {_KINDS[expected]}, not {value!r}")
            texts = value if type(value) is tuple else (value,)
            if any(type(text) is str and "\0" in text for text in texts):
                raise ConfigError(f"{each.name} must not hold the character 0")
            if expected is int and not each.metadata["least"] <= value <= each.metadata["most"]:
                least, most = each.metadata["least"], each.metadata["most"]
                raise ConfigError(f"{each.name} must be between {least} and {most}, not {value}")
            if type(value) is tuple and not all(type(text) is str and text for text in texts):
                raise ConfigError(f"{each.name} must hold texts that are not empty, not {value!r}")
        if not self.log_dirs:
            raise ConfigError("log_dirs must name directories")
        plan_doors(self.listeners, self.advertised_listeners)
        if self.log_level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
            raise ConfigError(f"log_level must be DEBUG, INFO, WARNING or ERROR, not {self.log_level!r}")
        if self.http_listener:
            try:
                Endpoint.parse(self.http_listener)
            except ValueError as error:
                raise ConfigError(f"http_listener: {error}") from None
        hosts, _, chroot = self.zookeeper.partition("/")
        if {".", ".."} & set(chroot.split("/")):
            raise ConfigError(f"zookeeper: the path /{chroot} must not hold . or ..")
        for host in hosts.split(","):
            try:
                Endpoint.parse(host)
            except ValueError as error:
                raise ConfigError(f"zookeeper: {error}") from None

    @property
    def doors(self) -> tuple[ListenerEndpoint, ...]:
        """Which doors are opened, and what is told of them."""
        return plan_doors(self.listeners, self.advertised_listeners)

    @classmethod
    def load(cls, *paths: Path) -> BrokerSettings:
        """What these TOML files say together; ConfigError names the file, the line and the setting that is wrong."""
        known = {each.name: each for each in _own_fields()}
        files = [SettingsFile.read(path) for path in paths]
        stands: dict[str, SettingsFile] = {}
        for file in files:
            for name in file.values:
                if name not in known and name not in _TOPIC_DEFAULTS:
                    raise ConfigError(f"{file.place(name)}: no such setting: {name}{_nearest(name, known)}")
                if name in stands:
                    raise ConfigError(f"{file.place(name)}: {name} stands at {stands[name].place(name)} already")
                stands[name] = file
        all_files = ", ".join(map(str, paths))
        required = {name for name, each in known.items() if each.default is MISSING}
        if missing := sorted(required - stands.keys()):
            raise ConfigError(f"{all_files}: missing: {', '.join(missing)}")
        values = {name: file.values[name] for name, file in stands.items()}
        own: dict[str, Any] = {name: value for name, value in values.items() if name in known}
        hints = get_type_hints(cls)
        own |= {name: _listed(value) for name, value in own.items() if hints[name] == tuple[str, ...]}
        try:
            given = {name: as_text(value) for name, value in values.items()}
            return cls(**own, topic_defaults=_topic_defaults(given), given=given)
        except ConfigError as error:
            # A complaint begins with the setting's name, which may be one that should stand there and does not.
            name = re.split(r"\W", str(error), maxsplit=1)[0]
            where = stands[name].place(name) if name in stands else all_files
            raise ConfigError(f"{where}: {error}") from None


def _own_fields() -> list[Field[Any]]:
    return [each for each in fields(BrokerSettings) if each.metadata]


_KINDS = {
    int: "a whole number",
    str: "a string",
    bool: "true or false",
    tuple[str, ...]: "a list of strings, or one with commas",
}


def _nearest(name: str, known: Iterable[str]) -> str:
    return f" ({nearest_names(name, [*known, *_TOPIC_DEFAULTS])})"


def _listed(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return tuple(value) if isinstance(value, list) else value


def _topic_defaults(given: Mapping[str, str]) -> LogConfig:
    try:
        return topic_defaults({_TOPIC_DEFAULTS[name]: text for name, text in given.items() if name in _TOPIC_DEFAULTS})
    except InvalidConfigError as error:
        ours = {name: ours for ours, name in _TOPIC_DEFAULTS.items() if ours in given}
        raise ConfigError(renamed(str(error), ours)) from None
