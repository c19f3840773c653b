"""What a sticky assignor remembers between generations, in the user data of a subscription (KIP-54, 341)."""

from __future__ import annotations

from tidelog.errors import CorruptMessageError
from tidelog.frozen_dataclass import frozen
from tidelog.groups.kafka_schema import SchemaReader, SchemaWriter
from tidelog.model import TopicPartition


@frozen
class MemberData:
    """What a member had, and in which generation; −1: not known."""

    partitions: tuple[TopicPartition, ...]
    generation: int = -1


def encode_member_data(data: MemberData) -> bytes:
    """As Kafka's StickyAssignor writes it, version 1."""
    out = SchemaWriter()
    out.partitions(data.partitions)
    out.int32(data.generation)
    return bytes(out)


def decode_member_data(data: bytes | None) -> MemberData | None:
    """Also of version 0, which knew no generation; None for what is something else: it only makes things less even."""
    if not data:
        return None
    reader = SchemaReader(data)
    try:
        return MemberData(reader.partitions(), reader.int32() if reader.left else -1)
    except CorruptMessageError:
        return None


def decode_generation(data: bytes | None) -> int:
    """All that a CooperativeStickyAssignor writes; −1 for what is something else."""
    return int.from_bytes(data, "big", signed=True) if data is not None and len(data) == 4 else -1
