"""Parses the options of a read or write: their names, values and precedence. Pure.

Spark passes the names in lower case and the values as text. The names are those of Spark's Kafka source. A setting of
the client itself is `tidelog.` and its name with dots (`tidelog.request.timeout.ms`). An unknown name is an error,
because a typing mistake must not silently read from the wrong place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from tidelog.client.bootstrap import find_brokers
from tidelog.errors import ConfigError
from tidelog.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Endpoint, validate_topic
from tidelog.nearest_names import nearest_names
from tidelog.spark import values
from tidelog.spark.bounds import check_order
from tidelog.spark.values import AtOffsets, AtTime, AtTimes, Bound, Position, Subscription

_T = TypeVar("_T")


class Use(Enum):
    """The operation that the options belong to. The value is its name in errors."""

    BATCH_READ = "a batch read"
    STREAM_READ = "a stream read"
    WRITE = "a write"


_READS = frozenset({Use.BATCH_READ, Use.STREAM_READ})
_BATCH = frozenset({Use.BATCH_READ})
_STREAM = frozenset({Use.STREAM_READ})
_WRITES = frozenset({Use.WRITE})

_USES: dict[str, frozenset[Use]] = {
    "tidelog.bootstrap.servers": frozenset(Use),
    "kafka.bootstrap.servers": frozenset(Use),
    "subscribe": _READS,
    "subscribePattern": _READS,
    "assign": _READS,
    "startingTimestamp": _READS,
    "startingOffsetsByTimestamp": _READS,
    "startingOffsets": _READS,
    "startingOffsetsByTimestampStrategy": _READS,
    "endingTimestamp": _BATCH,
    "endingOffsetsByTimestamp": _BATCH,
    "endingOffsets": _BATCH,
    "maxOffsetsPerTrigger": _STREAM,
    "minOffsetsPerTrigger": _STREAM,
    "maxTriggerDelay": _STREAM,
    "minPartitions": _READS,
    "maxRecordsPerPartition": _READS,
    "failOnDataLoss": _READS,
    "includeHeaders": _READS,
    "groupIdPrefix": _READS,
    "fetchOffset.numRetries": _READS,
    "fetchOffset.retryIntervalMs": _READS,
    "pollTimeoutMs": _READS,
    "topic": _WRITES,
}

#: Options of Spark itself, which Spark passes to the source too.
_SPARK_OPTIONS = frozenset({"checkpointlocation", "queryname", "path"})


CLIENT_OPTIONS: dict[str, tuple[frozenset[Use], Callable[[str], Any]]] = {
    "tidelog.client.id": (frozenset(Use), str),
    "tidelog.bootstrap.timeout.ms": (frozenset(Use), values.at_least(1)),
    "tidelog.request.timeout.ms": (frozenset(Use), values.at_least(1)),
    "tidelog.retry.backoff.ms": (frozenset(Use), values.at_least(1)),
    "tidelog.default.api.timeout.ms": (_READS, values.at_least(1)),
    "tidelog.fetch.max.bytes": (_READS, values.at_least(1)),
    "tidelog.max.partition.fetch.bytes": (_READS, values.at_least(1)),
    "tidelog.max.decompressed.batch.bytes": (_READS, values.at_least(1)),
    "tidelog.acks": (_WRITES, lambda text: text if text == "all" else int(text)),
    "tidelog.enable.idempotence": (_WRITES, values.boolean),
    "tidelog.batch.size": (_WRITES, values.at_least(0)),
    "tidelog.linger.ms": (_WRITES, values.at_least(0)),
    "tidelog.compression.type": (_WRITES, str),
    "tidelog.buffer.memory": (_WRITES, values.at_least(1)),
    "tidelog.max.request.size": (_WRITES, values.at_least(1)),
    "tidelog.max.block.ms": (_WRITES, values.at_least(0)),
    "tidelog.delivery.timeout.ms": (_WRITES, values.at_least(1)),
}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a batch or stream read, with defaults for those that were not given.

    client   keyword arguments for `tidelog.Consumer`
    None     no limit
    """

    bootstrap_servers: str
    subscription: Subscription
    starting: Position
    ending: Position = "latest"
    #: Whether a starting time without a later record means the end of the log. For an ending time it always does.
    no_match_is_latest: bool = False
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    retries: int = 3
    retry_interval_ms: int = 200
    #: How long a task waits for its next record before it fails.
    poll_timeout_ms: int = 120_000
    client: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write. `client` has keyword arguments for `tidelog.Producer`.

    `topic` overrides the column `topic`; None: each row names its topic.
    """

    bootstrap_servers: str
    topic: str | None = None
    client: Mapping[str, Any] = field(default_factory=dict)


def parse_read(raw: Mapping[str, str], use: Use) -> ReadOptions:
    """Return the options of a read (`use` is BATCH_READ or STREAM_READ), from Spark's option names and texts.

    Raises ConfigError, which names the option, for an unknown option, an option of another use, a wrong value, or
    options that contradict each other. Without the option for brokers, those of TIDELOG_BOOTSTRAP_SERVERS are used,
    or of this user's last `tidelog up`; LocalError if there are none.
    """
    given = _Given(raw, use)
    minimum = given.get("minOffsetsPerTrigger", values.at_least(1))
    maximum = given.get("maxOffsetsPerTrigger", values.at_least(1))
    if minimum is not None and maximum is not None and minimum > maximum:
        raise ConfigError(f"minOffsetsPerTrigger {minimum} is more than maxOffsetsPerTrigger {maximum}")
    client = given.client_settings()
    starting, ending = given.starting(), given.ending()
    check_order(starting, ending)
    prefix = given.get("groupIdPrefix", str)
    if prefix is not None:
        client.setdefault("client_id", prefix)
    return ReadOptions(
        bootstrap_servers=given.bootstrap_servers(),
        subscription=given.subscription(),
        starting=starting,
        ending=ending,
        no_match_is_latest=given.get("startingOffsetsByTimestampStrategy", values.strategy, False),
        max_offsets_per_trigger=maximum,
        min_offsets_per_trigger=minimum,
        max_trigger_delay_ms=given.get("maxTriggerDelay", values.duration_ms, 15 * 60_000),
        min_partitions=given.get("minPartitions", values.at_least(1)),
        max_records_per_partition=given.get("maxRecordsPerPartition", values.at_least(1)),
        fail_on_data_loss=given.get("failOnDataLoss", values.boolean, True),
        include_headers=given.get("includeHeaders", values.boolean, False),
        retries=given.get("fetchOffset.numRetries", values.at_least(0), 3),
        retry_interval_ms=given.get("fetchOffset.retryIntervalMs", values.at_least(0), 200),
        poll_timeout_ms=given.get("pollTimeoutMs", values.at_least(1), 120_000),
        client=client,
    )


def parse_write(raw: Mapping[str, str]) -> WriteOptions:
    """Return the options of a write. Raises ConfigError and LocalError as `parse_read` does."""
    given = _Given(raw, Use.WRITE)
    return WriteOptions(given.bootstrap_servers(), given.get("topic", validate_topic), given.client_settings())


def wants_headers(raw: Mapping[str, str]) -> bool:
    """Return whether the option includeHeaders is true; False if it is not given. Raises ConfigError for a wrong value.

    No other option is checked, because Spark asks for the schema before the use is known.
    """
    text = {name.lower(): value for name, value in raw.items()}.get("includeheaders", "false")
    try:
        return values.boolean(text)
    except ValueError as error:
        raise ConfigError(f"option includeHeaders: {text!r} {error}") from None


class _Given:
    """The given options of one use; the constructor raises ConfigError for a name that this use does not have."""

    def __init__(self, raw: Mapping[str, str], use: Use) -> None:
        self._raw = {name.lower(): value for name, value in raw.items()}
        self._use = use
        uses = {name: allowed for name, (allowed, _) in CLIENT_OPTIONS.items()} | _USES
        spelling = {name.lower(): name for name in uses}
        for name in self._raw:
            if name in _SPARK_OPTIONS:
                continue
            if name not in spelling:
                raise ConfigError(f"unknown option {name!r} for format tidelog; {nearest_names(name, uses)}")
            if use not in uses[spelling[name]]:
                allowed = " or ".join(sorted(other.value for other in uses[spelling[name]]))
                raise ConfigError(f"option {spelling[name]} is for {allowed}, not for {use.value}")
        if self._raw.get("path"):
            raise ConfigError(f"format tidelog takes no path ({self._raw['path']!r}): name topics by an option")

    def get(self, name: str, parse: Callable[[str], _T], default: Any = None) -> Any:
        text = self._raw.get(name.lower())
        if text is None:
            return default
        try:
            return parse(text.strip())
        except ConfigError:
            raise
        except (ValueError, re.error) as error:
            raise ConfigError(f"option {name}: {text!r} {_reason(error)}") from None
        except Exception as error:
            raise ConfigError(f"option {name}: {error}") from None

    def client_settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {}
        for name, (_, parse) in CLIENT_OPTIONS.items():
            value = self.get(name, parse)
            if value is not None:
                settings[name.removeprefix("tidelog.").replace(".", "_")] = value
        return settings

    def bootstrap_servers(self) -> str:
        own, kafka_servers = self._raw.get("tidelog.bootstrap.servers"), self._raw.get("kafka.bootstrap.servers")
        if own is not None and kafka_servers is not None and own != kafka_servers:
            raise ConfigError(
                f"tidelog.bootstrap.servers {own!r} and kafka.bootstrap.servers {kafka_servers!r} differ: set only one"
            )
        option, servers = "option tidelog.bootstrap.servers", own if own is not None else kafka_servers
        if servers is None:
            servers, option = find_brokers("the option tidelog.bootstrap.servers=HOST:PORT")
        try:
            endpoints = [Endpoint.parse(server) for server in servers.split(",") if server.strip()]
        except ValueError as error:
            raise ConfigError(f"{option}: {error}") from None
        if not endpoints:
            raise ConfigError(f"{option} is empty: must be HOST:PORT, or several separated by commas")
        return ",".join(map(str, endpoints))

    def subscription(self) -> Subscription:
        names = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in self._raw]
        if len(names) != 1:
            given = " and ".join(names) if names else "none of them"
            raise ConfigError(f"exactly one of subscribe, subscribePattern and assign is needed, not {given}")
        subscription: Subscription = self.get(
            names[0],
            {"subscribe": values.subscribe, "subscribePattern": values.pattern, "assign": values.assign}[names[0]],
        )
        return subscription

    def starting(self) -> Position:
        streaming = self._use is Use.STREAM_READ
        position: Position = self._position("starting", "latest" if streaming else "earliest")
        if not streaming and (position == "latest" or _names(position, LATEST_TIMESTAMP)):
            raise ConfigError("startingOffsets: a batch read cannot start at latest (−1): no record would be read")
        return position

    def ending(self) -> Position:
        position: Position = self._position("ending", "latest")
        if position == "earliest" or _names(position, EARLIEST_TIMESTAMP):
            raise ConfigError("endingOffsets: a batch read cannot end at earliest (−2): no record would be read")
        return position

    def _position(self, which: Bound, default: Position) -> Position:
        by_time = self.get(f"{which}Timestamp", values.timestamp)
        if by_time is not None:
            return AtTime(by_time)
        by_times = self.get(f"{which}OffsetsByTimestamp", lambda text: values.times(text, f"{which}OffsetsByTimestamp"))
        if by_times is not None:
            return AtTimes(by_times)
        position: Position = self.get(f"{which}Offsets", lambda text: values.offsets(text, f"{which}Offsets"), default)
        return position


def _reason(error: Exception) -> str:
    return "must be a whole number" if str(error).startswith("invalid literal") else str(error)


def _names(position: Position, code: int) -> bool:
    return isinstance(position, AtOffsets) and code in position.offsets.values()
