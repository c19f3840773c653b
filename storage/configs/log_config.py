"""The settings of a topic's logs: names, meanings, limits and defaults of Kafka 3.9.

All of Kafka's names are known, so that a topic's settings can be moved between the two systems. A setting with a
`NO_EFFECT` entry is checked and stored, but changes nothing. A value that asks for a feature which Tidelog does not
have is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from storage.configs.parsers import (
    INT32_MAX,
    INT64_MAX,
    Parser,
    ThrottledReplicas,
    WholeNumber,
    as_text,
    boolean,
    format_version,
    number,
    one_of,
    only_false,
    policies,
    ratio,
    throttled_replicas,
)
from tidelog.errors import InvalidConfigError
from tidelog.nearest_names import nearest_names
from tidelog.protocol.admin_messages import ConfigType
from tidelog.records import Codec

_DAY_MS = 24 * 60 * 60 * 1000
_HOUR_MS = 60 * 60 * 1000
_MOST_QUOTED = 100
_NO_TIERS = "there is no tiered storage"

#: The codecs that `compression.type` can ask for, by Kafka's names.
_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def _setting(default: Any, name: str, parse: Parser, *, no_effect: str | None = None) -> Any:
    return field(default=default, metadata={"name": name, "parse": parse, "no_effect": no_effect})


@dataclass(frozen=True)
class LogConfig:
    """One field for each setting, in the unit that its name ends with."""

    segment_bytes: int = _setting(1024**3, "segment.bytes", number(14, INT32_MAX))
    segment_ms: int = _setting(7 * _DAY_MS, "segment.ms", number(1))
    segment_jitter_ms: int = _setting(0, "segment.jitter.ms", number(0))
    segment_index_bytes: int = _setting(10 * 1024**2, "segment.index.bytes", number(4, INT32_MAX))
    index_interval_bytes: int = _setting(4096, "index.interval.bytes", number(0, INT32_MAX))
    preallocate: bool = _setting(False, "preallocate", boolean, no_effect="files grow as they are written")
    max_message_bytes: int = _setting(1024**2 + 12, "max.message.bytes", number(0, INT32_MAX))
    flush_messages: int = _setting(INT64_MAX, "flush.messages", number(1))
    flush_ms: int = _setting(INT64_MAX, "flush.ms", number(0))
    message_timestamp_type: str = _setting(
        "CreateTime", "message.timestamp.type", one_of("CreateTime", "LogAppendTime")
    )
    message_timestamp_before_max_ms: int = _setting(INT64_MAX, "message.timestamp.before.max.ms", number(0))
    #: Kafka's default is no bound. A single record from the far future would then prevent retention by time forever.
    message_timestamp_after_max_ms: int = _setting(_HOUR_MS, "message.timestamp.after.max.ms", number(0))
    #: The older setting for both bounds. It applies to a bound that has its default.
    message_timestamp_difference_max_ms: int = _setting(INT64_MAX, "message.timestamp.difference.max.ms", number(0))
    message_format_version: str = _setting(
        "3.0-IV1", "message.format.version", format_version, no_effect="only one format exists, as in Kafka since 3.0"
    )
    message_downconversion_enable: bool = _setting(
        True, "message.downconversion.enable", boolean, no_effect="clients of older formats are not supported"
    )
    compression_type: str = _setting("producer", "compression.type", one_of("producer", *_CODECS))
    compression_gzip_level: int = _setting(-1, "compression.gzip.level", number(1, 9, also=-1))
    compression_lz4_level: int = _setting(9, "compression.lz4.level", number(1, 17))
    compression_zstd_level: int = _setting(3, "compression.zstd.level", number(-131072, 22))
    min_insync_replicas: int = _setting(1, "min.insync.replicas", number(1, INT32_MAX))
    unclean_leader_election_enable: bool = _setting(False, "unclean.leader.election.enable", boolean)
    leader_replication_throttled_replicas: tuple[str, ...] = _setting(
        (), "leader.replication.throttled.replicas", throttled_replicas
    )
    follower_replication_throttled_replicas: tuple[str, ...] = _setting(
        (), "follower.replication.throttled.replicas", throttled_replicas
    )
    cleanup_policy: frozenset[str] = _setting(frozenset({"delete"}), "cleanup.policy", policies)
    retention_ms: int = _setting(7 * _DAY_MS, "retention.ms", number(-1))
    #: Any negative number: no limit.
    retention_bytes: int = _setting(-1, "retention.bytes", number())
    file_delete_delay_ms: int = _setting(60_000, "file.delete.delay.ms", number(0))
    delete_retention_ms: int = _setting(_DAY_MS, "delete.retention.ms", number(0))
    min_compaction_lag_ms: int = _setting(0, "min.compaction.lag.ms", number(0))
    max_compaction_lag_ms: int = _setting(INT64_MAX, "max.compaction.lag.ms", number(1))
    min_cleanable_dirty_ratio: float = _setting(0.5, "min.cleanable.dirty.ratio", ratio)
    remote_storage_enable: bool = _setting(False, "remote.storage.enable", only_false(_NO_TIERS))
    remote_log_copy_disable: bool = _setting(False, "remote.log.copy.disable", only_false(_NO_TIERS))
    remote_log_delete_on_disable: bool = _setting(False, "remote.log.delete.on.disable", only_false(_NO_TIERS))
    local_retention_ms: int = _setting(-2, "local.retention.ms", number(-2), no_effect=_NO_TIERS)
    local_retention_bytes: int = _setting(-2, "local.retention.bytes", number(-2), no_effect=_NO_TIERS)

    @cached_property
    def log_append_time(self) -> bool:
        """Return whether the topic has LogAppendTime: batches get the leader's time instead of the producer's."""
        return self.message_timestamp_type == "LogAppendTime"

    @cached_property
    def compact(self) -> bool:
        """Return whether `cleanup.policy` has `compact`, so that the log keeps the last record of each key."""
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        """Return whether `cleanup.policy` has `delete`, so that retention by time and size applies."""
        return "delete" in self.cleanup_policy

    @cached_property
    def earliest_lag_ms(self) -> int:
        """Return by how many ms a record's timestamp may precede the leader's clock; 2^63 − 1: any number."""
        before_ms = self.message_timestamp_before_max_ms
        return before_ms if before_ms != INT64_MAX else self.message_timestamp_difference_max_ms

    @cached_property
    def bounds_age(self) -> bool:
        """Return whether the topic refuses timestamps that are too old; never with LogAppendTime."""
        return self.earliest_lag_ms != INT64_MAX and not self.log_append_time

    @cached_property
    def inspects_records(self) -> bool:
        """Return whether each append must decode records, because no header shows a missing key or an old timestamp."""
        return self.compact or self.bounds_age

    @cached_property
    def latest_lead_ms(self) -> int:
        """Return by how many ms a record's timestamp may exceed the leader's clock."""
        after_ms, difference_ms = self.message_timestamp_after_max_ms, self.message_timestamp_difference_max_ms
        return after_ms if after_ms != _HOUR_MS or difference_ms == INT64_MAX else difference_ms

    @cached_property
    def codec(self) -> Codec | None:
        """Return the codec in which the leader stores producers' batches; None if each batch keeps its codec.

        Batches that are already in the log, and batches that the broker creates itself, are not recompressed.
        """
        return _CODECS.get(self.compression_type)

    @cached_property
    def throttled_leaders(self) -> ThrottledReplicas:
        """Return the replicas that count for `leader.replication.throttled.rate` while they lead."""
        return ThrottledReplicas(self.leader_replication_throttled_replicas)

    @cached_property
    def throttled_followers(self) -> ThrottledReplicas:
        """Return the replicas whose fetches count for `follower.replication.throttled.rate`."""
        return ThrottledReplicas(self.follower_replication_throttled_replicas)

    @property
    def compression_level(self) -> int | None:
        """Return the level for `codec`; None, the library's default, if the setting has its default or is missing."""
        name = f"compression_{self.compression_type}_level"
        level: int | None = getattr(self, name, None)
        return level if level != getattr(type(self), name, None) else None

    @classmethod
    def from_topic_configs(cls, configs: Mapping[str, str], defaults: LogConfig | None = None) -> LogConfig:
        """Return `defaults` (None: the built-in ones) with these settings.

        InvalidConfigError names a wrong setting and its allowed values, or an unknown one and similar names.
        """
        values: dict[str, Any] = {}
        for name, text in configs.items():
            setting = _SETTINGS.get(name)
            if setting is None:
                raise no_such_setting(name)
            try:
                values[setting.name] = setting.metadata["parse"](text.strip())
            except ValueError as error:
                raise InvalidConfigError(f"{name}={_quoted(text)}: {error}") from None
        config = dataclasses.replace(defaults or cls(), **values)
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise InvalidConfigError(
                f"min.compaction.lag.ms={config.min_compaction_lag_ms} is more than "
                f"max.compaction.lag.ms={config.max_compaction_lag_ms}"
            )
        return config

    @classmethod
    def from_valid_topic_configs(cls, configs: Mapping[str, str], defaults: LogConfig | None = None) -> LogConfig:
        """Return as `from_topic_configs`, but ignore each setting that is wrong or unknown."""
        right: dict[str, str] = {}
        for name, text in configs.items():
            try:
                cls.from_topic_configs({**right, name: text}, defaults)
            except InvalidConfigError:
                continue
            right[name] = text
        return cls.from_topic_configs(right, defaults)

    def to_topic_configs(self) -> dict[str, str]:
        """Return every setting as text, by Kafka's names."""
        return {name: as_text(getattr(self, setting.name)) for name, setting in _SETTINGS.items()}


def no_such_setting(name: str) -> InvalidConfigError:
    """Return the error for the name of a setting that does not exist, with the most similar names."""
    return InvalidConfigError(f"there is no topic setting {_quoted(name)!r} ({nearest_names(name, _SETTINGS)})")


def config_type(name: str) -> ConfigType | None:
    """Return the type of a topic setting; None if it does not exist."""
    setting = _SETTINGS.get(name)
    if setting is None:
        return None
    parse = setting.metadata["parse"]
    if isinstance(parse, WholeNumber):
        return ConfigType.INT if parse.high <= INT32_MAX else ConfigType.LONG
    return _TYPES[type(setting.default)]


def _quoted(text: str) -> str:
    """Return the text for an error message: its first 100 characters and "…" if it is longer."""
    return text if len(text) <= _MOST_QUOTED else f"{text[:_MOST_QUOTED]}…"


_TYPES = {
    bool: ConfigType.BOOLEAN,
    float: ConfigType.DOUBLE,
    str: ConfigType.STRING,
    tuple: ConfigType.LIST,
    frozenset: ConfigType.LIST,
}

_SETTINGS = {setting.metadata["name"]: setting for setting in dataclasses.fields(LogConfig)}

#: For each setting without effect, the reason.
NO_EFFECT: Mapping[str, str] = {
    name: reason for name, setting in _SETTINGS.items() if (reason := setting.metadata["no_effect"])
}
