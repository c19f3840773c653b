"""Fuzzes the records of the offsets topic, and what members of a group send each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tidelog.errors import CorruptMessageError
from tidelog.groups import offsets_topic as topic
from tidelog.groups.assignment import consumer_protocol as protocol
from tidelog.model import TopicPartition
from tools.fuzz.targets.target import Target, check

T = TypeVar("T")


def run_offsets_record(data: bytes) -> None:
    """Check that a key, a commit and a generation are unchanged after they are encoded and decoded again."""
    key = _read(topic.decode_key, data)
    if key is not None and not isinstance(key, topic.UnknownKey):
        check(topic.decode_key(topic.encode_key(key)) == key, f"{key} changes")
    commit = _read(topic.decode_commit, data)
    if commit is not None:
        again = topic.decode_commit(topic.encode_commit(commit))
        check(
            (again.offset, again.metadata, again.committed_ms) == (commit.offset, commit.metadata, commit.committed_ms),
            commit,
        )
    group = _read(topic.decode_group, data)
    if group is not None:
        check(topic.decode_group(topic.encode_group(group)) == group, f"{group} changes")


def run_consumer_protocol(data: bytes) -> None:
    """Check that a subscription and an assignment are unchanged after they are encoded and decoded again."""
    subscription = _read(protocol.decode_subscription, data)
    if subscription is not None:
        again = protocol.decode_subscription(protocol.encode_subscription(subscription))
        check((again.topics, sorted(again.owned)) == (subscription.topics, sorted(subscription.owned)), subscription)
    assignment = _read(protocol.decode_assignment, data)
    if assignment is not None:
        check(
            sorted(protocol.decode_assignment(protocol.encode_assignment(assignment))) == sorted(assignment), assignment
        )


def _read(decode: Callable[[bytes], T], data: bytes) -> T | None:
    """Return the decoded value, or None if decoding raises CorruptMessageError."""
    try:
        return decode(data)
    except CorruptMessageError:
        return None


def _offsets_seeds() -> list[bytes]:
    member = topic.MemberRecord("m", "i", "c", "/h", 1, 2, b"s", b"a")
    flexible = b"\0\4" + (7).to_bytes(8) + (1).to_bytes(4) + b"\2m" + (5).to_bytes(8) + b"\0"
    return [
        topic.encode_key(topic.CommitKey("g", "t", 1)),
        topic.encode_key(topic.GroupKey("g")),
        b"\0\5unknown",
        topic.encode_commit(topic.Commit(5, 1, "note", 9)),
        b"\0\1" + topic.encode_commit(topic.Commit(5, 1, "note", 9))[2:] + b"\0" * 8,
        flexible,
        topic.encode_group(topic.GroupRecord("consumer", 3, "range", "m", 9, (member, member))),
        topic.encode_group(topic.GroupRecord("consumer", 3, None, None, 9, ())),
    ]


def _protocol_seeds() -> list[bytes]:
    tps = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)]
    return [
        protocol.encode_subscription(protocol.Subscription(("t", "u"), tuple(tps), 3, "rack", b"data")),
        protocol.encode_subscription(protocol.Subscription(("t",))),
        protocol.encode_assignment(tps),
    ]


_PACKAGES = ("tidelog.groups",)

TARGETS = (
    Target("offsets-record", "keys and values of __consumer_offsets", run_offsets_record, _offsets_seeds, _PACKAGES),
    Target("consumer-protocol", "what members of a group send", run_consumer_protocol, _protocol_seeds, _PACKAGES),
)
