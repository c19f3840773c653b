"""The settings of a topic that its logs obey: Kafka 3.9's names, meanings and defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelog.errors import InvalidConfigError

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_DAY_MS = 24 * 60 * 60 * 1000

_Parser = Callable[[str], Any]


def _number(low: int, high: int = _INT64_MAX) -> _Parser:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(f"must be {low} to {high}" if high < _INT32_MAX else f"must be at least {low}")
        return value

    return parse


def _ratio(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError("must be 0 to 1")
    return value


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _one_of(*choices: str) -> _Parser:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return text

    return parse


def _policies(text: str) -> frozenset[str]:
    policies = frozenset(part.strip() for part in text.split(",") if part.strip())
    if not policies or policies - {"delete", "compact"}:
        raise ValueError("must be delete, compact or both")
    return policies


def _setting(default: Any, name: str, parse: _Parser) -> Any:
    return field(default=default, metadata={"name": name, "parse": parse})


@dataclass(frozen=True, slots=True)
class LogConfig:
    """One field for each setting, in the unit that its name ends with."""

    segment_bytes: int = _setting(1024**3, "segment.bytes", _number(14, _INT32_MAX))
    segment_ms: int = _setting(7 * _DAY_MS, "segment.ms", _number(1))
    segment_jitter_ms: int = _setting(0, "segment.jitter.ms", _number(0))
    segment_index_bytes: int = _setting(10 * 1024**2, "segment.index.bytes", _number(4, _INT32_MAX))
    index_interval_bytes: int = _setting(4096, "index.interval.bytes", _number(0, _INT32_MAX))
    max_message_bytes: int = _setting(1024**2 + 12, "max.message.bytes", _number(0, _INT32_MAX))
    flush_messages: int = _setting(_INT64_MAX, "flush.messages", _number(1))
    flush_ms: int = _setting(_INT64_MAX, "flush.ms", _number(0))
    message_timestamp_type: str = _setting(
        "CreateTime", "message.timestamp.type", _one_of("CreateTime", "LogAppendTime")
    )
    message_timestamp_before_max_ms: int = _setting(_INT64_MAX, "message.timestamp.before.max.ms", _number(0))
    #: Kafka's default is no bound; one record from the far future would then pin retention by time for ever.
    message_timestamp_after_max_ms: int = _setting(60 * 60 * 1000, "message.timestamp.after.max.ms", _number(0))
    min_insync_replicas: int = _setting(1, "min.insync.replicas", _number(1, _INT32_MAX))
    unclean_leader_election_enable: bool = _setting(False, "unclean.leader.election.enable", _boolean)
    cleanup_policy: frozenset[str] = _setting(frozenset({"delete"}), "cleanup.policy", _policies)
    retention_ms: int = _setting(7 * _DAY_MS, "retention.ms", _number(-1))
    retention_bytes: int = _setting(-1, "retention.bytes", _number(-1))
    file_delete_delay_ms: int = _setting(60_000, "file.delete.delay.ms", _number(0))
    delete_retention_ms: int = _setting(_DAY_MS, "delete.retention.ms", _number(0))
    min_compaction_lag_ms: int = _setting(0, "min.compaction.lag.ms", _number(0))
    max_compaction_lag_ms: int = _setting(_INT64_MAX, "max.compaction.lag.ms", _number(1))
    min_cleanable_dirty_ratio: float = _setting(0.5, "min.cleanable.dirty.ratio", _ratio)
    compression_type: str = _setting(
        "producer", "compression.type", _one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
    )

    @property
    def log_append_time(self) -> bool:
        """Records get the leader's time instead of the producer's."""
        return self.message_timestamp_type == "LogAppendTime"

    @classmethod
    def from_topic_configs(cls, configs: Mapping[str, str], defaults: LogConfig | None = None) -> LogConfig:
        """`defaults` with these settings in their place. InvalidConfigError names the setting and what it may be."""
        values: dict[str, Any] = {}
        for name, text in configs.items():
            setting = _SETTINGS.get(name)
            if setting is None:
                raise InvalidConfigError(f"there is no topic setting {name!r}")
            try:
                values[setting.name] = setting.metadata["parse"](text.strip())
            except ValueError as error:
                reason = "must be a number" if "literal" in str(error) or "convert" in str(error) else str(error)
                raise InvalidConfigError(f"{name}={text}: {reason}") from None
        return dataclasses.replace(defaults or cls(), **values)

    def to_topic_configs(self) -> dict[str, str]:
        """Every setting as text, by Kafka's names."""
        return {name: _text(getattr(self, setting.name)) for name, setting in _SETTINGS.items()}


_SETTINGS = {setting.metadata["name"]: setting for setting in dataclasses.fields(LogConfig)}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    return str(value)
