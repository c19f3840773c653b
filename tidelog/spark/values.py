"""Parses the values of options into typed values. Pure.

A parser raises ValueError that says what the value must be (the caller names the option), or ConfigError if the parser
names the option itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from tidelog.errors import ConfigError
from tidelog.model import EARLIEST_TIMESTAMP, TopicPartition, validate_topic
from tidelog.spark.offsets import MAX_INT32, MAX_INT64, from_json, unique_names


@dataclass(frozen=True, slots=True)
class Subscribe:
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """The subscription to all topics whose whole name matches the regular expression, now and later."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Assign:
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """A position given as an offset for each partition; −1 means latest, −2 earliest."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTime:
    """The position of the first record at or after `timestamp` (ms), in every partition."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The position of the first record at or after a timestamp (ms) of each partition."""

    timestamps: Mapping[TopicPartition, int]


Subscription = Subscribe | SubscribePattern | Assign
Position = Literal["earliest", "latest"] | AtOffsets | AtTime | AtTimes
#: The bound of a read that a position is for.
Bound = Literal["starting", "ending"]


def option_of(position: Position, bound: Bound) -> str:
    """Return the name of the option that gives such a position, such as `startingOffsets`."""
    match position:
        case AtTime():
            return f"{bound}Timestamp"
        case AtTimes():
            return f"{bound}OffsetsByTimestamp"
        case _:
            return f"{bound}Offsets"


def boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def at_least(lowest: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if value < lowest:
            raise ValueError(f"must be at least {lowest}")
        if value > MAX_INT64:
            raise ValueError(f"must be at most {MAX_INT64}")
        return value

    return parse


def strategy(text: str) -> bool:
    if text.lower() not in ("error", "latest"):
        raise ValueError("must be error or latest")
    return text.lower() == "latest"


def subscribe(text: str) -> Subscribe:
    topics = dict.fromkeys(name.strip() for name in text.split(",") if name.strip())
    if not topics:
        raise ValueError("names no topic")
    return Subscribe(tuple(validate_topic(name) for name in topics))


def pattern(text: str) -> SubscribePattern:
    re.compile(text)
    return SubscribePattern(text)


def assign(text: str) -> Assign:
    expected = f'must be {{"topic": [0, 1]}}, not {text}'
    shaped = json.loads(text, object_pairs_hook=unique_names)
    if not isinstance(shaped, dict) or not shaped:
        raise ConfigError(f"option assign {expected}")
    partitions = set()
    for topic, numbers in shaped.items():
        if not isinstance(numbers, list) or not all(
            type(number) is int and 0 <= number <= MAX_INT32 for number in numbers
        ):
            raise ConfigError(f"option assign {expected}")
        partitions |= {TopicPartition(validate_topic(topic), number) for number in numbers}
    if not partitions:
        raise ConfigError(f"option assign {expected}")
    return Assign(tuple(sorted(partitions)))


def offsets(text: str, name: str) -> Position:
    if text.lower() == "earliest":
        return "earliest"
    if text.lower() == "latest":
        return "latest"
    offsets = from_json(text, f"{name} (earliest, latest or JSON)")
    for partition, offset in offsets.items():
        if offset < EARLIEST_TIMESTAMP:
            raise ConfigError(f"{name}: {partition} has {offset}; it must be ≥ 0, −1 (latest) or −2 (earliest)")
    return AtOffsets(offsets)


def timestamp(text: str) -> int:
    timestamp = int(text)
    if timestamp < 0:
        raise ValueError("must not be negative (ms since 1970)")
    if timestamp > MAX_INT64:
        raise ValueError(f"must be at most {MAX_INT64} (ms since 1970)")
    return timestamp


def times(text: str, name: str) -> dict[TopicPartition, int]:
    times = from_json(text, name)
    for partition, timestamp in times.items():
        if timestamp < 0:
            raise ConfigError(f"{name}: {partition} has {timestamp}; a time must not be negative (ms since 1970)")
    return times


_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000} | {
    name + ending: size
    for name, size in (
        ("millisecond", 1),
        ("second", 1000),
        ("minute", 60_000),
        ("hour", 3_600_000),
        ("day", 86_400_000),
    )
    for ending in ("", "s")
}


def duration_ms(text: str) -> int:
    """Return the milliseconds of a duration such as `15m` or `30 seconds`; ValueError for another form."""
    match = re.match(r"(\d+)\s*([a-z]+)\Z", text.lower())
    if match is None or match[2] not in _UNITS_MS:
        raise ValueError("must be a number and a unit, such as 15m or 30s")
    duration = int(match[1]) * _UNITS_MS[match[2]]
    if duration > MAX_INT64:
        raise ValueError(f"must be at most {MAX_INT64} ms")
    return duration
