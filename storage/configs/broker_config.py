"""The brokers' defaults for topic settings, by Kafka's names of broker settings.

topic       broker; the first one that is set counts
segment.ms  log.roll.ms, log.roll.hours
…           often the same name, or "log." or (compaction) "log.cleaner." before it; `SYNONYMS` has all
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from storage.configs.log_config import LogConfig
from storage.configs.parsers import number
from tidelog.errors import InvalidConfigError

_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
_parse = number()

#: topic setting → its broker settings, each with the factor to the topic's unit; the first one set counts.
SYNONYMS: Mapping[str, tuple[tuple[str, int], ...]] = {
    **{
        name: ((f"log.{name}", 1),)
        for name in (
            "segment.bytes",
            "retention.bytes",
            "index.interval.bytes",
            "cleanup.policy",
            "preallocate",
            "message.format.version",
            "message.timestamp.type",
            "message.timestamp.difference.max.ms",
            "message.timestamp.before.max.ms",
            "message.timestamp.after.max.ms",
            "message.downconversion.enable",
            "local.retention.ms",
            "local.retention.bytes",
        )
    },
    **{
        name: ((f"log.cleaner.{name}", 1),)
        for name in ("delete.retention.ms", "min.compaction.lag.ms", "max.compaction.lag.ms")
    },
    **{
        name: ((name, 1),)
        for name in (
            "unclean.leader.election.enable",
            "min.insync.replicas",
            "compression.type",
            "compression.gzip.level",
            "compression.lz4.level",
            "compression.zstd.level",
        )
    },
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    ),
    "max.message.bytes": (("message.max.bytes", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
}


def topic_defaults(broker_configs: Mapping[str, str], base: LogConfig | None = None) -> LogConfig:
    """Return the settings of a topic that has none of its own, from the broker's settings; others are ignored.

    `base` has the settings that the broker's settings do not give (None: the built-in defaults).
    InvalidConfigError names the broker setting that is wrong.
    """
    configs: dict[str, str] = {}
    given_as: dict[str, str] = {}
    for topic_name, synonyms in SYNONYMS.items():
        given = next((synonym for synonym in synonyms if synonym[0] in broker_configs), None)
        if given is not None:
            configs[topic_name] = _topic_value(topic_name, *given, broker_configs[given[0]])
            given_as[topic_name] = given[0]
    try:
        return LogConfig.from_topic_configs(configs, base)
    except InvalidConfigError as error:
        raise InvalidConfigError(renamed(str(error), given_as)) from None


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Return an error text with each `name=` replaced by the name that `names` maps it to, as the user wrote it."""
    for name, other in names.items():
        text = re.sub(rf"(?<![\w.]){re.escape(name)}=", f"{other}=", text)
    return text


def _topic_value(topic_name: str, broker_name: str, factor: int, text: str) -> str:
    try:
        # A negative retention means no limit, in any unit.
        value = text if factor == 1 else str(max(_parse(text) * factor, -1))
        LogConfig.from_topic_configs({topic_name: value})
    except (InvalidConfigError, ValueError) as error:
        raise InvalidConfigError(f"{broker_name}={text}: {str(error).rpartition(': ')[2]}") from None
    return value
