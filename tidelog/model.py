"""The nouns that users and every room share: partitions, records, offsets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeVar

from tidelog.errors import InvalidTopicError, TidelogError

T = TypeVar("T")

#: What a records field may hold: the bytes themselves or a view of somebody's frame or file.
Buffer = bytes | bytearray | memoryview

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
MAX_TIMESTAMP = -3
NO_TIMESTAMP = -1
NO_LEADER = -1

#: ListOffsets and Fetch: who asks. A broker's own id (≥ 0) asks as a follower.
CONSUMER_REPLICA_ID = -1
DEBUGGING_REPLICA_ID = -2

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

_MAX_TOPIC_NAME = 249
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")
_ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:.]+(?:%[\w.-]+)?)\]|([\w.:%-]+)):([0-9]{1,5})\Z", re.ASCII)


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndTimestamp(NamedTuple):
    """A look-up's answer: the earliest offset at or after the target, its own timestamp (ms) and its leader epoch."""

    offset: int
    timestamp: int
    leader_epoch: int | None


class NoOffset(StrEnum):
    """Why no offset stands for a point in time."""

    EMPTY = "empty"
    """There is no record in the partition."""
    PAST_END = "past_end"
    """Every record is older."""
    ABOVE_HIGH_WATERMARK = "above_high_watermark"
    """There is one, and it is not committed yet."""
    RETRY = "retry"
    """No leader answered in time; `error` says what came instead."""
    REFUSED = "refused"
    """A leader refused for good; `error` says why."""


class OffsetOutcome(NamedTuple):
    """What looking a point in time up in one partition came to: `found`, or the reason why there is nothing."""

    found: OffsetAndTimestamp | None
    reason: NoOffset | None = None
    error: TidelogError | None = None


class OffsetAndMetadata(NamedTuple):
    """What a group commits for a partition: the offset to read next, a note, and the epoch of the record before it."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class ConsumerGroupMetadata(NamedTuple):
    """Who a consumer is in its group, and in which generation (−1: it is no member)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class RecordMetadata(NamedTuple):
    """Where an acknowledged record stands. `offset` is −1 with acks=0; `timestamp` is in ms."""

    topic: str
    partition: int
    offset: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address of one broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """`host:port` or `[v6]:port`; ValueError names what is wrong."""
        found = _ADDRESS.match(text.strip())
        if found is None or not 0 < int(found[3]) < 65536:
            raise ValueError(f"{text!r} is not host:port")
        return cls(found[1] or found[2], int(found[3]))


def validate_topic(name: str) -> str:
    """The name itself where Kafka allows it, else InvalidTopicError that says why."""
    if name and not isinstance(name, str):
        raise InvalidTopicError(f"a topic name is a str, not {name!r}")
    if not name:
        raise InvalidTopicError("a topic name must not be empty")
    if name in (".", ".."):
        raise InvalidTopicError(f"a topic must not be named {name!r}")
    if len(name) > _MAX_TOPIC_NAME:
        raise InvalidTopicError(f"a topic name has at most {_MAX_TOPIC_NAME} characters, this one has {len(name)}")
    if not _TOPIC_NAME.match(name):
        raise InvalidTopicError(f"topic {name!r}: only ASCII letters, digits, '.', '_' and '-' are allowed")
    return name
