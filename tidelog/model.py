"""Define the types that users and all packages share: partitions, records, offsets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeVar

from tidelog.errors import InvalidTopicError, TidelogError
from tidelog.topic_partition import TopicPartition as TopicPartition

T = TypeVar("T")

#: The types of a records field: the bytes themselves, or a view of a frame or a file.
Buffer = bytes | bytearray | memoryview


class StoredBytes(Protocol):
    """Bytes that are still in a file, and may change once the event loop goes on, so that they are used at once."""

    def __len__(self) -> int: ...

    def read(self, begin: int = 0) -> bytes:
        """Return the bytes from position `begin` on; StorageError if the file cannot be read."""
        ...

    def send(self, socket: int, begin: int = 0) -> int:
        """Send bytes from position `begin` on to a socket's descriptor that does not block, and return their number.

        The number is 0 if the socket accepts no bytes now. Raise StorageError if the file cannot be read, and OSError
        if the connection is lost.
        """
        ...


EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
MAX_TIMESTAMP = -3
NO_TIMESTAMP = -1
NO_LEADER = -1

#: The sender of ListOffsets and Fetch. A broker's own id (≥ 0) means a follower.
CONSUMER_REPLICA_ID = -1
DEBUGGING_REPLICA_ID = -2

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

_MAX_TOPIC_NAME = 249
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")
_ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:.]+(?:%[\w.-]+)?)\]|([\w.:%-]+)):([0-9]{1,5})\Z", re.ASCII)


class OffsetAndTimestamp(NamedTuple):
    """The result of a look-up by time: the earliest offset whose timestamp is at or after the target.

    timestamp, leader_epoch   of the record at `offset` (ms); the epoch is None if the leader does not know it
    """

    offset: int
    timestamp: int
    leader_epoch: int | None


class NoOffset(StrEnum):
    """The reason why a look-up by time found no offset."""

    EMPTY = "empty"
    """The partition has no record."""
    PAST_END = "past_end"
    """Every record is older than the target."""
    ABOVE_HIGH_WATERMARK = "above_high_watermark"
    """A record qualifies, but it is not committed yet."""
    RETRY = "retry"
    """No leader answered in time, or no reason was found in time; `error` has the last error."""
    REFUSED = "refused"
    """The partition does not exist, or the leader returned an error that is not retriable; `error` has the error."""


class OffsetOutcome(NamedTuple):
    """The result of a look-up by time in one partition: `found`, or the reason why there is no offset.

    `error` is set only with the reasons RETRY and REFUSED.
    """

    found: OffsetAndTimestamp | None
    reason: NoOffset | None = None
    error: TidelogError | None = None


class OffsetAndMetadata(NamedTuple):
    """A commit for a partition: the offset to read next, and the committer's text `metadata`.

    leader_epoch   the leader epoch of the record before `offset`; None: not known

    Example:

        admin.alter_consumer_group_offsets("billing", {TopicPartition("orders", 0): OffsetAndMetadata(0)})
    """

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class ConsumerGroupMetadata(NamedTuple):
    """A consumer's identity in its group.

    generation_id       the member's generation; −1: the consumer is in no generation
    member_id           the id that the coordinator assigned; empty before
    group_instance_id   None for a dynamic member
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class RecordMetadata(NamedTuple):
    """The position and timestamp of an acknowledged record.

    offset      −1 if not known: with acks=0, or if the broker recognised a repetition without knowing its offset
    timestamp   the producer's (ms), or the broker's if the topic has LogAppendTime timestamps
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address of one broker.

    Example:

        Endpoint.parse("localhost:9092").port
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """Parse `host:port` or `[v6]:port`, and ignore white space around it.

        ValueError if the text has another form, or the port is not from 1 to 65535.
        """
        found = _ADDRESS.match(text.strip())
        if found is None or not 0 < int(found[3]) < 65536:
            raise ValueError(f"{text!r} is not host:port")
        return cls(found[1] or found[2], int(found[3]))


def validate_topic(name: str) -> str:
    """Return the name if Kafka allows it, else raise InvalidTopicError with the reason."""
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
