"""What members of a consumer group tell one another through the coordinator, who reads none of it (KIP-429, 792).

    subscription   0: topics, user data    1: and what it owns    2: and in which generation    3: and its rack
    assignment     partitions, user data

A reader takes what it knows of a later version, and ignores the rest: so says the protocol.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.frozen_dataclass import frozen
from tidelog.groups.kafka_schema import SchemaReader, SchemaWriter
from tidelog.model import TopicPartition

PROTOCOL_TYPE = "consumer"

_SUBSCRIPTION = 3
_ASSIGNMENT = 0


@frozen
class Subscription:
    """What a member wants.

    owned        what it still has, of the generation `generation`, so that little is taken from it (−1: none)
    user_data    what its assignor wants to remember
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack: str | None = None
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription) -> bytes:
    """In version 3, which readers of all versions understand."""
    out = SchemaWriter()
    out.int16(_SUBSCRIPTION)
    out.array(subscription.topics, out.string)
    out.data(subscription.user_data)
    out.partitions(subscription.owned)
    out.int32(subscription.generation)
    out.string(subscription.rack)
    return bytes(out)


def decode_subscription(data: bytes) -> Subscription:
    """CorruptMessageError for what this is not."""
    reader = SchemaReader(data)
    version = reader.int16()
    topics, user_data = tuple(reader.array(reader.string)), reader.nullable_data()
    owned = reader.partitions() if version >= 1 else ()
    generation = reader.int32() if version >= 2 else -1
    rack = reader.nullable_string() if version >= 3 else None
    return Subscription(topics, owned, generation, rack, user_data)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """What one member is to consume."""
    out = SchemaWriter()
    out.int16(_ASSIGNMENT)
    out.partitions(partitions)
    out.data(None)
    return bytes(out)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """CorruptMessageError for what this is not; nothing at all is nothing to consume."""
    if not data:
        return ()
    reader = SchemaReader(data)
    reader.int16()
    return reader.partitions()
