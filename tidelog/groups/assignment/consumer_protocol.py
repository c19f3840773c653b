"""Encodes what members of a consumer group send to each other through the coordinator (KIP-429, KIP-792).

    subscription   version 0: topics, user data; 1: also owned partitions; 2: also their generation; 3: also the rack
    assignment     partitions, user data

The coordinator does not read these bytes. As the protocol demands, a reader reads the fields that it knows of a later
version, and ignores the rest.
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
    """The subscription that a member sends when it joins.

    owned        the partitions that the member still owns from `generation`, so that few are taken from it
    generation   −1: none, or not reported
    user_data    bytes that the member's assignor wants to get back in the next generation
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack: str | None = None
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription) -> bytes:
    """Encode version 3, which readers of all versions can read."""
    out = SchemaWriter()
    out.int16(_SUBSCRIPTION)
    out.array(subscription.topics, out.string)
    out.data(subscription.user_data)
    out.partitions(subscription.owned)
    out.int32(subscription.generation)
    out.string(subscription.rack)
    return bytes(out)


def decode_subscription(data: bytes) -> Subscription:
    """Decode any version. Raise CorruptMessageError if the bytes are no subscription."""
    reader = SchemaReader(data)
    version = reader.int16()
    topics, user_data = tuple(reader.array(reader.string)), reader.nullable_data()
    owned = reader.partitions() if version >= 1 else ()
    generation = reader.int32() if version >= 2 else -1
    rack = reader.nullable_string() if version >= 3 else None
    return Subscription(topics, owned, generation, rack, user_data)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode the partitions that one member is to consume, in version 0 without user data."""
    out = SchemaWriter()
    out.int16(_ASSIGNMENT)
    out.partitions(partitions)
    out.data(None)
    return bytes(out)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Decode an assignment; empty bytes mean no partitions. Raise CorruptMessageError for other bytes."""
    if not data:
        return ()
    reader = SchemaReader(data)
    reader.int16()
    return reader.partitions()
