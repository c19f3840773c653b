"""The data that a sticky assignor keeps between generations, in the user data of a subscription (KIP-54, KIP-341)."""

from __future__ import annotations

from tidelog.errors import CorruptMessageError
from tidelog.frozen_dataclass import frozen
from tidelog.groups.kafka_schema import SchemaReader, SchemaWriter
from tidelog.model import TopicPartition


@frozen
class MemberData:
    """The partitions that a member owned, and the generation in which it did (−1: unknown)."""

    partitions: tuple[TopicPartition, ...]
    generation: int = -1


def encode_member_data(data: MemberData) -> bytes:
    """Encode the partitions and the generation as Kafka's StickyAssignor does, in version 1."""
    out = SchemaWriter()
    out.partitions(data.partitions)
    out.int32(data.generation)
    return bytes(out)


def decode_member_data(data: bytes | None) -> MemberData | None:
    """Decode version 1, or version 0, which has no generation. Return None for other bytes.

    A missing value only makes the assignment less sticky, so that unreadable bytes are no error.
    """
    if not data:
        return None
    reader = SchemaReader(data)
    try:
        return MemberData(reader.partitions(), reader.int32() if reader.left else -1)
    except CorruptMessageError:
        return None


def decode_generation(data: bytes | None) -> int:
    """Return the generation that a CooperativeStickyAssignor wrote; −1 for None and for other than four bytes."""
    return int.from_bytes(data, "big", signed=True) if data is not None and len(data) == 4 else -1
