"""Encodes and decodes the records of `__consumer_offsets`: commits and groups, in Kafka's formats.

    key     0, 1  a commit: group, topic, partition          value 3: offset, leader epoch, metadata, commit time
                                                             value 1: offset, metadata, commit time, expiry
            2     a group                                     value 3: protocol, generation, leader, members
    A null value deletes the key's entry.

Records are written in the versions that Kafka 3.9 writes, and read in all that it reads: older versions, and version 4,
which has the same fields in the flexible form (KIP-915). Keys of later versions (transactional ids, KIP-848) are
unknown here, and are skipped when a partition is loaded.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from tidelog.errors import CorruptMessageError
from tidelog.frozen_dataclass import frozen
from tidelog.groups.kafka_schema import FlexibleReader, SchemaReader, SchemaWriter

OFFSETS_TOPIC = "__consumer_offsets"

_COMMIT_KEY = 1
_GROUP_KEY = 2
_VALUE = 3
_EXPIRING = 1
_FLEXIBLE = 4

# A coordinator may load a million commits. A separate call for each field would double the time.
#: The version, and the length of the group's name.
_KEY_HEAD = struct.Struct(">hh")
_COMMIT_KEYS = (b"\0\0", b"\0\1")
#: The version, offset, leader epoch and the length of the metadata; the commit time follows the metadata.
_COMMIT_HEAD, _COMMIT_TIME = struct.Struct(">hqih"), struct.Struct(">q")
_WRITTEN = b"\0\3"


@frozen
class CommitKey:
    """The key of a committed offset."""

    group: str
    topic: str
    partition: int


@frozen
class GroupKey:
    """The key of a group and its members."""

    group: str


@frozen
class UnknownKey:
    """A key of a version that this release does not read; its record is skipped."""

    version: int


Key = CommitKey | GroupKey | UnknownKey


@frozen
class Commit:
    """A committed offset.

    leader_epoch   the epoch of the record before the offset; −1: unknown
    metadata       text that the committer wants to keep with the offset
    committed_ms   the time of the commit, by the coordinator's clock unless the committer stated it
    expires_ms     when the commit expires, if the committer requested a retention; −1: the broker's setting applies
    """

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int = -1


@frozen
class MemberRecord:
    """A member of the group's last generation."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@frozen
class GroupRecord:
    """A generation of a group; `protocol` and `leader` are None, and `members` is empty, if the group is empty.

    leader       the member id of the group's leader
    changed_ms   the time of the record, by the coordinator's clock; −1: not known
    """

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    changed_ms: int
    members: tuple[MemberRecord, ...]


def partition_for(group: str, partitions: int) -> int:
    """Return the partition that stores this group: the absolute value of Java's hash of the name, modulo the number.

    >>> partition_for("console-consumer-1", 50)
    24
    """
    value = 0
    data = group.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >> 31 else value
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


def encode_key(key: CommitKey | GroupKey) -> bytes:
    """Encode the key of a record: version 1 for a commit, version 2 for a group."""
    out = SchemaWriter()
    out.int16(_COMMIT_KEY if isinstance(key, CommitKey) else _GROUP_KEY)
    out.string(key.group)
    if isinstance(key, CommitKey):
        out.string(key.topic)
        out.int32(key.partition)
    return bytes(out)


def decode_key(data: bytes) -> Key:
    """Decode the key of a record; UnknownKey if it has another version than 0 to 2.

    Raises CorruptMessageError if the bytes are no key.
    """
    if data.startswith(_COMMIT_KEYS):
        return _decode_commit_key(data)
    reader = SchemaReader(data)
    version = reader.int16()
    return GroupKey(reader.string()) if version == _GROUP_KEY else UnknownKey(version)


def _decode_commit_key(data: bytes) -> CommitKey:
    try:
        _, length = _KEY_HEAD.unpack_from(data)
        end = _KEY_HEAD.size + length
        group = data[_KEY_HEAD.size : end].decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptMessageError(f"a commit's key of {len(data)} bytes: {error}") from None
    if length < 0:
        raise CorruptMessageError("null where a group's name is required")
    return CommitKey(group, *_topic_and_partition(data[end:]))


@lru_cache(maxsize=1 << 16)
def _topic_and_partition(data: bytes) -> tuple[str, int]:
    """Decode the topic and the partition of a commit's key. A million keys have few of them: results are cached."""
    reader = SchemaReader(data)
    return reader.string(), reader.int32()


def encode_commit(commit: Commit) -> bytes:
    """Encode the value for a `CommitKey`. A commit with an expiry is written without its leader epoch, as by Kafka."""
    out = SchemaWriter()
    if commit.expires_ms >= 0:
        out.int16(_EXPIRING)
        out.int64(commit.offset)
        out.string(commit.metadata)
        out.int64(commit.committed_ms)
        out.int64(commit.expires_ms)
        return bytes(out)
    out.int16(_VALUE)
    out.int64(commit.offset)
    out.int32(commit.leader_epoch)
    out.string(commit.metadata)
    out.int64(commit.committed_ms)
    return bytes(out)


def decode_commit(data: bytes) -> Commit:
    """Decode the value for a `CommitKey`, of version 0 to 4. Raise CorruptMessageError if the bytes are no commit."""
    if data.startswith(_WRITTEN):
        return _decode_written(data)
    version, reader = _open(data)
    offset = reader.int64()
    leader_epoch = reader.int32() if version > _VALUE else -1
    return Commit(offset, leader_epoch, reader.string(), reader.int64(), reader.int64() if version == _EXPIRING else -1)


def _decode_written(data: bytes) -> Commit:
    """Decode the version that `encode_commit` writes, with few calls, because a coordinator loads a million commits."""
    try:
        _, offset, leader_epoch, length = _COMMIT_HEAD.unpack_from(data)
        end = _COMMIT_HEAD.size + length
        (committed_ms,) = _COMMIT_TIME.unpack_from(data, end)
        metadata = data[_COMMIT_HEAD.size : end].decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptMessageError(f"a commit of {len(data)} bytes: {error}") from None
    if length < 0:
        raise CorruptMessageError("null where a string is required")
    return Commit(offset, leader_epoch, metadata, committed_ms)


def encode_group(record: GroupRecord) -> bytes:
    """Encode the value for a `GroupKey` in version 3."""
    out = SchemaWriter()
    out.int16(_VALUE)
    out.string(record.protocol_type)
    out.int32(record.generation)
    out.string(record.protocol)
    out.string(record.leader)
    out.int64(record.changed_ms)

    def write(member: MemberRecord) -> None:
        out.string(member.member_id)
        out.string(member.instance_id)
        out.string(member.client_id)
        out.string(member.client_host)
        out.int32(member.rebalance_timeout_ms)
        out.int32(member.session_timeout_ms)
        out.data(member.subscription)
        out.data(member.assignment)

    out.array(record.members, write)
    return bytes(out)


def decode_group(data: bytes) -> GroupRecord:
    """Decode the value for a `GroupKey`, of version 0 to 4. Raise CorruptMessageError if the bytes are no group.

    A rebalance timeout that the version does not have is the session timeout.
    """
    version, reader = _open(data)

    def read() -> MemberRecord:
        member_id = reader.string()
        instance_id = reader.nullable_string() if version >= 3 else None
        client_id, client_host = reader.string(), reader.string()
        rebalance_timeout_ms = reader.int32() if version >= 1 else -1
        session_timeout_ms = reader.int32()
        if rebalance_timeout_ms < 0:
            rebalance_timeout_ms = session_timeout_ms
        subscription, assignment = reader.data(), reader.data()
        reader.end()
        return MemberRecord(
            member_id,
            instance_id,
            client_id,
            client_host,
            rebalance_timeout_ms,
            session_timeout_ms,
            subscription,
            assignment,
        )

    protocol_type, generation = reader.string(), reader.int32()
    protocol, leader = reader.nullable_string(), reader.nullable_string()
    changed_ms = reader.int64() if version >= 2 else -1
    return GroupRecord(protocol_type, generation, protocol, leader, changed_ms, tuple(reader.array(read)))


def _open(data: bytes) -> tuple[int, SchemaReader]:
    version = SchemaReader(data).int16()
    if not 0 <= version <= _FLEXIBLE:
        raise CorruptMessageError(f"a value of unknown version {version}: must be 0 to {_FLEXIBLE}")
    rest = data[2:]
    return version, FlexibleReader(rest) if version == _FLEXIBLE else SchemaReader(rest)
