"""The settings of a broker, read from TOML files. Every key must be known; every value has a type and bounds.

    broker_id = 1
    log_dirs = ["/disk1/tidelog", "/disk2/tidelog"]
    zookeeper = "127.0.0.1:2181/tidelog"
    listeners = ["KAFKA://0.0.0.0:9092", "REPLICATION://0.0.0.0:9601"]
    advertised_listeners = ["KAFKA://host-1:9092", "REPLICATION://host-1:9601"]
    log_retention_hours = 72

Names follow Kafka's broker settings, in snake_case, and so do the names of the topic defaults
(`storage.configs.broker_config`). The settings may be spread over several files, so that the brokers of a cluster can
share one file. Each setting is in one file only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from node.settings.listeners import ListenerEndpoint, parse_listeners, with_changed_addresses
from node.settings.machine_limits import memory_of_machine, partitions_for
from storage.configs.broker_config import SYNONYMS, renamed, topic_defaults
from storage.configs.log_config import LogConfig
from storage.configs.parsers import as_text, number
from tidelog.errors import ConfigError, InvalidConfigError
from tidelog.model import Endpoint
from tidelog.nearest_names import nearest_names
from tidelog.settings_file import SettingsFile

_LONGEST_RACK = 249
_INT16, _INT32, _INT64 = 2**15 - 1, 2**31 - 1, 2**63 - 1

#: The names in a settings file of the broker settings that topics take their defaults from, mapped to Kafka's names.
_TOPIC_DEFAULTS = {name.replace(".", "_"): name for synonyms in SYNONYMS.values() for name, _ in synonyms}


def _setting(
    meaning: str, default: Any = MISSING, *, least: int = 0, most: int = _INT32, is_computed: bool = False
) -> Any:
    """Return a field. `is_computed`: the default depends on the machine."""
    metadata = {"meaning": meaning, "least": least, "most": most, "is_computed": is_computed}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """The settings of one broker. Each field's metadata has its meaning and its bounds.

    The constructor raises ConfigError if a value has the wrong type, is out of bounds, or is malformed.

    topic_defaults   the settings of a topic without settings of its own; the files use the broker names of them
    given            the values in the files as text, by their names in the files
    """

    broker_id: int = _setting("this broker's id, unique in its cluster")
    log_dirs: tuple[str, ...] = _setting("directories of the logs: a list, or names separated by commas")
    zookeeper: str = _setting("host:port,host:port/chroot of the ZooKeeper ensemble")
    listeners: tuple[str, ...] = _setting(
        "endpoints that the broker binds: NAME://address:port; KAFKA and KAFKA_… are for clients,"
        " REPLICATION for brokers",
        ("KAFKA://127.0.0.1:9092", "REPLICATION://127.0.0.1:9601"),
    )
    advertised_listeners: tuple[str, ...] = _setting(
        "addresses at which clients and brokers reach the listeners: NAME://host:port; default: the bound address",
        (),
    )
    broker_rack: str = _setting(
        "failure domain of this broker, such as a rack or a zone; a new partition gets its replicas in different ones;"
        " set it on all brokers or on none",
        "",
    )
    max_connections: int = _setting("connections of clients to one listener", 10_000, least=1)
    max_connections_per_ip: int = _setting("connections of clients to one listener from one address", 10_000, least=1)
    max_broker_partitions: int = _setting(
        "partitions that a broker may hold; those of internal topics count, but are never refused; the controller"
        " applies its own value to every broker",
        partitions_for(memory_of_machine()),
        least=1,
        is_computed=True,
    )
    connections_max_idle_ms: int = _setting(
        "time without a request after which a client's connection is closed", 600_000, least=1000
    )
    socket_request_max_bytes: int = _setting("maximum bytes of a request of a client", 104_857_600, least=1 << 20)
    queued_max_request_bytes: int = _setting(
        "memory for the requests and responses in flight of all clients of one listener; beyond it, they wait",
        256 << 20,
        least=1 << 20,
        most=_INT64,
    )
    http_listener: str = _setting("host:port of /healthz, /readyz and /metrics; empty: none", "")
    zookeeper_session_timeout_ms: int = _setting(
        "time without heartbeats after which ZooKeeper removes this broker's registration", 6000, least=1000
    )
    zookeeper_connect_timeout_ms: int = _setting("how long the start waits for ZooKeeper", 30_000, least=100)
    replica_lag_time_max_ms: int = _setting(
        "a follower that is behind for this long is removed from the ISR", 30_000, least=100
    )
    replica_fetch_wait_max_ms: int = _setting(
        "how long a follower's fetch may wait for records; up to four times as long for idle partitions", 500, least=1
    )
    replica_fetch_max_bytes: int = _setting(
        "maximum bytes of one partition in one fetch of a follower", 1 << 20, least=1024
    )
    replica_fetch_response_max_bytes: int = _setting("maximum bytes of one fetch of a follower", 10 << 20, least=1024)
    replica_high_watermark_checkpoint_interval_ms: int = _setting(
        "how often high watermarks are written to their checkpoint", 5000, least=10
    )
    num_recovery_threads_per_data_dir: int = _setting(
        "logs of one directory that are opened at the same time", 1, least=1, most=1000
    )
    log_retention_check_interval_ms: int = _setting(
        "how often the broker looks for segments to delete", 300_000, least=1, most=_INT64
    )
    log_cleaner_enable: bool = _setting("whether logs are compacted", True)
    log_cleaner_threads: int = _setting("logs that are compacted at the same time", 1, most=100)
    log_cleaner_io_max_bytes_per_second: int = _setting(
        "read rate of all cleaners together", _INT64, least=1 << 20, most=_INT64
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = _setting(
        "copy rate of all moves of replicas between the log directories together", _INT64, least=1, most=_INT64
    )
    leader_replication_throttled_rate: int = _setting(
        "limit of what this broker sends as the leader of throttled replicas to followers that are not in sync",
        _INT64,
        most=_INT64,
    )
    follower_replication_throttled_rate: int = _setting(
        "limit of what this broker fetches for its throttled replicas that are not in sync",
        _INT64,
        most=_INT64,
    )
    log_cleaner_dedupe_buffer_size: int = _setting(
        "memory of all cleaners together for their offset maps", 128 << 20, least=1 << 20
    )
    log_cleaner_backoff_ms: int = _setting(
        "pause of a cleaner when no log needs compaction", 15_000, least=1, most=_INT64
    )
    #: Kafka's default never flushes, so that a topic's flush.ms alone has no effect there.
    log_flush_scheduler_interval_ms: int = _setting(
        "how often the broker looks for logs that are due to be flushed by flush.ms", 1000, least=10, most=_INT64
    )
    log_flush_offset_checkpoint_interval_ms: int = _setting(
        "how often recovery points are written to their checkpoint", 60_000, least=10
    )
    log_flush_start_offset_checkpoint_interval_ms: int = _setting(
        "how often log start offsets are written to their checkpoint", 60_000, least=10
    )
    producer_id_expiration_ms: int = _setting(
        "time without a produce after which a producer's state is dropped", 86_400_000, least=1
    )
    producer_id_expiration_check_interval_ms: int = _setting(
        "how often the broker looks for producers whose state has expired", 600_000, least=1
    )
    auto_create_topics_enable: bool = _setting(
        "whether a client that asks for a topic that does not exist creates it, unless the client forbids it", False
    )
    num_partitions: int = _setting("default number of partitions of a new topic", 1, least=1, most=100_000)
    default_replication_factor: int = _setting("default number of replicas of a new topic", 1, least=1, most=1000)
    offsets_topic_num_partitions: int = _setting(
        "partitions of __consumer_offsets when it is created", 50, least=1, most=10_000
    )
    offsets_topic_replication_factor: int = _setting(
        "replicas of __consumer_offsets when it is created; it is not created with fewer", 3, least=1, most=1000
    )
    offsets_topic_segment_bytes: int = _setting(
        "segment.bytes of __consumer_offsets when it is created", 100 << 20, least=1024
    )
    offsets_retention_minutes: int = _setting(
        "how long committed offsets are kept after the group's last member has left, or after the commit if the group"
        " had no members",
        10_080,
        least=1,
    )
    offsets_retention_check_interval_ms: int = _setting(
        "how often the broker looks for committed offsets that have expired", 600_000, least=1, most=_INT64
    )
    offset_metadata_max_bytes: int = _setting("maximum bytes of the metadata of a committed offset", 4096, most=_INT16)
    offsets_commit_timeout_ms: int = _setting("how long a commit waits for all in-sync replicas", 5000, least=1)
    group_min_session_timeout_ms: int = _setting("smallest session timeout that a member may request", 6000, least=1)
    group_max_session_timeout_ms: int = _setting(
        "largest session timeout that a member may request", 1_800_000, least=1
    )
    group_initial_rebalance_delay_ms: int = _setting(
        "how long an empty group waits for more members after the first has joined", 3000
    )
    group_max_size: int = _setting("maximum number of members of a group", _INT32, least=1)
    auto_leader_rebalance_enable: bool = _setting(
        "whether the controller moves leadership back to preferred leaders", True
    )
    leader_imbalance_check_interval_seconds: int = _setting(
        "how often the controller looks for partitions that their preferred leader does not lead", 300, least=1
    )
    leader_imbalance_per_broker_percentage: int = _setting(
        "percentage of a broker's preferred partitions that other brokers may lead before leadership is moved back", 10
    )
    unclean_recovery_timeout_ms: int = _setting(
        "how long a partition waits for absent members of its last ISR, while the live members may have lost records",
        300_000,
    )
    controlled_shutdown_timeout_ms: int = _setting("how long a controlled stop tries to move leadership", 5000)
    log_file: str = _setting("file of this broker's log, which is rotated; empty: standard error", "")
    log_file_max_bytes: int = _setting("size at which the log file is rotated", 4 << 20, least=4096)
    log_file_backups: int = _setting("rotated log files that are kept", 3, most=1000)
    log_level: str = _setting("DEBUG, INFO, WARNING or ERROR", "INFO")
    history_file: str = _setting("file of the event history that tidelog chaos checks; empty: none", "")
    topic_defaults: LogConfig = field(default_factory=LogConfig)
    given: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for each in _own_fields():
            value, expected = getattr(self, each.name), hints[each.name]
            if type(value) is not (tuple if expected == tuple[str, ...] else expected):
                raise ConfigError(f"{each.name} must be {_TYPE_NAMES[expected]}, not {value!r}")
            texts = value if type(value) is tuple else (value,)
            if any(type(text) is str and "\0" in text for text in texts):
                raise ConfigError(f"{each.name} must not contain the character NUL (0)")
            if expected is int and not each.metadata["least"] <= value <= each.metadata["most"]:
                least, most = each.metadata["least"], each.metadata["most"]
                raise ConfigError(f"{each.name} must be between {least} and {most}, not {value}")
            if type(value) is tuple and not all(type(text) is str and text for text in texts):
                raise ConfigError(f"{each.name} must be a list of strings that are not empty, not {value!r}")
        if not self.log_dirs:
            raise ConfigError("log_dirs must name at least one directory")
        parse_listeners(self.listeners, self.advertised_listeners)
        rack = self.broker_rack
        if len(rack) > _LONGEST_RACK or not rack.isprintable() or rack != rack.strip():
            raise ConfigError(
                f"broker_rack must be at most {_LONGEST_RACK} printable characters without spaces at the ends,"
                f" not {rack[: _LONGEST_RACK + 1]!r}"
            )
        if self.log_level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
            raise ConfigError(f"log_level must be DEBUG, INFO, WARNING or ERROR, not {self.log_level!r}")
        if self.http_listener:
            try:
                Endpoint.parse(self.http_listener)
            except ValueError as error:
                raise ConfigError(f"http_listener: {error}") from None
        hosts, _, chroot = self.zookeeper.partition("/")
        if {".", ".."} & set(chroot.split("/")):
            raise ConfigError(f"zookeeper: the path /{chroot} must not contain . or ..")
        for host in hosts.split(","):
            try:
                Endpoint.parse(host)
            except ValueError as error:
                raise ConfigError(f"zookeeper: {error}") from None

    @property
    def listener_endpoints(self) -> tuple[ListenerEndpoint, ...]:
        """Return the listeners with their bound and their advertised addresses, in the order of `listeners`."""
        return parse_listeners(self.listeners, self.advertised_listeners)

    @staticmethod
    def knows(name: str) -> bool:
        """Return whether there is a setting with this name of Kafka."""
        ours = name.replace(".", "_")
        return ours in _TOPIC_DEFAULTS or any(each.name == ours for each in _own_fields())

    def replaced(self, configs: Mapping[str, str]) -> BrokerSettings:
        """Return these settings with those in `configs`: texts by Kafka's names.

        They may be numbers, defaults of topics, and `advertised.listeners`, which changes the addresses of the
        listeners that it names. Every name must be known (`knows`). Of several names for a default of topics, only the
        first one may be used, because the others may be hidden by one in the file. All other settings stay, `given`
        too. Raise InvalidConfigError, which names the wrong setting.
        """
        texts = {name.replace(".", "_"): text for name, text in configs.items()}
        own: dict[str, Any] = {}
        for each in _own_fields():
            if each.name == "advertised_listeners" and each.name in texts:
                own[each.name] = self._with_addresses(texts.pop(each.name))
            elif each.name in texts:
                text = texts.pop(each.name)
                try:
                    own[each.name] = number(each.metadata["least"], each.metadata["most"])(text.strip())
                except ValueError as error:
                    raise InvalidConfigError(f"{each.name.replace('_', '.')}={text}: {error}") from None
        given = {_TOPIC_DEFAULTS[name]: text for name, text in texts.items()}
        return replace(self, **own, topic_defaults=topic_defaults(given, self.topic_defaults))

    def _with_addresses(self, text: str) -> tuple[str, ...]:
        changes = [part.strip() for part in text.split(",") if part.strip()]
        try:
            if not changes:
                raise ConfigError("advertised_listeners: names no listener")
            advertised = with_changed_addresses(self.advertised_listeners, changes)
            parse_listeners(self.listeners, advertised)
        except ConfigError as error:
            raise InvalidConfigError(str(error).replace("advertised_listeners", "advertised.listeners")) from None
        return advertised

    @classmethod
    def load(cls, *paths: Path) -> BrokerSettings:
        """Return the settings of these TOML files together.

        Raise ConfigError with the name of a setting that is wrong or missing, its file, and its line if it has one.
        """
        known = {each.name: each for each in _own_fields()}
        files = [SettingsFile.read(path) for path in paths]
        file_of: dict[str, SettingsFile] = {}
        for file in files:
            for name in file.values:
                if name not in known and name not in _TOPIC_DEFAULTS:
                    raise ConfigError(f"{file.place(name)}: no such setting: {name}{_nearest(name, known)}")
                if name in file_of:
                    raise ConfigError(f"{file.place(name)}: {name} is already set at {file_of[name].place(name)}")
                file_of[name] = file
        all_files = ", ".join(map(str, paths))
        required = {name for name, each in known.items() if each.default is MISSING}
        if missing := sorted(required - file_of.keys()):
            raise ConfigError(f"{all_files}: missing: {', '.join(missing)}")
        values = {name: file.values[name] for name, file in file_of.items()}
        own: dict[str, Any] = {name: value for name, value in values.items() if name in known}
        hints = get_type_hints(cls)
        own |= {name: _listed(value) for name, value in own.items() if hints[name] == tuple[str, ...]}
        try:
            given = {name: as_text(value) for name, value in values.items()}
            return cls(**own, topic_defaults=_topic_defaults(given), given=given)
        except ConfigError as error:
            # The message begins with the setting's name. If the setting has its default, no file contains it.
            name = re.split(r"\W", str(error), maxsplit=1)[0]
            place = file_of[name].place(name) if name in file_of else all_files
            raise ConfigError(f"{place}: {error}") from None


def _own_fields() -> list[Field[Any]]:
    return [each for each in fields(BrokerSettings) if each.metadata]


_TYPE_NAMES = {
    int: "a whole number",
    str: "a string",
    bool: "true or false",
    tuple[str, ...]: "a list of strings, or one string with commas",
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
