"""Define the clients' settings: names are Kafka's, values are checked once, and each error names the setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, Literal, TypedDict, TypeVar

from tidelog import arguments
from tidelog.client.consumer.reset_strategy import ResetSetting, ResetStrategy, parse_strategy
from tidelog.client.producer.partitioner import Partitioner, partition_for_key
from tidelog.clock import SystemClock
from tidelog.errors import ConfigError, InvalidGroupIdError
from tidelog.model import READ_COMMITTED, READ_UNCOMMITTED, Endpoint
from tidelog.nearest_names import nearest_names
from tidelog.records.compression import MAX_DECOMPRESSED_BYTES, MOST_DECOMPRESSED_BYTES
from tidelog.records.header import Codec
from tidelog.records.varint import INT32_MAX

BootstrapServers = str | Sequence[str]

S = TypeVar("S")

_CODECS: Mapping[str, Codec] = {codec.name.lower(): codec for codec in Codec}


class ClientOptions(TypedDict, total=False):
    """The settings that a user may give for every client. Times are milliseconds."""

    client_id: str
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    bootstrap_timeout_ms: int


class ProducerOptions(ClientOptions, total=False):
    """The further settings that a user may give for a producer; `ProducerSettings` has the defaults."""

    acks: Literal["all", -1, 0, 1, "0", "1", "-1"]
    enable_idempotence: bool
    batch_size: int
    linger_ms: int
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] | None
    buffer_memory: int
    max_block_ms: int
    max_request_size: int
    delivery_timeout_ms: int
    retries: int
    partitioner: Partitioner
    allow_auto_create_topics: bool
    key_serializer: Callable[[Any], bytes] | None
    value_serializer: Callable[[Any], bytes] | None


class ConsumerOptions(ClientOptions, total=False):
    """The further settings that a user may give for a consumer; `ConsumerSettings` has the defaults."""

    auto_offset_reset: ResetSetting
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    prefetch_max_bytes: int
    max_poll_records: int
    consumer_timeout_ms: int | None
    max_decompressed_batch_bytes: int
    default_api_timeout_ms: int
    isolation_level: Literal["read_uncommitted", "read_committed"]
    check_crcs: bool
    group_id: str | None
    group_instance_id: str | None
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    partition_assignment_strategy: str | Sequence[str]
    allow_auto_create_topics: bool
    key_deserializer: Callable[[bytes], Any] | None
    value_deserializer: Callable[[bytes], Any] | None


class AdminOptions(ClientOptions, total=False):
    """The further settings that a user may give for an admin."""

    default_api_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """The checked settings of every client.

    `bootstrap_timeout_ms` limits the search for the first broker. Later outages are limited by each call's timeout.
    """

    bootstrap: tuple[Endpoint, ...]
    client_id: str = "tidelog"
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 50
    retry_backoff_max_ms: int = 200
    metadata_max_age_ms: int = 300_000
    bootstrap_timeout_ms: int = 5_000

    def __post_init__(self) -> None:
        _check(self, "client_id", arguments.text)
        _whole(self, "request_timeout_ms", 1)
        _whole(self, "retry_backoff_ms", 1)
        _whole(self, "retry_backoff_max_ms", 1)
        _whole(self, "metadata_max_age_ms", 1)
        _whole(self, "bootstrap_timeout_ms", 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(ClientSettings):
    """The checked settings of a producer; ConfigError at creation names the setting.

    `acks` becomes 0, 1 or −1; `idempotent` (by default whether acks is −1) and `codec` are computed.
    """

    acks: Any = "all"
    enable_idempotence: bool | None = None
    batch_size: int = 262_144
    linger_ms: int = 0
    compression_type: str | None = None
    buffer_memory: int = 64 << 20
    max_block_ms: int = 60_000
    max_request_size: int = 1 << 20
    delivery_timeout_ms: int = 120_000
    retries: int = INT32_MAX
    partitioner: Partitioner = partition_for_key
    allow_auto_create_topics: bool = False
    key_serializer: Callable[[Any], bytes] | None = None
    value_serializer: Callable[[Any], bytes] | None = None
    idempotent: bool = field(init=False)
    codec: Codec = field(init=False)

    def __post_init__(self) -> None:
        ClientSettings.__post_init__(self)
        if isinstance(self.acks, bool) or str(self.acks) not in ("all", "-1", "0", "1"):
            raise ConfigError(f"acks must be 'all', 1 or 0, not {self.acks!r}")
        acks = -1 if self.acks == "all" else int(self.acks)
        if self.enable_idempotence is not None:
            _check(self, "enable_idempotence", arguments.flag)
        if self.enable_idempotence and acks != -1:
            raise ConfigError(f"enable_idempotence=True needs acks='all', not {self.acks!r}")
        idempotent = acks == -1 if self.enable_idempotence is None else self.enable_idempotence
        object.__setattr__(self, "acks", acks)
        object.__setattr__(self, "idempotent", idempotent)
        codec = Codec.NONE if self.compression_type is None else _CODECS.get(str(self.compression_type))
        if codec is None:
            names = ", ".join(map(repr, _CODECS))
            raise ConfigError(f"compression_type must be None or one of {names}, not {self.compression_type!r}")
        object.__setattr__(self, "codec", codec)
        _whole(self, "batch_size", 128, 1 << 30)
        _whole(self, "linger_ms", 0)
        _whole(self, "buffer_memory", 1)
        _whole(self, "max_block_ms", 0)
        _whole(self, "max_request_size", 128, 1 << 30)
        _whole(self, "delivery_timeout_ms", 1)
        _whole(self, "retries", 0, INT32_MAX)
        if self.linger_ms >= self.delivery_timeout_ms:
            raise ConfigError(
                f"linger_ms ({self.linger_ms}) must be less than delivery_timeout_ms ({self.delivery_timeout_ms}), "
                "because records would otherwise expire before they are sent"
            )
        if not callable(self.partitioner):
            raise ConfigError(f"partitioner must be callable, not {self.partitioner!r}")
        _check(self, "allow_auto_create_topics", arguments.flag)
        _function_or_none(self, "key_serializer")
        _function_or_none(self, "value_serializer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(ClientSettings):
    """The checked settings of a consumer; ConfigError at creation names the setting.

    A `group_id` of "" is an InvalidGroupIdError. `isolation_level` becomes the wire's number,
    `partition_assignment_strategy` a tuple, and `reset_strategy` is the parsed `auto_offset_reset`.
    """

    auto_offset_reset: ResetSetting = "latest"
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 50 << 20
    max_partition_fetch_bytes: int = 1 << 20
    prefetch_max_bytes: int = 64 << 20
    max_poll_records: int = 500
    consumer_timeout_ms: int | None = None
    max_decompressed_batch_bytes: int = MAX_DECOMPRESSED_BYTES
    default_api_timeout_ms: int = 60_000
    isolation_level: Any = "read_uncommitted"
    check_crcs: bool = True
    group_id: str | None = None
    group_instance_id: str | None = None
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    partition_assignment_strategy: Any = ("range", "roundrobin")
    allow_auto_create_topics: bool = False
    key_deserializer: Callable[[bytes], Any] | None = None
    value_deserializer: Callable[[bytes], Any] | None = None
    reset_strategy: ResetStrategy = field(init=False)

    def __post_init__(self) -> None:
        ClientSettings.__post_init__(self)
        try:
            strategy = parse_strategy(self.auto_offset_reset, SystemClock().now_ms())
        except ValueError as error:
            raise ConfigError(str(error)) from None
        object.__setattr__(self, "reset_strategy", strategy)
        levels = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
        if not isinstance(self.isolation_level, str) or self.isolation_level not in levels:
            raise ConfigError(f"isolation_level must be one of {', '.join(levels)}, not {self.isolation_level!r}")
        object.__setattr__(self, "isolation_level", levels[self.isolation_level])
        _whole(self, "fetch_min_bytes", 0)
        _whole(self, "fetch_max_wait_ms", 0)
        _whole(self, "fetch_max_bytes", 1)
        _whole(self, "max_partition_fetch_bytes", 1)
        _whole(self, "prefetch_max_bytes", 1)
        _whole(self, "max_poll_records", 1)
        if self.consumer_timeout_ms is not None:
            _whole(self, "consumer_timeout_ms", 0)
        _whole(self, "max_decompressed_batch_bytes", 1, MOST_DECOMPRESSED_BYTES)
        _whole(self, "default_api_timeout_ms", 1)
        _check(self, "check_crcs", arguments.flag)
        _check(self, "allow_auto_create_topics", arguments.flag)
        _function_or_none(self, "key_deserializer")
        _function_or_none(self, "value_deserializer")
        self._check_group()

    def _check_group(self) -> None:
        if self.group_id == "":
            raise InvalidGroupIdError("group_id must be None or a group's name, not ''")
        for name in ("group_id", "group_instance_id"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise ConfigError(f"{name} must be None or a name, not {value!r}")
            if value is not None:
                _check(self, name, arguments.text)
        if self.group_instance_id is not None and self.group_id is None:
            raise ConfigError("group_instance_id needs a group_id")
        _check(self, "enable_auto_commit", arguments.flag)
        _whole(self, "auto_commit_interval_ms", 0)
        _whole(self, "session_timeout_ms", 1, INT32_MAX)
        _whole(self, "heartbeat_interval_ms", 1, INT32_MAX)
        _whole(self, "max_poll_interval_ms", 1, INT32_MAX)
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms ({self.heartbeat_interval_ms}) must be less than session_timeout_ms "
                f"({self.session_timeout_ms}), and better a third of it"
            )
        # Imported here, because producers also load this module and do not need the assignors.
        from tidelog.groups.assignment.assignors import ASSIGNORS

        given = self.partition_assignment_strategy
        names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Sequence) else ()
        are_known = all(isinstance(each, str) and each in ASSIGNORS for each in names)
        if not names or not are_known or len(set(names)) != len(names):
            known = ", ".join(map(repr, ASSIGNORS))
            raise ConfigError(f"partition_assignment_strategy must be one or some of {known}, each once, not {given!r}")
        object.__setattr__(self, "partition_assignment_strategy", names)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSettings(ClientSettings):
    """The checked settings of an admin."""

    default_api_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        ClientSettings.__post_init__(self)
        _whole(self, "default_api_timeout_ms", 1)


def make_settings(cls: Callable[..., S], bootstrap_servers: BootstrapServers | None, options: Mapping[str, Any]) -> S:
    """Return the checked settings of class `cls` from a user's options.

    ConfigError names a setting that is unknown or has a value that is not allowed. With `bootstrap_servers` None,
    `find_brokers` finds the cluster; LocalError if there is none.
    """
    known = [each.name for each in setting_fields(cls)]
    for name in options:
        if name not in known:
            raise ConfigError(f"unknown setting {name!r}; {nearest_names(name, ['bootstrap_servers', *known])}")
    return cls(bootstrap=parse_bootstrap(bootstrap_servers), **options)


def parse_bootstrap(servers: BootstrapServers | None) -> tuple[Endpoint, ...]:
    """Return the distinct addresses of `"h:p,h:p"` or a list of `"h:p"`; for None those that `find_brokers` finds.

    ConfigError if the servers have another form or are empty; LocalError if no cluster is found.
    """
    source = "bootstrap_servers"
    if servers is None:
        from tidelog.client.bootstrap import find_brokers  # here, because most programs name their brokers

        servers, source = find_brokers("bootstrap_servers='HOST:PORT'")
    parts = servers.split(",") if isinstance(servers, str) else servers
    if not isinstance(parts, Sequence) or not all(isinstance(part, str) for part in parts):
        raise ConfigError(f"{source} must be 'host:port,…' or a list of 'host:port', not {servers!r}")
    try:
        found = [Endpoint.parse(part) for part in parts if part.strip()]
    except ValueError as error:
        raise ConfigError(f"{source}: {error}") from None
    if not found:
        raise ConfigError(f"{source} is empty: give host:port of one broker or more")
    return tuple(dict.fromkeys(found))


def _whole(settings: object, name: str, least: int, most: int = arguments.INT64_MAX) -> None:
    """Replace a setting by its value as an `int`; raise ConfigError if it is not a whole number or out of range."""
    value = getattr(settings, name)
    try:
        object.__setattr__(settings, name, arguments.whole(name, value, least, most))
    except TypeError:
        raise ConfigError(f"{name} must be a whole number, not {arguments.shown(value)}") from None
    except ValueError:
        is_bounded = most < arguments.INT64_MAX or value > most
        allowed = f"{least} or more{f' and at most {most}' if is_bounded else ''}"
        raise ConfigError(f"{name} must be {allowed}, not {arguments.shown(value)}") from None


def _check(settings: object, name: str, check: Callable[[str, object], object]) -> None:
    """Raise ConfigError if `check`, a function of `tidelog.arguments`, rejects the setting, which stays as given."""
    try:
        check(name, getattr(settings, name))
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from None


def _function_or_none(settings: object, name: str) -> None:
    value = getattr(settings, name)
    if value is not None and not callable(value):
        raise ConfigError(f"{name} must be None or a function of one value, not {arguments.shown(value)}")


def setting_fields(settings: Any) -> list[Field[Any]]:
    """Return the fields that are settings: all except the addresses and fields that are computed from others."""
    return [each for each in fields(settings) if each.init and each.name != "bootstrap"]
